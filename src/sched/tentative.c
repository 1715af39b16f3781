// Tentative decisions of a pass: each start, victim and earmark is applied to the world at once, so that
// the next job is placed in what is left, and all are undone in reverse order when the pass ends. The
// caller applies the decisions for good with world_job_start and world_job_preempt.
#include "tentative.h"

#include <assert.h>
#include <stdlib.h>
#include <string.h>

#include "place.h"

void sched_project_use(struct world *w, struct world_project *p, const int64_t held[DIMS_MAX], bool nonpreemptible,
                       int sign) {
    for (unsigned d = 0; d < w->cluster.dims; d++) {
        p->used[d] += sign * held[d];
        p->used_nonpreemptible[d] += nonpreemptible ? sign * held[d] : 0;
    }
    for (; p; p = sched_project_parent(w, p))
        for (unsigned d = 0; d < w->cluster.dims; d++)
            p->tree_used[d] += sign * held[d];
}

// Counts an allocation for the request's project, QoS and user.
static void count(struct sched_pass *p, struct world_request *r, const struct sched_alloc *a, int sign) {
    int64_t held[DIMS_MAX];
    struct world *w = p->w;
    sched_alloc_amounts(w, a, held);
    sched_project_use(w, world_project_slot(w, r->asked.project), held, !r->preemptible, sign);
    struct world_qos *q = world_qos(w, r->asked.qos);
    if (q)
        q->used_gpu_milli += (uint64_t)(sign * held[DIM_GPU]);
    sched_licenses_use(w, &r->asked, sign);
    r->user->started_cost += sign * (held[DIM_GPU] + held[DIM_CPU] * CPU_COST);
    r->qos_user->jobs += (uint32_t)sign;
    r->qos_user->gpu_milli += (uint64_t)(sign * held[DIM_GPU]);
    r->qos_user->cpus += (uint64_t)(sign * held[DIM_CPU]);
}

// The job left the queues of all its options. If it had a planned start in another partition, that room
// stays blocked until the pass ends, because in a pass free room may only shrink (fit classes rely on it).
// Another pass right away gives it to others.
static void choice_started(struct sched_pass *p, const struct world_job *j) {
    p->served = true;
    if (!pass_planned(p, j))
        return;
    p->out->next_ms = p->now_ms;
    for (uint32_t i = p->out->plans.len; i-- > 0;)
        if (p->out->plans.at[i].job == j->id) {
            free(p->out->plans.at[i].nodes);
            vec_remove(&p->out->plans, i);
        }
}

void sched_tentative_start(struct sched_pass *p, struct world_job *j, struct world_request *r, struct sched_alloc *a,
                           bool backfill) {
    struct world *w = p->w;
    p->moves++;
    j->alloc = a;
    j->start_ms = p->now_ms;
    j->limit_ms = r->limit_ms;
    for (uint32_t i = 0; i < a->node_count; i++) {
        struct world_node *n = w->cluster.nodes.at[a->nodes[i].node];
        sched_node_allocate(n, &a->nodes[i], r->demand.exclusive, 1);
        vec_push(&n->jobs, j);
        world_node_changed(w, n->id);
    }
    count(p, r, a, 1);
    vec_push(&p->out->starts,
             (struct sched_start){
                 .job = j->id, .alloc = a, .partition = r->asked.partition, .backfill = backfill});
    if (j->request != r)
        choice_started(p, j);
}

static void undo_start(struct sched_pass *p, const struct sched_start *s) {
    struct world_job *j = world_find(p->w, s->job);
    for (uint32_t i = 0; i < s->alloc->node_count; i++) {
        struct world_node *n = p->w->cluster.nodes.at[s->alloc->nodes[i].node];
        sched_node_allocate(n, &s->alloc->nodes[i], j->request->demand.exclusive, -1);
        // Starts are undone in reverse order, so this job is the last one listed.
        assert(n->jobs.len && n->jobs.at[n->jobs.len - 1] == j);
        n->jobs.len--;
        world_node_changed(p->w, n->id);
    }
    count(p, sched_job_option_in(j, s->partition), s->alloc, -1);
    j->alloc = NULL;
    j->start_ms = 0;
}

// A victim keeps its resources until it has ended; from now on it only does not count for its project.
static void count_victim(struct sched_pass *p, struct world_job *j, int sign) {
    int64_t held[DIMS_MAX];
    sched_alloc_amounts(p->w, j->alloc, held);
    sched_project_use(p->w, world_project_slot(p->w, j->request->asked.project), held, j->nonpreemptible, sign);
}

void sched_tentative_preempt(struct sched_pass *p, struct world_job *victim) {
    uint32_t running = p->w->jobs.running.len;
    assert(!pass_is_victim(p, victim));
    if (!p->is_victim.len) {
        vec_reserve(&p->is_victim, running);
        memset(p->is_victim.at, 0, running);
        p->is_victim.len = running;
    }
    p->moves++;
    count_victim(p, victim, -1);
    p->is_victim.at[victim->run_slot] = 1;
    vec_push(&p->victims, victim);
}

static void reduce(uint32_t *from, uint32_t by) {
    *from = *from > by ? *from - by : 0;
}

// The part of an allocation that its victims do not hold: it is free now and must stay free, or a later job
// of this pass would start on it. Example: the job gets GPUs 0-3 of a node, its victim holds GPUs 2-5; then
// GPUs 0 and 1 are withheld. GPUs 4 and 5, which the victim frees beyond what the job needs, belong to
// nobody before the victim has ended.
static struct sched_alloc *not_held_by(const struct sched_alloc *a, struct world_job *const *victims, uint32_t n) {
    struct sched_alloc *rest = sched_alloc_copy(a);
    for (uint32_t v = 0; v < n; v++)
        for (uint32_t k = 0; k < victims[v]->alloc->node_count; k++) {
            const struct sched_alloc_node *held = &victims[v]->alloc->nodes[k];
            struct sched_alloc_node *to = NULL;
            for (uint32_t i = 0; i < rest->node_count; i++)
                to = rest->nodes[i].node == held->node ? &rest->nodes[i] : to;
            if (!to)
                continue;
            reduce(&to->cpus, held->cpus);
            to->memory_bytes = to->memory_bytes > held->memory_bytes ? to->memory_bytes - held->memory_bytes : 0;
            for (uint32_t g = 0; g < to->gpu_count; g++)
                for (uint32_t h = 0; h < held->gpu_count; h++)
                    if (to->gpus[g].index == held->gpus[h].index) {
                        uint16_t by = held->gpus[h].milli;
                        to->gpus[g].milli = to->gpus[g].milli > by ? (uint16_t)(to->gpus[g].milli - by) : 0;
                    }
        }
    return rest;
}

static void apply_earmark(struct sched_pass *p, const struct earmark *m, int sign) {
    for (uint32_t i = 0; i < m->withheld->node_count; i++) {
        struct world_node *n = p->w->cluster.nodes.at[m->withheld->nodes[i].node];
        sched_node_withhold(n, &m->withheld->nodes[i], sign);
        world_node_changed(p->w, n->id);
    }
    count(p, m->request, m->alloc, sign);
}

void sched_tentative_earmark(struct sched_pass *p, struct world_job *j, struct world_request *r,
                             struct sched_alloc *a, struct world_job *const *victims, uint32_t n) {
    p->moves++;
    map_put(&p->earmarked, j->id, j);
    p->served |= j->request != r;
    vec_push(&p->earmarks, (struct earmark){j, r, a, not_held_by(a, victims, n)});
    apply_earmark(p, &p->earmarks.at[p->earmarks.len - 1], 1);
}

static void allocate_all(struct sched_pass *p, const struct world_job *j, int sign) {
    for (uint32_t i = 0; i < j->alloc->node_count; i++) {
        struct world_node *n = p->w->cluster.nodes.at[j->alloc->nodes[i].node];
        sched_node_allocate(n, &j->alloc->nodes[i], j->request->demand.exclusive, sign);
        world_node_changed(p->w, n->id);
    }
}

struct sched_alloc *sched_tentative_place_without(struct sched_pass *p, struct world_request *r,
                                                  struct world_job *const *victims, uint32_t n) {
    for (uint32_t i = 0; i < n; i++)
        allocate_all(p, victims[i], -1);
    p->retry = true;
    p->without = victims;
    p->without_count = n;
    struct sched_alloc *a = sched_place(p, r);
    p->without_count = 0;
    p->retry = false;
    for (uint32_t i = n; i-- > 0;)
        allocate_all(p, victims[i], 1);
    return a;
}

void sched_tentative_undo(struct sched_pass *p) {
    for (uint32_t i = p->earmarks.len; i-- > 0;) {
        apply_earmark(p, &p->earmarks.at[i], -1);
        sched_alloc_free(p->earmarks.at[i].alloc);
        sched_alloc_free(p->earmarks.at[i].withheld);
    }
    for (uint32_t i = p->victims.len; i-- > 0;)
        count_victim(p, p->victims.at[i], 1);
    for (uint32_t i = p->out->starts.len; i-- > 0;)
        undo_start(p, &p->out->starts.at[i]);
    vec_done(&p->earmarks);
    map_done(&p->earmarked);
    vec_done(&p->victims);
    vec_done(&p->is_victim);
}
