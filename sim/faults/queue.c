// The queue of events in virtual time.
#include "queue.h"

static bool before(const struct queued *x, const struct queued *y) {
    return x->at_ms != y->at_ms ? x->at_ms < y->at_ms : x->seq < y->seq;
}

static void swap(struct queue *q, uint32_t i, uint32_t k) {
    struct queued t = q->heap.at[i];
    q->heap.at[i] = q->heap.at[k];
    q->heap.at[k] = t;
}

void queue_put(struct queue *q, int64_t at_ms, uint32_t kind, uint32_t who, uint64_t a, uint64_t b) {
    struct queued e = {.at_ms = at_ms, .seq = ++q->seq, .kind = kind, .who = who, .a = a, .b = b};
    vec_push(&q->heap, e);
    for (uint32_t i = q->heap.len - 1; i && before(&q->heap.at[i], &q->heap.at[(i - 1) / 2]); i = (i - 1) / 2)
        swap(q, i, (i - 1) / 2);
}

bool queue_take(struct queue *q, struct queued *out) {
    if (!q->heap.len)
        return false;
    *out = q->heap.at[0];
    q->heap.at[0] = q->heap.at[--q->heap.len];
    for (uint32_t i = 0;;) {
        uint32_t least = i, left = 2 * i + 1, right = left + 1;
        if (left < q->heap.len && before(&q->heap.at[left], &q->heap.at[least]))
            least = left;
        if (right < q->heap.len && before(&q->heap.at[right], &q->heap.at[least]))
            least = right;
        if (least == i)
            return true;
        swap(q, i, least);
        i = least;
    }
}

void queue_done(struct queue *q) {
    vec_done(&q->heap);
}
