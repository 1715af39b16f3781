// Fuzz target: GPU requests.
#include <assert.h>
#include <stdlib.h>
#include <string.h>

#include "base/alloc.h"
#include "base/cleanup.h"
#include "base/text.h"
#include "driver.h"
#include "model/gpuspec.h"

const struct fuzz_seed fuzz_seeds[] = {
    FUZZ_SEED("2"),     FUZZ_SEED("0.5"),        FUZZ_SEED("a100:2"),
    FUZZ_SEED("gpu:2"), FUZZ_SEED("gpu:a100:1"), FUZZ_SEED("v100:0.25"),
    FUZZ_SEED("1.5"),   FUZZ_SEED("gpu"),        {0},
};

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
