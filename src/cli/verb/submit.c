// acequia submit
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "base/text.h"
#include "cli/client/client.h"
#include "cli/job/defaults.h"
#include "cli/job/options.h"
#include "cli/job/saved.h"
#include "cli/client/job_wait.h"
#include "verbs.h"
#include "model/name.h"
#include "model/pattern.h"

static const struct option_spec specs[] = {
    {"key", 0, "TEXT", "Idempotency key: submitting again with the same key returns the same job.", 0, NULL, NULL},
    {"dry-run", 0, NULL, "Only check whether the job would be accepted.", 0, "test-only", NULL},
    {"wait", 'W', NULL, "Wait until it has ended; the exit status is the job's.", 0, NULL, NULL},
    {"upload", 0, "FOLDER",
     "Send a folder with the job, which begins in it, read-only; without what .gitignore or .acequiaignore names.", 0,
     NULL, NULL},
    {"requirements", 0, "FILE", "Install these Python packages for the job, once on each node.", 0, NULL, NULL},
    JOB_TEMPLATE_OPTION,
    {"quiet", 'Q', NULL, "Print only the id.", 0, "parsable", NULL},
};
static const struct option_table table = OPTION_TABLE("Submitting", specs);

static int report(struct cli *c, const struct reply *reply, const struct spec *s) {
    cleanup_buf struct buf out = {0};
    int64_t id = json_i64(reply->json, "id", 0), count = json_i64(reply->json, "count", 1);
    if (c->json)
        buf_addf(&out, "%s\n", reply->text);
    else if (option_given(&c->options, "dry-run"))
        buf_addf(&out, "Check passed: job '%s' would be accepted\n", s->name);
    else if (option_given(&c->options, "quiet"))
        buf_addf(&out, "%lld\n", (long long)id);
    else if (count > 1)
        buf_addf(&out, "Submitted job %lld, %lld elements\n", (long long)id, (long long)count);
    else
        buf_addf(&out, "%s job %lld\n",
                 json_true(reply->json, "repeated") ? "Already submitted:" : "Submitted", (long long)id);
    return cli_print(&out);
}

// Script or command of the command line; without one, those of the template.
static int read_source(struct cli *c, const struct job_saved *template, struct spec *s,
                       struct job_source *out) {
    bool dashes = job_dashes(c);
    if (c->count || dashes || !template->found || (!template->script && !template->spec.argv.len)) {
        int r = job_source(c, &c->options, dashes, out);
        if (r == 0 && !out->script)
            job_note_shell(out->argv, out->argc);
        return r;
    }
    *out = (struct job_source){.script = template->script,
                               .script_len = template->script ? strlen(template->script) : 0,
                               .name = option_get(&c->options, "template")};
    return 0;
}

int verb_read_job(struct cli *c, struct spec *s, struct job_source *source) {
    struct job_saved template = {0};
    if (option_known(&c->options, "template") && job_saved_wanted(c, &c->options, &template) < 0)
        return cli_fail(c);
    if (read_source(c, &template, s, source) < 0 || job_saved_spec(c, &c->options, &template, s) < 0)
        return cli_usage(c, "%s", arena_strdup(&c->arena, c->error.text));
    if (option_given(&c->options, "workers") && !s->workers_min)
        return cli_usage(c, "--workers: a job has at least one worker; give a number from 1, such as 1-8");
    if (!s->name)
        s->name = job_name_check(source->name, NULL) == 0 ? source->name : "job";
    if (source->argv || source->script) {
        s->argv.at = arena_memdup(&c->arena, source->argv, (size_t)source->argc * sizeof *source->argv);
        s->argv.len = (uint32_t)source->argc;
    }
    if (source->shown)
        s->command_text = source->shown;
    return CLI_OK;
}

int verb_job_of_words(struct cli *c, int argc, char **argv, struct spec *s, struct job_environment *environment) {
    static const struct option_table *const tables[] = {&job_resource_options, &job_control_options,
                                                        &cli_common_options, NULL};
    struct cli_options o = {0};
    int r = options_parse(tables, argc, argv, false, &o, &c->error);
    if (r >= 0 && s)
        r = job_spec(c, &o, s);
    if (r >= 0 && environment)
        r = job_environment(c, &o, environment);
    options_done(&o);
    return r;
}

void verb_complete_job(struct spec *s) {
    if (!s->output)
        s->output = s->workers_max || s->components.len ? PATTERN_DEFAULT_WORKER
                    : s->array.len                      ? PATTERN_DEFAULT_ARRAY
                                                        : PATTERN_DEFAULT;
    job_umask(s);
}

static int run(struct cli *c) {
    struct spec s;
    struct job_source source;
    struct job_environment environment;
    struct reply reply;
    cleanup_buf struct buf body = {0};
    int read = verb_read_job(c, &s, &source);
    if (read != CLI_OK)
        return read;
    if (job_environment(c, &c->options, &environment) < 0)
        return cli_usage(c, "%s", arena_strdup(&c->arena, c->error.text));
    job_environment_python(c, &source, &environment);
    verb_complete_job(&s);
    if (verb_upload(c, &source) < 0)
        return cli_usage(c, "%s", arena_strdup(&c->arena, c->error.text));
    struct job_request q = {&s,
                            &source,
                            &environment,
                            option_get(&c->options, "key"),
                            option_given(&c->options, "dry-run")};
    job_request_write(&q, &body);
    struct client *k;
    if (client_open(c, &k) < 0)
        return cli_fail(c);
    int status = client_call(k, "POST", "/v1/jobs", &body, &reply) < 0 ? cli_fail(c) : report(c, &reply, &s);
    if (status == CLI_OK && option_given(&c->options, "wait") && !q.dry_run)
        status = client_job_wait(
            c, k, arena_printf(&c->arena, "%lld", (long long)json_i64(reply.json, "id", 0)), -1, false);
    client_free(k);
    return status;
}

const struct verb verb_submit = {
    .name = "submit",
    .group = "Work",
    .arguments = "[options] SCRIPT [arguments...]\n[options] -- COMMAND [arguments...]\n[options] < SCRIPT",
    .summary = "queue a job",
    .text = "The script is copied at submit; it may change or be deleted afterwards. Lines \"#ACEQUIA "
            "--option value\" at its "
            "beginning give options; those of the command line take precedence. Output goes to "
            "acequia-JOB.out in the working directory. A Python script finds modules in its own folder; "
            "without a #! line it is "
            "run with python3.",
    .examples = "acequia submit -g 2 -m 64G -t 8h train.sh --epochs 90\n"
                "acequia submit -J hello -- python3 -c 'print(1)'\n"
                "acequia submit -a 0-99%10 -o 'out-%A_%a.txt' sweep.sh\n"
                "acequia submit -d afterok:12 report.sh\n"
                "acequia submit --component 'head: -c 4' --component 'gpu: -g 1' job.sh",
    .options = {&table, &job_resource_options, &job_control_options, &cli_common_options},
    .run = run,
    .stop = true,
    .complete = "@file",
    .most = -1,
};
