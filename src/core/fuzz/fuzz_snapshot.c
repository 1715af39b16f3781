// Fuzz target: loading a snapshot. The input is a row of records, each with a byte for its type and two bytes of
// length, so that changes reach what is inside of them. What is refused has a reason that names the record; what is
// loaded can be scheduled, written and loaded again.
#include "harness.h"
#include "sample.h"
#include "snapshot_records.h"

const struct fuzz_seed fuzz_seeds[] = {FUZZ_SEED("\x0a"), {0}};

static void put_record(struct buf *row, unsigned type, const void *data, size_t len) {
    if (len > UINT16_MAX)
        return;
    buf_addc(row, (char)type);
    buf_addc(row, (char)(len & 255));
    buf_addc(row, (char)(len >> 8));
    buf_add(row, len ? data : "", len);
}

// A real snapshot as such a row.
static void add_row(const struct core *c, struct buf *row) {
    cleanup_buf struct buf snapshot = {0};
    core_snapshot(c, &snapshot);
    const uint8_t *p = (const uint8_t *)snapshot.data, *end = p + snapshot.len;
    uint64_t type, len;
    while (p < end && schema_get_varint(&p, end, &type) == 0 && schema_get_varint(&p, end, &len) == 0) {
        put_record(row, (unsigned)type, p, len);
        p += len;
    }
}

void fuzz_corpus(fuzz_add_fn add) {
    struct rand r;
    rand_seed(&r, 7);
    struct core *c = harness_core(1000000);
    for (int n = 0; n < 120; n++) {
        cleanup_buf struct buf row = {0}, body = {0};
        harness_step(c, &r, 1000000 + n * 1000);
        add_row(c, &row);
        add(row.data, row.len);
        // The same with a record of random content, before the end.
        unsigned type = 1 + (unsigned)rand_below(&r, REC_TYPES - 1);
        if (!core_record_schema((enum record_type)type))
            continue;
        fuzz_sample_binary(core_record_schema((enum record_type)type), &r, 0, &body);
        row.len = row.len > 3 ? row.len - 3 : 0;
        put_record(&row, type, body.data, body.len);
        put_record(&row, REC_END, NULL, 0);
        add(row.data, row.len);
    }
    core_free(c);
}

static int load(struct core *c, const struct buf *b, struct error *e) {
    int r = core_load_snapshot(c, 77, b->data ? b->data : "", b->len, e);
    FUZZ_CHECK(r == 0 || e->text[0]);
    return r;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    struct core_config config;
    struct error e = {0};
    cleanup_buf struct buf snapshot = {0};
    while (size >= 3) {
        size_t len = (size_t)data[1] | (size_t)data[2] << 8;
        len = len > size - 3 ? size - 3 : len;
        schema_put_varint(&snapshot, data[0]);
        schema_put_varint(&snapshot, len);
        buf_add(&snapshot, data + 3, len);
        data += 3 + len, size -= 3 + len;
    }
    core_config_default(&config);
    struct core *c = core_new(&config);
    if (load(c, &snapshot, &e) == 0) {
        struct rand r;
        rand_seed(&r, 1);
        core_start(c, 2000000);
        core_schedule(c, 2000000);
        harness_step(c, &r, 2001000);
        harness_reload(c);
    }
    core_free(c);
    return 0;
}
