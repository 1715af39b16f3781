// Positions of a step's output: when tasks wait, when output is dropped, reading from a position as far as credit goes.
#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

#include "base/buf.h"
#include "launch/relay_flow.h"

static const struct relay_limits small = {100, 300};

static void a_client_blocks_and_its_absence_drops(void **state) {
    struct relay_page p = {.client = 1};
    assert_false(launch_relay_blocks(&p, &small));
    p.out_len = 100;
    assert_true(launch_relay_blocks(&p, &small) && !launch_relay_drops(&p, &small));
    p.client = 0;
    assert_false(launch_relay_blocks(&p, &small));
    p.out_len = 300;
    assert_true(launch_relay_drops(&p, &small));
    p.client = 1;
    assert_false(launch_relay_drops(&p, &small));
    p.out_len = 400;
    assert_true(launch_relay_drops(&p, &small));
}

static void acknowledgements_that_make_no_sense_change_nothing(void **state) {
    struct relay_page p = {.client = 1, .out_len = 150, .out_acked = 20};
    assert_false(launch_relay_ack(&p, 20, &small));
    assert_false(launch_relay_ack(&p, 151, &small));
    assert_int_equal(p.out_acked, 20);
    assert_true(launch_relay_ack(&p, 60, &small));  // tasks waited
    assert_false(launch_relay_ack(&p, 150, &small));
    assert_int_equal(p.out_acked, 150);
}

struct file {
    struct buf bytes, got;
    uint64_t end;
};

static ssize_t read_bytes(void *ctx, uint64_t at, void *data, size_t size) {
    struct file *f = ctx;
    size_t left = f->bytes.len - at, n = size < left ? size : left;
    memcpy(data, f->bytes.data + at, n);
    return (ssize_t)n;
}

static void piece(void *ctx, const struct relay_record *r, const void *data, uint64_t end) {
    struct file *f = ctx;
    buf_add(&f->got, data, r->len);
    f->end = end;
}

static const struct relay_source source = {read_bytes, piece};

static void add(struct file *f, const char *text) {
    struct relay_record head = {.fd = 1, .len = (uint16_t)strlen(text), .mark = RELAY_MARK};
    buf_add(&f->bytes, &head, sizeof head);
    buf_adds(&f->bytes, text);
}

static void whole_records_are_read_as_far_as_credit_goes(void **state) {
    struct file f = {0};
    struct relay_reader r = {0, 5};
    add(&f, "one ");
    add(&f, "two ");
    add(&f, "three");
    assert_int_equal(launch_relay_read(&r, f.bytes.len, &source, &f), 0);
    assert_string_equal(buf_str(&f.got), "one two ");
    assert_int_equal(r.at, f.end);
    assert_int_equal(launch_relay_read(&r, f.bytes.len, &source, &f), 0);  // no credit
    r.credit = 1000;
    assert_int_equal(launch_relay_read(&r, f.bytes.len, &source, &f), 1);
    assert_string_equal(buf_str(&f.got), "one two three");
    assert_int_equal(r.at, f.bytes.len);
    struct relay_reader again = {f.bytes.len, 10};
    assert_int_equal(launch_relay_read(&again, f.bytes.len, &source, &f), 1);
    struct relay_reader inside = {3, 10};  // not the beginning of a record
    assert_int_equal(launch_relay_read(&inside, f.bytes.len, &source, &f), -EBADMSG);
    buf_done(&f.bytes);
    buf_done(&f.got);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_client_blocks_and_its_absence_drops),
        cmocka_unit_test(acknowledgements_that_make_no_sense_change_nothing),
        cmocka_unit_test(whole_records_are_read_as_far_as_credit_goes),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
