// GET /v1/jobs/{job}/array: how many elements of an array are in which state. And the walk over all elements of an
// array that it has in common with other questions.
#include <stdlib.h>
#include <string.h>

#include "array_read.h"

// --- the walk ---

static bool next_live(void *ctx, const struct job_view *v) {
    struct array_read *a = ctx;
    a->after = v->id;
    seen_ids_add(&a->seen, v->id);
    a->enough = !a->live(a, v);
    a->cut = sliced_read_over(&a->read, 1);
    return !a->cut && !a->enough;
}

static int next_ended(void *ctx, const struct store_history *row) {
    struct array_read *a = ctx;
    a->after = row->id;
    if (!seen_ids_have(&a->seen, row->id))
        a->enough = !a->ended(a, row);
    a->cut = sliced_read_over(&a->read, 1);
    return a->cut || a->enough;
}

static bool run(struct sliced_read *r) {
    struct array_read *a = (struct array_read *)r;
    struct controller *c = r->controller;
    a->cut = false;
    if (a->phase == ARRAY_LIVE) {
        core_each_element(c->core, a->array, a->after, next_live, a);
        if (a->cut && !a->enough)
            return false;
        a->phase = ARRAY_COMMIT;
        a->after = 0;
    }
    if (a->phase == ARRAY_COMMIT && !a->enough) {
        a->phase = ARRAY_ENDED;
        if (sliced_read_await_commit(r))
            return false;
    }
    if (!a->enough) {
        struct store_query q = {
            .array = a->array, .order = STORE_BY_ID, .resume = true, .after_id = a->after};
        int rc = store_history(c->store, &q, next_ended, a, &a->error);
        if (rc >= 0 && a->cut && !a->enough)
            return false;
    }
    a->answer(a, &a->error);
    return true;
}

static void read_free(struct sliced_read *r) {
    struct array_read *a = (struct array_read *)r;
    if (a->done)
        a->done(a);
    seen_ids_done(&a->seen);
    free(a);
}

void array_read_begin(struct array_read *a, struct api_call *call) {
    a->read = (struct sliced_read){.run = run, .free = read_free};
    sliced_read_begin(&a->read, call);
}

// --- counting ---

enum { ENDED_COUNTED_MAX = 100000 };  // rows of history

struct tally {
    struct array_read walk;
    uint64_t by_state[JOB_STATE_COUNT], elements, ended;
};

static bool count_live(struct array_read *a, const struct job_view *v) {
    ((struct tally *)a)->by_state[v->state]++;
    return true;
}

static bool count_ended(struct array_read *a, const struct store_history *row) {
    struct tally *t = (struct tally *)a;
    t->by_state[row->state]++;
    return ++t->ended < ENDED_COUNTED_MAX;
}

static void answer(struct array_read *a, const struct error *e) {
    struct tally *t = (struct tally *)a;
    struct answer_states states = {0};
    if (e->code) {
        api_error(a->read.req, 503, "EIO", e->text);
        return;
    }
    memcpy(states.by_state, t->by_state, sizeof states.by_state);
    states.by_state[JOB_PENDING] += core_array_uncreated(a->read.controller->core, a->array);
    api_answer_to(a->read.req, 200, &answer_array_schema,
                  &(struct answer_array){.id = a->array,
                                         .elements = t->elements,
                                         .complete = t->ended < ENDED_COUNTED_MAX,
                                         .states = &states});
}

void api_array(struct api_call *call) {
    struct job_record r;
    bool live;
    if (api_record(call->controller, call->job, &call->arena, &r, &live) < 0 || !r.array_id) {
        api_error(call->req, 404, "ENOENT", "this job is no array");
        return;
    }
    struct tally *t = xcalloc(1, sizeof *t);
    *t = (struct tally){
        .walk = {.array = r.array_id, .live = count_live, .ended = count_ended, .answer = answer},
        .elements = spec_array_count(r.spec)};
    array_read_begin(&t->walk, call);
}
