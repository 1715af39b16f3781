// Owns the reading process: forked, not executed, so between fork and its end there are only system
// calls. It lets go of everything of the agent's first, because it may outlive it by hours.
#include "log_reader.h"

#include <errno.h>
#include <fcntl.h>
#include <grp.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/uio.h>
#include <unistd.h>

#include "base/cleanup.h"
#include "base/forked_child.h"
#include "log_file.h"

static int become(const struct user_info *u) {
    if (!u)
        return 0;
    if (setgroups(u->ngroups, u->groups) < 0 || setresgid(u->gid, u->gid, u->gid) < 0 ||
        setresuid(u->uid, u->uid, u->uid) < 0)
        return -EPERM;
    return u->uid != 0 && setuid(0) == 0 ? -EPERM : 0;
}

struct reader_answer {
    int64_t result;
    struct log_place at;
};

_Noreturn static void serve(const struct log_reader_order *o, int fd) {
    static char piece[LOG_READER_PIECE_MAX];
    struct log_file file = {
        .path = o->path, .tail_lines = o->tail_lines, .from = o->from, .id = o->file, .fd = -1};
    uint32_t want;
    forked_child_begin("acequia-reader", fd);
    int refused = become(o->user);
    prctl(PR_SET_DUMPABLE, 0);  // its memory is a copy of the agent's, keys included; the user may only end it
    while (recv(APART_FD, &want, sizeof want, 0) == sizeof want) {
        size_t size = want < sizeof piece ? want : sizeof piece;
        struct reader_answer a = {.result = refused ? refused : stream_log_file_read(&file, piece, size)};
        a.at = (struct log_place){file.id, (uint64_t)file.at, file.written_ms};
        struct iovec parts[2] = {{.iov_base = &a, .iov_len = sizeof a},
                                 {.iov_base = piece, .iov_len = a.result > 0 ? (size_t)a.result : 0}};
        struct msghdr m = {.msg_iov = parts, .msg_iovlen = 2};
        if (sendmsg(APART_FD, &m, MSG_NOSIGNAL) < 0)
            break;
    }
    _exit(0);
}

int stream_log_reader_start(const struct log_reader_order *o, int *fd, pid_t *pid) {
    int pair[2];
    if (socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, pair) < 0)
        return -errno;
    pid_t child = fork();
    if (child == 0)
        serve(o, pair[1]);
    int rc = child < 0 ? -errno : 0;
    close(pair[1]);
    if (rc < 0) {
        close(pair[0]);
        return rc;
    }
    *fd = pair[0];
    *pid = child;
    return 0;
}

int stream_log_reader_ask(int fd, uint32_t bytes) {
    return send(fd, &bytes, sizeof bytes, MSG_NOSIGNAL | MSG_DONTWAIT) < 0 ? -errno : 0;
}

ssize_t stream_log_reader_answer(int fd, void *out, size_t size, struct log_place *at) {
    struct reader_answer a = {0};
    struct iovec parts[2] = {{.iov_base = &a, .iov_len = sizeof a}, {.iov_base = out, .iov_len = size}};
    struct msghdr m = {.msg_iov = parts, .msg_iovlen = 2};
    ssize_t n = recvmsg(fd, &m, MSG_DONTWAIT);
    if (n < 0)
        return errno == EAGAIN || errno == EINTR ? -EAGAIN : -EPIPE;
    if (n < (ssize_t)sizeof a)
        return -EPIPE;
    size_t len = (size_t)n - sizeof a;
    *at = a.at;
    return a.result > 0 && (size_t)a.result != len ? -EPIPE : (ssize_t)a.result;
}
