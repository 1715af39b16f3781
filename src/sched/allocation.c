// Allocations: their memory layout (node parts, then all GPUs, in one block), adding them to and removing them from
// nodes, and the sums per project, QoS and user. Everything is a sum over jobs, so their order does not matter.
#include <assert.h>
#include <string.h>

#include "world_state.h"

struct sched_alloc *sched_alloc_new(uint32_t nodes, uint32_t gpus) {
    size_t head = sizeof(struct sched_alloc) + nodes * sizeof(struct sched_alloc_node);
    struct sched_alloc *a = xcalloc(1, head + gpus * sizeof(struct sched_alloc_gpu));
    a->node_count = nodes;
    return a;
}

struct sched_alloc_gpu *sched_alloc_gpus(struct sched_alloc *a) {
    return (struct sched_alloc_gpu *)(void *)&a->nodes[a->node_count];
}

struct sched_alloc *sched_alloc_copy(const struct sched_alloc *a) {
    if (!a)
        return NULL;
    uint32_t gpus = 0;
    for (uint32_t i = 0; i < a->node_count; i++)
        gpus += a->nodes[i].gpu_count;
    struct sched_alloc *c = sched_alloc_new(a->node_count, gpus);
    struct sched_alloc_gpu *next = sched_alloc_gpus(c);
    for (uint32_t i = 0; i < a->node_count; i++) {
        c->nodes[i] = a->nodes[i];
        c->nodes[i].gpus = next;
        if (a->nodes[i].gpu_count)
            memcpy(next, a->nodes[i].gpus, a->nodes[i].gpu_count * sizeof *next);
        next += a->nodes[i].gpu_count;
    }
    c->piece_count = a->piece_count;
    c->pieces = a->piece_count ? xcalloc(a->piece_count, sizeof(*c->pieces)) : NULL;
    for (uint32_t i = 0; i < a->piece_count; i++)
        c->pieces[i] = sched_alloc_copy(a->pieces[i]);
    return c;
}

void sched_alloc_free(struct sched_alloc *a) {
    for (uint32_t i = 0; a && i < a->piece_count; i++)
        sched_alloc_free(a->pieces[i]);
    if (a)
        free(a->pieces);
    free(a);
}

uint64_t sched_alloc_gpu_milli(const struct sched_alloc *a) {
    uint64_t sum = 0;
    for (uint32_t i = 0; a && i < a->node_count; i++)
        for (uint32_t g = 0; g < a->nodes[i].gpu_count; g++)
            sum += a->nodes[i].gpus[g].milli;
    return sum;
}

static void gpu_refresh(struct world_gpu *g) {
    uint32_t gone = (uint32_t)g->held_milli + g->withheld_milli;
    g->free_milli = g->usable && gone < SCHED_GPU ? (uint16_t)(SCHED_GPU - gone) : 0;
}

static void plain_refresh(struct world_node *n) {
    uint64_t cpus = (uint64_t)n->cpus_held + n->cpus_withheld, memory = n->memory_held + n->memory_withheld;
    n->cpus_free = n->cpus > cpus ? n->cpus - (uint32_t)cpus : 0;
    n->memory_free = n->memory > memory ? n->memory - memory : 0;
    n->whole_free = n->most_free = 0;
    n->free_milli = 0;
    n->state_hash = 0;
    for (uint32_t i = 0; i < n->gpu_count; i++) {
        uint16_t f = n->gpus[i].free_milli;
        n->whole_free = (uint16_t)(n->whole_free + (f == SCHED_GPU));
        n->most_free = f > n->most_free ? f : n->most_free;
        n->free_milli += f;
    }
}

void sched_node_refresh(struct world_node *n) {
    for (uint32_t i = 0; i < n->gpu_count; i++)
        gpu_refresh(&n->gpus[i]);
    plain_refresh(n);
}

void sched_node_allocate(struct world_node *n, const struct sched_alloc_node *a, bool exclusive, int sign) {
    n->cpus_held += sign > 0 ? a->cpus : -a->cpus;
    n->memory_held += sign > 0 ? a->memory_bytes : -a->memory_bytes;
    n->exclusive += exclusive ? (uint32_t)sign : 0;
    for (uint32_t i = 0; i < a->gpu_count; i++) {
        if (a->gpus[i].index >= n->gpu_count)
            continue;  // the node came back with fewer GPUs than the job holds
        struct world_gpu *g = &n->gpus[a->gpus[i].index];
        g->held_milli = (uint16_t)(g->held_milli + sign * a->gpus[i].milli);
        gpu_refresh(g);
    }
    plain_refresh(n);
}

void sched_node_withhold(struct world_node *n, const struct sched_alloc_node *a, int sign) {
    n->cpus_withheld += sign > 0 ? a->cpus : -a->cpus;
    n->memory_withheld += sign > 0 ? a->memory_bytes : -a->memory_bytes;
    for (uint32_t i = 0; i < a->gpu_count; i++) {
        if (a->gpus[i].index >= n->gpu_count)
            continue;
        struct world_gpu *g = &n->gpus[a->gpus[i].index];
        g->withheld_milli = (uint16_t)(g->withheld_milli + sign * a->gpus[i].milli);
        gpu_refresh(g);
    }
    plain_refresh(n);
}

void sched_alloc_amounts(const struct world *w, const struct sched_alloc *alloc, int64_t held[DIMS_MAX]) {
    for (unsigned d = 0; d < w->cluster.dims; d++)
        held[d] = 0;
    for (uint32_t i = 0; i < alloc->node_count; i++) {
        const struct sched_alloc_node *a = &alloc->nodes[i];
        const struct world_node *n = w->cluster.nodes.len > a->node ? w->cluster.nodes.at[a->node] : NULL;
        held[DIM_CPU] += a->cpus;
        for (uint32_t g = 0; g < a->gpu_count; g++) {
            held[DIM_GPU] += a->gpus[g].milli;
            if (n && a->gpus[g].index < n->gpu_count) {
                unsigned dim = w->cluster.dim_of_model[n->gpus[a->gpus[g].index].model];
                if (dim)
                    held[dim] += a->gpus[g].milli;
            }
        }
    }
}

void sched_count_running(struct world *w, struct world_job *j, int sign, int64_t now_ms) {
    const struct sched_request *asked = &j->request->asked;
    struct world_project *p = world_project_slot(w, asked->project);
    int64_t held[DIMS_MAX];
    sched_alloc_amounts(w, j->alloc, held);
    if (sign > 0)
        j->nonpreemptible = !sched_request_preemptible(w, j->request);
    for (unsigned d = 0; d < w->cluster.dims; d++) {
        p->used[d] += sign * held[d];
        if (j->nonpreemptible)
            p->used_nonpreemptible[d] += sign * held[d];
    }
    p->running += (uint32_t)sign;
    struct world_qos *q = world_qos(w, asked->qos);
    int64_t cost = held[DIM_GPU] + held[DIM_CPU] * CPU_COST;
    if (q) {
        q->used_gpu_milli += (uint64_t)(sign * held[DIM_GPU]);
        cost = cost * q->usage_factor_milli / 1000;
    }
    // The cost is remembered when it is added, and the same is subtracted at the end: the factor of its QoS may change
    // while the job runs.
    if (sign > 0) {
        j->cost = cost;
        j->held_gpu = held[DIM_GPU];
        j->held_cpus = held[DIM_CPU];
    }
    sched_user_charge(sched_user_slot(&w->usage.users, asked->project, asked->user), sign * j->cost, now_ms,
                      w->usage.half_life_ms);
    sched_licenses_use(w, asked, sign);
    struct world_user *u = sched_user_slot(&w->usage.qos_users, asked->qos, asked->user);
    u->jobs += (uint32_t)sign;
    u->gpu_milli += (uint64_t)(sign * held[DIM_GPU]);
    u->cpus += (uint64_t)(sign * held[DIM_CPU]);
}

void sched_count_queued(struct world *w, struct world_job *j, int sign) {
    struct world_project *p = world_project_slot(w, j->request->asked.project);
    bool fixed = !sched_request_preemptible(w, j->request);
    for (unsigned d = 0; d < w->cluster.dims; d++) {
        int64_t amount = sign * sched_request_amount(w, j->request, d);
        p->queued[d] += amount;
        if (fixed)
            p->queued_nonpreemptible[d] += amount;
    }
}

// Needed when the meaning of the sums changed: a GPU model got a quota, a QoS became preemptible, …
void world_recount(struct world *w) {
    w->orders.victims_stale = true;  // what is preemptible may have changed
    for (uint32_t i = 0; i < w->rules.projects.len; i++) {
        struct world_project *p = w->rules.projects.at[i];
        if (!p)
            continue;
        for (unsigned d = 0; d < DIMS_MAX; d++)
            p->used[d] = p->used_nonpreemptible[d] = p->queued[d] = p->queued_nonpreemptible[d] = 0;
    }
    for (uint32_t i = 0; i < w->rules.qos.len; i++)
        if (w->rules.qos.at[i])
            w->rules.qos.at[i]->used_gpu_milli = 0;
    for (uint32_t i = 0; i < w->jobs.running.len; i++) {
        struct world_job *j = w->jobs.running.at[i];
        struct world_project *p = world_project_slot(w, j->request->asked.project);
        struct world_qos *q = world_qos(w, j->request->asked.qos);
        int64_t held[DIMS_MAX];
        sched_alloc_amounts(w, j->alloc, held);
        j->nonpreemptible = !sched_request_preemptible(w, j->request);
        for (unsigned d = 0; d < w->cluster.dims; d++) {
            p->used[d] += held[d];
            p->used_nonpreemptible[d] += j->nonpreemptible ? held[d] : 0;
        }
        if (q)
            q->used_gpu_milli += (uint64_t)held[DIM_GPU];
    }
    sched_optional_recount(w);
    for (uint32_t i = 0; i < w->rules.projects.len; i++) {
        struct world_project *p = w->rules.projects.at[i];
        for (uint32_t k = 0; p && k < p->queue.slots.len; k++) {
            const struct world_request *r = p->queue.slots.at[k].request;
            if (!r || !sched_request_counts(r))
                continue;
            bool fixed = !sched_request_preemptible(w, r);
            for (unsigned d = 0; d < w->cluster.dims; d++) {
                int64_t amount = sched_request_amount(w, r, d) * r->queue.len;
                p->queued[d] += amount;
                p->queued_nonpreemptible[d] += fixed ? amount : 0;
            }
        }
    }
}
