// Whose program listens on a port of the node.
#include <errno.h>
#include <netinet/in.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/socket.h>
#include <unistd.h>
#include <cmocka.h>

#include "../shepherd.h"

static int listen_on(int family, uint16_t *port) {
    struct sockaddr_in6 v6 = {.sin6_family = AF_INET6, .sin6_addr = in6addr_loopback};
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
        int fd = listen_on(families[i], &port);
        if (fd < 0 && families[i] == AF_INET6)
            continue;
        assert_true(fd >= 0);
        assert_int_equal(listeners_check(port, geteuid()), 0);
        assert_int_equal(listeners_check(port, geteuid() + 1), -EACCES);
        close(fd);
        assert_int_equal(listeners_check(port, geteuid()), -ECONNREFUSED);
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(listeners_have_owners)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
