// Requests for further ranks: what is passed on, and what is refused.
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "mpi/pmi.h"
#include "mpi/spawn.h"

static char seen[256];

static bool note(void *ctx, const char *key, size_t key_len, const char *value, size_t value_len) {
    size_t at = strlen(seen);
    snprintf(seen + at, sizeof seen - at, "[%.*s|%.*s]", (int)key_len, key, (int)value_len, value);
    return true;
}

static void test_two_programs(void **state) {
    static const char *const words[][2] = {
        {"mcmd", "spawn"}, {"nprocs", "2"}, {"execname", "./a"}, {"totspawns", "2"}, {"spawnssofar", "1"},
        {"arg1", "it's"}, {"argcnt", "1"}, {"preput_num", "1"}, {"preput_key_0", "PORT"}, {"preput_val_0", "x=1 y"},
        {"info_num", "1"}, {"info_key_0", "wdir"}, {"info_val_0", "/tmp"},
        {"mcmd", "spawn"}, {"nprocs", "1"}, {"execname", "b"}, {"totspawns", "2"}, {"preput_key_0", "PORT"},
        {"preput_val_0", "x=1 y"}};
    struct spawn_group g = {0};
    struct buf v = {0}, script = {0};
    uint32_t programs[3] = {9, 9, 9};
    for (size_t i = 0; i < sizeof words / sizeof *words; i++) {
        assert_null(spawn_word1(&g, words[i][0], words[i][1]));
        if (i == 12)
            assert_false(spawn_is_complete(&g));
    }
    assert_true(spawn_is_complete(&g));
    assert_null(spawn_check(&g));
    assert_int_equal(spawn_ranks(&g), 3);
    spawn_variable(&g, &v);
    assert_string_equal(buf_str(&v), "2,1\nPORT=x=1 y\n");
    spawn_script(&g, &script);
    assert_string_equal(buf_str(&script), "if [ $SLURM_PROCID -lt 2 ]; then cd '/tmp' || exit 1; exec './a' 'it'\\''s'; fi\n"
                                          "if [ $SLURM_PROCID -lt 3 ]; then exec 'b'; fi\n");
    *seen = 0;
    assert_true(spawn_read(buf_str(&v), 3, programs, note, NULL));
    assert_string_equal(seen, "[PORT|x=1 y]");
    assert_true(programs[0] == 0 && programs[1] == 0 && programs[2] == 1);
    assert_false(spawn_read(buf_str(&v), 4, programs, note, NULL));
    assert_false(spawn_read("3", 3, programs, note, NULL));
    assert_false(spawn_read("4\n", 3, programs, note, NULL));
    assert_false(spawn_read("3\nno value\n", 3, programs, note, NULL));
    buf_done(&v);
    buf_done(&script);
    spawn_group_done(&g);
}

static void test_pmi2(void **state) {
    static const char *const words[][2] = {{"cmd", "spawn"}, {"ncmds", "1"}, {"preputcount", "1"}, {"ppkey0", "k"}, {"ppval0", "v"},
                                           {"subcmd", "a"}, {"maxprocs", "4"}, {"argc", "1"}, {"argv0", "x"},
                                           {"infokeycount", "1"}, {"infokey0", "soft"}, {"infoval0", "4"}};
    struct spawn_group g = {0};
    struct buf v = {0};
    for (size_t i = 0; i < sizeof words / sizeof *words; i++)
        assert_null(spawn_word2(&g, words[i][0], words[i][1]));
    assert_null(spawn_check(&g));
    spawn_variable(&g, &v);
    assert_string_equal(buf_str(&v), "4\nk=v\n");
    assert_int_equal(g.commands.at[0].argv.len, 2);
    buf_done(&v);
    spawn_group_done(&g);
}

static void test_what_is_refused(void **state) {
    struct spawn_group g = {0};
    char *big = malloc(SPAWN_BYTES_MAX + 1);
    memset(big, 'x', SPAWN_BYTES_MAX);
    big[SPAWN_BYTES_MAX] = 0;
    assert_non_null(spawn_check(&g));
    assert_non_null(spawn_word1(&g, "nprocs", "1"));
    assert_non_null(spawn_word1(&g, "execname", "a"));
    assert_null(spawn_word1(&g, "mcmd", "spawn"));
    assert_non_null(spawn_check(&g));
    assert_non_null(spawn_word1(&g, "nprocs", "0"));
    assert_non_null(spawn_word1(&g, "nprocs", "-1"));
    assert_non_null(spawn_word1(&g, "nprocs", "99999999"));
    assert_non_null(spawn_word1(&g, "preput_val_0", "x"));
    assert_null(spawn_word1(&g, "preput_key_0", "a=b"));
    assert_non_null(spawn_word1(&g, "preput_val_0", "x"));
    assert_non_null(spawn_word1(&g, "arg1", big));
    free(big);
    spawn_group_done(&g);
}

int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_two_programs), cmocka_unit_test(test_pmi2),
                                       cmocka_unit_test(test_what_is_refused)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
