// The spool's quotas: per user and in all, and that everything is given back.
#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cmocka.h>

#include "launch/spool.h"
#include "launch/spool_quota.h"

enum { MIB = 1 << 20 };

static void one_user_has_half(void **state) {
    struct spool_quota q;
    struct error e = {0};
    spool_quota_init(&q, 100 * MIB);
    for (uint64_t job = 1; job <= 50; job++)
        assert_int_equal(spool_quota_take(&q, job, 1, 1000, MIB, &e), 0);
    assert_int_equal(spool_quota_take(&q, 51, 1, 1000, MIB, &e), -EUSERS);
    assert_non_null(strstr(e.text, "50 MiB"));
    assert_int_equal(spool_quota_take(&q, 50, 1, 1000, MIB, &e), 0);  // it has it already
    for (uint64_t job = 100; job < 150; job++)
        assert_int_equal(spool_quota_take(&q, job, 1, job % 2 ? 0 : 1001, MIB, &e),
                         0);  // others have theirs, root too
    assert_int_equal(spool_quota_take(&q, 200, 1, 1002, MIB, &e), -ENOSPC);
    spool_quota_release(&q, 7, 1);
    spool_quota_release(&q, 7, 1);
    spool_quota_release(&q, 7, 2);
    assert_int_equal(q.total, 99 * MIB);
    assert_int_equal(spool_quota_take(&q, 7, 2, 1000, MIB, &e), 0);
    for (uint64_t job = 1; job <= 150; job++)
        for (uint32_t attempt = 1; attempt <= 2; attempt++)
            spool_quota_release(&q, job, attempt);
    assert_int_equal(q.total, 0);
    assert_int_equal(q.users.len, 0);
    spool_quota_done(&q);
}

static void what_is_there_is_counted(void **state) {
    struct spool_quota q;
    struct error e = {0};
    spool_quota_init(&q, 10 * MIB);
    spool_quota_note(&q, 1, 1, 1000, 20 * MIB);  // from before, with other limits
    assert_int_equal(spool_quota_take(&q, 2, 1, 1001, 1, &e), -ENOSPC);
    spool_quota_release(&q, 1, 1);
    assert_int_equal(spool_quota_take(&q, 2, 1, 1001, 1, &e), 0);
    spool_quota_done(&q);
}

// What an agent counts for a launch and what its successor finds in the folder are the same.
static void secrets_count_like_the_script(void **state) {
    char folder[] = "/tmp/spool-quota-XXXXXX", *argv[] = {"true"};
    assert_non_null(mkdtemp(folder));
    struct error e = {0};
    struct launch_request r = {.job = 7, .attempt = 1, .argv = argv, .argc = 1, .has_script = true};
    int fd = spool_open(folder, &e);
    assert_true(fd >= 0);
    assert_int_equal(spool_texts_bytes(fd, 7, 1), 0);
    char secret[10000] = {0};
    assert_int_equal(mkdirat(fd, "7.1", 0700), 0);
    assert_int_equal(spool_write_secret(fd, &r, "key", secret, sizeof secret), 0);
    assert_int_equal(spool_write_secret(fd, &r, "other", secret, 1), 0);
    assert_int_equal(spool_texts_bytes(fd, 7, 1), 3 * SPOOL_BLOCK_BYTES + SPOOL_BLOCK_BYTES);
    assert_int_equal(spool_quota_bytes(&r, 4 * SPOOL_BLOCK_BYTES) - spool_quota_bytes(&r, 0),
                     4 * SPOOL_BLOCK_BYTES);
    spool_remove(fd, 7, 1);
    assert_int_equal(spool_texts_bytes(fd, 7, 1), 0);
    close(fd);
    rmdir(folder);
}

// The list of a job's workers grows while the attempt runs; a successor finds what was counted.
static void the_membership_file_counts(void **state) {
    char folder[] = "/tmp/spool-quota-XXXXXX", lines[10000] = {0};
    assert_non_null(mkdtemp(folder));
    struct error e = {0};
    struct spool_quota q;
    int fd = spool_open(folder, &e);
    assert_true(fd >= 0);
    spool_quota_init(&q, 100 * MIB);
    assert_int_equal(spool_quota_take(&q, 7, 1, 1000, MIB, &e), 0);
    assert_int_equal(spool_quota_take_members(&q, 7, 1, 49 * MIB, &e), 0);
    assert_int_equal(q.total, 50 * MIB);
    assert_int_equal(spool_quota_take_members(&q, 7, 1, 49 * MIB + 1, &e), -EUSERS);
    assert_int_equal(q.total, 50 * MIB);  // it keeps the older one
    assert_int_equal(spool_quota_take(&q, 8, 1, 1000, 1, &e), -EUSERS);
    assert_int_equal(spool_quota_take_members(&q, 7, 1, spool_members_bytes(sizeof lines), &e), 0);
    assert_int_equal(spool_quota_take(&q, 8, 1, 1000, 1, &e), 0);
    assert_int_equal(spool_quota_take_members(&q, 9, 1, MIB, &e), 0);  // not there: nothing is counted
    assert_int_equal(q.total, MIB + spool_members_bytes(sizeof lines) + 1);
    assert_int_equal(spool_members_held(fd, 7, 1), 0);
    assert_int_equal(mkdirat(fd, "7.1", 0700), 0);
    assert_int_equal(spool_write_members(fd, 7, 1, lines, sizeof lines), 0);
    assert_int_equal(spool_members_held(fd, 7, 1), spool_members_bytes(sizeof lines));
    spool_quota_release(&q, 7, 1);
    spool_quota_release(&q, 8, 1);
    assert_int_equal(q.total, 0);
    assert_int_equal(q.users.len, 0);
    spool_quota_done(&q);
    spool_remove(fd, 7, 1);
    close(fd);
    rmdir(folder);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(one_user_has_half),
        cmocka_unit_test(what_is_there_is_counted),
        cmocka_unit_test(secrets_count_like_the_script),
        cmocka_unit_test(the_membership_file_counts),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
