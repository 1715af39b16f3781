// Owns what is held: taking an allocation on nodes and giving it back, and the counts per project,
// QoS and user that follow from it. Everything is a sum over jobs, so the order never matters.
#include <assert.h>

#include "sched/internal.h"

void node_refresh(struct node *n) {
    n->cpus_free = n->cpus > n->cpus_held ? n->cpus - n->cpus_held : 0;
    n->memory_free = n->memory > n->memory_held ? n->memory - n->memory_held : 0;
    for (uint32_t i = 0; i < n->gpu_count; i++) {
        struct gpu *g = &n->gpus[i];
        g->free_milli = g->usable && g->held_milli < SCHED_GPU ? (uint16_t)(SCHED_GPU - g->held_milli)
                                                               : 0;
    }
}

void node_hold(struct node *n, const struct alloc_node *a, bool exclusive, int sign) {
    n->cpus_held += sign > 0 ? a->cpus : -a->cpus;
    n->memory_held += sign > 0 ? a->memory_bytes : -a->memory_bytes;
    n->exclusive += exclusive ? (uint32_t)sign : 0;
    n->cpus_free = n->cpus > n->cpus_held ? n->cpus - n->cpus_held : 0;
    n->memory_free = n->memory > n->memory_held ? n->memory - n->memory_held : 0;
    for (uint32_t i = 0; i < a->gpu_count; i++) {
        if (a->gpus[i].index >= n->gpu_count)
            continue;  // the node came back with fewer GPUs
        struct gpu *g = &n->gpus[a->gpus[i].index];
        g->held_milli = (uint16_t)(g->held_milli + sign * a->gpus[i].milli);
        g->free_milli = g->usable && g->held_milli < SCHED_GPU ? (uint16_t)(SCHED_GPU - g->held_milli)
                                                               : 0;
    }
}

static void held_by(const struct world *w, const struct job *j, int64_t held[DIMS_MAX]) {
    for (unsigned d = 0; d < w->dims; d++)
        held[d] = 0;
    for (uint32_t i = 0; i < j->alloc->node_count; i++) {
        const struct alloc_node *a = &j->alloc->nodes[i];
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
    held_by(w, j, held);
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
    if (sign > 0)
        j->cost = cost;
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
        held_by(w, j, held);
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
        for (uint32_t k = 0; p && k < p->requests.len; k++) {
            const struct request *r = p->requests.at[k];
            bool fixed = !request_preemptible(w, r);
            for (unsigned d = 0; d < w->dims; d++) {
                int64_t amount = request_amount(w, r, d) * (r->queue.len - r->head);
                p->queued[d] += amount;
                p->queued_fixed[d] += fixed ? amount : 0;
            }
        }
    }
}
