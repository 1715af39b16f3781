// Users of this machine as jobs need them: ids, groups, home, shell. Asking the system's user
// database costs more than starting a process, so answers are kept for a while.
#pragma once
#include <stdint.h>

#include "base/error.h"

enum { USERS_KEEP_MS = 60000, USERS_MAX = 4096 };

struct user_info {
    uint32_t uid, gid;
    char *name, *home, *shell;
    uint32_t *groups;
    uint32_t ngroups;
};

struct users;
struct users *users_new(void);
struct users *users_free(struct users *u);
// -ENOENT when there is no such user here, or the id belongs to another name. The result lives
// until the next call.
int users_find(struct users *u, uint32_t uid, const char *name, int64_t now_ms,
               const struct user_info **out, struct error *e);
