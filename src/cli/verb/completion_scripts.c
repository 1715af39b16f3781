// Owns the completion scripts for bash, zsh and fish, written from the tables. Job and node names are asked
// of the running cluster while completing.
#include <stdio.h>
#include <string.h>

#include "base/text.h"
#include "texts.h"
#include "verbs.h"

static bool visible(const struct verb *v) {
    return v->group != NULL;
}

static void all_verbs(struct buf *out) {
    size_t count;
    const struct verb *const *verbs = verbs_all(&count);
    for (size_t i = 0; i < count; i++)
        if (visible(verbs[i]))
            buf_addf(out, "%s%s", i ? " " : "", verbs[i]->name);
}

// Names that the running cluster is asked for.
static const struct completion_source {
    const char *kind, *command;
} sources[] = {
    {"@job", "acequia list --no-heading --columns id 2>/dev/null"},
    {"@node", "acequia nodes --no-heading --columns name 2>/dev/null"},
    {"@column", "acequia list --columns help 2>/dev/null | tr -d ,"},
    {"@project", "acequia project list 2>/dev/null | sed '1d;s/ .*//'"},
    {"@partition", "acequia partition list 2>/dev/null | sed '1d;s/ .*//'"},
    {"@qos", "acequia qos list 2>/dev/null | sed '1d;s/ .*//'"},
    {"@license", "acequia license list 2>/dev/null | sed '1d;s/ .*//'"},
    {"@reservation", "acequia reservation list 2>/dev/null | sed '1d;s/ .*//'"},
};
enum { SOURCES = sizeof sources / sizeof *sources };

static const struct completion_source *source_of(const char *kind) {
    for (size_t i = 0; i < SOURCES; i++)
        if (streq(sources[i].kind, kind))
            return &sources[i];
    return NULL;
}

// "project create|edit|delete|list|show NAME": what completes the name; NULL for other verbs.
static const struct completion_source *noun_of(const struct verb *v) {
    char kind[32];
    if (!v->complete || !str_has_prefix(v->complete, "create edit"))
        return NULL;
    snprintf(kind, sizeof kind, "@%s", v->name);
    return source_of(kind);
}

// What bash does to complete one kind of thing.
static void bash_kind(struct buf *out, const char *kind) {
    const struct completion_source *s = source_of(kind);
    if (s)
        buf_addf(out, "COMPREPLY=($(compgen -W \"$(%s)\" -- \"$cur\"))", s->command);
    else if (streq(kind, "@verb")) {
        buf_adds(out, "COMPREPLY=($(compgen -W \"");
        all_verbs(out);
        buf_adds(out, "\" -- \"$cur\"))");
    } else if (streq(kind, "@dir"))
        buf_adds(out, "COMPREPLY=($(compgen -d -- \"$cur\"))");
    else if (streq(kind, "@file"))
        buf_adds(out, "COMPREPLY=($(compgen -f -- \"$cur\"))");
    else
        buf_addf(out, "COMPREPLY=($(compgen -W \"%s\" -- \"$cur\"))", kind);
}

static void bash_verb(struct buf *out, const struct verb *v) {
    buf_addf(out, "    %s%s%s)\n        case \"$prev\" in\n", v->name, v->alias ? "|" : "", v->alias ? v->alias : "");
    for (int t = 0; t < OPTION_TABLES_MAX && v->options[t]; t++)
        for (size_t i = 0; i < v->options[t]->count; i++) {
            const struct option_spec *s = &v->options[t]->at[i];
            if (!s->value || !s->complete)
                continue;
            buf_adds(out, "        ");
            if (s->letter)
                buf_addf(out, "-%c|", s->letter);
            buf_addf(out, "--%s) ", s->name);
            bash_kind(out, s->complete);
            buf_adds(out, "; return ;;\n");
        }
    buf_adds(out, "        esac\n        if [[ $cur == -* ]]; then\n            COMPREPLY=($(compgen -W \"");
    for (int t = 0; t < OPTION_TABLES_MAX && v->options[t]; t++)
        for (size_t i = 0; i < v->options[t]->count; i++)
            if (!(v->options[t]->at[i].flags & OPTION_HIDDEN))
                buf_addf(out, "--%s ", v->options[t]->at[i].name);
    buf_adds(out, "\" -- \"$cur\"))\n        el");
    if (noun_of(v)) {
        buf_adds(out, "if ((COMP_CWORD > 2)); then\n            [[ ${COMP_WORDS[2]} == create ]] || ");
        bash_kind(out, noun_of(v)->kind);
        buf_adds(out, "\n        el");
    }
    buf_adds(out, "se\n            ");
    bash_kind(out, v->complete ? v->complete : "@file");
    buf_adds(out, "\n        fi ;;\n");
}

void verb_completion_bash(struct buf *out) {
    size_t count;
    const struct verb *const *verbs = verbs_all(&count);
    buf_adds(out,
             "# bash completion for acequia; written by `acequia completion bash`\n"
             "_acequia() {\n"
             "    local cur=${COMP_WORDS[COMP_CWORD]} prev=${COMP_WORDS[COMP_CWORD-1]}\n"
             "    COMPREPLY=()\n"
             "    if ((COMP_CWORD == 1)); then\n        COMPREPLY=($(compgen -W \"");
    all_verbs(out);
    buf_adds(out, "\" -- \"$cur\"))\n        return\n    fi\n    case \"${COMP_WORDS[1]}\" in\n");
    for (size_t i = 0; i < count; i++)
        if (visible(verbs[i]))
            bash_verb(out, verbs[i]);
    buf_adds(out, "    esac\n}\ncomplete -F _acequia acequia aq\n");
}

// Text inside a zsh specification: brackets, colons and quotes are escaped.
static void zsh_text(struct buf *out, const char *s, size_t max) {
    for (size_t n = 0; *s && n < max; s++, n++) {
        if (*s == '\'')
            buf_adds(out, "'\\''");
        else if (strchr("[]:\\", *s)) {
            buf_addc(out, '\\');
            buf_addc(out, *s);
        } else
            buf_addc(out, *s);
    }
}

static void zsh_action(struct buf *out, const char *kind) {
    if (source_of(kind))
        buf_addf(out, "_acequia_%s", kind + 1);
    else if (streq(kind, "@verb")) {
        buf_addc(out, '(');
        all_verbs(out);
        buf_addc(out, ')');
    } else if (streq(kind, "@dir"))
        buf_adds(out, "_files -/");
    else if (streq(kind, "@file"))
        buf_adds(out, "_files");
    else
        buf_addf(out, "(%s)", kind);
}

static void zsh_option_spec(struct buf *out, const struct option_spec *s, bool letter) {
    buf_addf(out, " \\\n            '%s", s->flags & OPTION_REPEAT ? "*" : "");
    if (letter)
        buf_addf(out, "-%c%s[", s->letter, s->value ? "+" : "");
    else
        buf_addf(out, "--%s%s[", s->name, s->value ? "=" : "");
    zsh_text(out, s->help, 70);
    buf_addc(out, ']');
    if (s->value) {
        buf_adds(out, s->flags & OPTION_OPTIONAL ? "::" : ":");
        zsh_text(out, s->value, 30);
        buf_addc(out, ':');
        if (s->complete)
            zsh_action(out, s->complete);
    }
    buf_addc(out, '\'');
}

static void zsh_verb(struct buf *out, const struct verb *v) {
    buf_addf(out, "        %s%s%s) _arguments -S", v->name, v->alias ? "|" : "", v->alias ? v->alias : "");
    for (int t = 0; t < OPTION_TABLES_MAX && v->options[t]; t++)
        for (size_t i = 0; i < v->options[t]->count; i++) {
            const struct option_spec *s = &v->options[t]->at[i];
            if (s->flags & OPTION_HIDDEN)
                continue;
            if (s->letter)
                zsh_option_spec(out, s, true);
            zsh_option_spec(out, s, false);
        }
    buf_addf(out, " \\\n            '%s:argument:", noun_of(v) ? "1" : "*");
    zsh_action(out, v->complete ? v->complete : "@file");
    if (noun_of(v)) {
        buf_adds(out, "' \\\n            '2:name:");
        zsh_action(out, noun_of(v)->kind);
    }
    buf_adds(out, "' ;;\n");
}

void verb_completion_zsh(struct buf *out) {
    size_t count;
    const struct verb *const *verbs = verbs_all(&count);
    buf_adds(out,
             "#compdef acequia aq\n# zsh completion for acequia; written by `acequia completion zsh`\n");
    for (size_t i = 0; i < SOURCES; i++)
        buf_addf(out, "_acequia_%s() { compadd -- ${=\"$(%s)\"} }\n", sources[i].kind + 1, sources[i].command);
    buf_adds(out, "_acequia() {\n    local -a verbs\n    verbs=(\n");
    for (size_t i = 0; i < count; i++) {
        if (!visible(verbs[i]))
            continue;
        buf_addf(out, "        '%s:", verbs[i]->name);
        zsh_text(out, verbs[i]->summary, 70);
        buf_adds(out, "'\n");
    }
    buf_adds(out,
             "    )\n    if (( CURRENT == 2 )); then\n        _describe verb verbs\n        return\n    fi\n"
             "    local verb=$words[2]\n    shift words\n    (( CURRENT-- ))\n    case $verb in\n");
    for (size_t i = 0; i < count; i++)
        if (visible(verbs[i]))
            zsh_verb(out, verbs[i]);
    buf_adds(out, "    esac\n}\n_acequia \"$@\"\n");
}

// --- fish ---

static void fish_text(struct buf *out, const char *s, size_t max) {
    buf_addc(out, '\'');
    for (size_t n = 0; *s && n < max; s++, n++) {
        if (*s == '\'' || *s == '\\')
            buf_addc(out, '\\');
        buf_addc(out, *s);
    }
    buf_addc(out, '\'');
}

// What follows on the line of a `complete`: candidates, files or folders.
static void fish_kind(struct buf *out, const char *kind) {
    if (source_of(kind)) {
        buf_addf(out, " -a '(__acequia_%s)'", kind + 1);
    } else if (streq(kind, "@verb")) {
        buf_adds(out, " -a '");
        all_verbs(out);
        buf_addc(out, '\'');
    } else if (streq(kind, "@dir")) {
        buf_adds(out, " -a '(__fish_complete_directories)'");
    } else if (streq(kind, "@file")) {
        buf_adds(out, " -F");
    } else {
        buf_addf(out, " -a '%s'", kind);
    }
}

static void fish_option(struct buf *out, const struct verb *v, const struct option_spec *s) {
    buf_addf(out, "complete -c acequia -n '__acequia_verb %s %s'", v->name, v->alias ? v->alias : "");
    if (s->letter)
        buf_addf(out, " -s %c", s->letter);
    buf_addf(out, " -l %s", s->name);
    if (s->value && !(s->flags & OPTION_OPTIONAL))
        buf_adds(out, streq(s->complete, "@file") ? " -r" : " -x");
    buf_adds(out, " -d ");
    fish_text(out, s->help, 70);
    if (s->value && s->complete)
        fish_kind(out, s->complete);
    buf_addc(out, '\n');
}

// The words after the verb; `place` is the second of a noun's, 0: any.
static void fish_arguments(struct buf *out, const struct verb *v, int place, const char *kind) {
    buf_addf(out, "complete -c acequia -n '__acequia_verb %s %s", v->name, v->alias ? v->alias : "");
    if (place)
        buf_addf(out, "; and __acequia_place %d", place);
    buf_addc(out, '\'');
    fish_kind(out, kind);
    buf_addc(out, '\n');
}

static void fish_verb(struct buf *out, const struct verb *v) {
    for (int t = 0; t < OPTION_TABLES_MAX && v->options[t]; t++)
        for (size_t i = 0; i < v->options[t]->count; i++)
            if (!(v->options[t]->at[i].flags & OPTION_HIDDEN))
                fish_option(out, v, &v->options[t]->at[i]);
    fish_arguments(out, v, noun_of(v) ? 1 : 0, v->complete ? v->complete : "@file");
    if (noun_of(v))
        fish_arguments(out, v, 2, noun_of(v)->kind);
}

void verb_completion_fish(struct buf *out) {
    size_t count;
    const struct verb *const *verbs = verbs_all(&count);
    buf_adds(out,
             "# fish completion for acequia; written by `acequia completion fish`\n"
             "function __acequia_verb\n    set -l words (commandline -opc)\n"
             "    test (count $words) -ge 2; and contains -- $words[2] $argv\nend\n"
             "# The first word after the verb, or a name that is there already.\n"
             "function __acequia_place\n    set -l words (commandline -opc)\n"
             "    test (count $words) -eq (math $argv[1] + 1); and not contains -- create $words\nend\n");
    for (size_t i = 0; i < SOURCES; i++)
        buf_addf(out, "function __acequia_%s\n    %s | tr -s ' ' '\\n'\nend\n", sources[i].kind + 1,
                 sources[i].command);
    buf_adds(out, "complete -c acequia -f\n");
    for (size_t i = 0; i < count; i++)
        if (visible(verbs[i])) {
            buf_addf(out, "complete -c acequia -n 'test (count (commandline -opc)) -eq 1' -a %s -d ", verbs[i]->name);
            fish_text(out, verbs[i]->summary, 70);
            buf_addc(out, '\n');
        }
    for (size_t i = 0; i < count; i++)
        if (visible(verbs[i]))
            fish_verb(out, verbs[i]);
    buf_adds(out, "complete -c aq -w acequia\n");
}
