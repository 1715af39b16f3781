// Owns folding and expansion of node lists. A name may hold several bracket groups; the product of
// their sizes is bounded before anything is built.
#include "model/nodelist.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/map.h"
#include "base/text.h"
#include "base/vec.h"
#include "model/name.h"

enum { DIGITS_MAX = 9 };

struct expansion {
    const char *text;
    struct arena *arena;
    VEC(const char *) names;
    struct strmap seen;
};

static int list_error(const struct expansion *x, struct error *e) {
    char shown[64];
    return error_set(e, EINVAL,
                     "\"%s\" is not a node list; write names with ranges, for example n[01-04,7],gpu1",
                     str_printable(x->text, shown, sizeof shown));
}

static int too_many(const struct expansion *x, struct error *e) {
    char shown[64];
    return error_set(e, ERANGE, "\"%s\" stands for more than %d names; name fewer nodes",
                     str_printable(x->text, shown, sizeof shown), NODELIST_NAMES_MAX);
}

static int add_name(struct expansion *x, const char *name, size_t len, struct error *e) {
    if (!name_valid(name, len)) {
        char part[IDENTIFIER_MAX + 2], shown[80];
        size_t n = len < sizeof part ? len : sizeof part - 1;
        memcpy(part, name, n);
        part[n] = 0;
        if (!n)
            return list_error(x, e);
        return error_set(
            e, EINVAL,
            "\"%s\" in a node list is not a valid node name; use letters, digits, '.', '_' and '-'",
            str_printable(part, shown, sizeof shown));
    }
    const char *copy = arena_strndup(x->arena, name, len);
    if (strmap_get(&x->seen, copy))
        return 0;
    if (x->names.len >= NODELIST_NAMES_MAX)
        return too_many(x, e);
    vec_push(&x->names, copy);
    strmap_put(&x->seen, copy, x);
    return 0;
}

static int read_index(const char **p, uint64_t *v) {
    const char *start = *p;
    for (*v = 0; **p >= '0' && **p <= '9'; (*p)++) {
        if (*p - start >= DIGITS_MAX)
            return -1;
        *v = *v * 10 + (uint64_t)(**p - '0');
    }
    return (int)(*p - start);
}

static int expand_from(struct expansion *x, const char *head, size_t head_len, const char *rest,
                       size_t rest_len, struct error *e);

// `group` is the text inside one pair of brackets.
static int expand_group(struct expansion *x, const char *head, size_t head_len, const char *group, const char *close,
                        const char *end, struct error *e) {
    const char *p = group;
    for (;;) {
        uint64_t first, last;
        int width = read_index(&p, &first);
        if (width <= 0)
            return list_error(x, e);
        last = first;
        if (*p == '-') {
            p++;
            if (read_index(&p, &last) <= 0 || last < first)
                return list_error(x, e);
        }
        if (last - first >= NODELIST_NAMES_MAX)
            return too_many(x, e);
        for (uint64_t i = first; i <= last; i++) {
            char name[IDENTIFIER_MAX + 1];
            int n = snprintf(name, sizeof name, "%.*s%0*llu", (int)head_len, head, width, (unsigned long long)i);
            if (n < 0 || (size_t)n >= sizeof name)
                return list_error(x, e);
            int r = expand_from(x, name, (size_t)n, close + 1, (size_t)(end - close - 1), e);
            if (r < 0)
                return r;
        }
        if (p == close)
            return 0;
        if (*p++ != ',')
            return list_error(x, e);
    }
}

static int expand_from(struct expansion *x, const char *head, size_t head_len, const char *rest,
                       size_t rest_len, struct error *e) {
    const char *end = rest + rest_len, *open = memchr(rest, '[', rest_len);
    size_t plain = open ? (size_t)(open - rest) : rest_len;
    char name[IDENTIFIER_MAX + 1];
    if (head_len + plain > IDENTIFIER_MAX)
        return list_error(x, e);
    memcpy(name, head, head_len);
    memcpy(name + head_len, rest, plain);
    if (!open)
        return add_name(x, name, head_len + plain, e);
    const char *close = memchr(open, ']', (size_t)(end - open));
    if (!close)
        return list_error(x, e);
    return expand_group(x, name, head_len + plain, open + 1, close, end, e);
}

// The end of one item: a comma outside brackets, or the end of the text.
static const char *item_end(const char *p) {
    bool inside = false;
    for (; *p && (inside || *p != ','); p++)
        inside = *p == '[' || (inside && *p != ']');
    return p;
}

int nodelist_expand(const char *text, struct arena *a, struct name_list *out, struct error *e) {
    struct expansion x = {.text = text ? text : "", .arena = a};
    int r = 0;
    if (strlen(x.text) > NODELIST_TEXT_MAX || !*x.text)
        r = list_error(&x, e);
    for (const char *p = x.text; r == 0; p++) {
        const char *end = item_end(p);
        r = expand_from(&x, "", 0, p, (size_t)(end - p), e);
        p = end;
        if (!*p)
            break;
    }
    if (r == 0)
        *out = (struct name_list){arena_memdup(a, x.names.at, x.names.len * sizeof *x.names.at), x.names.len};
    vec_done(&x.names);
    strmap_done(&x.seen);
    return r;
}

// A name split into prefix and trailing number of a given width; width 0: no number.
struct split {
    const char *name;
    size_t prefix;
    int width;
    uint64_t number;
};

static struct split split_name(const char *name) {
    struct split s = {.name = name};
    size_t len = strlen(name), at = len;
    while (at > 0 && name[at - 1] >= '0' && name[at - 1] <= '9' && len - at < DIGITS_MAX)
        at--;
    s.prefix = at;
    s.width = (int)(len - at);
    for (; at < len; at++)
        s.number = s.number * 10 + (uint64_t)(name[at] - '0');
    return s;
}

// "n9" and "n10" belong to one group, "n09" to another: a number without leading zero has the
// width it is written with, so widths only separate where zeros are.
static bool padded(const struct split *s) {
    return s->width > 1 && s->name[s->prefix] == '0';
}

static int group_compare(const struct split *a, const struct split *b) {
    size_t n = a->prefix < b->prefix ? a->prefix : b->prefix;
    int c = strncmp(a->name, b->name, n);
    if (c)
        return c;
    if (a->prefix != b->prefix)
        return a->prefix < b->prefix ? -1 : 1;
    return (a->width == 0) != (b->width == 0) ? (a->width ? 1 : -1) : 0;
}

static int split_compare(const void *va, const void *vb) {
    const struct split *a = va, *b = vb;
    int c = group_compare(a, b);
    if (c)
        return c;
    if (a->number != b->number)
        return a->number < b->number ? -1 : 1;
    return a->width - b->width;
}

// Whether b can follow a in one range: the printed width must come out right for both.
static bool joins(const struct split *a, const struct split *b) {
    if (group_compare(a, b) || !a->width || b->number != a->number + 1)
        return false;
    return a->width == b->width || (!padded(a) && b->width == a->width + 1);
}

static void fold_range(const struct split *first, const struct split *last, struct buf *out) {
    buf_add(out, first->name + first->prefix, (size_t)first->width);
    if (first != last) {
        buf_addc(out, '-');
        buf_add(out, last->name + last->prefix, (size_t)last->width);
    }
}

static void fold_group(const struct split *s, uint32_t count, struct buf *out) {
    if (count == 1) {
        buf_adds(out, s->name);
        return;
    }
    buf_add(out, s->name, s->prefix);
    buf_addc(out, '[');
    for (uint32_t i = 0; i < count;) {
        uint32_t last = i;
        while (last + 1 < count && joins(&s[last], &s[last + 1]))
            last++;
        if (i)
            buf_addc(out, ',');
        fold_range(&s[i], &s[last], out);
        i = last + 1;
    }
    buf_addc(out, ']');
}

void nodelist_fold(const char *const *names, uint32_t count, struct buf *out) {
    if (!count)
        return;
    struct split *s = xcalloc(count, sizeof *s);
    uint32_t n = 0;
    for (uint32_t i = 0; i < count; i++)
        s[i] = split_name(names[i]);
    qsort(s, count, sizeof *s, split_compare);
    for (uint32_t i = 0; i < count; i++)  // repeats
        if (!n || strcmp(s[n - 1].name, s[i].name))
            s[n++] = s[i];
    for (uint32_t i = 0; i < n;) {
        uint32_t end = i + 1;
        while (end < n && s[i].width && !group_compare(&s[i], &s[end]))
            end++;
        if (i)
            buf_addc(out, ',');
        fold_group(&s[i], end - i, out);
        i = end;
    }
    free(s);
}
