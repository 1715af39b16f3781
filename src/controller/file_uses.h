// Places that running jobs use.
#pragma once
#include "core/core.h"
#include "model/file.h"

// Fills in the places of the user's running jobs; of many jobs those of the first FILE_USES_MAX places.
void controller_file_uses(const struct core *core, uint32_t uid, struct arena *a, struct file_request *m);
