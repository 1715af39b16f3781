// Translates names of API fields in the controller's messages into the options of the verb: a message that begins
// with "time_limit_s:" is about --time.
#include <string.h>

#include "base/text.h"
#include "cli/command/command.h"

#define LETTERS "abcdefghijklmnopqrstuvwxyz_"

// Where the option is not called as the field is.
static const struct {
    const char *field, *option;
} others[] = {
    {"time-limit", "time"}, {"memory-per-node", "memory"}, {"array-limit", "array"}, {"signal-before", "signal"},
    {"expires", "ttl"},     {"gpu-model", "gpus"},
};
static const char *const units[] = {"_ms", "_s", "_bytes", "_milli", "_milligpu"};

static bool has_word(const char *words, const char *word) {
    size_t len = strlen(word);
    for (const char *p = words; p && *p; p += strcspn(p, " "), p += *p == ' ')
        if (!strncmp(p, word, len) && (!p[len] || p[len] == ' '))
            return true;
    return false;
}

static const char *option_of(const struct verb *v, const char *name) {
    for (int t = 0; v && v->options[t]; t++)
        for (size_t i = 0; i < v->options[t]->count; i++) {
            const struct option_spec *o = &v->options[t]->at[i];
            if (streq(o->name, name) || has_word(o->aliases, name))
                return o->name;
        }
    return NULL;
}

// The field without its unit, with hyphens. True when it had one.
static bool stem(const char *field, size_t len, char *out, size_t size) {
    bool unit = false;
    for (size_t i = 0; i < sizeof units / sizeof *units && !unit; i++) {
        size_t n = strlen(units[i]);
        unit = len > n && !memcmp(field + len - n, units[i], n);
        len -= unit ? n : 0;
    }
    if (len >= size)
        len = size - 1;
    for (size_t i = 0; i < len; i++)
        out[i] = field[i] == '_' ? '-' : field[i];
    out[len] = 0;
    return unit;
}

// `first`: what the whole sentence is about, so that words without a unit are fields, too.
static void put_word(const struct cli *c, const char *word, size_t len, bool first, struct buf *out) {
    char name[64];
    bool unit = stem(word, len, name, sizeof name);
    const char *option = option_of(c->verb, name);
    for (size_t i = 0; i < sizeof others / sizeof *others && !option; i++)
        if (streq(others[i].field, name))
            option = option_of(c->verb, others[i].option);
    if (!unit && !first)
        option = NULL;
    if (option)
        buf_addf(out, "--%s", option);
    else if (first && len == 4 && !memcmp(word, "argv", 4))
        buf_adds(out, "the command");
    else if (unit)
        for (const char *p = name; *p; p++)
            buf_addc(out, *p == '-' ? ' ' : *p);
    else
        buf_add(out, word, len);
}

// What the API says of a query's parameter or a body's field: 'parameter "limit": …' is about --limit.
static const char *unquoted(struct cli *c, const char *text) {
    static const char *const kinds[] = {"parameter \"", "field \""};
    for (size_t i = 0; i < sizeof kinds / sizeof *kinds; i++) {
        const char *name = text + strlen(kinds[i]);
        size_t len = str_has_prefix(text, kinds[i]) ? strspn(name, LETTERS) : 0;
        if (len && str_has_prefix(name + len, "\": "))
            return arena_printf(&c->arena, "%.*s%s", (int)len, name, name + len + 1);
    }
    return text;
}

const char *cli_field_options(struct cli *c, const char *text) {
    cleanup_buf struct buf out = {0};
    text = unquoted(c, text);
    // "nodes" is a list there and a number here.
    if (str_has_prefix(text, "nodes: node ") && option_of(c->verb, "nodelist"))
        return arena_printf(&c->arena, "--nodelist: %s", text + strlen("nodes: "));
    bool inside = false;  // of a word that begins otherwise
    for (const char *p = text; *p;) {
        size_t n = inside ? 0 : strspn(p, LETTERS);
        bool ends = !strchr("0123456789-./=\"", p[n]) || !p[n];
        if (n && ends)
            put_word(c, p, n, p == text && p[n] == ':' && p[n + 1] == ' ', &out);
        else if (n)
            buf_add(&out, p, n);
        else
            buf_addc(&out, *p);
        inside = n ? false : *p != ' ' && *p != '(';
        p += n ? n : 1;
    }
    return arena_strdup(&c->arena, buf_str(&out));
}
