// acequia serve
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/json.h"
#include "base/text.h"
#include "cli/client/client.h"
#include "cli/job/options.h"
#include "cli/term/local_time.h"
#include "cli/term/table.h"
#include "model/pattern.h"
#include "model/service.h"
#include "net/http.h"
#include "serve_runner.h"
#include "verbs.h"

static const struct option_spec specs[] = {
    {"replicas", 0, "MIN-MAX", "Replicas: always MIN, at most MAX, as 0-8 or 2; 1 unless given.", 0, NULL,
     NULL},
    {"target", 0, "COUNT",
     "Requests that a replica is to have at once; with more there are more replicas. Else 8.", 0, NULL, NULL},
    {"limit", 0, "COUNT", "Requests that it has at most; others wait. Else twice the target.", 0, NULL, NULL},
    {"latency", 0, "MS",
     "More replicas, too, while 99 of 100 answers do not come within so many milliseconds.", 0, NULL, NULL},
    {"queue", 0, "COUNT", "Requests that wait for a replica at most; others are refused (503). Else 1000.", 0,
     NULL, NULL},
    {"queue-time", 0, "TIME", "How long they wait. Else 60s.", 0, NULL, NULL},
    {"cooldown", 0, "TIME", "Fewer replicas only after so long with less work. Else 60s.", 0, NULL, NULL},
    {"zero-after", 0, "TIME", "None only after so long without a request. Else 5m.", 0, NULL, NULL},
    {"ready", 0, "PATH", "Path that a replica must answer before it gets requests. Else /.", 0, NULL, NULL},
    {"canary", 0, "PERCENT", "update: the new revision gets this part of the requests, until --promote.", 0,
     NULL, NULL},
    {"promote", 0, NULL, "update: the newest revision takes all requests.", 0, NULL, NULL},
    {"rollback", 0, NULL, "update: the newest revision takes none and ends.", 0, NULL, NULL},
    {"label", 0, "TEXT", "token create: what it is for.", 0, NULL, NULL},
    {"user", 'u', "NAME", "Another user's service, for administrators.", 0, NULL, NULL},
    {"all", 0, NULL, "list: those of all users, for administrators.", 0, NULL, NULL},
};
static const struct option_table table_options = OPTION_TABLE("Serving", specs);

// --- requests ---

// "/v1/services/NAME", what follows, and whose it is.
static const char *target_of(struct cli *c, const char *name, const char *rest) {
    cleanup_buf struct buf out = {0};
    const char *user = option_get(&c->options, "user");
    buf_adds(&out, "/v1/services/");
    http_percent_encode(&out, name);
    buf_adds(&out, rest);
    if (user) {
        buf_adds(&out, strchr(rest, '?') ? "&user=" : "?user=");
        http_percent_encode(&out, user);
    }
    return arena_strdup(&c->arena, buf_str(&out));
}

static int put_count(struct cli *c, struct json_writer *w, const char *option, const char *field,
                     uint32_t least, uint32_t most) {
    uint32_t v = 0;
    if (option_u32(&c->options, option, least, most, &v, &c->error) < 0)
        return cli_usage(c, "%s", arena_strdup(&c->arena, c->error.text));
    if (option_given(&c->options, option))
        json_kv_i64(w, field, v);
    return CLI_OK;
}

static int put_time(struct cli *c, struct json_writer *w, const char *option, const char *field) {
    uint32_t v = 0;
    if (option_duration(&c->options, option, 1, &v, &c->error) < 0)
        return cli_usage(c, "%s", arena_strdup(&c->arena, c->error.text));
    if (option_given(&c->options, option) && (!v || v == UINT32_MAX))  // none
        return cli_usage(c, "--%s: give a time above 0, as 30s", option);
    if (v)
        json_kv_i64(w, field, v);
    return CLI_OK;
}

// "0-8", or "3": so many, always.
static int put_replicas(struct cli *c, struct json_writer *w, const char *option, const char *text) {
    const char *dash = text ? strchr(text, '-') : NULL;
    uint32_t min, max;
    if (!text)
        return CLI_OK;
    const char *first = dash ? arena_strndup(&c->arena, text, (size_t)(dash - text)) : text;
    if (parse_u32(first, &min) < 0 || parse_u32(dash ? dash + 1 : text, &max) < 0 || !max || min > max)
        return cli_usage(c, "%s: \"%.60s\" is not understood; write MIN-MAX, as 0-8, or a number above 0",
                         option, text);
    json_kv_i64(w, "replicas_min", min);
    json_kv_i64(w, "replicas_max", max);
    return CLI_OK;
}

static int put_canary(struct cli *c, struct json_writer *w) {
    const char *text = option_get(&c->options, "canary");
    uint32_t v;
    if (!text)
        return CLI_OK;
    size_t len = strlen(text);
    const char *number = len && text[len - 1] == '%' ? arena_strndup(&c->arena, text, len - 1) : text;
    if (parse_u32(number, &v) < 0 || !v || v > 99)
        return cli_usage(c, "--canary: \"%.60s\" is not understood; expected 1%% to 99%%", text);
    json_kv_i64(w, "canary", v);
    return CLI_OK;
}

static int put_settings(struct cli *c, struct json_writer *w) {
    int r;
    if ((r = put_replicas(c, w, "--replicas", option_get(&c->options, "replicas"))) != CLI_OK ||
        (r = put_count(c, w, "target", "target", 1, SERVICE_TARGET_MAX)) != CLI_OK ||
        (r = put_count(c, w, "limit", "limit", 1, SERVICE_TARGET_MAX)) != CLI_OK ||
        (r = put_count(c, w, "latency", "latency_ms", 0, 3600 * 1000)) != CLI_OK ||
        (r = put_count(c, w, "queue", "queue_max", 1, SERVICE_QUEUE_MAX)) != CLI_OK ||
        (r = put_time(c, w, "queue-time", "wait_s")) != CLI_OK ||
        (r = put_time(c, w, "cooldown", "cooldown_s")) != CLI_OK ||
        (r = put_time(c, w, "zero-after", "idle_s")) != CLI_OK || (r = put_canary(c, w)) != CLI_OK)
        return r;
    if (option_get(&c->options, "ready"))
        json_kv_str(w, "ready", option_get(&c->options, "ready"));
    return CLI_OK;
}

// --- what it runs ---

// A class of a Python file and an ONNX file are run by the runner, which travels with the job as its script.
static bool is_model(struct cli *c, char **path, const char **class) {
    if (c->count < 1 || job_dashes(c))
        return false;
    const char *first = c->arguments[0], *colon = strrchr(first, ':');
    size_t len = colon ? (size_t)(colon - first) : strlen(first);
    const char *file = arena_strndup(&c->arena, first, len);
    bool python = colon && len > 3 && streq(file + len - 3, ".py") && colon[1],
         onnx = !colon && len > 5 && streq(file + len - 5, ".onnx");
    char *whole = python || onnx ? realpath(file, NULL) : NULL;
    *path = whole ? arena_strdup(&c->arena, whole) : arena_strdup(&c->arena, file);
    free(whole);
    *class = python ? colon + 1 : NULL;
    return python || onnx;
}

static int read_program(struct cli *c, struct spec *s, struct job_source *source) {
    char *path;
    const char *class;
    if (!is_model(c, &path, &class))
        return verb_read_job(c, s, source);
    if (c->count > 1)
        return cli_usage(c, "unexpected argument \"%.40s\"", c->arguments[1]);
    if (path[0] != '/')
        return cli_failf(c, "there is no file %s", path);
    *source = (struct job_source){.script = verb_serve_runner, .script_len = strlen(verb_serve_runner)};
    if (job_spec(c, &c->options, s) < 0)
        return cli_usage(c, "%s", arena_strdup(&c->arena, c->error.text));
    const char *slash = strrchr(path, '/');
    const char **argv = arena_alloc(&c->arena, 2 * sizeof *argv);
    argv[0] = path;
    argv[1] = class;
    s->argv.at = argv;
    s->argv.len = class ? 2 : 1;
    s->command_text = c->arguments[0];
    source->name = arena_strndup(&c->arena, slash + 1, strcspn(slash + 1, "."));
    return CLI_OK;
}

// A name for the service from that of its program: what does not fit is left out.
static const char *service_name(struct cli *c, const struct job_source *source) {
    const char *given = option_get(&c->options, "name"), *from = source->name ? source->name : "service";
    char *name = arena_strdup(&c->arena, from);
    size_t len = 0;
    if (given)
        return given;
    for (const char *p = from; *p && *p != '.' && len < SERVICE_NAME_MAX; p++) {
        char k = *p >= 'A' && *p <= 'Z' ? (char)(*p | 0x20) : *p == '_' ? '-' : *p;
        if ((k >= 'a' && k <= 'z') || (len && ((k >= '0' && k <= '9') || k == '-')))
            name[len++] = k;
    }
    while (len && name[len - 1] == '-')
        len--;
    name[len] = 0;
    return len ? name : "service";
}

static int put_program(struct cli *c, struct json_writer *w, const char **name) {
    struct spec s = {0};
    struct job_source source = {0};
    struct job_environment environment;
    int r = read_program(c, &s, &source);
    if (r != CLI_OK)
        return r;
    if (job_environment(c, &c->options, &environment) < 0)
        return cli_usage(c, "%s", arena_strdup(&c->arena, c->error.text));
    job_environment_python(c, &source, &environment);
    if (!s.output)
        s.output = PATTERN_DEFAULT_WORKER;
    verb_complete_job(&s);
    *name = service_name(c, &source);
    s.name = *name;
    json_key(w, "spec");
    schema_write_given_json(&spec_schema, &s, w);
    if (source.script) {
        json_key(w, "script");
        json_put_strn(w, source.script, source.script_len);
    }
    json_open_key(w, "environment", '[');
    for (uint32_t i = 0; i < environment.len; i++)
        json_put_str(w, environment.at[i]);
    json_close(w, ']');
    return CLI_OK;
}

// --- what is shown ---

static double number_of(const struct json *s, const char *field) {
    const struct json *v = json_get(s, field);
    return !v ? 0 : v->type == JSON_DOUBLE ? v->d : v->type == JSON_INT ? (double)v->i : 0;
}

static const char *ms_text(struct cli *c, const struct json *s, const char *field) {
    double ms = number_of(s, field);
    return ms == 0 ? "-" : arena_printf(&c->arena, ms < 10 ? "%.1f ms" : "%.0f ms", ms);
}

static int list(struct cli *c) {
    static const struct table_column columns[] = {
        {"NAME", false, 4, 8},     {"USER", false, 3, 5}, {"STATE", false, 0, 0}, {"READY", true, 0, 0},
        {"IN FLIGHT", true, 0, 0}, {"REQ/S", true, 0, 0}, {"P99", true, 0, 0},    {"ADDRESS", false, 5, 12}};
    struct reply reply;
    struct text_table t;
    cleanup_buf struct buf out = {0};
    int status =
        client_get(c, option_given(&c->options, "all") ? "/v1/services?all=true" : "/v1/services", &reply);
    if (status != CLI_OK)
        return status;
    if (c->json) {
        buf_addf(&out, "%s\n", reply.text);
        return cli_print(&out);
    }
    const struct json *services = json_get(reply.json, "services");
    table_init(&t, &c->arena, columns, 8);
    for (uint32_t i = 0; services && i < services->len; i++) {
        const struct json *s = &services->items[i];
        table_add(&t, json_str(s, "name"), COLOUR_NONE);
        table_add(&t, json_str(s, "user"), COLOUR_NONE);
        table_add(&t, json_str(s, "state"), COLOUR_NONE);
        table_addf(&t, "%lld/%lld", (long long)json_i64(s, "ready_replicas", 0),
                   (long long)json_i64(s, "replicas", 0));
        table_addf(&t, "%lld", (long long)json_i64(s, "in_flight", 0));
        table_addf(&t, "%.1f", number_of(s, "requests_per_s"));
        table_add(&t, ms_text(c, s, "p99_ms"), COLOUR_NONE);
        table_add(&t, json_str(s, "url"), COLOUR_NONE);
    }
    table_print(&t, terminal_table_width(), true, terminal_colour(), &out);
    table_done(&t);
    return cli_print(&out);
}

static void show_revisions(struct cli *c, const struct json *s, struct buf *out) {
    static const struct table_column columns[] = {{"REVISION", true, 0, 0}, {"STATE", false, 0, 0},
                                                  {"WEIGHT", true, 0, 0},   {"READY", true, 0, 0},
                                                  {"JOB", true, 0, 0},      {"COMMAND", false, 5, 10}};
    struct text_table t;
    const struct json *list = json_get(s, "revisions");
    table_init(&t, &c->arena, columns, 6);
    for (uint32_t i = 0; list && i < list->len; i++) {
        const struct json *r = &list->items[i];
        table_addf(&t, "%lld", (long long)json_i64(r, "number", 0));
        table_add(&t, json_str(r, "state"), COLOUR_NONE);
        table_addf(&t, "%lld%%", (long long)json_i64(r, "weight", 0));
        table_addf(&t, "%lld/%lld", (long long)json_i64(r, "ready", 0),
                   (long long)json_i64(r, "replicas", 0));
        table_addf(&t, json_i64(r, "job", 0) ? "%lld" : "-", (long long)json_i64(r, "job", 0));
        table_add(&t, json_str(r, "command"), COLOUR_NONE);
    }
    table_print(&t, terminal_table_width(), true, terminal_colour(), out);
    table_done(&t);
}

static void show_replicas(struct cli *c, const struct json *s, struct buf *out) {
    static const struct table_column columns[] = {{"REPLICA", true, 0, 0},   {"REVISION", true, 0, 0},
                                                  {"STATE", false, 0, 0},    {"FOR", true, 0, 0},
                                                  {"IN FLIGHT", true, 0, 0}, {"REASON", false, 5, 10}};
    struct text_table t;
    const struct json *list = json_get(s, "replica_list");
    if (!list || !list->len)
        return;
    buf_addc(out, '\n');
    table_init(&t, &c->arena, columns, 6);
    for (uint32_t i = 0; i < list->len; i++) {
        const struct json *r = &list->items[i];
        table_addf(&t, "%lld", (long long)json_i64(r, "job", 0));
        table_addf(&t, "%lld", (long long)json_i64(r, "revision", 0));
        table_add(&t, json_str(r, "state"), COLOUR_NONE);
        table_addf(&t, "%lld s", (long long)json_i64(r, "state_s", 0));
        table_addf(&t, "%lld", (long long)json_i64(r, "in_flight", 0));
        table_add(&t, json_str(r, "reason"), COLOUR_NONE);
    }
    table_print(&t, terminal_table_width(), true, terminal_colour(), out);
    table_done(&t);
}

static void show(struct cli *c, const struct json *s, struct buf *out) {
    const char *reason = json_str(s, "reason"), *url = json_str(s, "url");
    buf_addf(out, "%s (%s, project %s): %s%s%s\n", json_str(s, "name"), json_str(s, "user"),
             json_str(s, "project"), json_str(s, "state"), reason ? "; " : "", reason ? reason : "");
    buf_addf(out, "Address   %s\n", url ? url : "none this way; see acequia help serve");
    buf_addf(out, "Replicas  %lld ready of %lld; %lld-%lld, %lld requests each\n",
             (long long)json_i64(s, "ready_replicas", 0), (long long)json_i64(s, "replicas", 0),
             (long long)json_i64(s, "replicas_min", 0), (long long)json_i64(s, "replicas_max", 0),
             (long long)json_i64(s, "target", 0));
    buf_addf(out, "Requests  %lld in flight, %lld wait; %.1f a second, half within %s, 99%% within %s\n",
             (long long)json_i64(s, "in_flight", 0), (long long)json_i64(s, "queued", 0),
             number_of(s, "requests_per_s"), ms_text(c, s, "p50_ms"), ms_text(c, s, "p99_ms"));
    buf_addf(out, "In all    %lld requests, %lld failed, %lld refused\n",
             (long long)json_i64(s, "requests", 0), (long long)json_i64(s, "failures", 0),
             (long long)json_i64(s, "refused", 0));
    if (json_i64(s, "cold_start_ms", 0))
        buf_addf(out, "From none to the first replica: %lld ms, the last time\n",
                 (long long)json_i64(s, "cold_start_ms", 0));
    buf_addc(out, '\n');
    show_revisions(c, s, out);
    show_replicas(c, s, out);
}

static int get(struct cli *c, const char *name) {
    struct reply reply;
    cleanup_buf struct buf out = {0};
    int status = client_get(c, target_of(c, name, ""), &reply);
    if (status != CLI_OK)
        return status;
    if (c->json)
        buf_addf(&out, "%s\n", reply.text);
    else
        show(c, reply.json, &out);
    return cli_print(&out);
}

// --- actions ---

static int tell(struct cli *c, const struct reply *reply, const char *what) {
    cleanup_buf struct buf out = {0};
    const char *url = json_str(reply->json, "url");
    if (c->json)
        buf_addf(&out, "%s\n", reply->text);
    else if (url)
        buf_addf(&out, "Service %s %s: %s\n", json_str(reply->json, "name"), what, url);
    else
        buf_addf(&out, "Service %s %s\n", json_str(reply->json, "name"), what);
    return cli_print(&out);
}

static int create(struct cli *c) {
    cleanup_buf struct buf body = {0};
    struct json_writer w = {.out = &body};
    struct reply reply;
    const char *name;
    json_open(&w, '{');
    int r = put_settings(c, &w);
    if (r != CLI_OK || (r = put_program(c, &w, &name)) != CLI_OK)
        return r;
    json_kv_str(&w, "name", name);
    json_close(&w, '}');
    if ((r = client_post(c, "/v1/services", &body, &reply)) != CLI_OK)
        return r;
    return tell(c, &reply, "created");
}

// An option of jobs, which says how a replica is.
static const char *job_option_given(const struct cli *c) {
    const struct option_table *const tables[] = {&job_resource_options, &job_control_options};
    for (uint32_t i = 0; i < c->options.values.len; i++)
        for (int t = 0; t < 2; t++)
            if (c->options.values.at[i].option >= tables[t]->at &&
                c->options.values.at[i].option < tables[t]->at + tables[t]->count)
                return c->options.values.at[i].option->name;
    return NULL;
}

// Of a replica, for a revision that runs what the one before ran.
static int put_changes(struct cli *c, struct json_writer *w) {
    struct spec s = {0};
    if (job_spec(c, &c->options, &s) < 0)
        return cli_usage(c, "%s", arena_strdup(&c->arena, c->error.text));
    s.workdir = option_given(&c->options, "chdir") ? s.workdir : NULL;
    json_key(w, "spec");
    schema_write_given_json(&spec_schema, &s, w);
    return CLI_OK;
}

static int update(struct cli *c, const char *name) {
    cleanup_buf struct buf body = {0};
    struct json_writer w = {.out = &body};
    struct reply reply;
    const char *ignored, *option = job_option_given(c);
    bool promote = option_given(&c->options, "promote"), rollback = option_given(&c->options, "rollback");
    bool program = c->count > 0 || job_dashes(c);
    if (promote && rollback)
        return cli_usage(c, "--promote and --rollback exclude each other");
    bool kept = !program && option;
    if (kept && (promote || rollback))
        return cli_usage(c, "--%s is of a new revision; it goes with neither --promote nor --rollback",
                         option);
    json_open(&w, '{');
    int r = put_settings(c, &w);
    if (r != CLI_OK || (program && (r = put_program(c, &w, &ignored)) != CLI_OK) ||
        (kept && (r = put_changes(c, &w)) != CLI_OK))
        return r;
    if (promote || rollback)
        json_kv_str(&w, "action", promote ? "promote" : "rollback");
    json_close(&w, '}');
    if (streq(buf_str(&body), "{}"))
        return cli_usage(c, "say what is to change: settings, or a program after --");
    if ((r = client_post(c, target_of(c, name, ""), &body, &reply)) != CLI_OK)
        return r;
    return tell(c, &reply,
                program || kept ? "gets a new revision, which takes over when it is ready"
                : promote       ? "is served by its newest revision"
                : rollback      ? "goes on with its earlier revision"
                                : "updated");
}

static int scale(struct cli *c, const char *name, const char *size) {
    cleanup_buf struct buf body = {0};
    struct json_writer w = {.out = &body};
    struct reply reply;
    json_open(&w, '{');
    int r = put_replicas(c, &w, "the size", size);
    json_close(&w, '}');
    if (r != CLI_OK || (r = client_post(c, target_of(c, name, ""), &body, &reply)) != CLI_OK)
        return r;
    return tell(c, &reply, arena_printf(&c->arena, "has %s replicas from now on", size));
}

static int delete (struct cli *c, const char *name) {
    struct reply reply;
    int status = client_request(c, "DELETE", target_of(c, name, ""), NULL, &reply);
    if (status == CLI_OK && !c->json)
        printf("Service %s deleted\n", name);
    else if (status == CLI_OK)
        printf("%s\n", reply.text);
    return status;
}

// --- tokens ---

static int token_create(struct cli *c, const char *name) {
    cleanup_buf struct buf body = {0}, out = {0};
    struct json_writer w = {.out = &body};
    struct reply reply;
    json_open(&w, '{');
    if (option_get(&c->options, "label"))
        json_kv_str(&w, "label", option_get(&c->options, "label"));
    json_close(&w, '}');
    int status = client_post(c, target_of(c, name, "/tokens"), &body, &reply);
    if (status != CLI_OK)
        return status;
    buf_addf(&out, "%s\n", c->json ? reply.text : json_str(reply.json, "token"));
    if (!c->json)
        cli_note("It is not shown again. Callers send it with each request, as Authorization: Bearer TOKEN.");
    return cli_print(&out);
}

static int token_list(struct cli *c, const char *name) {
    static const struct table_column columns[] = {
        {"ID", false, 0, 0}, {"LABEL", false, 4, 8}, {"MADE BY", false, 3, 5}, {"MADE", false, 0, 0}};
    struct reply reply;
    struct text_table t;
    cleanup_buf struct buf out = {0};
    int status = client_get(c, target_of(c, name, "/tokens"), &reply);
    if (status != CLI_OK)
        return status;
    if (c->json) {
        buf_addf(&out, "%s\n", reply.text);
        return cli_print(&out);
    }
    const struct json *tokens = json_get(reply.json, "tokens");
    table_init(&t, &c->arena, columns, 4);
    for (uint32_t i = 0; tokens && i < tokens->len; i++) {
        const struct json *j = &tokens->items[i];
        char when[UNIT_TEXT_MAX];
        table_add(&t, json_str(j, "id"), COLOUR_NONE);
        table_add(&t, json_str(j, "label"), COLOUR_NONE);
        table_add(&t, json_str(j, "by"), COLOUR_NONE);
        table_add(&t, arena_strdup(&c->arena, local_time_format(json_i64(j, "made_ms", 0), when)),
                  COLOUR_NONE);
    }
    table_print(&t, terminal_table_width(), true, terminal_colour(), &out);
    table_done(&t);
    return cli_print(&out);
}

static int token_revoke(struct cli *c, const char *name, const char *id) {
    cleanup_buf struct buf rest = {0};
    struct reply reply;
    buf_adds(&rest, "/tokens?id=");
    http_percent_encode(&rest, id);
    int status = client_request(c, "DELETE", target_of(c, name, buf_str(&rest)), NULL, &reply);
    if (status == CLI_OK && !c->json)
        printf("Token %s revoked\n", id);
    return status;
}

static int token(struct cli *c) {
    const char *what = c->count > 2 ? c->arguments[2] : "list";
    if (c->count < 2)
        return cli_usage(c, "token needs the name of a service");
    if (streq(what, "create") && c->count <= 3)
        return token_create(c, c->arguments[1]);
    if (streq(what, "list") && c->count <= 3)
        return token_list(c, c->arguments[1]);
    if (streq(what, "revoke") && c->count == 4)
        return token_revoke(c, c->arguments[1], c->arguments[3]);
    return cli_usage(c, "expected: acequia serve token NAME create, list or revoke ID");
}

static int run(struct cli *c) {
    const char *what = c->count && !job_dashes(c) ? c->arguments[0] : "";
    bool named = streq(what, "get") || streq(what, "update") || streq(what, "scale") || streq(what, "delete");
    if (streq(what, "list"))
        return c->count > 1 ? cli_usage(c, "unexpected argument \"%.40s\"", c->arguments[1]) : list(c);
    if (streq(what, "token"))
        return token(c);
    if (named && c->count < 2)
        return cli_usage(c, "%s needs the name of a service; see acequia serve list", what);
    const char *name = named ? c->arguments[1] : NULL;
    if (streq(what, "scale"))
        return c->count == 3 ? scale(c, name, c->arguments[2])
                             : cli_usage(c, "expected: acequia serve scale NAME MIN-MAX");
    if (streq(what, "get") || streq(what, "delete")) {
        if (c->count > 2)
            return cli_usage(c, "unexpected argument \"%.40s\"", c->arguments[2]);
        return *what == 'g' ? get(c, name) : delete (c, name);
    }
    if (named || streq(what, "create")) {
        int words = named ? 2 : 1;
        c->arguments += words;
        c->count -= words;
    }
    if (named)
        return update(c, name);
    if (!c->count && !job_dashes(c))
        return cli_usage(c, "say what to serve: a command after --, a script, FILE.py:CLASS or FILE.onnx");
    return create(c);
}

const struct verb verb_serve = {
    .name = "serve",
    .group = "Programs",
    .arguments =
        "[create] [options] -- COMMAND [arguments...]\n[create] [options] SCRIPT|FILE.py:CLASS|FILE.onnx\n"
        "list\nget NAME\nupdate NAME [options] [-- COMMAND...]\nscale NAME MIN-MAX\ndelete NAME\n"
        "token NAME create|list|revoke [ID]",
    .summary = "serve a program or a model under one address",
    .text =
        "The program answers HTTP on the port that ACEQUIA_PORT names. Each replica is a worker of an "
        "elastic "
        "job: there are more of them while requests wait, fewer after a while with less work, and with MIN 0 "
        "none "
        "while nobody asks; the next request then waits for the first one. Callers send a token with each "
        "request, as Authorization: Bearer TOKEN. An update starts a new revision beside the old one, which "
        "goes "
        "on until the new one is ready and then answers what it has. Options of acequia submit describe one "
        "replica. FILE.py:CLASS serves the method predict of a class, FILE.onnx a model, with JSON.",
    .examples = "acequia serve --name echo --replicas 0-8 -- python3 server.py\n"
                "acequia serve --replicas 1-4 --gpus 0.25 model.py:Model\n"
                "acequia serve token echo create --label phone\n"
                "acequia serve update echo --canary 10% -- python3 server2.py\n"
                "acequia serve update echo --promote\n"
                "acequia serve get echo",
    .options = {&table_options, &job_resource_options, &job_control_options, &cli_common_options},
    .run = run,
    .complete = "create list get update scale delete token @file",
    .most = -1,
};
