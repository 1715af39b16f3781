// What happens to chunks of rows on one node: loaded, cut into pieces for the workers of each stage, put together,
// written. Decisions only; loading, running and writing is done by whoever gives the functions, and reported back.
// Pure: time comes in as an argument.
#pragma once
#include <stdbool.h>
#include <stdint.h>

#include "base/buf.h"
#include "base/vec.h"
#include "block.h"
#include "item.h"
#include "tuner.h"

enum { DATA_TRIES = 3, DATA_FAILURE_TEXT_MAX = 8192 };

struct data_failure {  // a row, or what could not be read, put aside
    const char *address, *text;  // text: malloc'ed
};

struct data_chunk {
    uint64_t id;
    struct arena arena;  // of its items
    data_items items;
    struct data_block *block;  // what was loaded
    uint32_t *origins;         // the item of each row, or NULL
    struct data_piece *first, *last;
    uint32_t pending;          // pieces that are not through
    uint64_t rows_in, rows_out;
    VEC(struct data_failure) failures;
    bool loaded, writing;
    void *user;
    struct data_chunk *next;
};

struct data_piece {
    struct data_chunk *chunk;
    struct data_piece *previous, *next;  // in the order of rows
    struct data_piece *next_ready;
    struct data_block *block;
    uint64_t from, count;
    uint32_t stage, tries;
    bool origins;  // its rows are still those of chunk->origins, from `first_row` on
    uint64_t first_row;
    int64_t begun_us;
    bool through;
};

struct data_flow_hooks {
    // Starts loading; the end comes by data_flow_loaded. false: no room now, ask again later.
    bool (*load)(void *ctx, struct data_chunk *c);
    void (*run)(void *ctx, uint32_t stage, uint32_t worker, struct data_piece *p);
    // Starts writing the chunk's pieces; the end comes by data_flow_written.
    void (*write)(void *ctx, struct data_chunk *c);
    void (*block_free)(void *ctx, struct data_block *b);  // nobody uses it any more
};

struct data_flow_stage {
    uint32_t workers, idle_count, running;
    VEC(struct data_piece *) busy;  // by worker: what it runs, or NULL
    VEC(uint8_t) ready;             // by worker: it can take a piece
    struct data_piece *first_ready, *last_ready;
    uint64_t ready_rows, rows_in, rows_out, batches;
    double busy_us;
    struct data_tuner tuner;
};

struct data_flow {
    struct data_flow_hooks hooks;
    void *ctx;
    struct data_flow_stage *stages;
    uint32_t nstages;
    struct data_chunk *first, *last;  // all, oldest first
    uint32_t nchunks, nloading;
    uint64_t loaded_rows, loading_rows;
    bool broken;  // no new work is begun
    uint64_t failures;  // rows and inputs that were put aside, also of chunks that are not done
    char *last_failure;
};

void data_flow_init(struct data_flow *f, uint32_t stages, const struct data_flow_hooks *hooks, void *ctx);
void data_flow_done(struct data_flow *f);  // frees chunks that are left
void data_flow_stage_init(struct data_flow *f, uint32_t stage, uint32_t batch, uint32_t batch_max, uint32_t workers);

// Whether another chunk should be given, and of how many rows.
bool data_flow_wants(const struct data_flow *f, uint32_t *rows);
void data_flow_add(struct data_flow *f, struct data_chunk *c);
struct data_chunk *data_chunk_new(uint64_t id);
void data_chunk_free(struct data_chunk *c);

void data_flow_loaded(struct data_flow *f, struct data_chunk *c, struct data_block *b);
void data_flow_worker_ready(struct data_flow *f, uint32_t stage, uint32_t worker);
// The worker is gone: what it ran is tried again, in the end without the rows that kill it.
void data_flow_worker_lost(struct data_flow *f, uint32_t stage, uint32_t worker, bool out_of_memory, const char *text);
void data_flow_result(struct data_flow *f, uint32_t stage, uint32_t worker, struct data_block *b, int64_t now_us);
void data_flow_failed(struct data_flow *f, uint32_t stage, uint32_t worker, bool out_of_memory, const char *text);
void data_flow_written(struct data_flow *f, struct data_chunk *c);  // the chunk is freed
void data_flow_advance(struct data_flow *f, int64_t now_us);        // begins all that can begin
void data_flow_failure(struct data_flow *f, struct data_chunk *c, const char *address, const char *text);
