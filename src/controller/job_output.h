// Where the output of a job is: its record, also when it has ended, and the node and file that a part of it writes to.
// Pure: the daemon and the fault simulator run the same code.
#pragma once
#include "controller/commit_pipeline.h"
#include "model/message.h"

struct job_lookup {
    struct core *core;
    struct commit_pipeline *pipeline;
    struct store *store;
};

// -ENOENT: neither live nor in history.
int controller_job_record(const struct job_lookup *s, uint64_t id, struct arena *a, struct job_record *out,
                          bool *live);
// The part of a job that streams come from: its node, and where it is in the allocation. Numbers come
// from the request as they are: they are compared before they are made any narrower. Attempt 0: the newest.
bool controller_job_find_part(const struct job_lookup *s, uint64_t id, int64_t index, int64_t attempt,
                              struct arena *a, struct job_record *r, bool *live, struct error *e);
// The message that asks its node for it, from the beginning on. tail: last lines; -1: all.
// With the attempt's name on its nodes.
struct message_log_read controller_logs_request(struct job_record *r, uint32_t index, bool error, bool follow,
                                                int64_t tail);
