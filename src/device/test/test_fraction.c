// The files behind a fraction of a GPU: who can reach them.
#include <errno.h>
#include <fcntl.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cmocka.h>

#include "device/fraction.h"

// As that user: 0, or the errno of opening the file for writing.
static int open_as(uid_t uid, const char *path) {
    int status;
    pid_t pid = fork();
    if (pid == 0) {
        if (setgid(uid) < 0 || setuid(uid) < 0)
            _exit(255);
        _exit(open(path, O_RDWR | O_CLOEXEC) < 0 ? errno : 0);
    }
    assert_int_equal(waitpid(pid, &status, 0), pid);
    return WEXITSTATUS(status);
}

static void only_users_with_a_share_reach_the_arbiter(void **state) {
    char folder[] = "/dev/shm/acequia-fraction-XXXXXX", path[FRACTION_PATH_MAX], arbiter[200];
    struct gpu gpu = {.uuid = "GPU-1", .model = "V100", .memory_bytes = 32ull << 30};
    if (geteuid() != 0)
        skip();
    assert_non_null(mkdtemp(folder));
    chmod(folder, 0711);
    struct fraction f = {.job = "1.1", .folder = folder, .arbiter_folder = folder, .milli = 500, .uid = 60001, .gid = 60001};
    assert_int_equal(gpu_fraction_make(&f, &gpu, path), 0);
    snprintf(arbiter, sizeof arbiter, "%s/1.arbiter", folder);
    if (access(arbiter, F_OK) < 0)
        fail_msg("%s is not there", arbiter);
    assert_int_equal(open_as(60001, arbiter), 0);
    assert_int_equal(open_as(60002, arbiter), EACCES);
    f.job = "2.1";
    f.uid = f.gid = 60002;
    assert_int_equal(gpu_fraction_make(&f, &gpu, path), 0);
    assert_int_equal(open_as(60001, arbiter), 0);
    assert_int_equal(open_as(60002, arbiter), 0);
    assert_int_equal(open_as(60000, arbiter), EACCES);
    unlink(path);
    unlink(arbiter);
    rmdir(folder);
}

static off_t size_of(const char *path) {
    struct stat st;
    assert_int_equal(stat(path, &st), 0);
    return st.st_size;
}

// By its name as the job does it: 64 MiB behind its end, or blocks without a size.
static void enlarge(const char *path, bool hidden) {
    int fd = open(path, O_RDWR | O_CLOEXEC);
    assert_true(fd >= 0);
    assert_int_equal(fallocate(fd, hidden ? FALLOC_FL_KEEP_SIZE : 0, 0, 64 << 20), 0);
    close(fd);
}

static void files_that_jobs_enlarge_are_cut_back(void **state) {
    char folder[] = "/dev/shm/acequia-fraction-XXXXXX", path[FRACTION_PATH_MAX], arbiter[200];
    struct gpu gpu = {.uuid = "GPU-1", .model = "V100", .memory_bytes = 32ull << 30};
    struct stat st;
    assert_non_null(mkdtemp(folder));
    struct fraction f = {.job = "1.1", .folder = folder, .arbiter_folder = folder, .milli = 500, .uid = (uid_t)-1};
    assert_int_equal(gpu_fraction_make(&f, &gpu, path), 0);
    snprintf(arbiter, sizeof arbiter, "%s/1.arbiter", folder);
    off_t ledger_size = size_of(path), arbiter_size = size_of(arbiter);
    assert_false(gpu_fraction_trim_ledger(path));
    assert_false(gpu_fraction_trim_arbiter(folder, gpu.uuid));
    for (int hidden = 0; hidden < 2; hidden++) {
        enlarge(path, hidden);
        enlarge(arbiter, hidden);
        assert_true(gpu_fraction_trim_ledger(path));
        assert_true(gpu_fraction_trim_arbiter(folder, gpu.uuid));
        assert_int_equal(size_of(path), ledger_size);
        assert_int_equal(size_of(arbiter), arbiter_size);
        assert_true(stat(path, &st) == 0 && st.st_blocks * 512 < 4 << 20);
        assert_false(gpu_fraction_trim_ledger(path));
        assert_false(gpu_fraction_trim_arbiter(folder, gpu.uuid));
    }
    unlink(path);
    unlink(arbiter);
    rmdir(folder);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(only_users_with_a_share_reach_the_arbiter),
        cmocka_unit_test(files_that_jobs_enlarge_are_cut_back),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
