// Owns reading what images say of themselves. All of it is input from strangers: counted, bounded, and
// what is not understood is left out or refused.
#include <errno.h>
#include <string.h>

#include "base/json.h"
#include "base/text.h"
#include "box/box.h"

enum { CONFIG_VALUES_MAX = 100000 };

void box_list_add(struct box_list *l, struct arena *a, const char *text) {
    if (l->len >= BOX_LIST_MAX)
        return;
    if (l->len + 1 >= l->cap) {
        uint32_t cap = l->cap ? l->cap * 2 : 16;
        const char **grown = arena_alloc(a, cap * sizeof *grown);
        if (l->len)
            memcpy(grown, l->at, l->len * sizeof *grown);
        l->at = grown;
        l->cap = cap;
    }
    l->at[l->len++] = text;
    l->at[l->len] = NULL;
}

static void take_list(const struct json *o, const char *key, struct arena *a, struct box_list *out) {
    const struct json *list = json_get(o, key);
    for (uint32_t i = 0; list && list->type == JSON_ARRAY && i < list->len; i++)
        if (list->items[i].type == JSON_STRING)
            box_list_add(out, a, arena_strdup(a, list->items[i].s));
}

static const struct json *member(const struct json *o, const char *key) {
    const struct json *v = o && o->type == JSON_OBJECT ? json_get(o, key) : NULL;
    return v && v->type == JSON_OBJECT ? v : NULL;
}

static const char *text_of(const struct json *o, const char *key, struct arena *a) {
    const char *s = o ? json_str(o, key) : NULL;
    return str_empty(s) ? NULL : arena_strdup(a, s);
}

static int parse(const char *text, size_t len, struct arena *a, struct json **out, struct error *e) {
    int rc = json_parse_few(text, len, CONFIG_VALUES_MAX, a, out, e);
    if (rc == 0 && (*out)->type != JSON_OBJECT)
        rc = error_set(e, EBADMSG, "it is not a JSON object");
    return rc;
}

int box_config_image(const char *text, size_t len, struct arena *a, struct box_config *out, struct error *e) {
    struct json *top;
    int rc = parse(text, len, a, &top, e);
    const struct json *c = rc == 0 ? member(top, "config") : NULL;
    if (!c)
        return rc;  // an image may leave it out
    take_list(c, "Env", a, &out->env);
    take_list(c, "Entrypoint", a, &out->entrypoint);
    take_list(c, "Cmd", a, &out->command);
    out->workdir = text_of(c, "WorkingDir", a);
    return 0;
}

// Of the mounts only what binds a folder or file: the kernel's own file systems are there anyway.
static void take_bundle_mount(const struct json *m, struct arena *a, struct box_config *out) {
    const struct json *options = m->type == JSON_OBJECT ? json_get(m, "options") : NULL;
    const char *type = m->type == JSON_OBJECT ? json_str(m, "type") : NULL;
    struct mount_spec mount = {0};
    bool bind = streq(type, "bind");
    if (m->type != JSON_OBJECT || out->mounts.len >= BOX_LIST_MAX)
        return;
    mount.from = text_of(m, "source", a);
    mount.to = text_of(m, "destination", a);
    for (uint32_t i = 0; options && options->type == JSON_ARRAY && i < options->len; i++) {
        const char *o = options->items[i].type == JSON_STRING ? options->items[i].s : "";
        bind = bind || streq(o, "bind") || streq(o, "rbind");
        mount.read_only = mount.read_only || streq(o, "ro");
    }
    if (bind && mount.from && mount.to && *mount.to == '/')
        vec_push(&out->mounts, mount);
}

int box_config_bundle(const char *text, size_t len, struct arena *a, struct box_config *out, struct error *e) {
    struct json *top;
    int rc = parse(text, len, a, &top, e);
    if (rc < 0)
        return rc;
    const struct json *process = member(top, "process"), *mounts = json_get(top, "mounts");
    out->rootfs = text_of(member(top, "root"), "path", a);
    if (process) {
        take_list(process, "env", a, &out->env);
        take_list(process, "args", a, &out->command);
        out->workdir = text_of(process, "cwd", a);
    }
    for (uint32_t i = 0; mounts && mounts->type == JSON_ARRAY && i < mounts->len; i++)
        take_bundle_mount(&mounts->items[i], a, out);
    return 0;
}
