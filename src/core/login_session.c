// Logins of browsers. The state has the hash of each session's secret, so that what is stored lets nobody in. A session
// ends when it was not used for a while, after its longest time, or by a command.
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "base/text.h"
#include "state.h"

enum {
    SEEN_STEP_MS = 5 * 60 * 1000,  // use is recorded this often, or four times within the idle time
    SWEPT_AT_ONCE = 16,            // sessions that are over and removed when another one begins
};

static struct session_entry *find(const struct core *c, const char *id) {
    return id ? strmap_get(&c->login_sessions, id) : NULL;
}

static int64_t ends_ms(const struct event_session *s) {
    int64_t idle_ms = s->seen_ms + (int64_t)s->idle_s * 1000;
    return idle_ms < s->expires_ms ? idle_ms : s->expires_ms;
}

bool core_session_holds(const struct core *c, const char *id, int64_t now_ms) {
    const struct session_entry *s = find(c, id);
    return s && ends_ms(s->session) > now_ms;
}

const struct event_session *core_session_by_id(const struct core *c, const char *id, int64_t now_ms) {
    return core_session_holds(c, id, now_ms) ? find(c, id)->session : NULL;
}

const struct event_session *core_session(const struct core *c, const char *id, const char *hash,
                                         int64_t now_ms) {
    const struct session_entry *s = find(c, id);
    size_t n = strlen(hash);
    unsigned differ = 0;
    if (!s || ends_ms(s->session) <= now_ms || strlen(s->session->hash) != n)
        return NULL;
    for (size_t i = 0; i < n; i++)  // the time taken does not tell where they differ
        differ |= (unsigned char)(s->session->hash[i] ^ hash[i]);
    return differ ? NULL : s->session;
}

bool core_session_is_of(const struct core *c, const struct actor *actor, const struct event_session *s) {
    struct core_person p;
    core_person(c, s->identity, s->unix_user, &p);
    return streq(actor->identity, s->identity) || (p.unix_user && streq(actor->user, p.unix_user));
}

static int by_id(const void *a, const void *b) {
    return strcmp((*(struct session_entry *const *)a)->session->id,
                  (*(struct session_entry *const *)b)->session->id);
}

struct session_list {
    struct session_entry **at;
    uint32_t len, cap;
};

// In the order of their ids: what is emitted does not depend on the map's order.
static struct session_list all(const struct core *c) {
    struct session_list list = {0};
    size_t it = 0;
    void *v;
    while (strmap_next(&c->login_sessions, &it, NULL, &v))
        vec_push(&list, (struct session_entry *)v);
    if (list.len)
        qsort(list.at, list.len, sizeof *list.at, by_id);
    return list;
}

void core_each_session(const struct core *c, bool (*fn)(void *ctx, const struct event_session *s),
                       void *ctx) {
    struct session_list list = all(c);
    for (uint32_t i = 0; i < list.len; i++)
        if (!fn(ctx, list.at[i]->session))
            break;
    vec_done(&list);
}

static void emit_ended(struct core *c, const struct event_session *s, const char *by, int64_t now_ms) {
    cleanup_arena struct arena a = {0};
    struct event_session_ended b = {.id = arena_strdup(&a, s->id), .by = by};
    core_emit(c, now_ms, EVENT_SESSION_ENDED, &b);
}

// Removes what is over, a few at a time, and of the identity's own the oldest beyond the limit.
static void make_room(struct core *c, const char *identity, int64_t now_ms) {
    struct session_list list = all(c);
    uint32_t own = 0, swept = 0;
    struct session_entry *oldest = NULL;
    for (uint32_t i = 0; i < list.len; i++) {
        struct session_entry *s = list.at[i];
        if (ends_ms(s->session) <= now_ms) {
            if (swept++ < SWEPT_AT_ONCE)
                emit_ended(c, s->session, NULL, now_ms);
            continue;
        }
        if (!streq(s->session->identity, identity))
            continue;
        own++;
        if (!oldest || s->session->seen_ms < oldest->session->seen_ms)
            oldest = s;
    }
    if (own >= USER_SESSIONS_MAX)
        emit_ended(c, oldest->session, NULL, now_ms);
    vec_done(&list);
}

CORE_COMMAND(core_command_session_begin) {
    const struct event_session *m = body;
    int r;
    if ((r = core_need_admin(actor, "begin a session", e)) < 0)
        return r;
    if (!core_feature(c, FEATURE_USERS))
        return error_set(e, ENOTSUP, "login: finish the upgrade first: acequia upgrade finish");
    if (str_empty(m->id) || str_empty(m->hash) || str_empty(m->identity) || m->expires_ms <= now_ms ||
        !m->idle_s || find(c, m->id))
        return error_set(e, EINVAL, "session: id, hash, identity and a time in the future are required");
    // The account may have been removed or disabled while the password was looked at.
    struct core_person p;
    core_person(c, m->identity, m->unix_user, &p);
    if (p.disabled || (str_has_prefix(m->identity, "own:") && !p.account))
        return error_set(e, EACCES, "name or password is wrong");
    make_room(c, m->identity, now_ms);
    if (c->login_sessions.len >= USER_ALL_SESSIONS_MAX)
        return error_set(e, EAGAIN, "there are too many logins; try again later");
    struct event_session b = *m;
    b.begun_ms = b.seen_ms = now_ms;
    core_emit(c, now_ms, EVENT_SESSION_BEGUN, &b);
    return 0;
}

CORE_COMMAND(core_command_session_seen) {
    const struct command_session *m = body;
    const struct session_entry *s = find(c, m->id);
    cleanup_arena struct arena a = {0};
    if (!s)
        return error_set(e, ENOENT, "there is no such session");
    int64_t step = (int64_t)s->session->idle_s * 250;
    if (now_ms - s->session->seen_ms < (step < SEEN_STEP_MS ? step : SEEN_STEP_MS))
        return CORE_UNCHANGED;
    struct event_session_seen b = {.id = arena_strdup(&a, s->session->id), .seen_ms = now_ms};
    core_emit(c, now_ms, EVENT_SESSION_SEEN, &b);
    return 0;
}

CORE_COMMAND(core_command_session_end) {
    const struct command_session *m = body;
    const struct session_entry *s = find(c, m->id);
    if (!s || (!actor->admin && !core_session_is_of(c, actor, s->session)))
        return error_set(e, ENOENT, "there is no session with that id; see 'acequia session list'");
    emit_ended(c, s->session, actor->user, now_ms);
    return 0;
}

void core_sessions_of_account_end(struct core *c, const char *account, const char *but, const char *by,
                                  int64_t now_ms) {
    struct session_list list = all(c);
    for (uint32_t i = 0; i < list.len; i++) {
        const struct event_session *s = list.at[i]->session;
        struct core_person p;
        core_person(c, s->identity, s->unix_user, &p);
        if (p.account && streq(p.account->name, account) && !streq(s->id, but))
            emit_ended(c, s, by, now_ms);
    }
    vec_done(&list);
}

// --- state ---

static void entry_free(struct session_entry *s) {
    arena_done(&s->arena);
    free(s);
}

void core_apply_session(struct core *c, const struct event *e) {
    const struct event_session *b = e->body;
    const struct event_session_seen *seen = e->body;
    struct session_entry *s = find(c, b->id);  // all three begin with the id
    if (e->type == EVENT_SESSION_SEEN) {
        if (s)
            s->session->seen_ms = seen->seen_ms;
        return;
    }
    if (s) {
        strmap_remove(&c->login_sessions, s->session->id);
        entry_free(s);
    }
    if (e->type == EVENT_SESSION_ENDED)
        return;
    s = xcalloc(1, sizeof *s);
    s->session = schema_copy(&event_session_schema, b, &s->arena);
    strmap_put(&c->login_sessions, s->session->id, s);
}

void core_sessions_free(struct core *c) {
    size_t it = 0;
    void *v;
    while (strmap_next(&c->login_sessions, &it, NULL, &v))
        entry_free(v);
    strmap_done(&c->login_sessions);
}
