// Owns the standard streams of steps and attached jobs; launch/relay.h says how they lie in the folder. Because they
// belong to the shepherd, neither a dead agent nor a dead controller touches the tasks. Output of a step goes to a file
// of records, that of an attached job to kept files that the agent has passed along (launch/kept.h); tasks never hold a
// descriptor of these files: they could write without limit. A client that reads too slowly blocks the tasks at a
// budget; without a client, output over a limit is dropped and counted.
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/uio.h>
#include <termios.h>
#include <unistd.h>

#include "base/alloc.h"
#include "base/cleanup.h"
#include "base/clock.h"
#include "launch/kept.h"
#include "launch/log_times.h"
#include "launch/relay_flow.h"
#include "shepherd.h"

enum { HINT_EVERY_MS = 2, READS_AT_ONCE = 16, DRAIN_READS_MAX = 4096, PUNCH_BYTES = 1 << 20 };

struct relay_task {
    int in, out, err;  // our ends; -1: none, or closed
    uint64_t in_at;    // input before this was written to the task
    bool end_sent;     // a terminal was told of the end of input
};

struct relay_times {
    int file;
    struct log_times index;
};

struct relay {
    struct relay_page *page;
    int out_file, in_file;
    uint64_t in_freed;       // input before this was given back to the file system
    struct kept_file to[3];  // of an attached job: where its output and errors go
    struct relay_task *tasks;
    uint32_t count;
    bool tty, kept;
    int64_t started_wall_ms;
    struct relay_times *times[3];  // of kept output, once the attempt has run for TIMES_AFTER_MS
    uint32_t rows, columns;
    int64_t hinted_ms;
};

static int make_file(struct shepherd *s, uint32_t step, enum spool_relay which) {
    char name[SPOOL_NAME_MAX];
    spool_relay_name(name, step, which);
    int fd = openat(s->folder_fd, name, O_RDWR | O_CREAT | O_EXCL | O_CLOEXEC | O_NOFOLLOW, 0600);
    return fd < 0 ? -errno : fd;
}

static int map_page(struct relay *r, int fd) {
    if (ftruncate(fd, sizeof *r->page) < 0)
        return -errno;
    r->page = mmap(NULL, sizeof *r->page, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    if (r->page == MAP_FAILED) {
        r->page = NULL;
        return -errno;
    }
    r->page->magic = RELAY_MAGIC;
    atomic_store(&r->page->client, 1);
    return 0;
}

// Takes the kept files out of the unit's descriptors; what is none stays there for the tasks.
static int take_kept(struct relay *r, struct shepherd_unit *u) {
    for (int i = 1; u->req.use_fds && i < 3; i++) {
        int rc = u->fds[i] < 0 ? -EBADMSG : launch_kept_open(u->fds[i], &r->to[i]);
        if (rc < 0 && rc != -EBADMSG)
            return rc;
        if (rc == 0)
            u->fds[i] = -1;
        r->kept |= rc == 0;
    }
    return 0;
}

int relay_open(struct shepherd *s, struct shepherd_unit *u) {
    struct relay *r = arena_alloc(&u->arena, sizeof *r);
    *r = (struct relay){.out_file = -1,
                        .in_file = -1,
                        .count = u->req.ntasks,
                        .tty = u->req.tty,
                        .started_wall_ms = u->step ? 0 : u->status.started_wall_ms,
                        .to = {{.fd = -1}, {.fd = -1}, {.fd = -1}}};
    r->tasks = arena_alloc(&u->arena, (r->count + 1) * sizeof *r->tasks);
    for (uint32_t i = 0; i < r->count; i++)
        r->tasks[i] = (struct relay_task){.in = -1, .out = -1, .err = -1};
    u->relay = r;
    int rc = take_kept(r, u);
    cleanup_close int page = rc < 0 ? rc : make_file(s, u->step, SPOOL_RELAY_PAGE);
    if (page < 0)
        return page;
    if (!r->kept && (r->out_file = make_file(s, u->step, SPOOL_RELAY_OUTPUT)) < 0)
        return r->out_file;
    if ((r->in_file = make_file(s, u->step, SPOOL_RELAY_INPUT)) < 0)
        return r->in_file;
    rc = map_page(r, page);
    if (rc == 0 && !u->req.relay_input)
        atomic_store(&r->page->in_closed, 1);
    return rc;
}

static int make_terminal(struct relay *r, const struct launch_request *q, struct relay_task *t, int fds[3]) {
    struct winsize size = {.ws_row = (unsigned short)(q->rows ? q->rows : 24),
                           .ws_col = (unsigned short)(q->columns ? q->columns : 80)};
    cleanup_close int master = posix_openpt(O_RDWR | O_NOCTTY | O_CLOEXEC | O_NONBLOCK);
    if (master < 0 || unlockpt(master) < 0)
        return -errno;
    cleanup_close int slave = ioctl(master, TIOCGPTPEER, O_RDWR | O_NOCTTY | O_CLOEXEC);
    if (slave < 0)
        return -errno;
    ioctl(master, TIOCSWINSZ, &size);
    // It is the user's terminal: programs refuse one that belongs to somebody else.
    if (q->switch_user && (fchown(slave, q->uid, (gid_t)-1) < 0 || fchmod(slave, 0620) < 0))
        return -errno;
    if ((t->in = fcntl(master, F_DUPFD_CLOEXEC, 3)) < 0)
        return -errno;
    t->out = TAKE_FD(master);
    fds[0] = TAKE_FD(slave);
    return 0;
}

static int make_pipe(const struct launch_request *q, int *ours, int *theirs, bool input) {
    int p[2];
    if (pipe2(p, O_CLOEXEC) < 0)
        return -errno;
    *ours = p[input];
    *theirs = p[!input];
    fcntl(*ours, F_SETFL, O_NONBLOCK);
    // So that the tasks can open /dev/stdout.
    return q->switch_user && fchown(*theirs, q->uid, q->gid) < 0 ? -errno : 0;
}

static bool takes_input(const struct launch_request *q, const struct launch_process *p) {
    return q->relay_input && !q->in && !p->in;
}

int relay_task_open(struct shepherd_unit *u, uint32_t task, int fds[3]) {
    const struct launch_request *q = &u->req;
    const struct launch_process *p = &q->tasks[task];
    struct relay_task *t = &u->relay->tasks[task];
    int rc = 0;
    if (u->relay->tty)
        return make_terminal(u->relay, q, t, fds);
    if (takes_input(q, p))
        rc = make_pipe(q, &t->in, &fds[0], true);
    else if ((fds[0] = open("/dev/null", O_RDONLY | O_CLOEXEC)) < 0)
        rc = -errno;
    if (rc == 0 && !q->out && !p->out)
        rc = make_pipe(q, &t->out, &fds[1], false);
    if (rc == 0 && !q->out && !p->out && !q->err && !p->err)
        rc = make_pipe(q, &t->err, &fds[2], false);
    return rc;
}

static void close_end(int *fd) {
    if (*fd >= 0)
        close(*fd);
    *fd = -1;
}

// --- output ---

static bool is_blocked(const struct relay *r, int which) {
    if (r->kept)
        return r->to[which].head && launch_kept_blocked(&r->to[which]);
    return launch_relay_blocks(r->page, &launch_relay_limits);
}

// Of a young attempt everything has the time of its start; its index is not worth a file.
static struct relay_times *times_of(struct shepherd *s, struct relay *r, int fd, int64_t now_ms) {
    if (!r->times[fd] && r->started_wall_ms && now_ms - r->started_wall_ms >= TIMES_AFTER_MS) {
        struct relay_times *t = r->times[fd] = xcalloc(1, sizeof *t);
        t->file =
            openat(s->folder_fd, launch_times_names[fd - 1], O_RDWR | O_CREAT | O_CLOEXEC | O_NOFOLLOW, 0600);
        launch_times_note(&t->index, atomic_load(&r->to[fd].head->len), r->started_wall_ms, t->file);
    }
    return r->times[fd];
}

static void append_kept(struct shepherd *s, struct relay *r, int fd, const char *data, size_t len,
                        bool drain) {
    int64_t now_ms = clock_wall_ms();
    if (!r->to[fd].head)
        return;
    struct relay_times *t = times_of(s, r, fd, now_ms);
    launch_kept_append(&r->to[fd], data, len, drain);
    if (t)
        launch_times_note(&t->index, atomic_load(&r->to[fd].head->len), now_ms, t->file);
}

static void append(struct shepherd *s, struct relay *r, uint32_t rank, int fd, const char *data, size_t len,
                   bool drain) {
    if (r->kept) {
        append_kept(s, r, fd, data, len, drain);
        return;
    }
    struct relay_record head = {.rank = rank, .len = (uint16_t)len, .fd = (uint8_t)fd, .mark = RELAY_MARK};
    struct iovec v[2] = {{&head, sizeof head}, {(char *)(uintptr_t)data, len}};
    uint64_t at = atomic_load(&r->page->out_len);
    if (launch_relay_drops(r->page, &launch_relay_limits) ||
        pwritev(r->out_file, v, 2, (off_t)at) != (ssize_t)(sizeof head + len)) {
        atomic_fetch_add(&r->page->out_lost, len);  // also a full disk: output is lost, not the step
        return;
    }
    atomic_fetch_add(&r->page->out_bytes, len);
    atomic_store(&r->page->out_len, at + sizeof head + len);
}

// Reads what is there, up to a bound. False: it has ended.
static bool take_output(struct shepherd *s, struct relay *r, uint32_t rank, int which, int fd, bool all) {
    static char data[RELAY_DATA_MAX];
    for (int i = 0; i < (all ? DRAIN_READS_MAX : READS_AT_ONCE) && (all || !is_blocked(r, which)); i++) {
        ssize_t n = read(fd, data, sizeof data);
        if (n < 0 && errno == EINTR)
            continue;
        if (n < 0 && errno == EAGAIN)
            return true;
        if (n <= 0)  // a terminal ends with an error
            return false;
        append(s, r, rank, which, data, (size_t)n, all);
    }
    return true;
}

static void hint_output(struct shepherd *s, struct shepherd_unit *u) {
    int64_t now_ms = clock_mono_ms();
    struct spool_hint h = {.job = u->status.job, .attempt = u->status.attempt, .step = u->step, .state = SPOOL_OUTPUT};
    if (now_ms - u->relay->hinted_ms < HINT_EVERY_MS)
        return;
    u->relay->hinted_ms = now_ms;
    if (write(s->hint_fd, &h, sizeof h) < 0)
        return;  // full: the agent looks by itself
}

static uint64_t written(const struct relay *r) {
    uint64_t n = atomic_load(&r->page->out_len);
    for (int i = 1; i < 3; i++)
        n += r->to[i].head ? atomic_load(&r->to[i].head->len) : 0;
    return n;
}

static void read_task(struct shepherd *s, struct shepherd_unit *u, uint32_t task, bool all) {
    struct relay_task *t = &u->relay->tasks[task];
    uint32_t rank = u->req.tasks[task].rank;
    uint64_t before = written(u->relay);
    if (t->out >= 0 && !take_output(s, u->relay, rank, 1, t->out, all))
        close_end(&t->out);
    if (t->err >= 0 && !take_output(s, u->relay, rank, 2, t->err, all))
        close_end(&t->err);
    if (!all && written(u->relay) != before)
        hint_output(s, u);
}

// --- input ---

static void feed_task(struct relay *r, struct relay_task *t) {
    static char data[RELAY_DATA_MAX];
    static const char end_of_input = 4;  // what a terminal's line discipline takes for the end
    uint64_t len = atomic_load(&r->page->in_len);
    while (t->in >= 0 && t->in_at < len) {
        size_t want = len - t->in_at < sizeof data ? (size_t)(len - t->in_at) : sizeof data;
        ssize_t got = pread(r->in_file, data, want, (off_t)t->in_at);
        ssize_t n = got > 0 ? write(t->in, data, (size_t)got) : -1;
        if (got > 0 && n < 0 && (errno == EINTR || errno == EAGAIN))
            return;
        if (n <= 0) {  // nobody reads any more
            close_end(&t->in);
            return;
        }
        t->in_at += (uint64_t)n;
    }
    if (t->in < 0 || !atomic_load(&r->page->in_ended) || t->in_at < atomic_load(&r->page->in_len))
        return;
    if (!r->tty)
        close_end(&t->in);
    else if (!t->end_sent)
        t->end_sent = write(t->in, &end_of_input, 1) == 1;
}

static void feed(struct relay *r) {
    uint64_t least = UINT64_MAX;
    for (uint32_t i = 0; i < r->count; i++) {
        feed_task(r, &r->tasks[i]);
        if (r->tasks[i].in >= 0 && r->tasks[i].in_at < least)
            least = r->tasks[i].in_at;
    }
    atomic_store(&r->page->in_closed, least == UINT64_MAX);
    uint64_t read = least == UINT64_MAX ? atomic_load(&r->page->in_len) : least;
    atomic_store(&r->page->in_read, read);
    if (read - r->in_freed >= PUNCH_BYTES && fallocate(r->in_file, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE,
                                                       (off_t)r->in_freed, (off_t)(read - r->in_freed)) == 0)
        r->in_freed = read;
}

// --- the loop ---

uint32_t relay_poll(const struct shepherd_unit *u, struct pollfd *p, uint32_t room) {
    const struct relay *r = u->relay;
    uint32_t n = 0;
    uint64_t len = r ? atomic_load(&r->page->in_len) : 0;
    for (uint32_t i = 0; r && i < r->count && n + 3 <= room; i++) {
        const struct relay_task *t = &r->tasks[i];
        if (t->out >= 0 && !is_blocked(r, 1))
            p[n++] = (struct pollfd){.fd = t->out, .events = POLLIN};
        if (t->err >= 0 && !is_blocked(r, 2))
            p[n++] = (struct pollfd){.fd = t->err, .events = POLLIN};
        if (t->in >= 0 && t->in_at < len)
            p[n++] = (struct pollfd){.fd = t->in, .events = POLLOUT};
    }
    return n;
}

void relay_serve(struct shepherd *s, struct shepherd_unit *u, const struct pollfd *p, uint32_t n) {
    struct relay *r = u->relay;
    for (uint32_t k = 0, i = 0; k < n; k++) {
        if (!p[k].revents)
            continue;
        while (i < r->count && p[k].fd != r->tasks[i].out && p[k].fd != r->tasks[i].err && p[k].fd != r->tasks[i].in)
            i++;
        if (i < r->count && (p[k].events & POLLIN))
            read_task(s, u, i, false);
        else if (p[k].events & POLLOUT)
            feed(r);
        if (i == r->count)
            i = 0;  // closed by an entry before it
    }
}

void relay_wake(struct shepherd_unit *u) {
    struct relay *r = u->relay;
    uint32_t rows = atomic_load(&r->page->rows), columns = atomic_load(&r->page->columns);
    feed(r);
    if (r->tty && r->count && r->tasks[0].out >= 0 && (rows != r->rows || columns != r->columns)) {
        struct winsize size = {.ws_row = (unsigned short)rows, .ws_col = (unsigned short)columns};
        ioctl(r->tasks[0].out, TIOCSWINSZ, &size);
        r->rows = rows;
        r->columns = columns;
    }
}

bool relay_blocked(const struct shepherd_unit *u) {
    return u->relay && u->relay->kept && (is_blocked(u->relay, 1) || is_blocked(u->relay, 2));
}

bool relay_say(struct shepherd_unit *u, const char *text, size_t len) {
    struct relay *r = u->relay;
    struct kept_file *to = r && r->to[2].head ? &r->to[2] : r && r->to[1].head ? &r->to[1] : NULL;
    if (to)
        launch_kept_append(to, text, len, true);
    return to != NULL;
}

void relay_note(struct shepherd *s, struct shepherd_unit *u, uint32_t rank, const char *text) {
    if (!u->relay || !u->relay->page)
        return;
    append(s, u->relay, rank, 2, text, strlen(text), true);
    hint_output(s, u);
}

void relay_close(struct shepherd *s, struct shepherd_unit *u) {
    struct relay *r = u->relay;
    if (!r)
        return;
    for (uint32_t i = 0; i < r->count; i++) {
        if (r->page)
            read_task(s, u, i, true);  // the tasks are dead: what their pipes hold is all there is
        close_end(&r->tasks[i].in);
        close_end(&r->tasks[i].out);
        close_end(&r->tasks[i].err);
    }
    close_end(&r->out_file);
    close_end(&r->in_file);
    for (int i = 1; i < 3; i++) {
        launch_kept_close(&r->to[i]);
        if (r->times[i])
            close_end(&r->times[i]->file);
        free(r->times[i]);
    }
    if (r->page) {
        atomic_store(&r->page->in_closed, 1);
        munmap(r->page, sizeof *r->page);
    }
    u->relay = NULL;
}
