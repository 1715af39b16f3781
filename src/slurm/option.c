// Owns the reading of options in Slurm's way.
#include "option.h"

#include <assert.h>
#include <getopt.h>
#include <stdio.h>
#include <string.h>

#include "base/text.h"

enum { LONG_BASE = 1000 };  // getopt's number of the option at index i: LONG_BASE + i

void slurm_opts_init(struct opts *o, const struct opt *table, uint32_t count, unsigned program) {
    assert(count <= OPT_MAX);
    *o = (struct opts){.table = table, .count = count, .program = program};
}

static bool belongs(const struct opts *o, uint32_t i) {
    return !o->table[i].programs || o->table[i].programs & o->program;
}

static void make_tables(const struct opts *o, bool stop, struct option *longs, struct buf *shorts) {
    uint32_t n = 0;
    buf_adds(shorts, stop ? "+:" : ":");
    for (uint32_t i = 0; i < o->count; i++) {
        const struct opt *t = &o->table[i];
        if (!belongs(o, i))
            continue;
        longs[n++] = (struct option){.name = t->name, .has_arg = t->value, .val = LONG_BASE + (int)i};
        if (t->letter) {
            buf_addc(shorts, (char)t->letter);
            buf_adds(shorts, t->value == OPT_VALUE ? ":" : t->value == OPT_MAYBE ? "::" : "");
        }
    }
    longs[n] = (struct option){0};
}

static uint32_t find_letter(const struct opts *o, int letter) {
    uint32_t i = 0;
    while (i < o->count && !(belongs(o, i) && o->table[i].letter == letter))
        i++;
    assert(i < o->count);
    return i;
}

// "--ntas=3": which options could be meant.
static void tell_unknown(const struct opts *o, struct slurm *s, const char *word) {
    cleanup_buf struct buf could = {0};
    size_t len = strcspn(word + 2, "=");
    uint32_t count = 0;
    for (uint32_t i = 0; i < o->count; i++)
        if (belongs(o, i) && !strncmp(o->table[i].name, word + 2, len)) {
            buf_addf(&could, " '--%s'", o->table[i].name);
            count++;
        }
    if (len && count > 1)
        fprintf(stderr, "%s: option '%s' is ambiguous; possibilities:%s\n", s->program, word, buf_str(&could));
    else
        fprintf(stderr, "%s: unrecognized option '%s'\n", s->program, word);
}

static void tell_wrong(const struct opts *o, struct slurm *s, int c, const char *word) {
    const char *name = optopt >= LONG_BASE ? o->table[optopt - LONG_BASE].name : NULL;
    if (c == ':' && name)
        fprintf(stderr, "%s: option '--%s' requires an argument\n", s->program, name);
    else if (c == ':')
        fprintf(stderr, "%s: option requires an argument -- '%c'\n", s->program, optopt);
    else if (name)
        fprintf(stderr, "%s: option '--%s' doesn't allow an argument\n", s->program, name);
    else if (optopt)
        fprintf(stderr, "%s: invalid option -- '%c'\n", s->program, optopt);
    else
        tell_unknown(o, s, word);
}

static uint32_t index_of(const struct opts *o, const char *name) {
    uint32_t i = 0;
    while (i < o->count && !(belongs(o, i) && streq(o->table[i].name, name)))
        i++;
    assert(i < o->count && "an option is asked for that the table does not have");
    return i;
}

bool slurm_opts_parse(struct opts *o, struct slurm *s, int argc, char **argv, bool stop) {
    struct option longs[OPT_MAX + 1];
    cleanup_buf struct buf shorts = {0};
    make_tables(o, stop, longs, &shorts);
    optind = 0;  // glibc: start anew
    opterr = 0;  // what a C library prints differs; scripts know one wording
    for (int c; (c = getopt_long(argc, argv, buf_str(&shorts), longs, NULL)) != -1;) {
        if (c == '?' || c == ':') {
            tell_wrong(o, s, c, argv[optind - 1]);
            if (!streq(s->program, "sacct"))
                fprintf(stderr, "Try \"%s --help\" for more information\n", s->program);
            return false;
        }
        uint32_t i = c >= LONG_BASE ? (uint32_t)(c - LONG_BASE) : find_letter(o, c);
        if (o->table[i].use == OPT_ALIAS)
            i = index_of(o, o->table[i].hint);
        o->given[i] = true;
        o->value[i] = optarg;
    }
    o->arguments = argv + optind;
    o->argument_count = argc - optind;
    return true;
}

void slurm_opts_environment(struct opts *o, const char *prefix) {
    char name[96];
    for (uint32_t i = 0; i < o->count; i++) {
        if (!o->table[i].env || !belongs(o, i) || o->given[i])
            continue;
        snprintf(name, sizeof name, "%s_%s", prefix, o->table[i].env);
        const char *value = getenv(name);
        if (!value)
            continue;
        o->given[i] = true;
        o->value[i] = o->table[i].value == OPT_FLAG || !*value ? NULL : value;
    }
}

void slurm_opts_override(struct opts *o, const struct opts *later) {
    assert(o->table == later->table);
    for (uint32_t i = 0; i < o->count; i++)
        if (later->given[i]) {
            o->given[i] = true;
            o->value[i] = later->value[i];
        }
    o->arguments = later->arguments;
    o->argument_count = later->argument_count;
}

bool slurm_opts_check(const struct opts *o, struct slurm *s) {
    bool fine = true;
    for (uint32_t i = 0; i < o->count; i++) {
        const struct opt *t = &o->table[i];
        if (!o->given[i])
            continue;
        if (t->use == OPT_REFUSED) {
            slurm_error(s, "option --%s is not supported: %s", t->name, t->hint);
            fine = false;
        } else if (t->use == OPT_HARMLESS) {
            slurm_verbose(s, "option --%s has no effect: %s", t->name, t->hint ? t->hint : "it has no meaning here");
        }
    }
    return fine;
}

bool slurm_opt_given(const struct opts *o, const char *name) {
    return o->given[index_of(o, name)];
}

const char *slurm_opt_get(const struct opts *o, const char *name) {
    return o->value[index_of(o, name)];
}

const char *slurm_opt_filled(const struct opts *o, const char *name) {
    const char *v = slurm_opt_get(o, name);
    return v && *v ? v : NULL;
}

void slurm_opts_help(const struct opts *o, const char *program, const char *usage, struct buf *out) {
    buf_addf(out, "Usage: %s %s\n\n", program, usage);
    for (uint32_t i = 0; i < o->count; i++) {
        const struct opt *t = &o->table[i];
        if (!belongs(o, i) || t->use != OPT_DOES)
            continue;
        buf_adds(out, "  ");
        if (t->letter)
            buf_addf(out, "-%c, ", t->letter);
        buf_addf(out, "--%s%s\n", t->name, t->value == OPT_VALUE ? "=VALUE" : t->value == OPT_MAYBE ? "[=VALUE]" : "");
    }
    buf_adds(out, "\nSee docs/slurm.md for what each does, and docs/slurm-differences.md for what differs.\n");
}

bool slurm_opts_begin(struct opts *o, struct slurm *s, int argc, char **argv, const char *prefix,
                      const char *usage, int *status) {
    *status = SLURM_FAILED;
    if (!slurm_opts_parse(o, s, argc, argv, false))
        return false;
    s->verbose = slurm_opt_given(o, "verbose");
    if (prefix)
        slurm_opts_environment(o, prefix);
    if (!slurm_opts_check(o, s))
        return false;
    s->clusters = slurm_opt_get(o, "clusters");
    if (slurm_opt_given(o, "version")) {
        *status = slurm_version();
        return false;
    }
    if (slurm_opt_given(o, "help") || slurm_opt_given(o, "usage")) {
        cleanup_buf struct buf out = {0};
        slurm_opts_help(o, s->program, usage, &out);
        *status = cli_print(&out);
        return false;
    }
    return true;
}
