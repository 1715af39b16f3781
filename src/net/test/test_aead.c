// Sealed values: what was sealed comes back; another key, another context or a changed byte does not.
#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>
#include <cmocka.h>

#include "net/aead.h"

static const struct aead_key key = {"0123456789abcdef0123456789abcde"}, other = {"another key"};

static void sealed_and_opened(void **state) {
    char data[1000];
    struct error e = {0};
    memset(data, 'x', sizeof data);
    for (size_t len = 0; len <= sizeof data; len += 100) {
        cleanup_buf struct buf sealed = {0}, again = {0}, plain = {0};
        assert_int_equal(aead_seal(&key, "a", data, len, &sealed, &e), 0);
        assert_int_equal(aead_seal(&key, "a", data, len, &again, &e), 0);
        assert_int_equal(sealed.len, len + AEAD_OVERHEAD);
        assert_memory_not_equal(sealed.data, again.data, sealed.len);  // never the same bytes twice
        assert_int_equal(aead_open(&key, "a", sealed.data, sealed.len, &plain, &e), 0);
        assert_true(plain.len == len && (!len || !memcmp(plain.data, data, len)));
        if (len)
            assert_null(memmem(sealed.data, sealed.len, "xxxxxxxx", 8));
    }
}

static void changed(void **state) {
    cleanup_buf struct buf sealed = {0}, plain = {0};
    struct error e = {0};
    assert_int_equal(aead_seal(&key, "secret user ana/x 1", "value", 5, &sealed, &e), 0);
    assert_int_equal(aead_open(&other, "secret user ana/x 1", sealed.data, sealed.len, &plain, &e),
                     -EKEYREJECTED);
    assert_int_equal(aead_open(&key, "secret user ana/x 2", sealed.data, sealed.len, &plain, &e), -EBADMSG);
    assert_int_equal(aead_open(&key, "secret user bob/x 1", sealed.data, sealed.len, &plain, &e), -EBADMSG);
    for (size_t len = 0; len < sealed.len; len++)
        assert_true(aead_open(&key, "secret user ana/x 1", sealed.data, len, &plain, &e) < 0);
    for (size_t i = 0; i < sealed.len; i++) {
        sealed.data[i] ^= 1;
        assert_true(aead_open(&key, "secret user ana/x 1", sealed.data, sealed.len, &plain, &e) < 0);
        sealed.data[i] ^= 1;
    }
    assert_int_equal(plain.len, 0);
    assert_int_equal(aead_open(&key, "secret user ana/x 1", sealed.data, sealed.len, &plain, &e), 0);
}

int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(sealed_and_opened), cmocka_unit_test(changed)};
    return cmocka_run_group_tests_name("aead", tests, NULL, NULL);
}
