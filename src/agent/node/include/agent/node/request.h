// From the controller's words to a launch request: who, what, where to, under which limits.
#pragma once
#include "agent/node/environment.h"
#include "base/users.h"
#include "launch/launch.h"
#include "launch/spool.h"
#include "model/message.h"

enum { REQUEST_PIDS_MAX = 32768 };  // unless configured otherwise

// What holds for every launch on this node.
struct request_node {
    const char *name;
    bool root;                 // may become other users
    uint32_t own_uid;
    bool can_deny_devices;
    const struct node *node;   // its GPUs
    const char *spool_path;
    const char *output_folder; // for output that is kept here and streamed (attach)
    uint32_t grace_s;
    uint64_t pids_max;         // processes and threads of one job
    const char *cluster_home;  // ACEQUIA_HOME here, NULL in the usual places: jobs find their cluster by it
    // For containers.
    const char *no_containers; // why they cannot be run here; NULL: they can
    const char *box_path, *tools_path, *driver_folder, *socket_folder;
    const char *image_folder;  // of the users' own folders for images
    uint64_t image_cache_bytes;
};

// The job's user on this node. -EINPROGRESS: not known yet, -ETIMEDOUT: and nobody tells, see base/users.h.
int agent_request_user(struct users *users, const struct spec *s, int64_t now_ms,
                       const struct user_info **out, struct error *e);
// Fills `out`; everything belongs to the arena. *code says which kind of failure it was; what
// agent_request_user returns comes through.
int agent_request_from_launch(const struct request_node *node, struct users *users,
                              const struct message_launch *m, const uint32_t *cpus, uint32_t ncpus,
                              int64_t now_ms, struct arena *a, struct launch_request *out,
                              enum launch_code *code, struct error *e);
// A step inside an attempt whose own request is `parent`.
int agent_request_from_exec(const struct request_node *node, const struct launch_request *parent,
                            const struct message_exec *m, uint32_t step, struct arena *a,
                            struct launch_request *out, struct error *e);
// Where the output of a job went: the absolute path on this node.
const char *agent_request_log_path(const struct request_node *node, const struct message_log_read *m,
                                   const char *home, struct arena *a, struct error *e);
// The kept output of an attempt that is streamed; error: its standard error.
const char *agent_request_kept_path(const struct request_node *node, uint64_t id, uint32_t attempt,
                                    bool error, struct arena *a);

// How an attempt or step ended, in the controller's words.
enum end_cause agent_request_cause(const struct spool_status *s);
void agent_request_report(const struct spool_status *s, struct arena *a, struct message_ended *out);
