// What the process holds, by address or handle: an open-addressing table of small items. Key 0 is
// never used by the driver and marks an empty place. Not locked here.
#pragma once
#include <stddef.h>
#include <stdint.h>

struct shim_table_entry {
    uint64_t key;
    uint64_t bytes; // charged for it
    uint64_t aux;   // the context it lives in; a pool pointer's pool; a mapping's handle
    int device;
    int kind;
    unsigned refs; // handles out; for a pool: pointers out
    unsigned maps;
};

struct shim_table {
    struct shim_table_entry *item;
    size_t size, count;
};

struct shim_table_entry *shim_table_find(const struct shim_table *t, uint64_t key);
struct shim_table_entry *shim_table_put(struct shim_table *t,
                                        const struct shim_table_entry *item);  // replaces an equal key
int shim_table_take(struct shim_table *t, uint64_t key, struct shim_table_entry *out);  // 0, or -ENOENT
void shim_table_done(struct shim_table *t);
