// Asked against used, the option to change, and the steps of idle GPUs.
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>
#include <string.h>

#include "metrics/efficiency.h"
#include "model/units.h"

struct rig {
    struct arena arena;
    struct spec spec;
    struct gpu_grant grants[8];
    struct part part;
    struct job_record record;
    struct usage usage;
    struct efficiency_input in;
    struct efficiency out;
};

// A job of an hour on one node: 8 CPUs, 64 GiB, and GPUs.
static void set_up(struct rig *r, uint32_t gpus, uint32_t milli) {
    *r = (struct rig){0};
    for (uint32_t i = 0; i < gpus; i++)
        r->grants[i] = (struct gpu_grant){.index = i, .milli = milli};
    r->part = (struct part){.node = "n1", .cpus = 8, .tasks = 1, .memory_bytes = 64 * SIZE_G};
    r->part.gpus.at = r->grants;
    r->part.gpus.len = gpus;
    r->record = (struct job_record){
        .id = 1, .spec = &r->spec, .state = JOB_COMPLETED, .start_ms = 1000, .end_ms = 1000 + 3600000};
    r->record.parts.at = &r->part;
    r->record.parts.len = 1;
    r->in = (struct efficiency_input){.record = &r->record,
                                      .usage = &r->usage,
                                      .now_ms = 9000000,
                                      .time_limit_s = 4 * 3600,
                                      .gpu_memory_bytes = gpus * (80 * SIZE_G / 1000 * milli),
                                      .gpu_memory_each_bytes = 80 * SIZE_G};
}

static const struct efficiency_row *look(struct rig *r, enum efficiency_what what) {
    arena_done(&r->arena);
    efficiency_of(&r->in, &r->arena, &r->out);
    return &r->out.rows[what];
}

static void test_cpu(void **state) {
    struct rig r;
    set_up(&r, 0, 0);
    r.usage.cpu_user_us = 3600ULL * 1000000 * 2 - 1800000000;  // 1.5 CPUs
    const struct efficiency_row *row = look(&r, EFFICIENCY_CPU);
    assert_int_equal(row->asked, 8000);
    assert_int_equal(row->used, 1500);
    assert_int_equal(row->percent, 18);
    assert_string_equal(row->option, "--cpus 2");
    r.usage.cpu_user_us = 3600ULL * 1000000 * 7;
    assert_null(look(&r, EFFICIENCY_CPU)->option);
    r.part.tasks = 4;
    r.usage.cpu_user_us = 3600ULL * 1000000 * 3;
    assert_string_equal(look(&r, EFFICIENCY_CPU)->option, "--cpus 1");
    r.record.end_ms = r.record.start_ms + 5000;
    r.usage.cpu_user_us = 0;
    assert_null(look(&r, EFFICIENCY_CPU)->option);  // too short to say
    assert_true(r.out.too_short);
    arena_done(&r.arena);
}

static void test_memory(void **state) {
    struct rig r;
    set_up(&r, 0, 0);
    r.usage.memory_peak_bytes = 10 * SIZE_G;
    const struct efficiency_row *row = look(&r, EFFICIENCY_MEMORY);
    assert_int_equal(row->percent, 15);
    assert_string_equal(row->option, "--memory 12G");
    r.spec.memory_per_cpu_bytes = 8 * SIZE_G;
    assert_string_equal(look(&r, EFFICIENCY_MEMORY)->option, "--memory-per-cpu 1.5G");
    r.spec.memory_per_cpu_bytes = 0;
    r.usage.memory_peak_bytes = 63 * SIZE_G;
    assert_string_equal(look(&r, EFFICIENCY_MEMORY)->option, "--memory 76G");
    r.record.state = JOB_OUT_OF_MEMORY;
    assert_string_equal(look(&r, EFFICIENCY_MEMORY)->option, "--memory 96G");
    r.usage.memory_peak_bytes = 0;
    assert_false(look(&r, EFFICIENCY_MEMORY)->known);
    arena_done(&r.arena);
}

static void test_gpus(void **state) {
    struct rig r;
    set_up(&r, 4, 1000);
    r.usage.gpu_busy_ms = 3600000 * 3 / 2;  // one and a half of four
    r.usage.gpu_memory_peak_bytes = 100 * SIZE_G;
    const struct efficiency_row *row = look(&r, EFFICIENCY_GPU);
    assert_int_equal(row->used, 1500);
    assert_int_equal(row->percent, 37);
    assert_string_equal(row->option, "--gpus 2");
    assert_string_equal(row->text, "1.5 of 4 GPUs were busy on average; less would do.");
    r.usage.gpu_memory_peak_bytes = 300 * SIZE_G;  // the memory needs all four
    assert_null(look(&r, EFFICIENCY_GPU)->option);
    r.usage.gpu_busy_ms = r.usage.gpu_memory_peak_bytes = 0;
    row = look(&r, EFFICIENCY_GPU);  // nobody looked: nothing is said of it
    assert_true(row->known && row->unmeasured && !row->option);
    assert_string_equal(row->text, "Its GPUs were not measured.");
    assert_false(look(&r, EFFICIENCY_GPU_MEMORY)->known);
    r.usage.gpu_measured_ms = 4 * 3600000;
    assert_string_equal(look(&r, EFFICIENCY_GPU)->option, "--gpus 0");
    arena_done(&r.arena);

    set_up(&r, 1, 1000);
    r.spec.gpu_model = "a100";
    r.usage.gpu_busy_ms = 3600000 / 5;
    r.usage.gpu_memory_peak_bytes = 16 * SIZE_G;
    assert_string_equal(look(&r, EFFICIENCY_GPU)->option, "--gpus a100:0.25");
    row = look(&r, EFFICIENCY_GPU_MEMORY);
    assert_int_equal(row->percent, 20);
    assert_null(row->option);
    arena_done(&r.arena);

    set_up(&r, 1, 500);
    r.spec.gpu_memory_bytes = 40 * SIZE_G;
    r.usage.gpu_busy_ms = 3600000 / 2;
    r.usage.gpu_memory_peak_bytes = 10 * SIZE_G;
    assert_null(look(&r, EFFICIENCY_GPU)->option);
    assert_string_equal(look(&r, EFFICIENCY_GPU_MEMORY)->option, "--gpu-memory 12G");
    arena_done(&r.arena);
}

// The average is over the time in which somebody looked; advice needs half of it.
static void test_gpus_measured_in_part(void **state) {
    struct rig r;
    set_up(&r, 2, 1000);
    r.usage.gpu_measured_ms = 2 * 2400000;  // 40 of 60 minutes
    r.usage.gpu_busy_ms = 2 * 2400000 / 4;
    const struct efficiency_row *row = look(&r, EFFICIENCY_GPU);
    assert_int_equal(row->used, 500);
    assert_string_equal(row->option, "--gpus 0.6");
    r.usage.gpu_measured_ms = 2 * 600000;
    r.usage.gpu_busy_ms = 2 * 600000 / 4;
    row = look(&r, EFFICIENCY_GPU);
    assert_int_equal(row->used, 500);
    assert_null(row->option);
    arena_done(&r.arena);
}

// What is advised can be asked for: whole GPUs over several nodes, no more memory than a GPU has, and the
// share that goes with the memory is not talked away.
static void test_gpus_that_can_be_had(void **state) {
    struct rig r;
    struct part parts[2];
    set_up(&r, 4, 1000);
    parts[0] = parts[1] = r.part;
    r.record.parts.at = parts;
    r.record.parts.len = 2;
    r.in.gpu_memory_bytes = 8 * 80 * SIZE_G;
    r.usage.gpu_measured_ms = 8 * 3600000;
    r.usage.gpu_busy_ms = 3600000 / 4;
    assert_string_equal(look(&r, EFFICIENCY_GPU)->option, "--gpus 2");
    r.spec.gpus_per_node_milli = 4000;
    assert_string_equal(look(&r, EFFICIENCY_GPU)->option, "--gpus-per-node 0.2");
    r.spec.gpus_per_node_milli = 0;
    parts[0].gpus.len = parts[1].gpus.len = 1;  // one on each node: it cannot be less
    r.in.gpu_memory_bytes = 2 * 80 * SIZE_G;
    r.usage.gpu_measured_ms = 2 * 3600000;
    assert_null(look(&r, EFFICIENCY_GPU)->option);
    arena_done(&r.arena);

    set_up(&r, 1, 900);
    r.spec.gpu_memory_bytes = 72 * SIZE_G;
    r.usage.gpu_measured_ms = 3600000;
    r.usage.gpu_busy_ms = 360000;
    r.usage.gpu_memory_peak_bytes = 72 * SIZE_G - SIZE_M;
    assert_null(look(&r, EFFICIENCY_GPU)->option);
    assert_string_equal(look(&r, EFFICIENCY_GPU_MEMORY)->option, "--gpus 1");
    r.spec.gpu_memory_bytes = 0;
    assert_string_equal(look(&r, EFFICIENCY_GPU_MEMORY)->option, "--gpus 1");
    arena_done(&r.arena);
}

static void test_failed(void **state) {
    struct rig r;
    set_up(&r, 4, 1000);
    r.usage.gpu_measured_ms = 4 * 3600000;
    r.usage.memory_peak_bytes = SIZE_G;
    r.record.state = JOB_FAILED;
    for (int i = 0; i < EFFICIENCY_ROWS; i++)
        assert_null(look(&r, (enum efficiency_what)i)->option);
    assert_true(r.out.failed);
    r.record.state = JOB_CANCELLED;  // as notebooks end
    assert_non_null(look(&r, EFFICIENCY_GPU)->option);
    assert_null(look(&r, EFFICIENCY_TIME)->option);
    r.record.state = JOB_OUT_OF_MEMORY;
    assert_string_equal(look(&r, EFFICIENCY_MEMORY)->option, "--memory 96G");
    assert_null(look(&r, EFFICIENCY_GPU)->option);
    arena_done(&r.arena);
}

// An array: means of what runs, the highest peak, the longest time, all the energy.
static void test_array(void **state) {
    struct rig r;
    struct efficiency_sum s = {0};
    struct usage mean;
    set_up(&r, 1, 1000);
    for (int i = 1; i <= 4; i++) {
        r.usage = (struct usage){.cpu_user_us = 3600000000ULL * (uint64_t)i, .memory_peak_bytes = (uint64_t)i * SIZE_G,
                                 .gpu_busy_ms = 900000, .gpu_measured_ms = (uint64_t)i * 1800000,
                                 .gpu_memory_peak_bytes = (uint64_t)i * 4 * SIZE_G, .energy_mj = 3600000};
        r.record.end_ms = r.record.start_ms + i * 1800000;
        efficiency_add(&s, &r.record, &r.usage, 0);
    }
    efficiency_mean(&s, &r.record, &mean, &r.in);
    const struct efficiency_row *row = look(&r, EFFICIENCY_CPU);
    assert_int_equal(r.out.elements, 4);
    assert_int_equal(r.out.elapsed_s, 4500);
    assert_int_equal(row->used, 2000);
    assert_int_equal(look(&r, EFFICIENCY_MEMORY)->used, 4 * SIZE_G);
    assert_int_equal(look(&r, EFFICIENCY_GPU)->used, 200);
    assert_string_equal(look(&r, EFFICIENCY_GPU)->option, "--gpus 0.25");
    assert_int_equal(look(&r, EFFICIENCY_TIME)->used, 7200);
    assert_string_equal(look(&r, EFFICIENCY_TIME)->option, "--time 2h45m");
    assert_int_equal(look(&r, EFFICIENCY_ENERGY)->used, 4 * 3600);
    r.record.state = JOB_OUT_OF_MEMORY;
    efficiency_add(&s, &r.record, &r.usage, 0);
    efficiency_mean(&s, &r.record, &mean, &r.in);
    assert_string_equal(look(&r, EFFICIENCY_MEMORY)->option, "--memory 96G");
    arena_done(&r.arena);
}

static void test_time_and_energy(void **state) {
    struct rig r;
    set_up(&r, 1, 1000);
    const struct efficiency_row *row = look(&r, EFFICIENCY_TIME);
    assert_int_equal(row->percent, 25);
    assert_string_equal(row->option, "--time 1h30m");
    r.record.state = JOB_RUNNING;
    r.in.now_ms = r.record.start_ms + 3600000;
    assert_null(look(&r, EFFICIENCY_TIME)->option);  // not over yet
    r.record.state = JOB_TIMEOUT;
    assert_string_equal(look(&r, EFFICIENCY_TIME)->option, "--time 6h");
    r.usage.energy_mj = 3600000ULL * 1234;
    row = look(&r, EFFICIENCY_ENERGY);
    assert_int_equal(row->used, 3600 * 1234);
    assert_string_equal(row->text, "1234.000 Wh drawn by its GPUs, by share of use.");
    arena_done(&r.arena);
}

static void test_idle(void **state) {
    struct idle_state s = {0};
    const struct idle_policy p = {.below_milli = 10, .after_s = 600, .warn_s = 1200, .end_s = 1800};
    enum idle_step step;
    int64_t named = 0, warned = 0, ended = 0;
    for (int64_t t = 0; t <= 2000; t++) {
        step = metrics_idle_look(&s, &p, t * 1000, t == 5 ? 500 : 3);
        named += step == IDLE_NAME ? t : 0;
        warned += step == IDLE_WARN ? t : 0;
        ended += step == IDLE_END ? t : 0;
    }
    assert_int_equal(named, 606);
    assert_int_equal(warned, 1206);
    assert_int_equal(ended, 1806);
    assert_int_equal(metrics_idle_seconds(&s), 1994);
    assert_int_equal(metrics_idle_look(&s, &p, 2007000, -1), IDLE_NOTHING);  // not measured
    assert_int_equal(metrics_idle_seconds(&s), 1994);
    assert_int_equal(metrics_idle_look(&s, &p, 2008000, 10), IDLE_BUSY_AGAIN);
    assert_int_equal(metrics_idle_seconds(&s), 0);
    const struct idle_policy off = {.below_milli = 10};
    for (int64_t t = 0; t < 100000; t++)
        assert_int_equal(metrics_idle_look(&s, &off, 3000000 + t * 1000, 0), IDLE_NOTHING);
}

// What was not measured is not counted: readings that failed, an agent that was away, a clock that jumps.
static void test_idle_counts_what_was_measured(void **state) {
    const struct idle_policy p = {.below_milli = 10, .after_s = 60, .end_s = 600};
    struct idle_state s = {0};
    int64_t t = 1800000000000;
    for (int i = 0; i <= 30; i++, t += 1000)
        assert_int_equal(metrics_idle_look(&s, &p, t, 0), IDLE_NOTHING);
    assert_int_equal(metrics_idle_seconds(&s), 30);
    for (int i = 0; i < 3600; i++, t += 1000)  // the driver does not answer for an hour
        assert_int_equal(metrics_idle_look(&s, &p, t, -1), IDLE_NOTHING);
    assert_int_equal(metrics_idle_look(&s, &p, t, 0), IDLE_NOTHING);
    assert_int_equal(metrics_idle_seconds(&s), 30);
    t += 3600000;  // the clock is set forward by an hour: no more than a moment
    assert_int_equal(metrics_idle_look(&s, &p, t, 0), IDLE_NOTHING);
    assert_int_equal(metrics_idle_seconds(&s), 30 + IDLE_GAP_MS / 1000);
    t -= 86400000;  // and back by a day: it goes on from there
    assert_int_equal(metrics_idle_look(&s, &p, t, 0), IDLE_NOTHING);
    for (int i = 0; i < 25; i++)
        metrics_idle_look(&s, &p, t += 1000, 0);
    assert_int_equal(metrics_idle_seconds(&s), 60);
    assert_int_equal(s.stage, IDLE_NAMED);
}

// A twentieth of a GPU that is used to a tenth is 0.5 % of the GPU, and in use.
static void test_idle_of_fractions(void **state) {
    assert_int_equal(metrics_idle_below_milli(4000), 10);
    assert_int_equal(metrics_idle_below_milli(1000), 10);
    assert_int_equal(metrics_idle_below_milli(500), 5);
    assert_int_equal(metrics_idle_below_milli(200), 2);
    assert_int_equal(metrics_idle_below_milli(50), 1);
    assert_int_equal(metrics_idle_below_milli(0), 1);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_cpu),  cmocka_unit_test(test_memory),
        cmocka_unit_test(test_gpus), cmocka_unit_test(test_time_and_energy), cmocka_unit_test(test_idle),
        cmocka_unit_test(test_gpus_measured_in_part), cmocka_unit_test(test_gpus_that_can_be_had),
        cmocka_unit_test(test_failed), cmocka_unit_test(test_array),
        cmocka_unit_test(test_idle_counts_what_was_measured),
        cmocka_unit_test(test_idle_of_fractions),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
