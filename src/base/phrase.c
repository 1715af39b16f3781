// Owns the English text and the JSON form of phrases.
#include "base/phrase.h"

#include <assert.h>
#include <inttypes.h>
#include <string.h>

struct phrase_names {
    const char *at[PHRASE_VALUES_MAX];
    size_t len[PHRASE_VALUES_MAX];
    uint32_t count;
};

// The number of the value that a placeholder names: a new name is that of the next value.
static uint32_t value_named(struct phrase_names *names, const char *name, size_t len) {
    for (uint32_t i = 0; i < names->count; i++)
        if (names->len[i] == len && memcmp(names->at[i], name, len) == 0)
            return i;
    assert(names->count < PHRASE_VALUES_MAX);
    names->at[names->count] = name;
    names->len[names->count] = len;
    return names->count++;
}

static void put_span(struct buf *out, int64_t ms) {
    int64_t s = ms > 0 ? (ms + 999) / 1000 : 0;
    if (s < 120)
        buf_addf(out, "%" PRId64 " s", s);
    else if (s < 7200)
        buf_addf(out, "%" PRId64 " min", (s + 30) / 60);
    else if (s < 172800)
        buf_addf(out, "%" PRId64 " h", (s + 1800) / 3600);
    else
        buf_addf(out, "%" PRId64 " days", (s + 43200) / 86400);
}

// "36 to 60 min", "50 s to 2 h", "2 h"
static void put_range(struct buf *out, int64_t from_ms, int64_t to_ms) {
    cleanup_buf struct buf a = {0}, b = {0};
    put_span(&a, from_ms);
    put_span(&b, to_ms);
    const char *unit = strrchr(buf_str(&a), ' '), *other = strrchr(buf_str(&b), ' ');
    if (strcmp(buf_str(&a), buf_str(&b)) == 0)
        buf_adds(out, buf_str(&a));
    else if (unit && other && strcmp(unit, other) == 0)
        buf_addf(out, "%.*s to %s", (int)(unit - buf_str(&a)), buf_str(&a), buf_str(&b));
    else
        buf_addf(out, "%s to %s", buf_str(&a), buf_str(&b));
}

static void put_gpus(struct buf *out, int64_t milli) {
    int64_t part = milli % 1000;
    int digits = 3;
    for (; part && part % 10 == 0; digits--)
        part /= 10;
    buf_addf(out, "%" PRId64, milli / 1000);
    if (part)
        buf_addf(out, ".%0*" PRId64, digits, part);
    buf_adds(out, milli == 1000 ? " GPU" : " GPUs");
}

static void put_value(struct buf *out, const struct phrase_value *v) {
    switch (v->kind) {
    case PHRASE_NUMBER: buf_addf(out, "%" PRId64, v->number); break;
    case PHRASE_TEXT: buf_adds(out, v->text ? v->text : ""); break;
    case PHRASE_GPUS: put_gpus(out, v->number); break;
    case PHRASE_CPUS: buf_addf(out, "%" PRId64 " CPU%s", v->number, v->number == 1 ? "" : "s"); break;
    case PHRASE_BYTES: {
        bool gib = v->number >= INT64_C(10) << 30;
        buf_addf(out, "%" PRId64 " %s", v->number >> (gib ? 30 : 20), gib ? "GiB" : "MiB");
        break;
    }
    case PHRASE_SPAN: put_span(out, v->number); break;
    case PHRASE_RANGE: put_range(out, v->number, v->to); break;
    case PHRASE_PARTS:
        for (uint32_t i = 0; i < v->part_count; i++) {
            buf_adds(out, i ? ", " : "");
            phrase_text(out, v->parts[i].phrase, v->parts[i].values);
        }
        break;
    }
}

void phrase_text(struct buf *out, const struct phrase *p, const struct phrase_value values[PHRASE_VALUES_MAX]) {
    struct phrase_names names = {0};
    for (const char *s = p->english; *s;) {
        size_t plain = strcspn(s, "{");
        buf_add(out, s, plain);
        s += plain;
        if (!*s)
            break;
        const char *end = strchr(s, '}'), *bar = memchr(s, '|', (size_t)(end - s));
        const struct phrase_value *v = &values[value_named(&names, s + 1, (size_t)((bar ? bar : end) - s - 1))];
        if (bar) {
            const char *other = memchr(bar + 1, '|', (size_t)(end - bar - 1));
            if (v->number == 1)
                buf_add(out, bar + 1, (size_t)(other - bar - 1));
            else
                buf_add(out, other + 1, (size_t)(end - other - 1));
        } else {
            put_value(out, v);
        }
        s = end + 1;
    }
}

static void write_phrase(struct json_writer *w, const struct phrase *p,
                         const struct phrase_value values[PHRASE_VALUES_MAX]);

static void write_value(struct json_writer *w, const struct phrase_value *v) {
    static const char *const units[] = {
        [PHRASE_GPUS] = "gpus_milli", [PHRASE_CPUS] = "cpus", [PHRASE_BYTES] = "bytes", [PHRASE_SPAN] = "ms"};
    switch (v->kind) {
    case PHRASE_NUMBER: json_put_i64(w, v->number); break;
    case PHRASE_TEXT: json_put_str(w, v->text ? v->text : ""); break;
    case PHRASE_PARTS:
        json_open(w, '[');
        for (uint32_t i = 0; i < v->part_count; i++)
            write_phrase(w, v->parts[i].phrase, v->parts[i].values);
        json_close(w, ']');
        break;
    case PHRASE_RANGE:
        json_open(w, '{');
        json_kv_i64(w, "from_ms", v->number);
        json_kv_i64(w, "to_ms", v->to);
        json_close(w, '}');
        break;
    default:
        json_open(w, '{');
        json_kv_i64(w, units[v->kind], v->number);
        json_close(w, '}');
    }
}

static void write_phrase(struct json_writer *w, const struct phrase *p,
                         const struct phrase_value values[PHRASE_VALUES_MAX]) {
    struct phrase_names names = {0};
    json_open(w, '{');
    json_kv_str(w, "code", p->code);
    json_open_key(w, "values", '{');
    for (const char *s = strchr(p->english, '{'); s; s = strchr(s + 1, '{')) {
        char name[24];
        size_t len = strcspn(s + 1, "|}");
        uint32_t before = names.count, i = value_named(&names, s + 1, len);
        assert(len < sizeof name);
        if (names.count == before)
            continue;
        memcpy(name, s + 1, len);
        name[len] = '\0';
        json_key(w, name);
        write_value(w, &values[i]);
    }
    json_close(w, '}');
    json_close(w, '}');
}

void phrase_say(struct phrase_out *out, const struct phrase *p, const struct phrase_value values[PHRASE_VALUES_MAX]) {
    phrase_text(out->text, p, values);
    buf_addc(out->text, '\n');
    if (out->json)
        write_phrase(out->json, p, values);
}
