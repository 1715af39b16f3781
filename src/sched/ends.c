// Owns the order in which running jobs must end by their limits: a sorted vector, with newcomers
// merged in only when somebody asks.
#include <assert.h>
#include <string.h>

#include "sched/internal.h"

static bool ends_before(const struct job *a, const struct job *b) {
    int64_t x = job_end_ms(a), y = job_end_ms(b);
    return x != y ? x < y : a->id < b->id;
}

static int by_end(const void *pa, const void *pb) {
    const struct job *a = *(struct job *const *)pa, *b = *(struct job *const *)pb;
    return ends_before(a, b) ? -1 : ends_before(b, a) ? 1 : 0;
}

void ends_add(struct world *w, struct job *j) {
    j->in_by_end = false;
    vec_push(&w->by_end_new, j);
}

static uint32_t place_of(const struct world *w, const struct job *j) {
    uint32_t low = 0, high = w->by_end.len;
    while (low < high) {
        uint32_t mid = low + (high - low) / 2;
        if (ends_before(w->by_end.at[mid], j))
            low = mid + 1;
        else
            high = mid;
    }
    return low;
}

void ends_remove(struct world *w, struct job *j) {
    if (j->in_by_end) {
        uint32_t i = place_of(w, j);
        assert(i < w->by_end.len && w->by_end.at[i] == j);
        vec_remove(&w->by_end, i);
        return;
    }
    for (uint32_t i = w->by_end_new.len; i-- > 0;)
        if (w->by_end_new.at[i] == j) {
            vec_remove_swap(&w->by_end_new, i);
            return;
        }
}

void ends_merge(struct world *w) {
    uint32_t more = w->by_end_new.len;
    if (!more)
        return;
    qsort(w->by_end_new.at, more, sizeof *w->by_end_new.at, by_end);
    uint32_t i = w->by_end.len, k = more;
    vec_reserve(&w->by_end, i + more);
    w->by_end.len += more;
    for (uint32_t to = w->by_end.len; k > 0;) {
        bool old = i > 0 && ends_before(w->by_end_new.at[k - 1], w->by_end.at[i - 1]);
        w->by_end.at[--to] = old ? w->by_end.at[--i] : w->by_end_new.at[--k];
    }
    for (k = 0; k < more; k++)
        w->by_end_new.at[k]->in_by_end = true;
    vec_clear(&w->by_end_new);
}
