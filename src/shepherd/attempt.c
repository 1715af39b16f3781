// Owns the life of one attempt: prepare limits, start, watch over time and memory, serve the
// agent, and at the end leave not one process behind. Time is the monotonic clock throughout, so
// a wall clock that jumps changes nothing. All of it holds while the agent is dead.
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "base/cleanup.h"
#include "base/clock.h"
#include "base/text.h"
#include "cgroup/procs.h"
#include "model/event.h"
#include "shepherd.h"

enum {
    LOOK_FIRST_MS = 50,
    LOOK_MAX_MS = 1000,
    KILL_EVERY_MS = 5,
    FOLDER_LOOK_MS = 10000,
    ENDING_LOOK_MS = 20,
    BLOCKED_LOOK_MS = 20,
    POLL_MAX_MS = 60000,
    REAP_NAPS = 100,
    REAP_NAP_US = 1000,
    RELAY_POLL_MAX = 8192,  // descriptors of steps that are watched at once
};

static struct shepherd_unit *main_unit(struct shepherd *s) {
    return &s->units[0];
}

void attempt_signal(struct shepherd *s, enum signal_target target, int sig) {
    struct shepherd_unit *m = main_unit(s);
    if (target != SIGNAL_STEPS)
        unit_signal_later(m, sig);
    if (target == SIGNAL_ALL) {
        if (cgroup_signal(&s->slot, 0, sig) == -ENOTSUP)
            cgroup_procs_signal_tree(getpid(), sig, NULL, NULL);
        return;
    }
    if (target == SIGNAL_MAIN) {  // the script or tasks themselves, not what they started
        // A process that waits for the program tells by the mark that it did not get the signal too.
        union sigval mark = {.sival_int = LAUNCH_SIGNAL_PASS_ON};
        for (uint32_t i = 0; i < m->req.ntasks; i++)
            if (m->pids[i] > 0 && sigqueue(m->pids[i], sig, mark) < 0)
                kill(m->pids[i], sig);
        return;
    }
    for (int i = 1; i < s->units_top; i++)
        if (s->units[i].phase != UNIT_FREE && s->units[i].step != SPOOL_HEALTH_STEP)
            unit_signal(s, &s->units[i], sig);
}

static const char *node_name(const struct launch_request *r) {
    for (uint32_t i = 0; i < r->nenv; i++)
        if (str_has_prefix(r->env[i], "SLURMD_NODENAME="))
            return r->env[i] + strlen("SLURMD_NODENAME=");
    return "";
}

// A task that was made a moment ago has the shepherd's own log where its output will be.
static bool is_own_log(const struct stat *st) {
    struct stat own;
    return fstat(STDERR_FILENO, &own) == 0 && own.st_dev == st->st_dev && own.st_ino == st->st_ino;
}

// Says in the job's own output that it is being ended. The descriptor is taken over from the task as
// it opened it, so that nothing is written that it could not write. Only to files, and by a process of
// its own: the file system may be anybody's, and hang.
static void tell_end(struct shepherd *s, enum launch_end verdict, uint32_t why) {
    struct shepherd_unit *m = main_unit(s);
    pid_t first = m->req.ntasks ? m->pids[0] : 0;
    cleanup_close int pidfd = first > 0 ? (int)syscall(SYS_pidfd_open, first, 0) : -1;
    cleanup_close int fd = pidfd < 0 ? -1 : (int)syscall(SYS_pidfd_getfd, pidfd, STDERR_FILENO, 0);
    struct stat st;
    struct tm tm;
    time_t now = time(NULL);
    char when[32], text[320];
    if (!m->relay && (fd < 0 || fstat(fd, &st) < 0 || !S_ISREG(st.st_mode) || is_own_log(&st)))
        return;
    if (!localtime_r(&now, &tm) || !strftime(when, sizeof when, "%FT%T", &tm))
        return;
    unsigned long long job = m->req.job;
    bool late = verdict == ENDED_TIMEOUT;
    const char *due = late                 ? " DUE TO TIME LIMIT"
                      : why == END_REQUEUE ? " DUE TO JOB REQUEUE"
                      : why == END_PREEMPT ? " DUE TO PREEMPTION"
                                           : "";
    int n = m->req.slurm_words
                ? snprintf(text, sizeof text, "slurmstepd: error: *** JOB %llu ON %.100s CANCELLED AT %s%s ***\n", job,
                           node_name(&m->req), when, due)
                : snprintf(text, sizeof text, "acequia: job %llu %s, %s on %.100s\n", job,
                           late ? "reached its time limit" : "was ended", when, node_name(&m->req));
    if (n <= 0 || m->relay) {
        if (n > 0)
            relay_say(m, text, (size_t)n);
        return;
    }
    if ((s->teller = fork()) != 0)
        return;
    sigset_t none;
    sigemptyset(&none);
    signal(SIGALRM, SIG_DFL);
    sigprocmask(SIG_SETMASK, &none, NULL);
    alarm(TELL_PATIENCE_S);
    _exit(write(fd, text, (size_t)n) == n ? 0 : 1);  // a full disk: the end goes on
}

void attempt_end(struct shepherd *s, enum launch_end verdict, uint32_t why, int sig,
                 int64_t grace_ms, int64_t now_ms) {
    struct shepherd_unit *m = main_unit(s);
    bool first = m->phase == UNIT_RUNNING;
    if (first && (verdict == ENDED_TIMEOUT || verdict == ENDED_KILLED))
        tell_end(s, verdict, why);
    unit_end(s, m, verdict, why, 0, grace_ms, now_ms);
    progress_end(s);
    health_end(s);
    if (first && grace_ms > 0 && sig != SIGKILL) {
        attempt_signal(s, SIGNAL_ALL, sig);
        attempt_signal(s, SIGNAL_ALL, SIGCONT);
    }
}

static void account(struct shepherd_unit *u, const struct rusage *ru) {
    u->user_us += (uint64_t)ru->ru_utime.tv_sec * 1000000 + (uint64_t)ru->ru_utime.tv_usec;
    u->system_us += (uint64_t)ru->ru_stime.tv_sec * 1000000 + (uint64_t)ru->ru_stime.tv_usec;
    uint64_t peak = (uint64_t)ru->ru_maxrss * 1024;
    if (peak > u->peak_bytes)
        u->peak_bytes = peak;
}

static void resolve_units(struct shepherd *s) {
    for (int i = 0; i < s->units_top; i++)
        if (s->units[i].phase != UNIT_FREE)
            unit_resolve(s, &s->units[i]);
}

// Collects every child that ended: tasks, and orphans of the job that fell to us.
// Units are resolved first and again for each child: the nursery starts the first task and writes its process id into
// shared memory, and the process may end before anybody has looked there.
static void reap(struct shepherd *s) {
    struct rusage ru;
    int status;
    pid_t pid;
    resolve_units(s);
    while ((pid = wait4(-1, &status, WNOHANG, &ru)) > 0) {
        struct shepherd_unit *owner = main_unit(s);
        if (pid == s->slot.nursery) {
            s->slot.nursery = -1;  // nothing can be started any more; the slot goes afterwards
            s->slot.spoilt = true;
            resolve_units(s);
            continue;
        }
        if (pid == s->teller || health_reaped(s, pid, status) || mpi_reaped(s, pid, status, clock_mono_ms()))
            continue;
        if (pid == s->gateway) {
            s->gateway = 0;  // the job has no way out any more; what it serves is still reached
            continue;
        }
        if (pid == s->progress_reader) {
            s->progress_reader = -1;  // not started again: what ended it once would again
            continue;
        }
        resolve_units(s);
        for (int i = 0; i < s->units_top; i++) {
            struct shepherd_unit *u = &s->units[i];
            if (u->phase == UNIT_FREE)
                continue;
            for (uint32_t t = 0; t < u->req.ntasks; t++)
                if (u->pids[t] == pid) {
                    owner = u;
                    unit_reaped(s, u, t, status);
                    t = u->req.ntasks - 1;
                    i = s->units_top - 1;
                }
        }
        account(owner, &ru);
    }
}

static bool any_child_left(const struct shepherd *s) {
    siginfo_t si;
    char text[64];
    if (waitid(P_ALL, 0, &si, WEXITED | WNOHANG | WNOWAIT) < 0)
        return false;
    if (!s->gateway)
        return true;
    // The one that carries the job's network is ours: it stays while the job still has something to send.
    cleanup_close int fd = open("/proc/thread-self/children", O_RDONLY | O_CLOEXEC);
    ssize_t n = fd < 0 ? -1 : read(fd, text, sizeof text - 1);
    text[n > 0 ? n : 0] = 0;
    char *end = text;
    return n < 0 || strtol(text, &end, 10) != s->gateway || end[strspn(end, " ")];
}

// A process leaves its group a moment before its parent can collect it: both must have happened.
static bool nothing_left(struct shepherd *s) {
    for (int i = 0; i < s->units_top; i++)
        if (s->units[i].phase != UNIT_FREE && s->units[i].alive)
            return false;
    if (s->site->kind != CGROUP_NONE && !cgroup_slot_empty(&s->slot))
        return false;
    return s->slot.nursery > 0 || !any_child_left(s);
}

// Kills until nothing is left: by group, else down the tree, to which every orphan returns
// because we are its reaper. Gives up only on what the kernel cannot kill.
// Why it ends: after cgroup_slot_seal nothing can be forked in the group (pids.max 0), so each round kills all there
// are. Without groups the whole tree is stopped before it is killed; a process that forks in between is found in the
// next round, because its parent is dead by then and it has come to us.
static bool sweep(struct shepherd *s) {
    struct timespec nap = {.tv_nsec = KILL_EVERY_MS * 1000000};
    int64_t until = clock_mono_ms() + KILL_PATIENCE_MS;
    bool grouped = s->site->kind != CGROUP_NONE;
    bool sealed = false;
    for (;;) {
        reap(s);
        if (nothing_left(s))
            return true;
        if (clock_mono_ms() > until)
            return false;
        shepherd_settle(s);
        if (grouped) {
            if (!sealed)
                cgroup_slot_seal(&s->slot);
            sealed = true;
            cgroup_signal(&s->slot, 0, SIGKILL);
        } else {
            cgroup_procs_signal_tree(getpid(), SIGSTOP, NULL, NULL);  // so that none forks away
            cgroup_procs_signal_tree(getpid(), SIGKILL, NULL, NULL);
        }
        reap(s);
        if (nothing_left(s))
            return true;
        nanosleep(&nap, NULL);
    }
}

static void look_at_step(struct shepherd *s, struct shepherd_unit *u, int64_t now_ms) {
    uint64_t sum = 0;
    for (uint32_t i = 0; i < u->req.ntasks; i++) {
        struct procs_usage use = {0};
        if (u->pids[i] > 0)
            cgroup_procs_family_usage(u->pids[i], &use);
        sum += use.rss_bytes;
    }
    if (sum > u->peak_bytes)
        u->peak_bytes = sum;
    if (sum > u->req.memory_bytes)
        unit_end(s, u, ENDED_OUT_OF_MEMORY, 0, SIGKILL, 0, now_ms);
}

// Where the kernel enforces no limit. First looks are frequent, since a job that exceeds its memory mostly does so at
// its start; the interval doubles up to LOOK_MAX_MS, because reading /proc for a large job costs.
static void look_at_memory(struct shepherd *s, int64_t now_ms) {
    struct shepherd_unit *m = main_unit(s);
    struct procs_usage use;
    if (s->site->has[CG_MEMORY] || now_ms < s->next_look_ms)
        return;
    s->look_every_ms = s->look_every_ms * 2 > LOOK_MAX_MS ? LOOK_MAX_MS : s->look_every_ms * 2;
    s->next_look_ms = now_ms + s->look_every_ms;
    cgroup_procs_tree_usage(getpid(), &use);
    if (use.rss_bytes > m->peak_bytes)
        m->peak_bytes = use.rss_bytes;
    if (m->req.memory_bytes && use.rss_bytes > m->req.memory_bytes)
        attempt_end(s, ENDED_OUT_OF_MEMORY, 0, SIGKILL, 0, now_ms);
    for (int i = 1; i < s->units_top; i++)
        if (s->units[i].phase == UNIT_RUNNING && s->units[i].req.memory_bytes)
            look_at_step(s, &s->units[i], now_ms);
}

// Somebody deleted files of the spool folder. Without its record nobody can learn of the attempt or end it, and its job
// is started anew: it must not go on. Without the socket the agent cannot ask for anything: it is made again.
static void look_at_folder(struct shepherd *s, int64_t now_ms) {
    struct stat st;
    if (now_ms < s->next_folder_ms)
        return;
    s->next_folder_ms = now_ms + FOLDER_LOOK_MS;
    if (fstat(main_unit(s)->file, &st) == 0 && st.st_nlink == 0) {
        attempt_end(s, ENDED_LOST, 0, SIGKILL, 0, now_ms);
        return;
    }
    if (s->listen_fd < 0 || faccessat(s->folder_fd, "control", F_OK, AT_SYMLINK_NOFOLLOW) == 0 ||
        errno != ENOENT)
        return;
    close(s->listen_fd);
    steps_listen(s);
}

// Time in which the job could run: a suspended job does not use up its time limit.
static int64_t running_ms(const struct shepherd *s, int64_t now_ms) {
    int64_t idle = s->suspended_ms + (s->suspended ? now_ms - s->suspended_since_ms : 0);
    return now_ms - s->units[0].start_ms - idle;
}

static void step_timers(struct shepherd *s, struct shepherd_unit *u, int64_t now_ms) {
    if (u->phase == UNIT_RUNNING && u->req.time_limit_ms &&
        now_ms - u->start_ms >= u->req.time_limit_ms)
        unit_end(s, u, ENDED_TIMEOUT, 0, SIGTERM, u->req.grace_ms, now_ms);
    if (u->phase == UNIT_RUNNING && u->req.wait_ms && u->first_end_ms &&
        now_ms - u->first_end_ms >= u->req.wait_ms)
        unit_end(s, u, ENDED_KILLED, 0, SIGKILL, 0, now_ms);
    if (u->phase == UNIT_ENDING && now_ms >= u->end_by_ms)
        u->phase = UNIT_KILLING;
    if (u->phase == UNIT_KILLING)
        unit_signal(s, u, SIGKILL);
}

// What is due. Everything is a comparison with a state that is kept (warned, announced, phase), so that a call too
// many does nothing and one that comes late does what it has missed.
static void timers(struct shepherd *s, int64_t now_ms) {
    struct shepherd_unit *m = main_unit(s);
    int64_t ran = running_ms(s, now_ms);
    resolve_units(s);
    if (!s->announced && ran >= ANNOUNCE_AFTER_MS && !m->awaited) {
        s->announced = true;
        unit_write(m);
        unit_hint(s, m);
    }
    if (ran >= SETTLE_AFTER_MS)
        shepherd_settle(s);
    if (s->listen_fd < 0 && ran >= LISTEN_AFTER_MS) {
        steps_listen(s);
        if (cgroup_slot_watch(&s->slot))
            attempt_end(s, ENDED_OUT_OF_MEMORY, 0, SIGKILL, 0, now_ms);
    }
    if (!s->progress_reader && m->phase == UNIT_RUNNING && m->req.ntasks &&
        now_ms - m->start_ms >= TIMES_AFTER_MS)
        progress_start(s);
    if (m->req.warn_signal && !s->warned && s->limit_ms &&
        ran >= s->limit_ms - m->req.warn_before_ms) {
        s->warned = true;
        attempt_signal(s, m->req.warn_target, (int)m->req.warn_signal);
    }
    if (s->limit_ms && !s->suspended && ran >= s->limit_ms)
        attempt_end(s, ENDED_TIMEOUT, 0, SIGTERM, m->req.grace_ms, now_ms);
    look_at_memory(s, now_ms);
    look_at_folder(s, now_ms);
    health_timers(s, now_ms);
    for (int i = 1; i < s->units_top; i++)
        if (s->units[i].phase != UNIT_FREE)
            step_timers(s, &s->units[i], now_ms);
}

static void sooner(int64_t *next, int64_t at) {
    if (at < *next)
        *next = at;
}

static int next_timeout(struct shepherd *s, int64_t now_ms) {
    struct shepherd_unit *m = main_unit(s);
    int64_t next = now_ms + POLL_MAX_MS, ran = running_ms(s, now_ms);
    // A short job is over before it is announced, has settled or listens: each of these is put off, because it costs
    // more than such a job.
    if (!s->announced)
        sooner(&next, ran < ANNOUNCE_AFTER_MS ? now_ms + ANNOUNCE_AFTER_MS - ran : now_ms + 1);
    else if (!s->settled)
        sooner(&next, now_ms + SETTLE_AFTER_MS - ran);
    else if (s->listen_fd == -1)
        sooner(&next, now_ms + LISTEN_AFTER_MS - ran);
    else if (!s->progress_reader && m->phase == UNIT_RUNNING && m->req.ntasks)
        sooner(&next, m->start_ms + TIMES_AFTER_MS);
    if (s->limit_ms && !s->suspended && m->phase == UNIT_RUNNING) {
        sooner(&next, now_ms + s->limit_ms - ran);
        if (m->req.warn_signal && !s->warned)
            sooner(&next, now_ms + s->limit_ms - m->req.warn_before_ms - ran);
    }
    // While it ends, processes that are not our children may still hold the group: nobody reports their end, so it is
    // looked for.
    if (m->phase == UNIT_ENDING) {
        sooner(&next, m->end_by_ms);
        if (!m->alive)
            sooner(&next, now_ms + ENDING_LOOK_MS);
    }
    if (!s->site->has[CG_MEMORY])
        sooner(&next, s->next_look_ms);
    sooner(&next, s->next_folder_ms);
    sooner(&next, health_due_ms(s));
    if (relay_blocked(m))
        sooner(&next, now_ms + BLOCKED_LOOK_MS);
    for (int i = 1; i < s->units_top; i++) {
        struct shepherd_unit *u = &s->units[i];
        if (u->phase == UNIT_RUNNING && u->req.time_limit_ms)
            sooner(&next, u->start_ms + u->req.time_limit_ms);
        if (u->phase == UNIT_RUNNING && u->req.wait_ms && u->first_end_ms)
            sooner(&next, u->first_end_ms + u->req.wait_ms);
        if (u->phase == UNIT_ENDING)
            sooner(&next, u->end_by_ms);
        if (u->phase == UNIT_KILLING || (u->phase == UNIT_RUNNING && u->worst && u->req.kill_on_bad_exit))
            sooner(&next, now_ms + KILL_EVERY_MS);
    }
    return next <= now_ms ? 0 : (int)(next - now_ms);
}

// Sleeps until a child ends, the agent asks, memory runs out, or a timer is due. SIGCHLD is let in
// only here.
static void pause_until_event(struct shepherd *s, int64_t now_ms) {
    static struct pollfd p[2 + RELAY_POLL_MAX + UNITS_MAX];
    uint32_t counts[UNITS_MAX], n = 2;
    p[0] = (struct pollfd){.fd = s->listen_fd, .events = POLLIN};
    p[1] = (struct pollfd){.fd = s->listen_fd < 0 ? -1 : s->slot.watch_fd, .events = POLLIN};
    for (int i = 0; i < s->units_top; i++) {
        counts[i] =
            s->units[i].phase == UNIT_FREE ? 0 : relay_poll(&s->units[i], p + n, 2 + RELAY_POLL_MAX - n);
        n += counts[i];
    }
    uint32_t helpers = n;
    for (int i = 1; i < s->units_top; i++)
        if (s->units[i].phase != UNIT_FREE && s->units[i].mpi.fd >= 0)
            p[n++] = (struct pollfd){.fd = s->units[i].mpi.fd, .events = POLLIN};
    int ms = next_timeout(s, now_ms);
    struct timespec t = {.tv_sec = ms / 1000, .tv_nsec = (ms % 1000) * 1000000L};
    sigset_t none;
    sigemptyset(&none);
    if (ppoll(p, n, &t, &none) <= 0)
        return;
    if (p[1].revents) {
        cgroup_slot_unwatch(&s->slot);
        attempt_end(s, ENDED_OUT_OF_MEMORY, 0, SIGKILL, 0, clock_mono_ms());
    }
    for (uint32_t i = 0, at = 2; i < (uint32_t)s->units_top && at < helpers; at += counts[i++])
        if (counts[i])
            relay_serve(s, &s->units[i], p + at, counts[i]);
    for (uint32_t at = helpers; at < n; at++)
        for (int i = 1; p[at].revents && i < s->units_top; i++)
            if (s->units[i].phase != UNIT_FREE && s->units[i].mpi.fd == p[at].fd)
                mpi_serve(s, &s->units[i], clock_mono_ms());
    if (p[0].revents)
        steps_serve(s, clock_mono_ms());
}

static bool task_failed(const struct shepherd_unit *u) {
    return u->req.kill_on_bad_exit && u->worst != 0;
}

// A task that is not in its group yet would miss a signal.
static bool all_began(const struct shepherd_unit *u) {
    return atomic_load(&u->note->opened) >= u->req.ntasks;
}

// A step is over when its tasks are; what they left behind in its group is killed.
// `all`: the attempt is over and its processes are gone; what remains is to write how its steps ended.
static void end_steps(struct shepherd *s, bool all, int64_t now_ms) {
    for (int i = 1; i < s->units_top; i++) {
        struct shepherd_unit *u = &s->units[i];
        if (u->phase == UNIT_FREE)
            continue;
        if (u->alive && u->verdict == ENDED_LAUNCH_FAILED && !all) {
            u->phase = UNIT_KILLING;
            unit_signal(s, u, SIGKILL);
        } else if (u->alive && task_failed(u) && all_began(u) && !all) {
            unit_end(s, u, ENDED_EXITED, 0, SIGTERM, u->req.grace_ms, now_ms);
        }
        if (!u->alive)
            mpi_serve(s, u, now_ms);  // whether it still has ranks elsewhere
        if ((u->alive || u->mpi.groups) && !all)
            continue;
        unit_signal(s, u, SIGKILL);
        if (u->step == SPOOL_HEALTH_STEP)
            health_step_ended(s, u, now_ms);
        else
            unit_write_end(s, u, now_ms);
        unit_done(s, u);
    }
}

// Returns when the attempt is over or must be killed; processes may still run. The order in the loop: what has ended
// is collected before it is asked whether all has ended, and both before sleeping, since SIGCHLD comes only while
// sleeping.
static void watch(struct shepherd *s) {
    struct shepherd_unit *m = main_unit(s);
    for (;;) {
        int64_t now_ms = clock_mono_ms();
        reap(s);
        end_steps(s, false, now_ms);
        // Told to end: everybody has until the deadline. Ended by itself: what is left goes now.
        // With no task of its own an attempt only holds its limits until it is told.
        if (m->phase != UNIT_RUNNING ? now_ms >= m->end_by_ms || nothing_left(s)
                                     : m->req.ntasks && !m->alive)
            return;
        if (m->verdict == ENDED_LAUNCH_FAILED || task_failed(m))
            return;
        pause_until_event(s, now_ms);
        timers(s, clock_mono_ms());
    }
}

static void run_loaded(struct shepherd *s) {
    struct shepherd_unit *m = main_unit(s);
    struct error e = {0};
    int64_t now_ms = clock_mono_ms();
    s->limit_ms = m->req.time_limit_ms;
    s->look_every_ms = LOOK_FIRST_MS;
    s->next_look_ms = now_ms + LOOK_FIRST_MS;
    s->next_folder_ms = now_ms + FOLDER_LOOK_MS;
    if (spawn_ready(s, &m->req, &e) < 0 || network_open(s, &m->req, &e) < 0) {
        m->phase = UNIT_RUNNING;
        m->start_ms = now_ms;
        unit_failed(m, LAUNCH_NODE, e.text);
    } else {
        unit_start(s, m, now_ms);
        health_begin(s, now_ms);
        watch(s);
    }
    progress_end(s);
    health_end(s);
    for (int i = 1; i < s->units_top; i++)
        if (s->units[i].phase != UNIT_FREE && s->units[i].alive && !s->units[i].verdict)
            s->units[i].verdict = ENDED_KILLED;  // steps end with their attempt
    // The end is written only when no process is left: the agent gives the attempt's resources to the next one as
    // soon as it reads it.
    network_close(s);
    bool clean = sweep(s);
    now_ms = clock_mono_ms();
    end_steps(s, true, now_ms);
    if (!clean) {
        s->slot.spoilt = true;
        snprintf(m->status.text, sizeof m->status.text, "some processes could not be killed");
    }
    progress_forget(s, now_ms - m->start_ms);
    unit_write_end(s, m, now_ms);
}

// Processes of the shepherd's own that were told to end: what they used would be counted as the next attempt's. One
// that hangs in a user's file system is left alone. The end of this attempt is written by then.
static void reap_own(struct shepherd *s) {
    pid_t *own[] = {&s->progress_reader, &s->health.asker, &s->teller};
    for (size_t i = 0, naps = 0; i < sizeof own / sizeof *own; i++) {
        while (*own[i] > 0 && waitpid(*own[i], NULL, WNOHANG) == 0 && naps++ < REAP_NAPS)
            usleep(REAP_NAP_US);
        *own[i] = 0;
    }
}

void attempt_run(struct shepherd *s, const char *name, const int *fds, int nfds) {
    struct shepherd_unit *m = main_unit(s);
    struct error e = {0};
    snprintf(s->name, sizeof s->name, "%s", name);
    s->listen_fd = -1;
    s->announced = s->suspended = s->warned = false;
    s->suspended_ms = 0;
    s->progress_reader = s->teller = 0;
    s->health = (struct shepherd_health){.page = s->health.page};
    s->network_fd = -1;
    s->gateway = 0;
    s->pid = getpid();
    s->listeners = (struct listeners_known){0};
    s->units_top = 0;
    s->folder_fd = openat(s->spool_fd, name, O_RDONLY | O_DIRECTORY | O_CLOEXEC | O_NOFOLLOW);
    if (s->folder_fd < 0)
        return;
    int rc = unit_load(s, m, 0, &e);
    for (int i = 0; i < nfds && i < 3; i++)
        m->fds[i] = fds[i];
    if (rc == 0) {
        run_loaded(s);
    } else if (rc != -EALREADY && spool_sealed(&m->status)) {
        unit_failed(m, LAUNCH_REQUEST, e.text);
        m->start_ms = clock_mono_ms();
        unit_write_end(s, m, m->start_ms);
    }
    if (s->listen_fd >= 0) {
        close(s->listen_fd);
        unlinkat(s->folder_fd, "control", 0);
    }
    unit_done(s, m);  // lets go of the lock
    close(s->folder_fd);
    spawn_release(s);
    reap_own(s);
}
