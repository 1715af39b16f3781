// Feature expressions: whatever is read can be read again from its terms, and gives the same terms.
#include <assert.h>
#include <stdlib.h>
#include <string.h>

#include "base/buf.h"
#include "base/cleanup.h"
#include "base/text.h"
#include "driver.h"
#include "model/constraint.h"

const struct fuzz_seed fuzz_seeds[] = {
    FUZZ_SEED("a&b|c"), FUZZ_SEED("(a&b)|(c&d)"), FUZZ_SEED("[rack1|rack2]&ib"),
    FUZZ_SEED("a,b*2"), FUZZ_SEED("((a))"),       {0},
};

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t len) {
    cleanup_arena struct arena a = {0};
    cleanup_buf struct buf again = {0};
    struct constraint first, second;
    struct error e = {0};
    char *text = arena_strndup(&a, (const char *)data, len);
    if (constraint_parse(text, &a, &first, &e) < 0) {
        assert(e.code && e.text[0]);
        return 0;
    }
    assert(first.len <= CONSTRAINT_NAMES_MAX);
    for (uint32_t i = 0; i < first.len; i++)
        buf_addf(&again, "%s%s", i ? "&" : "", first.terms[i]);
    if (constraint_parse(buf_str(&again), &a, &second, &e) < 0)
        return 0;  // written out it can be over the limit
    assert(first.len == second.len);
    for (uint32_t i = 0; i < first.len; i++)
        assert(streq(first.terms[i], second.terms[i]));
    return 0;
}
