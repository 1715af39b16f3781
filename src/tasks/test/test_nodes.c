// Pools over several nodes: values are brought where they are needed and never freed while they move; when a node is
// lost every task ends exactly once all the same, a value that can be made again is, and nothing is left in any memory.
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
#include "tasks/link.h"
#include "tasks/pool.h"
#include "tasks/space.h"

enum { CLIENT = 1, FIRST_CONN = 1000, WORKERS = 4096, NODES = 64, MEMORY = 16 << 20, VALUE = 5000 };

struct packet {
    char *data;
    size_t len;
};

struct simulated {
    bool alive, quit, asked_back;
    uint32_t node;
    VEC(struct packet) unread;
    uint64_t task;
};

struct move {
    uint32_t to, from;
    uint64_t id, at, size, from_at;
};

struct rig {
    struct tasks_pool *pool;
    struct simulated workers[WORKERS];
    uint32_t nworkers;
    bool nodes[NODES];
    struct buf sent, asked;
    VEC(struct move) moves;
    int64_t now;
};

static struct rig rig;

static void do_send(void *ctx, uint32_t conn, const struct buf *frames) {
    buf_add(conn == CLIENT ? &rig.sent : &rig.asked, frames->data, frames->len);
    if (conn != CLIENT)
        buf_clear(&rig.asked);
}

static size_t do_unsent(void *ctx, uint32_t conn) {
    return 0;
}

static void do_start(void *ctx, uint32_t node, uint32_t worker, const char *gpus) {
    assert_true(worker < WORKERS && rig.nodes[node]);
    rig.workers[worker] = (struct simulated){.alive = true, .node = node};
    rig.nworkers = worker + 1;
    tasks_pool_open(rig.pool, FIRST_CONN + worker, TASKS_WORKER, true, true, worker);
}

static int do_give(void *ctx, uint32_t worker, const struct buf *packet) {
    struct simulated *w = &rig.workers[worker];
    assert_true(w->alive);
    vec_push(&w->unread, (struct packet){xmemdup(packet->data, packet->len), packet->len});
    return 0;
}

static bool do_take_back(void *ctx, uint32_t worker, struct buf *packet) {
    struct simulated *w = &rig.workers[worker];
    assert_int_equal(w->node, 0);
    if (!w->unread.len)
        return false;
    buf_add(packet, w->unread.at[0].data, w->unread.at[0].len);
    free(w->unread.at[0].data);
    vec_remove(&w->unread, 0);
    return true;
}

static void do_ask_back(void *ctx, uint32_t worker) {
    assert_true(rig.workers[worker].node);
    rig.workers[worker].asked_back = true;
}

static void do_stop(void *ctx, uint32_t worker, bool kill) {
    rig.workers[worker].quit = true;
}

static void do_output(void *ctx, uint32_t worker, struct buf *out) {
}

static void do_fill(void *ctx, uint64_t at, uint64_t size) {
}

static void do_drop(void *ctx, uint32_t node, uint64_t at, uint64_t size) {
    assert_true(rig.nodes[node] && at + size <= MEMORY);
}

static void do_fetch(void *ctx, uint32_t to, uint64_t id, uint64_t at, uint64_t size, uint32_t from,
                     uint64_t from_at) {
    assert_true(rig.nodes[to] && rig.nodes[from] && to != from && at + size <= MEMORY && from_at + size <= MEMORY);
    vec_push(&rig.moves, (struct move){to, from, id, at, size, from_at});
}

static uint8_t *do_memory(void *ctx, uint64_t at) {
    return NULL;
}

static const struct tasks_host host = {do_send, do_unsent, do_start, do_give,  do_take_back, do_ask_back,
                                       do_stop, do_output, do_fill,  do_drop, do_fetch,     do_memory};

static uint32_t add_node(void) {
    struct tasks_node n = {.name = "n", .cpus = 2, .workers = 8, .memory_bytes = MEMORY};
    uint32_t number = tasks_pool_node_joined(rig.pool, &n, rig.now);
    assert_true(number < NODES);
    rig.nodes[number] = true;
    return number;
}

static void begin(uint32_t others) {
    struct tasks_options o = {.name = "head", .cpus = 2, .workers = 8, .memory_bytes = MEMORY, .held_bytes = 1 << 20};
    memset(&rig, 0, sizeof rig);
    rig.nodes[0] = true;
    rig.pool = tasks_pool_new(&o, &host, NULL);
    tasks_pool_open(rig.pool, CLIENT, TASKS_CLIENT, true, true, 0);
    for (uint32_t i = 0; i < others; i++)
        add_node();
}

static void unread_free(struct simulated *w) {
    for (uint32_t k = 0; k < w->unread.len; k++)
        free(w->unread.at[k].data);
    vec_done(&w->unread);
}

static void end(void) {
    tasks_pool_free(rig.pool);
    for (uint32_t i = 0; i < rig.nworkers; i++)
        unread_free(&rig.workers[i]);
    vec_done(&rig.moves);
    buf_done(&rig.sent);
    buf_done(&rig.asked);
}

static int frame(uint32_t conn, enum tasks_frame type, const struct buf *body) {
    return tasks_pool_frame(rig.pool, conn, type, body->len ? body->data : "", body->len, rig.now);
}

static uint64_t id_of(uint32_t n) {
    return (uint64_t)CLIENT << 40 | n;
}

static void submit(uint32_t n, uint16_t retries, const uint64_t *uses, uint16_t nuses) {
    cleanup_buf struct buf b = {0};
    tasks_add_u64(&b, id_of(n));
    tasks_add_u64(&b, 0);
    tasks_add_u64(&b, 0);
    tasks_add_u32(&b, 1000);
    tasks_add_u32(&b, 0);
    tasks_add_u16(&b, retries);
    tasks_add_u8(&b, TASKS_WANT);
    tasks_add_u8(&b, 1);
    tasks_add_u16(&b, nuses);
    tasks_add_u16(&b, 0);
    buf_adds(&b, "f");
    buf_add(&b, uses, nuses * sizeof *uses);
    assert_int_equal(frame(CLIENT, TASKS_SUBMIT, &b), 0);
}

static void say_id(enum tasks_frame type, uint32_t n) {
    cleanup_buf struct buf b = {0};
    tasks_add_u64(&b, id_of(n));
    assert_int_equal(frame(CLIENT, type, &b), 0);
}

static void turn(void) {
    rig.now += 1000;
    tasks_pool_turn(rig.pool, rig.now);
}

static bool worker_reads(uint32_t worker) {
    struct simulated *w = &rig.workers[worker];
    if (!w->unread.len || w->task)
        return false;
    memcpy(&w->task, w->unread.at[0].data + 1, sizeof w->task);
    free(w->unread.at[0].data);
    vec_remove(&w->unread, 0);
    return true;
}

// With a large value, which lies on the worker's node.
static void worker_done(uint32_t worker, bool large) {
    cleanup_buf struct buf a = {0}, b = {0};
    uint64_t id = rig.workers[worker].task;
    rig.workers[worker].task = 0;
    if (large) {
        tasks_add_u64(&a, id);
        tasks_add_u64(&a, VALUE);
        assert_int_equal(frame(FIRST_CONN + worker, TASKS_ALLOC, &a), 0);
    }
    tasks_add_u64(&b, id);
    tasks_add_u8(&b, 0);
    tasks_add_u8(&b, large);
    tasks_add_u32(&b, 10);
    tasks_add_u16(&b, 0);
    assert_int_equal(frame(FIRST_CONN + worker, TASKS_DONE, &b), 0);
}

static void give_back(uint32_t worker) {
    struct simulated *w = &rig.workers[worker];
    cleanup_buf struct buf ids = {0};
    for (uint32_t i = 0; i < w->unread.len; i++)
        buf_add(&ids, w->unread.at[i].data + 1, sizeof(uint64_t));
    unread_free(w);
    w->asked_back = false;
    tasks_pool_returned(rig.pool, worker, (const uint8_t *)ids.data, ids.len / sizeof(uint64_t), rig.now);
}

static void worker_ends(uint32_t worker) {
    struct simulated *w = &rig.workers[worker];
    if (w->node)
        give_back(worker);
    w->alive = false;
    w->task = 0;
    tasks_pool_worker_ended(rig.pool, worker, "signal 9", rig.now);
    tasks_pool_close(rig.pool, FIRST_CONN + worker, rig.now);
    unread_free(w);
}

static void lose(uint32_t node) {
    rig.nodes[node] = false;
    for (uint32_t i = 0; i < rig.nworkers; i++)
        if (rig.workers[i].node == node) {
            rig.workers[i].alive = false;
            rig.workers[i].task = 0;
        }
    for (uint32_t i = 0; i < rig.moves.len; i++)
        if (rig.moves.at[i].to == node)
            vec_remove(&rig.moves, i--);
    tasks_pool_node_lost(rig.pool, node, rig.now);
}

static void finish_move(uint32_t i) {
    struct move m = rig.moves.at[i];
    vec_remove(&rig.moves, i);
    tasks_pool_fetched(rig.pool, m.to, m.id, rig.nodes[m.from], rig.now);
}

static void run_all(bool large) {
    for (bool any = true; any;) {
        any = false;
        turn();
        while (rig.moves.len) {
            finish_move(0);
            any = true;
        }
        for (uint32_t i = 0; i < rig.nworkers; i++) {
            struct simulated *w = &rig.workers[i];
            if (w->alive && w->asked_back) {
                give_back(i);
                any = true;
            }
            while (w->alive && (w->task || worker_reads(i))) {
                worker_done(i, large);
                any = true;
            }
            if (w->alive && w->quit) {
                worker_ends(i);
                any = true;
            }
        }
    }
}

static void count_values(uint8_t *counts, uint8_t *kinds, uint32_t n) {
    size_t at = 0, len;
    enum tasks_frame type;
    const char *body;
    while (tasks_next_frame(&rig.sent, &at, &type, &body, &len) > 0) {
        uint64_t id;
        memcpy(&id, body, sizeof id);
        if (type != TASKS_VALUE || (id & 0xffffff) >= n)
            continue;
        counts[id & 0xffffff]++;
        kinds[id & 0xffffff] = (uint8_t)body[8];
    }
    buf_clear(&rig.sent);
}

static void assert_empty(void) {
    struct tasks_counts c = tasks_pool_counts(rig.pool);
    assert_int_equal(c.objects, 0);
    assert_int_equal(c.tasks, 0);
    assert_int_equal(c.used_bytes, 0);
    assert_int_equal(c.held_bytes, 0);
}

// The worker of a node that has something to do.
static uint32_t busy_on(uint32_t node) {
    for (uint32_t i = 0; i < rig.nworkers; i++)
        if (rig.workers[i].alive && rig.workers[i].node == node && (rig.workers[i].task || worker_reads(i)))
            return i;
    return UINT32_MAX;
}

static void test_a_result_comes_when_it_is_asked_for(void **state) {
    uint8_t counts[8] = {0}, kinds[8] = {0};
    begin(1);
    for (uint32_t i = 1; i <= 4; i++)
        submit(i, 1, NULL, 0);
    run_all(true);
    count_values(counts, kinds, 8);
    uint32_t elsewhere = 0;
    for (uint32_t i = 1; i <= 4; i++)
        elsewhere = kinds[i] == TASKS_VALUE_ELSEWHERE ? i : elsewhere;
    assert_true(elsewhere);
    say_id(TASKS_GET, elsewhere);
    say_id(TASKS_GET, elsewhere);  // moves once
    turn();
    assert_int_equal(rig.moves.len, 1);
    for (uint32_t i = 1; i <= 4; i++)
        say_id(TASKS_RELEASE, i);
    assert_true(tasks_pool_counts(rig.pool).objects > 0);  // not while it moves
    finish_move(0);
    run_all(true);
    assert_empty();
    end();
}

static void test_a_lost_value_is_made_again(void **state) {
    uint8_t counts[8] = {0}, kinds[8] = {0};
    begin(1);
    for (uint32_t i = 1; i <= 4; i++)
        submit(i, 2, NULL, 0);
    turn();
    uint32_t worker = busy_on(1);
    assert_int_not_equal(worker, UINT32_MAX);
    uint32_t first = (uint32_t)rig.workers[worker].task;
    submit(5, 2, (uint64_t[]){id_of(first)}, 1);  // used by what is lost with it
    run_all(true);
    say_id(TASKS_RELEASE, first);  // its value goes, what made it is known
    turn();
    lose(1);
    count_values(counts, kinds, 8);
    for (uint32_t i = 1; i <= 5; i++)
        if (i != first)
            say_id(TASKS_GET, i);
    run_all(true);
    memset(counts, 0, sizeof counts);
    count_values(counts, kinds, 8);
    for (uint32_t i = 1; i <= 5; i++)
        if (i != first)
            assert_int_equal(kinds[i], TASKS_VALUE_SHARED);
    for (uint32_t i = 1; i <= 5; i++)
        if (i != first)
            say_id(TASKS_RELEASE, i);
    run_all(true);
    assert_empty();
    end();
}

static void test_what_may_not_be_repeated_is_lost(void **state) {
    uint8_t counts[8] = {0}, kinds[8] = {0};
    begin(1);
    for (uint32_t i = 1; i <= 4; i++)
        submit(i, 0, NULL, 0);
    run_all(true);
    count_values(counts, kinds, 8);
    lose(1);
    for (uint32_t i = 1; i <= 4; i++)
        if (kinds[i] == TASKS_VALUE_ELSEWHERE)
            say_id(TASKS_GET, i);
    uint8_t before[8];
    memcpy(before, kinds, sizeof before);
    run_all(true);
    count_values(counts, kinds, 8);
    for (uint32_t i = 1; i <= 4; i++) {
        if (before[i] == TASKS_VALUE_ELSEWHERE)
            assert_int_equal(kinds[i], TASKS_VALUE_ERROR);
        say_id(TASKS_RELEASE, i);
    }
    run_all(true);
    assert_empty();
    end();
}

static void random_step(struct rand *r, uint32_t *made, uint32_t most, bool *released) {
    uint32_t worker = rig.nworkers ? (uint32_t)rand_below(r, rig.nworkers) : 0;
    struct simulated *w = &rig.workers[worker];
    uint64_t what = rand_below(r, 100);
    if (what < 25 && *made < most) {
        uint64_t uses[3];
        uint16_t n = 0;
        for (uint64_t i = *made ? rand_below(r, 4) : 0; i; i--) {
            uint32_t one = 1 + (uint32_t)rand_below(r, *made);
            if (!released[one])
                uses[n++] = id_of(one);
        }
        submit(++*made, (uint16_t)rand_below(r, 5), uses, n);
    } else if (what < 45 && w->alive) {
        worker_reads(worker);
    } else if (what < 70 && w->alive && w->task) {
        worker_done(worker, rand_below(r, 3) != 0);
    } else if (what < 85 && rig.moves.len) {
        finish_move((uint32_t)rand_below(r, rig.moves.len));
    } else if (what < 88 && w->alive && w->asked_back) {
        give_back(worker);
    } else if (what < 90 && w->alive) {
        worker_ends(worker);
    } else if (what < 91) {
        uint32_t node = 1 + (uint32_t)rand_below(r, NODES - 1);
        if (rig.nodes[node])
            lose(node);
    } else if (what < 92) {
        uint32_t nodes = 0, all = 0;
        for (uint32_t i = 0; i < NODES; i++)
            nodes += rig.nodes[i];
        for (uint32_t i = 0; i < NODES; i++)
            all = rig.nodes[i] ? i : all;
        if (nodes < 4 && all < NODES - 2 && *made < most)
            add_node();
    } else if (*made) {
        uint32_t one = 1 + (uint32_t)rand_below(r, *made);
        if (!released[one] && what < 96)
            say_id(TASKS_GET, one);
        else if (!released[one] && what < 97) {
            say_id(TASKS_RELEASE, one);
            released[one] = true;
        } else if (what == 98 && !released[one]) {
            cleanup_buf struct buf b = {0};
            tasks_add_u64(&b, id_of(one));
            tasks_add_u8(&b, rand_below(r, 2) != 0);
            assert_int_equal(frame(CLIENT, TASKS_CANCEL, &b), 0);
        }
    }
    turn();
}

static void random_history(uint64_t seed) {
    enum { N = 300 };
    struct rand r;
    static uint8_t counts[N + 1], kinds[N + 1];
    bool released[N + 1] = {0};
    uint32_t made = 0;
    rand_seed(&r, seed);
    begin(2);
    for (int step = 0; step < 3000; step++)
        random_step(&r, &made, N, released);
    run_all(true);
    memset(counts, 0, sizeof counts);
    count_values(counts, kinds, N + 1);
    for (uint32_t i = 1; i <= made; i++)
        if (!released[i] && !counts[i])
            fail_msg("seed %llu: task %u has not ended", (unsigned long long)seed, i);
    for (uint32_t i = 1; i <= made; i++)
        if (!released[i])
            say_id(TASKS_GET, i);
    run_all(true);
    memset(counts, 0, sizeof counts);
    count_values(counts, kinds, N + 1);
    for (uint32_t i = 1; i <= made; i++) {
        if (!released[i] && counts[i] != 1)
            fail_msg("seed %llu: value %u came %u times", (unsigned long long)seed, i, counts[i]);
        if (!released[i])
            say_id(TASKS_RELEASE, i);
    }
    run_all(true);
    assert_empty();
    end();
}

static void test_random_histories(void **state) {
    for (uint64_t seed = 1; seed <= 200; seed++)
        random_history(seed);
}

// --- connections ---

static void carry(struct tasks_link *from, struct tasks_link *to) {
    buf_add(&to->in, from->out.data, from->out.len);
    buf_clear(&from->out);
}

static void open_links(struct tasks_link *a, struct tasks_link *b, const uint8_t *key) {
    enum tasks_link_frame type;
    const char *body;
    size_t len;
    assert_int_equal(tasks_link_init(a, false, key) | tasks_link_init(b, true, key), 0);
    carry(a, b);
    assert_int_equal(tasks_link_next(b, &type, &body, &len), 0);
    carry(b, a);
    assert_int_equal(tasks_link_next(a, &type, &body, &len), 0);
    assert_true(a->open && !b->open);
    carry(a, b);
    assert_int_equal(tasks_link_next(b, &type, &body, &len), 0);
    assert_true(b->open);
}

static void test_records_cannot_be_changed(void **state) {
    const uint8_t key[LINK_KEY_BYTES] = "a key";
    for (uint32_t bit = 0; bit < 8 * (4 + 1 + 9 + 16); bit++) {
        struct tasks_link a, b;
        enum tasks_link_frame type;
        const char *body;
        size_t len;
        open_links(&a, &b, key);
        tasks_link_send(&a, LINK_GIVE, "head", 4, "body ", 5);
        assert_null(memmem(a.out.data, a.out.len, "body", 4));
        if (bit == 0) {  // as it is, then once more
            cleanup_buf struct buf again = {0};
            buf_add(&again, a.out.data, a.out.len);
            carry(&a, &b);
            assert_int_equal(tasks_link_next(&b, &type, &body, &len), 1);
            assert_int_equal(type, LINK_GIVE);
            assert_string_equal(body, "headbody ");
            assert_int_equal(tasks_link_next(&b, &type, &body, &len), 0);
            buf_add(&b.in, again.data, again.len);
            assert_int_equal(tasks_link_next(&b, &type, &body, &len), -EBADMSG);
        } else {
            a.out.data[bit / 8] = (char)(a.out.data[bit / 8] ^ 1 << bit % 8);
            carry(&a, &b);
            assert_true(tasks_link_next(&b, &type, &body, &len) <= 0);  // a longer record has not come yet
        }
        tasks_link_done(&a);
        tasks_link_done(&b);
    }
}

static void test_another_key_is_refused(void **state) {
    const uint8_t key[LINK_KEY_BYTES] = "a key", other[LINK_KEY_BYTES] = "another";
    struct tasks_link a, b;
    enum tasks_link_frame type;
    const char *body;
    size_t len;
    assert_int_equal(tasks_link_init(&a, false, key) | tasks_link_init(&b, true, other), 0);
    carry(&a, &b);
    assert_int_equal(tasks_link_next(&b, &type, &body, &len), 0);
    cleanup_buf struct buf answer = {0};
    buf_add(&answer, b.out.data, b.out.len);
    carry(&b, &a);
    assert_int_equal(tasks_link_next(&a, &type, &body, &len), -EPERM);
    buf_add(&b.in, answer.data + LINK_NONCE_BYTES, LINK_NONCE_BYTES);  // its own proof, sent back
    assert_int_equal(tasks_link_next(&b, &type, &body, &len), -EPERM);
    tasks_link_done(&a);
    tasks_link_done(&b);
    uint8_t read[LINK_KEY_BYTES];
    assert_int_equal(tasks_link_key("00", read), -EINVAL);
    assert_int_equal(tasks_link_key("g000000000000000000000000000000000000000000000000000000000000000", read), -EINVAL);
    assert_int_equal(tasks_link_key("ff00000000000000000000000000000000000000000000000000000000000001", read), 0);
    assert_int_equal(read[0], 0xff);
    assert_int_equal(read[31], 1);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_a_result_comes_when_it_is_asked_for),
        cmocka_unit_test(test_a_lost_value_is_made_again),
        cmocka_unit_test(test_what_may_not_be_repeated_is_lost),
        cmocka_unit_test(test_random_histories),
        cmocka_unit_test(test_records_cannot_be_changed),
        cmocka_unit_test(test_another_key_is_refused),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
