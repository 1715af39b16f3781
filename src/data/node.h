// The engine of one node: takes chunks, brings them through the stages, writes their parts, and reports each as done.
#pragma once
#include <stdbool.h>
#include <stdint.h>

#include "flow.h"
#include "plan.h"
#include "remote.h"

struct data_node;

struct data_node_result {
    struct data_chunk *chunk;     // its items and failures
    const char *part;             // the name of its part, "" without rows or without an output
    uint64_t rows, bytes;
};

struct data_node_hooks {
    void (*done)(void *ctx, const struct data_node_result *r);
    void (*failed)(void *ctx, const struct error *e);  // the run cannot go on
    // Output of kind stream: the chunk's pieces are handed over; data_node_streamed gives them back.
    void (*stream)(void *ctx, struct data_chunk *c);
};

struct data_node_options {
    const char *program;     // of the workers
    const char *scheme_part; // folder or prefix for parts, ending in '/'
    uint32_t cpus;
    const char *gpus;        // "0,1"
    uint64_t memory_bytes;
    int memory_fd;           // -1: made here
};

int data_node_new(const struct data_plan *plan, struct data_remote *remote, const struct data_node_options *o,
                  const struct data_node_hooks *hooks, void *ctx, struct data_node **out, struct error *e);
void data_node_free(struct data_node *n);
int data_node_fd(const struct data_node *n);  // readable when data_node_step has something to do
void data_node_step(struct data_node *n);
bool data_node_wants(const struct data_node *n, uint32_t *rows);
void data_node_add(struct data_node *n, struct data_chunk *c);
void data_node_streamed(struct data_node *n, struct data_chunk *c);
bool data_node_idle(const struct data_node *n);
// Rows and inputs put aside so far, and what was said of the last one.
uint64_t data_node_failures(const struct data_node *n, const char **last);

struct data_node_figures {
    double loading, working;   // busy parts of all threads and of all workers since the last call, 0 to 1
    uint32_t slowest;          // the stage whose workers are busiest
    uint64_t memory_peak;
};
void data_node_figures(struct data_node *n, struct data_node_figures *out);
void data_node_explain(const struct data_node *n, struct buf *out);
