// Fuzz target: the list of a user's images, a file that the user can write. What is accepted is bounded, and written
// again it reads the same.
#include <assert.h>
#include <string.h>

#include "base/buf.h"
#include "base/cleanup.h"
#include "base/text.h"
#include "driver.h"
#include "model/image.h"

const struct fuzz_seed fuzz_seeds[] = {
    FUZZ_SEED("fetched\t1000\t1700000000000\tdocker://python:3.12\tsha256:ab\t\n"),
    FUZZ_SEED("built\t1\t2\tmine:latest\t\t\ncontainer\t5\t6\tkept\tsha256:00\tdocker://python\n"),
    FUZZ_SEED("built\t-1\t2\tx\t\t\n"),
    FUZZ_SEED("built\t1\t2\tx\ty\tz\tand more\nbuilt\t1"),
    FUZZ_SEED("\n\n\t\t\t\t\t\n"),
    {0},
};

static bool same(const char *a, const char *b) {
    return (!a && !b) || (a && b && streq(a, b));
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    cleanup_arena struct arena a = {0};
    cleanup_buf struct buf text = {0};
    struct node_image_list first = {0}, second = {0};
    image_index_parse((const char *)data, size, 7, &a, &first);
    assert(first.len <= IMAGES_PER_USER);
    for (uint32_t i = 0; i < first.len; i++) {
        const struct node_image *n = &first.at[i];
        assert(n->uid == 7 && n->kind < IMAGE_KIND_COUNT && *n->name && n->made_ms >= 0);
        assert(strlen(n->name) < IMAGE_NAME_MAX && !str_has_control_chars(n->name, strlen(n->name)));
        image_index_line(&text, n);
    }
    image_index_parse(buf_str(&text), text.len, 7, &a, &second);
    assert(second.len == first.len);
    for (uint32_t i = 0; i < first.len; i++)
        assert(same(first.at[i].name, second.at[i].name) && same(first.at[i].digest, second.at[i].digest) &&
               same(first.at[i].image, second.at[i].image) && first.at[i].bytes == second.at[i].bytes);
    return 0;
}
