// Programs that acequia-box runs: one that takes too much is ended, whatever the next look would say; nobody else can
// hold up the builds of a user.
#include <errno.h>
#include <fcntl.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cmocka.h>

#include "base/cleanup.h"
#include "box/box.h"
#include "pip.h"

enum { TEST_MAX_S = 30, SOMEBODY = 54321 };

static int run_words(char **argv, bool (*allowed)(void *ctx), void *ctx) {
    struct box_tool t = {.argv = argv, .folder = "/tmp", .allowed = allowed, .allowed_ctx = ctx};
    return box_tool_run(&t);
}

static bool too_much_once(void *ctx) {
    int *asked = ctx;
    return (*asked)++ > 0;
}

static void what_is_refused_once_is_ended(void **state) {
    char *does[] = {"sh", "-c", "exit 0", NULL},
         *writes[] = {"sh", "-c", "while :; do echo more >&2; done", NULL};
    int asked = 0;
    if (run_words(does, NULL, NULL) != 0)
        skip();  // no namespaces here
    alarm(TEST_MAX_S);
    assert_int_equal(run_words(writes, too_much_once, &asked), -EFBIG);
    assert_int_equal(asked, 1);
    alarm(0);
}

// Its folder for all builds is at a place where everybody can make one before.
static void anothers_lock_is_not_waited_for(void **state) {
    char path[64];
    int status = 0;
    snprintf(path, sizeof path, "/tmp/podman-run-%d", SOMEBODY);
    if (geteuid() != 0 || mkdir(path, 0755) < 0)
        skip();
    cleanup_close int fd = open(path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    int locked = flock(fd, LOCK_EX);
    pid_t pid = fork();
    if (pid == 0) {
        char *does[] = {"sh", "-c", "exit 0", NULL};
        struct box_tool t = {.argv = does, .folder = "/tmp", .as_root = true, .pretend_ids = true};
        alarm(TEST_MAX_S);
        _exit(setgid(SOMEBODY) < 0 || setuid(SOMEBODY) < 0 || box_tool_run(&t) < 0);
    }
    assert_int_equal(waitpid(pid, &status, 0), pid);
    assert_int_equal(rmdir(path), 0);
    assert_int_equal(locked, 0);
    assert_true(WIFEXITED(status));
    assert_int_equal(WEXITSTATUS(status), 0);
}

static void pip_settings_may_have_several_lines(void **state) {
    static const char text[] = "# of the site\n[global]\ntimeout = 60\r\nextra-index-url =\n    https://one/simple\n"
                               "# the next one is slow\n\thttps://two/simple \n\n"
                               "index-url=https://main/simple\n  proxy = not a key\n"
                               "[install]\ntrusted-host: one\n\ttwo";
    cleanup_arena struct arena a = {0};
    assert_string_equal(box_pip_value(text, "extra-index-url", &a), "https://one/simple https://two/simple");
    assert_string_equal(box_pip_value(text, "index-url", &a), "https://main/simple proxy = not a key");
    assert_string_equal(box_pip_value(text, "trusted-host", &a), "one two");
    assert_string_equal(box_pip_value(text, "timeout", &a), "60");
    assert_null(box_pip_value(text, "proxy", &a));
    assert_null(box_pip_value(text, "cert", &a));
    assert_null(box_pip_value("cert =\n[global]", "cert", &a));
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(pip_settings_may_have_several_lines),
        cmocka_unit_test(what_is_refused_once_is_ended),
        cmocka_unit_test(anothers_lock_is_not_waited_for),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
