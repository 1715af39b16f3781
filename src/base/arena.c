// Owns the chunks: each at least ARENA_CHUNK bytes, doubling up to ARENA_CHUNK_MAX.
#include "base/arena.h"

#include <stdalign.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/alloc.h"

enum { ARENA_CHUNK = 1024, ARENA_CHUNK_MAX = 1 << 20 };

struct arena_chunk {
    struct arena_chunk *next;
    size_t used, size;
    alignas(max_align_t) unsigned char data[];
};

static struct arena_chunk *chunk_for(struct arena *a, size_t size) {
    if (a->chunk && a->chunk->size - a->chunk->used >= size)
        return a->chunk;
    size_t want = a->chunk ? a->chunk->size * 2 : ARENA_CHUNK;
    if (want > ARENA_CHUNK_MAX)
        want = ARENA_CHUNK_MAX;
    if (want < size)
        want = size;
    struct arena_chunk *c = xmalloc(sizeof *c + want);
    *c = (struct arena_chunk){.next = a->chunk, .size = want};
    return a->chunk = c;
}

static void *take(struct arena *a, size_t size) {
    const size_t align = alignof(max_align_t);
    size = (size + align - 1) & ~(align - 1);
    if (!size)
        size = align;
    struct arena_chunk *c = chunk_for(a, size);
    void *p = c->data + c->used;
    c->used += size;
    a->total += size;
    return p;
}

void *arena_alloc(struct arena *a, size_t size) {
    return memset(take(a, size), 0, size);
}

char *arena_strndup(struct arena *a, const char *s, size_t len) {
    char *p = take(a, len + 1);
    if (len)
        memcpy(p, s, len);
    p[len] = 0;
    return p;
}

char *arena_strdup(struct arena *a, const char *s) {
    return arena_strndup(a, s, strlen(s));
}

void *arena_memdup(struct arena *a, const void *p, size_t len) {
    void *copy = take(a, len);
    if (len)
        memcpy(copy, p, len);
    return copy;
}

char *arena_printf(struct arena *a, const char *fmt, ...) {
    va_list args;
    va_start(args, fmt);
    int n = vsnprintf(NULL, 0, fmt, args);
    va_end(args);
    if (n < 0)
        abort();
    char *p = arena_alloc(a, (size_t)n + 1);
    va_start(args, fmt);
    vsnprintf(p, (size_t)n + 1, fmt, args);
    va_end(args);
    return p;
}

void arena_reset(struct arena *a) {
    struct arena_chunk *newest = a->chunk;
    if (!newest)
        return;
    a->chunk = newest->next;
    arena_done(a);
    newest->next = NULL;
    newest->used = 0;
    a->chunk = newest;
}

void arena_done(struct arena *a) {
    for (struct arena_chunk *c = a->chunk, *next; c; c = next) {
        next = c->next;
        free(c);
    }
    *a = (struct arena){0};
}
