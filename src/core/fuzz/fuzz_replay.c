// Fuzz target: replaying a journal. The input is a row of events, each with a byte for its type and two bytes of
// length. What is refused changes nothing; afterwards the state can be scheduled, written and loaded.
#include "harness.h"
#include "model/event.h"
#include "sample.h"

const struct fuzz_seed fuzz_seeds[] = {FUZZ_SEED("\x01\x02\x00\x02\x01"), {0}};

static void put_event(struct buf *row, unsigned type, const void *data, size_t len) {
    if (len > UINT16_MAX)
        return;
    buf_addc(row, (char)type);
    buf_addc(row, (char)(len & 255));
    buf_addc(row, (char)(len >> 8));
    buf_add(row, len ? data : "", len);
}

static void add_outbox(struct core *c, struct buf *row) {
    const struct outbox *o = core_outbox(c);
    for (uint32_t i = 0; i < o->events.len; i++)
        put_event(row, o->events.at[i].type, o->bytes.data + o->events.at[i].offset, o->events.at[i].len);
}

void fuzz_corpus(fuzz_add_fn add) {
    struct rand r;
    rand_seed(&r, 9);
    for (int n = 0; n < 120; n++) {
        cleanup_buf struct buf row = {0};
        struct core *c = harness_core(1000000);  // with its journal from the beginning
        add_outbox(c, &row);
        core_outbox_clear(core_outbox(c));
        for (int k = 0; k < n % 12; k++)
            harness_step_events(c, &r, 1000000 + k * 1000, add_outbox, &row);
        core_free(c);
        for (int k = 0; k < n % 4; k++) {
            cleanup_buf struct buf body = {0};
            unsigned type = (unsigned)rand_below(&r, EVENT_TYPE_MAX);
            const struct event_info *info = event_info((enum event_type)type);
            if (!info)
                continue;
            fuzz_sample_binary(info->schema, &r, 0, &body);
            put_event(&row, type, body.data, body.len);
        }
        add(row.data, row.len);
    }
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    struct core_config config;
    core_config_default(&config);
    struct core *c = core_new(&config);
    while (size >= 3) {
        size_t len = (size_t)data[1] | (size_t)data[2] << 8;
        len = len > size - 3 ? size - 3 : len;
        uint64_t seq = core_seq(c);
        if (core_replay(c, seq + 1, 1000000 + (int64_t)seq, (enum event_type)data[0], data + 3, len) < 0)
            FUZZ_CHECK(core_seq(c) == seq);
        data += 3 + len, size -= 3 + len;
    }
    struct rand r;
    rand_seed(&r, 1);
    core_start(c, 2000000);
    core_schedule(c, 2000000);
    harness_step(c, &r, 2001000);
    harness_reload(c);
    core_free(c);
    return 0;
}
