// What a job asks for. Requests are immutable and interned: all tasks of an array, and any two jobs that ask
// for the same, share one object. The caller fills a struct sched_request (texts and lists borrowed) and gets
// a reference to the interned one.
#pragma once
#include <stdbool.h>
#include <stdint.h>

enum sched_class { SCHED_TRAIN, SCHED_INTERACTIVE };
enum sched_override { SCHED_BY_CLASS = 0, SCHED_YES = 1, SCHED_NO = 2 };

enum {
    SCHED_NODES_MAX = 65536,     // node ids are 1 … SCHED_NODES_MAX - 1
    SCHED_PROJECTS_MAX = 16384,  // likewise for projects, partitions and QoS
    SCHED_PARTITIONS_MAX = 256,
    SCHED_QOS_MAX = 1024,
    SCHED_LICENSES_MAX = 1024,
    SCHED_GPUS_MAX = 64,        // per node
    SCHED_FEATURES_MAX = 256,   // different feature words in a cluster, and per request
    SCHED_MODELS_MAX = 64,      // different GPU models in a cluster
    SCHED_GPU = 1000,           // milli-GPU of one whole GPU
    SCHED_TASKS_MAX = 1 << 20,  // of one job
    SCHED_CPUS_PER_TASK_MAX = 1 << 16,
    SCHED_PARTS_MAX = 128,  // of one request, besides itself
};

// So many of a license's seats are held while the job runs.
struct sched_license_use {
    uint32_t license, count;
};

// Ids are handles given by the caller; 0 means none.
struct sched_request {
    uint32_t project, user, qos, partition;
    const uint32_t *also;           // further partitions: it starts in the one where it can start first
    uint32_t also_count;
    enum sched_class class;
    uint32_t nodes_min, nodes_max;  // 0: as few as the tasks need; max 0: same as min
    uint32_t tasks;                 // 0: nodes × tasks_per_node, at least 1
    uint32_t tasks_per_node;        // 0: any; otherwise at most (exactly, when tasks is 0)
    uint32_t cpus_per_task;         // 0: 1
    uint64_t memory_per_node_bytes, memory_per_cpu_bytes, memory_per_gpu_bytes;
    // At most one of these; n × 1000 whole GPUs or one fraction below 1000.
    uint32_t gpu_milli_per_job, gpu_milli_per_node, gpu_milli_per_task;
    uint64_t gpu_memory_bytes;      // alone: that much of one GPU per task; with GPUs: at least
    const char *gpu_model;          // "A100" or "V100|V100M32"; NULL: any
    const char *const *features;    // all required; each may be alternatives "ib|roce"
    uint32_t feature_count;
    const uint32_t *nodes_only, *nodes_except;  // node ids
    uint32_t nodes_only_count, nodes_except_count;
    bool exclusive;                 // the nodes are not shared while it runs
    bool spread;                    // prefer empty nodes instead of packing
    bool same_group;                // all GPUs of a node part from one socket/NVLink group
    const char *reservation;        // run inside this reservation
    int64_t time_limit_ms;          // 0: the partition's default
    int64_t time_min_ms;  // it may start with a limit as short as this if it starts earlier so; 0: no
    int64_t min_runtime_ms;         // not preempted before
    int64_t deadline_ms;            // it must be able to end by then; 0: none
    int32_t priority;               // higher first, added to the QoS's
    int32_t nice;                   // lower first
    enum sched_override preemptible;
    // Further parts of a job with several shapes (a heterogeneous job): all start together with the first, which this
    // request describes. Of a part, what says how large it is, where it may run and its partition (0: as here) count;
    // all else is as here. Not together with `also` or `optional`.
    const struct sched_request *parts;
    uint32_t part_count;
    bool optional;  // a worker beyond the minimum of an elastic job (see sched_job.group)
    const struct sched_license_use *licenses;  // of the whole job, each named once; not of parts or optional workers
    uint32_t license_count;
};

struct world_request;  // an interned sched_request with what was derived from it

const struct sched_request *sched_request_asked(const struct world_request *r);
// Totals of the whole job, for display and accounting. GPU memory requests count as the fraction of
// the smallest fitting GPU in the cluster until they are placed.
uint32_t sched_request_tasks(const struct world_request *r);
uint32_t sched_request_cpus(const struct world_request *r);
uint64_t sched_request_gpu_milli(const struct world_request *r);
