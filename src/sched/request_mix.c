// The mix of requests seen lately, and fragmentation measured against it. Kinds of requests are counted as jobs are
// submitted; counts are halved now and then, so that old ones fade. A free part of a GPU is fragmented for a kind
// that cannot use it: the part is too small, or the node lacks the CPUs, memory or number of GPUs.
// Example: 0.3 GPUs are free, 3 of 4 recent requests ask for whole GPUs, 1 of 4 for 0.2. Then 3/4 of the 0.3 GPUs
// are fragmented; placing the 0.2 job there reduces fragmentation, placing it on a free GPU increases it.
// Two costs are added that a look at single requests misses: GPUs that will be stranded because the node's CPUs or
// memory run out before its GPUs do, and remainders that fewer than 1 in 30 requests could use.
#include "request_mix.h"

#include <assert.h>
#include <string.h>

enum {
    KINDS_ACTIVE = 64,      // measured against
    KINDS_MAX = 4096,       // counted
    COUNT_SUM_MAX = 16384,  // counts are halved beyond
    WEIGHT_SUM = 65536,
    CRUMB_PART = 30,  // a share that less than 1 in 30 could use is a crumb
    FIRST_REBUILD = 16,
};

struct request_kind {
    uint32_t whole, milli;  // GPUs of one node part, or one fraction
    uint32_t cpus;
    uint64_t memory, models;
    uint32_t count;
    int32_t weight;  // of WEIGHT_SUM, when active
};

struct request_mix {
    VEC(struct request_kind) kinds;
    uint64_t sum;
    uint64_t since;  // added since the active ones were chosen
    uint64_t version;
    uint32_t active_len;
    struct request_kind active[KINDS_ACTIVE];
    // Weighted sums over the active kinds: what the average request needs.
    int64_t gpu_sum, cpu_sum;
    __int128 memory_sum;
};

static struct request_kind kind_of(const struct sched_demand *d) {
    uint32_t k = d->even ? d->node_tasks : 1;
    struct request_kind kind = {
        .cpus = d->cpus_task * k, .memory = d->memory_node + d->memory_task * k, .models = d->models};
    if (d->gpu_by_memory || (d->gpu_task && d->gpu_task < SCHED_GPU))
        kind.milli = d->gpu_task ? d->gpu_task : SCHED_GPU / 2;
    else if (d->gpu_node && d->gpu_node < SCHED_GPU)
        kind.milli = d->gpu_node;
    else
        kind.whole = (d->gpu_task * k + d->gpu_node) / SCHED_GPU;
    return kind;
}

static bool same_kind(const struct request_kind *a, const struct request_kind *b) {
    return a->whole == b->whole && a->milli == b->milli && a->cpus == b->cpus && a->memory == b->memory &&
           a->models == b->models;
}

static int by_count(const void *pa, const void *pb) {
    const struct request_kind *a = pa, *b = pb;
    if (a->count != b->count)
        return a->count > b->count ? -1 : 1;
    if (a->whole != b->whole)
        return a->whole < b->whole ? -1 : 1;
    if (a->milli != b->milli)
        return a->milli < b->milli ? -1 : 1;
    if (a->cpus != b->cpus)
        return a->cpus < b->cpus ? -1 : 1;
    if (a->memory != b->memory)
        return a->memory < b->memory ? -1 : 1;
    return (a->models > b->models) - (a->models < b->models);
}

static void halve(struct request_mix *m) {
    uint32_t kept = 0;
    m->sum = 0;
    for (uint32_t i = 0; i < m->kinds.len; i++) {
        m->kinds.at[i].count /= 2;
        m->sum += m->kinds.at[i].count;
        if (m->kinds.at[i].count)
            m->kinds.at[kept++] = m->kinds.at[i];
    }
    m->kinds.len = kept;
}

static void choose_active(struct request_mix *m) {
    qsort(m->kinds.at, m->kinds.len, sizeof *m->kinds.at, by_count);
    m->active_len = m->kinds.len < KINDS_ACTIVE ? m->kinds.len : KINDS_ACTIVE;
    uint64_t sum = 0;
    for (uint32_t i = 0; i < m->active_len; i++)
        sum += m->kinds.at[i].count;
    for (uint32_t i = 0; i < m->active_len; i++) {
        m->active[i] = m->kinds.at[i];
        m->active[i].weight = (int32_t)((uint64_t)m->active[i].count * WEIGHT_SUM / sum);
    }
    m->since = 0;
    m->version++;
    m->gpu_sum = m->cpu_sum = 0;
    m->memory_sum = 0;
    for (uint32_t i = 0; i < m->active_len; i++) {
        const struct request_kind *k = &m->active[i];
        m->gpu_sum += (int64_t)k->weight * (k->whole ? k->whole * SCHED_GPU : k->milli);
        m->cpu_sum += (int64_t)k->weight * k->cpus;
        m->memory_sum += (__int128)k->weight * k->memory;
    }
}

// Counts decay by halving, so the mix is that of lately and bounded in memory. It is chosen anew only when an eighth
// of it is new: placement must not change its mind with every submit.
void sched_mix_add(struct world *w, const struct world_request *r) {
    for (uint32_t i = 0; i < r->parts.len; i++)
        sched_mix_add(w, r->parts.at[i]);
    if (!r->gpu_milli || !(r->demand.gpu_task || r->demand.gpu_node || r->demand.gpu_by_memory))
        return;
    if (!w->requests.mix)
        w->requests.mix = xcalloc(1, sizeof *w->requests.mix);
    struct request_mix *m = w->requests.mix;
    struct request_kind kind = kind_of(&r->demand);
    uint32_t i = 0;
    while (i < m->kinds.len && !same_kind(&m->kinds.at[i], &kind))
        i++;
    if (i == m->kinds.len) {
        if (m->kinds.len >= KINDS_MAX)
            halve(m);
        vec_push(&m->kinds, kind);
        i = m->kinds.len - 1;
    }
    m->kinds.at[i].count++;
    m->sum++;
    m->since++;
    if (m->sum > COUNT_SUM_MAX)
        halve(m);
    if (m->since >= FIRST_REBUILD && m->since * 8 >= m->sum)
        choose_active(m);
}

uint64_t sched_mix_version(const struct world *w) {
    return w->requests.mix ? w->requests.mix->version : 0;
}

void sched_mix_free(struct world *w) {
    if (w->requests.mix)
        vec_done(&w->requests.mix->kinds);
    free(w->requests.mix);
    w->requests.mix = NULL;
}

void sched_mix_clone(struct world *to, const struct world *from) {
    sched_mix_free(to);
    if (!from->requests.mix)
        return;
    to->requests.mix = xmemdup(from->requests.mix, sizeof *from->requests.mix);
    to->requests.mix->kinds.at =
        xmemdup(from->requests.mix->kinds.at, from->requests.mix->kinds.cap * sizeof *from->requests.mix->kinds.at);
}

// What one kind of request could use on one node.
struct kind_view {
    int32_t useless;  // free parts that are too small or of another model
    uint32_t usable;  // GPUs that could serve
    uint32_t need;    // of them
    uint32_t least;   // milli a GPU must have free
};

static struct kind_view view_of(const struct world_node *n, const struct request_kind *k) {
    struct kind_view v = {.need = k->whole ? k->whole : 1, .least = k->whole ? SCHED_GPU : k->milli};
    for (uint32_t i = 0; i < n->gpu_count; i++) {
        const struct world_gpu *g = &n->gpus[i];
        if (g->free_milli >= v.least && (!k->models || (k->models >> g->model & 1)))
            v.usable++;
        else
            v.useless += g->free_milli;
    }
    return v;
}

static int32_t free_sum(const struct world_node *n) {
    int32_t sum = 0;
    for (uint32_t i = 0; i < n->gpu_count; i++)
        sum += n->gpus[i].free_milli;
    return sum;
}

static int32_t fragmented(const struct kind_view *v, const struct request_kind *k, uint32_t cpus, uint64_t memory,
                          int32_t sum) {
    return v->usable < v->need || cpus < k->cpus || memory < k->memory ? sum : v->useless;
}

struct gpu_option {
    uint16_t free_milli, take;
    uint8_t model;
    uint32_t gpu;
};

// The GPUs a fraction could go to, one of each sort.
static uint32_t options_of(const struct world_node *n, const struct sched_demand *d, uint32_t milli,
                           struct gpu_option *out) {
    uint32_t count = 0;
    for (uint32_t i = 0; i < n->gpu_count; i++) {
        const struct world_gpu *g = &n->gpus[i];
        if (!g->free_milli || !g->usable || (d->models && !(d->models >> g->model & 1)))
            continue;
        uint32_t take = sched_demand_milli(d, milli, g->memory_bytes);
        if (take > g->free_milli)
            continue;
        bool known = false;
        for (uint32_t k = 0; k < count && !known; k++)
            known = out[k].free_milli == g->free_milli && out[k].model == g->model && out[k].take == take;
        if (!known)
            out[count++] = (struct gpu_option){g->free_milli, (uint16_t)take, g->model, i};
    }
    return count;
}

static int64_t crumb(const struct request_mix *m, uint32_t left) {
    int32_t useful = 0;
    for (uint32_t i = 0; i < m->active_len; i++)
        if (!m->active[i].whole && m->active[i].milli <= left)
            useful += m->active[i].weight;
    return useful < WEIGHT_SUM / CRUMB_PART ? (int64_t)left * WEIGHT_SUM : 0;
}

// Milli-GPU that will be left when average requests have used up the node's CPUs or memory.
static int64_t stranded(const struct request_mix *m, int64_t gpus, uint32_t cpus, uint64_t memory) {
    int64_t most = INT64_MAX;
    if (m->cpu_sum)
        most = (int64_t)((__int128)cpus * m->gpu_sum / m->cpu_sum);
    if (m->memory_sum) {
        __int128 by_memory = (__int128)memory * m->gpu_sum / m->memory_sum;
        most = by_memory < most ? (int64_t)by_memory : most;
    }
    return gpus > most ? gpus - most : 0;
}

static int64_t growth_fraction(const struct request_mix *m, const struct world_node *n, const struct sched_demand *d,
                               uint32_t milli, uint32_t cpus, uint64_t memory, int *gpu) {
    struct gpu_option options[SCHED_GPUS_MAX];
    int64_t growth[SCHED_GPUS_MAX] = {0};
    uint32_t count = options_of(n, d, milli, options);
    int32_t sum = free_sum(n);
    for (uint32_t i = 0; i < m->active_len; i++) {
        const struct request_kind *k = &m->active[i];
        struct kind_view v = view_of(n, k);
        int32_t before = fragmented(&v, k, n->cpus_free, n->memory_free, sum);
        for (uint32_t o = 0; o < count; o++) {
            // Only this GPU changes, so the node is not looked at again: a GPU of another model, or one that was too
            // small for the kind already, becomes less useless by what is taken; one that becomes too small leaves
            // its rest useless.
            struct kind_view a = v;
            uint32_t left = options[o].free_milli - options[o].take;
            bool match = !k->models || (k->models >> options[o].model & 1);
            if (!match || options[o].free_milli < a.least) {
                a.useless -= options[o].take;
            } else if (left < a.least) {
                a.usable--;
                a.useless += (int32_t)left;
            }
            int32_t after = fragmented(&a, k, cpus, memory, sum - options[o].take);
            growth[o] += (int64_t)k->weight * (after - before);
        }
    }
    for (uint32_t o = 0; o < count; o++)
        growth[o] += crumb(m, options[o].free_milli - options[o].take);
    uint32_t best = 0;
    for (uint32_t o = 1; o < count; o++)
        if (growth[o] < growth[best] ||
            (growth[o] == growth[best] && options[o].free_milli < options[best].free_milli))
            best = o;
    *gpu = count ? (int)options[best].gpu : -1;
    return count ? growth[best] : 0;
}

// Whole GPUs of one model are equal: counts with the first free ones.
static int64_t growth_whole(const struct request_mix *m, const struct world_node *n, const struct sched_demand *d,
                            uint32_t whole, uint32_t cpus, uint64_t memory) {
    int64_t growth = 0;
    int32_t sum = free_sum(n);
    for (uint32_t i = 0; i < m->active_len; i++) {
        const struct request_kind *k = &m->active[i];
        struct kind_view v = view_of(n, k);
        int32_t before = fragmented(&v, k, n->cpus_free, n->memory_free, sum);
        uint32_t left = whole;
        for (uint32_t g = 0; g < n->gpu_count && left; g++) {
            const struct world_gpu *gpu = &n->gpus[g];
            if (gpu->free_milli != SCHED_GPU || (d->models && !(d->models >> gpu->model & 1)))
                continue;
            left--;
            if (!k->models || (k->models >> gpu->model & 1))
                v.usable--;
            else
                v.useless -= SCHED_GPU;
        }
        int32_t after = fragmented(&v, k, cpus, memory, sum - (int32_t)(whole * SCHED_GPU));
        growth += (int64_t)k->weight * (after - before);
    }
    return growth;
}

int64_t sched_mix_growth(const struct world *w, const struct world_node *n, const struct sched_demand *d,
                         uint32_t tasks, int *gpu) {
    const struct request_mix *m = w->requests.mix;
    *gpu = -1;
    if (!m || !m->active_len || !n->gpu_usable)
        return 0;
    uint64_t use = d->memory_node + d->memory_task * tasks;
    uint32_t cpus = d->exclusive ? 0 : n->cpus_free - d->cpus_task * tasks;
    uint64_t memory = n->memory_free > use ? n->memory_free - use : 0;
    int64_t free_milli = free_sum(n);
    int64_t take = d->gpu_by_memory ? SCHED_GPU / 2 : (int64_t)d->gpu_task * tasks + d->gpu_node;
    int64_t more =
        stranded(m, free_milli - take, cpus, memory) - stranded(m, free_milli, n->cpus_free, n->memory_free);
    more *= WEIGHT_SUM;
    bool part =
        d->gpu_by_memory || (d->gpu_task && d->gpu_task < SCHED_GPU) || (d->gpu_node && d->gpu_node < SCHED_GPU);
    if (part)
        return more + growth_fraction(m, n, d, d->gpu_node ? d->gpu_node : d->gpu_task, cpus, memory, gpu);
    return more + growth_whole(m, n, d, (d->gpu_task * tasks + d->gpu_node) / SCHED_GPU, cpus, memory);
}

int64_t sched_mix_fragmented(const struct world *w) {
    const struct request_mix *m = w->requests.mix;
    int64_t all = 0;
    for (uint32_t i = 0; m && i < w->cluster.nodes.len; i++) {
        const struct world_node *n = world_node(w, i);
        if (!n || n->state != SCHED_NODE_UP)
            continue;
        int32_t sum = free_sum(n);
        for (uint32_t k = 0; k < m->active_len; k++) {
            struct kind_view v = view_of(n, &m->active[k]);
            all += (int64_t)m->active[k].weight * fragmented(&v, &m->active[k], n->cpus_free, n->memory_free, sum);
        }
    }
    return all / WEIGHT_SUM;
}
