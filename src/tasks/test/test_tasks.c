// The state of a pool: every task ends exactly once, whatever dies meanwhile; what nobody holds is freed; parts of the
// shared memory never overlap; what is not a frame is refused.
#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "base/alloc.h"
#include "base/rand.h"
#include "base/vec.h"
#include "tasks/pool.h"
#include "tasks/space.h"

enum { CLIENT = 1, OUTSIDE = 2, FIRST_WORKER_CONN = 1000, PACKETS = 8, WORKERS = 4096, MEMORY = 1 << 20 };

struct packet {
    char *data;
    size_t len;
};

struct simulated {
    bool alive, quit;
    VEC(struct packet) unread;
    uint64_t task, actor;  // that it runs; 0: none
};

struct rig {
    struct tasks_pool *pool;
    struct simulated workers[WORKERS];
    uint32_t nworkers;
    struct buf sent, outside;  // to CLIENT; to a client that does not map the memory, and has not read
    uint8_t memory[MEMORY];
    int64_t now;
};

static struct rig rig;

static void do_send(void *ctx, uint32_t conn, const struct buf *frames) {
    if (conn == CLIENT)
        buf_add(&rig.sent, frames->data, frames->len);
    else if (conn == OUTSIDE)
        buf_add(&rig.outside, frames->data, frames->len);
}

static size_t do_unsent(void *ctx, uint32_t conn) {
    return conn == OUTSIDE ? rig.outside.len : 0;
}

static void do_start(void *ctx, uint32_t node, uint32_t worker, const char *gpus) {
    assert_true(worker < WORKERS);
    rig.workers[worker] = (struct simulated){.alive = true};
    if (worker >= rig.nworkers)
        rig.nworkers = worker + 1;
    tasks_pool_open(rig.pool, FIRST_WORKER_CONN + worker, TASKS_WORKER, true, true, worker);
}

static int do_give(void *ctx, uint32_t worker, const struct buf *packet) {
    struct simulated *w = &rig.workers[worker];
    if (!w->alive || w->unread.len == PACKETS)
        return -EAGAIN;
    vec_push(&w->unread, (struct packet){xmemdup(packet->data, packet->len), packet->len});
    return 0;
}

static bool do_take_back(void *ctx, uint32_t worker, struct buf *packet) {
    struct simulated *w = &rig.workers[worker];
    if (!w->unread.len)
        return false;
    buf_add(packet, w->unread.at[0].data, w->unread.at[0].len);
    free(w->unread.at[0].data);
    vec_remove(&w->unread, 0);
    return true;
}

static void do_stop(void *ctx, uint32_t worker, bool kill) {
    if (worker < WORKERS)
        rig.workers[worker].quit = true;
}

static void do_output(void *ctx, uint32_t worker, struct buf *out) {
    buf_adds(out, "output");
}

static void do_ask_back(void *ctx, uint32_t worker) {
}

static void do_fill(void *ctx, uint64_t at, uint64_t size) {
    assert_true(at + size <= MEMORY);
}

static void do_drop(void *ctx, uint32_t node, uint64_t at, uint64_t size) {
    assert_true(at + size <= MEMORY);
}

static void do_fetch(void *ctx, uint32_t to, uint64_t id, uint64_t at, uint64_t size, uint32_t from,
                     uint64_t from_at) {
}

static uint8_t *do_memory(void *ctx, uint64_t at) {
    return rig.memory + at;
}

static const struct tasks_host host = {do_send, do_unsent, do_start, do_give,  do_take_back, do_ask_back,
                                       do_stop, do_output, do_fill,  do_drop, do_fetch,     do_memory};

static void begin(uint32_t cpus, uint32_t gpus) {
    static const char *const names[] = {"0", "1", "2", "3"};
    struct tasks_options o = {
        .cpus = cpus, .gpus = gpus, .gpu_names = names, .memory_bytes = MEMORY, .held_bytes = 1 << 20};
    memset(&rig, 0, sizeof rig);
    rig.pool = tasks_pool_new(&o, &host, NULL);
    tasks_pool_open(rig.pool, CLIENT, TASKS_CLIENT, true, true, 0);
}

static void end(void) {
    tasks_pool_free(rig.pool);
    for (uint32_t i = 0; i < rig.nworkers; i++) {
        for (uint32_t k = 0; k < rig.workers[i].unread.len; k++)
            free(rig.workers[i].unread.at[k].data);
        vec_done(&rig.workers[i].unread);
    }
    buf_done(&rig.sent);
    buf_done(&rig.outside);
}

static int frame(uint32_t conn, enum tasks_frame type, const struct buf *body) {
    return tasks_pool_frame(rig.pool, conn, type, body->len ? body->data : "", body->len, rig.now);
}

static uint64_t id_of(uint32_t n) {
    return (uint64_t)CLIENT << 40 | n;
}

static int submit(uint64_t id, uint64_t actor, uint8_t flags, uint32_t cpu, uint32_t gpu, uint16_t retries,
                  const uint64_t *dependencies, uint16_t n) {
    cleanup_buf struct buf b = {0};
    tasks_add_u64(&b, id);
    tasks_add_u64(&b, 0);
    tasks_add_u64(&b, actor);
    tasks_add_u32(&b, cpu);
    tasks_add_u32(&b, gpu);
    tasks_add_u16(&b, retries);
    tasks_add_u8(&b, flags);
    tasks_add_u8(&b, 1);
    tasks_add_u16(&b, n);
    tasks_add_u16(&b, 0);
    buf_adds(&b, "f");
    buf_add(&b, dependencies, n * sizeof *dependencies);
    buf_adds(&b, "arguments");
    return frame(CLIENT, TASKS_SUBMIT, &b);
}

static void release(uint64_t id) {
    cleanup_buf struct buf b = {0};
    tasks_add_u64(&b, id);
    assert_int_equal(frame(CLIENT, TASKS_RELEASE, &b), 0);
}

static void cancel(uint64_t id, bool force) {
    cleanup_buf struct buf b = {0};
    tasks_add_u64(&b, id);
    tasks_add_u8(&b, force);
    assert_int_equal(frame(CLIENT, TASKS_CANCEL, &b), 0);
}

static void turn(void) {
    rig.now += 1000;
    while (tasks_pool_turn(rig.pool, rig.now) == 0)
        continue;
}

// The worker reads its next packet. False: there is none.
static bool worker_reads(uint32_t worker) {
    struct simulated *w = &rig.workers[worker];
    if (!w->unread.len || w->task)
        return false;
    struct packet p = w->unread.at[0];
    vec_remove(&w->unread, 0);
    struct tasks_reader r = {.at = (uint8_t *)p.data + 1, .end = (uint8_t *)p.data + p.len};
    w->task = tasks_read_u64(&r);
    free(p.data);
    return true;
}

static int worker_done(uint32_t worker, bool error) {
    cleanup_buf struct buf b = {0};
    tasks_add_u64(&b, rig.workers[worker].task);
    tasks_add_u8(&b, error);
    tasks_add_u8(&b, 0);
    tasks_add_u32(&b, 10);
    tasks_add_u16(&b, 0);
    buf_adds(&b, "value");
    rig.workers[worker].task = 0;
    return frame(FIRST_WORKER_CONN + worker, TASKS_DONE, &b);
}

static void worker_ends(uint32_t worker) {
    rig.workers[worker].alive = false;
    rig.workers[worker].task = 0;
    tasks_pool_worker_ended(rig.pool, worker, "signal 9", rig.now);
    tasks_pool_close(rig.pool, FIRST_WORKER_CONN + worker, rig.now);
}

// How the client was told of the values: by number of the id, the count, and the code of an error (0: a value).
static void count_values(uint8_t *counts, uint8_t *codes, uint32_t n) {
    size_t at = 0, len;
    enum tasks_frame type;
    const char *body;
    while (tasks_next_frame(&rig.sent, &at, &type, &body, &len) > 0) {
        uint64_t id;
        memcpy(&id, body, sizeof id);
        if (type != TASKS_VALUE || (id & 0xffffff) >= n)
            continue;
        counts[id & 0xffffff]++;
        codes[id & 0xffffff] = body[8] == TASKS_VALUE_ERROR ? (uint8_t)body[9] : 0;
    }
    buf_clear(&rig.sent);
}

static void run_all(void) {
    for (bool any = true; any;) {
        any = false;
        turn();
        for (uint32_t i = 0; i < rig.nworkers; i++)
            while (rig.workers[i].alive && worker_reads(i)) {
                assert_int_equal(worker_done(i, false), 0);
                any = true;
            }
        for (uint32_t i = 0; i < rig.nworkers; i++)
            if (rig.workers[i].alive && rig.workers[i].quit) {
                worker_ends(i);
                any = true;
            }
    }
}

static void assert_empty(void) {
    struct tasks_counts c = tasks_pool_counts(rig.pool);
    assert_int_equal(c.objects, 0);
    assert_int_equal(c.tasks, 0);
    assert_int_equal(c.actors, 0);
    assert_int_equal(c.used_bytes, 0);
    assert_int_equal(c.held_bytes, 0);
}

static void test_values_and_dependencies(void **state) {
    uint8_t counts[4] = {0}, codes[4] = {0};
    begin(2, 0);
    assert_int_equal(submit(id_of(1), 0, TASKS_WANT, 1000, 0, 0, NULL, 0), 0);
    assert_int_equal(submit(id_of(2), 0, TASKS_WANT, 1000, 0, 0, (uint64_t[]){id_of(1), id_of(1)}, 2), 0);
    assert_int_equal(submit(id_of(3), 0, TASKS_WANT, 9000, 0, 0, NULL, 0), 0);
    turn();
    assert_int_equal(tasks_pool_counts(rig.pool).workers, 1);  // the second task waits for the first
    run_all();
    count_values(counts, codes, 4);
    assert_int_equal(counts[1], 1);
    assert_int_equal(counts[2], 1);
    assert_int_equal(codes[2], 0);
    assert_int_equal(codes[3], TASKS_IMPOSSIBLE);
    for (uint32_t i = 1; i < 4; i++)
        release(id_of(i));
    run_all();
    assert_empty();
    end();
}

static void test_failures_reach_dependents(void **state) {
    enum { N = 5000 };
    static uint8_t counts[N + 1], codes[N + 1];
    begin(1, 0);
    memset(counts, 0, sizeof counts);
    submit(id_of(1), 0, TASKS_WANT, 1000, 0, 0, NULL, 0);
    for (uint32_t i = 2; i <= N; i++)  // a chain that must not need a deep stack
        submit(id_of(i), 0, TASKS_WANT, 1000, 0, 0, (uint64_t[]){id_of(i - 1), id_of(i - 1)}, 2);
    turn();
    assert_true(worker_reads(0));
    assert_int_equal(worker_done(0, true), 0);
    turn();
    count_values(counts, codes, N + 1);
    for (uint32_t i = 1; i <= N; i++) {
        assert_int_equal(counts[i], 1);
        assert_int_equal(codes[i], TASKS_EXCEPTION);
        release(id_of(i));
    }
    run_all();
    assert_empty();
    end();
}

static void test_actor(void **state) {
    uint8_t counts[8] = {0}, codes[8] = {0};
    begin(1, 1);
    submit(id_of(1), 0, TASKS_WANT | TASKS_NEW_ACTOR, 0, 500, 1, NULL, 0);  // half a GPU, one restart
    submit(id_of(2), id_of(1), TASKS_WANT, 0, 0, 0, NULL, 0);
    turn();
    assert_true(worker_reads(0) && worker_done(0, false) == 0);
    turn();
    assert_true(worker_reads(0));
    worker_ends(0);  // during the call: it fails, the actor is made again
    turn();
    submit(id_of(3), id_of(1), TASKS_WANT, 0, 0, 0, NULL, 0);
    assert_true(worker_reads(1) && worker_done(1, false) == 0);
    turn();
    assert_true(worker_reads(1) && worker_done(1, false) == 0);
    worker_ends(1);  // no restart is left
    submit(id_of(4), id_of(1), TASKS_WANT, 0, 0, 0, NULL, 0);
    turn();
    count_values(counts, codes, 8);
    assert_int_equal(codes[2], TASKS_ACTOR_LOST);
    assert_int_equal(counts[3], 1);
    assert_int_equal(codes[3], 0);
    assert_int_equal(codes[4], TASKS_ACTOR_LOST);
    submit(id_of(5), 0, TASKS_WANT, 1000, 1000, 0, NULL, 0);  // the GPU is whole again
    for (uint32_t i = 1; i < 6; i++)
        release(id_of(i));
    run_all();
    assert_empty();
    end();
}

static void test_what_is_not_read_is_taken_back(void **state) {
    begin(2, 0);
    cleanup_buf struct buf b = {0};
    tasks_add_u64(&b, id_of(100));
    tasks_add_u16(&b, 0);
    buf_adds(&b, "function");
    assert_int_equal(frame(CLIENT, TASKS_PUT, &b), 0);
    release(id_of(100));
    for (uint32_t i = 1; i <= 3; i++)
        submit(id_of(i), 0, TASKS_WANT, 1000, 0, 0, NULL, 0);
    turn();
    assert_true(worker_reads(0));
    cleanup_buf struct buf yes = {0};
    tasks_add_u8(&yes, 1);
    assert_int_equal(frame(FIRST_WORKER_CONN, TASKS_BLOCKED, &yes), 0);
    turn();
    assert_int_equal(tasks_pool_counts(rig.pool).workers, 3);  // its CPU is used by another
    uint8_t counts[8] = {0}, codes[8] = {0};
    cancel(id_of(3), false);
    turn();
    count_values(counts, codes, 8);
    assert_int_equal(codes[3], TASKS_CANCELLED);
    assert_int_equal(worker_done(0, false), 0);
    run_all();
    for (uint32_t i = 1; i <= 3; i++)
        release(id_of(i));
    run_all();
    assert_empty();
    end();
}

// An actor without a GPU that is ready, of worker 0.
static void begin_actor(uint16_t restarts) {
    begin(1, 0);
    submit(id_of(1), 0, TASKS_WANT | TASKS_NEW_ACTOR, 0, 0, restarts, NULL, 0);
    turn();
    assert_true(worker_reads(0) && worker_done(0, false) == 0);
}

static void end_actor(uint32_t ids) {
    for (uint32_t i = 1; i <= ids; i++)
        release(id_of(i));
    run_all();
    assert_empty();
    end();
}

static void test_calls_behind_one_that_fails(void **state) {
    uint8_t counts[8] = {0}, codes[8] = {0};
    begin_actor(0);
    submit(id_of(2), 0, TASKS_WANT, 1000, 0, 0, NULL, 0);
    submit(id_of(3), id_of(1), TASKS_WANT, 0, 0, 0, (uint64_t[]){id_of(2)}, 1);
    submit(id_of(4), id_of(1), TASKS_WANT, 0, 0, 0, NULL, 0);  // behind it, in order
    turn();
    assert_true(worker_reads(1) && worker_done(1, true) == 0);
    run_all();
    count_values(counts, codes, 8);
    assert_int_equal(codes[3], TASKS_EXCEPTION);
    assert_int_equal(counts[4], 1);
    end_actor(4);
}

static void test_calls_beside_one_that_is_cancelled(void **state) {
    for (int begun = 0; begun < 2; begun++) {
        uint8_t counts[8] = {0}, codes[8] = {0};
        begin_actor(0);
        for (uint32_t i = 2; i <= 4; i++)
            submit(id_of(i), id_of(1), TASKS_WANT, 0, 0, 0, NULL, 0);
        turn();
        if (begun)
            assert_true(worker_reads(0));
        cancel(id_of(3), false);
        if (begun)
            assert_int_equal(worker_done(0, false), 0);
        run_all();  // asserts that the actor does no call that the pool does not know
        count_values(counts, codes, 8);
        assert_int_equal(codes[3], TASKS_CANCELLED);
        for (uint32_t i = 1; i <= 4; i++)
            assert_int_equal(counts[i], 1);
        assert_true(rig.workers[0].alive);
        end_actor(4);
    }
}

static void test_actor_killed_while_it_waits_for_a_restart(void **state) {
    uint8_t counts[8] = {0}, codes[8] = {0};
    begin(1, 0);
    submit(id_of(1), 0, TASKS_WANT | TASKS_NEW_ACTOR, 1000, 0, 3, NULL, 0);
    turn();
    assert_true(worker_reads(0) && worker_done(0, false) == 0);
    submit(id_of(2), 0, TASKS_WANT, 1000, 0, 0, NULL, 0);
    submit(id_of(3), id_of(1), TASKS_WANT, 0, 0, 0, NULL, 0);
    assert_true(worker_reads(0));
    cleanup_buf struct buf yes = {0};
    tasks_add_u8(&yes, 1);
    assert_int_equal(frame(FIRST_WORKER_CONN, TASKS_BLOCKED, &yes), 0);
    assert_true(worker_reads(1));  // the task has the CPU that the actor lends
    worker_ends(0);
    cancel(id_of(1), true);
    submit(id_of(4), id_of(1), TASKS_WANT, 0, 0, 0, NULL, 0);
    assert_int_equal(worker_done(1, false), 0);
    run_all();
    count_values(counts, codes, 8);
    assert_int_equal(counts[2], 1);
    assert_int_equal(codes[3], TASKS_ACTOR_LOST);
    assert_int_equal(codes[4], TASKS_ACTOR_LOST);
    end_actor(4);
}

static void test_actor_whose_process_does_not_begin(void **state) {
    uint8_t counts[8] = {0}, codes[8] = {0};
    begin_actor(2);
    submit(id_of(2), id_of(1), TASKS_WANT, 0, 0, 0, NULL, 0);
    worker_ends(0);
    worker_ends(1);  // before it has read what to do
    assert_int_equal(tasks_pool_counts(rig.pool).workers, 1);
    run_all();
    count_values(counts, codes, 8);
    assert_int_equal(counts[2], 1);
    assert_int_equal(codes[2], 0);
    submit(id_of(3), 0, TASKS_WANT | TASKS_NEW_ACTOR, 0, 0, 0, NULL, 0);
    submit(id_of(4), id_of(3), TASKS_WANT, 0, 0, 0, NULL, 0);
    turn();
    worker_ends(3);
    run_all();
    count_values(counts, codes, 8);
    assert_int_equal(codes[3], TASKS_ACTOR_LOST);
    assert_int_equal(codes[4], TASKS_ACTOR_LOST);
    end_actor(4);
}

static void test_killed_worker_gets_nothing_more(void **state) {
    uint8_t counts[8] = {0}, codes[8] = {0};
    begin(1, 0);
    submit(id_of(1), 0, TASKS_WANT, 1000, 0, 0, NULL, 0);
    turn();
    assert_true(worker_reads(0));
    cancel(id_of(1), true);
    assert_int_equal(worker_done(0, false), 0);  // before the signal reaches it
    submit(id_of(2), 0, TASKS_WANT, 1000, 0, 0, NULL, 0);
    turn();
    assert_false(worker_reads(0));
    run_all();
    count_values(counts, codes, 8);
    assert_int_equal(counts[2], 1);
    assert_int_equal(codes[2], 0);
    release(id_of(1));
    release(id_of(2));
    run_all();
    assert_empty();
    end();
}

// Random tasks with dependencies, actors and their calls, workers that die at any moment, cancellations.
static void random_history(uint64_t seed) {
    enum { N = 400 };
    struct rand r;
    static uint8_t counts[N + 1], codes[N + 1];
    rand_seed(&r, seed);
    memset(counts, 0, sizeof counts);
    begin(1 + (uint32_t)rand_below(&r, 4), 2);
    uint32_t made = 0;
    uint64_t newest_actor = 0;
    for (int step = 0; step < 4000; step++) {
        uint64_t what = rand_below(&r, 10);
        uint32_t worker = rig.nworkers ? (uint32_t)rand_below(&r, rig.nworkers) : 0;
        struct simulated *w = &rig.workers[worker];
        if (what < 3 && made < N) {
            uint64_t uses[3];
            uint16_t n = made ? (uint16_t)rand_below(&r, 4) : 0;
            for (uint16_t i = 0; i < n; i++)
                uses[i] = id_of(1 + (uint32_t)rand_below(&r, made));
            made++;
            uint64_t kind = rand_below(&r, 12), actor = kind > 1 && kind < 5 ? newest_actor : 0;
            uint8_t flags = TASKS_WANT | (kind ? 0 : TASKS_NEW_ACTOR);
            uint32_t cpu = actor || !kind ? 0 : 500 * (uint32_t)rand_below(&r, 3);
            assert_int_equal(submit(id_of(made), actor, flags, cpu,
                                    actor || !kind || rand_below(&r, 8) ? 0 : 500,
                                    (uint16_t)(actor ? 0 : rand_below(&r, 3)), uses, n),
                             0);
            newest_actor = kind ? newest_actor : id_of(made);
        } else if (what < 5 && rig.nworkers && w->alive) {
            worker_reads(worker);
        } else if (what < 8 && rig.nworkers && w->alive && w->task) {
            assert_int_equal(worker_done(worker, rand_below(&r, 20) == 0), 0);
        } else if (what == 8 && rig.nworkers && w->alive && (w->quit || rand_below(&r, 4) == 0)) {
            worker_ends(worker);
        } else if (what == 9 && made && rand_below(&r, 4) == 0) {
            uint64_t id = id_of(1 + (uint32_t)rand_below(&r, made));
            cancel(id, rand_below(&r, 2) != 0);
        }
        turn();
    }
    for (uint32_t i = 0; i < rig.nworkers; i++)
        if (rig.workers[i].alive && rig.workers[i].task)
            assert_int_equal(worker_done(i, false), 0);
    run_all();
    count_values(counts, codes, N + 1);
    for (uint32_t i = 1; i <= made; i++) {
        if (counts[i] != 1)
            fail_msg("seed %llu: task %u ended %u times", (unsigned long long)seed, i, counts[i]);
        release(id_of(i));
    }
    run_all();
    assert_empty();
    end();
}

static void test_random_histories(void **state) {
    for (uint64_t seed = 1; seed <= 200; seed++)
        random_history(seed);
}

static void test_shared_memory(void **state) {
    begin(1, 0);
    cleanup_buf struct buf a = {0}, s = {0};
    tasks_add_u64(&a, id_of(1));
    tasks_add_u64(&a, 100000);
    assert_int_equal(frame(CLIENT, TASKS_ALLOC, &a), 0);
    turn();
    assert_true(tasks_pool_counts(rig.pool).used_bytes >= 100000);
    tasks_add_u64(&s, id_of(1));
    tasks_add_u16(&s, 0);
    assert_int_equal(frame(CLIENT, TASKS_SEAL, &s), 0);
    assert_int_equal(frame(CLIENT, TASKS_SEAL, &s), -EPROTO);
    assert_int_equal(frame(CLIENT, TASKS_ALLOC, &a), -EPROTO);
    buf_clear(&a);
    tasks_add_u64(&a, id_of(2));
    tasks_add_u64(&a, MEMORY);  // fits only when the first has gone
    assert_int_equal(frame(CLIENT, TASKS_ALLOC, &a), 0);
    buf_clear(&rig.sent);
    turn();
    assert_int_equal(rig.sent.len, 0);
    release(id_of(1));
    turn();
    assert_true(rig.sent.len > 0);
    tasks_pool_close(rig.pool, CLIENT, rig.now);  // before it was whole
    turn();
    assert_empty();
    end();
}

// Reads all that was sent: how many values were announced, how many bytes of shared ones came.
static void read_outside(uint32_t *values, uint64_t *bytes) {
    while (rig.outside.len) {
        size_t at = 0, len;
        enum tasks_frame type;
        const char *body;
        while (tasks_next_frame(&rig.outside, &at, &type, &body, &len) > 0) {
            *values += type == TASKS_VALUE;
            *bytes += type == TASKS_DATA ? len - sizeof(uint64_t) : 0;
        }
        assert_int_equal(at, rig.outside.len);
        buf_clear(&rig.outside);
        tasks_pool_drained(rig.pool, OUTSIDE);
    }
}

// A client on another machine that reads slowly: values that waited until it had read come once each.
static void test_slow_reader(void **state) {
    enum { UNREAD = 5 << 20, SIZE = 300000, VALUES = 4 };
    uint32_t values = 0;
    uint64_t bytes = 0;
    begin(1, 0);
    tasks_pool_open(rig.pool, OUTSIDE, TASKS_CLIENT, false, false, 0);
    for (uint64_t i = 1; i <= VALUES; i++) {  // small and shared ones in turn
        cleanup_buf struct buf b = {0};
        tasks_add_u64(&b, (uint64_t)OUTSIDE << 40 | i);
        if (i % 2) {
            tasks_add_u16(&b, 0);
            assert_int_equal(frame(OUTSIDE, TASKS_PUT, &b), 0);
            continue;
        }
        tasks_add_u64(&b, SIZE);
        assert_int_equal(frame(OUTSIDE, TASKS_ALLOC, &b), 0);
        b.len = sizeof(uint64_t);
        tasks_add_u16(&b, 0);
        assert_int_equal(frame(OUTSIDE, TASKS_SEAL, &b), 0);
    }
    buf_clear(&rig.outside);
    buf_reserve(&rig.outside, UNREAD);
    rig.outside.len = UNREAD;
    for (uint64_t i = 1; i <= VALUES; i++) {
        cleanup_buf struct buf b = {0};
        tasks_add_u64(&b, (uint64_t)OUTSIDE << 40 | i);
        assert_int_equal(frame(OUTSIDE, TASKS_GET, &b), 0);
    }
    assert_int_equal(rig.outside.len, UNREAD);
    buf_clear(&rig.outside);
    tasks_pool_drained(rig.pool, OUTSIDE);
    read_outside(&values, &bytes);
    assert_int_equal(values, VALUES);
    assert_int_equal(bytes, VALUES / 2 * SIZE);
    tasks_pool_close(rig.pool, OUTSIDE, rig.now);
    assert_empty();
    end();
}

static void test_space(void **state) {
    struct tasks_space s;
    struct rand r;
    struct tasks_hole taken[64] = {0};
    rand_seed(&r, 7);
    tasks_space_init(&s, 256 * TASKS_SPACE_UNIT);
    for (int i = 0; i < 20000; i++) {
        struct tasks_hole *t = &taken[rand_below(&r, 64)];
        if (t->size) {
            tasks_space_give(&s, t->at, t->size);
            t->size = 0;
            continue;
        }
        uint64_t size = 1 + rand_below(&r, 20 * TASKS_SPACE_UNIT);
        if (!tasks_space_take(&s, size, &t->at))
            continue;
        t->size = size;
        for (int k = 0; k < 64; k++)
            if (&taken[k] != t && taken[k].size)
                assert_true(taken[k].at + taken[k].size <= t->at || t->at + t->size <= taken[k].at);
    }
    for (int k = 0; k < 64; k++)
        if (taken[k].size)
            tasks_space_give(&s, taken[k].at, taken[k].size);
    assert_int_equal(s.used, 0);
    assert_int_equal(s.holes.len, 1);
    tasks_space_done(&s);
}

static void test_hostile(void **state) {
    begin(1, 0);
    assert_true(submit((uint64_t)77 << 40 | 1, 0, 0, 0, 0, 0, NULL, 0) < 0);  // of another connection
    assert_int_equal(submit(id_of(1), 0, 0, 0, 0, 0, NULL, 0), 0);
    assert_true(submit(id_of(1), 0, 0, 0, 0, 0, NULL, 0) < 0);
    cleanup_buf struct buf b = {0};
    assert_int_equal(frame(CLIENT, TASKS_DONE, &b), -EPROTO);
    assert_int_equal(frame(CLIENT, TASKS_SUBMIT, &b), -EPROTO);
    cleanup_buf struct buf in = {0};
    size_t at = 0, len;
    enum tasks_frame type;
    const char *body;
    tasks_add_u32(&in, UINT32_MAX);
    tasks_add_u8(&in, 1);
    assert_int_equal(tasks_next_frame(&in, &at, &type, &body, &len), -EPROTO);
    release(id_of(1));
    run_all();
    assert_empty();
    end();
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_values_and_dependencies),
        cmocka_unit_test(test_failures_reach_dependents),
        cmocka_unit_test(test_actor),
        cmocka_unit_test(test_what_is_not_read_is_taken_back),
        cmocka_unit_test(test_calls_behind_one_that_fails),
        cmocka_unit_test(test_calls_beside_one_that_is_cancelled),
        cmocka_unit_test(test_actor_killed_while_it_waits_for_a_restart),
        cmocka_unit_test(test_actor_whose_process_does_not_begin),
        cmocka_unit_test(test_killed_worker_gets_nothing_more),
        cmocka_unit_test(test_random_histories),
        cmocka_unit_test(test_shared_memory),
        cmocka_unit_test(test_slow_reader),
        cmocka_unit_test(test_space),
        cmocka_unit_test(test_hostile),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
