// Fuzz target: sizes, durations and times; what parses also formats.
#include <assert.h>
#include <stdlib.h>
#include <string.h>

#include "base/alloc.h"
#include "base/cleanup.h"
#include "base/text.h"
#include "driver.h"
#include "model/units.h"

const struct fuzz_seed fuzz_seeds[] = {
    FUZZ_SEED("64G"),
    FUZZ_SEED("1.5T"),
    FUZZ_SEED("2-12:30:00"),
    FUZZ_SEED("90m"),
    FUZZ_SEED("1h30m"),
    FUZZ_SEED("2026-01-31T12:00:00Z"),
    FUZZ_SEED("16:00"),
    FUZZ_SEED("4:30PM"),
    FUZZ_SEED("now+1hour"),
    FUZZ_SEED("01/31/26-10:00"),
    FUZZ_SEED("tomorrow"),
    FUZZ_SEED("@1769860800"),
    FUZZ_SEED("99999999999999999999"),
    {0},
};

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    cleanup_free char *text = xstrndup((const char *)data, size);
    struct error e = {0};
    char out[UNIT_TEXT_MAX];
    uint64_t bytes;
    uint32_t seconds;
    int64_t at;
    if (size_parse(text, SIZE_M, &bytes, &e) == 0) {
        assert(bytes <= SIZE_LIMIT_BYTES + SIZE_LIMIT_BYTES / 1024);
        assert(*size_format(bytes, out));
    } else {
        assert(e.code && e.text[0]);
    }
    if (duration_parse(text, 60, &seconds, &e) == 0 && seconds != DURATION_UNLIMITED) {
        uint32_t again;
        assert(duration_parse(duration_format(seconds, out), 60, &again, NULL) == 0 && again == seconds);
        assert(duration_parse(duration_elapsed_format_full(seconds, out), 60, &again, NULL) == 0 &&
               again == seconds);
    }
    if (time_parse(text, 1769860800000, 3600, TIME_NEXT, &at, &e) == 0 && at > 0 && at <= TIME_LIMIT_MS) {
        int64_t again;
        assert(time_parse(time_format(at, 3600, out), 0, 3600, TIME_NEXT, &again, NULL) == 0);
        assert(again == at / 1000 * 1000);
    }
    return 0;
}
