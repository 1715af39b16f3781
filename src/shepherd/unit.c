// Owns one unit: its request, its processes, and its status on disk. The status is written
// before the first process is made, so that a unit is never started twice, and once more at its
// end; nothing in between needs the disk.
#include <assert.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "base/alloc.h"
#include "base/cleanup.h"
#include "base/clock.h"
#include "base/text.h"
#include "cgroup/procs.h"
#include "launch/box_report.h"
#include "shepherd.h"

enum { OPENED_PATIENCE_MS = 2000, MEBIBYTE = 1 << 20 };

// The lock before anything is read: whoever had it may have written the end meanwhile.
static int lock_unit(struct shepherd *s, int fd) {
    struct flock l = {.l_type = F_WRLCK, .l_whence = SEEK_SET};
    if (fcntl(fd, F_SETLK, &l) == 0)
        return 0;
    shepherd_settle(s);  // somebody has it, and that may last
    int rc;
    do
        rc = fcntl(fd, F_SETLKW, &l);
    while (rc < 0 && errno == EINTR);
    return rc < 0 ? -errno : 0;
}

int unit_load(struct shepherd *s, struct shepherd_unit *u, uint32_t step, struct error *e) {
    char name[SPOOL_NAME_MAX];
    struct stat st;
    *u = (struct shepherd_unit){.step = step, .fds = {-1, -1, -1}, .mpi = {.fd = -1, .task_fd = -1}};
    u->note = &s->notes[u - s->units];
    if (u - s->units >= s->units_top)
        s->units_top = (int)(u - s->units) + 1;
    *u->note = (struct launch_note){0};
    spool_unit_name(name, step);
    u->file = openat(s->folder_fd, name, O_RDWR | O_CLOEXEC | O_NOFOLLOW);
    if (u->file < 0)
        return error_set(e, errno, "the launch request is gone");
    // The lock tells the agent that this attempt has a living shepherd; steps live and die with it.
    int rc = step ? 0 : lock_unit(s, u->file);
    if (rc < 0 || fstat(u->file, &st) < 0 ||
        pread(u->file, &u->status, sizeof u->status, 0) != sizeof u->status)
        return error_set(e, EIO, "the launch request cannot be read");
    if (!spool_sealed(&u->status) || u->status.step != step || u->status.ntasks > LAUNCH_TASKS_MAX)
        return error_set(e, EBADMSG, "the launch request is damaged");
    // A shepherd that is started again for the same attempt must not run the job a second time.
    if (u->status.state != SPOOL_CREATED)
        return error_set(e, EALREADY, "the attempt was started or has ended before");
    off_t head = SPOOL_STATUS_SIZE + (off_t)u->status.ntasks * (off_t)sizeof(int32_t);
    if (st.st_size <= head || st.st_size > head + LAUNCH_REQUEST_MAX)
        return error_set(e, EBADMSG, "the launch request is damaged");
    size_t len = (size_t)(st.st_size - head);
    char *data = arena_alloc(&u->arena, len);
    if (pread(u->file, data, len, head) != (ssize_t)len)
        return error_set(e, EIO, "the launch request cannot be read");
    rc = launch_decode(data, len, &u->arena, &u->req, e);
    if (rc < 0)
        return rc;
    if (u->req.ntasks != u->status.ntasks || u->req.job != u->status.job ||
        u->req.attempt != u->status.attempt || u->req.step != step)
        return error_set(e, EBADMSG, "the launch request is damaged");
    u->pids = arena_alloc(&u->arena, (u->req.ntasks + 1) * sizeof *u->pids);
    u->exits = arena_alloc(&u->arena, (u->req.ntasks + 1) * sizeof *u->exits);
    return 0;
}

void unit_write(struct shepherd_unit *u) {
    spool_seal(&u->status);
    // In place, in space that was allocated at creation. If even this fails, the record stays as
    // it was and the agent reports the attempt as lost.
    if (pwrite(u->file, &u->status, sizeof u->status, 0) < 0)
        return;
    if (u->status.state == SPOOL_ENDED && u->req.ntasks > 0 &&
        pwrite(u->file, u->exits, u->req.ntasks * sizeof *u->exits, SPOOL_STATUS_SIZE) < 0)
        return;
}

void unit_hint(struct shepherd *s, const struct shepherd_unit *u) {
    struct spool_hint h = {.job = u->status.job, .attempt = u->status.attempt, .step = u->step,
                           .state = u->status.state};
    if (write(s->hint_fd, &h, sizeof h) < 0)
        return;  // full: the agent looks around by itself now and then
}

void unit_failed(struct shepherd_unit *u, enum launch_code code, const char *text) {
    if (u->verdict)
        return;
    u->verdict = ENDED_LAUNCH_FAILED;
    u->status.launch_code = code;
    snprintf(u->status.text, sizeof u->status.text, "%.*s", (int)sizeof u->status.text - 1, text);
}

// A file that all tasks share is emptied by the first: the others wait for that.
static void wait_opened(struct shepherd *s, struct shepherd_unit *u) {
    struct timespec nap = {.tv_nsec = 500000};
    int64_t until = clock_mono_ms() + OPENED_PATIENCE_MS;
    while (!atomic_load(&u->note->opened) && !atomic_load(&u->note->claimed) &&
           clock_mono_ms() < until) {
        shepherd_settle(s);
        nanosleep(&nap, NULL);
    }
}

static void not_started(struct shepherd *s, struct shepherd_unit *u, uint32_t task, int rc) {
    char text[128];
    snprintf(text, sizeof text, "task %u cannot be started: %s", u->req.tasks[task].rank,
             strerror(-rc));
    unit_failed(u, LAUNCH_RESOURCE, text);
    s->slot.spoilt = true;
}

static void close_fds(struct shepherd_unit *u) {
    for (int i = 0; i < 3; i++) {
        if (u->fds[i] >= 0)
            close(u->fds[i]);
        u->fds[i] = -1;
    }
}

void unit_start(struct shepherd *s, struct shepherd_unit *u, int64_t now_ms) {
    struct spool_status *st = &u->status;
    u->phase = UNIT_RUNNING;
    u->start_ms = now_ms;
    st->state = SPOOL_STARTED;
    st->shepherd_pid = getpid();
    st->cgroup_kind = s->site->kind;
    memcpy(st->cgroup, s->slot.name, sizeof st->cgroup);
    // Written before the first process is made: after a crash in between, the attempt counts as started and is never
    // launched twice.
    st->started_wall_ms = clock_wall_ms();
    st->started_mono_ms = now_ms;
    unit_write(u);
    struct error e;
    int rc = u->step ? cgroup_step_make(&s->slot, u->step, &u->req, &e) : 0;
    if (rc < 0) {
        unit_failed(u, LAUNCH_LIMITS, e.text);
        return;
    }
    u->listed = u->step != 0;
    if (u->req.relay && (rc = relay_open(s, u)) < 0) {
        spool_error(s->spool_fd, -rc, &e,
                    u->step ? "cannot keep the step's output" : "cannot keep the job's output");
        unit_failed(u, LAUNCH_RESOURCE, e.text);
        return;
    }
    if (u->relay)
        close_fds(u);
    if ((rc = mpi_open(s, u)) < 0) {
        unit_failed(u, LAUNCH_RESOURCE, "the helper of the MPI step cannot be started");
        return;
    }
    for (uint32_t i = 0; i < u->req.ntasks && !u->verdict; i++) {
        if ((rc = mpi_task_open(u, u->req.tasks[i].rank)) < 0) {
            not_started(s, u, i, rc);
            break;
        }
        if (u->relay && (rc = relay_task_open(u, i, u->fds)) < 0) {
            not_started(s, u, i, rc);
            break;
        }
        pid_t pid = spawn_task(s, u, i);
        if (u->relay)
            close_fds(u);
        if (u->mpi.task_fd >= 0)
            close(u->mpi.task_fd);
        u->mpi.task_fd = -1;
        if (pid < 0) {
            u->awaited = false;
            not_started(s, u, i, pid);
            break;
        }
        u->pids[i] = pid;
        u->alive++;
        if (i == 0) {
            st->first_pid = pid;
            if (u->req.ntasks > 1 && !u->req.append)
                wait_opened(s, u);
        }
    }
    close_fds(u);
}

// A nursery that is gone makes no process any more: then the note says all there will ever be.
void unit_resolve(struct shepherd *s, struct shepherd_unit *u) {
    if (!u->awaited)
        return;
    int32_t pid = atomic_load(&u->note->pid);
    if (pid == 0 && s->slot.nursery < 0)
        pid = -EPIPE;
    if (pid == 0)
        return;
    u->awaited = false;
    if (pid > 0) {
        u->pids[0] = pid;
        u->status.first_pid = pid;
        if (u->early_signal)
            kill(pid, u->early_signal);
        return;
    }
    u->alive--;
    if (atomic_load(&u->note->claimed))
        unit_failed(u, u->note->code, u->note->text);
    else
        not_started(s, u, 0, pid);
}

struct shepherd_unit *unit_find(struct shepherd *s, uint32_t step) {
    for (int i = 0; i < s->units_top; i++)
        if (s->units[i].phase != UNIT_FREE && s->units[i].step == step)
            return &s->units[i];
    return NULL;
}

static int badness(int status) {
    return WIFSIGNALED(status) ? 1000 + WTERMSIG(status) : WEXITSTATUS(status);
}

// What acequia-box left behind if it could not become the job's program. The user's process wrote it:
// a number within bounds and a line of text, nothing more is believed.
static void read_report(struct shepherd *s, struct shepherd_unit *u) {
    char name[SPOOL_NAME_MAX], text[BOX_REPORT_MAX], clean[SPOOL_TEXT_MAX];
    unsigned code;
    int used = 0;
    spool_report_name(name, u->step);
    cleanup_close int fd = openat(s->folder_fd, name, O_RDONLY | O_CLOEXEC | O_NOFOLLOW);
    ssize_t n = fd < 0 ? -1 : read(fd, text, sizeof text - 1);
    if (n <= 0)
        return;
    text[n] = 0;
    if (sscanf(text, "%u %n", &code, &used) != 1 || code == LAUNCH_OK || code >= LAUNCH_CODES)
        return;
    unit_failed(u, code, str_printable(text + used, clean, sizeof clean - 1));
}

void unit_reaped(struct shepherd *s, struct shepherd_unit *u, uint32_t task, int status) {
    assert(u->alive > 0);
    u->alive--;
    u->pids[task] = 0;
    u->exits[task] = status;
    if (!u->first_end_ms)
        u->first_end_ms = clock_mono_ms();
    if (badness(status) > badness(u->worst)) {
        u->worst = status;
        u->status.failed_rank = u->req.tasks[task].rank;
    }
    if (atomic_load(&u->note->claimed)) {
        unit_failed(u, u->note->code, u->note->text);
        u->status.failed_rank = u->note->rank;
    }
    if (u->req.boxc && status)
        read_report(s, u);
}

static void signal_tasks(struct shepherd_unit *u, int sig) {
    for (uint32_t i = 0; i < u->req.ntasks; i++)
        if (u->pids[i] > 0)
            kill(u->pids[i], sig);
}

// A process that was ordered and is not there yet would miss it.
void unit_signal_later(struct shepherd_unit *u, int sig) {
    if (u->awaited && !atomic_load(&u->note->pid) && sig != SIGCONT && u->early_signal != SIGKILL)
        u->early_signal = sig;
}

void unit_signal(struct shepherd *s, struct shepherd_unit *u, int sig) {
    unit_signal_later(u, sig);
    int n = u->step ? cgroup_signal(&s->slot, u->step, sig) : cgroup_signal_main(&s->slot, sig);
    if (n != -ENOTSUP)
        return;
    for (uint32_t i = 0; i < u->req.ntasks; i++)
        if (u->pids[i] > 0)
            cgroup_procs_signal_tree(u->pids[i], sig, NULL, NULL);
    signal_tasks(u, sig);
}

void unit_end(struct shepherd *s, struct shepherd_unit *u, enum launch_end verdict, uint32_t why, int sig,
              int64_t grace_ms, int64_t now_ms) {
    if (u->phase != UNIT_RUNNING && !(u->phase == UNIT_ENDING && now_ms + grace_ms < u->end_by_ms))
        return;
    if (!u->verdict) {
        u->verdict = verdict;
        u->status.kill_why = why;
    }
    u->phase = UNIT_ENDING;
    u->end_by_ms = now_ms + grace_ms;
    if (grace_ms > 0 && sig != SIGKILL) {
        unit_signal(s, u, sig);
        unit_signal(s, u, SIGCONT);
    } else {
        u->end_by_ms = now_ms;
    }
}

static void take_usage(struct shepherd *s, struct shepherd_unit *u, int64_t now_ms,
                       enum cgroup_oom *oom) {
    struct launch_usage *us = &u->status.usage;
    us->user_us = u->user_us;
    us->system_us = u->system_us;
    us->peak_bytes = u->peak_bytes;
    us->wall_ms = now_ms - u->start_ms;
    if (u->step && u->listed)
        cgroup_step_usage(&s->slot, u->step, u->req.memory_bytes, us, oom);
    else if (!u->step && s->has_slot)
        cgroup_slot_usage(&s->slot, us, oom);
}

static void say_out_of_memory(struct shepherd_unit *u, bool machine) {
    struct spool_status *st = &u->status;
    uint64_t limit = u->req.memory_bytes;
    bool whole = limit % MEBIBYTE == 0;
    if (machine)
        snprintf(st->text, sizeof st->text, "the %snode ran out of memory", u->step ? "job or " : "");
    else
        snprintf(st->text, sizeof st->text, "over the memory limit of %llu%s",
                 (unsigned long long)(whole ? limit / MEBIBYTE : limit), whole ? "M" : " bytes");
}

void unit_write_end(struct shepherd *s, struct shepherd_unit *u, int64_t now_ms) {
    struct spool_status *st = &u->status;
    enum cgroup_oom oom = CGROUP_OOM_NONE;
    relay_close(s, u);  // before the end is told: the output is then complete
    take_usage(s, u, now_ms, &oom);
    st->state = SPOOL_ENDED;
    st->ended_wall_ms = clock_wall_ms();
    st->exit_code = WIFEXITED(u->worst) ? WEXITSTATUS(u->worst) : 0;
    st->signal = WIFSIGNALED(u->worst) ? WTERMSIG(u->worst) : 0;
    if (u->mpi.code) {  // the signal that ended the other ranks was ours
        st->exit_code = u->mpi.code;
        st->signal = 0;
    }
    if (u->verdict)
        st->end = u->verdict;
    else if (oom)
        st->end = ENDED_OUT_OF_MEMORY;
    else
        st->end = st->signal ? ENDED_SIGNALED : ENDED_EXITED;
    if (oom == CGROUP_OOM_LIMIT && st->usage.peak_bytes < u->req.memory_bytes)
        st->usage.peak_bytes = u->req.memory_bytes;  // it was full, also where nobody kept count
    if (st->end == ENDED_OUT_OF_MEMORY)
        say_out_of_memory(u, oom == CGROUP_OOM_MACHINE);
    unit_write(u);
    unit_hint(s, u);
}

void unit_done(struct shepherd *s, struct shepherd_unit *u) {
    relay_close(s, u);
    mpi_close(s, u);
    if (u->listed)
        cgroup_step_remove(&s->slot, u->step);
    for (int i = 0; i < 3; i++)
        if (u->fds[i] >= 0)
            close(u->fds[i]);
    if (u->file >= 0)
        close(u->file);
    arena_done(&u->arena);
    *u = (struct shepherd_unit){.file = -1, .mpi = {.fd = -1, .task_fd = -1}};
}
