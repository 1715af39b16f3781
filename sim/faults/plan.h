// What a seed means: the shape of the cluster, the policy, and a list of items in time (work, commands of operators,
// faults). Nothing depends on what happens in the run, so a run can be repeated without some items to find those that
// matter.
#pragma once
#include <stdbool.h>
#include <stdint.h>

#include "base/vec.h"
#include "core/core.h"
#include "store/sim_store.h"

enum {
    PLAN_MACHINES_MAX = 6,
    ENGINE_MACHINES = 3,  // that a provider may start, besides these
    MACHINES_MAX = PLAN_MACHINES_MAX + ENGINE_MACHINES,
    GPUS_MAX = 4,
    PROJECTS = 3,
    FOREVER_MS = 1000000000
};

enum item_kind {
    // work
    ITEM_SUBMIT,
    ITEM_CANCEL,
    ITEM_HOLD,
    ITEM_RELEASE,
    ITEM_REQUEUE,
    ITEM_SUSPEND,
    ITEM_RESUME,
    ITEM_SIGNAL,
    ITEM_UPDATE,
    ITEM_STEP,
    // operators
    ITEM_DRAIN,
    ITEM_UNDRAIN,
    ITEM_QUOTA,
    ITEM_PROJECT_DELETE,
    ITEM_PARTITION_DOWN,
    ITEM_RESERVATION,
    ITEM_QOS,
    ITEM_POLICY,
    ITEM_NODE_REMOVE,
    ITEM_TOKEN,
    // the controller
    ITEM_HEAD_KILL,
    ITEM_HEAD_STOP,
    ITEM_HEAD_UPGRADE,
    ITEM_HEAD_SNAPSHOT,
    ITEM_DISK_FAIL,
    ITEM_DISK_SLOW,
    ITEM_DISK_FULL,
    ITEM_HEAD_CLOCK,
    ITEM_HEAD_STALL,
    // machines
    ITEM_AGENT_KILL,
    ITEM_REBOOT,
    ITEM_POWER_OFF,
    ITEM_GONE,
    ITEM_IDENTITY,
    ITEM_SHEPHERD_KILL,
    ITEM_SPOOL_FULL,
    ITEM_NODE_CLOCK,
    ITEM_GPU,
    // the network
    ITEM_BREAK,
    ITEM_HALF_OPEN,
    ITEM_CUT_UP,
    ITEM_CUT_DOWN,
    ITEM_CUT,
    ITEM_SLOW,
    ITEM_CORRUPT,
    ITEM_REPEAT,
    // not chosen at random: some seeds have them beside all else
    ITEM_HEAD_RESTORE,
    ITEM_HOLDER,  // the client of an allocation ends, goes away for a while, or gives it back
    ITEM_LEVEL,   // somebody finishes the upgrade of the journal
    ITEM_RESIZE,  // of an elastic job
    ITEM_RANK,
    ITEM_ACCOUNT,  // made, changed, disabled, removed; gets another password
    ITEM_LOGIN,    // somebody logs in with a browser
    ITEM_PORT,     // somebody uses a port of a job
    ITEM_LOG,      // somebody follows the output of a job
    ITEM_PROVIDER,  // added, changed, removed, or one of its nodes goes by itself
    // where several controllers share a database
    ITEM_HEAD_PAUSE,
    ITEM_HEAD_PAUSE_SENDING,
    ITEM_HEAD_CUT,  // from the nodes
    ITEM_HAND_OVER,
    ITEM_DB_AWAY,
    ITEM_DB_CUT,  // from one controller
    ITEM_DB_SLOW,
    ITEM_DB_FULL,
    ITEM_DB_CLOCK,
    ITEM_DB_ANSWER,   // answers to commits are lost
    ITEM_DB_RESTORE,  // an older copy, and the controllers go on
    ITEM_COUNT,
    ITEM_RANDOM_COUNT = ITEM_HEAD_RESTORE
};

enum job_dependency {
    DEPEND_NONE,
    DEPEND_AFTER,
    DEPEND_OK,
    DEPEND_ANY,
    DEPEND_NOT_OK,
    DEPEND_SINGLETON,
    DEPEND_SAME_ELEMENT,
    DEPEND_ELEMENT,
    DEPEND_ONE_OF_TWO,
    DEPEND_MINUTE_AFTER,
    DEPEND_COUNT
};

// How the processes of a job behave; an array's elements vary a little around it.
struct behaviour {
    uint32_t run_ms;
    int32_t exit_code;
    bool ignores_term;
    uint32_t late_ms;      // between SIGKILL and the end: hung in the kernel
    uint32_t leftover_ms;  // a daemon lives on this long after the main process, unless killed
    bool oom;
    uint32_t checkpoint_ms;  // how long its checkpoint command takes
};

struct job_shape {
    uint32_t cpus, tasks, nodes, gpus_milli, project, user;
    uint32_t array, array_limit;
    uint32_t time_limit_s, grace_s;
    uint32_t lease_s;  // an allocation that is there for its client; 0: not
    bool checkpoint;
    bool port;                          // its program listens
    bool attached;                      // its output is kept for clients
    uint32_t workers_min, workers_max;  // of an elastic job; 0: it is none
    uint32_t
        components;  // kinds of workers: 0: one; else a first one, and these workers; 3: another after them
    bool head;       // the job ends with the first
    uint32_t heads;  // workers of the first component
    bool wide;       // workers of the last component are on two nodes each
    uint32_t retries, backoff_s;
    enum worker_end on_worker_end;
    enum job_dependency dependency;
    uint32_t depends_on;  // on this item
    uint32_t qos;         // 0: none
    const char *partition;  // NULL: the default; some name both, in either order
    bool requeue, hold, keyed, interactive, launch_tasks;
    int64_t begin_after_ms, deadline_after_ms;
    struct behaviour behaviour;
};

struct item {
    int64_t at_ms;      // from the beginning of the run
    enum item_kind kind;
    uint32_t node;      // machine, where one is meant
    uint32_t target;    // item that submitted the job meant
    uint32_t pick;      // which element of its array
    int64_t for_ms;     // how long the fault lasts; jumps: by how much
    uint32_t amount;
    struct job_shape *job;  // submits
};

struct machine_shape {
    uint32_t cpus, gpus;
    uint64_t memory_bytes;
    bool keeps_spool;   // over a restart of the machine
    bool older;         // its agent is of the release before: it knows neither epochs nor steps
    int32_t drift_ppm;
};

struct plan {
    uint64_t seed;
    struct machine_shape machines[MACHINES_MAX];
    uint32_t machine_count;
    bool engine;  // there is a provider; the next machines are its own
    struct policy policy;
    uint32_t heartbeat_s, lost_after_s, grace_s, max_attempts;
    uint32_t latency_ms;      // typical, one way
    uint32_t snapshot_every;  // journal records
    uint32_t level;           // of the journal at the beginning
    struct sim_disk_faults disk;
    bool logs;   // somebody follows output
    bool flood;  // some jobs print more than is kept
    uint32_t controllers;  // 1: it keeps its state on a disk of its own
    uint32_t lease_ms;
    int32_t drift_ppm[4];  // of their clocks, and how far they are off
    int64_t clock_ms[4];
    VEC(struct item) items;   // by time
    int64_t last_ms;          // the last fault is over
};

extern bool run_plan_failover;  // whether two or three controllers share a database
extern bool run_plan_restores;  // whether plans may put older copies of the controller's state back
void run_plan_make(struct plan *p, uint64_t seed);
void run_plan_done(struct plan *p);
const char *item_word(enum item_kind kind);
void item_print(const struct item *it, uint32_t number, char *out, size_t size);
