// How the table of a struct becomes a JSON Schema.
#include "json_schema.h"

#include <assert.h>
#include <string.h>

#include "base/text.h"

#define S struct json_schema
static const struct field json_schema_fields[] = {
    FIELD(1, S, key, ""),
    {.num = 2, .type = FIELD_STRING, .offset = offsetof(S, ref), .name = "$ref"},
    FIELD(3, S, description, ""),
    FIELD(4, S, type, ""),
    {.num = 5, .type = FIELD_STRING, .list = true, .offset = offsetof(S, types), .name = "type"},
    {.num = 6, .type = FIELD_STRING, .offset = offsetof(S, constant), .name = "const"},
    {.num = 7, .type = FIELD_STRING, .list = true, .offset = offsetof(S, words), .name = "enum"},
    FIELD(8, S, pattern, ""),
    FIELD(9, S, minimum, ""),
    FIELD(10, S, maximum, ""),
    FIELD(11, S, minLength, ""),
    FIELD(12, S, maxLength, ""),
    FIELD(13, S, minItems, ""),
    FIELD(14, S, maxItems, ""),
    FIELD_SUB(15, S, items, &json_schema_table, ""),
    FIELD_LIST_SUB(16, S, properties, &json_schema_table, "", .keyed = true),
    FIELD_LIST_SUB(17, S, anyOf, &json_schema_table, ""),
    FIELD_LIST_SUB(18, S, oneOf, &json_schema_table, ""),
    FIELD_LIST(19, S, required, ""),
    FIELD(20, S, additionalProperties, ""),
};
const struct schema json_schema_table = SCHEMA_GIVEN(S, "a schema", json_schema_fields);
#undef S
static_assert(JSON_SCHEMA_CLOSED == 1ULL << 20, "the number of additionalProperties in the table");

static void give(struct json_schema *j, const void *member) {
    schema_give(&json_schema_table, j, member);
}

// One more element at the end; room is doubled when it is used up.
static void *push(void *list, size_t size, struct arena *a) {
    struct any_list *l = list;
    if (!(l->len & (l->len - 1))) {
        void *more = arena_alloc(a, (l->len ? 2 * l->len : 1) * size);
        if (l->len)
            memcpy(more, l->at, l->len * size);
        l->at = more;
    }
    return (char *)l->at + size * l->len++;
}

static void push_text(void *list, const char *text, struct arena *a) {
    *(const char **)push(list, sizeof text, a) = text;
}

const char *json_schema_name(const struct schema *s, bool request, struct arena *a) {
    cleanup_buf struct buf out = {0};
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
        buf_addc(&out, upper && *p >= 'a' && *p <= 'z' ? (char)(*p - 32) : *p);
        upper = false;
    }
    if (request)
        buf_adds(&out, "Request");
    return arena_strdup(a, buf_str(&out));
}

struct json_schema json_schema_ref_to(const char *name, struct arena *a) {
    return (struct json_schema){.ref = arena_printf(a, "#/components/schemas/%s", name)};
}

struct json_schema json_schema_ref(const struct schema *s, bool request, struct json_schema_refs *refs,
                                   struct arena *a) {
    uint32_t i = 0;
    while (i < refs->count && (refs->at[i].schema != s || refs->at[i].request != request))
        i++;
    assert(i < JSON_SCHEMA_REFS_MAX);
    if (i == refs->count) {
        refs->at[i].schema = s;
        refs->at[i].request = request;
        refs->count++;
    }
    return json_schema_ref_to(json_schema_name(s, request, a), a);
}

static void set_range(struct json_schema *out, const struct field *f) {
    bool is_signed = f->type == FIELD_I32 || f->type == FIELD_I64;
    out->minimum = f->type == FIELD_I32 ? INT32_MIN : is_signed ? INT64_MIN : 0;
    out->maximum = f->type == FIELD_U32   ? UINT32_MAX
                   : f->type == FIELD_I32 ? INT32_MAX
                   : is_signed            ? INT64_MAX
                                          : UINT64_MAX;
    if (f->min || f->max) {
        out->minimum = f->min;
        out->maximum = f->max;
    }
    give(out, &out->minimum);
    give(out, &out->maximum);
}

// `digits`: characters that stand for one byte.
static void set_length(struct json_schema *out, const struct field *f, uint32_t digits) {
    if (!f->max)
        return;
    out->minLength = digits * (uint32_t)f->min;
    out->maxLength = f->max > UINT32_MAX / digits ? UINT32_MAX : digits * (uint32_t)f->max;
    give(out, &out->minLength);
}

static void set_words(struct json_schema *out, const struct field *f, bool request, struct arena *a) {
    for (int i = 0; f->words[i]; i++)
        push_text(&out->words, f->words[i], a);
    if (f->open && !request)
        push_text(&out->words, "unknown", a);
}

struct json_schema json_schema_of_element(const struct field *f, bool request, struct json_schema_refs *refs,
                                          struct arena *a) {
    struct json_schema out = {0};
    switch ((enum field_type)f->type) {
    case FIELD_BOOL: out.type = "boolean"; break;
    case FIELD_U32:
    case FIELD_I32:
    case FIELD_U64:
    case FIELD_I64:
        out.type = "integer";
        set_range(&out, f);
        break;
    case FIELD_DOUBLE:
        out.type = "number";
        if (f->max)
            set_range(&out, f);
        break;
    case FIELD_ENUM:
        out.type = "string";
        set_words(&out, f, request, a);
        break;
    case FIELD_STRING:
        out.type = "string";
        set_length(&out, f, 1);
        out.pattern = f->pattern;
        break;
    case FIELD_BYTES:
        out.type = "string";
        out.pattern = "^([0-9a-f]{2})*$";
        set_length(&out, f, 2);
        break;
    case FIELD_STRUCT: out = json_schema_ref(f->sub, request, refs, a); break;
    case FIELD_RAW_JSON:
        if (f->described_by)
            out = json_schema_ref_to(f->described_by, a);
        break;
    }
    return out;
}

struct json_schema json_schema_list(const struct json_schema *items, struct arena *a) {
    return (struct json_schema){.type = "array", .items = arena_memdup(a, items, sizeof *items)};
}

struct json_schema json_schema_any_of(const struct json_schema *choices, uint32_t count, struct arena *a) {
    return (struct json_schema){.anyOf = {arena_memdup(a, choices, count * sizeof *choices), count}};
}

static bool may_be_null(const struct field *f, bool request) {
    if (request)
        return !f->required;
    bool pointer = f->type == FIELD_STRING || f->type == FIELD_STRUCT || f->type == FIELD_RAW_JSON;
    return f->nullable || (pointer && !f->list);
}

// Null is one more type, one more word of an enumeration, or the other of two schemas.
static void allow_null(struct json_schema *j, struct arena *a) {
    if (j->ref) {
        const struct json_schema choices[] = {*j, {.type = "null"}};
        *j = json_schema_any_of(choices, 2, a);
    }
    if (j->words.len)
        push_text(&j->words, NULL, a);
    if (j->type) {
        push_text(&j->types, j->type, a);
        push_text(&j->types, "null", a);
        j->type = NULL;
    }
}

struct json_schema json_schema_of_field(const struct field *f, bool request, struct json_schema_refs *refs,
                                        struct arena *a) {
    struct json_schema out = json_schema_of_element(f, request, refs, a);
    if (f->list)
        out = json_schema_list(&out, a);
    if (may_be_null(f, request))
        allow_null(&out, a);
    out.description = f->help && *f->help ? f->help : NULL;
    return out;
}

void json_schema_add(struct json_schema *out, struct json_schema property, bool required, struct arena *a) {
    *(struct json_schema *)push(&out->properties, sizeof property, a) = property;
    if (required)
        push_text(&out->required, property.key, a);
}

void json_schema_add_fields(struct json_schema *out, const struct field *fields, size_t count, bool request,
                            struct json_schema_refs *refs, struct arena *a) {
    for (size_t i = 0; i < count; i++) {
        struct json_schema property = json_schema_of_field(&fields[i], request, refs, a);
        property.key = fields[i].name;
        json_schema_add(out, property, !request || fields[i].required, a);
    }
}

struct json_schema json_schema_of_struct(const struct schema *s, bool request, struct json_schema_refs *refs,
                                         struct arena *a) {
    struct json_schema out = {.type = "object", .given = {JSON_SCHEMA_CLOSED}};
    give(&out, &out.properties);
    give(&out, &out.required);
    json_schema_add_fields(&out, s->fields, s->count, request, refs, a);
    return out;
}
