// Owns what an attached job reads and, with a terminal, what it shows: output is always kept in a
// file, so that whoever attaches later sees it from the beginning.
#include "stream.h"

#include <dirent.h>
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

enum { PRUNE_EVERY = 64 };

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
    if (f->kept_fd >= 0)
        close(f->kept_fd);
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

// What the terminal shows goes to the file. False at its end.
static bool copy_terminal(struct stream_feed *f) {
    char data[16384];
    for (;;) {
        ssize_t n = read(f->in.w->fd, data, sizeof data);
        if (n < 0 && errno == EINTR)
            continue;
        if (n <= 0)
            return n < 0 && errno == EAGAIN;
        for (ssize_t at = 0; at < n;) {
            ssize_t w = write(f->kept_fd, data + at, (size_t)(n - at));
            if (w <= 0)
                break;  // a full disk loses output, not the job
            at += w;
        }
        kick_readers(f->all, f->id, f->attempt);
    }
}

void stream_feed_drain(struct stream_feed *f) {
    if (f->terminal && f->in.w)
        copy_terminal(f);
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
    if (f->terminal && (events & UV_READABLE) && !copy_terminal(f)) {
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

// "JOB.ATTEMPT.out" or ".err"
static bool kept_name(const char *name, uint64_t *id, uint32_t *attempt) {
    char head[SPOOL_NAME_MAX];
    size_t len = strlen(name);
    if (len < 5 || len >= sizeof head || name[len - 4] != '.')
        return false;
    memcpy(head, name, len - 4);
    head[len - 4] = 0;
    return spool_parse_name(head, id, attempt) == 0;
}

static int by_value(const void *a, const void *b) {
    uint64_t x = *(const uint64_t *)a, y = *(const uint64_t *)b;
    return x < y ? -1 : x > y;
}

// Kept output is bounded by number: of too many the older half goes.
static void prune(struct agent_node *a) {
    int fd = openat(a->output_fd, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    DIR *d = fd < 0 ? NULL : fdopendir(fd);
    VEC(uint64_t) ids = {0};
    uint64_t id;
    uint32_t attempt;
    if (!d)
        return;
    for (struct dirent *ent; (ent = readdir(d));)
        if (kept_name(ent->d_name, &id, &attempt))
            vec_push(&ids, id);
    if (ids.len > AGENT_KEPT_OUTPUTS_MAX) {
        qsort(ids.at, ids.len, sizeof *ids.at, by_value);
        uint64_t first = ids.at[ids.len / 2];
        rewinddir(d);
        for (struct dirent *ent; (ent = readdir(d));)
            if (kept_name(ent->d_name, &id, &attempt) && id < first)
                unlinkat(fd, ent->d_name, 0);
    }
    vec_done(&ids);
    closedir(d);
}

static int open_kept(struct agent_node *a, const struct message_launch *m, bool error) {
    char name[SPOOL_NAME_MAX];
    snprintf(name, sizeof name, "%llu.%u.%s", (unsigned long long)m->id, m->attempt,
             error ? "err" : "out");
    int fd = openat(a->output_fd, name,
                    O_WRONLY | O_CREAT | O_TRUNC | O_APPEND | O_CLOEXEC | O_NOFOLLOW, 0600);
    return fd < 0 ? -errno : fd;
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

static void add_feed(struct streams *all, const struct message_launch *m, int fd, int kept_fd) {
    struct stream_feed *f = xcalloc(1, sizeof *f);
    *f = (struct stream_feed){.all = all, .id = m->id, .attempt = m->attempt, .terminal = m->spec->pty,
                       .kept_fd = kept_fd, .in = {.keep_fd = -1, .terminal = m->spec->pty}};
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
    int kept = open_kept(all->agent, m, false);
    if (kept < 0)
        return error_set(e, -kept, "its output cannot be kept: %s", strerror(-kept));
    int rc = stream_open_terminal(m->spec->pty_rows, m->spec->pty_columns, r->uid, r->switch_user, &master, &slave);
    if (rc < 0) {
        close(kept);
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
        prune(all->agent);
    r->use_fds = true;
    if (m->spec->pty)
        return attach_terminal(all, m, r, fds, e);
    cleanup_close int out = open_kept(all->agent, m, false);
    cleanup_close int err = open_kept(all->agent, m, true);
    if (out < 0 || err < 0)
        return error_set(e, out < 0 ? -out : -err, "its output cannot be kept");
    if (m->spec->stdin_open) {
        if (pipe2(in, O_CLOEXEC) < 0)
            return error_set(e, errno, "no pipe: %m");
        fcntl(in[1], F_SETFL, O_NONBLOCK);
        add_feed(all, m, in[1], -1);
    } else {
        in[0] = open("/dev/null", O_RDONLY | O_CLOEXEC);
        if (in[0] < 0)
            return error_set(e, errno, "/dev/null cannot be opened: %m");
    }
    fds[0] = in[0];
    fds[1] = TAKE_FD(out);
    fds[2] = TAKE_FD(err);
    kick_readers(all, m->id, m->attempt);
    return 3;
}

void streams_forget(struct streams *all, uint64_t id, uint32_t attempt) {
    struct stream_feed *f = stream_feed_find(all, id, attempt);
    if (f)
        stream_feed_free(f);
}
