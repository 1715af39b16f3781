// Services: their settings, revisions and tokens. What their jobs should be follows from these (service_jobs.c); which
// replicas are ready, and where requests go, is known to the controller alone, which says so by commands.
//
// Invariants: at most one revision is STARTING, and it is the newest. While any revision serves, the weights of those
// that serve are 100 together; one that starts or retires has none.
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/text.h"
#include "model/name.h"
#include "state.h"

enum { KEY_MAX = IDENTIFIER_MAX + SERVICE_NAME_MAX + 2 };

static const char *key_of(const char *user, const char *name, char out[static KEY_MAX]) {
    snprintf(out, KEY_MAX, "%.*s %.*s", IDENTIFIER_MAX, user, SERVICE_NAME_MAX, name);
    return out;
}

// Where the key is, or would be.
static uint32_t place_of(const struct core *c, const char *key, bool *found) {
    uint32_t low = 0, high = c->services.len;
    *found = false;
    while (low < high && !*found) {
        uint32_t mid = low + (high - low) / 2;
        int order = strcmp(c->services.at[mid]->key, key);
        *found = order == 0;
        if (*found)
            return mid;
        if (order < 0)
            low = mid + 1;
        else
            high = mid;
    }
    return low;
}

static struct service_entry *find(const struct core *c, const char *user, const char *name) {
    char key[KEY_MAX];
    bool found;
    uint32_t at = place_of(c, key_of(user, name, key), &found);
    return found ? c->services.at[at] : NULL;
}

const struct event_service *core_service(const struct core *c, const char *user, const char *name) {
    const struct service_entry *x = find(c, user, name);
    return x ? x->service : NULL;
}

const struct event_service *core_service_by_id(const struct core *c, uint64_t id) {
    const struct service_entry *x = map_get(&c->service_ids, id);
    return x ? x->service : NULL;
}

const struct event_service *core_service_next(const struct core *c, const struct event_service *s) {
    char key[KEY_MAX];
    bool found;
    uint32_t at = s ? place_of(c, key_of(s->user, s->name, key), &found) + 1 : 0;
    return at < c->services.len ? c->services.at[at]->service : NULL;
}

const struct event_service_token *core_service_token(const struct core *c, uint64_t service, const char *id) {
    const struct service_entry *x = map_get(&c->service_ids, service);
    for (uint32_t i = 0; x && i < x->tokens.len; i++)
        if (streq(x->tokens.at[i]->token->id, id))
            return x->tokens.at[i]->token;
    return NULL;
}

void core_each_service_token(const struct core *c, uint64_t service,
                             bool (*fn)(void *ctx, const struct event_service_token *t), void *ctx) {
    const struct service_entry *x = map_get(&c->service_ids, service);
    for (uint32_t i = 0; x && i < x->tokens.len && fn(ctx, x->tokens.at[i]->token); i++)
        ;
}

const char *core_service_problem(const struct core *c, uint64_t service) {
    const struct service_entry *x = map_get(&c->service_ids, service);
    return x ? x->problem : "";
}

// --- state ---

bool core_service_loads(const struct event_service *s) {
    if (!s->id || str_empty(s->user) || str_empty(s->name) || strlen(s->user) > IDENTIFIER_MAX ||
        strlen(s->name) > SERVICE_NAME_MAX || s->revisions.len > SERVICE_REVISIONS_MAX)
        return false;
    for (uint32_t i = 0; i < s->revisions.len; i++)
        if (s->revisions.at[i].spec && !spec_known(s->revisions.at[i].spec))
            return false;
    return true;
}

bool core_service_token_loads(const struct event_service_token *t) {
    return t->service && !str_empty(t->id) && !str_empty(t->hash);
}

static void token_free(struct service_token_entry *t) {
    arena_done(&t->arena);
    free(t);
}

static void entry_free(struct service_entry *x) {
    for (uint32_t i = 0; i < x->tokens.len; i++)
        token_free(x->tokens.at[i]);
    vec_done(&x->tokens);
    arena_done(&x->arena);
    free(x);
}

static const struct service_revision *revision_of(const struct event_service *s, uint32_t number) {
    for (uint32_t i = 0; i < s->revisions.len; i++)
        if (s->revisions.at[i].number == number)
            return &s->revisions.at[i];
    return NULL;
}

// The new state in an arena of its own. Programs of revisions that the event does not repeat come from the old one.
static void set_value(struct service_entry *x, const struct event_service *b) {
    struct arena arena = {0};
    struct event_service whole = *b;
    cleanup_arena struct arena scratch = {0};
    struct service_revision *list = arena_alloc(&scratch, (b->revisions.len + 1) * sizeof *list);
    whole.revisions.at = list;
    for (uint32_t i = 0; i < b->revisions.len; i++) {
        const struct service_revision *old =
            x->service ? revision_of(x->service, b->revisions.at[i].number) : NULL;
        list[i] = b->revisions.at[i];
        if (list[i].spec || !old)
            continue;
        list[i].spec = old->spec;
        list[i].script = old->script;
        list[i].environment.at = old->environment.at;
        list[i].environment.len = old->environment.len;
    }
    x->service = schema_copy(&event_service_schema, &whole, &arena);
    char key[KEY_MAX];
    x->key = arena_strdup(&arena, key_of(b->user, b->name, key));
    arena_done(&x->arena);
    x->arena = arena;
}

void core_apply_service(struct core *c, const struct event *e) {
    const struct event_service *b = e->body;
    struct service_entry *x = map_get(&c->service_ids, b->id);
    char key[KEY_MAX];
    bool found;
    uint32_t at = place_of(c, key_of(b->user, b->name, key), &found);
    c->services_changed = true;
    if (e->type == EVENT_SERVICE_DELETED) {
        if (!x || !found || c->services.at[at] != x)
            return;
        memmove(&c->services.at[at], &c->services.at[at + 1],
                (c->services.len - at - 1) * sizeof *c->services.at);
        c->services.len--;
        map_remove(&c->service_ids, b->id);
        entry_free(x);
        return;
    }
    if (!x && !found) {
        x = xcalloc(1, sizeof *x);
        vec_push(&c->services, x);
        memmove(&c->services.at[at + 1], &c->services.at[at],
                (c->services.len - at - 1) * sizeof *c->services.at);
        c->services.at[at] = x;
        map_put(&c->service_ids, b->id, x);
    }
    if (!x || (found && c->services.at[at] != x))
        return;  // damage: two of one name
    set_value(x, b);
    x->retry_ms = 0;
    if (b->id > c->newest_service)
        c->newest_service = b->id;
}

void core_apply_service_token(struct core *c, const struct event *e) {
    const struct event_service_token *b = e->body;
    struct service_entry *x = map_get(&c->service_ids, b->service);
    for (uint32_t i = 0; x && i < x->tokens.len; i++)
        if (streq(x->tokens.at[i]->token->id, b->id)) {
            token_free(x->tokens.at[i]);
            memmove(&x->tokens.at[i], &x->tokens.at[i + 1], (x->tokens.len - i - 1) * sizeof *x->tokens.at);
            x->tokens.len--;
            break;
        }
    if (!x || e->type == EVENT_SERVICE_TOKEN_REVOKED)
        return;
    struct service_token_entry *t = xcalloc(1, sizeof *t);
    t->token = schema_copy(&event_service_token_schema, b, &t->arena);
    vec_push(&x->tokens, t);
}

void core_services_free(struct core *c) {
    for (uint32_t i = 0; i < c->services.len; i++)
        entry_free(c->services.at[i]);
    vec_done(&c->services);
    map_done(&c->service_ids);
    core_service_jobs_done(c);
}

// --- commands ---

static int need_feature(const struct core *c, struct error *e) {
    if (core_feature(c, FEATURE_SERVICES))
        return 0;
    return error_set(e, ENOTSUP, "service: finish the upgrade first: acequia upgrade finish");
}

// The service, if the actor may change it.
static int need_service(const struct core *c, const struct actor *actor, const char *user, const char *name,
                        const struct event_service **out, struct error *e) {
    char shown[64];
    int r = need_feature(c, e);
    if (r < 0)
        return r;
    if (str_empty(user))
        user = actor->user;
    const struct event_service *s = core_service(c, user, name);
    if (!s || (!actor->admin && !streq(actor->user, user)))
        return error_set(e, ENOENT, "there is no service \"%s\"%s%s; see 'acequia serve list'",
                         str_printable(name, shown, sizeof shown), streq(user, actor->user) ? "" : " of ",
                         streq(user, actor->user) ? "" : user);
    if (actor->project && !streq(actor->project, s->project))
        return error_set(e, EPERM, "service: your token is for project %s alone", actor->project);
    *out = s;
    return 0;
}

// A copy to be changed, whose programs are not written again.
static struct event_service *begin_change(const struct event_service *s, const char *by, struct arena *a) {
    struct event_service *n = schema_copy(&event_service_schema, s, a);
    for (uint32_t i = 0; i < n->revisions.len; i++) {
        n->revisions.at[i].spec = NULL;
        n->revisions.at[i].script = NULL;
        n->revisions.at[i].environment.len = 0;
    }
    n->by = by ? arena_strdup(a, by) : NULL;
    return n;
}

static struct service_revision *newest(struct event_service *s) {
    return s->revisions.len ? &s->revisions.at[s->revisions.len - 1] : NULL;
}

// The oldest that serves: the one that takes all requests unless another is tried beside it.
static struct service_revision *stable(struct event_service *s) {
    for (uint32_t i = 0; i < s->revisions.len; i++)
        if (s->revisions.at[i].state == REVISION_SERVING)
            return &s->revisions.at[i];
    return NULL;
}

static void retire(struct service_revision *r) {
    r->state = REVISION_RETIRING;
    r->weight = 0;
}

static void retire_all_but(struct event_service *s, const struct service_revision *stays) {
    for (uint32_t i = 0; i < s->revisions.len; i++)
        if (&s->revisions.at[i] != stays)
            retire(&s->revisions.at[i]);
}

static uint32_t clamp(uint32_t v, uint32_t low, uint32_t high) {
    return v < low ? low : v > high ? high : v;
}

// What may be a replica: one program on one node, as many of it as the service wants.
static int check_replica(const struct spec *s, struct error *e) {
    const char *given = s->array.len                 ? "array"
                        : s->workers_max             ? "workers"
                        : s->components.len          ? "components"
                        : !str_empty(s->dependency)  ? "dependency"
                        : s->launch != LAUNCH_BATCH  ? "launch"
                        : s->lease_s                 ? "lease"
                        : s->attach || s->stdin_open ? "attach"
                        : s->pty                     ? "pty"
                        : s->deadline_ms             ? "deadline"
                        : s->hold                    ? "hold"
                                                     : NULL;
    return given ? error_set(e, EINVAL, "%s: a replica of a service cannot have it; leave it out", given) : 0;
}

static size_t revision_bytes(const struct service_revision *r) {
    cleanup_buf struct buf b = {0};
    schema_encode(&service_revision_schema, r, &b);
    return b.len;
}

// Everything a submit checks, without submitting.
static int check_revision(struct core *c, const struct event_service *s, struct service_revision *r,
                          int64_t now_ms, struct error *e) {
    cleanup_arena struct arena a = {0};
    struct command_result ignored;
    struct spec spec;
    int rc = check_replica(r->spec, e);
    if (rc < 0)
        return rc;
    if (revision_bytes(r) > SERVICE_BYTES_MAX)
        return error_set(
            e, E2BIG, "service: program and environment have more than %d KiB; put what is long into files",
            SERVICE_BYTES_MAX >> 10);
    r->spec->service = 0;
    r->spec->revision = 0;
    core_service_spec(s, r, s->replicas_max, &a, &spec);
    struct actor owner = {.user = s->user, .uid = s->uid, .gid = s->gid};
    struct command_submit m = {.spec = &spec, .dry_run = true};
    return core_command_submit(c, &owner, NULL, &m, now_ms, &ignored, e);
}

static uint32_t count_of(const struct core *c, const char *user) {
    uint32_t n = 0;
    for (uint32_t i = 0; i < c->services.len; i++)
        n += streq(c->services.at[i]->service->user, user);
    return n;
}

CORE_COMMAND(core_command_service_create) {
    const struct event_service *m = body;
    cleanup_arena struct arena a = {0};
    char shown[64];
    int r = need_feature(c, e);
    if (r < 0 || (r = service_name_check(m->name, e)) < 0)
        return r;
    if (m->revisions.len != 1)
        return error_set(e, EINVAL, "service: one program is expected");
    if (core_service(c, actor->user, m->name))
        return error_set(e, EEXIST,
                         "there is a service \"%s\" already; change it with 'acequia serve update %s'",
                         str_printable(m->name, shown, sizeof shown), shown);
    if (count_of(c, actor->user) >= SERVICES_PER_USER || c->services.len >= SERVICES_MAX)
        return error_set(e, E2BIG, "service: you have %d already, which is the most; delete one",
                         SERVICES_PER_USER);
    struct event_service *s = schema_copy(&event_service_schema, m, &a);
    service_defaults(s);
    s->canary = 0;
    if ((r = service_check(s, e)) < 0)
        return r;
    s->id = (uint64_t)now_ms > c->newest_service ? (uint64_t)now_ms : c->newest_service + 1;
    s->user = s->by = actor->user;
    s->uid = actor->uid;
    s->gid = actor->gid;
    s->made_ms = now_ms;
    struct service_revision *first = &s->revisions.at[0];
    first->number = 1;
    first->state = REVISION_STARTING;
    first->weight = 0;
    first->replicas =
        s->replicas_min ? s->replicas_min : 1;  // one at first, so that what is wrong shows at once
    first->made_ms = now_ms;
    if (!first->spec)
        return error_set(e, EINVAL, "service: what its replicas run is missing");
    struct spec filled = *first->spec;
    core_fill_defaults(c, actor, &filled);
    s->project = first->spec->project = filled.project;
    if ((r = check_revision(c, s, first, now_ms, e)) < 0)
        return r;
    schema_forget_given(&event_service_schema, s);
    core_emit(c, now_ms, EVENT_SERVICE_SET, s);
    return 0;
}

static bool given(const struct event_service *m, const void *member) {
    return schema_given(&event_service_schema, m, member);
}

static void take_settings(struct event_service *s, const struct event_service *m) {
    if (given(m, &m->replicas_min))
        s->replicas_min = m->replicas_min;
    if (given(m, &m->replicas_max))
        s->replicas_max = m->replicas_max;
    if (given(m, &m->target)) {
        s->target = m->target;
        s->limit = 0;
    }
    if (given(m, &m->limit))
        s->limit = m->limit;
    if (given(m, &m->latency_ms))
        s->latency_ms = m->latency_ms;
    if (given(m, &m->queue_max))
        s->queue_max = m->queue_max;
    if (given(m, &m->wait_s))
        s->wait_s = m->wait_s;
    if (given(m, &m->cooldown_s))
        s->cooldown_s = m->cooldown_s;
    if (given(m, &m->idle_s))
        s->idle_s = m->idle_s;
    if (m->ready)
        s->ready = m->ready;
    service_defaults(s);
}

// Of a change without a program of its own: what the revision that serves runs stays, and only what is given of it
// changes. `s` is the copy of `old`, without its programs.
static int keep_program(const struct event_service *old, struct event_service *s, struct service_revision *r,
                        struct arena *a, struct error *e) {
    const struct service_revision *in_copy = stable(s) ? stable(s) : newest(s),
                                  *base = in_copy ? &old->revisions.at[in_copy - s->revisions.at] : NULL;
    if (r->script || r->spec->argv.len)
        return 0;
    if (!base || !base->spec)
        return error_set(e, EINVAL, "service: it has no revision to change; give what the new one is to run");
    struct spec *spec = schema_copy(&spec_schema, base->spec, a);
    spec_merge(spec, r->spec);
    r->spec = spec;
    r->script = base->script;
    if (!r->environment.len)
        r->environment = base->environment;
    return 0;
}

// A new revision beside the one that serves; others that were tried go.
static int add_revision(struct core *c, const struct event_service *old, struct event_service *s,
                        const struct event_service *m, int64_t now_ms, struct arena *a, struct error *e) {
    struct service_revision *serves = stable(s), *list;
    struct service_revision program = m->revisions.at[0];
    int rc = keep_program(old, s, &program, a, e);
    if (rc < 0)
        return rc;
    uint32_t number = newest(s) ? newest(s)->number + 1 : 1,
             replicas = serves ? serves->replicas : s->replicas_min;
    if (s->revisions.len >= SERVICE_REVISIONS_MAX)
        return error_set(e, EBUSY,
                         "service: %u revisions are still there; wait until the earlier ones have ended",
                         s->revisions.len);
    if (serves) {
        retire_all_but(s, serves);
        serves->weight = 100;
    } else {
        retire_all_but(s, NULL);
    }
    s->canary = serves ? m->canary : 0;
    if (s->canary)
        replicas = (replicas * s->canary + 99) / 100;
    list = arena_alloc(a, (s->revisions.len + 1) * sizeof *list);
    memcpy(list, s->revisions.at, s->revisions.len * sizeof *list);
    s->revisions.at = list;
    struct service_revision *r = &list[s->revisions.len++];
    *r = program;
    r->spec = schema_copy(&spec_schema, r->spec, a);
    r->spec->project = s->project;
    r->number = number;
    r->state = REVISION_STARTING;
    r->weight = 0;
    r->replicas = clamp(replicas, 1, s->replicas_max);
    r->made_ms = now_ms;
    return check_revision(c, s, r, now_ms, e);
}

CORE_COMMAND(core_command_service_update) {
    const struct event_service *m = body;
    cleanup_arena struct arena a = {0};
    const struct event_service *old;
    int r = need_service(c, actor, m->user, m->name, &old, e);
    if (r < 0)
        return r;
    struct event_service *s = begin_change(old, actor->user, &a);
    take_settings(s, m);
    if (m->revisions.len > 1 || (m->revisions.len && !m->revisions.at[0].spec))
        return error_set(e, EINVAL, "service: one program is expected");
    if (m->revisions.len && !actor->admin && !streq(actor->user, s->user))
        return error_set(e, EPERM, "service: what it runs is its user's to say");
    if (m->revisions.len && actor->admin && !streq(actor->user, s->user))
        return error_set(e, EPERM, "service: it runs as %s, who alone can give it another program", s->user);
    if (m->canary && !m->revisions.len)
        return error_set(e, EINVAL, "canary: it is for a new revision; give what that one is to run");
    if ((r = service_check(s, e)) < 0 ||
        (m->revisions.len && (r = add_revision(c, old, s, m, now_ms, &a, e)) < 0) ||
        (r = service_check(s, e)) < 0)
        return r;
    for (uint32_t i = 0; i < s->revisions.len; i++) {
        struct service_revision *v = &s->revisions.at[i];
        uint32_t least = v->state == REVISION_STARTING ? 1 : v == stable(s) ? s->replicas_min : 0;
        if (v->state != REVISION_RETIRING)
            v->replicas = clamp(v->replicas, least, s->replicas_max);
    }
    schema_forget_given(&event_service_schema, s);
    core_emit(c, now_ms, EVENT_SERVICE_SET, s);
    return 0;
}

// Changes one revision of a service: finds both and emits what `change` makes of them. CORE_UNCHANGED: nothing.
typedef int (*change_fn)(struct event_service *s, struct service_revision *r, const struct command_service *m,
                         struct error *e);

static int change(struct core *c, const struct actor *actor, const struct command_service *m, change_fn fn,
                  int64_t now_ms, struct error *e) {
    cleanup_arena struct arena a = {0};
    const struct event_service *old;
    int r = need_service(c, actor, m->user, m->name, &old, e);
    if (r < 0)
        return r;
    struct event_service *s = begin_change(old, actor->user, &a);
    struct service_revision *revision = NULL;
    for (uint32_t i = 0; i < s->revisions.len; i++)
        if (s->revisions.at[i].number == m->revision)
            revision = &s->revisions.at[i];
    if (m->revision && !revision)
        return error_set(e, ENOENT, "service \"%s\" has no revision %u", s->name, m->revision);
    r = fn(s, revision ? revision : newest(s), m, e);
    if (r == 0)
        core_emit(c, now_ms, EVENT_SERVICE_SET, s);
    return r;
}

static int change_scale(struct event_service *s, struct service_revision *r, const struct command_service *m,
                        struct error *e) {
    if (!r || r->state == REVISION_RETIRING)
        return error_set(e, EBUSY, "the revision is being ended");
    uint32_t least = r->state == REVISION_STARTING ? 1 : r == stable(s) ? s->replicas_min : 0;
    uint32_t wanted = clamp(m->replicas, least, s->replicas_max);
    if (wanted == r->replicas)
        return CORE_UNCHANGED;
    r->replicas = wanted;
    return 0;
}

static int change_ready(struct event_service *s, struct service_revision *r, const struct command_service *m,
                        struct error *e) {
    struct service_revision *serves = stable(s);
    if (!r || r->state != REVISION_STARTING)
        return CORE_UNCHANGED;
    r->state = REVISION_SERVING;
    if (serves && s->canary) {
        r->weight = s->canary;
        serves->weight = 100 - s->canary;
        return 0;
    }
    r->weight = 100;
    retire_all_but(s, r);
    return 0;
}

static int change_promote(struct event_service *s, struct service_revision *r,
                          const struct command_service *m, struct error *e) {
    r = newest(s);
    if (!r || !s->canary || r->state == REVISION_RETIRING)
        return error_set(e, EINVAL, "service \"%s\" has no canary to promote; see 'acequia serve get %s'",
                         s->name, s->name);
    s->canary = 0;
    if (r->state == REVISION_STARTING)
        return 0;  // it takes all when it is ready
    struct service_revision *serves = stable(s);
    if (serves->replicas > r->replicas)
        r->replicas = serves->replicas;
    r->weight = 100;
    retire_all_but(s, r);
    return 0;
}

static int change_rollback(struct event_service *s, struct service_revision *r,
                           const struct command_service *m, struct error *e) {
    struct service_revision *serves = stable(s);
    r = newest(s);
    if (!r || !serves || r == serves || r->state == REVISION_RETIRING)
        return error_set(
            e, EINVAL,
            "service \"%s\" has no revision to go back from: only one serves. Update it with the "
            "earlier program instead",
            s->name);
    s->canary = 0;
    retire(r);
    serves->weight = 100;
    return 0;
}

CORE_COMMAND(core_command_service_scale) {
    return change(c, actor, body, change_scale, now_ms, e);
}

CORE_COMMAND(core_command_service_ready) {
    return change(c, actor, body, change_ready, now_ms, e);
}

CORE_COMMAND(core_command_service_promote) {
    return change(c, actor, body, change_promote, now_ms, e);
}

CORE_COMMAND(core_command_service_rollback) {
    return change(c, actor, body, change_rollback, now_ms, e);
}

static int change_retired(struct event_service *s, struct service_revision *r,
                          const struct command_service *m, struct error *e) {
    uint32_t at = (uint32_t)(r - s->revisions.at);
    if (!r || r->state != REVISION_RETIRING)
        return CORE_UNCHANGED;
    memmove(r, r + 1, (s->revisions.len - at - 1) * sizeof *r);
    s->revisions.len--;
    return 0;
}

CORE_COMMAND(core_command_service_retired) {
    return change(c, actor, body, change_retired, now_ms, e);
}

CORE_COMMAND(core_command_service_delete) {
    const struct command_service *m = body;
    const struct event_service *s;
    int r = need_service(c, actor, m->user, m->name, &s, e);
    if (r < 0)
        return r;
    cleanup_arena struct arena a = {0};
    struct event_service gone = {
        .id = s->id, .user = arena_strdup(&a, s->user), .name = arena_strdup(&a, s->name), .by = actor->user};
    core_emit(c, now_ms, EVENT_SERVICE_DELETED, &gone);
    return 0;
}

CORE_COMMAND(core_command_service_token_set) {
    const struct command_service_token *m = body;
    const struct event_service *s;
    int r = need_service(c, actor, m->user, m->name, &s, e);
    if (r < 0)
        return r;
    const struct service_entry *x = map_get(&c->service_ids, s->id);
    if (x->tokens.len >= SERVICE_TOKENS_MAX)
        return error_set(e, E2BIG, "service \"%s\" has %d tokens, which is the most; revoke one", s->name,
                         SERVICE_TOKENS_MAX);
    if (core_service_token(c, s->id, m->id))
        return error_set(e, EEXIST, "there is such a token already");
    if (m->label && (r = name_line_check("label", m->label, SERVICE_LABEL_MAX, e)) < 0)
        return r;
    struct event_service_token t = {.service = s->id,
                                    .id = m->id,
                                    .hash = m->hash,
                                    .label = m->label,
                                    .by = actor->user,
                                    .made_ms = now_ms};
    core_emit(c, now_ms, EVENT_SERVICE_TOKEN_SET, &t);
    return 0;
}

CORE_COMMAND(core_command_service_token_revoke) {
    const struct command_service_token *m = body;
    const struct event_service *s;
    char shown[64];
    int r = need_service(c, actor, m->user, m->name, &s, e);
    if (r < 0)
        return r;
    const struct event_service_token *t = core_service_token(c, s->id, m->id);
    if (!t)
        return error_set(e, ENOENT, "service \"%s\" has no token \"%s\"; see 'acequia serve token %s list'",
                         s->name, str_printable(m->id, shown, sizeof shown), s->name);
    cleanup_arena struct arena a = {0};
    struct event_service_token gone = {.service = s->id,
                                       .id = arena_strdup(&a, t->id),
                                       .hash = arena_strdup(&a, t->hash),
                                       .label = t->label ? arena_strdup(&a, t->label) : NULL,
                                       .by = actor->user,
                                       .made_ms = t->made_ms};
    core_emit(c, now_ms, EVENT_SERVICE_TOKEN_REVOKED, &gone);
    return 0;
}
