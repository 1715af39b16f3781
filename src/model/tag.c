// Owns the grammar of tags and how lists of them are changed.
#include "model/tag.h"

#include <errno.h>
#include <string.h>

#include "base/text.h"
#include "model/name.h"

static size_t key_len(const char *tag) {
    return strcspn(tag, "=");
}

// Values are shown in lists joined by commas, and written in filters between blanks.
static bool value_valid(const char *v) {
    return strlen(v) <= TAG_VALUE_MAX && !strpbrk(v, " ,\"") && str_utf8_valid(v, strlen(v)) &&
           !str_has_control_chars(v, strlen(v));
}

int tag_check(const char *tag, struct error *e) {
    size_t n = key_len(tag);
    char shown[64];
    if (!name_valid(tag, n))
        return error_set(
            e, EINVAL,
            "tag: \"%s\" is not a tag; expected a word or key=value, the word or key of letters, digits, "
            "'.', '_' and '-', at most %d",
            str_printable(tag, shown, sizeof shown), TAG_KEY_MAX);
    if (tag[n] && !value_valid(tag + n + 1))
        return error_set(
            e, EINVAL,
            "tag: the value of \"%s\" is longer than %d bytes, or holds blanks, commas, quotes or control "
            "characters",
            str_printable(tag, shown, sizeof shown), TAG_VALUE_MAX);
    return 0;
}

static uint32_t find_key(const struct tag_list *tags, const char *tag) {
    size_t n = key_len(tag);
    uint32_t i = 0;
    while (i < tags->len && (key_len(tags->at[i]) != n || memcmp(tags->at[i], tag, n)))
        i++;
    return i;
}

static void remove_at(struct tag_list *tags, uint32_t at) {
    memmove(tags->at + at, tags->at + at + 1, (--tags->len - at) * sizeof *tags->at);
}

int tags_change(const struct tag_list *tags, const struct tag_list *changes, struct arena *a,
                struct tag_list *out, struct error *e) {
    struct tag_list list = {.at = arena_alloc(a, (TAGS_MAX + 1) * sizeof *list.at)};
    for (; list.len < tags->len && list.len < TAGS_MAX; list.len++)
        list.at[list.len] = tags->at[list.len];
    for (uint32_t i = 0; i < changes->len; i++) {
        const char *change = changes->at[i];
        bool removes = *change == '-';
        if (removes && !change[1]) {
            list.len = 0;
            continue;
        }
        int r = tag_check(change + removes, e);
        if (r < 0)
            return r;
        uint32_t at = find_key(&list, change + removes);
        if (removes && at < list.len)
            remove_at(&list, at);
        if (removes)
            continue;
        if (at == TAGS_MAX)
            return error_set(e, E2BIG, "tag: a job has at most %d tags; remove one with a '-' before it",
                             TAGS_MAX);
        list.at[at] = change;
        list.len += at == list.len;
    }
    *out = list;
    return 0;
}
