// The shared memory of a node's rows: one anonymous file that workers map too. Loaded rows may take a part of it only,
// so that there is always room for results.
#pragma once
#include <stdbool.h>
#include <stdint.h>

#include "block.h"
#include "tasks/space.h"

struct data_memory {
    int fd;
    uint8_t *at;
    uint64_t size, inputs, inputs_max, peak;
    struct tasks_space space;
};

int data_memory_init(struct data_memory *m, int fd, uint64_t size, struct error *e);  // fd -1: makes one
void data_memory_done(struct data_memory *m);
// Room for `size` bytes. input: for loaded rows, which are counted apart.
bool data_memory_take(struct data_memory *m, uint64_t size, bool input, uint64_t *at);
void data_memory_give(struct data_memory *m, uint64_t at, uint64_t size, bool input);

// A column of texts in one piece of memory: offsets, then bytes. Adds their size; then writes them.
uint64_t data_texts_size(const char *const *texts, const size_t *lens, uint64_t count);
void data_texts_write(struct data_memory *m, uint64_t at, const char *const *texts, const size_t *lens, uint64_t count,
                      struct data_column *c);
