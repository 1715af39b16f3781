// The OpenAPI 3.1 document, made of the table of routes and the tables of requests and answers, and itself described by
// tables: what it is made of is structs, and one call writes them.
//
// A struct that is read and written has two schemas: answers always have all fields; in requests ("Request"
// in the name) fields may be left out or null, and unknown ones are refused.
#include <assert.h>
#include <stdio.h>
#include <string.h>

#include "answers_portal.h"
#include "api.h"
#include "base/text.h"
#include "controller/daemon.h"
#include "api_explain_phrases.h"
#include "json_schema.h"
#include "list_stream.h"
#include "model/reason.h"
#include "sched/explain.h"

enum { CONTENTS_MAX = 2, RESPONSES_MAX = 16 };

// --- the parts of the document, named as OpenAPI names them ---

struct openapi_media {
    const char *key;  // the content type
    struct json_schema *schema;
};
static const struct field media_fields[] = {
    FIELD(1, struct openapi_media, key, ""),
    FIELD_SUB(2, struct openapi_media, schema, &json_schema_table, ""),
};
static const struct schema media_schema = SCHEMA(struct openapi_media, "a content", media_fields);

#define S struct openapi_parameter
struct openapi_parameter {
    const char *name, *in;
    bool required;
    struct json_schema *schema;
    const char *description;
    uint64_t given[1];
};
static const struct field parameter_fields[] = {
    FIELD(1, S, name, ""),        FIELD(2, S, in, ""),
    FIELD(3, S, required, ""),    FIELD_SUB(4, S, schema, &json_schema_table, ""),
    FIELD(5, S, description, ""),
};
static const struct schema parameter_schema = SCHEMA_GIVEN(S, "a parameter", parameter_fields);
#undef S

struct openapi_body {
    bool required;
    LIST(struct openapi_media) content;
    uint64_t given[1];
};
static const struct field body_fields[] = {
    FIELD(1, struct openapi_body, required, ""),
    FIELD_LIST_SUB(2, struct openapi_body, content, &media_schema, "", .keyed = true),
};
static const struct schema body_schema = SCHEMA_GIVEN(struct openapi_body, "a body", body_fields);

struct openapi_response {
    const char *key;  // the status
    const char *description;
    LIST(struct openapi_media) content;
};
static const struct field response_fields[] = {
    FIELD(1, struct openapi_response, key, ""),
    FIELD(2, struct openapi_response, description, ""),
    FIELD_LIST_SUB(3, struct openapi_response, content, &media_schema, "", .keyed = true),
};
static const struct schema response_schema = SCHEMA(struct openapi_response, "a response", response_fields);

// The text messages of a WebSocket; OpenAPI has no word for them.
struct openapi_socket {
    struct json_schema *first, *later;  // null: the client sends none
    LIST(struct json_schema) sent;
    uint64_t given[1];
};
static const struct field socket_fields[] = {
    FIELD_SUB(1, struct openapi_socket, first, &json_schema_table, ""),
    FIELD_SUB(2, struct openapi_socket, later, &json_schema_table, ""),
    FIELD_LIST_SUB(3, struct openapi_socket, sent, &json_schema_table, ""),
};
static const struct schema socket_schema = SCHEMA_GIVEN(struct openapi_socket, "a WebSocket", socket_fields);

struct openapi_security {
    LIST(const char *) token;  // scopes; none
    uint64_t given[1];
};
static const struct field security_fields[] = {FIELD_LIST(1, struct openapi_security, token, "")};
static const struct schema security_schema =
    SCHEMA_GIVEN(struct openapi_security, "a requirement", security_fields);

#define S struct openapi_operation
struct openapi_operation {
    const char *operationId, *summary;
    struct openapi_socket *socket;
    LIST(struct openapi_security) security;
    LIST(struct openapi_parameter) parameters;
    struct openapi_body *requestBody;
    LIST(struct openapi_response) responses;
    uint64_t given[1];
};
static const struct field operation_fields[] = {
    FIELD(1, S, operationId, ""),
    FIELD(2, S, summary, ""),
    {.num = 3,
     .type = FIELD_STRUCT,
     .offset = offsetof(S, socket),
     .name = "x-websocket",
     .sub = &socket_schema},
    FIELD_LIST_SUB(4, S, security, &security_schema, ""),
    FIELD_LIST_SUB(5, S, parameters, &parameter_schema, ""),
    FIELD_SUB(6, S, requestBody, &body_schema, ""),
    FIELD_LIST_SUB(7, S, responses, &response_schema, "", .keyed = true),
};
static const struct schema operation_schema = SCHEMA_GIVEN(S, "an operation", operation_fields);
#undef S

#define S struct openapi_path
struct openapi_path {
    const char *key;
    struct openapi_operation *get, *post, *put, *delete;
};
static const struct field path_fields[] = {
    FIELD(1, S, key, ""),
    FIELD_SUB(2, S, get, &operation_schema, ""),
    FIELD_SUB(3, S, post, &operation_schema, ""),
    FIELD_SUB(4, S, put, &operation_schema, ""),
    FIELD_SUB(5, S, delete, &operation_schema, ""),
};
static const struct schema path_schema = SCHEMA(S, "a path", path_fields);
#undef S

#define S struct openapi_scheme
struct openapi_scheme {
    const char *key, *type, *scheme, *description;
};
static const struct field scheme_fields[] = {
    FIELD(1, S, key, ""),
    FIELD(2, S, type, ""),
    FIELD(3, S, scheme, ""),
    FIELD(4, S, description, ""),
};
static const struct schema scheme_schema = SCHEMA(S, "a security scheme", scheme_fields);
#undef S

struct openapi_components {
    LIST(struct openapi_scheme) securitySchemes;
    LIST(struct json_schema) schemas;
};
static const struct field components_fields[] = {
    FIELD_LIST_SUB(1, struct openapi_components, securitySchemes, &scheme_schema, "", .keyed = true),
    FIELD_LIST_SUB(2, struct openapi_components, schemas, &json_schema_table, "", .keyed = true),
};
static const struct schema components_schema =
    SCHEMA(struct openapi_components, "components", components_fields);

struct openapi_info {
    const char *title, *version, *description;
};
static const struct field info_fields[] = {
    FIELD(1, struct openapi_info, title, ""),
    FIELD(2, struct openapi_info, version, ""),
    FIELD(3, struct openapi_info, description, ""),
};
static const struct schema info_schema = SCHEMA(struct openapi_info, "info", info_fields);

#define S struct openapi_document
struct openapi_document {
    const char *openapi;
    struct openapi_info *info;
    LIST(struct openapi_security) security;
    LIST(struct openapi_path) paths;
    struct openapi_components *components;
    const char *phrases;
};
static const struct field document_fields[] = {
    FIELD(1, S, openapi, ""),
    FIELD_SUB(2, S, info, &info_schema, ""),
    FIELD_LIST_SUB(3, S, security, &security_schema, ""),
    FIELD_LIST_SUB(4, S, paths, &path_schema, "", .keyed = true),
    FIELD_SUB(5, S, components, &components_schema, ""),
    {.num = 6, .type = FIELD_RAW_JSON, .offset = offsetof(S, phrases), .name = "x-phrases"},
};
static const struct schema document_schema = SCHEMA(S, "the document", document_fields);
#undef S

// What is at work while it is made.
struct maker {
    struct arena arena;
    struct json_schema_refs refs;
};

static struct json_schema *kept(struct maker *m, struct json_schema j) {
    return arena_memdup(&m->arena, &j, sizeof j);
}

static struct json_schema ref(struct maker *m, const struct schema *s, bool request) {
    return json_schema_ref(s, request, &m->refs, &m->arena);
}

// --- what no table of requests or answers describes ---

#define SCHEMAS(...)                                                                                         \
    {                                                                                                        \
        (struct json_schema[]){__VA_ARGS__},                                                                 \
            sizeof((struct json_schema[]){__VA_ARGS__}) / sizeof(struct json_schema)                         \
    }
#define TEXTS(...)                                                                                           \
    { (const char *[]){__VA_ARGS__}, sizeof((const char *[]){__VA_ARGS__}) / sizeof(const char *) }
#define TO(name)                                                                                             \
    { .ref = "#/components/schemas/" name }

static const struct json_schema text = {.type = "string"}, number = {.type = "number"};
static const struct json_schema job_row = TO("JobRow"), table_row = TO("TableRow");
static const struct json_schema job_or_values = {.anyOf = SCHEMAS(TO("JobRow"), {.type = "array"})};
static const struct json_schema result_or_failure = {.anyOf = SCHEMAS(TO("CommandResult"), TO("Failure"))};
static const struct json_schema point = {.type = "array",
                                         .description = "Time (ms since 1970) and value.",
                                         .items = &number,
                                         .minItems = 2,
                                         .maxItems = 2};
static const struct json_schema other_schemas[] = {
    {.key = "JobPage",
     .description = "Jobs; with compact=1 each is a list of values in the order of fields.",
     .type = "object",
     .properties =
         SCHEMAS({.key = "fields", .type = "array", .items = &text},
                 {.key = "jobs", .type = "array", .items = &job_or_values},
                 {.key = "next",
                  .types = TEXTS("string", "null"),
                  .description = "With finished=1: the after= of the next page; null: there is none."}),
     .required = TEXTS("jobs", "next"),
     .given = {JSON_SCHEMA_CLOSED}},
    {.key = "JobRows", .type = "array", .items = &job_row},
    {.key = "TableRows", .type = "array", .items = &table_row},
    {.key = "SubmitList", .type = "array", .items = &result_or_failure},
    {.key = "SeriesPoints", .type = "array", .items = &point},
    {.key = "McpAnswer",
     .description = "A JSON-RPC answer: a result or an error.",
     .type = "object",
     .properties = SCHEMAS({.key = "jsonrpc", .constant = "2.0"}, {.key = "id"}, {.key = "result", .type = "object"},
                           {.key = "error", .type = "object"}),
     .required = TEXTS("jsonrpc", "id"),
     .given = {JSON_SCHEMA_CLOSED}},
};

static struct json_schema event_schema_of(struct maker *m, const struct event_info *info) {
    static const struct field head[] = {
        {.type = FIELD_U64, .name = "seq", .help = "Number of the event."},
        {.type = FIELD_I64, .name = "at_ms", .help = "When it happened."},
    };
    struct json_schema out = {.type = "object"};
    json_schema_add_fields(&out, head, 2, false, &m->refs, &m->arena);
    json_schema_add(&out, (struct json_schema){.key = "type", .constant = info->name}, true, &m->arena);
    json_schema_add_fields(&out, info->schema->fields, info->schema->count, false, &m->refs, &m->arena);
    return out;
}

static struct json_schema events_schema(struct maker *m) {
    struct json_schema any = {.oneOf = {arena_alloc(&m->arena, EVENT_TYPE_MAX * sizeof any), 0}};
    for (unsigned t = 1; t < EVENT_TYPE_MAX; t++)
        if (event_info((enum event_type)t))
            any.oneOf.at[any.oneOf.len++] = event_schema_of(m, event_info((enum event_type)t));
    struct json_schema out = json_schema_list(&any, &m->arena);
    out.key = "EventList";
    return out;
}

// `table`: of the job table, with what its rows have beside the fields of a job. A row has the fields that were asked
// for: none is always there.
static struct json_schema row_schema(struct maker *m, bool table) {
    static const struct field extra[] = {
        {.type = FIELD_STRING, .name = "why", .help = "Of a pending job: why it waits, in one sentence."},
        {.type = FIELD_STRUCT,
         .name = "array",
         .sub = &answer_table_array_schema,
         .help = "Of an array in one row: its elements; else null."}};
    struct json_schema out = {.key = table ? "TableRow" : "JobRow",
                              .description = "A job in a list: the fields that were asked for, as in Job.",
                              .type = "object",
                              .given = {JSON_SCHEMA_CLOSED}};
    json_schema_add_fields(&out, answer_job_schema.fields, answer_job_schema.count, false, &m->refs,
                           &m->arena);
    json_schema_add_fields(&out, extra, table ? 2 : 0, false, &m->refs, &m->arena);
    out.required.len = 0;
    return out;
}

// --- operations ---

static const struct json_schema action = {
    .type = "string", .words = TEXTS("cancel", "hold", "release", "requeue", "suspend", "resume", "update")};
static const struct json_schema job_number = {.type = "string",
                                              .pattern = "^[1-9][0-9]{0,17}(_[0-9]{1,7})?$"};
static const struct json_schema name = {.type = "string", .pattern = "^[A-Za-z0-9][A-Za-z0-9._-]{0,62}$"};
static const struct json_schema truth = {.type = "string", .words = TEXTS("0", "1", "false", "true")};

static bool is_action(const struct route *r) {
    return r->handler == api_action;
}

static void add_path_parameter(struct maker *m, const struct route *r, struct openapi_operation *o) {
    bool job = strstr(r->path, "{job}") || is_action(r);
    if (!strchr(r->path, '{'))
        return;
    o->parameters.at[o->parameters.len++] =
        (struct openapi_parameter){.name = job ? "job" : "name",
                                   .in = "path",
                                   .required = true,
                                   .schema = kept(m, is_action(r) ? action
                                                     : job        ? job_number
                                                                  : name),
                                   .description = is_action(r) ? "The action."
                                                  : job        ? "A job, as 12 or 12_3."
                                                               : "Its name."};
}

static struct json_schema query_schema_of(struct maker *m, const struct field *f) {
    if (f->type == FIELD_BOOL)
        return truth;
    if (f->type == FIELD_STRING)
        return (struct json_schema){
            .type = "string", .pattern = f->pattern ? f->pattern : "^[^\\u0000-\\u001f\\u007f-\\u009f]*$"};
    return json_schema_of_element(f, false, &m->refs, &m->arena);
}

static void add_parameters(struct maker *m, const struct route *r, struct openapi_operation *o) {
    size_t count = 1 + (r->query ? r->query->count : 0);
    o->parameters.at = arena_alloc(&m->arena, count * sizeof *o->parameters.at);
    schema_give(&operation_schema, o, &o->parameters);
    add_path_parameter(m, r, o);
    for (size_t i = 0; r->query && i < r->query->count; i++) {
        const struct field *f = &r->query->fields[i];
        struct openapi_parameter *p = &o->parameters.at[o->parameters.len++];
        *p = (struct openapi_parameter){.name = f->name,
                                        .in = "query",
                                        .required = f->required,
                                        .schema = kept(m, query_schema_of(m, f)),
                                        .description = f->help};
        schema_give(&parameter_schema, p, &p->required);
    }
}

static void add_body(struct maker *m, const struct route *r, struct openapi_operation *o) {
    struct openapi_body *b = arena_alloc(&m->arena, sizeof *b);
    struct json_schema s = r->body_is_bytes ? (struct json_schema){0} : ref(m, r->body, true);
    if (r->form == FORM_SUBMIT) {
        const struct json_schema choices[] = {
            s, {.type = "array", .description = "A list of them; each is accepted or refused by itself."}};
        s = json_schema_any_of(choices, 2, &m->arena);
    }
    b->required = !r->body_optional && !r->body_is_bytes;  // no bytes are an empty file
    schema_give(&body_schema, b, &b->required);
    b->content.at = arena_alloc(&m->arena, sizeof *b->content.at);
    b->content.at[b->content.len++] = (struct openapi_media){
        r->body_is_bytes ? "application/octet-stream" : "application/json", kept(m, s)};
    o->requestBody = b;
}

// What is answered, by the route's form: a content type and what it holds. A form that is not here answers with JSON
// that the route's own table describes.
enum held { HOLDS_ANSWER, HOLDS_COMPONENT, HOLDS_TEXT, HOLDS_ANYTHING };
static const struct content {
    enum route_form form;
    const char *type;
    enum held held;
    const char *component;
} contents[] = {
    {FORM_JOBS, "application/json", HOLDS_COMPONENT, "JobPage"},
    {FORM_JOBS, LIST_STREAM_TYPE, HOLDS_ANYTHING, NULL},
    {FORM_EVENTS, "application/json", HOLDS_ANSWER, NULL},
    {FORM_EVENTS, "text/event-stream", HOLDS_ANYTHING, NULL},
    {FORM_LIVE, "text/event-stream", HOLDS_ANYTHING, NULL},
    {FORM_ANALYTICS, "application/json", HOLDS_ANSWER, NULL},
    {FORM_ANALYTICS, "text/csv", HOLDS_TEXT, NULL},
    {FORM_RPC, "application/json", HOLDS_COMPONENT, "McpAnswer"},
    {FORM_TEXT, "text/plain", HOLDS_TEXT, NULL},
    {FORM_TEXT, "application/json", HOLDS_ANSWER, NULL},
    {FORM_CSV, "text/csv", HOLDS_TEXT, NULL},
    {FORM_METRICS, "application/openmetrics-text", HOLDS_TEXT, NULL},
    {FORM_OPENAPI, "application/json", HOLDS_ANYTHING, NULL},
    {FORM_BYTES, "application/octet-stream", HOLDS_ANYTHING, NULL},
    {FORM_BYTES, "text/event-stream", HOLDS_ANYTHING, NULL},
    {FORM_FILE, "application/octet-stream", HOLDS_ANYTHING, NULL},
    {FORM_ZIP, "application/zip", HOLDS_ANYTHING, NULL},
};

// Of a form that answers with JSON, but not with the one struct that the route names.
static struct json_schema json_of_form(struct maker *m, const struct route *r) {
    if (r->form == FORM_SUBMIT || r->form == FORM_SERIES) {
        bool submit = r->form == FORM_SUBMIT;
        const struct json_schema choices[] = {
            ref(m, submit ? &command_result_schema : &answer_series_names_schema, false),
            submit ? json_schema_ref_to("SubmitList", &m->arena) : ref(m, &answer_series_schema, false)};
        return json_schema_any_of(choices, 2, &m->arena);
    }
    struct json_schema s = ref(m, r->answer, false);
    return r->form == FORM_LIST ? json_schema_list(&s, &m->arena) : s;
}

static struct openapi_response *add_response(struct maker *m, struct openapi_operation *o, const char *status,
                                             const char *help) {
    struct openapi_response *p = &o->responses.at[o->responses.len++];
    *p = (struct openapi_response){.key = status, .description = help};
    p->content.at = arena_alloc(&m->arena, CONTENTS_MAX * sizeof *p->content.at);
    return p;
}

static void add_media(struct openapi_response *p, const char *type, struct json_schema *schema) {
    assert(p->content.len < CONTENTS_MAX);
    p->content.at[p->content.len++] = (struct openapi_media){type, schema};
}

static void add_success(struct maker *m, const struct route *r, struct openapi_operation *o,
                        const char *status, const char *help) {
    struct openapi_response *p = add_response(m, o, status, help);
    bool known = false;
    for (size_t i = 0; i < sizeof contents / sizeof *contents; i++) {
        const struct content *c = &contents[i];
        if (c->form != r->form)
            continue;
        known = true;
        if (c->held == HOLDS_ANYTHING)
            add_media(p, c->type, NULL);
        else if (c->held == HOLDS_TEXT)
            add_media(p, c->type, kept(m, text));
        else if (c->held == HOLDS_COMPONENT)
            add_media(p, c->type, kept(m, json_schema_ref_to(c->component, &m->arena)));
        else if (r->answer)  // a text may have a form in JSON, or none
            add_media(p, c->type, kept(m, ref(m, r->answer, false)));
    }
    if (!known)
        add_media(p, "application/json", kept(m, json_of_form(m, r)));
}

static void add_failure(struct maker *m, struct openapi_operation *o, const char *status, const char *help) {
    struct openapi_response *p = add_response(m, o, status, help);
    add_media(p, "application/problem+json", kept(m, ref(m, &answer_problem_schema, false)));
    add_media(p, "application/json", kept(m, ref(m, &answer_problem_schema, false)));
}

static bool always(const struct route *r) {
    return true;
}

static bool changes(const struct route *r) {
    return !streq(r->method, "GET");
}

// What the system says of a user's file has a status of its own.
static bool is_of_files(const struct route *r) {
    return str_has_prefix(r->path, "/v1/files");
}

static bool writes_files(const struct route *r) {
    return is_of_files(r) && changes(r);
}

static bool redirects(const struct route *r) {
    return r->status == 303;
}

static bool takes_range(const struct route *r) {
    return r->form == FORM_FILE;
}

// Also where anybody may ask: a password, code or join token can be wrong.
static bool may_not_know(const struct route *r) {
    return r->permission != ALLOW_ANYBODY || changes(r) || redirects(r);
}

static bool may_forbid(const struct route *r) {
    return changes(r) || r->permission > ALLOW_USER || is_of_files(r) || redirects(r);
}

static bool has_state(const struct route *r) {
    return changes(r) || strchr(r->path, '{') || is_of_files(r);
}

static bool may_miss(const struct route *r) {
    return has_state(r) || r->form == FORM_SERIES || redirects(r);
}

static bool takes_version(const struct route *r) {
    return streq(r->method, "PUT") || streq(r->method, "DELETE") || is_action(r) || is_of_files(r);
}

static bool may_be_large(const struct route *r) {
    return r->body || r->form == FORM_JOBS || is_of_files(r);
}

// Which failures a route can answer with.
static const struct {
    const char *status, *help;
    bool (*when)(const struct route *r);
} failures[] = {
    {"400", "A parameter, a field or a value is wrong; the message names it.", always},
    {"401", "Not authenticated: token, password or code missing, wrong, expired or revoked.", may_not_know},
    {"403", "Not permitted.", may_forbid},
    {"404", "It does not exist.", may_miss},
    {"409", "Not possible in the state it is in, or it has changed since the version that was given.",
     has_state},
    {"412", "It has changed since the version that If-Match names.", takes_version},
    {"413", "Too large, or too many at once.", may_be_large},
    {"416", "The file ends before the range that was asked for.", takes_range},
    {"429", "Too many requests or jobs; try again later.", always},
    {"503", "Not possible right now: storage or an agent is not available; try again later.", always},
    {"504", "The node has not answered in time.", is_of_files},
    {"507", "No space is left on the device, or the user's quota is used up.", writes_files},
};

static void add_responses(struct maker *m, const struct route *r, struct openapi_operation *o) {
    o->responses.at = arena_alloc(&m->arena, RESPONSES_MAX * sizeof *o->responses.at);
    if (r->form == FORM_SOCKET) {
        add_response(m, o, "101", "The connection is a WebSocket now; see docs/api.md.");
        add_media(add_response(m, o, "426", "The request does not ask for a WebSocket."), "text/plain",
                  kept(m, text));
    } else if (r->status == 201) {
        add_success(m, r, o, "201", "It was created, and that is committed.");
    } else if (redirects(r)) {
        add_response(m, o, "303", "Go to the address that Location names.");
    } else {
        add_success(m, r, o, "200", changes(r) ? "It is done, and that is committed." : "The answer.");
    }
    if (takes_range(r))
        add_success(m, r, o, "206", "The part of the file that Range asks for.");
    if (r->form == FORM_WAIT)
        add_success(m, r, o, "202", "The job has not ended within timeout_s.");
    if (r->form == FORM_RPC)
        add_response(m, o, "202", "A notification was taken; it has no answer.");
    for (size_t i = 0; i < sizeof failures / sizeof *failures; i++)
        if (failures[i].when(r))
            add_failure(m, o, failures[i].status, failures[i].help);
    assert(o->responses.len <= RESPONSES_MAX);
}

static void add_messages(struct maker *m, const struct route *r, struct openapi_operation *o) {
    struct openapi_socket *s = arena_alloc(&m->arena, sizeof *s);
    size_t count = 0;
    while (r->sent && r->sent[count])
        count++;
    s->first = r->first ? kept(m, ref(m, r->first, true)) : NULL;
    s->later = r->later ? kept(m, ref(m, r->later, true)) : NULL;
    s->sent.at = arena_alloc(&m->arena, count * sizeof *s->sent.at);
    while (s->sent.len < count) {
        s->sent.at[s->sent.len] = ref(m, r->sent[s->sent.len], false);
        s->sent.len++;
    }
    schema_give(&socket_schema, s, &s->first);
    schema_give(&socket_schema, s, &s->later);
    schema_give(&socket_schema, s, &s->sent);
    o->socket = s;
}

// "get_v1_jobs__job_": the method and the path in lower case, with _ for what no identifier has.
static const char *operation_id(struct maker *m, const struct route *r) {
    char *id = arena_printf(&m->arena, "%s%s", r->method, r->path);
    for (char *p = id; *p; p++) {
        if (*p >= 'A' && *p <= 'Z')
            *p = (char)(*p + 32);
        if (!(*p >= 'a' && *p <= 'z') && !(*p >= '0' && *p <= '9'))
            *p = '_';
    }
    return id;
}

static struct openapi_operation *operation(struct maker *m, const struct route *r) {
    struct openapi_operation *o = arena_alloc(&m->arena, sizeof *o);
    o->operationId = operation_id(m, r);
    o->summary = r->help;
    if (r->form == FORM_SOCKET)
        add_messages(m, r, o);
    if (r->permission == ALLOW_ANYBODY)
        schema_give(&operation_schema, o, &o->security);  // none is required
    add_parameters(m, r, o);
    if (r->body || r->body_is_bytes)
        add_body(m, r, o);
    add_responses(m, r, o);
    return o;
}

// --- the document ---

// Actions on jobs share the path of single jobs: both have one variable part.
static const char *document_path(const struct route *r) {
    return is_action(r) ? "/v1/jobs/{job}" : r->path;
}

static void add_paths(struct maker *m, struct openapi_document *d) {
    d->paths.at = arena_alloc(&m->arena, api_route_count * sizeof *d->paths.at);
    for (size_t i = 0; i < api_route_count; i++) {
        const struct route *r = &api_routes[i];
        uint32_t at = 0;
        while (at < d->paths.len && !streq(d->paths.at[at].key, document_path(r)))
            at++;
        if (at == d->paths.len)
            d->paths.at[d->paths.len++].key = document_path(r);
        struct openapi_path *p = &d->paths.at[at];
        struct openapi_operation *o = operation(m, r);
        if (streq(r->method, "GET"))
            p->get = o;
        else if (streq(r->method, "POST"))
            p->post = o;
        else if (streq(r->method, "PUT"))
            p->put = o;
        else
            p->delete = o;
    }
}

// A struct that is described may refer to others, which join the end of the list while it is walked.
static void add_schemas(struct maker *m, struct openapi_components *out) {
    const size_t others = sizeof other_schemas / sizeof *other_schemas;
    out->schemas.at = arena_alloc(&m->arena, (JSON_SCHEMA_REFS_MAX + others + 3) * sizeof *out->schemas.at);
    out->schemas.at[out->schemas.len++] = events_schema(m);
    out->schemas.at[out->schemas.len++] = row_schema(m, false);
    out->schemas.at[out->schemas.len++] = row_schema(m, true);
    for (size_t i = 0; i < others; i++)
        out->schemas.at[out->schemas.len++] = other_schemas[i];
    for (uint32_t i = 0; i < m->refs.count; i++) {
        struct json_schema s =
            json_schema_of_struct(m->refs.at[i].schema, m->refs.at[i].request, &m->refs, &m->arena);
        s.key = json_schema_name(m->refs.at[i].schema, m->refs.at[i].request, &m->arena);
        out->schemas.at[out->schemas.len++] = s;
    }
}

static void write_phrases(struct json_writer *w, const struct phrase *phrases, uint32_t count) {
    for (uint32_t i = 0; i < count; i++)
        json_kv_str(w, phrases[i].code, phrases[i].english);
}

// What the sentences of explanations are made of, for catalogues of other languages.
static const char *all_phrases(struct buf *out) {
    struct json_writer w = {.out = out};
    json_open(&w, '{');
    write_phrases(&w, sched_phrases, sched_phrase_count);
    write_phrases(&w, api_explain_phrases, SAID_PHRASE_COUNT);
    write_phrases(&w, reason_phrases, REASON_PHRASE_COUNT);
    json_close(&w, '}');
    return out->data;
}

void api_openapi_write(struct buf *out) {
    cleanup_buf struct buf phrases = {0};
    struct maker *m = xcalloc(1, sizeof *m);
    struct openapi_info info = {"Acequia", ACEQUIA_VERSION,
                                "HTTP API of the Acequia controller. Times are milliseconds since 1970, "
                                "sizes bytes, GPUs thousandths. "
                                "A change is answered when it is committed to disk."};
    struct openapi_scheme scheme = {"token", "http", "bearer",
                                    "A user's token. Over the unix socket the user is known without one."};
    struct openapi_security security = {0};
    struct openapi_components components = {.securitySchemes = {&scheme, 1}};
    struct openapi_document d = {
        .openapi = "3.1.0", .info = &info, .security = {&security, 1}, .components = &components,
        .phrases = all_phrases(&phrases)};
    schema_give(&security_schema, &security, &security.token);
    add_paths(m, &d);
    add_schemas(m, &components);
    schema_write_given_json(&document_schema, &d, &(struct json_writer){.out = out});
    arena_done(&m->arena);
    free(m);
}

void api_openapi(struct api_call *call) {
    cleanup_buf struct buf b = {0};
    api_openapi_write(&b);
    api_json(call->req, 200, &b);
}

int api_openapi_print(void) {
    cleanup_buf struct buf b = {0};
    api_openapi_write(&b);
    buf_addc(&b, '\n');
    return fwrite(b.data, 1, b.len, stdout) == b.len ? 0 : 1;
}
