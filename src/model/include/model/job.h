// What a user asks for (spec) and what becomes of it (states, reasons, usage). A spec is immutable
// once submitted and shared by all elements of an array; see event.h for what happens to a job.
#pragma once
#include <stdbool.h>
#include <stdint.h>

#include "base/schema.h"

enum job_state {
    JOB_PENDING,
    JOB_STARTING,    // placed, not yet reported as running
    JOB_RUNNING,
    JOB_SUSPENDED,
    JOB_COMPLETING,  // being ended; its resources are not free yet
    JOB_COMPLETED,
    JOB_FAILED,
    JOB_CANCELLED,
    JOB_TIMEOUT,
    JOB_OUT_OF_MEMORY,
    JOB_NODE_FAIL,
    JOB_PREEMPTED,
    JOB_DEADLINE,
    JOB_STATE_COUNT
};
extern const char *const job_state_words[];  // "PENDING", …
const char *job_state_short(enum job_state s);  // "PD", "R", …
bool job_state_final(enum job_state s);
bool job_state_holds_resources(enum job_state s);

// Why a pending job waits. The words are those of Slurm where it has one.
enum job_reason {
    REASON_NONE,
    REASON_PRIORITY,   // others are ahead
    REASON_RESOURCES,  // nothing free that fits
    REASON_DEPENDENCY,
    REASON_DEPENDENCY_NEVER,  // can no longer be satisfied
    REASON_BEGIN_TIME,
    REASON_HELD_USER,
    REASON_HELD_ADMIN,
    REASON_ARRAY_LIMIT,
    REASON_QUOTA,  // the project's limit or, for interactive work, its quota
    REASON_QOS_LIMIT,
    REASON_PARTITION,    // over its time limit
    REASON_RESERVATION,  // its own is not open, or another's is in the way
    REASON_NODES_DOWN,   // all nodes that would fit are down or drained
    REASON_SHARES,       // over its share while others are below theirs
    REASON_PROJECT_GONE,
    REASON_QOS_GONE,
    REASON_PARTITION_DOWN,  // closed, or gone
    REASON_RESERVATION_GONE,
    REASON_SCRIPT_LOST,  // by a restore of an older copy: it can never start
    REASON_LICENSES,     // too few seats of a license are free
    REASON_COUNT
};
extern const char *const job_reason_words[];  // "Priority", "Resources", …

enum job_class { CLASS_TRAIN, CLASS_INTERACTIVE, CLASS_COUNT };
extern const char *const job_class_words[];

// What is started when the resources are there: the script or command once on the first node
// (batch), the command once per task on all nodes (tasks), or nothing: an allocation that steps are
// started in (steps).
enum launch_kind { LAUNCH_BATCH, LAUNCH_TASKS, LAUNCH_STEPS, LAUNCH_KIND_COUNT };
extern const char *const job_launch_kind_words[];

// What becomes of an elastic job when one of its workers fails: the job ends, the worker is run again, or the others
// go on without it.
enum worker_end { WORKER_END_FAIL, WORKER_END_RESTART, WORKER_END_CONTINUE, WORKER_END_COUNT };
extern const char *const job_worker_end_words[];

// The network of a job's processes: one of its own if it has ports and the node can, always, or the node's.
enum job_network { NETWORK_AUTO, NETWORK_OWN, NETWORK_NODE, NETWORK_COUNT };
extern const char *const job_network_words[];
// When the registry is asked for a container image. Usual: a name is believed to mean the same image for a while.
enum job_pull { PULL_USUAL, PULL_ALWAYS, PULL_MISSING, PULL_NEVER, PULL_COUNT };
extern const char *const job_pull_words[];

enum { JOB_COMPONENTS_MAX = 64 };
enum { JOB_WORKERS_MAX = 1024, JOB_WORKER_RANK_MAX = 1000000 };  // of one job

struct array_range {
    uint32_t first, last, step;
};
extern const struct schema array_range_schema;

// The shape of one worker of a component: the members of a spec with the same names.
#define COMPONENT_SHAPE(X)                                                                                   \
    X(nodes_min)                                                                                             \
    X(nodes_max) X(tasks) X(tasks_per_node) X(cpus_per_task) X(memory_per_node_bytes)                        \
        X(memory_per_cpu_bytes) X(memory_per_gpu_bytes) X(gpus_milli) X(gpus_per_node_milli)                 \
            X(gpus_per_task_milli) X(gpu_memory_bytes) X(gpu_model) X(features) X(nodes) X(exclude)          \
                X(container) X(container_mounts) X(container_workdir) X(spread) X(contiguous_topology)       \
                    X(ntasks_per_gpu) X(cpus_per_gpu) X(memory_default)

#define COMPONENT_HEAD "head"  // the job ends with the component of this name

// One kind of worker of a job that has several kinds.
struct job_component {
    const char *name;
    uint32_t workers_min, workers_max;
    bool workers_given;  // the two numbers are meant also when they are 0; only beside a head
    uint32_t nodes_min, nodes_max;
    uint32_t tasks, tasks_per_node, cpus_per_task;
    uint64_t memory_per_node_bytes, memory_per_cpu_bytes, memory_per_gpu_bytes;
    uint32_t gpus_milli, gpus_per_node_milli, gpus_per_task_milli;
    uint64_t gpu_memory_bytes;
    const char *gpu_model;
    const char *features, *nodes, *exclude;
    const char *container, *container_mounts, *container_workdir;
    bool spread, contiguous_topology;
    uint32_t ntasks_per_gpu, cpus_per_gpu;
    bool memory_default;
    const char *partition;  // NULL: the job's
    enum launch_kind launch;
    LIST(const char *) argv;     // empty: what the job runs
    const char *output, *error;  // NULL: the job's
};
extern const struct schema job_component_schema;

struct spec {
    const char *name;
    const char *user;
    uint32_t uid, gid;
    const char *project, *partition, *qos;
    enum job_class class;
    LIST(struct array_range) array;  // empty: no array
    uint32_t array_limit;            // elements running at once, 0: no limit
    uint32_t nodes_min, nodes_max;
    uint32_t tasks, tasks_per_node, cpus_per_task;
    uint64_t memory_per_node_bytes, memory_per_cpu_bytes, memory_per_gpu_bytes;
    uint32_t gpus_milli, gpus_per_node_milli, gpus_per_task_milli;  // at most one of the three
    uint64_t gpu_memory_bytes;
    const char *gpu_model;
    uint32_t time_limit_s, time_min_s;
    int64_t begin_ms, deadline_ms;
    const char *dependency;
    bool hold;
    bool requeue;
    int32_t nice;
    const char *comment;
    const char *workdir, *output, *error, *input;
    bool append;      // open output files for appending, also for the first attempt
    bool truncate;    // later attempts empty the output files; else they append
    uint32_t retries, backoff_s;  // how often the program is run again when it failed, and the pause before
    LIST(const char *) argv;
    const char *script_id, *environment_id;  // texts are kept apart, see store
    uint64_t script_bytes, environment_bytes;
    const char *upload_id;  // what is appended to the script when the job is launched: a folder that it unpacks
    uint64_t upload_bytes;
    uint32_t signal, signal_before_s;
    bool signal_batch_only;
    const char *features, *nodes, *exclude, *reservation, *container;
    bool exclusive;
    enum launch_kind launch;
    bool attach;      // output is kept in the node's spool and streamed to whoever attaches
    bool pty;
    uint32_t pty_rows, pty_columns;  // at its start; 0: 24 and 80
    bool stdin_open;  // standard input is fed by whoever attaches
    uint32_t grace_s, min_run_s;
    const char *checkpoint;
    bool no_kill_on_bad_exit;  // LAUNCH_TASKS: the others go on when one task fails
    uint32_t priority;         // 0: computed
    bool spread;
    uint32_t ntasks_per_gpu, cpus_per_gpu;
    const char *command_text;  // as typed, for people
    bool contiguous_topology;  // same socket or NVLink group wanted
    bool has_umask;
    uint32_t umask;            // of its processes and output files; 022 unless given
    const char *container_mounts, *container_workdir;
    enum job_pull container_pull;
    const char *container_name;  // that is kept on its node, by name; NULL: it goes with the job
    bool cancel_invalid_dependency;  // cancelled when its dependency can no longer be satisfied
    bool image_task;             // its arguments are work on the user's images (acequia-box does it)
    bool slurm_words;          // submitted with Slurm's commands: its output tells its end as they do
    const char *submit_line;   // the command line that submitted it
    const char *notify;        // when somebody is told, "end,fail" (model/notify.h)
    const char *notify_to;     // mail addresses and webhooks
    uint32_t lease_s;          // an allocation that ends when its client has not been there for so long; 0: it stays
    LIST(const char *) secrets;  // "NAME[:file][=VARIABLE]" (model/secret.h)
    LIST(const char *) tags;   // words and key=value (model/tag.h)
    // An elastic job: the spec describes one worker, of which there are at least workers_min and at most workers_max.
    uint32_t workers_min, workers_max;  // 0: a job without workers
    enum worker_end on_worker_end;
    uint32_t worker_signal;    // sent to the workers when one joins or leaves; 0: none
    // Several kinds of workers; the job's own shape is not used then, and workers_min and workers_max are sums.
    LIST(struct job_component) components;
    const char *component;     // of a worker: the component it is of
    bool memory_default;       // the memory is the default, not asked for
    LIST(const char *) ports;  // that others reach through the controller (model/port.h)
    enum job_network network;
    const char *health;  // how its program is asked whether it is ready (model/health.h); NULL: it is not
    uint32_t health_interval_s, health_failures;  // 0: the default
    uint32_t idle_s;                              // ends when its program was not used for so long; 0: never
    const char *key_hash;      // of the idempotency key it was submitted with; NULL: none
    uint64_t service;          // the service whose replicas its workers are, set by the controller; 0: none
    uint32_t revision;         // of that service
    LIST(const char *) volumes;                   // that its processes see (model/volume.h)
    const char *licenses;      // seats it holds while it runs, "matlab:2" (model/license.h)
    uint64_t given[2];         // fields given as zero, see base/schema.h; never part of a stored spec
};
extern const struct schema spec_schema;
bool spec_known(const struct spec *s);  // false: of a later release, with a class or launch kind unknown here

// Puts the given fields of `change` over `s`. Amounts of which a spec has one (GPUs per job, node or task;
// memory per node, CPU or GPU) replace each other. What the controller sets itself stays.
void spec_merge(struct spec *s, const struct spec *change);

// What one worker of a component is: the job's spec with the component's shape and command. Borrows from `s`.
void spec_component(const struct spec *s, uint32_t component, struct spec *out);
// A number of workers, "4", or a range, "2-8"; 0 or -EINVAL.
int spec_workers_parse(const char *text, uint32_t *min, uint32_t *max);
// Whether it may have no workers: one beside the head, which keeps the job alive.
bool spec_component_may_be_empty(const struct spec *s, uint32_t component);
// Whether a worker of this spec is one task on one node: then several of them are one request.
bool spec_worker_is_task(const struct spec *s);

// What is asked for by GPU (tasks, CPUs) becomes numbers of tasks and of CPUs per task, or GPUs for the tasks.
void spec_count_by_gpu(struct spec *s);
uint64_t spec_array_count(const struct spec *s);                    // 1 without an array
uint32_t spec_array_index(const struct spec *s, uint64_t position);  // position 0 … count-1

struct usage {
    uint64_t cpu_user_us, cpu_system_us;
    uint64_t memory_peak_bytes;
    uint64_t wall_ms;
    uint64_t gpu_busy_ms;      // sum over GPUs of time in use, by share
    uint64_t gpu_memory_peak_bytes;
    uint64_t energy_mj;
    uint64_t read_bytes, write_bytes;
    uint64_t gpu_throttled_ms;
    uint64_t gpu_measured_ms;  // sum over GPUs of time in which use was measured
    // Of a whole job: its attempts before the newest one, which the figures above are about.
    uint32_t earlier_attempts;
    int64_t earlier_start_ms, earlier_end_ms;  // of the first, and of the last
    uint64_t earlier_cpu_held_ms;              // CPUs by time
    uint64_t earlier_gpu_held_ms;              // GPUs by time
    uint64_t earlier_cpu_us, earlier_gpu_busy_ms, earlier_gpu_measured_ms, earlier_energy_mj;
};
extern const struct schema usage_schema;
// An attempt that held so much from start to end has been followed, or will be: it counts as an earlier one.
void usage_attempt_ended(struct usage *u, int64_t start_ms, int64_t end_ms, uint64_t cpus, uint64_t gpus_milli);
void usage_attempt_begins(struct usage *u);            // only what is of earlier ones stays
void usage_copy_earlier(struct usage *to, const struct usage *from);
void usage_add(struct usage *sum, const struct usage *more);  // peaks add up: parts run side by side

struct gpu_grant {
    uint32_t index, milli;
};
extern const struct schema gpu_grant_schema;

// What a job holds on one node.
struct part {
    const char *node;
    uint32_t cpus, tasks;
    uint64_t memory_bytes;
    LIST(struct gpu_grant) gpus;
    const char *cpu_ids;  // of the node's CPUs, "0-3,8"; NULL: not told
};
extern const struct schema job_part_schema;

enum worker_state {
    WORKER_WAITING,
    WORKER_STARTING,
    WORKER_RUNNING,
    WORKER_LEAVING,
    WORKER_LEFT,
    WORKER_STATE_COUNT
};
extern const char *const job_worker_state_words[];

// One worker of an elastic job.
struct worker {
    uint32_t number;
    uint64_t id;  // the worker's own job id
    enum worker_state state;
    bool optional;  // beyond the minimum: given back when others need the room
    bool idle;      // the job said so: it is given back first
    int32_t rank;   // the lowest is given back first
    const char *node;
    uint32_t attempt;
    int32_t exit_code;  // of one that has left
    uint32_t exit_signal;
    const char *ended;  // its final state
    const char *component;
    const char *health;  // whether its program is ready; NULL: nobody asks
};
extern const struct schema job_worker_schema;

// A finished job as history keeps it, and as the API shows any job.
struct job_record {
    uint64_t id, array_id;
    uint32_t array_index;
    bool is_array;
    struct spec *spec;
    enum job_state state;
    const char *reason;
    int32_t exit_code;
    uint32_t exit_signal;
    uint32_t attempt;
    int64_t submit_ms, eligible_ms, start_ms, end_ms;
    LIST(struct part) parts;
    struct usage *usage;
    int64_t expected_start_ms;
    uint32_t preempted;   // how often
    const char *preempted_why;  // the last time
    const char *late_why;       // why its planned start moved later, the last time
    uint32_t steps;       // started by its newest attempt
    const char *by;       // who cancelled it
    int64_t suspended_ms; // how long it was suspended
    uint64_t job;         // of a worker: the elastic job it belongs to
    uint32_t worker;      // and its number there
    uint32_t components;  // of it, or of that job; 0: it has one kind of workers, or none
    LIST(struct worker) workers;  // of an elastic job
    uint64_t epoch;     // of its attempt: after a restore the number alone does not name it; 0: not known
    uint64_t agent_id;  // the job's number on its nodes; 0: not known
};
extern const struct schema job_record_schema;
