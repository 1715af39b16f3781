// Memory that is freed all at once: for decoded messages and requests, whose parts live and die
// together. Nothing is freed singly.
#pragma once
#include <stddef.h>

struct arena {
    struct arena_chunk *chunk;
    size_t total;  // bytes handed out
};

void *arena_alloc(struct arena *a, size_t size);  // zeroed, aligned for any type
char *arena_strdup(struct arena *a, const char *s);
char *arena_strndup(struct arena *a, const char *s, size_t len);
void *arena_memdup(struct arena *a, const void *p, size_t len);
char *arena_printf(struct arena *a, const char *fmt, ...) __attribute__((format(printf, 2, 3)));
void arena_done(struct arena *a);
void arena_reset(struct arena *a);  // everything is freed, but the largest piece of memory kept for what comes

#define cleanup_arena __attribute__((__cleanup__(arena_done)))
