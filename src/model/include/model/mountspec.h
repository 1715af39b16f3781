// Folders and files of a node that a container sees: "SRC[:DST[:ro|rw]]", several with commas. Paths are
// absolute; without a DST it is seen at its own path.
#pragma once
#include <stdbool.h>
#include <stdint.h>

#include "base/arena.h"
#include "base/error.h"

enum { MOUNT_SPECS_MAX = 256 };

struct mount_spec {
    const char *from, *to;
    bool read_only;
};
struct mount_specs {
    struct mount_spec *at;
    uint32_t len;
};

// Everything lands in the arena. `what` names the field for people.
int spec_mounts_parse(const char *what, const char *text, struct arena *a, struct mount_specs *out,
                      struct error *e);
