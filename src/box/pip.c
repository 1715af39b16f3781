// Owns what pip inside a build knows of the site: where packages come from, and which certificates are trusted. It is
// taken from the job's environment (PIP_INDEX_URL and its like), else from the node's /etc/pip.conf, and lies over the
// image's /etc/pip.conf while the build runs: nothing of it becomes part of the image.
#include <string.h>
#include <unistd.h>

#include "base/text.h"
#include "cache.h"
#include "pip.h"

#define CERTIFICATES "/etc/acequia-pip.crt"
enum { SETTINGS_MAX = 64 << 10, CERTIFICATES_MAX = 4 << 20 };

static const struct {
    const char *key, *variable;
} settings[] = {{"index-url", "PIP_INDEX_URL"},
                {"extra-index-url", "PIP_EXTRA_INDEX_URL"},
                {"trusted-host", "PIP_TRUSTED_HOST"},
                {"timeout", "PIP_DEFAULT_TIMEOUT"},
                {"proxy", "PIP_PROXY"},
                {"cert", "PIP_CERT"}};

// What follows `key =` in a line, or NULL.
static const char *value_at(const char *line, const char *key) {
    size_t n = strlen(key);
    if (strncmp(line, key, n) != 0)
        return NULL;
    line += n + strspn(line + n, " \t");
    return *line == '=' || *line == ':' ? line + 1 : NULL;
}

// Of a file "key = value" with sections; the section does not matter here. Lines that begin with white space go on with
// the value before them, as pip writes several addresses; comments between them do not. NULL: it has none.
const char *box_pip_value(const char *text, const char *key, struct arena *a) {
    cleanup_buf struct buf value = {0};
    bool inside = false;
    for (const char *p = text; *p; p += *p == '\n') {
        const char *line = p, *word = p + strspn(p, " \t\r");
        p += strcspn(p, "\n");
        if (word >= p || *word == '#' || *word == ';')
            continue;
        if (word == line) {
            if (value.len)
                break;
            word = value_at(line, key);
            inside = word != NULL;
        }
        if (!inside)
            continue;
        word += strspn(word, " \t");
        size_t len = word < p ? (size_t)(p - word) : 0;
        while (len && strchr(" \t\r", word[len - 1]))
            len--;
        if (len && value.len)
            buf_addc(&value, ' ');
        buf_add(&value, word, len);
    }
    return value.len ? arena_strndup(a, value.data, value.len) : NULL;
}

int box_pip_settings(const struct box_cache *c, const char *node_file, const char *work, struct box_list *options) {
    cleanup_buf struct buf site = {0}, out = {0}, certificates = {0};
    bool certified = false;
    box_cache_read(node_file, &site, SETTINGS_MAX);
    for (size_t i = 0; i < sizeof settings / sizeof *settings; i++) {
        const char *own = getenv(settings[i].variable);
        const char *value = !str_empty(own) ? own : box_pip_value(buf_str(&site), settings[i].key, c->a);
        if (str_empty(value) || str_has_control_chars(value, strlen(value)))
            continue;
        if (streq(settings[i].key, "cert")) {
            certified = box_cache_read(value, &certificates, CERTIFICATES_MAX);
            value = CERTIFICATES;
            if (!certified)
                continue;
        }
        buf_addf(&out, "%s%s = %s\n", out.len ? "" : "[global]\n", settings[i].key, value);
    }
    if (!out.len)
        return 0;
    const char *file = arena_printf(c->a, "%s/pip.conf", work), *trusted = arena_printf(c->a, "%s/pip.crt", work);
    int r = box_cache_write(c, file, buf_str(&out));
    if (r == 0 && certified)
        r = box_cache_write(c, trusted, buf_str(&certificates));
    if (r < 0)
        return r;
    box_list_add(options, c->a, arena_printf(c->a, "--volume=%s:/etc/pip.conf:ro", file));
    if (certified)
        box_list_add(options, c->a, arena_printf(c->a, "--volume=%s:" CERTIFICATES ":ro", trusted));
    return 0;
}
