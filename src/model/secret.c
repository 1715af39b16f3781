// Owns the grammar of what a job asks for.
#include "model/secret.h"

#include <ctype.h>
#include <errno.h>
#include <string.h>

#include "base/text.h"
#include "model/name.h"

static bool is_variable(const char *v) {
    size_t n = strlen(v);
    if (!n || n > SECRET_VARIABLE_MAX || isdigit((unsigned char)*v))
        return false;
    for (; *v; v++)
        if (!isalnum((unsigned char)*v) && *v != '_')
            return false;
    return true;
}

// What the agent sets itself, and what decides which code a program runs.
static bool is_reserved(const char *v) {
    static const char *const prefixes[] = {"ACEQUIA_", "SLURM", "LD_"};
    for (size_t i = 0; i < sizeof prefixes / sizeof *prefixes; i++)
        if (str_has_prefix(v, prefixes[i]))
            return true;
    return streq(v, "PATH") || streq(v, "HOME") || streq(v, "USER") || streq(v, "SHELL");
}

static const char *variable_of(const char *name, bool file, struct arena *a) {
    char *v = arena_printf(a, "%s%s%s", isdigit((unsigned char)*name) ? "_" : "", name, file ? "_FILE" : "");
    for (char *p = v; *p; p++)
        if (!isalnum((unsigned char)*p))
            *p = '_';
    return v;
}

int secret_wish_parse(const char *text, struct arena *a, struct secret_wish *out, struct error *e) {
    size_t n = strcspn(text, ":=");
    const char *rest = text + n;
    char shown[64];
    struct secret_wish w = {.file = str_has_prefix(rest, ":file")};
    str_printable(text, shown, sizeof shown);
    if (w.file)
        rest += strlen(":file");
    if (!name_valid(text, n) || (*rest && *rest != '='))
        return error_set(e, EINVAL,
                         "secret: \"%s\" is not understood; expected NAME, NAME=VARIABLE, NAME:file or "
                         "NAME:file=VARIABLE",
                         shown);
    w.name = arena_strndup(a, text, n);
    w.variable = *rest ? arena_strdup(a, rest + 1) : variable_of(w.name, w.file, a);
    if (!is_variable(w.variable))
        return error_set(e, EINVAL, "secret: \"%s\" is no name of a variable; use letters, digits and '_'",
                         shown);
    if (is_reserved(w.variable))
        return error_set(e, EINVAL, "secret: the variable %s is not free; choose another with %s=VARIABLE",
                         w.variable, w.name);
    *out = w;
    return 0;
}

int secret_wishes_check(const char *const *at, uint32_t len, struct error *e) {
    cleanup_arena struct arena a = {0};
    struct secret_wish wishes[SECRETS_PER_JOB];
    if (len > SECRETS_PER_JOB)
        return error_set(e, E2BIG, "secret: a job has at most %d", SECRETS_PER_JOB);
    for (uint32_t i = 0; i < len; i++) {
        int r = secret_wish_parse(at[i], &a, &wishes[i], e);
        if (r < 0)
            return r;
        for (uint32_t k = 0; k < i; k++) {
            if (streq(wishes[k].variable, wishes[i].variable))
                return error_set(e, EINVAL,
                                 "secret: two are given in the variable %s; name another with =VARIABLE",
                                 wishes[i].variable);
            if (wishes[i].file && wishes[k].file && streq(wishes[k].name, wishes[i].name))
                return error_set(e, EINVAL, "secret: %s is given twice as a file", wishes[i].name);
        }
    }
    return 0;
}

bool secret_variable(const char *list, const char *entry) {
    size_t len = strcspn(entry, "=");
    if (!list)
        return false;
    if (str_has_prefix(entry, SECRET_VARIABLES "=") || str_has_prefix(entry, SECRET_FILES "="))
        return true;
    size_t n;
    for (const char *at; (at = name_list_next(&list, &n));)
        if (n == len && !memcmp(at, entry, len))
            return true;
    return false;
}
