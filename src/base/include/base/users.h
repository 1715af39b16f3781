// Users of this machine: ids, groups, home, shell. The service that knows them (LDAP, sssd) may be
// slow or not answer at all, so a small process of its own asks it, with a child for each question;
// whoever wants to know is told to come back. Answers are kept for a while, and for longer when the
// service is silent. Nothing here waits.
#pragma once
#include <stdbool.h>
#include <stdint.h>

#include "base/error.h"

enum {
    USERS_KEEP_MS = 60000,      // answers hold this long
    USERS_REFRESH_MS = 45000,   // asked again, without anybody waiting, when they are used after this
    USERS_STALE_MS = 3600000,   // and this long while there is no other answer
    USERS_PATIENCE_MS = 10000,  // how long an answer is waited for
    USERS_KNOWN_PATIENCE_MS = 2000,  // the same when there is an older one
    USERS_REST_MS = 5000,       // a question that was not answered is not asked again before
    USERS_MAX = 4096,           // remembered
    USERS_ASKING_MAX = 16,      // questions under way at once
    USERS_NAME_MAX = 256,
    USERS_GROUPS_MAX = 32768,
};

struct user_info {
    uint32_t uid, gid;
    char *name, *home, *shell;
    uint32_t *groups;
    uint32_t ngroups;
};

struct users;
// Forks: before there are threads, and before secrets are read.
int users_start(struct users **out, struct error *e);
struct users *users_free(struct users *u);  // accepts NULL

// 0; -EINPROGRESS: not known yet, look again when users_read or users_tick says so; -ENOENT: there is
// no such user; -ETIMEDOUT: nobody knows. What is given lives until the next call.
int users_by_uid(struct users *u, uint32_t uid, int64_t now_ms, const struct user_info **out, struct error *e);
int users_by_name(struct users *u, const char *name, int64_t now_ms, const struct user_info **out, struct error *e);
// What was last known of somebody, however long ago; NULL: nothing. For who was found a while ago.
const struct user_info *users_last(const struct users *u, uint32_t uid, const char *name);  // name NULL: by number

int users_fd(const struct users *u);  // readable: users_read
// Both return true when somebody who waits should look again.
bool users_read(struct users *u, int64_t now_ms);
bool users_tick(struct users *u, int64_t now_ms);  // now and then: time passes, the asking process may have died
