// Fuzz target: output path patterns.
#include <assert.h>
#include <stdlib.h>
#include <string.h>

#include "base/alloc.h"
#include "base/cleanup.h"
#include "base/text.h"
#include "driver.h"
#include "model/pattern.h"

const struct fuzz_seed fuzz_seeds[] = {
    FUZZ_SEED("out-%j.txt"), FUZZ_SEED("/tmp/%x/%u-%A_%5a.log"), FUZZ_SEED("%N.%n.%t.%s.%J.%b"),
    FUZZ_SEED("100%%"),      FUZZ_SEED("%99999999999j"),         {0},
};

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    cleanup_free char *text = xstrndup((const char *)data, size);
    struct error e = {0};
    struct pattern_values v = {
        .job = UINT64_MAX, .array = 7, .array_index = 3, .name = "a/b", .user = "u", .node = "n1"};
    cleanup_buf struct buf out = {0};
    if (pattern_expand(text, "/home/u", &v, &out, &e) < 0) {
        assert(e.text[0] && !out.len);
        return 0;
    }
    assert(out.data[0] == 47 && out.len <= PATTERN_PATH_MAX);
    return 0;
}
