// What Open MPI's ranks are told besides PMIx, so that they start quickly and leave nothing behind. Everything is only
// for users who have not set it themselves.
#pragma once
#include "base/buf.h"

// Variables as "?NAME=value", each with its NUL. `folder`: of the step, or NULL.
void open_mpi_environment(const char *folder, struct buf *out);
// The last value of a setting in a file of Open MPI's parameters; false: it is not in there. Pure.
bool open_mpi_setting(const char *text, const char *name, char *out, size_t room);
