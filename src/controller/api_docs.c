// The reference of the API (docs/api.md), written from the tables of routes, requests and answers.
#include <stdio.h>

#include "api.h"
#include "base/text.h"
#include "controller/daemon.h"
#include "json_schema.h"

static const char *type_word(const struct field *f) {
    switch ((enum field_type)f->type) {
    case FIELD_BOOL: return "true or false";
    case FIELD_U32:
    case FIELD_U64: return "number";
    case FIELD_I32:
    case FIELD_I64: return "number, may be negative";
    case FIELD_DOUBLE: return "number, may be fractional";
    case FIELD_STRING: return "text";
    case FIELD_BYTES: return "bytes, hexadecimal";
    case FIELD_ENUM: return "word";
    case FIELD_STRUCT: return f->sub->name;
    case FIELD_RAW_JSON:
        return f->described_by && streq(f->described_by, "EventList") ? "list: events" : "list";
    }
    return "?";
}

enum { DOCUMENTED_MAX = 256 };

struct documented {
    const struct schema *at[DOCUMENTED_MAX];
    unsigned len;
};

// The struct and all that it contains, each once.
static void document(struct documented *d, const struct schema *s) {
    for (unsigned i = 0; i < d->len; i++)
        if (d->at[i] == s)
            return;
    if (d->len == DOCUMENTED_MAX)
        return;
    d->at[d->len++] = s;
    for (size_t i = 0; i < s->count; i++)
        if (s->fields[i].sub)
            document(d, s->fields[i].sub);
}

static void put_name(const struct schema *s) {
    cleanup_arena struct arena a = {0};
    printf("%s", json_schema_name(s, str_has_prefix(s->type, "struct request_"), &a));
}

static void put_type(const struct field *f) {
    printf("%s", f->list ? "list: " : "");
    if (f->sub)
        put_name(f->sub);
    else
        printf("%s", type_word(f));
    if (f->max && f->type != FIELD_STRING && f->type != FIELD_BYTES)
        printf(", %lld to %llu", (long long)f->min, (unsigned long long)f->max);
    if (f->required)
        printf(", required");
    if (f->nullable)
        printf(", or null");
}

static void put_fields(const struct schema *s) {
    printf("| field | type | meaning |\n| --- | --- | --- |\n");
    for (size_t i = 0; i < s->count; i++) {
        const struct field *f = &s->fields[i];
        printf("| `%s` | ", f->name);
        put_type(f);
        printf(" | %s", f->help);
        for (int k = 0; f->words && f->words[k]; k++)
            printf("%s`%s`", k ? ", " : " One of ", f->words[k]);
        printf(" |\n");
    }
}

static void put_form(const struct route *r) {
    static const char *const words[] = {[FORM_SUBMIT] = "201, CommandResult, or a list of them",
                                        [FORM_JOBS] = "JobPage, or lines of JSON",
                                        [FORM_SERIES] = "SeriesNames or Series",
                                        [FORM_LIVE] = "server-sent events",
                                        [FORM_ANALYTICS] = "Analytics, or CSV",
                                        [FORM_TEXT] = "text",
                                        [FORM_BYTES] = "bytes",
                                        [FORM_FILE] = "bytes",
                                        [FORM_ZIP] = "ZIP",
                                        [FORM_CSV] = "CSV",
                                        [FORM_METRICS] = "OpenMetrics",
                                        [FORM_OPENAPI] = "OpenAPI 3.1",
                                        [FORM_SOCKET] = "WebSocket"};
    if (r->form < sizeof words / sizeof *words && words[r->form]) {
        printf("%s", words[r->form]);
        return;
    }
    if (r->status)
        printf("%d, ", r->status);
    printf("%s", r->form == FORM_LIST ? "list: " : "");
    put_name(r->answer);
}

static const char *permission_word(enum permission p) {
    switch (p) {
    case ALLOW_ANYBODY: return "anybody";
    case ALLOW_USER: return "any user";
    case ALLOW_JOB: return "the job's user, sharing projects, administrators";
    case ALLOW_OWNER: return "the job's user, administrators";
    case ALLOW_OPERATOR: return "operators, administrators";
    case ALLOW_ADMIN: return "administrators";
    case ALLOW_AGENT: return "agents";
    }
    return "";
}

static void put_routes(void) {
    printf("## Routes\n\n| method | path | for | body | answer | |\n| --- | --- | --- | --- | --- | --- |\n");
    for (size_t i = 0; i < api_route_count; i++) {
        const struct route *r = &api_routes[i];
        printf("| %s | `%s` | %s | ", r->method, r->path, permission_word(r->permission));
        if (r->body)
            put_name(r->body);
        printf(" | ");
        put_form(r);
        printf(" | %s |\n", r->help);
    }
    printf("\n## Parameters\n\nIn the query string. Unknown, repeated and malformed ones are refused. Truth values are "
           "1, 0, true and false.\n");
    for (size_t i = 0; i < api_route_count; i++)
        if (api_routes[i].query) {
            printf("\n### %s %s\n\n", api_routes[i].method, api_routes[i].path);
            put_fields(api_routes[i].query);
        }
}

static void put_message_names(const char *what, const struct schema *const *list) {
    printf("- %s: ", what);
    for (size_t i = 0; list[i]; i++) {
        printf("%s", i ? ", " : "");
        put_name(list[i]);
    }
    printf("\n");
}

static void put_sessions(void) {
    printf(
        "\n## WebSocket sessions\n\n"
        "Text messages are JSON objects as described below; unknown fields, wrong types and numbers out "
        "of range are "
        "refused with a\n`Failure`, after which the connection ends. Binary messages begin with a channel "
        "byte: 0 "
        "input, 1 output, 2 error. An input\nmessage without bytes ends the input.\n\n"
        "Clients that keep positions survive lost connections: those of `step`, `exec` and `/v1/allocate` "
        "that gave a key, `/v1/run`\nand `attach` with `placed=1`, and `logs` as a WebSocket. They get "
        "output "
        "as 5 (output) or 6 (error), the rank and the number of the\nstream in four bytes each, lowest "
        "first, "
        "the position behind the data in eight, then data; and send input as 7, its position in\neight "
        "bytes, "
        "then data. After a lost connection they send their request again, with `resume` and the positions "
        "they have\n(`from`; `attach` in a first message, `logs` in its query). Streams are numbered by "
        "node; "
        "of `/v1/run` and `attach` each node has\ntwo, output and error.\n\n"
        "Others get output from its beginning as 1 or 2 and data: of `step` and `/v1/allocate` with the rank "
        "in "
        "four bytes before it; of\n`/v1/run` and `attach` as 3 or 4 and the number of the node in four bytes "
        "for "
        "the second and further nodes. After a lost\nconnection, `attach` with `resume=1` first sends "
        "SessionPosition. Input goes to all nodes.\n");
    for (size_t i = 0; i < api_route_count; i++) {
        const struct route *r = &api_routes[i];
        if (!r->sent)
            continue;
        printf("\n### GET %s\n\n", r->path);
        if (r->first)
            put_message_names("first message of the client", (const struct schema *[]){r->first, NULL});
        put_message_names("later ones", (const struct schema *[]){r->later, NULL});
        put_message_names("messages to the client", r->sent);
    }
}

static void put_objects(void) {
    struct documented d = {.len = 0};
    for (size_t i = 0; i < api_route_count; i++) {
        if (api_routes[i].body)
            document(&d, api_routes[i].body);
        if (api_routes[i].answer)
            document(&d, api_routes[i].answer);
        if (api_routes[i].first)
            document(&d, api_routes[i].first);
        if (api_routes[i].later)
            document(&d, api_routes[i].later);
        for (size_t k = 0; api_routes[i].sent && api_routes[i].sent[k]; k++)
            document(&d, api_routes[i].sent[k]);
    }
    document(&d, &command_result_schema);
    document(&d, &answer_series_names_schema);
    document(&d, &answer_series_schema);
    document(&d, &answer_failure_schema);
    document(&d, &answer_problem_schema);
    printf("\n## Objects\n\nAnswers have all fields; what is not known is null. In requests fields may be "
           "left out; null "
           "counts as left out, zero and false do not.\n");
    for (unsigned i = 0; i < d.len; i++) {
        printf("\n### ");
        put_name(d.at[i]);
        printf("\n\n");
        put_fields(d.at[i]);
    }
}

static void put_events(void) {
    printf("\n## Events\n\nWhat `/v1/events` and `/v1/jobs/{job}/events` list, each with `seq`, `at_ms` and `type`.\n");
    for (unsigned t = 1; t < EVENT_TYPE_MAX; t++) {
        const struct event_info *info = event_info((enum event_type)t);
        if (!info)
            continue;
        printf("\n- `%s`:", info->name);
        for (size_t i = 0; i < info->schema->count; i++)
            printf("%s `%s`", i ? "," : "", info->schema->fields[i].name);
    }
    printf("\n");
}

int api_reference(void) {
    printf(
        "# The HTTP API\n\n"
        "Written from the program's tables by `make docs`; do not edit. The same as an OpenAPI 3.1 document: "
        "`GET /v1/openapi.json`, or\n`acequiad openapi`.\n\n"
        "HTTP and JSON over the unix socket `run/api.sock` (the user is known from the socket) or over TLS "
        "(a user's "
        "token as\n"
        "`Authorization: Bearer …`, an agent's certificate). Times are milliseconds since 1970, GPUs "
        "thousandths, "
        "sizes bytes.\n"
        "An answer with status 400 or above is a problem document (RFC 9457, `application/problem+json`), "
        "see\n"
        "[Problem](#problem): `detail` says in one sentence what is wrong and what to do, `field` which "
        "field or "
        "parameter is to\n"
        "blame, `error.code` is for programs. A client that sends no `Accept` gets the same as "
        "`application/json`, "
        "as in earlier\n"
        "releases. 429 and 503 mean try again later. A change is answered when it is committed to disk.\n\n");
    printf("Versions: `GET` of a job, project, partition, QoS, reservation, draft or template has an `ETag`, "
           "a job also the "
           "field "
           "`version`. A change\n"
           "that sends it back (`If-Match`, or `version` in the body of an action on one job) is refused "
           "with 412 or "
           "409 when the thing\n"
           "has changed since; the sentence says what.\n\n");
    printf("Submit: one object or a list of them; for a list the answer is a list, with an error in place of "
           "a job that "
           "was refused.\n\n");
    printf("Lists: `GET /v1/jobs` answers with one document, written while other requests are served; a "
           "connection that "
           "ends before\n"
           "its end means that something went wrong. With `stream=1` the answer is lines of JSON: one with "
           "the names of "
           "the `fields`, one\n"
           "list of values per job, in any order, and a last one with the number of `rows`, or an `error`; "
           "without it "
           "the list is not\n"
           "complete. A job that ends meanwhile comes once.\n\n");
    printf("The job table: `GET /v1/table` is one list of live and ended jobs. Each row has the fields of a "
           "job that "
           "are asked for, `why`\n"
           "(of a pending job, in one sentence) and `array` (of an array in one row: its elements by state; "
           "its `id` is "
           "the array's). `next`\n"
           "is a position, not a count: pages stay right while jobs come and go.\n\n");
    printf("Live: `GET /v1/live` sends server-sent events. `jobs` has an `id`, the newest event of the "
           "journal in it, and "
           "`{\"seq\",\"jobs\",\"gone\"}`:\n"
           "jobs as they are now, several changes in one row, at most four times a second; `gone` are jobs "
           "that changed "
           "and do not\n"
           "match (any more). `nodes`, `shares` and `status` are as in `GET /v1/overview`. `reset`: what the "
           "client knows "
           "is too old, or it\n"
           "read too slowly; it loads again, and the stream goes on from there. Whoever loads a page first "
           "gives its "
           "`seq` as `after`;\n"
           "a browser that lost the connection sends `Last-Event-ID` by itself.\n\n");
    put_routes();
    put_sessions();
    put_objects();
    put_events();
    return 0;
}
