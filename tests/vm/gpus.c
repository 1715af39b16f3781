// The pretended NVML of the device tests with two GPUs in it, as libnvidia-ml.so.1 of the virtual
// machine. Their device files are real ones that do no harm, so that open() says who may.
#include "../../src/device/test/fake_nvml.c"

__attribute__((constructor)) static void two_gpus(void) {
    fake.count = 2;
    for (unsigned i = 0; i < fake.count; i++) {
        struct fake_gpu *g = &fake.gpus[i];
        snprintf(g->uuid, sizeof g->uuid, "GPU-%08x-0000-0000-0000-000000000000", i);
        snprintf(g->name, sizeof g->name, "Fake GPU");
        snprintf(g->bus_id, sizeof g->bus_id, "00000000:%02x:00.0", i + 1);
        g->minor = i;
        g->total = 16ULL << 30;
    }
}
