// acequia alert
#include <errno.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>

#include "base/clock.h"
#include "base/text.h"
#include "cli/client/client.h"
#include "cli/term/local_time.h"
#include "cli/term/table.h"
#include "model/units.h"
#include "verbs.h"

enum { FOR_MAX_S = 7 * 24 * 3600 };

static const struct option_spec specs[] = {
    {"metric", 0, "METRIC", "As charts name them; * stands for any one part: 'gpu/*/*/temperature_celsius'.",
     0, NULL, NULL},
    {"above", 0, "NUMBER", "Alert when it is above.", 0, NULL, NULL},
    {"below", 0, "NUMBER", "Alert when it is below.", 0, NULL, NULL},
    {"for", 0, "DURATION", "How long it must be so before there is an alert; default: 0, at once.", 0, NULL,
     NULL},
    {"to", 0, "LIST",
     "Who is told: mail addresses, users and URLs, joined by commas; default: alerts_to of [notify].", 0,
     NULL, NULL},
    {"off", 0, NULL, "Keep the rule, but raise no alerts.", 0, NULL, NULL},
    {"on", 0, NULL, "Raise alerts again.", 0, NULL, NULL},
    {"comment", 0, "TEXT", "With ack: what is being done about it.", 0, NULL, NULL},
};
static const struct option_table table_options = OPTION_TABLE("Options of set and ack", specs);

static const char *number_text(struct cli *c, const struct json *j, const char *key) {
    const struct json *v = json_get(j, key);
    if (v && v->type == JSON_INT)
        return arena_printf(&c->arena, "%lld", (long long)v->i);
    return v && v->type == JSON_DOUBLE ? arena_printf(&c->arena, "%.4g", v->d) : "-";
}

static void add_alerts(struct cli *c, const struct json *all, struct buf *out) {
    static const struct table_column columns[] = {{"RULE", false, 0, 0},  {"METRIC", false, 3, 12},
                                                  {"VALUE", true, 0, 0},  {"NOW", true, 0, 0},
                                                  {"SINCE", false, 0, 0}, {"ACKNOWLEDGED", false, 4, 12}};
    struct text_table t;
    table_init(&t, &c->arena, columns, sizeof columns / sizeof *columns);
    for (uint32_t i = 0; i < all->len; i++) {
        const struct json *a = &all->items[i];
        const char *by = json_str(a, "by"), *comment = json_str(a, "comment");
        char when[UNIT_TEXT_MAX];
        table_add(&t, json_str(a, "rule"), by ? COLOUR_NONE : COLOUR_RED);
        table_add(&t, json_str(a, "subject"), COLOUR_NONE);
        table_add(&t, number_text(c, a, "value"), COLOUR_NONE);
        table_add(&t, number_text(c, a, "now"), COLOUR_NONE);
        table_add(
            &t, arena_strdup(&c->arena, local_time_short(json_i64(a, "raised_ms", 0), clock_wall_ms(), when)),
            COLOUR_NONE);
        table_add(
            &t, by ? arena_printf(&c->arena, "%s%s%s", by, comment ? ": " : "", comment ? comment : "") : "-",
            COLOUR_NONE);
    }
    table_print(&t, terminal_table_width(), true, terminal_colour(), out);
    table_done(&t);
}

static void add_rules(struct cli *c, const struct json *all, struct buf *out) {
    static const struct table_column columns[] = {{"RULE", false, 0, 0},
                                                  {"METRIC", false, 3, 12},
                                                  {"WHEN", false, 0, 0},
                                                  {"FOR", true, 0, 0},
                                                  {"FROM", false, 0, 0}};
    struct text_table t;
    table_init(&t, &c->arena, columns, sizeof columns / sizeof *columns);
    for (uint32_t i = 0; i < all->len; i++) {
        const struct json *r = &all->items[i];
        char span[UNIT_TEXT_MAX];
        table_add(&t, json_str(r, "name"), COLOUR_NONE);
        table_add(&t, json_str(r, "metric"), COLOUR_NONE);
        table_add(&t, arena_printf(&c->arena, "%s %s", json_str(r, "when"), number_text(c, r, "value")),
                  COLOUR_NONE);
        table_add(&t, arena_strdup(&c->arena, duration_format((uint64_t)json_i64(r, "for_s", 0), span)),
                  COLOUR_NONE);
        table_add(&t,
                  json_true(r, "disabled") ? "off"
                  : json_true(r, "set")    ? "administrator"
                                           : "built in",
                  COLOUR_NONE);
    }
    table_print(&t, terminal_table_width(), true, terminal_colour(), out);
    table_done(&t);
}

static int list(struct cli *c) {
    struct reply reply;
    cleanup_buf struct buf out = {0};
    int status = client_get(c, "/v1/alerts", &reply);
    if (status != CLI_OK)
        return status;
    const struct json *alerts = json_get(reply.json, "alerts"), *rules = json_get(reply.json, "rules");
    if (c->json) {
        buf_addf(&out, "%s\n", reply.text);
        return cli_print(&out);
    }
    if (alerts && alerts->type == JSON_ARRAY && alerts->len)
        add_alerts(c, alerts, &out);
    else
        buf_adds(&out, "No alerts.\n");
    buf_adds(&out, "\n");
    if (rules && rules->type == JSON_ARRAY)
        add_rules(c, rules, &out);
    return cli_print(&out);
}

static int send(struct cli *c, const char *method, const char *target, const struct buf *body,
                const char *done) {
    struct reply reply;
    int status = client_request(c, method, target, body, &reply);
    if (status == CLI_OK)
        printf("%s\n", c->json ? reply.text : done);
    return status;
}

static const char *target_of(struct cli *c, const char *name) {
    cleanup_buf struct buf b = {0};
    buf_adds(&b, "/v1/alerts/");
    http_percent_encode(&b, name);
    return arena_strdup(&c->arena, buf_str(&b));
}

// The rule of this name as it is now; NULL: there is none.
static int find_rule(struct cli *c, const char *name, const struct json **out) {
    struct reply reply;
    int status = client_get(c, "/v1/alerts", &reply);
    const struct json *rules = status == CLI_OK ? json_get(reply.json, "rules") : NULL;
    *out = NULL;
    for (uint32_t i = 0; rules && rules->type == JSON_ARRAY && i < rules->len; i++)
        if (streq(json_str(&rules->items[i], "name"), name))
            *out = &rules->items[i];
    return status;
}

// What is given, over what the rule has; 0 or a usage error.
static int write_rule(struct cli *c, const struct json *old, struct json_writer *w) {
    const char *above = option_get(&c->options, "above"), *below = option_get(&c->options, "below");
    const char *metric = option_get(&c->options, "metric"), *to = option_get(&c->options, "to");
    const char *text = above ? above : below;
    char *end = NULL;
    uint32_t for_s = old ? (uint32_t)json_i64(old, "for_s", 0) : 0;
    const struct json *before = old ? json_get(old, "value") : NULL;
    double value = text                                    ? strtod(text, &end)
                   : before && before->type == JSON_DOUBLE ? before->d
                   : before                                ? (double)before->i
                                                           : 0;
    if ((above && below) || (!old && (!metric || !text)))
        return cli_usage(c, "set needs --metric, and either --above or --below");
    if (text && (end == text || *end || !isfinite(value)))
        return cli_usage(c, "--%s is \"%.40s\"; give a number", above ? "above" : "below", text);
    if (option_duration(&c->options, "for", 1, &for_s, &c->error) < 0)
        return cli_usage(c, "%s", arena_strdup(&c->arena, c->error.text));
    if (for_s > FOR_MAX_S)
        return cli_usage(c, "--for is \"%.40s\"; give at most 7d", option_get(&c->options, "for"));
    json_open(w, '{');
    json_kv_str(w, "metric", metric ? metric : json_str(old, "metric"));
    json_kv_str(w, "when", above ? "above" : below ? "below" : json_str(old, "when"));
    json_key(w, "value");
    json_put_double(w, value);
    json_kv_i64(w, "for_s", for_s);
    if (to || (old && json_str(old, "to")))
        json_kv_str(w, "to", to ? to : json_str(old, "to"));
    bool off = option_given(&c->options, "off") || (old && json_true(old, "disabled"));
    json_kv_bool(w, "disabled", off && !option_given(&c->options, "on"));
    json_close(w, '}');
    return CLI_OK;
}

static int set(struct cli *c, const char *name) {
    cleanup_buf struct buf body = {0};
    struct json_writer w = {.out = &body};
    const struct json *old;
    if (option_given(&c->options, "on") && option_given(&c->options, "off"))
        return cli_usage(c, "give only one of --on and --off");
    int status = find_rule(c, name, &old);
    if (status == CLI_OK)
        status = write_rule(c, old, &w);
    return status != CLI_OK ? status
                            : send(c, "PUT", target_of(c, name), &body,
                                   arena_printf(&c->arena, "Alert rule %s set", name));
}

static int acknowledge(struct cli *c, const char *rule, const char *subject) {
    cleanup_buf struct buf body = {0};
    struct json_writer w = {.out = &body};
    json_open(&w, '{');
    json_kv_str(&w, "rule", rule);
    json_kv_str(&w, "subject", subject);
    if (option_given(&c->options, "comment"))
        json_kv_str(&w, "comment", option_get(&c->options, "comment"));
    json_close(&w, '}');
    return send(c, "POST", "/v1/alerts/ack", &body,
                arena_printf(&c->arena, "Alert %s of %s acknowledged", rule, subject));
}

static int run(struct cli *c) {
    const char *what = c->count ? c->arguments[0] : "list";
    if (streq(what, "list") && c->count <= 1)
        return list(c);
    if (streq(what, "set") && c->count == 2)
        return set(c, c->arguments[1]);
    if (streq(what, "ack") && c->count == 3)
        return acknowledge(c, c->arguments[1], c->arguments[2]);
    if (streq(what, "delete") && c->count == 2)
        return send(c, "DELETE", target_of(c, c->arguments[1]), NULL,
                    arena_printf(&c->arena, "Alert rule %s deleted", c->arguments[1]));
    return cli_usage(c, "use list, set NAME, ack RULE METRIC or delete NAME");
}

const struct verb verb_alert = {
    .name = "alert",
    .group = "Cluster",
    .arguments = "[list]\nset NAME --metric METRIC --above NUMBER [options]\nset NAME [options]\nack RULE "
                 "METRIC\ndelete NAME",
    .summary = "show and acknowledge alerts, and set their rules",
    .text =
        "A rule names a metric and the value that it must not be above, or below, for a time. The alert is "
        "shown "
        "here and in the portal until the metric is right again, and sent to those whom the rule or the "
        "configuration names. Acknowledging it tells others that somebody looks after it. Of a rule that "
        "exists, "
        "set changes what is given; deleting a changed built-in rule restores it. Administrators set rules; "
        "operators may acknowledge.",
    .examples = "acequia alert list\n"
                "acequia alert set hot --metric 'gpu/*/*/power_watts' --above 600 --for 2m\n"
                "acequia alert set gpu-too-hot --above 90\n"
                "acequia alert set job-holds-idle-gpus --off\n"
                "acequia alert ack gpu-too-hot gpu/n1/0/temperature_celsius",
    .options = {&table_options, &cli_common_options},
    .run = run,
    .complete = "list set ack delete",
    .most = 3,
};
