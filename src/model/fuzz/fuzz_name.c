// Fuzz target: names.
#include <assert.h>
#include <stdlib.h>
#include <string.h>

#include "base/alloc.h"
#include "base/cleanup.h"
#include "base/text.h"
#include "driver.h"
#include "model/name.h"

const struct fuzz_seed fuzz_seeds[] = {
    FUZZ_SEED("train"),   FUZZ_SEED("a b c"), FUZZ_SEED("caf\xc3\xa9"),
    FUZZ_SEED("n-1.x_y"), FUZZ_SEED(""),      {0},
};

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    cleanup_free char *text = xstrndup((const char *)data, size);
    struct error e = {0};
    if (job_name_check(text, &e) == 0)
        assert(*text && strlen(text) <= JOB_NAME_MAX && !str_has_control_chars(text, strlen(text)));
    if (name_check("project", text, &e) == 0)
        assert(*text && strlen(text) <= IDENTIFIER_MAX && job_name_check(text, NULL) == 0);
    return 0;
}
