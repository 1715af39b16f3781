// acequia tasks, acequia actors, acequia objects: what a running pool of Python workers has. The pool itself is asked,
// over the unix port of its job; nothing of it is stored elsewhere.
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/json.h"
#include "base/text.h"
#include "cli/client/client.h"
#include "cli/job/resolve.h"
#include "cli/term/table.h"
#include "cli/term/terminal.h"
#include "model/port.h"
#include "model/units.h"
#include "tasks/wire.h"
#include "verbs.h"

enum { ROWS_DEFAULT = 100, PATIENCE_MS = 30 * 1000 };

static const struct option_spec specs[] = {
    {"limit", 'l', "COUNT", "At most this many; else 100.", 0, NULL, NULL},
    {"summary", 0, NULL, "Counts only.", 0, NULL, NULL},
};
static const struct option_table table = OPTION_TABLE("Options", specs);

// The number of the job's port that its pool listens on; 0: it is no pool.
static uint32_t pool_port(const struct json *job) {
    const struct json *spec = json_get(job, "spec"), *ports = spec ? json_get(spec, "ports") : NULL;
    struct job_port p;
    for (uint32_t i = 0; ports && ports->type == JSON_ARRAY && i < ports->len; i++)
        if (ports->items[i].type == JSON_STRING && str_has_prefix(ports->items[i].s, "unix:/tmp/acequia-") &&
            port_parse(ports->items[i].s, &p, NULL) == 0)
            return port_number(&p, (uint64_t)json_i64(job, "id", 0), i);
    return 0;
}

static int ask(struct http_client *http, enum tasks_list what, uint64_t id, uint32_t limit) {
    cleanup_buf struct buf b = {0};
    tasks_begin(&b, TASKS_HELLO, 6);
    tasks_add_u32(&b, TASKS_VERSION);
    tasks_add_u8(&b, TASKS_VIEWER);
    tasks_add_u8(&b, 0);
    tasks_begin(&b, TASKS_LIST, 13);
    tasks_add_u8(&b, (uint8_t)what);
    tasks_add_u64(&b, id);
    tasks_add_u32(&b, limit);
    return http_client_ws_send(http, WS_BINARY, b.data, b.len);
}

// The list, in `in`, which must stay.
static int answer(struct cli *c, struct http_client *http, struct buf *in, struct json **out) {
    enum tasks_frame type;
    const char *body;
    size_t len, at = 0;
    for (;;) {
        struct ws_event e;
        int r;
        while ((r = tasks_next_frame(in, &at, &type, &body, &len)) > 0)
            if (type == TASKS_LISTED)
                return json_parse(body, len, &c->arena, out, &c->error);
        if (r < 0)
            return error_set(&c->error, EPROTO, "what listens there is not a pool of this release");
        r = http_client_ws_recv(http, &e, PATIENCE_MS);
        if (r == 0)
            return error_set(&c->error, ETIMEDOUT, "the pool does not answer");
        if (r > 0 && e.type == WS_TEXT) {
            struct json *j = NULL;
            const struct json *failure =
                json_parse(e.data, e.len, &c->arena, &j, NULL) == 0 ? json_get(j, "error") : NULL;
            const char *text = failure ? json_str(failure, "message") : NULL;
            return error_set(&c->error, EIO, "%s", text ? text : "the pool has closed the connection");
        }
        if (r < 0 || e.type != WS_BINARY)
            return error_set(
                &c->error, ECONNRESET,
                "the pool has closed the connection; it may have ended, or be of another release");
        buf_add(in, e.data, e.len);
    }
}

static const char *text_of(struct cli *c, const struct json *row, const char *key) {
    const struct json *v = json_get(row, key);
    if (!v)
        return "-";
    return v->type == JSON_STRING ? v->s : arena_printf(&c->arena, "%lld", (long long)json_i64(row, key, 0));
}

static const char *milli(struct cli *c, const struct json *row, const char *key) {
    return json_get(row, key) ? arena_printf(&c->arena, "%g", (double)json_i64(row, key, 0) / 1000) : "-";
}

static const char *duration(struct cli *c, const struct json *row) {
    int64_t us = json_i64(row, "micros", json_i64(row, "age_us", 0));
    return us < 1000000 ? arena_printf(&c->arena, "%.1f ms", (double)us / 1000)
                        : arena_printf(&c->arena, "%.1f s", (double)us / 1e6);
}

static void print_tasks(struct cli *c, const struct json *rows, struct text_table *t) {
    static const struct table_column columns[] = {{"TASK"},       {"NAME", false, 1, 8}, {"STATE"},
                                                  {"TIME", true}, {"WORKER", true},      {"TRIES", true},
                                                  {"CPUS", true}, {"GPUS", true}};
    table_init(t, &c->arena, columns, sizeof columns / sizeof *columns);
    for (uint32_t i = 0; i < rows->len; i++) {
        const struct json *r = &rows->items[i];
        table_add(t, text_of(c, r, "id"), COLOUR_NONE);
        table_add(t, text_of(c, r, "name"), COLOUR_NONE);
        table_add(t, text_of(c, r, "state"),
                  streq(text_of(c, r, "state"), "failed") ? COLOUR_RED : COLOUR_NONE);
        table_add(t, duration(c, r), COLOUR_NONE);
        table_add(t, text_of(c, r, "worker"), COLOUR_NONE);
        table_add(t, text_of(c, r, "tries"), COLOUR_NONE);
        table_add(t, milli(c, r, "cpu_milli"), COLOUR_NONE);
        table_add(t, milli(c, r, "gpu_milli"), COLOUR_NONE);
    }
}

static void print_plain(struct cli *c, const struct json *rows, struct text_table *t,
                        const struct table_column *columns, const char *const *keys, uint32_t n) {
    table_init(t, &c->arena, columns, n);
    for (uint32_t i = 0; i < rows->len; i++)
        for (uint32_t k = 0; k < n; k++)
            table_add(t, text_of(c, &rows->items[i], keys[k]), COLOUR_NONE);
}

static void print_rows(struct cli *c, enum tasks_list what, const struct json *rows, struct buf *out) {
    static const struct table_column actors[] = {
        {"ACTOR"},         {"NAME", false, 1, 8},   {"STATE"},       {"CALLS", true},
        {"WAITING", true}, {"RESTARTS LEFT", true}, {"WORKER", true}};
    static const char *const actor_keys[] = {"id",      "name",          "state", "calls",
                                             "waiting", "restarts_left", "worker"};
    static const struct table_column objects[] = {
        {"OBJECT"}, {"STATE"}, {"BYTES", true}, {"REFERENCES", true}, {"HOLDERS", true}};
    static const char *const object_keys[] = {"id", "state", "bytes", "references", "holders"};
    struct text_table t;
    if (what == TASKS_LIST_TASKS)
        print_tasks(c, rows, &t);
    else if (what == TASKS_LIST_ACTORS)
        print_plain(c, rows, &t, actors, actor_keys, sizeof actors / sizeof *actors);
    else
        print_plain(c, rows, &t, objects, object_keys, sizeof objects / sizeof *objects);
    table_print(&t, terminal_table_width(), true, terminal_colour(), out);
    table_done(&t);
}

static void print_members(const struct json *object, struct buf *out) {
    for (uint32_t i = 0; i < object->len; i++) {
        const struct json *v = &object->members[i].value;
        buf_addf(out, "%-18s ", object->members[i].key);
        if (v->type == JSON_STRING) {
            bool lines = strchr(v->s, '\n');
            buf_adds(out, lines ? "\n" : "");
            for (const char *p = v->s; *p; p += strcspn(p, "\n"), p += *p == '\n') {
                cleanup_buf struct buf line = {0};
                buf_add(&line, p, strcspn(p, "\n"));
                buf_adds(out, lines ? "  " : "");
                buf_add_visible(out, buf_str(&line));
                buf_adds(out, lines ? "\n" : "");
            }
        } else {
            buf_addf(out, "%lld", (long long)(v->type == JSON_INT ? v->i : 0));
        }
        if (!out->len || out->data[out->len - 1] != '\n')
            buf_addc(out, '\n');
    }
}

static int show(struct cli *c, enum tasks_list what, const struct json *list, struct buf *out) {
    const struct json *rows = json_get(list, "rows"), *summary = json_get(list, "summary");
    if (!rows || !summary || rows->type != JSON_ARRAY || summary->type != JSON_OBJECT)
        return cli_failf(c, "the pool's answer is not understood; is it of another release?");
    bool counts = option_given(&c->options, "summary");
    if (c->json) {
        struct json_writer w = {.out = out};
        json_write(&w, counts ? summary : c->count > 1 && rows->len ? &rows->items[0] : rows);
        buf_addc(out, '\n');
    } else if (counts) {
        print_members(summary, out);
    } else if (c->count > 1) {
        if (!rows->len)
            return cli_failf(
                c, "the pool does not know %s any more; the newest 1,000 tasks that have ended are kept",
                c->arguments[1]);
        print_members(&rows->items[0], out);
    } else {
        print_rows(c, what, rows, out);
    }
    return CLI_OK;
}

static int ask_pool(struct cli *c, struct client *k, uint32_t port, enum tasks_list what, uint64_t id,
                    struct buf *out) {
    cleanup_query struct query q = {0};
    cleanup_buf struct buf path = {0}, in = {0};
    struct http_client *http;
    struct json *list = NULL;
    uint32_t limit = ROWS_DEFAULT;
    const char *most = option_get(&c->options, "limit");
    if (most && (parse_u32(most, &limit) < 0 || !limit))
        return cli_usage(c, "--limit: \"%.60s\" is not a number of rows", most);
    buf_adds(&path, "/v1/jobs/");
    http_percent_encode(&path, c->arguments[0]);
    buf_adds(&path, "/connect");
    client_query_begin(&q, buf_str(&path));
    client_query_addf(&q, "port", "%u", port);
    int r = client_socket(k, buf_str(&q.text), &http);
    if (r == 0 && (r = ask(http, what, id, limit)) == 0)
        r = answer(c, http, &in, &list);
    if (r < 0 && !c->error.text[0])
        error_set(&c->error, -r, "the connection to the controller failed: %s", strerror(-r));
    return r < 0 ? cli_fail(c) : show(c, what, list, out);
}

static int run(struct cli *c, enum tasks_list what) {
    cleanup_buf struct buf out = {0}, path = {0};
    struct client *k;
    struct reply reply;
    uint64_t id = 0;
    char *end = NULL;
    if (c->count > 1 && ((id = strtoull(c->arguments[1], &end, 16)) == 0 || *end))
        return cli_usage(c, "\"%.60s\" is not the id of a row of the list", c->arguments[1]);
    buf_adds(&path, "/v1/jobs/");
    http_percent_encode(&path, c->arguments[0]);
    int status = client_get(c, buf_str(&path), &reply);
    if (status != CLI_OK)
        return status;
    uint32_t port = pool_port(reply.json);
    if (!port)
        return cli_failf(c, "job %s is not a pool; one is made in Python: acequia.Pool()", c->arguments[0]);
    if (client_open(c, &k) < 0)
        return cli_fail(c);
    status = ask_pool(c, k, port, what, id, &out);
    client_free(k);
    cli_print(&out);
    return status;
}

static int run_tasks(struct cli *c) {
    return run(c, TASKS_LIST_TASKS);
}

static int run_actors(struct cli *c) {
    return run(c, TASKS_LIST_ACTORS);
}

static int run_objects(struct cli *c) {
    return run(c, TASKS_LIST_OBJECTS);
}

#define POOL_VERB(word, one, what, more)                                                                     \
    .name = word, .group = "Work", .arguments = "[options] JOB [" one "]",                                   \
    .summary = "show the " what " of a pool of Python workers",                                              \
    .text = "JOB is a pool, as acequia.Pool of the Python package makes it. " more,                          \
    .examples = "acequia " word " 12\nacequia " word " 12 10000000003\nacequia " word " 12 --summary",       \
    .options = {&table, &job_pick_options, &cli_common_options}, .complete = "@job", .least = 1, .most = 2,  \
    .jobs = VERB_JOB_FIRST

const struct verb verb_tasks = {
    POOL_VERB("tasks", "TASK", "tasks",
              "Those that have not ended come first, then the newest of the last 1,000 that have. With TASK "
              "all that is "
              "known of one, with the error and the end of its output if it failed."),
    .run = run_tasks};

const struct verb verb_actors = {
    POOL_VERB("actors", "ACTOR", "actors", "An actor ends when nobody has its handle any more."),
    .run = run_actors};

const struct verb verb_objects = {
    POOL_VERB("objects", "OBJECT", "values",
              "Small values travel inside messages, shared ones lie in the pool's shared memory."),
    .run = run_objects};
