// Answers of shepherds, also while signals come.
#include <errno.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <sys/socket.h>
#include <sys/time.h>
#include <unistd.h>

#include <cmocka.h>

#include "launch/control.h"

enum { TICK_US = 5000, ANSWER_AFTER = 40 };

static volatile sig_atomic_t ticks;
static int shepherd = -1;

static void on_tick(int number) {
    static const struct control_reply reply;
    int saved = errno;
    if (++ticks == ANSWER_AFTER && shepherd >= 0)
        (void)!write(shepherd, &reply, sizeof reply);
    errno = saved;
}

static int receive_among_signals(int timeout_ms, bool answer) {
    struct itimerval every = {{0, TICK_US}, {0, TICK_US}}, none = {0};
    struct sigaction tick = {.sa_handler = on_tick}, before;
    struct control_reply out;
    int pair[2];
    assert_int_equal(socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, pair), 0);
    ticks = 0;
    shepherd = answer ? pair[1] : -1;
    sigaction(SIGALRM, &tick, &before);
    setitimer(ITIMER_REAL, &every, NULL);
    int r = launch_control_receive(pair[0], timeout_ms, &out);
    setitimer(ITIMER_REAL, &none, NULL);
    sigaction(SIGALRM, &before, NULL);
    close(pair[1]);
    return r;
}

static void an_answer_is_waited_for_over_signals(void **state) {
    assert_int_equal(receive_among_signals(60000, true), 0);
    assert_true(ticks >= ANSWER_AFTER);
}

static void signals_do_not_make_the_wait_longer(void **state) {
    assert_int_equal(receive_among_signals(50, false), -ETIMEDOUT);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(an_answer_is_waited_for_over_signals),
        cmocka_unit_test(signals_do_not_make_the_wait_longer),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
