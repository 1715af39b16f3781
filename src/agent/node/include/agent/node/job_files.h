// A job's user on this node and the paths of its output, for those who write and for those who read it.
#pragma once
#include "agent/node/node.h"
#include "base/users.h"
#include "model/message.h"
#include "model/pattern.h"

// The job's user on this node. -EINPROGRESS: not known yet, -ETIMEDOUT: and nobody tells, see base/users.h.
int agent_job_user(struct users *users, const struct spec *s, int64_t now_ms, const struct user_info **out,
                   struct error *e);

struct pattern_values agent_job_file_values(const struct request_node *node, uint64_t id, uint64_t array_id,
                                            uint32_t array_index, const struct spec *s, uint32_t node_index);
// The absolute path that a pattern names; NULL: it names none, `e` says why.
const char *agent_job_file(const char *pattern, const char *workdir, const struct pattern_values *v,
                           struct arena *a, struct error *e);
const char *agent_job_output_pattern(const struct spec *s,
                                     bool is_array);  // the default where it asks for none
// Where the output of a job went: the absolute path on this node.
const char *agent_job_log_path(const struct request_node *node, const struct message_log_read *m,
                               const char *home, struct arena *a, struct error *e);
