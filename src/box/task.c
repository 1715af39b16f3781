// Owns work on a user's images that is asked for as a job, or by docker's words inside one: build, push, pull, tag,
// remove. It is done by this process and the programs that it starts; its output is the job's.
#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include "base/cleanup.h"
#include "base/text.h"
#include "cache.h"

enum { ARGS_MAX = 24 };

struct options {
    const char *names[2];
    int count;
    bool insecure, container;
};

// What the command line has checked already.
static int read_options(const struct box_wish *w, struct options *o, struct error *e) {
    for (int i = 1; i < w->argc; i++) {
        if (streq(w->argv[i], "--insecure"))
            o->insecure = true;
        else if (streq(w->argv[i], "--container"))
            o->container = true;
        else if (*w->argv[i] == '-' || o->count == 2)
            return error_set(e, EINVAL, "%s: \"%s\" is not understood", w->argv[0], w->argv[i]);
        else
            o->names[o->count++] = w->argv[i];
    }
    return 0;
}

static int push(const struct box_wish *w, const struct options *o, struct arena *a, struct error *e) {
    struct box_source from, to;
    char *argv[ARGS_MAX] = {0};
    struct box_cache c = {.folder = w->cache, .image = o->names[0], .a = a};
    if (o->count != 2)
        return error_set(e, EINVAL, "push needs an image and where it goes: NAME HOST/NAME:TAG");
    if (!box_local_find(w->cache, o->names[0], a, &from))
        return error_set(e, ENOENT,
                         "image %s does not exist on this node; 'acequia image list' shows where it is",
                         o->names[0]);
    const char *target =
        str_has_prefix(o->names[1], "docker://") ? o->names[1] : arena_printf(a, "docker://%s", o->names[1]);
    int rc = box_source_find(target, a, &to, e);
    const char *name = arena_printf(a, "push.%d", getpid());
    if (rc == 0 && mkdir(box_cache_path(&c, "work", name), 0700) < 0)
        rc = error_set(e, errno, "the folder for images %s cannot be written: %m", w->cache);
    if (rc < 0)
        return rc;
    const char *folder = box_cache_path(&c, "work", name);
    int n = box_fetch_skopeo(argv, "copy", folder, a);
    if (to.plain_http || o->insecure)
        argv[n++] = "--dest-tls-verify=false";
    argv[n++] = "--quiet";
    argv[n++] = arena_strdup(a, from.reference);
    argv[n++] = arena_strdup(a, to.reference);
    printf("pushing %s to %s\n", o->names[0], to.reference + strlen("docker://"));
    fflush(stdout);
    rc = box_fetch_run(argv, folder, true, NULL,
                       arena_printf(a, "image %s cannot be pushed to %s", o->names[0], o->names[1]), a, e);
    box_remove(box_cache_path(&c, "work", ""), name);
    return rc;
}

static int pull(const struct box_wish *w, const struct options *o, struct arena *a, struct error *e) {
    struct box_source s;
    struct box_image image = {0};
    int rc = box_source_find(o->names[0], a, &s, e);
    if (rc == 0 && o->insecure)
        s.plain_http = true;
    return rc < 0 ? rc : box_cache_get(w->cache, w->cache_bytes, &s, o->names[0], PULL_ALWAYS, a, &image, e);
}

// The unpacked form of an image, unless something runs in it; other names of the same image go with it.
static int remove_fetched(const struct box_wish *w, const char *name, struct arena *a, struct error *e) {
    struct box_cache c = {.folder = w->cache, .image = name, .a = a};
    struct box_source s;
    if (box_source_find(name, a, &s, e) < 0)
        return -ENOENT;
    const char *digest = s.identity ? box_cache_known(&c, &s) : NULL;
    cleanup_close int all = digest ? box_cache_lock(&c, "all", NULL, e) : -1;
    const char *folder = digest ? box_cache_path(&c, "store", digest) : NULL;
    if (!folder || access(folder, F_OK) < 0)
        return error_set(e, ENOENT, "image %s does not exist on this node", name);
    if (box_cache_users(&c, folder))
        return error_set(e, EBUSY, "image %s is in use by a running job; end that first", name);
    return box_cache_discard(&c, "store", digest, e);
}

static int remove_image(const struct box_wish *w, const char *name, struct arena *a, struct error *e) {
    struct box_source s;
    if (!box_local_find(w->cache, name, a, &s))
        return remove_fetched(w, name, a, e);
    struct box_cache c = {.folder = w->cache, .image = name, .a = a};
    const char *digest = box_cache_known(&c, &s);
    if (digest && box_cache_users(&c, box_cache_path(&c, "store", digest)))
        return error_set(e, EBUSY, "image %s is in use by a running job; end that first", name);
    int rc = box_local_remove(w->cache, name, a, e);
    if (rc == 0 && digest)
        box_cache_discard(&c, "store", digest, NULL);
    if (rc == 0)
        box_build_forget(w, name, a);
    return rc;
}

static int do_task(const struct box_wish *w, struct arena *a, struct error *e) {
    struct options o = {0};
    const char *verb = w->argc ? w->argv[0] : "";
    struct box_cache c = {.folder = w->cache, .image = verb, .a = a};
    int rc = box_cache_folders(&c, e);
    if (rc < 0)
        return rc;
    box_cache_clear(w->cache, a);
    if (streq(verb, "build"))
        return box_build(w, a, e);
    if ((rc = read_options(w, &o, e)) < 0)
        return rc;
    if (!o.count)
        return error_set(e, EINVAL, "%s needs the name of an image", verb);
    if (streq(verb, "push"))
        return push(w, &o, a, e);
    if (streq(verb, "pull"))
        return pull(w, &o, a, e);
    if (streq(verb, "tag") && o.count == 2)
        return box_local_tag(w->cache, o.names[0], o.names[1], a, e);
    if (streq(verb, "remove"))
        return o.container ? box_named_remove(w->cache, o.names[0], a, e) : remove_image(w, o.names[0], a, e);
    return error_set(e, EINVAL, "\"%s\" is no work on images", verb);
}

int box_task(const struct box_wish *w, struct arena *a, struct error *e) {
    prctl(PR_SET_NAME, "acequia-image");  // not a job whose image is being fetched
    int rc = do_task(w, a, e);
    box_index_write(w->cache, a);
    return rc;
}
