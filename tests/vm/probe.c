// What the jobs of the virtual machine do: one small static program that eats memory, forks, hides,
// burns time and opens devices. Each word of its first argument is one behaviour.
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <sched.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/mount.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <sys/xattr.h>
#include <time.h>
#include <unistd.h>

enum { MEBIBYTE = 1 << 20, PAGE = 4096 };

static void nap_ms(long ms) {
    struct timespec t = {.tv_sec = ms / 1000, .tv_nsec = ms % 1000 * 1000000};
    nanosleep(&t, NULL);
}

// Touches so many mebibytes with bytes that do not compress, then holds them.
static int hog(long mebibytes, long hold_ms) {
    size_t len = (size_t)mebibytes * MEBIBYTE;
    unsigned char *p = mmap(NULL, len, PROT_READ | PROT_WRITE,
                            MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE,
                            -1, 0);
    if (p == MAP_FAILED)
        return 1;
    unsigned x = 1;
    for (size_t i = 0; i < len; i += 64) {
        x = x * 1664525 + 1013904223;
        memcpy(p + i, &x, sizeof x);
    }
    printf("touched %ld MiB\n", mebibytes);
    fflush(stdout);
    nap_ms(hold_ms);
    return 0;
}

// Forks up to so many processes that wait; says how many there were.
static int crowd(long count) {
    long made = 0;
    for (; made < count; made++) {
        pid_t pid = fork();
        if (pid < 0)
            break;
        if (pid == 0) {
            pause();
            _exit(0);
        }
    }
    printf("made %ld\n", made);
    fflush(stdout);
    kill(0, SIGTERM);
    return 0;
}

static int bomb(void) {
    signal(SIGTERM, SIG_IGN);
    for (;;)
        if (fork() < 0)
            nap_ms(20);
}

// A process that is never there for long: it forks itself onwards, away from its session.
static int hopper(long rest_ms) {
    signal(SIGTERM, SIG_IGN);
    for (;;) {
        pid_t pid = fork();
        if (pid > 0)
            _exit(0);
        if (pid == 0)
            setsid();
        nap_ms(rest_ms);
    }
}

// Away from parent, session, group, files and folder; ignores what can be ignored.
static int hide(char **argv) {
    if (fork() > 0)
        return 0;
    setsid();
    if (fork() > 0)
        _exit(0);
    for (int sig = 1; sig < 32; sig++)
        signal(sig, SIG_IGN);
    if (chdir("/") < 0)
        return 1;
    for (int fd = 0; fd < 64; fd++)
        close(fd);
    if (argv[0])
        execvp(argv[0], argv);
    for (;;)
        nap_ms(1000);
}

static int spin(long ms) {
    struct timespec t;
    do
        clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &t);
    while (t.tv_sec * 1000 + t.tv_nsec / 1000000 < ms);
    return 0;
}

static int open_device(const char *path) {
    int fd = open(path, O_RDONLY | O_NONBLOCK);
    printf("%s %s\n", path, fd < 0 ? strerror(errno) : "opened");
    return fd < 0;
}

// Tries to be on every cpu; says on how many it is.
static int widen(void) {
    cpu_set_t all, is;
    CPU_ZERO(&all);
    for (int i = 0; i < CPU_SETSIZE; i++)
        CPU_SET(i, &all);
    sched_setaffinity(0, sizeof all, &all);
    sched_getaffinity(0, sizeof is, &is);
    printf("on %d\n", CPU_COUNT(&is));
    return 0;
}

static int delegate(const char *folder) {
    return setxattr(folder, "user.delegate", "1", 1, 0) < 0 &&
           setxattr(folder, "trusted.delegate", "1", 1, 0) < 0;
}

// As in a container: the group it is in is the top of what it sees.
static int contain(char **argv) {
    if (unshare(CLONE_NEWCGROUP | CLONE_NEWNS) < 0 ||
        mount(NULL, "/", NULL, MS_REC | MS_PRIVATE, NULL) < 0 || umount2("/sys/fs/cgroup", MNT_DETACH) < 0 ||
        mount("cgroup2", "/sys/fs/cgroup", "cgroup2", 0, NULL) < 0) {
        fprintf(stderr, "contain: %s\n", strerror(errno));
        return 1;
    }
    execvp(argv[0], argv);
    return 127;
}

int main(int argc, char **argv) {
    const char *what = argc > 1 ? argv[1] : "";
    long n = argc > 2 ? strtol(argv[2], NULL, 10) : 0;
    if (!strcmp(what, "hog"))
        return hog(n, argc > 3 ? strtol(argv[3], NULL, 10) : 0);
    if (!strcmp(what, "crowd"))
        return crowd(n);
    if (!strcmp(what, "bomb"))
        return bomb();
    if (!strcmp(what, "hopper"))
        return hopper(n);
    if (!strcmp(what, "hide"))
        return hide(argv + 2);
    if (!strcmp(what, "spin"))
        return spin(n);
    if (!strcmp(what, "open"))
        return open_device(argv[2]);
    if (!strcmp(what, "widen"))
        return widen();
    if (!strcmp(what, "contain"))
        return contain(argv + 2);
    if (!strcmp(what, "delegate"))
        return delegate(argv[2]);
    fprintf(stderr, "probe: what?\n");
    return 2;
}
