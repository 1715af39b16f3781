// Jobs whose GPUs are not divided evenly over their nodes: which nodes, and how many tasks and GPUs on each.
#include "uneven.h"

#include <stdlib.h>
#include <string.h>

#include "world_state.h"

static uint32_t at_most(uint32_t a, uint32_t b) {
    return a < b ? a : b;
}

bool sched_deal(uint32_t total, uint32_t unit, const uint32_t *room, uint32_t count, uint32_t *out) {
    uint32_t left = total;
    for (uint32_t i = 0; i < count; i++) {
        out[i] = at_most(at_most(unit, room[i]), left);
        left -= out[i];
        if (!out[i])
            return false;
    }
    for (uint32_t i = 0; i < count && left; i++) {
        uint32_t more = at_most(room[i] - out[i], left);
        out[i] += more;
        left -= more;
    }
    return !left;
}

struct sched_demand sched_demand_on(const struct sched_demand *d, uint32_t gpus) {
    struct sched_demand here = *d;
    if (gpus) {
        here.gpu_total = 0;
        here.gpu_node = gpus * SCHED_GPU;
        here.memory_node += (gpus - 1) * d->memory_gpu;
    }
    return here;
}

// Every other node needs one.
static uint32_t most_on_one(const struct sched_demand *d) {
    return d->gpu_total / SCHED_GPU - (d->nodes_min - 1);
}

struct sched_demand sched_demand_most(const struct sched_demand *d, const struct world_node *n) {
    return sched_demand_on(d, d->gpu_total ? at_most(sched_fit_gpus(n, d), most_on_one(d)) : 0);
}

static int by_place(const struct placement_candidate *a, const struct placement_candidate *b) {
    if (a->score != b->score)
        return a->score < b->score ? -1 : 1;
    return (a->node > b->node) - (a->node < b->node);
}

static int by_gpus(const void *pa, const void *pb) {
    const struct placement_candidate *a = pa, *b = pb;
    if (a->gpus != b->gpus)
        return a->gpus > b->gpus ? -1 : 1;
    return a->tasks != b->tasks ? (a->tasks > b->tasks ? -1 : 1) : by_place(a, b);
}

static int by_tasks(const void *pa, const void *pb) {
    const struct placement_candidate *a = pa, *b = pb;
    if (a->tasks != b->tasks)
        return a->tasks > b->tasks ? -1 : 1;
    return a->gpus != b->gpus ? (a->gpus > b->gpus ? -1 : 1) : by_place(a, b);
}

struct chosen_node {
    const char *name;
    struct placement_candidate from;
};

static int by_name(const void *a, const void *b) {
    return strverscmp(((const struct chosen_node *)a)->name, ((const struct chosen_node *)b)->name);
}

// The first nodes that together are enough; 0: they are not.
static uint32_t enough_of(const struct sched_demand *d, const struct placement_candidate *from, uint32_t count) {
    uint64_t tasks = 0, gpus = 0;
    uint32_t n = 0;
    while (n < count && n < d->nodes_max && (n < d->nodes_min || tasks < d->tasks || gpus * SCHED_GPU < d->gpu_total)) {
        tasks += from[n].tasks;
        gpus += from[n].gpus;
        n++;
    }
    return n >= d->nodes_min && tasks >= d->tasks && gpus * SCHED_GPU >= d->gpu_total ? n : 0;
}

// Puts the nodes to use first; 0: none are enough.
static uint32_t choose(const struct sched_demand *d, struct placement_candidate *from, uint32_t count) {
    if (!count)
        return 0;
    qsort(from, count, sizeof *from, by_gpus);
    uint32_t n = enough_of(d, from, count);
    if (n || d->even)
        return n;
    qsort(from, count, sizeof *from, by_tasks);
    return enough_of(d, from, count);
}

bool sched_nodes_enough(const struct sched_demand *d, struct placement_candidate *from, uint32_t count) {
    return choose(d, from, count) > 0;
}

uint32_t sched_uneven_place(const struct world *w, const struct sched_demand *d, struct placement_candidate *from,
                            uint32_t count, struct placement_spot *spots) {
    uint32_t n = choose(d, from, count);
    if (!n)
        return 0;
    struct chosen_node *nodes = xcalloc(n, sizeof *nodes);
    for (uint32_t i = 0; i < n; i++)
        nodes[i] = (struct chosen_node){w->cluster.nodes.at[from[i].node]->name, from[i]};
    qsort(nodes, n, sizeof *nodes, by_name);
    uint32_t *room = xcalloc(2 * (size_t)n, sizeof *room), *out = room + n;
    for (uint32_t i = 0; i < n; i++)
        room[i] = nodes[i].from.tasks;
    bool dealt = sched_deal(d->tasks, 1, room, n, out);
    for (uint32_t i = 0; i < n; i++) {
        spots[i] = (struct placement_spot){.node = nodes[i].from.node, .tasks = out[i]};
        room[i] = nodes[i].from.gpus;
    }
    dealt = dealt && sched_deal(d->gpu_total / SCHED_GPU, 1, room, n, out);
    for (uint32_t i = 0; i < n; i++)
        spots[i].gpus = out[i];
    free(room);
    free(nodes);
    return dealt ? n : 0;
}
