// Owns two standing orders of the running jobs, kept up lazily: by the time they must end, and by what
// they are worth when somebody has to give. Newcomers are merged in only when somebody asks.
#include <assert.h>
#include <string.h>

#include "pass.h"

enum {
    FEW = 32,           // newcomers that are put in one by one
    REMOVED_MAX = 128,  // taken out one by one before the order is given up
};

static bool ends_before(const struct job *a, const struct job *b) {
    int64_t x = job_end_ms(a), y = job_end_ms(b);
    return x != y ? x < y : a->id < b->id;
}

// Lowest priority first, then latest started, then highest id.
static bool worth_less(const struct job *a, const struct job *b) {
    if (a->worth != b->worth)
        return a->worth < b->worth;
    return a->start_ms != b->start_ms ? a->start_ms > b->start_ms : a->id > b->id;
}

typedef bool (*before_fn)(const struct job *a, const struct job *b);

// A job with what decides its place, the most important last.
enum { KEYS = 3, DIGIT = 11 };
struct keyed {
    uint64_t key[KEYS];
    struct job *job;
};

typedef struct keyed (*key_fn)(struct job *j);

static uint64_t ascending(int64_t v) {
    return (uint64_t)v ^ 1ULL << 63;
}

static struct keyed end_key(struct job *j) {
    return (struct keyed){{j->id, 0, ascending(job_end_ms(j))}, j};
}

static struct keyed worth_key(struct job *j) {
    return (struct keyed){{~j->id, ~ascending(j->start_ms), ascending(j->worth)}, j};
}

// By one digit, keeping the order of equals.
static void distribute(const struct keyed *from, struct keyed *to, uint32_t n, unsigned key, unsigned shift) {
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

// Digit by digit: tens of thousands of jobs may have started in one pass. Most digits are the same for all.
static void sort_jobs(struct job **jobs, uint32_t n, key_fn key) {
    struct keyed *from = xcalloc((size_t)2 * n + 1, sizeof *from), *all = from, *to = from + n;
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
            struct keyed *swap = from;
            from = to;
            to = swap;
        }
    }
    for (uint32_t i = 0; i < n; i++)
        jobs[i] = from[i].job;
    free(all);
}

// The first place whose job does not come before this one.
static uint32_t place_of(const struct standing *s, const struct job *j, before_fn before) {
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

static void remove_from(struct standing *s, struct job *j, bool merged, before_fn before) {
    if (!s->broken && ++s->removed > REMOVED_MAX) {
        s->broken = true;
        vec_clear(&s->sorted);
        vec_clear(&s->fresh);
    }
    if (s->broken)
        return;
    if (merged) {
        uint32_t i = place_of(s, j, before);
        assert(i < s->sorted.len && s->sorted.at[i] == j);
        vec_remove(&s->sorted, i);
        return;
    }
    for (uint32_t i = s->fresh.len; i-- > 0;)
        if (s->fresh.at[i] == j) {
            vec_remove_swap(&s->fresh, i);
            return;
        }
}

// All running jobs are newcomers again when the order was given up.
static void mend(struct world *w, struct standing *s) {
    s->removed = 0;
    if (!s->broken)
        return;
    s->broken = false;
    for (uint32_t i = 0; i < w->running.len; i++)
        vec_push(&s->fresh, w->running.at[i]);
}

#define INSERT(v, i, ...)                                                                          \
    do {                                                                                           \
        uint32_t at_ = (i);                                                                        \
        vec_reserve(v, (v)->len + 1);                                                              \
        memmove((v)->at + at_ + 1, (v)->at + at_, ((v)->len - at_) * sizeof *(v)->at);             \
        (v)->at[at_] = (__VA_ARGS__);                                                              \
        (v)->len++;                                                                                \
    } while (0)

static void merge(struct standing *s, before_fn before, key_fn key) {
    uint32_t i = s->sorted.len, k = s->fresh.len;
    sort_jobs(s->fresh.at, k, key);
    vec_reserve(&s->sorted, i + k);
    s->sorted.len += k;
    for (uint32_t to = s->sorted.len; k > 0;) {
        bool old = i > 0 && before(s->fresh.at[k - 1], s->sorted.at[i - 1]);
        s->sorted.at[--to] = old ? s->sorted.at[--i] : s->fresh.at[--k];
    }
}

void ends_add(struct world *w, struct job *j) {
    j->in_by_end = false;
    if (!w->by_end.broken)
        vec_push(&w->by_end.fresh, j);
}

void ends_remove(struct world *w, struct job *j) {
    remove_from(&w->by_end, j, j->in_by_end, ends_before);
}

void ends_merge(struct world *w) {
    struct standing *s = &w->by_end;
    mend(w, s);
    if (!s->fresh.len)
        return;
    if (s->fresh.len <= FEW) {
        for (uint32_t i = 0; i < s->fresh.len; i++)
            INSERT(&s->sorted, place_of(s, s->fresh.at[i], ends_before), s->fresh.at[i]);
    } else {
        merge(s, ends_before, end_key);
    }
    for (uint32_t i = 0; i < w->by_end.fresh.len; i++)
        w->by_end.fresh.at[i]->in_by_end = true;
    vec_clear(&w->by_end.fresh);
}

void worth_add(struct world *w, struct job *j) {
    j->in_by_worth = false;
    if (!w->by_worth.broken)
        vec_push(&w->by_worth.fresh, j);
}

void worth_remove(struct world *w, struct job *j) {
    struct standing *s = &w->by_worth;
    remove_from(s, j, j->in_by_worth, worth_less);
    w->victims_stale |= s->broken;
    if (!j->in_by_worth || w->victims_stale)
        return;
    uint32_t i = place_of(s, j, worth_less);  // where it was
    assert(w->victims.at[i].job == j);
    vec_remove(&w->victims, i);
}

static struct victim victim_of(const struct job *j) {
    const struct alloc_node *a = &j->alloc->nodes[0];
    bool one = j->alloc->node_count == 1;
    return (struct victim){(struct job *)(uintptr_t)j, j->request->asked.project, one ? a->node : 0,
                           j->held_gpu > UINT32_MAX ? UINT32_MAX : (uint32_t)j->held_gpu,
                           (uint16_t)(one ? a->gpu_count : 0), j->fixed};
}

static void victims_refill(struct world *w) {
    vec_clear(&w->victims);
    vec_reserve(&w->victims, w->by_worth.sorted.len + 1);
    for (uint32_t i = 0; i < w->by_worth.sorted.len; i++)
        vec_push(&w->victims, victim_of(w->by_worth.sorted.at[i]));
    w->victims_stale = false;
}

// Priorities may have changed with the rules: then all are looked at again.
void worth_merge(struct world *w) {
    struct standing *s = &w->by_worth;
    mend(w, s);
    if (w->worth_version != w->config_version) {
        w->victims_stale = true;
        for (uint32_t i = 0; i < s->sorted.len; i++)
            vec_push(&s->fresh, s->sorted.at[i]);
        vec_clear(&s->sorted);
        w->worth_version = w->config_version;
    }
    if (!s->fresh.len) {
        if (w->victims_stale)
            victims_refill(w);
        return;
    }
    for (uint32_t i = 0; i < s->fresh.len; i++)
        request_refresh(w, s->fresh.at[i]->request);
    for (uint32_t i = 0; i < s->fresh.len; i++)
        s->fresh.at[i]->worth = request_priority(w, s->fresh.at[i]->request);
    bool few = s->fresh.len <= FEW && !w->victims_stale;
    if (!few)
        merge(s, worth_less, worth_key);
    for (uint32_t i = 0; few && i < s->fresh.len; i++) {
        uint32_t k = place_of(s, s->fresh.at[i], worth_less);
        INSERT(&s->sorted, k, s->fresh.at[i]);
        INSERT(&w->victims, k, victim_of(s->fresh.at[i]));
    }
    for (uint32_t i = 0; i < s->fresh.len; i++)
        s->fresh.at[i]->in_by_worth = true;
    vec_clear(&s->fresh);
    if (!few)
        victims_refill(w);
}

// For the audit: what is sorted is in order, and the victims are the same jobs.
void ends_assert(const struct world *w) {
    for (uint32_t i = 1; i < w->by_end.sorted.len; i++)
        assert(ends_before(w->by_end.sorted.at[i - 1], w->by_end.sorted.at[i]));
    for (uint32_t i = 1; i < w->by_worth.sorted.len; i++)
        assert(worth_less(w->by_worth.sorted.at[i - 1], w->by_worth.sorted.at[i]));
    for (uint32_t i = 0; !w->victims_stale && i < w->victims.len; i++)
        assert(w->victims.at[i].job == w->by_worth.sorted.at[i]);
}
