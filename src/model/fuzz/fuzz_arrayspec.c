// Fuzz target: array indices; formatting and parsing again gives the same ranges.
#include <assert.h>
#include <stdlib.h>
#include <string.h>

#include "base/alloc.h"
#include "base/cleanup.h"
#include "base/text.h"
#include "driver.h"
#include "model/arrayspec.h"

const struct fuzz_seed fuzz_seeds[] = {
    FUZZ_SEED("0-99999:2%50"),
    FUZZ_SEED("1,3,5-9"),
    FUZZ_SEED("3-99%5"),
    FUZZ_SEED("0"),
    FUZZ_SEED("0-3999999:4000"),
    FUZZ_SEED("1-10:3,2-20:7"),
    {0},
};

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    cleanup_free char *text = xstrndup((const char *)data, size);
    struct error e = {0};
    cleanup_arena struct arena a = {0};
    struct array_spec s, again;
    if (array_parse(text, &a, &s, &e) < 0) {
        assert(e.text[0]);
        return 0;
    }
    assert(s.len && s.elements && s.elements <= ARRAY_ELEMENTS_MAX);
    cleanup_buf struct buf out = {0};
    array_ranges_format(s.at, s.len, s.limit, &out);
    if (out.len > ARRAY_TEXT_MAX)
        return 0;
    int r = array_parse(out.data, &a, &again, &e);
    assert(r == 0 && again.elements == s.elements && again.len == s.len && again.limit == s.limit);
    assert(!memcmp(s.at, again.at, s.len * sizeof *s.at));
    return 0;
}
