// acequia update
#include <errno.h>

#include "base/clock.h"
#include "base/text.h"
#include "cli/client/client.h"
#include "cli/job/action.h"
#include "cli/job/options.h"
#include "cli/term/local_time.h"
#include "cli/term/table.h"
#include "model/units.h"
#include "verbs.h"

// Only what was given is sent: an absent field stays as it is.
static int write_changes(struct cli *c, struct json_writer *w) {
    struct spec s;
    if (option_given(&c->options, "export") || option_given(&c->options, "env"))
        return error_set(&c->error, EINVAL, "--%s: a job keeps the environment that it was submitted with",
                         option_given(&c->options, "env") ? "env" : "export");
    if (option_given(&c->options, "hold"))
        return error_set(&c->error, EINVAL, "--hold: use acequia hold %.40s", c->arguments[0]);
    int r = job_spec(c, &c->options, &s);
    if (r < 0)
        return r;
    if (!option_given(&c->options, "chdir"))
        s.workdir = NULL;
    json_key(w, "spec");
    size_t before = w->out->len;
    schema_write_given_json(&spec_schema, &s, w);
    if (streq(buf_str(w->out) + before, "{}"))
        return error_set(&c->error, EINVAL, "update needs what to change, as in: acequia update %.40s --time 8h",
                         c->arguments[0]);
    return 0;
}

static const struct option_spec specs[] = {
    {"dry-run", 0, NULL,
     "Change nothing: show whose start another --time would move, and whether it is allowed.", 0, NULL, NULL},
};
static const struct option_table table = OPTION_TABLE("Options", specs);

// --- what another time limit does to others ---

static const char *moment_text(struct arena *a, int64_t at_ms) {
    char text[UNIT_TEXT_MAX];
    return arena_strdup(a, local_time_short(at_ms, clock_wall_ms(), text));
}

static void print_moved(struct cli *c, const struct json *moved, struct buf *out) {
    static const struct table_column columns[] = {{"JOB", false, 0, 0},   {"NAME", false, 5, 8},
                                                  {"USER", false, 4, 8},  {"START", false, 0, 0},
                                                  {"AFTER", false, 0, 0}, {"MOVES", true, 0, 0}};
    struct text_table t;
    table_init(&t, &c->arena, columns, 6);
    for (uint32_t i = 0; i < moved->len; i++) {
        const struct json *m = &moved->items[i];
        const char *name = json_str(m, "name"), *user = json_str(m, "user");
        int64_t before = json_i64(m, "before_ms", 0), after = json_i64(m, "after_ms", 0),
                by = (after - before) / 1000;
        char span[UNIT_TEXT_MAX];
        table_add(&t, json_str(m, "job"), COLOUR_NONE);
        table_add(&t, name ? name : "-", COLOUR_NONE);
        table_add(&t, user ? user : "-", COLOUR_NONE);
        table_add(&t, moment_text(&c->arena, before), COLOUR_NONE);
        table_add(&t, after ? moment_text(&c->arena, after) : "not planned", COLOUR_NONE);
        if (after)
            table_addf(&t, "%s%s", by < 0 ? "-" : "+", duration_format((uint64_t)(by < 0 ? -by : by), span));
        else
            table_add(&t, "-", COLOUR_NONE);
    }
    table_print(&t, terminal_table_width(), true, terminal_colour(), out);
    table_done(&t);
}

static void print_consequence(struct cli *c, const struct json *j, struct buf *out) {
    const struct json *moved = json_get(j, "moved");
    const char *refused = json_str(j, "refused");
    if (refused)
        buf_addf(out, "It would be refused: %s\n", refused);
    if (moved && moved->type == JSON_ARRAY && moved->len) {
        long long delayed = (long long)json_i64(j, "delayed", 0);
        buf_addf(out, "%lld waiting job%s would start later, %lld sooner:\n", delayed,
                 delayed == 1 ? "" : "s", (long long)json_i64(j, "earlier", 0));
        print_moved(c, moved, out);
    } else {
        buf_adds(out, json_true(j, "complete") ? "No waiting job would start later.\n"
                                               : "None of the next waiting jobs would start later.\n");
    }
    buf_adds(out, "Nothing was changed.\n");
}

static int show_consequence(struct cli *c) {
    cleanup_query struct query q = {0};
    cleanup_buf struct buf path = {0}, out = {0};
    struct reply reply;
    struct spec s;
    if (c->count != 1 || !option_given(&c->options, "time"))
        return cli_usage(
            c, "--dry-run needs one running job and --time, as in: acequia update 12 --time 8h --dry-run");
    if (job_spec(c, &c->options, &s) < 0)
        return cli_usage(c, "%s", arena_strdup(&c->arena, c->error.text));
    buf_adds(&path, "/v1/jobs/");
    http_percent_encode(&path, c->arguments[0]);
    buf_adds(&path, "/extension");
    client_query_begin(&q, buf_str(&path));
    client_query_addf(&q, "time_limit_s", "%u", s.time_limit_s);
    int status = client_get(c, buf_str(&q.text), &reply);
    if (status != CLI_OK)
        return status;
    if (c->json)
        buf_addf(&out, "%s\n", reply.text);
    else
        print_consequence(c, reply.json, &out);
    return cli_print(&out);
}

static int run(struct cli *c) {
    cleanup_buf struct buf body = {0};
    struct json_writer w = {.out = &body};
    struct reply reply;
    if (option_given(&c->options, "dry-run"))
        return show_consequence(c);
    json_open(&w, '{');
    json_open_key(&w, "ids", '[');
    for (int i = 0; i < c->count; i++)
        json_put_str(&w, c->arguments[i]);
    json_close(&w, ']');
    if (write_changes(c, &w) < 0)
        return cli_usage(c, "%s", arena_strdup(&c->arena, c->error.text));
    json_close(&w, '}');
    int status = client_post(c, "/v1/jobs/update", &body, &reply);
    return status == CLI_OK ? job_action_report(c, &reply, "changed", NULL, NULL) : status;
}

const struct verb verb_update = {
    .name = "update",
    .group = "Work",
    .arguments = "JOB... [options]",
    .summary = "change pending and running jobs",
    .text = "Accepts the options of submit; what is not given stays unchanged. More time for a running job "
            "can make others "
            "wait longer: --dry-run with --time shows whose start moves, and by how much.",
    .examples = "acequia update 12 --time 4h --nice 10\nacequia update 12 --time 8h --dry-run",
    .options = {&table, &job_resource_options, &job_control_options, &cli_common_options},
    .run = run,
    .complete = "@job",
    .least = 1,
    .most = -1,
    .jobs = VERB_JOBS,
    .live_jobs = true,
};
