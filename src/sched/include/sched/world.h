// A world: the state the scheduler decides on, with nodes, partitions, projects, QoS, reservations, users'
// usage and jobs. Only the functions below change it, each keeps every index exact, and calls that do not
// concern the same object may come in any order. A job whose project, QoS or partition is missing waits and
// says so. No I/O, clock, threads or random numbers. Texts and lists are copied.
#pragma once
#include <stddef.h>

#include "base/error.h"
#include "sched/request.h"

struct world;

struct world *world_new(void);
struct world *world_free(struct world *w);  // returns NULL
struct world *world_clone(const struct world *w);

// --- nodes and rules -------------------------------------------------------------------------------

enum { SCHED_UNLIMITED = -1 };  // of limits; 0 is a limit of nothing

enum sched_node_state { SCHED_NODE_UP, SCHED_NODE_DRAINED, SCHED_NODE_DOWN };

struct sched_gpu {
    const char *model;
    uint64_t memory_bytes;
    uint32_t group;  // GPUs with the same number are well connected (socket, NVLink island)
    bool unusable;   // faulty: not counted and not allocated
    uint32_t socket; // a job gets GPUs of one socket where possible
};

struct sched_node {
    uint32_t id;
    const char *name;
    enum sched_node_state state;
    uint32_t cpus;
    uint64_t memory_bytes;
    const struct sched_gpu *gpus;
    uint32_t gpu_count;
    const char *const *features;
    uint32_t feature_count;
    uint32_t user;     // it runs this user's jobs only; 0: everybody's
    int64_t until_ms;  // it is there until then: no job starts on it that may run longer; 0: for good
};

struct sched_partition {
    uint32_t id;
    const char *name;
    bool all_nodes;          // else the list
    const uint32_t *nodes;
    uint32_t node_count;
    int64_t default_time_ms, max_time_ms;  // SCHED_UNLIMITED
    int32_t tier;            // higher tiers are looked at first
    bool fifo;               // strict order: no job passes a blocked one
    bool closed;             // accepts jobs, starts none
};

struct sched_model_quota {
    const char *model;
    int64_t quota_milligpu;
    int64_t limit_milligpu;  // SCHED_UNLIMITED
};

struct sched_project {
    uint32_t id, parent;     // parent 0: top of the tree
    const char *name;
    int64_t quota_milligpu;
    bool closed;             // its jobs do not start
    bool quota_rest;         // its quota is what the other top-level projects' quotas leave
    int64_t weight_milli;    // for resources beyond quotas; SCHED_UNLIMITED: the quota, or 1000 without quota
    int64_t limit_milligpu;  // SCHED_UNLIMITED
    int64_t quota_cpus;      // SCHED_UNLIMITED: CPUs are not rationed
    int64_t limit_cpus;      // SCHED_UNLIMITED
    const struct sched_model_quota *models;
    uint32_t model_count;
    const uint32_t *nodes;   // allowed nodes; none: all
    uint32_t node_count;
    int64_t interactive_limit_ms;  // SCHED_UNLIMITED
};

struct sched_qos {
    uint32_t id;
    const char *name;
    int32_t priority;
    // SCHED_UNLIMITED each:
    int64_t max_jobs_per_user;  // running
    int64_t max_gpu_milli_per_user, max_gpu_milli;
    int64_t max_cpus_per_user;
    int64_t max_time_ms;
    const uint32_t *preempts;        // QoS whose jobs this one may preempt
    uint32_t preempts_count;
    uint32_t usage_factor_milli;  // 1000: a used GPU counts as one
    enum sched_override preemptible;
};

// Seats of a program that jobs share cluster-wide, whichever nodes they run on.
struct sched_license {
    uint32_t id;
    const char *name;
    uint32_t count;
};

struct sched_reservation {
    uint32_t id;
    const char *name;
    int64_t start_ms, end_ms;
    const uint32_t *nodes;
    uint32_t node_count;
    bool maintenance;                // no job runs in it
    const uint32_t *users, *projects;  // who may run in it (by naming it)
    uint32_t user_count, project_count;
};

// Each _set adds or replaces; 0 or -EINVAL/-ERANGE with a sentence, the world unchanged.
int world_node_set(struct world *w, const struct sched_node *n, struct error *err);
void world_node_state(struct world *w, uint32_t id, enum sched_node_state state);
void world_node_remove(struct world *w, uint32_t id);
// Nodes that are not there but could be had: jobs that only they can run are not refused (world_check_request). All at
// once; nothing else looks at them, and copies do not have them.
struct world_shape {
    struct sched_node node;      // id, name and state do not count
    const uint32_t *partitions;  // whose lists of nodes will name it; those of all nodes need not be here
    uint32_t partition_count, nodes;
};
int world_shapes_set(struct world *w, const struct world_shape *shapes, uint32_t count, struct error *err);
int world_partition_set(struct world *w, const struct sched_partition *p, struct error *err);
void world_partition_remove(struct world *w, uint32_t id);
const char *world_partition_name(const struct world *w, uint32_t id);  // NULL: there is none now
int world_project_set(struct world *w, const struct sched_project *p, struct error *err);
void world_project_remove(struct world *w, uint32_t id);
int world_qos_set(struct world *w, const struct sched_qos *q, struct error *err);
void world_qos_remove(struct world *w, uint32_t id);
int world_license_set(struct world *w, const struct sched_license *l, struct error *err);
void world_license_remove(struct world *w, uint32_t id);  // jobs that hold seats of it go on
uint64_t world_license_used(const struct world *w, uint32_t id);
int world_reservation_set(struct world *w, const struct sched_reservation *r, struct error *err);
void world_reservation_remove(struct world *w, uint32_t id);
// Configurations that are allowed but probably not intended: one sentence per call, for i = 0, 1, … until it
// returns false.
bool world_warning(const struct world *w, uint32_t i, char *text, size_t size);

// Usage of a user in a project: a moving average in milli-GPU (one CPU counts as 50), halved every half_life_ms
// without use. Updated by start and end; set when restored from a snapshot.
void world_half_life(struct world *w, int64_t half_life_ms);  // default 7 days
void world_half_life_from(struct world *w, int64_t half_life_ms, int64_t now_ms);  // from now on
void world_usage_set(struct world *w, uint32_t project, uint32_t user, int64_t milli, int64_t at_ms);
int64_t world_usage(const struct world *w, uint32_t project, uint32_t user, int64_t now_ms);
// The stored values: setting them again gives the same figures later. False: there are none.
bool world_usage_kept(const struct world *w, uint32_t project, uint32_t user, int64_t *milli, int64_t *at_ms);

// --- jobs ----------------------------------------------------------------------------------------

struct sched_alloc_gpu {
    uint16_t index;
    uint16_t milli;
};

struct sched_alloc_node {
    uint32_t node;
    uint32_t cpus, tasks;
    uint64_t memory_bytes;
    struct sched_alloc_gpu *gpus;
    uint32_t gpu_count;
};

// What a job holds, node by node in ascending node id. One block of memory: free it with alloc_free.
struct sched_alloc {
    uint32_t
        piece_count;  // of a job with several parts, as the scheduler placed it: what each part holds; else 0.
    struct sched_alloc **pieces;  // Part 0 is the request's own. Owned.
    uint32_t node_count;
    struct sched_alloc_node nodes[];
};

struct sched_alloc *sched_alloc_new(uint32_t nodes, uint32_t gpus);  // gpus: of all nodes together
struct sched_alloc_gpu *sched_alloc_gpus(
    struct sched_alloc *a);  // the array of all GPUs; point nodes[i].gpus into it
struct sched_alloc *sched_alloc_copy(const struct sched_alloc *a);
void sched_alloc_free(struct sched_alloc *a);
uint64_t sched_alloc_gpu_milli(const struct sched_alloc *a);

// Why a pending job is held; shown by explanations.
enum sched_hold {
    SCHED_HOLD_NONE,
    SCHED_HOLD_USER,        // held by its user
    SCHED_HOLD_ADMIN,       // held by an administrator
    SCHED_HOLD_DEPENDENCY,  // waits for other jobs
    SCHED_HOLD_ARRAY,       // its array is at its limit of running tasks
    SCHED_HOLD_OTHER,
};

struct sched_job {
    uint64_t id;                    // not 0
    const struct world_request *request;  // from world_request; the job takes its own reference
    int64_t submit_ms;              // stays the same over requeues
    int64_t begin_ms;               // not before; 0: any time
    enum sched_hold hold;
    uint32_t restarts;              // times preempted or requeued so far
    uint64_t group;                 // of an optional worker: the elastic job it belongs to; else 0
};

enum sched_job_state { SCHED_JOB_PENDING, SCHED_JOB_RUNNING, SCHED_JOB_ENDING };

// Interns a request; the caller owns a reference, to be returned with world_request_unref.
const struct world_request *world_request(struct world *w, const struct sched_request *asked);
void world_request_unref(struct world *w, const struct world_request *r);
// 0, or -EINVAL/-ERANGE with one sentence naming field, value and remedy when the nodes could never run this,
// even idle and all up, or when the request contradicts itself, the rules or the policy. start_ms: the earliest
// time it could start.
struct policy;
int world_check_request(struct world *w, const struct sched_request *asked, int64_t start_ms,
                        const struct policy *policy, struct error *err);
// The effective time limit of a request, of several partitions the shortest; INT64_MAX: none.
int64_t world_request_limit_ms(const struct world *w, const struct world_request *r);

int world_job_add(struct world *w, const struct sched_job *job);  // pending; -EEXIST
int world_job_hold(struct world *w, uint64_t id, enum sched_hold hold);  // pending; -ENOENT
int world_job_update(struct world *w, const struct sched_job *job);      // pending; -ENOENT, -EBUSY
int world_job_start(struct world *w, uint64_t id, const struct sched_alloc *a, int64_t now_ms);
// The same for a job that may have several partitions: it runs in this one (0: the first).
int world_job_start_in(struct world *w, uint64_t id, uint32_t partition, const struct sched_alloc *a, int64_t now_ms);
// The running job was asked to end so that `for_job` (0: none) can start on what it holds.
int world_job_ending(struct world *w, uint64_t id, uint64_t for_job);
// For recovery: whether jobs were preempted for this pending one.
void world_job_preemptor_set(struct world *w, uint64_t id, bool preemptor);

// What entitled a job to preempt another, the strongest first.
enum sched_claim {
    SCHED_CLAIM_SHARE,   // its project stays within its share; also by QoS, or interactive in the same project
    SCHED_CLAIM_QUOTA,   // its project stays within its quota; the victim was within its share
    SCHED_CLAIM_BEYOND,  // its project exceeds its share with it
    SCHED_CLAIM_COUNT,
};
// One preemption of a job. The job must not preempt `by` in turn unless its project's share has grown since or
// the other's shrunk (preemption_order.c).
struct sched_preemption {
    uint64_t by;
    int64_t share, by_share;  // of the two projects then, each in the dimension that applies to its job
    enum sched_claim claim;
};
// A copy, NULL when there are none; to be set again when the job is requeued and in recovery.
struct sched_preemption *world_job_preemptions(const struct world *w, uint64_t id, uint32_t *count);
void world_job_preemptions_set(struct world *w, uint64_t id, const struct sched_preemption *by, uint32_t count);
void world_preemptions_forget(struct world *w);  // of all jobs, after projects or QoS were changed
// Frees what it holds and forgets the job. For a requeue: end it, then add it again with the old submit_ms and
// its preemptions.
int world_job_end(struct world *w, uint64_t id, int64_t now_ms);
int world_job_remove(struct world *w, uint64_t id);  // pending; or running, without counting its usage
// Recovery and elastic limits: a running job's time limit counts from start_ms.
int world_job_limit(struct world *w, uint64_t id, int64_t time_limit_ms);
// A running job gave back a part of what it holds: `a` is what it keeps, on nodes and GPUs it holds now; NULL or no
// nodes: nothing. -EINVAL when that is more than it holds somewhere.
int world_job_shrink(struct world *w, uint64_t id, const struct sched_alloc *a, int64_t now_ms);
// A running job is found to hold more, after a restore: `a` is all that it holds. -EINVAL: a node is not there.
int world_job_extend(struct world *w, uint64_t id, const struct sched_alloc *a, int64_t now_ms);

// A promised start: later passes plan the job no later, and no other job may delay it, except for a reason of this
// list. Jobs that were planned once are promised (promise.c).
enum sched_late {
    SCHED_LATE_NONE,
    SCHED_LATE_NODE,     // a node it was to start on was lost, drained or shrank
    SCHED_LATE_RULES,    // an administrator's act: partitions, projects, QoS, reservations, a job's limit
    SCHED_LATE_QUOTA,    // a project claims its guaranteed quota
    SCHED_LATE_OVERRUN,  // a job ran longer than it was expected to
    SCHED_LATE_LIMIT,    // its own project, user or QoS is at a limit
    SCHED_LATE_COUNT,
};
const char *sched_late_word(enum sched_late late);
struct sched_promise_node {
    uint32_t node, tasks;
    uint32_t gpus;  // of a job with gpu_total; else 0
    uint32_t part;  // of a job with several parts: which of them
};
// Of a pending job; start_ms 0 takes the promise back, as do a hold and a change of the job. -ENOENT, -EINVAL.
int world_job_promise(struct world *w, uint64_t id, int64_t start_ms, uint32_t partition,
                      const struct sched_promise_node *nodes, uint32_t count);

// Optional workers (request.optional) are jobs that use what others leave: what they hold is counted apart and
// stays free for every other job, so they change no other decision. sched_decide starts them where room is left,
// and tells which of them have to end when another job is to start there (SCHED_PREEMPT_OPTIONAL).
//
// Which worker of a group ends first: the lowest rank, then the latest started. 0 unless set; kept until the job
// ends or is removed, so it has to be set again when a worker was queued again. -ENOENT.
int world_job_rank(struct world *w, uint64_t id, int32_t rank);
uint32_t world_optional_running(const struct world *w);  // including those that are ending
uint32_t world_optional_waiting(const struct world *w);  // ready to start

// What is known of a job; false when there is none. The allocation is borrowed until it changes.
struct sched_job_view {
    uint64_t id;
    enum sched_job_state state;
    enum sched_hold hold;
    const struct world_request *request;
    const struct sched_alloc *alloc;  // running or ending
    int64_t submit_ms, begin_ms, start_ms;
    int64_t limit_end_ms;       // start + limit; INT64_MAX without limit
    uint64_t ending_for;
    uint32_t restarts;
    uint32_t partition;         // it runs in; 0: it waits, or names none
    bool preemptor;             // jobs were preempted for it: it comes first
    bool optional;
    uint64_t group;
    int32_t rank;
    int64_t promised_ms;        // its promised start; 0: none
};
bool world_job(const struct world *w, uint64_t id, struct sched_job_view *out);

// --- figures -------------------------------------------------------------------------------------

struct sched_project_figures {
    int64_t quota_milligpu, share_milligpu, used_milligpu, queued_milligpu;
    int64_t used_cpus, queued_cpus;
    uint32_t running, pending;
    // Optional workers of its own, not counted above.
    int64_t optional_milligpu, optional_cpus;
    uint32_t optional_running, optional_waiting;
};
bool world_project_figures(struct world *w, uint32_t project, struct sched_project_figures *out);

struct sched_node_figures {
    uint32_t cpus, cpus_free;
    uint64_t memory_bytes, memory_free_bytes;
    uint32_t gpus, gpu_milli_free;
    uint32_t jobs;
    // Held by optional workers; counted as free above.
    uint32_t optional_cpus, optional_gpu_milli, optional_jobs;
    uint64_t optional_memory_bytes;
};
bool world_node_figures(const struct world *w, uint32_t node, struct sched_node_figures *out);
// Free milli-GPU that the average recent request could not use.
int64_t world_fragmented_milligpu(const struct world *w);
uint32_t world_pending(const struct world *w);
uint32_t world_running(const struct world *w);

// Checks every index against the jobs; aborts with a message when one is wrong.
void world_assert(const struct world *w);
