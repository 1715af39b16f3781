// A look at an attempt asks two questions, whether a shepherd holds it and what its record says. An attempt that starts
// or ends between them must not look like one whose shepherd was killed. The linker puts __wrap_fcntl64 between the two.
#include <errno.h>
#include <fcntl.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cmocka.h>

#include "launch/spool.h"

static char folder[] = "/tmp/acequia-look-XXXXXX";
static int spool;
static pid_t shepherd;
static enum { NOTHING, STARTS, ENDS } happens;

// Takes the lock and writes the state; holds the lock until it is killed.
static void become_shepherd(enum spool_state state) {
    int ready[2];
    char byte;
    assert_int_equal(pipe(ready), 0);
    shepherd = fork();
    if (shepherd == 0) {
        struct flock l = {.l_type = F_WRLCK, .l_whence = SEEK_SET};
        struct spool_status s;
        int fd = openat(spool, "1.1/unit", O_RDWR);
        if (fd < 0 || fcntl(fd, F_SETLK, &l) < 0 || pread(fd, &s, sizeof s, 0) != sizeof s)
            _exit(1);
        s.state = state;
        spool_seal(&s);
        if (pwrite(fd, &s, sizeof s, 0) != sizeof s || write(ready[1], "x", 1) != 1)
            _exit(1);
        for (;;)
            pause();
    }
    assert_int_equal(read(ready[0], &byte, 1), 1);
    close(ready[0]);
    close(ready[1]);
}

static void kill_shepherd(void) {
    kill(shepherd, SIGKILL);
    waitpid(shepherd, NULL, 0);
    shepherd = 0;
}

int __real_fcntl64(int fd, int cmd, ...);
int __wrap_fcntl64(int fd, int cmd, ...);
int __wrap_fcntl64(int fd, int cmd, ...) {
    va_list args;
    va_start(args, cmd);
    void *arg = va_arg(args, void *);
    va_end(args);
    int rc = __real_fcntl64(fd, cmd, arg);
    if (cmd == F_GETLK && happens != NOTHING) {
        bool starts = happens == STARTS;
        happens = NOTHING;
        become_shepherd(starts ? SPOOL_STARTED : SPOOL_ENDED);
        if (!starts)
            kill_shepherd();
    }
    return rc;
}

static int set_up(void **state) {
    char *argv[] = {"true"};
    struct launch_process task = {0};
    struct launch_request r = {.job = 1,
                               .attempt = 1,
                               .argc = 1,
                               .argv = argv,
                               .ntasks = 1,
                               .tasks = &task,
                               .cwd = "/tmp",
                               .umask = 022};
    struct error e = {0};
    if (spool_create(spool, &r, NULL, 0, "boot", 1, &e) < 0)
        fail_msg("%s", e.text);
    happens = NOTHING;
    return 0;
}

static int tear_down(void **state) {
    if (shepherd)
        kill_shepherd();
    return spool_remove(spool, 1, 1);
}

static void a_start_in_between_is_a_start(void **state) {
    struct spool_status s;
    bool alive;
    happens = STARTS;
    assert_int_equal(spool_look(spool, 1, 1, &s, &alive), 0);
    assert_true(alive && s.state == SPOOL_STARTED);
}

static void an_end_in_between_is_an_end(void **state) {
    struct spool_status s;
    bool alive;
    become_shepherd(SPOOL_STARTED);
    kill_shepherd();
    happens = ENDS;
    assert_int_equal(spool_look(spool, 1, 1, &s, &alive), 0);
    assert_true(!alive && s.state == SPOOL_ENDED);
}

static void a_killed_shepherd_is_found(void **state) {
    struct spool_status s;
    bool alive;
    become_shepherd(SPOOL_STARTED);
    kill_shepherd();
    assert_int_equal(spool_look(spool, 1, 1, &s, &alive), 0);
    assert_true(!alive && s.state == SPOOL_STARTED);
}

static void what_was_seen_is_kept(void **state) {
    uint64_t numbers[] = {1, 2, 3}, read[3];
    spool_read_seen(spool, read);
    assert_true(!read[0] && !read[1] && !read[2]);
    spool_write_seen(spool, numbers);
    numbers[1] = 7;
    spool_write_seen(spool, numbers);
    spool_read_seen(spool, read);
    assert_memory_equal(read, numbers, sizeof read);
    int fd = openat(spool, "seen", O_WRONLY);
    assert_int_equal(pwrite(fd, "x", 1, 3), 1);
    close(fd);
    spool_read_seen(spool, read);
    assert_int_equal(read[0], 0);
    assert_int_equal(unlinkat(spool, "seen", 0), 0);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(a_start_in_between_is_a_start, set_up, tear_down),
        cmocka_unit_test_setup_teardown(an_end_in_between_is_an_end, set_up, tear_down),
        cmocka_unit_test_setup_teardown(a_killed_shepherd_is_found, set_up, tear_down),
        cmocka_unit_test(what_was_seen_is_kept),
    };
    struct error e = {0};
    if (!mkdtemp(folder) || (spool = spool_open(folder, &e)) < 0)
        return 1;
    int rc = cmocka_run_group_tests(tests, NULL, NULL);
    rmdir(folder);
    return rc;
}
