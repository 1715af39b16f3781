// Users are asked for without waiting, against a directory that can be made slow or silent: the
// functions of the C library that it is asked with are our own here.
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <errno.h>
#include <grp.h>
#include <poll.h>
#include <pwd.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/text.h"
#include "base/users.h"

enum { WAIT_MAX_MS = 60000, HANGS = 1000, NONE = 500, BROKEN = 501, FIRST = 1, SLOW_MS = 20 };

// Seen by the processes that ask, too.
static struct world {
    volatile uint32_t silent, asked, gid;
} *shared;

static int entry(uint32_t uid, struct passwd *pw, char *text, size_t size, struct passwd **found) {
    __atomic_add_fetch(&shared->asked, 1, __ATOMIC_SEQ_CST);
    while (shared->silent || uid >= HANGS)
        pause();
    *found = NULL;
    if (uid == BROKEN)
        return EIO;
    if (uid == NONE)
        return 0;
    int n = snprintf(text, size, "u%u", uid);
    *pw = (struct passwd){.pw_name = text, .pw_uid = uid, .pw_gid = shared->gid, .pw_dir = (char *)"/home",
                          .pw_shell = text + n};
    *found = pw;
    return 0;
}

int getpwuid_r(uid_t uid, struct passwd *pw, char *text, size_t size, struct passwd **found) {
    return entry(uid, pw, text, size, found);
}

int getpwnam_r(const char *name, struct passwd *pw, char *text, size_t size, struct passwd **found) {
    return entry((uint32_t)strtoul(name + 1, NULL, 10), pw, text, size, found);
}

int getgrouplist(const char *user, gid_t group, gid_t *groups, int *n) {
    int want = 1000, room = *n;
    *n = want;
    for (int i = 0; i < want && i < room; i++)
        groups[i] = group + (gid_t)i;
    return room < want ? -1 : want;
}

static int set_up(void **state) {
    shared = mmap(NULL, sizeof *shared, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    *shared = (struct world){.gid = 7};
    struct users *u;
    assert_int_equal(users_start(&u, NULL), 0);
    *state = u;
    return 0;
}

static int tear_down(void **state) {
    users_free(*state);
    munmap(shared, sizeof *shared);
    return 0;
}

// As the daemons do, but waiting; time stands still.
static int resolve(struct users *u, uint32_t uid, int64_t now_ms, const struct user_info **out) {
    int64_t began = clock_mono_ms();
    int r;
    while ((r = users_by_uid(u, uid, now_ms, out, NULL)) == -EINPROGRESS &&
           clock_mono_ms() - began < WAIT_MAX_MS) {
        struct pollfd p = {.fd = users_fd(u), .events = POLLIN};
        poll(&p, 1, SLOW_MS);
        users_read(u, now_ms);
        users_tick(u, now_ms);
    }
    return r;
}

static void users_are_found(void **state) {
    struct users *u = *state;
    const struct user_info *i;
    assert_int_equal(users_by_uid(u, 42, 1, &i, NULL), -EINPROGRESS);
    assert_int_equal(resolve(u, 42, 1, &i), 0);
    assert_string_equal(i->name, "u42");
    assert_string_equal(i->home, "/home");
    assert_string_equal(i->shell, "/bin/sh");
    assert_int_equal(i->uid, 42);
    assert_int_equal(i->gid, 7);
    assert_int_equal(i->ngroups, 1000);
    assert_int_equal(i->groups[999], 1006);
    assert_int_equal(resolve(u, NONE, 1, &i), -ENOENT);
    assert_int_equal(resolve(u, BROKEN, 1, &i), -ETIMEDOUT);
    struct error e;
    while (users_by_name(u, "u9", 1, &i, &e) == -EINPROGRESS)
        users_read(u, 1);
    assert_int_equal(i->uid, 9);
}

static void answers_are_kept_and_renewed(void **state) {
    struct users *u = *state;
    const struct user_info *i;
    assert_int_equal(resolve(u, 5, 1, &i), 0);
    assert_int_equal(users_by_uid(u, 5, USERS_REFRESH_MS - 1, &i, NULL), 0);
    assert_int_equal(shared->asked, 1);
    shared->gid = 8;
    assert_int_equal(users_by_uid(u, 5, USERS_REFRESH_MS + 2, &i, NULL), 0);  // nobody waits for the new one
    assert_int_equal(i->gid, 7);
    for (int64_t until_ms = clock_mono_ms() + WAIT_MAX_MS; i->gid == 7 && clock_mono_ms() < until_ms;) {
        usleep(1000);
        users_read(u, USERS_REFRESH_MS + 2);
        assert_int_equal(users_by_uid(u, 5, USERS_REFRESH_MS + 2, &i, NULL), 0);
    }
    assert_int_equal(i->gid, 8);
    assert_int_equal(users_by_uid(u, 5, 10 * USERS_KEEP_MS, &i, NULL), -EINPROGRESS);  // too old to go on with
}

// Who is known stays known for a while; who is not is told so in time.
static void a_silent_directory(void **state) {
    struct users *u = *state;
    const struct user_info *i;
    int64_t at = 10 * USERS_KEEP_MS;
    struct error e = {0};
    assert_int_equal(resolve(u, 5, 1, &i), 0);
    shared->silent = 1;
    assert_int_equal(users_by_uid(u, 5, at, &i, NULL), -EINPROGRESS);
    assert_int_equal(users_by_uid(u, 6, at, &i, NULL), -EINPROGRESS);
    assert_false(users_tick(u, at + USERS_KNOWN_PATIENCE_MS - 1));
    assert_true(users_tick(u, at + USERS_KNOWN_PATIENCE_MS));
    assert_int_equal(users_by_uid(u, 5, at + USERS_KNOWN_PATIENCE_MS, &i, NULL), 0);
    assert_string_equal(i->name, "u5");
    assert_int_equal(users_by_uid(u, 6, at + USERS_KNOWN_PATIENCE_MS, &i, NULL), -EINPROGRESS);
    assert_true(users_tick(u, at + USERS_PATIENCE_MS));
    assert_int_equal(users_by_uid(u, 6, at + USERS_PATIENCE_MS, &i, &e), -ETIMEDOUT);
    assert_non_null(strstr(e.text, "does not answer"));
    // Not for ever.
    at = USERS_STALE_MS + 2;
    assert_int_equal(users_by_uid(u, 5, at, &i, NULL), -EINPROGRESS);
    assert_true(users_tick(u, at + USERS_PATIENCE_MS));
    assert_int_equal(users_by_uid(u, 5, at + USERS_PATIENCE_MS, &i, NULL), -ETIMEDOUT);
    // It answers again: others do, and those too once they are asked for anew.
    shared->silent = 0;
    assert_int_equal(resolve(u, 7, at, &i), 0);
    assert_int_equal(resolve(u, 6, at + USERS_PATIENCE_MS + USERS_REST_MS, &i), 0);
}

// Questions that hang do not keep the others back while there are fewer than the most at once, and
// more of them do not make more processes.
static void some_hang_and_others_do_not(void **state) {
    struct users *u = *state;
    const struct user_info *i;
    for (uint32_t k = 0; k < USERS_ASKING_MAX - 1; k++)
        assert_int_equal(users_by_uid(u, HANGS + k, 1, &i, NULL), -EINPROGRESS);
    for (uint32_t k = FIRST; k < FIRST + 50; k++)
        assert_int_equal(resolve(u, k, 1, &i), 0);
    for (uint32_t k = 0; k < 200; k++)
        assert_int_equal(users_by_uid(u, 2 * HANGS + k, 1, &i, NULL), -EINPROGRESS);
    usleep(50000);
    users_read(u, 1);
    assert_true(shared->asked <= USERS_ASKING_MAX + 50);
    // Those who are given up are still there: the asking process refuses more, and nobody waits for long.
    int64_t late = 1 + USERS_PATIENCE_MS;
    assert_true(users_tick(u, late));
    assert_int_equal(users_by_uid(u, HANGS, late, &i, NULL), -ETIMEDOUT);
    assert_true(shared->asked <= USERS_ASKING_MAX + 50);
}

static void the_asking_process_may_die(void **state) {
    struct users *u = *state;
    const struct user_info *i;
    char text[64], child[32] = "";
    assert_int_equal(resolve(u, 5, 1, &i), 0);
    snprintf(text, sizeof text, "/proc/self/task/%d/children", (int)getpid());
    FILE *f = fopen(text, "r");
    if (!f)
        skip();
    assert_non_null(fgets(child, sizeof child, f));
    fclose(f);
    id_t asking = (id_t)strtol(child, NULL, 10);
    siginfo_t how;
    kill((pid_t)asking, SIGKILL);
    assert_int_equal(waitid(P_PID, asking, &how, WEXITED | WNOWAIT),
                     0);  // it is gone, and still to be reaped
    assert_int_equal(resolve(u, 6, 1, &i), 0);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(users_are_found, set_up, tear_down),
        cmocka_unit_test_setup_teardown(answers_are_kept_and_renewed, set_up, tear_down),
        cmocka_unit_test_setup_teardown(a_silent_directory, set_up, tear_down),
        cmocka_unit_test_setup_teardown(some_hang_and_others_do_not, set_up, tear_down),
        cmocka_unit_test_setup_teardown(the_asking_process_may_die, set_up, tear_down),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
