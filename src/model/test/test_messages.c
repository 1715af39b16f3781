// Messages across releases: what release 0.1.0 sent, recorded on the wire (tests/data), and what a later
// release may send.
#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <cmocka.h>

#include "model/feature.h"
#include "model/message.h"

static void read_exactly(FILE *f, void *out, size_t len) {
    assert_int_equal(fread(out, 1, len, f), len);
}

// Every message decodes, and its bytes come out again: no field has changed its number or its type.
static void test_recorded(void **state) {
    const char *folder = getenv("TEST_DATA");
    assert_non_null(folder);
    char path[4096];
    snprintf(path, sizeof path, "%s/messages-0.1.0.bin", folder);
    FILE *f = fopen(path, "rb");
    assert_non_null(f);
    int side, count = 0, hellos = 0, welcomes = 0;
    while ((side = fgetc(f)) != EOF) {
        uint32_t len;
        static char data[1 << 20];
        cleanup_arena struct arena a = {0};
        cleanup_buf struct buf again = {0};
        struct message m;
        assert_true(side == 'A' || side == 'C');
        read_exactly(f, &len, sizeof len);
        assert_true(len <= sizeof data);
        read_exactly(f, data, len);
        assert_int_equal(message_decode(data, len, &a, &m), 0);
        assert_true(side == 'A' ? message_info(m.type)->from_agent : message_info(m.type)->from_controller);
        message_encode(&m, &again);
        assert_int_equal(again.len, len);
        assert_memory_equal(again.data, data, len);
        if (m.type == MESSAGE_HELLO) {
            const struct message_hello *h = m.body;
            assert_string_equal(h->node->name, "n1");
            assert_string_equal(h->node->version, "0.1.0");
            assert_int_equal(h->level, 0);
            hellos++;
        }
        if (m.type == MESSAGE_WELCOME) {
            assert_string_equal(((struct message_welcome *)m.body)->cluster, "oldlab");
            welcomes++;
        }
        count++;
    }
    fclose(f);
    assert_int_equal(hellos, 2);
    assert_int_equal(welcomes, 2);
    assert_true(count > 50);
}

static void test_unknown_type_is_named(void **state) {
    cleanup_buf struct buf b = {0};
    cleanup_arena struct arena a = {0};
    struct message m;
    struct message_skips skips = {0};
    schema_put_varint(&b, MESSAGE_NUMBER_MAX);
    buf_adds(&b, "whatever");
    assert_int_equal(message_decode(b.data, b.len, &a, &m), -EPROTONOSUPPORT);
    assert_int_equal(m.type, MESSAGE_NUMBER_MAX);
    assert_true(message_skip(&skips, m.type));
    assert_false(message_skip(&skips, m.type));
    assert_true(message_skip(&skips, MESSAGE_HELLO));
    buf_clear(&b);
    schema_put_varint(&b, MESSAGE_NUMBER_MAX + 1);
    assert_int_equal(message_decode(b.data, b.len, &a, &m), -EBADMSG);
    buf_clear(&b);
    schema_put_varint(&b, MESSAGE_NONE);
    assert_int_equal(message_decode(b.data, b.len, &a, &m), -EBADMSG);
}

// The term of a leader comes before the message, and is no part of it.
static void test_terms(void **state) {
    cleanup_buf struct buf b = {0};
    cleanup_arena struct arena a = {0};
    struct message m;
    uint64_t term = 9;
    message_put_term(&b, 300);
    message_encode(&(struct message){MESSAGE_PING, &(struct message_ping){.at_ms = 5}}, &b);
    const char *data = b.data;
    size_t len = b.len;
    assert_int_equal(message_take_term(&data, &len, &term), 0);
    assert_int_equal(term, 300);
    assert_int_equal(message_decode(data, len, &a, &m), 0);
    assert_int_equal(((struct message_ping *)m.body)->at_ms, 5);
    assert_int_equal(message_take_term(&data, &len, &term), 0);  // a message without one
    assert_int_equal(term, 0);
    assert_int_equal(message_decode(data, len, &a, &m), 0);
    data = b.data;
    len = 1;
    assert_int_equal(message_take_term(&data, &len, &term), -EBADMSG);
}

// The bytes are not copied, whatever else of the message is.
static void test_views(void **state) {
    cleanup_buf struct buf b = {0};
    cleanup_arena struct arena a = {0};
    struct message_stream stream = {.stream = 7, .error = "why", .data = {.data = "hello", .len = 5}};
    struct message m;
    message_encode(&(struct message){MESSAGE_STREAM_DATA, &stream}, &b);
    assert_int_equal(message_decode_views(b.data, b.len, &a, &m), 0);
    const struct message_stream *s = m.body;
    const char *at = s->data.data;
    assert_true(at > b.data && at + 5 <= b.data + b.len && s->data.len == 5 && memcmp(at, "hello", 5) == 0);
    assert_true(s->error < b.data || s->error >= b.data + b.len);
    assert_string_equal(s->error, "why");
    assert_int_equal(message_decode(b.data, b.len, &a, &m), 0);
    at = ((const struct message_stream *)m.body)->data.data;
    assert_true(at < b.data || at >= b.data + b.len);
}

static void test_unknown_words_are_kept(void **state) {
    cleanup_buf struct buf b = {0}, json = {0};
    cleanup_arena struct arena a = {0};
    struct message_ended end = {.id = 7, .attempt = 1, .cause = (enum end_cause)77, .exit_code = 5};
    struct message m;
    message_encode(&(struct message){MESSAGE_ENDED, &end}, &b);
    assert_int_equal(message_decode(b.data, b.len, &a, &m), 0);
    assert_int_equal(((struct message_ended *)m.body)->cause, 77);
    struct json_writer w = {.out = &json};
    schema_write_json(message_info(MESSAGE_ENDED)->schema, m.body, &w);
    assert_non_null(strstr(buf_str(&json), "\"cause\":\"unknown\""));
    assert_string_equal(schema_word_name(event_end_cause_words, END_GPU), "gpu");

    struct attempt attempt = {.id = 7, .attempt = 1, .state = (enum attempt_state)9};
    struct node node = {.name = "n"};
    struct message_hello hello = {.node = &node, .attempts = {&attempt, 1}, .level = FEATURE_LEVEL_NEWEST + 1};
    buf_clear(&b);
    message_encode(&(struct message){MESSAGE_HELLO, &hello}, &b);
    assert_int_equal(message_decode(b.data, b.len, &a, &m), 0);
    assert_int_equal(((struct message_hello *)m.body)->attempts.at[0].state, 9);
}

// A word that decides what happens is refused, as something of a later release and not as damage.
static void test_unknown_words_that_matter_are_refused(void **state) {
    cleanup_buf struct buf b = {0};
    cleanup_arena struct arena a = {0};
    struct event e;
    struct event_job_ended ended = {.id = 1, .state = (enum job_state)99};
    event_encode(&(struct event){.type = EVENT_JOB_ENDED, .body = &ended}, &b);
    assert_int_equal(event_decode(EVENT_JOB_ENDED, b.data, b.len, &a, &e), -EPROTONOSUPPORT);
    struct spec spec = {.name = "x", .launch = (enum launch_kind)99};
    struct event_job_submitted submitted = {.id = 1, .spec = &spec};
    buf_clear(&b);
    event_encode(&(struct event){.type = EVENT_JOB_SUBMITTED, .body = &submitted}, &b);
    assert_int_equal(event_decode(EVENT_JOB_SUBMITTED, b.data, b.len, &a, &e), -EPROTONOSUPPORT);
    // In a launch it is kept: the agent answers that it cannot start the job.
    struct part part = {.node = "n"};
    struct message_launch launch = {.id = 1, .attempt = 1, .spec = &spec, .part = &part};
    struct message m;
    buf_clear(&b);
    message_encode(&(struct message){MESSAGE_LAUNCH, &launch}, &b);
    assert_int_equal(message_decode(b.data, b.len, &a, &m), 0);
    assert_int_equal(event_decode((enum event_type)EVENT_TYPE_MAX, "", 0, &a, &e), -EPROTONOSUPPORT);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_recorded),
        cmocka_unit_test(test_unknown_type_is_named),
        cmocka_unit_test(test_terms),
        cmocka_unit_test(test_views),
        cmocka_unit_test(test_unknown_words_are_kept),
        cmocka_unit_test(test_unknown_words_that_matter_are_refused),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
