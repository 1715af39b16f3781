// Hash maps with open addressing: u64 -> pointer, and string -> pointer (keys are borrowed: they
// must live as long as the entry). The order of iteration differs from process to process: sort before it
// reaches a decision, the journal or a list that people see.
#pragma once
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct map {
    struct map_slot *slots, *old;  // old: of a table that is being moved
    size_t len, cap, dead, old_cap, old_at;
};

void *map_get(const struct map *m, uint64_t key);
void map_put(struct map *m, uint64_t key, void *value);  // value must not be NULL
void *map_remove(struct map *m, uint64_t key);           // the value that was there, or NULL
void map_done(struct map *m);
// Visits every entry: `size_t it = 0; while (map_next(&m, &it, &key, &value)) …`; removing the
// entry just visited is allowed.
bool map_next(const struct map *m, size_t *it, uint64_t *key, void **value);

struct strmap {
    struct strmap_slot *slots, *old;
    size_t len, cap, dead, old_cap, old_at;
};

void *strmap_get(const struct strmap *m, const char *key);
void strmap_put(struct strmap *m, const char *key, void *value);
void *strmap_remove(struct strmap *m, const char *key);
void strmap_done(struct strmap *m);
bool strmap_next(const struct strmap *m, size_t *it, const char **key, void **value);

uint64_t hash_u64(uint64_t x);
// The same in every process: for checksums and names of files. Anybody can make texts that collide.
uint64_t hash_bytes(const void *p, size_t len);
// Keyed by a secret of this process: for tables whose keys come from users.
uint64_t hash_keyed(const void *p, size_t len);
