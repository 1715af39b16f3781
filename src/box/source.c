// Owns telling what an image is by looking at it: folders by what lies in them, files by how they
// begin, everything else is a name at a registry.
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/buf.h"
#include "base/cleanup.h"
#include "base/text.h"
#include "box/box.h"

enum { SQUASHFS_VERSION_AT = 28, SIF_MAGIC_AT = 32, SIF_PAGE = 4096, HEAD_BYTES = 64 };

static bool exists(struct arena *a, const char *folder, const char *name) {
    return access(arena_printf(a, "%s/%s", folder, name), F_OK) == 0;
}

static const char *identity_of(const char *path, const struct stat *st, struct arena *a) {
    return arena_printf(a, "%s %ju:%ju %jd %jd.%09ld %jd.%09ld", path, (uintmax_t)st->st_dev, (uintmax_t)st->st_ino,
                        (intmax_t)st->st_size, (intmax_t)st->st_mtim.tv_sec, st->st_mtim.tv_nsec,
                        (intmax_t)st->st_ctim.tv_sec, st->st_ctim.tv_nsec);
}

static bool is_squashfs(const unsigned char head[HEAD_BYTES]) {
    return memcmp(head, "hsqs", 4) == 0 && head[SQUASHFS_VERSION_AT] == 4 && head[SQUASHFS_VERSION_AT + 1] == 0;
}

// In a .sif the parts begin at page boundaries.
static bool find_in_sif(int fd, uint64_t *offset) {
    unsigned char head[HEAD_BYTES];
    for (off_t at = SIF_PAGE; at < BOX_SIF_SEARCH; at += SIF_PAGE) {
        if (pread(fd, head, sizeof head, at) != sizeof head)
            return false;
        if (is_squashfs(head)) {
            *offset = (uint64_t)at;
            return true;
        }
    }
    return false;
}

// Whether a tar archive has a file of that name at its top.
static bool archive_has(const char *path, const char *name, struct arena *a) {
    cleanup_buf struct buf errors = {0};
    char *argv[] = {"tar", "--list", "--occurrence", "--file", arena_strdup(a, path), arena_strdup(a, name), NULL};
    struct box_tool t = {.argv = argv, .folder = NULL, .errors = &errors};
    return box_tool_run(&t) == 0;
}

static int look_at_file(const char *path, const char *tag, const struct stat *st, struct arena *a,
                        struct box_source *out, struct error *e) {
    unsigned char head[HEAD_BYTES] = {0};
    cleanup_close int fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK);
    if (fd < 0)
        return error_set(e, errno, "image %s cannot be read: %m", path);
    if (pread(fd, head, sizeof head, 0) < 0)
        return error_set(e, errno, "image %s cannot be read: %m", path);
    out->path = path;
    out->identity = identity_of(path, st, a);
    out->kind = BOX_SQUASHFS;
    if (is_squashfs(head))
        return 0;
    if (memcmp(head + SIF_MAGIC_AT, "SIF_MAGIC", 9) == 0) {
        if (find_in_sif(fd, &out->offset))
            return 0;
        return error_set(e, EINVAL, "image %s is a .sif without a squashfs file system", path);
    }
    out->kind = BOX_SKOPEO;
    const char *colon = tag ? ":" : "";
    if (archive_has(path, "manifest.json", a))
        out->reference = arena_printf(a, "docker-archive:%s%s%s", path, colon, tag ? tag : "");
    else if (archive_has(path, "oci-layout", a))
        out->reference = arena_printf(a, "oci-archive:%s%s%s", path, colon, tag ? tag : "");
    else
        return error_set(e, EINVAL, "image %s is not an image that is known here: expected squashfs, .sif, or an "
                         "archive of docker save, podman save or OCI", path);
    out->identity = arena_printf(a, "%s %s", out->reference, out->identity);
    return 0;
}

static int look_at_folder(const char *path, const char *tag, struct arena *a, struct box_source *out,
                          struct error *e) {
    struct stat st;
    out->path = path;
    if (exists(a, path, "oci-layout") && exists(a, path, "index.json")) {
        if (stat(arena_printf(a, "%s/index.json", path), &st) < 0)
            return error_set(e, errno, "image %s cannot be read: %m", path);
        out->kind = BOX_SKOPEO;
        out->reference = tag ? arena_printf(a, "oci:%s:%s", path, tag) : arena_printf(a, "oci:%s", path);
        out->identity = arena_printf(a, "%s %s", out->reference, identity_of(path, &st, a));
        return 0;
    }
    out->kind = exists(a, path, "config.json") ? BOX_BUNDLE : BOX_ROOTFS;
    if (out->kind == BOX_ROOTFS && !exists(a, path, "bin") && !exists(a, path, "usr") && !exists(a, path, "etc"))
        return error_set(e, EINVAL, "image %s is neither a root file system nor an OCI bundle or layout", path);
    return 0;
}

bool box_source_loopback(const char *name) {
    static const char *const hosts[] = {"localhost:", "127.", "[::1]:"};
    for (size_t i = 0; i < sizeof hosts / sizeof *hosts; i++)
        if (str_has_prefix(name, hosts[i]))
            return true;
    return false;
}

// "REGISTRY#NAME" is how enroot and pyxis write it.
static int take_reference(const char *name, struct arena *a, struct box_source *out, struct error *e) {
    char *clean = arena_strdup(a, name);
    for (char *p = clean; *p; p++) {
        if (*p == '#')
            *p = '/';
        if (!strchr("abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789._-/:@[]", *p))
            return error_set(e, EINVAL, "image \"%s\" is neither a file or folder here nor a name at a registry; "
                             "expected a path or [docker://]HOST/NAME:TAG", name);
    }
    if (!*clean || *clean == '/' || *clean == '-' || *clean == '.')
        return error_set(e, ENOENT, "image %s does not exist", name);
    out->kind = BOX_SKOPEO;
    out->remote = true;
    out->plain_http = box_source_loopback(clean);
    out->digested = strstr(clean, "@sha256:") != NULL;
    out->reference = arena_printf(a, "docker://%s", clean);
    out->identity = out->reference;
    return 0;
}

int box_source_find(const char *image, struct arena *a, struct box_source *out, struct error *e) {
    struct stat st;
    const char *path = image, *tag = NULL, *colon = strrchr(image, ':');
    *out = (struct box_source){0};
    if (str_has_prefix(image, "docker://"))
        return take_reference(image + strlen("docker://"), a, out, e);
    int found = stat(path, &st);
    if (found < 0 && errno != ENOENT && errno != ENOTDIR)
        return error_set(e, errno, "image %s cannot be read: %m", image);
    if (found < 0 && colon && !strchr(colon, '/')) {  // FILE:TAG
        path = arena_strndup(a, image, (size_t)(colon - image));
        tag = colon + 1;
        found = stat(path, &st);
    }
    cleanup_free char *full = found == 0 ? realpath(path, NULL) : NULL;
    if (!full)
        return take_reference(image, a, out, e);
    path = arena_strdup(a, full);
    if (tag && S_ISDIR(st.st_mode) && !exists(a, path, "oci-layout"))
        return take_reference(image, a, out, e);  // a folder that happens to bear the name
    return S_ISDIR(st.st_mode) ? look_at_folder(path, tag, a, out, e) : look_at_file(path, tag, &st, a, out, e);
}
