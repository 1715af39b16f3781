// Owns the file of a saved login: reads, checks and replaces it.
#include "cli/client/saved_login.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/cleanup.h"
#include "base/json.h"
#include "base/text.h"
#include "model/paths.h"

enum { FILE_BYTES_MAX = 8192 };

static const char *path_of(const char *folder, struct arena *a) {
    return arena_printf(a, "%s/login", folder);
}

int saved_login_read(const char *folder, struct arena *a, struct saved_login *out, struct error *e) {
    const char *path = path_of(folder, a);
    char text[FILE_BYTES_MAX];
    struct json *j;
    struct stat st;
    cleanup_close int fd = open(path, O_RDONLY | O_CLOEXEC | O_NOFOLLOW);
    if (fd < 0)
        return errno == ENOENT || errno == ENOTDIR
                   ? -ENOENT
                   : error_set(e, errno, "cannot read %s: %s", path, strerror(errno));
    if (fstat(fd, &st) < 0 || st.st_uid != geteuid() || st.st_mode & (S_IRWXG | S_IRWXO))
        return error_set(e, EPERM, "%s is another's, or readable by others: remove it and log in again",
                         path);
    ssize_t n = read(fd, text, sizeof text);
    int r = n > 0 && (size_t)n < sizeof text ? json_parse(text, (size_t)n, a, &j, NULL) : -EINVAL;
    explicit_bzero(text, sizeof text);
    if (r == 0)
        *out = (struct saved_login){.server = json_str(j, "server"),
                                    .fingerprint = json_str(j, "fingerprint"),
                                    .token = json_str(j, "token"),
                                    .user = json_str(j, "user"),
                                    .expires_ms = json_i64(j, "expires_ms", 0)};
    if (r < 0 || str_empty(out->server) || str_empty(out->token) || str_empty(out->fingerprint) ||
        str_has_control_chars(out->token, strlen(out->token)))
        return error_set(e, EINVAL, "%s is damaged; log in again: acequia login HOST", path);
    return 0;
}

// Complete or not at all: written beside its place, then renamed.
int saved_login_write(const char *folder, const struct saved_login *l, struct arena *a, struct error *e) {
    const char *path = path_of(folder, a), *fresh = arena_printf(a, "%s.%d", path, (int)getpid());
    cleanup_buf struct buf b = {0};
    struct json_writer w = {.out = &b};
    int r = paths_make(folder, 0700, e);
    if (r < 0)
        return r;
    json_open(&w, '{');
    json_kv_str(&w, "server", l->server);
    json_kv_str(&w, "fingerprint", l->fingerprint);
    json_kv_str(&w, "user", l->user);
    json_kv_i64(&w, "expires_ms", l->expires_ms);
    json_kv_str(&w, "token", l->token);
    json_close(&w, '}');
    buf_addc(&b, '\n');
    unlink(fresh);
    cleanup_close int fd = open(fresh, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC | O_NOFOLLOW, 0600);
    if (fd < 0 || write(fd, b.data, b.len) != (ssize_t)b.len || fsync(fd) < 0 || rename(fresh, path) < 0) {
        r = error_set(e, errno ? errno : EIO, "cannot write %s: %s", path, strerror(errno ? errno : EIO));
        unlink(fresh);
    }
    explicit_bzero(b.data, b.cap);
    return r;
}

void saved_login_remove(const char *folder, struct arena *a) {
    unlink(path_of(folder, a));
}
