// Nodes and partitions as Slurm's commands see them.
#pragma once
#include "base/vec.h"
#include "context.h"
#include "model/node.h"

enum snode_state {
    SNODE_IDLE,
    SNODE_MIXED,
    SNODE_ALLOCATED,
    SNODE_COMPLETING,
    SNODE_DOWN,
    SNODE_LOST,
    SNODE_DRAINING,
    SNODE_DRAINED,
    SNODE_MAINT,
    SNODE_STATE_COUNT
};

struct snode {
    const char *name, *reason, *by, *version, *address, *os, *arch, *features, *gres, *gres_used;
    enum snode_state state;
    bool silent;  // does not answer
    const struct json *partitions;
    int64_t reason_ms, boot_ms, agent_start_ms, busy_ms;
    uint64_t memory_bytes, memory_used_bytes, free_bytes, tmp_bytes;
    uint32_t cpus, cpus_used, sockets, cores, threads, jobs, gpus_milli, gpus_used_milli, load_milli;
};

struct spartition {
    struct partition p;
    const char *node_list;  // folded
    uint32_t nodes, cpus;
    uint64_t memory_bytes, gpus_milli;
};

struct cluster_view {
    VEC(struct snode) nodes;             // in order of name
    VEC(struct spartition) partitions;
};
int slurm_cluster_fetch(struct slurm *s, struct cluster_view *out);  // 0 or the exit status, with the error printed
void slurm_cluster_done(struct cluster_view *c);
const char *slurm_partition_state(const struct spartition *p);  // "up", "down", "drain", "inactive"
bool slurm_node_in(const struct snode *n, const char *partition);
const char *slurm_node_long(const struct snode *n);   // "idle", "drained", with '*' when it does not answer
const char *slurm_node_short(const struct snode *n);  // "idle", "drain"
bool slurm_node_usable(const struct snode *n);
// "idle&drain,down", as --states names them: a word that is none is told; whether a node is in one.
int slurm_node_states_check(struct slurm *s, const char *text);
bool slurm_node_states_match(const char *text, const struct snode *n);
int slurm_name_order(const char *a, const char *b);    // n2 before n10
const char *slurm_gres_model(struct arena *a, const char *model);  // as in "gpu:a100:4"
