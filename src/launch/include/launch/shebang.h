// The first line of a script, read by ourselves: the folder it lies in may not allow execution, and the
// messages are better.
#pragma once
#include <stddef.h>

#include "launch/launch.h"

enum { SHEBANG_MAX = 256 };

struct shebang {
    char line[SHEBANG_MAX];
    char *interpreter, *argument;  // argument NULL: none; both point into line
};

// Not LAUNCH_OK: `text` says why, for people. Allocates nothing.
enum launch_code launch_shebang_read(const char *script, struct shebang *out, char *text, size_t max);
