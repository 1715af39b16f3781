// Owns what an attached job reads and, with a terminal, what it shows: output is always kept in a
// file, so that whoever attaches later sees it from the beginning.
#include "stream.h"

#include <errno.h>
#include <fcntl.h>
#include <pty.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/alloc.h"
#include "base/cleanup.h"
#include "base/text.h"

enum { PRUNE_EVERY = 64, TERMINAL_READS = 64 };

struct stream_feed *stream_feed_find(struct streams *all, uint64_t id, uint32_t attempt) {
    for (uint32_t i = 0; i < all->feeds.len; i++)
        if (all->feeds.at[i]->id == id && all->feeds.at[i]->attempt == attempt)
            return all->feeds.at[i];
    return NULL;
}

void stream_feed_free(struct stream_feed *f) {
    struct streams *all = f->all;
    for (uint32_t i = 0; i < all->feeds.len; i++)
        if (all->feeds.at[i] == f) {
            vec_remove(&all->feeds, i);
            break;
        }
    stream_pipe_close(&f->in);
    launch_kept_close(&f->kept);
    free(f);
}

// Whoever waits for the output to exist need not wait longer.
static void kick_readers(struct streams *all, uint64_t id, uint32_t attempt) {
    for (uint32_t i = all->list.len; i-- > 0;) {
        struct agent_stream *s = all->list.at[i];
        if (s->kind == STREAM_LOG && s->id == id && s->attempt == attempt)
            stream_log_kick(s);
        if (i > all->list.len)
            i = all->list.len;
    }
}

// What the terminal shows goes to the file, up to the limit that the client has to make room for.
// False at its end.
static bool copy_terminal(struct stream_feed *f, bool drain) {
    char data[16384];
    for (int i = 0; i < TERMINAL_READS; i++) {
        if (!drain && launch_kept_blocked(&f->kept)) {
            f->blocked = true;
            stream_fd_want(f->in.w, f->in.w->events & UV_WRITABLE);
            return true;
        }
        ssize_t n = read(f->in.w->fd, data, sizeof data);
        if (n < 0 && errno == EINTR)
            continue;
        if (n <= 0)
            return n < 0 && errno == EAGAIN;
        launch_kept_append(&f->kept, data, (size_t)n, drain);
        kick_readers(f->all, f->id, f->attempt);
    }
    return true;
}

void stream_feeds_unblock(struct streams *all) {
    for (uint32_t i = 0; i < all->feeds.len; i++) {
        struct stream_feed *f = all->feeds.at[i];
        if (!f->blocked || launch_kept_blocked(&f->kept))
            continue;
        f->blocked = false;
        stream_fd_want(f->in.w, (f->in.w ? f->in.w->events : 0) | UV_READABLE);
    }
}

void stream_feed_drain(struct stream_feed *f) {
    if (f->terminal && f->in.w)
        copy_terminal(f, true);
}

// What nobody reads any more is taken too, and lost as in any pipe.
void stream_feed_write(struct stream_feed *f, const void *data, size_t len, bool eof) {
    stream_pipe_write(&f->in, data, len, eof);
    f->taken += len;
    f->ended |= eof;
}

void stream_feed_position(struct stream_feed *f, struct agent_stream *s) {
    struct message_stream m = {.stream = s->number, .position = true, .eof = !f || f->ended,
                               .input_taken = f ? f->taken : 0,
                               .input_waiting = f ? f->in.pending.len : 0};
    // What waits already came in through another stream; that it leaves is told through this one.
    s->input_bytes += m.input_waiting;
    agent_send(s->all->agent, MESSAGE_STREAM_CREDIT, &m);
}

void stream_feed_flush(struct stream_feed *f) {
    stream_pipe_flush(&f->in);
    for (uint32_t i = 0; i < f->all->list.len; i++) {
        struct agent_stream *s = f->all->list.at[i];
        if (s->kind == STREAM_LOG && s->id == f->id && s->attempt == f->attempt)
            stream_credit_input(s, f->in.pending.len);
    }
}

static void on_feed(struct stream_fd *w, int events) {
    struct stream_feed *f = w->owner;
    if (f->terminal && (events & UV_READABLE) && !copy_terminal(f, false)) {
        f->in.w = stream_fd_close(f->in.w);
        return;
    }
    if (events & UV_WRITABLE)
        stream_feed_flush(f);
}

void stream_feed_resize(struct stream_feed *f, uint32_t rows, uint32_t columns) {
    struct winsize size = {.ws_row = (unsigned short)rows, .ws_col = (unsigned short)columns};
    if (f->terminal && f->in.w)
        ioctl(f->in.w->fd, TIOCSWINSZ, &size);
}

int stream_open_terminal(uint32_t rows, uint32_t columns, uint32_t uid, bool root, int *master,
                  int *slave) {
    struct winsize size = {.ws_row = (unsigned short)(rows ? rows : 24),
                           .ws_col = (unsigned short)(columns ? columns : 80)};
    if (openpty(master, slave, NULL, NULL, &size) < 0)
        return -errno;
    fcntl(*master, F_SETFD, FD_CLOEXEC);
    fcntl(*slave, F_SETFD, FD_CLOEXEC);
    fcntl(*master, F_SETFL, O_NONBLOCK);
    // It is the user's terminal: programs refuse one that belongs to somebody else.
    if (root && (fchown(*slave, uid, (gid_t)-1) < 0 || fchmod(*slave, 0620) < 0)) {
        int rc = -errno;
        close(*master);
        close(*slave);
        return rc;
    }
    return 0;
}

static int make_kept(struct agent_node *a, const struct message_launch *m, bool error, struct kept_file *out) {
    char name[SPOOL_NAME_MAX];
    *out = (struct kept_file){.fd = -1};
    snprintf(name, sizeof name, "%llu.%u.%s", (unsigned long long)m->id, m->attempt,
             error ? "err" : "out");
    cleanup_close int fd = openat(a->output_fd, name, O_RDWR | O_CREAT | O_TRUNC | O_CLOEXEC | O_NOFOLLOW, 0600);
    int rc = fd < 0 ? -errno : launch_kept_create(fd, m->spec->uid, out);
    if (rc == 0)
        TAKE_FD(fd);
    return rc;
}

// Whoever attached before the launch may have typed already.
static void take_early(struct stream_feed *f) {
    for (uint32_t i = 0; i < f->all->list.len; i++) {
        struct agent_stream *s = f->all->list.at[i];
        if (s->kind != STREAM_LOG || s->id != f->id || s->attempt != f->attempt)
            continue;
        if (s->rows)
            stream_feed_resize(f, s->rows, s->columns);
        stream_feed_position(f, s);
        if (s->early.len || s->early_eof)
            stream_feed_write(f, buf_str(&s->early), s->early.len, s->early_eof);
        buf_done(&s->early);
        s->early_eof = false;
    }
    stream_feed_flush(f);
}

static void add_feed(struct streams *all, const struct message_launch *m, int fd, struct kept_file kept) {
    struct stream_feed *f = xcalloc(1, sizeof *f);
    *f = (struct stream_feed){.all = all, .id = m->id, .attempt = m->attempt, .terminal = m->spec->pty,
                       .kept = kept, .in = {.keep_fd = -1, .terminal = m->spec->pty}};
    f->in.w = stream_fd_new(all->agent, fd, f, on_feed);
    vec_push(&all->feeds, f);
    if (!f->in.w)
        close(fd);
    else if (f->terminal)
        stream_fd_want(f->in.w, UV_READABLE);
    take_early(f);
}

static int attach_terminal(struct streams *all, const struct message_launch *m,
                           struct launch_request *r, int fds[3], struct error *e) {
    int master, slave;
    struct kept_file kept;
    int rc = make_kept(all->agent, m, false, &kept);
    if (rc < 0)
        return error_set(e, -rc, "its output cannot be kept: %s", strerror(-rc));
    rc = stream_open_terminal(m->spec->pty_rows, m->spec->pty_columns, r->uid, r->switch_user, &master, &slave);
    if (rc < 0) {
        launch_kept_close(&kept);
        return error_set(e, -rc, "no terminal: %s", strerror(-rc));
    }
    add_feed(all, m, master, kept);
    r->tty = true;
    fds[0] = slave;
    kick_readers(all, m->id, m->attempt);
    return 1;
}

int streams_attach(struct streams *all, const struct message_launch *m, struct launch_request *r,
                   int fds[3], struct error *e) {
    int in[2] = {-1, -1};
    if (all->attached++ % PRUNE_EVERY == 0)
        streams_kept_prune(all->agent);
    r->use_fds = true;
    if (m->spec->pty)
        return attach_terminal(all, m, r, fds, e);
    cleanup_kept struct kept_file out = {.fd = -1}, err = {.fd = -1};
    int rc = make_kept(all->agent, m, false, &out);
    if (rc == 0)
        rc = make_kept(all->agent, m, true, &err);
    if (rc < 0)
        return error_set(e, -rc, "its output cannot be kept: %s", strerror(-rc));
    if (m->spec->stdin_open) {
        if (pipe2(in, O_CLOEXEC) < 0)
            return error_set(e, errno, "no pipe: %m");
        fcntl(in[1], F_SETFL, O_NONBLOCK);
        add_feed(all, m, in[1], (struct kept_file){.fd = -1});
    } else {
        in[0] = open("/dev/null", O_RDONLY | O_CLOEXEC);
        if (in[0] < 0)
            return error_set(e, errno, "/dev/null cannot be opened: %m");
    }
    fds[0] = in[0];
    fds[1] = TAKE_FD(out.fd);
    fds[2] = TAKE_FD(err.fd);
    kick_readers(all, m->id, m->attempt);
    return 3;
}

void streams_forget(struct streams *all, uint64_t id, uint32_t attempt) {
    struct stream_feed *f = stream_feed_find(all, id, attempt);
    if (f)
        stream_feed_free(f);
}
