// The trace simulator: readers, the yardstick policies on a trace small enough to check by hand, and
// reports.
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

#include "base/buf.h"
#include "base/cleanup.h"
#include "sim/sim.h"

static void write_trace(char *path, const char *text) {
    int fd = mkstemp(path);
    assert_true(fd >= 0);
    assert_int_equal(write(fd, text, strlen(text)), (ssize_t)strlen(text));
    close(fd);
}

// Four processors. Job 1 takes three for 100 s; job 2 wants four: waits till 100; job 3 (one
// processor, 50 s) passes it; job 4 (one processor, 200 s) would delay it and waits till 200.
static const char SWF[] =
    "; MaxProcs: 4\n"
    "1 0 -1 100 3 -1 -1 3 100 -1 1 1 1 -1 -1 -1 -1 -1\n"
    "2 10 -1 100 4 -1 -1 4 100 -1 1 2 1 -1 -1 -1 -1 -1\n"
    "3 20 -1 50 1 -1 -1 1 50 -1 1 3 1 -1 -1 -1 -1 -1\n"
    "4 30 -1 200 1 -1 -1 1 200 -1 1 3 1 -1 -1 -1 -1 -1\n"
    "5 30 -1 0 1 -1 -1 1 200 -1 1 3 1 -1 -1 -1 -1 -1\n"
    "6 30 -1 10 9 -1 -1 9 200 -1 1 3 1 -1 -1 -1 -1 -1\n";

static void easy_backfills_without_delay(void **state) {
    (void)state;
    char path[] = "/tmp/acequia-sim-XXXXXX";
    write_trace(path, SWF);
    struct trace t = {0};
    struct error e;
    struct policy p;
    struct replay r;
    assert_int_equal(trace_read(&t, path, &e), 0);
    unlink(path);
    assert_int_equal(t.jobs.len, 4);
    assert_int_equal(t.skipped, 2);
    assert_int_equal(t.nodes.at[0].cpus, 4);
    assert_int_equal(sim_policy("easy", &p, &e), 0);
    assert_int_equal(sim_replay_run(&t, &p, &r, &e), 0);
    const int64_t starts[] = {0, 100, 20, 200};
    for (unsigned i = 0; i < 4; i++)
        assert_int_equal(r.jobs.at[i].start_ms, starts[i] * 1000);
    struct metrics m;
    sim_metrics_make(&t, &r, &m);
    assert_int_equal(m.total.jobs, 4);
    assert_true(m.total.wait_mean_s > 64.9 && m.total.wait_mean_s < 65.1);  // (0 + 90 + 0 + 170) / 4
    struct sim_run run = {"easy", m};
    cleanup_buf struct buf out = {0};
    sim_report_text(&t, &run, 1, &out);
    assert_non_null(strstr(out.data, "mean bounded slowdown"));
    buf_clear(&out);
    sim_report_json(&t, &run, 1, &out);
    assert_non_null(strstr(out.data, "\"policy\":\"easy\""));
    buf_clear(&out);
    sim_report_html(&t, "<trace>", &run, 1, &out);
    assert_non_null(strstr(out.data, "&lt;trace&gt;"));
    assert_non_null(strstr(out.data, "</html>"));
    sim_metrics_done(&m);
    sim_replay_done(&r);
    assert_int_equal(sim_policy("fcfs", &p, &e), 0);
    assert_int_equal(sim_replay_run(&t, &p, &r, &e), 0);
    assert_int_equal(r.jobs.at[2].start_ms, 200000);  // nobody passes
    sim_replay_done(&r);
    trace_done(&t);
}

static void refused(const char *text, const char *word) {
    char path[] = "/tmp/acequia-sim-XXXXXX";
    write_trace(path, text);
    struct trace t = {0};
    struct error e = {0};
    assert_true(trace_read(&t, path, &e) < 0);
    if (!strstr(e.text, word))
        fail_msg("'%s' does not mention '%s'", e.text, word);
    unlink(path);
    trace_done(&t);
}

static void bad_traces_are_refused(void **state) {
    (void)state;
    refused("", "empty");
    refused("hello\n", "format");
    refused("; MaxProcs: 4\n1 0 -1 x 3 -1 -1 3 100 -1 1 1\n", "number");
    refused("; only a comment\n", "no job");
    refused("1 0 -1 100\n", "columns");
    refused("submit_s,limit_s\n", "run_s");
    refused("submit_s,run_s,limit_s,tasks\n0,10,20,-4\n", "tasks");
    refused("submit_s,run_s,limit_s,workers_max\n0,10,20,99999\n", "workers_max");
    refused("submit_s,run_s,limit_s,workers_max\n0,999999999999,0,9\n", "elastic");
    struct trace t = {0};
    struct error e = {0};
    assert_true(trace_read(&t, "/nonexistent/trace", &e) < 0);
    assert_non_null(strstr(e.text, "/nonexistent/trace"));
    struct policy p;
    assert_true(sim_policy("best", &p, &e) < 0);
    assert_true(sim_policy("default,speed=9", &p, &e) < 0);
    assert_true(sim_policy("default,short_milli=x", &p, &e) < 0);
    assert_int_equal(sim_policy("default,short_milli=0,placement=pack", &p, &e), 0);
}

// Two teams on four GPUs: who is under its share gets it back, and the victim runs again later.
static void shares_are_reclaimed_in_a_replay(void **state) {
    (void)state;
    char path[] = "/tmp/acequia-sim-XXXXXX", nodes[] = "/tmp/acequia-sim-XXXXXX";
    write_trace(path, "submit_s,run_s,limit_s,user,project,gpu_milli\n"
                      "0,1000,1000,a,one,2000\n1,1000,1000,a,one,2000\n10,500,500,b,two,2000\n");
    write_trace(nodes, "sn,cpu_milli,memory_mib,gpu,model\nn1,16,1024,4,V100\n");
    struct trace t = {0};
    struct error e;
    struct policy p;
    struct replay r;
    assert_int_equal(trace_read(&t, path, &e), 0);
    assert_int_equal(trace_read_nodes(&t, nodes, &e), 0);
    unlink(path);
    unlink(nodes);
    assert_int_equal(sim_policy("default", &p, &e), 0);
    assert_int_equal(sim_replay_run(&t, &p, &r, &e), 0);
    assert_int_equal(r.preemptions, 1);
    assert_int_equal(r.jobs.at[1].preempted, 1);
    assert_int_equal(r.jobs.at[2].start_ms, 40000);  // 30 s of grace
    assert_int_equal(r.jobs.at[1].start_ms, 540000);
    assert_int_equal(r.unstarted, 0);
    sim_replay_done(&r);
    // With quotas of its own the first team may keep all four: nobody is preempted, the second waits.
    for (uint32_t i = 1; i <= 2; i++)
        vec_push(&t.settings, ((struct sched_project){.id = i,
                                                      .name = trace_names_get(&t.projects, i),
                                                      .quota_milligpu = i == 1 ? 4000 : 0,
                                                      .weight_milli = SCHED_UNLIMITED,
                                                      .limit_milligpu = SCHED_UNLIMITED,
                                                      .quota_cpus = SCHED_UNLIMITED,
                                                      .limit_cpus = SCHED_UNLIMITED,
                                                      .interactive_limit_ms = SCHED_UNLIMITED}));
    assert_int_equal(sim_replay_run(&t, &p, &r, &e), 0);
    assert_int_equal(r.preemptions, 0);
    assert_int_equal(r.jobs.at[2].start_ms, 1000000);
    sim_replay_done(&r);
    t.settings.len = 0;
    struct fill f, g;
    assert_int_equal(sim_fill_run(&t, &p, 130, 1, &f, &e), 0);
    assert_int_equal(sim_fill_run(&t, &p, 130, 1, &g, &e), 0);
    assert_int_equal(f.at_end, 10000);
    assert_memory_equal(&f, &g, sizeof f);
    trace_done(&t);
}

// An elastic job uses what others leave, gives it back, and is done sooner: 8 worker-hundreds of seconds with one to
// four workers on four GPUs.
static void elastic_jobs_grow_and_give_back(void **state) {
    (void)state;
    char path[] = "/tmp/acequia-sim-XXXXXX", nodes[] = "/tmp/acequia-sim-XXXXXX";
    write_trace(path, "submit_s,run_s,limit_s,user,project,tasks,gpu_milli,workers_max\n"
                      "0,800,900,a,one,1,1000,4\n100,100,100,b,two,1,2000,0\n");
    write_trace(nodes, "sn,cpu_milli,memory_mib,gpu,model\nn1,16,1024,4,V100\n");
    struct trace t = {0};
    struct error e;
    struct policy p;
    struct replay r;
    assert_int_equal(trace_read(&t, path, &e), 0);
    assert_int_equal(trace_read_nodes(&t, nodes, &e), 0);
    unlink(path);
    unlink(nodes);
    assert_int_equal(sim_policy("default", &p, &e), 0);
    p.grace_ms = 10000;
    assert_int_equal(sim_replay_run(&t, &p, &r, &e), 0);
    assert_int_equal(r.preemptions, 0);
    assert_int_equal(r.given_back, 2);
    assert_int_equal(r.jobs.at[1].start_ms, 110000);  // when the two workers on its place have ended
    assert_int_equal(r.jobs.at[1].end_ms, 210000);
    // The first pass starts the minimum, the next grows it. 4 until 110 s, 2 until 210 s, then 4: 440 + 200 + 160.
    assert_in_range(r.jobs.at[0].end_ms, 250000, 252000);
    assert_int_equal(r.samples.at[r.samples.len - 1].used, 0);
    sim_replay_done(&r);
    trace_done(&t);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(easy_backfills_without_delay),
        cmocka_unit_test(bad_traces_are_refused),
        cmocka_unit_test(shares_are_reclaimed_in_a_replay),
        cmocka_unit_test(elastic_jobs_grow_and_give_back),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
