// Owns the text form of dependencies.
#include "model/dependency.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <strings.h>

#include "base/text.h"
#include "base/vec.h"

const char *const dependency_words[] = {"after", "afterok", "afternotok", "afterany", "aftercorr", "singleton", NULL};

typedef VEC(struct dependency_term) term_vec;

// A word in front of ':' that is none of ours. Most are typing mistakes.
static int word_error(const char *text, const char *word, size_t len, struct error *e) {
    char shown[80], mistyped[32], name[32];
    const char *nearest = NULL;
    snprintf(name, sizeof name, "%.*s", (int)(len < sizeof name ? len : sizeof name - 1), word);
    str_printable(name, mistyped, sizeof mistyped);
    unsigned best = str_edit_distance_near(name);
    for (int i = 0; i < DEPENDENCY_TYPE_COUNT; i++) {
        unsigned d = str_edit_distance(name, dependency_words[i]);
        if (d <= best && (d < best || !nearest)) {
            best = d;
            nearest = dependency_words[i];
        }
    }
    str_printable(text, shown, sizeof shown);
    if (nearest)
        return error_set(e, EINVAL, "\"%s\" is not a dependency: there is no \"%s\"; did you mean %s?", shown,
                         mistyped, nearest);
    return error_set(e, EINVAL,
                     "\"%s\" is not a dependency: there is no \"%s\"; expected after, afterok, afternotok, "
                     "afterany, aftercorr or singleton",
                     shown, mistyped);
}

static int text_error(const char *text, struct error *e) {
    char shown[80];
    return error_set(e, EINVAL,
                     "\"%s\" is not a dependency; write numbers of jobs, for example afterok:12:13_4, "
                     "after:12+10, afterany:12,singleton "
                     "(all) or afterok:12?afterok:13 (any)",
                     str_printable(text, shown, sizeof shown));
}

static int ref_error(const char *text, struct error *e) {
    char shown[64];
    return error_set(
        e, EINVAL,
        "\"%s\" is not a job id; write a number such as 12, 12_3 for an element of an array, or 12+1 "
        "for a worker of an elastic job",
        str_printable(text, shown, sizeof shown));
}

// Digits at *p that fit `max`; false if there are none or too many.
static bool take_number(const char **p, uint64_t max, uint64_t *out) {
    const char *start = *p;
    uint64_t v = 0;
    for (; **p >= '0' && **p <= '9'; (*p)++)
        if (__builtin_mul_overflow(v, 10, &v) || __builtin_add_overflow(v, (uint64_t)(**p - '0'), &v) || v > max)
            return false;
    *out = v;
    return *p != start;
}

static bool take_ref(const char **p, struct job_ref *r) {
    uint64_t index;
    *r = (struct job_ref){0};
    if (!take_number(p, INT64_MAX, &r->job) || !r->job)
        return false;
    if (**p == '_') {
        (*p)++;
        if (!take_number(p, UINT32_MAX - 2, &index))
            return false;
        r->has_index = true;
        r->index = (uint32_t)index;
    }
    return true;
}

int job_ref_parse(const char *text, struct job_ref *out, struct error *e) {
    struct job_ref r;
    const char *p = text ? text : "";
    uint64_t worker;
    bool good = take_ref(&p, &r);
    if (good && !r.has_index && *p == '+') {
        p++;
        good = r.is_worker = take_number(&p, UINT32_MAX - 2, &worker);
        r.worker = good ? (uint32_t)worker : 0;
    }
    if (!good || *p)
        return ref_error(text ? text : "", e);
    *out = r;
    return 0;
}

static int term_type(const char **p) {
    size_t len = strspn(*p, "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ");
    for (int i = 0; i < DEPENDENCY_TYPE_COUNT; i++)
        if (strlen(dependency_words[i]) == len && !strncasecmp(dependency_words[i], *p, len)) {
            *p += len;
            return i;
        }
    return -1;
}

// One "type:id[+minutes][:id…]" adds a term per id; an id alone is the oldest way to write afterany,
// and some programs still join ids by commas.
static bool take_terms(const char **p, term_vec *terms) {
    if (**p >= '0' && **p <= '9') {
        struct dependency_term t = {.type = AFTER_ANY};
        bool good = take_ref(p, &t.ref);
        vec_push(terms, t);
        return good;
    }
    int type = term_type(p);
    if (type < 0)
        return false;
    if (type == SINGLETON) {
        vec_push(terms, (struct dependency_term){.type = SINGLETON});
        return true;
    }
    if (**p != ':')
        return false;
    while (**p == ':') {
        struct dependency_term t = {.type = (enum dependency_type)type};
        uint64_t minutes = 0;
        *p += 1 + strspn(*p + 1, " ");
        if (!take_ref(p, &t.ref))
            return false;
        if (**p == '+') {
            (*p)++;
            if (type != AFTER || !take_number(p, DEPENDENCY_DELAY_MAX_MIN, &minutes))
                return false;
        }
        t.delay_minutes = (uint32_t)minutes;
        vec_push(terms, t);
    }
    return true;
}

int dependency_parse(const char *text, struct arena *a, struct dependency *out, struct error *e) {
    if (str_empty(text) || strlen(text) > DEPENDENCY_TEXT_MAX)
        return text_error(text ? text : "", e);
    term_vec terms = {0};
    const char *p = text;
    char separator = 0;
    bool good;
    while ((good = take_terms(&p, &terms)) && (*p == ',' || *p == '?')) {
        if (separator && *p != separator) {
            vec_done(&terms);
            return error_set(e, EINVAL, "a dependency joins its parts by ',' (all) or by '?' (any), not by both");
        }
        separator = *p++;
    }
    size_t word = good ? 0 : strcspn(p, ":,?+ 0123456789");
    int r = good && !*p                                 ? 0
            : word && term_type(&(const char *){p}) < 0 ? word_error(text, p, word, e)
                                                        : text_error(text, e);
    if (r == 0 && terms.len > DEPENDENCY_TERMS_MAX)
        r = error_set(e, ERANGE, "a dependency on %u jobs is too long; at most %d are allowed", terms.len,
                      DEPENDENCY_TERMS_MAX);
    if (r == 0)
        *out = (struct dependency){separator == '?', arena_memdup(a, terms.at, terms.len * sizeof *terms.at),
                                   terms.len};
    vec_done(&terms);
    return r;
}

void dependency_format(const struct dependency *d, struct buf *out) {
    for (uint32_t i = 0; i < d->len; i++) {
        const struct dependency_term *t = &d->at[i];
        if (i)
            buf_addc(out, d->any ? '?' : ',');
        buf_adds(out, dependency_words[t->type]);
        if (t->type == SINGLETON)
            continue;
        buf_addc(out, ':');
        buf_addu(out, t->ref.job);
        if (t->ref.has_index) {
            buf_addc(out, '_');
            buf_addu(out, t->ref.index);
        }
        if (t->delay_minutes) {
            buf_addc(out, '+');
            buf_addu(out, t->delay_minutes);
        }
    }
}
