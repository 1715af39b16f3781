// Owns that what a job writes to buckets of S3 is sent before the job has ended, or named as missing. Beside the job's
// program there are then two kinds of processes:
//   a sender, one for each bucket, parent of the rclone that answers for the mount. Its cache lies in a folder of its
//     own, where rclone notes of each file whether all of it was sent ("Dirty": false in vfsMeta/);
//   what was acequia-box, parent of the program. When the program has ended it ends what the program has left, so that
//     no file is open any more, asks the senders, and ends as the program did: with 1 if something is missing.
// A folder with something unsent is kept, and named in the output of this job or of the user's next one there.
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <limits.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/buf.h"
#include "base/cleanup.h"
#include "base/clock.h"
#include "base/json.h"
#include "base/text.h"
#include "box/box.h"
#include "launch/box_report.h"
#include "launch/fds.h"
#include "launch/launch.h"

enum {
    DEPTH_MAX = 64,
    NAMES_MAX = 5,
    FOLDERS_MAX = 256,       // of earlier jobs that are looked at
    STILL_MAX_MS = 90000,    // rclone tries again after 10, 20 and 40 s
    SENT_TIMES_MAX = 4,      // all of it so often over, and still something is missing
    SENT_LEAST = 64 << 10,   // less is questions and refusals
    SENT_EXTRA = 16 << 20,
    STEP_MS = 200,
    IDLE_MS = 2000,
    LOOK_SHARE = 20,         // at most one part in so many of the time is spent on looking
    LEFT_TRIES = 1000,
};

// --- what is not sent ---

static bool is_dirty(int folder, const char *name, uint64_t *bytes, bool *gone) {
    cleanup_arena struct arena a = {0};
    cleanup_buf struct buf text = {0};
    cleanup_close int fd = openat(folder, name, O_RDONLY | O_NOFOLLOW | O_CLOEXEC | O_NONBLOCK);
    struct json *v = NULL;
    struct error e;
    ssize_t n = 0;
    if (fd < 0) {
        *gone = errno == ENOENT;
        return !*gone;
    }
    while (text.len < BOX_CONFIG_MAX && (n = read(fd, buf_reserve(&text, 4096), 4096)) > 0)
        text.len += (size_t)n;
    // Being written at this moment, or damaged: it counts until it says otherwise.
    if (n < 0 || json_parse(buf_str(&text), text.len, &a, &v, &e) < 0)
        return true;
    int64_t size = json_i64(v, "Size", 0);
    *bytes = size > 0 ? (uint64_t)size : 0;
    return json_true(v, "Dirty");
}

// below: where we are, for names. The first three folders are rclone's name for the store, and the bucket.
static void look_below(int folder, const char *below, int depth, struct arena *a, struct box_unsent *out) {
    DIR *d = fdopendir(folder);
    if (!d) {
        close(folder);
        return;
    }
    for (struct dirent *ent; (ent = readdir(d));) {
        uint64_t bytes = 0;
        bool gone = false;
        if (streq(ent->d_name, ".") || streq(ent->d_name, ".."))
            continue;
        const char *path = *below ? arena_printf(a, "%s/%s", below, ent->d_name) : arena_strdup(a, ent->d_name);
        int fd = openat(dirfd(d), ent->d_name, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
        if (fd >= 0 && depth < DEPTH_MAX) {
            look_below(fd, path, depth + 1, a, out);
            continue;
        }
        if (fd >= 0)
            close(fd);
        if (!is_dirty(dirfd(d), ent->d_name, &bytes, &gone) || gone)
            continue;
        const char *inside = strchr(path, '/');
        if (out->files++ < NAMES_MAX)
            box_list_add(&out->names, a, inside ? inside + 1 : path);
        out->bytes += bytes;
    }
    closedir(d);
}

void box_unsent_look(int cache, struct arena *a, struct box_unsent *out) {
    int meta = openat(cache, "vfsMeta", O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
    *out = (struct box_unsent){0};
    if (meta >= 0)
        look_below(meta, "", 0, a, out);
}

void box_sending_begin(struct box_sending *s, const struct box_unsent *u, uint64_t sent, int64_t now_ms) {
    *s = (struct box_sending){.since_ms = now_ms,
                              .files = u->files,
                              .sent = sent,
                              .sent_max = sent + u->bytes * SENT_TIMES_MAX + SENT_EXTRA};
}

// A store that refuses is asked again by rclone for ever; a large file is sent for hours and nothing ends meanwhile.
bool box_sending_stuck(struct box_sending *s, const struct box_unsent *u, uint64_t sent, int64_t now_ms) {
    if (u->files < s->files || sent >= s->sent + SENT_LEAST) {
        s->files = u->files;
        s->sent = sent;
        s->since_ms = now_ms;
    }
    return now_ms - s->since_ms > STILL_MAX_MS || sent > s->sent_max;
}

// Bytes that the program wrote anywhere, to the network above all.
static uint64_t sent_by(pid_t program) {
    char path[64], line[128];
    unsigned long long n = 0;
    snprintf(path, sizeof path, "/proc/%d/io", program);
    FILE *f = fopen(path, "re");
    while (f && fgets(line, sizeof line, f))
        if (sscanf(line, "wchar: %llu", &n) == 1)
            break;
    if (f)
        fclose(f);
    return n;
}

// --- the folder ---

static const char *names_of(const struct box_unsent *u, struct arena *a) {
    cleanup_buf struct buf out = {0};
    for (uint32_t i = 0; i < u->names.len; i++) {
        char shown[256];
        buf_addf(&out, "%s%s", i ? ", " : "", str_printable(u->names.at[i], shown, sizeof shown));
    }
    if (u->files > u->names.len)
        buf_addf(&out, " and %" PRIu64 " more", u->files - u->names.len);
    return arena_strdup(a, buf_str(&out));
}

// Of processes that were killed: emptied where all was sent, named where not.
static void look_at_earlier(const char *all) {
    DIR *d = opendir(all);
    uint32_t n = 0;
    for (struct dirent *ent; d && n < FOLDERS_MAX && (ent = readdir(d)); n++) {
        cleanup_arena struct arena a = {0};
        struct box_unsent u;
        cleanup_close int fd =
            *ent->d_name == '.' ? -1 : openat(dirfd(d), ent->d_name, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
        if (fd < 0 || flock(fd, LOCK_EX | LOCK_NB) < 0)
            continue;
        box_unsent_look(fd, &a, &u);
        if (!u.files)
            box_remove(all, ent->d_name);
        else
            dprintf(STDERR_FILENO,
                    "acequia: an earlier job wrote to a bucket and was killed before all was sent: %s. It is in "
                    "%s/%s/vfs; remove %s/%s when you have what you need\n",
                    names_of(&u, &a), all, ent->d_name, all, ent->d_name);
    }
    if (d)
        closedir(d);
}

const char *box_unsent_folder(const char *cache, const char *bucket, struct arena *a, struct error *e) {
    const char *all = arena_printf(a, "%s/unsent", cache);
    char *own = arena_strdup(a, arena_printf(a, "%s/%s.XXXXXX", all, bucket));
    if (mkdir(all, 0700) < 0 && errno != EEXIST) {
        error_set(e, errno, "the folder %s cannot be made: %m", all);
        return NULL;
    }
    look_at_earlier(all);
    if (!mkdtemp(own)) {
        error_set(e, errno, "a folder cannot be made in %s: %m", all);
        return NULL;
    }
    // Never closed: it is locked as long as this process lives.
    int fd = open(own, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
    if (fd < 0 || flock(fd, LOCK_EX) < 0) {
        error_set(e, errno, "the folder %s cannot be locked: %m", own);
        return NULL;
    }
    return own;
}

// --- the sender ---

static volatile sig_atomic_t asked_to_end;

static void on_end(int number) {
    (void)number;
    asked_to_end = 1;
}

struct bucket_sender {
    const char *url, *folder;
    pid_t program;
    int cache, line;
    bool said, ended, program_gone;
};

static void say_unsent(struct bucket_sender *s, const char *what, const char *then) {
    cleanup_arena struct arena a = {0};
    struct box_unsent u;
    box_unsent_look(s->cache, &a, &u);
    if (u.files)
        dprintf(STDERR_FILENO, "acequia: %" PRIu64 " file%s %s to %s: %s%s %s/vfs\n", u.files,
                u.files == 1 ? "" : "s", what, s->url, names_of(&u, &a), then, s->folder);
    s->said = u.files > 0;
}

static void wait_step(struct bucket_sender *s, int64_t ms) {
    struct pollfd p = {.fd = s->ended ? -1 : s->line, .events = POLLIN};
    if (poll(&p, 1, (int)ms) > 0)
        s->ended = true;  // nothing is ever sent on the line: its other end was closed
    if (!s->program_gone && waitpid(s->program, NULL, WNOHANG) == s->program) {
        s->program_gone = true;
        dprintf(STDERR_FILENO, "acequia: the program that mounts %s has ended\n", s->url);
    }
    if (asked_to_end && !s->said) {
        asked_to_end = 0;
        say_unsent(s, "not sent yet", "; it is being sent. If the job is killed before, what is missing is in");
    }
}

static bool send_rest(struct bucket_sender *s) {
    struct box_sending sending;
    struct box_unsent u;
    int64_t wait_ms = 0;
    for (bool first = true;; first = false) {
        cleanup_arena struct arena a = {0};
        int64_t began_ms = clock_mono_ms();
        box_unsent_look(s->cache, &a, &u);
        int64_t now_ms = clock_mono_ms();
        if (!u.files)
            return true;
        if (first)
            box_sending_begin(&sending, &u, sent_by(s->program), now_ms);
        if (s->program_gone || box_sending_stuck(&sending, &u, sent_by(s->program), now_ms))
            return false;
        wait_ms = (now_ms - began_ms) * LOOK_SHARE;
        wait_step(s, wait_ms > STEP_MS ? wait_ms : STEP_MS);
    }
}

void box_bucket_send(const char *url, const char *folder, pid_t program, int line) {
    struct bucket_sender s = {.url = url, .folder = folder, .program = program, .line = line};
    struct sigaction end = {.sa_handler = on_end};
    static const int ignored[] = {SIGHUP, SIGINT, SIGQUIT, SIGUSR1, SIGUSR2, SIGPIPE};
    close(BOX_REPORT_FD);
    for (size_t i = 0; i < sizeof ignored / sizeof *ignored; i++)
        signal(ignored[i], SIG_IGN);
    sigaction(SIGTERM, &end, NULL);
    s.cache = open(folder, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
    launch_fds_send(line, folder, strlen(folder) + 1, &s.cache, s.cache >= 0);
    while (!s.ended)
        wait_step(&s, IDLE_MS);
    char missing = !send_rest(&s);
    if (missing)
        say_unsent(&s, "could not be sent", "; what rclone says is above. What is missing is in");
    else if (s.said)
        dprintf(STDERR_FILENO, "acequia: all of it was sent\n");
    kill(program, SIGKILL);
    while (!s.program_gone && waitpid(program, NULL, 0) < 0 && errno == EINTR)
        ;
    if (!missing)
        box_remove(strndup(folder, (size_t)(strrchr(folder, '/') - folder)), strrchr(folder, '/') + 1);
    _exit(write(line, &missing, 1) != 1);
}

// --- the process that waits ---

static void pass_on(pid_t program, const siginfo_t *i) {
    if (i->si_code == SI_QUEUE && i->si_value.sival_int == LAUNCH_SIGNAL_PASS_ON)
        kill(program, i->si_signo);
}

static int wait_for_program(pid_t program) {
    sigset_t all;
    siginfo_t info;
    int status;
    sigfillset(&all);
    sigprocmask(SIG_BLOCK, &all, NULL);
    for (;;) {
        pid_t got = waitpid(-1, &status, WNOHANG);
        if (got == program)
            return status;
        if (got > 0)
            continue;
        if (sigwaitinfo(&all, &info) > 0)
            pass_on(program, &info);
    }
}

// What the program has started and left, wherever it hid: its parent is this process by now. As for all jobs, it ends
// with the program; here before the files that it holds are sent.
static void end_what_is_left(void) {
    char path[64], line[4096];
    snprintf(path, sizeof path, "/proc/self/task/%d/children", getpid());
    for (int i = 0; i < LEFT_TRIES; i++) {
        FILE *f = fopen(path, "re");
        char *p = f ? fgets(line, sizeof line, f) : NULL, *end;
        bool any = false;
        for (long pid; p && (pid = strtol(p, &end, 10)) > 0; p = end)
            any |= kill((pid_t)pid, SIGKILL) == 0;
        if (f)
            fclose(f);
        if (!any)
            return;
        while (waitpid(-1, NULL, WNOHANG) > 0)
            ;
        poll(NULL, 0, 1);
    }
}

// Whether something is missing, as the sender says at its end. One that was killed has said at its start where its
// files are; they may lie where this process cannot see them by name.
static bool ask_sender(const char *url, int line) {
    char folder[PATH_MAX] = "", said = 1;
    int nfds = 0, cache = -1;
    struct bucket_sender s = {.url = url, .folder = folder};
    if (launch_fds_receive(line, folder, sizeof folder - 1, &cache, 1, &nfds) > 0 && recv(line, &said, 1, 0) == 1)
        return said != 0;
    dprintf(STDERR_FILENO,
            "acequia: what was written to %s may be missing there: the process that sends it has ended\n", url);
    s.cache = cache;
    if (nfds == 1)
        say_unsent(&s, "not known to be sent", "; what is missing is in");
    return true;
}

_Noreturn static void end_as(int status, bool missing) {
    struct rlimit none = {0};
    sigset_t all;
    if (WIFEXITED(status))
        _exit(WEXITSTATUS(status) ? WEXITSTATUS(status) : missing);
    setrlimit(RLIMIT_CORE, &none);
    signal(WTERMSIG(status), SIG_DFL);
    sigfillset(&all);
    sigprocmask(SIG_UNBLOCK, &all, NULL);
    kill(getpid(), WTERMSIG(status));
    _exit(128 + WTERMSIG(status));
}

void box_buckets_wait(const struct box_senders *senders) {
    pid_t self = getpid();
    bool missing = false;
    if (!senders->len)
        return;
    pid_t pid = fork();
    if (pid == 0) {
        prctl(PR_SET_PDEATHSIG, SIGKILL);
        if (getppid() == self)
            return;
        _exit(127);
    }
    prctl(PR_SET_CHILD_SUBREAPER, 1);
    close(BOX_REPORT_FD);
    if (pid < 0) {
        dprintf(STDERR_FILENO, "acequia: the job's program cannot be started: %s\n", strerror(errno));
        _exit(127);
    }
    int status = wait_for_program(pid);
    end_what_is_left();
    for (uint32_t i = 0; i < senders->len; i++)
        shutdown(senders->line[i], SHUT_WR);  // all begin now
    for (uint32_t i = 0; i < senders->len; i++)
        missing |= ask_sender(senders->url[i], senders->line[i]);
    end_as(status, missing);
}
