// acequia nodes
#include <string.h>

#include "base/clock.h"
#include "base/text.h"
#include "cli/client/client.h"
#include "cli/term/local_time.h"
#include "cli/term/table.h"
#include "verbs.h"
#include "model/gpuspec.h"
#include "model/units.h"

static const struct option_spec specs[] = {
    {"columns", 'o', "NAMES",
     "Columns to show: name, state, cpus, memory, gpus, jobs, features, partitions, version, address, seen, "
     "reason.",
     0, NULL, NULL},
    {"wide", 'W', NULL, "Do not shorten columns.", 0, NULL, NULL},
    {"no-heading", 'H', NULL, "Do not print the heading.", 0, NULL, NULL},
    {"missing", 0, NULL, "Show what each node cannot enforce.", 0, NULL, NULL},
};
static const struct option_table table_options = OPTION_TABLE("Options", specs);

static const struct {
    const char *name;
    struct table_column column;
} columns[] = {
    {"name", {"NODE", false, 2, 8}},
    {"state", {"STATE", false, 0, 0}},
    {"cpus", {"CPUS", true, 0, 0}},
    {"memory", {"MEMORY", true, 0, 0}},
    {"gpus", {"GPUS", true, 0, 0}},
    {"jobs", {"JOBS", true, 0, 0}},
    {"features", {"FEATURES", false, 5, 8}},
    {"reason", {"REASON", false, 6, 8}},
    {"partitions", {"PARTITIONS", false, 5, 8}},
    {"version", {"VERSION", false, 0, 0}},
    {"address", {"ADDRESS", false, 3, 8}},
    {"seen", {"SEEN", false, 0, 0}},
    {"missing", {"CANNOT ENFORCE", false, 6, 10}},
};
enum { COLUMNS = sizeof columns / sizeof *columns };

static enum colour state_colour(const char *state) {
    if (streq(state, "down"))
        return COLOUR_RED;
    if (streq(state, "draining") || streq(state, "drained"))
        return COLOUR_YELLOW;
    return streq(state, "idle") ? COLOUR_NONE : COLOUR_GREEN;
}

static const char *joined(struct arena *a, const struct json *list) {
    cleanup_buf struct buf b = {0};
    if (list && list->type == JSON_STRING)
        return list->s;
    for (uint32_t i = 0; list && list->type == JSON_ARRAY && i < list->len; i++)
        if (list->items[i].type == JSON_STRING)
            buf_addf(&b, "%s%s", b.len ? "," : "", list->items[i].s);
    return arena_strdup(a, buf_str(&b));
}

static const char *gpus_text(struct arena *a, const struct json *n) {
    char used[GPU_TEXT_MAX], all[GPU_TEXT_MAX];
    int64_t total = json_i64(n, "gpus_milli", 0);
    if (!total)
        return "-";
    return arena_printf(a, "%s/%s", gpu_milli_format((uint64_t)json_i64(n, "gpus_used_milli", 0), used),
                        gpu_milli_format((uint64_t)total, all));
}

// Why the node takes no jobs; else which of its GPUs is out of use, and why.
static const char *reason_text(struct arena *a, const struct json *n) {
    const struct json *gpus = json_get(n, "gpus");
    const char *own = json_str(n, "reason"), *first = NULL;
    uint32_t bad = 0, index = 0;
    if (!str_empty(own))
        return own;
    for (uint32_t i = 0; gpus && gpus->type == JSON_ARRAY && i < gpus->len; i++) {
        const char *why = json_str(&gpus->items[i], "unhealthy");
        if (str_empty(why))
            continue;
        bad++;
        if (!first) {
            first = why;
            index = i;
        }
    }
    if (!bad)
        return "";
    return bad == 1 ? arena_printf(a, "GPU %u: %s", index, first)
                    : arena_printf(a, "GPU %u: %s; and %u more", index, first, bad - 1);
}

static const struct json *item(const struct json *list, uint32_t i) {
    return list && list->type == JSON_ARRAY && i < list->len ? &list->items[i] : NULL;
}

// "12, 15_3, 16 and 2 more": who holds it, those who only use it marked.
static const char *holders_text(struct arena *a, const struct json *now) {
    enum { NAMED_MAX = 3 };
    cleanup_buf struct buf b = {0};
    const struct json *jobs = now ? json_get(now, "jobs") : NULL, *j;
    for (uint32_t i = 0; i < NAMED_MAX && (j = item(jobs, i)); i++)
        buf_addf(&b, "%s%s%s", i ? ", " : "", json_str(j, "job"), json_true(j, "stray") ? " (stray)" : "");
    if (item(jobs, NAMED_MAX))
        buf_addf(&b, " and %u more", jobs->len - NAMED_MAX);
    return arena_strdup(a, buf_str(&b));
}

// What the GPU does right now; dashes where nobody measures it.
static void add_measured(struct arena *a, const struct json *g, const struct json *now, bool heat,
                         struct text_table *t) {
    char used[UNIT_TEXT_MAX], all[UNIT_TEXT_MAX], held[GPU_TEXT_MAX];
    bool known = now && json_get(now, "memory_used_bytes");
    size_format((uint64_t)json_i64(g, "memory_bytes", 0), all);
    if (known && json_get(now, "use_milli"))
        table_addf(t, "%lld %%", (long long)(json_i64(now, "use_milli", 0) + 5) / 10);
    else
        table_add(t, "-", COLOUR_NONE);
    if (known) {
        table_addf(t, "%s/%s", size_format((uint64_t)json_i64(now, "memory_used_bytes", 0), used), all);
    } else {
        table_addf(t, "-/%s", all);
    }
    if (heat) {
        table_add(t, known ? arena_printf(a, "%lld W", (long long)(json_i64(now, "power_mw", 0) + 500) / 1000) : "-",
                  COLOUR_NONE);
        table_add(t, known ? arena_printf(a, "%lld C", (long long)json_i64(now, "temperature_c", 0)) : "-",
                  COLOUR_NONE);
    }
    gpu_milli_format(now ? (uint64_t)json_i64(now, "held_milli", 0) : 0, held);
    table_add(t, arena_strdup(a, held), COLOUR_NONE);
}

// The GPUs of one node, when it is asked for by name; where they are only with --wide, power and temperature not on a
// narrow terminal.
static void print_gpus(struct cli *c, const struct json *n, struct buf *out) {
    static const struct table_column titles[] = {
        {"GPU", true, 0, 0},   {"MODEL", false, 2, 5}, {"USE", true, 0, 0},  {"MEMORY", true, 0, 0},
        {"POWER", true, 0, 0}, {"TEMP", true, 0, 0},   {"HELD", true, 0, 0}, {"JOBS", false, 5, 4},
        {"STATE", false, 0, 0}, {"NUMA", true, 0, 0}, {"LINKS", true, 0, 0}, {"PCI", false, 0, 0},
        {"UUID", false, 0, 0}};
    enum { WIDE = sizeof titles / sizeof *titles, USUAL = 9, HEAT = 4, HEAT_COLUMNS = 2 };
    struct table_column shown[WIDE];
    const struct json *gpus = json_get(n, "gpus"), *now = json_get(n, "gpus_now");
    bool wide = option_given(&c->options, "wide"), heat = wide || terminal_width() >= TERMINAL_WIDTH_DEFAULT;
    uint32_t count = 0;
    if (!item(gpus, 0))
        return;
    for (uint32_t i = 0; i < (wide ? WIDE : USUAL); i++)
        if (heat || i < HEAT || i >= HEAT + HEAT_COLUMNS)
            shown[count++] = titles[i];
    struct text_table t;
    table_init(&t, &c->arena, shown, count);
    for (uint32_t i = 0; i < gpus->len; i++) {
        const struct json *g = &gpus->items[i];
        const char *why = json_str(g, "unhealthy");
        table_addf(&t, "%u", i);
        table_add(&t, json_str(g, "model"), COLOUR_NONE);
        add_measured(&c->arena, g, item(now, i), heat, &t);
        table_add(&t, holders_text(&c->arena, item(now, i)), COLOUR_NONE);
        if (str_empty(why))
            table_add(&t, json_true(g, "simulated") ? "simulated" : "ready", COLOUR_NONE);
        else
            table_add(&t, "out of use", COLOUR_RED);
        if (!wide)
            continue;
        table_addf(&t, "%lld", (long long)json_i64(g, "numa", 0));
        table_addf(&t, "%lld", (long long)json_i64(g, "link_group", 0));
        table_add(&t, json_str(g, "pci"), COLOUR_NONE);
        table_add(&t, json_str(g, "uuid"), COLOUR_NONE);
    }
    buf_addc(out, '\n');
    table_print(&t, wide ? 0 : terminal_width(), !option_given(&c->options, "no-heading"), terminal_colour(), out);
    table_done(&t);
    for (uint32_t i = 0; i < gpus->len; i++)
        if (!str_empty(json_str(&gpus->items[i], "unhealthy")))
            buf_addf(out, "GPU %u is out of use: %s\n", i, json_str(&gpus->items[i], "unhealthy"));
}

static void add_cell(struct cli *c, const char *name, const struct json *n, struct text_table *t) {
    char used[UNIT_TEXT_MAX], all[UNIT_TEXT_MAX];
    struct arena *a = &c->arena;
    const struct json *jobs = json_get(n, "jobs");
    if (streq(name, "state"))
        table_add(t, json_str(n, "state"), state_colour(json_str(n, "state")));
    else if (streq(name, "cpus"))
        table_addf(t, "%lld/%lld", (long long)json_i64(n, "cpus_used", 0), (long long)json_i64(n, "cpus", 0));
    else if (streq(name, "memory"))
        table_addf(t, "%s/%s", size_format((uint64_t)json_i64(n, "memory_used_bytes", 0), used),
                   size_format((uint64_t)json_i64(n, "memory_bytes", 0), all));
    else if (streq(name, "gpus"))
        table_add(t, gpus_text(a, n), COLOUR_NONE);
    else if (streq(name, "jobs"))
        table_addf(t, "%lld",
                   jobs && jobs->type == JSON_ARRAY ? (long long)jobs->len
                                                    : (long long)json_i64(n, "jobs", 0));
    else if (streq(name, "features") || streq(name, "partitions"))
        table_add(t, joined(a, json_get(n, name)), COLOUR_NONE);
    else if (streq(name, "reason"))
        table_add(t, reason_text(a, n), COLOUR_NONE);
    else if (streq(name, "seen"))
        table_add(t, arena_strdup(a, local_time_short(json_i64(n, "last_seen_ms", 0), clock_wall_ms(), used)),
                  COLOUR_NONE);
    else
        table_add(t, json_str(n, name), COLOUR_NONE);
}

static int find_column(const char *name, size_t len) {
    for (int i = 0; i < COLUMNS; i++)
        if (strlen(columns[i].name) == len && !strncmp(columns[i].name, name, len))
            return i;
    return -1;
}

// The usual columns; on a narrow terminal without those that say nothing.
static const char *usual_columns(struct cli *c, const struct json *nodes) {
    bool features = false, reasons = false;
    if (!terminal_table_width() || terminal_table_width() >= TERMINAL_WIDTH_DEFAULT)
        return "name,state,cpus,memory,gpus,jobs,features,reason";
    for (uint32_t i = 0; nodes && nodes->type == JSON_ARRAY && i < nodes->len; i++) {
        features |= *joined(&c->arena, json_get(&nodes->items[i], "features")) != 0;
        reasons |= *reason_text(&c->arena, &nodes->items[i]) != 0;
    }
    return arena_printf(&c->arena, "name,state,cpus,memory,gpus,jobs%s%s", features ? ",features" : "",
                        reasons ? ",reason" : "");
}

static int print_nodes(struct cli *c, const struct json *nodes, struct buf *out) {
    int chosen[COLUMNS];
    struct table_column titles[COLUMNS];
    uint32_t count = 0;
    const char *names = option_get(&c->options, "columns");
    if (!names)
        names = option_given(&c->options, "missing") ? "name,state,missing" : usual_columns(c, nodes);
    for (const char *p = names; *p; p += *p == ',') {
        size_t len = strcspn(p, ",");
        int i = find_column(p, len);
        if (i < 0 || count == COLUMNS)
            return cli_usage(c, "unknown column \"%.*s\"; see acequia nodes --help",
                             (int)(len > 40 ? 40 : len), p);
        chosen[count] = i;
        titles[count++] = columns[i].column;
        p += len;
    }
    struct text_table t;
    table_init(&t, &c->arena, titles, count);
    for (uint32_t i = 0; nodes && nodes->type == JSON_ARRAY && i < nodes->len; i++)
        for (uint32_t k = 0; k < count; k++)
            add_cell(c, columns[chosen[k]].name, &nodes->items[i], &t);
    table_print(&t, option_given(&c->options, "wide") ? 0 : terminal_table_width(),
                !option_given(&c->options, "no-heading"), terminal_colour(), out);
    table_done(&t);
    return CLI_OK;
}

static int run(struct cli *c) {
    struct reply reply;
    cleanup_buf struct buf out = {0}, target = {0};
    buf_adds(&target, "/v1/nodes");
    if (c->count) {
        buf_addc(&target, '/');
        http_percent_encode(&target, c->arguments[0]);
    }
    int status = client_get(c, buf_str(&target), &reply);
    if (status != CLI_OK)
        return status;
    if (c->json) {
        buf_addf(&out, "%s\n", reply.text);
    } else if (c->count) {
        struct json one = {.type = JSON_ARRAY, .len = 1, .items = (struct json *)(uintptr_t)reply.json};
        status = print_nodes(c, &one, &out);
        if (status == CLI_OK && !option_given(&c->options, "columns") && !option_given(&c->options, "missing"))
            print_gpus(c, reply.json, &out);
    } else {
        status = print_nodes(c, json_get(reply.json, "nodes"), &out);
    }
    int printed = cli_print(&out);
    return status == CLI_OK ? printed : status;
}

const struct verb verb_nodes = {
    .name = "nodes",
    .group = "Cluster",
    .arguments = "[options] [NODE]",
    .summary = "list nodes, their resources and what is in use",
    .examples = "acequia nodes\nacequia nodes n1 --json",
    .options = {&table_options, &cli_common_options},
    .run = run,
    .complete = "@node",
    .most = 1,
};
