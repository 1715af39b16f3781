// Owns what --help prints: 80 columns, from the tables.
#include <string.h>

#include "base/text.h"
#include "cli/term/terminal.h"
#include "texts.h"
#include "verbs.h"

enum { OPTION_INDENT = 26, VERB_INDENT = 18 };

static void option_line(const struct option_spec *s, struct buf *out) {
    size_t start = out->len;
    if (s->letter)
        buf_addf(out, "  -%c, --%s", s->letter, s->name);
    else
        buf_addf(out, "      --%s", s->name);
    if (s->value)
        buf_addf(out, s->flags & OPTION_OPTIONAL ? "[=%s]" : " %s", s->value);
    size_t used = out->len - start;
    if (used + 2 > OPTION_INDENT)
        buf_addf(out, "\n%*s", OPTION_INDENT, "");
    else
        buf_addf(out, "%*s", (int)(OPTION_INDENT - used), "");
    terminal_wrap(out, s->help, OPTION_INDENT, OPTION_INDENT);
}

static void usage_lines(const struct verb *v, struct buf *out) {
    const char *p = v->arguments ? v->arguments : "";
    for (bool first = true; first || *p; first = false) {
        size_t len = strcspn(p, "\n");
        buf_addf(out, "%s acequia %s%s%.*s\n", first ? "Usage:" : "      ", v->name, len ? " " : "", (int)len, p);
        p += len;
        p += *p == '\n';
    }
}

void verb_help_verb(const struct verb *v, struct buf *out) {
    buf_addf(out, "acequia %s: %s\n\n", v->name, v->summary);
    usage_lines(v, out);
    if (v->alias)
        buf_addf(out, "Also: acequia %s\n", v->alias);
    if (v->text) {
        buf_addc(out, '\n');
        terminal_wrap(out, v->text, 0, 0);
    }
    for (int t = 0; t < OPTION_TABLES_MAX && v->options[t]; t++) {
        buf_addf(out, "\n%s:\n", v->options[t]->title);
        for (size_t i = 0; i < v->options[t]->count; i++)
            if (!(v->options[t]->at[i].flags & OPTION_HIDDEN))
                option_line(&v->options[t]->at[i], out);
    }
    if (v->examples) {
        buf_adds(out, "\nExamples:\n");
        for (const char *p = v->examples; *p;) {
            size_t len = strcspn(p, "\n");
            buf_addf(out, "  %.*s\n", (int)len, p);
            p += len + (p[len] == '\n');
        }
    }
}

void verb_help_overview(struct buf *out, bool colour) {
    size_t count;
    const struct verb *const *verbs = verbs_all(&count);
    const char *group = NULL;
    buf_adds(out, "acequia: share one machine, or many, and lose no work\n\nUsage: acequia VERB [options] "
                  "[arguments]\n");
    for (size_t i = 0; i < count; i++) {
        if (!verbs[i]->group)
            continue;
        if (!streq(group, verbs[i]->group)) {
            group = verbs[i]->group;
            buf_addf(out, "\n%s%s%s\n", colour ? terminal_colour_on(COLOUR_BOLD) : "", group,
                     colour ? terminal_colour_off(COLOUR_BOLD) : "");
        }
        buf_addf(out, "  %-*s", VERB_INDENT - 2, verbs[i]->name);
        terminal_wrap(out, verbs[i]->summary, VERB_INDENT, VERB_INDENT);
    }
    buf_adds(out,
             "\nSee acequia VERB --help for details. Every verb accepts --json.\n"
             "To begin: acequia up, then acequia run -- hostname\n");
}
