// acequia provider, acequia providers
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "base/json.h"
#include "base/text.h"
#include "cli/client/client.h"
#include "cli/term/local_time.h"
#include "cli/term/table.h"
#include "model/units.h"
#include "verbs.h"

static const struct option_spec limits[] = {
    {"name", 0, "NAME", "Add: its name, the first part of its nodes' names; default: the kind.", 0, NULL, NULL},
    {"max", 0, "N", "Most nodes.", 0, NULL, NULL},
    {"min", 0, "N", "Least nodes; default 0.", 0, NULL, NULL},
    {"idle", 0, "TIME", "A node without jobs for so long is given back; default 5m.", 0, NULL, NULL},
    {"rate", 0, "N", "Nodes that are asked for per minute at most; default 60.", 0, NULL, NULL},
    {"start", 0, "TIME", "A node that runs for so long and has not joined is given up; default 10m.", 0, NULL, NULL},
    {"cost", 0, "AMOUNT", "What a node costs per hour, in any currency; default: as the engine says.", 0, NULL, NULL},
    {"budget", 0, "AMOUNT", "What its nodes may cost per day (UTC).", 0, NULL, NULL},
    {"secret", 0, "NAME", "A secret of yours that its program is given, as a key of its engine.", OPTION_REPEAT, NULL,
     NULL},
    {"pause", 0, NULL, "Start no nodes; those that are there stay.", 0, NULL, NULL},
    {"resume", 0, NULL, "Start nodes again.", 0, NULL, NULL},
    {"now", 0, NULL, "Remove: queue jobs on its nodes again instead of waiting for them.", 0, NULL, NULL},
    {"forget", 0, NULL, "Remove: without asking the engine, which is gone itself.", 0, NULL, NULL},
};
// Passed on to our own programs as they are; what else these take follows after --.
static const struct option_spec engine[] = {
    {"partition", 0, "NAME", "Slurm: partition of the pilot jobs.", 0, NULL, NULL},
    {"gres", 0, "GRES", "Slurm: generic resources of a node, as gpu:2.", 0, NULL, NULL},
    {"account", 0, "NAME", "Slurm: account.", 0, NULL, NULL},
    {"qos", 0, "NAME", "Slurm: QoS.", 0, NULL, NULL},
    {"constraint", 0, "WORDS", "Slurm: features the nodes must have.", 0, NULL, NULL},
    {"time", 0, "TIME", "Slurm: time limit of a pilot job; default: the partition's.", 0, NULL, NULL},
    {"as", 0, "USER", "Slurm: the user who submits, where the controller is root.", 0, NULL, NULL},
    {"cpus", 0, "N", "CPUs of a node.", 0, NULL, NULL},
    {"memory", 0, "SIZE", "Memory of a node.", 0, NULL, NULL},
};
static const struct option_table limit_table = OPTION_TABLE("Options", limits);
static const struct option_table engine_table = OPTION_TABLE("Options of the engine", engine);
static const struct option_spec shown[] = {
    {"timings", 0, NULL, "When each node was needed, asked for, accepted, started, joined and first used.", 0, NULL,
     NULL},
    {"csv", 0, NULL, "Timings as CSV, times in ms since 1970.", 0, NULL, NULL},
};
static const struct option_table shown_table = OPTION_TABLE("Options", shown);

static int print_json(const struct reply *reply) {
    cleanup_buf struct buf out = {0};
    buf_addf(&out, "%s\n", reply->text);
    return cli_print(&out);
}

static int add_number(struct cli *c, struct json_writer *w, const char *option, const char *field) {
    uint32_t n = 0;
    if (!option_given(&c->options, option))
        return 0;
    int r = option_u32(&c->options, option, 0, UINT32_MAX, &n, &c->error);
    json_kv_i64(w, field, n);
    return r;
}

static int add_time(struct cli *c, struct json_writer *w, const char *option, const char *field) {
    uint32_t s = 0;
    if (!option_given(&c->options, option))
        return 0;
    int r = option_duration(&c->options, option, 1, &s, &c->error);
    json_kv_i64(w, field, s);
    return r;
}

static int add_amount(struct cli *c, struct json_writer *w, const char *option, const char *field) {
    const char *text = option_get(&c->options, option);
    char *end = NULL;
    if (!text)
        return 0;
    double value = strtod(text, &end);
    if (!*text || *end || !(value >= 0 && value <= 1e9))
        return error_set(&c->error, EINVAL, "--%s is \"%.20s\"; expected an amount as 2.50", option, text);
    json_kv_i64(w, field, (int64_t)(value * 1000 + 0.5));
    return 0;
}

// The engine's options and what follows them are the program's arguments; none: they stay.
static void add_args(struct cli *c, struct json_writer *w, int from) {
    bool any = c->count > from;
    for (size_t i = 0; i < sizeof engine / sizeof *engine; i++)
        any |= option_given(&c->options, engine[i].name);
    if (!any)
        return;
    json_open_key(w, "args", '[');
    for (size_t i = 0; i < sizeof engine / sizeof *engine; i++) {
        uint32_t at = 0;
        for (const char *v; (v = option_next(&c->options, engine[i].name, &at));)
            json_put_str(w, arena_printf(&c->arena, "--%s=%s", engine[i].name, v));
    }
    for (int i = from; i < c->count; i++)
        json_put_str(w, c->arguments[i]);
    json_close(w, ']');
}

static int send(struct cli *c, const char *name, const char *kind, const char *program, int args_from) {
    cleanup_buf struct buf body = {0}, path = {0};
    struct json_writer w = {.out = &body};
    struct reply reply;
    int r;
    json_open(&w, '{');
    if (kind)
        json_kv_str(&w, "kind", kind);
    if (program)
        json_kv_str(&w, "program", program);
    if ((r = add_number(c, &w, "max", "max")) < 0 || (r = add_number(c, &w, "min", "min")) < 0 ||
        (r = add_number(c, &w, "rate", "rate")) < 0 || (r = add_time(c, &w, "idle", "idle_s")) < 0 ||
        (r = add_time(c, &w, "start", "start_s")) < 0 || (r = add_amount(c, &w, "cost", "cost_milli")) < 0 ||
        (r = add_amount(c, &w, "budget", "budget_milli")) < 0)
        return cli_usage(c, "%s", arena_strdup(&c->arena, c->error.text));
    if (option_given(&c->options, "pause") || option_given(&c->options, "resume"))
        json_kv_bool(&w, "paused", option_given(&c->options, "pause"));
    if (option_given(&c->options, "secret")) {
        uint32_t at = 0;
        json_open_key(&w, "secrets", '[');
        for (const char *v; (v = option_next(&c->options, "secret", &at));)
            json_put_str(&w, v);
        json_close(&w, ']');
    }
    add_args(c, &w, args_from);
    json_close(&w, '}');
    buf_adds(&path, "/v1/providers/");
    http_percent_encode(&path, name);
    int status = client_request(c, "PUT", buf_str(&path), &body, &reply);
    if (status != CLI_OK || c->json)
        return status != CLI_OK ? status : print_json(&reply);
    printf("Provider %s %s; see 'acequia providers'\n", name, kind ? "added" : "changed");
    return CLI_OK;
}

static int add(struct cli *c) {
    const char *kind = c->count > 1 ? c->arguments[1] : "";
    const char *name = option_get(&c->options, "name");
    bool program = streq(kind, "program");
    if (!program && !streq(kind, "slurm"))
        return cli_usage(c, "add needs a kind: slurm, or program PATH");
    if (program && c->count < 3)
        return cli_usage(c, "add program needs the path of the program");
    return send(c, name ? name : kind, kind, program ? c->arguments[2] : NULL, program ? 3 : 2);
}

static int set(struct cli *c) {
    if (c->count < 2)
        return cli_usage(c, "set needs the name of a provider");
    return send(c, c->arguments[1], NULL, NULL, 2);
}

static int remove_provider(struct cli *c) {
    cleanup_query struct query q = {0};
    cleanup_buf struct buf path = {0};
    struct reply reply;
    if (c->count != 2)
        return cli_usage(c, "remove needs the name of a provider");
    buf_adds(&path, "/v1/providers/");
    http_percent_encode(&path, c->arguments[1]);
    client_query_begin(&q, buf_str(&path));
    if (option_given(&c->options, "now"))
        client_query_add(&q, "now", "1");
    if (option_given(&c->options, "forget"))
        client_query_add(&q, "forget", "1");
    int status = client_request(c, "DELETE", buf_str(&q.text), NULL, &reply);
    if (status != CLI_OK || c->json)
        return status != CLI_OK ? status : print_json(&reply);
    printf("Provider %s is removed when its last node is gone; see 'acequia providers'\n", c->arguments[1]);
    return CLI_OK;
}

// --- showing ---

static const char *shape_text(struct cli *c, const struct json *s) {
    char memory[UNIT_TEXT_MAX];
    int64_t gpus = json_i64(s, "gpus", 0), cost = json_i64(s, "cost_milli", 0);
    cleanup_buf struct buf b = {0};
    buf_addf(&b, "%s: %lld CPUs, %s", json_str(s, "name"), (long long)json_i64(s, "cpus", 0),
             size_format((uint64_t)json_i64(s, "memory_bytes", 0), memory));
    if (gpus)
        buf_addf(&b, ", %lld GPU%s%s%s", (long long)gpus, gpus == 1 ? "" : "s", json_str(s, "gpu_model") ? " " : "",
                 json_str(s, "gpu_model") ? json_str(s, "gpu_model") : "");
    if (json_str(s, "user"))
        buf_addf(&b, ", for %s's jobs only", json_str(s, "user"));
    if (cost)
        buf_addf(&b, ", %.2f an hour", (double)cost / 1000);
    return arena_strdup(&c->arena, buf_str(&b));
}

static void show_one(struct cli *c, const struct json *p, struct buf *out) {
    const struct json *s = json_get(p, "settings"), *shapes = json_get(s, "shapes"), *args = json_get(s, "args");
    char idle[UNIT_TEXT_MAX];
    buf_addf(out, "Provider       %s (%s)%s\n", json_str(s, "name"), json_str(s, "kind"),
             json_true(s, "removing") ? ", being removed" : json_true(s, "paused") ? ", paused" : "");
    if (json_str(s, "program"))
        buf_addf(out, "Program        %s\n", json_str(s, "program"));
    for (uint32_t i = 0; args && i < args->len; i++)
        buf_addf(out, "%s%s%s", i ? " " : "Arguments      ", args->items[i].s, i + 1 == args->len ? "\n" : "");
    buf_addf(out, "Nodes          %lld joined, %lld coming, %lld leaving; %lld to %lld\n",
             (long long)json_i64(p, "joined", 0), (long long)json_i64(p, "coming", 0),
             (long long)json_i64(p, "leaving", 0), (long long)json_i64(s, "min", 0), (long long)json_i64(s, "max", 0));
    buf_addf(out, "Given back     when without jobs for %s\n",
             duration_format((uint64_t)json_i64(s, "idle_s", 0), idle));
    const struct json *budget = json_get(s, "budget_milli");
    buf_addf(out, "Spent today    %.2f", (double)json_i64(p, "spent_milli", 0) / 1000);
    if (budget && budget->type != JSON_NULL)
        buf_addf(out, " of %.2f", (double)json_i64(s, "budget_milli", 0) / 1000);
    buf_addc(out, '\n');
    for (uint32_t i = 0; shapes && i < shapes->len; i++)
        buf_addf(out, "%s%s\n", i ? "               " : "Offers         ", shape_text(c, &shapes->items[i]));
    if (json_str(p, "decision"))
        buf_addf(out, "Decision       %s\n", json_str(p, "decision"));
    if (json_str(p, "problem"))
        buf_addf(out, "Problem        %s\n", json_str(p, "problem"));
}

static int show(struct cli *c) {
    cleanup_buf struct buf out = {0};
    struct reply reply;
    bool found = false;
    if (c->count != 2)
        return cli_usage(c, "show needs the name of a provider");
    int status = client_get(c, "/v1/providers", &reply);
    if (status != CLI_OK || c->json)
        return status != CLI_OK ? status : print_json(&reply);
    const struct json *all = json_get(reply.json, "providers");
    for (uint32_t i = 0; all && i < all->len; i++)
        if (streq(json_str(json_get(&all->items[i], "settings"), "name"), c->arguments[1])) {
            show_one(c, &all->items[i], &out);
            found = true;
        }
    if (!found)
        return cli_failf(c, "provider \"%.40s\" does not exist; see 'acequia provider list'", c->arguments[1]);
    return cli_print(&out);
}

static void list_providers(struct cli *c, const struct json *answer, struct buf *out) {
    static const struct table_column columns[] = {{"PROVIDER", false, 4, 8}, {"KIND", false, 4, 0},
                                                  {"JOINED", true, 0, 0},    {"COMING", true, 0, 0},
                                                  {"LEAVING", true, 0, 0},   {"MAX", true, 0, 0},
                                                  {"DECISION", false, 10, 20}};
    const struct json *all = json_get(answer, "providers");
    struct text_table t;
    table_init(&t, &c->arena, columns, 7);
    for (uint32_t i = 0; all && i < all->len; i++) {
        const struct json *p = &all->items[i], *s = json_get(p, "settings");
        const char *said = json_str(p, "problem") ? json_str(p, "problem") : json_str(p, "decision");
        table_add(&t, json_str(s, "name"), COLOUR_NONE);
        table_add(&t, json_str(s, "kind"), COLOUR_NONE);
        table_add(&t, arena_printf(&c->arena, "%lld", (long long)json_i64(p, "joined", 0)), COLOUR_NONE);
        table_add(&t, arena_printf(&c->arena, "%lld", (long long)json_i64(p, "coming", 0)), COLOUR_NONE);
        table_add(&t, arena_printf(&c->arena, "%lld", (long long)json_i64(p, "leaving", 0)), COLOUR_NONE);
        table_add(&t, arena_printf(&c->arena, "%lld", (long long)json_i64(s, "max", 0)), COLOUR_NONE);
        table_add(&t, said ? said : json_true(s, "removing") ? "being removed" : "-",
                  json_str(p, "problem") ? COLOUR_RED : COLOUR_NONE);
    }
    table_print(&t, terminal_table_width(), true, terminal_colour(), out);
    table_done(&t);
}

static void list_nodes(struct cli *c, const struct json *answer, struct buf *out) {
    static const struct table_column columns[] = {{"NODE", false, 4, 8},   {"SHAPE", false, 3, 5},
                                                  {"STATE", false, 5, 0},  {"SINCE", false, 0, 0},
                                                  {"HANDLE", false, 4, 8}, {"REASON", false, 10, 20}};
    static const char *const times[] = {"wanted_ms",   "requested_ms", "booting_ms",  "joined_ms",
                                        "draining_ms", "stopping_ms"};
    const struct json *all = json_get(answer, "nodes");
    struct text_table t;
    table_init(&t, &c->arena, columns, 6);
    for (uint32_t i = 0; all && i < all->len; i++) {
        const struct json *n = &all->items[i];
        char when[UNIT_TEXT_MAX];
        int64_t since = 0;
        if (streq(json_str(n, "state"), "gone"))
            continue;
        for (size_t k = 0; k < sizeof times / sizeof *times; k++)
            since = json_i64(n, times[k], 0) > since ? json_i64(n, times[k], 0) : since;
        table_add(&t, json_str(n, "node"), COLOUR_NONE);
        table_add(&t, json_str(n, "shape"), COLOUR_NONE);
        table_add(&t, json_str(n, "state"), COLOUR_NONE);
        table_add(&t, arena_strdup(&c->arena, local_time_short(since, clock_wall_ms(), when)), COLOUR_NONE);
        table_add(&t, json_str(n, "handle") ? json_str(n, "handle") : "-", COLOUR_NONE);
        const char *said = json_str(n, "problem") ? json_str(n, "problem") : json_str(n, "reason");
        table_add(&t, said ? said : "-", COLOUR_NONE);
    }
    if (table_rows(&t))
        buf_addc(out, '\n');
    if (table_rows(&t))
        table_print(&t, terminal_table_width(), true, terminal_colour(), out);
    table_done(&t);
}

static const char *const steps[] = {"demand_ms", "requested_ms", "booting_ms", "running_ms",
                                    "joined_ms", "job_ms",       "gone_ms"};
enum { STEPS = sizeof steps / sizeof *steps };

static void timings_csv(const struct json *all, struct buf *out) {
    buf_adds(out, "provider,node,key,shape,state,demand,request,boot,start,join,first_job,gone\n");
    for (uint32_t i = 0; all && i < all->len; i++) {
        const struct json *n = &all->items[i];
        buf_addf(out, "%s,%s,%s,%s,%s", json_str(n, "provider"), json_str(n, "node"), json_str(n, "key"),
                 json_str(n, "shape"), json_str(n, "state"));
        for (int k = 0; k < STEPS; k++) {
            int64_t at = json_i64(n, steps[k], 0);
            if (at)
                buf_addf(out, ",%lld", (long long)at);
            else
                buf_addc(out, ',');
        }
        buf_addc(out, '\n');
    }
}

// Each as seconds since the demand.
static void timings(struct cli *c, const struct json *all, struct buf *out) {
    static const struct table_column columns[] = {
        {"NODE", false, 4, 8}, {"SHAPE", false, 3, 5}, {"STATE", false, 5, 0}, {"DEMAND", false, 0, 0},
        {"REQUEST", true, 0, 0}, {"BOOT", true, 0, 0}, {"START", true, 0, 0}, {"JOIN", true, 0, 0},
        {"JOB", true, 0, 0}};
    struct text_table t;
    table_init(&t, &c->arena, columns, 9);
    for (uint32_t i = 0; all && i < all->len; i++) {
        const struct json *n = &all->items[i];
        char when[UNIT_TEXT_MAX];
        int64_t from = json_i64(n, "demand_ms", 0);
        table_add(&t, json_str(n, "node"), COLOUR_NONE);
        table_add(&t, json_str(n, "shape"), COLOUR_NONE);
        table_add(&t, json_str(n, "state"), COLOUR_NONE);
        table_add(&t, arena_strdup(&c->arena, local_time_short(from, clock_wall_ms(), when)), COLOUR_NONE);
        for (int k = 1; k < STEPS - 1; k++) {
            int64_t at = json_i64(n, steps[k], 0);
            table_add(&t, at ? arena_printf(&c->arena, "%+.1f s", (double)(at - from) / 1000) : "-", COLOUR_NONE);
        }
    }
    table_print(&t, terminal_table_width(), true, terminal_colour(), out);
    table_done(&t);
}

static int run_providers(struct cli *c) {
    cleanup_buf struct buf out = {0};
    struct reply reply;
    int status = client_get(c, "/v1/providers", &reply);
    if (status != CLI_OK || c->json)
        return status != CLI_OK ? status : print_json(&reply);
    const struct json *nodes = json_get(reply.json, "nodes");
    if (option_given(&c->options, "csv")) {
        timings_csv(nodes, &out);
    } else if (option_given(&c->options, "timings")) {
        timings(c, nodes, &out);
    } else {
        list_providers(c, reply.json, &out);
        list_nodes(c, reply.json, &out);
    }
    return cli_print(&out);
}

static int list(struct cli *c) {
    cleanup_buf struct buf out = {0};
    struct reply reply;
    int status = client_get(c, "/v1/providers", &reply);
    if (status != CLI_OK || c->json)
        return status != CLI_OK ? status : print_json(&reply);
    list_providers(c, reply.json, &out);
    return cli_print(&out);
}

static int run(struct cli *c) {
    static const struct {
        const char *word;
        int (*run)(struct cli *c);
    } actions[] = {{"add", add}, {"list", list}, {"show", show}, {"set", set}, {"remove", remove_provider}};
    const char *what = c->count ? c->arguments[0] : "list";
    for (size_t i = 0; i < sizeof actions / sizeof *actions; i++)
        if (streq(what, actions[i].word))
            return actions[i].run(c);
    return cli_usage(c, "unknown action \"%.40s\"; use add, list, show, set or remove", what);
}

const struct verb verb_provider = {
    .name = "provider",
    .group = "Cluster",
    .arguments = "add slurm [options] [-- ARGUMENTS]\nadd program PATH [options] [-- ARGUMENTS]\n[list]\n"
                 "show NAME\nset NAME [options]\nremove NAME [--now|--forget]",
    .summary = "get nodes from Slurm or a program",
    .text = "A provider starts nodes when jobs wait that would not start sooner without them, and stops those that "
            "are without jobs: pilot jobs of Slurm, or whatever a program of your own starts. "
            "Nodes are drained before they are stopped; no job is ended for it. What is removed goes when its last "
            "node is gone.",
    .examples = "acequia provider add slurm --partition gpu --gres gpu:2 --max 8 --idle 5m\n"
                "acequia provider add program /opt/my-cloud --name cloud --max 4 --budget 50\n"
                "acequia provider set slurm --max 16\nacequia provider remove slurm",
    .options = {&limit_table, &engine_table, &cli_common_options},
    .run = run,
    .complete = "add list show set remove",
    .most = -1,
};

const struct verb verb_providers = {
    .name = "providers",
    .group = "Cluster",
    .arguments = "[--timings [--csv]]",
    .summary = "show what providers do, and why",
    .text = "Shows each provider with what was last decided and why, and its nodes from the moment they are wanted to "
            "their end.",
    .examples = "acequia providers\nacequia providers --timings --csv > timings.csv",
    .options = {&shown_table, &cli_common_options},
    .run = run_providers,
    .most = 0,
};
