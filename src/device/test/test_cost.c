// What a second of telemetry costs on a node with 8 GPUs and 64 jobs: under 1 % of one core, which is
// 10 ms. The pretended driver answers at once, so this is our own part; the real driver's is measured
// by tests/gpu/telemetry.sh.
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>
#include <dlfcn.h>
#include <stdio.h>
#include <string.h>
#include <time.h>

#include "device/monitor.h"
#include "fake_nvml.h"

enum { SECONDS = 300, GPUS = 8, JOBS_PER_GPU = 8, LIMIT_US = 10000 };

static const char *library;

static int64_t cpu_us(void) {
    struct timespec t;
    clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &t);
    return t.tv_sec * 1000000LL + t.tv_nsec / 1000;
}

static bool owner(void *ctx, uint32_t pid, uint64_t *job, uint32_t *attempt) {
    *job = pid - 1000;
    *attempt = 1;
    return true;
}

static void measure(struct gpu_source *source, const char *name) {
    struct gpu_monitor *m;
    struct error e;
    assert_int_equal(gpu_monitor_new(source, &m, &e), 0);
    struct gpu_use uses[GPUS * JOBS_PER_GPU];
    for (uint32_t i = 0; i < GPUS * JOBS_PER_GPU; i++)
        uses[i] = (struct gpu_use){
            .job = i + 1, .attempt = 1, .index = i / JOBS_PER_GPU, .milli = 125, .load_milli = -1};
    struct gpu_samples s;
    int64_t start = cpu_us();
    for (int t = 1; t <= SECONDS; t++) {
        gpu_monitor_read(m, t * 1000);
        gpu_monitor_split(m, &(struct gpu_holders){.uses = uses, .count = GPUS * JOBS_PER_GPU, .owner = owner}, &s);
    }
    int64_t each = (cpu_us() - start) / SECONDS;
    assert_int_equal(s.len, GPUS + GPUS * JOBS_PER_GPU);
    printf("%s: %lld us of CPU per second for %d GPUs with %d jobs (%.3f %% of a core)\n", name,
           (long long)each, GPUS, GPUS * JOBS_PER_GPU, (double)each / 10000.0);
    assert_true(each < LIMIT_US);
    gpu_monitor_free(m);
}

static void test_simulated(void **state) {
    const struct gpu_sim_model model = {.model = "h200", .count = GPUS};
    struct gpu_source *source;
    struct error e;
    assert_int_equal(
        gpu_sim_open(&(struct gpu_sim_config){.node = "n1", .models = &model, .model_count = 1}, &source, &e),
        0);
    measure(source, "simulated");
}

static void test_nvml(void **state) {
    void *dl = dlopen(library, RTLD_NOW);
    assert_non_null(dl);
    fake_nvml_fn get;
    void *p = dlsym(dl, "fake_nvml");
    memcpy(&get, &p, sizeof p);
    struct fake_nvml *fake = get();
    fake->count = GPUS;
    for (unsigned i = 0; i < GPUS; i++) {
        struct fake_gpu *g = &fake->gpus[i];
        snprintf(g->uuid, sizeof g->uuid, "GPU-%08u-1111-2222-3333-444444444444", i);
        g->total = 100ULL << 30;
        for (unsigned k = 0; k < JOBS_PER_GPU; k++)
            g->processes[g->process_count++] = (struct fake_process){
                .pid = 1001 + i * JOBS_PER_GPU + k, .memory = 1 << 20, .sm = {10}, .samples = 1};
    }
    struct gpu_source *source;
    struct error e;
    assert_int_equal(gpu_nvml_open(library, NULL, &source, &e), 0);
    measure(source, "pretended NVML");
    dlclose(dl);
}

// A driver that waits busily: what is dear is asked less often, and still everything is asked.
static void test_dear_driver(void **state) {
    enum { READINGS = 60, SKIPPED = 30 };
    void *dl = dlopen(library, RTLD_NOW);
    assert_non_null(dl);
    fake_nvml_fn get;
    void *p = dlsym(dl, "fake_nvml");
    memcpy(&get, &p, sizeof p);
    struct fake_nvml *fake = get();
    memset(fake, 0, sizeof *fake);
    fake->count = 1;
    snprintf(fake->gpus[0].uuid, sizeof fake->gpus[0].uuid, "GPU-00000000-1111-2222-3333-444444444444");
    fake->gpus[0].total = 100ULL << 30;
    struct gpu_source *source;
    struct gpu_monitor *m;
    struct error e;
    assert_int_equal(gpu_nvml_open(library, NULL, &source, &e), 0);
    assert_int_equal(gpu_monitor_new(source, &m, &e), 0);
    fake->busy_us = 400;  // some twenty calls: 8 ms a reading if all were made
    struct gpu_samples s;
    int64_t start = 0;
    uint64_t told_mj = 0;
    fake->gpus[0].power_mw = 400000;
    for (int t = 1; t <= READINGS; t++) {
        if (t == SKIPPED + 1)
            start = cpu_us();
        fake->gpus[0].utilisation = (unsigned)t % 100;
        fake->gpus[0].temperature = 30 + (unsigned)t / 10;
        fake->gpus[0].energy_mj = 1000000 + (uint64_t)t * 400000;
        gpu_monitor_read(m, t * 1000);
        gpu_monitor_split(m, &(struct gpu_holders){0}, &s);
        assert_true(t * 10 - (int)s.at[0].utilisation_milli <= 60);  // a few seconds old at most
        // Energy goes on each second, by the power, also while its counter is not asked.
        assert_true(s.at[0].energy_mj > told_mj);
        assert_in_range(s.at[0].energy_mj, fake->gpus[0].energy_mj - 400000, fake->gpus[0].energy_mj + 400000);
        told_mj = s.at[0].energy_mj;
    }
    int64_t each = (cpu_us() - start) / (READINGS - SKIPPED);
    printf("a driver of %u us a call: %lld us of CPU per second and GPU\n", fake->busy_us, (long long)each);
    assert_true(each < LIMIT_US / GPUS);
    assert_true(s.at[0].temperature_c >= 34);  // asked again meanwhile
    fake->busy_us = 0;
    gpu_monitor_free(m);
    dlclose(dl);
}

int main(int argc, char **argv) {
    library = argv[1];
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_simulated), cmocka_unit_test(test_nvml),
                                       cmocka_unit_test(test_dear_driver)};
    return argc < 2 ? 2 : cmocka_run_group_tests(tests, NULL, NULL);
}
