// acequia why, acequia when
#include <string.h>

#include "base/clock.h"
#include "base/text.h"
#include "cli/client.h"
#include "cli/explain.h"
#include "cli/job_options.h"
#include "cli/localtime.h"
#include "cli/verbs.h"
#include "model/name.h"

static const struct option_spec why_specs[] = {
    {"at", 0, "TIME", "Why it waited at that time.", 0, NULL, NULL},
};
static const struct option_table why_options = OPTION_TABLE("Options", why_specs);

static int run_why(struct cli *c) {
    cleanup_query struct query q = {0};
    cleanup_buf struct buf path = {0}, out = {0};
    struct reply reply;
    const char *at = option_get(&c->options, "at");
    int64_t at_ms;
    buf_adds(&path, "/v1/jobs/");
    http_percent_encode(&path, c->arguments[0]);
    buf_adds(&path, "/why");
    query_begin(&q, buf_str(&path));
    if (at) {
        if (local_time_parse(at, clock_wall_ms(), TIME_TODAY, &at_ms, &c->error) < 0)
            return cli_usage(c, "--at: %s", arena_strdup(&c->arena, c->error.text));
        query_addf(&q, "at_ms", "%lld", (long long)at_ms);
    }
    int status = client_get(c, buf_str(&q.text), &reply);
    if (status != CLI_OK)
        return status;
    if (c->json)
        buf_addf(&out, "%s\n", reply.text);
    else
        explain_print(c, reply.json, &out);
    return cli_print(&out);
}

static int run_when(struct cli *c) {
    struct spec s;
    struct reply reply;
    cleanup_buf struct buf body = {0}, out = {0};
    if (job_spec(c, &c->options, &s) < 0)
        return cli_usage(c, "%s", arena_strdup(&c->arena, c->error.text));
    if (!s.name)
        s.name = "when";
    job_request_write(&(struct job_request){.spec = &s}, &body);
    int status = client_post(c, "/v1/when", &body, &reply);
    if (status != CLI_OK)
        return status;
    if (c->json)
        buf_addf(&out, "%s\n", reply.text);
    else
        explain_print(c, reply.json, &out);
    return cli_print(&out);
}

const struct verb verb_why = {
    .name = "why",
    .group = "Sharing",
    .arguments = "[options] JOB",
    .summary = "explain why a job waits, and what would start it",
    .examples = "acequia why 12\nacequia why 12 --at 08:00",
    .options = {&why_options, &common_options},
    .run = run_why,
    .complete = "@job",
    .least = 1,
    .most = 1,
};

const struct verb verb_when = {
    .name = "when",
    .group = "Sharing",
    .arguments = "[options]",
    .summary = "tell when a job would start if it were submitted now",
    .text = "Options are those of submit. Nothing is submitted.",
    .examples = "acequia when -g 4 -t 8h",
    .options = {&job_resource_options, &job_control_options, &common_options},
    .run = run_when,
    .most = 0,
};
