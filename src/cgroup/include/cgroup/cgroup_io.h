// Shared by the files of the cgroup module only: small reads and writes of kernel files, and names.
#pragma once
#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

#include "cgroup/cgroup.h"

enum { CGROUP_FULL_MAX = CGROUP_PATH_MAX + CGROUP_NAME_MAX + 96 };

int cgroup_kernel_write(const char *path, const char *text);           // 0 or a negative errno
ssize_t cgroup_kernel_read(const char *path, char *out, size_t size);  // length, NUL-terminated
uint64_t cgroup_kernel_field(const char *text, const char *key);       // "key N" lines; 0 if absent
void cgroup_kernel_path(char *out, size_t size, const char *dir, const char *file);  // "dir/file"

// "BASE/SLOT[/REST]" in one controller's tree; returns `out`.
const char *cgroup_path(const struct cgroup_slot *slot, enum cgroup_controller c, const char *rest,
                        char out[CGROUP_FULL_MAX]);
// Moves the processes of one group into another, until none is seen.
void cgroup_move(const char *from, const char *to);
void cgroup_remove(const char *path);
int cgroup_slot_make(struct cgroup_slot *slot, enum cgroup_controller c);
// In the slot's group, or one below it by name.
int cgroup_deny(struct cgroup_slot *slot, const char *group, const struct launch_request *r);
// Whether a kill came from the group's own limit rather than from further up or a machine that is
// out of memory. Version 1 does not tell: there the group has been full.
bool cgroup_limit_was_hit(const struct cgroup_slot *slot, const char *group, uint64_t limit,
                          uint64_t peak);
bool cgroup_main_killed(const struct cgroup_slot *slot);  // of a divided slot
void cgroup_steps_remove(struct cgroup_slot *slot);
int cgroup_members(struct cgroup_slot *slot);  // how many processes are in the slot and its steps
