// acequia exec, acequia bash
#include <stdlib.h>
#include <unistd.h>

#include "base/text.h"
#include "cli/client/session.h"
#include "cli/job/resolve.h"
#include "verbs.h"

static const struct option_spec specs[] = {
    {"pty", 't', NULL, "Allocate a terminal.", 0, NULL, NULL},
    {"node", 'w', "NUMBER", "On the job's node with this number, from 0.", 0, NULL, NULL},
    {"chdir", 'D', "FOLDER", "Working directory; default: the job's.", 0, NULL, NULL},
    {"env", 'E', "NAME=VALUE", "Set an environment variable.", OPTION_REPEAT, NULL, NULL},
    {"no-input", 0, NULL, "Do not forward standard input.", 0, NULL, NULL},
};
static const struct option_table table = OPTION_TABLE("Options", specs);

static void write_environment(struct cli *c, bool pty, struct json_writer *w) {
    uint32_t it = 0;
    const char *item, *term = getenv("TERM");
    json_open_key(w, "environment", '[');
    if (pty && term)
        json_put_str(w, arena_printf(&c->arena, "TERM=%s", term));
    while ((item = option_next(&c->options, "env", &it)))
        json_put_str(w, item);
    json_close(w, ']');
}

static int session(struct cli *c, char **argv, int argc, bool pty) {
    cleanup_buf struct buf first = {0}, target = {0};
    struct json_writer w = {.out = &first};
    char key[SESSION_KEY_MAX];
    uint32_t node = 0;
    if (option_u32(&c->options, "node", 0, 65535, &node, &c->error) < 0)
        return cli_usage(c, "%s", arena_strdup(&c->arena, c->error.text));
    json_open(&w, '{');
    json_open_key(&w, "argv", '[');
    for (int i = 0; i < argc; i++)
        json_put_str(&w, argv[i]);
    json_close(&w, ']');
    write_environment(c, pty, &w);
    if (option_get(&c->options, "chdir"))
        json_kv_str(&w, "workdir", option_get(&c->options, "chdir"));
    if (pty) {
        json_kv_bool(&w, "pty", true);
        client_session_json_terminal(&w);
    }
    json_kv_i64(&w, "node", node);
    if (client_session_key(key) == 0)
        json_kv_str(&w, "key", key);
    json_close(&w, '}');
    buf_adds(&target, "/v1/jobs/");
    http_percent_encode(&target, c->arguments[0]);
    buf_adds(&target, "/exec");
    struct client_session s = {.cli = c,
                               .kind = SESSION_EXEC,
                               .target = buf_str(&target),
                               .first = &first,
                               .pty = pty,
                               .input = !option_given(&c->options, "no-input")};
    return client_session_run(&s);
}

static int run_exec(struct cli *c) {
    int skip = c->count > 1 && streq(c->arguments[1], "--") ? 2 : 1;
    if (c->count <= skip)
        return cli_usage(c, "no command given; use: acequia exec JOB -- COMMAND, or acequia bash JOB for a shell");
    return session(c, c->arguments + skip, c->count - skip, option_given(&c->options, "pty"));
}

static int run_bash(struct cli *c) {
    return session(c, NULL, 0, isatty(STDIN_FILENO) || option_given(&c->options, "pty"));
}

const struct verb verb_exec = {
    .name = "exec",
    .group = "Work",
    .arguments = "[options] JOB [--] COMMAND [arguments...]",
    .summary = "run a command inside a running job's limits",
    .text = "The exit status is the command's; 127: there is no such command, 126: it may not be executed. A "
            "lost "
            "connection is made again, and nothing of the output is missed; a command whose client does not "
            "come back "
            "within a minute is ended.",
    .examples = "acequia exec 12 -- nvidia-smi\nacequia exec -t 12 -- top",
    .options = {&table, &job_pick_options, &cli_common_options},
    .run = run_exec,
    .stop = true,
    .complete = "@job",
    .least = 1,
    .most = -1,
    .jobs = VERB_JOB_FIRST,
    .live_jobs = true,
};

const struct verb verb_bash = {
    .name = "bash",
    .alias = "shell",
    .group = "Work",
    .arguments = "[options] JOB",
    .summary = "open a shell inside a running job's limits",
    .examples = "acequia bash 12",
    .options = {&table, &job_pick_options, &cli_common_options},
    .run = run_bash,
    .complete = "@job",
    .least = 1,
    .most = 1,
    .jobs = VERB_JOB_FIRST,
    .live_jobs = true,
};
