// The portal's files, in one file that its build writes: "acequia-portal 1 COUNT", COUNT lines "PATH TYPE LENGTH ETAG"
// separated by tabs, an empty line, then the files one after another, each compressed with gzip.
#pragma once
#include <stddef.h>

#include "base/buf.h"
#include "base/error.h"
#include "base/vec.h"

enum {
    PORTAL_PACK_BYTES_MAX = 64 << 20,
    PORTAL_FILES_MAX = 4096,
    PORTAL_FILE_BYTES_MAX = 64 << 20,  // unpacked
};

struct portal_file {
    const char *path, *type, *etag;
    const char *data;  // compressed
    size_t len;
};

struct portal_pack {
    struct buf bytes;  // texts and data of the files point into it
    VEC(struct portal_file) files;
};

// Takes the bytes; -EBADMSG, and what is wrong, when they are no such file.
int portal_pack_parse(struct portal_pack *p, struct buf *bytes, struct error *e);
void portal_pack_done(struct portal_pack *p);
const struct portal_file *portal_pack_find(const struct portal_pack *p, const char *path);  // NULL: none
int portal_pack_unpack(const struct portal_file *f, struct buf *out, struct error *e);
