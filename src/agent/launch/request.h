// From the controller's words to a launch request: who, what, where to, under which limits.
#pragma once
#include "agent/node/environment.h"
#include "agent/node/job_files.h"
#include "launch/launch.h"
#include "launch/spool.h"
#include "model/message.h"

// Fills `out`; everything belongs to the arena. *code says which kind of failure it was; what
// agent_job_user returns comes through.
int agent_request_from_launch(const struct request_node *node, struct users *users,
                              const struct message_launch *m, const uint32_t *cpus, uint32_t ncpus,
                              int64_t now_ms, struct arena *a, struct launch_request *out,
                              enum launch_code *code, struct error *e);
// A step inside an attempt whose own request is `parent`.
int agent_request_from_exec(const struct request_node *node, const struct launch_request *parent,
                            const struct message_exec *m, uint32_t step, struct arena *a,
                            struct launch_request *out, struct error *e);
// --cpu-bind of a step: the CPUs of its tasks, which have an equal share before.
int agent_request_bind(const char *text, struct launch_request *r, bool *verbose, struct arena *a,
                       struct error *e);
// What an attempt or step used, and how it ended, in the controller's words.
struct usage agent_request_usage(const struct launch_usage *u);
enum end_cause agent_request_cause(const struct spool_status *s);
void agent_request_report(const struct spool_status *s, struct arena *a, struct message_ended *out);
