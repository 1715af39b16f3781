// `gpu_show [SECONDS [simulated MODEL:COUNT]]`: one JSON line with the GPUs, then one per second with
// the samples and what the reading cost.
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "base/clock.h"
#include "base/json.h"
#include "base/text.h"
#include "device/monitor.h"
#include "device/nvml.h"

static int64_t cpu_us(void) {
    struct timespec t;
    clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &t);
    return t.tv_sec * 1000000LL + t.tv_nsec / 1000;
}

static void show_gpus(const struct gpu_monitor *m) {
    struct buf b = {0};
    struct json_writer w = {.out = &b};
    uint32_t n;
    const struct gpu *g = gpu_monitor_gpus(m, &n);
    json_open(&w, '[');
    for (uint32_t i = 0; i < n; i++)
        schema_write_json(&gpu_schema, &g[i], &w);
    json_close(&w, ']');
    printf("%s\n", buf_str(&b));
    buf_done(&b);
}

static void show_samples(const struct gpu_samples *s, int64_t wall_us, int64_t used_us) {
    struct message_telemetry t = {.at_ms = clock_wall_ms()};
    struct gpu_sample *copy = s->len ? malloc(s->len * sizeof *copy) : NULL;
    if (copy)
        memcpy(copy, s->at, s->len * sizeof *copy);
    t.gpus.at = copy;
    t.gpus.len = copy ? s->len : 0;
    struct buf b = {0};
    struct json_writer w = {.out = &b};
    json_open(&w, '{');
    json_kv_i64(&w, "wall_us", wall_us);
    json_kv_i64(&w, "cpu_us", used_us);
    json_key(&w, "telemetry");
    schema_write_json(message_info(MESSAGE_TELEMETRY)->schema, &t, &w);
    json_close(&w, '}');
    printf("%s\n", buf_str(&b));
    fflush(stdout);
    buf_done(&b);
    free(copy);
}

// What each question costs by the reader's own count, and how old its answer may get.
static void show_costs(const struct nvml_source *s) {
    static const char *const names[] = {
        "memory",  "use",  "engines", "energy",    "power",       "temperature", "memory_temperature", "clocks",
        "reasons", "pcie", "nvlink",  "processes", "process_use", "errors",      "profile"};
    _Static_assert(sizeof names / sizeof *names == PROBE_COUNT, "a name for each question");
    struct buf b = {0};
    struct json_writer w = {.out = &b};
    json_open(&w, '{');
    json_open_key(&w, "costs_us", '{');
    for (int i = 0; i < PROBE_COUNT; i++)
        json_kv_i64(&w, names[i], (int64_t)s->gpus[0].turns[i].cost_us);
    json_kv_i64(&w, "events", (int64_t)s->event_turn.cost_us);
    json_close(&w, '}');
    json_close(&w, '}');
    printf("%s\n", buf_str(&b));
    buf_done(&b);
}

// With the pid of a process given in GPU_SHOW_PID, that process is job 1.
static bool owner(void *ctx, uint32_t pid, uint64_t *job, uint32_t *attempt) {
    *job = 1;
    *attempt = 1;
    return pid == *(const uint32_t *)ctx;
}

int main(int argc, char **argv) {
    uint32_t seconds = 3, pid = 0;
    struct error e = {0};
    struct gpu_source *source = NULL;
    struct gpu_monitor *m = NULL;
    if (argc > 1 && parse_u32(argv[1], &seconds) < 0)
        return 2;
    if (getenv("GPU_SHOW_PID") && parse_u32(getenv("GPU_SHOW_PID"), &pid) < 0)
        return 2;
    struct gpu_sim_model model = {.model = argc > 3 ? argv[3] : "h200", .count = 8};
    int r = argc > 2
                ? gpu_sim_open(&(struct gpu_sim_config){.node = "show", .models = &model, .model_count = 1},
                               &source, &e)
                : gpu_nvml_open(NULL, NULL, &source, &e);
    if (r == 0)
        r = gpu_monitor_new(source, &m, &e);
    if (r < 0) {
        fprintf(stderr, "gpu_show: %s\n", e.text);
        return r == -ENOENT ? 77 : 1;
    }
    show_gpus(m);
    if (argc <= 2)
        ((struct nvml_source *)source)->gpm_always = getenv("GPU_SHOW_GPM") != NULL;
    struct gpu_use use = {.job = 1, .attempt = 1, .index = 0, .milli = 500, .load_milli = -1};
    for (uint32_t i = 0; i <= seconds; i++) {
        struct gpu_samples samples;
        int64_t wall = clock_mono_us(), used = cpu_us();
        gpu_monitor_read(m, clock_mono_ms());
        gpu_monitor_split(m, &(struct gpu_holders){.uses = &use, .count = 1, .owner = owner, .ctx = &pid}, &samples);
        show_samples(&samples, clock_mono_us() - wall, cpu_us() - used);
        if (i < seconds)
            nanosleep(&(struct timespec){.tv_sec = 1}, NULL);
    }
    if (argc <= 2)
        show_costs((const struct nvml_source *)source);
    gpu_monitor_free(m);
    return 0;
}
