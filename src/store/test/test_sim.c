// The simulated disk's own promises: one seed, one outcome; a crash keeps whole transactions; a
// failed commit may turn out to have happened; a full disk lets the reserve through first.
#include "lab.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "base/rand.h"
#include "store/sim_store.h"

struct outcome {
    uint64_t hash, acked, crashes, failures, ghosts;
};

// A controller's life on a bad disk: submit, poll, retry, crash, come back.
static struct outcome live(uint64_t seed) {
    struct outcome out = {0};
    struct rand rand;
    rand_seed(&rand, seed);
    struct sim_disk *disk = sim_disk_new(seed);
    sim_disk_faults(disk, &(struct sim_disk_faults){
        .fail_permille = 100, .slow_permille = 50, .rot_permille = 200, .commit_ms_min = 1,
        .commit_ms_max = 4, .slow_ms = 40});
    int64_t now = 0;
    uint64_t seq = 0;
    for (int life = 0; life < 10; life++) {
        struct lab_watch watch = {0};
        struct store_config config = lab_config("", &watch);
        struct store *s = NULL;
        assert_int_equal(sim_store_open(disk, &config, &s, NULL), 0);
        uint64_t found = lab_load(s, NULL);
        assert_true(found >= out.acked && found <= seq);
        out.ghosts += found - out.acked;
        seq = found;
        for (int step = 0; step < 60; step++) {
            now += (int64_t)rand_below(&rand, 4);
            sim_disk_tick(disk, now);
            store_poll(s);
            if (watch.seq)
                out.acked = watch.seq;
            if (rand_below(&rand, 3) == 0)
                store_retry(s);
            uint64_t count = rand_below(&rand, 3);
            if (count)
                store_submit(s, lab_batch(seq + 1, count, 30));
            seq += count;
            if (out.acked && rand_below(&rand, 20) == 0)
                store_snapshot(s, out.acked, &out.acked, sizeof out.acked);
        }
        out.failures += watch.failures;
        sim_store_crash(s);
        out.crashes++;
    }
    out.hash = sim_disk_hash(disk);
    sim_disk_free(disk);
    return out;
}

static void test_lives(void **state) {
    uint64_t failures = 0, ghosts = 0;
    for (uint64_t seed = 1; seed <= 300; seed++) {
        struct outcome a = live(seed);
        failures += a.failures;
        ghosts += a.ghosts;
        if (seed % 10 == 0) {
            struct outcome b = live(seed);
            assert_memory_equal(&a, &b, sizeof a);
        }
    }
    assert_true(failures > 100 && ghosts > 100);
}

static void test_full(void **state) {
    struct sim_disk *disk = sim_disk_new(1);
    struct sim_disk_faults faults = {.capacity_bytes = 20000};
    sim_disk_faults(disk, &faults);
    struct lab_watch watch = {0};
    struct store_config config = lab_config("", &watch);
    config.reserve_bytes = 5000;
    config.low_bytes = 2000;
    struct store *s = NULL;
    assert_int_equal(sim_store_open(disk, &config, &s, NULL), 0);
    lab_load(s, NULL);
    enum store_space seen = STORE_SPACE_OK;
    uint64_t seq = 0;
    while (!watch.failures) {
        store_submit(s, lab_batch(++seq, 1, 200));
        store_flush(s);
        enum store_space space = store_space(s);
        assert_true(space >= seen);
        assert_true(space <= seen + 1);  // low is said before critical
        seen = space;
    }
    assert_int_equal(watch.failure.code, ENOSPC);
    assert_int_equal(seen, STORE_SPACE_CRITICAL);
    faults.capacity_bytes = 100000;
    sim_disk_faults(disk, &faults);
    store_retry(s);
    store_flush(s);
    assert_int_equal(watch.seq, seq);
    assert_int_equal(store_space(s), STORE_SPACE_OK);
    store_close(s);
    sim_disk_free(disk);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_lives),
        cmocka_unit_test(test_full),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
