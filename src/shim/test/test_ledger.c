// The ledger: limits, refunds, real processes killed at random moments, and its own steps
// interleaved and cut off at every point by a seeded scheduler.
#include <errno.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <cmocka.h>
#include <pthread.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <time.h>
#include <ucontext.h>

static void test_step(void);
#define LEDGER_STEP() test_step()
#include "../ledger.c"

enum { MIB = 1 << 20 };

static char dir[] = "/tmp/acequia-ledger-XXXXXX";
static char path[LEDGER_PATH_MAX];

static void fresh(uint64_t memory_bytes) {
    struct ledger_limits limits = {.memory_bytes = memory_bytes, .compute_milli = 500};
    assert_int_equal(ledger_create(path, "job-1", "GPU-abc", &limits, 0600, true), 0);
}

static struct ledger *open_attached(void) {
    struct ledger *l = NULL;
    assert_int_equal(ledger_open(path, &l), 0);
    assert_int_equal(ledger_attach(l), 0);
    return l;
}

static uint64_t rng = 1;
static uint32_t rnd(uint32_t below) {
    rng = rng * 6364136223846793005ULL + 1442695040888963407ULL;
    return (uint32_t)(rng >> 33) % below;
}

static uint64_t slots_sum(struct ledger_file *f) {
    uint64_t sum = 0;
    help(f, f->total);
    for (unsigned i = 0; i < LEDGER_SLOTS; i++)
        sum += slot_pages(f->slot[i].charged);
    return sum;
}

static void limits_hold(void **state) {
    fresh(10 * MIB);
    struct ledger *a = open_attached(), *b = open_attached();
    assert_int_equal(ledger_reserve(a, LEDGER_DEVICE, 6 * MIB), 0);
    assert_int_equal(ledger_reserve(b, LEDGER_VMM, 4 * MIB + 1), -ENOMEM);
    assert_int_equal(ledger_reserve(b, LEDGER_VMM, 4 * MIB), 0);
    assert_int_equal(ledger_used(a), 10 * MIB);
    assert_int_equal(ledger_own(a), 6 * MIB);
    assert_int_equal(ledger_reserve(a, LEDGER_DEVICE, UINT64_MAX), -ENOMEM);
    ledger_charge(a, LEDGER_CONTEXT, 3 * MIB);
    ledger_refund(a, LEDGER_DEVICE, 6 * MIB);
    ledger_refund(a, LEDGER_DEVICE, 64 * MIB); // more than it holds: refused, nothing breaks
    struct ledger_usage u;
    assert_int_equal(ledger_sample(path, &u), 0);
    assert_int_equal(u.used_bytes, 7 * MIB);
    assert_int_equal(u.peak_bytes, 13 * MIB);
    assert_int_equal(u.overdraft_bytes, 3 * MIB);
    assert_int_equal(u.refused, 2);
    assert_int_equal(u.nprocesses, 2);
    assert_true(u.process[0].same_namespace && u.process[0].pid == getpid());
    assert_int_equal(u.process[1].kind_bytes[LEDGER_VMM], 4 * MIB);
    assert_string_equal(u.job, "job-1");
    assert_string_equal(u.uuid, "abc");
    struct ledger_limits more = {.memory_bytes = 20 * MIB, .compute_milli = 250,
                                 .flags = LEDGER_BORROW};
    assert_int_equal(ledger_set_limits(path, &more), 0);
    assert_int_equal(ledger_reserve(b, LEDGER_DEVICE, 13 * MIB), 0);
    assert_int_equal(ledger_limits(b).compute_milli, 250);
    ledger_close(b);
    assert_int_equal(ledger_used(a), 3 * MIB);
    ledger_close(a);
}

static void bad_files_are_refused(void **state) {
    struct ledger *l = NULL;
    struct ledger_limits limits = {.compute_milli = 1001};
    assert_int_equal(ledger_create(path, "j", "u", &limits, 0600, true), -EINVAL);
    fresh(MIB);
    limits.compute_milli = 0;
    assert_int_equal(ledger_create(path, "j", "u", &limits, 0600, false), -EEXIST);
    assert_int_equal(truncate(path, 100), 0);
    struct ledger_usage u;
    assert_int_equal(ledger_sample(path, &u), -EBADMSG);
    assert_int_equal(ledger_open(path, &l), -EBADMSG);
    assert_int_equal(unlink(path), 0);
    assert_int_equal(ledger_open(path, &l), -ENOENT);
}

// Children reserve and refund until killed; the sum of what they say they hold never passes the
// limit, and after the last one is gone the ledger is empty.
static void killed_processes_leave_nothing(void **state) {
    enum { CHILDREN = 16, KILLS = 400 };
    fresh(64 * MIB);
    pid_t pid[CHILDREN] = {0};
    struct ledger *watch = NULL;
    assert_int_equal(ledger_open(path, &watch), 0);
    for (int kills = 0; kills < KILLS; kills++) {
        int i = (int)rnd(CHILDREN);
        if (pid[i]) {
            kill(pid[i], SIGKILL);
            if (rnd(2)) // sometimes it is left a zombie for a while
                waitpid(pid[i], NULL, 0);
        }
        pid[i] = fork();
        if (pid[i] == 0) {
            rng += (uint64_t)getpid() * 77;
            struct ledger *l = open_attached();
            for (;;) {
                uint64_t bytes = (1 + rnd(64)) * 64 * 1024;
                if (ledger_reserve(l, LEDGER_DEVICE, bytes) == 0 && rnd(3))
                    ledger_refund(l, LEDGER_DEVICE, bytes);
            }
        }
        struct timespec t = {.tv_nsec = (long)rnd(400000)};
        nanosleep(&t, NULL);
        assert_true(ledger_used(watch) <= 64 * MIB);
    }
    for (int i = 0; i < CHILDREN; i++)
        if (pid[i])
            kill(pid[i], SIGKILL);
    while (waitpid(-1, NULL, 0) > 0)
        ;
    assert_true(slots_sum(watch->file) == file_pages(watch->file->total));
    assert_int_equal(ledger_attach(watch), 0);
    ledger_reclaim_dead(watch);
    assert_int_equal(ledger_used(watch), 0);
    ledger_close(watch);
}

static void forked_child_owns_nothing(void **state) {
    fresh(64 * MIB);
    struct ledger *l = open_attached();
    assert_int_equal(ledger_reserve(l, LEDGER_DEVICE, 8 * MIB), 0);
    pid_t pid = fork();
    if (pid == 0) {
        ledger_after_fork(l);
        bool ok = !ledger_attached(l) && ledger_reserve(l, LEDGER_DEVICE, MIB) == -ESTALE;
        ok = ok && ledger_attach(l) == 0 && ledger_reserve(l, LEDGER_DEVICE, MIB) == 0;
        ok = ok && ledger_used(l) == 9 * MIB && ledger_own(l) == MIB;
        _exit(ok ? 0 : 1);
    }
    int status;
    waitpid(pid, &status, 0);
    assert_int_equal(status, 0);
    struct ledger_usage u; // the dead child is left out of the figures at once
    assert_int_equal(ledger_sample(path, &u), 0);
    assert_int_equal(u.used_bytes, 8 * MIB);
    assert_int_equal(u.nprocesses, 1);
    assert_int_equal(ledger_used(l), 9 * MIB);
    assert_int_equal(ledger_reclaim_dead(l), 1);
    assert_int_equal(ledger_used(l), 8 * MIB);
    ledger_close(l);
}

static void *thread_body(void *arg) {
    struct ledger *l = arg;
    uint64_t r = (uint64_t)(uintptr_t)&r;
    for (int i = 0; i < 3000; i++) {
        r = r * 6364136223846793005ULL + 1;
        uint64_t bytes = (1 + (r >> 40) % 200) << LEDGER_PAGE_SHIFT;
        if (ledger_reserve(l, LEDGER_DEVICE, bytes) == 0)
            ledger_refund(l, LEDGER_DEVICE, bytes);
    }
    return NULL;
}

static void threads_share_and_race(void **state) {
    fresh(MIB);
    struct ledger *l[3];
    pthread_t t[6];
    for (int i = 0; i < 3; i++)
        l[i] = open_attached();
    for (int i = 0; i < 6; i++)
        assert_int_equal(pthread_create(&t[i], NULL, thread_body, l[i / 2]), 0);
    for (int i = 0; i < 6; i++)
        pthread_join(t[i], NULL);
    assert_int_equal(ledger_used(l[0]), 0);
    for (int i = 0; i < 3; i++)
        ledger_close(l[i]);
}

// The seeded scheduler: each actor is a coroutine that yields before every shared access.
enum { ACTORS = 5, STACK = 64 * 1024, ROUNDS = 6000, ACTOR_OPS = 4 };
struct ledger_actor {
    ucontext_t at;
    struct ledger *l;
    int64_t held; // pages it knows it holds
    bool done, killed;
    int empties; // index of the dead actor it cleans up after, or -1
};
static struct ledger_actor actor[ACTORS];
static ucontext_t scheduler;
static int running = -1;
static uint64_t dead_owner;
static bool revive; // the dead one's slot is free: a new process takes it
static char stacks[ACTORS][STACK];

static void test_step(void) {
    if (running >= 0)
        swapcontext(&actor[running].at, &scheduler);
}

static void actor_body(int i) {
    struct ledger_actor *a = &actor[i];
    for (int op = 0; op < ACTOR_OPS; op++) {
        if (a->empties >= 0 && empty_slot(a->l->file, (unsigned)a->empties, dead_owner))
            revive = true;
        int64_t delta = (int64_t)rnd(40) + 1;
        if (a->held && rnd(2))
            delta = -a->held;
        if (change(a->l, delta, 100) == 0)
            a->held += delta;
    }
    a->done = true;
    swapcontext(&a->at, &scheduler);
}

static void start_actor(int i) {
    getcontext(&actor[i].at);
    actor[i].at.uc_stack.ss_sp = stacks[i];
    actor[i].at.uc_stack.ss_size = STACK;
    makecontext(&actor[i].at, (void (*)(void))(void *)actor_body, 1, i);
}

static void one_schedule(struct ledger **l) {
    int killed = -1;
    revive = false;
    for (int i = 0; i < ACTORS; i++) {
        actor[i] = (struct ledger_actor){.l = l[i], .empties = -1};
        l[i]->me = 1000 + (uint64_t)i;
        l[i]->slot = i;
        l[i]->file->slot[i].owner = l[i]->me;
        start_actor(i);
    }
    int steps = 0, kill_at = (int)rnd(120);
    for (int live = ACTORS; live > 0; steps++) {
        int i = (int)rnd(ACTORS);
        if (actor[i].done || actor[i].killed)
            continue;
        if (steps == kill_at) { // cut off here; every other one finds it dead and cleans up
            actor[i].killed = true;
            killed = i;
            dead_owner = l[i]->me;
            live--;
            for (int k = 0; k < ACTORS; k++)
                actor[k].empties = i;
            continue;
        }
        if (revive && rnd(2)) {
            revive = false;
            actor[killed] = (struct ledger_actor){.l = l[killed], .empties = -1};
            l[killed]->me += 5000;
            l[killed]->file->slot[killed].owner = l[killed]->me;
            start_actor(killed);
            killed = -1;
            live++;
            continue;
        }
        running = i;
        swapcontext(&scheduler, &actor[i].at);
        running = -1;
        live -= actor[i].done;
        struct ledger_file *f = l[i]->file;
        if (file_pages(f->total) > 100)
            fail_msg("%lu pages used of 100", (unsigned long)file_pages(f->total));
    }
    struct ledger_file *f = l[0]->file;
    if (killed >= 0) {
        help(f, f->total);
        empty_slot(f, (unsigned)killed, l[killed]->me);
    }
    int64_t sum = 0;
    for (int i = 0; i < ACTORS; i++)
        if (i != killed)
            sum += actor[i].held;
    assert_int_equal(slots_sum(f), file_pages(f->total));
    assert_int_equal(sum, file_pages(f->total));
    for (int i = 0; i < ACTORS; i++) {
        l[i]->file->slot[i].owner = l[i]->me;
        empty_slot(f, (unsigned)i, l[i]->me);
    }
    assert_int_equal(file_pages(f->total), 0);
}

static void every_interleaving_adds_up(void **state) {
    struct ledger *l[ACTORS];
    fresh(100 << LEDGER_PAGE_SHIFT);
    for (int i = 0; i < ACTORS; i++)
        assert_int_equal(ledger_open(path, &l[i]), 0);
    for (int round = 0; round < ROUNDS; round++) {
        rng = 0x9e3779b97f4a7c15ULL * (uint64_t)(round + 1);
        one_schedule(l);
    }
    for (int i = 0; i < ACTORS; i++) {
        l[i]->slot = -1;
        ledger_close(l[i]);
    }
}

static int setup(void **state) {
    if (!mkdtemp(dir))
        return -1;
    return ledger_path(path, dir, "GPU-abc", LEDGER_SUFFIX);
}

static int teardown(void **state) {
    unlink(path);
    return rmdir(dir);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(limits_hold),
        cmocka_unit_test(bad_files_are_refused),
        cmocka_unit_test(killed_processes_leave_nothing),
        cmocka_unit_test(forked_child_owns_nothing),
        cmocka_unit_test(threads_share_and_race),
        cmocka_unit_test(every_interleaving_adds_up),
    };
    return cmocka_run_group_tests(tests, setup, teardown);
}
