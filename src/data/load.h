// From items to a block of rows: reading and decoding on the pool's threads, then putting together.
#pragma once
#include "flow.h"
#include "memory.h"
#include "plan.h"
#include "pool.h"

struct data_load;
struct data_loader {
    const struct data_source *source;
    struct data_memory *memory;
    struct data_pool *pool;
    struct data_load *waiting;  // decoded, and there is no room yet
    void (*failed)(void *ctx, struct data_chunk *c, const char *address, const char *text);
    void (*loaded)(void *ctx, struct data_chunk *c, struct data_block *b);
    void *ctx;
};

// false: no room now.
bool data_load_begin(struct data_loader *l, struct data_chunk *c);
void data_load_again(struct data_loader *l);  // memory has become free
uint64_t data_load_row_bytes(const struct data_source *s);  // of images of one size; 0: not known before
