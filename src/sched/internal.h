// The world's insides, shared by the files of this folder only. Everything here is either a copy of
// what the caller said, an index over it that the deltas keep exact, or a cache that can be rebuilt.
#pragma once
#include "base/map.h"
#include "base/vec.h"
#include "sched/sched.h"

enum {
    DIM_GPU,        // milli-GPU of any model
    DIM_CPU,        // CPUs
    DIM_MODEL,      // first of the GPU models that some project has a quota for
    DIMS_MAX = 16,
    FEATURE_WORDS = SCHED_FEATURES_MAX / 64,
    PARTITION_WORDS = SCHED_PARTITIONS_MAX / 64,
    CPU_COST = 50,  // milli-GPU that one CPU counts as in users' use
    OPTIONS_TOLD = 31,  // options of a choice whose order is kept; those after it go by id
};

struct features {
    uint64_t bits[FEATURE_WORDS];
};

struct gpu {
    uint64_t memory_bytes;
    uint16_t free_milli;  // neither held nor withheld; 0 when unusable
    uint16_t held_milli;
    uint16_t withheld_milli;  // during a pass, see struct node
    uint16_t group;
    uint8_t model;        // index into world.models
    bool usable;
    uint8_t socket;
};

struct node {
    uint32_t id;
    enum sched_node_state state;
    bool present;
    uint16_t whole_free, most_free;  // GPUs entirely free; largest free_milli
    uint32_t free_milli;             // of all GPUs together
    uint64_t like;                // hash of shape and free resources, 0: not known now
    char *name;
    uint32_t cpus, cpus_free, cpus_held;
    uint64_t memory, memory_free, memory_held;
    uint32_t gpu_count, gpu_usable;
    struct gpu *gpus;
    uint64_t models;              // mask of usable GPUs' models
    struct features features;
    uint64_t partitions[PARTITION_WORDS];
    // During a pass: what is promised to jobs for which others are being preempted, beyond what those
    // others will free for them. It is free, but not for anybody else.
    uint32_t cpus_withheld;
    uint64_t memory_withheld;
    bool special;                 // during a pass: planned on, or in a reservation
    uint32_t hold;                // during a pass: 1 + index of the first planned part on it
    uint32_t exclusive;           // running jobs that do not share it (0 or 1)
    VEC(struct job *) jobs;       // running here, also while the node is away
};

struct partition {
    uint32_t id;
    bool present;
    char *name;
    bool all_nodes, fifo, closed;
    int32_t tier;
    int64_t default_time_ms, max_time_ms;
    VEC(uint32_t) nodes;
};

struct model_quota {
    uint8_t model;
    int64_t quota, limit;
};

struct request;

// One request's next job as the order sees it; a cache line.
struct turn {
    int64_t key;               // when its turn comes; its limit while backfilling shortest first
    int64_t base;              // the key without its user's use
    int64_t limit_ms;
    struct request *request;   // NULL: a free slot
    struct fit *fit;
    struct user *user;
    int32_t tier, priority;
    uint32_t at;               // index in its queue; of a free slot: the next one
    uint8_t partition, dim;
    bool stale;                // its next job is another one now
    bool use_free : 1;         // its user's use does not count: a partition in the order of submission
    bool special : 1;          // it may take from others whatever its project's share is
    bool named : 1;            // it names a reservation
    uint8_t nth : 5;           // of an option: its place among those its jobs name, up to OPTIONS_TOLD
};

// A project's requests that have jobs ready to start. Slots stay where they are while a request has
// jobs; `sorted` is their order at the latest pass, brought up to date by the next one.
struct turns {
    VEC(struct turn) slots;
    VEC(uint32_t) sorted;
    uint32_t free;             // 1 + the first free slot; 0: none
    uint32_t count;            // slots in use
    uint64_t version;          // config and policy they were made for
};

struct project {
    uint32_t id, parent;
    bool present;
    bool quota_rest;              // quota[DIM_GPU] follows from the others'
    char *name;
    int64_t quota[DIMS_MAX];      // per dimension; DIM_CPU may be SCHED_UNLIMITED
    int64_t limit[DIMS_MAX];      // SCHED_UNLIMITED
    int64_t weight;
    VEC(struct model_quota) models;
    VEC(uint32_t) nodes;          // sorted; empty: all
    int64_t interactive_limit_ms;
    // Held by running jobs of this project itself (not its children), kept by the deltas.
    int64_t used[DIMS_MAX], fixed[DIMS_MAX];  // fixed: the part that cannot be preempted
    int64_t queued[DIMS_MAX];
    int64_t queued_fixed[DIMS_MAX];
    uint32_t running, pending;
    struct turns turns;
    uint32_t takes;               // during a pass: dimensions in which it was under its share at first
    // Filled by share_update: the subtree, and the part of the project's own jobs.
    int64_t tree_used[DIMS_MAX], share[DIMS_MAX];
    int64_t own_share[DIMS_MAX];
    int64_t want[DIMS_MAX], own_want[DIMS_MAX], tree_quota[DIMS_MAX];
    uint32_t depth;
};

struct qos {
    uint32_t id;
    bool present;
    char *name;
    int32_t priority;
    uint32_t max_jobs_per_user, max_gpu_milli_per_user, max_gpu_milli, max_cpus_per_user;
    int64_t max_time_ms;
    VEC(uint32_t) preempts;
    uint32_t usage_factor_milli;
    enum sched_override preemptible;
    uint64_t used_gpu_milli;
};

struct reservation {
    uint32_t id;
    char *name;
    int64_t start_ms, end_ms;
    bool maintenance;
    VEC(uint32_t) nodes, users, projects;
};

// What one (project, user) or (qos, user) holds and used.
struct user {
    uint64_t key;
    int64_t cost;               // now held, in milli-GPU
    int64_t average;            // moving average of cost
    int64_t at_ms;              // when `average` was right
    int64_t trial_cost;         // of jobs started by the pass under way
    uint64_t pass;              // in which `average_now` was made
    int64_t average_now;
    uint64_t use_pass;          // in which `use_ms` was made …
    int64_t use_of, use_ms;     // … for this load: what it adds to turns
    int32_t ratio_milli;        // of their limits its jobs used lately, 0: not known
    uint32_t jobs;
    uint64_t gpu_milli;
    uint64_t cpus;
};

// A job's needs in the form placement works with.
struct demand {
    uint32_t nodes_min, nodes_max;
    uint32_t tasks;
    uint32_t node_tasks;        // at most this many tasks on one node
    bool even;                  // the same number of tasks on each of exactly nodes_min nodes
    bool exclusive, spread, same_group;
    uint32_t cpus_task;
    uint64_t memory_node, memory_task;
    uint32_t gpu_task, gpu_node;  // milli
    uint64_t gpu_memory;          // per GPU; decides the fraction when gpu_by_memory
    bool gpu_by_memory;
    uint64_t models;              // allowed, 0: any
    bool model_unknown;           // a model nobody has
    bool gpu_uneven;              // GPUs per job that cannot be divided over its nodes
};

struct ranked {
    int64_t score;
    uint32_t node;
};

// Everything about requests that place alike: which nodes may be used, and how many of their tasks
// fit on each now. Kept current by replaying the log of changed nodes; rebuilt when in doubt.
struct fit {
    char *code;
    uint32_t code_len;
    uint64_t hash;
    struct fit *next;
    struct demand demand;
    uint64_t config_version;
    uint64_t synced;              // changes seen so far
    uint64_t mix_version;
    uint32_t nodes_len;
    uint8_t *allowed;             // by node id, whether it is up or not
    uint16_t *cap;                // tasks that fit now, 0: none
    int64_t *score;               // of placing on it, lower is better; SCORE_UNKNOWN
    uint32_t nodes_fit;
    uint64_t tasks_fit;
    uint64_t ever_version;        // world's nodes_version `ever` is for
    bool ever;                    // enough would fit were all nodes that are up idle
    uint64_t failed_pass;         // in this pass placement failed …
    int64_t failed_limit_ms;      // … for jobs this long or longer
    uint32_t users;               // requests that point here
    // During a pass: requests that were not looked at yet, and what is known of them together.
    uint64_t tally_pass, dead_pass;  // dead: too little is free for it, and that stays so
    struct request *any;
    uint32_t left;
    uint64_t bit;
    int64_t least_ms;             // the shortest limit
    bool named;                   // some name a reservation
    uint64_t own_pass;            // in this pass one has a planned start elsewhere, which is not in its own way
    int64_t weight;               // scratch of estimates
    // While one pass places many of a class: its nodes as a heap by (score, id), see place.c.
    uint64_t scan_pass;
    uint32_t scans;
    bool ranked;
    VEC(struct ranked) ranks;
    VEC(uint32_t) unranked;       // nodes that changed since
};

#define SCORE_UNKNOWN INT64_MIN

// A request that names several partitions is a choice. Its jobs wait in the queue of each of its
// options, requests for one of the partitions each; its own queue stays empty. What does not depend on
// the partition (amounts, project, user, rights) is the same in a choice and its options.
struct request {
    struct sched_request asked;   // lists and texts owned
    VEC(struct request *) options;  // of a choice, in the order named, each with a reference; else empty
    const struct request *choice; // of an option; else NULL
    uint8_t nth;                  // of an option, see struct turn
    char *code;                   // canonical bytes, for interning
    uint32_t code_len;
    uint64_t hash;
    struct request *next;         // same hash
    uint32_t refs;
    struct demand demand;
    VEC(struct features) features;  // each an alternative set
    bool feature_unknown;
    struct fit *fit;
    uint64_t fit_version;         // config_version of the lookup
    struct user *user, *qos_user; // entries of its user; never freed before the world
    int64_t limit_ms;             // effective, INT64_MAX: none; for limit_version
    int64_t turn_limit_ms;        // what its turn goes by: the longest of its choice's, so that options come together
    uint64_t limit_version;
    uint8_t dim;
    int64_t amount;               // it asks for in that dimension
    bool preemptible;
    bool fifo;                    // its partition keeps the order of submission
    int32_t priority, tier;
    VEC(struct job *) queue;      // ready, by (submit, id), from `head`
    uint32_t head;
    uint32_t project_slot;        // in its project's turns while the queue is not empty
    uint64_t gpu_milli;           // of the whole job
    uint64_t window_pass;         // pass + 1 that `kept_out` is of
    bool kept_out;                // reservations are in the way, nothing else
};

struct job {
    uint64_t id;
    struct request *request;
    int64_t submit_ms, begin_ms, start_ms, limit_ms;
    struct alloc *alloc;
    uint64_t ending_for;
    struct gave *gave;            // whom it made room for; NULL: for nobody
    uint32_t restarts;
    int64_t cost;                 // what it counts as in its user's use while it runs
    int64_t held_gpu, held_cpus;  // of its allocation
    uint32_t run_slot;            // index in world.running
    int32_t worth;                // its priority as by_worth knows it
    bool in_by_end, in_by_worth;
    bool taker;                   // others were told to make room for it: it comes first
    bool vacating;                // during a pass: ending, or chosen as a victim
    bool promised;                // during a pass: victims make room for it
    bool planned;                 // during a pass: it has a planned start
    uint8_t partition;            // it runs in; 0: none, or it waits
    uint8_t state, hold, reason;
    uint32_t since_pass;          // the pass before it was queued
    bool queued;                  // counted in its request's queue
    bool fixed;                   // cannot be preempted; as counted in its project
};

// Jobs in some order, and those not merged in yet.
struct standing {
    VEC(struct job *) sorted, fresh;
    uint32_t removed;  // since the last merge
    bool broken;       // too many were: made again from all running jobs when needed
};

// A running job that may have to give, with what decides whether it is worth a closer look.
struct victim {
    struct job *job;
    uint32_t project;
    uint32_t node;   // 0: on several
    uint32_t milli;  // it holds in all
    uint16_t gpus;   // it holds on that node
    bool fixed;      // cannot be preempted
};

// A GPU memory size and how many GPUs have it.
struct gpu_size {
    uint64_t bytes;
    uint32_t count;
};

struct world {
    VEC(struct node *) nodes;           // by id
    VEC(struct partition *) partitions; // by id
    VEC(struct project *) projects;     // by id
    VEC(struct qos *) qos;              // by id
    VEC(struct reservation *) reservations;
    VEC(char *) models, features;       // words, by index
    uint8_t dim_of_model[SCHED_MODELS_MAX];  // 0: no quota by this model
    uint32_t dims;
    int64_t capacity[DIMS_MAX];         // of nodes that are up
    VEC(struct gpu_size) gpu_sizes;     // of present nodes
    uint32_t by_memory;                 // requests for GPU memory
    struct map jobs;                    // id → struct job
    struct map requests;                // hash → struct request
    struct map users, qos_users;        // project or qos << 32 | user → struct user
    VEC(struct job *) running;
    VEC(struct job *) waiting;          // begin time not reached, heap by (begin, id)
    VEC(struct job *) ending;           // by id
    uint32_t pending;
    uint32_t ready;                     // of them in a queue
    int64_t half_life_ms;
    VEC(struct project *) tree;         // present projects, parents first, then by id
    uint64_t tree_version;              // config_version it was built for
    uint64_t config_version;            // anything but free resources and jobs changed
    uint64_t nodes_version;             // nodes came, went, or changed their state
    VEC(uint32_t) changes;              // nodes whose free resources changed, oldest first
    uint64_t changes_base;              // number of changes dropped from the front
    VEC(uint8_t) whole_free;            // by node: GPUs entirely free
    VEC(uint8_t) room;                  // by node: free shares put together, in GPUs, rounded up
    uint32_t room_count[SCHED_GPUS_MAX + 1];  // nodes by that
    struct map fits;                    // hash → struct fit
    uint32_t fit_count;
    struct standing by_end;             // running, by (end by limit, id)
    struct standing by_worth;           // running, the first to give first
    uint64_t worth_version;             // config_version of its priorities
    VEC(struct victim) victims;         // by_worth.sorted in compact form
    bool victims_stale;
    struct mix *mix;                    // requests seen lately
    VEC(uint64_t) takers;               // jobs marked so, in the order of marking
    VEC(struct job *) gave;             // jobs that made room for others
    VEC(uint64_t) noted;                // jobs with a reason of their own
    struct {                            // what reasons are told by, from the latest pass
        int64_t now_ms;
        bool within_quota, planless;
    } judged;
    struct {                            // what turns are made with
        int order;
        int32_t short_milli;
        int64_t size_ms, qos_ms, nice_ms;
        uint64_t version;               // of these
    } turn_rules;
    uint64_t pass;                      // number of the pass under way or done last
};

struct node *world_node(const struct world *w, uint32_t id);
struct project *world_project(const struct world *w, uint32_t id);     // present or NULL
struct project *world_project_slot(struct world *w, uint32_t id);      // made when missing
struct partition *world_partition(const struct world *w, uint32_t id);
struct qos *world_qos(const struct world *w, uint32_t id);
struct reservation *world_reservation(const struct world *w, const char *name);
struct job *world_find(const struct world *w, uint64_t id);
int world_model(struct world *w, const char *model, bool add);         // index or -1
int world_feature(struct world *w, const char *feature, bool add);
void world_config_changed(struct world *w);
void world_node_changed(struct world *w, uint32_t node);

// request.c
void request_derive(struct world *w, struct request *r);  // again after models, features changed
int64_t request_limit_ms(const struct world *w, const struct request *r);
bool request_partition_has(const struct sched_request *q, const struct node *n);  // one of its partitions
bool request_node_allowed(const struct world *w, const struct request *r, const struct node *n);
unsigned request_dim(const struct world *w, const struct request *r);  // the share that rules it
int64_t request_amount(const struct world *w, const struct request *r, unsigned dim);
bool request_preemptible(const struct world *w, const struct request *r);
int32_t request_priority(const struct world *w, const struct request *r);

// preemption_order.c
void gave_note(struct world *w, struct job *j, const struct sched_gave *new);
void gave_forget(struct world *w, struct job *j);
void gave_lapse(struct world *w, uint32_t project);  // one of its jobs ended by itself

// usage.c
uint64_t decay_q32(int64_t elapsed_ms, int64_t half_life_ms);  // 2^-(elapsed / half-life), Q32
struct user *user_slot(struct map *m, uint32_t owner, uint32_t user);
int64_t user_average(const struct user *u, int64_t now_ms, int64_t half_life_ms);
void user_hold(struct user *u, int64_t cost, int64_t now_ms, int64_t half_life_ms);

// allocation.c: taking and giving back what an allocation names, on nodes and in every count.
void node_hold(struct node *n, const struct alloc_node *a, bool exclusive, int sign);
void node_refresh(struct node *n);                      // free = total - held - withheld
void node_withhold(struct node *n, const struct alloc_node *a, int sign);
void alloc_amounts(const struct world *w, const struct alloc *a, int64_t held[DIMS_MAX]);
void count_running(struct world *w, struct job *j, int sign, int64_t now_ms);
void count_queued(struct world *w, struct job *j, int sign);
void world_recount(struct world *w);                    // every count again, from the jobs

// job.c
// The requests a pending job waits in: its own, or each option of a choice.
uint32_t job_options(const struct job *j);
struct request *job_option(const struct job *j, uint32_t i);
struct request *job_option_in(const struct job *j, uint32_t partition);  // the first one when there is none
bool job_is_choice(const struct job *j);
bool request_counts(const struct request *r);  // of a choice's options, whose queues are alike, only the first
uint32_t queue_place(const struct request *r, const struct job *j);      // its index there
void job_enqueue(struct world *w, struct job *j);
void job_dequeue(struct world *w, struct job *j);
void world_due(struct world *w, int64_t now_ms);        // queues jobs whose begin time has come

// project_queue.c
void turns_add(struct turns *t, struct request *r);
void turns_remove(struct turns *t, struct request *r);
void turns_stale(struct project *p, struct request *r);  // its next job is another one
void turns_done(struct turns *t);

// fit.c
uint32_t fit_tasks(const struct node *n, const struct demand *d);

// node.c, rules.c, share.c, cache.c
void nodes_recount_capacity(struct world *w);
void nodes_free(struct world *w);
bool partition_has(const struct partition *p, uint32_t node);
void rules_free(struct world *w);
void requests_derive(struct world *w);
void share_update(struct world *w);
void request_free(struct request *r);
bool request_features_ok(const struct request *r, const struct node *n);
bool project_allows(const struct project *p, uint32_t node);
// Milli-GPU that a fraction takes on a GPU with this memory; over SCHED_GPU: it does not fit there.
uint32_t demand_milli(const struct demand *d, uint32_t milli, uint64_t gpu_memory);
uint32_t fit_gpu_slots(const struct demand *d, uint32_t tasks);
void fit_node(const struct node *n, const struct demand *d, uint32_t tasks, int wish, struct alloc_node *out,
              struct alloc_gpu *gpus);
int64_t job_end_ms(const struct job *j);  // by its limit; INT64_MAX: none
struct project *project_parent(const struct world *w, const struct project *p);
int64_t project_quota(const struct project *p, unsigned dim);  // 0 when not rationed
uint32_t fit_tasks_idle(const struct node *n, const struct demand *d);  // were it up and idle

// running_order.c: standing orders of the running jobs; `sorted` is complete after a merge
void ends_add(struct world *w, struct job *j);
void ends_remove(struct world *w, struct job *j);
void ends_merge(struct world *w);
void worth_add(struct world *w, struct job *j);
void worth_remove(struct world *w, struct job *j);
void worth_merge(struct world *w);
void ends_assert(const struct world *w);
bool project_export(const struct world *w, uint32_t id, struct sched_project *out,
                    struct sched_model_quota quotas[SCHED_MODELS_MAX]);  // borrowed
