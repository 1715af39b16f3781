// Errors as problem documents (RFC 9457) that keep the member `error` of earlier releases. Which field is to blame
// is found in the sentence: those of the tables quote it, those of the core begin with it and a colon, and then
// it must be a field that the route or a spec has.
#include <string.h>

#include "api.h"
#include "base/text.h"

enum { FIELD_NAME_MAX = 64 };

static bool has_field(const struct schema *s, const char *name) {
    for (size_t i = 0; s && i < s->count; i++)
        if (streq(s->fields[i].name, name))
            return true;
    return false;
}

static const struct route *route_of(const struct net_request *req) {
    return req->tag && req->tag <= api_route_count ? &api_routes[req->tag - 1] : NULL;
}

static bool is_field(const struct net_request *req, const char *name) {
    const struct route *r = route_of(req);
    return has_field(&spec_schema, name) ||
           (r && (has_field(r->body, name) || has_field(r->query, name) || has_field(r->first, name)));
}

// `field "x": …`, `unknown parameter "x"; …`: the name between the quotes.
static bool quoted_name(const char *text, char out[static FIELD_NAME_MAX]) {
    static const char *const heads[] = {"field \"", "parameter \"", "unknown field \"",
                                        "unknown parameter \""};
    for (size_t i = 0; i < sizeof heads / sizeof *heads; i++) {
        if (!str_has_prefix(text, heads[i]))
            continue;
        const char *name = text + strlen(heads[i]);
        size_t len = strcspn(name, "\"");
        if (!name[len] || len >= FIELD_NAME_MAX)
            return false;
        snprintf(out, FIELD_NAME_MAX, "%.*s", (int)len, name);
        return true;
    }
    return false;
}

static const char *field_of(const struct net_request *req, const char *text,
                            char out[static FIELD_NAME_MAX]) {
    if (quoted_name(text, out))
        return out;
    size_t len = strspn(text, "abcdefghijklmnopqrstuvwxyz_0123456789");
    if (!len || len >= FIELD_NAME_MAX || text[len] != ':')
        return NULL;
    snprintf(out, FIELD_NAME_MAX, "%.*s", (int)len, text);
    return is_field(req, out) ? out : NULL;
}

// Clients of release 0.2 and before read errors of the type application/json only, and send no Accept.
const char *api_problem_type(const struct net_request *req) {
    const char *accept = http_message_header(req->http, "Accept");
    bool accepts = accept && (strstr(accept, "application/problem+json") || strstr(accept, "application/*") ||
                              strstr(accept, "*/*"));
    return accepts ? "application/problem+json" : "application/json";
}

void api_error(struct net_request *req, int status, const char *code, const char *message) {
    char field[FIELD_NAME_MAX];
    struct answer_problem p = {.type = "about:blank",
                               .title = http_status_text(status),
                               .status = (uint32_t)status,
                               .detail = message,
                               .instance = req->path,
                               .field = field_of(req, message, field),
                               .error = &(struct answer_error){code, message}};
    cleanup_buf struct buf b = {0};
    schema_write_json(&answer_problem_schema, &p, &(struct json_writer){.out = &b});
    buf_addc(&b, '\n');
    net_reply(req, status, api_problem_type(req), b.data, b.len);
}
