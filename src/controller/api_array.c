// GET /v1/jobs/{job}/array: how many elements of an array are in which state.
#include <string.h>

#include "api.h"

enum { ENDED_COUNTED_MAX = 100000 };  // rows of history; others wait meanwhile

struct tally {
    uint64_t array, by_state[JOB_STATE_COUNT], ended;
    struct map ending;  // those told from what is not committed yet
};

static bool add_live(void *ctx, const struct job_view *v) {
    ((struct tally *)ctx)->by_state[v->state]++;
    return true;
}

static int add_ended(void *ctx, const struct store_history *row) {
    struct tally *t = ctx;
    if (row->array != t->array || map_get(&t->ending, row->id))
        return 0;
    t->by_state[row->state]++;
    return ++t->ended >= ENDED_COUNTED_MAX;
}

static int add_ending(void *ctx, const struct store_history *row) {
    struct tally *t = ctx;
    if (row->array == t->array && !map_get(&t->ending, row->id)) {
        map_put(&t->ending, row->id, t);
        t->by_state[row->state]++;
    }
    return 0;
}

void api_array(struct api_call *call) {
    struct controller *c = call->controller;
    struct job_record r;
    struct error e = {0};
    bool live;
    if (api_record(c, call->job, &call->arena, &r, &live) < 0 || !r.array_id) {
        api_error(call->req, 404, "ENOENT", "this job is no array");
        return;
    }
    struct tally t = {.array = r.array_id};
    core_each_element(c->core, t.array, add_live, &t);
    t.by_state[JOB_PENDING] += core_array_uncreated(c->core, t.array);
    pipeline_each_ending(c->pipeline, add_ending, &t);
    int rc = store_history(c->store, &(struct store_query){.array = t.array, .order = STORE_BY_ID}, add_ended, &t, &e);
    map_done(&t.ending);
    if (rc < 0) {
        api_error(call->req, 503, "EIO", e.text);
        return;
    }
    struct answer_states states = {0};
    memcpy(states.by_state, t.by_state, sizeof states.by_state);
    api_answer(call, &answer_array_schema,
               &(struct answer_array){.id = t.array,
                                      .elements = spec_array_count(r.spec),
                                      .complete = t.ended < ENDED_COUNTED_MAX,
                                      .states = &states});
}
