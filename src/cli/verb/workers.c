// acequia workers
#include <stdlib.h>

#include "base/json.h"
#include "base/text.h"
#include "cli/client/client.h"
#include "cli/job/resolve.h"
#include "cli/term/table.h"
#include "cli/term/terminal.h"
#include "model/job.h"
#include "model/units.h"
#include "verbs.h"

static const struct option_spec specs[] = {
    {"idle", 0, "NUMBERS", "These workers have nothing to do: they are given back first. As 3,5.", 0, NULL,
     NULL},
    {"busy", 0, "NUMBERS", "These workers are not idle any more.", 0, NULL, NULL},
    {"rank", 0, "NUMBER=RANK,...",
     "Of workers that are not idle the lowest rank is given back first; else 0.", 0, NULL, NULL},
};
static const struct option_table table = OPTION_TABLE("Which workers are given back first", specs);

struct rank {
    int64_t rank;
    bool idle, changed;
};

// Puts what is given over the ranks that the job's workers have.
static int take(struct cli *c, const char *option, struct rank *ranks, uint32_t count) {
    const char *text = option_get(&c->options, option);
    for (const char *p = text; p && *p;) {
        char *end;
        unsigned long number = strtoul(p, &end, 10);
        if (end == p || number >= count)
            return cli_usage(
                c, "--%s: \"%.60s\" does not begin with the number of a worker; see acequia workers", option,
                p);
        struct rank *r = &ranks[number];
        r->changed = true;
        p = end;
        if (streq(option, "rank")) {
            if (*p != '=' || (r->rank = strtol(p + 1, &end, 10), end == p + 1))
                return cli_usage(c, "--rank: \"%.60s\"; expected NUMBER=RANK such as 3=10", text);
            p = end;
        } else {
            r->idle = streq(option, "idle");
        }
        if (*p && *p != ',')
            return cli_usage(c, "--%s: \"%.60s\"; expected numbers of workers with commas", option, text);
        p += *p == ',';
    }
    return CLI_OK;
}

static int send_ranks(struct cli *c, struct client *k, const char *target, const struct json *members) {
    cleanup_buf struct buf body = {0};
    struct json_writer w = {.out = &body};
    struct reply reply;
    static const char *const options[] = {"idle", "busy", "rank"};
    struct rank *ranks = arena_alloc(&c->arena, (members->len + 1) * sizeof *ranks);
    for (uint32_t i = 0; i < members->len; i++)
        ranks[i] = (struct rank){.rank = json_i64(&members->items[i], "rank", 0),
                                 .idle = json_true(&members->items[i], "idle")};
    for (int i = 0; i < 3; i++) {
        int status = take(c, options[i], ranks, members->len);
        if (status != CLI_OK)
            return status;
    }
    json_open(&w, '{');
    json_key(&w, "ranks");
    json_open(&w, '[');
    for (uint32_t i = 0; i < members->len; i++) {
        if (!ranks[i].changed)
            continue;
        json_open(&w, '{');
        json_kv_i64(&w, "number", i);
        json_kv_i64(&w, "rank", ranks[i].rank);
        json_kv_bool(&w, "idle", ranks[i].idle);
        json_close(&w, '}');
    }
    json_close(&w, ']');
    json_close(&w, '}');
    return client_call(k, "POST", arena_printf(&c->arena, "%s/workers", target), &body, &reply) < 0
               ? cli_fail(c)
               : CLI_OK;
}

static bool several_components(const struct json *members) {
    for (uint32_t i = 1; i < members->len; i++)
        if (!streq(json_str(&members->items[i], "component"), json_str(&members->items[0], "component")))
            return true;
    return false;
}

static void print_members(struct cli *c, const struct json *members, struct buf *out) {
    static const struct table_column columns[] = {{"WORKER", true}, {"STATE"},      {"NODE"},
                                                  {"KIND"},         {"RANK", true}, {"ATTEMPT", true},
                                                  {"JOB", true},    {"COMPONENT"}};
    struct text_table t;
    bool several = several_components(members);
    table_init(&t, &c->arena, columns, sizeof columns / sizeof *columns - !several);
    for (uint32_t i = 0; i < members->len; i++) {
        const struct json *m = &members->items[i];
        const char *ended = json_str(m, "ended"), *state = json_str(m, "state"), *node = json_str(m, "node");
        table_addf(&t, "%lld", (long long)json_i64(m, "number", 0));
        table_add(&t, ended ? ended : state ? state : "?", COLOUR_NONE);
        table_add(&t, node ? node : "-", COLOUR_NONE);
        table_add(&t, ended ? "-" : json_true(m, "optional") ? "optional" : "minimum", COLOUR_NONE);
        table_addf(&t, "%s%lld", json_true(m, "idle") ? "idle " : "", (long long)json_i64(m, "rank", 0));
        table_addf(&t, "%lld", (long long)json_i64(m, "attempt", 0));
        table_addf(&t, "%lld", (long long)json_i64(m, "id", 0));
        if (several)
            table_add(&t, json_str(m, "component"), COLOUR_NONE);
    }
    table_print(&t, terminal_table_width(), true, terminal_colour(), out);
    table_done(&t);
}

static int show_or_rank(struct cli *c, struct client *k, const char *target, struct buf *out) {
    struct reply reply;
    if (client_call(k, "GET", target, NULL, &reply) < 0)
        return cli_fail(c);
    const struct json *members = json_get(reply.json, "members");
    if (!members || members->type != JSON_ARRAY || !members->len)
        return cli_failf(c, "this job has no workers: it was not submitted with --workers");
    if (option_given(&c->options, "idle") || option_given(&c->options, "busy") ||
        option_given(&c->options, "rank"))
        return send_ranks(c, k, target, members);
    if (c->json) {
        struct json_writer w = {.out = out};
        json_write(&w, members);
        buf_addc(out, '\n');
    } else {
        print_members(c, members, out);
    }
    return CLI_OK;
}

static int run(struct cli *c) {
    cleanup_buf struct buf out = {0}, target = {0};
    struct client *k;
    const char *job = c->count ? c->arguments[0] : getenv("ACEQUIA_WORKERS_JOB");
    if (str_empty(job))
        return cli_usage(c, "name a job; inside an elastic job it may be left out");
    if (client_open(c, &k) < 0)
        return cli_fail(c);
    buf_adds(&target, "/v1/jobs/");
    http_percent_encode(&target, job);
    int status = show_or_rank(c, k, buf_str(&target), &out);
    client_free(k);
    cli_print(&out);
    return status;
}

const struct verb verb_workers = {
    .name = "workers",
    .group = "Work",
    .arguments = "[options] [JOB]",
    .summary = "show or rank the workers of an elastic job",
    .text = "Inside an elastic job, JOB may be left out. When others need the room of optional workers, idle "
            "ones are "
            "given back first, then those of the lowest rank, then the newest.",
    .examples = "acequia workers 12\nacequia workers 12 --idle 3,5\nacequia workers --rank 0=100",
    .options = {&table, &job_pick_options, &cli_common_options},
    .run = run,
    .complete = "@job",
    .most = 1,
    .jobs = VERB_JOB_FIRST,
};
