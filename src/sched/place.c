// Chooses nodes for one job, all it needs or none: the fit class says where it fits, the lowest score wins. The
// score of equal nodes is computed once. After some placements of one class in a pass, its nodes are kept in a
// heap by score instead of being scanned.
#include <assert.h>
#include <string.h>

#include "request_mix.h"
#include "parts.h"
#include "place.h"
#include "plan.h"
#include "uneven.h"

enum { TIE_RANGE = 1024, ALIKE_SLOTS = 256, SCANS_BEFORE_RANKING = 8 };

static enum policy_placement placement(const struct sched_pass *p, const struct sched_demand *d) {
    return d->spread ? POLICY_PLACE_SPREAD : p->placing_parts ? POLICY_PLACE_PACK : p->policy->placement;
}

static int by_node(const void *a, const void *b) {
    uint32_t x = ((const struct placement_spot *)a)->node, y = ((const struct placement_spot *)b)->node;
    return (x > y) - (x < y);
}

struct sched_alloc *sched_place_build(const struct world *w, const struct world_request *r,
                                      struct placement_spot *spots, uint32_t n, enum policy_placement how) {
    const struct sched_demand *d = &r->demand;
    uint32_t slots = 0;
    for (uint32_t i = 0; i < n; i++)
        slots += spots[i].gpus ? spots[i].gpus : sched_fit_gpu_slots(d, spots[i].tasks);
    struct sched_alloc *a = sched_alloc_new(n, slots);
    struct sched_alloc_gpu *gpus = sched_alloc_gpus(a);
    if (n > 1)
        qsort(spots, n, sizeof *spots, by_node);
    for (uint32_t i = 0; i < n; i++) {
        const struct world_node *node = w->cluster.nodes.at[spots[i].node];
        struct sched_demand here = sched_demand_on(d, spots[i].gpus);
        int gpu = -1;
        if (how == POLICY_PLACE_FRAGMENT && sched_fit_gpu_slots(&here, spots[i].tasks) == 1)
            sched_mix_growth(w, node, &here, spots[i].tasks, &gpu);
        sched_fit_node(node, &here, spots[i].tasks, gpu, &a->nodes[i], gpus);
        gpus += a->nodes[i].gpu_count;
    }
    return a;
}

// Hash of the node's shape and free resources: equal nodes have equal scores.
static uint64_t alike(struct world_node *n) {
    if (n->state_hash)
        return n->state_hash;
    uint64_t h = hash_u64(n->cpus_free ^ (uint64_t)n->cpus << 32) ^ n->memory_free * 0x9e3779b97f4a7c15ULL;
    for (uint32_t i = 0; i < n->gpu_count; i++) {
        const struct world_gpu *g = &n->gpus[i];
        h = (h ^ (g->free_milli | (uint64_t)g->model << 16 | (uint64_t)g->group << 24 | (uint64_t)g->usable << 40)) *
            0x9fb21c651e98df25ULL;
        h ^= h >> 29;
    }
    n->state_hash = h ? h : 1;
    return n->state_hash;
}

static int64_t free_part(const struct world_node *n, bool gpus, int64_t scale) {
    if (!gpus || !n->gpu_usable)
        return (int64_t)n->cpus_free * scale / (n->cpus ? n->cpus : 1);
    int64_t sum = 0;
    for (uint32_t i = 0; i < n->gpu_count; i++)
        sum += n->gpus[i].free_milli;
    return sum * scale / ((int64_t)n->gpu_usable * SCHED_GPU);
}

// By how many the whole GPUs it needs exceed the largest well-connected group of free ones.
static int64_t apart(const struct world_node *n, const struct sched_demand *d, uint32_t tasks) {
    uint32_t need = (d->gpu_task * tasks + d->gpu_node) / SCHED_GPU, most = 0;
    if (need < 2)
        return 0;
    for (uint32_t i = 0; i < n->gpu_count; i++) {
        uint32_t same = 0;
        for (uint32_t k = 0; k < n->gpu_count; k++)
            same += n->gpus[k].group == n->gpus[i].group && n->gpus[k].free_milli == SCHED_GPU;
        most = same > most ? same : most;
    }
    return most >= need ? 0 : need - most;
}

static int64_t place_score(const struct sched_pass *p, const struct sched_fit *f, const struct world_node *n,
                           uint32_t tasks) {
    const struct sched_demand *d = &f->demand;
    bool gpus = d->gpu_task || d->gpu_node || d->gpu_by_memory;
    int64_t tie = free_part(n, gpus, TIE_RANGE - 1) + (gpus ? 0 : n->gpu_usable ? TIE_RANGE : 0);
    int unused;
    switch (placement(p, d)) {
    case POLICY_PLACE_FRAGMENT:
        return (sched_mix_growth(p->w, n, d, tasks, &unused) + (apart(n, d, tasks) << 26)) * (2 * TIE_RANGE) + tie;
    case POLICY_PLACE_PACK: return apart(n, d, tasks) * (2 * TIE_RANGE) + tie;
    case POLICY_PLACE_SPREAD: return -tie;
    case POLICY_PLACE_FIRST:
    default: return 0;
    }
}

struct alike_score {
    uint64_t like, tasks;
    int64_t score;
};

// Scores by hash of the node, for one demand.
struct alike_memo {
    bool begun;
    struct alike_score at[ALIKE_SLOTS];
};

static int64_t score_of(struct sched_pass *p, struct sched_fit *f, uint32_t id, uint32_t tasks,
                        struct alike_memo *memo) {
    if (f->score[id] != SCORE_UNKNOWN)
        return f->score[id];
    struct world_node *n = p->w->cluster.nodes.at[id];
    if (f->nodes_len <= ALIKE_SLOTS)
        return f->score[id] = place_score(p, f, n, tasks);
    if (!memo->begun) {
        memset(memo, 0, sizeof *memo);
        memo->begun = true;
    }
    uint64_t like = alike(n);
    struct alike_score *s = &memo->at[like % ALIKE_SLOTS];
    if (s->like != like || s->tasks != tasks)
        *s = (struct alike_score){like, tasks, place_score(p, f, n, tasks)};
    return f->score[id] = s->score;
}

static void scores_valid(struct sched_pass *p, struct sched_fit *f) {
    uint64_t version = sched_mix_version(p->w) * 8 + (uint64_t)placement(p, &f->demand) + 1;
    if (f->score_version == version)
        return;
    for (uint32_t i = 0; i < f->nodes_len; i++)
        f->score[i] = SCORE_UNKNOWN;
    f->score_version = version;
}

static bool may_use(struct sched_pass *p, const struct world_request *r, uint32_t id, uint32_t tasks) {
    const struct world_node *n = p->w->cluster.nodes.at[id];
    if (p->planning_ms) {  // placed for a start then: not on nodes of other planned starts
        for (uint32_t i = pass_first_part(p, id); i; i = p->parts.at[i - 1].next)
            if (pass_part_counts(p, &p->parts.at[i - 1]))
                return false;
        return sched_reservations_allow(p->w, r, id, p->planning_ms, r->limit_ms);
    }
    return (!pass_restricted(p, id) && !r->asked.reservation) || sched_plan_allows(p, r, n, tasks);
}

static uint32_t scan(struct sched_pass *p, struct world_request *r, struct sched_fit *f, struct alike_memo *memo) {
    uint32_t need = f->demand.tasks, best = 0;
    int64_t best_score = INT64_MAX;
    for (uint32_t i = 0; i < f->nodes_len; i++) {
        if (f->cap[i] < need)
            continue;
        int64_t s = score_of(p, f, i, need, memo);
        if (s < best_score && may_use(p, r, i, need)) {
            best_score = s;
            best = i;
        }
    }
    return best;
}

static bool ranks_before(const struct ranked_node *a, const struct ranked_node *b) {
    return a->score != b->score ? a->score < b->score : a->node < b->node;
}

static void rank_sift(struct sched_fit *f, uint32_t i) {
    struct ranked_node r = f->ranks.at[i];
    for (uint32_t k; (k = 2 * i + 1) < f->ranks.len; i = k) {
        if (k + 1 < f->ranks.len && ranks_before(&f->ranks.at[k + 1], &f->ranks.at[k]))
            k++;
        if (!ranks_before(&f->ranks.at[k], &r))
            break;
        f->ranks.at[i] = f->ranks.at[k];
    }
    f->ranks.at[i] = r;
}

static void rank_add(struct sched_fit *f, struct ranked_node r) {
    vec_push(&f->ranks, r);
    uint32_t i = f->ranks.len - 1;
    for (; i && ranks_before(&r, &f->ranks.at[(i - 1) / 2]); i = (i - 1) / 2)
        f->ranks.at[i] = f->ranks.at[(i - 1) / 2];
    f->ranks.at[i] = r;
}

static struct ranked_node rank_pop(struct sched_fit *f) {
    struct ranked_node first = f->ranks.at[0];
    vec_remove_swap(&f->ranks, 0);
    if (f->ranks.len)
        rank_sift(f, 0);
    return first;
}

static void rank_all(struct sched_pass *p, struct sched_fit *f, struct alike_memo *memo) {
    uint32_t need = f->demand.tasks;
    for (uint32_t i = 0; i < f->nodes_len; i++)
        if (f->cap[i] >= need)
            vec_push(&f->ranks, (struct ranked_node){score_of(p, f, i, need, memo), i});
    for (uint32_t i = f->ranks.len / 2; i-- > 0;)
        rank_sift(f, i);
    f->ranked = true;
    vec_push(&p->ranked, f);
}

// The same result as scan(), from the heap. Entries whose score is no longer the node's are dropped.
static uint32_t from_ranks(struct sched_pass *p, struct world_request *r, struct sched_fit *f,
                           struct alike_memo *memo) {
    uint32_t need = f->demand.tasks, best = 0;
    VEC(struct ranked_node) refused = {0};
    for (uint32_t i = 0; i < f->unranked.len; i++) {
        uint32_t id = f->unranked.at[i];
        if (f->cap[id] >= need && f->score[id] == SCORE_UNKNOWN)
            rank_add(f, (struct ranked_node){score_of(p, f, id, need, memo), id});
    }
    vec_clear(&f->unranked);
    while (f->ranks.len && !best) {
        struct ranked_node top = rank_pop(f);
        if (f->cap[top.node] < need || f->score[top.node] != top.score)
            continue;
        vec_push(&refused, top);  // goes back to the heap below
        if (may_use(p, r, top.node, need))
            best = top.node;
    }
    for (uint32_t i = 0; i < refused.len; i++)
        rank_add(f, refused.at[i]);
    vec_done(&refused);
    return best;
}

static struct sched_alloc *place_one(struct sched_pass *p, struct world_request *r, struct sched_fit *f) {
    struct alike_memo memo;
    memo.begun = false;
    if (f->scan_pass != p->w->last_pass.number) {
        f->scan_pass = p->w->last_pass.number;
        f->scans = 0;
    }
    if (!f->ranked && ++f->scans > SCANS_BEFORE_RANKING && f->nodes_len > ALIKE_SLOTS)
        rank_all(p, f, &memo);
    uint32_t best = f->ranked ? from_ranks(p, r, f, &memo) : scan(p, r, f, &memo);
    if (!best)
        return NULL;
    struct placement_spot spot = {best, f->demand.tasks};
    return sched_place_build(p->w, r, &spot, 1, placement(p, &f->demand));
}

void sched_place_done(struct sched_pass *p) {
    for (uint32_t i = 0; i < p->ranked.len; i++)
        sched_fit_unrank(p->ranked.at[i]);
    vec_done(&p->ranked);
}

static int by_score(const void *pa, const void *pb) {
    const struct placement_candidate *a = pa, *b = pb;
    if (a->score != b->score)
        return a->score < b->score ? -1 : 1;
    return (a->node > b->node) - (a->node < b->node);
}

// Fewest nodes first: most tasks, then best score.
static int by_tasks(const void *pa, const void *pb) {
    const struct placement_candidate *a = pa, *b = pb;
    if (a->tasks != b->tasks)
        return a->tasks > b->tasks ? -1 : 1;
    return by_score(pa, pb);
}

uint32_t sched_place_divide(const struct sched_demand *d, const struct placement_candidate *from,
                            uint32_t count, struct placement_spot *spots) {
    uint32_t left = d->tasks, nodes = 0;
    for (uint32_t i = 0; i < count && left && nodes < d->nodes_max; i++) {
        // Leave one task for each further node up to the minimum.
        uint32_t others = nodes + 1 < d->nodes_min ? d->nodes_min - nodes - 1 : 0;
        uint32_t most = left > others ? left - others : 1;
        uint32_t k = from[i].tasks < most ? from[i].tasks : most;
        spots[nodes++] = (struct placement_spot){from[i].node, k};
        left -= k;
    }
    return !left && nodes >= d->nodes_min ? nodes : 0;
}

static struct sched_alloc *place_many(struct sched_pass *p, struct world_request *r, struct sched_fit *f) {
    const struct sched_demand *d = &f->demand;
    struct alike_memo memo;
    memo.begun = false;
    VEC(struct placement_candidate) found = {0};
    for (uint32_t i = 0; i < f->nodes_len; i++) {
        uint32_t tasks = d->even ? d->node_tasks : f->cap[i];
        if (!f->cap[i] || !may_use(p, r, i, tasks))
            continue;
        vec_push(&found, (struct placement_candidate){i, tasks, score_of(p, f, i, d->even ? tasks : 1, &memo),
                                                      f->gpus ? f->gpus[i] : 0});
    }
    struct sched_alloc *a = NULL;
    VEC(struct placement_spot) spots = {0};
    vec_reserve(&spots, found.len + 1);
    if (found.len && !d->gpu_total)
        qsort(found.at, found.len, sizeof *found.at, d->even ? by_score : by_tasks);
    uint32_t nodes = d->gpu_total ? sched_uneven_place(p->w, d, found.at, found.len, spots.at)
                                  : sched_place_divide(d, found.at, found.len, spots.at);
    if (nodes)
        a = sched_place_build(p->w, r, spots.at, nodes, placement(p, d));
    vec_done(&spots);
    vec_done(&found);
    return a;
}

struct sched_alloc *sched_place_part(struct sched_pass *p, struct world_request *r) {
    struct sched_fit *f = sched_fit_of(p->w, r);
    if (!sched_fit_enough(f))
        return NULL;
    bool own = r->asked.reservation || p->retry || p->placing || p->claiming;  // its own rules apply
    if (!own && f->failed_pass == p->w->last_pass.number && r->limit_ms >= f->failed_limit_ms)
        return NULL;
    scores_valid(p, f);
    bool one = f->demand.even && f->demand.nodes_min == 1;
    struct sched_alloc *a = one ? place_one(p, r, f) : place_many(p, r, f);
    // Free resources only shrink during a pass: what failed for this time limit fails for longer ones too.
    if (!a && !own) {
        f->failed_pass = p->w->last_pass.number;
        f->failed_limit_ms = r->limit_ms;
    }
    return a;
}

struct sched_alloc *sched_place(struct sched_pass *p, struct world_request *r) {
    return r->parts.len ? sched_place_parts(p, r) : sched_place_part(p, r);
}
