// Memory of jobs that ask for none.
#include "rig.h"

static const uint64_t GIB = 1ull << 30;

static struct spec filled(struct rig *r, struct spec s) {
    core_fill_defaults(r->core, &alice, &s);
    return s;
}

static void configure(struct rig *r, uint64_t per_cpu) {
    struct core_config config;
    core_config_default(&config);
    config.default_memory_per_cpu_bytes = per_cpu;
    core_configure(r->core, &config);
}

static void a_share_follows_cpus_or_gpus(void **state) {
    struct rig r;
    rig_init(&r);
    configure(&r, CORE_MEMORY_SHARE);
    struct spec s = rig_spec(), out;
    s.memory_per_node_bytes = s.memory_per_cpu_bytes = 0;
    out = filled(&r, s);
    assert_int_equal(out.memory_per_cpu_bytes, 0);  // no node is known
    rig_hello(&r, "n1", 16, 8, "b1", NULL, 0);      // 64 GiB: 4 per CPU, 6 per GPU
    out = filled(&r, s);
    assert_int_equal(out.memory_per_cpu_bytes, 4 * GIB);
    s.gpus_milli = 2000;
    out = filled(&r, s);
    assert_int_equal(out.memory_per_gpu_bytes, 6 * GIB);
    assert_int_equal(out.memory_per_cpu_bytes, 0);
    s.cpus_per_task = 8;  // 32 GiB by CPUs, 12 by GPUs
    out = filled(&r, s);
    assert_int_equal(out.memory_per_cpu_bytes, 4 * GIB);
    s.cpus_per_task = 1;
    s.gpus_milli = 800;
    out = filled(&r, s);
    assert_true(out.memory_per_node_bytes > 4 * GIB && out.memory_per_node_bytes < 5 * GIB);
    s.memory_per_node_bytes = GIB;  // who asks gets what they ask for
    out = filled(&r, s);
    assert_int_equal(out.memory_per_node_bytes, GIB);
    // A smaller node counts as soon as it is there.
    s = rig_spec();
    s.memory_per_node_bytes = s.memory_per_cpu_bytes = 0;
    rig_hello(&r, "n2", 64, 0, "b2", NULL, 0);
    out = filled(&r, s);
    assert_int_equal(out.memory_per_cpu_bytes, GIB);
    rig_done(&r);
}

static void fixed_and_none(void **state) {
    struct rig r;
    rig_init(&r);
    rig_hello(&r, "n1", 16, 8, "b1", NULL, 0);
    struct spec s = rig_spec();
    s.memory_per_node_bytes = s.memory_per_cpu_bytes = 0;
    configure(&r, GIB);
    assert_int_equal(filled(&r, s).memory_per_cpu_bytes, GIB);
    configure(&r, 0);
    assert_int_equal(filled(&r, s).memory_per_cpu_bytes, 0);
    rig_done(&r);
}

static const struct spec *stored(struct rig *r, uint64_t id, struct arena *a) {
    struct job_record record;
    assert_int_equal(core_record(r->core, id, a, &record), 0);
    return record.spec;
}

// That it is a default is kept, so that nobody reads it as asked for, and it follows a change of the job.
static void a_default_is_known_as_one(void **state) {
    struct rig r;
    struct error e = {0};
    cleanup_arena struct arena a = {0};
    rig_init(&r);
    rig_hello(&r, "n1", 16, 8, "b1", NULL, 0);
    configure(&r, CORE_MEMORY_SHARE);
    struct spec s = rig_spec();
    s.memory_per_node_bytes = s.memory_per_cpu_bytes = 0;
    s.hold = true;
    uint64_t id = rig_submit(&r, &alice, &s);
    assert_true(stored(&r, id, &a)->memory_default);
    assert_int_equal(do_update(r.core, &alice, id, &(struct spec){.gpus_milli = 2000}, r.now_ms, &e), 0);
    assert_int_equal(stored(&r, id, &a)->memory_per_gpu_bytes, 6 * GIB);
    assert_int_equal(stored(&r, id, &a)->memory_per_cpu_bytes, 0);
    assert_int_equal(do_update(r.core, &alice, id, &(struct spec){.memory_per_node_bytes = GIB}, r.now_ms, &e), 0);
    assert_false(stored(&r, id, &a)->memory_default);
    s.memory_per_node_bytes = GIB;
    assert_false(stored(&r, rig_submit(&r, &alice, &s), &a)->memory_default);
    rig_drain(&r);
    rig_done(&r);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_share_follows_cpus_or_gpus),
        cmocka_unit_test(fixed_and_none),
        cmocka_unit_test(a_default_is_known_as_one),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
