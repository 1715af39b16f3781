// Fuzz target: what a stranger sends to a process of a pool, and what somebody with the key sends in a record.
#include <string.h>

#include "driver.h"
#include "tasks/link.h"

const struct fuzz_seed fuzz_seeds[] = {
    FUZZ_SEED("\0aqT1aaaaaaaabbbbbbbbccccccccdddddddd"),
    FUZZ_SEED("\1aaaaaaaabbbbbbbbccccccccddddddddaaaaaaaabbbbbbbbccccccccdddddddd"),
    FUZZ_SEED("\2\4\0\0\0abcdaaaaaaaabbbbbbbb"),
    {0},
};

static void carry(struct tasks_link *from, struct tasks_link *to) {
    enum tasks_link_frame type;
    const char *body;
    size_t len;
    buf_add(&to->in, from->out.data, from->out.len);
    buf_clear(&from->out);
    FUZZ_CHECK(tasks_link_next(to, &type, &body, &len) == 0);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    const uint8_t key[LINK_KEY_BYTES] = "a key";
    struct tasks_link a, b;
    enum tasks_link_frame type;
    const char *body;
    size_t len;
    if (!size)
        return 0;
    FUZZ_CHECK(tasks_link_init(&a, false, key) == 0 && tasks_link_init(&b, true, key) == 0);
    if (data[0] == 2) {
        carry(&a, &b);
        carry(&b, &a);
        carry(&a, &b);
    }
    struct tasks_link *l = data[0] == 1 ? &a : &b;
    buf_add(&l->in, data + 1, size - 1);
    FUZZ_CHECK(tasks_link_next(l, &type, &body, &len) <= 0);  // nobody makes a record without the key
    tasks_link_done(&a);
    tasks_link_done(&b);
    return 0;
}
