// Owns where a job's command comes from (script file, standard input, command line), which
// environment goes with it, and the request that is sent.
#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/alloc.h"
#include "base/cleanup.h"
#include "base/text.h"
#include "cli/job/options.h"
#include "model/name.h"
#include "model/secret.h"

extern char **environ;

enum { SCRIPT_MAX_BYTES = 64 << 20, DIRECTIVE_LINES_MAX = 1000, DIRECTIVE_WORDS_MAX = 64, SHOWN_MAX = 1000 };

bool job_dashes(const struct cli *c) {
    for (int i = 2; i < c->argc; i++)
        if (streq(c->argv[i], "--"))
            return c->count == 0 || (i + 1 < c->argc && c->argv[i + 1] == c->arguments[0]);
    return false;
}

static int read_all(int fd, const char *shown, struct buf *out, struct error *e) {
    for (;;) {
        ssize_t n = read(fd, buf_reserve(out, 65536), 65536);
        if (n < 0 && errno == EINTR)
            continue;
        if (n < 0)
            return error_set(e, errno, "cannot read %s: %s", shown, strerror(errno));
        if (n == 0)
            return 0;
        out->len += (size_t)n;
        out->data[out->len] = 0;
        if (out->len > SCRIPT_MAX_BYTES)
            return error_set(e, EFBIG, "%s is larger than %d bytes", shown, SCRIPT_MAX_BYTES);
    }
}

static int open_script(const char *path, struct error *e) {
    struct stat st;
    char shown[80];
    int fd = open(path, O_RDONLY | O_CLOEXEC);
    if (fd < 0 && errno == ENOENT)
        return error_set(
            e, ENOENT,
            "script \"%s\" not found; to submit a command write it after --: acequia submit -- %s ...; a job's name is "
            "given with --name, and a whole line of runai after acequia: acequia runai submit ...",
            str_printable(path, shown, sizeof shown), shown);
    if (fd < 0)
        return error_set(e, errno, "cannot read the script \"%s\": %s",
                         str_printable(path, shown, sizeof shown), strerror(errno));
    if (fstat(fd, &st) < 0 || S_ISDIR(st.st_mode)) {
        close(fd);
        return error_set(e, EISDIR, "\"%s\" is a folder, not a script",
                         str_printable(path, shown, sizeof shown));
    }
    return fd;
}

char *job_next_word(char **p) {
    char *s = *p + strspn(*p, " \t"), *out = s, *start = s;
    if (!*s || *s == '#')
        return NULL;
    for (char quote = 0; *s && (quote || (*s != ' ' && *s != '\t')); s++) {
        if (!quote && (*s == '\'' || *s == '"'))
            quote = *s;
        else if (quote && *s == quote)
            quote = 0;
        else
            *out++ = *s;
    }
    *p = *s ? s + 1 : s;
    *out = 0;
    return start;
}

static int read_directive(struct cli *c, struct cli_options *o, struct cli_options *found, char *line,
                          unsigned number) {
    char *words[DIRECTIVE_WORDS_MAX], *word;
    int n = 0;
    struct cli_options one;
    while ((word = job_next_word(&line))) {
        if (n == DIRECTIVE_WORDS_MAX)
            return error_set(&c->error, EINVAL, "line %u of the script has more than %d words", number,
                             DIRECTIVE_WORDS_MAX);
        words[n++] = word;
    }
    int r = options_parse(o->tables, n, words, false, &one, &c->error);
    if (r == 0 && one.arguments.len) {
        r = error_set(&c->error, EINVAL, "\"%.60s\" is not an option", one.arguments.at[0]);
        options_done(&one);
    }
    if (r < 0) {
        error_prefix(&c->error, "line %u of the script", number);
        return r;
    }
    for (uint32_t i = 0; i < one.values.len; i++)
        vec_push(&found->values, one.values.at[i]);
    options_done(&one);
    return 0;
}

// "#ACEQUIA" lines count up to the first line that is neither a comment nor empty.
static int read_directives(struct cli *c, struct cli_options *o, const char *script) {
    struct cli_options found = {.tables = o->tables};
    bool slurm = false;
    int r = 0;
    unsigned number = 1;
    for (const char *p = script; r == 0 && *p && number <= DIRECTIVE_LINES_MAX; number++) {
        size_t len = strcspn(p, "\n");
        size_t blank = strspn(p, " \t\r");
        if (blank < len && p[blank] != '#')
            break;
        if (str_has_prefix(p, "#ACEQUIA ") || str_has_prefix(p, "#ACEQUIA\t")) {
            char *line = arena_strndup(&c->arena, p + 9, len - 9);
            line[strcspn(line, "\r")] = 0;
            r = read_directive(c, o, &found, line, number);
        }
        slurm = slurm || str_has_prefix(p, "#SBATCH");
        p += len + (p[len] == '\n');
    }
    if (r == 0)
        options_add_missing(o, &found);
    if (r == 0 && slurm)
        cli_note("submit ignores the script's #SBATCH lines; use sbatch (acequia slurm-commands) or "
                 "#ACEQUIA lines");
    options_done(&found);
    return r;
}

static const char *base_name(const char *path) {
    const char *slash = strrchr(path, '/');
    return slash && slash[1] ? slash + 1 : path;
}

const char *job_line_shown(struct arena *a, const char *line) {
    size_t len = strnlen(line, SHOWN_MAX);
    while (len && !str_utf8_valid(line, len))  // not in the middle of a character
        len--;
    char *out = arena_strndup(a, line, len);
    for (char *p = out; *p; p++)
        if ((unsigned char)*p < 32 || *p == 127)
            *p = ' ';
    return out;
}

static const char *as_typed(struct cli *c, char **argv, int argc) {
    cleanup_buf struct buf b = {0};
    for (int i = 0; i < argc && b.len < SHOWN_MAX; i++)
        buf_addf(&b, "%s%s", i ? " " : "", argv[i]);
    return job_line_shown(&c->arena, buf_str(&b));
}

static int check_script(struct cli *c, const char *shown, const char *text, size_t len) {
    char name[80];
    if (!len)
        return error_set(&c->error, EINVAL, "the script \"%s\" is empty",
                         str_printable(shown, name, sizeof name));
    if (len < 2 || text[0] != '#' || text[1] != '!')
        return error_set(&c->error, EINVAL,
                         "the script \"%s\" does not begin with #! and an interpreter; begin it with "
                         "#!/bin/sh, or name it .py for Python",
                         str_printable(shown, name, sizeof name));
    if (memchr(text, 0, len) || !str_utf8_valid(text, len))
        return error_set(&c->error, EINVAL, "the script \"%s\" is not UTF-8 text",
                         str_printable(shown, name, sizeof name));
    return 0;
}

static bool has_python_name(const char *path) {
    size_t len = strlen(path);
    return len > 3 && streq(path + len - 3, ".py");
}

// A Python file without #! is run with python3. Where its first line is blank or a comment, that line makes room for
// the #! line, so that line numbers in tracebacks stay those of the file.
static void add_python(const char *path, struct buf *text) {
    static const char line[] = "#!/usr/bin/env python3\n";
    const char *script = buf_str(text);
    if (!has_python_name(path) || !text->len || str_has_prefix(script, "#!"))
        return;
    cleanup_buf struct buf whole = {0};
    size_t first = strcspn(script, "\n");
    bool room = script[first] && (*script == '#' || strspn(script, " \t\r") == first) &&
                !memmem(script, first, "coding", 6) && !str_has_prefix(script, "#ACEQUIA");
    buf_adds(&whole, line);
    buf_adds(&whole, script + (room ? first + 1 : 0));
    buf_clear(text);
    buf_add(text, buf_str(&whole), whole.len);
}

static bool is_python(const char *path, const char *script) {
    size_t first = strcspn(script, "\n");
    const char *word = strstr(script, "python");
    return has_python_name(path) || (word && word < script + first);
}

// Whether the shell would find a command of that name.
static bool in_path(struct cli *c, const char *name) {
    const char *path = getenv("PATH");
    for (const char *at = path ? path : ""; *at; at += *at == ':') {
        size_t len = strcspn(at, ":");
        if (len && access(arena_printf(&c->arena, "%.*s/%s", (int)len, at, name), X_OK) == 0)
            return true;
        at += len;
    }
    return false;
}

void job_python_command(struct cli *c) {
    char first[2] = "";
    struct stat st;
    const char *file = c->count ? c->arguments[0] : "";
    bool slash = strchr(file, '/');
    cleanup_close int fd = has_python_name(file) && (slash || !in_path(c, file))
                               ? open(file, O_RDONLY | O_CLOEXEC | O_NONBLOCK)
                               : -1;
    if (fd < 0 || fstat(fd, &st) < 0 || !S_ISREG(st.st_mode))
        return;
    bool program = read(fd, first, sizeof first) == 2 && !memcmp(first, "#!", 2) && (st.st_mode & S_IXUSR);
    if (program && slash)
        return;
    char **list = arena_alloc(&c->arena, (size_t)(c->count + 2) * sizeof *list);
    int at = 0;
    if (program)
        list[at++] = arena_printf(&c->arena, "./%s", file);
    else
        list[at++] = arena_strdup(&c->arena, "python3");
    for (int i = program; i < c->count; i++)
        list[at++] = c->arguments[i];
    c->arguments = list;
    c->count = at;
}

static const char *folder_of(struct cli *c, const char *path) {
    cleanup_free char *whole = realpath(path, NULL);
    char *slash = whole ? strrchr(whole, '/') : NULL;
    return slash ? arena_strndup(&c->arena, whole, slash == whole ? 1 : (size_t)(slash - whole)) : NULL;
}

int job_source(struct cli *c, struct cli_options *o, bool dashes, struct job_source *out) {
    struct job_source s = {0};
    cleanup_buf struct buf text = {0};
    const char *image = option_get(o, "container");  // which may have a command of its own
    if (!image)
        image = option_get(o, "container-name");
    if (dashes && !c->count && !image)
        return error_set(&c->error, EINVAL, "no command given after --");
    if (dashes) {
        s.argv = c->arguments;
        s.argc = c->count;
        s.name = base_name(c->count ? c->arguments[0] : image);
        s.shown = c->count ? as_typed(c, s.argv, s.argc) : image;
        *out = s;
        return 0;
    }
    bool standard_input = !c->count || streq(c->arguments[0], "-");
    if (!c->count && isatty(STDIN_FILENO))
        return error_set(&c->error, EINVAL, "nothing to run: give a script, or a command after --");
    const char *shown = standard_input ? "standard input" : c->arguments[0];
    cleanup_close int opened = standard_input ? -1 : open_script(c->arguments[0], &c->error);
    if (!standard_input && opened < 0)
        return opened;
    int r = read_all(standard_input ? STDIN_FILENO : opened, shown, &text, &c->error);
    if (r == 0 && !standard_input && !memchr(buf_str(&text), 0, text.len))
        add_python(shown, &text);
    r = r < 0 ? r : check_script(c, shown, buf_str(&text), text.len);
    r = r < 0 ? r : read_directives(c, o, buf_str(&text));
    if (r < 0)
        return r;
    s.script = arena_strndup(&c->arena, buf_str(&text), text.len);
    s.script_len = text.len;
    s.argv = c->count ? c->arguments + 1 : NULL;
    s.argc = c->count ? c->count - 1 : 0;
    s.name = standard_input ? "script" : base_name(shown);
    s.shown = c->count ? as_typed(c, c->arguments, c->count) : "-";
    if (!standard_input && is_python(shown, s.script))
        s.python_folder = folder_of(c, shown);
    *out = s;
    return 0;
}

static bool is_variable(const char *s) {
    if (!((*s >= 'a' && *s <= 'z') || (*s >= 'A' && *s <= 'Z') || *s == '_'))
        return false;
    for (s++; *s && *s != '='; s++)
        if (!((*s >= 'a' && *s <= 'z') || (*s >= 'A' && *s <= 'Z') || (*s >= '0' && *s <= '9') || *s == '_'))
            return false;
    return true;
}

typedef VEC(const char *) text_vec;

// A later setting of the same name replaces the earlier one.
static void set_variable(text_vec *v, const char *text) {
    size_t len = strcspn(text, "=") + 1;
    for (uint32_t i = 0; i < v->len; i++)
        if (!strncmp(v->at[i], text, len)) {
            v->at[i] = text;
            return;
        }
    vec_push(v, text);
}

static const char *from_environment(const char *name) {
    size_t len = strlen(name);
    for (char **e = environ; *e; e++)
        if (!strncmp(*e, name, len) && (*e)[len] == '=')
            return *e;
    return NULL;
}

static int add_named(struct cli *c, text_vec *v, char *item) {
    char shown[64];
    if (!is_variable(item))
        return error_set(&c->error, EINVAL,
                         "--export: \"%s\" is not a variable; write NAME, NAME=VALUE, all or none",
                         str_printable(item, shown, sizeof shown));
    if (!strchr(item, '=') && secret_variable(getenv(SECRET_VARIABLES), item))
        return error_set(&c->error, EINVAL,
                         "--export: %s is a secret of this job; give it to the new one with --secret", item);
    const char *text = strchr(item, '=') ? item : from_environment(item);
    if (text)
        set_variable(v, text);
    return 0;
}

// Inside a job its secrets stay behind: the environment that is sent is kept by the controller.
static void add_everything(text_vec *v) {
    const char *secrets = getenv(SECRET_VARIABLES);
    for (char **e = environ; *e; e++)
        if (strchr(*e, '=') && str_utf8_valid(*e, strlen(*e)) && !secret_variable(secrets, *e))
            vec_push(v, *e);
}

static int add_exported(struct cli *c, const char *what, text_vec *v) {
    if (!what || streq(what, "all") || streq(what, "ALL")) {
        add_everything(v);
        return 0;
    }
    if (streq(what, "none") || streq(what, "NONE") || streq(what, "nil") || streq(what, "NIL"))
        return 0;
    char *list = arena_strdup(&c->arena, what);
    for (char *p = list; p;) {
        char *comma = strchr(p, ',');
        if (comma)
            *comma = 0;
        if (streq(p, "all") || streq(p, "ALL")) {
            add_everything(v);
        } else {
            int r = add_named(c, v, p);
            if (r < 0)
                return r;
        }
        p = comma ? comma + 1 : NULL;
    }
    return 0;
}

static int add_given(struct cli *c, const struct cli_options *o, text_vec *v) {
    uint32_t it = 0;
    char shown[64];
    for (const char *item; (item = option_next(o, "env", &it)); set_variable(v, item))
        if (!is_variable(item) || !strchr(item, '='))
            return error_set(&c->error, EINVAL, "--env is \"%s\"; write NAME=VALUE",
                             str_printable(item, shown, sizeof shown));
    return 0;
}

int job_environment(struct cli *c, const struct cli_options *o, struct job_environment *out) {
    text_vec v = {0};
    int r = add_exported(c, option_get(o, "export"), &v);
    r = r < 0 ? r : add_given(c, o, &v);
    if (r == 0)
        *out = (struct job_environment){arena_memdup(&c->arena, v.at, v.len * sizeof *v.at), v.len};
    vec_done(&v);
    return r;
}

int job_environment_change(struct cli *c, const struct cli_options *o, struct job_environment *e) {
    text_vec v = {0};
    if (option_given(o, "export"))
        return job_environment(c, o, e);
    for (uint32_t i = 0; i < e->len; i++)
        vec_push(&v, e->at[i]);
    int r = add_given(c, o, &v);
    if (r == 0)
        *e = (struct job_environment){arena_memdup(&c->arena, v.at, v.len * sizeof *v.at), v.len};
    vec_done(&v);
    return r;
}

void job_environment_python(struct cli *c, const struct job_source *source, struct job_environment *e) {
    text_vec v = {0};
    const char *before = NULL;
    if (!source->python_folder)
        return;
    for (uint32_t i = 0; i < e->len; i++) {
        vec_push(&v, e->at[i]);
        if (str_has_prefix(e->at[i], "PYTHONPATH="))
            before = e->at[i] + strlen("PYTHONPATH=");
    }
    set_variable(&v, arena_printf(&c->arena, "PYTHONPATH=%s%s%s", source->python_folder, str_empty(before) ? "" : ":",
                                  before ? before : ""));
    *e = (struct job_environment){arena_memdup(&c->arena, v.at, v.len * sizeof *v.at), v.len};
    vec_done(&v);
}

void job_request_write(const struct job_request *q, struct buf *out) {
    struct json_writer w = {.out = out};
    json_open(&w, '{');
    json_key(&w, "spec");
    schema_write_given_json(&spec_schema, q->spec, &w);
    if (q->source && q->source->script) {
        json_key(&w, "script");
        json_put_strn(&w, q->source->script, q->source->script_len);
    }
    if (q->source && q->source->upload) {
        json_key(&w, "upload");
        json_put_strn(&w, q->source->upload, q->source->upload_len);
    }
    if (q->environment) {
        json_open_key(&w, "environment", '[');
        for (uint32_t i = 0; i < q->environment->len; i++)
            json_put_str(&w, q->environment->at[i]);
        json_close(&w, ']');
    }
    if (q->key)
        json_kv_str(&w, "key", q->key);
    if (q->dry_run)
        json_kv_bool(&w, "dry_run", true);
    json_close(&w, '}');
}
