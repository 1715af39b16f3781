// Hash tables with linear probing and a power-of-two capacity; tombstones are dropped when the table is
// rebuilt. Texts are hashed with a secret of this process, so that nobody outside can fill one bucket.
// A table that is rebuilt stays beside the new one, and each entry that is added moves a few slots of it: nobody waits
// while a million entries are moved. An entry is in one of the two; those that were moved are dead in the old one.
#include "base/map.h"

#include <assert.h>
#include <stdlib.h>
#include <string.h>
#include <sys/auxv.h>

#include "base/alloc.h"
#include "base/rand.h"
#include "base/siphash.h"

static char tombstone;
#define DEAD ((void *)&tombstone)

enum {
    MOVED_SLOTS = 8
};  // of the old table, with each entry that is added: all of them before the new one is full

uint64_t hash_u64(uint64_t x) {
    x ^= x >> 33;
    x *= 0xff51afd7ed558ccdULL;
    x ^= x >> 33;
    x *= 0xc4ceb9fe1a85ec53ULL;
    return x ^ (x >> 33);
}

uint64_t hash_bytes(const void *p, size_t len) {
    const unsigned char *s = p;
    uint64_t h = 0xcbf29ce484222325ULL ^ len;
    for (; len >= 8; s += 8, len -= 8) {
        uint64_t w;
        memcpy(&w, s, 8);
        h = (h ^ hash_u64(w)) * 0x100000001b3ULL;
    }
    while (len--)
        h = (h ^ *s++) * 0x100000001b3ULL;
    return hash_u64(h);
}

static uint8_t process_key[SIPHASH_KEY_BYTES];

__attribute__((constructor)) static void make_process_key(void) {
    if (rand_secret(process_key, sizeof process_key) < 0)  // a kernel without getrandom
        memcpy(process_key, (const void *)(uintptr_t)getauxval(AT_RANDOM), sizeof process_key);
}

uint64_t hash_keyed(const void *p, size_t len) {
    return siphash_short(process_key, p, len);
}

struct map_slot {
    uint64_t key;
    void *value;
};

// Where a search begins. Numbers that follow each other lie side by side in groups of eight, two cache lines: ids of
// jobs are mostly used in their order, and a table of many is larger than the caches.
static size_t map_place(size_t cap, uint64_t key) {
    return (hash_u64(key >> 3) << 3 | (key & 7)) & (cap - 1);
}

static struct map_slot *map_find_in(struct map_slot *slots, size_t cap, uint64_t key) {
    if (!cap)
        return NULL;
    for (size_t i = map_place(cap, key);; i = (i + 1) & (cap - 1)) {
        struct map_slot *s = &slots[i];
        if (!s->value)
            return NULL;
        if (s->value != DEAD && s->key == key)
            return s;
    }
}

static struct map_slot *map_find(const struct map *m, uint64_t key) {
    struct map_slot *s = map_find_in(m->slots, m->cap, key);
    return s ? s : map_find_in(m->old, m->old_cap, key);
}

void *map_get(const struct map *m, uint64_t key) {
    struct map_slot *s = map_find(m, key);
    return s ? s->value : NULL;
}

// A key that is not there; there is room.
static void map_insert(struct map *m, uint64_t key, void *value) {
    size_t i = map_place(m->cap, key);
    while (m->slots[i].value && m->slots[i].value != DEAD)
        i = (i + 1) & (m->cap - 1);
    if (m->slots[i].value == DEAD)
        m->dead--;
    m->slots[i] = (struct map_slot){key, value};
}

static void map_move(struct map *m, size_t slots) {
    for (; slots && m->old_at < m->old_cap; slots--, m->old_at++) {
        struct map_slot *s = &m->old[m->old_at];
        if (s->value && s->value != DEAD) {
            map_insert(m, s->key, s->value);
            s->value = DEAD;
        }
    }
    if (m->old && m->old_at == m->old_cap) {
        free(m->old);
        m->old = NULL;
        m->old_cap = m->old_at = 0;
    }
}

static void map_rebuild(struct map *m, size_t cap) {
    map_move(m, SIZE_MAX);  // the one before has been moved long since
    m->old = m->slots;
    m->old_cap = m->cap;
    m->slots = xcalloc(cap, sizeof *m->slots);
    m->cap = cap;
    m->dead = 0;
}

void map_put(struct map *m, uint64_t key, void *value) {
    assert(value);
    struct map_slot *s = map_find(m, key);
    if (s) {
        s->value = value;
        return;
    }
    if ((m->len + m->dead + 1) * 4 > m->cap * 3)
        map_rebuild(m, m->len * 2 >= m->cap ? (m->cap ? m->cap * 2 : 16) : m->cap);
    map_move(m, MOVED_SLOTS);
    map_insert(m, key, value);
    m->len++;
}

void *map_remove(struct map *m, uint64_t key) {
    struct map_slot *s = map_find(m, key);
    if (!s)
        return NULL;
    void *value = s->value;
    s->value = DEAD;
    m->len--;
    m->dead += s >= m->slots && s < m->slots + m->cap;
    return value;
}

void map_done(struct map *m) {
    free(m->slots);
    free(m->old);
    *m = (struct map){0};
}

bool map_next(const struct map *m, size_t *it, uint64_t *key, void **value) {
    for (; *it < m->cap + m->old_cap; ++*it) {
        struct map_slot *s = *it < m->cap ? &m->slots[*it] : &m->old[*it - m->cap];
        if (s->value && s->value != DEAD) {
            if (key)
                *key = s->key;
            if (value)
                *value = s->value;
            ++*it;
            return true;
        }
    }
    return false;
}

struct strmap_slot {
    const char *key;
    uint64_t hash;
    void *value;
};

static struct strmap_slot *strmap_find_in(struct strmap_slot *slots, size_t cap, const char *key,
                                          uint64_t hash) {
    if (!cap)
        return NULL;
    for (size_t i = hash & (cap - 1);; i = (i + 1) & (cap - 1)) {
        struct strmap_slot *s = &slots[i];
        if (!s->value)
            return NULL;
        if (s->value != DEAD && s->hash == hash && strcmp(s->key, key) == 0)
            return s;
    }
}

static struct strmap_slot *strmap_find(const struct strmap *m, const char *key, uint64_t hash) {
    struct strmap_slot *s = strmap_find_in(m->slots, m->cap, key, hash);
    return s ? s : strmap_find_in(m->old, m->old_cap, key, hash);
}

void *strmap_get(const struct strmap *m, const char *key) {
    struct strmap_slot *s = m->len ? strmap_find(m, key, hash_keyed(key, strlen(key))) : NULL;
    return s ? s->value : NULL;
}

static void strmap_insert(struct strmap *m, const struct strmap_slot *entry) {
    size_t i = entry->hash & (m->cap - 1);
    while (m->slots[i].value && m->slots[i].value != DEAD)
        i = (i + 1) & (m->cap - 1);
    if (m->slots[i].value == DEAD)
        m->dead--;
    m->slots[i] = *entry;
}

static void strmap_move(struct strmap *m, size_t slots) {
    for (; slots && m->old_at < m->old_cap; slots--, m->old_at++) {
        struct strmap_slot *s = &m->old[m->old_at];
        if (s->value && s->value != DEAD) {
            strmap_insert(m, s);
            s->value = DEAD;
        }
    }
    if (m->old && m->old_at == m->old_cap) {
        free(m->old);
        m->old = NULL;
        m->old_cap = m->old_at = 0;
    }
}

static void strmap_rebuild(struct strmap *m, size_t cap) {
    strmap_move(m, SIZE_MAX);
    m->old = m->slots;
    m->old_cap = m->cap;
    m->slots = xcalloc(cap, sizeof *m->slots);
    m->cap = cap;
    m->dead = 0;
}

void strmap_put(struct strmap *m, const char *key, void *value) {
    assert(value);
    uint64_t hash = hash_keyed(key, strlen(key));
    struct strmap_slot *s = strmap_find(m, key, hash);
    if (s) {
        s->key = key;
        s->value = value;
        return;
    }
    if ((m->len + m->dead + 1) * 4 > m->cap * 3)
        strmap_rebuild(m, m->len * 2 >= m->cap ? (m->cap ? m->cap * 2 : 16) : m->cap);
    strmap_move(m, MOVED_SLOTS);
    strmap_insert(m, &(struct strmap_slot){key, hash, value});
    m->len++;
}

void *strmap_remove(struct strmap *m, const char *key) {
    struct strmap_slot *s = strmap_find(m, key, hash_keyed(key, strlen(key)));
    if (!s)
        return NULL;
    void *value = s->value;
    s->value = DEAD;
    m->len--;
    m->dead += s >= m->slots && s < m->slots + m->cap;
    return value;
}

void strmap_done(struct strmap *m) {
    free(m->slots);
    free(m->old);
    *m = (struct strmap){0};
}

bool strmap_next(const struct strmap *m, size_t *it, const char **key, void **value) {
    for (; *it < m->cap + m->old_cap; ++*it) {
        struct strmap_slot *s = *it < m->cap ? &m->slots[*it] : &m->old[*it - m->cap];
        if (s->value && s->value != DEAD) {
            if (key)
                *key = s->key;
            if (value)
                *value = s->value;
            ++*it;
            return true;
        }
    }
    return false;
}
