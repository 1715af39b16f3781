// Owns the list of free parts of the shared memory; see the header.
#include "tasks/space.h"

#include <assert.h>
#include <stdlib.h>
#include <string.h>

#include "base/alloc.h"

uint64_t tasks_space_rounded(uint64_t size) {
    uint64_t units = size / TASKS_SPACE_UNIT + (size % TASKS_SPACE_UNIT != 0);
    return (units ? units : 1) * TASKS_SPACE_UNIT;
}

void tasks_space_init(struct tasks_space *s, uint64_t total) {
    *s = (struct tasks_space){.total = total / TASKS_SPACE_UNIT * TASKS_SPACE_UNIT};
    if (s->total)
        vec_push(&s->holes, (struct tasks_hole){0, s->total});
}

void tasks_space_done(struct tasks_space *s) {
    vec_done(&s->holes);
}

bool tasks_space_take(struct tasks_space *s, uint64_t size, uint64_t *at) {
    if (size > s->total)
        return false;
    size = tasks_space_rounded(size);
    for (uint32_t i = 0; i < s->holes.len; i++) {
        struct tasks_hole *h = &s->holes.at[i];
        if (h->size < size)
            continue;
        *at = h->at;
        h->at += size;
        h->size -= size;
        if (!h->size)
            vec_remove(&s->holes, i);
        s->used += size;
        return true;
    }
    return false;
}

void tasks_space_give(struct tasks_space *s, uint64_t at, uint64_t size) {
    size = tasks_space_rounded(size);
    assert(at + size <= s->total && s->used >= size);
    uint32_t low = 0, high = s->holes.len;
    while (low < high) {
        uint32_t mid = (low + high) / 2;
        if (s->holes.at[mid].at < at)
            low = mid + 1;
        else
            high = mid;
    }
    struct tasks_hole *h = s->holes.at;
    assert(low == s->holes.len || at + size <= h[low].at);
    assert(low == 0 || h[low - 1].at + h[low - 1].size <= at);
    s->used -= size;
    bool below = low > 0 && h[low - 1].at + h[low - 1].size == at;
    bool above = low < s->holes.len && at + size == h[low].at;
    if (below) {
        h[low - 1].size += size + (above ? h[low].size : 0);
        if (above)
            vec_remove(&s->holes, low);
    } else if (above) {
        h[low].at = at;
        h[low].size += size;
    } else {
        vec_push(&s->holes, (struct tasks_hole){0});
        memmove(s->holes.at + low + 1, s->holes.at + low, (s->holes.len - 1 - low) * sizeof *s->holes.at);
        s->holes.at[low] = (struct tasks_hole){at, size};
    }
}
