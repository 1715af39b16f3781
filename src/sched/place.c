// Owns the choice of nodes for one job, whole or not at all.
#include <assert.h>

#include "sched/internal.h"

struct spot {
    uint32_t node, tasks;
};

static struct alloc *build(const struct world *w, const struct demand *d, const struct spot *spots, uint32_t n) {
    uint32_t slots = 0;
    for (uint32_t i = 0; i < n; i++)
        slots += fit_gpu_slots(d, spots[i].tasks);
    struct alloc *a = alloc_new(n, slots);
    struct alloc_gpu *gpus = alloc_gpus(a);
    for (uint32_t i = 0; i < n; i++) {
        fit_node(w->nodes.at[spots[i].node], d, spots[i].tasks, &a->nodes[i], gpus);
        gpus += a->nodes[i].gpu_count;
    }
    return a;
}

// NULL when it does not fit now.
struct alloc *place(const struct world *w, const struct request *r) {
    const struct demand *d = &r->demand;
    VEC(struct spot) spots = {0};
    uint32_t left = d->tasks;
    for (uint32_t i = 0; i < w->nodes.len && left && spots.len < d->nodes_max; i++) {
        const struct node *n = world_node(w, i);
        if (!n || !request_node_allowed(w, r, n))
            continue;
        uint32_t k = fit_tasks(n, d);
        // every further node up to the minimum needs a task of its own
        uint32_t keep = spots.len + 1 < d->nodes_min ? d->nodes_min - spots.len - 1 : 0;
        if (k > left - (keep < left ? keep : left - 1))
            k = left - (keep < left ? keep : left - 1);
        if (k) {
            vec_push(&spots, (struct spot){n->id, k});
            left -= k;
        }
    }
    struct alloc *a = NULL;
    if (!left && spots.len >= d->nodes_min)
        a = build(w, d, spots.at, spots.len);
    vec_done(&spots);
    return a;
}
