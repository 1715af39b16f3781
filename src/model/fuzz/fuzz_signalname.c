// Fuzz target: signals.
#include <assert.h>
#include <stdlib.h>
#include <string.h>

#include "base/alloc.h"
#include "base/cleanup.h"
#include "base/text.h"
#include "driver.h"
#include "model/signalname.h"

const struct fuzz_seed fuzz_seeds[] = {
    FUZZ_SEED("TERM"),
    FUZZ_SEED("SIGUSR1"),
    FUZZ_SEED("10"),
    FUZZ_SEED("B:USR1@120"),
    FUZZ_SEED("RB:9@0"),
    FUZZ_SEED("R:INT"),
    {0},
};

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    cleanup_free char *text = xstrndup((const char *)data, size);
    struct error e = {0};
    struct signal_spec s;
    char out[SIGNAL_TEXT_MAX];
    if (signal_spec_parse(text, &s, &e) < 0) {
        assert(e.text[0]);
        return 0;
    }
    assert(s.signal >= 1 && s.signal <= SIGNAL_NUMBER_MAX && s.before_s <= SIGNAL_BEFORE_MAX_S);
    assert(*signal_name(s.signal, out));
    return 0;
}
