// Fuzz target: mounts of containers.
#include <assert.h>
#include <string.h>

#include "base/alloc.h"
#include "base/cleanup.h"
#include "base/text.h"
#include "driver.h"
#include "model/mountspec.h"
#include "model/volume.h"

const struct fuzz_seed fuzz_seeds[] = {
    FUZZ_SEED("/a"),
    FUZZ_SEED("/a:/b"),
    FUZZ_SEED("/a:/b:ro"),
    FUZZ_SEED("/a:ro"),
    FUZZ_SEED("/a:/b:rw,/c"),
    FUZZ_SEED("a:b"),
    FUZZ_SEED("/a:/"),
    FUZZ_SEED("/a::ro"),
    FUZZ_SEED(",,"),
    FUZZ_SEED("s3://bucket/a/b?endpoint=https://store:9000"),
    FUZZ_SEED("nfs://server/export"),
    {0},
};

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    cleanup_free char *text = xstrndup((const char *)data, size);
    cleanup_arena struct arena a = {0};
    struct error e = {0};
    struct mount_specs s;
    struct volume_wish w;
    if (volume_wish_parse(text, &a, &w, &e) == 0)
        assert(*w.to == '/' && (w.name || *w.from == '/') && !strpbrk(w.to, ":,") && !(w.user && w.project));
    else
        assert(e.text[0]);
    e = (struct error){0};
    struct volume_source from;
    if (volume_source_parse(text, &a, &from, &e) == 0) {
        assert(!str_has_control_chars(text, strlen(text)) && !strchr(text, ','));
        // What becomes a word of a command line, or of a line of words.
        assert(from.place == VOLUME_FOLDER || !strpbrk(text, " \"'"));
        assert(from.place != VOLUME_NFS || (*from.server != '-' && *from.path == '/'));
        assert(from.place != VOLUME_BUCKET || (*from.bucket != '-' && strlen(from.bucket) >= 3));
    } else {
        assert(e.text[0]);
    }
    e = (struct error){0};
    if (spec_mounts_parse("mounts", text, &a, &s, &e) < 0) {
        assert(e.text[0]);
        return 0;
    }
    assert(s.len <= MOUNT_SPECS_MAX);
    for (uint32_t i = 0; i < s.len; i++) {
        assert(s.at[i].from[0] == '/' && !strpbrk(s.at[i].from, ":,"));
        assert(s.at[i].to[0] == '/' && !strpbrk(s.at[i].to, ":,"));
    }
    return 0;
}
