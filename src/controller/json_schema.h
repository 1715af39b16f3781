// JSON Schema as a table-described struct: the part of it that the API's references use, and how a struct's table
// becomes one. The OpenAPI document (openapi.c) and the tools of assistants (mcp_tools.c) are made of these.
#pragma once
#include "base/schema.h"

// Members are named as the standard names them, but for words that C has or cannot have.
struct json_schema {
    const char *key;  // its name, where it is one of `properties` or of the document's schemas
    const char *ref;  // "$ref"
    const char *description;
    const char *type;
    LIST(const char *) types;  // "type", when there are several
    const char *constant;      // "const"
    LIST(const char *) words;  // "enum"; a NULL stands for null
    const char *pattern;
    int64_t minimum;
    uint64_t maximum;
    uint32_t minLength, maxLength, minItems, maxItems;
    const struct json_schema *items;
    LIST(struct json_schema) properties, anyOf, oneOf;
    LIST(const char *) required;
    bool additionalProperties;
    uint64_t given[1];  // which zeros and empty lists are said
};
extern const struct schema json_schema_table;
// For .given of constant ones: "additionalProperties": false.
#define JSON_SCHEMA_CLOSED (1ULL << 20)

enum { JSON_SCHEMA_REFS_MAX = 256 };

// Structs that were referred to, each once; they are described apart.
struct json_schema_refs {
    struct {
        const struct schema *schema;
        bool request;
    } at[JSON_SCHEMA_REFS_MAX];
    uint32_t count;
};

// "struct answer_why_nodes" is WhyNodes, "struct spec" of a request SpecRequest.
const char *json_schema_name(const struct schema *s, bool request, struct arena *a);
struct json_schema json_schema_ref_to(const char *name, struct arena *a);
struct json_schema json_schema_ref(const struct schema *s, bool request, struct json_schema_refs *refs,
                                   struct arena *a);
// Of a field's value. In answers all fields are there; in requests they may be left out or null.
struct json_schema json_schema_of_field(const struct field *f, bool request, struct json_schema_refs *refs,
                                        struct arena *a);
struct json_schema json_schema_of_element(const struct field *f, bool request, struct json_schema_refs *refs,
                                          struct arena *a);  // never null, and of a list one element
// An object with the fields of one or more tables.
void json_schema_add_fields(struct json_schema *out, const struct field *fields, size_t count, bool request,
                            struct json_schema_refs *refs, struct arena *a);
struct json_schema json_schema_of_struct(const struct schema *s, bool request, struct json_schema_refs *refs,
                                         struct arena *a);
struct json_schema json_schema_list(const struct json_schema *items, struct arena *a);
void json_schema_add(struct json_schema *out, struct json_schema property, bool required, struct arena *a);
struct json_schema json_schema_any_of(const struct json_schema *choices, uint32_t count, struct arena *a);
