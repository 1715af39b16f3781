// Projects, partitions, QoS and reservations of the configuration file, brought into the core.
#pragma once
#include "controller.h"

// What the file says and the core does not have yet becomes events; what was set by command and is
// not in the file stays. A bad entry is logged and left out.
void controller_policy_from_config(struct controller *c);
// Projects, partitions, QoS and reservations that were in the file once, are not any more, and still exist: one
// sentence each, in the arena.
void controller_policy_unlisted(struct controller *c, struct arena *a,
                                void (*fn)(void *ctx, const char *text), void *ctx);
