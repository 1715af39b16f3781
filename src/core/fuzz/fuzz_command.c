// Fuzz target: commands of users and administrators. The input is a row of commands, each with a byte for its type and
// its actor and two bytes of length. What is refused has a reason; afterwards the core is consistent.
#include "harness.h"
#include "sample.h"

const struct fuzz_seed fuzz_seeds[] = {FUZZ_SEED("\x01\x02\x00\x02\x01"), {0}};

// What the controller makes itself, never from a request.
static bool is_internal(unsigned type) {
    return type == COMMAND_KEYS_INIT || type == COMMAND_KEY_IMPORT;
}

void fuzz_corpus(fuzz_add_fn add) {
    struct rand r;
    rand_seed(&r, 5);
    for (int n = 0; n < 300; n++) {
        cleanup_buf struct buf row = {0};
        for (int k = 0; k < 4; k++) {
            cleanup_buf struct buf b = {0};
            unsigned type = (unsigned)rand_below(&r, COMMAND_TYPE_COUNT);
            if (!command_schema((enum command_type)type))
                continue;
            fuzz_sample_binary(command_schema((enum command_type)type), &r, 0, &b);
            buf_addc(&row, (char)(type | (rand_below(&r, 2) ? 0x80 : 0)));
            buf_addc(&row, (char)(b.len & 255));
            buf_addc(&row, (char)(b.len >> 8));
            buf_add(&row, b.data ? b.data : "", b.len);
        }
        add(row.data ? row.data : "", row.len);
    }
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    static const struct actor bob = {"bob", 1002, 1002, false}, root = {"root", 0, 0, true};
    int64_t now_ms = 1000000;
    struct core *c = harness_core(now_ms);
    while (size > 3) {
        cleanup_arena struct arena a = {0};
        unsigned type = data[0] & 0x7f;
        const struct actor *actor = data[0] & 0x80 ? &root : &bob;
        size_t len = (size_t)data[1] | (size_t)data[2] << 8;
        data += 3, size -= 3;
        len = len > size ? size : len;
        const struct schema *s =
            type < COMMAND_TYPE_COUNT && !is_internal(type) ? command_schema((enum command_type)type) : NULL;
        void *body = s ? arena_alloc(&a, s->size) : NULL;
        if (s && schema_decode(s, data, len, &a, body) == 0) {
            struct error e = {0};
            struct command command = {(enum command_type)type, body};
            int r = core_command(c, actor, NULL, &command, ++now_ms, NULL, &e);
            FUZZ_CHECK(r >= 0 || e.text[0]);
            core_schedule(c, now_ms);
            core_outbox_clear(core_outbox(c));
            core_assert(c);
        }
        data += len, size -= len;
    }
    core_free(c);
    return 0;
}
