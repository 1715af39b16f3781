// The state of a pool: its objects, tasks, actors and worker processes, and who holds a reference to what. Pure: frames
// of connections and ends of worker processes come in; frames, packets and orders go out through struct tasks_host.
//
// Rules: an object lives while a connection holds it, a task that has not ended uses it, or a living value contains it.
// A connection says itself that it holds an object, before whatever made it known to the connection ends (frames of a
// connection are handled in order), so nothing can be freed under it. A task ends exactly once: with a value, or with
// an error.
#pragma once
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/buf.h"
#include "tasks/wire.h"

struct tasks_pool;

struct tasks_host {
    void (*send)(void *ctx, uint32_t conn, const struct buf *frames);
    size_t (*unsent)(void *ctx, uint32_t conn);  // bytes
    // A worker process is known by a number. It may be given packets at once, before it runs.
    void (*start)(void *ctx, uint32_t node, uint32_t worker, const char *gpus);
    int (*give)(void *ctx, uint32_t worker, const struct buf *packet);  // 0; -EAGAIN: it has enough
    bool (*take_back)(void *ctx, uint32_t worker, struct buf *packet);  // one that the worker has not read
    void (*ask_back)(void *ctx, uint32_t worker);  // the same of another node: tasks_pool_returned is the answer
    void (*stop)(void *ctx, uint32_t worker, bool kill);                // its end is told in any case
    void (*output)(void *ctx, uint32_t worker, struct buf *out);        // the last of what its task wrote
    void (*fill)(void *ctx, uint64_t at, uint64_t size);                // makes pages be there
    void (*drop)(void *ctx, uint32_t node, uint64_t at, uint64_t size);  // gives pages back
    // Copies a value from node to node; tasks_pool_fetched is the answer, unless `to` is lost meanwhile.
    void (*fetch)(void *ctx, uint32_t to, uint64_t id, uint64_t at, uint64_t size, uint32_t from, uint64_t from_at);
    uint8_t *(*memory)(void *ctx, uint64_t at);
};

struct tasks_options {
    const char *name;  // of this node
    uint32_t cpus, gpus;
    const char *const *gpu_names;  // as programs are told them
    uint32_t workers;              // processes at most; 0: as many as a pool may have
    uint64_t memory_bytes;         // shared memory
    uint64_t held_bytes;           // what arguments and small values may have together
};

struct tasks_pool *tasks_pool_new(const struct tasks_options *o, const struct tasks_host *host, void *ctx);
struct tasks_pool *tasks_pool_free(struct tasks_pool *p);

// `shares`: it maps the shared memory; `inside`: its memory is charged to the job. `worker` for TASKS_WORKER.
void tasks_pool_open(struct tasks_pool *p, uint32_t conn, enum tasks_kind kind, bool shares, bool inside,
                     uint32_t worker);
// 0, or -EPROTO: the connection is to be closed.
int tasks_pool_frame(struct tasks_pool *p, uint32_t conn, enum tasks_frame type, const char *body, size_t len,
                     int64_t now_us);
void tasks_pool_drained(struct tasks_pool *p, uint32_t conn);  // it may be sent more
void tasks_pool_close(struct tasks_pool *p, uint32_t conn, int64_t now_us);
// After all frames of the worker's connection were handled. `how`: "exit code 1", "signal 9 (Killed)".
void tasks_pool_worker_ended(struct tasks_pool *p, uint32_t worker, const char *how, int64_t now_us);
// To be called when work was handled, and when the time of the last answer is over. Returns in how many milliseconds at
// most it wants to be called again, -1: not at all.
int tasks_pool_turn(struct tasks_pool *p, int64_t now_us);
bool tasks_pool_ending(const struct tasks_pool *p);  // a client has asked for the end

struct tasks_node {
    const char *name;
    uint32_t cpus, gpus, workers;
    const char *const *gpu_names;
    uint64_t memory_bytes;
};
// Its number; 0 is the node of the pool's process, which is always there.
uint32_t tasks_pool_node_joined(struct tasks_pool *p, const struct tasks_node *n, int64_t now_us);
// With its workers, their connections, and the values that were only there.
void tasks_pool_node_lost(struct tasks_pool *p, uint32_t node, int64_t now_us);
// `ids` of tasks (8 bytes each) that the worker had not begun and will not begin.
void tasks_pool_returned(struct tasks_pool *p, uint32_t worker, const uint8_t *ids, size_t n, int64_t now_us);
void tasks_pool_fetched(struct tasks_pool *p, uint32_t node, uint64_t id, bool ok, int64_t now_us);

// The number of objects, unfinished tasks, actors and worker processes, for tests.
struct tasks_counts {
    size_t objects, tasks, actors, workers;
    uint64_t used_bytes, held_bytes;
};
struct tasks_counts tasks_pool_counts(const struct tasks_pool *p);
