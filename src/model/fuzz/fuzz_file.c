// Fuzz target: names of files as text, and orders for the process that works on them.
#include <string.h>

#include "base/alloc.h"
#include "base/cleanup.h"
#include "base/text.h"
#include "driver.h"
#include "model/file.h"

const struct fuzz_seed fuzz_seeds[] = {
    FUZZ_SEED("plain"),   FUZZ_SEED("50%25"),          FUZZ_SEED("a%0Ab"),
    FUZZ_SEED("\xff%FF"), FUZZ_SEED("x\xe2\x80\xae%"), {0},
};

// Every name has one text, which is safe to show and leads back to it.
static void check_name(const char *bytes, size_t len) {
    cleanup_buf struct buf text = {0}, back = {0};
    file_name_write(bytes, len, &text);
    FUZZ_CHECK(str_utf8_valid(buf_str(&text), text.len) && !str_has_control_chars(buf_str(&text), text.len));
    if (len > FILE_PATH_MAX)
        return;
    FUZZ_CHECK(file_name_read(buf_str(&text), &back, NULL) == 0 && back.len == len);
    FUZZ_CHECK(memcmp(buf_str(&back), bytes, len) == 0);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    cleanup_free char *text = xstrndup((const char *)data, size);
    cleanup_arena struct arena a = {0};
    cleanup_buf struct buf bytes = {0};
    struct file_order order;
    check_name(text, strlen(text));
    if (file_name_read(text, &bytes, NULL) == 0)
        FUZZ_CHECK(bytes.len <= FILE_PATH_MAX && !memchr(buf_str(&bytes), 0, bytes.len));
    schema_decode(&file_order_schema, data, size, &a, &order);
    return 0;
}
