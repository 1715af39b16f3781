// Reading of portal.pack. It is built beside the program and trusted as such; a damaged one is refused as a whole, so
// that no page is served in part.
#include "portal_pack.h"

#include <errno.h>
#include <limits.h>
#include <string.h>
#include <zlib.h>

#include "base/text.h"
#include "net/http.h"

static int damaged(struct error *e, const char *what) {
    return error_set(e, EBADMSG, "the portal's file is damaged (%s); build it again", what);
}

// Cuts off the text up to `stop`; NULL: there is none in this line.
static char *take(char **at, char stop) {
    char *begin = *at, *end = strpbrk(begin, "\t\n");
    if (!end || *end != stop)
        return NULL;
    *end = 0;
    *at = end + 1;
    return begin;
}

static int read_line(char **at, struct portal_file *f, struct error *e) {
    char *path = take(at, '\t'), *type = path ? take(at, '\t') : NULL, *length = type ? take(at, '\t') : NULL,
         *etag = length ? take(at, '\n') : NULL;
    uint64_t len;
    if (!etag || *path != '/' || !*etag || strpbrk(etag, "\" \\") || !http_header_ok("Content-Type", type) ||
        !http_header_ok("ETag", etag) || parse_u64(length, &len) < 0 || len > PORTAL_PACK_BYTES_MAX)
        return damaged(e, "its list of files");
    *f = (struct portal_file){.path = path, .type = type, .etag = etag, .len = (size_t)len};
    return 0;
}

static int parse(struct portal_pack *p, struct error *e) {
    static const char magic[] = "acequia-portal 1 ";
    char *at = p->bytes.data, *end = at + p->bytes.len;
    uint32_t count;
    if (!at || strncmp(at, magic, sizeof magic - 1) != 0)
        return damaged(e, "its first line");
    at += sizeof magic - 1;
    char *number = take(&at, '\n');
    if (!number || parse_u32(number, &count) < 0 || count > PORTAL_FILES_MAX)
        return damaged(e, "its first line");
    for (uint32_t i = 0; i < count; i++) {
        struct portal_file f;
        int r = read_line(&at, &f, e);
        if (r < 0)
            return r;
        vec_push(&p->files, f);
    }
    if (*at++ != '\n')
        return damaged(e, "the end of its list of files");
    for (uint32_t i = 0; i < count; i++) {
        if (p->files.at[i].len > (size_t)(end - at))
            return damaged(e, "it is too short");
        p->files.at[i].data = at;
        at += p->files.at[i].len;
    }
    return at == end ? 0 : damaged(e, "it is too long");
}

int portal_pack_parse(struct portal_pack *p, struct buf *bytes, struct error *e) {
    *p = (struct portal_pack){.bytes = *bytes};
    *bytes = (struct buf){0};
    buf_add(&p->bytes, "", 0);  // ends with a NUL: the list of files is read as a text
    int r = parse(p, e);
    if (r < 0)
        portal_pack_done(p);
    return r;
}

void portal_pack_done(struct portal_pack *p) {
    buf_done(&p->bytes);
    vec_done(&p->files);
}

const struct portal_file *portal_pack_find(const struct portal_pack *p, const char *path) {
    for (uint32_t i = 0; i < p->files.len; i++)
        if (streq(p->files.at[i].path, path))
            return &p->files.at[i];
    return NULL;
}

int portal_pack_unpack(const struct portal_file *f, struct buf *out, struct error *e) {
    union {
        const char *in;
        unsigned char *bytes;
    } source = {f->data};
    z_stream z = {.next_in = source.bytes, .avail_in = (uInt)f->len};
    int r = Z_OK;
    if (inflateInit2(&z, 16 + MAX_WBITS) != Z_OK)
        return error_set(e, ENOMEM, "no memory to unpack a page");
    while (r == Z_OK && out->len < PORTAL_FILE_BYTES_MAX) {
        enum { STEP = 64 << 10 };
        z.next_out = (unsigned char *)buf_reserve(out, STEP);
        z.avail_out = STEP;
        r = inflate(&z, Z_NO_FLUSH);
        out->len += STEP - z.avail_out;
    }
    inflateEnd(&z);
    return r == Z_STREAM_END ? 0 : damaged(e, f->path);
}
