// Fuzz target: dependencies; formatting and parsing again gives the same terms.
#include <assert.h>
#include <stdlib.h>
#include <string.h>

#include "base/alloc.h"
#include "base/cleanup.h"
#include "base/text.h"
#include "driver.h"
#include "model/dependency.h"

const struct fuzz_seed fuzz_seeds[] = {
    FUZZ_SEED("afterok:12:13_4,singleton"),
    FUZZ_SEED("after:12+10"),
    FUZZ_SEED("afterany:1?afternotok:2"),
    FUZZ_SEED("aftercorr:7"),
    {0},
};

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    cleanup_free char *text = xstrndup((const char *)data, size);
    struct error e = {0};
    cleanup_arena struct arena a = {0};
    struct dependency d, again;
    if (dependency_parse(text, &a, &d, &e) < 0) {
        assert(e.text[0]);
        return 0;
    }
    cleanup_buf struct buf out = {0};
    dependency_format(&d, &out);
    if (out.len > DEPENDENCY_TEXT_MAX)
        return 0;
    int r = dependency_parse(out.data, &a, &again, &e);
    assert(r == 0 && again.len == d.len && again.any == d.any);
    return 0;
}
