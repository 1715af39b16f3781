// Fuzz target: filters of lists.
#include <assert.h>
#include <stdlib.h>
#include <string.h>

#include "base/alloc.h"
#include "base/cleanup.h"
#include "driver.h"
#include "model/where.h"

const struct fuzz_seed fuzz_seeds[] = {
    FUZZ_SEED("user=ana* state=R|PD gpus>=2"),
    FUZZ_SEED("user!=\"a b\"|c\\*"),
    FUZZ_SEED("memory<8G age>1d held=no"),
    FUZZ_SEED("start>now-2hours gpus=0.5"),
    {0},
};

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    static const struct where_column columns[] = {
        {"user", WHERE_TEXT},   {"state", WHERE_TEXT}, {"gpus", WHERE_GPUS}, {"memory", WHERE_BYTES},
        {"age", WHERE_SECONDS}, {"held", WHERE_FLAG},  {"start", WHERE_TIME}};
    static const struct where_clock clock = {1769860800000, 3600};
    cleanup_free char *text = xstrndup((const char *)data, size);
    cleanup_arena struct arena a = {0};
    struct error e = {0};
    struct where w;
    if (where_parse(text, columns, 7, &clock, &a, &w, &e) < 0) {
        assert(e.text[0]);
        return 0;
    }
    assert(w.count <= WHERE_TERMS_MAX);
    for (uint32_t i = 0; i < w.count; i++) {
        const char *texts[] = {text, NULL};
        assert(w.at[i].count && w.at[i].count <= WHERE_VALUES_MAX);
        bool a1 = where_texts(&w.at[i], texts, 2), a2 = where_number(&w.at[i], (int64_t)size);
        w.at[i].op ^= 1;  // = and !=
        if (w.at[i].op <= WHERE_UNEQUAL)
            assert(where_texts(&w.at[i], texts, 2) != a1 && where_number(&w.at[i], (int64_t)size) != a2);
    }
    return 0;
}
