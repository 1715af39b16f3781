// Elastic jobs: their size, and which workers are given back first.
#include "answers.h"
#include "api.h"
#include "requests.h"

void api_resize(struct api_call *call) {
    const struct request_resize *q = call->body;
    struct command_resize m = {.id = call->job,
                               .workers_min = q->workers_min,
                               .workers_max = q->workers_max,
                               .component = q->component,
                               .min_given = schema_given(&request_resize_schema, q, &q->workers_min)};
    api_give(call, COMMAND_RESIZE, &m);
}

void api_rank_workers(struct api_call *call) {
    const struct request_rank *q = call->body;
    struct command_rank_workers m = {.id = call->job, .ranks = {q->ranks.at, q->ranks.len}};
    api_give(call, COMMAND_RANK_WORKERS, &m);
}
