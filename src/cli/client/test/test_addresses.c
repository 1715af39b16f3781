// Lists of controllers' addresses: their normal form, what is refused, which are parts of others.
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>
#include <stdlib.h>
#include <string.h>

#include "base/text.h"
#include "cli/client/addresses.h"

static void test_normal(void **state) {
    static const char *const forms[][2] = {
        {"head", "head:6820"},
        {"head:7000", "head:7000"},
        {"head1, head2:7000", "head1:6820,head2:7000"},
        {" /run/a.sock ,unix:/run/b.sock", "/run/a.sock,/run/b.sock"},
        {"10.0.0.1:1", "10.0.0.1:1"},
        {"fe80::1", "[fe80::1]:6820"},
        {"[fe80::1]", "[fe80::1]:6820"},
        {"[fe80::1]:65535,h", "[fe80::1]:65535,h:6820"},
    };
    for (size_t i = 0; i < sizeof forms / sizeof *forms; i++) {
        cleanup_buf struct buf out = {0}, again = {0};
        struct error e = {0};
        assert_int_equal(addresses_normal(forms[i][0], &out, &e), 0);
        assert_string_equal(buf_str(&out), forms[i][1]);
        assert_int_equal(addresses_normal(buf_str(&out), &again, &e), 0);
        assert_string_equal(buf_str(&again), forms[i][1]);
    }
}

static void test_refused(void **state) {
    static const char *const texts[] = {"",      ",",      "head,",      ",head",  "a,,b",
                                        "head:", "head:0", "head:65536", "head:x", ":6820",
                                        "[]:1",  "a b",    "http://head"};
    for (size_t i = 0; i < sizeof texts / sizeof *texts; i++) {
        cleanup_buf struct buf out = {0};
        struct error e = {0};
        if (addresses_normal(texts[i], &out, &e) == 0)
            fail_msg("\"%s\" is taken as \"%s\"", texts[i], buf_str(&out));
        assert_non_null(strstr(e.text, "HOST:PORT"));
    }
}

static void test_lists(void **state) {
    const char *list = "head1:6820,[fe80::1]:7000,/run/a.sock";
    size_t len;
    char *host;
    unsigned port;
    assert_int_equal(addresses_count(list), 3);
    const char *at = addresses_at(list, 1, &len);
    addresses_split(at, len, &host, &port);
    assert_string_equal(host, "fe80::1");
    assert_int_equal(port, 7000);
    free(host);
    at = addresses_at(list, 0, &len);
    addresses_split(at, len, &host, &port);
    assert_string_equal(host, "head1");
    assert_int_equal(port, 6820);
    free(host);
    assert_true(addresses_need_tls(list));
    assert_false(addresses_need_tls("/a,/b"));
    assert_true(addresses_within("/run/a.sock,head1:6820", list));
    assert_false(addresses_within("head1:6820,head2:6820", list));
    assert_false(addresses_within("head1:682", list));
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_normal),
        cmocka_unit_test(test_refused),
        cmocka_unit_test(test_lists),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
