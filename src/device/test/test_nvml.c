// Discovery and readings through a pretended driver, a current one and an old one.
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>
#include <dlfcn.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "device/gpu.h"
#include "fake_nvml.h"

static const char *library, *old_library;

struct rig {
    void *dl;
    struct fake_nvml *fake;
    struct gpu_source *source;
    struct arena arena;
    struct gpu *gpus;
    uint32_t count;
    char root[64];
};

static void put_file(const char *root, const char *path, const char *text) {
    char full[256];
    snprintf(full, sizeof full, "%s%s", root, path);
    for (char *p = full + strlen(root) + 1; (p = strchr(p, '/')); p++) {
        *p = 0;
        mkdir(full, 0700);
        *p = '/';
    }
    FILE *f = fopen(full, "w");
    assert_non_null(f);
    fputs(text, f);
    fclose(f);
}

static void set_up(struct rig *r, const char *path, unsigned gpus) {
    *r = (struct rig){.dl = dlopen(path, RTLD_NOW)};
    assert_non_null(r->dl);
    fake_nvml_fn get;
    void *p = dlsym(r->dl, "fake_nvml");
    memcpy(&get, &p, sizeof p);
    r->fake = get();
    memset(r->fake, 0, sizeof *r->fake);
    r->fake->count = gpus;
    r->fake->clock_us = 1000;
    for (unsigned i = 0; i < gpus; i++) {
        struct fake_gpu *g = &r->fake->gpus[i];
        *g = (struct fake_gpu){.name = "NVIDIA H200",
                               .minor = 7 - i,
                               .total = 141ULL << 30,
                               .used = (i + 1ULL) << 30,
                               .utilisation = 10 * i,
                               .memory_utilisation = 5,
                               .power_mw = 100000 + i,
                               .temperature = 40 + i,
                               .memory_temperature = 50 + i,
                               .sm_clock = 1980,
                               .memory_clock = 3201,
                               .energy_mj = 5000,
                               .reasons = 4,
                               .replays = 2};
        snprintf(g->uuid, sizeof g->uuid, "GPU-%08u-1111-2222-3333-444444444444", i);
        snprintf(g->bus_id, sizeof g->bus_id, "00000000:%02X:00.0", 0x1a + i);
    }
    snprintf(r->root, sizeof r->root, "/tmp/acequia-nvml-XXXXXX");
    assert_non_null(mkdtemp(r->root));
}

static void open_rig(struct rig *r, const char *path) {
    struct error e = {0};
    assert_int_equal(gpu_nvml_open(path, r->root, &r->source, &e), 0);
    assert_int_equal(r->source->ops->discover(r->source, &r->arena, &r->gpus, &r->count, &e), 0);
}

static void tear_down(struct rig *r) {
    gpu_source_free(r->source);
    assert_int_equal(r->fake->open, 0);
    arena_done(&r->arena);
    dlclose(r->dl);
    // the few files of the test
    const char *const files[] = {"/sys/bus/pci/devices/0000:1b:00.0/numa_node",
                                 "/sys/bus/pci/devices/0000:1b:00.0",
                                 "/sys/bus/pci/devices",
                                 "/sys/bus/pci",
                                 "/sys/bus",
                                 "/sys",
                                 "/proc/driver/nvidia/capabilities/gpu7/mig/gi4/ci0/access",
                                 "/proc/driver/nvidia/capabilities/gpu7/mig/gi4/ci0",
                                 "/proc/driver/nvidia/capabilities/gpu7/mig/gi4/access",
                                 "/proc/driver/nvidia/capabilities/gpu7/mig/gi4",
                                 "/proc/driver/nvidia/capabilities/gpu7/mig",
                                 "/proc/driver/nvidia/capabilities/gpu7",
                                 "/proc/driver/nvidia/capabilities",
                                 "/proc/driver/nvidia",
                                 "/proc/driver",
                                 "/proc",
                                 ""};
    for (size_t i = 0; i < sizeof files / sizeof *files; i++) {
        char full[256];
        snprintf(full, sizeof full, "%s%s", r->root, files[i]);
        remove(full);
    }
    assert_int_not_equal(access(r->root, F_OK), 0);
}

static void test_discovery(void **state) {
    struct rig r;
    set_up(&r, library, 4);
    put_file(r.root, "/sys/bus/pci/devices/0000:1b:00.0/numa_node", "1\n");
    r.fake->gpus[0].links[3].active = 1;  // 0 and 1 directly
    snprintf(r.fake->gpus[0].links[3].bus_id, 32, "00000000:1B:00.0");
    open_rig(&r, library);
    assert_int_equal(r.count, 4);
    assert_string_equal(r.gpus[1].uuid, "GPU-00000001-1111-2222-3333-444444444444");
    assert_string_equal(r.gpus[1].model, "H200");
    assert_string_equal(r.gpus[1].pci, "0000:1b:00.0");
    assert_int_equal(r.gpus[1].numa, 1);
    assert_int_equal(r.gpus[0].numa, 0);
    assert_string_equal(r.gpus[1].minor_path, "/dev/nvidia6");
    assert_true(r.gpus[1].memory_bytes == 141ULL << 30);
    assert_int_equal(r.gpus[0].link_group, 1);
    assert_int_equal(r.gpus[1].link_group, 1);
    assert_int_equal(r.gpus[2].link_group, 0);
    struct gpu_nodes nodes;
    gpu_nodes(&r.gpus[1], &nodes);
    assert_int_equal(nodes.count, 1);
    assert_string_equal(nodes.paths[0], "/dev/nvidia6");
    gpu_common_nodes(&nodes);
    assert_string_equal(nodes.paths[0], "/dev/nvidiactl");
    tear_down(&r);
}

static void test_switches(void **state) {
    struct rig r;
    set_up(&r, library, 6);
    for (int i = 2; i < 5; i++)  // 2, 3, 4 on switches; 0 and 5 by themselves; 1 and 0 linked
        for (int k = 0; k < 18; k++)
            r.fake->gpus[i].links[k].active = r.fake->gpus[i].links[k].to_switch = 1;
    r.fake->gpus[1].links[0].active = 1;
    snprintf(r.fake->gpus[1].links[0].bus_id, 32, "00000000:1a:00.0");
    open_rig(&r, library);
    const uint32_t want[] = {1, 1, 2, 2, 2, 0};
    for (int i = 0; i < 6; i++)
        assert_int_equal(r.gpus[i].link_group, want[i]);
    tear_down(&r);
}

static void test_reading(void **state) {
    struct rig r;
    struct gpu_reading x;
    set_up(&r, library, 2);
    struct fake_gpu *g = &r.fake->gpus[1];
    g->processes[0] = (struct fake_process){.pid = 100, .memory = 1 << 30, .sm = {40, 60}, .samples = 2};
    g->processes[1] = (struct fake_process){
        .pid = 200, .memory = ~0ULL, .sm = {4000, 30}, .samples = 2};  // junk comes along
    g->process_count = 2;
    open_rig(&r, library);
    r.source->ops->read(r.source, 1, 1000, &x);
    g->pcie_tx += 5000000;
    g->nvlink_rx_kib += 2048;
    r.fake->clock_us += 1000;
    r.source->ops->read(r.source, 1, 2000, &x);
    assert_int_equal(x.error, 0);
    assert_int_equal(x.sample.utilisation_milli, 100);
    assert_false(x.sample.utilisation_unknown);
    assert_true(x.sample.memory_used_bytes == 2ULL << 30);
    assert_int_equal(x.sample.power_mw, 100001);
    assert_int_equal(x.sample.temperature_c, 41);
    assert_int_equal(x.sample.memory_temperature_c, 51);
    assert_int_equal(x.sample.sm_clock_mhz, 1980);
    assert_int_equal(x.sample.energy_mj, 5000);
    assert_int_equal(x.sample.encoder_milli, 30);
    assert_int_equal(x.sample.pcie_tx_bytes_s, 5000000);
    assert_int_equal(x.sample.pcie_rx_bytes_s, 0);
    assert_int_equal(x.sample.nvlink_bytes_s, 2048 * 1024);
    assert_int_equal(x.sample.pcie_replays, 2);
    assert_int_equal(x.process_count, 2);
    assert_true(x.process_use);
    assert_int_equal(x.processes[0].pid, 100);
    assert_int_equal(x.processes[0].utilisation_milli, 500);
    assert_int_equal(x.processes[1].utilisation_milli, 300);
    assert_int_equal(x.processes[1].memory_bytes, 0);
    assert_int_equal(r.fake->pcie_calls, 0);  // it blocks: not while there are counters
    r.source->ops->read(r.source, 1, 3000, &x);  // no newer samples: no use
    assert_int_equal(x.processes[0].utilisation_milli, 0);
    tear_down(&r);
}

static void test_trouble(void **state) {
    struct rig r;
    struct gpu_reading x;
    set_up(&r, library, 2);
    open_rig(&r, library);
    r.source->ops->read(r.source, 0, 1000, &x);
    r.source->ops->read(r.source, 1, 1000, &x);
    r.fake->events[0] = (struct fake_event){.gpu = 1, .type = 8, .data = 79};
    r.fake->events[1] = (struct fake_event){.gpu = 1, .type = 2};
    r.fake->event_count = 2;
    r.fake->gpus[1].ecc = 3;
    r.fake->gpus[1].remap_pending = 1;
    r.source->ops->read(r.source, 0, 2000, &x);
    assert_int_equal(x.xid_count, 0);
    r.source->ops->read(r.source, 1, 2000, &x);
    assert_int_equal(x.xid_count, 2);
    assert_int_equal(x.xids[0], 79);
    assert_int_equal(x.xids[1], 48);
    assert_int_equal(x.sample.ecc_errors, 3);  // asked at once when something happened
    assert_true(x.remap_pending);
    r.source->ops->read(r.source, 1, 3000, &x);
    assert_int_equal(x.xid_count, 0);
    r.fake->gpus[1].lost = 15;
    r.source->ops->read(r.source, 1, 4000, &x);
    assert_int_equal(x.error, -ENODEV);
    assert_string_equal(x.error_text, "GPU is lost");
    tear_down(&r);
}

static void test_old_figures_are_dropped(void **state) {
    struct rig r;
    struct gpu_reading x;
    set_up(&r, library, 1);
    struct fake_gpu *g = &r.fake->gpus[0];
    g->processes[0] = (struct fake_process){.pid = 100, .memory = 1 << 20, .sm = {40}, .samples = 1};
    g->process_count = 1;
    open_rig(&r, library);
    r.fake->busy_us = 1500;  // so dear that use by process is asked once a minute
    r.source->ops->read(r.source, 0, 1000, &x);
    assert_true(x.process_use);
    assert_int_equal(x.process_count, 1);
    assert_int_equal(x.processes[0].utilisation_milli, 400);
    g->process_count = 0;
    for (int t = 2; t <= 12; t++) {
        r.source->ops->read(r.source, 0, t * 1000, &x);
        if (t > 4)
            assert_false(x.process_use);
    }
    assert_int_equal(x.process_count, 0);
    r.fake->busy_us = 0;
    tear_down(&r);
}

static void test_mig(void **state) {
    struct rig r;
    struct gpu_reading x;
    set_up(&r, library, 2);
    struct fake_gpu *g = &r.fake->gpus[0];
    g->mig_count = 2;
    g->mig_slices[0] = 3;
    g->mig_slices[1] = 1;
    g->mig_memory[0] = 71ULL << 30;
    g->mig_memory[1] = 18ULL << 30;
    put_file(r.root, "/proc/driver/nvidia/capabilities/gpu7/mig/gi4/access",
             "DeviceFileMinor: 30\nDeviceFileMode: 292\n");
    put_file(r.root, "/proc/driver/nvidia/capabilities/gpu7/mig/gi4/ci0/access", "DeviceFileMinor: 31\n");
    open_rig(&r, library);
    assert_int_equal(r.count, 3);  // two instances instead of the first GPU
    assert_string_equal(r.gpus[1].uuid, "MIG-10000000-1111-2222-3333-444444444444");
    assert_true(r.gpus[1].memory_bytes == 18ULL << 30);
    assert_string_equal(r.gpus[0].minor_path, "/dev/nvidia7");  // its capability files are not there
    assert_string_equal(r.gpus[1].minor_path,
                        "/dev/nvidia7,/dev/nvidia-caps/nvidia-cap30,/dev/nvidia-caps/nvidia-cap31");
    struct gpu_nodes nodes;
    gpu_nodes(&r.gpus[1], &nodes);
    assert_int_equal(nodes.count, 3);
    assert_string_equal(nodes.paths[2], "/dev/nvidia-caps/nvidia-cap31");
    r.source->ops->read(r.source, 1, 1000, &x);
    assert_true(x.sample.utilisation_unknown);  // an older GPU has no measure of an instance's use
    assert_int_equal(x.power_share_milli, 250);
    r.source->ops->read(r.source, 2, 1000, &x);
    assert_false(x.sample.utilisation_unknown);
    tear_down(&r);
}

static void test_use_of_mig_instances(void **state) {
    struct rig r;
    struct gpu_reading x;
    set_up(&r, library, 1);
    struct fake_gpu *g = &r.fake->gpus[0];
    g->mig_count = 2;
    g->gpm = true;
    open_rig(&r, library);
    for (int t = 1; t <= 5; t++) {
        g->mig_use[0] = t * 10;
        g->mig_use[1] = 0;
        r.source->ops->read(r.source, 0, t * 3000, &x);
        assert_int_equal(x.sample.utilisation_unknown, t == 1);  // two samples make a measurement
        assert_int_equal(x.sample.utilisation_milli, t == 1 ? 0 : t * 100);
        assert_int_equal(x.sample.memory_copy_milli, t == 1 ? 0 : t * 50);
        r.source->ops->read(r.source, 1, t * 3000, &x);
        assert_int_equal(x.sample.utilisation_unknown, t == 1);
        assert_int_equal(x.sample.utilisation_milli, 0);
    }
    assert_int_equal(r.fake->gpm_samples, 4);
    struct fake_nvml *fake = r.fake;
    gpu_source_free(r.source);
    r.source = NULL;
    assert_int_equal(fake->gpm_samples, 0);
    tear_down(&r);
}

// How far the parts of a whole GPU are used, where there is performance monitoring, and only there.
static void test_profile(void **state) {
    struct rig r;
    struct gpu_reading x;
    set_up(&r, library, 2);
    r.fake->gpus[0].gpm = true;
    open_rig(&r, library);
    for (int t = 1; t <= 5; t++) {
        r.fake->gpus[0].utilisation = r.fake->gpus[1].utilisation = (unsigned)t * 10;
        r.fake->gpus[0].remapped = 3;
        r.source->ops->read(r.source, 0, t * 20000, &x);
        assert_int_equal(x.sample.profiled, t > 1);
        assert_int_equal(x.sample.engine_milli, t > 1 ? t * 100 : 0);
        assert_int_equal(x.sample.tensor_milli, t > 1 ? t * 50 : 0);
        assert_int_equal(x.sample.utilisation_milli, t * 100);  // NVML's own, as before
        r.source->ops->read(r.source, 1, t * 20000, &x);
        assert_false(x.sample.profiled);
    }
    tear_down(&r);
}

static void test_old_driver(void **state) {
    struct rig r;
    struct gpu_reading x;
    set_up(&r, old_library, 2);
    r.fake->gpus[1].processes[0] = (struct fake_process){.pid = 100, .memory = 1 << 30};
    r.fake->gpus[1].process_count = 1;
    r.fake->gpus[1].pcie_tx = 4 << 20;
    open_rig(&r, old_library);
    for (int64_t t = 1000; t <= 2000; t += 1000) {
        r.source->ops->read(r.source, 0, t, &x);
        r.source->ops->read(r.source, 1, t, &x);
    }
    assert_int_equal(x.error, 0);
    assert_int_equal(x.sample.utilisation_milli, 100);
    assert_true(x.sample.memory_used_bytes == 2ULL << 30);
    assert_int_equal(x.sample.throttle_reasons, 4);
    assert_int_equal(x.sample.energy_mj, 0);
    assert_int_equal(x.sample.pcie_tx_bytes_s, 4 << 20);
    assert_int_equal(r.fake->pcie_calls, 4);  // one GPU a second, both directions
    assert_int_equal(x.process_count, 1);
    assert_false(x.process_use);
    tear_down(&r);
}

static void test_no_driver(void **state) {
    struct gpu_source *s = NULL;
    struct error e = {0};
    assert_int_equal(gpu_nvml_open("/nonexistent/libnvidia-ml.so.1", NULL, &s, &e), -ENOENT);
    assert_non_null(strstr(e.text, "no NVIDIA driver"));
    struct rig r;
    set_up(&r, library, 1);
    r.fake->init_result = 9;
    assert_int_equal(gpu_nvml_open(library, NULL, &s, &e), -ENOENT);
    r.fake->init_result = 999;
    assert_int_equal(gpu_nvml_open(library, NULL, &s, &e), -EIO);
    tear_down(&r);
}

int main(int argc, char **argv) {
    library = argv[1];
    old_library = argv[2];
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_discovery),
        cmocka_unit_test(test_switches),
        cmocka_unit_test(test_reading),
        cmocka_unit_test(test_trouble),
        cmocka_unit_test(test_old_figures_are_dropped),
        cmocka_unit_test(test_mig),
        cmocka_unit_test(test_use_of_mig_instances),
        cmocka_unit_test(test_profile), cmocka_unit_test(test_old_driver),
        cmocka_unit_test(test_no_driver),
    };
    return argc < 3 ? 2 : cmocka_run_group_tests(tests, NULL, NULL);
}
