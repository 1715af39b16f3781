// Streams between processes on this node and users behind the controller: reading a log, running a
// command or step inside a job, the input and output of attached jobs.
#pragma once
#include "agent/node/node.h"

struct streams *streams_new(struct agent_node *a);
void streams_close_all(struct streams *s);  // the connection is gone
struct streams *streams_free(struct streams *s);
void streams_message(struct streams *s, const struct message *m);
void streams_users_changed(struct streams *s);
void streams_step_ended(struct streams *s, uint64_t id, uint32_t attempt, uint32_t step);
void streams_step_changed(struct streams *s, uint64_t id, uint32_t attempt, uint32_t step);  // output, or its end
void streams_look_at_steps(struct streams *s, bool connected, int64_t now_ms);  // those without a client
void streams_attempt_ended(struct streams *s, uint64_t id, uint32_t attempt);
// Opens what an attached job gets as 0, 1, 2. Returns the number of descriptors (the caller's to
// close), or a negative errno.
int streams_attach(struct streams *s, const struct message_launch *m, struct launch_request *r,
                   int fds[3], struct error *e);
void streams_forget(struct streams *s, uint64_t id, uint32_t attempt);
