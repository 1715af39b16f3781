// Fuzz target: names.
#include <assert.h>
#include <stdlib.h>
#include <string.h>

#include "base/alloc.h"
#include "base/cleanup.h"
#include "base/text.h"
#include "driver.h"
#include "model/name.h"

const char *const fuzz_seeds[] = {"train", "a b c", "caf\xc3\xa9", "n-1.x_y", "", NULL};

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    cleanup_free char *text = xstrndup((const char *)data, size);
    struct error e = {0};
    if (job_name_check(text, &e) == 0)
        assert(*text && strlen(text) <= JOB_NAME_MAX && !has_control_chars(text, strlen(text)));
    if (identifier_check("project", text, &e) == 0)
        assert(*text && strlen(text) <= IDENTIFIER_MAX && job_name_check(text, NULL) == 0);
    return 0;
}
