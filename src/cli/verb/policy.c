// acequia policy: the rules of sharing in force, and changing them. Keys and values are those of the
// configuration's [policy] section.
#include <string.h>

#include "base/text.h"
#include "cli/client/client.h"
#include "cli/term/table.h"
#include "verbs.h"
#include "model/config_table.h"
#include "model/units.h"

static const struct option_spec specs[] = {
    {"dry-run", 0, NULL, "Set: change nothing, and show what the change would have done to recent jobs.", 0,
     NULL, NULL},
    {"days", 0, "DAYS", "With --dry-run: jobs that ended in so many last days; default: 7.", 0, NULL, NULL},
};
static const struct option_table table = OPTION_TABLE("Options", specs);

static int read_settings(struct cli *c, const struct json *j, struct policy_settings *out) {
    return schema_read_json(&policy_schema, j, &c->arena, out, &c->error);
}

static int show(struct cli *c) {
    const struct config_section *section = config_section_find("policy");
    struct reply reply;
    struct policy_settings now, usual;
    cleanup_buf struct buf out = {0};
    int status = client_get(c, "/v1/policy", &reply);
    if (status != CLI_OK)
        return status;
    if (c->json) {
        buf_addf(&out, "%s\n", reply.text);
        return cli_print(&out);
    }
    if (read_settings(c, reply.json, &now) < 0)
        return cli_fail(c);
    config_defaults(section, &c->arena, &usual);
    buf_adds(&out, "[policy]\n");
    for (size_t i = 0; i < section->count; i++) {
        cleanup_buf struct buf value = {0}, fallback = {0};
        config_value_format(&section->keys[i], &now, &value);
        config_value_format(&section->keys[i], &usual, &fallback);
        buf_addf(&out, "%s = %s", section->keys[i].name, buf_str(&value));
        if (!streq(buf_str(&value), buf_str(&fallback)))
            buf_addf(&out, "    # default: %s", buf_str(&fallback));
        buf_addc(&out, '\n');
    }
    return cli_print(&out);
}

static const struct config_key *find_key(const struct config_section *s, const char *name) {
    for (size_t i = 0; i < s->count; i++)
        if (streq(s->keys[i].name, name))
            return &s->keys[i];
    return NULL;
}

// Reads one KEY=VALUE into its place.
static int read_change(struct cli *c, const struct config_section *s, const char *text, struct policy_settings *to) {
    const char *equals = strchr(text, '=');
    if (!equals)
        return cli_usage(c, "\"%.40s\" is not KEY=VALUE; example: use=1d", text);
    const char *name = arena_strndup(&c->arena, text, (size_t)(equals - text));
    const struct config_key *k = find_key(s, name);
    if (!k)
        return cli_usage(c, "unknown policy setting \"%.40s\"; see 'acequia policy show'", name);
    if (config_value_parse(k, equals + 1, NULL, &c->arena, to, &c->error) < 0)
        return cli_usage(c, "%s: %s", name, arena_strdup(&c->arena, c->error.text));
    schema_give(&policy_schema, to, (char *)to + k->offset);
    return CLI_OK;
}

// --- what a change would have done ---

static double number_of(const struct json *j, const char *field) {
    const struct json *v = json_get(j, field);
    double d = !v ? 0 : v->type == JSON_DOUBLE ? v->d : (double)json_i64(j, field, 0);
    return d > 0 ? d : 0;
}

static const char *wait_text(struct arena *a, const struct json *run, const char *field) {
    char text[UNIT_TEXT_MAX];
    return arena_strdup(a, duration_format((uint64_t)(number_of(run, field) + 0.5), text));
}

static void add_trial_row(struct cli *c, struct text_table *t, const char *name, int64_t jobs,
                          const struct json *of) {
    const struct json *now = json_get(of, "now"), *changed = json_get(of, "changed");
    table_add(t, name, COLOUR_NONE);
    table_addf(t, "%lld", (long long)jobs);
    table_addf(t, "%s -> %s", wait_text(&c->arena, now, "wait_median_s"),
               wait_text(&c->arena, changed, "wait_median_s"));
    table_addf(t, "%s -> %s", wait_text(&c->arena, now, "wait_p95_s"),
               wait_text(&c->arena, changed, "wait_p95_s"));
    table_addf(t, "%lld -> %lld", (long long)json_i64(now, "preemptions", 0),
               (long long)json_i64(changed, "preemptions", 0));
    table_addf(t, "%.1f -> %.1f", number_of(now, "gpu_hours"), number_of(changed, "gpu_hours"));
}

static void print_trial(struct cli *c, const struct json *j, struct buf *out) {
    static const struct table_column columns[] = {{"PROJECT", false, 5, 8},      {"JOBS", true, 0, 0},
                                                  {"WAIT (MEDIAN)", true, 0, 0}, {"WAIT (95 %)", true, 0, 0},
                                                  {"PREEMPTED", true, 0, 0},     {"GPU HOURS", true, 0, 0}};
    struct text_table t;
    const struct json *projects = json_get(j, "projects");
    long long jobs = (long long)json_i64(j, "jobs", 0);
    if (!jobs) {
        buf_adds(out, "No job has run in that time: there is nothing to try the change on.\n");
        return;
    }
    buf_addf(out,
             "%lld job%s sent through the scheduler twice, with the policy in force and with the change:\n",
             jobs, jobs == 1 ? "" : "s");
    table_init(&t, &c->arena, columns, 6);
    for (uint32_t i = 0; projects && projects->type == JSON_ARRAY && i < projects->len; i++)
        add_trial_row(c, &t, json_str(&projects->items[i], "project"),
                      json_i64(&projects->items[i], "jobs", 0), &projects->items[i]);
    add_trial_row(c, &t, "all", jobs, j);
    table_print(&t, terminal_table_width(), true, terminal_colour(), out);
    table_done(&t);
    buf_addf(out, "%lld would have ended sooner, %lld later. Nothing was changed.\n",
             (long long)json_i64(j, "sooner", 0), (long long)json_i64(j, "later", 0));
    if (!json_true(j, "complete"))
        buf_adds(out, "There are more jobs than can be tried: only the newest took part.\n");
}

static int try_change(struct cli *c, const struct policy_settings *change) {
    cleanup_buf struct buf body = {0}, out = {0};
    struct reply reply;
    const char *days = option_get(&c->options, "days");
    uint64_t n = 0;
    if (days && (parse_u64(days, &n) < 0 || !n || n > 366))
        return cli_usage(c, "--days: expected 1 to 366");
    buf_adds(&body, "{\"change\":");
    schema_write_given_json(&policy_schema, change, &(struct json_writer){.out = &body});
    if (n)
        buf_addf(&body, ",\"days\":%llu", (unsigned long long)n);
    buf_addc(&body, '}');
    int status = client_request(c, "POST", "/v1/policy/dry-run", &body, &reply);
    if (status != CLI_OK)
        return status;
    if (c->json)
        buf_addf(&out, "%s\n", reply.text);
    else
        print_trial(c, reply.json, &out);
    return cli_print(&out);
}

static int set(struct cli *c) {
    const struct config_section *s = config_section_find("policy");
    struct policy_settings change = {0};
    cleanup_buf struct buf body = {0};
    struct reply reply;
    if (c->count < 2)
        return cli_usage(c, "policy set needs KEY=VALUE; see 'acequia policy show'");
    for (int i = 1; i < c->count; i++) {
        int status = read_change(c, s, c->arguments[i], &change);
        if (status != CLI_OK)
            return status;
    }
    if (option_given(&c->options, "dry-run"))
        return try_change(c, &change);
    schema_write_given_json(&policy_schema, &change, &(struct json_writer){.out = &body});
    int status = client_request(c, "PUT", "/v1/policy", &body, &reply);
    if (status != CLI_OK)
        return status;
    cleanup_buf struct buf out = {0};
    if (c->json)
        buf_addf(&out, "%s\n", reply.text);
    else
        buf_adds(&out, "Policy changed\n");
    return cli_print(&out);
}

static int run(struct cli *c) {
    if (!c->count || (c->count == 1 && streq(c->arguments[0], "show")))
        return show(c);
    if (streq(c->arguments[0], "set"))
        return set(c);
    return cli_usage(c, "unknown action \"%.40s\"; use show or set", c->arguments[0]);
}

const struct verb verb_policy = {
    .name = "policy",
    .group = "Sharing",
    .arguments = "[show]\nset [--dry-run [--days DAYS]] KEY=VALUE...",
    .summary = "show or change the scheduling policy",
    .text = "Keys and values are those of the [policy] section in acequia.conf(5). A change takes effect at "
            "once and survives "
            "restarts, except for settings in the configuration file: those are applied again whenever the "
            "file is read. With --dry-run the change is tried on your "
            "own history: the jobs of the last days go through the scheduler twice in virtual time, with the "
            "times "
            "they really ran and the nodes and quotas of today, and waits, preemptions and GPU-hours of each "
            "project "
            "are compared. Partitions, QoS and reservations are not replayed. For more: acequia trace, "
            "acequia sim.",
    .examples = "acequia policy\nacequia policy set use=1d half_life=14d\nacequia policy set min_run=10m "
                "reclaim=true\nacequia policy set --dry-run backfill=shortest",
    .options = {&table, &cli_common_options},
    .run = run,
    .complete = "show set",
    .most = 33,
};
