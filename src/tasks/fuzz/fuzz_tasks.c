// Fuzz target: what clients and workers send to a pool. The bytes are frames of two clients, a viewer and whatever
// workers the pool has started, by turns.
#include <stdlib.h>
#include <string.h>

#include "driver.h"
#include "tasks/pool.h"

enum { CONNS = 3, FIRST_WORKER = 8, WORKERS = 16, MEMORY = 64 << 10 };

const struct fuzz_seed fuzz_seeds[] = {
    FUZZ_SEED("\1\60\0\0\0\2\1\0\0\0\0\1\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\350\3\0\0\0\0\0\0\3\0\1\1\0\0"
              "\0\0faaaaaa"),
    FUZZ_SEED("\1\17\0\0\0\3\1\0\0\0\0\1\0\0\0\0abcd\1\11\0\0\0\7\1\0\0\0\0\1\0\0"),
    FUZZ_SEED("\1\21\0\0\0\4\1\0\0\0\0\1\0\0\1\0\1\0\0\0\0\0\1\13\0\0\0\6\1\0\0\0\0\1\0\0\0\0"),
    FUZZ_SEED("\3\16\0\0\0\15\0\0\0\0\0\0\0\0\0\0\0\0\0"),
    FUZZ_SEED("\1\12\0\0\0\13\1\0\0\0\0\1\0\0\1\10\31\0\0\0\12\1\0\0\0\0\1\0\0\0\0\1\0\0\0\0\0abcdefg"),
    {0},
};

static struct tasks_pool *pool;
static uint8_t memory[MEMORY];
static uint32_t started;

static void do_send(void *ctx, uint32_t conn, const struct buf *frames) {
    size_t at = 0, len;
    enum tasks_frame type;
    const char *body;
    while (at < frames->len)
        FUZZ_CHECK(tasks_next_frame(frames, &at, &type, &body, &len) == 1);
}

static size_t do_unsent(void *ctx, uint32_t conn) {
    return 0;
}

static void do_start(void *ctx, uint32_t node, uint32_t worker, const char *gpus) {
    tasks_pool_open(pool, FIRST_WORKER + worker, TASKS_WORKER, true, true, worker);
    started = worker + 1;
}

static int do_give(void *ctx, uint32_t worker, const struct buf *packet) {
    FUZZ_CHECK(packet->len <= TASKS_MESSAGE_MAX);
    return 0;
}

static bool do_take_back(void *ctx, uint32_t worker, struct buf *packet) {
    return false;
}

static void do_stop(void *ctx, uint32_t worker, bool kill) {
}

static void do_output(void *ctx, uint32_t worker, struct buf *out) {
}

static void do_ask_back(void *ctx, uint32_t worker) {
}

static void do_drop(void *ctx, uint32_t node, uint64_t at, uint64_t size) {
    FUZZ_CHECK(at + size <= MEMORY);
}

static void do_fetch(void *ctx, uint32_t to, uint64_t id, uint64_t at, uint64_t size, uint32_t from,
                     uint64_t from_at) {
}

static void do_fill(void *ctx, uint64_t at, uint64_t size) {
    FUZZ_CHECK(at + size <= MEMORY);
}

static uint8_t *do_memory(void *ctx, uint64_t at) {
    FUZZ_CHECK(at <= MEMORY);
    return memory + at;
}

// A byte names the connection (or, from 128 on, a worker that ends), then a frame follows.
int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    static const struct tasks_host host = {do_send, do_unsent, do_start, do_give,  do_take_back, do_ask_back,
                                           do_stop, do_output, do_fill,  do_drop, do_fetch,     do_memory};
    static const char *const gpus[] = {"0", "1"};
    struct tasks_options o = {
        .cpus = 2, .gpus = 2, .gpu_names = gpus, .memory_bytes = MEMORY, .held_bytes = 4096};
    bool open[CONNS + 1] = {false, true, true, true};
    started = 0;
    pool = tasks_pool_new(&o, &host, NULL);
    tasks_pool_open(pool, 1, TASKS_CLIENT, true, false, 0);
    tasks_pool_open(pool, 2, TASKS_CLIENT, false, false, 0);
    tasks_pool_open(pool, 3, TASKS_VIEWER, false, false, 0);
    int64_t now = 0;
    for (size_t at = 0; at < size; now += 1000) {
        uint32_t conn = data[at++];
        if (conn >= 128) {
            tasks_pool_worker_ended(pool, conn - 128, "signal 9", now);
            tasks_pool_close(pool, FIRST_WORKER + conn - 128, now);
            continue;
        }
        struct buf in = {.data = (char *)(uintptr_t)data, .len = size};
        enum tasks_frame type;
        const char *body;
        size_t len;
        if (tasks_next_frame(&in, &at, &type, &body, &len) <= 0)
            break;
        if (tasks_pool_frame(pool, conn, type, body, len, now) < 0 && conn && conn <= CONNS && open[conn]) {
            open[conn] = false;
            tasks_pool_close(pool, conn, now);
        }
        tasks_pool_turn(pool, now);
    }
    pool = tasks_pool_free(pool);
    return 0;
}
