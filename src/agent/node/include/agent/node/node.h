// The state that all parts of the agent share: the node's description, folders, event loop, decisions
// and connection. Owned by the daemon (agent/daemon); streams and GPUs get a pointer to it. Everything
// runs on one event loop.
#pragma once
#include <uv.h>

#include "agent/logic/logic.h"
#include "base/vec.h"
#include "cgroup/cgroup.h"
#include "launch/control.h"
#include "launch/spool.h"
#include "base/users.h"
#include "net/socket.h"

enum {
    AGENT_CONTROL_PATIENCE_MS = 3000,  // how long a shepherd may take to listen on its control socket
    AGENT_LOST_PATIENCE_MS = 1000,     // between a shepherd's disappearance and calling its attempt lost
    AGENT_STREAMS_MAX = 4096,
    AGENT_FILES_MAX = 128,      // requests about files under way, each with its process
    AGENT_USER_FILES_MAX = 16,  // of them, one user's
    // Killed processes that do not exit, because a file system holds them: with so many no new ones are started that
    // read logs or files; a user's own file system (FUSE) stops that user alone.
    AGENT_STUCK_MAX = 256,
    AGENT_USER_STUCK_MAX = 16,
    AGENT_KEPT_OUTPUTS_MAX = 1000,         // output files of attached jobs that are kept after the job's end
    AGENT_KEPT_USER_BYTES = 256 << 20,     // the same in bytes, per user
    AGENT_KEPT_RUNNING_BYTES = 512 << 20,  // of a user's running jobs: their streams share it
};

enum { REQUEST_PIDS_MAX = 32768 };  // unless configured otherwise

// What holds for every launch on this node.
struct request_node {
    const char *name;
    bool root;  // may become other users
    uint32_t own_uid;
    bool can_deny_devices;
    const struct node *node;  // its GPUs
    const char *spool_path;
    const char *output_folder;  // for output that is kept here and streamed (attach)
    uint32_t grace_s;
    uint64_t pids_max;         // processes and threads of one job
    const char *cluster_home;  // ACEQUIA_HOME here, NULL in the usual places: jobs find their cluster by it
    const char *gateway;  // program that connects a job's own network with the outside; NULL: not installed
    // For containers.
    const char *no_containers;  // why they cannot be run here; NULL: they can
    const char *mpi_path;       // the helper for MPI; NULL: not installed
    const char *tasks_path;     // the process of pools; NULL: not installed
    const char *data_path;      // the engine of batch pipelines; NULL: not installed
    const char *box_path, *tools_path, *driver_folder, *socket_folder;
    const char *image_folder;  // of the users' own folders for images
    uint64_t image_cache_bytes;
};

struct agent_child {
    pid_t pid;
    uint32_t uid;  // for whom it worked
};

struct agent_node {
    uv_loop_t loop;
    struct arena arena;  // lives as long as the agent
    struct node node;
    struct request_node request_node;
    struct users *users;
    struct cgroup_site site;
    const char *files_program;  // works on users' files
    const char *folder;      // the agent's own: identity, kept output
    const char *spool_path;
    int spool_fd, output_fd;
    struct agent_logic *logic;
    struct net_ws *ws;       // NULL: not connected
    const char *controller_host;  // that it was last dialled at; NULL: on this machine
    bool open;               // the connection is established
    struct buf message;      // the one that is sent
    VEC(struct agent_child) unreaped;  // that were killed and have not exited yet

    // Provided by the launcher (agent/launch).
    struct launcher *launcher;
    // Sends a request to the attempt's shepherd, and again later if that does not listen yet.
    int (*control)(struct agent_node *n, uint64_t id, uint32_t attempt, const struct control_request *r);
    void (*execute)(struct agent_node *n);  // carries out what the logic decided
};

// Sends a message to the controller; does nothing while there is no connection.
void agent_send(struct agent_node *n, enum message_type type, const void *body);
// Collects a child's exit status, now or when it exits. Never waits: a process that hangs in a file
// system cannot even be killed.
void agent_reap(struct agent_node *n, pid_t pid, uint32_t uid);
bool agent_has_stuck(const struct agent_node *n, uint32_t uid);  // too many to start one more for this user
void agent_reap_pending(struct agent_node *n);  // after SIGCHLD
