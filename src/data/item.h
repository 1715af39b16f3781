// One input, or part of one: what a chunk is made of.
#pragma once
#include <stdint.h>

#include "base/arena.h"
#include "base/vec.h"

struct data_item {
    const char *address;
    const char *name;      // of a member of an archive; else NULL
    uint64_t offset, len;  // of a part of a file; len 0: the whole
};

// The same in every run: what was done is recognized by it.
uint64_t data_item_hash(const struct data_item *item);

typedef VEC(struct data_item) data_items;
