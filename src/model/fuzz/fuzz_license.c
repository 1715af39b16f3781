// Fuzz target: what a job asks for of licenses.
#include <assert.h>
#include <string.h>

#include "base/alloc.h"
#include "base/cleanup.h"
#include "base/text.h"
#include "driver.h"
#include "model/license.h"

const struct fuzz_seed fuzz_seeds[] = {
    FUZZ_SEED("matlab"),
    FUZZ_SEED("matlab:2,ansys"),
    FUZZ_SEED("a=3"),
    FUZZ_SEED("a:0"),
    FUZZ_SEED("a,a"),
    FUZZ_SEED(",,"),
    {0},
};

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    cleanup_free char *text = xstrndup((const char *)data, size);
    cleanup_arena struct arena a = {0};
    struct error e = {0};
    struct license_asks s, again;
    if (license_asks_parse(text, &a, &s, &e) < 0) {
        assert(e.text[0]);
        return 0;
    }
    assert(s.len <= LICENSES_PER_JOB);
    const char *shown = license_asks_text(&s, &a);
    assert(license_asks_parse(shown, &a, &again, &e) == 0 && again.len == s.len);
    for (uint32_t i = 0; i < s.len; i++)
        assert(streq(again.at[i].name, s.at[i].name) && again.at[i].count == s.at[i].count && s.at[i].count);
    return 0;
}
