// What a provider's groups give a Unix user: a role, and membership of projects. It is said anew at each login by way
// of the provider, replaces what was said before, and ends at its time by an event, so that replay and snapshot agree.
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "base/text.h"
#include "model/name.h"
#include "state.h"

enum { CHECK_AGAIN_MS = 60000 };

static struct user_grant_entry *find(const struct core *c, const char *user) {
    return user ? strmap_get(&c->grants, user) : NULL;
}

const struct event_user_grant *core_user_grant(const struct core *c, const char *user) {
    const struct user_grant_entry *g = find(c, user);
    return g ? g->grant : NULL;
}

bool core_grants_project(const struct core *c, const char *user, const char *project) {
    const struct event_user_grant *g = core_user_grant(c, user);
    for (uint32_t i = 0; g && i < g->projects.len; i++)
        if (streq(g->projects.at[i], project))
            return true;
    return false;
}

static bool is_nothing(const struct event_user_grant *g) {
    return g->role == USER_ROLE_USER && !g->projects.len;
}

static int by_user(const void *a, const void *b) {
    return strcmp((*(struct user_grant_entry *const *)a)->grant->unix_user,
                  (*(struct user_grant_entry *const *)b)->grant->unix_user);
}

struct grant_list {
    struct user_grant_entry **at;
    uint32_t len, cap;
};

// In the order of their users: what is emitted does not depend on the map's order.
static struct grant_list all(const struct core *c) {
    struct grant_list list = {0};
    size_t it = 0;
    void *v;
    while (strmap_next(&c->grants, &it, NULL, &v))
        vec_push(&list, (struct user_grant_entry *)v);
    if (list.len)
        qsort(list.at, list.len, sizeof *list.at, by_user);
    return list;
}

void core_each_user_grant(const struct core *c, bool (*fn)(void *ctx, const struct event_user_grant *g),
                          void *ctx) {
    struct grant_list list = all(c);
    for (uint32_t i = 0; i < list.len; i++)
        if (!fn(ctx, list.at[i]->grant))
            break;
    vec_done(&list);
}

bool core_grant_loads(const struct event_user_grant *g) {
    if (!g->unix_user || name_check("unix_user", g->unix_user, NULL) < 0 || g->role > USER_ROLE_ADMIN ||
        g->projects.len > USER_GRANT_PROJECTS_MAX)
        return false;
    for (uint32_t i = 0; i < g->projects.len; i++)
        if (!g->projects.at[i] || name_check("project", g->projects.at[i], NULL) < 0)
            return false;
    return true;
}

CORE_COMMAND(core_command_user_grant) {
    const struct event_user_grant *m = body;
    int r = core_need_admin(actor, "grant roles", e);
    if (r < 0)
        return r;
    if (!core_feature(c, FEATURE_USERS))
        return error_set(e, ENOTSUP, "user: finish the upgrade first: acequia upgrade finish");
    if (!core_grant_loads(m) || (!is_nothing(m) && m->expires_ms <= now_ms))
        return error_set(e, EINVAL,
                         "grant: a user, a role, at most %d projects and a time in the future are due",
                         USER_GRANT_PROJECTS_MAX);
    if (is_nothing(m) && !find(c, m->unix_user))
        return CORE_UNCHANGED;
    if (!find(c, m->unix_user) && c->grants.len >= USER_ACCOUNTS_MAX)
        return error_set(e, E2BIG, "grant: %d users have one, which is the most", USER_ACCOUNTS_MAX);
    struct event_user_grant b = *m;
    b.by = actor->user;
    core_emit(c, now_ms, EVENT_USER_GRANTED, &b);
    return 0;
}

// A clock that was set back makes a grant last longer, at most as long again.
void core_grants_expire(struct core *c, int64_t now_ms) {
    struct grant_list list = all(c);
    c->next_grant_ms = now_ms + CHECK_AGAIN_MS;
    for (uint32_t i = 0; i < list.len; i++) {
        cleanup_arena struct arena a = {0};
        int64_t ends_ms = list.at[i]->grant->expires_ms;
        if (ends_ms <= now_ms) {
            struct event_user_grant none = {.unix_user = arena_strdup(&a, list.at[i]->grant->unix_user)};
            core_emit(c, now_ms, EVENT_USER_GRANTED, &none);
        } else if (ends_ms < c->next_grant_ms) {
            c->next_grant_ms = ends_ms;
        }
    }
    vec_done(&list);
}

// --- state ---

static void entry_free(struct user_grant_entry *g) {
    arena_done(&g->arena);
    free(g);
}

void core_apply_grant(struct core *c, const struct event_user_grant *b) {
    struct user_grant_entry *old = find(c, b->unix_user);
    if (old) {
        strmap_remove(&c->grants, old->grant->unix_user);
        entry_free(old);
    }
    if (is_nothing(b))
        return;
    struct user_grant_entry *g = xcalloc(1, sizeof *g);
    g->grant = schema_copy(&event_user_grant_schema, b, &g->arena);
    strmap_put(&c->grants, g->grant->unix_user, g);
    c->next_grant_ms = 0;  // looked at when the core is asked next
}

void core_grants_free(struct core *c) {
    size_t it = 0;
    void *v;
    while (strmap_next(&c->grants, &it, NULL, &v))
        entry_free(v);
    strmap_done(&c->grants);
}
