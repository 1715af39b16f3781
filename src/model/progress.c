// Owns the reading of progress from text that a job writes; every byte of it is hostile.
#include "model/progress.h"

#include <ctype.h>
#include <stdio.h>
#include <string.h>

#include "base/text.h"

enum { DIGITS_MAX = 12, FRACTION_MAX = 6 };

// A piece of text; everything here reads between two pointers, because output has no final zero.
struct span {
    const char *at, *end;
};

static void skip_blanks(struct span *s) {
    while (s->at < s->end && (*s->at == ' ' || *s->at == '\t'))
        s->at++;
}

// A number without sign, in thousandths.
static bool take_number(struct span *s, uint64_t *milli) {
    const char *p = s->at;
    uint64_t whole = 0, part = 0, scale = 1000;
    while (p < s->end && isdigit((unsigned char)*p) && p - s->at < DIGITS_MAX)
        whole = whole * 10 + (uint64_t)(*p++ - '0');
    if (p == s->at || (p < s->end && isdigit((unsigned char)*p)))
        return false;
    if (p + 1 < s->end && *p == '.' && isdigit((unsigned char)p[1])) {
        const char *dot = p++;
        while (p < s->end && isdigit((unsigned char)*p) && p - dot <= FRACTION_MAX) {
            scale /= 10;
            part += scale * (uint64_t)(*p++ - '0');
        }
        while (p < s->end && isdigit((unsigned char)*p))
            p++;
    }
    *milli = whole * 1000 + part;
    s->at = p;
    return true;
}

// "37%" or "37.5 %": thousandths of the whole.
static bool take_percent(struct span *s, uint32_t *milli) {
    struct span t = *s;
    uint64_t n;
    if (!take_number(&t, &n))
        return false;
    skip_blanks(&t);
    if (t.at == t.end || *t.at != '%' || n > 100000)
        return false;
    t.at++;
    *milli = (uint32_t)(n / 100);
    *s = t;
    return true;
}

// "3/10" or "3 of 10".
static bool take_count(struct span *s, uint64_t *done, uint64_t *total) {
    struct span t = *s;
    if (!take_number(&t, done))
        return false;
    skip_blanks(&t);
    bool slash = t.at<t.end && * t.at == '/', of = t.end - t.at> 3 && memcmp(t.at, "of ", 3) == 0;
    if (!slash && !of)
        return false;
    t.at += slash ? 1 : 3;
    skip_blanks(&t);
    if (!take_number(&t, total) || *total == 0 || *done > *total)
        return false;
    if (t.at < t.end && (*t.at == '/' || *t.at == '-' || isalpha((unsigned char)*t.at)))
        return false;  // a date or a path
    *s = t;
    return true;
}

static bool is_word(char c) {
    return isalnum((unsigned char)c) || c == '_';
}

// The word at `at`, if it is the whole word there: case does not matter.
static bool word_at(const struct span *line, const char *at, const char *word) {
    size_t n = strlen(word);
    if ((size_t)(line->end - at) < n || (at > line->at && is_word(at[-1])))
        return false;
    for (size_t i = 0; i < n; i++)
        if (tolower((unsigned char)at[i]) != word[i])
            return false;
    return at + n == line->end || !is_word(at[n]);
}

// A count behind one of the words: "epoch: 3/10", "Step 40 of 200". Where it begins and ends is kept in `found`.
static bool find_count(const struct span *line, const char *const *words, uint64_t *done, uint64_t *total,
                       struct span *found) {
    for (const char *p = line->at; p < line->end; p++)
        for (const char *const *w = words; *w; w++) {
            if (!word_at(line, p, *w))
                continue;
            struct span t = {p + strlen(*w), line->end};
            while (t.at < t.end && strchr(" \t:=#[(", *t.at))
                t.at++;
            if (take_count(&t, done, total)) {
                *found = (struct span){p, t.at};
                return true;
            }
        }
    return false;
}

// "[3/10]" or "(3/10)", as many tools number their steps.
static bool find_bracket(const struct span *line, uint64_t *done, uint64_t *total, struct span *found) {
    for (const char *p = line->at; p < line->end; p++) {
        struct span t = {p + 1, line->end};
        if ((*p == '[' || *p == '(') && take_count(&t, done, total) && t.at < t.end &&
            (*t.at == ']' || *t.at == ')')) {
            *found = (struct span){p + 1, t.at};
            return true;
        }
    }
    return false;
}

static bool find_percent(const struct span *line, uint32_t *milli, struct span *found) {
    struct span first = *line;
    skip_blanks(&first);
    for (const char *p = first.at; p < line->end; p++) {
        struct span t = {p, line->end};
        if (p > line->at && (isdigit((unsigned char)p[-1]) || p[-1] == '.'))
            continue;
        if (!take_percent(&t, milli))
            continue;
        bool before_bar = t.at < t.end && *t.at == '|';
        bool begins = p == first.at;
        const char *q = p;
        while (q > line->at && strchr(" \t:=[(", q[-1]))
            q--;
        size_t n = strlen("progress");
        bool named = (size_t)(q - line->at) >= n && word_at(line, q - n, "progress");
        if (before_bar || begins || named) {
            *found = (struct span){p, t.at};
            return true;
        }
    }
    return false;
}

static void set_text(struct progress *out, const struct span *s) {
    char raw[PROGRESS_TEXT_MAX];
    size_t n = (size_t)(s->end - s->at) < sizeof raw - 1 ? (size_t)(s->end - s->at) : sizeof raw - 1;
    memcpy(raw, s->at, n);
    while (n && !str_utf8_valid(raw, n))  // cut inside a character, or no text at all
        n--;
    while (n && isspace((unsigned char)raw[n - 1]))
        n--;
    raw[n] = 0;
    str_printable(raw, out->text, sizeof out->text);
}

static uint32_t share(uint64_t done, uint64_t total) {
    return (uint32_t)(done * 1000 / total);
}

static const char *const outer_words[] = {"epoch", "epochs", "round", "fold", NULL};
static const char *const inner_words[] = {"step",  "steps",      "iter",  "iteration", "batch", "file",
                                          "files", "generation", "chunk", "part",      NULL};

static bool read_line(const struct span *line, struct progress *out) {
    uint64_t done, total, inner_done, inner_total;
    struct span found, inner;
    uint32_t percent;
    bool outer = find_count(line, outer_words, &done, &total, &found);
    bool counted = find_count(line, inner_words, &inner_done, &inner_total, &inner) ||
                   (!outer && find_bracket(line, &inner_done, &inner_total, &inner));
    bool bar = find_percent(line, &percent, counted || outer ? &(struct span){0} : &inner);
    if (outer) {
        // "epoch 3/10 step 40/200": two epochs are over, and a fifth of the third.
        uint32_t within = counted ? share(inner_done, inner_total) : bar ? percent : 1000;
        uint64_t before = done >= 1000 ? done - 1000 : 0;
        out->milli = (uint32_t)((before * 1000 + (done >= 1000 ? 1000 : done) * within) / total);
        set_text(out, &found);
        return true;
    }
    if (!counted && !bar)
        return false;
    out->milli = bar ? percent : share(inner_done, inner_total);
    set_text(out, &inner);
    return true;
}

bool progress_from_output(const char *tail, size_t len, struct progress *out) {
    const char *end = tail + len;
    while (end > tail) {
        const char *begin = end;
        while (begin > tail && begin[-1] != '\n' && begin[-1] != '\r')
            begin--;
        struct span line = {begin, end};
        *out = (struct progress){0};
        if (read_line(&line, out))
            return true;
        end = begin > tail ? begin - 1 : tail;
    }
    return false;
}

bool progress_from_file(const char *content, size_t len, struct progress *out) {
    const char *eol = memchr(content, '\n', len);
    struct span line = {content, eol ? eol : content + len};
    uint64_t done, total;
    *out = (struct progress){0};
    skip_blanks(&line);
    if (take_count(&line, &done, &total))
        out->milli = share(done, total);
    else if (take_percent(&line, &out->milli))
        ;
    else if (take_number(&line, &done) && done <= 1000)
        out->milli = (uint32_t)done;
    else
        return false;
    if (line.at < line.end && !isspace((unsigned char)*line.at))
        return false;
    skip_blanks(&line);
    set_text(out, &line);
    return true;
}

void progress_file_path(uint64_t job, uint32_t attempt, uint64_t epoch, char out[static PROGRESS_PATH_MAX]) {
    snprintf(out, PROGRESS_PATH_MAX, PROGRESS_FILE_PREFIX "%llu.%u-%llx", (unsigned long long)job, attempt,
             (unsigned long long)epoch);
}

int64_t progress_left_ms(uint32_t milli, int64_t elapsed_ms) {
    if (milli == 0 || milli > 1000 || elapsed_ms <= 0 || elapsed_ms > INT64_MAX / 1000)
        return -1;
    return elapsed_ms * (1000 - milli) / milli;
}
