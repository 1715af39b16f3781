// Spawns a command and waits for it, COUNT times in all, by PROCS processes at once; without a
// command /bin/true, which is the floor under every "jobs per second" figure. Also the stopwatch of
// bench/run: measured from here, a command's latency is free of an interpreter's own cost.
// Prints one line of JSON. With -o FILE the commands' standard output is appended to FILE.
#include <errno.h>
#include <fcntl.h>
#include <spawn.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/text.h"

enum { COUNT_MAX = 1000000, PROCS_MAX = 1024 };

extern char **environ;

struct work {
    char **argv;
    const char *output;
    int64_t *took_us;  // shared with the workers, one slot per run
    uint32_t count, procs;
};

static int run_once(const struct work *w, const posix_spawn_file_actions_t *actions) {
    pid_t pid = 0;
    int status = 0;
    int code = posix_spawnp(&pid, w->argv[0], actions, NULL, w->argv, environ);
    if (code != 0) {
        fprintf(stderr, "bench_spawn: %s: %s\n", w->argv[0], strerror(code));
        return 1;
    }
    if (waitpid(pid, &status, 0) != pid || status != 0) {
        fprintf(stderr, "bench_spawn: %s ended with status %d\n", w->argv[0], status);
        return 1;
    }
    return 0;
}

static int work_share(const struct work *w, uint32_t worker) {
    posix_spawn_file_actions_t actions;
    posix_spawn_file_actions_init(&actions);
    posix_spawn_file_actions_addopen(&actions, STDIN_FILENO, "/dev/null", O_RDONLY, 0);
    posix_spawn_file_actions_addopen(&actions, STDOUT_FILENO, w->output ? w->output : "/dev/null",
                                     O_WRONLY | O_CREAT | O_APPEND, 0600);
    int failed = 0;
    for (uint32_t i = worker; i < w->count && !failed; i += w->procs) {
        int64_t before = clock_mono_us();
        failed = run_once(w, &actions);
        w->took_us[i] = clock_mono_us() - before;
    }
    posix_spawn_file_actions_destroy(&actions);
    return failed;
}

static int compare_i64(const void *a, const void *b) {
    const int64_t *x = a, *y = b;
    return *x < *y ? -1 : *x > *y;
}

static void report(struct work *w, int64_t wall_us) {
    qsort(w->took_us, w->count, sizeof w->took_us[0], compare_i64);
    printf("{\"count\":%u,\"procs\":%u,\"rate\":%.1f,\"min_us\":%lld,\"median_us\":%lld,"
           "\"p95_us\":%lld,\"p99_us\":%lld,\"max_us\":%lld}\n",
           w->count, w->procs, w->count * 1e6 / (double)wall_us, (long long)w->took_us[0],
           (long long)w->took_us[w->count / 2], (long long)w->took_us[(uint64_t)w->count * 95 / 100],
           (long long)w->took_us[(uint64_t)w->count * 99 / 100],
           (long long)w->took_us[w->count - 1]);
}

static int run_workers(struct work *w) {
    w->took_us = mmap(NULL, w->count * sizeof w->took_us[0], PROT_READ | PROT_WRITE,
                      MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    if (w->took_us == MAP_FAILED) {
        perror("bench_spawn: mmap");
        return 1;
    }
    int64_t before = clock_mono_us();
    for (uint32_t p = 0; p < w->procs; p++) {
        pid_t pid = fork();
        if (pid < 0) {
            perror("bench_spawn: fork");
            return 1;
        }
        if (pid == 0)
            _exit(work_share(w, p));
    }
    int failures = 0, status = 0;
    while (wait(&status) > 0)
        failures += status != 0;
    if (failures)
        return 1;
    report(w, clock_mono_us() - before);
    return 0;
}

int main(int argc, char **argv) {
    char name[] = "/bin/true";
    char *fallback[] = {name, NULL};
    struct work w = {.argv = fallback};
    int at = 1;
    if (argc > 2 && streq(argv[at], "-o")) {
        w.output = argv[at + 1];
        at += 2;
    }
    if (argc < at + 2 || parse_u32(argv[at], &w.count) < 0 || parse_u32(argv[at + 1], &w.procs) < 0 ||
        w.count < 1 || w.count > COUNT_MAX || w.procs < 1 || w.procs > PROCS_MAX) {
        fprintf(stderr, "usage: bench_spawn [-o FILE] COUNT PROCS [COMMAND ARGUMENT...]\n");
        return 2;
    }
    if (argc > at + 2)
        w.argv = argv + at + 2;
    return run_workers(&w);
}
