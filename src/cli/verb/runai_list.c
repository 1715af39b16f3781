// runai list: jobs in Run:AI's columns and states.
#include <stdio.h>
#include <string.h>

#include "base/clock.h"
#include "base/text.h"
#include "cli/client/client.h"
#include "cli/job/rows.h"
#include "cli/term/table.h"
#include "model/gpuspec.h"
#include "model/units.h"
#include "runai.h"

enum { ENDED_SHOWN = 200, ENDED_MS = 24 * 3600 * 1000 };

#define FIELDS "name,state,submit_ms,nodes,container,class,project,user,gpus_milli,urls,label"

static const struct table_column columns[] = {
    {"NAME", false, 0, 0},    {"STATUS", false, 0, 0},
    {"AGE", false, 0, 0},     {"NODE", false, 4, 8},
    {"IMAGE", false, 6, 12},  {"TYPE", false, 0, 0},
    {"PROJECT", false, 0, 0}, {"USER", false, 0, 0},
    {"GPUs", false, 0, 0},    {"SERVICE URL(S)", false, 5, 12},
};

static const char *status_word(const char *state) {
    static const char *const words[] = {
        "PENDING",       "Pending",     "RUNNING",   "Running",
        "SUSPENDED",     "Suspended",   "STARTING",  "ContainerCreating",
        "COMPLETING",    "Terminating", "COMPLETED", "Succeeded",
        "FAILED",        "Failed",      "TIMEOUT",   "TimedOut",
        "PREEMPTED",     "Preempted",   "CANCELLED", "Deleted",
        "OUT_OF_MEMORY", "OOMKilled",   "NODE_FAIL", "Failed",
    };
    for (size_t i = 0; state && i < sizeof words / sizeof *words; i += 2)
        if (streq(words[i], state))
            return words[i + 1];
    return state ? state : "";
}

// "11s", "5m", "3h", "2d", as kubectl and Run:AI show ages.
static const char *age(struct arena *a, int64_t ms) {
    long long s = ms > 0 ? ms / 1000 : 0;
    if (s < 120)
        return arena_printf(a, "%llds", s);
    if (s < 120 * 60)
        return arena_printf(a, "%lldm", s / 60);
    return s < 48 * 3600 ? arena_printf(a, "%lldh", s / 3600) : arena_printf(a, "%lldd", s / 86400);
}

static const char *addresses(struct arena *a, const struct json *row, int field) {
    const struct json *urls = field >= 0 && (uint32_t)field < row->len ? &row->items[field] : NULL;
    const char *out = "";
    for (uint32_t i = 0; urls && urls->type == JSON_ARRAY && i < urls->len; i++)
        if (urls->items[i].type == JSON_STRING)
            out = arena_printf(a, "%s%s%s", out, *out ? ", " : "", urls->items[i].s);
    return out;
}

static void add_row(struct text_table *t, const struct job_rows *rows, const struct json *row,
                    int64_t now_ms) {
    struct arena *a = t->arena;
    const char *state = job_rows_text(row, job_rows_field(rows, "state")),
               *image = job_rows_text(row, job_rows_field(rows, "container")),
               *nodes = job_rows_text(row, job_rows_field(rows, "nodes")),
               *class = job_rows_text(row, job_rows_field(rows, "class")), *text;
    char gpus[GPU_TEXT_MAX];
    if (streq(state, "CANCELLED"))
        return;
    gpu_milli_format((uint64_t)job_rows_number(row, job_rows_field(rows, "gpus_milli")), gpus);
    table_add(t, (text = job_rows_text(row, job_rows_field(rows, "name"))) ? text : "", COLOUR_NONE);
    table_add(t, status_word(state), COLOUR_NONE);
    table_add(t, age(a, now_ms - job_rows_number(row, job_rows_field(rows, "submit_ms"))), COLOUR_NONE);
    table_add(t, nodes ? nodes : "", COLOUR_NONE);
    table_add(t, !image ? "" : str_has_prefix(image, "docker://") ? image + 9 : image, COLOUR_NONE);
    table_add(t, streq(class, "interactive") ? "Interactive" : "Train", COLOUR_NONE);
    table_add(t, (text = job_rows_text(row, job_rows_field(rows, "project"))) ? text : "", COLOUR_NONE);
    table_add(t, (text = job_rows_text(row, job_rows_field(rows, "user"))) ? text : "", COLOUR_NONE);
    table_add(t, arena_strdup(a, gpus), COLOUR_NONE);
    table_add(t, addresses(a, row, job_rows_field(rows, "urls")), COLOUR_NONE);
}

static int add_jobs(struct cli *c, struct client *k, const char *project, bool ended, struct text_table *t) {
    cleanup_query struct query q = {0};
    struct job_rows rows = {0};
    int64_t now_ms = clock_wall_ms();
    client_query_begin(&q, "/v1/jobs");
    client_query_add(&q, "project", project);
    client_query_add(&q, "fields", FIELDS);
    client_query_add(&q, "compact", "1");
    client_query_add(&q, "finished", ended ? "1" : NULL);
    if (ended)
        client_query_addf(&q, "since_ms", "%lld", (long long)(now_ms - ENDED_MS));
    int r = job_list_fetch(c, k, buf_str(&q.text), ended ? ENDED_SHOWN : 0, &rows);
    for (uint32_t i = 0; r == 0 && i < rows.rows.len; i++)
        add_row(t, &rows, rows.rows.at[i], now_ms);
    vec_done(&rows.rows);
    return r;
}

int verb_runai_list(struct cli *c, const char *project) {
    struct text_table t;
    struct client *k;
    cleanup_buf struct buf out = {0};
    if (client_open(c, &k) < 0)
        return cli_fail(c);
    table_init(&t, &c->arena, columns, sizeof columns / sizeof *columns);
    int status = add_jobs(c, k, project, true, &t) < 0 || add_jobs(c, k, project, false, &t) < 0 ? cli_fail(c)
                                                                                                 : CLI_OK;
    if (status == CLI_OK) {
        buf_addf(&out, "Showing jobs for %s%s\n", project ? "project " : "all projects",
                 project ? project : "");
        table_print(&t, terminal_table_width(), true, false, &out);
        status = cli_print(&out);
    }
    table_done(&t);
    client_free(k);
    return status;
}
