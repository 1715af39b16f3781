// acequia why, acequia when, acequia replay
#include <string.h>

#include "base/clock.h"
#include "base/text.h"
#include "cli/client/client.h"
#include "cli/job/defaults.h"
#include "cli/job/options.h"
#include "cli/job/saved.h"
#include "cli/term/local_time.h"
#include "cli/term/terminal.h"
#include "cli/job/resolve.h"
#include "verbs.h"
#include "model/name.h"

// The controller sends sentences; here they are wrapped to the width of the terminal.
static void print_lines(const struct json *answer, struct buf *out) {
    const struct json *lines = answer ? json_get(answer, "lines") : NULL;
    for (uint32_t i = 0; lines && lines->type == JSON_ARRAY && i < lines->len; i++)
        if (lines->items[i].type == JSON_STRING) {
            const char *line = lines->items[i].s;
            bool item = line[0] == ' ' && line[1] == ' ';  // of a list
            if (item)
                buf_adds(out, "  ");
            terminal_wrap(out, line + (item ? 2 : 0), item ? 2 : 0, item ? 6 : 2);
        }
}

static int print_reply(struct cli *c, const struct reply *reply) {
    cleanup_buf struct buf out = {0};
    if (c->json)
        buf_addf(&out, "%s\n", reply->text);
    else
        print_lines(reply->json, &out);
    return cli_print(&out);
}

static const struct option_spec why_specs[] = {
    {"at", 0, "TIME", "Why it waited at that time.", 0, NULL, NULL},
};
static const struct option_table why_options = OPTION_TABLE("Options", why_specs);

static int run_why(struct cli *c) {
    cleanup_query struct query q = {0};
    cleanup_buf struct buf path = {0};
    struct reply reply;
    const char *at = option_get(&c->options, "at");
    int64_t at_ms;
    buf_adds(&path, "/v1/jobs/");
    http_percent_encode(&path, c->arguments[0]);
    buf_adds(&path, "/why");
    client_query_begin(&q, buf_str(&path));
    if (at) {
        if (local_time_parse(at, clock_wall_ms(), TIME_TODAY, &at_ms, &c->error) < 0)
            return cli_usage(c, "--at: %s", arena_strdup(&c->arena, c->error.text));
        client_query_addf(&q, "at_ms", "%lld", (long long)at_ms);
    }
    int status = client_get(c, buf_str(&q.text), &reply);
    return status == CLI_OK ? print_reply(c, &reply) : status;
}

static const struct option_spec when_specs[] = {JOB_TEMPLATE_OPTION};
static const struct option_table when_options = OPTION_TABLE("Options", when_specs);

// An elastic job that was submitted: when it will have so many workers.
static int when_workers(struct cli *c, const char *job) {
    struct reply reply;
    uint32_t min, max;
    const char *workers = option_get(&c->options, "workers");
    if (!workers)
        return cli_usage(c, "when is about a job that is not submitted yet; for job %s: acequia why %s", job,
                         job);
    if (job_workers_parse("--workers", workers, &min, &max, &c->error) < 0)
        return cli_usage(c, "%s", arena_strdup(&c->arena, c->error.text));
    int status = client_get(c, arena_printf(&c->arena, "/v1/jobs/%s/when?workers=%u", job, max), &reply);
    return status == CLI_OK ? print_reply(c, &reply) : status;
}

static int run_when(struct cli *c) {
    uint64_t job;
    if (c->count == 1 && parse_u64(c->arguments[0], &job) == 0)
        return when_workers(c, c->arguments[0]);
    if (c->count)
        return cli_usage(c, "when takes the options of submit, without script or command");
    struct spec s;
    struct reply reply;
    cleanup_buf struct buf body = {0};
    struct job_saved template;
    if (job_saved_wanted(c, &c->options, &template) < 0)
        return cli_fail(c);
    if (job_saved_spec(c, &c->options, &template, &s) < 0)
        return cli_usage(c, "%s", arena_strdup(&c->arena, c->error.text));
    if (!s.name)
        s.name = "when";
    job_request_write(&(struct job_request){.spec = &s}, &body);
    int status = client_post(c, "/v1/when", &body, &reply);
    return status == CLI_OK ? print_reply(c, &reply) : status;
}

const struct verb verb_why = {
    .name = "why",
    .group = "Sharing",
    .arguments = "[options] JOB",
    .summary = "explain why a job is pending and what would start it",
    .examples = "acequia why 12\nacequia why 12 --at 08:00",
    .options = {&why_options, &job_pick_options, &cli_common_options},
    .run = run_why,
    .complete = "@job",
    .least = 1,
    .most = 1,
    .jobs = VERB_JOB_FIRST,
};

const struct verb verb_when = {
    .name = "when",
    .group = "Sharing",
    .arguments = "[options] [JOB]",
    .summary = "estimate when a job would start if submitted now",
    .text = "Accepts the options of submit. Nothing is submitted. With the number of an elastic job and "
            "--workers N: when "
            "it will have N workers.",
    .examples = "acequia when -g 4 -t 8h\nacequia when --workers 2-8 -g 1\nacequia when 12 --workers 6",
    .options = {&when_options, &job_resource_options, &job_control_options, &cli_common_options},
    .run = run_when,
    .most = -1,
};

static int run_replay(struct cli *c) {
    struct reply reply;
    cleanup_buf struct buf out = {0};
    int status = client_get(c, "/v1/replay", &reply);
    if (status != CLI_OK)
        return status;
    long long different = (long long)json_i64(reply.json, "different", 0);
    if (c->json) {
        buf_addf(&out, "%s\n", reply.text);
        status = cli_print(&out);
        return different ? CLI_FAILED : status;
    }
    buf_addf(&out, "Replayed %lld events: %lld decisions, %lld starts, %lld preemptions\n",
             (long long)json_i64(reply.json, "events", 0), (long long)json_i64(reply.json, "passes", 0),
             (long long)json_i64(reply.json, "starts", 0), (long long)json_i64(reply.json, "preemptions", 0));
    if (different)
        buf_addf(&out, "%lld decisions differ\n", different);
    else
        buf_adds(&out, "All decisions are the same\n");
    const struct json *list = json_get(reply.json, "differences");
    for (uint32_t i = 0; list && list->type == JSON_ARRAY && i < list->len; i++) {
        const struct json *d = &list->items[i];
        const char *recorded = json_str(d, "recorded"), *now = json_str(d, "now");
        char time[UNIT_TEXT_MAX];
        buf_addf(&out, "\n%s, event %lld\n  then  %s\n  now   %s\n",
                 local_time_format(json_i64(d, "at_ms", 0), time), (long long)json_i64(d, "seq", 0),
                 str_empty(recorded) ? "nothing" : recorded, str_empty(now) ? "nothing" : now);
    }
    status = cli_print(&out);
    return different ? CLI_FAILED : status;
}

const struct verb verb_replay = {
    .name = "replay",
    .group = "Sharing",
    .summary = "replay recorded scheduling decisions and show differences",
    .text = "Feeds the recorded events since the oldest snapshot to the scheduler of this version. The "
            "exit status is 1 when a decision "
            "differs.",
    .examples = "acequia replay\nacequia replay --json",
    .options = {&cli_common_options},
    .run = run_replay,
};
