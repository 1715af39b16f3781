// Fuzz target: the JSON form of every table-described struct, as requests bring it. The first byte chooses the struct.
// What is accepted is written and read again as the same; what is refused has a reason.
#include <assert.h>

#include "driver.h"
#include "model/event.h"
#include "model/message.h"
#include "model/node.h"
#include "sample.h"

static const struct schema *const own[] = {&spec_schema,
                                           &entity_project_schema,
                                           &entity_partition_schema,
                                           &entity_qos_schema,
                                           &entity_reservation_schema,
                                           &policy_schema,
                                           &node_schema,
                                           &usage_schema,
                                           &job_record_schema};
enum { OWN = sizeof own / sizeof *own };

static const struct schema *choose(unsigned n) {
    n %= OWN + EVENT_TYPE_MAX + MESSAGE_TYPE_MAX;
    if (n < OWN)
        return own[n];
    n -= OWN;
    if (n < EVENT_TYPE_MAX) {
        const struct event_info *e = event_info((enum event_type)n);
        return e ? e->schema : own[0];
    }
    const struct message_info *m = message_info((enum message_type)(n - EVENT_TYPE_MAX));
    return m ? m->schema : own[0];
}

const struct fuzz_seed fuzz_seeds[] = {
    FUZZ_SEED("\x01{\"name\":\"t\",\"tasks\":4,\"argv\":[\"a\",\"b\"],"
              "\"array\":[{\"first\":0,\"last\":9,\"step\":1}]}"),
    FUZZ_SEED("\x02{\"name\":\"vision\",\"quota_milli\":4000}"),
    {0},
};

void fuzz_corpus(fuzz_add_fn add) {
    struct rand r;
    rand_seed(&r, 11);
    for (unsigned n = 0; n < OWN + EVENT_TYPE_MAX + MESSAGE_TYPE_MAX; n++) {
        cleanup_buf struct buf b = {0};
        buf_addc(&b, (char)n);
        fuzz_sample_json(choose(n), &r, 0, &(struct json_writer){.out = &b});
        add(b.data, b.len);
    }
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    cleanup_arena struct arena a = {0};
    cleanup_buf struct buf text = {0};
    struct json *j, *again;
    struct error e = {0};
    if (!size)
        return 0;
    const struct schema *s = choose(data[0]);
    if (json_parse((const char *)data + 1, size - 1, &a, &j, &e) < 0)
        return 0;
    void *value = arena_alloc(&a, s->size), *copy = arena_alloc(&a, s->size);
    if (schema_read_json(s, j, &a, value, &e) < 0) {
        assert(e.code && e.text[0]);
        return 0;
    }
    schema_write_given_json(s, value, &(struct json_writer){.out = &text});
    FUZZ_CHECK(json_parse(text.data, text.len, &a, &again, &e) == 0);
    FUZZ_CHECK(schema_read_json(s, again, &a, copy, &e) == 0 && schema_equal(s, value, copy));
    return 0;
}
