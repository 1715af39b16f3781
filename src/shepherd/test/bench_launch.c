// Launches per second through zygote, shepherds and control groups, without controller and agent:
// bench_launch SHEPHERD SPOOL CGROUP_MODE COUNT [IN_FLIGHT]
#include <errno.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/text.h"
#include "launch/shepherds.h"
#include "launch/spool.h"

extern char **environ;

static int launch(struct shepherds *s, int spool, uint64_t job, struct error *e) {
    char truth[] = "/bin/true", *argv[] = {truth, NULL};
    struct launch_process task = {0};
    uint32_t cpus[] = {(uint32_t)(job % 2)};
    struct launch_request r = {
        .job = job, .attempt = 1, .argv = argv, .argc = 1, .env = environ, .tasks = &task,
        .ntasks = 1, .memory_bytes = 256 << 20, .pids_max = 100, .time_limit_ms = 60000,
        .switch_user = geteuid() == 0, .uid = 65534, .gid = 65534, .cpus = cpus,
        .ncpus = getenv("BENCH_CPUS") ? 1 : 0,
    };
    while (environ[r.nenv])
        r.nenv++;
    int rc = spool_create(spool, &r, NULL, 0, NULL, clock_wall_ms(), e);
    return rc < 0 ? rc : launch_shepherds_launch(s, job, 1, NULL, 0);
}

static unsigned collect(int spool, int hints, unsigned *bad) {
    struct spool_hint h[256];
    struct pollfd p = {.fd = hints, .events = POLLIN};
    unsigned done = 0;
    if (poll(&p, 1, 5000) <= 0) {
        fprintf(stderr, "nothing ended within 5 s\n");
        exit(1);
    }
    ssize_t n = read(hints, h, sizeof h);
    for (ssize_t i = 0; i < n / (ssize_t)sizeof h[0]; i++) {
        struct spool_status st;
        if (h[i].state != SPOOL_ENDED)
            continue;
        if (spool_read_status(spool, h[i].job, h[i].attempt, 0, &st) < 0 ||
            st.end != ENDED_EXITED || st.exit_code != 0) {
            if (!(*bad)++)
                fprintf(stderr, "job %lu: %s %s\n", (unsigned long)h[i].job,
                        launch_end_name(st.end), st.text);
        }
        spool_remove(spool, h[i].job, h[i].attempt);
        done++;
    }
    return done;
}

int main(int argc, char **argv) {
    struct error e;
    struct shepherds *s;
    uint32_t count, window = 8;
    if (argc < 5 || parse_u32(argv[4], &count) < 0 || (argc > 5 && parse_u32(argv[5], &window) < 0)) {
        fprintf(stderr, "usage: bench_launch SHEPHERD SPOOL CGROUP_MODE COUNT [IN_FLIGHT]\n");
        return 2;
    }
    struct shepherds_options o = {.program = argv[1], .spool_path = argv[2], .cgroup = argv[3],
                                  .tag = "bench"};
    int spool = spool_open(argv[2], &e);
    int hints = spool < 0 ? spool : spool_open_hints(spool, &e);
    if (hints < 0 || launch_shepherds_start(&s, &o, &e) < 0) {
        fprintf(stderr, "%s\n", e.text);
        return 1;
    }
    unsigned sent = 0, done = 0, bad = 0;
    int64_t start = clock_mono_us();
    while (done < count) {
        while (sent < count && sent - done < window) {
            if (launch(s, spool, sent + 1, &e) < 0) {
                fprintf(stderr, "%s\n", e.text);
                return 1;
            }
            sent++;
        }
        done += collect(spool, hints, &bad);
    }
    double us = (double)(clock_mono_us() - start);
    printf("%s: %u launches, %.0f/s, %.1f us each, %u bad\n", argv[3], count, count / us * 1e6,
           us / count, bad);
    launch_shepherds_free(s);
    return bad != 0;
}
