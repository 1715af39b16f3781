// Looks at the job's output: how far it says it has come (also its progress file), and when lines were written. A
// process of its own does it, as the job's user: the file systems are anybody's, and may hang. How far goes into a
// shared page, times into an index in the spool folder (launch/log_times.h).
#include <errno.h>
#include <fcntl.h>
#include <grp.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#include "base/cleanup.h"
#include "base/clock.h"
#include "base/text.h"
#include "launch/log_times.h"
#include "model/progress.h"
#include "shepherd.h"

enum {
    LOOK_AFTER_MS = 5000,
    LOOK_EVERY_MS = 3000,
    TIMES_BUSY_MS = 250,  // while the job prints
    TIMES_QUIET_MS = 1000,
    FILE_AFTER_MS = 500,
    KEPT_FDS = 16,
    PROGRESS_SOURCES = 2,
    READER_FDS = 2 * PROGRESS_SOURCES,  // the outputs, then their indexes
};
_Static_assert((int)LAUNCH_PROGRESS_MAX == (int)PROGRESS_TEXT_MAX,
               "the control socket carries the text whole");

// Written by the reader alone. `version` is odd while it writes: a shepherd that meets that takes the next one.
struct progress_page {
    _Atomic uint32_t version;
    int32_t milli;  // -1: none
    char text[PROGRESS_TEXT_MAX];
};

static void publish(struct progress_page *page, const struct progress *p) {
    atomic_fetch_add(&page->version, 1);
    page->milli = (int32_t)p->milli;
    memcpy(page->text, p->text, sizeof page->text);
    atomic_fetch_add(&page->version, 1);
}

bool shepherd_become(const struct launch_request *r) {
    if (!r->switch_user)
        return true;
    if (setgroups(r->ngroups, r->groups) < 0 || setresgid(r->gid, r->gid, r->gid) < 0 ||
        setresuid(r->uid, r->uid, r->uid) < 0)
        return false;
    return r->uid == 0 || setuid(0) < 0;
}

static const char *progress_path(const struct launch_request *r) {
    const char *prefix = PROGRESS_FILE_VARIABLE "=";
    for (uint32_t i = 0; i < r->nenv; i++)
        if (str_has_prefix(r->env[i], prefix))
            return r->env[i] + strlen(prefix);
    return NULL;
}

// A plain file that belongs to the job's user: in a folder for everybody another one may have put his there.
static int open_progress_file(const struct launch_request *r) {
    const char *path = progress_path(r);
    struct stat st;
    if (!path || path[0] != '/')
        return -1;
    int fd = open(path, O_RDONLY | O_NONBLOCK | O_NOFOLLOW | O_CLOEXEC | O_NOCTTY);
    if (fd >= 0 && (fstat(fd, &st) < 0 || !S_ISREG(st.st_mode) || st.st_uid != geteuid())) {
        close(fd);
        return -1;
    }
    return fd;
}

static bool look_at_file(const struct launch_request *r, struct progress *out) {
    char text[PROGRESS_TAIL_MAX];
    cleanup_close int fd = open_progress_file(r);
    ssize_t n = fd < 0 ? -1 : pread(fd, text, sizeof text, 0);
    return n > 0 && progress_from_file(text, (size_t)n, out);
}

// Only when it has grown or was emptied: most looks cost one fstat.
static bool look_at_output(int fd, off_t *seen, struct progress *out) {
    char text[PROGRESS_TAIL_MAX];
    struct stat st;
    if (fd < 0 || fstat(fd, &st) < 0 || !S_ISREG(st.st_mode) || st.st_size == *seen)
        return false;
    *seen = st.st_size;
    off_t from = st.st_size > (off_t)sizeof text ? st.st_size - (off_t)sizeof text : 0;
    ssize_t n = pread(fd, text, sizeof text, from);
    return n > 0 && progress_from_output(text, (size_t)n, out);
}

// The task's standard output and error as it opened them, and read with the user's rights.
static int reopen(int fd) {
    char path[32];
    struct stat st;
    if (fd < 0 || fstat(fd, &st) < 0 || !S_ISREG(st.st_mode))
        return -1;
    snprintf(path, sizeof path, "/proc/self/fd/%d", fd);
    return open(path, O_RDONLY | O_NONBLOCK | O_CLOEXEC | O_NOCTTY);
}

// Lets go of everything else of the shepherd's: a pipe to a task's standard input that stayed open here would never
// come to its end there.
static void keep_only(const int from[READER_FDS], int to[READER_FDS]) {
    for (int i = 0; i < READER_FDS; i++)
        to[i] = from[i] < 0 ? -1 : fcntl(from[i], F_DUPFD, KEPT_FDS);
    for (int i = 0; i < READER_FDS; i++)
        to[i] = to[i] < 0 ? -1 : dup3(to[i], i, 0);
    close_range(READER_FDS, ~0U, 0);
}

// The time of the last write is what the file system says, unless its clock is not ours. Of the bytes that were there
// `before` the attempt nothing is known. True: it has changed.
static bool look_at_times(int fd, int index, struct log_times *t, uint64_t before) {
    struct stat st;
    if (fd < 0 || index < 0 || fstat(fd, &st) < 0 ||
        (uint64_t)st.st_size == (t->len ? t->at[t->len - 1].upto : 0))
        return false;
    int64_t now_ms = clock_wall_ms();
    int64_t written_ms = (int64_t)st.st_mtim.tv_sec * 1000 + st.st_mtim.tv_nsec / 1000000;
    bool believed = written_ms <= now_ms && now_ms - written_ms <= 2 * TIMES_QUIET_MS;
    if (!t->len && before && before <= (uint64_t)st.st_size)
        launch_times_note(t, before, 0, index);
    launch_times_note(t, (uint64_t)st.st_size, believed ? written_ms : now_ms, index);
    return true;
}

static bool is_same_file(int a, int b) {
    struct stat x, y;
    return a >= 0 && b >= 0 && fstat(a, &x) == 0 && fstat(b, &y) == 0 && x.st_dev == y.st_dev &&
           x.st_ino == y.st_ino;
}

static void look_at_progress(const struct launch_request *r, const int fds[PROGRESS_SOURCES], off_t *seen,
                             struct progress_page *page) {
    struct progress p;
    // The file is the job's own word, and counts more than what it prints.
    bool found = look_at_file(r, &p);
    for (int i = 0; i < PROGRESS_SOURCES && !found; i++)
        found = look_at_output(fds[i], &seen[i], &p);
    if (found)
        publish(page, &p);
}

_Noreturn static void read_on(const struct shepherd_unit *u, const int given[READER_FDS],
                              struct progress_page *page, pid_t shepherd) {
    const struct launch_request *r = &u->req;
    static struct log_times times[PROGRESS_SOURCES];
    int fds[READER_FDS];
    off_t seen[PROGRESS_SOURCES] = {0};
    int64_t next_progress_ms = clock_mono_ms() + LOOK_AFTER_MS - TIMES_AFTER_MS;
    struct rlimit most = {sizeof times[0].at, sizeof times[0].at};
    sigset_t none;
    keep_only(given, fds);
    prctl(PR_SET_NAME, "progress-reader");
    child_reset_signals();
    sigemptyset(&none);
    sigprocmask(SIG_SETMASK, &none, NULL);
    if (setrlimit(RLIMIT_FSIZE, &most) < 0 || !shepherd_become(r) || prctl(PR_SET_PDEATHSIG, SIGKILL) < 0 ||
        getppid() != shepherd)
        _exit(1);
    for (int i = 0; i < PROGRESS_SOURCES; i++)
        fds[i] = reopen(fds[i]);
    if (is_same_file(fds[0], fds[1]))
        fds[PROGRESS_SOURCES + 1] = -1;
    for (;;) {
        bool busy = false;
        for (int i = 0; i < PROGRESS_SOURCES; i++)
            busy |= look_at_times(fds[i], fds[PROGRESS_SOURCES + i], &times[i], u->note->before[i]);
        if (clock_mono_ms() >= next_progress_ms) {
            look_at_progress(r, fds, seen, page);
            next_progress_ms = clock_mono_ms() + LOOK_EVERY_MS;
        }
        int64_t nap_ms = busy ? TIMES_BUSY_MS : TIMES_QUIET_MS;
        nanosleep(&(struct timespec){.tv_sec = nap_ms / 1000, .tv_nsec = nap_ms % 1000 * 1000000}, NULL);
    }
}

// Only where there is something to index: attached jobs have theirs from the shepherd itself (relay.c).
static int make_index(struct shepherd *s, int i, int output) {
    struct stat st;
    if (output < 0 || fstat(output, &st) < 0 || !S_ISREG(st.st_mode))
        return -1;
    return openat(s->folder_fd, launch_times_names[i], O_RDWR | O_CREAT | O_TRUNC | O_CLOEXEC | O_NOFOLLOW,
                  0600);
}

void progress_start(struct shepherd *s) {
    struct shepherd_unit *m = &s->units[0];
    pid_t first = m->req.ntasks ? m->pids[0] : 0, self = getpid();
    s->progress_reader = -1;
    if (!s->progress)
        s->progress =
            mmap(NULL, sizeof *s->progress, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    if (s->progress == MAP_FAILED)
        s->progress = NULL;
    if (!s->progress)
        return;
    *s->progress = (struct progress_page){.milli = -1};
    if (first <= 0)
        return;
    cleanup_close int pidfd = (int)syscall(SYS_pidfd_open, first, 0);
    cleanup_close int out = pidfd < 0 ? -1 : (int)syscall(SYS_pidfd_getfd, pidfd, STDOUT_FILENO, 0);
    cleanup_close int err = pidfd < 0 ? -1 : (int)syscall(SYS_pidfd_getfd, pidfd, STDERR_FILENO, 0);
    cleanup_close int out_times = make_index(s, 0, out), err_times = make_index(s, 1, err);
    s->progress_reader = fork();
    if (s->progress_reader == 0)
        read_on(m, (int[]){out, err, out_times, err_times}, s->progress, self);
}

void progress_look(struct shepherd *s, int64_t ran_ms, struct control_reply *reply) {
    reply->progress_milli = -1;
    if (s->units[0].phase != UNIT_RUNNING || ran_ms < LOOK_AFTER_MS || !s->progress)
        return;
    uint32_t version = atomic_load(&s->progress->version);
    int32_t milli = s->progress->milli;
    memcpy(reply->progress_text, s->progress->text, sizeof reply->progress_text);
    if (version % 2 == 0 && version == atomic_load(&s->progress->version))
        reply->progress_milli = milli;
}

void progress_forget(struct shepherd *s, int64_t ran_ms) {
    const char *path = progress_path(&s->units[0].req);
    // One that the job named itself stays: it is the job's. The agent gives no such name that a user has chosen.
    if (ran_ms >= FILE_AFTER_MS && path && str_has_prefix(path, PROGRESS_FILE_PREFIX) &&
        !strchr(path + strlen(PROGRESS_FILE_PREFIX), '/'))
        unlink(path);
}

void progress_end(struct shepherd *s) {
    if (s->progress_reader > 0)
        kill(s->progress_reader, SIGKILL);
}
