// Fuzz target: node lists; folding and expanding again gives the same set.
#include <assert.h>
#include <stdlib.h>
#include <string.h>

#include "base/alloc.h"
#include "base/cleanup.h"
#include "base/text.h"
#include "driver.h"
#include "model/nodelist.h"

const struct fuzz_seed fuzz_seeds[] = {
    FUZZ_SEED("n[01-04,7],gpu1"),
    FUZZ_SEED("rack[1-2]n[1-4]"),
    FUZZ_SEED("a"),
    FUZZ_SEED("n[1-300]"),
    FUZZ_SEED("x[08-12]"),
    FUZZ_SEED("n9,n10,n11,n09"),
    {0},
};

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    cleanup_free char *text = xstrndup((const char *)data, size);
    struct error e = {0};
    cleanup_arena struct arena a = {0};
    struct name_list names, again;
    if (nodelist_expand(text, &a, &names, &e) < 0) {
        assert(e.text[0]);
        return 0;
    }
    assert(names.len && names.len <= NODELIST_NAMES_MAX);
    cleanup_buf struct buf folded = {0};
    nodelist_fold(names.at, names.len, &folded);
    int r = nodelist_expand(folded.data, &a, &again, &e);
    assert(r == 0 && again.len == names.len);
    return 0;
}
