// What a node is asked to run, and how it ended: plain structs shared by the agent and the
// shepherd. A launch_request describes one job attempt on this node, or one step inside a running
// attempt. It is encoded into the attempt's spool folder; decoding is bounded and strict.
#pragma once
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/arena.h"
#include "base/buf.h"
#include "base/error.h"

enum {
    LAUNCH_ARGS_MAX = 65536,
    LAUNCH_ENV_MAX = 65536,
    LAUNCH_GROUPS_MAX = 65536,
    LAUNCH_TASKS_MAX = 4096,  // processes of one unit on one node
    LAUNCH_CPUS_MAX = 8192,
    LAUNCH_DEVICES_MAX = 1024,
    LAUNCH_RLIMITS_MAX = 32,
    LAUNCH_SOCKETS_MAX = 16,
    LAUNCH_VOLUMES_MAX = 64,
    LAUNCH_SIGNAL_PASS_ON = 0x61637161,  // with a signal that only the first process of a job gets
    LAUNCH_STRING_MAX = 1 << 20,
    LAUNCH_REQUEST_MAX = 16 << 20,
    LAUNCH_SCRIPT_MAX = 16 << 20,
};

// Why a process could not be started.
enum launch_code {
    LAUNCH_OK,
    LAUNCH_REQUEST,      // the request cannot be read or carried out as written
    LAUNCH_USER,         // the user does not exist on this node
    LAUNCH_PRIVILEGE,    // becoming the user failed or could be undone
    LAUNCH_LIMITS,       // a limit could not be set
    LAUNCH_CWD,          // working directory
    LAUNCH_INPUT,        // standard input
    LAUNCH_OUTPUT,       // standard output or error
    LAUNCH_COMMAND,      // command not found
    LAUNCH_PERMISSION,   // command not executable for this user
    LAUNCH_INTERPRETER,  // the interpreter after #! does not exist
    LAUNCH_FORMAT,       // neither a program nor a script with #!
    LAUNCH_RESOURCE,     // the system is out of processes, memory or descriptors
    LAUNCH_DISK,         // no space left
    LAUNCH_IMAGE,        // the container image cannot be had or entered
    LAUNCH_NODE,         // the node's own fault: no control group, no process; not the job's
    LAUNCH_CODES,
};
const char *launch_code_name(enum launch_code code);
// What a job's reason begins with; the sentence of the failure follows, which may name paths.
#define LAUNCH_FAILED_WORDS "could not be started: "

// How an attempt or step ended.
enum launch_end {
    ENDED_NONE,          // has not ended
    ENDED_EXITED,        // exit_code
    ENDED_SIGNALED,      // signal
    ENDED_TIMEOUT,       // its time limit
    ENDED_OUT_OF_MEMORY, // its memory limit
    ENDED_KILLED,        // asked for through the control socket; kill_why says by whom
    ENDED_LAUNCH_FAILED, // launch_code and text
    ENDED_NEVER_STARTED, // the agent ended before a shepherd took it
    ENDED_LOST,          // its shepherd died; its processes were killed
    ENDED_REBOOT,        // the machine was started anew meanwhile
    ENDED_REASONS,
};
const char *launch_end_name(enum launch_end end);

struct launch_usage {
    uint64_t user_us, system_us;
    uint64_t peak_bytes;
    int64_t wall_ms;
};

struct launch_rlimit {
    uint32_t resource;  // RLIMIT_*
    uint64_t soft, hard;
};

struct launch_device {
    bool block;
    uint32_t major, minor;
};

// One process of a unit. Paths that are NULL are taken from the unit.
struct launch_process {
    uint32_t rank;  // in the whole job or step
    char **env;     // added to the unit's, wins over it
    uint32_t nenv;
    char **argv;    // NULL: the unit's
    uint32_t argc;
    const char *in, *out, *err;
    uint32_t *cpus;
    uint32_t ncpus;
};

enum launch_health { LAUNCH_HEALTH_NONE, LAUNCH_HEALTH_COMMAND, LAUNCH_HEALTH_HTTP, LAUNCH_HEALTH_JUPYTER };
enum signal_target { SIGNAL_ALL, SIGNAL_MAIN, SIGNAL_STEPS };

struct launch_request {
    uint64_t job;
    uint32_t attempt;
    uint32_t step;  // 0: the attempt itself

    bool switch_user;  // become uid, gid, groups (needs root)
    bool no_new_privs;
    uint32_t uid, gid;
    uint32_t *groups;
    uint32_t ngroups;

    bool has_script;  // run the folder's `script`; argv are its arguments
    char **argv;
    uint32_t argc;
    char **env;
    uint32_t nenv;
    char **box;      // in a container: acequia-box and its options, to which the command is added
    uint32_t boxc;
    const char *cwd;
    uint32_t umask;
    bool slurm_words;  // its end is told in Slurm's words
    struct launch_process *tasks;  // ntasks 0: the attempt only holds its limits for steps
    uint32_t ntasks;
    bool kill_on_bad_exit;  // one task's failure ends the others
    int64_t wait_ms;        // from the first task's end to the kill of the others; 0: no limit

    const char *in, *out, *err;  // NULL in: /dev/null; NULL out: discarded; NULL err: same as out
    bool append;
    bool tty;     // descriptors passed along are a terminal: make it the controlling one
    bool use_fds; // 0, 1, 2 come as passed descriptors instead of paths
    bool relay;   // the shepherd keeps the streams that have no path (launch/relay.h); `tty` makes them a terminal
    bool relay_input;        // tasks without an input path are fed
    uint32_t rows, columns;  // of the terminal

    uint64_t memory_bytes;  // 0: none; of a step: none but the job's
    uint64_t pids_max;      // 0: none
    uint32_t *cpus;         // 0 of them: all
    uint32_t ncpus;
    uint32_t cpu_weight;  // 1…10000, 0: default
    int32_t nice;
    int32_t oom_score_adj;
    int64_t time_limit_ms;  // 0: none
    int64_t grace_ms;       // between SIGTERM and SIGKILL
    uint32_t warn_signal;   // sent warn_before_ms before the limit; 0: none
    int64_t warn_before_ms;
    uint32_t warn_target;  // enum signal_target
    struct launch_rlimit *rlimits;
    uint32_t nrlimits;
    struct launch_device *denied;  // devices out of reach: the GPUs of others
    uint32_t ndenied;

    // Of the attempt: how its program is asked whether it is ready (model/health.h).
    uint32_t health;          // enum launch_health
    uint32_t health_port;     // of the question
    const char *health_path;  // HEALTH_HTTP
    int64_t health_interval_ms, health_start_ms;
    uint32_t health_failures;
    int64_t idle_ms;  // ended when it was not used for so long; 0: never
    char **sockets;   // unix sockets that stand for ports, "NUMBER:PATH"
    uint32_t nsockets;

    bool own_network;     // of the attempt: a network namespace that its processes share with nobody
    char **volumes;       // whose folders are made first (launch/volume.h)
    uint32_t nvolumes;
    const char *gateway;  // the program (pasta) that connects it with the outside; NULL: loopback only
    char **mpi;           // of a step: the helper for MPI and its options (launch/mpi.h); 0 of them: none
    uint32_t mpic;
};

void launch_encode(const struct launch_request *r, struct buf *out);
// Pointers in `r` belong to `arena`. -EBADMSG names what was wrong.
int launch_decode(const char *data, size_t len, struct arena *arena, struct launch_request *r,
                  struct error *e);
// Limits on counts and values that make a request runnable at all.
int launch_check(const struct launch_request *r, struct error *e);
