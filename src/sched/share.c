// The fair share of each project: dividing at one level, and walking the project tree from the top. Integers
// only; the result does not depend on the order of the claims.
#include "share.h"

#include <assert.h>
#include <stdlib.h>

#include "world_state.h"

enum { CLAIMS_FEW = 64 };

static int64_t min64(int64_t a, int64_t b) {
    return a < b ? a : b;
}

static int64_t max64(int64_t a, int64_t b) {
    return a > b ? a : b;
}

static int by_remainder(const void *pa, const void *pb) {
    const struct share_claim *a = *(struct share_claim *const *)pa, *b = *(struct share_claim *const *)pb;
    if (a->remainder != b->remainder)
        return a->remainder > b->remainder ? -1 : 1;
    return (a->id > b->id) - (a->id < b->id);
}

// Divides `rest` by weight among the open claims, of which none gets more than it wants. Each round first closes
// the claims that want no more than their part; what they leave is divided among the others in the next round.
// If none can be closed, every open claim gets its part in whole units.
static void pour(struct share_claim **open, uint32_t n, int64_t rest, int64_t step) {
    int64_t unit = step == SHARE_EXACT ? 1 : step;
    for (bool again = true; again && rest > 0;) {
        __int128 weights = 0;
        for (uint32_t i = 0; i < n; i++)
            weights += open[i]->weight;
        again = false;
        int64_t offered = rest;
        for (uint32_t i = 0; i < n && weights > 0;) {
            int64_t need = open[i]->want - open[i]->got;
            if ((__int128)need * weights <= (__int128)offered * open[i]->weight) {
                open[i]->got += need;
                rest -= need;
                open[i] = open[--n];
                again = true;
            } else {
                i++;
            }
        }
        if (again)
            continue;
        for (uint32_t i = 0; i < n; i++) {
            __int128 exact = (__int128)offered * open[i]->weight;
            int64_t units = (int64_t)(exact / weights / unit);
            // A remainder can exceed 64 bits (amount × weight). All are divided by the same number, so that they
            // still compare; 1,024 steps are fine enough, equal ones go by id.
            open[i]->remainder = (int64_t)((exact - (__int128)units * unit * weights) / (weights / 1024 + 1));
            open[i]->got += units * unit;
            rest -= units * unit;
        }
    }
    if (n)
        qsort(open, n, sizeof *open, by_remainder);
    for (bool gave = step != SHARE_EXACT; gave && rest > 0;) {
        gave = false;
        for (uint32_t i = 0; i < n && rest > 0; i++) {
            int64_t more = min64(min64(unit, rest), open[i]->want - open[i]->got);
            open[i]->got += more;
            rest -= more;
            gave |= more > 0;
        }
    }
}

void sched_share_pour(struct share_claim *claims, uint32_t n, int64_t capacity, int64_t unit) {
    capacity = max64(capacity, 0);
    if (n == 1) {  // the only claim: all it wants; without weight, all within its quota
        int64_t most = claims->weight > 0 ? claims->want : min64(claims->want, claims->quota);
        claims->got = max64(min64(most, capacity), 0);
        return;
    }
    struct share_claim **open = xcalloc(n + 1, sizeof *open);
    int64_t sure = 0;
    uint32_t k = 0;
    for (uint32_t i = 0; i < n; i++) {
        claims[i].want = max64(claims[i].want, 0);
        claims[i].got = min64(claims[i].quota, claims[i].want);
        sure += claims[i].got;
    }
    if (sure > capacity) {
        // The guarantees exceed the capacity: they shrink in proportion. The guaranteed amount is weight and want.
        int64_t *want = xcalloc(n + 1, sizeof *want), *weight = xcalloc(n + 1, sizeof *weight);
        for (uint32_t i = 0; i < n; i++) {
            want[i] = claims[i].want;
            weight[i] = claims[i].weight;
            claims[i].want = claims[i].weight = claims[i].got;
            claims[i].got = 0;
            if (claims[i].want)
                open[k++] = &claims[i];
        }
        pour(open, k, capacity, unit);
        for (uint32_t i = 0; i < n; i++) {
            claims[i].want = want[i];
            claims[i].weight = weight[i];
        }
        free(want);
        free(weight);
    } else {
        for (uint32_t i = 0; i < n; i++)
            if (claims[i].got < claims[i].want && claims[i].weight > 0)
                open[k++] = &claims[i];
        pour(open, k, capacity - sure, unit);
    }
    free(open);
}

static int by_depth(const void *pa, const void *pb) {
    const struct world_project *a = *(struct world_project *const *)pa, *b = *(struct world_project *const *)pb;
    if (a->depth != b->depth)
        return a->depth < b->depth ? -1 : 1;
    if (a->parent != b->parent)
        return a->parent < b->parent ? -1 : 1;
    return (a->id > b->id) - (a->id < b->id);
}

struct world_project *sched_project_parent(const struct world *w, const struct world_project *p) {
    return p->parent ? world_project(w, p->parent) : NULL;
}

static void tree_build(struct world *w) {
    if (w->rules.tree_version == w->version.config)
        return;
    vec_clear(&w->rules.tree);
    for (uint32_t i = 0; i < w->rules.projects.len; i++) {
        struct world_project *p = world_project(w, i);
        if (!p)
            continue;
        p->depth = 0;
        for (const struct world_project *up = sched_project_parent(w, p); up; up = sched_project_parent(w, up))
            p->depth++;
        vec_push(&w->rules.tree, p);
    }
    if (w->rules.tree.len)
        qsort(w->rules.tree.at, w->rules.tree.len, sizeof *w->rules.tree.at, by_depth);
    w->rules.tree_version = w->version.config;
}

int64_t sched_project_quota(const struct world_project *p, unsigned dim) {
    return p->quota[dim] == SCHED_UNLIMITED ? 0 : p->quota[dim];
}

// What the project's own jobs want: used and queued. Queued jobs that cannot be preempted run only within the
// quota, so they count only as far as it has room.
static int64_t own_want(const struct world_project *p, unsigned d) {
    int64_t inside = p->quota[d] == SCHED_UNLIMITED ? INT64_MAX : max64(p->quota[d] - p->used_nonpreemptible[d], 0);
    return p->used[d] + p->queued[d] - p->queued_nonpreemptible[d] + min64(p->queued_nonpreemptible[d], inside);
}

// Sums of each subtree: use, demand (capped by limits) and quota. A project without quota has that of its children.
static void sums_up(struct world *w) {
    for (uint32_t i = 0; i < w->rules.tree.len; i++) {
        struct world_project *p = w->rules.tree.at[i];
        for (unsigned d = 0; d < w->cluster.dims; d++) {
            p->tree_used[d] = p->used[d];
            p->want[d] = p->own_want[d] = own_want(p, d);
            p->tree_quota[d] = 0;
        }
    }
    // From the leaves up: a child's demand is capped by its limit before its parent counts it.
    for (uint32_t i = w->rules.tree.len; i-- > 0;) {
        struct world_project *p = w->rules.tree.at[i], *up = sched_project_parent(w, p);
        for (unsigned d = 0; d < w->cluster.dims; d++) {
            if (sched_project_quota(p, d) || !p->tree_quota[d])
                p->tree_quota[d] = sched_project_quota(p, d);
            if (p->limit[d] != SCHED_UNLIMITED)
                p->want[d] = min64(p->want[d], p->limit[d]);
            if (up) {
                up->tree_used[d] += p->tree_used[d];
                up->want[d] += p->want[d];
                up->tree_quota[d] += p->tree_quota[d];
            }
        }
    }
}

// The quota of a quota_rest project: the capacity that the quotas of the other top-level projects leave.
static void rest_update(struct world *w) {
    int64_t promised = 0;
    for (uint32_t i = 0; i < w->rules.tree.len; i++)
        if (!w->rules.tree.at[i]->depth && !w->rules.tree.at[i]->quota_rest)
            promised += w->rules.tree.at[i]->tree_quota[DIM_GPU];
    for (uint32_t i = 0; i < w->rules.tree.len; i++) {
        struct world_project *p = w->rules.tree.at[i];
        int64_t rest = max64(w->cluster.capacity[DIM_GPU] - promised, 0);
        if (!p->quota_rest)
            continue;
        p->tree_quota[DIM_GPU] = p->quota[DIM_GPU] = rest;
    }
}

static int64_t claim_weight(const struct world_project *p, unsigned d) {
    if (p->weight != SCHED_UNLIMITED)
        return p->weight;
    int64_t quota = d == DIM_CPU && p->quota[d] == SCHED_UNLIMITED ? p->tree_quota[DIM_GPU] : p->tree_quota[d];
    return quota ? quota : SCHED_GPU;
}

// Divides the share of `up` (NULL: the whole cluster) among its children tree[from … to-1] and its own jobs.
static void level(struct world *w, struct world_project *up, uint32_t from, uint32_t to, unsigned d,
                  bool exact) {
    uint32_t n = to - from;
    struct share_claim few[CLAIMS_FEW];
    struct share_claim *claims = n < CLAIMS_FEW ? few : xcalloc(n + 1, sizeof *claims);
    int64_t below = 0;
    for (uint32_t i = 0; i < n; i++) {
        const struct world_project *p = w->rules.tree.at[from + i];
        claims[i] = (struct share_claim){
            .quota = p->tree_quota[d], .want = p->want[d], .weight = claim_weight(p, d), .id = p->id};
        below += p->tree_quota[d];
    }
    if (up)  // the parent's own jobs, with the part of its quota that its children do not have
        claims[n] = (struct share_claim){.quota = max64(up->tree_quota[d] - below, 0),
                                         .want = up->own_want[d],
                                         .weight = claim_weight(up, d),
                                         .id = up->id};
    sched_share_pour(claims, n + (up ? 1 : 0), up ? up->share[d] : w->cluster.capacity[d],
                     exact          ? SHARE_EXACT
                     : d == DIM_CPU ? 1
                                    : SCHED_GPU);
    for (uint32_t i = 0; i < n; i++)
        w->rules.tree.at[from + i]->share[d] = claims[i].got;
    if (up)
        up->own_share[d] = claims[n].got;
    if (claims != few)
        free(claims);
}

static void update(struct world *w, bool exact) {
    tree_build(w);
    for (uint32_t i = 0; i < w->rules.projects.len; i++) {
        struct world_project *p = w->rules.projects.at[i];
        for (unsigned d = 0; p && !p->present && d < w->cluster.dims; d++)
            p->tree_used[d] = p->used[d];
    }
    sums_up(w);
    rest_update(w);
    for (uint32_t i = 0; i < w->rules.tree.len; i++)
        for (unsigned d = 0; d < w->cluster.dims; d++)
            w->rules.tree.at[i]->own_share[d] = -1;
    // The tree is sorted by depth and parent, so the children of one project lie side by side: each group divides what
    // its parent was given a level above.
    for (uint32_t from = 0; from < w->rules.tree.len;) {
        struct world_project *up = sched_project_parent(w, w->rules.tree.at[from]);
        uint32_t to = from + 1;
        while (to < w->rules.tree.len && sched_project_parent(w, w->rules.tree.at[to]) == up &&
               w->rules.tree.at[to]->depth == w->rules.tree.at[from]->depth)
            to++;
        for (unsigned d = 0; d < w->cluster.dims; d++)
            level(w, up, from, to, d, exact);
        from = to;
    }
    for (uint32_t i = 0; i < w->rules.tree.len; i++)
        for (unsigned d = 0; d < w->cluster.dims; d++)
            if (w->rules.tree.at[i]->own_share[d] < 0)
                w->rules.tree.at[i]->own_share[d] = w->rules.tree.at[i]->share[d];
}

void sched_share_update(struct world *w) {
    update(w, false);
}

void sched_share_update_exact(struct world *w) {
    update(w, true);
}
