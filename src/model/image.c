// Owns the file in which acequia-box leaves what a user has on a node: a line per image, fields separated by tabs.
#include "model/image.h"

#include <assert.h>
#include <inttypes.h>
#include <string.h>

#include "base/buf.h"
#include "base/text.h"

enum { INDEX_FIELDS = 6 };

const char *const image_kind_words[] = {"fetched", "built", "container", NULL};
static_assert(sizeof image_kind_words / sizeof *image_kind_words == IMAGE_KIND_COUNT + 1, "a word each");

#define S struct node_image
static const struct field image_fields[] = {
    FIELD(1, S, uid, "Its user's number."),
    FIELD_WORDS_OPEN(2, S, kind, image_kind_words, "fetched, built or container."),
    FIELD(3, S, name, "Name."),
    FIELD(4, S, digest, "Digest of its manifest."),
    FIELD(5, S, bytes, "Space it takes."),
    FIELD(6, S, made_ms, "When it came to the node."),
    FIELD(7, S, image, "Of a container: what it was made from."),
};
const struct schema node_image_schema = SCHEMA(S, "an image", image_fields);
#undef S

static void add_field(struct buf *out, const char *text) {
    char clean[IMAGE_NAME_MAX];
    str_printable(text ? text : "", clean, sizeof clean);
    buf_adds(out, clean);
}

void image_index_line(struct buf *out, const struct node_image *i) {
    buf_addf(out, "%s\t%" PRIu64 "\t%" PRId64 "\t", image_kind_words[i->kind], i->bytes, i->made_ms);
    add_field(out, i->name);
    buf_addc(out, '\t');
    add_field(out, i->digest);
    buf_addc(out, '\t');
    add_field(out, i->image);
    buf_addc(out, '\n');
}

static bool text_valid(const char *text) {
    size_t n = strlen(text);
    return n < IMAGE_NAME_MAX && str_utf8_valid(text, n) && !str_has_control_chars(text, n);
}

static bool read_line(char *line, uint32_t uid, struct node_image *out) {
    const char *fields[INDEX_FIELDS] = {0};
    uint32_t n = 0;
    for (char *p = line; p && n < INDEX_FIELDS; n++) {
        fields[n] = p;
        p = strchr(p, '\t');
        if (p)
            *p++ = 0;
    }
    struct node_image i = {.uid = uid};
    int kind = n == INDEX_FIELDS ? schema_word_find(image_kind_words, fields[0]) : -1;
    if (kind < 0 || parse_u64(fields[1], &i.bytes) < 0 || parse_i64(fields[2], &i.made_ms) < 0 ||
        i.bytes > INT64_MAX || i.made_ms < 0 || !*fields[3] || !text_valid(fields[3]) ||
        !text_valid(fields[4]) || !text_valid(fields[5]))
        return false;
    i.kind = (enum image_kind)kind;
    i.name = fields[3];
    i.digest = *fields[4] ? fields[4] : NULL;
    i.image = *fields[5] ? fields[5] : NULL;
    *out = i;
    return true;
}

void image_index_parse(const char *text, size_t len, uint32_t uid, struct arena *a,
                       struct node_image_list *out) {
    char *copy = arena_strndup(a, text, len);
    struct node_image_list list = {.at = arena_alloc(a, IMAGES_PER_USER * sizeof *list.at)};
    for (char *p = copy; p && *p && list.len < IMAGES_PER_USER;) {
        char *end = strchr(p, '\n');
        if (!end)
            break;  // cut off: a line is whole or does not count
        *end = 0;
        list.len += read_line(p, uid, &list.at[list.len]);
        p = end + 1;
    }
    *out = list;
}
