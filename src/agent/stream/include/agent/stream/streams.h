// Streams between processes on this node and users behind the controller: logs, and input and output of steps and
// attached jobs.
#pragma once
#include "agent/node/node.h"

struct streams *streams_new(struct agent_node *a);
void streams_close_all(struct streams *s);  // the connection is gone
struct streams *streams_free(struct streams *s);
void streams_message(struct streams *s, const struct message *m);
void streams_users_changed(struct streams *s);
// Output, or its end; step 0: of the attempt itself.
void streams_changed(struct streams *s, uint64_t id, uint32_t attempt, uint32_t step);
void streams_look_at_steps(struct streams *s, bool connected, int64_t now_ms);  // those without a client
void streams_attempt_ended(struct streams *s, uint64_t id, uint32_t attempt);
// Makes the files that the output of an attached job is kept in, for its shepherd. Returns the number of descriptors
// (the caller's to close), or a negative errno.
int streams_attach(struct streams *s, const struct message_launch *m, struct launch_request *r, int fds[3],
                   struct error *e);
// Before the spool folder of an attempt goes: keeps when its output was written.
void streams_times_keep(struct streams *s, uint64_t id, uint32_t attempt);
