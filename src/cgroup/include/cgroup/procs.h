// Finding processes through /proc, for machines without control groups: the descendants of a
// process, and the processes that carry an attempt's mark in their environment.
#pragma once
#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

enum { PROCS_MAX = 65536 };

struct procs_usage {
    uint32_t count;
    uint64_t rss_bytes;
};

typedef bool procs_skip_fn(void *ctx, pid_t pid);
// Sends sig (0: none) to all descendants of root, except root and, with skip, whole subtrees.
// Returns the number signalled (or seen).
int cgroup_procs_signal_tree(pid_t root, int sig, procs_skip_fn *skip, void *ctx);
void cgroup_procs_tree_usage(pid_t root, struct procs_usage *out);
void cgroup_procs_family_usage(pid_t root, struct procs_usage *out);  // with the root itself

// Which of these sockets (inodes) descendants of root have open. False: not all descriptors could be looked
// at, because the kernel does not show them or there are more than PROCS_SOCKET_LOOKS.
enum { PROCS_SOCKET_LOOKS = 65536 };
bool cgroup_procs_tree_sockets(pid_t root, const uint32_t *inodes, uint32_t len, bool *held);

// The variable by which a process is recognised when its shepherd is gone.
#define PROCS_MARK "ACEQUIA_ATTEMPT_ID"
// Sends sig to every process that has mark `id`. Returns their number.
int cgroup_procs_signal_marked(uint64_t id, int sig);
