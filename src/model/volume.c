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

static bool made_of(const char *text, const char *others) {
    for (const char *p = text; *p; p++)
        if (!strchr("abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789", *p) &&
            !strchr(others, *p))
            return false;
    return *text;
}

// "s3://bucket/prefix?endpoint=https://store:9000"
static int bucket_parse(const char *text, const char *shown, struct arena *a, struct volume_source *out,
                        struct error *e) {
    const char *p = text + strlen("s3://"), *query = strchr(p, '?');
    size_t n = strcspn(p, "/?");
    out->bucket = arena_strndup(a, p, n);
    if (n < 3 || n > 63 || !made_of(out->bucket, ".-_") || strchr(".-", *out->bucket))
        return error_set(e, EINVAL,
                         "at: \"%s\" names no bucket; expected s3://BUCKET[/PREFIX][?endpoint=URL]", shown);
    const char *prefix = arena_strndup(a, p + n, query ? (size_t)(query - p) - n : strlen(p + n));
    prefix += strspn(prefix, "/");
    if (strstr(prefix, "..") || strchr(prefix, '\\'))
        return error_set(e, EINVAL, "at: \"%s\": the prefix must have no .. and no backslash", shown);
    out->prefix = *prefix ? prefix : NULL;
    if (!query)
        return 0;
    if (!str_has_prefix(query, "?endpoint="))
        return error_set(e, EINVAL, "at: \"%s\": after '?' only endpoint=URL is understood", shown);
    out->endpoint = arena_strdup(a, query + strlen("?endpoint="));
    const char *host = strstr(out->endpoint, "://");
    if (strchr(out->endpoint, '@'))
        return error_set(e, EINVAL,
                         "at: an endpoint must not hold a password; jobs find the user's own in ~/.aws or in "
                         "AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY, for example by --secret");
    if (!host || !(str_has_prefix(out->endpoint, "http://") || str_has_prefix(out->endpoint, "https://")) ||
        !made_of(host + 3, ".-:/[]_"))
        return error_set(e, EINVAL, "at: \"%s\": the endpoint is not an address as https://HOST[:PORT]",
                         shown);
    return 0;
}

// "nfs://server/export"
static int nfs_parse(const char *text, const char *shown, struct arena *a, struct volume_source *out,
                     struct error *e) {
    const char *p = text + strlen("nfs://");
    size_t n = strcspn(p, "/");
    out->server = arena_strndup(a, p, n);
    out->path = arena_strdup(a, p + n);
    if (!made_of(out->server, ".-:[]") || *out->server == '-' || *out->path != '/')
        return error_set(e, EINVAL, "at: \"%s\" names no export; expected nfs://SERVER/PATH", shown);
    return 0;
}

int volume_source_parse(const char *text, struct arena *a, struct volume_source *out, struct error *e) {
    char shown[80];
    size_t len = strlen(text);
    struct volume_source s = {.place = VOLUME_FOLDER};
    str_printable(text, shown, sizeof shown);
    if (len > VOLUME_TEXT_MAX || str_has_control_chars(text, len) || strchr(text, ','))
        return error_set(e, EINVAL, "at: \"%s\" is too long or has a comma or control characters", shown);
    if (*text != '/' && strpbrk(text, " \"'"))
        return error_set(e, EINVAL, "at: \"%s\": an address has no spaces and no quotes", shown);
    int r = 0;
    if (str_has_prefix(text, "s3://")) {
        s.place = VOLUME_BUCKET;
        r = bucket_parse(text, shown, a, &s, e);
    } else if (str_has_prefix(text, "nfs://")) {
        s.place = VOLUME_NFS;
        r = nfs_parse(text, shown, a, &s, e);
    } else if (*text != '/') {
        r = error_set(e, EINVAL,
                      "at: \"%s\" is not a place for a volume; expected /FOLDER, nfs://SERVER/PATH or "
                      "s3://BUCKET[/PREFIX]",
                      shown);
    } else if (strchr(text, ':')) {
        r = error_set(e, EINVAL, "at: \"%s\": the path of a folder must have no ':'", shown);
    }
    if (r == 0 && s.place != VOLUME_BUCKET && (strstr(text, "/..") || !text[strspn(text, "/")]))
        r = error_set(e, EINVAL, "at: \"%s\" is not a path that can be a volume", shown);
    if (r == 0)
        *out = s;
    return r;
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
