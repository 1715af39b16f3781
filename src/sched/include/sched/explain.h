// Why a job waits, when it will start, and what change would start it now. The answers come from the code
// that decides: a suggested change was applied to the world, a pass was made, and the job started. Afterwards
// the world is as before.
#pragma once
#include "base/buf.h"
#include "base/phrase.h"
#include "sched/sched.h"

enum {
    EXPLAIN_HOLDERS_MAX = 8,
    EXPLAIN_NAMED_MAX = 5,
    EXPLAIN_ENDS_MAX = 32,
    EXPLAIN_OPTIONS_MAX = 16,
    WHEN_STEPS_MAX = 400
};

// How many nodes are ruled out by what; each node is counted once, for the first reason that applies.
struct explain_nodes {
    uint32_t all;
    uint32_t partition, project, listed, features, model;  // not allowed
    uint32_t down, drained;
    uint32_t small;        // too small even when idle
    uint32_t reserved;     // reserved for a time at which the job would run
    uint32_t other_user;   // they run the jobs of another user only
    uint32_t ending;       // they go before the job would have to end
    uint32_t busy_gpus, busy_cpus, busy_memory, busy_alone;  // busy_alone: exclusive use
    uint32_t planned;      // free, but the job would delay one that is planned there
    uint32_t fit;          // could run a part of the job now
    uint32_t needed;
    bool partly;           // those that fit have no room for all of the job together
    uint32_t sick_gpus;    // faulty ones, on nodes that lack GPUs for the job
};

struct explain_holder {
    uint64_t job;
    uint32_t project, user;
    uint64_t gpu_milli;
    uint32_t cpus;
    int64_t end_ms;  // by its limit; INT64_MAX: none
};

enum explain_basis {
    EXPLAIN_NOW,        // starts in the next pass
    EXPLAIN_FORECAST,   // simulated: late if jobs run to their limits, early if they run as long as usual
    EXPLAIN_LATER,      // not before early_ms; the simulation ended there
    EXPLAIN_NEVER,      // not before something else changes: see the reason
    EXPLAIN_UNKNOWN,    // a job in its way has no time limit
    EXPLAIN_ESTIMATE,   // from totals, because the cluster is too large to simulate
};

struct explain_band {
    enum explain_basis basis;
    int64_t early_ms, late_ms;
};

enum explain_change {
    CHANGE_NONE,           // none was found
    CHANGE_RELEASE,        // release it (or let what it depends on finish)
    CHANGE_BEGIN_NOW,      // drop the begin time
    CHANGE_TIME_LIMIT,     // value: ms
    CHANGE_GPUS,           // value: milli per task or node
    CHANGE_NODES,          // value
    CHANGE_TASKS,          // value
    CHANGE_CPUS,           // value: per task
    CHANGE_MEMORY,         // value: bytes per node
    CHANGE_ANY_MODEL,
    CHANGE_NO_FEATURES,
    CHANGE_NO_NODE_LIST,
    CHANGE_PARTITION,      // value: id, 0: none
    CHANGE_QOS,            // value: id, 0: none
    CHANGE_TRAIN,          // as train work, which may go over quota
    CHANGE_SHARED,         // without exclusive nodes
    CHANGE_NO_RESERVATION, // outside the reservation
    CHANGE_PRIORITY,       // value: added to its own
    CHANGE_PROJECT_QUOTA,  // value: milli-GPU or CPUs; for an administrator of the project
    CHANGE_PROJECT_LIMIT,  // value
    CHANGE_END_JOBS,       // `ends` says which
};

// One of a job's several partitions.
struct explain_option {
    uint32_t partition;
    enum sched_reason reason;
    int64_t planned_ms;  // its planned start there; 0: none
};

// A limit of the QoS that keeps the job from starting: as it is set, what is in use of it, and what the job adds.
enum explain_limit_kind {
    LIMIT_NONE,
    LIMIT_JOBS_PER_USER,
    LIMIT_GPUS_PER_USER,
    LIMIT_CPUS_PER_USER,
    LIMIT_GPUS
};
struct explain_limit {
    enum explain_limit_kind kind;
    uint64_t limit, used, asked;  // jobs, CPUs or thousandths of GPUs
};

// A license that keeps the job from starting.
struct explain_license {
    uint32_t license;  // 0: none does
    uint32_t asked, count;
    uint64_t used;
    bool exists;
};

struct sched_explanation {
    uint64_t job;
    enum sched_reason reason;
    enum sched_hold hold;
    uint32_t qos;                    // 0: none
    struct explain_limit qos_limit;  // with SCHED_REASON_QOS_LIMIT
    struct explain_license license;  // with SCHED_REASON_LICENSES
    const char *reservation;         // it names; NULL: none. As long as the job is there
    bool unlimited;                  // it has no time limit
    bool optional;  // an optional worker: it has what others leave, and no position
    bool elastic;   // set by whoever knows it: its tasks are workers
    struct explain_nodes nodes;
    struct explain_holder holders[EXPLAIN_HOLDERS_MAX];  // of what it needs, largest first
    uint32_t holder_count, holders_all;
    struct explain_option options[EXPLAIN_OPTIONS_MAX];  // none when it names one partition
    uint32_t option_count;
    uint32_t position, waiting;  // place in the order, of how many
    struct explain_band band;
    enum explain_change change;
    int64_t value;
    bool also_release;           // the change works if the job is also released
    bool also_first;             // the change works if the job also comes before all others
    uint64_t ends[EXPLAIN_ENDS_MAX];
    uint32_t end_count;
    uint64_t victims;            // jobs preempted for it that have not ended yet
};

// -ENOENT when there is no such pending job.
int sched_explain(struct world *w, uint64_t job, int64_t now_ms, const struct policy *policy,
                  struct sched_explanation *out);
// Every sentence that an explanation can have; phrase.h tells what they are good for.
extern const struct phrase sched_phrases[];
extern const uint32_t sched_phrase_count;
// As sentences; items of a list begin with two blanks. `name` appends how to call a job; NULL: its id.
typedef void (*explain_name_fn)(void *ctx, uint64_t job, struct buf *out);
void sched_explain_say(const struct world *w, const struct sched_explanation *e, int64_t now_ms,
                       explain_name_fn name, void *ctx, struct phrase_out *out);
// The same, in English only, one per line.
void sched_explain_text(const struct world *w, const struct sched_explanation *e, int64_t now_ms, struct buf *out);

// When will the elastic job `group` have this many optional workers, if it may have that many? EXPLAIN_NEVER: it has no
// optional worker now, running or waiting, that shows what they are like.
struct explain_band sched_when_workers(struct world *w, uint64_t group, uint32_t workers, int64_t now_ms,
                                       const struct policy *policy);

// When would this start if it were submitted now?
struct sched_when {
    enum sched_reason reason;
    struct explain_band band;
};
void sched_when(struct world *w, const struct sched_request *requests, uint32_t n, int64_t now_ms,
                const struct policy *policy, struct sched_when *out);

// Whose start moves if a running job may run for another time: two simulations, without and with it, in which jobs run
// to their limits. Of a world too large to simulate: the starts that one pass plans, without and with it.
struct sched_delay {
    uint64_t job;
    int64_t before_ms, after_ms;  // after_ms INT64_MAX: later than the simulation reached
};
struct sched_delays {
    VEC(struct sched_delay) moved;  // those that are delayed most first; the caller frees it
    bool complete;                  // false: there may be others
};
void sched_extension(struct world *w, uint64_t job, int64_t limit_ms, int64_t now_ms,
                     const struct policy *policy, struct sched_delays *out);
