// Owns what is held: taking an allocation on nodes and giving it back, and the counts per project,
// QoS and user that follow from it. Everything is a sum over jobs, so the order never matters.
#include <assert.h>

#include "internal.h"

static void gpu_refresh(struct gpu *g) {
    uint32_t gone = (uint32_t)g->held_milli + g->withheld_milli;
    g->free_milli = g->usable && gone < SCHED_GPU ? (uint16_t)(SCHED_GPU - gone) : 0;
}

static void plain_refresh(struct node *n) {
    uint64_t cpus = (uint64_t)n->cpus_held + n->cpus_withheld, memory = n->memory_held + n->memory_withheld;
    n->cpus_free = n->cpus > cpus ? n->cpus - (uint32_t)cpus : 0;
    n->memory_free = n->memory > memory ? n->memory - memory : 0;
    n->whole_free = n->most_free = 0;
    n->free_milli = 0;
    n->like = 0;
    for (uint32_t i = 0; i < n->gpu_count; i++) {
        uint16_t f = n->gpus[i].free_milli;
        n->whole_free = (uint16_t)(n->whole_free + (f == SCHED_GPU));
        n->most_free = f > n->most_free ? f : n->most_free;
        n->free_milli += f;
    }
}

void node_refresh(struct node *n) {
    for (uint32_t i = 0; i < n->gpu_count; i++)
        gpu_refresh(&n->gpus[i]);
    plain_refresh(n);
}

void node_hold(struct node *n, const struct alloc_node *a, bool exclusive, int sign) {
    n->cpus_held += sign > 0 ? a->cpus : -a->cpus;
    n->memory_held += sign > 0 ? a->memory_bytes : -a->memory_bytes;
    n->exclusive += exclusive ? (uint32_t)sign : 0;
    for (uint32_t i = 0; i < a->gpu_count; i++) {
        if (a->gpus[i].index >= n->gpu_count)
            continue;  // the node came back with fewer GPUs
        struct gpu *g = &n->gpus[a->gpus[i].index];
        g->held_milli = (uint16_t)(g->held_milli + sign * a->gpus[i].milli);
        gpu_refresh(g);
    }
    plain_refresh(n);
}

void node_withhold(struct node *n, const struct alloc_node *a, int sign) {
    n->cpus_withheld += sign > 0 ? a->cpus : -a->cpus;
    n->memory_withheld += sign > 0 ? a->memory_bytes : -a->memory_bytes;
    for (uint32_t i = 0; i < a->gpu_count; i++) {
        if (a->gpus[i].index >= n->gpu_count)
            continue;
        struct gpu *g = &n->gpus[a->gpus[i].index];
        g->withheld_milli = (uint16_t)(g->withheld_milli + sign * a->gpus[i].milli);
        gpu_refresh(g);
    }
    plain_refresh(n);
}

void alloc_amounts(const struct world *w, const struct alloc *alloc, int64_t held[DIMS_MAX]) {
    for (unsigned d = 0; d < w->dims; d++)
        held[d] = 0;
    for (uint32_t i = 0; i < alloc->node_count; i++) {
        const struct alloc_node *a = &alloc->nodes[i];
        const struct node *n = w->nodes.len > a->node ? w->nodes.at[a->node] : NULL;
        held[DIM_CPU] += a->cpus;
        for (uint32_t g = 0; g < a->gpu_count; g++) {
            held[DIM_GPU] += a->gpus[g].milli;
            if (n && a->gpus[g].index < n->gpu_count) {
                unsigned dim = w->dim_of_model[n->gpus[a->gpus[g].index].model];
                if (dim)
                    held[dim] += a->gpus[g].milli;
            }
        }
    }
}

void count_running(struct world *w, struct job *j, int sign, int64_t now_ms) {
    const struct sched_request *asked = &j->request->asked;
    struct project *p = world_project_slot(w, asked->project);
    int64_t held[DIMS_MAX];
    alloc_amounts(w, j->alloc, held);
    if (sign > 0)
        j->fixed = !request_preemptible(w, j->request);
    for (unsigned d = 0; d < w->dims; d++) {
        p->used[d] += sign * held[d];
        if (j->fixed)
            p->fixed[d] += sign * held[d];
    }
    p->running += (uint32_t)sign;
    struct qos *q = world_qos(w, asked->qos);
    int64_t cost = held[DIM_GPU] + held[DIM_CPU] * CPU_COST;
    if (q) {
        q->used_gpu_milli += (uint64_t)(sign * held[DIM_GPU]);
        cost = cost * q->usage_factor_milli / 1000;
    }
    if (sign > 0) {
        j->cost = cost;
        j->held_gpu = held[DIM_GPU];
        j->held_cpus = held[DIM_CPU];
    }
    user_hold(user_slot(&w->users, asked->project, asked->user), sign * j->cost, now_ms,
              w->half_life_ms);
    struct user *u = user_slot(&w->qos_users, asked->qos, asked->user);
    u->jobs += (uint32_t)sign;
    u->gpu_milli += (uint64_t)(sign * held[DIM_GPU]);
    u->cpus += (uint64_t)(sign * held[DIM_CPU]);
}

void count_queued(struct world *w, struct job *j, int sign) {
    struct project *p = world_project_slot(w, j->request->asked.project);
    bool fixed = !request_preemptible(w, j->request);
    for (unsigned d = 0; d < w->dims; d++) {
        int64_t amount = sign * request_amount(w, j->request, d);
        p->queued[d] += amount;
        if (fixed)
            p->queued_fixed[d] += amount;
    }
}

// After the meaning of the counts changed (a model got a quota, a QoS became preemptible, …).
void world_recount(struct world *w) {
    w->victims_stale = true;  // what is preemptible may have changed
    for (uint32_t i = 0; i < w->projects.len; i++) {
        struct project *p = w->projects.at[i];
        if (!p)
            continue;
        for (unsigned d = 0; d < DIMS_MAX; d++)
            p->used[d] = p->fixed[d] = p->queued[d] = p->queued_fixed[d] = 0;
    }
    for (uint32_t i = 0; i < w->qos.len; i++)
        if (w->qos.at[i])
            w->qos.at[i]->used_gpu_milli = 0;
    for (uint32_t i = 0; i < w->running.len; i++) {
        struct job *j = w->running.at[i];
        struct project *p = world_project_slot(w, j->request->asked.project);
        struct qos *q = world_qos(w, j->request->asked.qos);
        int64_t held[DIMS_MAX];
        alloc_amounts(w, j->alloc, held);
        j->fixed = !request_preemptible(w, j->request);
        for (unsigned d = 0; d < w->dims; d++) {
            p->used[d] += held[d];
            p->fixed[d] += j->fixed ? held[d] : 0;
        }
        if (q)
            q->used_gpu_milli += (uint64_t)held[DIM_GPU];
    }
    for (uint32_t i = 0; i < w->projects.len; i++) {
        struct project *p = w->projects.at[i];
        for (uint32_t k = 0; p && k < p->turns.slots.len; k++) {
            const struct request *r = p->turns.slots.at[k].request;
            if (!r || !request_counts(r))
                continue;
            bool fixed = !request_preemptible(w, r);
            for (unsigned d = 0; d < w->dims; d++) {
                int64_t amount = request_amount(w, r, d) * (r->queue.len - r->head);
                p->queued[d] += amount;
                p->queued_fixed[d] += fixed ? amount : 0;
            }
        }
    }
}
