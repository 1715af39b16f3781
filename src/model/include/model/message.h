// Messages between controller and agents, one per WebSocket message: a type and a body described by
// the table in message.c. Numbers are never reused. The rules:
// - HELLO comes first on a connection and lists every attempt in the agent's spool; messages are
//   handled in order; there is one connection at a time.
// - LAUNCH carries (job, attempt): a repeat is harmless and is answered with where the attempt is.
// - KILL of an attempt the agent does not know leaves a tombstone, so that a late LAUNCH is refused,
//   and is answered with its end.
// - ENDED is kept, and listed in HELLO, until ACK; then the attempt is forgotten.
// - LOG_READ opens a stream of a file from a position on: data within the credit given, each saying where it ends
//   (`offset`) and in which file; STREAM_END when the file is drained and, with `follow`, the attempt has ended. For
//   an attached attempt its output stream also takes input (STREAM_DATA with fd 0) and RESIZE, as that of a step.
//   STREAM_END from the controller only ends the stream. A stream belongs to its connection: what comes for one of
//   an earlier connection is ignored, and whoever wants more opens another from its position.
// - SECRETS brings the values that a spec names, just before LAUNCH, which is kept on disk and must not hold them.
// - EXEC (release 0.1) started a process inside a running attempt; now a step does.
// - DESCRIBE and STEP_DESCRIBE ask for what a node knows and the controller, after a restore of an older copy, does
//   not: ATTEMPT and STEP_KNOWN answer.
// - STEP starts the tasks of a step. It carries (job, attempt, step): a repeat is harmless. STEP_END is
//   kept, and listed in HELLO, until STEP_ACK. A step outlives connections and daemons: STEP_ATTACH opens
//   a stream of its output from a position, as often as needed; data of a step says where it ends
//   (`offset`), input says where it begins, and a credit with `offset` acknowledges output.
#pragma once
#include <stdint.h>

#include "base/arena.h"
#include "base/buf.h"
#include "model/image.h"
#include "model/event.h"
#include "model/job.h"
#include "model/node.h"

enum {
    MESSAGE_MAX_BYTES = 16 << 20,
    MESSAGE_NUMBER_MAX = 1000,  // of the types of all releases to come
    STREAM_CHUNK_BYTES = 64 << 10,
};

enum message_type {
    MESSAGE_NONE = 0,
    // agent to controller
    MESSAGE_HELLO = 1,
    MESSAGE_STARTED = 2,
    MESSAGE_ENDED = 3,
    MESSAGE_USAGE = 4,
    MESSAGE_STREAM_DATA = 5,  // both ways
    MESSAGE_STREAM_END = 6,   // both ways: to the agent it means "stop"
    MESSAGE_PONG = 7,
    MESSAGE_STEP_ENDED = 8,
    MESSAGE_TELEMETRY = 9,
    MESSAGE_NODE_CHANGED = 10,
    MESSAGE_ATTEMPT = 11,  // answers DESCRIBE
    MESSAGE_STEP_END = 15,
    MESSAGE_IMAGE = 17,  // its container image is being fetched, or is ready
    // controller to agent
    MESSAGE_WELCOME = 20,
    MESSAGE_LAUNCH = 21,
    MESSAGE_KILL = 22,
    MESSAGE_SIGNAL = 23,
    MESSAGE_ACK = 24,
    MESSAGE_PING = 25,
    MESSAGE_LOG_READ = 26,
    MESSAGE_EXEC = 27,
    MESSAGE_RESIZE = 28,
    MESSAGE_STREAM_CREDIT = 29,
    MESSAGE_STEP = 30,
    MESSAGE_SUSPEND = 31,
    MESSAGE_TIME_LIMIT = 32,
    MESSAGE_DESCRIBE = 33,
    MESSAGE_WORKERS = 34,
    MESSAGE_STEP_ACK = 45,
    MESSAGE_STEP_ATTACH = 46,
    MESSAGE_STEP_RECEIVED = 47,  // the client of a step that has ended has all output
    MESSAGE_SECRETS = 50,        // before the LAUNCH of an attempt whose spec names secrets
    MESSAGE_FILE = 51,         // a request about a user's files (model/file.h); its answers carry its stream
    MESSAGE_FILE_RESULT = 52,  // from the agent
    MESSAGE_NODE_LOOK = 57,    // what do the processes of jobs there use; the agent's log
    MESSAGE_NODE_SEEN = 58,    // answers it
    MESSAGE_CONNECT = 70,      // a stream to a port of an attempt
    MESSAGE_HEALTH = 75,       // from the agent: the program of an attempt is ready, or is not any more
    MESSAGE_STEP_DESCRIBE = 71,  // the controller does not know a step of the agent: what is it
    MESSAGE_STEP_KNOWN = 72,     // answers it, from the agent
    MESSAGE_NODE_IMAGES = 78,    // from the agent: what its node holds of users' images, all of it
    MESSAGE_STEP_LISTENS =
        85,  // from an agent: where the helper of an MPI step's first node listens; or asks for it
    MESSAGE_STEP_HUB = 86,  // to the agents of the step's other nodes: the answer
    MESSAGE_TYPE_MAX = 87
};

enum attempt_state { ATTEMPT_RUNNING, ATTEMPT_ENDED };
extern const char *const message_attempt_state_words[];

// A step of a running attempt; one that has ended carries its end.
struct step_state {
    uint32_t step;
    uint64_t epoch;  // as in step_started; 0: not known
    struct step_end *end;
    uint64_t seq;  // of the event that created it; 0: not known
};

// One attempt as the agent's spool knows it. An ended one carries its end.
struct attempt {
    uint64_t id;
    uint32_t attempt;
    enum attempt_state state;
    struct message_ended *end;
    uint64_t epoch, seq;  // of the event that placed it; 0: before there were epochs
    LIST(struct step_state) steps;
    uint32_t last_step;  // the highest number of a step that the agent remembers, also of those that are over
    enum job_health health;  // HEALTH_NONE: it has no health check, or none has been answered yet
    const char *health_reason;
};

// How far a peer has seen the journal: the epoch of the controller, a committed event, and the number
// that the next new job had then.
struct journal_position {
    uint64_t epoch, seq, next_id;
};

struct message_hello {
    struct node *node;
    LIST(struct attempt) attempts;
    uint32_t protocol;
    uint32_t level;  // newest feature level the agent's program knows (model/feature.h); 0: the first
    struct journal_position *seen;  // the newest that a controller told it; NULL: none
    uint64_t term;  // the newest of a leader that it has heard of, and 1; 0: the agent knows of no terms
};
struct message_started {
    uint64_t id;
    uint32_t attempt;
    uint32_t pid;
    int64_t at_ms;
    const char *cpu_ids;  // the node's CPUs that it was given, "0-3,8"
};
struct message_ended {
    uint64_t id;
    uint32_t attempt;
    enum end_cause cause;
    int32_t exit_code;
    uint32_t exit_signal;
    const char *reason;
    struct usage *usage;
    int64_t start_ms, end_ms;  // 0: never started
    bool launch_failed;  // END_NODE_FAIL: the node could not launch it, for reasons of its own; it never ran
    uint64_t epoch;      // of the attempt: numbers come again after a restore; 0: not known
};
struct message_health {
    uint64_t id;
    uint32_t attempt;
    enum job_health health;
    const char *reason;  // why it is sick, or not ready yet; NULL: nothing was said
};
struct message_node_look {
    bool log;
};
struct node_process {
    uint64_t job;
    uint32_t attempt, pid, parent, threads;
    uint64_t memory_bytes, cpu_ms;
    bool cpu_known;
    uint32_t cpu_milli;  // CPUs it keeps busy, in thousandths, since the look before
    const char *name;
};
struct message_node_seen {
    LIST(struct node_process) processes;
    uint32_t left_out;
    const char *log;  // the newest lines; NULL: not asked for
};
struct message_node_images {
    LIST(struct node_image) images;
};
extern const struct schema message_node_images_schema;
struct message_image {
    uint64_t id;
    uint32_t attempt;
    bool preparing;
    int64_t since_ms;
};
struct message_usage {
    uint64_t id;
    uint32_t attempt;
    struct usage *usage;
    uint64_t memory_now_bytes;
    uint32_t processes;
    bool preparing;  // its container image
    bool progress_known;  // it says how far it has come
    uint32_t progress_milli;
    const char *progress_text;
};
struct message_stream {  // data, end, credit, resize
    uint64_t stream;
    uint32_t fd;  // 1: output, 2: error; to the agent 0: input
    struct bytes data;
    bool eof;
    int32_t exit_code;
    uint32_t exit_signal;
    const char *error;
    uint64_t credit;
    uint32_t rows, columns;
    uint32_t task;
    struct usage *usage;  // of a step that has ended
    enum end_cause cause; // why it has
    LIST(uint32_t) exits;  // wait statuses of its tasks, in order of rank
    // A credit that says where the input of an attached job stands: bytes that its node has ever
    // taken in, and how many of them wait to be read; with eof it takes no more.
    bool position;
    uint64_t input_taken, input_waiting;
    uint64_t offset;  // of a step: where this output ends, this input begins; in a credit: output acknowledged
    uint64_t lost_bytes;  // at the end: output that was dropped because nobody read it
    uint64_t file;        // of a log: the file that `offset` is a position in
    bool resend;          // with `position`: input after that was not accepted and must come again
    int64_t time_ms;      // of a log: when this was written; 0: not known, or not asked for
};
struct message_step {  // acknowledgement of its end; attach; received
    uint64_t id;
    uint32_t attempt, step;
    uint64_t stream, offset, credit;
    bool tail;  // attach: from the end on, not from `offset`
    uint64_t epoch;  // of the step, as in step_started; 0: whichever has the number
};
// How the helpers of an MPI step find each other. Kept in memory only: it is said again after every reconnect.
enum { MESSAGE_HUB_KEY_BYTES = 16 };
struct message_step_hub {
    uint64_t id;
    uint32_t attempt, step;
    uint64_t epoch;       // of the step
    uint32_t port;        // 0, from an agent: where is it?
    struct bytes key;     // what the helpers know each other by
    const char *address;  // of the first node; empty: the controller's machine
};
extern const struct schema message_step_hub_schema;
struct message_connect {
    uint64_t id;
    uint32_t attempt;
    uint64_t stream, credit;
    uint32_t port;
    uint64_t epoch;  // of the attempt, as in its launch; 0: whichever has the numbers
};
struct message_welcome {
    uint32_t heartbeat_s;  // the agent expects a ping at least this often
    const char *cluster;
    uint32_t usage_every_s, grace_s;
    const char *version;   // of the controller's program; NULL: before 0.2.0
    uint32_t level;        // newest feature level that program knows; 0: the first
    struct journal_position *at;  // NULL: the journal has no epochs
};
struct launch_task {
    uint32_t rank, local;
};
// The membership of an elastic job, for its workers on one node.
struct message_workers {
    uint64_t job, generation;
    uint32_t signal;     // to the workers when it is newer than what they have; 0: none
    LIST(uint64_t) ids;  // the workers' job ids and attempts
    LIST(uint32_t) attempts;
    struct bytes lines;  // one JSON object per worker of the job
};
struct message_secret {
    const char *name, *variable;
    bool file;
    struct bytes value;
};
struct message_secrets {
    uint64_t id;
    uint32_t attempt;
    LIST(struct message_secret) secrets;
};
// One component of a heterogeneous job, for the variables that its script finds.
struct launch_component {
    uint64_t id;
    const char *partition;
    LIST(struct part) parts;
    uint32_t tasks, tasks_per_node, cpus_per_task;
    uint64_t memory_per_node_bytes, memory_per_cpu_bytes;
};
// The job of a worker. A controller whose state is an older copy makes it again from this (core/adopt_group.c).
struct launch_job {
    uint64_t id;
    uint32_t attempt, time_limit_s;
    int64_t start_ms;
    struct spec *spec;   // of the job
    uint32_t component;  // of the worker, by its place in the spec
};
// A volume as the node makes and mounts it.
struct launch_volume {
    const char *root, *path;  // the folder is root/path; path NULL: root itself, which is there
    const char *to;
    bool read_only;
    const char *title;        // for messages
    uint32_t uid, gid, mode;  // of the folder
    uint64_t number, size_bytes;
    bool shared;  // the job's user is not its owner and is let in
};
struct message_launch {
    uint64_t id, array_id;
    uint32_t array_index;
    uint32_t attempt;
    struct spec *spec;
    struct bytes script;        // text of the script, empty: argv is the command
    LIST(const char *) environment;  // NAME=value, as the user wants it; the agent adds the job's own
    struct part *part;          // what it may use on this node
    LIST(struct part) parts;    // the whole allocation, for the job's environment
    uint32_t node_index;        // of this node in parts; the batch script runs on 0
    LIST(const char *) gpu_uuids;  // of part->gpus, in order
    uint32_t time_limit_s, elapsed_s;
    uint32_t first_rank;        // of the tasks on this node
    const char *cluster;
    int64_t submit_ms;
    bool is_array;
    uint64_t array_count, array_min, array_max;
    const char *project_shares; // reserved for the job's environment
    const char *group_name;
    uint64_t epoch, seq;        // of the event that placed it; 0: the journal has no epochs
    struct message_workers *workers;  // of a worker: the membership when it is started
    uint32_t worker;                  // its number
    LIST(struct launch_component)
    components;  // of the first worker of a job in Slurm's words that has several
    struct launch_job *job;  // of a worker
    LIST(struct launch_volume) volumes;
};
struct message_kill {
    uint64_t id;
    uint32_t attempt;
    enum end_cause cause;
    uint32_t signal, grace_s;
    uint32_t step;       // 0: the whole attempt
    const char *reason;
    const char *checkpoint;  // run in the attempt first, for as long as the grace at most
    uint64_t epoch;          // of the attempt
};
// The controller does not know an attempt of a hello: what is it?
struct message_describe {
    uint64_t id;
    uint32_t attempt;
};
struct message_attempt {
    uint64_t id;
    uint32_t attempt;
    struct message_launch *launch;  // as it was told to start it, without texts; NULL: it is forgotten
    int64_t start_ms;               // 0: not started yet
    const char *cpu_ids;
    struct message_ended *end;      // NULL: it runs
    uint32_t last_step;             // as in struct attempt
    uint64_t generation;            // of the membership that a worker was told; 0: not known
    LIST(struct step_state) steps;  // those that run or whose end is not acknowledged
};
// What a node knows of a step.
struct message_step_known {
    uint64_t id;
    uint32_t attempt, step;
    uint64_t epoch;
    bool known;            // false: it never heard of it, or its end was acknowledged
    struct step_end *end;  // NULL: it runs, or is not known
    struct bytes origin;   // as in message_exec
};
struct message_signal {
    uint64_t id;
    uint32_t attempt, signal;
    bool batch_only, steps_only;
    uint32_t step;
};
struct message_ack {  // the end is recorded: the agent may forget the attempt
    uint64_t id;
    uint32_t attempt;
    uint64_t epoch, seq;  // how far the journal has come with it; 0: it has no epochs
    uint64_t of_epoch;    // of the attempt; 0: not known
};
struct message_ping {
    int64_t at_ms;
    struct journal_position *at;  // of the controller; NULL: the journal has no epochs
};
enum log_source { LOG_SOURCE_OUTPUT, LOG_SOURCE_ERROR };
extern const char *const message_log_source_words[];
struct message_log_read {
    uint64_t stream, id;
    uint32_t attempt;
    struct spec *spec;    // who and which files, for attempts the agent has forgotten
    struct part *part;
    uint64_t array_id;
    uint32_t array_index;
    enum log_source source;
    bool follow;
    int64_t tail_lines;   // -1: all
    uint64_t credit;
    uint32_t node_index;
    bool attached;        // the job's client: what it has read need not be kept
    bool resumed;         // of release 0.1: it counts bytes, and what is not kept any more is sent as zeros
    uint64_t offset, file;  // where to begin, and in which file; another one is read from its beginning
    bool placed;            // input comes with positions
    bool times;             // data says when it was written
    uint64_t epoch;         // of the attempt, as in its launch; 0: whichever has the numbers
};
// As the program of a step: the command line of the node's own release, wherever it is installed.
#define EXEC_OWN_PROGRAM "@acequia"
enum step_mpi { STEP_MPI_NONE, STEP_MPI_PMI, STEP_MPI_PMIX, STEP_MPI_BOTH, STEP_MPI_COUNT };
extern const char *const message_step_mpi_words[];
#define EXEC_SSH "ssh-proxy"  // its verb that needs the node's ssh server
struct message_exec {  // steps: processes inside a running attempt
    uint64_t stream, id;
    uint32_t attempt, step;
    LIST(const char *) argv;
    LIST(const char *) environment;
    const char *workdir;
    bool pty;
    uint32_t rows, columns;
    uint32_t tasks, first_rank, total_tasks, cpus_per_task;
    uint64_t memory_bytes;
    const char *output, *error, *input;  // path patterns; NULL: streamed
    bool label, kill_on_bad_exit, append;
    uint32_t time_limit_s;
    uint64_t credit;
    LIST(struct gpu_grant) gpus;
    LIST(const char *) gpu_uuids;
    uint32_t node_index;
    const char *nodes;   // of the step, folded
    uint32_t node_count;
    LIST(uint32_t) tasks_per_node;
    LIST(uint32_t) cpus;     // which of the job's CPUs there, by number; none: all
    uint32_t wait_s;         // after the first task has ended; then the others are killed; 0: no limit
    const char *container, *container_mounts, *container_workdir;  // NULL: as the job's
    const char *container_name;  // likewise
    uint32_t input_rank;     // 1 + the rank of the only task that gets input; 0: all do
    uint32_t umask_plus;     // 1 + the umask of its processes; 0: the job's
    LIST(uint32_t) ranks;      // of the tasks on this node; empty: first_rank and those that follow it
    LIST(uint64_t) task_gpus;  // by task: mask of positions in `gpus` that it sees; empty: all see all
    uint64_t epoch;            // as in step_started
    uint64_t seq;              // of the event that created it; 0: not known
    // To the first of its nodes: the event, encoded, for a controller whose state is an older copy (core/adopt_step.c).
    struct bytes origin;
    enum step_mpi mpi;
    LIST(uint32_t)
    task_nodes;            // with mpi, of a step on several nodes: by rank, the place of its node among them
    const char *cpu_bind;  // as Slurm's --cpu-bind; NULL: each task has its share of the step's CPUs
};
struct message_time_limit {  // counted from the start; 0: none
    uint64_t id;
    uint32_t attempt, time_limit_s;
};
struct message_suspend {
    uint64_t id;
    uint32_t attempt;
    bool resume;
};
// One sample of a GPU or of a job's share of one.
struct gpu_sample {
    uint32_t index;
    uint64_t id;           // job; 0: the whole device
    uint32_t utilisation_milli;
    uint64_t memory_used_bytes, memory_total_bytes;
    uint64_t power_mw, energy_mj;
    int32_t temperature_c, memory_temperature_c;
    uint32_t sm_clock_mhz, memory_clock_mhz;
    uint64_t throttle_reasons;
    uint64_t pcie_tx_bytes_s, pcie_rx_bytes_s;
    uint64_t xid_errors;   // the newest XID, 0: none
    uint64_t ecc_errors, remapped_rows;
    uint32_t throttled_milli;
    uint32_t attempt;
    uint64_t nvlink_bytes_s;
    uint32_t memory_copy_milli, encoder_milli, decoder_milli;
    uint64_t pcie_replays;
    bool utilisation_unknown;  // utilisation_milli is not measured (MIG)
    const char *finding;       // how the job does not keep to its part; NULL: it does
    uint64_t foreign_bytes;    // of a whole device: held by processes of no job
    uint32_t foreign_processes;
    // From the GPU's performance monitoring, in thousandths of the time or of what is possible.
    bool profiled;             // these are known
    uint32_t engine_milli, sm_milli, occupancy_milli, tensor_milli, dram_milli;
    uint64_t remapped_uncorrected;  // of the remapped rows
    bool remap_failed;
    bool stray;                // of a job: it does not hold this GPU, but has processes on it
};
struct message_telemetry {
    int64_t at_ms;
    LIST(struct gpu_sample) gpus;
    uint64_t memory_used_bytes, disk_free_bytes;
    uint32_t cpu_milli;    // use of all the machine's CPUs, 0 … 1000
    uint32_t load_milli;   // load average over one minute
    uint64_t disk_bytes;   // size of the file system that disk_free_bytes is of
};

struct message {
    enum message_type type;
    void *body;
};

// Overwrites the secrets that a message holds, when it is not needed any more; false: it is of a type without any.
bool message_wipe(const struct message *m);

// Which types were skipped on a connection, so that each is logged once.
struct message_skips {
    uint8_t bits[MESSAGE_NUMBER_MAX / 8 + 1];
};
bool message_skip(struct message_skips *s, enum message_type type);  // true the first time

struct message_info {
    const char *name;
    const struct schema *schema;
    bool from_agent, from_controller;
};
const struct message_info *message_info(enum message_type type);
// Where several controllers share a database, what one sends to an agent is preceded by its term: the number of a type
// that no message has, and the term. An agent obeys nobody whose term is older than one it has heard of.
enum { MESSAGE_TERM = 85 };
void message_put_term(struct buf *out, uint64_t term);
// Steps over it; `term` is 0 when there is none.
int message_take_term(const char **data, size_t *len, uint64_t *term);
void message_encode(const struct message *m, struct buf *out);
// -EPROTONOSUPPORT: well formed, of a type (in `m`) or with a word that this release does not know: skip it.
int message_decode(const void *data, size_t len, struct arena *a, struct message *m);
// The same without copies of byte strings: they point into `data`, which must live and stay as long as the arena.
int message_decode_views(const void *data, size_t len, struct arena *a, struct message *m);
