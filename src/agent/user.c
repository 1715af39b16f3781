// Owns the cache of users.
#include "agent/user.h"

#include <assert.h>
#include <errno.h>
#include <grp.h>
#include <pwd.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/alloc.h"
#include "base/map.h"
#include "base/text.h"

enum { GROUPS_FIRST = 64, GROUPS_MAX = 65536, PASSWD_BYTES = 16384 };

struct cached {
    struct user_info info;
    int64_t until_ms;
};

struct users {
    struct map by_uid;
};

struct users *users_new(void) {
    return xcalloc(1, sizeof(struct users));
}

static void cached_free(struct cached *c) {
    if (!c)
        return;
    free(c->info.name);
    free(c->info.home);
    free(c->info.shell);
    free(c->info.groups);
    free(c);
}

static void drop_all(struct users *u) {
    size_t it = 0;
    uint64_t key;
    void *value;
    while (map_next(&u->by_uid, &it, &key, &value))
        cached_free(value);
    map_done(&u->by_uid);
    u->by_uid = (struct map){0};
}

struct users *users_free(struct users *u) {
    if (u)
        drop_all(u);
    free(u);
    return NULL;
}

static void read_groups(struct user_info *info) {
    int n = GROUPS_FIRST;
    gid_t *groups = xcalloc((size_t)n, sizeof *groups);
    if (getgrouplist(info->name, info->gid, groups, &n) < 0 && n > 0 && n <= GROUPS_MAX) {
        groups = xrealloc(groups, (size_t)n * sizeof *groups);
        if (getgrouplist(info->name, info->gid, groups, &n) < 0)
            n = 0;
    }
    static_assert(sizeof(gid_t) == sizeof(uint32_t), "groups are passed on as they are");
    info->groups = groups;
    info->ngroups = n > 0 ? (uint32_t)n : 0;
}

static struct cached *look_up(uint32_t uid, int64_t now_ms) {
    char *text = xmalloc(PASSWD_BYTES);
    struct passwd pw, *found = NULL;
    struct cached *c = NULL;
    if (getpwuid_r(uid, &pw, text, PASSWD_BYTES, &found) == 0 && found) {
        c = xcalloc(1, sizeof *c);
        c->until_ms = now_ms + USERS_KEEP_MS;
        c->info = (struct user_info){
            .uid = uid, .gid = pw.pw_gid, .name = xstrdup(pw.pw_name), .home = xstrdup(pw.pw_dir),
            .shell = xstrdup(str_empty(pw.pw_shell) ? "/bin/sh" : pw.pw_shell),
        };
        read_groups(&c->info);
    }
    free(text);
    return c;
}

int users_find(struct users *u, uint32_t uid, const char *name, int64_t now_ms,
               const struct user_info **out, struct error *e) {
    struct cached *c = map_get(&u->by_uid, uid);
    if (c && now_ms >= c->until_ms) {
        map_remove(&u->by_uid, uid);
        cached_free(c);
        c = NULL;
    }
    if (!c) {
        c = look_up(uid, now_ms);
        if (!c)
            return error_set(e, ENOENT, "user %s (id %u) does not exist on this node",
                             name ? name : "?", uid);
        if (u->by_uid.len >= USERS_MAX)
            drop_all(u);
        map_put(&u->by_uid, uid, c);
    }
    if (name && !streq(name, c->info.name))
        return error_set(e, ENOENT, "user id %u is %s on this node, not %s", uid, c->info.name,
                         name);
    *out = &c->info;
    return 0;
}
