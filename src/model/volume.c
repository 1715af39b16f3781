// Owns the writing of volumes.
#include "model/volume.h"

#include <errno.h>
#include <string.h>

#include "base/text.h"
#include "model/name.h"

const char *volume_title(struct arena *a, const char *user, const char *project, const char *name) {
    return arena_printf(a, "%s%s/%s", project ? "" : "~", project ? project : user, name);
}

int volume_title_parse(const char *text, struct arena *a, struct volume_wish *out, struct error *e) {
    const char *slash = strchr(text, '/');
    char shown[64];
    *out = (struct volume_wish){.name = slash ? slash + 1 : text};
    if (slash && slash == text + (*text == '~'))
        return error_set(e, EINVAL,
                         "volume: \"%s\" names nobody before '/'; expected NAME, ~USER/NAME or PROJECT/NAME",
                         str_printable(text, shown, sizeof shown));
    if (!slash && *text == '~')
        return error_set(e, EINVAL, "volume: \"%s\" names no volume; expected ~USER/NAME",
                         str_printable(text, shown, sizeof shown));
    if (slash && *text == '~')
        out->user = arena_strndup(a, text + 1, (size_t)(slash - text) - 1);
    else if (slash)
        out->project = arena_strndup(a, text, (size_t)(slash - text));
    return name_check("volume", out->name, e);
}

int volume_wish_parse(const char *text, struct arena *a, struct volume_wish *out, struct error *e) {
    char shown[64];
    size_t n = strcspn(text, ":");
    char *first = arena_strndup(a, text, n);
    const char *rest = text[n] ? text + n + 1 : "";
    str_printable(text, shown, sizeof shown);
    if (strlen(text) > VOLUME_TEXT_MAX || str_has_control_chars(text, strlen(text)))
        return error_set(e, EINVAL, "volume: \"%s\" is too long or has control characters", shown);
    n = strcspn(rest, ":");
    const char *flag = rest[n] ? rest + n + 1 : "", *to = arena_strndup(a, rest, n);
    if (*first == '/' && (!*to || streq(to, "ro") || streq(to, "rw"))) {  // at its own path
        flag = to;
        to = first;
    }
    struct volume_wish w = {.from = first};
    int r = *first == '/' ? 0 : volume_title_parse(first, a, &w, e);
    if (r < 0)
        return r;
    w.to = to;
    w.read_only = streq(flag, "ro");
    if (*flag && !streq(flag, "ro") && !streq(flag, "rw"))
        return error_set(e, EINVAL, "volume: \"%s\" ends with neither ro nor rw; expected NAME:/PATH[:ro]",
                         shown);
    if (*w.to != '/')
        return error_set(e, EINVAL, "volume: \"%s\" does not say where; expected NAME:/PATH[:ro]", shown);
    if (!w.to[strspn(w.to, "/")])
        return error_set(e, EINVAL, "volume: \"%s\" would cover everything; give it another place", shown);
    size_t len = strlen(w.to);
    if (strstr(w.to, "/../") || (len > 2 && streq(w.to + len - 3, "/..")) || strpbrk(text, ","))
        return error_set(e, EINVAL, "volume: \"%s\": paths must have no .. and no comma", shown);
    *out = w;
    return 0;
}

int volume_wishes_check(const char *const *at, uint32_t len, struct error *e) {
    cleanup_arena struct arena a = {0};
    struct volume_wish w, before;
    if (len > VOLUMES_PER_JOB)
        return error_set(e, E2BIG, "volume: %u are given; a job may have %d", len, VOLUMES_PER_JOB);
    for (uint32_t i = 0; i < len; i++) {
        int r = volume_wish_parse(at[i], &a, &w, e);
        for (uint32_t k = 0; k < i && r == 0; k++)
            if (volume_wish_parse(at[k], &a, &before, NULL) == 0 && streq(before.to, w.to))
                r = error_set(e, EINVAL, "volume: two are to be at %.200s; give them different places", w.to);
        if (r < 0)
            return r;
    }
    return 0;
}
