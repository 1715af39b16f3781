// Ends of the process at any moment: kill -9 in the middle of commits, and power cuts that lose a
// random part of what was not synced. What was acknowledged must be there, in order, and nothing
// that was never handed over.
#include "lab.h"

#include <signal.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/rand.h"
#include "base/text.h"
#include "shim.h"

enum { WAIT_MAX_MS = 60000 };

struct shared {
    _Atomic uint64_t acked, submitted, snapshots;
};

// Rounds are few in the everyday run; ACEQUIA_CRASH_ROUNDS asks for more.
static unsigned rounds(unsigned fallback) {
    const char *asked = getenv("ACEQUIA_CRASH_ROUNDS");
    uint32_t n = 0;
    return asked && parse_u32(asked, &n) == 0 ? n : fallback;
}

static void note_ack(void *ctx, uint64_t ticket, uint64_t seq) {
    ((struct shared *)ctx)->acked = seq;
}

static void note_snapshot(void *ctx, uint64_t seq, const struct error *e) {
    if (!e)
        ((struct shared *)ctx)->snapshots = seq;
}

// Several pieces, so that it can be cut off in the middle; the loader looks at its first bytes.
static void snapshot(struct store *s, uint64_t seq) {
    static uint64_t bytes[100000];
    for (size_t i = 0; i < sizeof bytes / sizeof *bytes; i++)
        bytes[i] = seq;
    store_snapshot(s, seq, bytes, sizeof bytes);
}

// Submits until killed: batches of random sizes, now and then a snapshot of what is acknowledged.
static void child(const char *folder, const char *vfs, struct shared *shared, uint64_t seed,
                  unsigned cut_at) {
    struct rand rand;
    rand_seed(&rand, seed);
    struct store_config config = {.path = folder, .vfs = vfs,
                                  .watch = {shared, note_ack, NULL, note_snapshot}};
    struct store *s = NULL;
    struct error e = {0};
    if (store_open(&config, &s, &e) < 0) {
        fprintf(stderr, "child: %s\n", e.text);
        _exit(1);
    }
    uint64_t seq = lab_load(s, NULL);
    if (cut_at)
        shim_arm(SHIM_POWER_CUT, cut_at, 1, seed);
    for (;;) {
        uint64_t count = 1 + rand_below(&rand, 20);
        shared->submitted = seq + count;
        store_submit(s, lab_batch(seq + 1, count, rand_below(&rand, 600)));
        seq += count;
        store_poll(s);
        uint64_t acked = shared->acked;
        if (acked > 0 && rand_below(&rand, 40) == 0)
            snapshot(s, acked);
        if (seq > acked + 2000)
            store_flush(s);
    }
}

static void check_folder(const char *folder, const struct shared *shared) {
    struct lab_watch watch = {0};
    struct store_config config = lab_config(folder, &watch);
    struct store *s = NULL;
    struct error e = {0};
    if (store_open(&config, &s, &e) < 0)
        fail_msg("open after the crash: %s", e.text);
    struct lab_check check;
    uint64_t last = lab_load(s, &check);
    if (last < shared->acked || last > shared->submitted)
        fail_msg("acknowledged %llu, handed over %llu, found %llu",
                 (unsigned long long)shared->acked, (unsigned long long)shared->submitted,
                 (unsigned long long)last);
    if (shared->snapshots)
        assert_true(check.snapshot_seq >= shared->snapshots);
    if (store_check(s, &e) < 0)
        fail_msg("check after the crash: %s", e.text);
    store_close(s);
}

static struct shared *share(void) {
    void *p = mmap(NULL, sizeof(struct shared), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS,
                   -1, 0);
    assert_true(p != MAP_FAILED);
    return p;
}

static void test_kill(void **state) {
    char *folder = lab_folder();
    struct shared *shared = share();
    struct rand rand;
    rand_seed(&rand, 11);
    uint64_t reached = 0;
    for (unsigned i = 0; i < rounds(25); i++) {
        shared->snapshots = 0;
        pid_t pid = fork();
        if (pid == 0)
            child(folder, NULL, shared, i, 0);
        usleep((useconds_t)rand_between(&rand, 1000, 60000));
        // Every other one also gets as far as this, on a busy machine too.
        int64_t until_ms = clock_mono_ms() + WAIT_MAX_MS;
        while (i % 2 && shared->acked < reached + 100 && clock_mono_ms() < until_ms)
            usleep(100);
        kill(pid, SIGKILL);
        int status = 0;
        waitpid(pid, &status, 0);
        assert_true(WIFSIGNALED(status));
        check_folder(folder, shared);
        reached = shared->acked;
    }
    assert_true(reached > 1000);
    munmap(shared, sizeof *shared);
    lab_remove(folder);
}

static void test_power_cut(void **state) {
    struct shared *shared = share();
    struct rand rand;
    rand_seed(&rand, 12);
    for (unsigned i = 0; i < rounds(60); i++) {
        char *folder = lab_folder();
        *shared = (struct shared){0};
        pid_t pid = fork();
        if (pid == 0)
            child(folder, SHIM_VFS, shared, i, (unsigned)rand_below(&rand, 1500) + 1);
        rand_u64(&rand);
        int status = 0;
        waitpid(pid, &status, 0);
        assert_true(WIFEXITED(status) && WEXITSTATUS(status) == 0);
        check_folder(folder, shared);
        lab_remove(folder);
    }
    munmap(shared, sizeof *shared);
}

int main(void) {
    shim_register();
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_kill),
        cmocka_unit_test(test_power_cut),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
