// Owns the parsing of option tables.
#include "cli/command/option.h"

#include <assert.h>
#include <errno.h>
#include <string.h>

#include "base/clock.h"
#include "base/text.h"
#include "cli/term/local_time.h"
#include "model/units.h"

static bool has_alias(const struct option_spec *s, const char *name, size_t len) {
    for (const char *p = s->aliases; p && *p; p += strspn(p, " ")) {
        size_t n = strcspn(p, " ");
        if (n == len && !strncmp(p, name, len))
            return true;
        p += n;
    }
    return false;
}

static const struct option_spec *find_long(const struct option_table *const *tables, const char *name, size_t len) {
    for (; *tables; tables++)
        for (size_t i = 0; i < (*tables)->count; i++) {
            const struct option_spec *s = &(*tables)->at[i];
            if ((strlen(s->name) == len && !strncmp(s->name, name, len)) || has_alias(s, name, len))
                return s;
        }
    return NULL;
}

static const struct option_spec *find_letter(const struct option_table *const *tables, char letter) {
    for (; *tables; tables++)
        for (size_t i = 0; i < (*tables)->count; i++)
            if ((*tables)->at[i].letter == letter)
                return &(*tables)->at[i];
    return NULL;
}

// Words of runai that are easily typed after acequia, and what to write in verbs that have the option `ours`.
static const char *remedy_of(const struct option_table *const *tables, const char *given) {
    static const struct {
        const char *given, *ours, *remedy;
    } words[] = {
        {"image", "container", "an image is given with --container IMAGE"},
        {"p", "project", "a project is given with -P NAME"},
        {"command", "container", "the program and its arguments are written after --"},
        {"args", "container", "the program and its arguments are written after --"},
        {"service-type", "port", "--port PORT is enough; 'acequia list' shows the address"},
        {"image-pull-policy", "pull", "write --pull always, missing or never"},
        {"always-pull-image", "pull", "write --pull always"},
        {"local-image", "pull", "write --pull never"},
        {"large-shm", "container", "leave it out: a job may use shared memory up to its memory limit"},
    };
    for (size_t i = 0; i < sizeof words / sizeof *words; i++)
        if (streq(given, words[i].given) && find_long(tables, words[i].ours, strlen(words[i].ours)))
            return words[i].remedy;
    return NULL;
}

static int unknown_option(const struct option_table *const *tables, const char *name, size_t len, struct error *e) {
    char given[64], shown[64];
    const char *nearest = NULL;
    size_t n = len < sizeof given ? len : sizeof given - 1;
    memcpy(given, name, n);
    given[n] = 0;
    const char *remedy = n > 1 ? remedy_of(tables, given) : NULL;
    if (remedy)
        return error_set(e, EINVAL, "unknown option --%s; %s", str_printable(given, shown, sizeof shown), remedy);
    unsigned best = str_edit_distance_near(given);
    for (; *tables; tables++)
        for (size_t i = 0; i < (*tables)->count; i++) {
            const struct option_spec *s = &(*tables)->at[i];
            unsigned d = str_edit_distance(given, s->name);
            if (n >= 3 && !strncmp(s->name, given, n))
                d = 1;
            if (d < best && !(s->flags & OPTION_HIDDEN)) {
                best = d;
                nearest = s->name;
            }
        }
    if (nearest)
        return error_set(e, EINVAL, "unknown option --%s; did you mean --%s?",
                         str_printable(given, shown, sizeof shown), nearest);
    return error_set(e, EINVAL, "unknown option --%s; see --help", str_printable(given, shown, sizeof shown));
}

static int missing_value(const struct option_spec *s, struct error *e) {
    return error_set(e, EINVAL, "option --%s needs a value: --%s %s", s->name, s->name, s->value);
}

static int parse_long(struct cli_options *o, int argc, char **argv, int *i, struct error *e) {
    const char *text = argv[*i] + 2, *equals = strchr(text, '=');
    size_t len = equals ? (size_t)(equals - text) : strlen(text);
    const struct option_spec *s = find_long(o->tables, text, len);
    if (!s)
        return unknown_option(o->tables, text, len, e);
    struct option_value v = {s, equals ? equals + 1 : NULL};
    if (equals && !s->value)
        return error_set(e, EINVAL, "option --%s takes no value", s->name);
    if (!equals && s->value && !(s->flags & OPTION_OPTIONAL)) {
        if (*i + 1 >= argc)
            return missing_value(s, e);
        v.value = argv[++*i];
    }
    vec_push(&o->values, v);
    return 0;
}

static int parse_letters(struct cli_options *o, int argc, char **argv, int *i, struct error *e) {
    for (const char *p = argv[*i] + 1; *p; p++) {
        const struct option_spec *s = find_letter(o->tables, *p);
        char shown[8];
        if (!s) {
            const char *remedy = remedy_of(o->tables, (char[]){*p, 0});
            return error_set(e, EINVAL, "unknown option -%s; %s",
                             str_printable((char[]){*p, 0}, shown, sizeof shown), remedy ? remedy : "see --help");
        }
        struct option_value v = {s, NULL};
        bool takes = s->value && (!(s->flags & OPTION_OPTIONAL) || p[1] == '=');
        if (takes && p[1])
            v.value = p[1] == '=' ? p + 2 : p + 1;
        else if (takes && *i + 1 < argc)
            v.value = argv[++*i];
        else if (takes)
            return missing_value(s, e);
        vec_push(&o->values, v);
        if (takes)
            break;
    }
    return 0;
}

int options_parse(const struct option_table *const *tables, int argc, char **argv, bool stop, struct cli_options *out,
                  struct error *e) {
    struct cli_options o = {.tables = tables};
    int r = 0;
    for (int i = 0; r == 0 && i < argc; i++) {
        if (streq(argv[i], "--") || (stop && (argv[i][0] != '-' || !argv[i][1]))) {
            for (i += streq(argv[i], "--"); i < argc; i++)
                vec_push(&o.arguments, argv[i]);
        } else if (str_has_prefix(argv[i], "--")) {
            r = parse_long(&o, argc, argv, &i, e);
        } else if (argv[i][0] == '-' && argv[i][1]) {
            r = parse_letters(&o, argc, argv, &i, e);
        } else {
            vec_push(&o.arguments, argv[i]);
        }
    }
    if (r < 0)
        options_done(&o);
    else
        *out = o;
    return r;
}

void options_done(struct cli_options *o) {
    vec_done(&o->values);
    vec_done(&o->arguments);
}

static const struct option_spec *declared(const struct cli_options *o, const char *name) {
    const struct option_spec *s = find_long(o->tables, name, strlen(name));
    assert(s && "an option is asked for that no table declares");
    return s;
}

bool option_known(const struct cli_options *o, const char *name) {
    return find_long(o->tables, name, strlen(name));
}

bool option_given(const struct cli_options *o, const char *name) {
    const struct option_spec *s = declared(o, name);
    for (uint32_t i = 0; i < o->values.len; i++)
        if (o->values.at[i].option == s)
            return true;
    return false;
}

const char *option_get(const struct cli_options *o, const char *name) {
    const struct option_spec *s = declared(o, name);
    for (uint32_t i = o->values.len; i-- > 0;)
        if (o->values.at[i].option == s)
            return o->values.at[i].value;
    return NULL;
}

const char *option_next(const struct cli_options *o, const char *name, uint32_t *iterator) {
    const struct option_spec *s = declared(o, name);
    while (*iterator < o->values.len) {
        const struct option_value *v = &o->values.at[(*iterator)++];
        if (v->option == s)
            return v->value;
    }
    return NULL;
}

void options_add_missing(struct cli_options *o, const struct cli_options *earlier) {
    uint32_t own = o->values.len;
    for (uint32_t i = 0; i < earlier->values.len; i++) {
        bool there = false;
        for (uint32_t k = 0; k < own; k++)
            there = there || o->values.at[k].option == earlier->values.at[i].option;
        if (!there)
            vec_push(&o->values, earlier->values.at[i]);
    }
}

int option_u32(const struct cli_options *o, const char *name, uint32_t low, uint32_t high, uint32_t *out,
               struct error *e) {
    const char *text = option_get(o, name);
    char shown[64];
    uint32_t v;
    if (!text)
        return 0;
    if (parse_u32(text, &v) < 0 || v < low || v > high)
        return error_set(e, EINVAL, "--%s is \"%s\"; give a whole number from %u to %u", name,
                         str_printable(text, shown, sizeof shown), low, high);
    *out = v;
    return 0;
}

int option_i32(const struct cli_options *o, const char *name, int32_t low, int32_t high, int32_t *out,
               struct error *e) {
    const char *text = option_get(o, name);
    char shown[64];
    int64_t v;
    if (!text)
        return 0;
    if (parse_i64(text, &v) < 0 || v < low || v > high)
        return error_set(e, EINVAL, "--%s is \"%s\"; give a whole number from %d to %d", name,
                         str_printable(text, shown, sizeof shown), low, high);
    *out = (int32_t)v;
    return 0;
}

static int named(int r, const char *name, struct error *e) {
    if (r < 0)
        error_prefix(e, "--%s", name);
    return r;
}

int option_size(const struct cli_options *o, const char *name, uint64_t bare_bytes, uint64_t *out, struct error *e) {
    const char *text = option_get(o, name);
    return text ? named(size_parse(text, bare_bytes, out, e), name, e) : 0;
}

int option_duration(const struct cli_options *o, const char *name, uint32_t bare_s, uint32_t *out, struct error *e) {
    const char *text = option_get(o, name);
    return text ? named(duration_parse(text, bare_s, out, e), name, e) : 0;
}

int option_time(const struct cli_options *o, const char *name, int64_t *at_ms, struct error *e) {
    const char *text = option_get(o, name);
    return text ? named(local_time_parse(text, clock_wall_ms(), TIME_NEXT, at_ms, e), name, e) : 0;
}
