// Owns the routes about services.
#include <errno.h>
#include <stdio.h>
#include <string.h>

#include "base/clock.h"
#include "base/text.h"
#include "serve.h"
#include "serve_messages.h"

enum { FAILING_MS = 30 * 1000 };  // without a ready replica for so long, a service is said to fail

// The service that the path names, if the actor may see it.
static const struct event_service *service_of(struct api_call *call, const char *user, struct error *e) {
    const struct actor *a = &call->actor;
    char shown[64];
    if (str_empty(user))
        user = a->user;
    bool may = streq(user, a->user) || a->admin;
    const struct event_service *s = may ? core_service(call->controller->core, user, call->name) : NULL;
    if (s && a->project && !streq(a->project, s->project))
        s = NULL;
    call->req->of_others = s && !streq(user, a->user);
    if (!s)
        error_set(e, ENOENT, "there is no service \"%s\"; see 'acequia serve list'",
                  str_printable(call->name, shown, sizeof shown));
    return s;
}

// --- what is shown ---

static const char *command_of(struct arena *a, const struct service_revision *r) {
    cleanup_buf struct buf out = {0};
    if (r->spec && !str_empty(r->spec->command_text))
        return r->spec->command_text;
    for (uint32_t i = 0; r->spec && i < r->spec->argv.len && out.len < 200; i++)
        buf_addf(&out, "%s%s", i ? " " : "", r->spec->argv.at[i]);
    return arena_strdup(a, buf_str(&out));
}

static uint32_t ready_of(const struct serve_service *s, uint32_t revision) {
    uint32_t n = 0;
    for (uint32_t i = 0; s && i < s->replicas.len; i++)
        n += s->replicas.at[i]->revision == revision && s->replicas.at[i]->state == REPLICA_READY;
    return n;
}

static void fill_revisions(struct controller *c, const struct event_service *e, const struct serve_service *s,
                           struct arena *a, struct answer_service *out) {
    out->revisions.at = arena_alloc(a, (e->revisions.len + 1) * sizeof *out->revisions.at);
    for (uint32_t i = 0; i < e->revisions.len; i++) {
        const struct service_revision *r = &e->revisions.at[i];
        struct answer_serving_revision *v = &out->revisions.at[out->revisions.len++];
        *v = (struct answer_serving_revision){.number = r->number,
                                              .state = r->state,
                                              .weight = r->weight,
                                              .replicas = r->replicas,
                                              .ready = ready_of(s, r->number),
                                              .job = core_service_job(c->core, e->id, r->number),
                                              .command = command_of(a, r),
                                              .made_ms = r->made_ms};
        out->replicas += r->state == REVISION_RETIRING ? 0 : r->replicas;
        out->ready_replicas += r->state == REVISION_SERVING ? v->ready : 0;
    }
}

static void fill_replicas(const struct serve_service *s, struct arena *a, struct answer_service *out) {
    int64_t now = clock_mono_ms();
    if (!s)
        return;
    out->replica_list.at = arena_alloc(a, (s->replicas.len + 1) * sizeof *out->replica_list.at);
    for (uint32_t i = 0; i < s->replicas.len; i++) {
        const struct serve_replica *r = s->replicas.at[i];
        out->replica_list.at[out->replica_list.len++] =
            (struct answer_service_replica){.job = r->job,
                                            .number = r->number,
                                            .revision = r->revision,
                                            .state = r->state,
                                            .optional = r->optional,
                                            .in_flight = r->in_flight,
                                            .state_s = (now - r->since_ms) / 1000,
                                            .reason = *r->reason ? arena_strdup(a, r->reason) : NULL};
    }
}

// Why a revision has no ready replica, in the words of the one that came furthest.
static const char *not_ready_reason(struct controller *c, const struct event_service *e,
                                    const struct serve_service *s, uint32_t revision, struct arena *a) {
    const struct serve_replica *best = NULL;
    const char *problem = core_service_problem(c->core, e->id);
    uint64_t job = core_service_job(c->core, e->id, revision);
    for (uint32_t i = 0; s && i < s->replicas.len; i++) {
        const struct serve_replica *r = s->replicas.at[i];
        if (r->revision == revision && (!best || r->state == REPLICA_STARTS))
            best = r;
    }
    if (!job && *problem)
        return arena_strdup(a, problem);
    if (best && best->state == REPLICA_STARTS)
        return arena_printf(a, "replica %llu runs and is not ready: %s", (unsigned long long)best->job,
                            *best->reason ? best->reason : "it was not asked yet");
    if (job)
        return arena_printf(a, "no replica of job %llu runs; 'acequia why %llu' says what it waits for%s%s",
                            (unsigned long long)job, (unsigned long long)job,
                            *problem ? "; before that: " : "", problem);
    return "its job is about to be submitted";
}

static void fill_state(struct controller *c, const struct event_service *e, const struct serve_service *s,
                       struct arena *a, struct answer_service *out) {
    const struct service_revision *serves = NULL, *starts = NULL;
    for (uint32_t i = 0; i < e->revisions.len; i++) {
        const struct service_revision *r = &e->revisions.at[i];
        if (r->state == REVISION_SERVING && !serves)
            serves = r;
        if (r->state == REVISION_STARTING)
            starts = r;
    }
    const struct service_revision *newest = starts ? starts : serves;
    bool late = newest && controller_now_ms() - newest->made_ms > FAILING_MS;
    bool ready = out->ready_replicas > 0;
    if (starts && (!serves || ready || !serves->replicas)) {
        out->state = serves                                          ? SERVICE_UPDATING
                     : late || *core_service_problem(c->core, e->id) ? SERVICE_FAILING
                                                                     : SERVICE_STARTING;
        out->reason =
            arena_printf(a, "revision %u: %s", starts->number, not_ready_reason(c, e, s, starts->number, a));
    } else if (ready) {
        out->state = SERVICE_READY;
    } else if (serves && !serves->replicas) {
        out->state = SERVICE_IDLE;
        out->reason = "no replica runs while nobody asks; the next request starts one";
    } else if (serves) {
        bool failing = *core_service_problem(c->core, e->id) ||
                       (s && s->cold_since_ms && clock_mono_ms() - s->cold_since_ms > FAILING_MS);
        out->state = failing ? SERVICE_FAILING : SERVICE_STARTING;
        out->reason = not_ready_reason(c, e, s, serves->number, a);
    }
}

static void fill(struct api_call *call, const struct event_service *e, struct answer_service *out) {
    struct controller *c = call->controller;
    struct arena *a = &call->arena;
    const struct serve_service *s = serve_find(c, e->id);
    cleanup_buf struct buf url = {0};
    struct error error = {0};
    int64_t now = clock_mono_ms();
    *out = (struct answer_service){.name = e->name,
                                   .user = e->user,
                                   .project = e->project,
                                   .replicas_min = e->replicas_min,
                                   .replicas_max = e->replicas_max,
                                   .target = e->target,
                                   .limit = e->limit,
                                   .latency_ms = e->latency_ms,
                                   .queue_max = e->queue_max,
                                   .wait_s = e->wait_s,
                                   .cooldown_s = e->cooldown_s,
                                   .idle_s = e->idle_s,
                                   .canary = e->canary,
                                   .ready = e->ready,
                                   .made_ms = e->made_ms};
    if (s) {
        out->in_flight = s->in_flight;
        out->queued = s->queued;
        out->requests = s->requests;
        out->failures = s->failures;
        out->refused = s->refused;
        out->cold_start_ms = s->cold_start_ms;
        out->requests_per_s = serve_latency_rate(&s->latency, now);
        out->p50_ms = (double)serve_latency_us(&s->latency, now, 500) / 1000;
        out->p99_ms = (double)serve_latency_us(&s->latency, now, 990) / 1000;
    }
    if (app_url(c, call->req->peer->kind, &(struct app_name){.job = e->id, .service = true}, &url, &error) ==
        0)
        out->url = arena_printf(a, "%s/", buf_str(&url));
    fill_revisions(c, e, s, a, out);
    fill_replicas(s, a, out);
    fill_state(c, e, s, a, out);
}

// --- routes ---

void api_services_list(struct api_call *call) {
    const struct query_services *q = call->query;
    const struct core *core = call->controller->core;
    const struct event_service *e = NULL;
    VEC(struct answer_service) list = {0};
    struct answer_service one;
    while ((e = core_service_next(core, e))) {
        bool mine = streq(e->user, call->actor.user);
        if ((!mine && !(q->all && call->actor.admin)) ||
            (call->actor.project && !streq(call->actor.project, e->project)))
            continue;
        fill(call, e, &one);
        vec_push(&list, one);
    }
    struct answer_services answer = {.services = {list.at, list.len}};
    api_answer(call, &answer_services_schema, &answer);
    vec_done(&list);
}

void api_service_get(struct api_call *call) {
    const struct query_service *q = call->query;
    struct error e = {0};
    struct answer_service answer;
    const struct event_service *s = service_of(call, q->user, &e);
    if (!s) {
        api_fail(call->req, &e);
        return;
    }
    fill(call, s, &answer);
    api_answer(call, &answer_service_schema, &answer);
}

// The program of a request, with the ids of its texts.
static int take_program(struct api_call *call, const struct request_service *q, struct service_revision *out,
                        struct error *e) {
    *out = (struct service_revision){.spec = q->spec, .script = q->script};
    out->environment.at = q->environment.at;
    out->environment.len = q->environment.len;
    if (!q->script && !q->spec->argv.len && !q->environment.len)
        return 0;  // the program of an earlier revision, with other resources
    return api_text_ids(call, q->spec, q->script, q->environment.at, q->environment.len, e);
}

#define SETTINGS(X)                                                                                          \
    X(replicas_min)                                                                                          \
    X(replicas_max) X(target) X(limit) X(latency_ms) X(queue_max) X(wait_s) X(cooldown_s) X(idle_s) X(canary)

static void take_settings(const struct request_service *q, struct event_service *m) {
#define TAKE(member)                                                                                         \
    if (schema_given(&request_service_schema, q, &q->member)) {                                              \
        m->member = q->member;                                                                               \
        schema_give(&event_service_schema, m, &m->member);                                                   \
    }
    SETTINGS(TAKE)
#undef TAKE
    m->ready = str_empty(q->ready) ? NULL : q->ready;
}

static void answer_service_of(struct api_call *call, int status, const char *user, const char *name) {
    struct answer_service answer;
    const struct event_service *s = core_service(call->controller->core, user, name);
    serve_sync(call->controller);
    serve_changed(call->controller, s->id);
    fill(call, s, &answer);
    api_answer_committed(call, status, &answer_service_schema, &answer);
}

void api_service_create(struct api_call *call) {
    const struct request_service *q = call->body;
    struct controller *c = call->controller;
    struct error e = {0};
    struct service_revision program;
    struct event_service m = {.name = q->name, .revisions = {&program, 1}};
    int r = api_check_storage(c, &e);
    if (r == 0 && (str_empty(q->name) || !q->spec))
        r = error_set(&e, EINVAL, "a service needs a name and a spec of what its replicas run");
    if (r == 0 && q->action)
        r = error_set(&e, EINVAL, "action: it is for a service that exists");
    take_settings(q, &m);
    if (r == 0 && (r = take_program(call, q, &program, &e)) == 0)
        r = core_command(c->core, &call->actor, NULL, &(struct command){COMMAND_SERVICE_CREATE, &m},
                         controller_now_ms(), NULL, &e);
    if (r < 0)
        api_fail(call->req, &e);
    else
        answer_service_of(call, 201, call->actor.user, q->name);
}

void api_service_update(struct api_call *call) {
    const struct request_service *q = call->body;
    const struct query_service *query = call->query;
    struct controller *c = call->controller;
    struct error e = {0};
    struct service_revision program;
    const struct event_service *s = service_of(call, query->user, &e);
    int r = s ? api_check_storage(c, &e) : -ENOENT;
    if (r < 0) {
        api_fail(call->req, &e);
        return;
    }
    const char *user = arena_strdup(&call->arena, s->user);
    struct event_service m = {.user = user, .name = call->name};
    take_settings(q, &m);
    if (q->spec && (r = take_program(call, q, &program, &e)) == 0) {
        m.revisions.at = &program;
        m.revisions.len = 1;
    }
    struct command_service act = {.user = user, .name = call->name};
    bool acts = q->action != SERVICE_NO_ACTION;
    if (r == 0 && acts && q->spec)
        r = error_set(&e, EINVAL, "action: %s a revision, or give a new one; not both",
                      q->action == SERVICE_PROMOTE ? "promote" : "roll back");
    struct command command = {COMMAND_SERVICE_UPDATE, &m};
    if (acts)
        command = (struct command){
            q->action == SERVICE_PROMOTE ? COMMAND_SERVICE_PROMOTE : COMMAND_SERVICE_ROLLBACK, &act};
    if (r == 0)
        r = core_command(c->core, &call->actor, NULL, &command, controller_now_ms(), NULL, &e);
    if (r < 0)
        api_fail(call->req, &e);
    else
        answer_service_of(call, 200, user, call->name);
}

void api_service_delete(struct api_call *call) {
    const struct query_service *q = call->query;
    struct error e = {0};
    struct command_service m = {.user = q->user, .name = call->name};
    int r = core_command(call->controller->core, &call->actor, NULL,
                         &(struct command){COMMAND_SERVICE_DELETE, &m}, controller_now_ms(), NULL, &e);
    if (r < 0) {
        api_fail(call->req, &e);
        return;
    }
    serve_changed(call->controller, 0);
    api_answer_committed(call, 200, &answer_done_schema, &(struct answer_done){true});
}

// --- tokens ---

void api_service_token_create(struct api_call *call) {
    const struct query_service *q = call->query;
    const struct request_service_token *body = call->body;
    struct controller *c = call->controller;
    struct error e = {0};
    struct token t;
    char hash[TOKEN_SHA256_HEX + 1], text[TOKEN_SHORT_LEN + 1];
    cleanup_buf struct buf url = {0};
    const struct event_service *s = service_of(call, q->user, &e);
    int r = s ? api_check_storage(c, &e) : -ENOENT;
    if (r == 0)
        r = token_random(&t, &e);
    if (r < 0) {
        api_fail(call->req, &e);
        return;
    }
    token_hash(&t, hash);
    struct command_service_token m = {.user = arena_strdup(&call->arena, s->user),
                                      .name = call->name,
                                      .id = t.id,
                                      .hash = hash,
                                      .label = body && !str_empty(body->label) ? body->label : NULL};
    r = core_command(c->core, &call->actor, NULL, &(struct command){COMMAND_SERVICE_TOKEN_SET, &m},
                     controller_now_ms(), NULL, &e);
    if (r < 0) {
        api_fail(call->req, &e);
    } else {
        struct answer_service_token_made answer = {.id = t.id};
        token_short_format(&t, text);
        answer.token = arena_printf(&call->arena, "aqs1.%s", text);
        s = core_service(c->core, m.user, m.name);
        if (app_url(c, call->req->peer->kind, &(struct app_name){.job = s->id, .service = true}, &url, &e) ==
            0)
            answer.url = arena_printf(&call->arena, "%s/", buf_str(&url));
        api_answer_committed(call, 201, &answer_service_token_made_schema, &answer);
    }
    explicit_bzero(text, sizeof text);
    token_wipe(&t);
}

struct service_token_listing {
    VEC(struct answer_service_token) list;
};

static bool list_token(void *ctx, const struct event_service_token *t) {
    struct service_token_listing *l = ctx;
    vec_push(&l->list, ((struct answer_service_token){t->id, t->label, t->by, t->made_ms}));
    return true;
}

void api_service_token_list(struct api_call *call) {
    const struct query_service *q = call->query;
    struct error e = {0};
    struct service_token_listing l = {0};
    const struct event_service *s = service_of(call, q->user, &e);
    if (!s) {
        api_fail(call->req, &e);
        return;
    }
    core_each_service_token(call->controller->core, s->id, list_token, &l);
    struct answer_service_tokens answer = {.tokens = {l.list.at, l.list.len}};
    api_answer(call, &answer_service_tokens_schema, &answer);
    vec_done(&l.list);
}

void api_service_token_revoke(struct api_call *call) {
    const struct query_service_token *q = call->query;
    struct command_service_token m = {.user = q->user, .name = call->name, .id = q->id};
    api_give(call, COMMAND_SERVICE_TOKEN_REVOKE, &m);
}
