// acequia trace
#include <errno.h>

#include "base/clock.h"
#include "base/text.h"
#include "cli/client/client.h"
#include "cli/term/local_time.h"
#include "verbs.h"

static const struct option_spec specs[] = {
    {"nodes", 0, NULL, "Print the nodes instead of the jobs.", 0, NULL, NULL},
    {"since", 0, "TIME", "Jobs that ended since then.", 0, NULL, NULL},
    {"until", 0, "TIME", "Jobs that ended until then.", 0, NULL, NULL},
};
static const struct option_table table = OPTION_TABLE("Options", specs);

static int add_time(struct cli *c, struct query *q, const char *option, const char *key) {
    const char *text = option_get(&c->options, option);
    int64_t at_ms;
    if (!text)
        return 0;
    int r = local_time_parse(text, clock_wall_ms(), TIME_TODAY, &at_ms, &c->error);
    if (r == 0)
        client_query_addf(q, key, "%lld", (long long)at_ms);
    else
        error_prefix(&c->error, "--%s", option);
    return r;
}

static int run(struct cli *c) {
    cleanup_query struct query q = {0};
    struct client *k;
    client_query_begin(&q, "/v1/trace");
    client_query_add(&q, "nodes", option_given(&c->options, "nodes") ? "1" : NULL);
    if (add_time(c, &q, "since", "since_ms") < 0 || add_time(c, &q, "until", "until_ms") < 0)
        return cli_usage(c, "%s", arena_strdup(&c->arena, c->error.text));
    if (client_open(c, &k) < 0)
        return cli_fail(c);
    int r = client_stream(k, buf_str(&q.text), -1, client_to_output, NULL);
    client_free(k);
    return r < 0 && r != -EPIPE ? cli_fail(c) : CLI_OK;
}

const struct verb verb_trace = {
    .name = "trace",
    .group = "Sharing",
    .arguments = "[options]",
    .summary = "print this cluster's finished jobs as a trace for sim",
    .text = "The format is CSV. Use it to try a policy on this cluster's own history before setting it.",
    .examples = "acequia trace > jobs.csv\nacequia trace --nodes > nodes.csv\nacequia sim jobs.csv --nodes "
                "nodes.csv --policy default --policy easy",
    .options = {&table, &cli_common_options},
    .run = run,
};
