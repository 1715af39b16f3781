// See the header.
#include "split.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/cleanup.h"
#include "base/text.h"

enum { CSV_READ = 4 << 20, LINE_READ = 64 << 10, TAR_BLOCK = 512, TAR_READ = 64 << 10, GROUPS_LINE_MAX = 256 };

int data_split_lines(const struct data_split_ctx *c, const char *address, uint64_t size) {
    int r = 0;
    for (uint64_t at = 0; !r && at < size; at += DATA_SPLIT_BYTES)
        r = c->put(c->ctx, address, NULL, at, size - at < DATA_SPLIT_BYTES ? size - at : DATA_SPLIT_BYTES);
    return r;
}

int data_lines_read(struct data_fetcher *f, const char *address, uint64_t offset, uint64_t len, size_t max,
                    struct buf *out, struct error *e) {
    // One byte before: only so is it known whether a line begins at `offset`.
    uint64_t before = offset ? 1 : 0;
    int r = data_read(f, address, offset - before, len + before, max, out, e);
    if (r)
        return r;
    if (before) {
        const char *end = out->len ? memchr(out->data, '\n', out->len) : NULL;
        if (!end) {
            buf_clear(out);  // the middle of one long line
            return 0;
        }
        buf_drop(out, (size_t)(end - out->data) + 1);
        if (!out->len)
            return 0;
    }
    struct buf cleanup_buf more = {0};
    for (uint64_t at = offset + len; out->len && out->data[out->len - 1] != '\n'; at += LINE_READ) {
        r = data_read(f, address, at, LINE_READ, max, &more, e);
        if (r || !more.len)
            return r;
        const char *end = memchr(more.data, '\n', more.len);
        buf_add(out, more.data, end ? (size_t)(end - more.data) + 1 : more.len);
        if (out->len > max)
            return error_set(e, EFBIG, "%s has a line of more than %zu bytes", address, max);
    }
    return 0;
}

int data_split_csv(const struct data_split_ctx *c, const char *address, struct error *e) {
    struct buf cleanup_buf text = {0};
    uint64_t begin = 0, row = 0;
    bool quoted = false, header = true;
    for (uint64_t at = 0;; at += CSV_READ) {
        int r = data_read(c->fetcher, address, at, CSV_READ, CSV_READ, &text, e);
        if (r)
            return r;
        for (size_t i = 0; i < text.len; i++) {
            if (text.data[i] == '"')
                quoted = !quoted;
            if (text.data[i] != '\n' || quoted)
                continue;
            row = at + i + 1;
            if (header) {
                header = false;
                begin = row;
            } else if (row - begin >= DATA_SPLIT_BYTES) {
                r = c->put(c->ctx, address, NULL, begin, row - begin);
                if (r)
                    return r;
                begin = row;
            }
        }
        if (text.len < CSV_READ) {
            uint64_t size = at + text.len;
            if (quoted)
                return error_set(e, EBADMSG, "%s: a quotation mark that is opened at the end is not closed", address);
            return !header && size > begin ? c->put(c->ctx, address, NULL, begin, size - begin) : 0;
        }
    }
}

// --- archives ---

static int tar_number(const uint8_t *field, size_t len, uint64_t *out) {
    uint64_t v = 0;
    if (field[0] & 0x80) {  // binary, of large files
        for (size_t i = len - 8; i < len; i++)
            v = v << 8 | field[i];
        *out = v;
        return v > INT64_MAX ? -EBADMSG : 0;
    }
    size_t i = 0;
    while (i < len && field[i] == ' ')
        i++;
    for (; i < len && field[i] >= '0' && field[i] <= '7'; i++)
        v = v * 8 + (uint64_t)(field[i] - '0');
    *out = v;
    return i < len && field[i] && field[i] != ' ' ? -EBADMSG : 0;
}

int data_tar_header(const uint8_t block[static 512], char *name, size_t name_size, uint64_t *size) {
    unsigned sum = 0, zero = 0;
    uint64_t said;
    for (size_t i = 0; i < TAR_BLOCK; i++) {
        sum += i >= 148 && i < 156 ? ' ' : block[i];
        zero |= block[i];
    }
    if (!zero)
        return -ENODATA;
    if (tar_number(block + 148, 8, &said) || said != sum || tar_number(block + 124, 12, size))
        return -EBADMSG;
    bool prefixed = !memcmp(block + 257, "ustar", 5) && block[345];
    snprintf(name, name_size, "%.*s%s%.*s", prefixed ? 155 : 0, (const char *)block + 345, prefixed ? "/" : "", 100,
             (const char *)block);
    char type = (char)block[156];
    return type == '0' || type == 0 ? 1 : type == 'L' || type == 'x' ? 2 : 0;
}

static bool is_image_name(const char *name) {
    static const char *const endings[] = {".jpg", ".jpeg", ".png", ".webp"};
    const char *dot = strrchr(name, '.');
    for (size_t i = 0; dot && i < sizeof endings / sizeof *endings; i++)
        if (!strcasecmp(dot, endings[i]))
            return true;
    return false;
}

// The name in front of a member: GNU's long names, and "path=" of POSIX headers.
static void long_name(const struct buf *text, bool pax, char *name, size_t size) {
    if (!pax) {
        snprintf(name, size, "%s", buf_str(text));
        return;
    }
    const char *at = text->data ? memmem(text->data, text->len, " path=", 6) : NULL;
    if (at)
        snprintf(name, size, "%.*s", (int)strcspn(at + 6, "\n"), at + 6);
}

int data_split_tar(const struct data_split_ctx *c, const char *address, const struct data_source *s, struct error *e) {
    struct buf cleanup_buf window = {0}, cleanup_buf text = {0};
    uint64_t at = 0, window_at = 0;
    char name[4096], longer[4096] = "";
    for (;;) {
        if (!window.len || at < window_at || at + TAR_BLOCK > window_at + window.len) {
            int r = data_read(c->fetcher, address, at, TAR_READ, TAR_READ, &window, e);
            if (r)
                return r;
            window_at = at;
            if (!window.len)
                return 0;
            if (window.len < TAR_BLOCK)
                return error_set(e, EBADMSG, "%s: the archive ends too early", address);
        }
        const uint8_t *block = (const uint8_t *)window.data + (at - window_at);
        uint64_t size = 0;
        bool pax = block[156] == 'x';
        int kind = data_tar_header(block, name, sizeof name, &size);
        if (kind == -ENODATA)
            return 0;
        if (kind < 0 || size > INT64_MAX / 2 - at)
            return error_set(e, EBADMSG, "%s: no tar archive, or a damaged one, at byte %llu", address,
                             (unsigned long long)at);
        int r = 0;
        if (kind == 2) {
            // Extended headers also hold attributes, which come after the names; of long ones the rest is not needed.
            r = data_read(c->fetcher, address, at + TAR_BLOCK, !size ? 1 : size < TAR_READ ? size : TAR_READ, TAR_READ,
                          &text, e);
            buf_adds(&text, "");
            if (!r)
                long_name(&text, pax, longer, sizeof longer);
        } else {
            const char *whole = *longer ? longer : name;
            if (kind == 1 && size && (s->any_name || is_image_name(whole)))
                r = c->put(c->ctx, address, whole, at + TAR_BLOCK, size);
            *longer = 0;
        }
        if (r)
            return r;
        at += TAR_BLOCK + (size + TAR_BLOCK - 1) / TAR_BLOCK * TAR_BLOCK;
    }
}

// --- Parquet ---

// pyarrow knows the groups: a worker prints "GROUP ROWS" lines.
int data_split_parquet(const struct data_split_ctx *c, const char *address, struct error *e) {
    int ends[2];
    if (pipe2(ends, O_CLOEXEC) < 0)
        return error_set(e, errno, "no pipe: %s", strerror(errno));
    pid_t pid = fork();
    if (pid == 0) {
        dup2(ends[1], 1);
        execlp(c->python, c->python, c->worker, "--groups", address, (char *)NULL);
        _exit(127);
    }
    close(ends[1]);
    FILE *f = fdopen(ends[0], "r");
    char line[GROUPS_LINE_MAX];
    int r = pid < 0 ? -errno : 0;
    while (!r && fgets(line, sizeof line, f)) {
        unsigned long long group, rows;
        if (sscanf(line, "%llu %llu", &group, &rows) == 2 && rows)
            r = c->put(c->ctx, address, "group", group, rows);
    }
    fclose(f);
    int status = 0;
    if (pid > 0)
        waitpid(pid, &status, 0);
    if (!r && (!WIFEXITED(status) || WEXITSTATUS(status)))
        return error_set(e, EBADMSG, "%s cannot be read as Parquet%s", address,
                         WIFEXITED(status) && WEXITSTATUS(status) == 3
                             ? ": Python has no pyarrow here (pip install pyarrow)"
                             : "");
    return r;
}
