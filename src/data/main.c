// acequia-data: runs a pipeline on this machine, as the user, usually in a job. The pipeline comes as JSON in a file
// or on standard input; `acequia data run` and the Python package make it.
#include <errno.h>
#include <fcntl.h>
#include <getopt.h>
#include <sched.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/arena.h"
#include "base/buf.h"
#include "base/cleanup.h"
#include "base/text.h"
#include "plan.h"
#include "remote.h"
#include "run.h"

enum { CPUS_MAX = 1024, MEMORY_MIN = 16 << 20, CAT_MAX = 1 << 30 };

static int read_all(int fd, struct buf *out, struct error *e) {
    for (;;) {
        char *into = buf_reserve(out, 65536);
        ssize_t n = read(fd, into, 65536);
        if (n < 0 && errno == EINTR)
            continue;
        if (n < 0)
            return error_set(e, errno, "the pipeline cannot be read: %s", strerror(errno));
        if (!n)
            return 0;
        out->len += (size_t)n;
        if (out->len > DATA_PLAN_MAX)
            return error_set(e, E2BIG, "the pipeline has more than %d bytes", DATA_PLAN_MAX);
    }
}

static uint32_t usable_cpus(void) {
    cpu_set_t set;
    if (sched_getaffinity(0, sizeof set, &set) == 0)
        return (uint32_t)CPU_COUNT(&set);
    return 1;
}

static uint64_t machine_memory(void) {
    return (uint64_t)sysconf(_SC_PAGESIZE) * (uint64_t)sysconf(_SC_PHYS_PAGES);
}

// Half of what the job has, which Slurm's variable says in MiB; outside of jobs a quarter of the machine.
static uint64_t default_memory(void) {
    const char *given = getenv("SLURM_MEM_PER_NODE");
    uint64_t mib = 0;
    if (given && !parse_u64(given, &mib) && mib)
        return mib << 19;
    return machine_memory() / 4;
}

// data_worker.py lies beside this program.
static char *worker_program(struct buf *path) {
    char self[4096];
    ssize_t n = readlink("/proc/self/exe", self, sizeof self - 1);
    if (n <= 0)
        return NULL;
    self[n] = 0;
    char *slash = strrchr(self, '/');
    *slash = 0;
    buf_addf(path, "%s/data_worker.py", self);
    return path->data;
}

static int usage(void) {
    fputs("Usage: acequia-data run [--cpus N] [--memory BYTES] [--explain] [--quiet] [--plan TEXT | FILE]\n"
          "       acequia-data cat ADDRESS\n"
          "Runs the pipeline in FILE, or on standard input, on this machine. `acequia data run` runs one as "
          "a job.\n",
          stderr);
    return 2;
}

static bool number_option(const char *text, uint64_t min, uint64_t max, uint64_t *out) {
    return parse_u64(text, out) == 0 && *out >= min && *out <= max;
}

// What lies at an address, for programs that do not speak S3.
static int cat(const char *address) {
    struct error e = {0};
    struct buf cleanup_buf text = {0};
    struct data_remote *remote = data_remote_new();
    struct data_fetcher *f = data_fetcher_new(remote);
    int r = data_read(f, address, 0, 0, CAT_MAX, &text, &e);
    if (r)
        fprintf(stderr, "acequia data: %s\n", e.text);
    else if (fwrite(buf_str(&text), 1, text.len, stdout) != text.len || fflush(stdout))
        r = -EIO;
    data_fetcher_free(f);
    data_remote_free(remote);
    return r ? 1 : 0;
}

int main(int argc, char **argv) {
    static const struct option options[] = {
        {"cpus", 1, NULL, 'c'},  {"memory", 1, NULL, 'm'},    {"explain", 0, NULL, 'e'},
        {"quiet", 0, NULL, 'q'}, {"stream-fd", 1, NULL, 's'}, {"memory-fd", 1, NULL, 'f'},
        {"help", 0, NULL, 'h'},  {"plan", 1, NULL, 'p'},      {NULL, 0, NULL, 0}};
    struct data_run_options o = {
        .cpus = usable_cpus(), .memory_fd = -1, .stream_fd = -1, .gpus = getenv("CUDA_VISIBLE_DEVICES")};
    uint64_t memory = 0, v = 0;
    const char *given = NULL;
    if (argc == 3 && streq(argv[1], "cat"))
        return cat(argv[2]);
    if (argc < 2 || !streq(argv[1], "run"))
        return usage();
    optind = 2;
    for (int c; (c = getopt_long(argc, argv, "h", options, NULL)) != -1;) {
        bool ok = true;
        switch (c) {
        case 'c': ok = number_option(optarg, 1, CPUS_MAX, &v); o.cpus = (uint32_t)v; break;
        case 'm': ok = number_option(optarg, MEMORY_MIN, INT64_MAX, &memory); break;
        case 'p': given = optarg; break;
        case 'e': o.explain = true; break;
        case 'q': o.quiet = true; break;
        case 's': ok = number_option(optarg, 3, INT32_MAX, &v); o.stream_fd = (int)v; break;
        case 'f': ok = number_option(optarg, 3, INT32_MAX, &v); o.memory_fd = (int)v; break;
        default: return usage();
        }
        if (!ok) {
            fprintf(stderr, "acequia-data: %s is not a number that fits here\n", optarg);
            return 2;
        }
    }
    signal(SIGPIPE, SIG_IGN);
    struct error e = {0};
    struct buf cleanup_buf text = {0}, cleanup_buf program = {0};
    struct arena cleanup_arena a = {0};
    struct data_plan plan = {0};
    cleanup_close int fd = optind < argc ? open(argv[optind], O_RDONLY | O_CLOEXEC) : dup(0);
    if (given)
        buf_adds(&text, given);
    int r = given    ? 0
            : fd < 0 ? error_set(&e, errno, "%s cannot be read: %s",
                                 optind < argc ? argv[optind] : "the pipeline", strerror(errno))
                     : read_all(fd, &text, &e);
    if (!r)
        r = data_plan_read(buf_str(&text), text.len, &a, &plan, &e);
    if (!r && !(o.program = worker_program(&program)))
        r = error_set(&e, ENOENT, "data_worker.py was not found beside this program");
    if (!r) {
        o.memory_bytes = memory ? memory : plan.memory_bytes ? plan.memory_bytes : default_memory();
        r = data_run(&plan, &o, &e);
    }
    if (!r)
        return 0;
    fprintf(stderr, "acequia data: %s\n", e.text);
    return r == -EINTR ? 130 : 1;
}
