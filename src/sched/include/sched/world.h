// The snapshot the scheduler decides on: nodes, partitions, projects, QoS, reservations, users' use
// and jobs. It is changed only by the deltas below, each of which keeps every index up to date; the
// order in which deltas that do not concern each other come in never matters. Names refer to things
// that may be missing: a job whose project, QoS or partition is gone simply waits and says so.
// Pure: no I/O, clock, threads or random numbers. Texts and lists are copied.
#pragma once
#include <stddef.h>

#include "base/error.h"
#include "sched/request.h"

struct world;

struct world *world_new(void);
struct world *world_free(struct world *w);  // returns NULL
struct world *world_clone(const struct world *w);

// --- what there is -------------------------------------------------------------------------------

enum sched_node_state { SCHED_NODE_UP, SCHED_NODE_DRAINED, SCHED_NODE_DOWN };

struct sched_gpu {
    const char *model;
    uint64_t memory_bytes;
    uint32_t group;  // GPUs with the same number are well connected (socket, NVLink island)
    bool unusable;   // broken: counts for nothing
    uint32_t socket; // of the machine: GPUs of a group are taken from one as far as it goes
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
};

struct sched_partition {
    uint32_t id;
    const char *name;
    bool all_nodes;          // else the list
    const uint32_t *nodes;
    uint32_t node_count;
    int64_t default_time_ms, max_time_ms;  // 0: none
    int32_t tier;            // higher tiers are looked at first
    bool fifo;               // strict order: nobody passes a blocked job
    bool closed;             // accepts jobs, starts none
};

enum { SCHED_UNLIMITED = -1 };

struct sched_model_quota {
    const char *model;
    int64_t quota_milligpu;
    int64_t limit_milligpu;  // SCHED_UNLIMITED
};

struct sched_project {
    uint32_t id, parent;     // parent 0: top of the tree
    const char *name;
    int64_t quota_milligpu;
    bool quota_rest;         // its quota is what no other project at the top was promised, as nodes come and go
    int64_t weight_milli;    // of what is over; SCHED_UNLIMITED: the quota, or 1000 without quota
    int64_t limit_milligpu;  // SCHED_UNLIMITED
    int64_t quota_cpus;      // SCHED_UNLIMITED: CPUs are not rationed
    int64_t limit_cpus;      // SCHED_UNLIMITED
    const struct sched_model_quota *models;
    uint32_t model_count;
    const uint32_t *nodes;   // allowed nodes; none: all
    uint32_t node_count;
    int64_t interactive_limit_ms;  // 0: none
};

struct sched_qos {
    uint32_t id;
    const char *name;
    int32_t priority;
    uint32_t max_jobs_per_user;      // running; 0: no limit
    uint32_t max_gpu_milli_per_user, max_gpu_milli;
    uint32_t max_cpus_per_user;
    int64_t max_time_ms;
    const uint32_t *preempts;        // QoS whose jobs this one may preempt
    uint32_t preempts_count;
    uint32_t usage_factor_milli;     // 0: 1000; what a used GPU counts as
    enum sched_override preemptible;
};

struct sched_reservation {
    uint32_t id;
    const char *name;
    int64_t start_ms, end_ms;
    const uint32_t *nodes;
    uint32_t node_count;
    bool maintenance;                // nobody runs in it
    const uint32_t *users, *projects;  // who may run in it (by naming it)
    uint32_t user_count, project_count;
};

// Each _set adds or replaces; 0 or -EINVAL/-ERANGE with a sentence, the world unchanged.
int world_node_set(struct world *w, const struct sched_node *n, struct error *err);
void world_node_state(struct world *w, uint32_t id, enum sched_node_state state);
void world_node_remove(struct world *w, uint32_t id);
int world_partition_set(struct world *w, const struct sched_partition *p, struct error *err);
void world_partition_remove(struct world *w, uint32_t id);
const char *world_partition_name(const struct world *w, uint32_t id);  // NULL: there is none now
int world_project_set(struct world *w, const struct sched_project *p, struct error *err);
void world_project_remove(struct world *w, uint32_t id);
int world_qos_set(struct world *w, const struct sched_qos *q, struct error *err);
void world_qos_remove(struct world *w, uint32_t id);
int world_reservation_set(struct world *w, const struct sched_reservation *r, struct error *err);
void world_reservation_remove(struct world *w, uint32_t id);
// Legal but probably not meant (quotas above what is there, …): one sentence per call, for i = 0, 1,
// … until it returns false.
bool world_warning(const struct world *w, uint32_t i, char *text, size_t size);

// Who used what lately: a moving average in milli-GPU (GPU jobs) plus weighted CPUs, halved every
// half_life_ms without use. Kept by start and end; set when restored from elsewhere.
void world_half_life(struct world *w, int64_t half_life_ms);  // default 7 days
void world_half_life_from(struct world *w, int64_t half_life_ms,
                          int64_t now_ms);  // what was used until now decayed as before
void world_usage_set(struct world *w, uint32_t project, uint32_t user, int64_t milli, int64_t at_ms);
int64_t world_usage(const struct world *w, uint32_t project, uint32_t user, int64_t now_ms);
// As it is kept: setting it again gives the very same figures later. False: nothing is.
bool world_usage_kept(const struct world *w, uint32_t project, uint32_t user, int64_t *milli, int64_t *at_ms);

// --- jobs ----------------------------------------------------------------------------------------

struct alloc_gpu {
    uint16_t index;
    uint16_t milli;
};

struct alloc_node {
    uint32_t node;
    uint32_t cpus, tasks;
    uint64_t memory_bytes;
    struct alloc_gpu *gpus;
    uint32_t gpu_count;
};

// What a job holds, node by node in ascending node id. One block of memory: free() it with alloc_free.
struct alloc {
    uint32_t node_count;
    struct alloc_node nodes[];
};

struct alloc *alloc_new(uint32_t nodes, uint32_t gpus);  // gpus: over all nodes together
struct alloc_gpu *alloc_gpus(struct alloc *a);           // where they lie; point nodes[i].gpus into it
struct alloc *alloc_copy(const struct alloc *a);
void alloc_free(struct alloc *a);
uint64_t alloc_gpu_milli(const struct alloc *a);

// Why the owner of the job says it must not start yet; shown by explanations.
enum sched_hold {
    SCHED_HOLD_NONE,
    SCHED_HOLD_USER,        // held by its user
    SCHED_HOLD_ADMIN,       // held by an administrator
    SCHED_HOLD_DEPENDENCY,  // waits for other jobs
    SCHED_HOLD_ARRAY,       // its array runs as many tasks as it may
    SCHED_HOLD_OTHER,
};

struct sched_job {
    uint64_t id;                    // not 0
    const struct request *request;  // from world_request; the job takes its own reference
    int64_t submit_ms;              // age counts from here, over requeues too
    int64_t begin_ms;               // not before; 0: any time
    enum sched_hold hold;
    uint32_t restarts;              // times preempted or requeued so far
};

enum sched_job_state { SCHED_JOB_PENDING, SCHED_JOB_RUNNING, SCHED_JOB_ENDING };

// Interns; the caller owns the reference and gives it back with world_request_unref.
const struct request *world_request(struct world *w, const struct sched_request *asked);
void world_request_unref(struct world *w, const struct request *r);
// 0, or -EINVAL/-ERANGE with one sentence naming field, value and remedy when no set of nodes, even
// idle and up again, could ever run this, or when the request contradicts itself or the policy.
int world_check_request(struct world *w, const struct sched_request *asked, struct error *err);

int world_job_add(struct world *w, const struct sched_job *job);  // pending; -EEXIST
int world_job_hold(struct world *w, uint64_t id, enum sched_hold hold);  // pending; -ENOENT
int world_job_update(struct world *w, const struct sched_job *job);      // pending; -ENOENT, -EBUSY
int world_job_start(struct world *w, uint64_t id, const struct alloc *a, int64_t now_ms);
// The same for a job that may have several partitions: it runs in this one (0: the first).
int world_job_start_in(struct world *w, uint64_t id, uint32_t partition, const struct alloc *a, int64_t now_ms);
// The job was told to stop so that `for_job` (0: none) can start; what it holds is spoken for.
int world_job_ending(struct world *w, uint64_t id, uint64_t for_job);
void world_job_takes(struct world *w, uint64_t id,
                     bool takes);  // recovery: whether others were told to make room for it
// Whom it made room for: it does not take that back (preemption_order.c), unless its project is due more by now or the
// other's less. A copy, NULL when there is nobody; set again when the job is queued again and in recovery.
enum sched_claim {  // what the other job took it by, the strongest first
    SCHED_CLAIM_DUE,    // its project is not above its share with it, a QoS, interactive work of the same project
    SCHED_CLAIM_QUOTA,  // its project's quota, from one inside its share
    SCHED_CLAIM_BEYOND, // more than its project's share
    SCHED_CLAIM_COUNT,
};
struct sched_gave {
    uint64_t to;
    int64_t share, to_share;  // of the projects then, in what rules each of the two jobs
    enum sched_claim claim;
};
struct sched_gave *world_job_gave(const struct world *w, uint64_t id, uint32_t *count);
void world_job_gave_set(struct world *w, uint64_t id, const struct sched_gave *to, uint32_t count);
void world_gave_forget(struct world *w);  // of all jobs: who may take from whom was changed by hand
// Frees what it holds and forgets the job. For a requeue: end, then add again with the old submit_ms and
// whom it made room for.
int world_job_end(struct world *w, uint64_t id, int64_t now_ms);
int world_job_remove(struct world *w, uint64_t id);  // pending, or running without account of use
// Recovery and elastic limits: a running job's time limit counts from start_ms.
int world_job_limit(struct world *w, uint64_t id, int64_t time_limit_ms);

// What is known of a job; false when there is none. The allocation is borrowed until it changes.
struct sched_job_view {
    uint64_t id;
    enum sched_job_state state;
    enum sched_hold hold;
    const struct request *request;
    const struct alloc *alloc;  // running or ending
    int64_t submit_ms, begin_ms, start_ms;
    int64_t limit_end_ms;       // start + limit; INT64_MAX without limit
    uint64_t ending_for;
    uint32_t restarts;
    uint32_t partition;         // it runs in; 0: it waits, or names none
    bool takes;                 // others were told to make room for it: it comes first
};
bool world_job(const struct world *w, uint64_t id, struct sched_job_view *out);

// --- figures -------------------------------------------------------------------------------------

struct sched_project_figures {
    int64_t quota_milligpu, share_milligpu, used_milligpu, queued_milligpu;
    int64_t used_cpus, queued_cpus;
    uint32_t running, pending;
};
bool world_project_figures(struct world *w, uint32_t project, struct sched_project_figures *out);

struct sched_node_figures {
    uint32_t cpus, cpus_free;
    uint64_t memory_bytes, memory_free_bytes;
    uint32_t gpus, gpu_milli_free;
    uint32_t jobs;
};
bool world_node_figures(const struct world *w, uint32_t node, struct sched_node_figures *out);
// Free milli-GPU that the average request seen lately could not use.
int64_t world_fragmented_milligpu(const struct world *w);
uint32_t world_pending(const struct world *w);
uint32_t world_running(const struct world *w);

// A check of every index against the jobs' allocations; aborts with a message when one is wrong.
void world_assert(const struct world *w);
