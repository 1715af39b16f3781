// One table per struct: names, numbers and types of its fields. The same table yields the compact
// binary form (journal, messages to agents), the JSON form (API) and the reference texts.
//
// Binary form: for each field that is not zero, a key (number * 2 + kind) and a value; unknown
// numbers are skipped, so a neighbouring version can read it. Numbers are never reused; 0 is
// reserved for the list of given zeros (below).
//
// Presence: a struct with a member `uint64_t given[]`, declared by SCHEMA_GIVEN, tells a field that
// was given as zero, false or empty from one that was not given. A field that is not zero always counts
// as given; readers set a bit only for a given zero, so code that fills in a struct need not set any.
//
// A word of an enumeration that this program does not know is kept where the field is `open`, and shown as
// "unknown"; elsewhere the value is refused with -EPROTONOSUPPORT (damaged bytes: -EBADMSG).
#pragma once
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/arena.h"
#include "base/buf.h"
#include "base/error.h"
#include "base/json.h"

enum { SCHEMA_DEPTH_MAX = 8, SCHEMA_LIST_MAX = 1 << 20, SCHEMA_FIELDS_MAX = 256 };

enum field_type {
    FIELD_BOOL,
    FIELD_U32,
    FIELD_I32,
    FIELD_U64,
    FIELD_I64,
    FIELD_DOUBLE,
    FIELD_ENUM,
    FIELD_STRING,
    FIELD_BYTES,
    FIELD_STRUCT,
    FIELD_RAW_JSON  // a text that is JSON already; only in answers
};

struct bytes {
    const void *data;
    size_t len;
};

// A list member of any element type has this layout: { type *at; uint32_t len; }.
#define LIST(type)    \
    struct {          \
        type *at;     \
        uint32_t len; \
    }

struct any_list {  // how the codecs see every LIST
    void *at;
    uint32_t len;
};

struct field {
    uint16_t num;
    uint8_t type;
    bool list;
    uint16_t offset;
    const char *name;
    const struct schema *sub;   // FIELD_STRUCT: a pointer to it, or in lists the structs in a row
    const char *const *words;   // FIELD_ENUM: words[value], NULL-terminated
    bool open;                  // FIELD_ENUM: values beyond the words are kept
    const char *help;
    // Of the JSON form:
    bool required;              // reading: refused without it
    bool nullable;              // writing: a number or boolean that was not given is null, not zero
    int64_t min;                // of numbers, or of the length in bytes; both 0: what the type allows
    uint64_t max;
    const char *pattern;        // of a text, as a regular expression: for the reference only
    const char *described_by;   // FIELD_RAW_JSON: name of what the reference has about it; NULL: anything
    bool keyed;  // writing a list of structs: an object; the first field of each is its name in there
};

struct schema {
    const char *name;
    const char *type;           // "struct spec"
    size_t size;
    const struct field *fields;
    size_t count;
    uint16_t given_offset;      // of `uint64_t given[]`, a bit per field number: given as zero
    uint16_t given_bits;        // 0: the struct keeps no presence
};

#define FIELD_TYPE_OF(x)                                                                           \
    _Generic((x), bool: FIELD_BOOL, uint32_t: FIELD_U32, int32_t: FIELD_I32, uint64_t: FIELD_U64, \
             int64_t: FIELD_I64, double: FIELD_DOUBLE, const char *: FIELD_STRING,                \
             struct bytes: FIELD_BYTES)
// After the help: .required, .min and the others of the JSON form.
#define FIELD(n, S, member, text, ...)                                                                              \
    {.num = n, .type = FIELD_TYPE_OF(((S *)0)->member), .offset = offsetof(S, member), .name = #member, .help = text, \
     ##__VA_ARGS__}
#define FIELD_WORDS(n, S, member, words_, text, ...)                                                \
    {.num = n, .type = FIELD_ENUM, .offset = offsetof(S, member), .name = #member, .words = words_, \
     .help = text, ##__VA_ARGS__}
#define FIELD_WORDS_OPEN(n, S, member, words_, text, ...)                                           \
    {.num = n, .type = FIELD_ENUM, .offset = offsetof(S, member), .name = #member, .words = words_, \
     .open = true, .help = text, ##__VA_ARGS__}
#define FIELD_SUB(n, S, member, schema_, text, ...)                                                  \
    {.num = n, .type = FIELD_STRUCT, .offset = offsetof(S, member), .name = #member, .sub = schema_, \
     .help = text, ##__VA_ARGS__}
#define FIELD_LIST(n, S, member, text, ...)                                                              \
    {.num = n, .type = FIELD_TYPE_OF(*((S *)0)->member.at), .list = true, .offset = offsetof(S, member), \
     .name = #member, .help = text, ##__VA_ARGS__}
#define FIELD_LIST_SUB(n, S, member, schema_, text, ...)                                             \
    {.num = n, .type = FIELD_STRUCT, .list = true, .offset = offsetof(S, member), .name = #member,   \
     .sub = schema_, .help = text, ##__VA_ARGS__}
#define FIELD_RAW(n, S, member, described_by_, text)                                                 \
    {.num = n, .type = FIELD_RAW_JSON, .offset = offsetof(S, member), .name = #member, .help = text, \
     .described_by = described_by_}
// Twice, so that a type that is itself a macro is expanded before it becomes a text.
#define SCHEMA(T, label, table) SCHEMA_EXPANDED(T, label, table, 0, 0)
#define SCHEMA_GIVEN(T, label, table) \
    SCHEMA_EXPANDED(T, label, table, offsetof(T, given), sizeof(((T *)0)->given) * 8)
#define SCHEMA_EXPANDED(T, label, table, offset_, bits_) \
    {.name = label,                                      \
     .type = #T,                                         \
     .size = sizeof(T),                                  \
     .fields = table,                                    \
     .count = sizeof(table) / sizeof((table)[0]),        \
     .given_offset = offset_,                            \
     .given_bits = bits_}

// Whether the field at `member` (a pointer into `value`) was given: it is not zero, or marked.
bool schema_given(const struct schema *s, const void *value, const void *member);
bool schema_field_given(const struct schema *s, const struct field *f, const void *value);
void schema_give(const struct schema *s, void *value, const void *member);  // marks it, also when it is zero
void schema_unmark(const struct schema *s, void *value,
                   const void *member);  // its zero counts as absent again
bool schema_given_zero(const struct schema *s, const struct field *f, const void *value);  // given, and zero
void schema_forget_given(const struct schema *s, void *value);              // zeros count as absent again
// Puts the given fields of `change` over those of `value`. Texts, lists and structs are shared, not copied.
void schema_merge(const struct schema *s, void *value, const void *change);

void schema_encode(const struct schema *s, const void *value, struct buf *out);
// Strings, lists and sub-structs land in the arena; `value` is zeroed first.
int schema_decode(const struct schema *s, const void *data, size_t len, struct arena *a, void *value);
// The same for bytes from another machine: -EBADMSG when it would take more than memory_max bytes of the arena.
int schema_decode_bounded(const struct schema *s, const void *data, size_t len, size_t memory_max, struct arena *a,
                          void *value);
// The same without copies of byte strings: they point into `data`, which must not change while they are used.
int schema_decode_views(const struct schema *s, const void *data, size_t len, size_t memory_max,
                        struct arena *a, void *value);
// Every field, always the same set: for answers. Absent texts and structs are null.
void schema_write_json(const struct schema *s, const void *value, struct json_writer *w);
void schema_write_value(const struct field *f, const void *value, struct json_writer *w);  // of one field, alone
// Only the fields that are given: for requests.
void schema_write_given_json(const struct schema *s, const void *value, struct json_writer *w);
// A field that is null counts as absent. Refuses unknown names, wrong types and numbers out of range,
// naming field and remedy.
int schema_read_json(const struct schema *s, const struct json *j, struct arena *a, void *value, struct error *e);
bool schema_equal(const struct schema *s, const void *a, const void *b);
void *schema_copy(const struct schema *s, const void *value, struct arena *a);  // deep
size_t schema_field_size(const struct field *f);                                // of one element
// The word of a value; "unknown" for one that a later release has added.
const char *schema_word_name(const char *const *words, unsigned value);
// A word's value, or -1.
int schema_word_find(const char *const *words, const char *word);

// The primitive codings, for formats built by hand.
void schema_put_varint(struct buf *b, uint64_t v);
int schema_get_varint(const uint8_t **p, const uint8_t *end, uint64_t *v);
