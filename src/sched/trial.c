// Owns decisions in the making: each is applied to the world at once, so that the next one sees it,
// and all are taken back when the pass ends. What was applied last is taken back first.
#include <assert.h>

#include "pass.h"

void project_use(struct world *w, struct project *p, const int64_t held[DIMS_MAX], bool fixed, int sign) {
    for (unsigned d = 0; d < w->dims; d++) {
        p->used[d] += sign * held[d];
        p->fixed[d] += fixed ? sign * held[d] : 0;
    }
    for (; p; p = project_parent(w, p))
        for (unsigned d = 0; d < w->dims; d++)
            p->tree_used[d] += sign * held[d];
}

static void count(struct pass *p, struct request *r, const struct alloc *a, int sign) {
    int64_t held[DIMS_MAX];
    struct world *w = p->w;
    alloc_amounts(w, a, held);
    project_use(w, world_project_slot(w, r->asked.project), held, !r->preemptible, sign);
    struct qos *q = world_qos(w, r->asked.qos);
    if (q)
        q->used_gpu_milli += (uint64_t)(sign * held[DIM_GPU]);
    r->user->trial_cost += sign * (held[DIM_GPU] + held[DIM_CPU] * CPU_COST);
    r->qos_user->jobs += (uint32_t)sign;
    r->qos_user->gpu_milli += (uint64_t)(sign * held[DIM_GPU]);
    r->qos_user->cpus += (uint64_t)(sign * held[DIM_CPU]);
}

// It is out of every other queue for this pass. A planned start it had elsewhere is kept free until the
// pass ends, since room only shrinks in one; so there is another pass at once.
static void choice_started(struct pass *p, const struct job *j) {
    p->served = true;
    if (!j->planned)
        return;
    p->out->next_ms = p->now_ms;
    for (uint32_t i = p->out->plans.len; i-- > 0;)
        if (p->out->plans.at[i].job == j->id)
            vec_remove(&p->out->plans, i);
}

void trial_start(struct pass *p, struct job *j, struct request *r, struct alloc *a, bool backfill) {
    struct world *w = p->w;
    p->moves++;
    j->alloc = a;
    j->start_ms = p->now_ms;
    j->limit_ms = r->limit_ms;
    for (uint32_t i = 0; i < a->node_count; i++) {
        struct node *n = w->nodes.at[a->nodes[i].node];
        node_hold(n, &a->nodes[i], r->demand.exclusive, 1);
        vec_push(&n->jobs, j);
        world_node_changed(w, n->id);
    }
    count(p, r, a, 1);
    vec_push(&p->out->starts, (struct sched_start){
                                  .job = j->id, .alloc = a, .partition = r->asked.partition, .backfill = backfill});
    if (j->request != r)
        choice_started(p, j);
}

static void undo_start(struct pass *p, const struct sched_start *s) {
    struct job *j = world_find(p->w, s->job);
    for (uint32_t i = 0; i < s->alloc->node_count; i++) {
        struct node *n = p->w->nodes.at[s->alloc->nodes[i].node];
        node_hold(n, &s->alloc->nodes[i], j->request->demand.exclusive, -1);
        assert(n->jobs.len && n->jobs.at[n->jobs.len - 1] == j);
        n->jobs.len--;
        world_node_changed(p->w, n->id);
    }
    count(p, job_option_in(j, s->partition), s->alloc, -1);
    j->alloc = NULL;
    j->start_ms = 0;
}

// It holds what it holds until it has ended; it only does not count for its project any more.
static void ending(struct pass *p, struct job *j, int sign) {
    int64_t held[DIMS_MAX];
    alloc_amounts(p->w, j->alloc, held);
    project_use(p->w, world_project_slot(p->w, j->request->asked.project), held, j->fixed, -sign);
    j->vacating = sign > 0;
}

void trial_vacate(struct pass *p, struct job *victim) {
    assert(!victim->vacating);
    p->moves++;
    ending(p, victim, 1);
    vec_push(&p->vacating, victim);
}

static void less(uint32_t *from, uint32_t by) {
    *from = *from > by ? *from - by : 0;
}

// What of the promise is not with its victims: free now, and to stay so. What victims leave beyond it
// is nobody's before they have ended; else who comes later would start on it, before the job.
static struct alloc *beyond(const struct alloc *a, struct job *const *victims, uint32_t n) {
    struct alloc *rest = alloc_copy(a);
    for (uint32_t v = 0; v < n; v++)
        for (uint32_t k = 0; k < victims[v]->alloc->node_count; k++) {
            const struct alloc_node *gives = &victims[v]->alloc->nodes[k];
            struct alloc_node *to = NULL;
            for (uint32_t i = 0; i < rest->node_count; i++)
                to = rest->nodes[i].node == gives->node ? &rest->nodes[i] : to;
            if (!to)
                continue;
            less(&to->cpus, gives->cpus);
            to->memory_bytes = to->memory_bytes > gives->memory_bytes ? to->memory_bytes - gives->memory_bytes : 0;
            for (uint32_t g = 0; g < to->gpu_count; g++)
                for (uint32_t h = 0; h < gives->gpu_count; h++)
                    if (to->gpus[g].index == gives->gpus[h].index) {
                        uint16_t by = gives->gpus[h].milli;
                        to->gpus[g].milli = to->gpus[g].milli > by ? (uint16_t)(to->gpus[g].milli - by) : 0;
                    }
        }
    return rest;
}

static void claim(struct pass *p, const struct promise *m, int sign) {
    for (uint32_t i = 0; i < m->withheld->node_count; i++) {
        struct node *n = p->w->nodes.at[m->withheld->nodes[i].node];
        node_withhold(n, &m->withheld->nodes[i], sign);
        world_node_changed(p->w, n->id);
    }
    count(p, m->request, m->alloc, sign);
}

void trial_promise(struct pass *p, struct job *j, struct request *r, struct alloc *a, struct job *const *victims,
                   uint32_t n) {
    p->moves++;
    j->promised = true;
    p->served |= j->request != r;
    vec_push(&p->promises, (struct promise){j, r, a, beyond(a, victims, n)});
    claim(p, &p->promises.at[p->promises.len - 1], 1);
}

static void lift(struct pass *p, const struct job *j, int sign) {
    for (uint32_t i = 0; i < j->alloc->node_count; i++) {
        struct node *n = p->w->nodes.at[j->alloc->nodes[i].node];
        node_hold(n, &j->alloc->nodes[i], j->request->demand.exclusive, sign);
        world_node_changed(p->w, n->id);
    }
}

struct alloc *trial_place_without(struct pass *p, struct request *r, struct job *const *victims, uint32_t n) {
    for (uint32_t i = 0; i < n; i++)
        lift(p, victims[i], -1);
    p->again = true;
    struct alloc *a = place(p, r);
    p->again = false;
    for (uint32_t i = n; i-- > 0;)
        lift(p, victims[i], 1);
    return a;
}

void trial_undo(struct pass *p) {
    for (uint32_t i = p->promises.len; i-- > 0;) {
        p->promises.at[i].job->promised = false;
        claim(p, &p->promises.at[i], -1);
        alloc_free(p->promises.at[i].alloc);
        alloc_free(p->promises.at[i].withheld);
    }
    for (uint32_t i = p->vacating.len; i-- > 0;)
        ending(p, p->vacating.at[i], -1);
    for (uint32_t i = p->out->starts.len; i-- > 0;)
        undo_start(p, &p->out->starts.at[i]);
    vec_done(&p->promises);
    vec_done(&p->vacating);
}
