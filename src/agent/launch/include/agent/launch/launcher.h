// The hands of the agent: carries out what agent/logic decides, and finds out what became of it. Owns the launches that
// wait, the shepherds' parent process, the hints that shepherds send and the ends that wait for a controller. The
// daemon owns the connection and calls this once per turn; nothing here knows how a message came.
//
// A launch happens in launch.c, from the message to the shepherd; ends are found in attempt_scan.c.
#pragma once
#include "agent/gpu/gpus.h"
#include "agent/node/node.h"
#include "agent/stream/streams.h"

enum { LAUNCHER_TICK_MS = 250 };  // how often launcher_tick is called

struct launcher;
struct launcher_options {
    const char *folder;    // the agent's own, for ends that wait
    const char *shepherd;  // program
    const char *cgroup, *tag;
    uint64_t open_files;  // the jobs' limit of open files; 0: as ours
};

// The node's spool folder, users and logic are open. On failure *out is to be freed as well.
int launcher_open(struct agent_node *n, struct gpus *gpus, const struct launcher_options *o,
                  struct launcher **out, struct error *e);
void launcher_start(struct launcher *l, struct streams *streams);  // on the node's loop
void launcher_recover(struct launcher *l);  // what the spool folder holds, before connecting
void launcher_stop(struct launcher *l);     // the loop must run until its handles are closed
struct launcher *launcher_free(struct launcher *l);

void launcher_execute(struct launcher *l);  // carries out what the logic decided
void launcher_tick(struct launcher *l, int64_t now_ms);
void launcher_connected(struct launcher *l);     // what was told on an earlier connection is told again
void launcher_child_exited(struct launcher *l);  // after SIGCHLD
