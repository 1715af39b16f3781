// Owns one shepherd's group: its limits, its counters, and signalling all that is in it. Values
// already set are not written again, and files used for every attempt stay open: a short job
// costs a handful of system calls here.
#include <assert.h>
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <string.h>
#include <sys/eventfd.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/buf.h"
#include "base/cleanup.h"
#include "base/text.h"
#include "cgroup/cgroup.h"
#include "cgroup/cgroup_io.h"

enum {
    REUSE_MEMORY_MAX = 8 << 20,  // charges left behind above this spoil a slot
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
    [CGF_MEM_OOM] = {CG_MEMORY, "memory.oom_control", "memory.events.local", O_RDONLY},
    [CGF_PIDS_MAX] = {CG_PIDS, "pids.max", "pids.max", O_WRONLY},
    [CGF_PIDS_NOW] = {CG_PIDS, "pids.current", "pids.current", O_RDONLY},
    [CGF_CPU_USER] = {CG_CPUACCT, "cpuacct.usage_user", "cpu.stat", O_RDONLY},
    [CGF_CPU_SYSTEM] = {CG_CPUACCT, "cpuacct.usage_sys", "cpu.stat", O_RDONLY},
};

void cgroup_slot_init(struct cgroup_slot *slot, const struct cgroup_site *site, const char *name) {
    *slot = (struct cgroup_slot){.site = site, .watch_fd = -1};
    assert(strlen(name) < sizeof slot->name);
    snprintf(slot->name, sizeof slot->name, "%s", name);
    for (int i = 0; i < CGF_FILES; i++)
        slot->files[i] = -1;
}

static int slot_file(struct cgroup_slot *slot, enum cgroup_file f) {
    char path[CGROUP_FULL_MAX];
    const struct file_spec *spec = &file_specs[f];
    enum cgroup_controller c = spec->controller;
    bool v2 = slot->site->kind == CGROUP_V2;
    if (slot->files[f] >= 0)
        return slot->files[f];
    if (!slot->made[c])
        return -ENOENT;
    // memory.peak can be written only on newer kernels; version 2 never needs to.
    int flags = v2 && f == CGF_MEM_PEAK ? O_RDONLY : spec->flags;
    int fd = open(cgroup_path(slot, c, v2 ? spec->v2 : spec->v1, path), flags | O_CLOEXEC);
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
    char path[CGROUP_FULL_MAX], pid[16];
    snprintf(pid, sizeof pid, "%d", slot->nursery);
    return cgroup_kernel_write(cgroup_path(slot, c, "cgroup.procs", path), pid);
}

int cgroup_slot_make(struct cgroup_slot *slot, enum cgroup_controller c) {
    char path[CGROUP_FULL_MAX];
    if (slot->made[c] || !slot->site->has[c])
        return 0;
    cgroup_path(slot, c, "", path);
    if (mkdir(path, 0755) < 0 && errno != EEXIST)
        return -errno;
    slot->made[c] = true;
    if (slot->site->kind == CGROUP_V1 && c == CG_CPUSET) {
        char from[CGROUP_FULL_MAX], text[4096];
        cgroup_kernel_path(from, sizeof from, slot->site->base[c], "cpuset.mems");
        if (cgroup_kernel_read(from, text, sizeof text) > 0)
            cgroup_kernel_write(cgroup_path(slot, c, "cpuset.mems", path), text);
        cgroup_kernel_path(from, sizeof from, slot->site->base[c], "cpuset.cpus");
        if (cgroup_kernel_read(from, text, sizeof text) > 0)
            cgroup_kernel_write(cgroup_path(slot, c, "cpuset.cpus", path), text);
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
        char path[CGROUP_FULL_MAX];
        cgroup_kernel_write(cgroup_path(slot, CG_MEMORY, "memory.oom.group", path), "1");
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
    char path[CGROUP_FULL_MAX], all[4096];
    for (uint32_t i = 0; i < n; i++)
        buf_addf(&b, i ? ",%u" : "%u", cpus[i]);
    bool cacheable = b.len < sizeof slot->cpus;
    if (cacheable && streq(slot->cpus, buf_str(&b)))
        return 0;
    slot->cpus[0] = 0;
    if (!n && slot->site->kind == CGROUP_V1) {
        cgroup_kernel_path(path, sizeof path, slot->site->base[CG_CPUSET], "cpuset.cpus");
        if (cgroup_kernel_read(path, all, sizeof all) > 0)
            buf_adds(&b, all);
    }
    int rc =
        cgroup_kernel_write(cgroup_path(slot, CG_CPUSET, "cpuset.cpus", path), b.len ? buf_str(&b) : "\n");
    if (rc == 0 && n && cacheable)
        memcpy(slot->cpus, b.data, b.len + 1);
    return rc;
}

static int set_weight(struct cgroup_slot *slot, uint32_t weight) {
    char path[CGROUP_FULL_MAX], text[32];
    slot->spoilt = true;  // rare enough not to be worth undoing
    if (slot->site->kind == CGROUP_V2) {
        snprintf(text, sizeof text, "%u", weight);
        return cgroup_kernel_write(cgroup_path(slot, CG_CPU, "cpu.weight", path), text);
    }
    uint32_t shares = weight * 1024 / 100;  // 100 is the default of version 2, 1024 of version 1
    snprintf(text, sizeof text, "%u", shares < 2 ? 2 : shares);
    return cgroup_kernel_write(cgroup_path(slot, CG_CPU, "cpu.shares", path), text);
}

static void read_cpu(struct cgroup_slot *slot, uint64_t *user_ns, uint64_t *system_ns) {
    char text[1024];
    if (slot->site->kind == CGROUP_V2) {
        if (file_get(slot, CGF_CPU_USER, text, sizeof text) < 0)
            return;
        *user_ns = cgroup_kernel_field(text, "user_usec") * 1000;
        *system_ns = cgroup_kernel_field(text, "system_usec") * 1000;
    } else {
        *user_ns = file_number(slot, CGF_CPU_USER);
        *system_ns = file_number(slot, CGF_CPU_SYSTEM);
    }
}

static uint64_t read_oom_kills(struct cgroup_slot *slot) {
    char text[1024];
    return file_get(slot, CGF_MEM_OOM, text, sizeof text) < 0 ? 0 : cgroup_kernel_field(text, "oom_kill");
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
        if (need[c] && (rc = cgroup_slot_make(slot, c)) < 0)
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
    if (r->ndenied && (rc = cgroup_deny(slot, "", r)) < 0)
        return limit_failed(e, rc, "device", "");
    read_cpu(slot, &slot->base_user_ns, &slot->base_system_ns);
    slot->base_oom_kills = read_oom_kills(slot);
    return 0;
}

// Counted are processes of the group itself: what happens inside a step with a limit of its own is
// not the job's. Only the job's limit in a step's way is.
static enum cgroup_oom slot_oom(struct cgroup_slot *slot, uint64_t peak) {
    if (!slot->made[CG_MEMORY])
        return CGROUP_OOM_NONE;
    bool killed = read_oom_kills(slot) > slot->base_oom_kills || slot->step_victims ||
                  (slot->divided && cgroup_main_killed(slot));
    if ((killed || slot->divided) && cgroup_limit_was_hit(slot, "", slot->memory_bytes, peak))
        return CGROUP_OOM_LIMIT;
    return killed ? CGROUP_OOM_MACHINE : CGROUP_OOM_NONE;
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

bool cgroup_slot_watch(struct cgroup_slot *slot) {
    char path[CGROUP_FULL_MAX], text[48];
    if (slot->site->kind != CGROUP_V1 || !slot->memory_bytes || slot->watch_fd >= 0)
        return false;
    int control = slot_file(slot, CGF_MEM_OOM);
    cleanup_close int fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
    if (control < 0 || fd < 0)
        return false;
    snprintf(text, sizeof text, "%d %d", fd, control);
    if (cgroup_kernel_write(cgroup_path(slot, CG_MEMORY, "cgroup.event_control", path), text) == 0)
        slot->watch_fd = TAKE_FD(fd);
    return read_oom_kills(slot) > slot->base_oom_kills;
}

void cgroup_slot_unwatch(struct cgroup_slot *slot) {
    if (slot->watch_fd >= 0)
        close(slot->watch_fd);
    slot->watch_fd = -1;
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

bool cgroup_slot_empty(struct cgroup_slot *slot) {
    char text[32];
    if (slot->site->kind == CGROUP_NONE)
        return true;
    // The number is quickly read; the list must be opened anew, because version 1 keeps showing
    // the old one through a descriptor for a second.
    if (slot->site->has[CG_PIDS] && file_get(slot, CGF_PIDS_NOW, text, sizeof text) == 0 &&
        streq(text, slot->nursery > 0 ? "1\n" : "0\n"))
        return true;
    return cgroup_members(slot) == 0;
}

void cgroup_slot_done(struct cgroup_slot *slot) {
    char path[CGROUP_FULL_MAX];
    for (int i = 0; i < CGF_FILES; i++)
        if (slot->files[i] >= 0)
            close(slot->files[i]);
    cgroup_slot_unwatch(slot);
    cgroup_steps_remove(slot);
    for (int c = 0; c < CG_CONTROLLERS; c++)
        if (slot->made[c])
            cgroup_remove(cgroup_path(slot, c, "", path));
    cgroup_slot_init(slot, slot->site, slot->name);
}
