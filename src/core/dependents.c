// Sorted lists of the ids of jobs that wait for another. Most are added at the end and removed at the front, which
// costs little; any other place moves the ids behind it.
#include <string.h>

#include "state.h"

static uint32_t place(const struct dependents *d, uint64_t id) {
    uint32_t low = d->head, high = d->len;
    if (low < high && d->at[high - 1] < id)
        return high;
    while (low < high) {
        uint32_t mid = low + (high - low) / 2;
        if (d->at[mid] < id)
            low = mid + 1;
        else
            high = mid;
    }
    return low;
}

bool core_dependents_have(const struct dependents *list, uint64_t id) {
    uint32_t i = list ? place(list, id) : 0;
    return list && i < list->len && list->at[i] == id;
}

void core_dependents_add(struct dependents **list, uint64_t id) {
    if (!*list)
        *list = xcalloc(1, sizeof **list);
    struct dependents *d = *list;
    uint32_t i = place(d, id);
    if (i < d->len && d->at[i] == id)
        return;
    vec_push(d, 0);
    memmove(d->at + i + 1, d->at + i, (d->len - 1 - i) * sizeof *d->at);
    d->at[i] = id;
}

void core_dependents_remove(struct dependents **list, uint64_t id) {
    struct dependents *d = *list;
    uint32_t i = d ? place(d, id) : 0;
    if (!d || i == d->len || d->at[i] != id)
        return;
    if (i == d->head)
        d->head++;
    else
        vec_remove(d, i);
    if (d->head == d->len)
        core_dependents_free(list);
}

void core_dependents_free(struct dependents **list) {
    if (*list)
        vec_done(*list);
    free(*list);
    *list = NULL;
}

uint32_t core_dependents_count(const struct dependents *list) {
    return list ? list->len - list->head : 0;
}

void core_dependents_merge(struct dependents **to, struct dependents **from) {
    struct dependents *a = *to, *b = *from, *both = a && b ? xcalloc(1, sizeof *both) : NULL;
    if (!both) {
        *to = a ? a : b;
        *from = NULL;
        return;
    }
    while (a->head < a->len || b->head < b->len) {
        bool first = b->head == b->len || (a->head < a->len && a->at[a->head] <= b->at[b->head]);
        uint64_t id = first ? a->at[a->head++] : b->at[b->head++];
        if (!both->len || both->at[both->len - 1] != id)
            vec_push(both, id);
    }
    core_dependents_free(to);
    core_dependents_free(from);
    *to = both;
}
