// The simulated twin behaves like a GPU: use follows what runs, heat follows with inertia, faults come
// and go, and the same run gives the same figures.
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "device/host.h"
#include "device/monitor.h"

static struct gpu_source *start(struct gpu_monitor **m, const char *faults) {
    const struct gpu_sim_model models[] = {{.model = "h200", .count = 2},
                                           {.model = "v100", .count = 1, .memory_bytes = 16ULL << 30}};
    struct gpu_source *source;
    struct error e;
    assert_int_equal(
        gpu_sim_open(
            &(struct gpu_sim_config){.node = "n1", .models = models, .model_count = 2, .faults = faults},
            &source, &e),
        0);
    assert_int_equal(gpu_monitor_new(source, m, &e), 0);
    return source;
}

static void step(struct gpu_monitor *m, int64_t now_ms, const struct gpu_use *uses, uint32_t n,
                 struct gpu_samples *out) {
    gpu_monitor_read(m, now_ms);
    gpu_monitor_split(m, &(struct gpu_holders){.uses = uses, .count = n}, out);
}

static void test_what_there_is(void **state) {
    struct gpu_monitor *m;
    uint32_t n;
    start(&m, NULL);
    const struct gpu *g = gpu_monitor_gpus(m, &n);
    assert_int_equal(n, 3);
    assert_true(g[0].simulated);
    assert_string_equal(g[0].model, "h200");
    assert_true(g[0].memory_bytes == 141ULL << 30);
    assert_true(g[2].memory_bytes == 16ULL << 30);
    assert_int_equal(strlen(g[0].uuid), 40);
    assert_string_not_equal(g[0].uuid, g[1].uuid);
    struct gpu_nodes nodes;
    gpu_nodes(&g[0], &nodes);
    assert_int_equal(nodes.count, 0);
    gpu_monitor_free(m);
}

static void test_follows_what_runs(void **state) {
    struct gpu_monitor *m;
    struct gpu_samples s;
    start(&m, NULL);
    const struct gpu_use uses[] = {{.job = 5, .attempt = 1, .index = 0, .milli = 1000, .load_milli = -1},
                                   {.job = 6, .attempt = 1, .index = 1, .milli = 500, .load_milli = 0},
                                   {.job = 7, .attempt = 1, .index = 1, .milli = 250, .load_milli = 800}};
    int64_t now = 1000;
    step(m, now, NULL, 0, &s);
    assert_int_equal(s.at[0].utilisation_milli, 0);
    int32_t cold = s.at[0].temperature_c;
    uint64_t idle_mw = s.at[0].power_mw;
    for (int i = 0; i < 15; i++)
        step(m, now += 1000, uses, 3, &s);
    int32_t warm = s.at[0].temperature_c;
    for (int i = 0; i < 100; i++)
        step(m, now += 1000, uses, 3, &s);
    int32_t hot = s.at[0].temperature_c;
    assert_true(cold < warm && warm < hot && hot < 85);  // inertia
    assert_in_range(s.at[0].utilisation_milli, 650, 1000);
    assert_true(s.at[0].power_mw > 4 * idle_mw && s.at[0].power_mw <= 700000);
    assert_int_equal(s.at[1].utilisation_milli, 200);  // 800 of a quarter, nothing of a half
    assert_int_equal(s.len, 6);
    assert_int_equal(s.at[4].id, 6);
    assert_int_equal(s.at[4].utilisation_milli, 0);
    assert_int_equal(s.at[5].utilisation_milli, 200);
    assert_true(s.at[5].memory_used_bytes <= s.at[5].memory_total_bytes);
    assert_true(s.at[3].memory_used_bytes > 50ULL << 30);
    struct usage u = {0}, idle = {0};
    assert_true(gpu_monitor_usage(m, 5, 1, &u) && gpu_monitor_usage(m, 6, 1, &idle));
    assert_true(u.gpu_busy_ms > 60000 && idle.gpu_busy_ms == 0);
    assert_true(u.energy_mj > 10000000 && idle.energy_mj > 0);
    for (int i = 0; i < 200; i++)
        step(m, now += 1000, NULL, 0, &s);
    assert_int_equal(s.at[0].utilisation_milli, 0);
    assert_true(s.at[0].temperature_c < hot - 10);
    gpu_monitor_free(m);
}

static void test_deterministic(void **state) {
    struct gpu_monitor *m[2];
    struct gpu_samples s[2];
    const struct gpu_use use = {.job = 5, .attempt = 1, .index = 0, .milli = 1000, .load_milli = -1};
    start(&m[0], NULL);
    start(&m[1], NULL);
    for (int64_t t = 1000; t < 300000; t += 1000) {
        for (int i = 0; i < 2; i++)
            step(m[i], t, &use, 1, &s[i]);
        assert_int_equal(s[0].len, s[1].len);
        for (uint32_t k = 0; k < s[0].len; k++)
            assert_memory_equal(&s[0].at[k], &s[1].at[k], sizeof *s[0].at);
    }
    gpu_monitor_free(m[0]);
    gpu_monitor_free(m[1]);
}

static void test_faults(void **state) {
    char path[] = "/tmp/acequia-faults-XXXXXX";
    int fd = mkstemp(path);
    assert_true(fd >= 0);
    struct gpu_monitor *m;
    struct gpu_samples s;
    uint32_t n;
    struct gpu_source *source = start(&m, path);
    for (int64_t t = 1000; t < 5000; t += 1000)
        step(m, t, NULL, 0, &s);
    assert_true(dprintf(fd, "1 xid 79\nnonsense\n99 lost\n2 lost\n") > 0);
    step(m, 5000, NULL, 0, &s);
    assert_true(s.health_changed);
    assert_string_equal(gpu_monitor_gpus(m, &n)[1].unhealthy, "XID 79: fell off the bus; reset the GPU");
    assert_string_equal(gpu_monitor_gpus(m, &n)[2].unhealthy, "cannot be read: GPU is lost");
    assert_null(gpu_monitor_gpus(m, &n)[0].unhealthy);
    assert_int_equal(ftruncate(fd, 0), 0);
    for (int64_t t = 6000; t < 20000; t += 1000)
        step(m, t, NULL, 0, &s);
    assert_null(gpu_monitor_gpus(m, &n)[1].unhealthy);
    assert_null(gpu_monitor_gpus(m, &n)[2].unhealthy);
    gpu_sim_fault(source, 0, GPU_FAULT_ECC, 4);
    step(m, 21000, NULL, 0, &s);
    assert_string_equal(gpu_monitor_gpus(m, &n)[0].unhealthy, "4 new uncorrected memory errors");
    close(fd);
    unlink(path);
    gpu_monitor_free(m);
}

static void test_too_many(void **state) {
    const struct gpu_sim_model model = {.model = "h200", .count = GPU_DEVICES_MAX + 1};
    struct gpu_source *source;
    struct error e;
    assert_int_equal(
        gpu_sim_open(&(struct gpu_sim_config){.node = "n1", .models = &model, .model_count = 1}, &source, &e),
        -EINVAL);
    assert_non_null(strstr(e.text, "at most 128 GPUs"));
}

static void test_host(void **state) {
    struct host_state h = {0};
    struct message_telemetry t = {0};
    gpu_host_sample(&h, "/tmp", &t);
    for (volatile int i = 0; i < 30000000; i++)
        ;
    gpu_host_sample(&h, "/tmp", &t);
    assert_true(t.memory_used_bytes > 1 << 20 && t.disk_free_bytes > 0 && t.disk_bytes >= t.disk_free_bytes &&
                t.cpu_milli <= 1000);
}

// A job says how much memory it pretends to hold: beyond its part it is found, within it is not.
static void test_memory_beyond_the_part(void **state) {
    struct gpu_monitor *m;
    struct gpu_samples s;
    start(&m, NULL);
    const struct gpu_use uses[] = {
        {.job = 5, .attempt = 1, .index = 1, .milli = 500, .load_milli = -1, .load_bytes = 90ULL << 30},
        {.job = 6, .attempt = 1, .index = 1, .milli = 500, .load_milli = -1, .load_bytes = 70ULL << 30}};
    for (int t = 1; t <= 6; t++)
        step(m, t * 1000, uses, 2, &s);
    assert_int_equal(s.finding_count, 1);
    assert_int_equal(s.findings[0].job, 5);
    assert_int_equal(s.findings[0].index, 1);
    assert_int_equal(s.findings[0].what.kind, AUDIT_BEYOND);
    gpu_monitor_free(m);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_what_there_is),
        cmocka_unit_test(test_follows_what_runs),
        cmocka_unit_test(test_deterministic),
        cmocka_unit_test(test_faults),
        cmocka_unit_test(test_too_many),
        cmocka_unit_test(test_host),
        cmocka_unit_test(test_memory_beyond_the_part),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
