// acequia resubmit
#include "base/text.h"
#include "cli/job/options.h"
#include "cli/job/resubmit.h"
#include "verbs.h"

static const struct option_spec specs[] = {
    {"failed", 'f', NULL, "Of an array: only the elements that did not complete.", 0, NULL, NULL},
    {"dry-run", 0, NULL, "Only check whether the job would be accepted.", 0, NULL, NULL},
    {"quiet", 'Q', NULL, "Print only the id.", 0, NULL, NULL},
};
static const struct option_table table = OPTION_TABLE("Resubmitting", specs);

static void report(struct cli *c, const char *job, const struct reply *reply, struct buf *out) {
    int64_t id = json_i64(reply->json, "id", 0), count = json_i64(reply->json, "count", 1);
    if (c->json)
        buf_addf(out, "%s\n", reply->text);
    else if (option_given(&c->options, "dry-run"))
        buf_addf(out, "Check passed: job %s would be accepted again\n", job);
    else if (option_given(&c->options, "quiet"))
        buf_addf(out, "%lld\n", (long long)id);
    else if (count > 1)
        buf_addf(out, "Submitted job %lld, %lld elements, from job %s\n", (long long)id, (long long)count, job);
    else
        buf_addf(out, "Submitted job %lld from job %s\n", (long long)id, job);
}

static bool came_before(const struct cli *c, int i) {
    for (int k = 0; k < i; k++)
        if (streq(c->arguments[k], c->arguments[i]))
            return true;
    return false;
}

static int run(struct cli *c) {
    cleanup_buf struct buf out = {0};
    struct spec change;
    struct client *k;
    if (job_spec(c, &c->options, &change) < 0)
        return cli_usage(c, "%s", arena_strdup(&c->arena, c->error.text));
    if (!option_given(&c->options, "chdir"))
        change.workdir = NULL;
    if (client_open(c, &k) < 0)
        return cli_fail(c);
    int status = CLI_OK;
    for (int i = 0; i < c->count; i++) {
        struct job_resubmit q = {.id = c->arguments[i],
                                 .change = &change,
                                 .failed = option_given(&c->options, "failed"),
                                 .dry_run = option_given(&c->options, "dry-run")};
        struct reply reply;
        if (came_before(c, i))
            continue;
        if (job_resubmit(c, k, &q, &reply) < 0)
            status = cli_fail(c);
        else
            report(c, c->arguments[i], &reply, &out);
    }
    client_free(k);
    int printed = cli_print(&out);
    return status ? status : printed;
}

const struct verb verb_resubmit = {
    .name = "resubmit",
    .group = "Work",
    .arguments = "[options] JOB...",
    .summary = "submit jobs again, with changes",
    .text = "The new job has the script, environment and options of the old one, which may have ended; "
            "options given "
            "here replace them. Dependencies and times in the past are dropped. For an element of an array, "
            "only that "
            "element is submitted.",
    .examples =
        "acequia resubmit 12\nacequia resubmit 12 --memory 64G --time 8h\nacequia resubmit --failed 15",
    .options = {&table, &job_resource_options, &job_control_options, &cli_common_options},
    .run = run,
    .complete = "@job",
    .least = 1,
    .most = -1,
    .jobs = VERB_JOBS,
};
