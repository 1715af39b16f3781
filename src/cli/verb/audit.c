// acequia audit
#include "base/clock.h"
#include "base/text.h"
#include "cli/client/client.h"
#include "cli/term/local_time.h"
#include "cli/term/table.h"
#include "cli/term/terminal.h"
#include "verbs.h"

static const struct option_spec specs[] = {
    {"since", 0, "TIME", "Records since then.", 0, NULL, NULL},
    {"user", 'u', "USER", "Records of this user.", 0, NULL, NULL},
    {"limit", 'n', "N", "At most so many, the newest; 200 unless given.", 0, NULL, NULL},
};
static const struct option_table table = OPTION_TABLE("Options", specs);

static void add_row(struct text_table *t, const struct json *r) {
    char time[UNIT_TEXT_MAX];
    const char *who = json_str(r, "who"), *from = json_str(r, "from"), *on = json_str(r, "on");
    local_time_format(json_i64(r, "at_ms", 0), time);
    table_addf(t, "%s", time);
    table_addf(t, "%s", who ? who : "-");
    table_addf(t, "%s", from ? from : "-");
    table_addf(t, "%lld", (long long)json_i64(r, "status", 0));
    table_addf(t, "%s%s%s", json_str(r, "what") ? json_str(r, "what") : "", on ? "  " : "", on ? on : "");
}

static const struct table_column columns[] = {
    {.title = "TIME"},
    {.title = "WHO"},
    {.title = "FROM"},
    {.title = "STATUS", .right = true},
    {.title = "WHAT", .shrink = 1, .least = 20},
};

static void print_rows(struct cli *c, const struct json *list, struct buf *out) {
    struct text_table t;
    table_init(&t, &c->arena, columns, sizeof columns / sizeof *columns);
    for (uint32_t i = list->len; i > 0; i--)  // the newest at the end, as in a file
        add_row(&t, &list->items[i - 1]);
    table_print(&t, 0, true, false, out);
    table_done(&t);
}

static int run(struct cli *c) {
    cleanup_query struct query q = {0};
    cleanup_buf struct buf out = {0};
    struct reply reply;
    const char *since = option_get(&c->options, "since");
    int64_t at_ms;
    client_query_begin(&q, "/v1/audit");
    if (since) {
        if (local_time_parse(since, clock_wall_ms(), TIME_TODAY, &at_ms, &c->error) < 0)
            return cli_usage(c, "--since: %s", arena_strdup(&c->arena, c->error.text));
        client_query_addf(&q, "since_ms", "%lld", (long long)at_ms);
    }
    client_query_add(&q, "user", option_get(&c->options, "user"));
    client_query_add(&q, "limit", option_get(&c->options, "limit"));
    int status = client_get(c, buf_str(&q.text), &reply);
    if (status != CLI_OK)
        return status;
    const struct json *list = json_get(reply.json, "records");
    if (c->json)
        buf_addf(&out, "%s\n", reply.text);
    else if (list && list->type == JSON_ARRAY)
        print_rows(c, list, &out);
    return cli_print(&out);
}

const struct verb verb_audit = {
    .name = "audit",
    .group = "Cluster",
    .arguments = "[options]",
    .summary = "show who did what, from where, with which result",
    .text =
        "For administrators. Recorded are logins with tokens, requests that were denied, tokens that were "
        "made or "
        "revoked, nodes that joined, what administrators changed, and what they read of other users' jobs. "
        "The "
        "status is that of the answer: 200 done, 401 not authenticated, 403 not allowed, 499 the client left "
        "before its answer. Records are kept as long as the history, the newest 200,000 or so.",
    .examples = "acequia audit\nacequia audit --since 8:00 --user alice",
    .options = {&table, &cli_common_options},
    .run = run,
};
