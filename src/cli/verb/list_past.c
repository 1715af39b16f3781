// acequia list --at TIME: the jobs that were live then, as the controller reads them out of its journal.
#include <errno.h>

#include "base/clock.h"
#include "base/text.h"
#include "cli/client/client.h"
#include "cli/term/local_time.h"
#include "cli/term/table.h"
#include "model/gpuspec.h"
#include "model/units.h"
#include "verbs.h"

static const char *text_of(const struct json *row, const char *field) {
    const char *text = json_str(row, field);
    return text ? text : "-";
}

static void add_row(struct cli *c, struct text_table *t, const struct json *row, int64_t at_ms) {
    char gpus[GPU_TEXT_MAX], time[UNIT_TEXT_MAX];
    int64_t start_ms = json_i64(row, "start_ms", 0);
    const char *where = json_str(row, "nodes");
    table_add(t, text_of(row, "label"), COLOUR_NONE);
    table_add(t, text_of(row, "name"), COLOUR_NONE);
    table_add(t, text_of(row, "user"), COLOUR_NONE);
    table_add(t, text_of(row, "project"), COLOUR_NONE);
    table_add(t, text_of(row, "state"), COLOUR_NONE);
    table_add(
        t, start_ms ? arena_strdup(&c->arena, duration_elapsed_format((at_ms - start_ms) / 1000, time)) : "-",
        COLOUR_NONE);
    table_add(t, arena_strdup(&c->arena, gpu_milli_format((uint64_t)json_i64(row, "gpus_milli", 0), gpus)),
              COLOUR_NONE);
    table_add(t, str_empty(where) ? text_of(row, "reason") : where, COLOUR_NONE);
}

static void print_past(struct cli *c, const struct json *past, int64_t at_ms, struct buf *out) {
    static const struct table_column columns[] = {
        {"JOB", false, 0, 0},   {"NAME", false, 5, 8}, {"USER", false, 4, 8}, {"PROJECT", false, 4, 8},
        {"STATE", false, 0, 0}, {"TIME", true, 0, 0},  {"GPUS", true, 0, 0},  {"WHERE", false, 5, 12}};
    const struct json *jobs = json_get(past, "jobs");
    struct text_table t;
    table_init(&t, &c->arena, columns, sizeof columns / sizeof *columns);
    for (uint32_t i = 0; jobs && jobs->type == JSON_ARRAY && i < jobs->len; i++)
        add_row(c, &t, &jobs->items[i], at_ms);
    table_print(&t, option_given(&c->options, "wide") ? 0 : terminal_table_width(),
                !option_given(&c->options, "no-heading"), terminal_colour(), out);
    table_done(&t);
    if (!json_true(past, "complete"))
        cli_note("there were more jobs than are shown");
}

int verb_list_past(struct cli *c) {
    static const char *const others[] = {"finished", "where", "state", "user", "me",   "project", "since",
                                         "until",    "watch", "sort",  "node", "name", "columns"};
    cleanup_query struct query q = {0};
    cleanup_buf struct buf out = {0};
    struct reply reply;
    int64_t at_ms;
    for (size_t i = 0; i < sizeof others / sizeof *others; i++)
        if (option_given(&c->options, others[i]))
            return cli_usage(c, "--at shows all live jobs of that time; it does not go with --%s", others[i]);
    if (c->count)
        return cli_usage(c, "--at shows all live jobs of that time; for one job: acequia events %.40s",
                         c->arguments[0]);
    if (local_time_parse(option_get(&c->options, "at"), clock_wall_ms(), TIME_TODAY, &at_ms, &c->error) < 0)
        return cli_usage(c, "--at: %s", arena_strdup(&c->arena, c->error.text));
    client_query_begin(&q, "/v1/at");
    client_query_addf(&q, "time_ms", "%lld", (long long)at_ms);
    int status = client_get(c, buf_str(&q.text), &reply);
    if (status != CLI_OK)
        return status;
    if (c->json)
        buf_addf(&out, "%s\n", reply.text);
    else
        print_past(c, reply.json, at_ms, &out);
    return cli_print(&out);
}
