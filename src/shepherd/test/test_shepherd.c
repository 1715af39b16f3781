// Attempts from launch to end with real processes: exits, launch failures, limits, killing.
// test_shepherd SHEPHERD MODE; also its own helper: `test_shepherd eat BYTES`.
#include <errno.h>
#include <fcntl.h>
#include <grp.h>
#include <inttypes.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mount.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cmocka.h>

#include "base/clock.h"
#include "base/text.h"
#include "launch/control.h"
#include "rig.h"

static struct rig rig;
static char self[512];

static bool limits_memory(void) {
    return rig.site.has[CG_MEMORY];
}

static void exits_are_reported(void **state) {
    struct job j;
    job_sh(&rig, &j, "exit 0");
    struct spool_status s = job_run(&rig, &j);
    assert_int_equal(s.end, ENDED_EXITED);
    assert_int_equal(s.exit_code, 0);
    unlink(j.out);
    job_sh(&rig, &j, "exit 3");
    s = job_run(&rig, &j);
    unlink(j.out);
    assert_int_equal(s.exit_code, 3);
    job_sh(&rig, &j, "kill -SEGV $$");
    s = job_run(&rig, &j);
    assert_int_equal(s.end, ENDED_SIGNALED);
    assert_int_equal(s.signal, SIGSEGV);
    unlink(j.out);
}

static void expect_failure(struct job *j, enum launch_code code, const char *words) {
    struct spool_status s = job_run(&rig, j);
    if (s.end != ENDED_LAUNCH_FAILED || s.launch_code != code || !strstr(s.text, words))
        fail_msg("expected %s, got %s/%s: %s", launch_code_name(code), launch_end_name(s.end),
                 launch_code_name(s.launch_code), s.text);
    unlink(j->out);
}

static char *writable(const char *s) {
    char *p;
    memcpy(&p, &s, sizeof p);
    return p;
}

static void command_failures_are_named(void **state) {
    struct job j;
    job_sh(&rig, &j, "");
    j.argv[0] = writable("no-such-command");
    expect_failure(&j, LAUNCH_COMMAND, "no-such-command not found");
    job_sh(&rig, &j, "");
    j.argv[0] = writable("/nowhere/program");
    expect_failure(&j, LAUNCH_COMMAND, "/nowhere/program not found");
    job_sh(&rig, &j, "");
    j.argv[0] = writable("/etc/passwd");
    expect_failure(&j, LAUNCH_PERMISSION, "/etc/passwd");
    job_sh(&rig, &j, "");
    j.script = "echo no interpreter\n";
    j.req.argc = 0;
    expect_failure(&j, LAUNCH_FORMAT, "#!/bin/bash");
    job_sh(&rig, &j, "");
    j.script = "#!/no/such/shell\n";
    j.req.argc = 0;
    expect_failure(&j, LAUNCH_INTERPRETER, "/no/such/shell");
    job_sh(&rig, &j, "");
    j.script = "#!/bin/sh\r\necho\r\n";
    j.req.argc = 0;
    expect_failure(&j, LAUNCH_FORMAT, "Windows");
}

static void path_failures_are_named(void **state) {
    struct job j;
    job_sh(&rig, &j, "exit 0");
    j.req.cwd = "/no/such/folder";
    expect_failure(&j, LAUNCH_CWD, "/no/such/folder");
    job_sh(&rig, &j, "exit 0");
    j.req.out = "/no/such/folder/out";
    expect_failure(&j, LAUNCH_OUTPUT, "/no/such/folder/out");
    job_sh(&rig, &j, "exit 0");
    j.req.out = "/tmp";
    expect_failure(&j, LAUNCH_OUTPUT, "/tmp");
    job_sh(&rig, &j, "exit 0");
    j.req.in = "/no/such/input";
    expect_failure(&j, LAUNCH_INPUT, "/no/such/input");
}

static void scripts_run_with_arguments(void **state) {
    struct job j;
    job_sh(&rig, &j, "");
    j.script = "#!/bin/sh -u\necho \"$1|$2|$-\" | tr -d i; echo err >&2\n";
    j.argv[0] = writable("one");
    j.argv[1] = writable("two words");
    j.req.argc = 2;
    struct spool_status s = job_run(&rig, &j);
    assert_int_equal(s.end, ENDED_EXITED);
    assert_string_equal(job_output(&j), "one|two words|u\nerr\n");
}

static void output_is_emptied_or_appended(void **state) {
    struct job j;
    char err[200];
    job_sh(&rig, &j, "echo first");
    job_submit(&rig, &j);
    client_job_wait(&rig, &j, 5000);
    j.req.job = rig.next_job++;
    j.req.append = true;
    job_run(&rig, &j);
    j.req.job = rig.next_job++;
    snprintf(err, sizeof err, "%s.err", j.out);
    j.req.err = err;
    j.argv[2] = writable("echo out; echo err >&2");
    job_run(&rig, &j);
    assert_string_equal(job_output(&j), "first\nfirst\nout\n");
    assert_int_equal(unlink(err), 0);
    j.req.job = rig.next_job++;
    j.req.append = false;
    j.argv[2] = writable("echo anew");
    job_run(&rig, &j);
    assert_string_equal(job_output(&j), "anew\n");
    unlink(err);
}

static void jobs_run_as_their_user(void **state) {
    struct job j;
    uint32_t groups[] = {65534, 12};
    struct stat st;
    if (geteuid() != 0)
        skip();
    job_sh(&rig, &j, "id -u; id -g; id -G; umask; grep NoNewPrivs /proc/self/status; "
           "test -r /etc/shadow && echo reads shadow");
    j.req.switch_user = j.req.no_new_privs = true;
    j.req.uid = j.req.gid = 65534;
    j.req.groups = groups;
    j.req.ngroups = 2;
    j.req.umask = 027;
    job_submit(&rig, &j);
    client_job_wait(&rig, &j, 5000);
    assert_int_equal(stat(j.out, &st), 0);
    assert_int_equal(st.st_uid, 65534);
    assert_int_equal(st.st_mode & 0777, 0640);
    assert_string_equal(job_output(&j), "65534\n65534\n65534 12\n0027\nNoNewPrivs:\t1\n");
    // What root may open and the user may not is not opened.
    job_sh(&rig, &j, "exit 0");
    j.req.switch_user = true;
    j.req.uid = j.req.gid = 65534;
    char folder[160], out[200];
    snprintf(folder, sizeof folder, "%s-private", rig.path);
    snprintf(out, sizeof out, "%s/out", folder);
    mkdir(folder, 0700);
    j.req.out = out;
    expect_failure(&j, LAUNCH_OUTPUT, "Permission denied");
    rmdir(folder);
    job_sh(&rig, &j, "");
    // The user reads and runs the script but cannot make it grow: the spool is everybody's.
    j.script = "#!/bin/sh\nchmod u+w $0 2>/dev/null && echo owner; (echo more >>$0) 2>/dev/null && echo written\n"
               "ls -ld $0 | cut -c8-10; id -u\n";
    j.req.argc = 0;
    j.req.switch_user = true;
    j.req.uid = j.req.gid = 65534;
    job_run(&rig, &j);
    assert_string_equal(job_output(&j), "---\n65534\n");
}

static void memory_limit_kills(void **state) {
    struct job j;
    char command[600];
    snprintf(command, sizeof command, "%s eat 200000000", self);
    job_sh(&rig, &j, command);
    j.req.memory_bytes = 64 << 20;
    struct spool_status s = job_run(&rig, &j);
    unlink(j.out);
    assert_int_equal(s.end, ENDED_OUT_OF_MEMORY);
    assert_true(s.usage.peak_bytes > 60 << 20);
    assert_true(!limits_memory() || s.usage.peak_bytes <= 64 << 20);
    // The next job in the same place starts afresh.
    job_sh(&rig, &j, "exit 0");
    j.req.memory_bytes = 64 << 20;
    s = job_run(&rig, &j);
    unlink(j.out);
    assert_int_equal(s.end, ENDED_EXITED);
    assert_true(s.usage.peak_bytes < 32 << 20);
}

static void usage_is_measured(void **state) {
    struct job j;
    char command[600];
    snprintf(command, sizeof command, "%s eat 50000000; i=0; while [ $i -lt 200000 ]; do "
             "i=$((i+1)); done; sleep 0.2", self);
    job_sh(&rig, &j, command);
    struct spool_status s = job_run(&rig, &j);
    unlink(j.out);
    assert_int_equal(s.end, ENDED_EXITED);
    assert_in_range(s.usage.user_us + s.usage.system_us, 20000, 20000000);
    assert_in_range(s.usage.peak_bytes, 45000000, 90000000);
    assert_in_range(s.usage.wall_ms, 200, 20000);
}

static void time_limit_ends(void **state) {
    struct job j;
    job_sh(&rig, &j, "trap 'echo term' TERM; trap '' HUP; while :; do sleep 0.05; done");
    j.req.time_limit_ms = 300;
    j.req.grace_ms = 300;
    struct spool_status s = job_run(&rig, &j);
    assert_int_equal(s.end, ENDED_TIMEOUT);
    assert_in_range(s.usage.wall_ms, 590, 1500);
    assert_non_null(strstr(job_output(&j), "term\n"));
    // One that obeys is over at once.
    job_sh(&rig, &j, "sleep 47001");
    j.req.time_limit_ms = 200;
    j.req.grace_ms = 10000;
    s = job_run(&rig, &j);
    unlink(j.out);
    assert_int_equal(s.end, ENDED_TIMEOUT);
    assert_in_range(s.usage.wall_ms, 190, 2000);
    assert_int_equal(count_processes("47001"), 0);
}

static void warning_signal_comes_before(void **state) {
    struct job j;
    job_sh(&rig, &j, "trap 'echo warned; exit 5' USR2; while :; do sleep 0.02; done");
    j.req.time_limit_ms = 5000;
    j.req.warn_signal = SIGUSR2;
    j.req.warn_before_ms = 4800;
    j.req.warn_target = SIGNAL_MAIN;
    struct spool_status s = job_run(&rig, &j);
    assert_int_equal(s.end, ENDED_EXITED);
    assert_int_equal(s.exit_code, 5);
    assert_string_equal(job_output(&j), "warned\n");
}

static void nothing_survives(void **state) {
    struct job j;
    job_sh(&rig, &j,
           "setsid sleep 47002 & (setsid sh -c 'sleep 47002 & sleep 47002' &) ; "
           "sh -c 'trap \"\" TERM HUP INT; sleep 47002 & exec sleep 47002' & sleep 0.2; exit 4");
    struct spool_status s = job_run(&rig, &j);
    unlink(j.out);
    assert_int_equal(s.exit_code, 4);
    assert_int_equal(count_processes("47002"), 0);
    // Also not a shower of forks.
    job_sh(&rig, &j, "f() { sleep 47003 & sleep 47003 & }; i=0; while [ $i -lt 40 ]; do f; "
           "i=$((i+1)); done; sh -c 'while :; do setsid sleep 47003 & sleep 0.001; done' & exit 0");
    j.req.pids_max = 500;
    s = job_run(&rig, &j);
    unlink(j.out);
    assert_int_equal(s.end, ENDED_EXITED);
    assert_int_equal(count_processes("47003"), 0);
}

static void process_limit_holds(void **state) {
    struct job j;
    if (!rig.site.has[CG_PIDS])
        skip();
    job_sh(&rig, &j, "i=0; while [ $i -lt 30 ]; do sleep 5 & i=$((i+1)); done; wait");
    j.req.pids_max = 10;
    struct spool_status s = job_run(&rig, &j);
    assert_int_not_equal(s.exit_code, 0);
    assert_non_null(strstr(job_output(&j), "ork"));
}

static void cpus_are_bound(void **state) {
    struct job j;
    uint32_t one[] = {1};
    job_sh(&rig, &j, "grep Cpus_allowed_list /proc/self/status | cut -f2; "
           "taskset -p 3 $$ >/dev/null 2>&1; grep Cpus_allowed_list /proc/self/status | cut -f2");
    j.req.cpus = one;
    j.req.ncpus = 1;
    job_run(&rig, &j);
    // A cpuset holds even when the job asks for more; affinity alone does not.
    const char *want = rig.site.has[CG_CPUSET] ? "1\n1\n" : "1\n";
    const char *got = job_output(&j);
    assert_memory_equal(got, want, strlen(want));
    job_sh(&rig, &j, "grep Cpus_allowed_list /proc/self/status | cut -f2");
    job_run(&rig, &j);
    assert_string_not_equal(job_output(&j), "1\n");
}

static void denied_devices_are_out_of_reach(void **state) {
    struct job j;
    struct launch_device zero = {.major = 1, .minor = 5};
    if (!rig.site.has[CG_DEVICES])
        skip();
    job_sh(&rig, &j, "head -c 1 /dev/zero >/dev/null && echo reached; head -c 1 /dev/urandom "
           ">/dev/null && echo other");
    j.req.denied = &zero;
    j.req.ndenied = 1;
    job_run(&rig, &j);
    const char *out = job_output(&j);
    assert_null(strstr(out, "reached"));
    assert_non_null(strstr(out, "other"));
    job_sh(&rig, &j, "head -c 1 /dev/zero >/dev/null && echo reached");
    job_run(&rig, &j);
    assert_string_equal(job_output(&j), "reached\n");
}

static void tasks_share_an_output(void **state) {
    struct job j;
    struct launch_process tasks[5] = {0};
    char ranks[5][16], *env[5];
    job_sh(&rig, &j, "sleep 0.0$RANK; echo rank $RANK; [ $RANK != 3 ] || exit 7");
    for (uint32_t i = 0; i < 5; i++) {
        snprintf(ranks[i], sizeof ranks[i], "RANK=%u", i);
        env[i] = ranks[i];
        tasks[i] = (struct launch_process){.rank = i, .env = &env[i], .nenv = 1};
    }
    j.env[2] = writable("RANK=replaced");
    j.req.nenv = 3;
    j.req.tasks = tasks;
    j.req.ntasks = 5;
    struct spool_status s = job_run(&rig, &j);
    assert_int_equal(s.exit_code, 7);
    assert_int_equal(s.failed_rank, 3);
    const char *out = job_output(&j);
    for (int i = 0; i < 5; i++) {
        char line[32];
        snprintf(line, sizeof line, "rank %d\n", i);
        assert_non_null(strstr(out, line));
    }
}

static void full_disk_is_said(void **state) {
    struct job j;
    struct error e = {0};
    char path[160], big[100000];
    if (geteuid() != 0)
        skip();
    snprintf(path, sizeof path, "%s-full", rig.path);
    mkdir(path, 0755);
    assert_int_equal(mount("none", path, "tmpfs", 0, "size=64k"), 0);
    int spool = spool_open(path, &e);
    assert_true(spool >= 0);
    memset(big, 'x', sizeof big);
    job_sh(&rig, &j, "exit 0");
    j.req.argv = j.argv;
    j.req.env = j.env;
    j.req.tasks = &j.task;
    j.req.has_script = true;
    int rc = spool_create(spool, &j.req, big, sizeof big, NULL, 0, &e);
    assert_int_equal(rc, -ENOSPC);
    assert_non_null(strstr(e.text, "No space"));
    assert_int_equal(spool_read_status(spool, j.req.job, 1, 0, &(struct spool_status){0}), -ENOENT);
    close(spool);
    umount(path);
    rmdir(path);
}

static int eat(const char *text) {
    uint64_t n;
    if (parse_u64(text, &n) < 0)
        return 2;
    char *p = malloc(n);
    for (uint64_t i = 0; p && i < n; i += 4096) {
        p[i] = 1;
        if (i % (4096 * 2048) == 0)
            usleep(20000);  // so that whoever polls gets to see it
    }
    usleep(1000000);  // also on a busy machine
    return p ? 0 : 1;
}

int main(int argc, char **argv) {
    if (argc == 3 && strcmp(argv[1], "eat") == 0)
        return eat(argv[2]);
    if (argc < 3 || readlink("/proc/self/exe", self, sizeof self - 1) < 0)
        return 2;
    if (argc > 3 && geteuid() == 0 && (setgroups(0, NULL) < 0 || setgid(65534) < 0 ||
                                       setuid(65534) < 0))
        return 2;
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(exits_are_reported),
        cmocka_unit_test(command_failures_are_named),
        cmocka_unit_test(path_failures_are_named),
        cmocka_unit_test(scripts_run_with_arguments),
        cmocka_unit_test(output_is_emptied_or_appended),
        cmocka_unit_test(jobs_run_as_their_user),
        cmocka_unit_test(memory_limit_kills),
        cmocka_unit_test(usage_is_measured),
        cmocka_unit_test(time_limit_ends),
        cmocka_unit_test(warning_signal_comes_before),
        cmocka_unit_test(nothing_survives),
        cmocka_unit_test(process_limit_holds),
        cmocka_unit_test(cpus_are_bound),
        cmocka_unit_test(denied_devices_are_out_of_reach),
        cmocka_unit_test(tasks_share_an_output),
        cmocka_unit_test(full_disk_is_said),
    };
    if (rig_start(&rig, argv[1], argv[2]) < 0) {
        printf("control groups %s cannot be used here\n", argv[2]);
        return 77;
    }
    int rc = cmocka_run_group_tests(tests, NULL, NULL);
    return rig_stop(&rig) ? 1 : rc;
}
