// Fuzz target: progress in a job's output and in its progress file.
#include <assert.h>
#include <string.h>

#include "base/text.h"
#include "driver.h"
#include "model/progress.h"

const struct fuzz_seed fuzz_seeds[] = {
    FUZZ_SEED("epoch 3/10 step 40/200\n"), FUZZ_SEED(" 37%|###7      | 37/100 [00:12<00:20, 3.1it/s]\r"),
    FUZZ_SEED("progress: 12.5 %"),         FUZZ_SEED("[3/12] Building"),
    FUZZ_SEED("0.37 \xc3\xa9poque"),       {0},
};

static void check(const struct progress *p) {
    assert(p->milli <= 1000);
    assert(memchr(p->text, 0, sizeof p->text));
    assert(!str_has_control_chars(p->text, strlen(p->text)) && str_utf8_valid(p->text, strlen(p->text)));
    assert(progress_left_ms(p->milli, 1000) >= -1);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    struct progress p;
    if (progress_from_output((const char *)data, size, &p))
        check(&p);
    if (progress_from_file((const char *)data, size, &p))
        check(&p);
    return 0;
}
