// Drafts and templates of jobs that the controller keeps.
#pragma once
#include "cli/client/client.h"
#include "model/job.h"

struct job_saved {
    bool found;
    struct spec spec;
    const char *script;  // NULL: it has none
};

// `path` as "/v1/drafts/NAME". Errors are in the context.
int job_saved_get(struct cli *c, struct client *k, const char *path, struct job_saved *out);
// One's own template of that name, else that of a project, else one that comes with Acequia. -ENOENT: there is none.
int job_saved_template(struct cli *c, struct client *k, const char *name, struct job_saved *out);
// The template that --template names, where it is not one of the user's own file; else found is false.
int job_saved_wanted(struct cli *c, const struct cli_options *o, struct job_saved *out);
// A spec from the options, over those of the template, over the user's defaults.
int job_saved_spec(struct cli *c, struct cli_options *o, const struct job_saved *template, struct spec *out);
