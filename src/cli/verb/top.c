// acequia top
#include <stdlib.h>
#include <unistd.h>

#include "base/alloc.h"
#include "base/clock.h"
#include "base/map.h"
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

// What a job had used when its figures changed last, and the rate between the two last changes.
struct seen {
    int64_t cpu_ms, elapsed_ms, used_ms, during_ms;
};

// Agents report use every few seconds: the CPU use shown is that between the last two reports, which replace the sums
// since the job's start in the row.
static void use_of_late(struct map *all, struct job_rows *rows, struct arena *a) {
    int id = job_rows_field(rows, "id"), cpu = job_rows_field(rows, "cpu_ms"),
        elapsed = job_rows_field(rows, "elapsed_ms"), cpus = job_rows_field(rows, "cpus");
    for (uint32_t i = 0; cpu >= 0 && elapsed >= 0 && i < rows->rows.len; i++) {
        struct json *row = arena_memdup(a, rows->rows.at[i], sizeof *row);
        int64_t number = job_rows_number(row, id), used = job_rows_number(row, cpu),
                time = job_rows_number(row, elapsed);
        struct seen *s = number > 0 && used ? map_get(all, (uint64_t)number) : NULL;
        if (number > 0 && used && !s) {
            s = xcalloc(1, sizeof *s);
            *s = (struct seen){.cpu_ms = used, .elapsed_ms = time};
            map_put(all, (uint64_t)number, s);
        } else if (s && used < s->cpu_ms) {  // another attempt
            *s = (struct seen){.cpu_ms = used, .elapsed_ms = time};
        } else if (s && used > s->cpu_ms) {
            *s = (struct seen){used, time, used - s->cpu_ms, time - s->elapsed_ms};
        }
        if (!s || s->during_ms <= 0)
            continue;
        row->items = arena_memdup(a, row->items, row->len * sizeof *row->items);
        // The time stays; the use is scaled so that use / time is the rate of late.
        // Reports and looks do not fall together, so that a short interval can seem to hold more than there was.
        int64_t could = time * job_rows_number(row, cpus),
                late = (int64_t)((double)s->used_ms / (double)s->during_ms * (double)time);
        row->items[cpu].i = could > 0 && late > could ? could : late;
        rows->rows.at[i] = row;
    }
}

static int draw_jobs(struct cli *c, struct client *k, struct map *seen, int width, struct buf *out) {
    struct job_columns columns;
    struct job_rows rows = {0};
    struct text_table t;
    cleanup_buf struct buf fields = {0};
    cleanup_query struct query q = {0};
    bool tight = width && width < TERMINAL_WIDE, narrow = width && width < TERMINAL_NARROW;
    int r = job_columns_parse(
        narrow  ? "id,name,state,time,cpu_use,memory_now,gpu_use"
        : tight ? "id,name,user,state,time,cpu_use,memory_now,gpus,gpu_use"
                : "id,name,user,project,state,progress,time,cpus,cpu_use,memory_now,gpus,gpu_use,where",
        &columns, &c->error);
    job_columns_fields(&columns, &fields);
    client_query_begin(&q, "/v1/jobs");
    buf_adds(&fields, ",id," JOB_FOLD_FIELDS);
    client_query_add(&q, "fields", buf_str(&fields));
    client_query_add(&q, "compact", "1");
    client_query_addf(&q, "limit", "%d", ROWS_MAX);
    r = r < 0 ? r : job_list_fetch(c, k, buf_str(&q.text), ROWS_MAX, &rows);
    r = r < 0 ? r : job_rows_sort(&rows, running_first(option_get(&c->options, "sort")), &c->error);
    if (r == 0 && seen)
        use_of_late(seen, &rows, &c->arena);
    if (r == 0) {
        job_rows_fold(&rows, tight, &c->arena);
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

static int draw(struct cli *c, struct client *k, struct map *seen, int width, struct buf *out) {
    struct reply status, nodes;
    int r = client_call(k, "GET", "/v1/status", NULL, &status);
    r = r < 0 ? r : client_call(k, "GET", "/v1/nodes", NULL, &nodes);
    if (r < 0)
        return r;
    verb_cluster_status_lines(c, status.json, json_get(nodes.json, "nodes"), out);
    buf_addc(out, '\n');
    return draw_jobs(c, k, seen, width, out);
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
    return draw(c, k, NULL, terminal_table_width(), &out) < 0 ? cli_fail(c) : cli_print(&out);
}

struct top {
    struct cli *cli;
    struct client *client;
    struct map seen;  // job → struct seen
};

static int draw_screen(void *arg, struct buf *out) {
    struct top *t = arg;
    int r = draw(t->cli, t->client, &t->seen, terminal_width(), out);
    arena_done(&t->cli->arena);
    return r;
}

static int run(struct cli *c) {
    struct client *k;
    if (client_open(c, &k) < 0)
        return cli_fail(c);
    struct top t = {.cli = c, .client = k};
    bool screen = isatty(STDIN_FILENO) && isatty(STDOUT_FILENO) && !c->json && !option_given(&c->options, "once");
    int status;
    c->no_wait = screen;  // the screen shows that the controller is away, and tries again
    if (!screen)
        status = once(c, k);
    else
        status = screen_watch(&c->error, EVERY_MS, draw_screen, &t) < 0 ? cli_fail(c) : CLI_OK;
    size_t it = 0;
    uint64_t id;
    void *seen;
    while (map_next(&t.seen, &it, &id, &seen))
        free(seen);
    map_done(&t.seen);
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
    .options = {&table, &cli_common_options},
    .run = run,
};
