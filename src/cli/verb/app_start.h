// Starting apps as jobs, for acequia app and acequia notebook.
#pragma once
#include "cli/client/client.h"
#include "model/app.h"
#include "verbs.h"

extern const struct option_table verb_app_options;  // --new, --no-wait

// Built-in and the site's apps, as the controller has them, and one's own: of two with one name the latter.
int verb_app_list(struct cli *c, struct client *k, struct app_list *out);
// The job of an app with these values, the options of the command line over them.
int verb_app_job(struct cli *c, const struct app *app, const char *const *values, uint32_t count,
                 struct app_job *out);
int verb_app_submit(struct cli *c, struct client *k, struct app_job *job, struct reply *reply);
// Opens the one that runs, or starts it with what is given, or as it was started the last time; waits until it is ready
// and prints how it is opened. Returns the exit status.
int verb_app_start(struct cli *c, const char *name, const char *const *values, uint32_t count);
