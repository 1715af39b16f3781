// One run of the fault simulator: a real controller (core, commit pipeline, store logic on a simulated disk),
// real agents' decisions, and simulated machines, processes, networks, clocks and clients around
// them, in virtual time. Shared by the files of this folder only.
//   net.c      connections: in order or broken      head.c     the controller's surroundings
//   machine.c  nodes and the agents on them         client.c   users and operators, who ask again
//   process.c  shepherds and what jobs do           faults.c   items of the plan that hurt
//   stream.c   output of steps on machines          watcher.c  clients of steps, and their sessions
//   step.c     steps and checkpoint commands        holder.c   clients of allocations, who come and go
//   check.c    what must hold after every step      rules.c    who may be placed when and where
//   check_steps.c  the same for steps and leases    run.c      one run from seed to verdict
//   port.c     connections to ports of jobs         log.c      output of attached jobs, and who follows it
//   login.c    people who log in with a browser     check_logins.c  the same for accounts and logins
//   provider.c a provider, its program and its engine
//   heads.c    several controllers, one leads       database.c  PostgreSQL under them, threads.c their threads
#pragma once
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>

#include "agent/logic/logic.h"
#include "agent/logic/step_runner.h"
#include "base/map.h"
#include "base/rand.h"
#include "controller/commit_pipeline.h"
#include "controller/leadership.h"
#include "controller/provider_questions.h"
#include "step_watch.h"
#include "plan.h"
#include "queue.h"
#include "rules.h"

enum happening {
    HAPPEN_ITEM,          // who: item
    HAPPEN_HEAL,          // who: item whose time is over
    HAPPEN_PACKET,        // who: connection, a: direction
    HAPPEN_RESET,         // who: connection, a: end that learns of it
    HAPPEN_BOOT,          // who: machine, a: its boot
    HAPPEN_DOOM,          // who: machine, a: boot
    HAPPEN_AGENT_START,   // who: machine, a: boot
    HAPPEN_AGENT_DIAL,    // who: machine, a: life of the agent
    HAPPEN_AGENT_TICK,    // the same
    HAPPEN_HANDOVER,      // who: machine, a: life of the agent, b: unit
    HAPPEN_PROCESS,       // who: machine, a: unit, b: its turn
    HAPPEN_HINT,          // who: machine, a: life of the agent, b: unit
    HAPPEN_STEP,          // who: machine, a: unit << 32 | step, b: its turn
    HAPPEN_STEP_HINT,     // who: machine, a: life of the agent, b: unit << 32 | step
    HAPPEN_AGENT_RETRY,   // who: machine, a: life of the agent
    HAPPEN_PRINT,         // who: machine, a: unit << 32 | step
    HAPPEN_WATCH,         // who: watcher
    HAPPEN_OUTPUT,        // who: delivery
    HAPPEN_PORT_ANSWER,   // who: machine, a: life of the agent, b: stream
    HAPPEN_PORT_PROGRAM,  // who: machine, a: stream
    HAPPEN_PORT_CLIENT,   // who: client of a port
    HAPPEN_LOG_PRINT,     // who: machine, a: unit
    HAPPEN_LOG_READ,      // who: machine, a: a process that reads a file for the agent
    HAPPEN_LOG_OUTPUT,    // who: delivery
    HAPPEN_LOG_CLIENT,    // who: client of a job's output
    HAPPEN_HOLDER,        // who: holder
    HAPPEN_LOGIN,         // who: login
    HAPPEN_ENGINE,       // who: question, a: 0 it reaches the engine, 1 the answer arrives
    HAPPEN_ENGINE_BOOT,  // who: node of the engine
    HAPPEN_HEAD_START,
    HAPPEN_HEAD_FLUSH,  // a: life of the controller
    HAPPEN_HEAD_TICK,   // the same
    HAPPEN_DISK,
    HAPPEN_REQUEST,   // who: request, a: try
    HAPPEN_REPLY,     // who: answer
    HAPPEN_CLIENT,    // who: request, a: try: no answer came
    HAPPEN_CLEANUP,   // faults are over: operators put things right
    HAPPEN_FOLLOW,    // who: controller, a: its life
    HAPPEN_HELD,      // the same
    HAPPEN_THREAD,    // who: controller, a: thread, b: its turn
    HAPPEN_DATABASE,  // who: call, a: its number
};

#define JOB_SCRIPT "#!/bin/sh\nsleep 1\n"
#define JOB_FOLDER "# a folder"  // of each seventh job
#define RUN_BEGIN_MS 1800000000000LL  // true time at the beginning of a run

// --- network ---

enum { IMAGES_MAX = 6 };  // fewer than these are on a node

enum { HEADS_MAX = 4 };             // controllers, and one that is never there
enum side { AGENT_END, HEAD_END };  // also directions: what that end sends

struct packet {
    char *data;  // NULL: the end of the connection
    size_t len;
};

struct conn {
    uint32_t number, machine, head;
    bool open[2];
    bool hole;             // whatever is sent vanishes, nobody is told
    VEC(struct packet) line[2];
    uint32_t first[2];     // packets before it are gone
    int64_t last_ms[2];
    char node[32];         // HEAD_END: who said hello on it
    uint64_t hello_seq;    // HEAD_END: the newest event then
    bool ready;            // HEAD_END: what the hello brought about has been sent
};

struct link {
    int64_t cut_until_ms[2], slow_until_ms;
    uint32_t slow_ms, corrupt[2], repeat[2];
};

// --- machines ---

enum unit_state { UNIT_CREATED, UNIT_RUNNING, UNIT_ENDED };
enum sim_unit_phase { PHASE_SPAWN, PHASE_RUN, PHASE_TERM, PHASE_KILL, PHASE_GONE };

#define SIM_CHECKPOINT_STEP 0x80000000u
enum { SIM_STEP_LEASE_S = 30 };

// One step in an attempt's folder, and its tasks.
struct sim_step {
    uint32_t number;
    uint64_t epoch, seq;
    struct bytes origin;  // as agent_step_origin; in the run's arena
    enum unit_state state;
    bool live, killed;
    bool leftover;        // acknowledged; kept for the client that wants its output
    uint64_t turn, life;  // life: of the agent that made it
    uint32_t run_ms;
    int64_t created_ms, began_ms, started_mono_ms;
    enum end_cause cause;
    int32_t exit_code;
    uint32_t exit_signal;
    struct usage usage;
    bool mpi, first,
        found;  // its helper, of an MPI step on several nodes: of the first node; has found the others
};

// One attempt in a machine's spool, and its processes.
struct sim_unit {
    uint64_t number;  // within the run
    uint64_t id;
    char node[32];    // the name it was launched under
    uint32_t attempt, boot, pid;
    enum unit_state state;
    enum sim_unit_phase phase;
    bool handed, shepherd, live, suspended;
    bool attached;     // its output is kept for clients
    uint32_t differs;  // looks in a row at which it was not as suspended as the controller says
    struct behaviour behaviour;
    uint32_t cpus, time_limit_s, grace_s;
    uint64_t memory_bytes;
    struct gpu_grant gpus[GPUS_MAX];
    uint32_t gpu_count;
    uint64_t turn;             // of the change planned next
    int64_t due_ms, left_ms;   // left: of the run, while suspended
    int64_t start_ms;          // by the machine's clock
    int64_t created_ms, began_ms, gone_ms;  // in truth
    bool killed;
    enum end_cause cause;
    int32_t exit_code;
    uint32_t exit_signal;
    const char *reason;        // a constant
    struct usage usage;
    int64_t end_ms;
    uint64_t epoch;            // of its launch
    void *origin;              // as agent_action
    size_t origin_len;
    VEC(struct sim_step) steps;
    uint64_t members_generation;  // of a worker: the newest membership of its job that it was told
    uint32_t members_old;         // looks in a row at which that was not the newest
    int64_t checkpoint_asked_ms;  // when the first agent was told to run it before the kill; 0: never
};

struct machine {
    struct sim *sim;
    uint32_t number;
    char name[32], boot_id[32], spool_id[32];
    const struct machine_shape *shape;
    bool powered, gone;
    bool taken;           // by a node of the engine
    char given_name[32];  // by the engine
    uint32_t boot, identity, spool;
    int64_t clock_offset_ms, spool_full_until_ms;
    uint32_t broken_gpus;       // bit n: GPU n
    uint32_t images;            // how often what it holds has changed
    struct journal_position seen;  // in the spool
    uint64_t kept_term;            // of the newest leader, on disk
    uint64_t obeyed_term;          // the newest ever obeyed on this disk
    uint32_t dials;                // which controller it tries
    uint32_t heard_head;           // who heard_ms is of
    VEC(struct sim_output *) outputs;
    VEC(struct sim_stream *) streams;
    VEC(struct sim_port *) ports;
    VEC(struct sim_log *) logs;
    VEC(struct sim_file *) files;  // of users, which jobs write their output to
    VEC(struct sim_log_stream *) log_streams;
    VEC(struct sim_socket *) sockets;  // also those that are closed
    VEC(struct sim_unit *) units;
    struct agent_logic *logic;  // NULL: the agent does not run
    struct agent_step_runner *runner;
    bool retrying;  // a retry is due
    uint64_t agent_life;
    uint32_t die_in;            // actions until the agent dies half-way through; 0: not
    int64_t die_for_ms;
    bool doomed;                // loses power just after the next process has started
    int64_t doomed_for_ms;
    struct conn *conn;
    uint32_t refused;           // dials in a row
    uint32_t failed_launches;   // since failed_from_ms
    int64_t failed_from_ms;
    struct link link;
    int64_t heard_ms;           // when the controller last got a message from it, stalls not counted
};

// --- the controller ---

// A message that is in the program's memory and not yet on its way.
struct held_message {
    uint32_t conn;
    bool checked;  // the lease was looked at
    char *data;
    size_t len;
};

struct sim_head {
    uint32_t number;
    bool leads;        // as it believes
    bool lost;         // it has found out that it does not: it starts anew
    bool stands_back;  // it has handed over
    bool outdated;     // the database was replaced while it led
    struct leadership leadership;
    uint64_t term;
    int64_t lease_until_ms;   // by its steady clock
    int64_t waits_from_ms;    // since when it does not know whether it leads; 0: it does
    int64_t paused_until_ms;  // the whole program
    int64_t cut_until_ms;     // from the nodes
    uint32_t pause_in;        // messages until it is paused half-way through sending; 0: not
    int64_t pause_for_ms;
    int32_t drift_ppm;
    VEC(struct held_message) held;
    struct store *store;
    struct commit_pipeline *pipeline;
    struct core *core;          // NULL: it does not run
    uint64_t life;
    uint32_t format;            // 1: writes what the next version would write
    int64_t clock_offset_ms, clock_ahead_ms, ping_ms, flush_at_ms, wake_at_ms, disk_at_ms;
    uint32_t die_in_steps;      // 0: not; else killed when it gets to 1
    uint32_t mute_in;           // messages until it dies half-way through sending; 0: not
    bool muted;
    int64_t die_for_ms;
    int64_t stalled_until_ms;   // its event loop does nothing before
    int64_t stalled_ms;         // of all stalls so far, what is nobody's silence
    int64_t started_ms;
    int64_t checked_ms;         // when it last looked for lost nodes
    uint64_t snapshot_seq;
    struct stream_table streams;
};

// --- clients ---

struct request {
    uint32_t number, item, tries;
    bool settled, refused;      // an answer came; it was a refusal
    bool with_volume, with_port, with_upload, with_license;  // it asks for one, each time it is sent
    uint64_t id, count;         // of the job
    int64_t sent_ms;            // first, by the controller's clock
    char key[40];
};

struct sim_answer {
    struct sim *sim;
    uint32_t number, request;
    uint64_t id, count;
    int result;
};

// The client of an allocation. Its connection is a session of the controller that renews the lease.
struct sim_holder {
    uint32_t request;
    uint64_t id;
    uint32_t lease_s;
    bool gone;                 // it has ended and will not come back
    bool closed;               // the allocation was given back
    int64_t back_ms;           // it is away until then
    int64_t gone_ms;           // when it ended
    uint64_t session_life;     // life of the controller that its session is of; 0: none
    int64_t heard_ms;          // when the controller last heard of it, by its steady clock
    int64_t renewed_awake_ms;  // when its lease was last renewed, stalls not counted
};

// --- what must hold ---

// The client of a step: what it has of the output of each node, and its session with a controller.
struct watcher {
    uint32_t number;
    uint64_t id, epoch;  // epoch: of the step that it was told of; 0: none, or the step has none
    char key[24];
    uint32_t item, attempt, step, node_count;
    const char *nodes[MACHINES_MAX];
    uint64_t from[MACHINES_MAX], got[MACHINES_MAX];
    bool missing[MACHINES_MAX];  // it was told that output of the node is missing
    bool final, done;            // it was told how the step ended; it wants nothing more
    uint64_t session;            // number of its connection; 0: none
    struct step_watch *watch;    // the controller's side of it
    bool behind;                 // it has not taken what was sent
    int64_t due_ms, renewed_awake_ms;
    uint64_t renewed_life;       // of the controller that renewed it; 0: it never was
    uint64_t agent_id;           // of its job, as machines know it; 0: its own
    uint64_t asked_seq;          // the newest event when it was asked to come again; 0: it was not
    uint32_t unreported;         // looks in a row at which its step ran and was not known
};

// A browser with the cookie of a login.
struct sim_login {
    uint32_t number;
    char id[24], hash[24];
    bool done;        // it was not let in any more
    int64_t used_ms;  // by the controller's clock, and written down; 0: never
};

// A node of the engine, and a question to its program.
struct sim_engine_node {
    uint32_t number, machine;
    char key[64], node[32];
    enum engine_state state;
};
struct sim_question {
    struct sim *sim;
    uint32_t number;
    uint64_t life;  // of the controller that asks
    struct provider_question question;
    struct provider_report *answer;
    int64_t asked_ms;  // by the controller's clock
};
struct sim_engine {
    VEC(struct sim_engine_node *) nodes;
    VEC(struct sim_question *) questions;
    struct provider_questions ask;
    uint64_t life, started;
    bool was_wrong;  // the latest list
};

// What a machine has of a step's output.
struct stream_truth {
    uint64_t len, kept, lost;
    bool removed, wanted;
};

struct told_step {
    uint32_t attempt, step, part_count, differs;
    bool ending, ended;
    const char *nodes[MACHINES_MAX];
    uint32_t apart;  // looks in a row at which its nodes, of an MPI step, had not found each other
};

struct placement {
    uint32_t attempt, part_count, ended;
    uint64_t epoch, agent_id;   // agent_id: the job's number on the machines, where that is another
    uint64_t placed_seq;        // of an adopted one: the event that placed it before the restore
    const char *nodes[MACHINES_MAX];
    bool part_ended[MACHINES_MAX];
};

// A job as the committed journal tells it.
struct told {
    bool submitted, ended, placed, cancelled, started;
    bool adopted;  // by a state that had lost its submit
    uint32_t attempt;
    uint32_t item;  // whose request it is of; UINT32_MAX: nobody's, it is a worker or there is no such job
    uint64_t job;          // of a worker: its elastic job
    uint32_t component;    // of a worker
    uint32_t workers_min;  // of an elastic job
    uint32_t component_min[3];
    uint32_t retries, retried;  // how often it may be run again when it failed, and was
    bool ending;                // this attempt is
    enum end_cause last_cause;  // of the part that ended last
    struct usage usage;    // of the newest attempt, and what its earlier ones held and used
    bool has_usage;
    int64_t start_ms;           // of the newest attempt, and what it holds
    uint64_t cpus, gpus_milli;
    VEC(struct placement) placements;
    VEC(struct told_step) steps;
};

struct check {
    struct core *shadow;        // fed with the committed journal only
    uint32_t read;              // records of the journal looked at
    VEC(struct told) jobs;      // by id - 1
    struct map keys;            // hashes of idempotency keys seen
    struct map starts;          // attempts started, on the machines
    struct map refused;         // attempts of one part that a machine could not launch
    struct map completing;      // attempts seen ending after the last fault -> when
    struct map recorded;        // attempts on a machine whose end was in the journal, also before a restore
    struct map truths;          // what an attempt on a machine used: struct usage
    struct map step_starts;     // steps started, on the machines
    struct map step_truths;     // how a step on a machine ended: struct sim_step
    VEC(struct told_account *) accounts;
    VEC(struct told_login *) logins;
    struct map kept;  // which login a change of a password has left alone
    struct rules rules;
    struct arena arena;
    bool rereading;  // an older copy, from its beginning
    uint64_t compared_seq, asserted_seq;
    uint64_t level_seq;  // the event that gave the journal its level
    uint64_t compares, asserts;
};

struct sim {
    const struct plan *plan;
    const bool *keep;           // items carried out; NULL: all
    int64_t now_ms;             // the truth; nobody inside knows it
    struct queue queue;
    struct rand rand;
    uint64_t hash, steps, units_made;
    bool recording;
    FILE *out;
    struct machine machines[MACHINES_MAX];
    uint32_t machine_count;
    VEC(struct conn *) conns;
    struct sim_disk *disk;  // what the controller keeps
    struct sim_head heads[HEADS_MAX];
    uint32_t head_count;
    uint64_t lives;  // of controllers so far
    bool set_up;
    struct sim_head *served;  // whose sessions clients have; NULL: nobody's
    struct sim_head *head;    // whose turn it is, or who leads
    VEC(struct request) requests;
    VEC(struct sim_answer *) answers;
    VEC(struct sim_holder) holders;
    VEC(struct watcher *) watchers;
    VEC(struct log_client *) log_clients;
    VEC(struct log_delivery *) log_deliveries;
    uint64_t log_bytes, log_readers;
    VEC(struct sim_login) logins;
    VEC(struct output_delivery *) deliveries;
    VEC(struct port_client *) port_clients;
    uint64_t sessions_made, output_bytes, ports_opened;
    struct check check;
    struct sim_engine engine;
    struct arena arena;
    bool cleaning, finished, failed, restored;
    uint32_t cleanups, restores;
    struct map cancelled;       // jobs ended by operators at the end
    int64_t over_ms;            // when the last fault is over
    char failure[400];
    uint64_t started, steps_started, submitted, messages;
};

void sim_fail(struct sim *s, const char *fmt, ...) __attribute__((format(printf, 2, 3)));
void sim_note(struct sim *s, const char *fmt, ...) __attribute__((format(printf, 2, 3)));
#define note(s, ...)               \
    do {                           \
        if ((s)->recording)        \
            sim_note(s, __VA_ARGS__); \
    } while (0)
static inline void after(struct sim *s, int64_t ms, enum happening kind, uint32_t who, uint64_t a, uint64_t b) {
    queue_put(&s->queue, s->now_ms + ms, kind, who, a, b);
}
static inline int64_t some_ms(struct sim *s, int64_t low, int64_t high) {
    return rand_between(&s->rand, low, high);
}

// net.c
struct conn *net_dial(struct sim *s, struct machine *m);  // NULL: nobody answers
void net_send(struct sim *s, struct conn *c, enum side from, const void *data, size_t len);
void net_close(struct sim *s, struct conn *c, enum side by);  // the other end learns of it
void net_vanish(struct sim *s, struct conn *c, enum side by); // power cut: it does not
void net_break(struct sim *s, struct conn *c);                // both learn, at different times
void net_packet(struct sim *s, struct conn *c, enum side from);
void net_reset(struct sim *s, struct conn *c, enum side end);
// Whether what is said arrives in the usual time: the connection is neither lost without notice nor cut nor slow.
bool net_is_prompt(const struct sim *s, const struct conn *c);
void net_free(struct conn *c);

// machine.c
void machine_init(struct sim *s, uint32_t number);
void machine_done(struct machine *m);
void machine_boot(struct sim *s, struct machine *m);
void machine_down(struct sim *s, struct machine *m, bool clean);  // all processes end
void agent_start(struct sim *s, struct machine *m);
void agent_kill(struct sim *s, struct machine *m);
void agent_dial(struct sim *s, struct machine *m);
void agent_tick(struct sim *s, struct machine *m);
void agent_retry(struct sim *s, struct machine *m);
void agent_gpu(struct sim *s, struct machine *m, uint32_t gpu);  // breaks, or works again
void agent_message(struct sim *s, struct machine *m, const struct message *msg);
void agent_closed(struct sim *s, struct machine *m, struct conn *c);
bool agent_obeys(struct sim *s, struct machine *m, struct conn *c,
                 uint64_t term);                   // a message of this leader
void agent_act(struct sim *s, struct machine *m);  // carries out what the logic wants
int64_t machine_wall_ms(const struct sim *s, const struct machine *m);
int64_t machine_mono_ms(const struct sim *s, const struct machine *m);

// elastic.c
uint64_t elastic_first_worker(const struct job_shape *j, uint64_t id, uint32_t component);
void elastic_components(const struct job_shape *j, struct job_component *list, struct spec *spec);
int elastic_command(struct sim *s, const struct item *it, uint64_t id, struct error *e);
void elastic_submitted(struct sim *s, const struct event_job_submitted *b);
void elastic_whole(struct sim *s, const struct told *j, const struct event_job_placed *b);
void elastic_event(struct sim *s, struct told *j, const struct event *e);
void elastic_adopted(struct sim *s,
                     const struct event_job_placed *b);  // before it is part of the shadow state
void elastic_over(struct sim *s, struct told *j, uint64_t id,
                  bool ended);  // the job has ended, or is queued again
void elastic_within(struct sim *s, const struct node_view *v);
void elastic_heads(struct sim *s);
void elastic_members(struct sim *s, struct sim_unit *u);
// check.c
void check_placed(struct sim *s, struct told *j, const struct event_job_placed *b, int64_t at_ms);
void check_attempt_over(struct told *j, int64_t at_ms);  // and the job goes on

// process.c
struct sim_unit *unit_find(struct machine *m, uint64_t id, uint32_t attempt);
struct sim_unit *unit_by_number(struct machine *m, uint64_t number);
struct sim_unit *unit_free(struct sim_unit *u);
int unit_create(struct sim *s, struct machine *m, const struct message_launch *l);
void unit_handover(struct sim *s, struct machine *m, struct sim_unit *u);
void unit_step(struct sim *s, struct machine *m, struct sim_unit *u);
bool unit_kill(struct sim *s, struct machine *m, struct sim_unit *u, enum end_cause cause, uint32_t signal,
               int64_t grace_ms);
// False: its shepherd does not listen yet.
bool unit_suspend(struct sim *s, struct sim_unit *u, struct machine *m, bool resume);
void unit_stop(struct sim *s, struct machine *m, struct sim_unit *u);  // its processes are gone, nothing is written
void unit_close(struct sim *s, struct machine *m, struct sim_unit *u, const char *reason);  // by the agent
void unit_remove(struct sim *s, struct machine *m, struct sim_unit *u);
void unit_end_message(const struct sim_unit *u, struct message_ended *out, struct usage *usage);
void unit_hint(struct sim *s, struct machine *m, struct sim_unit *u);
void unit_tell_health(struct sim *s, struct machine *m,
                      const struct sim_unit *u);  // to the agent, as far as it is known

// step.c
extern const struct agent_step_host step_host;
struct sim_step *step_find(struct sim_unit *u, uint32_t number);
void step_recover(struct sim *s, struct machine *m, struct sim_unit *u);
void step_hub(struct sim *s, struct machine *m, const struct agent_action *a);
void step_change(struct sim *s, struct machine *m, struct sim_unit *u, struct sim_step *t);
void step_end_all(struct sim *s, struct machine *m, struct sim_unit *u);
void step_stop_all(struct sim_unit *u);
void step_kill(struct sim *s, struct machine *m, struct sim_unit *u, uint32_t number, uint32_t signal,
               int64_t grace_ms);
void step_remove(struct sim *s, struct machine *m, struct sim_unit *u, uint32_t number);
void step_forget(struct machine *m, uint64_t id, uint32_t attempt, uint32_t number);

// stream.c
void stream_spool_lost(struct machine *m);
void stream_machine_done(struct machine *m);
void stream_agent_gone(struct machine *m);  // or its connection
void stream_step_started(struct sim *s, struct machine *m, const struct sim_unit *u,
                         const struct sim_step *t);
void stream_print(struct sim *s, struct machine *m, const struct sim_unit *u, const struct sim_step *t);
void stream_step_over(struct machine *m, const struct sim_unit *u, const struct sim_step *t);
void stream_step_removed(struct sim *s, struct machine *m, uint64_t id, uint32_t attempt,
                         uint32_t step);  // 0: all
void stream_pump(struct sim *s, struct machine *m);
void stream_agent_message(struct sim *s, struct machine *m, const struct message *msg);
void stream_agent_tick(struct sim *s, struct machine *m);
char stream_content(uint64_t id, uint64_t epoch, uint32_t step, uint64_t at);
bool stream_find(struct machine *m, uint64_t id, uint32_t attempt, uint32_t step, uint64_t epoch,
                 struct stream_truth *out);

// watcher.c
void watchers_head_started(struct sim *s);
void watchers_leases_begin(struct sim *s);
void watchers_head_gone(struct sim *s);
void watchers_node_up(struct sim *s, const char *node);
void watchers_look(struct sim *s);   // steps or jobs may have ended
void watchers_renew(struct sim *s);  // what the controller does every second
void watcher_lease_ended(struct sim *s, const struct event_step_ending *b);
void watcher_begin(struct sim *s, uint64_t id, uint32_t item);
void watcher_turn(struct sim *s, struct watcher *w);
void watcher_output(struct sim *s, uint32_t number);
void watchers_done(struct sim *s);
bool watchers_done_waiting(struct sim *s);

// port.c
void port_machine_done(struct machine *m);
void port_agent_gone(struct machine *m);  // or its connection
void port_agent_message(struct sim *s, struct machine *m, const struct message *msg);
void port_agent_tick(struct sim *s, struct machine *m);
void port_answer(struct sim *s, struct machine *m, uint64_t stream);
void port_program(struct sim *s, struct machine *m, uint64_t stream);
void port_client_begin(struct sim *s, uint32_t item);
void port_client_turn(struct sim *s, struct port_client *c);
void port_head_gone(struct sim *s);
void port_check(struct sim *s);
bool port_clients_done(const struct sim *s);
void port_done(struct sim *s);

// log.c
void log_unit_started(struct sim *s, struct machine *m, const struct sim_unit *u);
void log_unit_over(struct sim *s, struct machine *m, const struct sim_unit *u);
void log_print(struct sim *s, struct machine *m, uint64_t unit);
void log_pump(struct sim *s, struct machine *m);
void log_read(struct sim *s, struct machine *m, uint64_t reader);
void log_agent_gone(struct machine *m);  // or its connection
void log_spool_lost(struct machine *m);
void log_machine_done(struct machine *m);
void log_agent_message(struct sim *s, struct machine *m, const struct message *msg);
void log_client_begin(struct sim *s, uint32_t item);
void log_client_turn(struct sim *s, struct log_client *c);
void log_output(struct sim *s, uint32_t number);
void logs_job_changed(struct sim *s, uint64_t id);
void logs_node_up(struct sim *s, const char *node);
void logs_tick(struct sim *s);  // what the controller does every second
void logs_head_gone(struct sim *s);
bool log_clients_done(struct sim *s);
void logs_done(struct sim *s);

// holder.c
void holder_begin(struct sim *s, const struct request *q, uint32_t lease_s);
void holder_turn(struct sim *s, struct sim_holder *h);
void holder_item(struct sim *s, const struct item *it);  // it ends, goes away for a while, or gives back
void holders_renew(struct sim *s);                       // what the controller does every second
void holders_head_started(struct sim *s);

// login.c
int login_command(struct sim *s, const struct request *q, const struct item *it, struct sim_answer *a,
                  struct error *e);
void login_answered(struct sim *s, const struct request *q, const struct sim_answer *a);
void login_turn(struct sim *s, struct sim_login *l);
void login_password_text(const char *name, uint32_t version, char *out, size_t size);

// service.c
void service_command(struct sim *s, const struct item *it);
void service_rules(struct sim *s);
void service_reconcile(struct sim *s);

// provider.c
void provider_item(struct sim *s, const struct item *it);
void provider_tick(struct sim *s);
void provider_turn(struct sim *s, uint32_t number, bool acts);
void provider_boot(struct sim *s, uint32_t number);
void provider_cleanup(struct sim *s);
void provider_rules(struct sim *s);
void provider_event(struct sim *s, const struct event *e);
bool provider_idle(struct sim *s, char *why, size_t size);
void provider_done(struct sim *s);

// check_logins.c
void check_logins_clear(struct check *c);
void check_logins_done(struct check *c);
void check_login_event(struct sim *s, const struct event *e);
const char *check_login_of(struct sim *s, const char *account);  // one that is open; NULL: none
// A change of a password is asked for that leaves this login alone; NULL: it ends all.
void check_login_kept(struct sim *s, const char *name, uint32_t version, const char *id);
void check_login_acknowledged(struct sim *s, const char *id);
void check_login_used(struct sim *s, const struct sim_login *b, bool let_in);
void check_logins_equal(struct sim *s);

// head.c
void head_init(struct sim *s);
void head_start(struct sim *s);
void head_kill(struct sim *s, int64_t for_ms);
void head_stop(struct sim *s, int64_t for_ms);
void head_restore(struct sim *s, uint32_t records, int64_t for_ms);
void head_done(struct sim *s);
void head_message(struct sim *s, struct conn *c, const struct message *m);
void head_closed(struct sim *s, struct conn *c);
void head_flush(struct sim *s);
void head_tick(struct sim *s);
void head_disk(struct sim *s);
void head_touched(struct sim *s);  // a command was given: flush soon
void head_stall(struct sim *s, int64_t for_ms);
// True: the controller stalls, and what happens to it happens later.
bool head_stalled(struct sim *s, const struct queued *q);
int64_t head_awake_ms(const struct sim *s);  // time without the stalls
int64_t head_wall_ms(const struct sim *s);
int64_t head_mono_ms(const struct sim *s);
int64_t head_steady_ms(const struct sim *s);  // its own clock for durations, which is a little fast or slow
bool head_reachable(struct sim *s);           // a client that asks now is answered
void head_say(struct sim *s, struct conn *c, const void *data, size_t len);  // to an agent

// heads.c: several controllers
static inline bool is_shared(const struct sim *s) {
    return s->plan->controllers > 1;
}
void heads_begin(struct sim *s);
void heads_use(struct sim *s, uint32_t number);  // it is this one's turn
void heads_pick(struct sim *s);                  // the one that leads, if any
uint32_t heads_target(struct sim *s, const struct item *it);
bool heads_event(struct sim *s, const struct queued *q);  // false: it comes later, or not at all
void heads_after(struct sim *s);
void heads_open(struct sim *s);
void heads_follow(struct sim *s);
void heads_held(struct sim *s);
void heads_thread(struct sim *s, const struct queued *q);
bool heads_may_speak(struct sim *s);
void heads_pause(struct sim *s, int64_t for_ms);
void heads_step_down(struct sim *s, const char *why);
void heads_forget(struct sim *s);
void heads_check_equal(struct sim *s);  // followers know what the journal says
bool heads_idle(struct sim *s, char *why, size_t size);
void heads_faults_end(struct sim *s);
void heads_hand_over(struct sim *s);
void heads_replace_database(struct sim *s, uint32_t records);  // by an older copy, and the controllers go on
void head_serve(struct sim *s);                                // clients come to this controller
void head_lead(struct sim *s);                                 // head.c: it loads nothing any more and begins
struct conn *head_route(struct sim *s, const char *node);  // NULL: it is not connected

// client.c
void client_begin(struct sim *s, uint32_t item);
const char *client_user(const struct job_shape *j);      // whose it is
uint64_t client_job_of(const struct sim *s, uint32_t item);  // that the item submits; 0: none yet
void client_arrives(struct sim *s, struct request *q);   // at the controller
void client_answered(struct sim *s, const struct sim_answer *a);
void client_impatient(struct sim *s, struct request *q);
void client_step_again(struct sim *s, uint32_t item, uint64_t id);  // a step's request is sent again
bool clients_settled(const struct sim *s);
void client_setup(struct sim *s, bool generous);    // projects and QoS as they should be
void client_cleanup(struct sim *s);

// faults.c
void fault_begin(struct sim *s, const struct item *it, uint32_t number);
void fault_over(struct sim *s, const struct item *it);
void faults_end(struct sim *s);  // everything is healed

// check.c
void check_init(struct sim *s);
void check_done(struct sim *s);
void check_journal(struct sim *s);   // what was committed since
void check_step(struct sim *s);
void check_loaded(struct sim *s);
void check_given_up(struct sim *s, const char *node);
void check_launch(struct sim *s, const struct machine *m, const struct message_launch *l);
void check_launch_failed(struct sim *s, struct machine *m, const struct message_launch *l);
void check_restored(struct sim *s);  // the journal is a shorter one now
void check_hello(struct sim *s, const struct message_hello *h);  // the controller has taken it
void check_started(struct sim *s, struct machine *m, const struct sim_unit *u);
void check_ended(struct sim *s, const struct machine *m, const struct sim_unit *u);
void check_removed(struct sim *s, const struct machine *m, const struct sim_unit *u);
bool check_part_ended(struct sim *s, const struct sim_unit *u);  // on its node, as the journal tells it
void check_acknowledged(struct sim *s, const struct request *q);
void check_prompt(struct sim *s);
struct told *check_told(struct check *c, uint64_t id);
const struct placement *check_placement(struct told *j, uint32_t attempt);

// check_steps.c
void check_step_event(struct sim *s, struct told *j, const struct event *e);
// Those of a step in the journal, in its order.
uint32_t check_step_nodes(struct sim *s, uint64_t id, uint32_t attempt, uint32_t step,
                          const char *out[static MACHINES_MAX]);
void check_step_started(struct sim *s, struct machine *m, const struct sim_unit *u, const struct sim_step *t);
void check_step_ended(struct sim *s, struct machine *m, const struct sim_unit *u, const struct sim_step *t);
void check_step_killed(struct sim *s, struct machine *m, const struct sim_unit *u, const struct sim_step *t);
void check_step_removed(struct sim *s, struct machine *m, const struct sim_unit *u, const struct sim_step *t);
void check_kill(struct sim *s, struct machine *m, struct sim_unit *u, const struct agent_action *a);
void check_lease_ended(struct sim *s, uint64_t id, const struct event_job_ending *b);
void check_steps_prompt(struct sim *s);  // after the last fault: steps and leases are as they should be
bool check_idle(struct sim *s, char *why, size_t size);
void check_equal(struct sim *s);
struct core_config sim_config(const struct sim *s);
