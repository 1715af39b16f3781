// Owns the first moments of a process that was forked, not executed.
#include "base/forked_child.h"

#include <signal.h>
#include <sys/prctl.h>
#include <unistd.h>

void forked_child_begin(const char *name, int fd) {
    sigset_t none;
    prctl(PR_SET_NAME, name);
    if (fd != APART_FD && dup2(fd, APART_FD) < 0)
        _exit(1);
    close_range(APART_FD + 1, ~0U, 0);
    for (int sig = 1; sig < 32; sig++)
        if (sig != SIGKILL && sig != SIGSTOP)
            signal(sig, SIG_DFL);
    sigemptyset(&none);
    sigprocmask(SIG_SETMASK, &none, NULL);
}
