// Owns the test rig: everything real, nothing simulated, every wait bounded.
#include "rig.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include <cmocka.h>

#include "base/clock.h"
#include "base/text.h"
#include "cgroup/procs.h"
#include "launch/control.h"

void nap_ms(int ms) {
    struct timespec t = {.tv_sec = ms / 1000, .tv_nsec = (ms % 1000) * 1000000L};
    nanosleep(&t, NULL);
}

void rig_agent_returns(struct rig *r) {
    struct error e = {0};
    struct shepherds_options o = {.program = r->program, .spool_path = r->path, .cgroup = r->mode,
                                  .tag = strrchr(r->path, '/') + 1};
    r->spool = spool_open(r->path, &e);
    assert_true(r->spool >= 0);
    r->hints = spool_open_hints(r->spool, &e);
    assert_true(r->hints >= 0);
    if (launch_shepherds_start(&r->shepherds, &o, &e) < 0)
        fail_msg("%s", e.text);
}

void rig_agent_dies(struct rig *r) {
    // What the kernel does for a killed agent: its descriptors close, and nothing else happens.
    launch_shepherds_free(r->shepherds);
    r->shepherds = NULL;
    close(r->hints);
    close(r->spool);
}

int rig_start(struct rig *r, const char *program, const char *mode) {
    struct error e = {0};
    *r = (struct rig){.program = program, .mode = mode, .next_job = 1};
    snprintf(r->path, sizeof r->path, "/dev/shm/acequia-test-%d", getpid());
    if (cgroup_discover(&r->site, mode, strrchr(r->path, '/') + 1, &e) < 0)
        return -EINVAL;
    if (strcmp(mode, "none") != 0 && r->site.kind == CGROUP_NONE)
        return -ENOTSUP;
    rig_agent_returns(r);
    return 0;
}

static void destroy_attempt(void *ctx, const struct spool_status *s, bool alive) {
    struct rig *r = ctx;
    pid_t pid = 0;
    if (spool_alive(r->spool, s->job, s->attempt, &pid) > 0 && pid > 0)
        kill(pid, SIGKILL);
    nap_ms(20);
    cgroup_destroy(&r->site, s->cgroup, 2000);
    cgroup_procs_signal_marked(s->id, SIGKILL);
    spool_remove(r->spool, s->job, s->attempt);
}

// What shepherds complained about (failed assertions, sanitizers) fails the test.
int rig_complaints(int spool) {
    char text[4096];
    int fd = openat(spool, "shepherd.log", O_RDONLY | O_CLOEXEC);
    ssize_t n = fd < 0 ? 0 : read(fd, text, sizeof text - 1);
    if (fd >= 0)
        close(fd);
    if (n <= 0)
        return 0;
    text[n] = 0;
    printf("shepherds said:\n%s\n", text);
    return 1;
}

int rig_stop(struct rig *r) {
    spool_scan(r->spool, destroy_attempt, r, NULL);
    int dir = dup(r->spool);
    rig_agent_dies(r);
    nap_ms(50);
    int complaints = rig_complaints(dir);
    unlinkat(dir, "hints", 0);
    unlinkat(dir, "shepherd.log", 0);
    nap_ms(100);
    cgroup_tidy(&r->site);
    cgroup_leave(&r->site);
    DIR *d = fdopendir(dir);
    for (struct dirent *ent; (ent = readdir(d));)
        unlinkat(dir, ent->d_name, 0);
    closedir(d);
    rmdir(r->path);
    for (uint64_t i = 1; i < r->next_job; i++) {
        char out[64];
        snprintf(out, sizeof out, "/tmp/acequia-test-%d-%lu.out", getpid(), (unsigned long)i);
        unlink(out);
    }
    return complaints;
}

// "470NN" in a command becomes "470NN.PID": tests that run side by side find only their own.
static void own_marks(struct job *j, const char *text) {
    size_t n = 0;
    while (*text && n < sizeof j->text - 16) {
        bool mark = strncmp(text, "470", 3) == 0 && strlen(text) >= 5;
        size_t len = mark ? 5 : 1;
        memcpy(j->text + n, text, len);
        n += len;
        text += len;
        if (mark)
            n += (size_t)snprintf(j->text + n, 12, ".%d", getpid());
    }
    j->text[n] = 0;
}

void job_sh(struct rig *r, struct job *j, const char *text) {
    static char sh[] = "/bin/sh", c[] = "-c", path[] = "PATH=/usr/bin:/bin", home[] = "HOME=/tmp";
    *j = (struct job){0};
    j->argv[0] = sh;
    j->argv[1] = c;
    own_marks(j, text);
    j->argv[2] = j->text;
    j->env[0] = path;
    j->env[1] = home;
    snprintf(j->out, sizeof j->out, "/tmp/acequia-test-%d-%lu.out", getpid(),
             (unsigned long)r->next_job);
    unlink(j->out);
    j->req = (struct launch_request){
        .job = r->next_job++,
        .attempt = 1,
        .argc = 3,
        .nenv = 2,
        .ntasks = 1,
        .cwd = "/tmp",
        .umask = 022,
        .out = j->out,
        .time_limit_ms = 300000,
        .grace_ms = 1000,
    };
}

void job_submit(struct rig *r, struct job *j) {
    struct error e = {0};
    j->req.argv = j->argv;
    j->req.env = j->env;
    if (!j->req.tasks)
        j->req.tasks = &j->task;
    j->req.has_script = j->script != NULL;
    if (spool_create(r->spool, &j->req, j->script, j->script ? strlen(j->script) : 0,
                     NULL, clock_wall_ms(), &e) < 0)
        fail_msg("%s", e.text);
    int rc;
    for (int i = 0; (rc = launch_shepherds_launch(r->shepherds, j->req.job, 1, NULL, 0)) == -EAGAIN; i++) {
        assert_true(i < 2000);  // its socket is full: shepherds are busy elsewhere
        nap_ms(5);
    }
    assert_int_equal(rc, 0);
}

// A wait ends as soon as the state is there: on a busy machine it may take many times as long as usual.
enum { PATIENCE = 12 };

static struct spool_status wait_state(struct rig *r, const struct job *j, uint32_t step,
                                      enum spool_state state, int timeout_ms) {
    struct spool_status s = {0};
    int64_t until = clock_mono_ms() + (int64_t)timeout_ms * PATIENCE;
    for (;;) {
        int rc = spool_read_status(r->spool, j->req.job, 1, step, &s);
        if (rc == 0 && s.state >= state)
            return s;
        if (clock_mono_ms() > until)
            fail_msg("job %lu step %u: not in state %d after %d ms (%d)", (unsigned long)j->req.job, step,
                     state, timeout_ms * PATIENCE, rc);
        nap_ms(2);
    }
}

struct spool_status client_job_wait(struct rig *r, const struct job *j, int timeout_ms) {
    struct spool_status s = wait_state(r, j, 0, SPOOL_ENDED, timeout_ms);
    spool_remove(r->spool, j->req.job, 1);
    return s;
}

struct spool_status step_wait(struct rig *r, const struct job *j, uint32_t step, int timeout_ms) {
    return wait_state(r, j, step, SPOOL_ENDED, timeout_ms);
}

void job_wait_started(struct rig *r, const struct job *j) {
    wait_state(r, j, 0, SPOOL_STARTED, 5000);
    // Its control socket answers, unless it has ended already.
    struct control_request usage = {.type = CONTROL_USAGE};
    struct control_reply reply;
    struct spool_status st;
    for (int i = 0; i < 12000; i++) {
        int fd = launch_control_send(r->spool, j->req.job, 1, &usage, NULL, 0);
        if (fd >= 0) {
            launch_control_receive(fd, 60000, &reply);
            break;
        }
        if (spool_read_status(r->spool, j->req.job, 1, 0, &st) == 0 && st.state != SPOOL_STARTED)
            break;
        nap_ms(5);
    }
    nap_ms(60);  // its shell runs
}

struct spool_status job_run(struct rig *r, struct job *j) {
    job_submit(r, j);
    return client_job_wait(r, j, 20000);
}

const char *job_output(const struct job *j) {
    static char text[65536];
    int fd = open(j->out, O_RDONLY | O_CLOEXEC);
    ssize_t n = fd < 0 ? 0 : read(fd, text, sizeof text - 1);
    if (fd >= 0)
        close(fd);
    unlink(j->out);
    text[n < 0 ? 0 : n] = 0;
    return text;
}

int count_processes(const char *mark) {
    int count = 0;
    char argument[64];
    snprintf(argument, sizeof argument, "%s.%d", mark, getpid());
    DIR *d = opendir("/proc");
    for (struct dirent *ent; d && (ent = readdir(d));) {
        char path[300], line[4096];
        uint32_t pid;
        if (parse_u32(ent->d_name, &pid) < 0 || (pid_t)pid == getpid())
            continue;
        snprintf(path, sizeof path, "/proc/%u/cmdline", pid);
        int fd = open(path, O_RDONLY | O_CLOEXEC);
        ssize_t n = fd < 0 ? 0 : read(fd, line, sizeof line);
        if (fd >= 0)
            close(fd);
        if (n > 0 && memmem(line, (size_t)n, argument, strlen(argument)))
            count++;
    }
    closedir(d);
    return count;
}
