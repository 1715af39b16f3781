// Linear probing with backward-shift deletion; doubles at three quarters full.
#include "table.h"

#include <errno.h>
#include <stdlib.h>

enum { TABLE_FIRST = 64 };

static size_t home(const struct shim_table *t, uint64_t key) {
    return (size_t)((key * 0x9e3779b97f4a7c15ULL) >> 20) & (t->size - 1);
}

static struct shim_table_entry *place(const struct shim_table *t, uint64_t key) {
    size_t i = home(t, key);
    while (t->item[i].key && t->item[i].key != key)
        i = (i + 1) & (t->size - 1);
    return &t->item[i];
}

struct shim_table_entry *shim_table_find(const struct shim_table *t, uint64_t key) {
    if (!t->size || !key)
        return NULL;
    struct shim_table_entry *p = place(t, key);
    return p->key ? p : NULL;
}

static void grow(struct shim_table *t) {
    struct shim_table bigger = {.size = t->size ? t->size * 2 : TABLE_FIRST, .count = t->count};
    bigger.item = calloc(bigger.size, sizeof *bigger.item);
    if (!bigger.item)
        abort();
    for (size_t i = 0; i < t->size; i++)
        if (t->item[i].key)
            *place(&bigger, t->item[i].key) = t->item[i];
    free(t->item);
    *t = bigger;
}

struct shim_table_entry *shim_table_put(struct shim_table *t, const struct shim_table_entry *item) {
    if (!item->key)
        return NULL;
    if ((t->count + 1) * 4 > t->size * 3)
        grow(t);
    struct shim_table_entry *p = place(t, item->key);
    t->count += p->key == 0;
    *p = *item;
    return p;
}

int shim_table_take(struct shim_table *t, uint64_t key, struct shim_table_entry *out) {
    struct shim_table_entry *p = shim_table_find(t, key);
    if (!p)
        return -ENOENT;
    *out = *p;
    size_t hole = (size_t)(p - t->item), mask = t->size - 1;
    for (size_t i = (hole + 1) & mask; t->item[i].key; i = (i + 1) & mask) {
        size_t h = home(t, t->item[i].key);
        if (((i - h) & mask) < ((i - hole) & mask))
            continue; // it sits between its home and here: the hole is before its home
        t->item[hole] = t->item[i];
        hole = i;
    }
    t->item[hole] = (struct shim_table_entry){0};
    t->count--;
    return 0;
}

void shim_table_done(struct shim_table *t) {
    free(t->item);
    *t = (struct shim_table){0};
}
