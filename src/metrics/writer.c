// Owns the rules of the two text formats. Label texts are built once per thing and used for all of
// its families, so that tens of thousands of samples cost little.
#include "metrics/writer.h"

#include <assert.h>
#include <ctype.h>
#include <math.h>
#include <string.h>

#include "base/text.h"

void metrics_start(struct metrics_writer *w, struct buf *out, enum metrics_format format) {
    *w = (struct metrics_writer){.out = out, .format = format};
}

static const char *type_word(enum metrics_format format, enum metric_type t) {
    static const char *const open[] = {"gauge", "counter", "histogram", "info", "unknown"};
    static const char *const plain[] = {"gauge", "counter", "histogram", "gauge", "untyped"};
    return format == METRICS_OPENMETRICS ? open[t] : plain[t];
}

static const char *suffix_of(const struct metric_info *m) {
    return m->type == METRIC_COUNTER ? "_total" : m->type == METRIC_INFO ? "_info" : "";
}

// HELP is escaped like a label value, but for the quotes, which OpenMetrics escapes and the older
// format does not; the table has neither quotes nor backslashes.
static void put_comment(struct metrics_writer *w, const char *word, const char *text) {
    buf_addf(w->out, "# %s %s%s %s\n", word, w->family->name,
             w->format == METRICS_PLAIN ? suffix_of(w->family) : "", text);
}

void metrics_family(struct metrics_writer *w, enum metric_id id) {
    assert(!w->ended && !w->written[id]);  // a family comes once and in one piece
    w->written[id] = true;
    w->family = metric_info(id);
    w->name_len = strlen(w->family->name);
    w->samples = 0;
    put_comment(w, "TYPE", type_word(w->format, w->family->type));
    if (w->format == METRICS_OPENMETRICS && *w->family->unit)
        put_comment(w, "UNIT", w->family->unit);
    put_comment(w, "HELP", w->family->help);
}

static const char *after_value(const char *p) {
    for (; *p != '"'; p++) {
        assert(*p);
        if (*p == '\\')
            p++;
    }
    return p + 1;
}

// The names in a label text are those of the table, in its order.
static bool labels_fit(const char *want, const char *have) {
    while (*want) {
        size_t n = strcspn(want, ",");
        if (strncmp(have, want, n) || have[n] != '=' || have[n + 1] != '"')
            return false;
        have = after_value(have + n + 2);
        want += n;
        if (*want) {
            if (*have++ != ',')
                return false;
            want++;
        }
    }
    return !*have;
}

// All samples of a family are made by one loop: looking at the first ones finds a wrong one.
enum { SAMPLES_LOOKED_AT = 16 };

static char *append(char *p, const char *s, size_t len) {
    memcpy(p, s, len);
    return p + len;
}

static void put_name(struct metrics_writer *w, const char *suffix, const char *labels) {
    assert(w->family && !w->ended);
    if (w->samples++ < SAMPLES_LOOKED_AT)
        assert(labels_fit(w->family->labels, labels ? labels : ""));
    size_t suffix_len = strlen(suffix), labels_len = labels ? strlen(labels) : 0;
    char *start = buf_reserve(w->out, w->name_len + suffix_len + labels_len + 4), *p = start;
    p = append(p, w->family->name, w->name_len);
    p = append(p, suffix, suffix_len);
    if (labels_len) {
        *p++ = '{';
        p = append(p, labels, labels_len);
        *p++ = '}';
    }
    *p++ = ' ';
    w->out->len += (size_t)(p - start);
}

static void put_number(struct buf *out, double v) {
    if (isnan(v))
        buf_adds(out, "NaN");
    else if (isinf(v))
        buf_adds(out, v > 0 ? "+Inf" : "-Inf");
    else
        buf_addf(out, "%.12g", v);
}

static void put_milli_number(struct buf *out, uint64_t v) {
    buf_addu(out, v / 1000);
    unsigned rest = (unsigned)(v % 1000);
    if (!rest)
        return;
    char text[] = {'.', (char)('0' + rest / 100), (char)('0' + rest / 10 % 10), (char)('0' + rest % 10)};
    size_t len = sizeof text;
    while (text[len - 1] == '0')
        len--;
    buf_add(out, text, len);
}

void metrics_put(struct metrics_writer *w, const char *labels, double value) {
    assert(w->family->type != METRIC_COUNTER || value >= 0);
    put_name(w, suffix_of(w->family), labels);
    put_number(w->out, value);
    buf_addc(w->out, '\n');
}

void metrics_put_u64(struct metrics_writer *w, const char *labels, uint64_t value) {
    put_name(w, suffix_of(w->family), labels);
    buf_addu(w->out, value);
    buf_addc(w->out, '\n');
}

void metrics_put_milli(struct metrics_writer *w, const char *labels, uint64_t value) {
    put_name(w, suffix_of(w->family), labels);
    put_milli_number(w->out, value);
    buf_addc(w->out, '\n');
}

void metrics_end(struct metrics_writer *w) {
    assert(!w->ended);
    w->ended = true;
    if (w->format == METRICS_OPENMETRICS)
        buf_adds(w->out, "# EOF\n");
}

static bool label_name_ok(const char *name) {
    if (!isalpha((unsigned char)*name) && *name != '_')
        return false;
    for (const char *p = name; *p; p++)
        if (!isalnum((unsigned char)*p) && *p != '_')
            return false;
    return !str_has_prefix(name, "__");
}

void metrics_label(struct buf *labels, const char *name, const char *value) {
    assert(label_name_ok(name));
    if (labels->len)
        buf_addc(labels, ',');
    buf_adds(labels, name);
    buf_adds(labels, "=\"");
    bool valid = str_utf8_valid(value, strlen(value));
    for (const char *p = value; *p; p++) {
        if (*p == '\n')
            buf_adds(labels, "\\n");
        else if (*p == '"' || *p == '\\')
            buf_addf(labels, "\\%c", *p);
        else
            buf_addc(labels, !valid && (unsigned char)*p >= 0x80 ? '?' : *p);
    }
    buf_addc(labels, '"');
}

void metrics_label_u64(struct buf *labels, const char *name, uint64_t value) {
    struct buf text = {0};
    buf_addu(&text, value);
    metrics_label(labels, name, buf_str(&text));
    buf_done(&text);
}

static const struct {
    uint64_t us;
    const char *le;
} bounds[METRICS_BUCKETS] = {
    {100, "0.0001"},    {250, "0.00025"},   {500, "0.0005"},    {1000, "0.001"},  {2500, "0.0025"},
    {5000, "0.005"},    {10000, "0.01"},    {25000, "0.025"},   {50000, "0.05"},  {100000, "0.1"},
    {250000, "0.25"},   {500000, "0.5"},    {1000000, "1.0"},   {2500000, "2.5"}, {5000000, "5.0"},
    {10000000, "10.0"}, {30000000, "30.0"}, {60000000, "60.0"},
};

void metrics_observe(struct metrics_histogram *h, uint64_t us) {
    int i = 0;
    while (i < METRICS_BUCKETS && us > bounds[i].us)
        i++;
    h->buckets[i]++;
    h->count++;
    h->sum_us += us;
}

void metrics_put_histogram(struct metrics_writer *w, const struct metrics_histogram *h) {
    assert(w->family && w->family->type == METRIC_HISTOGRAM && !*w->family->labels);
    const char *name = w->family->name;
    uint64_t sum = 0;
    for (int i = 0; i < METRICS_BUCKETS; i++) {
        sum += h->buckets[i];
        buf_addf(w->out, "%s_bucket{le=\"%s\"} ", name, bounds[i].le);
        buf_addu(w->out, sum);
        buf_addc(w->out, '\n');
    }
    assert(sum + h->buckets[METRICS_BUCKETS] == h->count);
    buf_addf(w->out, "%s_bucket{le=\"+Inf\"} %llu\n", name, (unsigned long long)h->count);
    buf_addf(w->out, "%s_sum %.6f\n", name, (double)h->sum_us / 1e6);
    buf_addf(w->out, "%s_count %llu\n", name, (unsigned long long)h->count);
}
