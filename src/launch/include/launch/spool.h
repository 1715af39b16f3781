// The agent's spool folder: one folder per attempt, "JOB.ATTEMPT", with
//   unit      status record, then the encoded launch request (step N: `unit.N`)
//   script    the job's script: its user can read and run it, but not change it
//   secret.N  value of a secret, which the job's user can read; only on memory file systems
//   report    why a container could not be entered, written by the user's process (step N: `report.N`)
//   times.out, times.err  when its output was written, see launch/log_times.h
//   out.N, in.N, io.N  streams of step N, see launch/relay.h
//   mpi.N, hub.N  of an MPI step: how its nodes' helpers find each other, see launch/mpi.h
//   members/workers  of a worker: the membership of its elastic job, replaced as a whole
//   control   the shepherd's socket, for attempts that live longer than a moment
// A shepherd holds a POSIX lock on `unit` for as long as it lives (a fork does not inherit it, a
// pid cannot be mistaken for another); whoever holds the lock may write how the attempt ended.
// Beside them: `id` of the folder, `seen` (how far the controller's journal had come), the pipe `hints`.
// Best kept on a memory file system: nothing in it outlives the machine's uptime.
#pragma once
#include <sys/types.h>

#include "launch/launch.h"

enum {
    SPOOL_NAME_MAX = 64,
    SPOOL_PATH_MAX = 2 * SPOOL_NAME_MAX,
    SPOOL_CGROUP_MAX = 64,
    SPOOL_TEXT_MAX = 384,
    SPOOL_STATUS_SIZE = 1024,
};

#define SPOOL_HEALTH_STEP 0x80000001u      // number of the step that asks whether a job's program is ready
#define SPOOL_CHECKPOINT_STEP 0x80000000u  // number of the step that saves a job's work before it is preempted

enum spool_state { SPOOL_CREATED, SPOOL_STARTED, SPOOL_ENDED };

// On disk at offset 0 of `unit`; allocated in full at creation, so that a disk that fills up
// later cannot keep the end from being written.
struct spool_status {
    uint32_t magic, state;
    uint64_t job;
    uint32_t attempt, step;
    char boot_id[40];
    int32_t shepherd_pid;
    uint32_t cgroup_kind;
    char cgroup[SPOOL_CGROUP_MAX];  // name of the shepherd's control groups
    uint64_t id;                    // random: also in the environment of its processes
    int32_t first_pid;
    uint32_t ntasks;
    int64_t created_wall_ms, started_wall_ms, started_mono_ms, ended_wall_ms;
    uint32_t end;  // enum launch_end
    int32_t exit_code, signal;
    uint32_t launch_code, kill_why, failed_rank;
    struct launch_usage usage;
    char text[SPOOL_TEXT_MAX];
    uint64_t check;  // of everything before it
};

// A line of the hint pipe: something changed in that folder. Hints may get lost; a scan may not.
struct spool_hint {
    uint64_t job;
    uint32_t attempt, step;
    uint32_t state;  // enum spool_state, or SPOOL_ORPHANED
    uint32_t pad;
};
enum {
    SPOOL_ORPHANED = SPOOL_ENDED + 1,  // the shepherd that took it was killed
    SPOOL_OUTPUT,                      // a step has written something
    SPOOL_HEALTH,                      // whether its program is ready has changed
    SPOOL_MPI,                         // the helper of an MPI step has something to say to the other nodes
};

// Whether the attempt's program is ready, behind the status record: written by the shepherd, read by the agent.
enum { SPOOL_HEALTH_TEXT_MAX = 192 };
struct spool_health {
    uint32_t health;  // enum job_health
    char reason[SPOOL_HEALTH_TEXT_MAX];
    uint64_t check;  // of everything before it
};
void spool_write_health(int unit_fd, struct spool_health *h);
bool spool_read_health(int spool_fd, uint64_t job, uint32_t attempt,
                       struct spool_health *out);  // false: none

// Opens (and makes, mode 0711 for root, else 0700) the folder; refuses one that belongs to
// somebody else. Returns a descriptor.
int spool_open(const char *path, struct error *e);
// "spool folder PATH: WHAT: No space left on device; make room on that disk". Returns -code.
int spool_error(int spool_fd, int code, struct error *e, const char *what);
// Reading end of the hint pipe; one agent at a time holds it (-EBUSY).
int spool_open_hints(int spool_fd, struct error *e);
// Removes the folder when nothing of a job, and nothing anybody might want to read, is left in it.
void spool_discard(int spool_fd, const char *path);
void spool_name(char out[SPOOL_NAME_MAX], uint64_t job, uint32_t attempt);
int spool_parse_name(const char *name, uint64_t *job, uint32_t *attempt);
void spool_unit_name(char out[SPOOL_NAME_MAX], uint32_t step);
void spool_report_name(char out[SPOOL_NAME_MAX], uint32_t step);
enum spool_relay { SPOOL_RELAY_OUTPUT, SPOOL_RELAY_INPUT, SPOOL_RELAY_PAGE, SPOOL_RELAY_COUNT };
void spool_relay_name(char out[SPOOL_NAME_MAX], uint32_t step, enum spool_relay which);
// Opens one of a step's relay files; a descriptor or a negative errno.
int spool_relay_file(int spool_fd, uint64_t job, uint32_t attempt, uint32_t step, enum spool_relay which, int flags);

// How the helpers of an MPI step find each other: `mpi.N` by the shepherd, `hub.N` by the agent.
enum spool_mpi { SPOOL_MPI_OWN, SPOOL_MPI_HUB };
struct mpi_note;
void spool_mpi_name(char out[SPOOL_NAME_MAX], uint32_t step, enum spool_mpi which);
int spool_mpi_write(int spool_fd, uint64_t job, uint32_t attempt, uint32_t step, enum spool_mpi which,
                    const struct mpi_note *n);
int spool_mpi_read(int spool_fd, uint64_t job, uint32_t attempt, uint32_t step, enum spool_mpi which,
                   struct mpi_note *n);

// Writes the folder of a new attempt. -EEXIST: this attempt is known already. On any other
// failure nothing is left behind. `boot_id` may be NULL: it is then read.
int spool_create(int spool_fd, const struct launch_request *r, const char *script,
                 size_t script_len, const char *boot_id, int64_t wall_ms, struct error *e);
// The membership of an elastic job, for a worker of it: readable by everybody who knows the path, replaced at once.
// 1: it is what was there already.
#define SPOOL_MEMBERS "members"
#define SPOOL_MEMBERS_FILE "members/workers"
int spool_write_members(int spool_fd, uint64_t job, uint32_t attempt, const void *data, size_t len);
// What the controller said when it started the attempt, or a step of it, as the agent keeps it; nothing here reads it.
int spool_write_origin(int spool_fd, uint64_t job, uint32_t attempt, uint32_t step, const void *data,
                       size_t len);
// A file that the job's user can read: "secret.NAME".
#define SPOOL_SECRET "secret."
int spool_write_secret(int spool_fd, const struct launch_request *r, const char *name, const void *data, size_t len);
int spool_read_origin(int spool_fd, uint64_t job, uint32_t attempt, uint32_t step, struct arena *a,
                      const void **data, size_t *len);
// How far the controller's journal had come (three numbers), for an agent that starts anew. Zeros: not known.
void spool_write_seen(int spool_fd, const uint64_t position[static 3]);
void spool_read_seen(int spool_fd, uint64_t position[static 3]);
enum { SPOOL_BLOCK_BYTES = 4096 };
static inline uint64_t spool_file_bytes(uint64_t size) {  // of the file system, for a file of this size
    return (size / SPOOL_BLOCK_BYTES + 1) * SPOOL_BLOCK_BYTES;
}
uint64_t spool_texts_bytes(int spool_fd, uint64_t job, uint32_t attempt);  // of its script and secrets
static inline uint64_t spool_members_bytes(
    uint64_t size) {  // of a membership file of this size, and its folder
    return SPOOL_BLOCK_BYTES + spool_file_bytes(size);
}
uint64_t spool_members_held(int spool_fd, uint64_t job, uint32_t attempt);  // 0: it has no membership file
// Which event of the controller's journal created a step; zeros: not known.
struct spool_event {
    uint64_t seq, epoch;
};
// Adds a step's unit file to a running attempt's folder.
int spool_create_step(int spool_fd, const struct launch_request *r, const struct spool_event *event,
                      int64_t wall_ms, struct error *e);
struct spool_event spool_step_event(int spool_fd, uint64_t job, uint32_t attempt, uint32_t step);
int spool_read_status(int spool_fd, uint64_t job, uint32_t attempt, uint32_t step,
                      struct spool_status *out);
// The request as it was launched; pointers belong to the arena.
int spool_read_request(int spool_fd, uint64_t job, uint32_t attempt, uint32_t step,
                       struct arena *arena, struct launch_request *out, struct error *e);
// Wait statuses of the tasks of a unit that ended; exits has room for max. The number, or negative.
int spool_read_exits(int spool_fd, uint64_t job, uint32_t attempt, uint32_t step, int32_t *exits,
                     uint32_t max);
// Whether a shepherd holds the attempt now; its pid in *pid.
int spool_alive(int spool_fd, uint64_t job, uint32_t attempt, pid_t *pid);
// The record of an attempt, and whether a shepherd holds it. One that starts or ends meanwhile is not taken for one
// whose shepherd was killed.
int spool_look(int spool_fd, uint64_t job, uint32_t attempt, struct spool_status *out, bool *alive);
// Claims an attempt that has no shepherd and writes its end as `end`; -EBUSY if a shepherd has
// it, -EALREADY if it ended before. *out is the status as it is then.
int spool_close_attempt(int spool_fd, uint64_t job, uint32_t attempt, enum launch_end end,
                        const char *text, int64_t wall_ms, struct spool_status *out);
int spool_remove(int spool_fd, uint64_t job, uint32_t attempt);
// Removes a step's unit file once its end was reported.
int spool_remove_step(int spool_fd, uint64_t job, uint32_t attempt, uint32_t step);

typedef void spool_scan_fn(void *ctx, const struct spool_status *status, bool alive);
// Calls fn for every attempt (steps excluded); damaged folders are removed when nobody holds them.
int spool_scan(int spool_fd, spool_scan_fn *fn, void *ctx, struct error *e);
typedef void spool_step_fn(void *ctx, const struct spool_status *status);
int spool_scan_steps(int spool_fd, uint64_t job, uint32_t attempt, spool_step_fn *fn, void *ctx);

// For whoever holds the lock (and for steps, the shepherd of the attempt).
void spool_seal(struct spool_status *s);
bool spool_sealed(const struct spool_status *s);
int spool_boot_id(char out[40]);
