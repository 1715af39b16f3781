// Owns reading a job's output for somebody. The file is opened by a forked process that has become
// the job's user, so that nobody reads through us what they could not read themselves; only plain
// files are read.
#include "agent/streams.h"

#include <errno.h>
#include <fcntl.h>
#include <grp.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/alloc.h"
#include "base/clock.h"

enum { TAIL_BLOCK = 16384, CHUNKS_AT_ONCE = 16, REOPEN_MS = 60,
       UNHEARD_PATIENCE_MS = 3000 };

struct log_reader {
    struct agent *agent;
    struct arena arena;
    const char *path;
    struct user_info user;  // groups and names in the arena
    bool switch_user, follow;
    int64_t tail_lines;
    int fd;
    off_t at;
    struct watched *opening;  // the socket to the opener
    pid_t opener;
    int64_t begun_ms, started_ms, next_try_ms;
    int last_error;
};

struct log_reader *log_free(struct log_reader *l) {
    if (!l)
        return NULL;
    watched_close(l->opening);
    if (l->opener > 0) {
        kill(l->opener, SIGKILL);
        agent_reap(l->agent, l->opener);
    }
    if (l->fd >= 0)
        close(l->fd);
    arena_done(&l->arena);
    free(l);
    return NULL;
}

// One that was never heard of may be on its way: who attaches can be quicker than the launch.
static bool attempt_over(const struct stream *s) {
    const struct agent_logic *l = s->all->agent->logic;
    enum agent_phase p = agent_logic_phase(l, s->id, s->attempt);
    if (p == AGENT_UNKNOWN && !agent_logic_forgotten(l, s->id, s->attempt))
        return clock_mono_ms() - s->log->begun_ms > UNHEARD_PATIENCE_MS;
    return p == AGENT_ENDED || p == AGENT_UNKNOWN;
}

// Where the last `lines` lines begin.
static off_t tail_start(int fd, int64_t lines) {
    char block[TAIL_BLOCK];
    struct stat st;
    if (lines < 0 || fstat(fd, &st) < 0)
        return 0;
    off_t at = st.st_size;
    int64_t left = lines;
    bool last = true;
    while (at > 0) {
        size_t n = at < TAIL_BLOCK ? (size_t)at : TAIL_BLOCK;
        at -= (off_t)n;
        if (pread(fd, block, n, at) != (ssize_t)n)
            return 0;
        for (size_t i = n; i-- > 0;) {
            // The newline that ends the file does not begin another line.
            if (block[i] == '\n' && !last && --left < 0)
                return at + (off_t)i + 1;
            if (block[i] == '\n' && last && lines == 0)
                return st.st_size;
            if (last) {
                last = false;
                left--;
            }
        }
    }
    return lines == 0 ? st.st_size : 0;
}

static void take_file(struct stream *s, int fd) {
    struct log_reader *l = s->log;
    struct stat st;
    if (fstat(fd, &st) < 0 || !S_ISREG(st.st_mode)) {
        close(fd);
        stream_finish(s, 0, 0, "the output is not a plain file and cannot be read");
        return;
    }
    l->fd = fd;
    l->at = tail_start(fd, l->tail_lines);
    log_pump(s, clock_mono_ms());
}

static void not_opened(struct stream *s, int error) {
    struct log_reader *l = s->log;
    cleanup_arena struct arena a = {0};
    l->last_error = error;
    if (error == ENOENT && l->follow && !attempt_over(s)) {
        l->next_try_ms = clock_mono_ms() + REOPEN_MS;
        return;
    }
    stream_finish(s, 0, 0, arena_printf(&a, "output file %s cannot be read: %s", l->path,
                                     strerror(error)));
}

// In the forked process: only system calls.
_Noreturn static void open_as_user(const struct log_reader *l, int sock) {
    int code = 0;
    if (setgroups(l->user.ngroups, l->user.groups) < 0 ||
        setresgid(l->user.gid, l->user.gid, l->user.gid) < 0 ||
        setresuid(l->user.uid, l->user.uid, l->user.uid) < 0 ||
        (l->user.uid != 0 && setuid(0) == 0))
        code = EPERM;
    int fd = code ? -1 : open(l->path, O_RDONLY | O_NONBLOCK | O_NOCTTY | O_CLOEXEC);
    if (fd < 0 && !code)
        code = errno;
    union {
        struct cmsghdr header;
        char space[CMSG_SPACE(sizeof(int))];
    } c = {0};
    struct iovec iov = {.iov_base = &code, .iov_len = sizeof code};
    struct msghdr m = {.msg_iov = &iov, .msg_iovlen = 1};
    if (fd >= 0) {
        m.msg_control = &c;
        m.msg_controllen = sizeof c;
        c.header = (struct cmsghdr){.cmsg_level = SOL_SOCKET, .cmsg_type = SCM_RIGHTS,
                                    .cmsg_len = CMSG_LEN(sizeof(int))};
        memcpy(CMSG_DATA(&c.header), &fd, sizeof fd);
    }
    _exit(sendmsg(sock, &m, MSG_NOSIGNAL) < 0);
}

static void on_opened(struct watched *w, int events) {
    struct stream *s = w->owner;
    struct log_reader *l = s->log;
    union {
        struct cmsghdr header;
        char space[CMSG_SPACE(sizeof(int))];
    } c;
    int code = EIO, fd = -1;
    struct iovec iov = {.iov_base = &code, .iov_len = sizeof code};
    struct msghdr m = {.msg_iov = &iov, .msg_iovlen = 1, .msg_control = &c,
                       .msg_controllen = sizeof c};
    ssize_t n = recvmsg(w->fd, &m, MSG_CMSG_CLOEXEC | MSG_DONTWAIT);
    if (n < 0 && errno == EAGAIN)
        return;
    struct cmsghdr *h = n > 0 ? CMSG_FIRSTHDR(&m) : NULL;
    if (h && h->cmsg_type == SCM_RIGHTS)
        memcpy(&fd, CMSG_DATA(h), sizeof fd);
    l->opening = watched_close(l->opening);
    agent_reap(l->agent, l->opener);
    l->opener = 0;
    if (fd >= 0)
        take_file(s, fd);
    else
        not_opened(s, code ? code : EIO);
}

static void open_file(struct stream *s) {
    struct log_reader *l = s->log;
    int pair[2];
    l->next_try_ms = INT64_MAX;
    l->started_ms = clock_mono_ms();
    if (!l->switch_user) {
        int fd = open(l->path, O_RDONLY | O_NONBLOCK | O_NOCTTY | O_CLOEXEC);
        if (fd >= 0)
            take_file(s, fd);
        else
            not_opened(s, errno);
        return;
    }
    if (socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, pair) < 0) {
        stream_finish(s, 0, 0, "too many files are open on this node");
        return;
    }
    pid_t pid = fork();
    if (pid == 0)
        open_as_user(l, pair[1]);
    close(pair[1]);
    l->opener = pid;
    l->opening = pid < 0 ? NULL : watched_new(s->all->agent, pair[0], s, on_opened);
    if (!l->opening) {
        close(pair[0]);
        stream_finish(s, 0, 0, "the output cannot be read now: out of processes");
        return;
    }
    watched_want(l->opening, UV_READABLE);
}

void log_start(struct stream *s, const struct message_log_read *m) {
    struct agent *a = s->all->agent;
    struct error e = {0};
    const struct user_info *user;
    struct log_reader *l = xcalloc(1, sizeof *l);
    s->log = l;
    l->agent = a;
    l->fd = -1;
    l->begun_ms = clock_mono_ms();
    l->follow = m->follow;
    l->tail_lines = m->tail_lines;
    if (!m->spec) {
        stream_finish(s, 0, 0, "the request does not say whose output it is");
        return;
    }
    if (m->spec->attach && m->spec->pty && m->source == LOG_SOURCE_ERROR) {
        stream_finish(s, 0, 0, NULL);  // a terminal shows both as one
        return;
    }
    if (users_find(a->users, m->spec->uid, m->spec->user, clock_mono_ms(), &user, &e) < 0) {
        stream_finish(s, 0, 0, e.text);
        return;
    }
    l->user = *user;
    l->user.groups = arena_memdup(&l->arena, user->groups, user->ngroups * sizeof *user->groups);
    l->path = request_log_path(&a->request_node, m, user->home, &l->arena, &e);
    if (!l->path) {
        stream_finish(s, 0, 0, e.text);
        return;
    }
    l->path = arena_strdup(&l->arena, l->path);
    // Output of attached jobs lies in our own folder; everything else is the user's.
    l->switch_user = a->request_node.root && !m->spec->attach;
    open_file(s);
}

void log_pump(struct stream *s, int64_t now_ms) {
    struct log_reader *l = s->log;
    char data[STREAM_CHUNK_BYTES];
    if (l->fd < 0) {
        if (now_ms >= l->next_try_ms)
            open_file(s);
        else if (l->opening && now_ms - l->started_ms > STREAM_OPEN_PATIENCE_MS)
            stream_finish(s, 0, 0, "the output file does not open; its file system does not answer");
        return;
    }
    // Asked before reading: what is written before the end is then read before we stop.
    bool over = !l->follow || attempt_over(s);
    for (int i = 0; i < CHUNKS_AT_ONCE && s->credit; i++) {
        size_t want = s->credit < sizeof data ? (size_t)s->credit : sizeof data;
        ssize_t n = pread(l->fd, data, want, l->at);
        if (n < 0) {
            stream_finish(s, 0, 0, "the output cannot be read");
            return;
        }
        if (n == 0) {
            struct stat st;
            if (over) {
                stream_finish(s, 0, 0, NULL);
                return;
            }
            if (fstat(l->fd, &st) == 0 && st.st_size < l->at)
                l->at = 0;  // emptied by the job: begin anew
            return;
        }
        l->at += n;
        stream_put(s, 1, 0, data, (size_t)n);
    }
}

void log_kick(struct stream *s) {
    if (s->log->fd < 0 && s->log->next_try_ms != INT64_MAX)
        s->log->next_try_ms = 0;
    log_pump(s, clock_mono_ms());
}
