// Two orders of the running jobs: by the end of their time limits, and by who is preempted first. Started jobs are
// collected and merged in only when an order is needed; ended jobs are removed one by one, and if too many end
// between two uses the order is discarded and rebuilt.
#include <assert.h>
#include <string.h>

#include "world_state.h"

enum {
    FEW = 32,           // started jobs that are inserted one by one
    REMOVED_MAX = 128,  // ended jobs that are removed one by one
};

static bool ends_before(const struct world_job *a, const struct world_job *b) {
    int64_t x = sched_job_end_ms(a), y = sched_job_end_ms(b);
    return x != y ? x < y : a->id < b->id;
}

// Lowest priority first, then latest started, then highest id.
static bool preempted_before(const struct world_job *a, const struct world_job *b) {
    if (a->victim_priority != b->victim_priority)
        return a->victim_priority < b->victim_priority;
    return a->start_ms != b->start_ms ? a->start_ms > b->start_ms : a->id > b->id;
}

typedef bool (*before_fn)(const struct world_job *a, const struct world_job *b);

// A job with its sort keys, the most significant last.
enum { KEYS = 3, DIGIT = 11 };
struct sort_entry {
    uint64_t key[KEYS];
    struct world_job *job;
};

typedef struct sort_entry (*key_fn)(struct world_job *j);

static uint64_t ascending(int64_t v) {
    return (uint64_t)v ^ 1ULL << 63;
}

static struct sort_entry end_key(struct world_job *j) {
    return (struct sort_entry){{j->id, 0, ascending(sched_job_end_ms(j))}, j};
}

static struct sort_entry victim_key(struct world_job *j) {
    return (struct sort_entry){{~j->id, ~ascending(j->start_ms), ascending(j->victim_priority)}, j};
}

// Stable sort by one digit.
static void distribute(const struct sort_entry *from, struct sort_entry *to, uint32_t n, unsigned key,
                       unsigned shift) {
    uint32_t at[1 << DIGIT] = {0}, sum = 0;
    for (uint32_t i = 0; i < n; i++)
        at[from[i].key[key] >> shift & ((1 << DIGIT) - 1)]++;
    for (unsigned d = 0; d < 1 << DIGIT; d++) {
        uint32_t count = at[d];
        at[d] = sum;
        sum += count;
    }
    for (uint32_t i = 0; i < n; i++)
        to[at[from[i].key[key] >> shift & ((1 << DIGIT) - 1)]++] = from[i];
}

// Radix sort: tens of thousands of jobs may have started in one pass. Digits that are the same for all are skipped.
static void sort_jobs(struct world_job **jobs, uint32_t n, key_fn key) {
    struct sort_entry *from = xcalloc((size_t)2 * n + 1, sizeof *from), *all = from, *to = from + n;
    for (uint32_t i = 0; i < n; i++)
        from[i] = key(jobs[i]);
    for (unsigned k = 0; k < KEYS; k++) {
        uint64_t differ = 0;
        for (uint32_t i = 0; i < n; i++)
            differ |= from[i].key[k] ^ from[0].key[k];
        for (unsigned shift = 0; shift < 64; shift += DIGIT) {
            if (!(differ >> shift & ((1 << DIGIT) - 1)))
                continue;
            distribute(from, to, n, k, shift);
            struct sort_entry *swap = from;
            from = to;
            to = swap;
        }
    }
    for (uint32_t i = 0; i < n; i++)
        jobs[i] = from[i].job;
    free(all);
}

// The first index whose job does not come before this one.
static uint32_t place_of(const struct running_order *s, const struct world_job *j, before_fn before) {
    uint32_t low = 0, high = s->sorted.len;
    while (low < high) {
        uint32_t mid = low + (high - low) / 2;
        if (before(s->sorted.at[mid], j))
            low = mid + 1;
        else
            high = mid;
    }
    return low;
}

static void remove_from(struct running_order *s, struct world_job *j, bool merged, before_fn before) {
    if (!s->discarded && ++s->removed > REMOVED_MAX) {
        s->discarded = true;
        vec_clear(&s->sorted);
        vec_clear(&s->unmerged);
    }
    if (s->discarded)
        return;
    if (merged) {
        uint32_t i = place_of(s, j, before);
        assert(i < s->sorted.len && s->sorted.at[i] == j);
        vec_remove(&s->sorted, i);
        return;
    }
    for (uint32_t i = s->unmerged.len; i-- > 0;)
        if (s->unmerged.at[i] == j) {
            vec_remove_swap(&s->unmerged, i);
            return;
        }
}

// A discarded order is rebuilt from all running jobs.
static void rebuild_if_discarded(struct world *w, struct running_order *s) {
    s->removed = 0;
    if (!s->discarded)
        return;
    s->discarded = false;
    for (uint32_t i = 0; i < w->jobs.running.len; i++)
        vec_push(&s->unmerged, w->jobs.running.at[i]);
}

#define INSERT(v, i, ...)                                                                                            \
    do {                                                                                                             \
        uint32_t at_ = (i);                                                                                          \
        vec_reserve(v, (v)->len + 1);                                                                                \
        memmove((v)->at + at_ + 1, (v)->at + at_, ((v)->len - at_) * sizeof *(v)->at);                               \
        (v)->at[at_] = (__VA_ARGS__);                                                                                \
        (v)->len++;                                                                                                  \
    } while (0)

static void merge(struct running_order *s, before_fn before, key_fn key) {
    uint32_t i = s->sorted.len, k = s->unmerged.len;
    sort_jobs(s->unmerged.at, k, key);
    vec_reserve(&s->sorted, i + k);
    s->sorted.len += k;
    for (uint32_t to = s->sorted.len; k > 0;) {
        bool old = i > 0 && before(s->unmerged.at[k - 1], s->sorted.at[i - 1]);
        s->sorted.at[--to] = old ? s->sorted.at[--i] : s->unmerged.at[--k];
    }
}

void sched_by_end_add(struct world *w, struct world_job *j) {
    j->in_by_end = false;
    if (!w->orders.by_end.discarded)
        vec_push(&w->orders.by_end.unmerged, j);
}

void sched_by_end_remove(struct world *w, struct world_job *j) {
    remove_from(&w->orders.by_end, j, j->in_by_end, ends_before);
}

void sched_by_end_merge(struct world *w) {
    struct running_order *s = &w->orders.by_end;
    rebuild_if_discarded(w, s);
    if (!s->unmerged.len)
        return;
    if (s->unmerged.len <= FEW) {
        for (uint32_t i = 0; i < s->unmerged.len; i++)
            INSERT(&s->sorted, place_of(s, s->unmerged.at[i], ends_before), s->unmerged.at[i]);
    } else {
        merge(s, ends_before, end_key);
    }
    for (uint32_t i = 0; i < w->orders.by_end.unmerged.len; i++)
        w->orders.by_end.unmerged.at[i]->in_by_end = true;
    vec_clear(&w->orders.by_end.unmerged);
}

void sched_victims_add(struct world *w, struct world_job *j) {
    j->in_victim_order = false;
    if (!w->orders.victim_order.discarded)
        vec_push(&w->orders.victim_order.unmerged, j);
}

void sched_victims_remove(struct world *w, struct world_job *j) {
    struct running_order *s = &w->orders.victim_order;
    remove_from(s, j, j->in_victim_order, preempted_before);
    w->orders.victims_stale |= s->discarded;
    if (!j->in_victim_order || w->orders.victims_stale)
        return;
    uint32_t i = place_of(s, j, preempted_before);  // where it was
    assert(w->orders.victims.at[i].job == j);
    vec_remove(&w->orders.victims, i);
}

static struct sched_victim victim_of(const struct world_job *j) {
    bool one = j->alloc->node_count == 1;  // 0: it gave back everything (world_job_shrink)
    const struct sched_alloc_node *a = one ? &j->alloc->nodes[0] : NULL;
    return (struct sched_victim){(struct world_job *)(uintptr_t)j,
                                 j->request->asked.project,
                                 one ? a->node : 0,
                                 j->held_gpu > UINT32_MAX ? UINT32_MAX : (uint32_t)j->held_gpu,
                                 (uint16_t)(one ? a->gpu_count : 0),
                                 j->nonpreemptible};
}

static void victims_refill(struct world *w) {
    vec_clear(&w->orders.victims);
    vec_reserve(&w->orders.victims, w->orders.victim_order.sorted.len + 1);
    for (uint32_t i = 0; i < w->orders.victim_order.sorted.len; i++)
        vec_push(&w->orders.victims, victim_of(w->orders.victim_order.sorted.at[i]));
    w->orders.victims_stale = false;
}

// Priorities may have changed with the configuration: then all jobs are sorted again.
void sched_victims_merge(struct world *w) {
    struct running_order *s = &w->orders.victim_order;
    rebuild_if_discarded(w, s);
    if (w->orders.victim_version != w->version.config) {
        w->orders.victims_stale = true;
        for (uint32_t i = 0; i < s->sorted.len; i++)
            vec_push(&s->unmerged, s->sorted.at[i]);
        vec_clear(&s->sorted);
        w->orders.victim_version = w->version.config;
    }
    if (!s->unmerged.len) {
        if (w->orders.victims_stale)
            victims_refill(w);
        return;
    }
    for (uint32_t i = 0; i < s->unmerged.len; i++)
        sched_request_refresh(w, s->unmerged.at[i]->request);
    for (uint32_t i = 0; i < s->unmerged.len; i++)
        s->unmerged.at[i]->victim_priority = sched_request_priority(w, s->unmerged.at[i]->request);
    // A few jobs that have started since are inserted one by one, which moves memory but compares little; many are
    // sorted and merged in one go.
    bool few = s->unmerged.len <= FEW && !w->orders.victims_stale;
    if (!few)
        merge(s, preempted_before, victim_key);
    for (uint32_t i = 0; few && i < s->unmerged.len; i++) {
        uint32_t k = place_of(s, s->unmerged.at[i], preempted_before);
        INSERT(&s->sorted, k, s->unmerged.at[i]);
        INSERT(&w->orders.victims, k, victim_of(s->unmerged.at[i]));
    }
    for (uint32_t i = 0; i < s->unmerged.len; i++)
        s->unmerged.at[i]->in_victim_order = true;
    vec_clear(&s->unmerged);
    if (!few)
        victims_refill(w);
}

// For world_assert: both orders are sorted, and the victims are the same jobs.
void sched_running_orders_assert(const struct world *w) {
    for (uint32_t i = 1; i < w->orders.by_end.sorted.len; i++)
        assert(ends_before(w->orders.by_end.sorted.at[i - 1], w->orders.by_end.sorted.at[i]));
    for (uint32_t i = 1; i < w->orders.victim_order.sorted.len; i++)
        assert(preempted_before(w->orders.victim_order.sorted.at[i - 1], w->orders.victim_order.sorted.at[i]));
    for (uint32_t i = 0; !w->orders.victims_stale && i < w->orders.victims.len; i++)
        assert(w->orders.victims.at[i].job == w->orders.victim_order.sorted.at[i] &&
               w->orders.victims.at[i].milli == victim_of(w->orders.victims.at[i].job).milli);
}
