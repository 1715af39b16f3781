// The controller's state, shared by the files of this folder only. It is changed by apply.c and by
// nothing else; what is derived from it (the scheduler's world, indexes, counts) is kept up to date
// there too, so that replaying the journal gives the same state.
#pragma once
#include "base/map.h"
#include "core/core.h"
#include "model/dependency.h"
#include "sched/sched.h"
#include "sched/world.h"

// What the scheduler knows nodes by that can run containers; no feature that people write looks like it.
#define CORE_CONTAINERS "*containers"

enum { OUTCOMES_KEPT = 1 << 18 };  // ended jobs that dependencies can still refer to

// What was submitted: one per job or array, shared by the elements.
struct submission {
    uint64_t id;              // of the first element; owner of the texts
    uint64_t count;           // elements, 1 without an array
    bool is_array;
    uint32_t limit;           // elements at once, 0: no limit
    int64_t submit_ms;
    char *spec;               // encoded
    uint32_t spec_len;
    uint32_t refs;            // live jobs
    const char *name;         // owned
    const char *user, *project, *partition, *qos;  // interned
    uint32_t uid, tasks, cpus, nodes_min, time_limit_s, priority;
    int32_t nice;
    uint64_t memory_bytes, gpus_milli;
    enum job_class class;
    bool requeue, hold;
    int64_t begin_ms, deadline_ms;
    const struct request *request;
    struct array *array;      // NULL without
    struct text_use *script, *environment;  // NULL without
    struct dependency dependency;  // what the job waits for; no terms: nothing
    struct arena dependency_arena;
};

// Counts over an array, for limits and for dependencies on the whole of it.
struct array {
    uint64_t id, count, ended, ended_ok, begun, live;  // begun: started, or ended without
    struct array_range *ranges;
    uint32_t range_count;
    uint32_t limit, active;   // active: elements not kept back by the limit and not ended
    uint64_t cursor;          // no element before this position is kept back by the limit
    int64_t begun_ms;         // when the last of them started, or ended without
    struct dependent *waiting;
};

struct run_part {
    struct node_entry *node;
    uint32_t cpus, tasks;
    uint64_t memory_bytes;
    struct gpu_grant *gpus;
    uint32_t gpu_count;
    char *cpu_ids;            // NULL: not told
    bool started, ended;
    enum end_cause cause;
    int32_t exit_code;
    uint32_t exit_signal;
};

// What a job has while it holds resources.
struct run {
    struct run_part *parts;
    uint32_t part_count;
    uint32_t time_limit_s;
    const char *partition;    // interned; NULL: the only one it names
    bool ending, hold;
    enum end_cause cause;     // of the ending
    int32_t exit_code;        // of an allocation that is given back
    uint32_t exit_signal;
    char *by, *reason;
    char *end_reason;         // the first part's words
    uint32_t signal, grace_s;
    int64_t suspended_ms;     // pauses that are over
    int64_t suspend_ms;       // when it was suspended or resumed last; 0: never
};

enum { HELD_USER = 1, HELD_ADMIN = 2, WAITS_DEPENDENCY = 4, DEPENDENCY_NEVER = 8, WAITS_ARRAY = 16, HAS_BEGUN = 32,
       TAKES = 64 };  // others were told to make room for it

struct job {
    uint64_t id;
    struct submission *sub;
    uint32_t array_index, attempt, preempted, steps;
    uint8_t state;  // enum job_state
    uint8_t flags;  // HELD_USER, …
    int64_t begin_ms, eligible_ms, start_ms, expected_start_ms;
    struct run *run;               // placed
    struct usage *usage;           // of all attempts so far
    struct dependent *waiting;     // jobs that wait for this one
    struct job *next_same, *prev_same;  // same user and name, by id: for singleton
};

// A job that waits for another job, an array, or all earlier ones of its name.
struct dependent {
    uint64_t id;
    struct dependent *next;
};

struct node_entry {
    uint32_t handle;           // stays with the name
    bool removed;
    const char *name;          // interned
    struct arena arena;        // of `node`
    struct node *node;
    enum node_state state;
    bool drained;
    char *reason, *by, *fingerprint;
    int64_t reason_ms;
    VEC(struct job *) jobs;    // with a part here that has not ended, by id
    VEC(uint64_t) stale;       // attempts (id, attempt) still being cleaned up; not part of the journal
    uint32_t cpus_used, gpus_used_milli;
    uint64_t memory_used_bytes;
    int64_t busy_ms;           // when its last job ended; 0: none yet
};

struct entity_entry {
    uint32_t handle;           // stays with the name, also when the thing is deleted and comes back
    const char *name;
    struct arena arena;
    void *value;               // struct project, partition, qos or reservation; NULL: deleted
};

struct token_entry {
    struct arena arena;
    struct event_token *token;
    bool used;
};

// How an ended job or array ended, for dependencies.
struct outcome {
    uint64_t id;  // OUTCOME_ARRAY set: of a whole array
    bool ok, started;
    uint32_t start_s;  // since 1970; 0: it never started
};
#define OUTCOME_ARRAY (1ULL << 63)

struct core {
    struct core_config config;
    struct policy_settings policy;  // as it was set; else the configuration's
    bool has_policy;
    struct policy unset_policy;  // the configuration's own
    uint64_t seq, next_id;
    struct map jobs;             // id → struct job
    VEC(struct job *) order;     // by id; holes (NULL) are swept when half of it is holes
    uint32_t holes;
    struct strmap interned;      // name → itself
    struct strmap nodes;         // name → struct node_entry
    VEC(struct node_entry *) node_list;  // by handle - 1
    struct strmap entities[ENTITY_COUNT];
    VEC(struct entity_entry *) entity_list[ENTITY_COUNT];  // by handle - 1
    struct strmap user_handles;
    VEC(const char *) users;     // by handle - 1
    struct strmap user_jobs;     // user → struct user_count
    struct strmap texts;         // key and user → struct text_use
    struct strmap tokens;
    struct map same_name;        // hash of user and name → first struct job
    struct map arrays;           // id → struct array, while elements live
    VEC(struct outcome) outcomes;  // a ring
    uint32_t outcome_next;
    struct map outcome_index;    // id → struct outcome
    struct world *world;
    struct decisions decisions;
    struct core_counts counts;
    struct core_passes passes;
    struct outbox outbox;
    bool replaying;
    bool dirty;                  // something happened that can let a job start
    int64_t next_decide_ms, next_deadline_ms, last_event_ms;
    uint64_t deadlines;          // live jobs with one
    uint64_t singletons;         // live jobs that wait for the others of their name
};

struct user_count {
    uint64_t live;
    uint64_t spec_bytes;  // what their live submissions take here
    uint64_t text_bytes;  // and on the disk, in scripts and environments
};

// state.c
void core_reset(struct core *c);  // as new
const char *intern(struct core *c, const char *s);  // NULL stays NULL
struct job *find_job(const struct core *c, uint64_t id);
struct node_entry *find_node(const struct core *c, const char *name);
struct entity_entry *find_entity(const struct core *c, enum entity t, const char *name);
uint32_t user_handle(struct core *c, const char *user);      // takes a new one: only while events are applied
uint32_t user_known(const struct core *c, const char *user);  // 0: none yet
struct user_count *user_count(struct core *c, const char *user);
void order_add(struct core *c, struct job *j);
uint32_t order_after(const struct core *c, uint64_t id);  // where larger ids begin
void order_remove(struct core *c, struct job *j);
void spec_of(const struct job *j, struct arena *a, struct spec *out);
struct run *run_free(struct run *r);
void outcome_add(struct core *c, uint64_t id, bool ok, bool started, uint32_t start_s);
const struct outcome *outcome_find(const struct core *c, uint64_t id);
struct submission *submission_new(struct core *c, uint64_t id, const struct spec *spec, int64_t submit_ms);
void submission_unref(struct core *c, struct submission *s);
uint64_t same_name_key(const char *user, const char *name);

// apply.c, apply_cluster.c
void apply(struct core *c, const struct event *e);
void apply_cluster(struct core *c, const struct event *e);
void job_link(struct core *c, struct job *j);
int64_t run_paused_ms(const struct job *j, int64_t now_ms);  // all pauses of the attempt until then
void jobs_to_world(struct core *c);
enum sched_claim claim_read(uint32_t claim);
// event.c: numbers the event, applies it, puts it into the outbox.
void emit(struct core *c, int64_t now_ms, enum event_type type, void *body);
void effect(struct core *c, enum effect_type type, const char *node, uint64_t job, uint32_t attempt);
void effect_send(struct core *c, const char *node, enum message_type type, void *body);

// queue.c
void job_to_world(struct core *c, struct job *j);      // pending: known to the scheduler again
void job_hold_changed(struct core *c, struct job *j);  // after a change of flags
enum job_reason reason_of(const struct core *c, const struct job *j);
void array_fill(struct core *c, struct array *a);      // lets elements through up to the limit
void array_limit(struct core *c, struct array *a, uint32_t limit);  // a new one; 0: none
// The job, if the actor may change it.
int need_job(const struct core *c, const struct actor *actor, uint64_t id, struct job **out, struct error *e);
int need_admin(const struct actor *actor, const char *what, struct error *e);

// depend.c
int depend_check(const struct core *c, const char *text, uint64_t self, struct error *e);
void depend_parse(struct submission *s, const struct spec *spec);
void depend_attach(struct core *c, struct job *j, int64_t now_ms);  // waits where it must
void depend_notify(struct core *c, struct job *j, int64_t now_ms);  // j has started or ended
void depend_wake(struct core *c, struct dependent *list, int64_t now_ms);  // frees the list
void depend_array(struct core *c, struct array *a, int64_t now_ms);
void depend_singleton(struct core *c, const struct job *ended, int64_t now_ms);
bool depend_is_singleton(const struct submission *s);
uint64_t array_element(const struct array *a, uint32_t index);  // id, 0: none

// dispatch.c
void node_ready(struct core *c, struct node_entry *n, int64_t now_ms);  // nothing stale is left: up

// report.c
struct run_part *part_on(struct job *j, const char *node);
void finish_if_done(struct core *c, struct job *j, int64_t now_ms);
void begin_ending(struct core *c, struct job *j, const struct event_job_ending *how, int64_t now_ms);
void send_kill(struct core *c, const struct job *j, const struct run_part *p);
void send_time_limit(struct core *c, const struct job *j, const struct run_part *p);
void end_part(struct core *c, struct job *j, struct run_part *p, enum end_cause cause, const char *reason,
              int64_t now_ms);
void end_pending(struct core *c, struct job *j, enum job_state state, const char *by, const char *reason,
                 int64_t now_ms);

// texts.c
struct text_use *text_take(struct core *c, const char *user, const char *id, uint64_t bytes);  // user: interned
void text_drop(struct core *c, struct text_use *t);  // accepts NULL
int texts_check(struct core *c, const struct spec *s, struct error *e);
bool texts_add_up(const struct core *c);

// policy.c
void apply_policy(struct core *c, const struct policy_settings *s, int64_t at_ms);  // at_ms 0: from a snapshot
void policy_again(struct core *c);

// account.c
void finished_row(struct core *c, const struct job *j, const struct event_job_ended *e, int64_t now_ms);
void record_of(const struct core *c, const struct job *j, struct arena *a, struct job_record *out);
