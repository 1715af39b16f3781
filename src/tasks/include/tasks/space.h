// Which parts of the shared memory are free: offsets and sizes only, so it is pure. Every part begins at a multiple of
// TASKS_SPACE_UNIT. The lowest free part that is large enough is taken, so that the memory used stays together; parts
// that become free join their neighbours.
#pragma once
#include <stdbool.h>
#include <stdint.h>

#include "base/vec.h"

enum { TASKS_SPACE_UNIT = 4096 };

struct tasks_hole {
    uint64_t at, size;
};

struct tasks_space {
    uint64_t total, used;
    VEC(struct tasks_hole) holes;  // by offset
};

void tasks_space_init(struct tasks_space *s, uint64_t total);
void tasks_space_done(struct tasks_space *s);
bool tasks_space_take(struct tasks_space *s, uint64_t size, uint64_t *at);  // false: nothing is large enough
void tasks_space_give(struct tasks_space *s, uint64_t at,
                      uint64_t size);  // what was taken, with the same size
uint64_t tasks_space_rounded(uint64_t size);
