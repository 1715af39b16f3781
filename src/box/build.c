// Owns building an image from a Dockerfile: buildah does it, in namespaces of its own as the job's user, with chroot
// isolation. It can write to the user's folder for images alone.
//   buildah/storage   its layers, which later builds of the user begin from
//   work/build.PID    everything else of this build; goes with it
// What a build leaves when it is killed is removed by the next one of the user.
#include <ctype.h>
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/cleanup.h"
#include "base/text.h"
#include "cache.h"
#include "model/units.h"
#include "pip.h"

enum {
    ARGS_MAX = 512,
    DOCKERFILE_MAX = 1 << 20,
    SITE_MAX = 256 << 10,
    TAGS_MAX = 32,
    HOSTS_MAX = 32,
    ROOM_FACTOR = 3
};

struct build {
    const struct box_wish *w;
    struct box_cache cache;
    struct arena *a;
    const char *work;  // its folder
    const char *context, *file, *push;
    const char *tags[TAGS_MAX];
    uint32_t ntags;
    const char *hosts[HOSTS_MAX];  // registries that are asked without TLS
    uint32_t nhosts;
    struct box_list options;  // for buildah as they are
    bool insecure;
    int lock;
};

static const char *const registry_file = "registries.conf";

// What the command line has checked already.
static int read_options(struct build *b, struct error *e) {
    static const char *const passed[] = {"--build-arg", "--target", "--label", "--platform", "--pull"};
    for (int i = 1; i < b->w->argc; i++) {
        const char *word = b->w->argv[i], *value = i + 1 < b->w->argc ? b->w->argv[i + 1] : NULL;
        bool taken = false;
        if (streq(word, "--no-cache") || streq(word, "--insecure")) {
            if (streq(word, "--insecure"))
                b->insecure = true;
            else
                box_list_add(&b->options, b->a, word);
            continue;
        }
        if (*word != '-' || streq(word, "-")) {
            if (b->context)
                return error_set(e, EINVAL, "build: two folders, %s and %s; expected one", b->context, word);
            b->context = word;
            continue;
        }
        if (!value)
            return error_set(e, EINVAL, "build: %s needs a value", word);
        for (size_t k = 0; k < sizeof passed / sizeof *passed; k++)
            if (streq(word, passed[k])) {
                box_list_add(&b->options, b->a, arena_printf(b->a, "%s=%s", word, value));
                taken = true;
            }
        if (streq(word, "--file"))
            b->file = value;
        else if (streq(word, "--push"))
            b->push = value;
        else if (streq(word, "--tag") && b->ntags < TAGS_MAX)
            b->tags[b->ntags++] = value;
        else if (!taken)
            return error_set(e, EINVAL, "build: %s is not understood", word);
        i++;
    }
    if (!b->context || !b->ntags)
        return error_set(e, EINVAL, "build needs a name and a folder: -t NAME FOLDER");
    for (uint32_t i = 0; i < b->ntags; i++)
        if (!box_local_title(b->tags[i], b->a))
            return error_set(
                e, EINVAL, "\"%.80s\" cannot be the name of an image; expected NAME[:TAG] or HOST/NAME[:TAG]",
                b->tags[i]);
    return 0;
}

// All that the user's builds have here may take: the layers, and the image that they become.
static uint64_t room(const struct build *b) {
    return b->w->cache_bytes > UINT64_MAX / ROOM_FACTOR ? UINT64_MAX : b->w->cache_bytes * ROOM_FACTOR;
}

static bool has_room(void *ctx) {
    const struct build *b = ctx;
    cleanup_arena struct arena own = {0};
    struct box_cache c = {.folder = b->w->cache, .a = &own};
    const char *storage = arena_printf(&own, "%s/buildah", b->w->cache);
    return box_cache_size(&c, storage) + box_cache_size(&c, b->work) <= room(b);
}

static int too_large(const struct build *b, struct error *e) {
    char may[UNIT_TEXT_MAX];
    return error_set(
        e, EFBIG,
        "the build was ended: it takes more than %s on this node, which is %d times what is kept of "
        "images per user (image_cache); send or make less",
        size_format(room(b), may), ROOM_FACTOR);
}

static int tool(struct build *b, char **argv, bool show, struct buf *errors) {
    struct box_tool t = {.argv = argv,
                         .folder = b->w->cache,
                         .temporary = b->work,
                         .sees = b->context,
                         .network = true,
                         .as_root = true,
                         .show = show,
                         .pretend_ids = true,
                         .errors = errors,
                         .allowed = has_room,
                         .allowed_ctx = b};
    return box_tool_run(&t);
}

// buildah with its storage; the rest follows.
static uint32_t buildah(const struct build *b, char **argv) {
    uint32_t n = 0;
    argv[n++] = "buildah";
    argv[n++] = "--root";
    argv[n++] = arena_printf(b->a, "%s/buildah/storage", b->w->cache);
    argv[n++] = "--runroot";
    argv[n++] = arena_printf(b->a, "%s/buildah/run", b->w->cache);
    argv[n++] = "--storage-driver";
    argv[n++] = "overlay";
    argv[n++] = "--registries-conf";
    argv[n++] = arena_printf(b->a, "%s/%s", b->work, registry_file);
    return n;
}

// Containers that builds which were killed have left. Only when no other build of the user runs here.
static void clear_left_behind(struct build *b) {
    char *argv[ARGS_MAX] = {0};
    cleanup_buf struct buf errors = {0};
    if (flock(b->lock, LOCK_EX | LOCK_NB) == 0) {
        uint32_t n = buildah(b, argv);
        argv[n++] = "rm";
        argv[n++] = "--all";
        tool(b, argv, false, &errors);
    }
    while (flock(b->lock, LOCK_SH) < 0 && errno == EINTR)
        ;
}

static int open_storage(struct build *b, struct error *e) {
    static const char *const names[] = {"buildah", "buildah/storage", "buildah/run"};
    for (size_t i = 0; i < sizeof names / sizeof *names; i++)
        if (mkdir(arena_printf(b->a, "%s/%s", b->w->cache, names[i]), 0700) < 0 && errno != EEXIST)
            return error_set(e, errno, "the folder for images %s cannot be written: %m", b->w->cache);
    b->lock =
        open(box_cache_path(&b->cache, "locks", "builds"), O_RDWR | O_CREAT | O_CLOEXEC | O_NOFOLLOW, 0600);
    if (b->lock < 0 || mkdir(b->work, 0700) < 0)
        return error_set(e, errno, "the folder for images %s cannot be written: %m", b->w->cache);
    return 0;
}

// A context that was sent: an archive on standard input.
static int unpack_context(struct build *b, struct error *e) {
    cleanup_buf struct buf errors = {0};
    const char *folder = arena_printf(b->a, "%s/context", b->work);
    char *argv[] = {"tar", "-x", "--no-same-owner", "--no-same-permissions", "-C", arena_strdup(b->a, folder),
                    NULL};
    struct box_tool t = {.argv = argv,
                         .folder = folder,
                         .input = dup(STDIN_FILENO),
                         .errors = &errors,
                         .allowed = has_room,
                         .allowed_ctx = b};
    if (mkdir(folder, 0700) < 0)
        return error_set(e, errno, "%s cannot be made: %m", folder);
    int status = box_tool_run(&t);
    close(t.input);
    if (status == -EFBIG)
        return too_large(b, e);
    if (status != 0)
        return error_set(e, EBADMSG, "the build's folder, sent as an archive, cannot be unpacked: %s",
                         box_tool_last_words(&errors, b->a));
    b->context = folder;
    return 0;
}

static int find_files(struct build *b, struct error *e) {
    static const char *const usual[] = {"Containerfile", "Dockerfile"};
    struct stat st;
    int rc = streq(b->context, "-") ? unpack_context(b, e) : 0;
    if (rc < 0)
        return rc;
    if (stat(b->context, &st) < 0 || !S_ISDIR(st.st_mode))
        return error_set(
            e, ENOENT,
            "the build's folder %s does not exist on this node; put it on storage that the nodes "
            "share, or send it with --upload",
            b->context);
    if (b->file && *b->file != '/')
        b->file = arena_printf(b->a, "%s/%s", b->context, b->file);
    for (size_t i = 0; i < sizeof usual / sizeof *usual && !b->file; i++)
        if (access(arena_printf(b->a, "%s/%s", b->context, usual[i]), R_OK) == 0)
            b->file = arena_printf(b->a, "%s/%s", b->context, usual[i]);
    if (!b->file || access(b->file, R_OK) < 0)
        return error_set(e, ENOENT, "there is no Dockerfile%s%s; name it with -f", b->file ? " " : " in ",
                         b->file ? b->file : b->context);
    return 0;
}

// Registries of this machine that the text names.
static void find_hosts(struct build *b, const char *text) {
    for (const char *p = text; *p;) {
        size_t n = strcspn(p, " \t\r\n=\"'/");
        const char *host = arena_strndup(b->a, p, n < 128 ? n : 128);
        bool known = false;
        for (uint32_t i = 0; i < b->nhosts; i++)
            known |= streq(b->hosts[i], host);
        if (p[n] == '/' && n < 128 &&
            (b->insecure ? strpbrk(host, ".:") != NULL : box_source_loopback(host)) && !known &&
            b->nhosts < HOSTS_MAX &&
            !host[strspn(host, "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789.:-[]")])
            b->hosts[b->nhosts++] = host;
        p += n;
        p += strcspn(p, " \t\r\n=\"'");  // a host comes first in a word
        p += strspn(p, " \t\r\n=\"'");
    }
}

// The site's registries, and those that are asked without TLS. Names without a host are of docker.io, unless the site
// says otherwise.
static int write_registries(struct build *b, struct error *e) {
    cleanup_buf struct buf site = {0}, file = {0}, out = {0};
    box_cache_read("/etc/containers/registries.conf", &site, SITE_MAX);
    box_cache_read(b->file, &file, DOCKERFILE_MAX);
    find_hosts(b, buf_str(&file));
    for (uint32_t i = 0; i < b->options.len; i++)
        find_hosts(b, b->options.at[i]);
    const char *key = strstr(buf_str(&site), "\nunqualified-search-registries");
    if (!key && !str_has_prefix(buf_str(&site), "unqualified-search-registries"))
        buf_adds(&out, "unqualified-search-registries = [\"docker.io\"]\n");
    buf_adds(&out, buf_str(&site));
    for (uint32_t i = 0; i < b->nhosts; i++)
        buf_addf(&out, "\n[[registry]]\nlocation = \"%s\"\ninsecure = true\n", b->hosts[i]);
    int rc = box_cache_write(&b->cache, arena_printf(b->a, "%s/%s", b->work, registry_file), buf_str(&out));
    return rc < 0 ? error_set(e, -rc, "%s cannot be written: %s", b->work, strerror(-rc)) : 0;
}

// apt changes to a user of its own for downloads, and checks that it did.
static void add_apt(struct build *b, char **argv, uint32_t *n) {
    cleanup_buf struct buf file = {0};
    const char *path = arena_printf(b->a, "%s/apt.conf", b->work);
    if (!box_cache_read(b->file, &file, DOCKERFILE_MAX) || !strstr(buf_str(&file), "apt") ||
        box_cache_write(&b->cache, path, "APT::Sandbox::User \"root\";\n") < 0)
        return;
    argv[(*n)++] = "--volume";
    argv[(*n)++] = arena_printf(b->a, "%s:/etc/apt/apt.conf.d/99acequia-build:ro", path);
}

static void add_pip(struct build *b) {
    cleanup_buf struct buf file = {0};
    if (box_cache_read(b->file, &file, DOCKERFILE_MAX) && strstr(buf_str(&file), "pip"))
        box_pip_settings(&b->cache, "/etc/pip.conf", b->work, &b->options);
}

static int failed(const struct build *b, const char *what, int status, struct error *e) {
    if (status == -EFBIG)
        return too_large(b, e);
    if (status < 0)
        return error_set(e, -status, "%s: buildah cannot be run: %s", what, strerror(-status));
    if (WIFSIGNALED(status))
        return error_set(e, EINTR, "%s: buildah was killed by signal %d", what, WTERMSIG(status));
    return error_set(e, EIO, "%s; its last lines above say why", what);
}

static int make(struct build *b, struct error *e) {
    char *argv[ARGS_MAX] = {0};
    uint32_t n = buildah(b, argv);
    argv[n++] = "build";
    argv[n++] = "--isolation=chroot";
    argv[n++] = "--layers";
    argv[n++] = "--format=oci";
    argv[n++] = "--cap-drop=CAP_SYS_CHROOT";  // the way out of a chroot
    argv[n++] = "--iidfile";
    argv[n++] = arena_printf(b->a, "%s/id", b->work);
    argv[n++] = "--tag";
    argv[n++] = arena_printf(b->a, "localhost/%s", box_local_title(b->tags[0], b->a));
    add_pip(b);
    for (uint32_t i = 0; i < b->options.len && n < ARGS_MAX - 8; i++)
        argv[n++] = arena_strdup(b->a, b->options.at[i]);
    add_apt(b, argv, &n);
    argv[n++] = "--file";
    argv[n++] = arena_strdup(b->a, b->file);
    argv[n++] = arena_strdup(b->a, b->context);
    int status = tool(b, argv, true, NULL);
    if (status != 0)
        return failed(b, "the image was not built", status, e);
    return 0;
}

static int keep(struct build *b, struct error *e) {
    char *argv[ARGS_MAX] = {0};
    cleanup_buf struct buf id = {0}, errors = {0};
    const char *folder = arena_printf(b->a, "%s/image", b->work);
    if (!box_cache_read(arena_printf(b->a, "%s/id", b->work), &id, 256) || !id.len || mkdir(folder, 0700) < 0)
        return error_set(e, EIO, "the image was built, but buildah did not say which it is");
    uint32_t n = buildah(b, argv);
    argv[n++] = "push";
    argv[n++] = "--quiet";
    const char *digest = strchr(id.data, ':') ? strchr(id.data, ':') + 1 : id.data;
    argv[n++] = arena_strndup(b->a, digest, strcspn(digest, "\n"));
    argv[n++] = arena_printf(b->a, "oci:%s/layout:image", folder);
    int status = tool(b, argv, false, &errors);
    if (status != 0 && strstr(buf_str(&errors), "o space left on device"))
        return error_set(e, ENOSPC, "the image was built and cannot be kept: no space left in %s",
                         b->w->cache);
    if (status != 0)
        return error_set(e, EIO, "the image was built and cannot be kept: %s",
                         box_tool_last_words(&errors, b->a));
    int rc = box_local_put(b->w, folder, b->tags[0], b->a, e);
    for (uint32_t i = 1; i < b->ntags && rc == 0; i++)
        rc = box_local_tag(b->w->cache, b->tags[0], b->tags[i], b->a, e);
    if (rc == 0)
        printf("image %s is ready; run it with --container %s\n", box_local_title(b->tags[0], b->a),
               b->tags[0]);
    fflush(stdout);
    return rc;
}

// The layers that builds begin from are a convenience: beyond the user's room they go, all of them, with the last build
// that may have begun from one.
static void bound_layers(struct build *b) {
    char *argv[ARGS_MAX] = {0};
    cleanup_buf struct buf errors = {0};
    if (box_cache_size(&b->cache, arena_printf(b->a, "%s/buildah/storage", b->w->cache)) <=
            b->w->cache_bytes ||
        flock(b->lock, LOCK_EX | LOCK_NB) < 0)
        return;
    uint32_t n = buildah(b, argv);
    argv[n++] = "rmi";
    argv[n++] = "--all";
    argv[n++] = "--force";
    tool(b, argv, false, &errors);
}

void box_build_forget(const struct box_wish *w, const char *name, struct arena *a) {
    struct build b = {.w = w, .a = a, .work = w->cache, .cache = {.folder = w->cache, .image = name, .a = a}};
    char *argv[ARGS_MAX] = {0};
    cleanup_buf struct buf errors = {0};
    if (access(arena_printf(a, "%s/buildah/storage", w->cache), F_OK) < 0 || !box_tool_found("buildah"))
        return;
    uint32_t n = buildah(&b, argv) - 2;  // without a file of registries
    argv[n++] = "rmi";
    argv[n++] = arena_printf(a, "localhost/%s", box_local_title(name, a));
    argv[n] = NULL;
    tool(&b, argv, false, &errors);
}

static int push(const struct build *b, struct error *e) {
    char *argv[] = {"push", arena_strdup(b->a, b->tags[0]), arena_strdup(b->a, b->push),
                    b->insecure ? "--insecure" : NULL, NULL};
    struct box_wish w = *b->w;
    w.argv = argv;
    w.argc = b->insecure ? 4 : 3;
    return box_task(&w, b->a, e);
}

int box_build(const struct box_wish *w, struct arena *a, struct error *e) {
    struct build b = {.w = w, .a = a, .lock = -1, .cache = {.folder = w->cache, .image = "build", .a = a}};
    const char *name = arena_printf(a, "build.%d", getpid());
    b.work = box_cache_path(&b.cache, "work", name);
    int rc = read_options(&b, e);
    if (rc == 0 && !box_tool_found("buildah"))
        rc = error_set(
            e, ENOENT,
            "building an image needs buildah, which is not installed on this node; the administrator "
            "installs it with: apt install buildah");
    rc = rc < 0 ? rc : open_storage(&b, e);
    box_tool_forward_signals();
    rc = rc < 0 ? rc : find_files(&b, e);
    rc = rc < 0 ? rc : write_registries(&b, e);
    if (rc == 0)
        clear_left_behind(&b);
    rc = rc < 0 ? rc : make(&b, e);
    rc = rc < 0 ? rc : keep(&b, e);
    if (b.lock >= 0) {
        if (rc < 0)
            clear_left_behind(&b);
        else
            bound_layers(&b);
        box_remove(box_cache_path(&b.cache, "work", ""), name);
        close(b.lock);
    }
    return rc == 0 && b.push ? push(&b, e) : rc;
}
