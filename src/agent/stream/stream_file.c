// Owns requests about users' files on this node. Each has a process of its own (src/files), which becomes the user
// before it opens anything: a file system that hangs holds up that process, and the request is told so. What the
// process writes is passed on as far as the other side gave credit; beyond that it waits in its pipe.
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "agent/node/job_files.h"
#include "base/cleanup.h"
#include "base/clock.h"
#include "base/forked_child.h"
#include "base/text.h"
#include "model/file.h"
#include "stream.h"

enum { READ_BYTES = 128 << 10 };

struct stream_file {
    struct agent_node *agent;
    struct arena arena;
    const struct file_request *request;  // not begun: its user is not known yet
    uint32_t uid;
    struct stream_fd *pipe;  // NULL: not begun
    pid_t pid;
    struct buf in;  // what is not a whole message yet
    bool listening, answered;
    int64_t heard_ms;
};

struct stream_file *stream_file_free(struct stream_file *p) {
    if (!p)
        return NULL;
    stream_fd_close(p->pipe);
    if (p->pid > 0) {
        kill(p->pid, SIGKILL);
        agent_reap(p->agent, p->pid, p->uid);
    }
    buf_done(&p->in);
    arena_done(&p->arena);
    free(p);
    return NULL;
}

static void fail(struct agent_stream *s, int error, const char *text) {
    struct file_result r = {.stream = s->number, .error = error, .text = text};
    if (!s->file->answered)
        agent_send(s->all->agent, MESSAGE_FILE_RESULT, &r);
    stream_finish(s, text);
}

_Noreturn static void become_worker(const char *program, int order, int out) {
    char *argv[] = {(char *)(uintptr_t) "acequia-files", NULL}, *env[] = {NULL};
    if (dup2(order, STDIN_FILENO) < 0 || dup2(out, STDOUT_FILENO) < 0)
        _exit(127);
    forked_child_begin("acequia-files", STDERR_FILENO);
    close(APART_FD);
    execve(program, argv, env);
    _exit(127);
}

static int make_order(const struct file_request *q, const struct user_info *u, bool switch_user) {
    cleanup_buf struct buf b = {0};
    struct file_request copy = *q;
    struct file_order o = {.switch_user = switch_user,
                           .uid = u->uid,
                           .gid = u->gid,
                           .groups = {u->groups, u->ngroups},
                           .home = u->home,
                           .request = &copy};
    cleanup_close int fd = memfd_create("acequia-files", MFD_CLOEXEC);
    schema_encode(&file_order_schema, &o, &b);
    for (size_t at = 0; fd >= 0 && at < b.len;) {
        ssize_t n = write(fd, b.data + at, b.len - at);
        if (n <= 0)
            return n < 0 ? -errno : -EIO;
        at += (size_t)n;
    }
    if (fd < 0 || lseek(fd, 0, SEEK_SET) < 0)
        return -errno;
    return TAKE_FD(fd);
}

static void on_readable(struct stream_fd *w, int events);

static int start_worker(struct agent_stream *s, const struct user_info *u) {
    struct stream_file *p = s->file;
    int ends[2];
    cleanup_close int order = make_order(p->request, u, p->agent->request_node.root);
    if (order < 0)
        return order;
    if (pipe2(ends, O_CLOEXEC) < 0)
        return -errno;
    p->pid = fork();
    if (p->pid == 0)
        become_worker(p->agent->files_program, order, ends[1]);
    int rc = p->pid < 0 ? -errno : 0;
    close(ends[1]);
    fcntl(ends[0], F_SETFL, O_NONBLOCK);
    p->pipe = rc < 0 ? NULL : stream_fd_new(p->agent, ends[0], s, on_readable);
    if (!p->pipe)
        close(ends[0]);
    p->listening = true;
    p->heard_ms = clock_mono_ms();
    return p->pipe ? 0 : rc < 0 ? rc : -ENOMEM;
}

static uint32_t open_of(const struct streams *all, uint32_t uid, uint32_t *of_user) {
    uint32_t n = 0;
    *of_user = 0;
    for (uint32_t i = 0; i < all->list.len; i++)
        if (all->list.at[i]->file) {
            n++;
            *of_user += all->list.at[i]->file->uid == uid;
        }
    return n;
}

static void begin(struct agent_stream *s) {
    struct stream_file *p = s->file;
    struct error e = {0};
    const struct user_info *user;
    struct spec who = {.uid = p->request->uid, .user = p->request->user};
    int rc = agent_job_user(p->agent->users, &who, clock_mono_ms(), &user, &e);
    if (rc == -EINPROGRESS)
        return;
    if (rc == 0 && !p->agent->request_node.root && user->uid != p->agent->request_node.own_uid)
        rc = error_set(&e, EPERM, "this node's agent is not root: it reaches the files of its own user only");
    if (rc < 0) {
        fail(s, -rc, e.text);
        return;
    }
    rc = start_worker(s, user);
    p->request = NULL;
    if (rc < 0)
        fail(s, EAGAIN, "no process can be started on this node now; try again later");
}

void stream_file_start(struct agent_stream *s, const struct file_request *m) {
    struct stream_file *p = xcalloc(1, sizeof *p);
    uint32_t of_user, n = open_of(s->all, m->uid, &of_user);
    s->file = p;
    *p = (struct stream_file){.agent = s->all->agent, .uid = m->uid};
    if (n >= AGENT_FILES_MAX || of_user >= AGENT_USER_FILES_MAX || agent_has_stuck(p->agent, m->uid)) {
        fail(s, EAGAIN,
             "too many requests about files are under way on this node, or hang in its file systems; try "
             "again later");
        return;
    }
    p->request = schema_copy(&file_request_schema, m, &p->arena);
    begin(s);
}

// Reads only what there is credit for; the rest stays in the pipe, and the process waits there.
static void listen_to(struct agent_stream *s) {
    struct stream_file *p = s->file;
    bool want = stream_room(s) > 0;
    if (p->pipe && want != p->listening) {
        stream_fd_want(p->pipe, want ? UV_READABLE : 0);
        p->heard_ms = clock_mono_ms();
        p->listening = want;
    }
}

void stream_file_pump(struct agent_stream *s, int64_t now_ms) {
    struct stream_file *p = s->file;
    if (p->request) {
        begin(s);
        return;
    }
    listen_to(s);
    if (p->listening && now_ms - p->heard_ms > STREAM_READ_PATIENCE_MS)
        fail(s, ETIMEDOUT, "the file system does not answer");
}

// One message of the process. False: the stream has ended.
static bool pass_on(struct agent_stream *s, const char *data, size_t len) {
    cleanup_arena struct arena arena = {0};
    struct message m;
    int rc = message_decode_views(data, len, &arena, &m);
    if (rc == 0 && m.type == MESSAGE_STREAM_DATA) {
        struct message_stream *d = m.body;
        d->stream = s->number;
        s->credit -= d->data.len < s->credit ? d->data.len : s->credit;
        agent_send(s->all->agent, m.type, d);
        return true;
    }
    if (rc == 0 && m.type == MESSAGE_FILE_RESULT) {
        struct file_result *r = m.body;
        r->stream = s->number;
        s->file->answered |= !r->working;  // a sign of life: the controller gives up on a node that is silent
        agent_send(s->all->agent, m.type, r);
        return true;
    }
    if (rc == 0 && m.type == MESSAGE_STREAM_END)
        stream_finish(s, NULL);
    else
        fail(s, EIO, "the process that works on files has failed");
    return false;
}

static void on_readable(struct stream_fd *w, int events) {
    struct agent_stream *s = w->owner;
    struct stream_file *p = s->file;
    uint32_t len;
    if (!stream_room(s)) {
        listen_to(s);
        return;
    }
    ssize_t n = read(w->fd, buf_reserve(&p->in, READ_BYTES), READ_BYTES);
    if (n < 0 && (errno == EAGAIN || errno == EINTR))
        return;
    if (n <= 0) {
        fail(s, EIO, "the process that works on files was ended");
        return;
    }
    p->in.len += (size_t)n;
    p->heard_ms = clock_mono_ms();
    size_t at = 0;
    while (p->in.len - at >= sizeof len) {
        memcpy(&len, p->in.data + at, sizeof len);
        if (len > FILE_FRAME_MAX) {
            fail(s, EIO, "the process that works on files has failed");
            return;
        }
        if (p->in.len - at - sizeof len < len)
            break;
        if (!pass_on(s, p->in.data + at + sizeof len, len))
            return;
        at += sizeof len + len;
    }
    buf_drop(&p->in, at);
    listen_to(s);
}
