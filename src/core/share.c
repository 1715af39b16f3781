// Programs of jobs that their owners share: with one user or with the job's project, for a time. A share is of one port
// of one job, and is worth nothing once the job has ended; what is over is removed when another one is made.
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/text.h"
#include "model/name.h"
#include "state.h"

enum {
    SWEPT_AT_ONCE = 16,
    KEY_MAX = 64 + IDENTIFIER_MAX,
};

static const char *key_of(const struct event_share *s, char out[static KEY_MAX]) {
    snprintf(out, KEY_MAX, "%020llu:%u:%s:%s", (unsigned long long)s->job, s->port,
             s->user ? "user" : "project", s->user ? s->user : s->project);
    return out;
}

bool core_share_loads(const struct event_share *s) {
    return s->job && s->port && s->port <= UINT16_MAX && !s->user != !s->project &&
           strlen(s->user ? s->user : s->project) <= IDENTIFIER_MAX;
}

static struct share_entry *find(const struct core *c, const struct event_share *s) {
    char key[KEY_MAX];
    return strmap_get(&c->shares, key_of(s, key));
}

const struct event_share *core_share(const struct core *c, const struct event_share *like) {
    const struct share_entry *s = core_share_loads(like) ? find(c, like) : NULL;
    return s ? s->share : NULL;
}

bool core_share_allows(const struct core *c, const char *user, uint64_t job, uint32_t port, int64_t now_ms) {
    const char *owner, *project;
    const struct event_share *s =
        core_share(c, &(struct event_share){.job = job, .port = port, .user = user});
    if (s && s->expires_ms > now_ms)
        return true;
    if (!core_job_owner(c, job, &owner, &project))
        return false;
    s = core_share(c, &(struct event_share){.job = job, .port = port, .project = project});
    return s && s->expires_ms > now_ms &&
           (core_is_named_member(c, user, project) || core_leads(c, user, project));
}

static int by_key(const void *a, const void *b) {
    return strcmp((*(struct share_entry *const *)a)->key, (*(struct share_entry *const *)b)->key);
}

struct share_list {
    struct share_entry **at;
    uint32_t len, cap;
};

// In the order of their keys: what is emitted does not depend on the map's order.
static struct share_list all(const struct core *c) {
    struct share_list list = {0};
    size_t it = 0;
    void *v;
    while (strmap_next(&c->shares, &it, NULL, &v))
        vec_push(&list, (struct share_entry *)v);
    if (list.len)
        qsort(list.at, list.len, sizeof *list.at, by_key);
    return list;
}

void core_each_share(const struct core *c, bool (*fn)(void *ctx, const struct event_share *s), void *ctx) {
    struct share_list list = all(c);
    for (uint32_t i = 0; i < list.len && fn(ctx, list.at[i]->share); i++)
        ;
    vec_done(&list);
}

// --- commands ---

static void emit(struct core *c, enum event_type type, const struct event_share *s, const char *by,
                 int64_t now_ms) {
    cleanup_arena struct arena a = {0};  // applying it may free what it is made of
    struct event_share *b = schema_copy(&event_share_schema, s, &a);
    b->by = by;
    core_emit(c, now_ms, type, b);
}

// How many there are, of the job and of all jobs of its owner.
struct share_counts {
    uint32_t job, owner;
};

// Removes what is over, a few at a time, and counts the others.
static struct share_counts make_room(struct core *c, uint64_t job, int64_t now_ms) {
    struct share_list list = all(c);
    struct share_counts n = {0};
    uint32_t swept = 0;
    const char *owner = NULL, *ignored;
    core_job_owner(c, job, &owner, &ignored);
    for (uint32_t i = 0; i < list.len; i++) {
        const struct event_share *s = list.at[i]->share;
        const char *user, *project;
        bool over = s->expires_ms <= now_ms || !core_job_owner(c, s->job, &user, &project);
        if (!over) {
            n.job += s->job == job;
            n.owner += owner && streq(user, owner);
        } else if (swept++ < SWEPT_AT_ONCE)
            emit(c, EVENT_SHARE_ENDED, s, NULL, now_ms);
    }
    vec_done(&list);
    return n;
}

static int check_owner(const struct core *c, const struct actor *actor, const struct event_share *m,
                       const char **project, struct error *e) {
    const char *user;
    if (!core_feature(c, FEATURE_SHARES))
        return error_set(e, ENOTSUP, "share: finish the upgrade first: acequia upgrade finish");
    if (!core_job_owner(c, m->job, &user, project))
        return error_set(e, ENOENT, "there is no job %llu, or it has ended", (unsigned long long)m->job);
    if (!actor->admin && !streq(actor->user, user))
        return error_set(e, EPERM, "job %llu is another user's: only its owner may share it",
                         (unsigned long long)m->job);
    if (!core_share_loads(m))
        return error_set(e, EINVAL, "share: a port, and either a user or the job's project, are required");
    return 0;
}

CORE_COMMAND(core_command_share_set) {
    const struct event_share *m = body;
    const char *project;
    char shown[64];
    int r = check_owner(c, actor, m, &project, e);
    if (r < 0 || (m->user && (r = name_check("user", m->user, e)) < 0))
        return r;
    if (m->project && !streq(m->project, project))
        return error_set(e, EINVAL, "project: the job is in project \"%s\", and is shared with that one only",
                         str_printable(project, shown, sizeof shown));
    if (m->expires_ms <= now_ms)
        return error_set(e, EINVAL, "share: it must end in the future");
    bool fresh = !core_share(c, m);
    struct share_counts n = make_room(c, m->job, now_ms);
    if (n.owner >= SHARES_PER_USER && fresh)
        return error_set(e, E2BIG,
                         "share: jobs of this user have %d already, which is the most; end one with --revoke",
                         SHARES_PER_USER);
    if (n.job >= SHARES_PER_JOB && fresh)
        return error_set(e, E2BIG, "share: the job has %d already, which is the most; end one with --revoke",
                         SHARES_PER_JOB);
    if (c->shares.len >= SHARES_MAX && fresh)
        return error_set(e, EAGAIN, "share: there are too many; try again later");
    struct event_share b = *m;
    b.made_ms = now_ms;
    emit(c, EVENT_SHARE_SET, &b, actor->user, now_ms);
    return 0;
}

CORE_COMMAND(core_command_share_end) {
    const struct event_share *m = body;
    const char *project;
    int r = check_owner(c, actor, m, &project, e);
    if (r < 0)
        return r;
    const struct event_share *s = core_share(c, m);
    if (!s)
        return error_set(e, ENOENT,
                         "it is not shared with them; 'acequia share --list' shows with whom it is");
    emit(c, EVENT_SHARE_ENDED, s, actor->user, now_ms);
    return 0;
}

// --- state ---

static void entry_free(struct share_entry *s) {
    if (!s)
        return;
    arena_done(&s->arena);
    free(s);
}

void core_apply_share(struct core *c, const struct event *e) {
    const struct event_share *b = e->body;
    char key[KEY_MAX];
    struct share_entry *old = strmap_remove(&c->shares, key_of(b, key));
    if (e->type == EVENT_SHARE_SET) {
        struct share_entry *s = xcalloc(1, sizeof *s);
        s->share = schema_copy(&event_share_schema, b, &s->arena);
        s->key = arena_strdup(&s->arena, key);
        strmap_put(&c->shares, s->key, s);
    }
    entry_free(old);
}

void core_shares_free(struct core *c) {
    size_t it = 0;
    void *v;
    while (strmap_next(&c->shares, &it, NULL, &v))
        entry_free(v);
    strmap_done(&c->shares);
}
