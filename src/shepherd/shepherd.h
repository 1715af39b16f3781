// Inside the shepherd program. The zygote is started once by the agent and keeps a few idle
// shepherds; a shepherd takes one attempt at a time from the agent's socket, sees it through to
// its end, and then takes the next or leaves. Each step of an attempt, and the attempt itself, is
// a unit: a request, its processes, its status on disk.
#pragma once
#include <poll.h>
#include <signal.h>
#include <stdatomic.h>
#include <sys/types.h>

#include "base/clock.h"
#include "cgroup/cgroup.h"
#include "launch/control.h"
#include "launch/launch.h"
#include "launch/mpi.h"
#include "launch/spool.h"
#include "model/health.h"

enum {
    SHEPHERDS_MAX = 16384,
    UNITS_MAX = 256,        // an attempt and its running steps
    LISTEN_AFTER_MS = 20,   // a control socket is not worth making for shorter attempts
    ANNOUNCE_AFTER_MS = 3,  // an attempt that ends before is reported once, as ended
    SETTLE_AFTER_MS = 10,   // one that lives longer keeps its shepherd for good
    TIMES_AFTER_MS = 1000,  // times of lines and progress are not worth a process for shorter attempts
    KILL_PATIENCE_MS = 60000,
    TELL_PATIENCE_S = 5,  // for the line in its output that tells a job's end
};

// Written by a new process until it becomes the job's program; shared memory, so that no pipe has
// to be made and read for every launch.
struct launch_note {
    _Atomic uint32_t claimed;
    _Atomic uint32_t opened;  // tasks that have their files open
    _Atomic int32_t pid;      // of the process last made for the unit; negative: could not be made
    uint32_t code;  // enum launch_code
    uint32_t rank;
    uint64_t before[2];  // bytes that the first task's output and error had when they were opened
    char text[SPOOL_TEXT_MAX];
};

// A shepherd is ready while it waits for an attempt, and also while its attempt is young: most
// likely it will be back at once. Only one that settles down with a longer attempt is replaced, so
// a flood of short jobs is worked off by a few shepherds that keep their groups.
enum pool_state { POOL_FREE, POOL_IDLE, POOL_YOUNG, POOL_SETTLED };

struct pool_entry {
    _Atomic uint32_t state;  // enum pool_state
    uint32_t attempt;
    uint64_t job;
};

// Shared between the zygote and all shepherds.
struct shepherd_pool {
    _Atomic int ready;
    struct pool_entry at[SHEPHERDS_MAX];
};

enum unit_phase { UNIT_FREE, UNIT_RUNNING, UNIT_ENDING, UNIT_KILLING };

struct shepherd_unit {
    enum unit_phase phase;
    uint32_t step;
    int file;  // `unit`; for the attempt itself the locked one
    struct arena arena;
    struct launch_request req;
    struct spool_status status;
    struct launch_note *note;
    int fds[3];
    struct relay *relay;  // streams kept by us; NULL: files or descriptors
    struct {
        pid_t pid;    // of the helper; 0: none
        int fd;       // to it; -1: none
        int task_fd;  // of the process that is made next: its end of a socket to the helper; -1: none
        uint32_t groups;  // of ranks that its ranks have started, and that are not over
        bool ended;   // it has asked for the step's end
        int code;     // that MPI_Abort was called with, as an exit status; 0: it was not
    } mpi;
    pid_t *pids;
    int32_t *exits;
    uint32_t alive;
    bool awaited;  // its only process was ordered and is counted in `alive`; the note will name it
    int early_signal;  // for that process, which is not there yet; 0: none
    bool listed;  // its control group was made
    int worst;    // wait status of the worst task
    enum launch_end verdict;  // decided by us rather than by its exit
    int64_t start_ms, end_by_ms, kill_since_ms;
    int64_t first_end_ms;  // of its tasks; 0: all run
    uint64_t user_us, system_us, peak_bytes;
};

// How the attempt's program is (health.c).
struct health_page;
struct shepherd_health {
    enum job_health state;
    uint32_t failures;          // in a row
    int64_t next_ms, asked_ms;  // of the next question, and of the one that waits for an answer; 0: none
    pid_t asker;                // a process that asks over HTTP; 0: none
    bool stopped;               // it took too long, and was killed for that
    bool asked_again;           // the one before was killed by somebody else
    struct health_page *page;   // shared with it
    int64_t used_ms;            // when it was last used, of one that says so: time of day
    int64_t said_ms;            // what it said of that last
    struct clock_watch clock;
};

// Sockets that listen on ports of the node, by their inodes (listeners.c).
enum { LISTENERS_MAX = 64 };
struct listeners_known {
    uint32_t own[LISTENERS_MAX];  // the last ones found to be the attempt's
    uint32_t next;
    uint32_t foreign;  // the last one found not to be
    int64_t foreign_until_ms;
};

struct shepherd {
    const char *spool_path;
    int spool_fd, pool_fd, hint_fd, wake_fd;
    struct shepherd_pool *pool;
    struct pool_entry *entry;
    int ready_min, ready_max;
    bool protected_from_oom;
    const struct cgroup_site *site;
    struct cgroup_slot slot;
    bool has_slot;
    int nursery_fd;
    uint32_t slots_made;
    struct launch_note *notes;  // UNITS_MAX of them, shared memory

    // The attempt in hand.
    char name[SPOOL_NAME_MAX];
    int folder_fd, listen_fd;
    struct shepherd_unit units[UNITS_MAX];  // [0]: the attempt itself
    int units_top;                 // one past the last in use
    struct progress_page *progress;  // shared with the process that reads the job's output
    pid_t progress_reader;
    struct shepherd_health health;
    pid_t teller;                  // writes into the output that the attempt is ended
    int network_fd;                // its own network namespace; -1: the node's network
    pid_t pid;                     // of this process; one that it has forked finds it here
    struct listeners_known listeners;
    pid_t gateway;                 // connects it with the outside; 0: none
    bool announced, settled, suspended;
    int64_t suspended_since_ms, suspended_ms;
    int64_t limit_ms;
    bool warned;
    int64_t next_look_ms, look_every_ms;  // memory, where no control group counts it
    int64_t next_folder_ms;               // whether somebody deleted files of the attempt's folder
};

// main.c: this attempt will take a while; called before anything that may block or nap.
void shepherd_settle(struct shepherd *s);

// attempt.c: from the folder's name to the end written there.
void attempt_run(struct shepherd *s, const char *name, const int *fds, int nfds);
void attempt_signal(struct shepherd *s, enum signal_target target, int sig);
void attempt_end(struct shepherd *s, enum launch_end verdict, uint32_t why, int sig,
                 int64_t grace_ms, int64_t now_ms);

// unit.c
int unit_load(struct shepherd *s, struct shepherd_unit *u, uint32_t step, struct error *e);
void unit_start(struct shepherd *s, struct shepherd_unit *u, int64_t now_ms);
struct shepherd_unit *unit_find(struct shepherd *s, uint32_t step);
void unit_resolve(struct shepherd *s, struct shepherd_unit *u);  // looks whether an awaited process is there
void unit_reaped(struct shepherd *s, struct shepherd_unit *u, uint32_t task, int status);
void unit_signal(struct shepherd *s, struct shepherd_unit *u, int sig);
void unit_signal_later(struct shepherd_unit *u, int sig);
void unit_end(struct shepherd *s, struct shepherd_unit *u, enum launch_end verdict, uint32_t why, int sig,
              int64_t grace_ms, int64_t now_ms);
void unit_failed(struct shepherd_unit *u, enum launch_code code, const char *text);
void unit_write_end(struct shepherd *s, struct shepherd_unit *u, int64_t now_ms);
void unit_write(struct shepherd_unit *u);
void unit_done(struct shepherd *s, struct shepherd_unit *u);
void unit_hint(struct shepherd *s, const struct shepherd_unit *u);

// spawn.c
int spawn_ready(struct shepherd *s, const struct launch_request *r, struct error *e);
// The new process, or a negative errno; 0: ordered, `awaited`.
pid_t spawn_task(struct shepherd *s, struct shepherd_unit *u, uint32_t task);
pid_t spawn_helper(struct shepherd *s, struct shepherd_unit *u);  // of an MPI step
void spawn_release(struct shepherd *s);  // after an attempt: keep the slot or clear it away

// child.c: the new process.
struct child {
    const char *spool_path, *name;
    const struct launch_request *req;
    const struct launch_process *task;
    struct launch_note *note;
    int fds[3];
    int mpi_fd;                      // to the helper of an MPI step, or the helper's own; -1: none
    bool helper;                     // it becomes that helper
    int group_fds[CGROUP_STEP_FDS];  // version 1: where to write to be in the step's groups
    uint32_t groups;
    int answer_fd;      // where to say that it exists; -1: nobody waits for that
    bool reset_oom, reset_signals, death_signal, truncate;
    uint64_t id;
    pid_t shepherd;
    const char *network;        // a file of the network namespace to enter; "": none
    char **env, **script_argv;  // made by child_prepare
    char *mpi_text;             // room for the variables that the helper adds
    char *own_pid;              // the variable in it that the process itself fills in
};
void child_prepare(struct child *c, struct arena *arena);  // before the fork
void child_reset_signals(void);
_Noreturn void child_run(const struct child *c);

// relay.c: standard streams of steps and attached jobs.
int relay_open(struct shepherd *s, struct shepherd_unit *u);
int relay_task_open(struct shepherd_unit *u, uint32_t task, int fds[3]);  // the task's ends
uint32_t relay_poll(const struct shepherd_unit *u, struct pollfd *p, uint32_t room);  // how many it wants watched
void relay_serve(struct shepherd *s, struct shepherd_unit *u, const struct pollfd *p, uint32_t n);
void relay_wake(struct shepherd_unit *u);  // the agent has changed something
bool relay_blocked(
    const struct shepherd_unit *u);  // waits for the client of an attached job: look again soon
bool relay_say(struct shepherd_unit *u, const char *text,
               size_t len);                                     // a message of ours; false: not attached
void relay_close(struct shepherd *s, struct shepherd_unit *u);  // takes what the tasks left; accepts none

void relay_note(struct shepherd *s, struct shepherd_unit *u, uint32_t rank,
                const char *text);  // into its errors

// mpi.c: the helper of an MPI step.
int mpi_open(struct shepherd *s, struct shepherd_unit *u);
int mpi_task_open(struct shepherd_unit *u, uint32_t rank);  // makes mpi.task_fd
void mpi_serve(struct shepherd *s, struct shepherd_unit *u, int64_t now_ms);
int mpi_hub(struct shepherd *s,
            struct shepherd_unit *u);  // the agent has written where the first node's helper is
bool mpi_reaped(struct shepherd *s, pid_t pid, int status, int64_t now_ms);  // false: it is no helper
void mpi_close(struct shepherd *s, struct shepherd_unit *u);

// network.c: an attempt's own network
int network_open(struct shepherd *s, const struct launch_request *r, struct error *e);
void network_close(struct shepherd *s);
int network_connect(struct shepherd *s,
                    int64_t port);  // a socket that may not be connected yet, or a negative errno
int network_check(struct shepherd *s, int64_t port);  // on the node's network, as listeners_check; else 0
// On the node's network: 0: the attempt's own program listens on the port, -ECONNREFUSED: nobody does, -EACCES: another
// user does, -EADDRINUSE: another program of the same user does.
int listeners_check(struct listeners_known *k, pid_t shepherd, uint16_t port, uint32_t uid);
bool network_enter(struct shepherd *s);  // for a process of ours, for good
// The path of the unix socket that stands for the port; NULL: none does.
const char *network_socket_path(const struct shepherd *s, int64_t port);
// For a process that has become the user: a connection to the socket, or a negative errno. It may take as long as the
// file system does.
int network_connect_socket(const struct shepherd *s, const char *path);

// health.c: whether the attempt's program is ready.
void health_begin(struct shepherd *s, int64_t now_ms);
void health_timers(struct shepherd *s, int64_t now_ms);
int64_t health_due_ms(const struct shepherd *s);  // when health_timers has something to do; INT64_MAX: never
bool health_reaped(struct shepherd *s, pid_t pid, int status);  // false: it is not the one that asks
void health_step_ended(struct shepherd *s, struct shepherd_unit *u, int64_t now_ms);
void health_end(struct shepherd *s);

// progress.c: how far the job says it has come, and when it wrote its output.
void progress_start(struct shepherd *s);  // begins to look; once the attempt has run for TIMES_AFTER_MS
void progress_look(struct shepherd *s, int64_t ran_ms, struct control_reply *reply);
void progress_end(struct shepherd *s);
bool shepherd_become(const struct launch_request *r);      // the job's user, for good
void progress_forget(struct shepherd *s, int64_t ran_ms);  // after the end: removes the file

// steps.c: the control socket.
void steps_listen(struct shepherd *s);
void steps_serve(struct shepherd *s, int64_t now_ms);
