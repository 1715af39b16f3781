// One output file as it is read: its last lines, a position, and what follows when it is rotated or emptied. An answer
// of 0 ends the stream of a job that has ended, so it must not come while there is something to read.
#include <errno.h>
#include <fcntl.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

#include "../log_file.h"

static char folder[64], path[96], old_path[96];

static int make_folder(void **state) {
    snprintf(folder, sizeof folder, "/tmp/acequia-log-file-XXXXXX");
    if (!mkdtemp(folder))
        return -1;
    snprintf(path, sizeof path, "%s/out", folder);
    snprintf(old_path, sizeof old_path, "%s/out.1", folder);
    return 0;
}

static int remove_folder(void **state) {
    unlink(path);
    unlink(old_path);
    return rmdir(folder);
}

static void put(const char *text, int flags) {
    int fd = open(path, O_WRONLY | O_CREAT | O_CLOEXEC | flags, 0600);
    assert_true(fd >= 0);
    assert_int_equal(write(fd, text, strlen(text)), strlen(text));
    close(fd);
}

static void assert_read(struct log_file *f, const char *wanted) {
    char got[256] = "";
    ssize_t n = stream_log_file_read(f, got, sizeof got - 1);
    assert_int_equal(n, strlen(wanted));
    assert_string_equal(got, wanted);
}

static void reads_to_the_end(void **state) {
    struct log_file f = {.path = path, .tail_lines = -1, .fd = -1};
    char got[8];
    assert_int_equal(stream_log_file_read(&f, got, sizeof got), -ENOENT);
    put("one\ntwo\n", O_TRUNC);
    assert_read(&f, "one\ntwo\n");
    assert_read(&f, "");
    put("three\n", O_APPEND);
    assert_read(&f, "three\n");
    assert_int_equal(f.at, 14);
    stream_log_file_done(&f);
}

static void begins_at_the_last_lines(void **state) {
    static const struct {
        int64_t lines;
        const char *wanted;
    } cases[] = {{0, ""}, {1, "three\n"}, {2, "two\nthree\n"}, {9, "one\ntwo\nthree\n"}, {-1, "one\ntwo\nthree\n"}};
    put("one\ntwo\nthree\n", O_TRUNC);
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        struct log_file f = {.path = path, .tail_lines = cases[i].lines, .fd = -1};
        assert_read(&f, cases[i].wanted);
        stream_log_file_done(&f);
    }
}

static void goes_on_with_the_next_file(void **state) {
    struct log_file f = {.path = path, .tail_lines = -1, .fd = -1};
    put("one\n", O_TRUNC);
    assert_read(&f, "one\n");
    uint64_t first = f.id;
    assert_int_equal(rename(path, old_path), 0);
    put("next\n", O_TRUNC);
    assert_read(&f, "next\n");
    assert_true(f.id != first && f.at == 5);
    assert_read(&f, "");
    stream_log_file_done(&f);
}

static void begins_anew_when_it_was_emptied(void **state) {
    struct log_file f = {.path = path, .tail_lines = -1, .fd = -1};
    put("a long line\n", O_TRUNC);
    assert_read(&f, "a long line\n");
    put("short\n", O_TRUNC);
    assert_read(&f, "short\n");
    assert_int_equal(f.at, 6);
    assert_read(&f, "");
    put("", O_TRUNC);
    assert_read(&f, "");
    put("more\n", 0);
    assert_read(&f, "more\n");
    stream_log_file_done(&f);
}

static void goes_on_from_a_position(void **state) {
    put("0123456789", O_TRUNC);
    struct log_file f = {.path = path, .tail_lines = -1, .from = 4, .fd = -1};
    assert_read(&f, "456789");
    uint64_t id = f.id;
    stream_log_file_done(&f);
    struct log_file same = {.path = path, .tail_lines = -1, .from = 8, .id = id, .fd = -1};
    assert_read(&same, "89");
    stream_log_file_done(&same);
    struct log_file other = {.path = path, .tail_lines = -1, .from = 8, .id = id + 1, .fd = -1};
    assert_read(&other, "0123456789");
    stream_log_file_done(&other);
}

static void only_plain_files_are_read(void **state) {
    char got[8];
    struct log_file f = {.path = "/dev/null", .tail_lines = -1, .fd = -1};
    assert_int_equal(stream_log_file_read(&f, got, sizeof got), -EBADF);
    f = (struct log_file){.path = "/proc/self/environ", .tail_lines = -1, .fd = -1};
    assert_int_equal(stream_log_file_read(&f, got, sizeof got), -EBADF);
}

#define IN_FOLDER(test) cmocka_unit_test_setup_teardown(test, make_folder, remove_folder)

int main(void) {
    const struct CMUnitTest tests[] = {
        IN_FOLDER(reads_to_the_end),
        IN_FOLDER(begins_at_the_last_lines),
        IN_FOLDER(goes_on_with_the_next_file),
        IN_FOLDER(begins_anew_when_it_was_emptied),
        IN_FOLDER(goes_on_from_a_position),
        cmocka_unit_test(only_plain_files_are_read),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
