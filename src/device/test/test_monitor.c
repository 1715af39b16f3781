// The monitor over a source the test speaks for: use by processes and by ledgers, energy, usage of
// attempts, health told once.
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "device/monitor.h"
#include "shim/ledger.h"

struct puppet {
    struct gpu_source source;
    struct gpu_reading next[2];
    struct gpu_process processes[2][4];
};

static int puppet_discover(struct gpu_source *s, struct arena *a, struct gpu **gpus, uint32_t *count, struct error *e) {
    *gpus = arena_alloc(a, 2 * sizeof **gpus);
    for (int i = 0; i < 2; i++)
        (*gpus)[i] = (struct gpu){.uuid = i ? "GPU-y" : "GPU-x", .model = "H200", .memory_bytes = 100 << 20};
    *count = 2;
    return 0;
}

static void puppet_read(struct gpu_source *s, uint32_t index, int64_t now_ms, struct gpu_reading *out) {
    struct puppet *p = (struct puppet *)s;
    *out = p->next[index];
    out->sample.index = index;
    out->power_share_milli = 1000;
    out->processes = p->processes[index];
}

static void puppet_free(struct gpu_source *s) {
    free(s);
}

static const struct gpu_source_ops puppet_ops = {
    .name = "puppet", .discover = puppet_discover, .read = puppet_read, .free = puppet_free};

static struct puppet *start(struct gpu_monitor **m) {
    struct puppet *p = calloc(1, sizeof *p);
    struct error e;
    p->source.ops = &puppet_ops;
    assert_int_equal(gpu_monitor_new(&p->source, m, &e), 0);
    return p;
}

static bool owner(void *ctx, uint32_t pid, uint64_t *job, uint32_t *attempt) {
    *job = pid / 10;
    *attempt = 1;
    return pid >= 10;
}

static void step(struct gpu_monitor *m, int64_t now_ms, const struct gpu_use *uses, uint32_t n,
                 struct gpu_samples *out) {
    gpu_monitor_read(m, now_ms);
    gpu_monitor_split(m, &(struct gpu_holders){.uses = uses, .count = n, .owner = owner}, out);
}

static const struct gpu_sample *of_job(const struct gpu_samples *s, uint64_t job) {
    for (uint32_t i = 0; i < s->len; i++)
        if (s->at[i].id == job)
            return &s->at[i];
    fail_msg("no sample of job %llu", (unsigned long long)job);
    return NULL;
}

static void test_processes(void **state) {
    struct gpu_monitor *m;
    struct gpu_samples s;
    struct puppet *p = start(&m);
    const struct gpu_use uses[] = {{.job = 7, .attempt = 1, .index = 1, .milli = 500},
                                   {.job = 8, .attempt = 1, .index = 1, .milli = 250}};
    p->processes[1][0] = (struct gpu_process){.pid = 71, .memory_bytes = 1000, .utilisation_milli = 200};
    p->processes[1][1] = (struct gpu_process){.pid = 72, .memory_bytes = 500, .utilisation_milli = 100};
    p->processes[1][2] = (struct gpu_process){.pid = 81, .memory_bytes = 50, .utilisation_milli = 100};
    p->processes[1][3] = (struct gpu_process){.pid = 3, .memory_bytes = 9, .utilisation_milli = 200};  // nobody's
    p->next[1] = (struct gpu_reading){.process_count = 4, .process_use = true,
                                      .sample = {.utilisation_milli = 600, .power_mw = 600000, .energy_mj = 1000000}};
    step(m, 1000, uses, 2, &s);
    assert_int_equal(s.len, 4);
    assert_int_equal(s.at[0].id, 0);
    for (int i = 1; i <= 10; i++) {
        p->next[1].sample.energy_mj += 600000;
        step(m, 1000 + i * 1000, uses, 2, &s);
    }
    const struct gpu_sample *a = of_job(&s, 7);
    assert_int_equal(a->utilisation_milli, 300);
    assert_int_equal(a->memory_used_bytes, 1500);
    assert_int_equal(a->memory_total_bytes, 50 << 20);
    assert_int_equal(a->power_mw, 300000);
    assert_int_equal(a->energy_mj, 3000000);
    assert_int_equal(of_job(&s, 8)->energy_mj, 1000000);
    assert_int_equal(s.at[1].foreign_processes, 1);
    assert_int_equal(s.at[1].foreign_bytes, 9);
    assert_int_equal(s.at[0].foreign_processes, 0);
    struct usage u = {0};
    assert_true(gpu_monitor_usage(m, 7, 1, &u));
    assert_int_equal(u.gpu_busy_ms, 3000);
    assert_int_equal(u.energy_mj, 3000000);
    assert_int_equal(u.gpu_memory_peak_bytes, 1500);
    assert_false(gpu_monitor_usage(m, 7, 2, &u));
    step(m, 40000, uses + 1, 1, &s);  // the attempt is gone, what it used is still known
    assert_true(gpu_monitor_usage(m, 7, 1, &u));
    step(m, 90000, uses + 1, 1, &s);
    assert_false(gpu_monitor_usage(m, 7, 1, &u));
    gpu_monitor_free(m);
}

static void test_whole_gpu(void **state) {
    struct gpu_monitor *m;
    struct gpu_samples s;
    struct puppet *p = start(&m);
    const struct gpu_use use = {.job = 7, .attempt = 1, .index = 0, .milli = 1000};
    p->next[0] = (struct gpu_reading){
        .process_use = true, .sample = {.utilisation_milli = 900, .power_mw = 1, .memory_used_bytes = 77}};
    step(m, 1000, &use, 1, &s);
    assert_int_equal(of_job(&s, 7)->utilisation_milli, 900);  // also when its processes cannot be seen
    assert_int_equal(of_job(&s, 7)->memory_used_bytes, 77);
    // Without a counter the energy is added up from the power.
    p->next[0].sample.power_mw = 400000;
    step(m, 2000, &use, 1, &s);
    step(m, 3000, &use, 1, &s);
    assert_int_equal(of_job(&s, 7)->energy_mj, 800000);
    gpu_monitor_free(m);
}

static void test_unknown_use(void **state) {
    struct gpu_monitor *m;
    struct gpu_samples s;
    struct puppet *p = start(&m);
    const struct gpu_use use = {.job = 7, .attempt = 1, .index = 0, .milli = 1000};
    p->next[0] = (struct gpu_reading){.sample = {.utilisation_unknown = true, .power_mw = 1000}};
    step(m, 1000, &use, 1, &s);
    assert_true(of_job(&s, 7)->utilisation_unknown);
    gpu_monitor_free(m);
}

static void test_ledger(void **state) {
    struct gpu_monitor *m;
    struct gpu_samples s;
    struct puppet *p = start(&m);
    char dir[] = "/tmp/acequia-ledger-XXXXXX", path[LEDGER_PATH_MAX];
    assert_non_null(mkdtemp(dir));
    assert_int_equal(ledger_path(path, dir, "GPU-01234567-89ab-cdef-0123-456789abcdef", LEDGER_SUFFIX), 0);
    struct ledger_limits limits = {.memory_bytes = 64 << 20, .compute_milli = 500};
    assert_int_equal(ledger_create(path, "7", "GPU-01234567-89ab-cdef-0123-456789abcdef", &limits, 0600, false), 0);
    struct ledger *l;
    assert_int_equal(ledger_open(path, &l), 0);
    assert_int_equal(ledger_attach(l), 0);
    const struct gpu_use use = {
        .job = 7, .attempt = 1, .index = 0, .milli = 500, .memory_limit_bytes = 64 << 20, .ledger = path};
    p->processes[0][0] = (struct gpu_process){.pid = 70, .memory_bytes = 40 << 20, .utilisation_milli = 990};
    p->next[0] = (struct gpu_reading){
        .process_use = true, .process_count = 1, .sample = {.utilisation_milli = 990, .power_mw = 1000}};
    assert_int_equal(ledger_reserve(l, LEDGER_DEVICE, 32 << 20), 0);
    step(m, 1000, &use, 1, &s);
    atomic_fetch_add(&ledger_compute(l)->gpu_ns, 480000000);
    atomic_fetch_add(&ledger_compute(l)->throttled_ns, 120000000);
    step(m, 2000, &use, 1, &s);
    assert_int_equal(of_job(&s, 7)->utilisation_milli, 480);  // the ledger knows better than the driver
    assert_int_equal(of_job(&s, 7)->throttled_milli, 120);
    assert_int_equal(of_job(&s, 7)->memory_used_bytes, 32 << 20);
    assert_int_equal(of_job(&s, 7)->memory_total_bytes, 64 << 20);
    struct usage u = {0};
    assert_true(gpu_monitor_usage(m, 7, 1, &u));
    assert_int_equal(u.gpu_busy_ms, 480);
    assert_int_equal(u.gpu_throttled_ms, 120);
    ledger_close(l);
    unlink(path);
    step(m, 3000, &use, 1, &s);  // gone with the job: the driver's figures again
    assert_int_equal(of_job(&s, 7)->utilisation_milli, 990);
    rmdir(dir);
    gpu_monitor_free(m);
}

static void test_health_is_told_once(void **state) {
    struct gpu_monitor *m;
    struct gpu_samples s;
    struct puppet *p = start(&m);
    uint32_t n;
    step(m, 1000, NULL, 0, &s);
    assert_false(s.health_changed);
    p->next[1] = (struct gpu_reading){.xids = {79}, .xid_count = 1, .sample.energy_mj = 100};
    step(m, 2000, NULL, 0, &s);
    assert_true(s.health_changed);
    assert_string_equal(gpu_monitor_gpus(m, &n)[1].unhealthy, "XID 79: fell off the bus; reset the GPU");
    assert_null(gpu_monitor_gpus(m, &n)[0].unhealthy);
    assert_int_equal(s.at[1].xid_errors, 79);
    p->next[1] = (struct gpu_reading){.error = -5};
    step(m, 3000, NULL, 0, &s);
    assert_int_equal(s.len, 1);  // no figures of a GPU that does not answer
    p->next[1] = (struct gpu_reading){.sample.energy_mj = 1};
    for (int i = 4; i < 20; i++)
        step(m, i * 1000, NULL, 0, &s);
    assert_null(gpu_monitor_gpus(m, &n)[1].unhealthy);
    gpu_monitor_free(m);
}

// What needs a reset is known to the next run, until the counter tells that there was one.
static void test_health_outlives_the_agent(void **state) {
    struct gpu_monitor *m;
    struct gpu_samples s;
    struct buf kept = {0};
    uint32_t n;
    struct puppet *p = start(&m);
    p->next[0] = (struct gpu_reading){.xids = {74}, .xid_count = 1};  // counts no energy: nothing could heal it
    p->next[1] = (struct gpu_reading){.xids = {119}, .xid_count = 1, .sample.energy_mj = 5000};
    step(m, 1000, NULL, 0, &s);
    gpu_monitor_keep(m, &kept);
    assert_string_equal(buf_str(&kept), "GPU-y 119 5000\n");
    gpu_monitor_free(m);
    for (int reset = 0; reset < 2; reset++) {
        p = start(&m);
        gpu_monitor_recall(m, "junk\nGPU-x 13 77\nGPU-z 79 1\n\nGPU-y 119 5000\n");
        assert_string_equal(gpu_monitor_gpus(m, &n)[1].unhealthy,
                            "XID 119: the GPU's system processor does not answer; reset the GPU");
        assert_null(gpu_monitor_gpus(m, &n)[0].unhealthy);
        p->next[1] = (struct gpu_reading){.sample.energy_mj = reset ? 10 : 6000};
        step(m, 1000, NULL, 0, &s);
        assert_int_equal(s.health_changed, reset);
        assert_int_equal(gpu_monitor_gpus(m, &n)[1].unhealthy == NULL, reset);
        gpu_monitor_free(m);
    }
    buf_done(&kept);
}

static void test_audit_of_processes(void **state) {
    struct gpu_monitor *m;
    struct gpu_samples s;
    struct puppet *p = start(&m);
    char dir[] = "/tmp/acequia-ledger-XXXXXX", path[LEDGER_PATH_MAX];
    assert_non_null(mkdtemp(dir));
    assert_int_equal(ledger_path(path, dir, "GPU-01234567-89ab-cdef-0123-456789abcdef", LEDGER_SUFFIX), 0);
    struct ledger_limits limits = {.memory_bytes = 50 << 20, .compute_milli = 500};
    assert_int_equal(ledger_create(path, "7", "GPU-01234567-89ab-cdef-0123-456789abcdef", &limits, 0600, false), 0);
    struct ledger *l;
    assert_int_equal(ledger_open(path, &l), 0);
    assert_int_equal(ledger_attach(l), 0);  // the ledger knows this process
    const struct gpu_use use = {.job = 0, .attempt = 1, .index = 0, .milli = 500, .ledger = path};
    struct gpu_use mine = use;
    mine.job = (uint64_t)getpid() / 10;
    p->processes[0][0] = (struct gpu_process){.pid = (uint32_t)getpid(), .memory_bytes = 40 << 20};
    p->next[0] = (struct gpu_reading){.processes_fresh = true, .process_count = 1, .sample = {.power_mw = 1000}};
    for (int t = 1; t < 10; t++) {
        step(m, t * 1000, &mine, 1, &s);
        assert_int_equal(s.finding_count, 0);
    }
    // A process of the job that is in no ledger, and one of a job that holds nothing here.
    struct gpu_use other = use;
    other.job = 7;
    p->processes[0][0].pid = 71;
    p->processes[1][0] = (struct gpu_process){.pid = 71, .memory_bytes = 1 << 20};
    p->next[1] = p->next[0];
    for (int t = 10; t < 14; t++)
        step(m, t * 1000, &other, 1, &s);
    assert_int_equal(s.finding_count, 2);
    assert_int_equal(s.findings[0].job, 7);
    assert_int_equal(s.findings[0].what.kind, AUDIT_AROUND);
    assert_non_null(strstr(of_job(&s, 7)->finding, "process 71 used GPU 0 without"));
    assert_int_equal(s.findings[1].what.kind, AUDIT_STRAY);
    assert_non_null(strstr(s.findings[1].text, "process 71 used GPU 1, which the job does not hold"));
    assert_int_equal(s.len, 4);  // a stray one is told, as what it is
    assert_true(s.at[3].stray && s.at[3].id == 7 && s.at[3].index == 1);
    assert_non_null(strstr(s.at[3].finding, "process 71 used GPU 1"));
    gpu_monitor_read(m, 20000);  // not looked at: nothing is found
    gpu_monitor_split(m, &(struct gpu_holders){.uses = &other, .count = 1, .owner = owner, .no_audit = true}, &s);
    assert_int_equal(s.finding_count, 0);
    ledger_close(l);
    unlink(path);
    rmdir(dir);
    gpu_monitor_free(m);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_processes), cmocka_unit_test(test_whole_gpu), cmocka_unit_test(test_unknown_use),
        cmocka_unit_test(test_ledger),    cmocka_unit_test(test_health_is_told_once),
        cmocka_unit_test(test_audit_of_processes), cmocka_unit_test(test_health_outlives_the_agent),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
