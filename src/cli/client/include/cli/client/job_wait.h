// Waiting for the end of jobs, and the exit status that stands for how one ended.
#pragma once
#include "cli/client/client.h"

int client_job_exit_status(const struct json *job);  // of a record or row with state, exit_code, exit_signal
// Returns the exit status. timeout_ms < 0: no limit; CLI_FAILED with a note when it passes.
int client_job_wait(struct cli *c, struct client *k, const char *id, int64_t timeout_ms, bool quiet);
