// Compute share over the simulated driver: what a job's kernels took against the clock, for
// small, large and graph work, several processes, several jobs, borrowing and giving back, kills.
#include "shadow.h"

#include <pthread.h>
#include <signal.h>

#include "../bucket.h"

enum { WORKERS = 4 };
struct worker {
    uint64_t kernel_ns; // how long each launch takes
    uint64_t run_ns;
    uint64_t start_at, idle_until; // on our clock; idle: between start and this it does nothing
    bool graph, sync;
    const char *job_dir;
    _Atomic uint64_t done_ns; // GPU time it got
    _Atomic uint64_t from, to;
};
static struct worker *worker;
static int self;

static void launch(CUgraphExec exec, CUstream s, uint64_t ns) {
    if (exec)
        CHECK_EQ(CU(cuGraphLaunch)(exec, s), 0);
    else
        CHECK_EQ(CU(cuLaunchKernel)((CUfunction)(uintptr_t)ns, 1, 1, 1, 1, 1, 1, 0, s, NULL, NULL),
                 0);
}

static void work(void) {
    struct worker *w = &worker[self];
    char engine[128];
    CUgraph g;
    CUgraphExec exec = NULL;
    CUstream s;
    CUresult (*create)(CUstream *, unsigned);
    snprintf(engine, sizeof engine, "%s/engine", dir);
    setenv("FAKE_ENGINE", engine, 1);
    setenv("ACEQUIA_GPU_ARBITER_DIR", dir, 1);
    shadow_load();
    if (w->job_dir) // two jobs: each has a ledger directory of its own
        CHECK(!strcmp(getenv("ACEQUIA_GPU_LEDGER_DIR"), dir));
    context(0);
    *(void **)&create = shadow_symbol("cuStreamCreate");
    CHECK_EQ(create(&s, 0), 0);
    if (w->graph) {
        CHECK_EQ(CU(cuStreamBeginCapture_v2)(s, 0), 0);
        for (int i = 0; i < 10; i++)
            launch(NULL, s, w->kernel_ns / 10);
        CHECK_EQ(CU(cuStreamEndCapture)(s, &g), 0);
        CHECK_EQ(CU(cuGraphInstantiateWithFlags)(&exec, g, 0), 0);
    }
    for (int i = 0; i < 20; i++) // learns what it takes
        launch(exec, s, w->kernel_ns);
    CHECK_EQ(CU(cuCtxSynchronize)(), 0);
    while (clock_ns() < w->start_at)
        usleep(100);
    uint64_t from = clock_ns(), before = counts()->kernel_ns;
    while (clock_ns() - from < w->run_ns) {
        launch(exec, s, w->kernel_ns);
        if (w->sync)
            CHECK_EQ(CU(cuStreamSynchronize)(s), 0);
    }
    CHECK_EQ(CU(cuStreamSynchronize)(s), 0);
    atomic_store(&w->done_ns, counts()->kernel_ns - before);
    atomic_store(&w->from, from);
    atomic_store(&w->to, clock_ns());
}

static pid_t start_worker(int i, const char *job_dir) {
    char keep[64];
    self = i;
    memcpy(keep, dir, sizeof keep);
    if (job_dir)
        snprintf(dir, sizeof dir, "%s", job_dir);
    pid_t pid = start(work);
    memcpy(dir, keep, sizeof keep);
    return pid;
}

static double share_of(const struct worker *w) {
    return (double)w->done_ns / (double)(w->to - w->from) * 100;
}

// The machine that runs tests is shared and may be loaded: a point or two is its noise, and a
// process that was not run at all for a while gets another try.
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
enum { WITHIN = 60, TRIES = 4 }; // launches take longer than the kernels: nothing to be held to
#else
enum { WITHIN = 4, TRIES = 4 };
#endif

// More than the share is wrong anywhere; less is only where a processor was to be had.
static bool is_near(double got, double want, double within, const char *what) {
    double load = 0;
    getloadavg(&load, 1);
    bool busy = load > (double)sysconf(_SC_NPROCESSORS_ONLN);
    printf("    %-40s asked %5.1f %%, got %5.1f %%%s\n", what, want, got,
           busy ? " (machine busy)" : "");
    return (got >= want - within || busy) && got <= want + within;
}

static void shares_are_held(void **state) {
    static const struct { uint64_t ns; bool graph, sync; const char *what; } kind[] = {
        {20 * 1000, false, false, "small kernels"}, {1600 * 1000, false, false, "large kernels"},
        {5000 * 1000, true, false, "graphs"}, {300 * 1000, false, true, "a wait after each"},
    };
    for (size_t k = 0; k < sizeof kind / sizeof *kind; k++) {
        for (uint32_t milli = 250; milli <= 750; milli += 250) {
            bool ok = false;
            for (int i = 0; i < TRIES && !ok; i++) {
                limit(UUID0, "j", 0, milli, 0);
                worker[0] = (struct worker){.kernel_ns = kind[k].ns, .run_ns = 800000000,
                                            .graph = kind[k].graph, .sync = kind[k].sync};
                assert_int_equal(finish(start_worker(0, NULL)), 0);
                ok = is_near(share_of(&worker[0]), milli / 10.0, WITHIN, kind[k].what);
            }
            assert_true(ok);
        }
    }
}

static bool two_processes_once(void) {
    limit(UUID0, "j", 0, 500, 0);
    uint64_t at = clock_ns() + 200000000;
    pid_t pid[2];
    for (int i = 0; i < 2; i++) {
        worker[i] = (struct worker){.kernel_ns = 500000, .run_ns = 1000000000, .start_at = at};
        pid[i] = start_worker(i, NULL);
    }
    for (int i = 0; i < 2; i++)
        assert_int_equal(finish(pid[i]), 0);
    return is_near(share_of(&worker[0]) + share_of(&worker[1]), 50, WITHIN + 2,
                   "two processes of one job");
}

static void two_processes_share_one(void **state) {
    bool ok = false;
    for (int i = 0; i < TRIES && !ok; i++)
        ok = two_processes_once();
    assert_true(ok);
}

static void one_left_alone_borrows(void **state) {
    char path[LEDGER_PATH_MAX];
    path_of(path, UUID0, ARBITER_SUFFIX);
    assert_int_equal(arbiter_create(path, UUID0, 0600), 0);
    limit(UUID0, "j", 0, 250, LEDGER_BORROW);
    worker[0] = (struct worker){.kernel_ns = 500000, .run_ns = 600000000};
    assert_int_equal(finish(start_worker(0, NULL)), 0);
    assert_true(is_near(share_of(&worker[0]), 97, 4, "alone, may borrow"));
}

// Two jobs, 75 and 25, both may borrow and both want all.
static bool two_jobs_once(void) {
    char first[64], second[64], a[256], b[256], ledger[LEDGER_PATH_MAX];
    snprintf(first, sizeof first, "%.40s/first", dir);
    snprintf(second, sizeof second, "%.40s/second", dir);
    mkdir(first, 0700), mkdir(second, 0700);
    struct ledger_limits l = {.compute_milli = 750, .flags = LEDGER_BORROW};
    assert_int_equal(ledger_path(ledger, first, UUID0, LEDGER_SUFFIX), 0);
    assert_int_equal(ledger_create(ledger, "first", UUID0, &l, 0600, true), 0);
    l.compute_milli = 250;
    assert_int_equal(ledger_path(ledger, second, UUID0, LEDGER_SUFFIX), 0);
    assert_int_equal(ledger_create(ledger, "second", UUID0, &l, 0600, true), 0);
    // The engine and the arbiter are shared through links into each job's directory.
    snprintf(a, sizeof a, "%s/" UUID0 ARBITER_SUFFIX, first);
    snprintf(b, sizeof b, "%s/" UUID0 ARBITER_SUFFIX, second);
    assert_int_equal(arbiter_create(a, UUID0, 0600), 0);
    assert_int_equal(link(a, b), 0);
    char ea[256], eb[256];
    snprintf(ea, sizeof ea, "%s/engine", first);
    snprintf(eb, sizeof eb, "%s/engine", second);
    FILE *f = fopen(ea, "w");
    fclose(f);
    assert_int_equal(link(ea, eb), 0);
    uint64_t at = clock_ns() + 300000000;
    worker[0] = (struct worker){.kernel_ns = 200000, .run_ns = 1500000000, .start_at = at};
    worker[1] = (struct worker){.kernel_ns = 200000, .run_ns = 1500000000, .start_at = at};
    pid_t p0 = start_worker(0, first), p1 = start_worker(1, second);
    int r0 = finish(p0), r1 = finish(p1);
    struct arbiter_job jobs[ARBITER_JOBS];
    unsigned n = 0;
    assert_int_equal(arbiter_sample(a, jobs, &n), 0);
    const char *gone[] = {a, b, ea, eb};
    for (int i = 0; i < 4; i++)
        unlink(gone[i]);
    snprintf(a, sizeof a, "%s/" UUID0 LEDGER_SUFFIX, first), unlink(a), rmdir(first);
    snprintf(a, sizeof a, "%s/" UUID0 LEDGER_SUFFIX, second), unlink(a), rmdir(second);
    assert_int_equal(r0, 0);
    assert_int_equal(r1, 0);
    assert_int_equal(n, 2);
    double first_got = share_of(&worker[0]), second_got = share_of(&worker[1]);
    printf("    two jobs, 75 and 25: %.1f %% and %.1f %%\n", first_got, second_got);
    return second_got > 10 && second_got < 60 && first_got > 10 && first_got + second_got < 103;
}

// Real processes on a loaded machine lose turns for want of a processor, so here only
// that both go on is asked for; the exact shares are asked of the arbiter alone, below.
static void two_jobs_take_turns(void **state) {
    bool ok = false;
    for (int i = 0; i < TRIES && !ok; i++)
        ok = two_jobs_once();
    assert_true(ok);
}

// Jobs that always want the GPU, on a clock of our own: after two seconds each has its share, and
// one that goes idle for a while has its part lent out and back again at once.
static void turns_follow_the_shares(void **state) {
    enum { N = 3, STEP_NS = 100000 };
    static const uint32_t milli[N] = {500, 300, 200};
    char path[LEDGER_PATH_MAX];
    uint64_t used[N] = {0}, mark[N] = {0}, busy = 0, t = 1000000000000;
    int line[N];
    struct arbiter *a;
    path_of(path, UUID0, ARBITER_SUFFIX);
    assert_int_equal(arbiter_create(path, UUID0, 0600), 0);
    assert_int_equal(arbiter_open(path, &a), 0);
    for (int i = 0; i < N; i++)
        line[i] = arbiter_join(a, (const char *[]){"x", "y", "z"}[i], milli[i], t);
    for (int step = 0; step < 60000; step++, t += STEP_NS) {
        bool first_idle = step >= 20000 && step < 40000;
        if (step == 20000 || step == 40000) {
            for (int i = 0; i < N && step == 20000; i++)
                assert_in_range(used[i] * 1000 / 2000000000, milli[i] - 20, milli[i] + 20);
            if (step == 40000) { // 30 and 20 shared all
                assert_in_range((used[1] - mark[1]) * 1000 / 2000000000, 580, 620);
                assert_in_range((used[2] - mark[2]) * 1000 / 2000000000, 380, 420);
            }
            memcpy(mark, used, sizeof mark);
        }
        int runs = -1;
        for (int i = 0; i < N; i++) {
            if (i == 0 && first_idle)
                continue;
            if (arbiter_mine(a, line[i], t) || arbiter_take(a, line[i], milli[i], 0, t))
                runs = i;
            else
                arbiter_leave(a, line[i], true, t); // its turn is over and others wait
        }
        if (runs < 0)
            continue;
        busy = arbiter_launched(a, line[runs], t, busy, t + STEP_NS);
        arbiter_charge(a, line[runs], milli[runs], STEP_NS);
        used[runs] += STEP_NS;
    }
    for (int i = 0; i < N; i++)
        assert_in_range((used[i] - mark[i]) * 1000 / 2000000000, milli[i] - 20, milli[i] + 20);
    arbiter_close(a);
}

// A job killed in its turn leaves it to the others within milliseconds.
static void killed_holder_blocks_nobody(void **state) {
    char path[LEDGER_PATH_MAX];
    path_of(path, UUID0, ARBITER_SUFFIX);
    assert_int_equal(arbiter_create(path, UUID0, 0600), 0);
    struct arbiter *a;
    assert_int_equal(arbiter_open(path, &a), 0);
    uint64_t now = clock_ns();
    int x = arbiter_join(a, "x", 500, now), y = arbiter_join(a, "y", 500, now);
    assert_true(x >= 0 && y >= 0 && x != y);
    assert_int_equal(arbiter_join(a, "x", 500, now), x);
    assert_true(arbiter_take(a, x, 500, 0, now));
    arbiter_launched(a, x, now, 0, now + 2000000);
    assert_true(arbiter_mine(a, x, now + 1000));
    assert_false(arbiter_take(a, y, 500, 0, now + 1000000));
    assert_true(arbiter_contended(a, x, now + 1000000));
    assert_true(arbiter_take(a, y, 500, 0, now + 2600000)); // x has been idle, or is gone
    assert_false(arbiter_mine(a, x, now + 2600000));
    arbiter_launched(a, y, now + 2600000, 0, UINT64_MAX); // nonsense is not believed
    assert_true(arbiter_take(a, x, 500, 0, now + 60000000));
    arbiter_leave(a, x, false, now);
    arbiter_close(a);
    assert_int_equal(arbiter_forget(path, "y"), 0);
    assert_int_equal(arbiter_forget(path, "y"), -ENOENT);
}

// The job that ran last finds the turn still its own when it comes back; it starts level with the
// others all the same, also if another thinks it gone at this very moment.
static void holder_comes_back_level(void **state) {
    char path[LEDGER_PATH_MAX];
    struct arbiter *a;
    uint64_t t = 1000000000000, ms = 1000000, got = 0;
    path_of(path, UUID0, ARBITER_SUFFIX);
    assert_int_equal(arbiter_create(path, UUID0, 0600), 0);
    assert_int_equal(arbiter_open(path, &a), 0);
    int line[3] = {arbiter_join(a, "x", 500, t), arbiter_join(a, "y", 500, t), arbiter_join(a, "z", 500, t)};
    assert_true(arbiter_take(a, line[0], 500, 0, t));
    arbiter_charge(a, line[0], 500, 10000 * ms); // far more than the others ever had
    t += 1000 * ms;
    arbiter_launched(a, line[0], t - 60 * ms, 0, t + 100 * ms); // away, and the others believe it busy
    assert_false(arbiter_take(a, line[1], 500, 0, t));
    assert_false(arbiter_take(a, line[2], 500, 0, t));
    arbiter_take(a, line[0], 500, 0, t);
    for (int i = 0; i < 1200; i++, t += ms) {
        for (int k = 0; k < 3; k++)
            if (!arbiter_mine(a, line[k], t) && !arbiter_take(a, line[k], 500, 0, t))
                arbiter_leave(a, line[k], true, t);
        for (int k = 0; k < 3; k++)
            if (arbiter_holds(a, line[k])) {
                arbiter_launched(a, line[k], t, 0, t + ms);
                arbiter_charge(a, line[k], 500, ms);
                got += k == 0;
            }
    }
    assert_in_range(got, 350, 450);
    arbiter_close(a);
}

static void bucket_arithmetic(void **state) {
    static struct ledger_compute c;
    uint64_t t = 1000000000000, ms = 1000000;
    assert_int_equal(bucket_balance(&c, 500, t), BUCKET_CAP_NS / 2);
    assert_int_equal(bucket_charge(&c, 500, t, t + 10 * ms), 10 * ms);
    assert_int_equal(bucket_charge(&c, 500, t, t + 10 * ms), 0); // another process saw the same time
    assert_int_equal(bucket_charge(&c, 500, t + 5 * ms, t + 12 * ms), 2 * ms);
    assert_int_equal(bucket_charge(&c, 500, t - 3 * ms, t + 5 * ms), 3 * ms); // late, and partly new
    assert_int_equal(c.gpu_ns, 15 * ms);
    assert_int_equal(bucket_charge(&c, 500, t + 12 * ms, t + 900 * ms), 888 * ms); // longer than is kept
    assert_int_equal(bucket_charge(&c, 500, t + 800 * ms, t + 900 * ms), 0);
    assert_int_equal(bucket_charge(&c, 500, t + 10 * ms, t + 11 * ms), ms); // too old to compare: in full
    uint64_t sum = 0;
    for (uint64_t at = t + 1000 * ms; at < t + 1100 * ms; at += 33333) // pieces of any length add up
        sum += bucket_charge(&c, 500, at, at + 33333);
    assert_in_range(sum, 99 * ms, 101 * ms);
    bucket_charge(&c, 100, t + 2000 * ms, t + 1000000 * ms);
    assert_true(bucket_balance(&c, 100, t + 1000000 * ms) < 0);
    assert_true((uint64_t)-bucket_balance(&c, 100, t + 1000000 * ms) <= BUCKET_DEBT_MAX_NS);
    for (uint32_t milli = 1; milli < 1000; milli++) { // what is asked for can always be reached
        static struct ledger_compute full;
        assert_true(bucket_lack(&full, milli, 0, 1e12, false, t) <= 0);
        assert_true(bucket_lack(&full, milli, 1e12, 0, true, t) > 0);
    }
}

static void *many_streams(void *arg) {
    CUstream s[8];
    CUresult (*create)(CUstream *, unsigned), (*set)(CUcontext);
    *(void **)&create = shadow_symbol("cuStreamCreate");
    *(void **)&set = shadow_symbol("cuCtxSetCurrent");
    set(arg);
    for (int i = 0; i < 8; i++)
        create(&s[i], 0);
    for (int i = 0; i < 400; i++)
        launch(NULL, s[i % 8], 10000 + (uint64_t)(i % 5) * 1000);
    for (int i = 0; i < 8; i++)
        CHECK_EQ(CU(cuStreamDestroy_v2)(s[i]), 0);
    return NULL;
}

// More streams than are followed at a time, from several threads, some destroyed while they work.
static void streams(void) {
    pthread_t t[6];
    limit(UUID0, "j", 0, 800, 0);
    shadow_load();
    CUcontext ctx = context(0);
    for (int i = 0; i < 6; i++)
        CHECK_EQ(pthread_create(&t[i], NULL, many_streams, ctx), 0);
    for (int i = 0; i < 6; i++)
        pthread_join(t[i], NULL);
    CHECK_EQ(CU(cuCtxSynchronize)(), 0);
    CHECK_EQ(counts()->kernels, 6 * 400);
    CHECK_EQ(CU(cuDevicePrimaryCtxReset_v2)(0), 0);
}

static void streams_test(void **state) {
    in_child(streams);
}

// The limits may change while a job runs: half, then none.
static void limits_change_while_running(void) {
    char path[LEDGER_PATH_MAX];
    limit(UUID0, "j", 0, 20, 0);
    shadow_load();
    context(0);
    for (int i = 0; i < 10; i++)
        launch(NULL, NULL, 1000000);
    struct ledger_limits none = {.compute_milli = 0};
    path_of(path, UUID0, LEDGER_SUFFIX);
    CHECK_EQ(ledger_set_limits(path, &none), 0);
    uint64_t from = clock_ns();
    for (int i = 0; i < 100; i++)
        launch(NULL, NULL, 1000000);
    CHECK(clock_ns() - from < 100000000);
}

static void change_test(void **state) {
    in_child(limits_change_while_running);
}

// Another user's job cuts the file off: this one goes on, as if alone.
static void a_cut_arbiter_ends_nobody(void **state) {
    char path[] = "/tmp/acequia-arbiter-XXXXXX";
    struct arbiter *a = NULL;
    int fd = mkstemp(path);
    close(fd);
    unlink(path);
    assert_int_equal(arbiter_create(path, UUID0, 0600), 0);
    assert_int_equal(arbiter_open(path, &a), 0);
    int line = arbiter_join(a, "1.1", 500, 1000);
    assert_true(line >= 0);
    assert_int_equal(truncate(path, 0), 0);
    assert_false(arbiter_mine(a, line, 1000));
    arbiter_charge(a, line, 500, 10);
    assert_true(arbiter_join(a, "1.1", 500, 2000) >= 0);
    arbiter_close(a);
    unlink(path);
}

#define T(name) cmocka_unit_test_teardown(name, test_teardown)
int main(void) {
    worker = mmap(NULL, sizeof *worker * WORKERS, PROT_READ | PROT_WRITE,
                  MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    const struct CMUnitTest tests[] = {
        T(bucket_arithmetic), T(a_cut_arbiter_ends_nobody), T(killed_holder_blocks_nobody), T(holder_comes_back_level),
        T(shares_are_held), T(two_processes_share_one),
        T(one_left_alone_borrows), T(two_jobs_take_turns),
        T(turns_follow_the_shares), T(streams_test), T(change_test),
    };
    return cmocka_run_group_tests(tests, group_setup, group_teardown);
}
