// The floor under every "jobs per second" figure: posix_spawn of /bin/true and wait, COUNT times
// in all, by PROCS processes at once. Prints processes per second.
#include <spawn.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/text.h"

enum { COUNT_MAX = 1000000, PROCS_MAX = 1024 };

extern char **environ;

static int spawn_many(uint32_t count) {
    char *const argv[] = {(char[]){"true"}, NULL};
    for (uint32_t i = 0; i < count; i++) {
        pid_t pid = 0;
        int status = 0;
        if (posix_spawn(&pid, "/bin/true", NULL, NULL, argv, environ) != 0)
            return 1;
        if (waitpid(pid, &status, 0) != pid || status != 0)
            return 1;
    }
    return 0;
}

int main(int argc, char **argv) {
    uint32_t count = 0, procs = 0;
    if (argc != 3 || parse_u32(argv[1], &count) < 0 || parse_u32(argv[2], &procs) < 0 ||
        count < 1 || count > COUNT_MAX || procs < 1 || procs > PROCS_MAX) {
        fprintf(stderr, "usage: bench_spawn COUNT PROCS\n");
        return 2;
    }
    int64_t before = clock_mono_us();
    for (uint32_t p = 0; p < procs; p++) {
        pid_t pid = fork();
        if (pid < 0) {
            perror("fork");
            return 1;
        }
        if (pid == 0)
            _exit(spawn_many(count / procs + (p < count % procs)));
    }
    int failures = 0;
    for (uint32_t p = 0; p < procs; p++) {
        int status = 0;
        if (wait(&status) < 0 || status != 0)
            failures++;
    }
    printf("%.0f\n", count * 1e6 / (double)(clock_mono_us() - before));
    return failures ? 1 : 0;
}
