// Owns the printing of explanations. Times (members that end in _ms) become local times, amounts of
// GPUs (_milli, _milligpu) GPUs; everything else is printed as it is.
#include "cli/explain.h"

#include <string.h>

#include "base/text.h"
#include "cli/localtime.h"
#include "model/gpuspec.h"

enum { DEPTH_MAX = 6 };

static bool ends_in(const char *s, const char *end) {
    size_t n = strlen(s), m = strlen(end);
    return n > m && !strcmp(s + n - m, end);
}

static void add_scalar(const char *key, const struct json *v, struct buf *out) {
    char text[UNIT_TEXT_MAX];
    struct json_writer w = {.out = out};
    if (v->type == JSON_STRING)
        buf_adds(out, v->s);
    else if (v->type == JSON_INT && ends_in(key, "_ms") && v->i > 1000000000000)
        buf_adds(out, local_time_format(v->i, text));
    else if (v->type == JSON_INT && ends_in(key, "_ms"))
        buf_adds(out, duration_format((uint64_t)(v->i < 0 ? 0 : v->i) / 1000, text));
    else if (v->type == JSON_INT && (ends_in(key, "_milli") || ends_in(key, "_milligpu")))
        buf_adds(out, gpu_milli_format((uint64_t)(v->i < 0 ? 0 : v->i), text));
    else if (v->type == JSON_INT && ends_in(key, "_bytes"))
        buf_adds(out, size_format((uint64_t)(v->i < 0 ? 0 : v->i), text));
    else if (v->type == JSON_BOOL)
        buf_adds(out, v->boolean ? "yes" : "no");
    else
        json_write(&w, v);
}

static void add_label(const char *key, int indent, struct buf *out) {
    size_t n = strlen(key);
    static const char *const units[] = {"_milligpu", "_milli", "_bytes", "_ms", "_s"};
    for (size_t i = 0; i < sizeof units / sizeof *units; i++)
        if (ends_in(key, units[i])) {
            n -= strlen(units[i]);
            break;
        }
    buf_addf(out, "%*s", indent, "");
    for (size_t i = 0; i < n; i++)
        buf_addc(out, key[i] == '_' ? ' ' : !i && key[i] >= 'a' && key[i] <= 'z' ? (char)(key[i] - 32) : key[i]);
}

static void add_value(const char *key, const struct json *v, int indent, int depth, struct buf *out);

static void add_members(const struct json *j, int indent, int depth, struct buf *out) {
    for (uint32_t i = 0; i < j->len; i++) {
        const struct json *v = &j->members[i].value;
        bool nested = v->type == JSON_OBJECT || v->type == JSON_ARRAY;
        if (v->type == JSON_NULL || (nested && !v->len))
            continue;
        add_label(j->members[i].key, indent, out);
        buf_adds(out, ": ");
        add_value(j->members[i].key, v, indent + 2, depth + 1, out);
    }
}

static void add_value(const char *key, const struct json *v, int indent, int depth, struct buf *out) {
    if (depth > DEPTH_MAX)
        return;
    if (v->type == JSON_OBJECT) {
        buf_addc(out, '\n');
        add_members(v, indent, depth, out);
    } else if (v->type == JSON_ARRAY) {
        buf_addc(out, '\n');
        for (uint32_t i = 0; i < v->len; i++) {
            const struct json *item = &v->items[i];
            if (item->type == JSON_OBJECT) {
                const char *sentence = json_str(item, "text");
                buf_addf(out, "%*s- %s", indent, "", sentence ? sentence : "");
                if (sentence)
                    buf_addc(out, '\n');
                else
                    add_value(key, item, indent + 2, depth + 1, out);
            } else {
                buf_addf(out, "%*s- ", indent, "");
                add_scalar(key, item, out);
                buf_addc(out, '\n');
            }
        }
    } else {
        add_scalar(key, v, out);
        buf_addc(out, '\n');
    }
}

void explain_print(struct cli *c, const struct json *answer, struct buf *out) {
    const struct json *lines = answer ? json_get(answer, "lines") : NULL;
    if (lines && lines->type == JSON_ARRAY) {
        for (uint32_t i = 0; i < lines->len; i++)
            if (lines->items[i].type == JSON_STRING)
                help_wrap(out, lines->items[i].s, 0, 2);
        return;
    }
    const char *text = answer ? json_str(answer, "text") : NULL;
    if (text)
        buf_addf(out, "%s\n", text);
    else if (answer && answer->type == JSON_OBJECT)
        add_members(answer, 0, 0, out);
}
