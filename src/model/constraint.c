// Owns the reading of feature expressions. What is read is brought into one form, terms that must all hold, each with
// alternatives: "(a&b)|c" becomes "a|c" and "b|c". The form can be much longer than the text, so its size is limited.
#include "model/constraint.h"

#include <errno.h>
#include <string.h>

#include "base/text.h"

#define LETTERS "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789._-"

struct reading {
    const char *text, *at;
    struct arena *arena;
    struct error *error;
    uint32_t depth, made;
    bool alike;
};

struct terms {
    const char **at;
    uint32_t len;
};

static int not_understood(struct reading *r) {
    char shown[64];
    return error_set(
        r->error, EINVAL,
        "features: \"%s\" is not understood; expected names joined by & (all) or | (any), with parentheses",
        str_printable(r->text, shown, sizeof shown));
}

static int add(struct reading *r, struct terms *t, const char *term) {
    if (++r->made > CONSTRAINT_NAMES_MAX)
        return error_set(r->error, EINVAL,
                         "features: the expression is too long; at most %d alternatives are supported",
                         CONSTRAINT_NAMES_MAX);
    t->at[t->len++] = term;
    return 0;
}

static int all_of(struct reading *r, struct terms *out);

static int one(struct reading *r, struct terms *out) {
    char open = *r->at, close = open == '[' ? ']' : ')';
    if (open == '(' || open == '[') {
        r->at++;
        r->alike |= open == '[';
        if (++r->depth > CONSTRAINT_DEPTH_MAX)
            return error_set(r->error, EINVAL, "features: more than %d parentheses inside each other",
                             CONSTRAINT_DEPTH_MAX);
        int n = all_of(r, out);
        if (n < 0)
            return n;
        r->depth--;
        return *r->at++ == close ? 0 : not_understood(r);
    }
    size_t len = strspn(r->at, LETTERS);
    if (!len)
        return not_understood(r);
    if (r->at[len] == '*')
        return error_set(
            r->error, EINVAL,
            "features: numbers of nodes (%.*s*2) are not supported; use a job with several components, "
            "one for each feature",
            (int)(len < 32 ? len : 32), r->at);
    *out = (struct terms){.at = arena_alloc(r->arena, sizeof *out->at)};
    const char *name = arena_strndup(r->arena, r->at, len);
    r->at += len;
    return add(r, out, name);
}

// Either of two lists of terms: every term of the one with every term of the other.
static int either(struct reading *r, struct terms *out, const struct terms *other) {
    struct terms both = {.at = arena_alloc(r->arena, (size_t)out->len * other->len * sizeof *both.at)};
    int n = 0;
    for (uint32_t i = 0; n == 0 && i < out->len; i++)
        for (uint32_t k = 0; n == 0 && k < other->len; k++)
            n = add(r, &both, arena_printf(r->arena, "%s|%s", out->at[i], other->at[k]));
    *out = both;
    return n;
}

static int any_of(struct reading *r, struct terms *out) {
    int n = one(r, out);
    while (n == 0 && *r->at == '|') {
        struct terms next = {0};
        r->at++;
        n = one(r, &next);
        n = n < 0 ? n : either(r, out, &next);
    }
    return n;
}

static int all_of(struct reading *r, struct terms *out) {
    int n = any_of(r, out);
    while (n == 0 && (*r->at == '&' || *r->at == ',')) {
        struct terms next = {0};
        r->at++;
        n = any_of(r, &next);
        if (n < 0)
            return n;
        const char **joined = arena_alloc(r->arena, (size_t)(out->len + next.len) * sizeof *joined);
        memcpy(joined, out->at, out->len * sizeof *joined);
        memcpy(joined + out->len, next.at, next.len * sizeof *joined);
        *out = (struct terms){joined, out->len + next.len};
    }
    return n;
}

int constraint_parse(const char *text, struct arena *a, struct constraint *out, struct error *e) {
    struct reading r = {.text = text, .at = text, .arena = a, .error = e};
    struct terms t = {0};
    *out = (struct constraint){0};
    if (str_empty(text))
        return 0;
    if (strlen(text) > CONSTRAINT_TEXT_MAX)
        return error_set(e, EINVAL, "features: the expression has more than %d characters",
                         CONSTRAINT_TEXT_MAX);
    int n = all_of(&r, &t);
    if (n == 0 && *r.at)
        n = not_understood(&r);
    if (n == 0)
        *out = (struct constraint){t.at, t.len, r.alike};
    return n;
}
