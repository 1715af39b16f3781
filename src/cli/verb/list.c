// acequia list
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/map.h"
#include "base/text.h"
#include "cli/client/client.h"
#include "cli/job/action.h"
#include "cli/job/columns.h"
#include "cli/job/rows.h"
#include "cli/term/local_time.h"
#include "cli/term/screen.h"
#include "model/job.h"
#include "verbs.h"

enum {
    FINISHED_LIMIT = 1000,
    WATCH_DEFAULT_S = 2,
    PAGE_ROWS = 2000,
    STREAM_TIMEOUT_MS = 60 * 1000,
    NAMED_CHECKED = 64,
    ELEMENTS_ASKED = 50000,  // of arrays that have ended, at most, to find as many lines as are wanted
    LISTED_SOME = 1
};

static const struct option_spec filter_specs[] = {
    {"user", 'u', "NAME", "Only jobs of this user.", 0, NULL, NULL},
    {"me", 0, NULL, "Only my jobs.", 0, "mine", NULL},
    {"project", 'P', "NAME", "Only jobs of this project.", 0, NULL, "@project"},
    {"partition", 'p', "NAME", "Only jobs of this partition.", 0, NULL, "@partition"},
    {"qos", 'q', "NAME", "Only jobs of this QoS.", 0, NULL, "@qos"},
    {"name", 'J', "NAME", "Only jobs of this name.", 0, NULL, NULL},
    {"state", 's', "STATES",
     "Only jobs in these states, as PENDING,RUNNING. If all of them are ends, as FAILED, --finished is "
     "meant.",
     0, "states",
     "PENDING RUNNING SUSPENDED COMPLETED FAILED CANCELLED TIMEOUT OUT_OF_MEMORY NODE_FAIL PREEMPTED"},
    {"node", 'w', "NAME", "Only jobs on this node.", 0, NULL, "@node"},
    {"where", 0, "FILTER",
     "Only jobs for which all terms hold, as 'user=ana* state=R|PD gpus>=2 tag=exp1 age>1d'; may be given "
     "several times.",
     OPTION_REPEAT, "filter", NULL},
    {"finished", 'f', NULL, "Finished jobs, newest last, instead of pending and running ones.", 0, NULL,
     NULL},
    {"since", 0, "TIME", "Finished since then: 08:00, 2026-01-30 or now-2hours.", 0, NULL, NULL},
    {"until", 0, "TIME", "Finished until then.", 0, NULL, NULL},
    {"at", 0, "TIME", "The jobs that were live then, out of the journal: 08:00, 2026-01-30 or now-2hours.", 0,
     NULL, NULL},
    {"elements", 'r', NULL,
     "One line per element of an array or worker of an elastic job; default: one line for all.", 0, "unfold",
     NULL},
    {"view", 0, "NAME", "The filters of a view, see acequia view; options given beside it take precedence.",
     0, NULL, NULL},
    {"limit", 'l', "COUNT", "At most this many.", 0, NULL, NULL},
};
static const struct option_table filters = OPTION_TABLE("Which jobs", filter_specs);

static const struct option_spec show_specs[] = {
    {"columns", 'o', "NAMES", "Columns to show, such as id,name,state; 'help' lists them all.", 0, NULL,
     "@column"},
    {"sort", 'S', "NAMES", "Sort by these columns; -NAME: descending.", 0, NULL, "@column"},
    {"watch", 0, "SECONDS", "Refresh every 2 seconds, or as given; q quits.", OPTION_OPTIONAL,
     NULL, NULL},
    {"wide", 'W', NULL, "Do not shorten columns.", 0, NULL, NULL},
    {"no-heading", 'H', NULL, "Do not print the heading.", 0, "noheader", NULL},
};
static const struct option_table show = OPTION_TABLE("Output", show_specs);

static bool is_end(const char *word, size_t len) {
    for (int i = 0; i < JOB_STATE_COUNT; i++)
        if (strlen(job_state_words[i]) == len && strncasecmp(job_state_words[i], word, len) == 0)
            return job_state_final((enum job_state)i);
    return false;
}

// Whether finished jobs are listed: asked for, or because no live job can be in any of the states.
static bool list_finished(const struct cli_options *o) {
    const char *states = option_get(o, "state");
    if (option_given(o, "finished") || str_empty(states))
        return option_given(o, "finished");
    for (const char *p = states;; p++) {
        size_t len = strcspn(p, ",");
        if (!is_end(p, len))
            return false;
        p += len;
        if (!*p)
            return true;
    }
}

static int add_times(struct cli *c, struct query *q) {
    static const char *const names[] = {"since", "until"}, *const keys[] = {"since_ms", "until_ms"};
    for (int i = 0; i < 2; i++) {
        int64_t at;
        const char *text = option_get(&c->options, names[i]);
        if (!text)
            continue;
        int r = local_time_parse(text, clock_wall_ms(), TIME_TODAY, &at, &c->error);
        if (r < 0) {
            error_prefix(&c->error, "--%s", names[i]);
            return r;
        }
        client_query_addf(q, keys[i], "%lld", (long long)at);
    }
    return 0;
}

static void add_filter(const struct cli_options *o, struct query *q) {
    cleanup_buf struct buf text = {0};
    uint32_t it = 0;
    for (const char *one; (one = option_next(o, "where", &it));)
        buf_addf(&text, "%s%s", text.len ? " " : "", one);
    client_query_add(q, "where", text.len ? buf_str(&text) : NULL);
}

static int build_query(struct cli *c, const char *fields, uint32_t limit, struct query *q) {
    const struct cli_options *o = &c->options;
    cleanup_buf struct buf ids = {0};
    client_query_begin(q, "/v1/jobs");
    for (int i = 0; i < c->count; i++)
        buf_addf(&ids, "%s%s", i ? "," : "", c->arguments[i]);
    client_query_add(q, "ids", ids.len ? buf_str(&ids) : NULL);
    client_query_add(q, "user", option_get(o, "user"));
    client_query_add(q, "mine", option_given(o, "me") ? "1" : NULL);
    client_query_add(q, "project", option_get(o, "project"));
    client_query_add(q, "partition", option_get(o, "partition"));
    client_query_add(q, "qos", option_get(o, "qos"));
    client_query_add(q, "name", option_get(o, "name"));
    client_query_add(q, "state", job_states_text(&c->arena, option_get(o, "state")));
    client_query_add(q, "node", option_get(o, "node"));
    add_filter(o, q);
    client_query_add(q, "finished", list_finished(o) ? "1" : NULL);
    client_query_add(q, "elements", option_given(o, "elements") ? "1" : NULL);
    client_query_add(q, "fields", fields);
    bool finished = list_finished(o);
    client_query_add(q, "compact", fields ? "1" : NULL);
    client_query_add(q, "stream", fields && !finished ? "1" : NULL);
    if (limit)
        client_query_addf(q, "limit", "%u", finished && limit > PAGE_ROWS ? PAGE_ROWS : limit);
    return add_times(c, q);
}

static void print_json(const struct job_rows *rows, struct buf *out) {
    struct json_writer w = {.out = out};
    json_open(&w, '{');
    json_open_key(&w, "jobs", '[');
    for (uint32_t i = 0; i < rows->rows.len; i++)
        json_write(&w, rows->rows.at[i]);
    json_close(&w, ']');
    json_close(&w, '}');
    buf_addc(out, '\n');
}

static void print_table(struct cli *c, struct job_columns *columns, const struct job_rows *rows, struct buf *out) {
    struct text_table t;
    int64_t now = clock_wall_ms();
    columns->whole_ids = option_given(&c->options, "wide") || !terminal_table_width();
    job_columns_bind(columns, rows);
    table_init(&t, &c->arena, columns->titles, columns->count);
    for (uint32_t i = 0; i < rows->rows.len; i++)
        job_columns_add(columns, &c->arena, rows->rows.at[i], now, &t);
    table_print(&t, option_given(&c->options, "wide") ? 0 : terminal_table_width(),
                !option_given(&c->options, "no-heading"), terminal_colour(), out);
    table_done(&t);
}

// What a person should know of jobs in the list, below it: never between rows that programs read.
static bool wants_notes(const struct cli *c) {
    const struct cli_options *o = &c->options;
    return !c->json && isatty(STDOUT_FILENO) && !option_given(o, "columns") &&
           !option_given(o, "no-heading") && !list_finished(o);
}

static void print_notes(struct cli *c, const struct job_rows *rows, struct buf *out) {
    enum { NOTES_MAX = 5 };
    int label = job_rows_field(rows, "label"), warning = job_rows_field(rows, "warning");
    uint32_t count = 0;
    for (uint32_t i = 0; i < rows->rows.len; i++) {
        const char *job = job_rows_text(rows->rows.at[i], label), *text = job_rows_text(rows->rows.at[i], warning);
        if (!job || !text || count++ >= NOTES_MAX)
            continue;
        buf_adds(out, "Note  ");
        terminal_wrap(out, arena_printf(&c->arena, "job %s %s", job, text), 6, 6);
    }
    if (count > NOTES_MAX)
        buf_addf(out, "Note  and %u more: acequia list -o id,warning\n", count - NOTES_MAX);
}

static bool is_listed(const struct job_rows *rows, int label, const char *id) {
    size_t len = strlen(id);
    for (uint32_t i = 0; i < rows->rows.len; i++) {
        const char *text = job_rows_text(rows->rows.at[i], label);
        if (text && strncmp(text, id, len) == 0 && (!text[len] || text[len] == '_' || text[len] == '+'))
            return true;
    }
    return false;
}

// Says which of the jobs that were named do not exist; others may only be left out by an option.
static bool all_exist(struct cli *c, struct client *k, const struct job_rows *rows) {
    int label = job_rows_field(rows, "label");
    bool all = true;
    for (int i = 0; i < c->count && i < NAMED_CHECKED; i++) {
        struct reply reply;
        const char *id = c->arguments[i];
        if (id[strspn(id, "0123456789_+")] || is_listed(rows, label, id))
            continue;
        if (client_call(k, "GET", arena_printf(&c->arena, "/v1/jobs/%s", id), NULL, &reply) < 0) {
            cli_note("%s", c->error.text);
            all = false;
        }
    }
    return all;
}

// Keeps the newest `limit` lines, of which an array is one when they are folded. True: others are left out.
static bool keep_lines(struct job_rows *rows, uint32_t limit, bool fold) {
    struct map arrays = {0};
    int array = job_rows_field(rows, "array_id");
    uint32_t lines = 0, kept = 0;
    for (uint32_t i = 0; i < rows->rows.len; i++) {
        uint64_t id = fold ? (uint64_t)job_rows_number(rows->rows.at[i], array) : 0;
        bool known = id && map_get(&arrays, id);
        if (!known && lines >= limit)
            continue;
        if (id && !known)
            map_put(&arrays, id, rows);
        lines += !known;
        rows->rows.at[kept++] = rows->rows.at[i];
    }
    bool cut = kept < rows->rows.len;
    rows->rows.len = kept;
    map_done(&arrays);
    return cut;
}

// The newest finished jobs that make `limit` lines. An array that has ended can have very many elements, of which one
// line is made: more are asked for as long as there are too few lines. 1: there are more lines; a negative errno.
static int fetch_finished(struct cli *c, struct client *k, const char *fields, uint32_t limit, bool fold,
                          struct job_rows *rows) {
    for (uint32_t asked = limit + 1;; asked *= 8) {
        cleanup_query struct query q = {0};
        vec_done(&rows->rows);
        int r = build_query(c, fields, asked, &q);
        if (r == 0)
            r = job_list_fetch(c, k, buf_str(&q.text), asked, rows);
        if (r < 0)
            return r;
        bool more = rows->rows.len >= asked;
        if (keep_lines(rows, limit, fold))
            return 1;
        if (!more || asked >= ELEMENTS_ASKED)
            return more;
    }
}

static int list_once(struct cli *c, struct client *k, struct job_columns *columns, uint32_t limit, struct buf *out) {
    cleanup_query struct query q = {0};
    cleanup_buf struct buf fields = {0};
    struct job_rows rows = {0};
    const char *sort = option_get(&c->options, "sort");
    job_columns_fields(columns, &fields);
    if (sort) {  // fields to sort by must be there, too
        struct job_columns extra;
        cleanup_buf struct buf names = {0};
        for (const char *p = sort; *p; p++)
            if (*p != '-' && *p != '+')
                buf_addc(&names, *p);
        if (job_columns_parse(buf_str(&names), &extra, &c->error) < 0)
            return -1;
        job_columns_fields(&extra, &fields);
    }
    if (sort)
        buf_adds(&fields, ",id");
    bool fold = !c->json && !c->count && !option_given(&c->options, "elements");
    if (fold)
        buf_adds(&fields, "," JOB_FOLD_FIELDS);
    if (wants_notes(c) || c->count)
        buf_adds(&fields, ",label,warning");
    bool finished = list_finished(&c->options);
    const char *asked = c->json ? NULL : buf_str(&fields);
    int r = limit && finished ? fetch_finished(c, k, asked, limit, fold, &rows)
                              : build_query(c, asked, limit, &q);
    bool cut = r > 0;
    if (r == 0 && !(limit && finished))
        r = !c->json && !finished ? job_list_stream(c, k, buf_str(&q.text), &rows)
                                  : job_list_fetch(c, k, buf_str(&q.text), limit, &rows);
    r = r < 0 ? r : !sort || c->json ? 0 : job_rows_sort(&rows, sort, &c->error);
    // The controller gives the newest first; on a terminal the newest is wanted last. Named jobs come as named.
    for (uint32_t i = 0; r == 0 && !sort && !c->count && list_finished(&c->options) && i < rows.rows.len / 2;
         i++) {
        const struct json *other = rows.rows.at[rows.rows.len - 1 - i];
        rows.rows.at[rows.rows.len - 1 - i] = rows.rows.at[i];
        rows.rows.at[i] = other;
    }
    if (r == 0 && fold)
        job_rows_fold(&rows, isatty(STDOUT_FILENO) && terminal_width() < TERMINAL_WIDE, &c->arena);
    if (r == 0 && c->json)
        print_json(&rows, out);
    else if (r == 0)
        print_table(c, columns, &rows, out);
    if (r == 0 && wants_notes(c))
        print_notes(c, &rows, out);
    if (r == 0 && cut)
        cli_note(limit == 1 ? "only the newest finished job is shown; see --limit and --since"
                            : "only the newest %u finished jobs are shown; see --limit and --since",
                 limit);
    if (r == 0 && c->count && !c->json && !option_given(&c->options, "watch") && !all_exist(c, k, &rows))
        r = LISTED_SOME;
    vec_done(&rows.rows);
    return r;
}

// As the controller writes it: however long the list is, it goes through.
static int list_json(struct cli *c, struct client *k, uint32_t limit) {
    cleanup_query struct query q = {0};
    int r = build_query(c, NULL, limit, &q);
    if (r == 0)
        r = client_stream(k, buf_str(&q.text), STREAM_TIMEOUT_MS, client_to_output, NULL);
    return r < 0 && r != -EPIPE ? cli_fail(c) : CLI_OK;
}

struct watched_list {
    struct cli *cli;
    struct client *client;
    struct job_columns *columns;
    uint32_t limit;
};

static int draw_screen(void *arg, struct buf *out) {
    struct watched_list *w = arg;
    int r = list_once(w->cli, w->client, w->columns, w->limit, out);
    arena_done(&w->cli->arena);
    return r;
}

static int watch(struct cli *c, struct client *k, struct job_columns *columns, uint32_t limit) {
    uint32_t seconds = WATCH_DEFAULT_S;
    struct watched_list w = {c, k, columns, limit};
    if (option_u32(&c->options, "watch", 1, 3600, &seconds, &c->error) < 0)
        return cli_usage(c, "%s", arena_strdup(&c->arena, c->error.text));
    c->no_wait = true;  // the screen shows that the controller is away, and tries again
    if (isatty(STDIN_FILENO) && isatty(STDOUT_FILENO) && !c->json)
        return screen_watch(&c->error, seconds * 1000, draw_screen, &w) < 0 ? cli_fail(c) : CLI_OK;
    for (;;) {
        cleanup_buf struct buf out = {0};
        if (draw_screen(&w, &out) < 0)
            return cli_fail(c);
        if (cli_print(&out) != CLI_OK)
            return CLI_FAILED;
        sleep(seconds);
    }
}

static int run_list(struct cli *c) {
    struct job_columns columns;
    cleanup_buf struct buf out = {0};
    const char *names = option_get(&c->options, "columns");
    bool finished = list_finished(&c->options),
         narrow = terminal_table_width() && terminal_table_width() < TERMINAL_NARROW;
    uint32_t limit = finished ? FINISHED_LIMIT : 0;
    if (option_given(&c->options, "at"))
        return verb_list_past(c);
    if (streq(names, "help")) {
        job_columns_list(&out);
        buf_addc(&out, '\n');
        return cli_print(&out);
    }
    if (job_columns_parse(names      ? names
                          : finished ? narrow ? JOB_COLUMNS_FINISHED_NARROW : JOB_COLUMNS_FINISHED
                          : narrow   ? JOB_COLUMNS_LIVE_NARROW
                                     : JOB_COLUMNS_LIVE,
                          &columns, &c->error) < 0 ||
        option_u32(&c->options, "limit", 1, 100000000, &limit, &c->error) < 0)
        return cli_usage(c, "%s", arena_strdup(&c->arena, c->error.text));
    if (!finished && (option_given(&c->options, "since") || option_given(&c->options, "until")))
        return cli_usage(c, "--since and --until choose finished jobs; give --finished too");
    struct client *k;
    if (client_open(c, &k) < 0)
        return cli_fail(c);
    int status;
    if (option_given(&c->options, "watch"))
        status = watch(c, k, &columns, limit);
    else if (c->json && !finished)
        status = list_json(c, k, limit);
    else {
        int r = list_once(c, k, &columns, limit, &out);
        status = r < 0 ? cli_fail(c) : cli_print(&out);
        status = status == CLI_OK && r == LISTED_SOME ? CLI_FAILED : status;
    }
    client_free(k);
    return status;
}

static int run(struct cli *c) {
    const char *view = option_get(&c->options, "view");
    int applied = view ? verb_view_apply(c, view) : CLI_OK;
    return applied == CLI_OK ? run_list(c) : applied;
}

const struct verb verb_list = {
    .name = "list",
    .alias = "ls",
    .group = "Work",
    .arguments = "[options] [JOB...]",
    .summary = "list pending and running jobs, or finished ones",
    .text =
        "WHERE shows the nodes of a running job, or in parentheses why a pending one waits. An array is one "
        "line with the number of its elements in each state; --elements or a JOB argument shows each "
        "element. "
        "The terms of --where are a column (those of -o, and tag, held, array, index, signal, features, by), "
        "one of "
        "= != < <= > >=, and a value. "
        "Texts are compared by = and !=, with patterns (* for any characters, ? for one) and alternatives "
        "(a|b); "
        "numbers, sizes (8G), durations (8h) and times (08:00, now-2hours) by all six. All terms must hold. "
        "Quotes "
        "protect blanks, a backslash the character after it.",
    .examples = "acequia list --me\nacequia list --finished --since 08:00\nacequia list --at "
                "now-2hours\nacequia list -s PENDING -o "
                "id,name,reason,expected --sort -priority\nacequia list --where 'tag=exp1 gpus>=2 age>1d' -o "
                "id,name,tags,age",
    .options = {&filters, &show, &cli_common_options},
    .run = run,
    .complete = "@job",
    .most = -1,
    .jobs = VERB_JOBS,
};
