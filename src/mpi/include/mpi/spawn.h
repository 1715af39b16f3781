// A group of ranks that a rank asks for (MPI_Comm_spawn), as PMI-1 and PMI-2 say it. The helper starts it as a further
// step of the job; that step's helpers are told in the variable ACEQUIA_MPI_SPAWN how many ranks each of its programs
// has, and what the asking ranks have put for them: "2,3\nkey=value\n…". Pure.
#pragma once
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/arena.h"
#include "base/buf.h"
#include "base/vec.h"

enum {
    SPAWN_COMMANDS_MAX = 64,
    SPAWN_RANKS_MAX = 1 << 16,
    SPAWN_ARGUMENTS_MAX = 4096,
    SPAWN_BYTES_MAX = 96 << 10,  // fits into one variable
};

struct spawn_command {
    uint32_t ranks;
    const char *folder;  // to start in; NULL: that of the asking rank
    VEC(const char *) argv;
};

struct spawn_group {
    struct arena arena;
    VEC(struct spawn_command) commands;
    struct buf values;  // "key=value\n"
    size_t bytes;
    uint32_t announced;  // commands that are to come
    const char *value_key;
    uint32_t arguments_left;  // of PMI-2
};

void spawn_group_done(struct spawn_group *g);
// One word of a request, in the order in which they come. NULL, or what is wrong with it.
const char *spawn_word1(struct spawn_group *g, const char *key, const char *value);
const char *spawn_word2(struct spawn_group *g, const char *key, const char *value);
bool spawn_is_complete(const struct spawn_group *g);  // PMI-1: the last of its commands has come
const char *spawn_check(const struct spawn_group *g);  // NULL, or why it cannot be started
uint32_t spawn_ranks(const struct spawn_group *g);
void spawn_variable(const struct spawn_group *g, struct buf *out);
// The script for "sh -c" that becomes the right program in each task.
void spawn_script(const struct spawn_group *g, struct buf *out);

// The variable's text, in the step that was started. `each` is called with what was put. False: it cannot be one.
typedef bool spawn_value_fn(void *ctx, const char *key, size_t key_len, const char *value, size_t value_len);
bool spawn_read(const char *text, uint32_t size, uint32_t *program_of_rank, spawn_value_fn *each, void *ctx);
