// Snapshots are made by a process of their own, `acequiad make-snapshot`: it reads the newest snapshot and the journal
// after it from the database into a core of its own, as a controller that starts would, and writes that core's state.
// The controller's loop only starts it and, when it has ended, hands the bytes to the store. Why not a fork of the
// controller: docs/decisions/store.md.
#include "snapshot_maker.h"

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <spawn.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/cleanup.h"
#include "base/clock.h"
#include "base/log.h"
#include "controller.h"
#include "controller/daemon.h"
#include "past_view.h"

enum {
    MAKER_FD = 3,  // the maker's end of the shared memory
    MAKER_NICE = 10,
    MAKER_OOM_SCORE = 500,    // when memory runs out it goes before the controller
    MAKER_MOST_MS = 1800000,  // longer than a million jobs take on a busy machine
    MAKER_DATA_AT = 4096,     // the bytes of the snapshot begin here
};

// At the beginning of the shared memory; all zero until the snapshot is complete.
struct made_head {
    char magic[8];
    uint64_t seq, len;
};
static const char made_magic[8] = "AQMADE1";

struct snapshot_maker {
    pid_t pid;  // 0: none runs
    int fd;
    int64_t began_ms;
};

// --- the controller's side ---

static int spawn_maker(struct controller *c, struct snapshot_maker *m) {
    const char *const argv[] = {"acequiad", "make-snapshot", c->place, c->paths.state, NULL};
    posix_spawn_file_actions_t files;
    posix_spawnattr_t attributes;
    sigset_t none, usual;
    sigemptyset(&none);
    sigfillset(&usual);
    posix_spawn_file_actions_init(&files);
    posix_spawnattr_init(&attributes);
    posix_spawnattr_setsigmask(&attributes, &none);
    posix_spawnattr_setsigdefault(&attributes, &usual);
    posix_spawnattr_setflags(&attributes, POSIX_SPAWN_SETSIGMASK | POSIX_SPAWN_SETSIGDEF);
    int r = posix_spawn_file_actions_adddup2(&files, m->fd, MAKER_FD);
    if (r == 0)
        r = posix_spawn(&m->pid, c->program, &files, &attributes, (char **)(uintptr_t)argv, environ);
    posix_spawnattr_destroy(&attributes);
    posix_spawn_file_actions_destroy(&files);
    return -r;
}

int controller_snapshot_start(void *ctx) {
    struct controller *c = ctx;
    struct snapshot_maker *m = c->snapshot_maker;
    if (!m)
        m = c->snapshot_maker = xcalloc(1, sizeof *m);
    if (m->pid)
        return -EBUSY;
    m->fd = memfd_create("acequia-snapshot", MFD_CLOEXEC);
    int r = m->fd < 0 ? -errno : spawn_maker(c, m);
    if (r == 0) {
        m->began_ms = clock_mono_ms();
        return 0;
    }
    if (m->fd >= 0)
        close(m->fd);
    m->pid = 0;
    log_warn("no snapshot can be made: %s; the journal grows until the next one", strerror(-r));
    return r;
}

// Hands over what the maker has written.
static int hand_over(struct controller *c, int fd) {
    struct made_head h;
    if (pread(fd, &h, sizeof h, 0) != (ssize_t)sizeof h || memcmp(h.magic, made_magic, sizeof h.magic) != 0 ||
        !h.seq || h.seq > core_seq(c->core))
        return -EBADMSG;
    return pipeline_snapshot_made(c->pipeline, h.seq, fd, MAKER_DATA_AT, h.len);
}

static void ended(struct controller *c, struct snapshot_maker *m, int status) {
    int fd = m->fd;
    int r = WIFEXITED(status) && WEXITSTATUS(status) == 0 ? hand_over(c, fd) : -ECHILD;
    m->pid = 0;
    m->fd = -1;
    if (r == 0) {
        log_debug("a snapshot was made in %lld ms", (long long)(clock_mono_ms() - m->began_ms));
        return;
    }
    close(fd);
    pipeline_snapshot_failed(c->pipeline);
    if (r == -ECHILD)
        log_warn("the process that makes snapshots failed (%s %d); the journal grows until the next one",
                 WIFSIGNALED(status) ? "signal" : "exit status",
                 WIFSIGNALED(status) ? WTERMSIG(status) : WEXITSTATUS(status));
    else
        log_warn("a snapshot that was made cannot be used: %s; the journal grows until the next one", strerror(-r));
}

bool controller_snapshot_tick(struct controller *c) {
    struct snapshot_maker *m = c->snapshot_maker;
    int status;
    if (!m || !m->pid)
        return false;
    pid_t pid = waitpid(m->pid, &status, WNOHANG);
    if (pid == 0 && clock_mono_ms() - m->began_ms > MAKER_MOST_MS)
        kill(m->pid, SIGKILL);
    else if (pid == m->pid || (pid < 0 && errno == ECHILD))
        ended(c, m, pid < 0 ? 1 << 8 : status);
    return m->pid;
}

void controller_snapshot_stop(struct controller *c) {
    struct snapshot_maker *m = c->snapshot_maker;
    if (!m || !m->pid)
        return;
    kill(m->pid, SIGKILL);
    waitpid(m->pid, NULL, 0);
    close(m->fd);
    m->pid = 0;
    pipeline_snapshot_failed(c->pipeline);
}

// --- the maker's side ---

struct making {
    struct core *core;
    int64_t at_ms;  // of the newest event
};

static int load_snapshot(void *ctx, uint64_t seq, const void *data, size_t len) {
    struct error e = {0};
    int r = core_load_snapshot(((struct making *)ctx)->core, seq, data, len, &e);
    if (r < 0)
        log_warn("%s", e.text);
    return r;
}

static int load_event(void *ctx, const struct store_event *e) {
    struct making *m = ctx;
    m->at_ms = e->at_ms;
    return core_replay(m->core, e->seq, e->at_ms, (enum event_type)e->type, e->data, e->len);
}

static int write_at(const void *data, size_t len, off_t at) {
    const char *p = data;
    while (len) {
        ssize_t n = pwrite(MAKER_FD, p, len, at);
        if (n < 0 && errno == EINTR)
            continue;
        if (n <= 0)
            return n < 0 ? -errno : -EIO;
        p += n;
        at += n;
        len -= (size_t)n;
    }
    return 0;
}

// Leaves the controller its processor and its memory; ends with it.
void controller_stay_behind(void) {
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    setpriority(PRIO_PROCESS, 0, MAKER_NICE);
    cleanup_close int fd = open("/proc/self/oom_score_adj", O_WRONLY | O_CLOEXEC);
    char text[8];
    int len = snprintf(text, sizeof text, "%d", MAKER_OOM_SCORE);
    if (fd >= 0)
        (void)!write(fd, text, (size_t)len);
}

int controller_snapshot_main(int argc, char **argv) {
    struct core_config config;
    struct error e = {0};
    struct made_head head = {0};
    if (argc != 3) {
        log_error("make-snapshot is started by the controller");
        return 2;
    }
    controller_stay_behind();
    core_config_default(&config);  // the state does not depend on it
    struct core *core = core_new(&config);
    struct making making = {.core = core};
    struct store_loader loader = {&making, load_snapshot, load_event};
    if (store_load_copy(argv[1], &loader, &head.seq, &e) < 0) {
        log_error("a snapshot cannot be made: %s", e.text);
        return 1;
    }
    struct buf bytes = {0};
    core_snapshot(core, &bytes);
    head.len = bytes.len;
    memcpy(head.magic, made_magic, sizeof head.magic);
    int r = write_at(bytes.data, bytes.len, MAKER_DATA_AT);
    if (r == 0)
        r = write_at(&head, sizeof head, 0);
    if (r < 0)
        log_error("a snapshot cannot be made: %s", strerror(-r));
    else if (making.at_ms)
        past_keep(argv[2], head.seq, making.at_ms, bytes.data, bytes.len);
    return r < 0;  // the memory goes with the process
}
