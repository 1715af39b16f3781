// acequia run, acequia attach
#include <unistd.h>

#include "base/text.h"
#include "cli/job/defaults.h"
#include "cli/job/options.h"
#include "cli/job/saved.h"
#include "cli/client/session.h"
#include "cli/term/terminal.h"
#include "cli/job/resolve.h"
#include "verbs.h"
#include "model/name.h"

static const struct option_spec specs[] = {
    {"pty", 0, NULL, "Allocate a terminal, for interactive programs.", 0, NULL, NULL},
    {"no-input", 0, NULL, "Do not forward standard input.", 0, NULL, NULL},
};
static const struct option_table table = OPTION_TABLE("Running", specs);
static const struct option_spec template_specs[] = {JOB_TEMPLATE_OPTION};
static const struct option_table templates = OPTION_TABLE("Where it begins from", template_specs);

// What says where a job without a terminal writes: here its output is shown.
static const char *file_option(const struct cli_options *o) {
    static const char *const names[] = {"output", "error", "append", "truncate"};
    for (size_t i = 0; i < sizeof names / sizeof *names; i++)
        if (option_given(o, names[i]))
            return names[i];
    return NULL;
}

static const char *last_part(const char *path) {
    const char *name = path;
    for (const char *p = path; *p; p++)
        if (*p == '/' && p[1])
            name = p + 1;
    return name;
}

int verb_run_attached(struct cli *c, struct spec *s, const struct job_environment *environment) {
    cleanup_buf struct buf first = {0};
    char key[SESSION_KEY_MAX];
    const char *known = client_session_key(key) == 0 ? key : NULL;
    s->attach = true;
    job_umask(s);
    schema_give(&spec_schema, s, &s->requeue);
    job_request_write(&(struct job_request){.spec = s, .environment = environment, .key = known}, &first);
    struct client_session live = {.cli = c,
                                  .kind = SESSION_RUN,
                                  .target = "/v1/run?placed=1",
                                  .first = &first,
                                  .pty = s->pty,
                                  .input = s->stdin_open,
                                  .cancels = true};
    return client_session_run(&live);
}

static int run(struct cli *c) {
    struct spec s;
    struct job_environment environment;
    bool pty = option_given(&c->options, "pty");
    const char *image = option_get(&c->options, "container");
    if (!image)
        image = option_get(&c->options, "container-name");
    if (!c->count && !image)
        return cli_usage(c, "no command given; example: acequia run -- hostname");
    struct job_saved template;
    if (job_saved_wanted(c, &c->options, &template) < 0)
        return cli_fail(c);
    if (job_saved_spec(c, &c->options, &template, &s) < 0 ||
        job_environment(c, &c->options, &environment) < 0)
        return cli_usage(c, "%s", arena_strdup(&c->arena, c->error.text));
    if (file_option(&c->options))
        return cli_usage(c,
                         "--%s cannot be used with run, which shows the output here: redirect it with "
                         "> FILE, or use acequia submit",
                         file_option(&c->options));
    if (s.array.len || s.components.len || s.workers_max)
        return cli_usage(c, "--%s cannot be used with run; use acequia submit",
                         s.array.len        ? "array"
                         : s.components.len ? "component"
                                            : "workers");
    const char *name = last_part(c->count ? c->arguments[0] : image);
    job_python_command(c);
    if (!s.name)
        s.name = job_name_check(name, NULL) == 0 ? name : "job";
    cleanup_buf struct buf shown = {0};
    for (int i = 0; i < c->count && shown.len < 500; i++)
        buf_addf(&shown, "%s%s", i ? " " : "", c->arguments[i]);
    if (!str_has_control_chars(buf_str(&shown), shown.len) && str_utf8_valid(buf_str(&shown), shown.len) &&
        shown.len)
        s.command_text = buf_str(&shown);
    s.argv.at = arena_memdup(&c->arena, c->arguments, (size_t)c->count * sizeof *c->arguments);
    s.argv.len = (uint32_t)c->count;
    job_note_shell(c->arguments, c->count);
    s.pty = pty;
    if (pty) {
        int rows, columns;
        terminal_size(&rows, &columns);
        s.pty_rows = (uint32_t)rows;
        s.pty_columns = (uint32_t)columns;
    }
    s.stdin_open = !option_given(&c->options, "no-input");
    s.launch = s.tasks > 1 || s.nodes_min > 1 || s.tasks_per_node ? LAUNCH_TASKS : LAUNCH_BATCH;
    return verb_run_attached(c, &s, &environment);
}

static int attach(struct cli *c) {
    cleanup_buf struct buf target = {0};
    buf_adds(&target, "/v1/jobs/");
    http_percent_encode(&target, c->arguments[0]);
    buf_adds(&target, "/attach?placed=1");
    struct client_session live = {.cli = c,
                                  .kind = SESSION_ATTACH,
                                  .target = buf_str(&target),
                                  .input = !option_given(&c->options, "no-input"),
                                  .pty = option_given(&c->options, "pty")};
    return client_session_run(&live);
}

const struct verb verb_run = {
    .name = "run",
    .group = "Work",
    .arguments = "[options] [--] COMMAND [arguments...]",
    .summary = "run a command as a job and stay attached to it",
    .text = "Its output is printed here, standard input is forwarded, and the exit status is the command's. "
            "Ctrl-C cancels the job, a second Ctrl-C kills it. On several nodes the output of all is shown, "
            "line by line, input goes to all, "
            "and the exit status is the worst. A Python file (NAME.py) is run with python3, unless it can be "
            "executed by itself.",
    .examples = "acequia run -- hostname\nacequia run -g 1 --pty -- python3\nacequia run -n 4 -- sh -c 'echo "
                "task $ACEQUIA_PROCID'",
    .options = {&table, &templates, &job_resource_options, &job_control_options, &cli_common_options},
    .run = run,
    .stop = true,
    .most = -1,
};

const struct verb verb_attach = {
    .name = "attach",
    .group = "Work",
    .arguments = "[options] JOB",
    .summary = "attach to a job started by run",
    .text = "Its output is shown from the beginning. Ctrl-C is sent to the job.",
    .examples = "acequia attach 12",
    .options = {&table, &job_pick_options, &cli_common_options},
    .run = attach,
    .complete = "@job",
    .least = 1,
    .most = 1,
    .jobs = VERB_JOB_FIRST,
    .live_jobs = true,
};
