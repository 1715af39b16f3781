// Unit tests of the index of when a log was written.
#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <unistd.h>

#include <cmocka.h>

#include "launch/log_times.h"

static struct log_times written, seen;

static int begin(void) {
    written = seen = (struct log_times){0};
    int fd = memfd_create("times", MFD_CLOEXEC);
    assert_true(fd >= 0);
    return fd;
}

static int64_t time_of(uint64_t position) {
    uint64_t until;
    return launch_times_of(&seen, position, &until);
}

static void test_bytes_have_the_time_of_their_write(void **state) {
    int fd = begin();
    uint64_t until;
    launch_times_note(&written, 10, 1000, fd);
    launch_times_note(&written, 10, 5000, fd);  // nothing new
    launch_times_note(&written, 25, 5000, fd);
    launch_times_note(&written, 40, 5050, fd);  // at once with the one before
    launch_times_note(&written, 50, 9000, fd);
    launch_times_read(&seen, fd);
    assert_int_equal(seen.len, 3);
    assert_int_equal(time_of(0), 1000);
    assert_int_equal(time_of(9), 1000);
    assert_int_equal(launch_times_of(&seen, 10, &until), 5000);
    assert_int_equal(until, 40);
    assert_int_equal(time_of(49), 9000);
    assert_int_equal(launch_times_of(&seen, 50, &until), 0);
    assert_true(until == UINT64_MAX);
    close(fd);
}

static void test_a_log_that_is_emptied_begins_anew(void **state) {
    int fd = begin();
    for (int i = 1; i <= 100; i++)
        launch_times_note(&written, (uint64_t)i * 10, i * 1000, fd);
    launch_times_note(&written, 5, 200000, fd);
    launch_times_read(&seen, fd);
    assert_int_equal(seen.len, 1);
    assert_int_equal(time_of(0), 200000);
    close(fd);
}

static void test_it_is_bounded_and_stays_true(void **state) {
    int fd = begin();
    enum { WRITES = 10 * LOG_TIMES_MAX };
    for (int i = 1; i <= WRITES; i++)
        launch_times_note(&written, (uint64_t)i * 10, i * 1000LL, fd);
    assert_true(lseek(fd, 0, SEEK_END) <= (off_t)(LOG_TIMES_MAX * sizeof(struct log_time)));
    launch_times_read(&seen, fd);
    assert_int_equal(seen.len, written.len);
    assert_true(seen.len > LOG_TIMES_MAX / 4);
    // Never later than the write, and by no more than what shares an entry earlier.
    for (int i = 1; i <= WRITES; i += 7) {
        int64_t at = time_of((uint64_t)i * 10 - 1);
        assert_true(at <= i * 1000LL);
        assert_true(i * 1000LL - at <= 3 * written.gap_ms);
    }
    close(fd);
}

static void test_a_file_that_cannot_be_true_is_not_believed(void **state) {
    int fd = begin();
    const struct log_time bad[] = {{10, 1000}, {30, 2000}, {20, 3000}, {40, 4000}};
    assert_int_equal(write(fd, bad, sizeof bad), sizeof bad);
    assert_int_equal(write(fd, "rest", 4), 4);
    launch_times_read(&seen, fd);
    assert_int_equal(seen.len, 2);
    launch_times_read(&seen, -1);
    assert_int_equal(seen.len, 0);
    close(fd);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_bytes_have_the_time_of_their_write),
        cmocka_unit_test(test_a_log_that_is_emptied_begins_anew),
        cmocka_unit_test(test_it_is_bounded_and_stays_true),
        cmocka_unit_test(test_a_file_that_cannot_be_true_is_not_believed),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
