// Buffers, arenas, vectors, maps, text conversion, random numbers.
#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <cmocka.h>

#include "base/arena.h"
#include "base/buf.h"
#include "base/error.h"
#include "base/map.h"
#include "base/siphash.h"
#include "base/rand.h"
#include "base/text.h"
#include "base/vec.h"

static void buf_grows_and_drops(void **state) {
    cleanup_buf struct buf b = {0};
    assert_string_equal(buf_str(&b), "");
    for (int i = 0; i < 1000; i++)
        buf_addf(&b, "%d,", i);
    buf_addu(&b, UINT64_MAX);
    assert_true(b.len > 3000 && b.data[b.len] == 0);
    buf_drop(&b, b.len - 20);
    assert_string_equal(b.data, "18446744073709551615");
}

static void maps_agree_with_a_model(void **state) {
    struct map m = {0};
    static char used[512];
    struct rand r;
    rand_seed(&r, 7);
    for (int i = 0; i < 100000; i++) {
        uint64_t k = rand_below(&r, 512);
        if (rand_below(&r, 2)) {
            map_put(&m, k, &used[k]);
            used[k] = 1;
        } else {
            assert_ptr_equal(map_remove(&m, k), used[k] ? &used[k] : NULL);
            used[k] = 0;
        }
    }
    size_t live = 0, it = 0, seen = 0;
    for (int k = 0; k < 512; k++) {
        live += (size_t)used[k];
        assert_ptr_equal(map_get(&m, (uint64_t)k), used[k] ? &used[k] : NULL);
    }
    while (map_next(&m, &it, NULL, NULL))
        seen++;
    assert_int_equal(m.len, live);
    assert_int_equal(seen, live);
    assert_true(m.cap <= 2048);  // tombstones do not make it grow for ever
    map_done(&m);
}

static void string_maps(void **state) {
    struct strmap m = {0};
    char keys[100][8];
    for (int i = 0; i < 100; i++) {
        snprintf(keys[i], sizeof keys[i], "k%d", i);
        strmap_put(&m, keys[i], keys[i]);
    }
    assert_ptr_equal(strmap_get(&m, "k42"), keys[42]);
    assert_ptr_equal(strmap_remove(&m, "k42"), keys[42]);
    assert_null(strmap_get(&m, "k42"));
    assert_int_equal(m.len, 99);
    strmap_done(&m);
}

static void numbers_are_strict(void **state) {
    uint64_t u;
    int64_t i;
    assert_int_equal(parse_u64("18446744073709551615", &u), 0);
    assert_int_equal(parse_u64("18446744073709551616", &u), -ERANGE);
    assert_int_equal(parse_u64("12x", &u), -EINVAL);
    assert_int_equal(parse_u64("", &u), -EINVAL);
    assert_int_equal(parse_u64("-1", &u), -EINVAL);
    assert_int_equal(parse_i64("-9223372036854775808", &i), 0);
    assert_true(i == INT64_MIN);
    assert_int_equal(parse_i64("9223372036854775808", &i), -ERANGE);
}

static void text_checks(void **state) {
    char out[12];
    assert_true(str_utf8_valid("Séquia ✓", 11));
    assert_false(str_utf8_valid("\xff", 1));
    assert_false(str_utf8_valid("\xc0\x80", 2));
    assert_false(str_utf8_valid("\xe2\x9c", 2));
    assert_string_equal(str_printable("a\nb\tcdefghijkl", out, sizeof out), "a?b?cdef...");
    // C1 controls and marks that reverse text are control characters, letters around them are not.
    assert_true(str_has_control_chars("a\xc2\x9b"
                                      "31m",
                                      6));
    assert_true(str_has_control_chars("gnp.exe\xe2\x80\xae", 10));
    assert_true(str_has_control_chars("\xe2\x81\xa6", 3));
    assert_false(str_has_control_chars("Séquia ✓ \xc2\xa0", 14));
    // Characters that nobody sees: zero width space and joiner, word joiner, byte order mark, soft hyphen, tags.
    static const char *const invisible[] = {"a\u200b", "a\u200d", "\u2060", "\ufeff" "a", "a\u00ad", "\U000e0041"};
    for (size_t i = 0; i < sizeof invisible / sizeof *invisible; i++)
        assert_true(str_has_control_chars(invisible[i], strlen(invisible[i])));
    assert_false(str_has_control_chars("日本語 العربية 🙂", strlen("日本語 العربية 🙂")));
    assert_string_equal(str_printable("a\xc2\x9b"
                                      "b",
                                      out, sizeof out),
                        "a?b");
    // What is shown is valid UTF-8, also of bytes that are not, and when it is cut.
    assert_string_equal(str_printable("\xff\xfe"
                                      "a\xe2\x9c",
                                      out, sizeof out),
                        "??a??");
    assert_string_equal(str_printable("aéééééééé", out, sizeof out), "aééé...");
    assert_string_equal(str_printable("✓✓", out, sizeof out), "✓✓");
    cleanup_buf struct buf b = {0};
    buf_add_visible(&b, "a\x1b[1m\xe2\x80\xae" "é\n");
    assert_string_equal(buf_str(&b), "a\\x1b[1m\\u202eé\\x0a");
    assert_int_equal(str_edit_distance("sumbit", "submit"), 2);
    assert_true(str_edit_distance("gpsu", "gpus") < str_edit_distance_near("gpsu"));
    assert_false(str_edit_distance("foo", "qos") < str_edit_distance_near("foo"));
    assert_false(str_edit_distance("bogus", "nodes") < str_edit_distance_near("bogus"));
}

static void arena_keeps_everything(void **state) {
    cleanup_arena struct arena a = {0};
    char *first = arena_strdup(&a, "first");
    for (int i = 0; i < 10000; i++)
        assert_true(((uintptr_t)arena_alloc(&a, (size_t)i % 300) & 15) == 0);
    assert_string_equal(first, "first");
    assert_string_equal(arena_printf(&a, "%s-%d", first, 1), "first-1");
}

static void vectors(void **state) {
    VEC(int) v = {0};
    for (int i = 0; i < 100; i++)
        vec_push(&v, i);
    vec_remove(&v, 0);
    assert_int_equal(v.at[0], 1);
    vec_remove_swap(&v, 0);
    assert_int_equal(v.at[0], 99);
    assert_int_equal(vec_pop(&v), 98);
    vec_done(&v);
}

static void errors_are_cut_not_overrun(void **state) {
    struct error e = {0};
    char big[2000];
    memset(big, 'x', sizeof big - 1);
    big[sizeof big - 1] = 0;
    assert_int_equal(error_set(&e, EINVAL, "%s", big), -EINVAL);
    assert_int_equal(strlen(e.text), ERROR_TEXT_MAX - 1);
    error_prefix(&e, "reading");
    assert_memory_equal(e.text, "reading: x", 10);
}

// The vectors of the paper: key 00 … 0f, data 00, 01, ….
static void siphash_gives_the_published_values(void **state) {
    uint8_t key[SIPHASH_KEY_BYTES], data[15];
    for (uint8_t i = 0; i < sizeof key; i++)
        key[i] = i;
    for (uint8_t i = 0; i < sizeof data; i++)
        data[i] = i;
    assert_int_equal(siphash(key, data, 0), 0x726fdb47dd0e0e31ULL);
    assert_int_equal(siphash(key, data, 1), 0x74f839c593dc67fdULL);
    assert_int_equal(siphash(key, data, 8), 0x93f5f5799a932462ULL);
    assert_int_equal(siphash(key, data, 15), 0xa129ca6149be45e5ULL);
    assert_int_not_equal(siphash_short(key, data, 15), siphash(key, data, 15));
    assert_int_equal(siphash_short(key, data, 0), 0xabac0158050fc4dcULL);
    assert_int_equal(siphash_short(key, data, 15), 0xd320d86d2a519956ULL);
    key[3] ^= 1;
    assert_int_not_equal(siphash(key, data, 15), 0xa129ca6149be45e5ULL);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(buf_grows_and_drops),
        cmocka_unit_test(siphash_gives_the_published_values),   cmocka_unit_test(maps_agree_with_a_model),
        cmocka_unit_test(string_maps),           cmocka_unit_test(numbers_are_strict),
        cmocka_unit_test(text_checks),           cmocka_unit_test(arena_keeps_everything),
        cmocka_unit_test(vectors),               cmocka_unit_test(errors_are_cut_not_overrun),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
