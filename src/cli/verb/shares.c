// acequia shares
#include <string.h>

#include "base/text.h"
#include "cli/client/client.h"
#include "cli/term/table.h"
#include "verbs.h"
#include "model/gpuspec.h"

enum { BAR_WIDTH = 24 };

// '#' is what is used inside the quota, '+' beyond it, '|' where the quota ends, '.' what is free.
static const char *bar(struct arena *a, int64_t used, int64_t quota, int64_t total) {
    char text[BAR_WIDTH + 3] = "[";
    if (total <= 0)
        return "";
    int width = terminal_width() < TERMINAL_NARROW ? BAR_WIDTH / 3 : BAR_WIDTH;
    int64_t filled = used * width / total, mark = quota * width / total;
    if (used > 0 && !filled)
        filled = 1;
    for (int64_t i = 0; i < width; i++)
        text[i + 1] = i < filled ? (i < mark ? '#' : '+') : i + 1 == mark ? '|' : '.';
    text[width + 1] = ']';
    text[width + 2] = 0;
    return arena_strdup(a, text);
}

static const char *gpus(struct arena *a, const struct json *j, const char *field) {
    char text[GPU_TEXT_MAX];
    return arena_strdup(a, gpu_milli_format((uint64_t)json_i64(j, field, 0), text));
}

static const char *project_name(struct arena *a, const struct json *p) {
    const char *name = json_str(p, "project");
    return json_true(p, "deleting") ? arena_printf(a, "%s (being deleted)", name ? name : "") : name;
}

static void print_gpus(struct cli *c, const struct json *projects, int64_t total, struct buf *out) {
    static const struct table_column columns[] = {
        {"PROJECT", false, 5, 8}, {"QUOTA", true, 0, 0}, {"SHARE", true, 0, 0},       {"USED", true, 0, 0},
        {"QUEUED", true, 0, 0},   {"JOBS", true, 0, 0},  {"OF ALL GPUS", false, 0, 0}};
    struct text_table t;
    table_init(&t, &c->arena, columns, 7);
    for (uint32_t i = 0; projects && projects->type == JSON_ARRAY && i < projects->len; i++) {
        const struct json *p = &projects->items[i];
        int64_t used = json_i64(p, "used_milligpu", 0), quota = json_i64(p, "quota_milligpu", 0);
        table_add(&t, project_name(&c->arena, p), COLOUR_NONE);
        table_add(&t, gpus(&c->arena, p, "quota_milligpu"), COLOUR_NONE);
        table_add(&t, gpus(&c->arena, p, "share_milligpu"), COLOUR_NONE);
        table_add(&t, gpus(&c->arena, p, "used_milligpu"), COLOUR_NONE);
        table_add(&t, gpus(&c->arena, p, "queued_milligpu"), COLOUR_NONE);
        table_addf(&t, "%lld+%lld", (long long)json_i64(p, "running", 0), (long long)json_i64(p, "pending", 0));
        table_add(&t, bar(&c->arena, used, quota, total), used > quota ? COLOUR_YELLOW : COLOUR_GREEN);
    }
    table_print(&t, terminal_table_width(), true, terminal_colour(), out);
    table_done(&t);
}

static void print_cpus(struct cli *c, const struct json *projects, int64_t total, struct buf *out) {
    static const struct table_column columns[] = {{"PROJECT", false, 5, 8},
                                                  {"CPUS USED", true, 0, 0},
                                                  {"QUEUED", true, 0, 0},
                                                  {"JOBS", true, 0, 0},
                                                  {"OF ALL CPUS", false, 0, 0}};
    struct text_table t;
    table_init(&t, &c->arena, columns, 5);
    for (uint32_t i = 0; projects && projects->type == JSON_ARRAY && i < projects->len; i++) {
        const struct json *p = &projects->items[i];
        int64_t used = json_i64(p, "used_cpus", 0);
        table_add(&t, project_name(&c->arena, p), COLOUR_NONE);
        table_addf(&t, "%lld", (long long)used);
        table_addf(&t, "%lld", (long long)json_i64(p, "queued_cpus", 0));
        table_addf(&t, "%lld+%lld", (long long)json_i64(p, "running", 0), (long long)json_i64(p, "pending", 0));
        table_add(&t, bar(&c->arena, used, total, total), COLOUR_GREEN);
    }
    table_print(&t, terminal_table_width(), true, terminal_colour(), out);
    table_done(&t);
}

static int run(struct cli *c) {
    struct reply reply;
    cleanup_buf struct buf out = {0};
    int status = client_get(c, "/v1/shares", &reply);
    if (status != CLI_OK)
        return status;
    int64_t total = json_i64(reply.json, "total_milligpu", 0);
    const struct json *projects = json_get(reply.json, "projects");
    if (c->json)
        buf_addf(&out, "%s\n", reply.text);
    else if (total)
        print_gpus(c, projects, total, &out);
    else
        print_cpus(c, projects, json_i64(reply.json, "total_cpus", 0), &out);
    return cli_print(&out);
}

const struct verb verb_shares = {
    .name = "shares",
    .group = "Sharing",
    .arguments = "[options]",
    .summary = "show quota, share, use and queue of each project",
    .text = "In the bars, # is use within the quota, + use beyond it, and | marks the quota. JOBS are "
            "running+pending.",
    .examples = "acequia shares",
    .options = {&cli_common_options},
    .run = run,
};
