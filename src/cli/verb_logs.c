// acequia logs
#include <errno.h>
#include <stdio.h>

#include "base/text.h"
#include "cli/client.h"
#include "cli/verbs.h"

static const struct option_spec specs[] = {
    {"follow", 'f', NULL, "Go on until the job has ended.", 0, NULL, NULL},
    {"tail", 'n', "LINES", "Begin with the last lines.", 0, "lines", NULL},
    {"error", 'e', NULL, "Standard error, where it has a file of its own.", 0, "stderr", NULL},
    {"node", 'w', "NUMBER", "Of the job's node with this number, from 0.", 0, NULL, NULL},
};
static const struct option_table table = OPTION_TABLE("Options", specs);

static int run(struct cli *c) {
    cleanup_query struct query q = {0};
    cleanup_buf struct buf path = {0};
    uint32_t tail = 0, node = 0;
    if (option_u32(&c->options, "tail", 0, 1000000000, &tail, &c->error) < 0 ||
        option_u32(&c->options, "node", 0, 65535, &node, &c->error) < 0)
        return cli_usage(c, "%s", arena_strdup(&c->arena, c->error.text));
    buf_adds(&path, "/v1/jobs/");
    http_percent_encode(&path, c->arguments[0]);
    buf_adds(&path, "/logs");
    query_begin(&q, buf_str(&path));
    query_add(&q, "follow", option_given(&c->options, "follow") ? "1" : NULL);
    if (option_given(&c->options, "tail"))
        query_addf(&q, "tail", "%u", tail);
    query_add(&q, "source", option_given(&c->options, "error") ? "error" : NULL);
    query_add(&q, "node", option_get(&c->options, "node"));
    struct client *k;
    if (client_open(c, &k) < 0)
        return cli_fail(c);
    int r = client_stream(k, buf_str(&q.text), -1, client_to_output, NULL);
    client_free(k);
    if (r == -EPIPE)
        return CLI_OK;
    return r < 0 ? cli_fail(c) : CLI_OK;
}

const struct verb verb_logs = {
    .name = "logs",
    .group = "Work",
    .arguments = "[options] JOB",
    .summary = "print what a job has written",
    .examples = "acequia logs -f 12\nacequia logs --tail 20 12_3",
    .options = {&table, &common_options},
    .run = run,
    .complete = "@job",
    .least = 1,
    .most = 1,
};
