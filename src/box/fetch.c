// Owns turning an image from somewhere into a folder with `rootfs` and `config.json`. skopeo copies from
// registries and archives into an OCI layout, umoci applies the layers, unsquashfs unpacks squashfs;
// nothing of that is done here.
#include <errno.h>
#include <fcntl.h>
#include <sched.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/buf.h"
#include "base/cleanup.h"
#include "base/text.h"
#include "box/box.h"

enum { ARGS_MAX = 24, DIGEST_MAX = 160 };

static int need(const char *tool, const char *package, const char *what, struct error *e) {
    if (box_tool_found(tool))
        return 0;
    return error_set(e, ENOENT, "%s needs %s, which is not installed on this node; the administrator installs it "
                     "with: apt install %s", what, tool, package);
}

static int failed(const char *what, const char *folder, const struct buf *errors, struct arena *a, struct error *e) {
    if (strstr(buf_str(errors), "o space left on device") || strstr(buf_str(errors), "isk quota exceeded"))
        return error_set(e, ENOSPC, "%s: no space left in %s", what, folder);
    const char *words = box_tool_last_words(errors, a);
    static const char *const denied[] = {"unauthorized",    "authentication required", "denied",
                                         "status code 401", "401 (Unauthorized)",      "403 (Forbidden)"};
    for (size_t i = 0; i < sizeof denied / sizeof *denied; i++)
        if (strstr(words, denied[i]))
            return error_set(
                e, EACCES,
                "%s: %s; if it needs a login, use 'skopeo login HOST' on a node, or give the file with "
                "--auth-file or --auth-secret",
                what, words);
    return error_set(e, EIO, "%s: %s", what, words);
}

int box_fetch_run(char *const *argv, const char *folder, bool network, struct buf *out, const char *what,
                  struct arena *a, struct error *e) {
    cleanup_buf struct buf errors = {0};
    struct box_tool t = {.argv = argv, .folder = folder, .network = network, .out = out, .errors = &errors};
    int status = box_tool_run(&t);
    if (status < 0)
        return error_set(e, -status, "%s: %s cannot be run: %s", what, argv[0], strerror(-status));
    if (status == 0)
        return 0;
    if (WIFSIGNALED(status))
        return error_set(e, EIO, "%s: %s was killed by signal %d", what, argv[0], WTERMSIG(status));
    return failed(what, folder, &errors, a, e);
}

// The site's rules for signatures hold where there are any.
static bool has_policy(struct arena *a) {
    const char *home = getenv("HOME");
    return access("/etc/containers/policy.json", R_OK) == 0 ||
           (home && access(arena_printf(a, "%s/.config/containers/policy.json", home), R_OK) == 0);
}

int box_fetch_skopeo(char **argv, const char *verb, const char *folder, struct arena *a) {
    int n = 0;
    argv[n++] = "skopeo";
    argv[n++] = "--tmpdir";
    argv[n++] = arena_strdup(a, folder);
    if (!has_policy(a))
        argv[n++] = "--insecure-policy";
    argv[n++] = arena_strdup(a, verb);
    return n;
}

static int skopeo(char **argv, const char *verb, const struct box_source *s, bool copy, const char *folder,
                  struct arena *a) {
    int n = box_fetch_skopeo(argv, verb, folder, a);
    if (s->plain_http)
        argv[n++] = copy ? "--src-tls-verify=false" : "--tls-verify=false";
    return n;
}

static bool is_digest(const char *text) {
    size_t n = strcspn(text, ":");
    return n && n < 16 && text[n] == ':' && strlen(text + n + 1) >= 32 && strlen(text) < DIGEST_MAX &&
           strspn(text, "abcdefghijklmnopqrstuvwxyz0123456789:") == strlen(text);
}

int box_fetch_digest(const struct box_source *s, const char *folder, struct arena *a, const char **out,
                     struct error *e) {
    cleanup_buf struct buf text = {0};
    char *argv[ARGS_MAX] = {0};
    int rc = need("skopeo", "skopeo", "this kind of image", e);
    if (rc < 0)
        return rc;
    int n = skopeo(argv, "inspect", s, false, folder, a);
    argv[n++] = "--no-tags";
    argv[n++] = "--format";
    argv[n++] = "{{.Digest}}";
    argv[n++] = arena_strdup(a, s->reference);
    rc = box_fetch_run(argv, folder, s->remote, &text, "the image cannot be had", a, e);
    if (rc < 0)
        return rc;
    char *digest = arena_strndup(a, buf_str(&text), strcspn(buf_str(&text), "\n"));
    if (!is_digest(digest))
        return error_set(e, EBADMSG, "the image cannot be fetched: skopeo reports no digest");
    *strchr(digest, ':') = '-';
    *out = digest;
    return 0;
}

static int write_whole(const char *path, const struct buf *b) {
    cleanup_close int fd = open(path, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0600);
    return fd < 0 || write(fd, buf_str(b), b->len) != (ssize_t)b->len ? -EIO : 0;
}

static int from_skopeo(const struct box_source *s, const char *folder, struct arena *a, struct error *e) {
    static const char unpack[] = "the image cannot be unpacked";
    cleanup_buf struct buf config = {0};
    char *argv[ARGS_MAX] = {0};
    char *layout = arena_printf(a, "%s/oci", folder), *image = arena_printf(a, "%s:image", layout);
    char *stored = arena_printf(a, "oci:%s", image);
    struct box_source local = {.reference = stored};
    int rc = need("umoci", "umoci", "this kind of image", e);
    if (rc < 0)
        return rc;
    int n = skopeo(argv, "copy", s, true, folder, a);
    argv[n++] = "--quiet";
    argv[n++] = arena_strdup(a, s->reference);
    argv[n++] = stored;
    argv[n] = NULL;
    rc = box_fetch_run(argv, folder, s->remote, NULL, "the image cannot be had", a, e);
    if (rc < 0)
        return rc;
    n = skopeo(argv, "inspect", &local, false, folder, a);
    argv[n++] = "--config";
    argv[n++] = stored;
    argv[n] = NULL;
    rc = box_fetch_run(argv, folder, false, &config, unpack, a, e);
    if (rc == 0 && write_whole(arena_printf(a, "%s/config.json", folder), &config) < 0)
        rc = error_set(e, EIO, "%s: its configuration cannot be written", unpack);
    char *umoci[] = {"umoci", "--log=fatal", "raw", "unpack", "--rootless", "--image", image,
                     arena_printf(a, "%s/rootfs", folder), NULL};
    if (rc == 0)
        rc = box_fetch_run(umoci, folder, false, NULL, unpack, a, e);
    box_remove(folder, "oci");
    return rc;
}

// Device files cannot be made by a user and are not missed; anything else that went wrong counts.
static bool only_devices(const struct buf *errors) {
    for (const char *p = buf_str(errors); *p;) {
        size_t n = strcspn(p, "\n");
        cleanup_arena struct arena a = {0};
        const char *line = arena_strndup(&a, p, n);
        if (strspn(line, " \t\r") < n && !strstr(line, "superuser"))
            return false;
        p += n + (p[n] == '\n');
    }
    return true;
}

static int from_squashfs(const struct box_source *s, const char *folder, struct arena *a, struct error *e) {
    cleanup_buf struct buf errors = {0};
    // Its buffers are the job's memory, its threads on the job's cpus.
    cpu_set_t cpus;
    int threads = sched_getaffinity(0, sizeof cpus, &cpus) == 0 ? CPU_COUNT(&cpus) : 1;
    char *argv[ARGS_MAX] = {"unsquashfs", "-data-queue", "32", "-frag-queue", "32", "-processors",
                            arena_printf(a, "%d", threads), "-no-progress", "-quiet", "-no-xattrs", "-d",
                            arena_printf(a, "%s/rootfs", folder), "-offset",
                            arena_printf(a, "%llu", (unsigned long long)s->offset), arena_strdup(a, s->path)};
    struct box_tool t = {.argv = argv, .folder = folder, .errors = &errors};
    int rc = need("unsquashfs", "squashfs-tools", "a squashfs image", e);
    if (rc < 0)
        return rc;
    int status = box_tool_run(&t);
    if (status < 0)
        return error_set(e, -status, "unsquashfs cannot be run: %s", strerror(-status));
    bool fine = WIFEXITED(status) && (WEXITSTATUS(status) == 0 || (WEXITSTATUS(status) == 2 && only_devices(&errors)));
    if (!fine)
        return failed("the image cannot be unpacked", folder, &errors, a, e);
    return 0;
}

int box_fetch(const struct box_source *s, const char *folder, struct arena *a, struct error *e) {
    struct stat st;
    const char *root = arena_printf(a, "%s/rootfs", folder);
    int rc = s->kind == BOX_SQUASHFS ? from_squashfs(s, folder, a, e) : from_skopeo(s, folder, a, e);
    if (rc == 0 && (lstat(root, &st) < 0 || !S_ISDIR(st.st_mode) || chmod(root, st.st_mode | 0700) < 0))
        rc = error_set(e, EIO, "the image cannot be unpacked: it has no root folder");
    return rc;
}

// As root of its own namespace rm can also empty folders that say they may not be written to.
void box_remove(const char *parent, const char *name) {
    char path[4096];
    snprintf(path, sizeof path, "%s/%s", parent, name);
    char *argv[] = {"rm", "-rf", "--one-file-system", "--", path, NULL};
    struct box_tool t = {.argv = argv, .folder = parent, .as_root = true};
    box_tool_run(&t);
}
