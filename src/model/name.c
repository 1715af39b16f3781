// Owns the grammar of names.
#include "model/name.h"

#include <errno.h>
#include <string.h>

#include "base/text.h"

int name_line_check(const char *what, const char *text, size_t max, struct error *e) {
    char shown[64];
    size_t len = strlen(text);
    if (len > max)
        return error_set(e, EINVAL, "%s \"%s\" has %zu bytes; at most %zu are allowed", what,
                         str_printable(text, shown, sizeof shown), len, max);
    if (!str_utf8_valid(text, len))
        return error_set(e, EINVAL, "%s \"%s\" is not valid UTF-8 text", what,
                         str_printable(text, shown, sizeof shown));
    if (str_has_control_chars(text, len))
        return error_set(e, EINVAL, "%s \"%s\" holds control or invisible characters (shown as ?); leave them out",
                         what, str_printable(text, shown, sizeof shown));
    return 0;
}

int job_name_check(const char *name, struct error *e) {
    if (str_empty(name))
        return error_set(e, EINVAL, "the job name is empty; give at least one character");
    return name_line_check("the job name", name, JOB_NAME_MAX, e);
}

static bool word_char(char c) {
    return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9');
}

bool name_valid(const char *name, size_t len) {
    if (!len || len > IDENTIFIER_MAX || !word_char(name[0]))
        return false;
    for (size_t i = 1; i < len; i++)
        if (!word_char(name[i]) && name[i] != '.' && name[i] != '_' && name[i] != '-')
            return false;
    return true;
}

int name_check(const char *what, const char *name, struct error *e) {
    char shown[80];
    if (name && name_valid(name, strlen(name)))
        return 0;
    return error_set(
        e, EINVAL,
        "%s \"%s\" is not a valid name; use 1 to %d letters, digits, '.', '_' or '-', beginning with "
        "a letter or digit",
        what, str_printable(name ? name : "", shown, sizeof shown), IDENTIFIER_MAX);
}

const char *name_list_next(const char **list, size_t *len) {
    const char *at = *list ? *list + strspn(*list, ",") : "";
    *len = strcspn(at, ",");
    *list = at + *len;
    return *len ? at : NULL;
}

bool name_list_several(const char *list) {
    return list && strchr(list, ',');
}

static bool listed(const char *list, const char *name, size_t len) {
    size_t n;
    for (const char *at; (at = name_list_next(&list, &n));)
        if (n == len && !strncmp(at, name, n))
            return true;
    return false;
}

bool name_list_have(const char *list, const char *name) {
    return name && listed(list, name, strlen(name));
}

bool name_list_meet(const char *a, const char *b) {
    size_t n;
    for (const char *at; (at = name_list_next(&a, &n));)
        if (listed(b, at, n))
            return true;
    return false;
}
