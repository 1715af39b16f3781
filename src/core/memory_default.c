// The memory of jobs that ask for none: so much per CPU as their partition or the cluster says, or ("share") the part
// of a node's memory that belongs to its CPUs or GPUs, whichever is more. Jobs that say nothing are held to that, so
// memory is never promised twice.
#include "base/text.h"
#include "model/nodelist.h"
#include "state.h"

enum { MEMORY_STEP_BYTES = 1 << 20 };

static void keep_smaller(uint64_t bytes, uint32_t parts, uint64_t *smallest) {
    uint64_t share = parts ? bytes / parts / MEMORY_STEP_BYTES * MEMORY_STEP_BYTES : 0;
    if (share && (!*smallest || share < *smallest))
        *smallest = share;
}

static void take_node(const struct node_entry *n, struct memory_share *out) {
    if (n->removed || !n->node)
        return;
    keep_smaller(n->node->memory_bytes, n->node->cpus, &out->per_cpu_bytes);
    // GPUs share three quarters: jobs without GPUs find memory too while all GPUs are in use.
    keep_smaller(n->node->memory_bytes / 4 * 3, n->node->gpus.len, &out->per_gpu_bytes);
}

// The smallest share of the partition's nodes: where its CPUs fit, its memory fits too. 0: no such node is known yet.
static struct memory_share partition_share(const struct core *c, const struct partition *p) {
    struct memory_share out = {0};
    cleanup_arena struct arena a = {0};
    struct name_list names = {0};
    if (str_empty(p->nodes) || streq(p->nodes, "ALL") || nodelist_expand(p->nodes, &a, &names, NULL) < 0) {
        for (uint32_t i = 0; i < c->node_list.len; i++)
            take_node(c->node_list.at[i], &out);
        return out;
    }
    for (uint32_t i = 0; i < names.len; i++) {
        const struct node_entry *n = core_find_node(c, names.at[i]);
        if (n)
            take_node(n, &out);
    }
    return out;
}

// Nodes rarely change, and submits are many: the answer is kept until a node or partition changes.
static const struct memory_share *share_of(const struct core *c, struct entity_entry *partition) {
    if (partition->share_generation != c->cluster_generation + 1) {
        partition->share = partition_share(c, partition->value);
        partition->share_generation = c->cluster_generation + 1;
    }
    return &partition->share;
}

static uint64_t most(uint64_t a, uint64_t b) {
    return a > b ? a : b;
}

static void set_share(const struct memory_share *share, struct spec *s) {
    uint64_t nodes = most(s->nodes_min, 1), tasks = most(s->tasks, most(nodes * s->tasks_per_node, 1));
    uint64_t by_cpu = tasks * most(s->cpus_per_task, 1) * share->per_cpu_bytes;
    uint64_t gpus_milli = s->gpus_milli            ? s->gpus_milli
                          : s->gpus_per_node_milli ? s->gpus_per_node_milli * nodes
                                                   : s->gpus_per_task_milli * tasks;
    uint64_t by_gpu = share->per_gpu_bytes / 1000 * gpus_milli;
    if (by_gpu <= by_cpu)
        s->memory_per_cpu_bytes = share->per_cpu_bytes;
    else if (gpus_milli >= 1000)
        s->memory_per_gpu_bytes = share->per_gpu_bytes;
    else
        s->memory_per_node_bytes = by_gpu / MEMORY_STEP_BYTES * MEMORY_STEP_BYTES;
}

void core_fill_memory(const struct core *c, struct entity_entry *partition, struct spec *s) {
    const struct partition *p = partition ? partition->value : NULL;
    if (p && p->default_memory_per_cpu_bytes)
        s->memory_per_cpu_bytes = p->default_memory_per_cpu_bytes;
    else if (c->config.default_memory_per_cpu_bytes != CORE_MEMORY_SHARE)
        s->memory_per_cpu_bytes = c->config.default_memory_per_cpu_bytes;
    else if (p)
        set_share(share_of(c, partition), s);
}
