// Shares, measured on the twin: every kind of load at every share, alone and together, with and
// without barriers; borrowing and giving back, kills, and worlds made at random.
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

#include "twin.h"

#define MS 1000000ULL
static char dir[64];
static const uint64_t kernels[] = {10000, 30000, 200000, 1600000, 8 * MS, 50 * MS};
enum { NKERNELS = sizeof kernels / sizeof *kernels };

static struct twin_result run(const struct twin_world *w, const char *what) {
    struct twin_result r;
    twin_run(dir, w, &r);
    printf("    %-42s", what);
    for (unsigned i = 0; i < w->jobs; i++)
        printf(" %5.1f", r.share[i]);
    printf("  all %5.1f %%\n", r.busy);
    return r;
}

static void assert_near(double got, double want, double within) {
    if (got < want - within || got > want + within)
        fail_msg("%.2f %% is not within %.1f of %.1f", got, within, want);
}

// Large kernels are few in a few seconds: one more or less shows.
static double within_of(uint64_t kernel_ns) {
    return kernel_ns > 20 * MS ? 3 : 1.5;
}

static struct twin_load hog(uint32_t milli, bool borrow, uint64_t kernel_ns) {
    return (struct twin_load){.milli = milli, .borrow = borrow, .kernel_ns = kernel_ns, .mixed = true,
                              .launch_ns = kernel_ns > 20000 ? 6000 : 4000};
}

static void alone_at(uint32_t milli, uint64_t kernel_ns, bool barriers) {
    struct twin_load l = hog(milli, false, kernel_ns);
    struct twin_world w = {.load = &l, .jobs = 1, .no_barriers = !barriers,
                           .run_ns = kernel_ns > 20 * MS ? 9000 * MS : 2500 * MS,
                           .measure_from_ns = kernel_ns > 20 * MS ? 2000 * MS : 500 * MS};
    char what[64];
    snprintf(what, sizeof what, "alone at %u, kernels of %lu us%s", milli / 10, (unsigned long)kernel_ns / 1000,
             barriers ? "" : ", no barriers");
    struct twin_result r = run(&w, what);
    assert_near(r.share[0], milli / 10.0, barriers ? within_of(kernel_ns) : 4.5);
}

static void the_bucket_holds_a_share(void **state) {
    for (unsigned k = 0; k < NKERNELS; k++)
        for (uint32_t milli = 250; milli <= 750; milli += 250)
            alone_at(milli, kernels[k], true);
}

static void without_barriers_too(void **state) {
    for (unsigned k = 0; k < NKERNELS - 1; k++)
        alone_at(250 + 250 * (k % 3), kernels[k], false);
}

static void two_jobs_get_theirs(void **state) {
    static const uint32_t first[] = {500, 750, 900};
    for (unsigned s = 0; s < 3; s++)
        for (unsigned k = 0; k < NKERNELS; k++) {
            struct twin_load l[2] = {hog(first[s], true, kernels[k]), hog(1000 - first[s], true, kernels[k])};
            struct twin_world w = {.load = l,
                                   .jobs = 2,
                                   .shared = true,
                                   .run_ns = kernels[k] > 20 * MS ? 16000 * MS : 2500 * MS,
                                   .measure_from_ns = 500 * MS};
            char what[64];
            snprintf(what, sizeof what, "%u and %u, kernels of %lu us", first[s] / 10, 100 - first[s] / 10,
                     (unsigned long)kernels[k] / 1000);
            struct twin_result r = run(&w, what);
            assert_near(r.share[0], first[s] / 10.0, within_of(kernels[k]));
            assert_near(r.share[1], 100 - first[s] / 10.0, within_of(kernels[k]));
            assert_true(r.busy >= (kernels[k] > 20 * MS ? 96 : 98.5));
        }
}

// Kernels of very different length beside each other.
static void long_beside_short(void **state) {
    for (uint32_t a = 250; a <= 750; a += 250) {
        struct twin_load l[2] = {hog(a, true, 20 * MS), hog(1000 - a, true, 20000)};
        struct twin_world w = {.load = l, .jobs = 2, .shared = true, .run_ns = 12000 * MS, .measure_from_ns = 500 * MS};
        struct twin_result r = run(&w, "kernels of 20 ms beside 20 us");
        assert_near(r.share[0], a / 10.0, 1.5);
        assert_near(r.share[1], 100 - a / 10.0, 1.5);
    }
}

// A program that launches hardly faster than the GPU works, as training does.
static void slow_launchers(void **state) {
    for (uint32_t a = 250; a <= 750; a += 250) {
        struct twin_load l[2];
        for (int i = 0; i < 2; i++)
            l[i] = (struct twin_load){.milli = i ? 1000 - a : a, .kernel_ns = 22000, .mixed = true, .launch_ns = 22000};
        struct twin_world w = {.load = l, .jobs = 1, .run_ns = 2500 * MS, .measure_from_ns = 500 * MS};
        assert_near(run(&w, "training alone").share[0], a / 10.0, 1.5);
        l[0].borrow = l[1].borrow = w.shared = true;
        w.jobs = 2;
        struct twin_result r = run(&w, "two trainings");
        assert_near(r.share[0], a / 10.0, 1.5);
        assert_near(r.share[1], 100 - a / 10.0, 1.5);
        l[0].borrow = l[1].borrow = false;
        l[1].milli = (1000 - a) / 2;
        r = run(&w, "two trainings, no borrowing");
        assert_near(r.share[0], a / 10.0, 1.5);
        assert_near(r.share[1], l[1].milli / 10.0, 1.5);
    }
}

// One bucket, one line, whoever of the job uses it; also beside another job.
static void two_processes_of_one_job(void **state) {
    for (unsigned k = 1; k < NKERNELS - 1; k++)
        for (uint32_t milli = 250; milli <= 750; milli += 250) {
            struct twin_load l[3] = {hog(milli, false, kernels[k]), hog(milli, false, kernels[k]),
                                     hog(1000 - milli, true, 200000)};
            l[1].joins = true;
            struct twin_world w = {.load = l, .jobs = 2, .run_ns = 2500 * MS, .measure_from_ns = 500 * MS};
            struct twin_result r = run(&w, "two processes");
            assert_near(r.share[0] + r.share[1], milli / 10.0, 2);
            if (kernels[k] > 2 * MS)
                continue; // one does not know when the other's long kernel ends
            l[0].borrow = l[1].borrow = w.shared = true;
            w.jobs = 3;
            r = run(&w, "two processes beside another job");
            assert_near(r.share[0] + r.share[1], milli / 10.0, 4);
            assert_near(r.share[2], 100 - milli / 10.0, 4);
        }
}

static void many_jobs(void **state) {
    for (unsigned n = 4; n <= TWIN_JOBS; n *= 2) {
        struct twin_load l[TWIN_JOBS];
        for (unsigned i = 0; i < n; i++)
            l[i] = hog(1000 / n, true, kernels[1 + i % 3]);
        struct twin_world w = {.load = l, .jobs = n, .shared = true, .run_ns = 2500 * MS, .measure_from_ns = 500 * MS};
        struct twin_result r = run(&w, "many");
        for (unsigned i = 0; i < n; i++)
            assert_near(r.share[i], 100.0 / n, 1);
        assert_true(r.busy > 98.5);
    }
}

// The second works from 1 to 2 s: before and after the first has all, meanwhile half, at once.
static void lent_and_given_back(void **state) {
    static const struct { uint64_t from, until; double want[2]; } window[] = {
        {500, 1000, {98, 0}}, {1020, 2000, {49.5, 49.5}}, {2030, 3000, {98, 0}},
    };
    for (unsigned i = 0; i < 3; i++) {
        struct twin_load l[2] = {hog(500, true, 200000), hog(500, true, 200000)};
        l[1].from_ns = 1000 * MS;
        l[1].until_ns = 2000 * MS;
        struct twin_world w = {.load = l, .jobs = 2, .shared = true, .run_ns = 3200 * MS,
                               .measure_from_ns = window[i].from * MS, .measure_until_ns = window[i].until * MS};
        struct twin_result r = run(&w, i == 1 ? "both" : i ? "alone again" : "alone");
        assert_true(r.share[0] >= window[i].want[0] - 1);
        assert_true(r.share[1] >= window[i].want[1] - 1);
    }
}

static void killed_in_its_turn(void **state) {
    for (uint64_t at = 1000; at < 1040; at += 3) {
        struct twin_load l[2] = {hog(500, true, 200000), hog(500, true, 200000)};
        struct twin_world w = {.load = l, .jobs = 2, .shared = true, .run_ns = 1500 * MS,
                               .measure_from_ns = (at + 15) * MS};
        struct twin_result r;
        l[1].killed_ns = at * MS;
        twin_run(dir, &w, &r);
        if (r.share[0] < 98)
            fail_msg("killed at %lu ms: the other gets %.1f %%", (unsigned long)at, r.share[0]);
    }
}

// Small inferences of 2 ms beside a job that wants all.
static void answers_come_soon(void **state) {
    struct twin_load l[2] = {hog(500, true, 20000), hog(500, true, 200000)};
    l[0].mixed = false;
    l[0].sync_every = 100;
    l[0].think_ns = 10 * MS;
    struct twin_world w = {.load = l, .jobs = 2, .shared = true, .run_ns = 6000 * MS, .measure_from_ns = 500 * MS};
    struct twin_result r = run(&w, "inference beside a batch");
    printf("      p50 %.2f ms, p99 %.2f ms\n", (double)r.wait_p50_ns[0] / 1e6, (double)r.wait_p99_ns[0] / 1e6);
    assert_true(r.wait_p50_ns[0] < 5 * MS && r.wait_p99_ns[0] < 8 * MS);
    assert_true(r.busy > 93);
    l[0].think_ns = 0; // one that only waits for its own results gets its half
    assert_near(run(&w, "a wait after every 2 ms").share[0], 50, 2);
}

// Streams that wait for each other in a ring: what one takes includes the others.
static void streams_in_a_ring(void **state) {
    static const unsigned streams[] = {2, 4, 16};
    for (unsigned n = 0; n < 3; n++)
        for (uint32_t milli = 100; milli <= 700; milli += 300) {
            struct twin_load l = hog(milli, false, 100000);
            l.streams = streams[n];
            struct twin_world w = {.load = &l, .jobs = 1, .run_ns = 3000 * MS, .measure_from_ns = 500 * MS};
            char what[64];
            snprintf(what, sizeof what, "%u streams in a ring at %u", streams[n], milli / 10);
            double share = run(&w, what).share[0]; // every wait costs the GPU a moment here
            assert_true(share > milli / 10.0 * 0.7 && share < milli / 10.0 + 1.5);
        }
}

// What the program does between launches is not the GPU's time: 4 ms of kernels every 50 ms need
// no more than 8 %.
static void pauses_are_not_charged(void **state) {
    for (int unsynced = 0; unsynced < 2; unsynced++)
        for (unsigned k = 1; k < 3; k++) {
            struct twin_load l = {.milli = 250, .kernel_ns = kernels[k], .launch_ns = 5000, .think_ns = 45 * MS,
                                  .unsynced = unsynced, .sync_every = (unsigned)(4 * MS / kernels[k])};
            struct twin_world w = {.load = &l, .jobs = 1, .run_ns = 3000 * MS, .measure_from_ns = 500 * MS};
            struct twin_result r = run(&w, unsynced ? "pauses without a wait" : "pauses");
            printf("      charged %.1f %%\n", (double)r.charged_ns[0] / 3e7);
            assert_true(r.share[0] > 7.5);
            assert_near((double)r.charged_ns[0] / 3e7, r.share[0], 1.5);
        }
}

// Each has had the GPU alone, one after the other, and then all come at once, the last of them first
// or not: what was had before counts for nothing.
static void all_come_at_once(void **state) {
    for (unsigned order = 0; order < 4; order++) {
        struct twin_load l[TWIN_JOBS];
        for (unsigned i = 0; i < TWIN_JOBS; i++) {
            l[i] = hog(125, true, 30000);
            l[i].from_ns = (1 + i * 200) * MS;
            l[i].until_ns = (i + 1) * 200 * MS;
            l[i].again_ns = 2500 * MS + (i * 7 + order * 3) % 8 * 300000;
        }
        struct twin_world w = {.load = l, .jobs = TWIN_JOBS, .shared = true, .run_ns = 4000 * MS,
                               .measure_from_ns = 2600 * MS};
        struct twin_result r = run(&w, "all at once");
        for (unsigned i = 0; i < TWIN_JOBS; i++)
            assert_near(r.share[i], 12.5, 1.5);
    }
}

// Whatever comes together: nobody starves, nobody has more than there is, all adds up.
static void any_world(void **state) {
    unsigned seed = 7;
    for (int world = 0; world < 40; world++) {
        struct twin_load l[TWIN_JOBS];
        unsigned n = 2 + (unsigned)rand_r(&seed) % 4, left = 1000;
        for (unsigned i = 0; i < n; i++) {
            uint32_t milli = i == n - 1 ? left : 50 + (unsigned)rand_r(&seed) % (left - 50 * (n - i) + 1);
            left -= milli;
            uint64_t kernel = kernels[rand_r(&seed) % (NKERNELS - 1)];
            l[i] = hog(milli, rand_r(&seed) % 4 != 0, kernel);
            l[i].mixed = rand_r(&seed) % 2;
            if (rand_r(&seed) % 4 == 0)
                l[i].sync_every = 1 + (unsigned)rand_r(&seed) % 200;
        }
        struct twin_world w = {.load = l, .jobs = n, .shared = true, .no_barriers = world % 10 == 9,
                               .run_ns = 3000 * MS, .measure_from_ns = 1000 * MS};
        struct twin_result r;
        twin_run(dir, &w, &r);
        for (unsigned i = 0; i < n; i++) {
            bool ok = r.share[i] > l[i].milli / 10.0 * 0.7 - 2;
            ok = ok && (l[i].borrow || r.share[i] < l[i].milli / 10.0 * 1.15 + 3);
            if ((!ok && !l[i].sync_every) || !r.launches[i])
                fail_msg(
                    "world %d: job %u of %u at %u got %.1f %% (kernels of %lu us, wait each %u, borrow %d)",
                    world, i, n, l[i].milli, r.share[i], (unsigned long)l[i].kernel_ns / 1000,
                    l[i].sync_every, l[i].borrow);
        }
    }
}

static int setup(void **state) {
    snprintf(dir, sizeof dir, "/tmp/acequia-twin-XXXXXX");
    return mkdtemp(dir) ? 0 : -1;
}

static int teardown(void **state) {
    return rmdir(dir);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_bucket_holds_a_share),
        cmocka_unit_test(without_barriers_too),
        cmocka_unit_test(two_jobs_get_theirs),
        cmocka_unit_test(long_beside_short),
        cmocka_unit_test(slow_launchers),
        cmocka_unit_test(two_processes_of_one_job),
        cmocka_unit_test(many_jobs),
        cmocka_unit_test(lent_and_given_back),
        cmocka_unit_test(killed_in_its_turn),
        cmocka_unit_test(answers_come_soon),
        cmocka_unit_test(pauses_are_not_charged),
        cmocka_unit_test(streams_in_a_ring),
        cmocka_unit_test(all_come_at_once),
        cmocka_unit_test(any_world),
    };
    return cmocka_run_group_tests(tests, setup, teardown);
}
