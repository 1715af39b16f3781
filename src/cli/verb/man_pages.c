// Owns the manual pages and docs/commands.md, written from the same tables as --help.
#include <string.h>

#include "base/text.h"
#include "texts.h"
#include "verbs.h"
#include "model/config.h"

static void roff(struct buf *out, const char *s) {
    bool line_start = true;
    for (; *s; s++) {
        if (line_start && (*s == '.' || *s == '\''))
            buf_adds(out, "\\&");
        if (*s == '\\')
            buf_adds(out, "\\e");
        else if (*s == '-')
            buf_adds(out, "\\-");
        else
            buf_addc(out, *s);
        line_start = *s == '\n';
    }
}

static void head(struct buf *out, const char *name, int section, const char *summary) {
    buf_adds(out, ".TH ");
    for (const char *p = name; *p; p++)
        buf_addc(out, *p >= 'a' && *p <= 'z' ? (char)(*p - 32) : *p);
    buf_addf(out, " %d \"\" \"Acequia %s\" \"Acequia Manual\"\n.SH NAME\n", section, ACEQUIA_VERSION);
    roff(out, name);
    buf_adds(out, " \\- ");
    roff(out, summary);
    buf_addc(out, '\n');
}

static void synopsis(struct buf *out, const struct verb *v) {
    buf_adds(out, ".SH SYNOPSIS\n");
    const char *p = v->arguments ? v->arguments : "";
    for (bool first = true; first || *p; first = false) {
        cleanup_buf struct buf line = {0};
        size_t len = strcspn(p, "\n");
        buf_add(&line, p, len);
        buf_addf(out, "%s\\fBacequia %s\\fR ", first ? "" : ".br\n", v->name);
        roff(out, buf_str(&line));
        buf_addc(out, '\n');
        p += len;
        p += *p == '\n';
    }
}

static void man_option(struct buf *out, const struct option_spec *s) {
    buf_adds(out, ".TP\n");
    if (s->letter)
        buf_addf(out, "\\fB\\-%c\\fR, ", s->letter);
    buf_adds(out, "\\fB\\-\\-");
    roff(out, s->name);
    buf_adds(out, "\\fR");
    if (s->value)
        buf_addf(out, s->flags & OPTION_OPTIONAL ? "[=\\fI%s\\fR]" : " \\fI%s\\fR", s->value);
    buf_addc(out, '\n');
    roff(out, s->help);
    buf_addc(out, '\n');
}

static void see_also(struct buf *out, const char *pages) {
    buf_addf(out, ".SH SEE ALSO\n%s\n", pages);
}

static const char exit_status[] = "0 on success, 1 on failure, 2 when the command line was wrong. wait and run "
                                  "return the exit status of the job, or 128 plus the number of the signal "
                                  "that ended it.";

void verb_man_verb(const struct verb *v, struct buf *out) {
    cleanup_buf struct buf name = {0};
    buf_addf(&name, "acequia-%s", v->name);
    head(out, buf_str(&name), 1, v->summary);
    synopsis(out, v);
    if (v->text) {
        buf_adds(out, ".SH DESCRIPTION\n");
        roff(out, v->text);
        buf_addc(out, '\n');
    }
    for (int t = 0; t < OPTION_TABLES_MAX && v->options[t]; t++) {
        buf_addf(out, ".SH \"%s\"\n", v->options[t]->title);
        for (size_t i = 0; i < v->options[t]->count; i++)
            if (!(v->options[t]->at[i].flags & OPTION_HIDDEN))
                man_option(out, &v->options[t]->at[i]);
    }
    if (v->examples) {
        buf_adds(out, ".SH EXAMPLES\n.nf\n");
        roff(out, v->examples);
        buf_adds(out, "\n.fi\n");
    }
    buf_adds(out, ".SH EXIT STATUS\n");
    roff(out, exit_status);
    buf_addc(out, '\n');
    see_also(out, "acequia(1), acequia.conf(5)");
}

static const struct {
    const char *name, *text;
} environment[] = {
    {"ACEQUIA_HOST",
     "Address of the controller: HOST:PORT (TLS), or the path of a unix socket; of several controllers that "
     "share "
     "a database all of them, divided by commas. Default: that of acequia login, else this machine, else "
     "controller in the section [cluster] of the configuration."},
    {"ACEQUIA_HOME", "A folder that holds everything of a cluster: configuration, state, sockets, logs."},
    {"ACEQUIA_TOKEN_FILE", "File with the token for a controller on another machine. Default: the file "
                           "'token' beside the configuration."},
    {"COLUMNS", "Width of tables when standard output is not a terminal."},
    {"NO_COLOR", "If set, output has no colours."},
};

void verb_man_overview(struct buf *out) {
    size_t count;
    const struct verb *const *verbs = verbs_all(&count);
    head(out, "acequia", 1, "share one machine, or many, and lose no work");
    buf_adds(out, ".SH SYNOPSIS\n\\fBacequia\\fR \\fIverb\\fR [\\fIoptions\\fR] "
                  "[\\fIarguments\\fR]\n.br\n\\fBaq\\fR \\fIverb\\fR ...\n"
                  ".SH DESCRIPTION\nA workload manager for AI infrastructure: submit work, watch it, share "
                  "CPUs, memory and GPUs. "
                  "\\fBacequia up\\fR starts a cluster on this machine.\n");
    const char *group = NULL;
    for (size_t i = 0; i < count; i++) {
        if (!verbs[i]->group)
            continue;
        if (!streq(group, verbs[i]->group))
            buf_addf(out, ".SH \"%s\"\n", verbs[i]->group);
        group = verbs[i]->group;
        buf_addf(out, ".TP\n\\fBacequia\\-%s\\fR(1)\n", verbs[i]->name);
        roff(out, verbs[i]->summary);
        buf_addc(out, '\n');
    }
    buf_adds(out, ".SH EXIT STATUS\n");
    roff(out, exit_status);
    buf_adds(out, "\n.SH ENVIRONMENT\n");
    for (size_t i = 0; i < sizeof environment / sizeof *environment; i++) {
        buf_addf(out, ".TP\n\\fB%s\\fR\n", environment[i].name);
        roff(out, environment[i].text);
        buf_addc(out, '\n');
    }
    see_also(out, "acequia.conf(5)");
}

void verb_man_config(struct buf *out) {
    head(out, "acequia.conf", 5, "configuration of an Acequia cluster");
    config_reference_man(out);
    see_also(out, "acequia(1), acequia\\-config(1)");
}

// A bar would begin the next column.
static void cell(struct buf *out, const char *text) {
    for (const char *p = text; *p; p++)
        buf_adds(out, *p == '|' ? "\\|" : (char[]){*p, 0});
}

static void docs_options(struct buf *out, const struct verb *v) {
    for (int t = 0; t < OPTION_TABLES_MAX && v->options[t]; t++) {
        if (v->options[t] == &cli_common_options)
            continue;
        buf_addf(out, "\n| %s | |\n| --- | --- |\n", v->options[t]->title);
        for (size_t i = 0; i < v->options[t]->count; i++) {
            const struct option_spec *s = &v->options[t]->at[i];
            if (s->flags & OPTION_HIDDEN)
                continue;
            buf_adds(out, "| `");
            if (s->letter)
                buf_addf(out, "-%c`, `", s->letter);
            buf_addf(out, "--%s", s->name);
            if (s->value)
                buf_adds(out, s->flags & OPTION_OPTIONAL ? "[=" : " ");
            cell(out, s->value ? s->value : "");
            buf_adds(out, s->value && s->flags & OPTION_OPTIONAL ? "]` | " : "` | ");
            cell(out, s->help);
            buf_adds(out, " |\n");
        }
    }
}

void verb_docs_markdown(struct buf *out) {
    size_t count;
    const struct verb *const *verbs = verbs_all(&count);
    const char *group = NULL;
    buf_adds(out, "# Commands\n\n`acequia VERB [options] [arguments]`, or `aq` for short. Every verb accepts "
                  "`--help` and `--json`.\n"
                  "This page is made from the program's own tables (`acequia man --markdown`).\n\n");
    buf_addf(out, "Exit status: %s\n\n| variable | |\n| --- | --- |\n", exit_status);
    for (size_t i = 0; i < sizeof environment / sizeof *environment; i++)
        buf_addf(out, "| `%s` | %s |\n", environment[i].name, environment[i].text);
    for (size_t i = 0; i < count; i++) {
        const struct verb *v = verbs[i];
        if (!v->group)
            continue;
        if (!streq(group, v->group))
            buf_addf(out, "\n## %s\n", v->group);
        group = v->group;
        buf_addf(out, "\n### acequia %s\n\n%c%s.", v->name,
                 v->summary[0] - (v->summary[0] >= 'a' && v->summary[0] <= 'z' ? 32 : 0), v->summary + 1);
        if (v->text)
            buf_addf(out, " %s", v->text);
        buf_adds(out, "\n\n```\n");
        const char *p = v->arguments ? v->arguments : "";
        for (bool first = true; first || *p; first = false) {
            size_t len = strcspn(p, "\n");
            buf_addf(out, "acequia %s%s%.*s\n", v->name, len ? " " : "", (int)len, p);
            p += len;
            p += *p == '\n';
        }
        buf_adds(out, "```\n");
        docs_options(out, v);
        if (v->examples)
            buf_addf(out, "\n```\n%s\n```\n", v->examples);
    }
}
