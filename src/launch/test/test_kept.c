// Kept output files: the limit with and without a client, what is given back, what is counted as lost.
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

#include "launch/kept.h"

enum { PIECE = 1 << 20 };
static char piece[PIECE];

static void make(struct kept_file *k) {
    char path[] = "/tmp/acequia-kept-XXXXXX";
    int fd = mkstemp(path);
    assert_true(fd >= 0);
    unlink(path);
    assert_int_equal(launch_kept_create(fd, 7, k), 0);
    assert_int_equal(k->head->uid, 7);
}

static uint64_t on_disk(const struct kept_file *k) {
    struct stat st;
    assert_int_equal(fstat(k->fd, &st), 0);
    return (uint64_t)st.st_blocks * 512;
}

static void without_a_client_output_over_the_limit_is_dropped_and_counted(void **state) {
    struct kept_file k;
    make(&k);
    atomic_store(&k.head->client, 0);
    for (int i = 0; i < 100; i++) {
        assert_false(launch_kept_blocked(&k));
        launch_kept_append(&k, piece, PIECE, false);
    }
    assert_int_equal(atomic_load(&k.head->len), KEPT_STREAM_BYTES);
    assert_int_equal(atomic_load(&k.head->lost), 100 * (uint64_t)PIECE - KEPT_STREAM_BYTES);
    launch_kept_append(&k, piece, PIECE, true);
    launch_kept_append(&k, piece, PIECE, true);
    assert_true(on_disk(&k) <= KEPT_STREAM_BYTES + KEPT_OVER_BYTES + 2 * KEPT_HEAD_BYTES);
    launch_kept_close(&k);
}

static void a_client_blocks_the_writer_and_makes_room_by_reading(void **state) {
    struct kept_file k;
    static char read[PIECE];
    uint64_t written = 0, at = 0;
    make(&k);
    while (at < 300 * (uint64_t)PIECE) {
        for (; !launch_kept_blocked(&k); written++) {
            memset(piece, (int)(written % 251), PIECE);
            launch_kept_append(&k, piece, PIECE, false);
        }
        assert_true(on_disk(&k) <= KEPT_STREAM_BYTES + KEPT_OVER_BYTES + 2 * KEPT_HEAD_BYTES);
        assert_int_equal(launch_kept_read(&k, at, read, PIECE), PIECE);
        memset(piece, (int)(at / PIECE % 251), PIECE);
        assert_memory_equal(read, piece, PIECE);
        at += PIECE;
        assert_int_equal(launch_kept_acknowledge(&k, at), 0);
        assert_true(atomic_load(&k.head->start) + KEPT_BEHIND_BYTES <= at || !atomic_load(&k.head->start));
    }
    assert_int_equal(atomic_load(&k.head->lost), 0);
    assert_int_equal(atomic_load(&k.head->len), written * PIECE);
    launch_kept_close(&k);
}

// The file of a user with many streams: the same rules within its part.
static void a_part_of_what_a_user_may_have(void **state) {
    struct kept_file k;
    static char read[PIECE / 8];
    uint64_t written = 0, at = 0;
    make(&k);
    launch_kept_limit(&k, 100);  // less than the least
    while (at < 20 * (uint64_t)PIECE) {
        for (; !launch_kept_blocked(&k); written += sizeof read)
            launch_kept_append(&k, piece, sizeof read, false);
        assert_true(on_disk(&k) <= KEPT_LEAST_BYTES + KEPT_OVER_BYTES + 2 * KEPT_HEAD_BYTES);
        assert_int_equal(launch_kept_read(&k, at, read, sizeof read), sizeof read);
        at += sizeof read;
        assert_int_equal(launch_kept_acknowledge(&k, at), 0);
    }
    assert_int_equal(atomic_load(&k.head->lost), 0);
    launch_kept_limit(&k, 3 << 20);  // others have ended
    uint64_t before = atomic_load(&k.head->len);
    while (!launch_kept_blocked(&k))
        launch_kept_append(&k, piece, sizeof read, false);
    assert_true(atomic_load(&k.head->len) - before >= PIECE);
    atomic_store(&k.head->client, 0);
    launch_kept_append(&k, piece, PIECE, false);
    assert_int_equal(atomic_load(&k.head->lost), PIECE);
    launch_kept_close(&k);
}

static void short_output_stays_whole(void **state) {
    struct kept_file k;
    make(&k);
    for (uint64_t i = 1; i <= 30; i++) {
        launch_kept_append(&k, piece, PIECE, false);
        assert_int_equal(launch_kept_acknowledge(&k, i * PIECE), 0);
    }
    assert_int_equal(atomic_load(&k.head->start), 0);
    launch_kept_close(&k);
}

static void other_files_are_recognized(void **state) {
    struct kept_file k;
    char path[] = "/tmp/acequia-kept-XXXXXX";
    int fd = mkstemp(path);
    unlink(path);
    assert_int_equal(launch_kept_open(fd, &k), -EBADMSG);
    assert_int_equal(write(fd, piece, PIECE), PIECE);
    assert_int_equal(launch_kept_open(fd, &k), -EBADMSG);
    close(fd);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(without_a_client_output_over_the_limit_is_dropped_and_counted),
        cmocka_unit_test(a_client_blocks_the_writer_and_makes_room_by_reading),
        cmocka_unit_test(a_part_of_what_a_user_may_have),
        cmocka_unit_test(short_output_stays_whole),
        cmocka_unit_test(other_files_are_recognized),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
