// What fits on one node now: how many tasks, and on which GPUs. Whole GPUs must be entirely free; a fraction goes
// to the fullest GPU that still has room for it.
#include <assert.h>
#include <string.h>

#include "world_state.h"

static bool gpu_matches(const struct world_gpu *g, const struct sched_demand *d) {
    return g->usable && (!d->models || (d->models >> g->model & 1)) && g->memory_bytes >= d->gpu_memory;
}

// Number of entirely free GPUs; with same_group, in the group that has most of them.
static uint32_t whole_free(const struct world_node *n, const struct sched_demand *d) {
    uint32_t all = 0, best = 0;
    for (uint32_t i = 0; i < n->gpu_count; i++) {
        if (n->gpus[i].free_milli != SCHED_GPU || !gpu_matches(&n->gpus[i], d))
            continue;
        all++;
        if (!d->same_group)
            continue;
        uint32_t group = 0;
        for (uint32_t k = 0; k < n->gpu_count; k++)
            group += n->gpus[k].group == n->gpus[i].group && n->gpus[k].free_milli == SCHED_GPU &&
                     gpu_matches(&n->gpus[k], d);
        best = group > best ? group : best;
    }
    return d->same_group ? best : all;
}

static uint32_t fractions_free(const struct world_node *n, const struct sched_demand *d, uint32_t milli) {
    uint32_t sum = 0;
    for (uint32_t i = 0; i < n->gpu_count; i++) {
        const struct world_gpu *g = &n->gpus[i];
        if (!g->free_milli || !gpu_matches(g, d))
            continue;
        uint32_t m = sched_demand_milli(d, milli, g->memory_bytes);
        if (m && m <= g->free_milli)
            sum += g->free_milli / m;
    }
    return sum;
}

static uint32_t gpu_tasks(const struct world_node *n, const struct sched_demand *d) {
    uint32_t k = d->node_tasks;
    if (d->gpu_node >= SCHED_GPU && whole_free(n, d) < d->gpu_node / SCHED_GPU)
        return 0;
    if (d->gpu_node && d->gpu_node < SCHED_GPU && !fractions_free(n, d, d->gpu_node))
        return 0;
    if (d->gpu_task >= SCHED_GPU)
        return whole_free(n, d) / (d->gpu_task / SCHED_GPU);
    if (d->gpu_task || d->gpu_by_memory)
        return fractions_free(n, d, d->gpu_task);
    return k;
}

uint32_t sched_fit_gpus(const struct world_node *n, const struct sched_demand *d) {
    uint32_t gpus = whole_free(n, d);
    if (!d->memory_gpu)
        return gpus;
    uint64_t more = n->memory_free < d->memory_node ? 0 : 1 + (n->memory_free - d->memory_node) / d->memory_gpu;
    return more < gpus ? (uint32_t)more : gpus;
}

// Number of tasks that fit in what is free on the node now. An even layout needs all its tasks of one node: then 0
// if fewer fit.
uint32_t sched_fit_tasks(const struct world_node *n, const struct sched_demand *d) {
    if (!n->present || n->state != SCHED_NODE_UP || n->exclusive)
        return 0;
    if (d->exclusive && (n->cpus_held || n->cpus_free != n->cpus))
        return 0;
    uint32_t k = n->cpus_free / d->cpus_task;
    k = k < d->node_tasks ? k : d->node_tasks;
    if (!k || n->memory_free < d->memory_node)
        return 0;
    if (d->memory_task && (n->memory_free - d->memory_node) / d->memory_task < k)
        k = (uint32_t)((n->memory_free - d->memory_node) / d->memory_task);
    if (k && (d->gpu_task || d->gpu_node || d->gpu_by_memory)) {
        uint32_t g = gpu_tasks(n, d);
        k = g < k ? g : k;
    }
    return d->even && k < d->node_tasks ? 0 : k;
}

static bool can_take(const struct world_node *n, const struct sched_demand *d, const uint8_t *taken, uint32_t i) {
    return !taken[i] && n->gpus[i].free_milli == SCHED_GPU && gpu_matches(&n->gpus[i], d);
}

enum { ANY_GROUP = -1 };

static bool same_part(const struct world_gpu *a, const struct world_gpu *b, int group) {
    return group == ANY_GROUP ? a->group == b->group : a->group == b->group && a->socket == b->socket;
}

// Where to take `need` whole GPUs from, as the index of one of them; -1: none is free. Candidates are the groups of
// the node, or (with a group given) the sockets of that group. Chosen is the one with fewest free GPUs that has
// enough; if none has, the one with most.
static int best_part(const struct world_node *n, const struct sched_demand *d, const uint8_t *taken, uint32_t need,
                     int group) {
    int best = -1;
    uint32_t best_free = 0;
    for (uint32_t i = 0; i < n->gpu_count; i++) {
        uint32_t free_count = 0;
        if (group != ANY_GROUP && n->gpus[i].group != group)
            continue;
        for (uint32_t k = 0; k < n->gpu_count; k++)
            free_count += same_part(&n->gpus[k], &n->gpus[i], group) && can_take(n, d, taken, k);
        if (!free_count)
            continue;
        bool enough = free_count >= need, had = best_free >= need;
        if (best < 0 || (enough && !had) ||
            (enough == had && (enough ? free_count < best_free : free_count > best_free))) {
            best = (int)i;
            best_free = free_count;
        }
    }
    return best;
}

// Takes up to `count` GPUs of one group, socket by socket.
static uint32_t take_of_group(const struct world_node *n, const struct sched_demand *d, int group, uint32_t count,
                              uint8_t *taken) {
    uint32_t got = 0;
    while (got < count) {
        int part = best_part(n, d, taken, count - got, group);
        if (part < 0)
            break;
        for (uint32_t i = 0; i < n->gpu_count && got < count; i++)
            if (same_part(&n->gpus[i], &n->gpus[part], group) && can_take(n, d, taken, i)) {
                taken[i] = 1;
                got++;
            }
    }
    return got;
}

static uint32_t pick_whole(const struct world_node *n, const struct sched_demand *d, uint32_t count,
                           struct sched_alloc_gpu *out) {
    uint8_t taken[SCHED_GPUS_MAX] = {0};
    uint32_t got = 0;
    while (got < count) {
        int part = best_part(n, d, taken, count - got, ANY_GROUP);
        if (part < 0)
            return 0;
        got += take_of_group(n, d, n->gpus[part].group, count - got, taken);
    }
    uint32_t k = 0;
    for (uint32_t i = 0; i < n->gpu_count; i++)
        if (taken[i])
            out[k++] = (struct sched_alloc_gpu){(uint16_t)i, SCHED_GPU};
    return k;
}

// Best fit: each piece goes to the GPU with the least room that still has enough, so that whole GPUs stay whole. With
// 300 and 500 thousandths free, a piece of 250 goes to the first. The same request by memory is another fraction of
// each model, hence the amount per GPU.
static uint32_t pick_fractions(const struct world_node *n, const struct sched_demand *d, uint32_t milli,
                               uint32_t count, int wish, struct sched_alloc_gpu *out) {
    uint16_t left[SCHED_GPUS_MAX];
    uint32_t k = 0;
    for (uint32_t i = 0; i < n->gpu_count; i++)
        left[i] = n->gpus[i].free_milli;
    for (uint32_t t = 0; t < count; t++) {
        int best = -1;
        uint32_t best_m = 0;
        for (uint32_t i = 0; i < n->gpu_count; i++) {
            if (!left[i] || !gpu_matches(&n->gpus[i], d))
                continue;
            uint32_t m = sched_demand_milli(d, milli, n->gpus[i].memory_bytes);
            if (m <= left[i] && (best < 0 || (int)i == wish || (best != wish && left[i] < left[best]))) {
                best = (int)i;
                best_m = m;
            }
        }
        if (best < 0)
            return 0;
        left[best] = (uint16_t)(left[best] - best_m);
        out[k++] = (struct sched_alloc_gpu){(uint16_t)best, (uint16_t)best_m};
    }
    return k;
}

uint32_t sched_fit_gpu_slots(const struct sched_demand *d, uint32_t tasks) {
    uint32_t per_task = d->gpu_by_memory ? 1 : (d->gpu_task + SCHED_GPU - 1) / SCHED_GPU;
    return per_task * tasks + (d->gpu_node + SCHED_GPU - 1) / SCHED_GPU;
}

// Allocates `tasks` tasks on the node; a fraction goes to GPU `wish` if that is not -1. `gpus` has room for
// sched_fit_gpu_slots entries. The caller knows that the tasks fit.
void sched_fit_node(const struct world_node *n, const struct sched_demand *d, uint32_t tasks, int wish,
                    struct sched_alloc_node *out, struct sched_alloc_gpu *gpus) {
    *out = (struct sched_alloc_node){
        .node = n->id,
        .tasks = tasks,
        .cpus = d->exclusive ? n->cpus : d->cpus_task * tasks,
        .memory_bytes = d->memory_node + d->memory_task * tasks,
        .gpus = gpus,
    };
    if (d->exclusive && !out->memory_bytes)
        out->memory_bytes = n->memory;
    uint32_t want = sched_fit_gpu_slots(d, tasks), got = want;
    if (!want)
        return;
    uint32_t milli = d->gpu_node ? d->gpu_node : d->gpu_task * tasks;
    if (d->gpu_by_memory || (d->gpu_node ? d->gpu_node : d->gpu_task) < SCHED_GPU)
        got = pick_fractions(n, d, d->gpu_node ? d->gpu_node : d->gpu_task, d->gpu_node ? 1 : tasks, wish, gpus);
    else
        got = pick_whole(n, d, milli / SCHED_GPU, gpus);
    assert(got == want);
    out->gpu_count = got;
}
