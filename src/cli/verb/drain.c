// acequia drain, acequia resume
#include <errno.h>

#include "base/json.h"
#include "base/text.h"
#include "cli/client/client.h"
#include "verbs.h"
#include "model/name.h"
#include "model/nodelist.h"

static const struct option_spec specs[] = {
    {"reason", 'r', "TEXT", "Reason, shown by acequia nodes.", 0, NULL, NULL},
};
static const struct option_table table = OPTION_TABLE("Options", specs);

static int each_node(struct cli *c, const char *action, const struct buf *body, const char *done) {
    struct name_list names;
    struct client *k;
    cleanup_buf struct buf out = {0};
    int status = CLI_OK;
    if (client_open(c, &k) < 0)
        return cli_fail(c);
    for (int i = 0; i < c->count; i++) {
        if (nodelist_expand(c->arguments[i], &c->arena, &names, &c->error) < 0) {
            status = cli_fail(c);
            continue;
        }
        for (uint32_t n = 0; n < names.len; n++) {
            struct reply reply;
            const char *target = arena_printf(&c->arena, "/v1/nodes/%s/%s", names.at[n], action);
            if (client_call(k, "POST", target, body, &reply) < 0) {
                uint64_t job;
                bool number = c->error.code == ENOENT && parse_u64(names.at[n], &job) == 0;
                status = cli_fail(c);
                if (number && streq(action, "resume"))
                    cli_note("to let a suspended job go on: acequia continue %s", names.at[n]);
            } else if (c->json)
                buf_addf(&out, "%s\n", reply.text);
            else if (!json_true(reply.json, "done"))
                cli_note("%s was not drained", names.at[n]);
            else
                buf_addf(&out, "%s %s\n", names.at[n], done);
        }
    }
    client_free(k);
    cli_print(&out);
    return status;
}

static int run_drain(struct cli *c) {
    cleanup_buf struct buf body = {0};
    struct json_writer w = {.out = &body};
    const char *reason = option_get(&c->options, "reason");
    if (str_empty(reason))
        return cli_usage(c, "drain needs a reason: --reason \"replacing a fan\"");
    if (name_line_check("--reason", reason, COMMENT_MAX, &c->error) < 0)
        return cli_usage(c, "%s", arena_strdup(&c->arena, c->error.text));
    json_open(&w, '{');
    json_kv_str(&w, "reason", reason);
    json_close(&w, '}');
    return each_node(c, "drain", &body, "drained: no new jobs start, running jobs continue");
}

static int run_resume(struct cli *c) {
    cleanup_buf struct buf body = {0};
    buf_adds(&body, "{}");
    return each_node(c, "resume", &body, "resumed: jobs can start again");
}

const struct verb verb_drain = {
    .name = "drain",
    .group = "Cluster",
    .arguments = "NODES... --reason TEXT",
    .summary = "drain nodes: running jobs finish, no new ones start",
    .examples = "acequia drain n[01-04] --reason 'new disks'",
    .options = {&table, &cli_common_options},
    .run = run_drain,
    .complete = "@node",
    .least = 1,
    .most = -1,
};

const struct verb verb_resume = {
    .name = "resume",
    .group = "Cluster",
    .arguments = "NODES...",
    .summary = "let jobs start again on drained nodes",
    .text = "A node that was not drained is reported and is no error. To resume suspended jobs, use acequia continue.",
    .examples = "acequia resume n[01-04]",
    .options = {&cli_common_options},
    .run = run_resume,
    .complete = "@node",
    .least = 1,
    .most = -1,
};
