// Owns the table of steps: by job, attempt and number. Lists are in the order in which steps came, so that two runs
// of the fault simulator do the same.
#include "agent/logic/steps.h"

#include <stdlib.h>

#include "base/alloc.h"
#include "base/map.h"
#include "base/vec.h"

struct agent_step {
    uint64_t id, epoch, seq;
    uint32_t attempt, step;
    enum agent_step_phase phase;
    struct arena arena;  // of the end and the origin
    struct bytes origin;
    struct step_end *end;
    struct message_step_hub *listens;  // of an MPI step whose nodes have not found each other; else NULL
    bool kill;
    struct message_kill order;
    int64_t kill_next_ms;
};

// Of one attempt. An acknowledged step takes a place in `numbers` and nothing else.
struct attempt_steps {
    uint64_t id;
    uint32_t attempt, last;      // last: the highest number it had
    struct attempt_steps *next;  // another attempt of the job
    struct map numbers;          // step → struct agent_step, or `acknowledged`
    VEC(struct agent_step *) list;
};

struct agent_steps {
    struct map jobs;  // job → struct attempt_steps
    VEC(struct attempt_steps *) attempts;
    uint32_t kills;  // steps with an order to end them
};

static struct agent_step acknowledged = {.phase = AGENT_STEP_FORGOTTEN};

struct agent_steps *agent_steps_new(void) {
    return xcalloc(1, sizeof(struct agent_steps));
}

static void free_step(struct agent_steps *s, struct agent_step *x) {
    s->kills -= x->kill;
    arena_done(&x->arena);
    free(x);
}

static void free_attempt(struct agent_steps *s, struct attempt_steps *t) {
    for (uint32_t i = 0; i < t->list.len; i++)
        free_step(s, t->list.at[i]);
    vec_done(&t->list);
    map_done(&t->numbers);
    free(t);
}

struct agent_steps *agent_steps_free(struct agent_steps *s) {
    if (!s)
        return NULL;
    for (uint32_t i = 0; i < s->attempts.len; i++)
        free_attempt(s, s->attempts.at[i]);
    vec_done(&s->attempts);
    map_done(&s->jobs);
    free(s);
    return NULL;
}

static struct attempt_steps *find_attempt(const struct agent_steps *s, uint64_t id, uint32_t attempt) {
    struct attempt_steps *t = map_get(&s->jobs, id);
    while (t && t->attempt != attempt)
        t = t->next;
    return t;
}

static struct agent_step *find(const struct agent_steps *s, uint64_t id, uint32_t attempt, uint32_t step) {
    const struct attempt_steps *t = find_attempt(s, id, attempt);
    return t ? map_get(&t->numbers, step) : NULL;
}

static void add(struct agent_steps *s, uint64_t id, uint32_t attempt, uint32_t step,
                const struct agent_step_origin *origin) {
    struct attempt_steps *t = find_attempt(s, id, attempt);
    if (!t) {
        t = xcalloc(1, sizeof *t);
        *t = (struct attempt_steps){.id = id, .attempt = attempt, .next = map_get(&s->jobs, id)};
        map_put(&s->jobs, id, t);
        vec_push(&s->attempts, t);
    }
    struct agent_step *x = xcalloc(1, sizeof *x);
    *x = (struct agent_step){.id = id,
                             .epoch = origin->epoch,
                             .seq = origin->seq,
                             .attempt = attempt,
                             .step = step,
                             .phase = AGENT_STEP_RUNNING};
    if (origin->data.len)
        x->origin =
            (struct bytes){arena_memdup(&x->arena, origin->data.data, origin->data.len), origin->data.len};
    map_put(&t->numbers, step, x);
    vec_push(&t->list, x);
    t->last = step > t->last ? step : t->last;
}

bool agent_steps_start(struct agent_steps *s, const struct message_exec *m) {
    if (!m->step || find(s, m->id, m->attempt, m->step))
        return false;
    add(s, m->id, m->attempt, m->step, &(struct agent_step_origin){m->epoch, m->seq, m->origin});
    return true;
}

// Agents and controllers of release 0.2 know no epochs of steps.
static bool is_other(const struct agent_step *x, uint64_t epoch) {
    return epoch && x->epoch && epoch != x->epoch;
}

bool agent_steps_taken(const struct agent_steps *s, const struct message_exec *m) {
    const struct agent_step *x = find(s, m->id, m->attempt, m->step);
    return x && is_other(x, m->epoch);
}

void agent_steps_recover(struct agent_steps *s, uint64_t id, uint32_t attempt, uint32_t step,
                         const struct agent_step_origin *origin, const struct step_end *end) {
    if (!find(s, id, attempt, step))
        add(s, id, attempt, step, origin);
    if (end)
        agent_steps_ended(s, end);
}

enum agent_step_phase agent_steps_phase(const struct agent_steps *s, uint64_t id, uint32_t attempt, uint32_t step) {
    const struct agent_step *x = find(s, id, attempt, step);
    return x ? x->phase : AGENT_STEP_UNKNOWN;
}

const struct step_end *agent_steps_end(const struct agent_steps *s, uint64_t id, uint32_t attempt, uint32_t step) {
    const struct agent_step *x = find(s, id, attempt, step);
    return x ? x->end : NULL;
}

bool agent_steps_ended(struct agent_steps *s, const struct step_end *end) {
    struct agent_step *x = find(s, end->id, end->attempt, end->step);
    if (!x || x->phase != AGENT_STEP_RUNNING)
        return false;
    x->phase = AGENT_STEP_ENDED;
    s->kills -= x->kill;
    x->kill = false;
    x->end = schema_copy(&event_step_end_schema, end, &x->arena);
    x->end->epoch = x->epoch;
    x->end->made_seq = x->seq;
    return true;
}

void agent_steps_describe(const struct agent_steps *s, struct message_step_known *out) {
    const struct agent_step *x = find(s, out->id, out->attempt, out->step);
    if (!x || x->phase == AGENT_STEP_FORGOTTEN || is_other(x, out->epoch))
        return;
    out->known = true;
    out->end = x->end;
    out->origin = x->origin;
}

const struct message_step_hub *agent_steps_listens(struct agent_steps *s, uint64_t id, uint32_t attempt,
                                                   uint32_t step, const struct message_step_hub *m) {
    struct agent_step *x = find(s, id, attempt, step);
    if (!x || x->phase != AGENT_STEP_RUNNING || !m == !x->listens)
        return NULL;
    x->listens = m ? schema_copy(&message_step_hub_schema, m, &x->arena) : NULL;
    if (m) {
        x->listens->epoch = x->epoch;
        x->listens->id = id;
        x->listens->attempt = attempt;
        x->listens->step = step;
    }
    return x->listens;
}

void agent_steps_each_listening(const struct agent_steps *s, agent_step_hub_fn *fn, void *ctx) {
    for (uint32_t k = 0; k < s->attempts.len; k++)
        for (uint32_t i = 0; i < s->attempts.at[k]->list.len; i++) {
            const struct agent_step *x = s->attempts.at[k]->list.at[i];
            if (x->phase == AGENT_STEP_RUNNING && x->listens)
                fn(ctx, x->listens);
        }
}

bool agent_steps_acked(struct agent_steps *s, const struct message_step *m) {
    struct attempt_steps *t = find_attempt(s, m->id, m->attempt);
    struct agent_step *x = t ? map_get(&t->numbers, m->step) : NULL;
    if (!x || x->phase != AGENT_STEP_ENDED || is_other(x, m->epoch))
        return false;
    for (uint32_t i = t->list.len; i-- > 0;)
        if (t->list.at[i] == x) {
            vec_remove(&t->list, i);
            break;
        }
    map_put(&t->numbers, m->step, &acknowledged);
    free_step(s, x);
    return true;
}

void agent_steps_kill(struct agent_steps *s, const struct message_kill *m, int64_t now_ms) {
    struct agent_step *x = find(s, m->id, m->attempt, m->step);
    if (!x || x->phase != AGENT_STEP_RUNNING)
        return;
    s->kills += !x->kill;
    x->kill = true;
    x->order = (struct message_kill){.id = m->id, .attempt = m->attempt, .step = m->step, .cause = m->cause,
                                     .signal = m->signal, .grace_s = m->grace_s};
    x->kill_next_ms = now_ms;
}

bool agent_steps_due(struct agent_steps *s, int64_t now_ms, struct message_kill *out) {
    for (uint32_t k = 0; s->kills && k < s->attempts.len; k++)
        for (uint32_t i = 0; i < s->attempts.at[k]->list.len; i++) {
            struct agent_step *x = s->attempts.at[k]->list.at[i];
            if (x->kill && now_ms >= x->kill_next_ms) {
                x->kill_next_ms = now_ms + AGENT_STEP_KILL_RETRY_MS;
                *out = x->order;
                return true;
            }
        }
    return false;
}

uint32_t agent_steps_last(const struct agent_steps *s, uint64_t id, uint32_t attempt) {
    const struct attempt_steps *t = find_attempt(s, id, attempt);
    return t ? t->last : 0;
}

void agent_steps_list(const struct agent_steps *s, struct attempt *out, struct arena *a) {
    const struct attempt_steps *t = find_attempt(s, out->id, out->attempt);
    out->last_step = t ? t->last : 0;
    if (!t || !t->list.len)
        return;
    out->steps.at = arena_alloc(a, t->list.len * sizeof *out->steps.at);
    for (uint32_t i = 0; i < t->list.len; i++)
        out->steps.at[out->steps.len++] = (struct step_state){t->list.at[i]->step, t->list.at[i]->epoch,
                                                              t->list.at[i]->end, t->list.at[i]->seq};
}

void agent_steps_drop(struct agent_steps *s, uint64_t id, uint32_t attempt) {
    struct attempt_steps *t = find_attempt(s, id, attempt), *first = map_get(&s->jobs, id);
    if (!t)
        return;
    if (t == first && !t->next)
        map_remove(&s->jobs, id);
    else if (t == first)
        map_put(&s->jobs, id, t->next);
    for (; first && t != first; first = first->next)
        if (first->next == t)
            first->next = t->next;
    for (uint32_t i = 0; i < s->attempts.len; i++)
        if (s->attempts.at[i] == t) {
            vec_remove(&s->attempts, i);
            break;
        }
    free_attempt(s, t);
}

void agent_steps_each_running(const struct agent_steps *s, agent_step_fn *fn, void *ctx) {
    for (uint32_t k = 0; k < s->attempts.len; k++)
        for (uint32_t i = 0; i < s->attempts.at[k]->list.len; i++) {
            const struct agent_step *x = s->attempts.at[k]->list.at[i];
            if (x->phase == AGENT_STEP_RUNNING)
                fn(ctx, x->id, x->attempt, x->step);
        }
}
