// Elastic jobs: their size, and which workers are given back first.
#include "answers.h"
#include "api.h"
#include "requests.h"

static void give(struct api_call *call, enum command_type type, const void *body) {
    struct command command = {type, body};
    struct error e = {0};
    if (core_command(call->controller->core, &call->actor, NULL, &command, controller_now_ms(), NULL, &e) < 0)
        api_fail(call->req, &e);
    else
        api_answer_committed(call, 200, &answer_done_schema, &(struct answer_done){true});
}

void api_resize(struct api_call *call) {
    const struct request_resize *q = call->body;
    struct command_resize m = {.id = call->job,
                               .workers_min = q->workers_min,
                               .workers_max = q->workers_max,
                               .component = q->component};
    give(call, COMMAND_RESIZE, &m);
}

void api_rank_workers(struct api_call *call) {
    const struct request_rank *q = call->body;
    struct command_rank_workers m = {.id = call->job, .ranks = {q->ranks.at, q->ranks.len}};
    give(call, COMMAND_RANK_WORKERS, &m);
}
