// Owns one scheduling pass.
#include <assert.h>

#include "sched/internal.h"


static const char *const WORDS[SCHED_REASON_COUNT] = {
    "None", "Held", "BeginTime", "ProjectGone", "Partition", "QosGone", "QosLimit", "TimeLimit",
    "Deadline", "ProjectLimit", "Quota", "Resources", "Priority", "Nodes", "Reservation", "Vacating",
};

const char *sched_reason_word(enum sched_reason r) {
    return r < SCHED_REASON_COUNT ? WORDS[r] : "None";
}

void decisions_done(struct decisions *d) {
    for (uint32_t i = 0; i < d->starts.len; i++)
        alloc_free(d->starts.at[i].alloc);
    vec_done(&d->starts);
    vec_done(&d->preempts);
    vec_done(&d->plans);
    *d = (struct decisions){0};
}

struct turn {
    int32_t priority;
    uint32_t at;  // index in the queue of the job that comes next
    struct request *request;
};

static bool turn_before(const struct turn *a, const struct turn *b) {
    const struct job *x = a->request->queue.at[a->at], *y = b->request->queue.at[b->at];
    if (a->priority != b->priority)
        return a->priority > b->priority;
    return x->submit_ms != y->submit_ms ? x->submit_ms < y->submit_ms : x->id < y->id;
}

void sched_decide(struct world *w, int64_t now_ms, const struct policy *policy, struct decisions *out) {
    *out = (struct decisions){.next_ms = INT64_MAX};
    world_due(w, now_ms);
    VEC(struct turn) turns = {0};
    for (uint32_t i = 0; i < w->projects.len; i++) {
        struct project *p = w->projects.at[i];
        for (uint32_t k = 0; p && k < p->requests.len; k++) {
            struct request *r = p->requests.at[k];
            vec_push(&turns, (struct turn){request_priority(w, r), r->head, r});
        }
    }
    while (turns.len) {
        uint32_t best = 0;
        for (uint32_t i = 1; i < turns.len; i++)
            if (turn_before(&turns.at[i], &turns.at[best]))
                best = i;
        struct turn *t = &turns.at[best];
        struct request *r = t->request;
        struct job *j = r->queue.at[t->at++];
        out->looked_at++;
        struct alloc *a = place(w, r);
        if (a) {
            for (uint32_t i = 0; i < a->node_count; i++)
                node_hold(w->nodes.at[a->nodes[i].node], &a->nodes[i], r->demand.exclusive, 1);
            vec_push(&out->starts, (struct sched_start){.job = j->id, .alloc = a});
        } else {
            j->reason = SCHED_REASON_RESOURCES;
        }
        if (!a || t->at == r->queue.len)
            vec_remove_swap(&turns, best);
    }
    for (uint32_t i = out->starts.len; i-- > 0;) {
        const struct alloc *a = out->starts.at[i].alloc;
        const struct job *j = world_find(w, out->starts.at[i].job);
        for (uint32_t k = 0; k < a->node_count; k++)
            node_hold(w->nodes.at[a->nodes[k].node], &a->nodes[k], j->request->demand.exclusive, -1);
    }
    vec_done(&turns);
}

void cache_free(struct world *w) {
    vec_done(&w->tree);
}
