// The OpenAPI 3.1 document, written from the table of routes and the tables of requests and answers.
//
// A struct that is read and written has two schemas: answers always have all fields; in requests ("Request"
// in the name) fields may be left out or null, and unknown ones are refused.
#include <stdio.h>
#include <string.h>

#include "answers_portal.h"
#include "api.h"
#include "base/text.h"
#include "controller/daemon.h"
#include "list_stream.h"

enum { SCHEMAS_MAX = 256 };

struct component {
    const struct schema *schema;
    bool request;
};

struct document {
    struct json_writer w;
    struct component components[SCHEMAS_MAX];  // that were referred to, each once
    uint32_t count;
};

// "struct answer_why_nodes" is WhyNodes, "struct spec" of a request SpecRequest.
void api_openapi_name(const struct schema *s, bool request, struct buf *out) {
    const char *p = s->type;
    static const char *const prefixes[] = {"struct ", "answer_", "request_", "query_"};
    for (size_t i = 0; i < sizeof prefixes / sizeof *prefixes; i++)
        if (str_has_prefix(p, prefixes[i]))
            p += strlen(prefixes[i]);
    for (bool upper = true; *p; p++) {
        if (*p == '_') {
            upper = true;
            continue;
        }
        buf_addc(out, upper && *p >= 'a' && *p <= 'z' ? (char)(*p - 32) : *p);
        upper = false;
    }
    if (request)
        buf_adds(out, "Request");
}

static void put_ref_to(struct document *d, const char *name) {
    cleanup_buf struct buf ref = {0};
    buf_addf(&ref, "#/components/schemas/%s", name);
    json_open(&d->w, '{');
    json_kv_str(&d->w, "$ref", buf_str(&ref));
    json_close(&d->w, '}');
}

static void put_ref(struct document *d, const struct schema *s, bool request) {
    cleanup_buf struct buf name = {0};
    uint32_t i = 0;
    while (i < d->count && (d->components[i].schema != s || d->components[i].request != request))
        i++;
    if (i == d->count && d->count < SCHEMAS_MAX)
        d->components[d->count++] = (struct component){s, request};
    api_openapi_name(s, request, &name);
    put_ref_to(d, buf_str(&name));
}

static void put_type(struct document *d, const char *type, bool null) {
    json_key(&d->w, "type");
    if (!null) {
        json_put_str(&d->w, type);
        return;
    }
    json_open(&d->w, '[');
    json_put_str(&d->w, type);
    json_put_str(&d->w, "null");
    json_close(&d->w, ']');
}

static void put_range(struct document *d, const struct field *f) {
    bool is_signed = f->type == FIELD_I32 || f->type == FIELD_I64;
    int64_t low = f->type == FIELD_I32 ? INT32_MIN : is_signed ? INT64_MIN : 0;
    uint64_t high = f->type == FIELD_U32 ? UINT32_MAX : f->type == FIELD_I32 ? INT32_MAX : is_signed ? INT64_MAX
                                                                                                    : UINT64_MAX;
    if (f->min || f->max) {
        low = f->min;
        high = f->max;
    }
    json_kv_i64(&d->w, "minimum", low);
    json_key(&d->w, "maximum");
    json_put_u64(&d->w, high);
}

static void put_words(struct document *d, const char *const *words, bool open, bool null) {
    json_open_key(&d->w, "enum", '[');
    for (int i = 0; words[i]; i++)
        json_put_str(&d->w, words[i]);
    if (open)
        json_put_str(&d->w, "unknown");
    if (null)
        json_put_null(&d->w);
    json_close(&d->w, ']');
}

// The schema of one value, without braces.
static void put_value(struct document *d, const struct field *f, bool request, bool null) {
    switch ((enum field_type)f->type) {
    case FIELD_BOOL: put_type(d, "boolean", null); break;
    case FIELD_U32:
    case FIELD_I32:
    case FIELD_U64:
    case FIELD_I64:
        put_type(d, "integer", null);
        put_range(d, f);
        break;
    case FIELD_DOUBLE:
        put_type(d, "number", null);
        if (f->max)
            put_range(d, f);
        break;
    case FIELD_ENUM:
        put_type(d, "string", null);
        put_words(d, f->words, f->open && !request, null);
        break;
    case FIELD_STRING:
        put_type(d, "string", null);
        if (f->max) {
            json_kv_i64(&d->w, "minLength", f->min);
            json_kv_i64(&d->w, "maxLength", (int64_t)f->max);
        }
        if (f->pattern)
            json_kv_str(&d->w, "pattern", f->pattern);
        break;
    case FIELD_BYTES:
        put_type(d, "string", null);
        json_kv_str(&d->w, "pattern", "^([0-9a-f]{2})*$");
        if (f->max) {  // two digits a byte
            json_kv_i64(&d->w, "minLength", 2 * f->min);
            json_kv_i64(&d->w, "maxLength", 2 * (int64_t)f->max);
        }
        break;
    case FIELD_STRUCT:
    case FIELD_RAW_JSON:
        if (f->type == FIELD_RAW_JSON && !f->described_by)
            break;
        json_open_key(&d->w, "anyOf", '[');
        if (f->type == FIELD_STRUCT)
            put_ref(d, f->sub, request);
        else
            put_ref_to(d, f->described_by);
        if (null) {
            json_open(&d->w, '{');
            put_type(d, "null", false);
            json_close(&d->w, '}');
        }
        json_close(&d->w, ']');
        break;
    }
}

static bool may_be_null(const struct field *f, bool request) {
    if (request)
        return !f->required;
    bool pointer = f->type == FIELD_STRING || f->type == FIELD_STRUCT || f->type == FIELD_RAW_JSON;
    return f->nullable || (pointer && !f->list);
}

static void put_field(struct document *d, const struct field *f, bool request) {
    json_open(&d->w, '{');
    if (f->list) {
        put_type(d, "array", may_be_null(f, request));
        json_open_key(&d->w, "items", '{');
        put_value(d, f, request, false);
        json_close(&d->w, '}');
    } else {
        put_value(d, f, request, may_be_null(f, request));
    }
    if (f->help && *f->help)
        json_kv_str(&d->w, "description", f->help);
    json_close(&d->w, '}');
}

static void put_properties(struct document *d, const struct field *fields, size_t count, bool request) {
    for (size_t i = 0; i < count; i++) {
        json_key(&d->w, fields[i].name);
        put_field(d, &fields[i], request);
    }
}

// Names of fields: all of them (answers), or those that must be given.
static void put_required(struct document *d, const struct field *fields, size_t count, bool request) {
    for (size_t i = 0; i < count; i++)
        if (!request || fields[i].required)
            json_put_str(&d->w, fields[i].name);
}

// Without braces.
static void put_struct(struct document *d, const struct schema *s, bool request) {
    put_type(d, "object", false);
    json_open_key(&d->w, "properties", '{');
    put_properties(d, s->fields, s->count, request);
    json_close(&d->w, '}');
    json_open_key(&d->w, "required", '[');
    put_required(d, s->fields, s->count, request);
    json_close(&d->w, ']');
    json_kv_bool(&d->w, "additionalProperties", false);
}

// --- what no table describes ---

static void put_event(struct document *d, const struct event_info *info) {
    static const struct field head[] = {
        {.type = FIELD_U64, .name = "seq", .help = "Number of the event."},
        {.type = FIELD_I64, .name = "at_ms", .help = "When it happened."},
    };
    json_open(&d->w, '{');
    put_type(d, "object", false);
    json_open_key(&d->w, "properties", '{');
    put_properties(d, head, 2, false);
    json_open_key(&d->w, "type", '{');
    json_kv_str(&d->w, "const", info->name);
    json_close(&d->w, '}');
    put_properties(d, info->schema->fields, info->schema->count, false);
    json_close(&d->w, '}');
    json_open_key(&d->w, "required", '[');
    put_required(d, head, 2, false);
    json_put_str(&d->w, "type");
    put_required(d, info->schema->fields, info->schema->count, false);
    json_close(&d->w, ']');
    json_close(&d->w, '}');
}

static void put_events(struct document *d) {
    json_open_key(&d->w, "EventList", '{');
    put_type(d, "array", false);
    json_open_key(&d->w, "items", '{');
    json_open_key(&d->w, "oneOf", '[');
    for (unsigned t = 1; t < EVENT_TYPE_MAX; t++)
        if (event_info((enum event_type)t))
            put_event(d, event_info((enum event_type)t));
    json_close(&d->w, ']');
    json_close(&d->w, '}');
    json_close(&d->w, '}');
}

// `table`: of the job table, with what its rows have beside the fields of a job.
static void put_job_row(struct document *d, bool table) {
    static const struct field extra[] = {
        {.type = FIELD_STRING, .name = "why", .help = "Of a pending job: why it waits, in one sentence."},
        {.type = FIELD_STRUCT,
         .name = "array",
         .sub = &answer_table_array_schema,
         .help = "Of an array in one row: its elements; else null."}};
    json_open_key(&d->w, table ? "TableRow" : "JobRow", '{');
    json_kv_str(&d->w, "description", "A job in a list: the fields that were asked for, as in Job.");
    put_type(d, "object", false);
    json_open_key(&d->w, "properties", '{');
    put_properties(d, answer_job_schema.fields, answer_job_schema.count, false);
    put_properties(d, extra, table ? 2 : 0, false);
    json_close(&d->w, '}');
    json_kv_bool(&d->w, "additionalProperties", false);
    json_close(&d->w, '}');
}

static const char other_components[] =
    "\"JobPage\":{\"description\":\"Jobs; with compact=1 each is a list of values in the order of fields.\","
    "\"type\":\"object\",\"properties\":{\"fields\":{\"type\":\"array\",\"items\":{\"type\":\"string\"}},"
    "\"jobs\":{\"type\":\"array\",\"items\":{\"anyOf\":[{\"$ref\":\"#/components/schemas/JobRow\"},"
    "{\"type\":\"array\"}]}},\"next\":{\"type\":[\"string\",\"null\"],\"description\":\"With finished=1: the "
    "after= of the next page; null: there is none.\"}},\"required\":[\"jobs\",\"next\"],"
    "\"additionalProperties\":false},"
    "\"JobRows\":{\"type\":\"array\",\"items\":{\"$ref\":\"#/components/schemas/JobRow\"}},"
    "\"TableRows\":{\"type\":\"array\",\"items\":{\"$ref\":\"#/components/schemas/TableRow\"}},"
    "\"SubmitList\":{\"type\":\"array\",\"items\":{\"anyOf\":[{\"$ref\":\"#/components/schemas/"
    "CommandResult\"},"
    "{\"$ref\":\"#/components/schemas/Failure\"}]}},"
    "\"SeriesPoints\":{\"type\":\"array\",\"items\":{\"type\":\"array\",\"description\":\"Time (ms since "
    "1970) and "
    "value.\",\"items\":{\"type\":\"number\"},\"minItems\":2,\"maxItems\":2}}";

// --- operations ---

static void put_parameter_head(struct document *d, const char *name, const char *in, bool required) {
    json_kv_str(&d->w, "name", name);
    json_kv_str(&d->w, "in", in);
    json_kv_bool(&d->w, "required", required);
    json_open_key(&d->w, "schema", '{');
}

static bool is_action(const struct route *r) {
    return r->handler == api_action;
}

static void put_path_parameter(struct document *d, const struct route *r) {
    static const char *const actions[] = {"cancel", "hold", "release", "requeue", "suspend", "resume", "update", NULL};
    bool job = strstr(r->path, "{job}") || is_action(r);
    if (!strchr(r->path, '{'))
        return;
    json_open(&d->w, '{');
    put_parameter_head(d, job ? "job" : "name", "path", true);
    put_type(d, "string", false);
    if (is_action(r))
        put_words(d, actions, false, false);
    else if (job)
        json_kv_str(&d->w, "pattern", "^[1-9][0-9]{0,17}(_[0-9]{1,7})?$");
    else
        json_kv_str(&d->w, "pattern", "^[A-Za-z0-9][A-Za-z0-9._-]{0,62}$");
    json_close(&d->w, '}');
    json_kv_str(&d->w, "description", is_action(r) ? "The action." : job ? "A job, as 12 or 12_3." : "Its name.");
    json_close(&d->w, '}');
}

static void put_query_parameter(struct document *d, const struct field *f) {
    static const char *const booleans[] = {"0", "1", "false", "true", NULL};
    json_open(&d->w, '{');
    put_parameter_head(d, f->name, "query", false);
    if (f->type == FIELD_BOOL) {
        put_type(d, "string", false);
        put_words(d, booleans, false, false);
    } else if (f->type == FIELD_STRING) {
        put_type(d, "string", false);
        json_kv_str(&d->w, "pattern", f->pattern ? f->pattern : "^[^\\u0000-\\u001f\\u007f-\\u009f]*$");
    } else {
        put_value(d, f, false, false);
    }
    json_close(&d->w, '}');
    json_kv_str(&d->w, "description", f->help);
    json_close(&d->w, '}');
}

static void put_parameters(struct document *d, const struct route *r) {
    json_open_key(&d->w, "parameters", '[');
    put_path_parameter(d, r);
    for (size_t i = 0; r->query && i < r->query->count; i++)
        put_query_parameter(d, &r->query->fields[i]);
    json_close(&d->w, ']');
}

static void put_body(struct document *d, const struct route *r) {
    json_open_key(&d->w, "requestBody", '{');
    json_kv_bool(&d->w, "required", !r->body_optional);
    json_open_key(&d->w, "content", '{');
    json_open_key(&d->w, "application/json", '{');
    json_key(&d->w, "schema");
    if (r->form == FORM_SUBMIT) {
        json_open(&d->w, '{');
        json_open_key(&d->w, "anyOf", '[');
        put_ref(d, r->body, true);
        json_open(&d->w, '{');
        put_type(d, "array", false);
        json_kv_str(&d->w, "description", "A list of them; each is accepted or refused by itself.");
        json_close(&d->w, '}');
        json_close(&d->w, ']');
        json_close(&d->w, '}');
    } else {
        put_ref(d, r->body, true);
    }
    json_close(&d->w, '}');
    json_close(&d->w, '}');
    json_close(&d->w, '}');
}

// "type": {"schema": …}; `any` NULL: a text.
static void put_content(struct document *d, const char *type, const struct schema *s, const char *ref) {
    json_open_key(&d->w, type, '{');
    json_key(&d->w, "schema");
    if (s) {
        put_ref(d, s, false);
    } else if (ref) {
        put_ref_to(d, ref);
    } else {
        json_open(&d->w, '{');
        put_type(d, "string", false);
        json_close(&d->w, '}');
    }
    json_close(&d->w, '}');
}

// A content type of which nothing more is said.
static void put_any(struct document *d, const char *type) {
    json_open_key(&d->w, type, '{');
    json_close(&d->w, '}');
}

// One of two: described by tables, or the second by name.
static void put_either(struct document *d, const struct schema *one, const struct schema *other,
                       const char *ref) {
    json_open_key(&d->w, "application/json", '{');
    json_open_key(&d->w, "schema", '{');
    json_open_key(&d->w, "anyOf", '[');
    put_ref(d, one, false);
    if (other)
        put_ref(d, other, false);
    else
        put_ref_to(d, ref);
    json_close(&d->w, ']');
    json_close(&d->w, '}');
    json_close(&d->w, '}');
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
    {FORM_TEXT, "text/plain", HOLDS_TEXT, NULL},
    {FORM_TEXT, "application/json", HOLDS_ANSWER, NULL},
    {FORM_CSV, "text/csv", HOLDS_TEXT, NULL},
    {FORM_METRICS, "application/openmetrics-text", HOLDS_TEXT, NULL},
    {FORM_OPENAPI, "application/json", HOLDS_ANYTHING, NULL},
    {FORM_BYTES, "application/octet-stream", HOLDS_ANYTHING, NULL},
    {FORM_BYTES, "text/event-stream", HOLDS_ANYTHING, NULL},
};

static void put_list(struct document *d, const struct schema *of) {
    json_open_key(&d->w, "application/json", '{');
    json_open_key(&d->w, "schema", '{');
    put_type(d, "array", false);
    json_key(&d->w, "items");
    put_ref(d, of, false);
    json_close(&d->w, '}');
    json_close(&d->w, '}');
}

static void put_contents(struct document *d, const struct route *r) {
    bool known = false;
    for (size_t i = 0; i < sizeof contents / sizeof *contents; i++) {
        const struct content *c = &contents[i];
        if (c->form != r->form)
            continue;
        known = true;
        if (c->held == HOLDS_ANYTHING)
            put_any(d, c->type);
        else if (c->held != HOLDS_ANSWER || r->answer)  // a text may have a form in JSON, or none
            put_content(d, c->type, c->held == HOLDS_ANSWER ? r->answer : NULL, c->component);
    }
    if (r->form == FORM_LIST)
        put_list(d, r->answer);
    else if (r->form == FORM_SUBMIT)
        put_either(d, &command_result_schema, NULL, "SubmitList");
    else if (r->form == FORM_SERIES)
        put_either(d, &answer_series_names_schema, &answer_series_schema, NULL);
    else if (!known)
        put_content(d, "application/json", r->answer, NULL);
}

static void put_success(struct document *d, const struct route *r, const char *status, const char *help) {
    json_open_key(&d->w, status, '{');
    json_kv_str(&d->w, "description", help);
    json_open_key(&d->w, "content", '{');
    put_contents(d, r);
    json_close(&d->w, '}');
    json_close(&d->w, '}');
}

static void put_failure(struct document *d, const char *status, const char *help) {
    json_open_key(&d->w, status, '{');
    json_kv_str(&d->w, "description", help);
    json_open_key(&d->w, "content", '{');
    put_content(d, "application/problem+json", &answer_problem_schema, NULL);
    put_content(d, "application/json", &answer_problem_schema, NULL);
    json_close(&d->w, '}');
    json_close(&d->w, '}');
}

static bool always(const struct route *r) {
    return true;
}

static bool changes(const struct route *r) {
    return !streq(r->method, "GET");
}

static bool needs_identity(const struct route *r) {
    return r->permission != ALLOW_ANYBODY;
}

static bool may_forbid(const struct route *r) {
    return changes(r) || r->permission > ALLOW_USER;
}

static bool has_state(const struct route *r) {
    return changes(r) || strchr(r->path, '{');
}

static bool may_miss(const struct route *r) {
    return has_state(r) || r->form == FORM_SERIES;
}

static bool takes_version(const struct route *r) {
    return streq(r->method, "PUT") || streq(r->method, "DELETE") || is_action(r);
}

static bool may_be_large(const struct route *r) {
    return r->body || r->form == FORM_JOBS;
}

// Which failures a route can answer with.
static const struct {
    const char *status, *help;
    bool (*when)(const struct route *r);
} failures[] = {
    {"400", "A parameter, a field or a value is wrong; the message names it.", always},
    {"401", "Not authenticated: token missing, expired or revoked.", needs_identity},
    {"403", "Not permitted.", may_forbid},
    {"404", "It does not exist.", may_miss},
    {"409", "Not possible in the state it is in, or it has changed since the version that was given.",
     has_state},
    {"412", "It has changed since the version that If-Match names.", takes_version},
    {"413", "Too large, or too many at once.", may_be_large},
    {"429", "Too many requests or jobs; try again later.", always},
    {"503", "Not possible right now: storage or an agent is not available; try again later.", always},
};

static void put_responses(struct document *d, const struct route *r) {
    json_open_key(&d->w, "responses", '{');
    if (r->form == FORM_SOCKET) {
        json_open_key(&d->w, "101", '{');
        json_kv_str(&d->w, "description", "The connection is a WebSocket now; see docs/api.md.");
        json_close(&d->w, '}');
        json_open_key(&d->w, "426", '{');
        json_kv_str(&d->w, "description", "The request does not ask for a WebSocket.");
        json_open_key(&d->w, "content", '{');
        put_content(d, "text/plain", NULL, NULL);
        json_close(&d->w, '}');
        json_close(&d->w, '}');
    } else if (r->status == 201) {
        put_success(d, r, "201", "It was created, and that is committed.");
    } else {
        put_success(d, r, "200", changes(r) ? "It is done, and that is committed." : "The answer.");
    }
    if (r->form == FORM_WAIT)
        put_success(d, r, "202", "The job has not ended within timeout_s.");
    for (size_t i = 0; i < sizeof failures / sizeof *failures; i++)
        if (failures[i].when(r))
            put_failure(d, failures[i].status, failures[i].help);
    json_close(&d->w, '}');
}

// The text messages of a WebSocket; OpenAPI has no word for them.
static void put_messages(struct document *d, const struct route *r) {
    json_open_key(&d->w, "x-websocket", '{');
    const struct {
        const char *key;
        const struct schema *schema;
    } received[] = {{"first", r->first}, {"later", r->later}};
    for (size_t i = 0; i < 2; i++) {
        json_key(&d->w, received[i].key);
        if (received[i].schema)
            put_ref(d, received[i].schema, true);
        else
            json_put_null(&d->w);
    }
    json_open_key(&d->w, "sent", '[');
    for (size_t i = 0; r->sent && r->sent[i]; i++)
        put_ref(d, r->sent[i], false);
    json_close(&d->w, ']');
    json_close(&d->w, '}');
}

static void put_operation(struct document *d, const struct route *r) {
    cleanup_buf struct buf id = {0};
    static const char *const methods[][2] = {{"GET", "get"}, {"POST", "post"}, {"PUT", "put"}, {"DELETE", "delete"}};
    for (size_t i = 0; i < 4; i++)
        if (streq(methods[i][0], r->method)) {
            json_key(&d->w, methods[i][1]);
            buf_adds(&id, methods[i][1]);
        }
    for (const char *p = r->path; *p; p++)
        buf_addc(&id, (*p >= 'a' && *p <= 'z') || (*p >= '0' && *p <= '9') ? *p : '_');
    json_open(&d->w, '{');
    json_kv_str(&d->w, "operationId", buf_str(&id));
    json_kv_str(&d->w, "summary", r->help);
    if (r->form == FORM_SOCKET)
        put_messages(d, r);
    if (r->permission == ALLOW_ANYBODY) {
        json_open_key(&d->w, "security", '[');
        json_close(&d->w, ']');
    }
    put_parameters(d, r);
    if (r->body)
        put_body(d, r);
    put_responses(d, r);
    json_close(&d->w, '}');
}

// Actions on jobs share the path of single jobs: both have one variable part.
static const char *document_path(const struct route *r) {
    return is_action(r) ? "/v1/jobs/{job}" : r->path;
}

static void put_paths(struct document *d) {
    json_open_key(&d->w, "paths", '{');
    for (size_t i = 0; i < api_route_count; i++) {
        bool before = false;
        for (size_t k = 0; k < i; k++)
            before |= streq(document_path(&api_routes[k]), document_path(&api_routes[i]));
        if (before)
            continue;
        json_open_key(&d->w, document_path(&api_routes[i]), '{');
        for (size_t k = i; k < api_route_count; k++)
            if (streq(document_path(&api_routes[k]), document_path(&api_routes[i])))
                put_operation(d, &api_routes[k]);
        json_close(&d->w, '}');
    }
    json_close(&d->w, '}');
}

// Each schema may refer to others, which are added at the end.
static void put_components(struct document *d) {
    json_open_key(&d->w, "components", '{');
    json_open_key(&d->w, "securitySchemes", '{');
    json_key(&d->w, "token");
    json_put_raw(&d->w, "{\"type\":\"http\",\"scheme\":\"bearer\",\"description\":\"A user's token. Over the unix "
                        "socket the user is known without one.\"}");
    json_close(&d->w, '}');
    json_open_key(&d->w, "schemas", '{');
    put_events(d);
    put_job_row(d, false);
    put_job_row(d, true);
    buf_addf(d->w.out, ",%s", other_components);
    for (uint32_t i = 0; i < d->count; i++) {
        cleanup_buf struct buf name = {0};
        api_openapi_name(d->components[i].schema, d->components[i].request, &name);
        json_open_key(&d->w, buf_str(&name), '{');
        put_struct(d, d->components[i].schema, d->components[i].request);
        json_close(&d->w, '}');
    }
    json_close(&d->w, '}');
    json_close(&d->w, '}');
}

void api_openapi_write(struct buf *out) {
    struct document *d = xcalloc(1, sizeof *d);
    d->w.out = out;
    json_open(&d->w, '{');
    json_kv_str(&d->w, "openapi", "3.1.0");
    json_open_key(&d->w, "info", '{');
    json_kv_str(&d->w, "title", "Acequia");
    json_kv_str(&d->w, "version", ACEQUIA_VERSION);
    json_kv_str(&d->w, "description",
                "HTTP API of the Acequia controller. Times are milliseconds since 1970, sizes bytes, GPUs thousandths. "
                "A change is answered when it is committed to disk.");
    json_close(&d->w, '}');
    json_key(&d->w, "security");
    json_put_raw(&d->w, "[{\"token\":[]}]");
    put_paths(d);
    put_components(d);
    json_close(&d->w, '}');
    free(d);
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
