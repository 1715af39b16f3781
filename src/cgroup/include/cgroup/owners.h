// Which attempt a process belongs to, by what the process cannot change: the control group it is in,
// else the shepherd above it. Its environment and its name are its own to write and are not asked.
#pragma once
#include <stdbool.h>
#include <stdint.h>

#include "cgroup/cgroup.h"
#include "launch/spool.h"

struct owners;
struct owners *cgroup_owners_new(const struct cgroup_site *site);  // the site stays the caller's
struct owners *cgroup_owners_copy(const struct owners *o);         // for another thread
struct owners *cgroup_owners_free(struct owners *o);               // returns NULL

// From the attempt's record in the spool; again and again is fine.
void cgroup_owners_started(struct owners *o, const struct spool_status *s);
void cgroup_owners_ended(struct owners *o, uint64_t job, uint32_t attempt);
bool cgroup_owners_find(const struct owners *o, uint32_t pid, uint64_t *job, uint32_t *attempt);
// The attempt's shepherd and its control group; false: it was not seen to start.
bool cgroup_owners_shepherd(const struct owners *o, uint64_t job, uint32_t attempt, pid_t *shepherd,
                            char slot[CGROUP_NAME_MAX]);
// The process's number in its own pid namespace; 0: it is gone.
uint32_t cgroup_owners_inner_pid(uint32_t pid);

// Whether the driver's process numbers are ours: not if the agent runs in a pid namespace of its own.
bool cgroup_owners_in_first_namespace(void);
// Whether the process has a file open whose name begins so: proof that a number means what we think.
bool cgroup_owners_has_open(uint32_t pid, const char *prefix);

// The name of the slot in one line of /proc/PID/cgroup, if the group lies in the site's own folder:
// a group of the same name that somebody made elsewhere is not it.
bool cgroup_owners_slot_of(const char *base, const char *line, char out[CGROUP_NAME_MAX]);
