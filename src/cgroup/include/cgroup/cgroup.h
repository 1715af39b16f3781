// Control groups: where the kernel counts and limits what a job's processes use, and finds them
// all again to kill them. Version 1 (each controller in its own tree, some may be missing),
// version 2, or none. A site is where this agent's groups live; a slot is one shepherd's group.
// Version 1 slots are used again by the shepherd's next attempt, because making them costs more
// than a short job; version 2 slots live for one attempt.
#pragma once
#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

#include "base/error.h"
#include "launch/launch.h"

enum cgroup_kind { CGROUP_NONE, CGROUP_V1, CGROUP_V2 };
enum cgroup_controller {
    CG_CPUACCT,
    CG_PIDS,
    CG_MEMORY,
    CG_CPUSET,
    CG_CPU,
    CG_DEVICES,
    CG_CONTROLLERS,
};
enum { CGROUP_PATH_MAX = 512, CGROUP_NAME_MAX = 64 };

struct cgroup_site {
    enum cgroup_kind kind;
    bool has[CG_CONTROLLERS];
    // Version 1: a folder each. Version 2: all the same folder.
    char base[CG_CONTROLLERS][CGROUP_PATH_MAX];
    enum cgroup_controller track;  // the tree that says who belongs to a job
};

// Kept open between attempts of a reused slot.
enum cgroup_file {
    CGF_MEM_LIMIT,
    CGF_MEM_SWAP_LIMIT,
    CGF_MEM_PEAK,
    CGF_MEM_USAGE,
    CGF_MEM_OOM,
    CGF_PIDS_MAX,
    CGF_PIDS_NOW,
    CGF_CPU_USER,
    CGF_CPU_SYSTEM,
    CGF_FILES,
};

struct cgroup_slot {
    const struct cgroup_site *site;
    char name[CGROUP_NAME_MAX];
    bool made[CG_CONTROLLERS];
    int files[CGF_FILES];
    pid_t nursery;  // version 1: the process inside the slot from which jobs are forked; else 0
    uint64_t memory_bytes, pids_max;  // as set now, 0: none
    char cpus[CGROUP_PATH_MAX];
    uint64_t base_user_ns, base_system_ns, base_oom_kills;
    uint32_t steps;  // folders made for steps
    bool step_victims;    // version 1: steps lost processes to the job's limit or the machine's
    bool divided;         // version 2: the job's own processes are in a group beside the steps'
    bool spoilt;     // must not be used again
    int watch_fd;    // version 1: readable when the memory limit costs a process; -1: not watched
};

// `want`: "auto", "v1", "v2" or "none". `tag` tells agents of one machine apart. Never fails for
// want of control groups: then kind is CGROUP_NONE. Makes the site's folders.
int cgroup_discover(struct cgroup_site *site, const char *want, const char *tag, struct error *e);
// Removes the site's folders if they are empty.
void cgroup_leave(const struct cgroup_site *site);
// Kills whatever is in the group of that name and removes it: for a shepherd that is gone.
// 0, or -EBUSY when processes are left after about `patience_ms`.
int cgroup_destroy(const struct cgroup_site *site, const char *name, int patience_ms);

// Removes groups whose shepherd is gone. Attempts that it left must have been closed before.
void cgroup_tidy(const struct cgroup_site *site);

void cgroup_slot_init(struct cgroup_slot *slot, const struct cgroup_site *site, const char *name);
// Sets the limits of an attempt and starts its counters.
int cgroup_slot_prepare(struct cgroup_slot *slot, const struct launch_request *r, struct error *e);
// Version 1: puts the nursery into every group of the slot, now and as they are made.
int cgroup_slot_adopt(struct cgroup_slot *slot, pid_t nursery, struct error *e);
enum cgroup_oom { CGROUP_OOM_NONE, CGROUP_OOM_LIMIT, CGROUP_OOM_MACHINE };  // whose memory ran out
// What was used since prepare; fields that the kernel does not tell stay as they are.
void cgroup_slot_usage(struct cgroup_slot *slot, struct launch_usage *usage, enum cgroup_oom *oom);
// Memory and processes at this moment; fields that the kernel does not tell stay as they are.
void cgroup_slot_now(struct cgroup_slot *slot, uint64_t *memory_bytes, uint32_t *processes);
// Version 1 kills one process of a group that is out of memory, and leaves the rest of a job that
// cannot go on: makes watch_fd. True if it happened already. Version 2 kills all by itself.
bool cgroup_slot_watch(struct cgroup_slot *slot);
void cgroup_slot_unwatch(struct cgroup_slot *slot);
// True if nothing but the nursery is inside.
bool cgroup_slot_empty(struct cgroup_slot *slot);
// Lets no new process be made inside, where the kernel can do that.
void cgroup_slot_seal(struct cgroup_slot *slot);
// After the last process: whether the slot is fit for another attempt.
bool cgroup_slot_reusable(struct cgroup_slot *slot);
void cgroup_slot_done(struct cgroup_slot *slot);

// Steps: a folder inside the slot's tracking tree; others too, where the step has a memory limit or
// devices of its own (memory_bytes, denied).
enum { CGROUP_STEP_FDS = 3 };
int cgroup_step_make(struct cgroup_slot *slot, uint32_t step, const struct launch_request *r,
                     struct error *e);
void cgroup_step_remove(struct cgroup_slot *slot, uint32_t step);
// Of a step with a memory limit: its peak, and whether it ran out of memory.
void cgroup_step_usage(struct cgroup_slot *slot, uint32_t step, uint64_t limit,
                       struct launch_usage *usage, enum cgroup_oom *oom);
// Descriptors to be in its groups: version 1 `cgroup.procs` of each, version 2 the folder (step 0: the
// slot's). Their number, or a negative errno.
int cgroup_step_open(struct cgroup_slot *slot, uint32_t step, int fds[CGROUP_STEP_FDS]);
// Signals every process of the slot (step 0: steps included) or step. SIGKILL uses cgroup.kill
// where there is one. The number signalled, or a negative errno.
int cgroup_signal(struct cgroup_slot *slot, uint32_t step, int sig);
// Main processes only: those not in any step's folder.
int cgroup_signal_main(struct cgroup_slot *slot, int sig);
