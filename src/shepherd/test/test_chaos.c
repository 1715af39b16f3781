// Agents, zygotes and shepherds killed at random while jobs are launched: afterwards every attempt
// has ended, ran at most once, ran exactly once unless its own shepherd was killed, and nothing is
// left running. test_chaos SHEPHERD MODE [JOBS [SEED]]
#include <errno.h>
#include <fcntl.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cmocka.h>

#include "base/clock.h"
#include "base/rand.h"
#include "base/text.h"
#include "cgroup/procs.h"
#include "rig.h"

static struct rig rig;
static uint32_t jobs = 120;
static uint64_t seed;
static unsigned kills;

// What an agent does with its spool when it starts; the same as attempt_scan.c, without a controller.
static void recover(void *ctx, const struct spool_status *found, bool alive) {
    struct spool_status s = *found;
    if (s.state == SPOOL_CREATED && !alive)
        launch_shepherds_launch(rig.shepherds, s.job, s.attempt, NULL, 0);
    if (s.state != SPOOL_STARTED || alive)
        return;
    cgroup_destroy(&rig.site, s.cgroup, 2000);
    if (rig.site.kind == CGROUP_NONE)
        for (int i = 0; i < 50 && cgroup_procs_signal_marked(s.id, SIGKILL) > 0; i++)
            nap_ms(2);
    spool_close_attempt(rig.spool, s.job, s.attempt, ENDED_LOST, "lost", 1, &s);
}

static void look(void) {
    spool_scan(rig.spool, recover, NULL, NULL);
}

static void restart_agent(void) {
    kill(launch_shepherds_pid(rig.shepherds), SIGKILL);  // the zygote too, half of the time
    rig_agent_dies(&rig);
    rig_agent_returns(&rig);
    look();
}

static void restart_zygote(void) {
    struct error e;
    kill(launch_shepherds_pid(rig.shepherds), SIGKILL);
    waitpid(launch_shepherds_pid(rig.shepherds), NULL, 0);
    assert_int_equal(launch_shepherds_restart(rig.shepherds, &e), 0);
}

static bool *victim;

static void kill_shepherd(struct rand *r) {
    uint64_t job = 1 + rand_below(r, rig.next_job);
    pid_t pid = 0;
    if (spool_alive(rig.spool, job, 1, &pid) > 0 && pid > 0) {
        victim[job] = true;
        kill(pid, SIGKILL);
    }
}

static void wreak(struct rand *r) {
    switch (rand_below(r, 12)) {
    case 0:
        restart_agent();
        kills++;
        break;
    case 1:
        restart_zygote();
        kills++;
        break;
    case 2:
        kill_shepherd(r);
        kills++;
        break;
    case 3:
        look();
        break;
    default:
        nap_ms((int)rand_below(r, 8));
    }
}

// How often the job has said that it ran. Its shell may say more: that what it waited for was killed.
static unsigned runs(const char *path) {
    char text[256];
    int fd = open(path, O_RDONLY | O_CLOEXEC);
    ssize_t n = fd < 0 ? 0 : read(fd, text, sizeof text - 1);
    unsigned count = 0;
    if (fd >= 0)
        close(fd);
    text[n > 0 ? n : 0] = 0;
    for (const char *p = text; (p = strstr(p, "ran\n")); p++)
        count++;
    return count;
}

static struct spool_status await(uint64_t job) {
    struct spool_status s;
    int64_t until = clock_mono_ms() + 120000;
    for (;;) {
        if (spool_read_status(rig.spool, job, 1, 0, &s) == 0 && s.state == SPOOL_ENDED)
            return s;
        if (clock_mono_ms() > until)
            fail_msg("job %lu never ended (seed %lu)", (unsigned long)job, (unsigned long)seed);
        nap_ms(5);
        look();
    }
}

static void everything_ends_once(void **state) {
    struct rand r;
    rand_seed(&r, seed);
    victim = calloc(jobs + 2, sizeof *victim);
    for (uint32_t i = 1; i <= jobs; i++) {
        struct job j;
        char text[200];
        snprintf(text, sizeof text, "echo ran; (setsid sleep 47020 &); sleep 0.0%u; exit %u",
                 (unsigned)rand_below(&r, 6), i % 100);
        char out[192];
        snprintf(out, sizeof out, "/tmp/acequia-test-%d-%u.out", getpid(), i);
        unlink(out);  // one that a killed test with this number has left would count as a run
        job_sh(&rig, &j, text);
        j.req.append = true;
        job_submit(&rig, &j);
        wreak(&r);
    }
    for (uint32_t i = 1; i <= jobs; i++) {
        char out[192];
        struct spool_status s = await(i);
        snprintf(out, sizeof out, "/tmp/acequia-test-%d-%u.out", getpid(), i);
        unsigned ran = runs(out);
        unlink(out);
        if (ran > 1 || (s.end != ENDED_EXITED && !victim[i]) || (!victim[i] && ran != 1) ||
            (s.end == ENDED_EXITED && s.exit_code != (int)(i % 100)))
            fail_msg("job %u: ran %u times, %s, exit %d, %s (seed %lu)", i, ran,
                     launch_end_name(s.end), s.exit_code, s.text, (unsigned long)seed);
        assert_int_equal(spool_remove(rig.spool, i, 1), 0);
    }
    for (int i = 0; i < 6000 && count_processes("47020"); i++)
        nap_ms(10);
    assert_int_equal(count_processes("47020"), 0);
    printf("%u jobs, %u kills, seed %lu\n", jobs, kills, (unsigned long)seed);
    free(victim);
}

int main(int argc, char **argv) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(everything_ends_once)};
    seed = (uint64_t)clock_wall_ms();
    if (argc < 3 || (argc > 3 && parse_u32(argv[3], &jobs) < 0) ||
        (argc > 4 && parse_u64(argv[4], &seed) < 0))
        return 2;
    if (rig_start(&rig, argv[1], argv[2]) < 0) {
        printf("control groups %s cannot be used here\n", argv[2]);
        return 77;
    }
    int rc = cmocka_run_group_tests(tests, NULL, NULL);
    return rig_stop(&rig) ? 1 : rc;
}
