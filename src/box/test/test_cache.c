// Locks of a user's folder for images: a job's output gets a line about a wait only when the wait is long.
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cmocka.h>

#include "base/cleanup.h"
#include "box/box.h"
#include "cache.h"

enum { TEST_MAX_S = 60, SHORT_WAIT_US = 50000 };

// Another process waits for the lock that this one holds; what it says comes out of the pipe.
static pid_t waiter(const struct box_cache *c, int held, int *says) {
    int pipes[2];
    assert_int_equal(pipe(pipes), 0);
    pid_t pid = fork();
    if (pid == 0) {
        alarm(TEST_MAX_S);
        close(held);
        dup2(pipes[1], STDERR_FILENO);
        _exit(box_cache_lock(c, "mine", "container", NULL) < 0);
    }
    close(pipes[1]);
    *says = pipes[0];
    return pid;
}

static void a_wait_is_told_when_it_is_long(void **state) {
    char folder[] = "/tmp/acequia-test-cache-XXXXXX", text[256] = "";
    cleanup_arena struct arena a = {0};
    struct box_cache c = {.folder = mkdtemp(folder), .image = "kept", .a = &a};
    int says, status = 1;
    assert_int_equal(box_cache_folders(&c, NULL), 0);

    int held = box_cache_lock(&c, "mine", NULL, NULL);
    assert_true(held >= 0);
    pid_t pid = waiter(&c, held, &says);
    usleep(SHORT_WAIT_US);
    close(held);
    assert_int_equal(read(says, text, sizeof text - 1), 0);  // it has ended and said nothing
    close(says);
    assert_int_equal(waitpid(pid, &status, 0), pid);
    assert_int_equal(status, 0);

    held = box_cache_lock(&c, "mine", NULL, NULL);
    pid = waiter(&c, held, &says);
    assert_true(read(says, text, sizeof text - 1) > 0);
    assert_string_equal(text, "acequia: waiting for container kept, which another process prepares\n");
    close(held);
    close(says);
    assert_int_equal(waitpid(pid, &status, 0), pid);
    assert_int_equal(status, 0);
    box_remove("/tmp", strrchr(folder, '/') + 1);
}

int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(a_wait_is_told_when_it_is_long)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
