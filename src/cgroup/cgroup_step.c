// Owns what is below a shepherd's group: the steps' own groups, with limits of their own where a
// step asks for them, and signalling whatever is in any of them. Version 2 lets a group divide its
// memory only when it holds no process itself: then the job's own move into a group beside the steps.
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

#include "base/cleanup.h"
#include "base/text.h"
#include "cgroup/cgroup.h"
#include "cgroup/cgroup_io.h"
#include "cgroup_devices.h"

enum {
    REMOVE_TRIES = 50,
    DIVIDE_TRIES = 50,
    NEARLY_FULL = 32,  // a group is full when less than this part of its limit is free
};

static const char MAIN[] = "step0";  // the job's own processes, once its group is divided

const char *cgroup_path(const struct cgroup_slot *slot, enum cgroup_controller c, const char *rest,
                        char out[CGROUP_FULL_MAX]) {
    snprintf(out, CGROUP_FULL_MAX, "%s/%s%s%s", slot->site->base[c], slot->name, *rest ? "/" : "",
             rest);
    return out;
}

// A file of a group below the slot's ("": its own).
static const char *group_file(const struct cgroup_slot *slot, enum cgroup_controller c,
                              const char *group, const char *file, char out[CGROUP_FULL_MAX]) {
    char rest[96];
    snprintf(rest, sizeof rest, "%s%s%s", group, *group ? "/" : "", file);
    return cgroup_path(slot, c, rest, out);
}

bool cgroup_limit_was_hit(const struct cgroup_slot *slot, const char *group, uint64_t limit,
                          uint64_t peak) {
    char path[CGROUP_FULL_MAX], text[1024];
    if (!limit)
        return false;
    if (slot->site->kind == CGROUP_V2 &&
        cgroup_kernel_read(group_file(slot, CG_MEMORY, group, "memory.events.local", path), text,
                           sizeof text) > 0)
        return cgroup_kernel_field(text, "oom") > 0;
    return peak >= limit - limit / NEARLY_FULL;
}

int cgroup_deny(struct cgroup_slot *slot, const char *group, const struct launch_request *r) {
    char path[CGROUP_FULL_MAX], text[64];
    slot->spoilt = true;
    if (slot->site->kind == CGROUP_V2)
        return cgroup_devices_deny(cgroup_path(slot, CG_DEVICES, group, path), r->denied, r->ndenied);
    group_file(slot, CG_DEVICES, group, "devices.deny", path);
    for (uint32_t i = 0; i < r->ndenied; i++) {
        snprintf(text, sizeof text, "%c %u:%u rwm", r->denied[i].block ? 'b' : 'c',
                 r->denied[i].major, r->denied[i].minor);
        int rc = cgroup_kernel_write(path, text);
        if (rc < 0)
            return rc;
    }
    return 0;
}

// The last processes of a group are gone a moment after their end was seen.
void cgroup_remove(const char *path) {
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
    char path[CGROUP_FULL_MAX];
    int sum = 0;
    if (!slot->steps)
        return 0;
    DIR *d = opendir(cgroup_path(slot, slot->site->track, "", path));
    if (!d)
        return 0;
    for (struct dirent *ent; (ent = readdir(d));)
        if (str_has_prefix(ent->d_name, "step"))
            sum += fn(slot, ent->d_name, arg);
    closedir(d);
    return sum;
}

static void step_name(char out[32], uint32_t step) {
    snprintf(out, 32, "step%u", step);
}

static int remove_step(struct cgroup_slot *slot, const char *step, int arg) {
    static const enum cgroup_controller others[] = {CG_MEMORY, CG_DEVICES};
    char path[CGROUP_FULL_MAX];
    for (int i = 0; i < 2 && slot->site->kind == CGROUP_V1; i++)
        if (slot->made[others[i]])
            cgroup_remove(cgroup_path(slot, others[i], step, path));
    cgroup_remove(cgroup_path(slot, slot->site->track, step, path));
    return 0;
}

void cgroup_steps_remove(struct cgroup_slot *slot) {
    each_step(slot, remove_step, 0);
}

static int make_group(const struct cgroup_slot *slot, enum cgroup_controller c, const char *group) {
    char path[CGROUP_FULL_MAX];
    return mkdir(cgroup_path(slot, c, group, path), 0755) < 0 && errno != EEXIST ? -errno : 0;
}

// Version 2: lets groups below the slot's have memory limits.
static int divide(struct cgroup_slot *slot) {
    char group[CGROUP_FULL_MAX], leaf[CGROUP_FULL_MAX], control[CGROUP_FULL_MAX];
    struct timespec nap = {.tv_nsec = 1000000};
    if (slot->divided)
        return 0;
    int rc = make_group(slot, CG_MEMORY, MAIN);
    cgroup_path(slot, CG_MEMORY, "", group);
    cgroup_path(slot, CG_MEMORY, MAIN, leaf);
    cgroup_path(slot, CG_MEMORY, "cgroup.subtree_control", control);
    for (int i = 0; rc == 0 && i < DIVIDE_TRIES && !slot->divided; i++) {
        cgroup_move(group, leaf);  // they fork meanwhile
        slot->divided = cgroup_kernel_write(control, "+memory") == 0;
        if (!slot->divided)
            nanosleep(&nap, NULL);
    }
    return rc < 0 ? rc : slot->divided ? 0 : -EBUSY;
}

static int limit_memory(struct cgroup_slot *slot, const char *group, uint64_t bytes) {
    char path[CGROUP_FULL_MAX], text[32];
    snprintf(text, sizeof text, "%" PRIu64, bytes);
    if (slot->site->kind == CGROUP_V2) {
        int rc = divide(slot);
        if (rc < 0)
            return rc;
        cgroup_kernel_write(group_file(slot, CG_MEMORY, group, "memory.oom.group", path), "1");
        cgroup_kernel_write(group_file(slot, CG_MEMORY, group, "memory.swap.max", path), "0");
        return cgroup_kernel_write(group_file(slot, CG_MEMORY, group, "memory.max", path), text);
    }
    int rc = make_group(slot, CG_MEMORY, group);
    if (rc == 0)
        rc = cgroup_kernel_write(group_file(slot, CG_MEMORY, group, "memory.limit_in_bytes", path), text);
    if (rc == 0)  // missing where swap is not counted
        cgroup_kernel_write(group_file(slot, CG_MEMORY, group, "memory.memsw.limit_in_bytes", path), text);
    return rc;
}

static int deny_in_step(struct cgroup_slot *slot, const char *group, const struct launch_request *r) {
    int rc = slot->site->kind == CGROUP_V1 ? cgroup_slot_make(slot, CG_DEVICES) : 0;
    if (rc == 0 && slot->site->kind == CGROUP_V1)
        rc = make_group(slot, CG_DEVICES, group);
    return rc < 0 ? rc : cgroup_deny(slot, group, r);
}

int cgroup_step_make(struct cgroup_slot *slot, uint32_t step, const struct launch_request *r,
                     struct error *e) {
    const struct cgroup_site *site = slot->site;
    char name[32];
    if (site->kind == CGROUP_NONE)
        return 0;
    step_name(name, step);
    slot->steps++;
    int rc = make_group(slot, site->track, name);
    if (rc < 0)
        return error_set(e, -rc, "the step's control group cannot be made: %s", strerror(-rc));
    if (r->memory_bytes && site->has[CG_MEMORY])
        rc = limit_memory(slot, name, r->memory_bytes);
    if (rc < 0)
        return error_set(e, -rc, "the step's memory limit cannot be set: %s", strerror(-rc));
    if (r->ndenied && site->has[CG_DEVICES])
        rc = deny_in_step(slot, name, r);
    if (rc < 0)
        return error_set(e, -rc, "the step's devices cannot be limited: %s", strerror(-rc));
    return 0;
}

void cgroup_step_usage(struct cgroup_slot *slot, uint32_t step, uint64_t limit,
                       struct launch_usage *usage, enum cgroup_oom *oom) {
    char path[CGROUP_FULL_MAX], name[32], text[1024];
    bool v2 = slot->site->kind == CGROUP_V2;
    uint64_t peak = 0;
    if (!limit || !slot->site->has[CG_MEMORY])
        return;
    step_name(name, step);
    const char *file = v2 ? "memory.peak" : "memory.max_usage_in_bytes";
    if (cgroup_kernel_read(group_file(slot, CG_MEMORY, name, file, path), text, sizeof text) > 0) {
        text[strcspn(text, "\n")] = 0;
        if (parse_u64(text, &peak) == 0 && peak)
            usage->peak_bytes = peak;
    }
    file = v2 ? "memory.events" : "memory.oom_control";
    if (cgroup_kernel_read(group_file(slot, CG_MEMORY, name, file, path), text, sizeof text) < 0)
        return;
    uint64_t kills = cgroup_kernel_field(text, "oom_kill");
    if (!kills)
        return;
    bool own = cgroup_limit_was_hit(slot, name, limit, peak);
    *oom = own ? CGROUP_OOM_LIMIT : CGROUP_OOM_MACHINE;
    slot->step_victims |= !own && !v2;
}

bool cgroup_main_killed(const struct cgroup_slot *slot) {
    char path[CGROUP_FULL_MAX], text[1024];
    return cgroup_kernel_read(group_file(slot, CG_MEMORY, MAIN, "memory.events.local", path), text,
                              sizeof text) > 0 &&
           cgroup_kernel_field(text, "oom_kill") > 0;
}

void cgroup_step_remove(struct cgroup_slot *slot, uint32_t step) {
    char name[32];
    step_name(name, step);
    if (slot->site->kind != CGROUP_NONE)
        remove_step(slot, name, 0);
}

int cgroup_step_open(struct cgroup_slot *slot, uint32_t step, int fds[CGROUP_STEP_FDS]) {
    const enum cgroup_controller trees[CGROUP_STEP_FDS] = {slot->site->track, CG_MEMORY, CG_DEVICES};
    char path[CGROUP_FULL_MAX], name[32] = "";
    int n = 0;
    if (step)
        step_name(name, step);
    if (slot->site->kind == CGROUP_V2) {
        fds[0] = open(cgroup_path(slot, slot->site->track, step || !slot->divided ? name : MAIN, path),
                      O_PATH | O_DIRECTORY | O_CLOEXEC);
        return fds[0] < 0 ? -errno : 1;
    }
    // Version 1 has a tree for each controller, some of them mounted as one: each tree once.
    for (int i = 0; slot->site->kind == CGROUP_V1 && step && i < CGROUP_STEP_FDS; i++) {
        if (i && (trees[i] == trees[0] || !slot->made[trees[i]]))
            continue;
        fds[n] = open(group_file(slot, trees[i], name, "cgroup.procs", path), O_WRONLY | O_CLOEXEC);
        if (fds[n] >= 0)
            n++;
        else if (i == 0)
            return -errno;
    }
    return n;
}

// The pid may have been given to a stranger since it was listed: hold it, then look again.
static bool signal_member(struct cgroup_slot *slot, pid_t pid, int sig) {
    char path[64], text[4096], mark[CGROUP_NAME_MAX + 2];
    cleanup_close int fd = (int)syscall(SYS_pidfd_open, pid, 0);
    if (fd < 0)
        return false;
    snprintf(path, sizeof path, "/proc/%d/cgroup", pid);
    snprintf(mark, sizeof mark, "/%s", slot->name);
    if (cgroup_kernel_read(path, text, sizeof text) < 0 || !strstr(text, mark))
        return false;
    return syscall(SYS_pidfd_send_signal, fd, sig, NULL, 0) == 0;
}

// Signals (sig 0: counts) the processes listed in one cgroup.procs.
static int signal_listed(struct cgroup_slot *slot, const char *step, int sig) {
    char path[CGROUP_FULL_MAX], rest[64];
    int n = 0, pid;
    snprintf(rest, sizeof rest, "%s%scgroup.procs", step, *step ? "/" : "");
    cleanup_fclose FILE *f = fopen(cgroup_path(slot, slot->site->track, rest, path), "re");
    if (!f)
        return 0;
    while (fscanf(f, "%d", &pid) == 1)
        if (pid > 0 && pid != slot->nursery)
            n += sig ? signal_member(slot, pid, sig) : 1;
    return n;
}

int cgroup_members(struct cgroup_slot *slot) {
    return signal_listed(slot, "", 0) + each_step(slot, signal_listed, 0);
}

int cgroup_signal(struct cgroup_slot *slot, uint32_t step, int sig) {
    char path[CGROUP_FULL_MAX], name[32] = "", rest[64];
    if (slot->site->kind == CGROUP_NONE)
        return -ENOTSUP;
    if (step)
        step_name(name, step);
    if (slot->site->kind == CGROUP_V2 && sig == SIGKILL) {
        snprintf(rest, sizeof rest, "%s%scgroup.kill", name, *name ? "/" : "");
        if (cgroup_kernel_write(cgroup_path(slot, slot->site->track, rest, path), "1") == 0)
            return 1;
    }
    int n = signal_listed(slot, name, sig);
    return step ? n : n + each_step(slot, signal_listed, sig);
}

int cgroup_signal_main(struct cgroup_slot *slot, int sig) {
    if (slot->site->kind == CGROUP_NONE)
        return -ENOTSUP;
    return signal_listed(slot, "", sig) + (slot->divided ? signal_listed(slot, MAIN, sig) : 0);
}
