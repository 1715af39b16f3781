// Owns the routes about shares of programs: with whom the owner shares a port of a job, and until when.
#include <errno.h>

#include "app.h"
#include "base/text.h"
#include "model/name.h"
#include "user_messages.h"

enum { SHARE_MAX_S = 30 * 86400, SHARE_DEFAULT_S = 8 * 3600 };

// The port, and the project of the job where it is meant.
static int complete(struct api_call *call, struct event_share *s, bool project, struct error *e) {
    const char *owner;
    s->job = api_first_worker(call->controller, call->job);
    if (project && !core_job_owner(call->controller->core, s->job, &owner, &s->project))
        return error_set(e, ENOENT, "there is no job %llu, or it has ended", (unsigned long long)s->job);
    return app_choose_port(call->controller, s->job, s->port, &s->port, e);
}

static void answer_of(struct api_call *call, const struct event_share *s, struct answer_app_share *out) {
    cleanup_buf struct buf url = {0};
    struct error e = {0};
    *out = (struct answer_app_share){.port = s->port,
                                     .user = s->user,
                                     .project = s->project,
                                     .by = s->by,
                                     .made_ms = s->made_ms,
                                     .expires_ms = s->expires_ms};
    if (app_url(call->controller, call->req->peer->kind, &(struct app_name){s->job, s->port}, &url, &e) == 0)
        out->url = arena_printf(&call->arena, "%s/", buf_str(&url));
}

void api_share_set(struct api_call *call) {
    const struct request_share *q = call->body;
    struct error e = {0};
    struct answer_app_share answer;
    int64_t now = controller_now_ms();
    uint32_t for_s = q->for_s ? q->for_s : SHARE_DEFAULT_S;
    struct event_share s = {.port = q->port, .user = str_empty(q->user) ? NULL : q->user};
    int r = api_check_storage(call->controller, &e);
    if (r == 0 && for_s > SHARE_MAX_S)
        r = error_set(&e, ERANGE, "for_s: at most %d, which is 30 days", SHARE_MAX_S);
    if (r == 0)
        r = complete(call, &s, q->project, &e);
    if (r == 0 && s.user && (r = name_check("user", s.user, &e)) == 0 &&
        (r = api_need_user(call, "user", s.user, &e)) == -EINPROGRESS)
        return;
    s.expires_ms = now + (int64_t)for_s * 1000;
    if (r == 0)
        r = core_command(call->controller->core, &call->actor, NULL, &(struct command){COMMAND_SHARE_SET, &s},
                         now, NULL, &e);
    if (r < 0) {
        api_fail(call->req, &e);
        return;
    }
    answer_of(call, core_share(call->controller->core, &s), &answer);
    api_answer_committed(call, 201, &answer_app_share_schema, &answer);
}

void api_share_end(struct api_call *call) {
    const struct query_share *q = call->query;
    struct error e = {0};
    struct event_share s = {.port = q->port, .user = str_empty(q->user) ? NULL : q->user};
    int r = complete(call, &s, q->project, &e);
    if (r == 0)
        r = core_command(call->controller->core, &call->actor, NULL, &(struct command){COMMAND_SHARE_END, &s},
                         controller_now_ms(), NULL, &e);
    if (r < 0)
        api_fail(call->req, &e);
    else
        api_answer_committed(call, 200, &answer_done_schema, &(struct answer_done){true});
}

struct app_share_listing {
    struct api_call *call;
    uint64_t job;
    VEC(struct answer_app_share) list;
};

static bool list_share(void *ctx, const struct event_share *s) {
    struct app_share_listing *l = ctx;
    struct answer_app_share one;
    if (s->job != l->job || s->expires_ms <= controller_now_ms())
        return true;
    answer_of(l->call, s, &one);
    vec_push(&l->list, one);
    return true;
}

void api_shares_list(struct api_call *call) {
    struct app_share_listing l = {.call = call, .job = api_first_worker(call->controller, call->job)};
    core_each_share(call->controller->core, list_share, &l);
    struct answer_app_shares answer = {.shares = {l.list.at, l.list.len}};
    api_answer(call, &answer_app_shares_schema, &answer);
    vec_done(&l.list);
}
