// Whose program listens on a port of the node.
#include <errno.h>
#include <netinet/in.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>
#include <cmocka.h>

#include "../shepherd.h"

static int listen_on(int family, uint16_t *port) {
    struct sockaddr_in6 v6 = {.sin6_family = AF_INET6, .sin6_addr = in6addr_any};
    struct sockaddr_in v4 = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    struct sockaddr_storage is;
    socklen_t len = sizeof is;
    int fd = socket(family, SOCK_STREAM | SOCK_CLOEXEC, 0);
    int r = family == AF_INET ? bind(fd, (struct sockaddr *)&v4, sizeof v4)
                              : bind(fd, (struct sockaddr *)&v6, sizeof v6);
    if (r < 0)
        return -1;  // no such addresses here
    assert_int_equal(listen(fd, 5), 0);
    assert_int_equal(getsockname(fd, (struct sockaddr *)&is, &len), 0);
    *port = ntohs(family == AF_INET ? ((struct sockaddr_in *)&is)->sin_port
                                    : ((struct sockaddr_in6 *)&is)->sin6_port);
    return fd;
}

static void listeners_have_owners(void **state) {
    static const int families[] = {AF_INET, AF_INET6};
    for (size_t i = 0; i < sizeof families / sizeof *families; i++) {
        uint16_t port = 0;
        struct listeners_known known = {0};
        int fd = listen_on(families[i], &port);
        if (fd < 0 && families[i] == AF_INET6)
            continue;
        assert_true(fd >= 0);
        assert_int_equal(listeners_check(&known, getppid(), port, geteuid()), 0);
        assert_int_equal(listeners_check(&known, getppid(), port, geteuid() + 1), -EACCES);
        close(fd);
        assert_int_equal(listeners_check(&known, getppid(), port, geteuid()), -ECONNREFUSED);
    }
}

static pid_t hold_open(void) {
    pid_t pid = fork();
    if (pid == 0) {
        prctl(PR_SET_PDEATHSIG, SIGKILL);
        for (;;)
            pause();
    }
    assert_true(pid > 0);
    return pid;
}

// This process stands for the shepherd: what only it has open is no process's of the attempt.
static void listeners_are_of_the_attempt(void **state) {
    uint16_t port = 0;
    struct listeners_known known = {0}, other = {0};
    int fd = listen_on(AF_INET, &port);
    assert_true(fd >= 0);
    assert_int_equal(listeners_check(&known, getpid(), port, geteuid()), -EADDRINUSE);
    // Handed over to a process of the attempt; no look is taken again at once.
    pid_t heir = hold_open();
    assert_int_equal(listeners_check(&known, getpid(), port, geteuid()), -EADDRINUSE);
    known.foreign_until_ms = 0;
    assert_int_equal(listeners_check(&known, getpid(), port, geteuid()), 0);
    kill(heir, SIGKILL);
    assert_int_equal(waitpid(heir, NULL, 0), heir);
    // What was found holds as long as the socket does, and for those who found it.
    assert_int_equal(listeners_check(&known, getpid(), port, geteuid()), 0);
    assert_int_equal(listeners_check(&other, getpid(), port, geteuid()), -EADDRINUSE);
    close(fd);
    assert_int_equal(listeners_check(&known, getpid(), port, geteuid()), -ECONNREFUSED);
}

int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(listeners_have_owners),
                                       cmocka_unit_test(listeners_are_of_the_attempt)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
