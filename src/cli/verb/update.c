// acequia update
#include <errno.h>

#include "base/text.h"
#include "cli/client/client.h"
#include "cli/job/action.h"
#include "cli/job/options.h"
#include "verbs.h"

// Only what was given is sent: an absent field stays as it is.
static int write_changes(struct cli *c, struct json_writer *w) {
    struct spec s;
    if (option_given(&c->options, "export") || option_given(&c->options, "env"))
        return error_set(&c->error, EINVAL, "--%s: a job keeps the environment that it was submitted with",
                         option_given(&c->options, "env") ? "env" : "export");
    if (option_given(&c->options, "hold"))
        return error_set(&c->error, EINVAL, "--hold: use acequia hold %.40s", c->arguments[0]);
    int r = job_spec(c, &c->options, &s);
    if (r < 0)
        return r;
    if (!option_given(&c->options, "chdir"))
        s.workdir = NULL;
    json_key(w, "spec");
    size_t before = w->out->len;
    schema_write_given_json(&spec_schema, &s, w);
    if (streq(buf_str(w->out) + before, "{}"))
        return error_set(&c->error, EINVAL, "update needs what to change, as in: acequia update %.40s --time 8h",
                         c->arguments[0]);
    return 0;
}

static int run(struct cli *c) {
    cleanup_buf struct buf body = {0};
    struct json_writer w = {.out = &body};
    struct reply reply;
    json_open(&w, '{');
    json_open_key(&w, "ids", '[');
    for (int i = 0; i < c->count; i++)
        json_put_str(&w, c->arguments[i]);
    json_close(&w, ']');
    if (write_changes(c, &w) < 0)
        return cli_usage(c, "%s", arena_strdup(&c->arena, c->error.text));
    json_close(&w, '}');
    int status = client_post(c, "/v1/jobs/update", &body, &reply);
    return status == CLI_OK ? job_action_report(c, &reply, "changed", NULL, NULL) : status;
}

const struct verb verb_update = {
    .name = "update",
    .group = "Work",
    .arguments = "JOB... [options]",
    .summary = "change pending and running jobs",
    .text = "Accepts the options of submit; what is not given stays unchanged.",
    .examples = "acequia update 12 --time 4h --nice 10",
    .options = {&job_resource_options, &job_control_options, &cli_common_options},
    .run = run,
    .complete = "@job",
    .least = 1,
    .most = -1,
    .jobs = VERB_JOBS,
    .live_jobs = true,
};
