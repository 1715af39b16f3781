// A job's options, written as on a command line.
#pragma once
#include "base/buf.h"
#include "base/json.h"

// Appends " --option value" for each that `spec` has. Not `all`: only those that get has no line for.
void job_option_text(const struct json *spec, bool all, struct buf *out);
