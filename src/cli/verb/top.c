// acequia top
#include <unistd.h>

#include "base/clock.h"
#include "base/text.h"
#include "cluster_status.h"
#include "cli/job/columns.h"
#include "cli/job/rows.h"
#include "cli/term/screen.h"
#include "cli/term/terminal.h"
#include "verbs.h"

enum { EVERY_MS = 1000, ROWS_MAX = 500 };

static const struct option_spec specs[] = {
    {"once", '1', NULL, "Print once and exit.", 0, NULL, NULL},
    {"sort", 'S', "NAMES", "Sort by these columns, as for list.", 0, NULL, NULL},
};
static const struct option_table table = OPTION_TABLE("Options", specs);

static const char *running_first(const char *sort) {
    return sort ? sort : "-state,-time";
}

static int draw_jobs(struct cli *c, struct client *k, int width, struct buf *out) {
    struct job_columns columns;
    struct job_rows rows = {0};
    struct text_table t;
    cleanup_buf struct buf fields = {0};
    cleanup_query struct query q = {0};
    int r = job_columns_parse("id,name,user,project,state,time,cpus,memory,gpus,gpu_use,where", &columns, &c->error);
    job_columns_fields(&columns, &fields);
    query_begin(&q, "/v1/jobs");
    buf_adds(&fields, ",id," JOB_FOLD_FIELDS);
    query_add(&q, "fields", buf_str(&fields));
    query_add(&q, "compact", "1");
    query_addf(&q, "limit", "%d", ROWS_MAX);
    r = r < 0 ? r : job_list_fetch(c, k, buf_str(&q.text), ROWS_MAX, &rows);
    r = r < 0 ? r : job_rows_sort(&rows, running_first(option_get(&c->options, "sort")), &c->error);
    if (r == 0) {
        job_rows_fold(&rows, &c->arena);
        job_columns_bind(&columns, &rows);
        table_init(&t, &c->arena, columns.titles, columns.count);
        for (uint32_t i = 0; i < rows.rows.len; i++)
            job_columns_add(&columns, &c->arena, rows.rows.at[i], clock_wall_ms(), &t);
        table_print(&t, width, true, terminal_colour(), out);
        table_done(&t);
    }
    vec_done(&rows.rows);
    return r;
}

static int draw(struct cli *c, struct client *k, int width, struct buf *out) {
    struct reply status, nodes;
    int r = client_call(k, "GET", "/v1/status", NULL, &status);
    r = r < 0 ? r : client_call(k, "GET", "/v1/nodes", NULL, &nodes);
    if (r < 0)
        return r;
    cluster_status_lines(c, status.json, json_get(nodes.json, "nodes"), out);
    buf_addc(out, '\n');
    return draw_jobs(c, k, width, out);
}

static int once(struct cli *c, struct client *k) {
    cleanup_buf struct buf out = {0};
    if (c->json) {
        struct reply status, jobs;
        if (client_call(k, "GET", "/v1/status", NULL, &status) < 0 ||
            client_call(k, "GET", "/v1/jobs?limit=500", NULL, &jobs) < 0)
            return cli_fail(c);
        buf_addf(&out, "{\"status\":%s,\"jobs\":%s}\n", status.text, jobs.text);
        return cli_print(&out);
    }
    return draw(c, k, terminal_table_width(), &out) < 0 ? cli_fail(c) : cli_print(&out);
}

struct top {
    struct cli *cli;
    struct client *client;
};

static int draw_screen(void *arg, struct buf *out) {
    struct top *t = arg;
    int r = draw(t->cli, t->client, terminal_width(), out);
    arena_done(&t->cli->arena);
    return r;
}

static int run(struct cli *c) {
    struct client *k;
    if (client_open(c, &k) < 0)
        return cli_fail(c);
    bool screen = isatty(STDIN_FILENO) && isatty(STDOUT_FILENO) && !c->json && !option_given(&c->options, "once");
    int status;
    c->no_wait = screen;  // the screen shows that the controller is away, and tries again
    if (!screen)
        status = once(c, k);
    else
        status = screen_watch(&c->error, EVERY_MS, draw_screen, &(struct top){c, k}) < 0 ? cli_fail(c) : CLI_OK;
    client_free(k);
    return status;
}

const struct verb verb_top = {
    .name = "top",
    .group = "Cluster",
    .arguments = "[options]",
    .summary = "watch the cluster, refreshed each second",
    .text = "Running jobs come first. q quits. If the controller restarts, top waits for it.",
    .examples = "acequia top\nacequia top --once\nacequia top --sort -gpus",
    .options = {&table, &common_options},
    .run = run,
};
