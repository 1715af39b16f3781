// Fuzz target: the reader of portal.pack. What is accepted lies within the file, and unpacks within its limit.
#include "../portal_pack.h"
#include "driver.h"
#include "net/http.h"

const struct fuzz_seed fuzz_seeds[] = {
    FUZZ_SEED("acequia-portal 1 0\n\n"),
    FUZZ_SEED("acequia-portal 1 1\n/index.html\ttext/html\t23\tabc\n\n"
              "\x1f\x8b\x08\x00\x00\x00\x00\x00\x00\x03\xcb\xc8\x04\x00\xac*\x93\xd8\x02\x00\x00\x00"),
    FUZZ_SEED("acequia-portal 1 2\n/a\ttext/plain\t1\tx\n/b\ttext/plain\t2\ty\n\n123"),
    {0},
};

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    struct portal_pack p;
    struct error e = {0};
    cleanup_buf struct buf bytes = {0};
    buf_add(&bytes, data, size);
    if (portal_pack_parse(&p, &bytes, &e) < 0) {
        FUZZ_CHECK(e.code && e.text[0]);
        return 0;
    }
    for (uint32_t i = 0; i < p.files.len; i++) {
        const struct portal_file *f = &p.files.at[i];
        cleanup_buf struct buf out = {0};
        FUZZ_CHECK(f->path[0] == '/' && http_header_ok("Content-Type", f->type) &&
                   http_header_ok("ETag", f->etag));
        FUZZ_CHECK(f->data >= p.bytes.data && f->data + f->len <= p.bytes.data + p.bytes.len);
        FUZZ_CHECK(portal_pack_find(&p, f->path));
        portal_pack_unpack(f, &out, &e);
        FUZZ_CHECK(out.len <= PORTAL_FILE_BYTES_MAX + (64 << 10));
    }
    portal_pack_done(&p);
    return 0;
}
