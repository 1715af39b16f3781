// Owns the asking process: forked, not executed. It never asks itself; each question has a child,
// which may hang in whatever the machine's configuration of names leads it to, until its time is up.
#include "users_ask.h"

#include <errno.h>
#include <grp.h>
#include <pwd.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/uio.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/alloc.h"
#include "base/forked_child.h"
#include "base/text.h"

enum { PASSWD_BYTES = 65536, GROUPS_FIRST = 64 };

static void answer(const struct users_answer *a, const struct passwd *pw, const char *shell, const gid_t *groups) {
    struct iovec parts[5] = {{(void *)(uintptr_t)a, sizeof *a}};
    size_t n = 1;
    if (a->result == 0) {
        parts[n++] = (struct iovec){pw->pw_name, a->name_len};
        parts[n++] = (struct iovec){pw->pw_dir, a->home_len};
        parts[n++] = (struct iovec){(char *)(uintptr_t)shell, a->shell_len};
        parts[n++] = (struct iovec){(gid_t *)(uintptr_t)groups, a->ngroups * sizeof *groups};
    }
    struct msghdr m = {.msg_iov = parts, .msg_iovlen = n};
    while (sendmsg(APART_FD, &m, MSG_NOSIGNAL) < 0 && errno == EINTR)
        ;
}

static gid_t *groups_of(const struct passwd *pw, uint32_t *count) {
    int n = GROUPS_FIRST;
    gid_t *groups = xcalloc((size_t)n, sizeof *groups);
    if (getgrouplist(pw->pw_name, pw->pw_gid, groups, &n) < 0 && n > 0 && n <= USERS_GROUPS_MAX) {
        groups = xrealloc(groups, (size_t)n * sizeof *groups);
        if (getgrouplist(pw->pw_name, pw->pw_gid, groups, &n) < 0)
            n = 0;
    }
    *count = n > 0 && n <= USERS_GROUPS_MAX ? (uint32_t)n : 0;
    return groups;
}

// Not there is told in several ways (getpwuid_r(3)); all else is no answer.
static int32_t result_of(int code, bool found) {
    return found ? 0 : code == 0 || code == ENOENT || code == ESRCH || code == EBADF || code == EPERM ? -ENOENT : -code;
}

_Noreturn static void look_up(const struct users_question *q, pid_t asking) {
    struct passwd pw = {0}, *found = NULL;
    char *text = xmalloc(PASSWD_BYTES);
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    if (getppid() != asking)
        _exit(0);  // it has ended before, and nobody is there for the answer
    alarm(USERS_ASK_S);
    int code = *q->name ? getpwnam_r(q->name, &pw, text, PASSWD_BYTES, &found)
                        : getpwuid_r(q->uid, &pw, text, PASSWD_BYTES, &found);
    struct users_answer a = {.number = q->number, .result = result_of(code, found)};
    const char *shell = found && !str_empty(pw.pw_shell) ? pw.pw_shell : "/bin/sh";
    gid_t *groups = NULL;
    if (found) {
        a.uid = pw.pw_uid;
        a.gid = pw.pw_gid;
        a.name_len = (uint32_t)strlen(pw.pw_name) + 1;
        a.home_len = (uint32_t)strlen(pw.pw_dir) + 1;
        a.shell_len = (uint32_t)strlen(shell) + 1;
        groups = groups_of(&pw, &a.ngroups);
        if (a.name_len > USERS_NAME_MAX + 1 || a.home_len > USERS_TEXT_MAX || a.shell_len > USERS_TEXT_MAX)
            a.result = -EMSGSIZE;
    }
    answer(&a, &pw, shell, groups);
    _exit(0);
}

// Children that are stuck in the kernel cannot be ended: no more than so many, ever.
static void start_child(const struct users_question *q, uint32_t *children) {
    while (*children && waitpid(-1, NULL, WNOHANG) > 0)
        --*children;
    pid_t asking = getpid(), pid = *children < USERS_ASKING_MAX ? fork() : -1;
    if (pid == 0)
        look_up(q, asking);
    if (pid > 0) {
        ++*children;
        return;
    }
    struct users_answer busy = {.number = q->number, .result = -EAGAIN};
    answer(&busy, NULL, NULL, NULL);
}

_Noreturn static void serve(int fd) {
    struct users_question q;
    uint32_t children = 0;
    forked_child_begin("acequia-users", fd);
    signal(SIGINT, SIG_IGN);  // meant for whoever we ask for, who tells us by leaving
    ssize_t n;
    while ((n = recv(APART_FD, &q, sizeof q, 0)) == sizeof q || (n < 0 && errno == EINTR))
        if (n == sizeof q)
            start_child(&q, &children);
    _exit(0);
}

int users_ask_start(int fd, int other, pid_t *pid) {
    *pid = fork();
    if (*pid == 0) {
        close(other);
        serve(fd);
    }
    return *pid < 0 ? -errno : 0;
}
