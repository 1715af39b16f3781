// Owns the writing of a container's mounts.
#include "model/mountspec.h"

#include <errno.h>
#include <string.h>

#include "base/text.h"

static int parse_one(const char *what, const char *whole, struct arena *a, struct mount_spec *out, struct error *e) {
    size_t n = strcspn(whole, ":");
    struct mount_spec m = {.from = arena_strndup(a, whole, n)};
    const char *rest = whole[n] ? whole + n + 1 : "";
    n = strcspn(rest, ":");
    const char *flag = rest[n] ? rest + n + 1 : "";
    m.to = n ? arena_strndup(a, rest, n) : m.from;
    if (!*flag && (streq(m.to, "ro") || streq(m.to, "rw"))) {  // "SRC:ro": at its own path
        flag = m.to;
        m.to = m.from;
    }
    m.read_only = streq(flag, "ro");
    if (*flag && !streq(flag, "ro") && !streq(flag, "rw"))
        return error_set(e, EINVAL, "%s: \"%s\" in \"%s\" is not understood; expected SRC[:DST[:ro|rw]]", what, flag,
                         whole);
    if (*m.from != '/' || *m.to != '/')
        return error_set(e, EINVAL, "%s: \"%s\" in \"%s\" is not an absolute path; expected SRC[:DST[:ro|rw]]", what,
                         *m.from != '/' ? m.from : m.to, whole);
    if (m.to[strspn(m.to, "/")] == 0)
        return error_set(e, EINVAL, "%s: \"%s\" would cover the whole image; give it another place", what, whole);
    *out = m;
    return 0;
}

int spec_mounts_parse(const char *what, const char *text, struct arena *a, struct mount_specs *out,
                      struct error *e) {
    struct mount_specs s = {.at = arena_alloc(a, MOUNT_SPECS_MAX * sizeof *s.at)};
    for (const char *p = text; *p;) {
        size_t n = strcspn(p, ",");
        if (n && s.len == MOUNT_SPECS_MAX)
            return error_set(e, E2BIG, "%s: more than %d mounts, which is the most", what, MOUNT_SPECS_MAX);
        int rc = n ? parse_one(what, arena_strndup(a, p, n), a, &s.at[s.len], e) : 0;
        if (rc < 0)
            return rc;
        s.len += n > 0;
        p += n + (p[n] == ',');
    }
    *out = s;
    return 0;
}
