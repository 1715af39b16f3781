// Fuzz target: GPU requests.
#include <assert.h>
#include <stdlib.h>
#include <string.h>

#include "base/alloc.h"
#include "base/cleanup.h"
#include "base/text.h"
#include "driver.h"
#include "model/gpuspec.h"

const char *const fuzz_seeds[] = {"2", "0.5", "a100:2", "gpu:2", "gpu:a100:1", "v100:0.25", "1.5", "gpu", NULL};

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    cleanup_free char *text = xstrndup((const char *)data, size);
    struct error e = {0};
    struct gpu_spec g;
    char out[GPU_TEXT_MAX];
    uint32_t again;
    if (gpu_spec_parse(text, &g, &e) < 0) {
        assert(e.text[0]);
        return 0;
    }
    assert(g.milli < 1000 || g.milli % 1000 == 0);
    assert(gpu_count_parse(gpu_milli_format(g.milli, out), &again, NULL) == 0 && again == g.milli);
    return 0;
}
