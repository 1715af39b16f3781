// Owns one shepherd's group: its limits, its counters, and signalling all that is in it. Values
// already set are not written again, and files used for every attempt stay open: a short job
// costs a handful of system calls here.
#include <assert.h>
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#include "agent/cgroup.h"
#include "agent/cgroup_devices.h"
#include "agent/cgroup_io.h"
#include "base/buf.h"
#include "base/cleanup.h"
#include "base/text.h"

enum {
    REUSE_MEMORY_MAX = 8 << 20,  // charges left behind above this spoil a slot
    PATH_SIZE = CGROUP_PATH_MAX + CGROUP_NAME_MAX + 96,
    REMOVE_TRIES = 50,
    NEARLY_FULL = 32,  // a group is full when less than this part of its limit is free
};

static const struct file_spec {
    enum cgroup_controller controller;
    const char *v1, *v2;
    int flags;
} file_specs[CGF_FILES] = {
    [CGF_MEM_LIMIT] = {CG_MEMORY, "memory.limit_in_bytes", "memory.max", O_WRONLY},
    [CGF_MEM_SWAP_LIMIT] = {CG_MEMORY, "memory.memsw.limit_in_bytes", "memory.swap.max", O_WRONLY},
    [CGF_MEM_PEAK] = {CG_MEMORY, "memory.max_usage_in_bytes", "memory.peak", O_RDWR},
    [CGF_MEM_USAGE] = {CG_MEMORY, "memory.usage_in_bytes", "memory.current", O_RDONLY},
    [CGF_MEM_OOM] = {CG_MEMORY, "memory.oom_control", "memory.events", O_RDONLY},
    [CGF_PIDS_MAX] = {CG_PIDS, "pids.max", "pids.max", O_WRONLY},
    [CGF_PIDS_NOW] = {CG_PIDS, "pids.current", "pids.current", O_RDONLY},
    [CGF_CPU_USER] = {CG_CPUACCT, "cpuacct.usage_user", "cpu.stat", O_RDONLY},
    [CGF_CPU_SYSTEM] = {CG_CPUACCT, "cpuacct.usage_sys", "cpu.stat", O_RDONLY},
};

static const char *slot_path(const struct cgroup_slot *slot, enum cgroup_controller c,
                             const char *rest, char out[PATH_SIZE]) {
    snprintf(out, PATH_SIZE, "%s/%s%s%s", slot->site->base[c], slot->name, *rest ? "/" : "", rest);
    return out;
}

void cgroup_slot_init(struct cgroup_slot *slot, const struct cgroup_site *site, const char *name) {
    *slot = (struct cgroup_slot){.site = site};
    assert(strlen(name) < sizeof slot->name);
    snprintf(slot->name, sizeof slot->name, "%s", name);
    for (int i = 0; i < CGF_FILES; i++)
        slot->files[i] = -1;
}

static int slot_file(struct cgroup_slot *slot, enum cgroup_file f) {
    char path[PATH_SIZE];
    const struct file_spec *spec = &file_specs[f];
    enum cgroup_controller c = spec->controller;
    bool v2 = slot->site->kind == CGROUP_V2;
    if (slot->files[f] >= 0)
        return slot->files[f];
    if (!slot->made[c])
        return -ENOENT;
    // memory.peak can be written only on newer kernels; version 2 never needs to.
    int flags = v2 && f == CGF_MEM_PEAK ? O_RDONLY : spec->flags;
    int fd = open(slot_path(slot, c, v2 ? spec->v2 : spec->v1, path), flags | O_CLOEXEC);
    if (fd < 0)
        return -errno;
    return slot->files[f] = fd;
}

static int file_put(struct cgroup_slot *slot, enum cgroup_file f, const char *text) {
    int fd = slot_file(slot, f);
    if (fd < 0)
        return fd;
    return pwrite(fd, text, strlen(text), 0) < 0 ? -errno : 0;
}

static int file_get(struct cgroup_slot *slot, enum cgroup_file f, char *out, size_t size) {
    int fd = slot_file(slot, f);
    if (fd < 0)
        return fd;
    ssize_t n = pread(fd, out, size - 1, 0);
    if (n < 0)
        return -errno;
    out[n] = 0;
    return 0;
}

static uint64_t file_number(struct cgroup_slot *slot, enum cgroup_file f) {
    char text[64];
    uint64_t v = 0;
    if (file_get(slot, f, text, sizeof text) < 0)
        return 0;
    text[strcspn(text, "\n")] = 0;
    return parse_u64(text, &v) < 0 ? 0 : v;
}

static int adopt_into(struct cgroup_slot *slot, enum cgroup_controller c) {
    char path[PATH_SIZE], pid[16];
    snprintf(pid, sizeof pid, "%d", slot->nursery);
    return kernel_write(slot_path(slot, c, "cgroup.procs", path), pid);
}

static int slot_make(struct cgroup_slot *slot, enum cgroup_controller c) {
    char path[PATH_SIZE];
    if (slot->made[c] || !slot->site->has[c])
        return 0;
    slot_path(slot, c, "", path);
    if (mkdir(path, 0755) < 0 && errno != EEXIST)
        return -errno;
    slot->made[c] = true;
    if (slot->site->kind == CGROUP_V1 && c == CG_CPUSET) {
        char from[PATH_SIZE], text[4096];
        kernel_path(from, sizeof from, slot->site->base[c], "cpuset.mems");
        if (kernel_read(from, text, sizeof text) > 0)
            kernel_write(slot_path(slot, c, "cpuset.mems", path), text);
        kernel_path(from, sizeof from, slot->site->base[c], "cpuset.cpus");
        if (kernel_read(from, text, sizeof text) > 0)
            kernel_write(slot_path(slot, c, "cpuset.cpus", path), text);
    }
    return slot->nursery ? adopt_into(slot, c) : 0;
}

int cgroup_slot_adopt(struct cgroup_slot *slot, pid_t nursery, struct error *e) {
    slot->nursery = nursery;
    for (int c = 0; c < CG_CONTROLLERS; c++) {
        int rc = slot->made[c] ? adopt_into(slot, c) : 0;
        if (rc < 0)
            return error_set(e, -rc, "cgroup: cannot enter %s/%s: %s", slot->site->base[c],
                             slot->name, strerror(-rc));
    }
    return 0;
}

static int set_memory(struct cgroup_slot *slot, uint64_t bytes) {
    char text[32];
    bool v2 = slot->site->kind == CGROUP_V2;
    int rc = 0;
    if (!v2 && file_put(slot, CGF_MEM_PEAK, "0") < 0)
        slot->spoilt = true;
    if (bytes == slot->memory_bytes)
        return 0;
    snprintf(text, sizeof text, "%" PRIu64, bytes);
    if (v2) {
        char path[PATH_SIZE];
        kernel_write(slot_path(slot, CG_MEMORY, "memory.oom.group", path), "1");
        file_put(slot, CGF_MEM_SWAP_LIMIT, "0");
        rc = file_put(slot, CGF_MEM_LIMIT, bytes ? text : "max");
    } else {
        // Memory with swap may never be below memory alone: lift it, set, close it again. It is
        // missing where swap is not counted.
        file_put(slot, CGF_MEM_SWAP_LIMIT, "-1");
        rc = file_put(slot, CGF_MEM_LIMIT, bytes ? text : "-1");
        if (rc == 0 && bytes)
            file_put(slot, CGF_MEM_SWAP_LIMIT, text);
    }
    if (rc == 0)
        slot->memory_bytes = bytes;
    return rc;
}

static int set_pids(struct cgroup_slot *slot, uint64_t max) {
    char text[32] = "max";
    if (max == slot->pids_max)
        return 0;
    if (max)  // the nursery counts, but is not the user's
        snprintf(text, sizeof text, "%" PRIu64, max + (slot->site->kind == CGROUP_V1));
    int rc = file_put(slot, CGF_PIDS_MAX, text);
    if (rc == 0)
        slot->pids_max = max;
    return rc;
}

static int set_cpus(struct cgroup_slot *slot, const uint32_t *cpus, uint32_t n) {
    cleanup_buf struct buf b = {0};
    char path[PATH_SIZE], all[4096];
    for (uint32_t i = 0; i < n; i++)
        buf_addf(&b, i ? ",%u" : "%u", cpus[i]);
    bool cacheable = b.len < sizeof slot->cpus;
    if (cacheable && streq(slot->cpus, buf_str(&b)))
        return 0;
    slot->cpus[0] = 0;
    if (!n && slot->site->kind == CGROUP_V1) {
        kernel_path(path, sizeof path, slot->site->base[CG_CPUSET], "cpuset.cpus");
        if (kernel_read(path, all, sizeof all) > 0)
            buf_adds(&b, all);
    }
    int rc = kernel_write(slot_path(slot, CG_CPUSET, "cpuset.cpus", path),
                          b.len ? buf_str(&b) : "\n");
    if (rc == 0 && n && cacheable)
        memcpy(slot->cpus, b.data, b.len + 1);
    return rc;
}

static int set_weight(struct cgroup_slot *slot, uint32_t weight) {
    char path[PATH_SIZE], text[32];
    slot->spoilt = true;  // rare enough not to be worth undoing
    if (slot->site->kind == CGROUP_V2) {
        snprintf(text, sizeof text, "%u", weight);
        return kernel_write(slot_path(slot, CG_CPU, "cpu.weight", path), text);
    }
    uint32_t shares = weight * 1024 / 100;  // 100 is the default of version 2, 1024 of version 1
    snprintf(text, sizeof text, "%u", shares < 2 ? 2 : shares);
    return kernel_write(slot_path(slot, CG_CPU, "cpu.shares", path), text);
}

static int deny_devices(struct cgroup_slot *slot, const struct launch_request *r) {
    char path[PATH_SIZE], text[64];
    slot->spoilt = true;
    if (slot->site->kind == CGROUP_V2)
        return cgroup_devices_deny(slot_path(slot, CG_DEVICES, "", path), r->denied, r->ndenied);
    slot_path(slot, CG_DEVICES, "devices.deny", path);
    for (uint32_t i = 0; i < r->ndenied; i++) {
        snprintf(text, sizeof text, "%c %u:%u rwm", r->denied[i].block ? 'b' : 'c',
                 r->denied[i].major, r->denied[i].minor);
        int rc = kernel_write(path, text);
        if (rc < 0)
            return rc;
    }
    return 0;
}

static void read_cpu(struct cgroup_slot *slot, uint64_t *user_ns, uint64_t *system_ns) {
    char text[1024];
    if (slot->site->kind == CGROUP_V2) {
        if (file_get(slot, CGF_CPU_USER, text, sizeof text) < 0)
            return;
        *user_ns = kernel_field(text, "user_usec") * 1000;
        *system_ns = kernel_field(text, "system_usec") * 1000;
    } else {
        *user_ns = file_number(slot, CGF_CPU_USER);
        *system_ns = file_number(slot, CGF_CPU_SYSTEM);
    }
}

static uint64_t read_oom_kills(struct cgroup_slot *slot) {
    char text[1024];
    return file_get(slot, CGF_MEM_OOM, text, sizeof text) < 0 ? 0 : kernel_field(text, "oom_kill");
}

// Whether a kill came from the group's own limit rather than from a machine that is out of memory.
// Version 1 does not tell: there the group has been full.
static bool limit_was_hit(const struct cgroup_slot *slot, const char *group, uint64_t limit,
                          uint64_t peak) {
    char path[PATH_SIZE], rest[64], text[1024];
    if (!limit)
        return false;
    snprintf(rest, sizeof rest, "%s%smemory.events.local", group, *group ? "/" : "");
    if (slot->site->kind == CGROUP_V2 &&
        kernel_read(slot_path(slot, CG_MEMORY, rest, path), text, sizeof text) > 0)
        return kernel_field(text, "oom") > 0;
    return peak >= limit - limit / NEARLY_FULL;
}

static int limit_failed(struct error *e, int rc, const char *what, const char *value) {
    return error_set(e, -rc, "%s limit %s cannot be set: %s", what, value, strerror(-rc));
}

int cgroup_slot_prepare(struct cgroup_slot *slot, const struct launch_request *r, struct error *e) {
    const struct cgroup_site *site = slot->site;
    char value[32];
    int rc;
    if (site->kind == CGROUP_NONE)
        return 0;
    bool need[CG_CONTROLLERS] = {
        [CG_CPUACCT] = true, [CG_MEMORY] = true, [CG_PIDS] = true,
        [CG_CPUSET] = r->ncpus > 0, [CG_CPU] = r->cpu_weight > 0, [CG_DEVICES] = r->ndenied > 0,
    };
    need[site->track] = true;
    for (int c = 0; c < CG_CONTROLLERS; c++)
        if (need[c] && (rc = slot_make(slot, c)) < 0)
            return error_set(e, -rc, "cgroup: cannot make %s/%s: %s", site->base[c], slot->name,
                             strerror(-rc));
    snprintf(value, sizeof value, "%" PRIu64, r->memory_bytes);
    if (slot->made[CG_MEMORY] && (rc = set_memory(slot, r->memory_bytes)) < 0)
        return limit_failed(e, rc, "memory", value);
    snprintf(value, sizeof value, "%" PRIu64, r->pids_max);
    if (slot->made[CG_PIDS] && site->has[CG_PIDS] && (rc = set_pids(slot, r->pids_max)) < 0)
        return limit_failed(e, rc, "process", value);
    // Cpus that this cpuset does not have (virtual nodes) are a matter of affinity, tried later.
    if (slot->made[CG_CPUSET] && site->has[CG_CPUSET])
        set_cpus(slot, r->cpus, r->ncpus);
    if (slot->made[CG_CPU] && site->has[CG_CPU] && r->cpu_weight &&
        (rc = set_weight(slot, r->cpu_weight)) < 0)
        return limit_failed(e, rc, "cpu weight", "");
    if (r->ndenied && !site->has[CG_DEVICES])
        return limit_failed(e, -ENOTSUP, "device", "");
    if (r->ndenied && (rc = deny_devices(slot, r)) < 0)
        return limit_failed(e, rc, "device", "");
    read_cpu(slot, &slot->base_user_ns, &slot->base_system_ns);
    slot->base_oom_kills = read_oom_kills(slot);
    return 0;
}

static enum cgroup_oom slot_oom(struct cgroup_slot *slot, uint64_t peak) {
    if (!slot->made[CG_MEMORY] || read_oom_kills(slot) <= slot->base_oom_kills)
        return CGROUP_OOM_NONE;
    return limit_was_hit(slot, "", slot->memory_bytes, peak) ? CGROUP_OOM_LIMIT
                                                             : CGROUP_OOM_MACHINE;
}

void cgroup_slot_usage(struct cgroup_slot *slot, struct launch_usage *usage, enum cgroup_oom *oom) {
    uint64_t user = slot->base_user_ns, system = slot->base_system_ns;
    if (slot->site->kind == CGROUP_NONE)
        return;
    read_cpu(slot, &user, &system);
    if (user > slot->base_user_ns || system > slot->base_system_ns) {
        usage->user_us = (user - slot->base_user_ns) / 1000;
        usage->system_us = (system - slot->base_system_ns) / 1000;
    }
    uint64_t peak = file_number(slot, CGF_MEM_PEAK);
    if (peak)
        usage->peak_bytes = peak;
    *oom = slot_oom(slot, peak);
}

void cgroup_slot_now(struct cgroup_slot *slot, uint64_t *memory_bytes, uint32_t *processes) {
    if (slot->made[CG_MEMORY])
        *memory_bytes = file_number(slot, CGF_MEM_USAGE);
    if (slot->made[CG_PIDS]) {
        uint64_t n = file_number(slot, CGF_PIDS_NOW);
        *processes = (uint32_t)(n > 0 && slot->nursery > 0 ? n - 1 : n);
    }
}

void cgroup_slot_seal(struct cgroup_slot *slot) {
    if (slot->made[CG_PIDS] && slot->site->has[CG_PIDS] && file_put(slot, CGF_PIDS_MAX, "0") == 0)
        slot->pids_max = UINT64_MAX;  // so that the next attempt writes it anew
}

bool cgroup_slot_reusable(struct cgroup_slot *slot) {
    if (slot->site->kind != CGROUP_V1 || slot->spoilt || slot->steps)
        return false;
    return !slot->made[CG_MEMORY] || file_number(slot, CGF_MEM_USAGE) <= REUSE_MEMORY_MAX;
}

// The last processes of a group are gone a moment after their end was seen.
static void remove_group(const char *path) {
    struct timespec nap = {.tv_nsec = 1000000};
    for (int i = 0; i < REMOVE_TRIES; i++) {
        if (rmdir(path) == 0 || errno != EBUSY)
            return;
        nanosleep(&nap, NULL);
    }
}

typedef int step_fn(struct cgroup_slot *slot, const char *step, int arg);

// Calls fn for every step folder; the sum of what it returns.
static int each_step(struct cgroup_slot *slot, step_fn *fn, int arg) {
    char path[PATH_SIZE];
    int sum = 0;
    if (!slot->steps)
        return 0;
    DIR *d = opendir(slot_path(slot, slot->site->track, "", path));
    if (!d)
        return 0;
    for (struct dirent *ent; (ent = readdir(d));)
        if (str_has_prefix(ent->d_name, "step"))
            sum += fn(slot, ent->d_name, arg);
    closedir(d);
    return sum;
}

static int remove_step(struct cgroup_slot *slot, const char *step, int arg) {
    char path[PATH_SIZE];
    remove_group(slot_path(slot, slot->site->track, step, path));
    return 0;
}

void cgroup_slot_done(struct cgroup_slot *slot) {
    char path[PATH_SIZE];
    for (int i = 0; i < CGF_FILES; i++)
        if (slot->files[i] >= 0)
            close(slot->files[i]);
    each_step(slot, remove_step, 0);
    for (int c = 0; c < CG_CONTROLLERS; c++)
        if (slot->made[c])
            remove_group(slot_path(slot, c, "", path));
    cgroup_slot_init(slot, slot->site, slot->name);
}

static void step_name(char out[32], uint32_t step) {
    snprintf(out, 32, "step%u", step);
}

int cgroup_step_make(struct cgroup_slot *slot, uint32_t step) {
    char path[PATH_SIZE], name[32];
    if (slot->site->kind == CGROUP_NONE)
        return 0;
    step_name(name, step);
    slot->steps++;
    return mkdir(slot_path(slot, slot->site->track, name, path), 0755) < 0 && errno != EEXIST
               ? -errno : 0;
}

void cgroup_step_remove(struct cgroup_slot *slot, uint32_t step) {
    char name[32];
    step_name(name, step);
    if (slot->site->kind != CGROUP_NONE)
        remove_step(slot, name, 0);
}

int cgroup_step_open(struct cgroup_slot *slot, uint32_t step) {
    char path[PATH_SIZE], name[32] = "";
    bool v2 = slot->site->kind == CGROUP_V2;
    if (slot->site->kind == CGROUP_NONE || (!v2 && !step))
        return -1;
    if (step)
        step_name(name, step);
    if (!v2)
        snprintf(name + strlen(name), sizeof name - strlen(name), "/cgroup.procs");
    slot_path(slot, slot->site->track, name, path);
    return open(path, v2 ? O_PATH | O_DIRECTORY | O_CLOEXEC : O_WRONLY | O_CLOEXEC);
}

// The pid may have been given to a stranger since it was listed: hold it, then look again.
static bool signal_member(struct cgroup_slot *slot, pid_t pid, int sig) {
    char path[64], text[4096], mark[CGROUP_NAME_MAX + 2];
    cleanup_close int fd = (int)syscall(SYS_pidfd_open, pid, 0);
    if (fd < 0)
        return false;
    snprintf(path, sizeof path, "/proc/%d/cgroup", pid);
    snprintf(mark, sizeof mark, "/%s", slot->name);
    if (kernel_read(path, text, sizeof text) < 0 || !strstr(text, mark))
        return false;
    return syscall(SYS_pidfd_send_signal, fd, sig, NULL, 0) == 0;
}

// Signals (sig 0: counts) the processes listed in one cgroup.procs.
static int signal_listed(struct cgroup_slot *slot, const char *step, int sig) {
    char path[PATH_SIZE], rest[64];
    int n = 0, pid;
    snprintf(rest, sizeof rest, "%s%scgroup.procs", step, *step ? "/" : "");
    cleanup_fclose FILE *f = fopen(slot_path(slot, slot->site->track, rest, path), "re");
    if (!f)
        return 0;
    while (fscanf(f, "%d", &pid) == 1)
        if (pid > 0 && pid != slot->nursery)
            n += sig ? signal_member(slot, pid, sig) : 1;
    return n;
}

bool cgroup_slot_empty(struct cgroup_slot *slot) {
    char text[32];
    if (slot->site->kind == CGROUP_NONE)
        return true;
    // The number is quickly read; the list must be opened anew, because version 1 keeps showing
    // the old one through a descriptor for a second.
    if (slot->site->has[CG_PIDS] && file_get(slot, CGF_PIDS_NOW, text, sizeof text) == 0 &&
        streq(text, slot->nursery > 0 ? "1\n" : "0\n"))
        return true;
    return signal_listed(slot, "", 0) + each_step(slot, signal_listed, 0) == 0;
}

int cgroup_signal(struct cgroup_slot *slot, uint32_t step, int sig) {
    char path[PATH_SIZE], name[32] = "", rest[64];
    if (slot->site->kind == CGROUP_NONE)
        return -ENOTSUP;
    if (step)
        step_name(name, step);
    if (slot->site->kind == CGROUP_V2 && sig == SIGKILL) {
        snprintf(rest, sizeof rest, "%s%scgroup.kill", name, *name ? "/" : "");
        if (kernel_write(slot_path(slot, slot->site->track, rest, path), "1") == 0)
            return 1;
    }
    int n = signal_listed(slot, name, sig);
    return step ? n : n + each_step(slot, signal_listed, sig);
}

int cgroup_signal_main(struct cgroup_slot *slot, int sig) {
    return slot->site->kind == CGROUP_NONE ? -ENOTSUP : signal_listed(slot, "", sig);
}
