// Owns the description of this node: identity, size, GPUs, and what cannot be enforced here.
#include <errno.h>
#include <fcntl.h>
#include <pwd.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <sys/utsname.h>
#include <time.h>
#include <unistd.h>

#include "agent.h"
#include "agent/launch/container.h"
#include "base/cleanup.h"
#include "base/clock.h"
#include "base/rand.h"
#include "base/text.h"
#include "cgroup/cgroup_io.h"
#include "model/name.h"

enum { ID_BYTES = 16 };

// The cpus that we may use, which in a container are fewer than there are.
static uint32_t usable_cpus(void) {
    size_t size = CPU_ALLOC_SIZE(LAUNCH_CPUS_MAX);
    cpu_set_t *set = CPU_ALLOC(LAUNCH_CPUS_MAX);
    uint32_t n = 1;
    if (set && sched_getaffinity(0, size, set) == 0)
        n = (uint32_t)CPU_COUNT_S(size, set);
    CPU_FREE(set);
    return n ? n : 1;
}

static uint64_t machine_memory(void) {
    long pages = sysconf(_SC_PHYS_PAGES), size = sysconf(_SC_PAGESIZE);
    return pages > 0 && size > 0 ? (uint64_t)pages * (uint64_t)size : 1 << 30;
}

// An id that is made once per spool folder: a new one means that attempts may have been forgotten.
static int spool_identity(struct agent *a, const char **out, struct error *e) {
    char text[2 * ID_BYTES + 1] = "";
    unsigned char bytes[ID_BYTES];
    cleanup_close int fd = openat(a->shared.spool_fd, "id", O_RDWR | O_CREAT | O_CLOEXEC | O_NOFOLLOW, 0600);
    if (fd < 0)
        return spool_error(a->shared.spool_fd, errno, e, "cannot open the file `id`");
    if (read(fd, text, 2 * ID_BYTES) != 2 * ID_BYTES) {
        int rc = rand_secret(bytes, sizeof bytes);
        if (rc < 0)
            return error_set(e, -rc, "the kernel gives no random numbers");
        for (size_t i = 0; i < ID_BYTES; i++)
            snprintf(text + 2 * i, 3, "%02x", bytes[i]);
        ssize_t n = pwrite(fd, text, 2 * ID_BYTES, 0);
        if (n != 2 * ID_BYTES)
            return spool_error(a->shared.spool_fd, n < 0 ? errno : ENOSPC, e, "cannot write the file `id`");
    }
    *out = arena_strdup(&a->shared.arena, text);
    return 0;
}

static const char *missing(struct agent *a) {
    const struct cgroup_site *s = &a->shared.site;
    cleanup_buf struct buf b = {0};
    if (geteuid() != 0)
        buf_adds(&b, "jobs run as one user; ");
    if (!s->has[CG_MEMORY])
        buf_adds(&b, "memory limits are checked once a second, not by the kernel; ");
    if (!s->has[CG_CPUSET])
        buf_adds(&b, "cpus are bound by affinity only; ");
    if (!s->has[CG_PIDS])
        buf_adds(&b, "the number of processes is not limited; ");
    if (!s->has[CG_DEVICES])
        buf_adds(&b, "devices of other jobs are reachable; ");
    if (a->shared.request_node.no_containers)
        buf_adds(&b, "containers cannot be run; ");
    if (b.len >= 2)
        b.data[b.len - 2] = 0;
    return b.len ? arena_strdup(&a->shared.arena, b.data) : NULL;
}

static void describe_size(struct agent *a, const struct config_node *c) {
    struct node *n = &a->shared.node;
    struct statvfs fs;
    n->cpus = a->options->cpus ? a->options->cpus : c->cpus ? c->cpus : usable_cpus();
    n->sockets = 1;
    n->cores_per_socket = n->cpus;
    n->threads_per_core = 1;
    n->memory_bytes = c->memory_bytes ? c->memory_bytes : machine_memory();
    if (!c->memory_bytes && c->reserve_memory_bytes < n->memory_bytes)
        n->memory_bytes -= c->reserve_memory_bytes;
    if (a->options->memory_bytes)
        n->memory_bytes = a->options->memory_bytes;
    n->tmp_bytes = statvfs("/tmp", &fs) == 0 ? (uint64_t)fs.f_blocks * fs.f_frsize : 0;
}

static uint64_t kernel_number(const char *path) {
    char text[32];
    uint64_t n;
    if (cgroup_kernel_read(path, text, sizeof text) < 0)
        return UINT64_MAX;
    text[strcspn(text, "\n")] = 0;
    return parse_u64(text, &n) < 0 ? UINT64_MAX : n;
}

// One job must not be able to use up the numbers that the kernel has for everybody.
static uint64_t pids_max(const struct config_node *c) {
    uint64_t pids = kernel_number("/proc/sys/kernel/pid_max") / 2;
    uint64_t threads = kernel_number("/proc/sys/kernel/threads-max") / 2;
    uint64_t most = pids < threads ? pids : threads;
    if (c->processes_per_job)
        return c->processes_per_job;
    return most < REQUEST_PIDS_MAX ? most : REQUEST_PIDS_MAX;
}

// When the machine came up, by the clock on the wall: what the kernel says of both clocks now.
static int64_t boot_ms(void) {
    struct timespec up;
    if (clock_gettime(CLOCK_BOOTTIME, &up) < 0)
        return 0;
    return clock_wall_ms() - ((int64_t)up.tv_sec * 1000 + up.tv_nsec / 1000000);
}

static void add_features(struct agent *a, const char *list) {
    struct node *n = &a->shared.node;
    size_t len;
    const char *name;
    while (list && (name = name_list_next(&list, &len))) {
        const char **more = arena_alloc(&a->shared.arena, (n->features.len + 1) * sizeof *more);
        for (uint32_t i = 0; i < n->features.len; i++)
            more[i] = n->features.at[i];
        more[n->features.len] = arena_strndup(&a->shared.arena, name, len);
        n->features.at = more;
        n->features.len++;
    }
}

// An agent that is not root can run the jobs of its own user only.
static const char *only_user(struct agent *a) {
    char text[1024];
    struct passwd entry, *found = NULL;
    if (geteuid() == 0 || getpwuid_r(geteuid(), &entry, text, sizeof text, &found) != 0 || !found)
        return NULL;
    return arena_strdup(&a->shared.arena, found->pw_name);
}

int agent_describe(struct agent *a, struct error *e) {
    struct node *n = &a->shared.node;
    struct utsname uts;
    struct config_node c = {0};
    char boot[40];
    n->name = a->options->name;
    n->version = ACEQUIA_VERSION;
    int rc = spool_boot_id(boot);
    if (rc < 0)
        return error_set(e, -rc, "the machine's boot id cannot be read");
    n->boot_id = arena_strdup(&a->shared.arena, boot);
    n->boot_ms = boot_ms();
    n->agent_start_ms = clock_wall_ms();
    rc = spool_identity(a, &n->spool_id, e);
    if (rc < 0)
        return rc;
    if (a->options->config)
        config_node(a->options->config, n->name, &a->shared.arena, &c);
    describe_size(a, &c);
    a->metrics_listen = c.metrics_listen;
    a->shared.request_node.pids_max = pids_max(&c);
    a->gpus = gpus_open(&a->shared, &c);
    agent_container_describe(&a->shared, &c, a->options->images, a->options->socket);
    n->features.at = c.features.at;
    n->features.len = c.features.len;
    add_features(a, a->options->features);
    n->until_ms = a->options->until_ms;
    n->user = only_user(a);
    if (uname(&uts) == 0) {
        n->address = arena_strdup(&a->shared.arena, uts.nodename);
        n->os = arena_printf(&a->shared.arena, "%s %s", uts.sysname, uts.release);
        n->arch = arena_strdup(&a->shared.arena, uts.machine);
    }
    n->missing = missing(a);
    return 0;
}
