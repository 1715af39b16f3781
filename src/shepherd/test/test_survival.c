// What happens when parts of the node side die, and what a running attempt can be asked:
// agent, zygote and shepherd killed; steps, terminals, suspending, ending.
#include <errno.h>
#include <fcntl.h>
#include <grp.h>
#include <inttypes.h>
#include <poll.h>
#include <pty.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cmocka.h>

#include "base/clock.h"
#include "cgroup/owners.h"
#include "cgroup/procs.h"
#include "launch/control.h"
#include "rig.h"

static struct rig rig;

static int ask(const struct job *j, struct control_request r, const int *fds, int nfds,
               struct control_reply *reply) {
    return launch_control_call(rig.spool, j->req.job, 1, &r, fds, nfds, 60000, reply);
}

static int ask_plain(const struct job *j, struct control_request r) {
    struct control_reply reply;
    return ask(j, r, NULL, 0, &reply);
}

// Control messages have room for three descriptors; the padding behind them would hold a fourth.
static void a_fourth_descriptor_is_refused(void **state) {
    struct job j;
    struct sockaddr_un a = {.sun_family = AF_UNIX};
    struct control_request r = {.type = CONTROL_USAGE};
    struct control_reply reply;
    union {
        struct cmsghdr header;
        char space[CMSG_SPACE(4 * sizeof(int))];
    } c = {.header = {.cmsg_level = SOL_SOCKET, .cmsg_type = SCM_RIGHTS, .cmsg_len = CMSG_LEN(4 * sizeof(int))}};
    struct iovec iov = {.iov_base = &r, .iov_len = sizeof r};
    struct msghdr m = {.msg_iov = &iov, .msg_iovlen = 1, .msg_control = &c, .msg_controllen = sizeof c};
    const int four[4] = {0, 0, 0, 0};
    memcpy(CMSG_DATA(&c.header), four, sizeof four);
    job_sh(&rig, &j, "sleep 47021");
    job_submit(&rig, &j);
    job_wait_started(&rig, &j);
    snprintf(a.sun_path, sizeof a.sun_path, "/proc/self/fd/%d/%lu.1/control", rig.spool, (unsigned long)j.req.job);
    int fd = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0);
    assert_int_equal(connect(fd, (struct sockaddr *)&a, sizeof a), 0);
    assert_true(sendmsg(fd, &m, MSG_NOSIGNAL) > 0);
    assert_int_equal(recv(fd, &reply, sizeof reply, 0), 0);  // no answer: the connection is closed
    close(fd);
    assert_int_equal(ask_plain(&j, r), 0);
    assert_int_equal(ask_plain(&j, (struct control_request){.type = CONTROL_KILL, .signal = SIGKILL}), 0);
    client_job_wait(&rig, &j, 5000);
}

static void jobs_outlive_the_agent(void **state) {
    struct job j, late;
    struct spool_status s;
    pid_t pid = 0;
    char back[64], text[160];
    snprintf(back, sizeof back, "/tmp/acequia-test-%d-back", getpid());
    snprintf(text, sizeof text, "until [ -e %s ]; do sleep 0.02; done; echo done; exit 9", back);
    job_sh(&rig, &j, text);
    job_submit(&rig, &j);
    job_wait_started(&rig, &j);
    rig_agent_dies(&rig);
    nap_ms(100);
    rig_agent_returns(&rig);
    assert_int_equal(spool_alive(rig.spool, j.req.job, 1, &pid), 1);
    assert_true(pid > 0);
    assert_int_equal(spool_close_attempt(rig.spool, j.req.job, 1, ENDED_LOST, "", 0, &s), -EBUSY);
    close(open(back, O_WRONLY | O_CREAT | O_CLOEXEC, 0644));
    s = client_job_wait(&rig, &j, 5000);
    unlink(back);
    assert_int_equal(s.exit_code, 9);
    assert_string_equal(job_output(&j), "done\n");
    // One that ends while there is no agent, by its time limit.
    job_sh(&rig, &late, "sleep 47010");
    late.req.time_limit_ms = 300;
    job_submit(&rig, &late);
    job_wait_started(&rig, &late);
    rig_agent_dies(&rig);
    nap_ms(700);
    rig_agent_returns(&rig);
    for (int i = 0; i < 6000 && spool_alive(rig.spool, late.req.job, 1, &pid) > 0; i++)
        nap_ms(10);
    assert_int_equal(spool_alive(rig.spool, late.req.job, 1, &pid), 0);
    s = client_job_wait(&rig, &late, 10);
    assert_int_equal(s.end, ENDED_TIMEOUT);
    unlink(late.out);
}

// Whose a process is follows from where it is, whatever it says of itself and however it hides.
static void processes_are_known_whatever_they_say(void **state) {
    struct job liar, other;
    struct spool_status s;
    uint64_t job = 0;
    uint32_t attempt = 0;
    unsigned pids[3] = {0};
    job_sh(&rig, &other, "sleep 47030");
    job_submit(&rig, &other);
    job_wait_started(&rig, &other);
    job_sh(&rig, &liar,
           "A=ACEQUIA; (env -i ${A}_JOB_ID=1 ${A}_ATTEMPT=1 ${A}_ATTEMPT_ID=0 setsid /bin/sh -c 'echo $$; "
           "exec sleep 47031' &);"
           "(setsid sh -c 'setsid sh -c \"echo \\$\\$; exec sleep 47031\" &' &); echo $$; sleep 47031");
    job_submit(&rig, &liar);
    job_wait_started(&rig, &liar);
    int told = 0;
    for (int i = 0; i < 500 && told != 3; i++) {
        nap_ms(20);
        FILE *f = fopen(liar.out, "r");
        told = f ? fscanf(f, "%u %u %u", &pids[0], &pids[1], &pids[2]) : 0;
        if (f)
            fclose(f);
    }
    assert_int_equal(told, 3);
    struct owners *o = cgroup_owners_new(&rig.site);
    assert_false(cgroup_owners_find(o, pids[0], &job, &attempt));
    const struct job *jobs[] = {&other, &liar};
    for (int i = 0; i < 2; i++) {
        assert_int_equal(spool_read_status(rig.spool, jobs[i]->req.job, 1, 0, &s), 0);
        cgroup_owners_started(o, &s);
    }
    for (int i = 0; i < 3; i++) {
        assert_true(cgroup_owners_find(o, pids[i], &job, &attempt));
        assert_int_equal(job, liar.req.job);
        assert_int_equal(attempt, 1);
        assert_int_equal(cgroup_owners_inner_pid(pids[i]), pids[i]);
    }
    assert_false(cgroup_owners_find(o, (uint32_t)getpid(), &job, &attempt));
    if (rig.site.kind != CGROUP_NONE) {  // by the group alone: no shepherd is above this one
        char path[2 * CGROUP_PATH_MAX];
        pid_t child = fork();
        if (child == 0) {
            pause();
            _exit(0);
        }
        snprintf(path, sizeof path, "%s/%s/cgroup.procs", rig.site.base[rig.site.track], s.cgroup);
        FILE *f = fopen(path, "w");
        assert_non_null(f);
        fprintf(f, "%d", child);
        assert_int_equal(fclose(f), 0);
        assert_true(cgroup_owners_find(o, (uint32_t)child, &job, &attempt));
        assert_int_equal(job, liar.req.job);
        kill(child, SIGKILL);
        waitpid(child, NULL, 0);
    }
    cgroup_owners_ended(o, liar.req.job, 1);
    assert_false(cgroup_owners_find(o, pids[0], &job, &attempt));
    cgroup_owners_free(o);
    for (int i = 0; i < 2; i++) {
        assert_int_equal(ask_plain(jobs[i], (struct control_request){.type = CONTROL_KILL, .signal = SIGKILL}), 0);
        client_job_wait(&rig, jobs[i], 5000);
        unlink(jobs[i]->out);
    }
}

static void a_group_of_the_same_name_elsewhere_is_not_ours(void **state) {
    static const char v1[] = "/sys/fs/cgroup/cpuacct/acequia/00ff",
                      v2[] = "/sys/fs/cgroup/system.slice/acequia.service/acequia/00ff";
    char slot[CGROUP_NAME_MAX];
    assert_true(cgroup_owners_slot_of(v1, "5:cpuacct:/acequia/00ff/s12-1", slot));
    assert_string_equal(slot, "s12-1");
    assert_true(cgroup_owners_slot_of(v1, "5:cpuacct:/acequia/00ff/s12-1/step3", slot));
    assert_string_equal(slot, "s12-1");
    assert_true(cgroup_owners_slot_of(
        v2, "0::/system.slice/acequia.service/acequia/00ff/s12-1/inner/acequia/00ff/s9-1", slot));
    assert_string_equal(slot, "s12-1");
    assert_false(cgroup_owners_slot_of(v1, "5:cpuacct:/user.slice/acequia/00ff/s12-1", slot));
    assert_false(cgroup_owners_slot_of(v2, "0::/user.slice/user@7.service/acequia/00ff/s12-1", slot));
    assert_false(cgroup_owners_slot_of(v1, "5:cpuacct:/acequia/00ff", slot));
    assert_false(cgroup_owners_slot_of(v1, "5:cpuacct:/acequia/00fff/s12-1", slot));
    assert_false(cgroup_owners_slot_of(v1, "0::/", slot));
    assert_false(cgroup_owners_slot_of(v1, "rubbish", slot));
    int fd = open("/dev/null", O_RDONLY);
    assert_true(cgroup_owners_has_open((uint32_t)getpid(), "/dev/nul"));
    assert_false(cgroup_owners_has_open((uint32_t)getpid(), "/dev/nvidia"));
    close(fd);
}

static void jobs_outlive_the_zygote(void **state) {
    struct job j, next;
    struct error e;
    job_sh(&rig, &j, "sleep 0.5; exit 8");
    job_submit(&rig, &j);
    job_wait_started(&rig, &j);
    kill(launch_shepherds_pid(rig.shepherds), SIGKILL);
    waitpid(launch_shepherds_pid(rig.shepherds), NULL, 0);
    assert_int_equal(launch_shepherds_restart(rig.shepherds, &e), 0);
    job_sh(&rig, &next, "exit 2");
    job_submit(&rig, &next);
    assert_int_equal(client_job_wait(&rig, &next, 5000).exit_code, 2);
    assert_int_equal(client_job_wait(&rig, &j, 5000).exit_code, 8);
    unlink(j.out);
    unlink(next.out);
}

static void a_lost_shepherd_is_noticed(void **state) {
    struct job j;
    struct spool_status s;
    pid_t pid = 0;
    job_sh(&rig, &j, "setsid sleep 47011 & sleep 47011");
    job_submit(&rig, &j);
    job_wait_started(&rig, &j);
    assert_int_equal(spool_alive(rig.spool, j.req.job, 1, &pid), 1);
    kill(pid, SIGKILL);
    for (int i = 0; i < 500 && spool_alive(rig.spool, j.req.job, 1, &pid); i++)
        nap_ms(2);
    assert_int_equal(spool_alive(rig.spool, j.req.job, 1, &pid), 0);
    assert_int_equal(spool_read_status(rig.spool, j.req.job, 1, 0, &s), 0);
    assert_int_equal(s.state, SPOOL_STARTED);
    assert_int_equal(cgroup_destroy(&rig.site, s.cgroup, 2000), 0);
    if (rig.site.kind == CGROUP_NONE)
        for (int i = 0; i < 100 && cgroup_procs_signal_marked(s.id, SIGKILL); i++)
            nap_ms(5);
    nap_ms(50);
    assert_int_equal(count_processes("47011"), 0);
    assert_int_equal(spool_close_attempt(rig.spool, j.req.job, 1, ENDED_LOST, "lost", 1, &s), 0);
    assert_int_equal(s.end, ENDED_LOST);
    assert_int_equal(spool_close_attempt(rig.spool, j.req.job, 1, ENDED_LOST, "", 0, &s), -EALREADY);
    assert_int_equal(spool_remove(rig.spool, j.req.job, 1), 0);
    unlink(j.out);
}

static void an_attempt_starts_at_most_once(void **state) {
    struct job j;
    struct spool_status s;
    struct error e;
    job_sh(&rig, &j, "echo ran");
    job_submit(&rig, &j);
    assert_int_equal(spool_create(rig.spool, &j.req, NULL, 0, NULL, 0, &e), -EEXIST);
    assert_int_equal(launch_shepherds_launch(rig.shepherds, j.req.job, 1, NULL, 0), 0);
    step_wait(&rig, &j, 0, 5000);
    assert_int_equal(launch_shepherds_launch(rig.shepherds, j.req.job, 1, NULL, 0), 0);
    nap_ms(100);
    assert_string_equal(job_output(&j), "ran\n");
    spool_remove(rig.spool, j.req.job, 1);
    // Given up before a shepherd took it: it never starts.
    job_sh(&rig, &j, "echo ran");
    j.req.argv = j.argv;
    j.req.env = j.env;
    j.req.tasks = &j.task;
    assert_int_equal(spool_create(rig.spool, &j.req, NULL, 0, NULL, 0, &e), 0);
    assert_int_equal(spool_close_attempt(rig.spool, j.req.job, 1, ENDED_NEVER_STARTED, "", 0, &s), 0);
    assert_int_equal(launch_shepherds_launch(rig.shepherds, j.req.job, 1, NULL, 0), 0);
    nap_ms(100);
    assert_int_not_equal(access(j.out, F_OK), 0);
    assert_int_equal(client_job_wait(&rig, &j, 10).end, ENDED_NEVER_STARTED);
}

// Until the job has written something: its shell has done what comes before.
static void wait_written(const char *path) {
    struct stat st = {0};
    for (int i = 0; i < 30000 && (stat(path, &st) < 0 || !st.st_size); i++)
        nap_ms(2);
    assert_true(st.st_size > 0);
}

static void ending_has_a_grace(void **state) {
    struct job j;
    job_sh(&rig, &j, "trap 'echo term; exit 6' TERM; echo ready; while :; do sleep 0.02; done");
    job_submit(&rig, &j);
    job_wait_started(&rig, &j);
    wait_written(j.out);
    assert_int_equal(ask_plain(&j, (struct control_request){.type = CONTROL_KILL, .signal = SIGTERM,
                                                            .value_ms = 5000, .why = 42}), 0);
    struct spool_status s = client_job_wait(&rig, &j, 4000);
    assert_int_equal(s.end, ENDED_KILLED);
    assert_int_equal(s.kill_why, 42);
    assert_int_equal(s.exit_code, 6);
    assert_non_null(strstr(job_output(&j), "term\n"));
    job_sh(&rig, &j, "trap '' TERM; echo ready; sleep 47012");
    job_submit(&rig, &j);
    job_wait_started(&rig, &j);
    wait_written(j.out);
    assert_int_equal(ask_plain(&j, (struct control_request){.type = CONTROL_KILL,
                                                            .signal = SIGKILL}), 0);
    s = client_job_wait(&rig, &j, 2000);
    assert_int_equal(s.end, ENDED_KILLED);
    assert_true(s.signal == SIGKILL || s.exit_code == 128 + SIGKILL);
    assert_int_equal(count_processes("47012"), 0);
    unlink(j.out);
}

static void suspended_time_does_not_count(void **state) {
    struct job j;
    char resumed[64], text[160];
    snprintf(resumed, sizeof resumed, "/tmp/acequia-test-%d-resumed", getpid());
    snprintf(text, sizeof text, "until [ -e %s ]; do sleep 0.02; done; exit 1", resumed);
    job_sh(&rig, &j, text);
    j.req.time_limit_ms = 2000;
    job_submit(&rig, &j);
    job_wait_started(&rig, &j);
    assert_int_equal(ask_plain(&j, (struct control_request){.type = CONTROL_SUSPEND}), 0);
    nap_ms(2200);
    assert_int_equal(spool_alive(rig.spool, j.req.job, 1, NULL), 1);
    close(open(resumed, O_WRONLY | O_CREAT | O_CLOEXEC, 0644));
    assert_int_equal(ask_plain(&j, (struct control_request){.type = CONTROL_RESUME}), 0);
    struct spool_status s = client_job_wait(&rig, &j, 3000);
    assert_int_equal(s.end, ENDED_EXITED);
    assert_int_equal(s.exit_code, 1);
    unlink(resumed);
    unlink(j.out);
}

static void limits_can_change_and_usage_be_read(void **state) {
    struct job j;
    struct control_reply reply;
    job_sh(&rig, &j, "sleep 47013");
    job_submit(&rig, &j);
    job_wait_started(&rig, &j);
    assert_int_equal(ask(&j, (struct control_request){.type = CONTROL_USAGE}, NULL, 0, &reply), 0);
    assert_true(reply.usage.wall_ms > 0);
    assert_int_equal(ask_plain(&j, (struct control_request){.type = CONTROL_TIME_LIMIT,
                                                            .value_ms = 200}), 0);
    assert_int_equal(client_job_wait(&rig, &j, 3000).end, ENDED_TIMEOUT);
    unlink(j.out);
}

static void make_step(struct job *step, const struct job *j, uint32_t number, const char *text) {
    struct error e = {0};
    job_sh(&rig, step, text);
    step->req.job = j->req.job;
    step->req.step = number;
    step->req.argv = step->argv;
    step->req.env = step->env;
    step->req.tasks = &step->task;
    if (spool_create_step(rig.spool, &step->req, &(struct spool_event){0}, 0, &e) < 0)
        fail_msg("%s", e.text);
}

static void steps_run_inside(void **state) {
    struct job j, step;
    int out[2];
    char text[256];
    struct control_reply reply;
    job_sh(&rig, &j, "sleep 47014");
    job_submit(&rig, &j);
    job_wait_started(&rig, &j);
    // Descriptors handed along.
    make_step(&step, &j, 1, "read word; echo got $word; exit 3");
    step.req.use_fds = true;
    spool_remove_step(rig.spool, j.req.job, 1, 1);
    struct error e = {0};
    assert_int_equal(spool_create_step(rig.spool, &step.req, &(struct spool_event){5, 77}, 0, &e), 0);
    int in[2];
    assert_int_equal(pipe(in), 0);
    assert_int_equal(pipe(out), 0);
    int fds[] = {in[0], out[1], out[1]};
    assert_int_equal(ask(&j, (struct control_request){.type = CONTROL_STEP, .step = 1}, fds, 3,
                         &reply), 0);
    assert_int_equal(spool_step_event(rig.spool, j.req.job, 1, 1).epoch,
                     77);  // the shepherd has written its status
    close(in[0]);
    close(out[1]);
    assert_int_equal(write(in[1], "water\n", 6), 6);
    close(in[1]);
    ssize_t n = read(out[0], text, sizeof text - 1);
    text[n < 0 ? 0 : n] = 0;
    assert_string_equal(text, "got water\n");
    close(out[0]);
    struct spool_status s = step_wait(&rig, &j, 1, 3000);
    assert_int_equal(s.end, ENDED_EXITED);
    assert_int_equal(s.exit_code, 3);
    // Ended alone, with what it left in the background; the attempt goes on.
    make_step(&step, &j, 2, "setsid sleep 47015 & sleep 47015");
    assert_int_equal(ask_plain(&j, (struct control_request){.type = CONTROL_STEP, .step = 2}), 0);
    for (int i = 0; i < 1200 && count_processes("47015") < 2; i++)
        nap_ms(50);
    assert_true(count_processes("47015") >= 2);
    assert_int_equal(ask_plain(&j, (struct control_request){.type = CONTROL_KILL, .step = 2,
                                                            .signal = SIGKILL}), 0);
    assert_int_equal(step_wait(&rig, &j, 2, 3000).end, ENDED_KILLED);
    unlink(step.out);
    nap_ms(20);
    if (rig.site.kind != CGROUP_NONE)
        assert_int_equal(count_processes("47015"), 0);
    assert_int_equal(spool_alive(rig.spool, j.req.job, 1, NULL), 1);
    assert_true(count_processes("47014") >= 1);
    assert_int_equal(ask_plain(&j, (struct control_request){.type = CONTROL_STEP, .step = 9}),
                     -ENOENT);
    // A step that is still there when the attempt ends, ends with it.
    make_step(&step, &j, 4, "sleep 47016");
    assert_int_equal(ask_plain(&j, (struct control_request){.type = CONTROL_STEP, .step = 4}), 0);
    assert_int_equal(ask_plain(&j, (struct control_request){.type = CONTROL_KILL,
                                                            .signal = SIGKILL}), 0);
    assert_int_equal(step_wait(&rig, &j, 4, 3000).end, ENDED_KILLED);
    assert_int_equal(client_job_wait(&rig, &j, 3000).end, ENDED_KILLED);
    assert_int_equal(count_processes("47016") + count_processes("47015"), 0);
    unlink(j.out);
    unlink(step.out);
}

static void a_step_can_have_a_terminal(void **state) {
    struct job j, step;
    struct error e = {0};
    struct control_reply reply;
    int master, slave;
    char text[512] = "";
    size_t len = 0;
    job_sh(&rig, &j, "sleep 47017");
    job_submit(&rig, &j);
    job_wait_started(&rig, &j);
    assert_int_equal(openpty(&master, &slave, NULL, NULL, &(struct winsize){.ws_col = 91,
                                                                           .ws_row = 33}), 0);
    make_step(&step, &j, 1, "");
    spool_remove_step(rig.spool, j.req.job, 1, 1);
    step.argv[2] = (char[]){"tty >/dev/null && stty size; cut -d' ' -f7 /proc/$$/stat | grep -vc '^0$'"};
    step.req.use_fds = step.req.tty = true;
    assert_int_equal(spool_create_step(rig.spool, &step.req, &(struct spool_event){0}, 0, &e), 0);
    assert_int_equal(ask(&j, (struct control_request){.type = CONTROL_STEP, .step = 1}, &slave, 1,
                         &reply), 0);
    close(slave);
    for (;;) {
        struct pollfd p = {.fd = master, .events = POLLIN};
        ssize_t n = poll(&p, 1, 2000) > 0 ? read(master, text + len, sizeof text - 1 - len) : -1;
        if (n <= 0)
            break;
        len += (size_t)n;
    }
    close(master);
    assert_string_equal(text, "33 91\r\n1\r\n");
    assert_int_equal(ask_plain(&j, (struct control_request){.type = CONTROL_KILL,
                                                            .signal = SIGKILL}), 0);
    client_job_wait(&rig, &j, 3000);
    unlink(j.out);
}

static void an_empty_attempt_holds_until_told(void **state) {
    struct job j, step;
    job_sh(&rig, &j, "");
    j.req.ntasks = 0;
    job_submit(&rig, &j);
    job_wait_started(&rig, &j);
    make_step(&step, &j, 1, "exit 4");
    assert_int_equal(ask_plain(&j, (struct control_request){.type = CONTROL_STEP, .step = 1}), 0);
    assert_int_equal(step_wait(&rig, &j, 1, 3000).exit_code, 4);
    assert_int_equal(spool_alive(rig.spool, j.req.job, 1, NULL), 1);
    assert_int_equal(ask_plain(&j, (struct control_request){.type = CONTROL_KILL, .signal = SIGTERM,
                                                            .value_ms = 5000}), 0);
    assert_int_equal(client_job_wait(&rig, &j, 2000).end, ENDED_KILLED);
    unlink(step.out);
}

static void requests_survive_the_codec(void **state) {
    struct job j;
    cleanup_buf struct buf b = {0};
    struct launch_request back;
    struct error e;
    job_sh(&rig, &j, "exit 0");
    j.req.argv = j.argv;
    j.req.env = j.env;
    j.req.tasks = &j.task;
    j.task.rank = 7;
    launch_encode(&j.req, &b);
    cleanup_arena struct arena a = {0};
    assert_int_equal(launch_decode(b.data, b.len, &a, &back, &e), 0);
    assert_string_equal(back.argv[0], "/bin/sh");
    assert_int_equal(back.tasks[0].rank, 7);
    assert_null(back.in);
    assert_int_equal(back.time_limit_ms, 300000);
    // Every prefix and many damaged copies are refused or harmless.
    for (size_t n = 0; n < b.len; n++) {
        cleanup_arena struct arena t = {0};
        assert_int_not_equal(launch_decode(b.data, n, &t, &back, &e), 0);
    }
    uint64_t seed = 1;
    for (int i = 0; i < 20000; i++) {
        cleanup_arena struct arena t = {0};
        char copy[1024];
        assert_true(b.len <= sizeof copy);
        memcpy(copy, b.data, b.len);
        for (int k = 0; k < 3; k++) {
            seed = seed * 6364136223846793005u + 1442695040888963407u;
            copy[(seed >> 33) % b.len] = (char)(seed >> 56);
        }
        launch_decode(copy, b.len, &t, &back, &e);
    }
}

int main(int argc, char **argv) {
    if (argc < 3)
        return 2;
    if (argc > 3 && geteuid() == 0 && (setgroups(0, NULL) < 0 || setgid(65534) < 0 ||
                                       setuid(65534) < 0))
        return 2;
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_fourth_descriptor_is_refused),
        cmocka_unit_test(jobs_outlive_the_agent),
        cmocka_unit_test(processes_are_known_whatever_they_say),
        cmocka_unit_test(a_group_of_the_same_name_elsewhere_is_not_ours),
        cmocka_unit_test(jobs_outlive_the_zygote),
        cmocka_unit_test(a_lost_shepherd_is_noticed),
        cmocka_unit_test(an_attempt_starts_at_most_once),
        cmocka_unit_test(ending_has_a_grace),
        cmocka_unit_test(suspended_time_does_not_count),
        cmocka_unit_test(limits_can_change_and_usage_be_read),
        cmocka_unit_test(steps_run_inside),
        cmocka_unit_test(a_step_can_have_a_terminal),
        cmocka_unit_test(an_empty_attempt_holds_until_told),
        cmocka_unit_test(requests_survive_the_codec),
    };
    if (rig_start(&rig, argv[1], argv[2]) < 0) {
        printf("control groups %s cannot be used here\n", argv[2]);
        return 77;
    }
    int rc = cmocka_run_group_tests(tests, NULL, NULL);
    return rig_stop(&rig) ? 1 : rc;
}
