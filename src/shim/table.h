// What the process holds, by address or handle: an open-addressing table of small items. Key 0 is
// never used by the driver and marks an empty place. Not locked here.
#pragma once
#include <stddef.h>
#include <stdint.h>

struct item {
    uint64_t key;
    uint64_t bytes; // charged for it
    uint64_t aux;   // the context it lives in; a pool pointer's pool; a mapping's handle
    int device;
    int kind;
    unsigned refs; // handles out; for a pool: pointers out
    unsigned maps;
};

struct table {
    struct item *item;
    size_t size, count;
};

struct item *table_find(const struct table *t, uint64_t key);
struct item *table_put(struct table *t, const struct item *item); // replaces an equal key
int table_take(struct table *t, uint64_t key, struct item *out);  // 0, or -ENOENT
void table_done(struct table *t);
