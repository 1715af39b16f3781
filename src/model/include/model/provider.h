// Providers: where nodes come from beyond those that join by themselves. A provider is a program that starts and
// stops agents in some engine (Slurm, a cloud); the core decides how many nodes it is to have, and each of
// them is a wanted node, from the wish to its end.
#pragma once
#include <stdbool.h>
#include <stdint.h>

#include "base/error.h"
#include "base/schema.h"

enum {
    PROVIDERS_MAX = 32,
    PROVIDER_NAME_MAX = 24,  // part of the names of its nodes
    PROVIDER_SHAPES_MAX = 16,
    PROVIDER_ARGS_MAX = 128,
    PROVIDER_ARG_MAX = 4096,  // bytes of one
    PROVIDER_SECRETS_MAX = 16,
    PROVIDER_FEATURES_MAX = 32,
    PROVIDER_NODES_MAX = 4096,  // of one provider at a time
    PROVIDER_HANDLE_MAX = 255,
    PROVIDER_REASON_MAX = 400,
    PROVIDER_RATE_DEFAULT = 60,
    PROVIDER_IDLE_DEFAULT_S = 300,
    PROVIDER_START_DEFAULT_S = 600,
    PROVIDER_TIME_MAX_S = 30 * 86400,
    PROVIDER_COST_MAX = 1000 * 1000 * 1000,  // thousandths
    WANTED_GONE_KEPT = 1000,                 // nodes that are gone, for their timings
};

enum provider_kind { PROVIDER_PROGRAM, PROVIDER_SLURM, PROVIDER_KINDS };
extern const char *const provider_kind_words[];

// One kind of node that a provider offers.
struct provider_shape {
    const char *name;
    uint32_t cpus, gpus;
    uint64_t memory_bytes;
    const char *gpu_model;
    uint64_t gpu_memory_bytes;  // of each GPU
    LIST(const char *) features;
    const char *user;     // its nodes run this user's jobs only; NULL: everybody's
    uint32_t lifetime_s;  // a node goes after so long; 0: it stays
    uint32_t boot_s;      // from the request until it takes jobs; 0: not known
    uint64_t cost_milli;  // of a node and hour, in thousandths
    uint32_t max;         // nodes the engine would give; 0: it does not say
};
extern const struct schema provider_shape_schema;

// A shape that the engine has refused, or whose nodes never came: it is left alone for a while.
struct provider_pause {
    const char *shape, *reason;
    uint32_t failures;  // in a row
    int64_t until_ms;
};
extern const struct schema provider_pause_schema;

// What an administrator sets up, what the program has said, and what was spent.
struct node_provider {
    const char *name;
    enum provider_kind kind;
    const char *program;  // of kind "program"; else NULL: ours
    LIST(const char *) args;
    LIST(const char *) secrets;  // names of secrets of who added it, handed to the program
    uint32_t min, max;           // nodes
    uint32_t idle_s;             // a node without jobs for so long is given back
    uint32_t rate;               // nodes it asks for per minute at most
    uint32_t start_s;            // a node that runs for so long and has not joined is given up
    uint64_t budget_milli;       // its nodes may cost so much a day (UTC)
    uint64_t cost_milli;         // of a node and hour, whatever the program says
    bool paused;                 // it starts no nodes
    uint64_t given[1];
    // not set by anybody:
    const char *tag;  // marks all that it starts in the engine as its own
    bool removing;    // it goes when its last node is gone
    bool forget;      // without looking whether it is
    LIST(struct provider_shape) shapes;
    LIST(struct provider_pause) pauses;
    int64_t spent_day;     // number of the day since 1970
    uint64_t spent_micro;  // by nodes that were gone on that day, millionths
    const char *by;
    int64_t made_ms;
};
extern const struct schema provider_schema;

// Wanted: decided. Requested: the engine is asked, and may be asked again. Booting: it has a handle for it. Joined: its
// agent is there. Refused: the engine said no, and is asked again later. Draining: it gets no more jobs. Stopping: the
// engine is asked to stop it. Gone: nothing of it is left there.
enum wanted_state {
    WANTED_DECIDED,
    WANTED_REQUESTED,
    WANTED_BOOTING,
    WANTED_JOINED,
    WANTED_REFUSED,
    WANTED_DRAINING,
    WANTED_STOPPING,
    WANTED_GONE,
    WANTED_STATES
};
extern const char *const wanted_state_words[];

struct wanted_node {
    uint64_t id;           // never used again
    const char *provider;  // its name
    const char *key;       // for the engine: whoever asks twice with one key gets one node
    const char *node;      // name that its agent joins by
    const char *shape;
    enum wanted_state state;
    const char *handle;  // the engine's own name of it; NULL: not known
    const char *reason;  // why it is wanted, or given back
    const char *problem;  // what the engine said last
    uint64_t job;         // the first that it was wanted for; 0: none
    uint64_t cost_milli;  // of an hour
    int64_t until_ms;     // when it goes by itself; 0: not known
    int64_t demand_ms;    // since when that job waits
    int64_t wanted_ms, requested_ms, booting_ms, running_ms, joined_ms, job_ms, draining_ms, stopping_ms, gone_ms;
    int64_t next_ms;  // refused: when it is asked for again
    uint32_t tries;
    bool failed;  // it never joined, or went by itself
};
extern const struct schema wanted_node_schema;

struct event_provider {
    struct node_provider *provider;
};
extern const struct schema event_provider_schema;

struct command_provider_remove {
    const char *name;
    bool now;    // jobs on its nodes are not waited for: they are queued again
    bool forget;  // the engine is not asked: it is gone itself
};
extern const struct schema command_provider_remove_schema;

// What a program says about a node in its engine.
enum engine_state { ENGINE_PENDING, ENGINE_RUNNING, ENGINE_ENDED, ENGINE_STATES };
extern const char *const engine_state_words[];
struct engine_node {
    const char *key, *handle;
    enum engine_state state;
    const char *reason;  // why it waits or has ended
    const char *error;   // start or stop: it was refused
    uint32_t retry_s;    // a refused start: not before; 0: it does not say
    int64_t until_ms;    // when it goes by itself; 0: it does not say
};
extern const struct schema engine_node_schema;

enum provider_verb { VERB_OFFERS, VERB_START, VERB_STOP, VERB_LIST, PROVIDER_VERBS };
extern const char *const provider_verb_words[];

// An answer of a program, and a command to the core: what can be had, or what became of nodes.
struct provider_report {
    const char *provider;
    enum provider_verb verb;
    LIST(struct provider_shape) shapes;  // of offers
    LIST(struct engine_node) nodes;      // of the others
    const char *error;                   // the engine could not be asked; the rest means nothing
    uint64_t id;                         // of the question
};
extern const struct schema provider_report_schema;

int provider_name_check(const char *name, struct error *e);
void provider_defaults(struct node_provider *p);
int provider_check(const struct node_provider *p, struct error *e);
int provider_shape_check(const struct provider_shape *s, struct error *e);
uint64_t provider_cost(const struct node_provider *p, const struct provider_shape *s);
const struct provider_shape *provider_shape_find(const struct node_provider *p, const char *name);
static inline bool wanted_is_coming(enum wanted_state s) {
    return s == WANTED_DECIDED || s == WANTED_REQUESTED || s == WANTED_BOOTING;
}
