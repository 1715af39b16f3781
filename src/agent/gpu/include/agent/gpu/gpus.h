// The node's GPUs inside the agent: found at the start, read every second on a worker thread, and
// granted to attempts: whole ones by visibility, fractions by a ledger that the shim enforces.
#pragma once
#include "launch/launch.h"
#include "launch/spool.h"
#include "model/config.h"
#include "model/message.h"

struct agent_node;
struct gpus;

// Finds them and fills the node's list; `c` may declare simulated ones. Never fails for want of GPUs.
struct gpus *gpus_open(struct agent_node *a, const struct config_node *c);
void gpus_start(struct gpus *g);  // readings, once a second
void gpus_stop(struct gpus *g);   // the loop must run until its handles are closed
struct gpus *gpus_free(struct gpus *g);

// Before an attempt is launched: makes ledgers for its fractions and adds to its environment.
int gpus_grant(struct gpus *g, const struct message_launch *m, struct launch_request *r,
               struct arena *arena, struct error *e);
// After a restart: what a running attempt holds, from its own environment.
void gpus_recover(struct gpus *g, const struct launch_request *r);
// Adds what the attempt used on GPUs.
void gpus_usage(const struct gpus *g, uint64_t id, uint32_t attempt, struct usage *u);
// The newest figures, until the loop turns; NULL: none yet.
const struct message_telemetry *gpus_latest(const struct gpus *g);
uint32_t gpus_share(const struct gpus *g, uint64_t id, uint32_t attempt, uint32_t index);  // in thousandths
struct owners;
const struct owners *gpus_owners(const struct gpus *g);  // which attempt is whose
struct owners *gpus_owners_copy(
    const struct gpus *g);  // which attempt a process belongs to, for another thread
void gpus_started(struct gpus *g, const struct spool_status *s);    // its processes can be told by it
void gpus_release(struct gpus *g, uint64_t id, uint32_t attempt);  // it has ended
void gpus_forget(struct gpus *g, uint64_t id, uint32_t attempt);   // its ledgers may go
