// Submitting a job again that the controller remembers: its spec, script and environment, with changes.
#pragma once
#include "cli/client/client.h"
#include "model/job.h"

struct job_resubmit {
    const char *id;             // "12", "12_3"
    const struct spec *change;  // fields that are given replace those of the job; NULL: none
    bool failed;                // of an array: only the elements that did not complete
    bool hold, dry_run;
};

// The answer of the submit. Errors are in the context.
int job_resubmit(struct cli *c, struct client *k, const struct job_resubmit *q, struct reply *out);
