// What a node holds of its users' images: read by the agent from the file that acequia-box leaves in each user's
// folder for images, reported to the controller, kept there as an event.
#pragma once
#include <stdint.h>

#include "base/arena.h"
#include "base/schema.h"

enum {
    IMAGES_PER_USER = 128,  // reported of one user on one node: the newest
    IMAGES_PER_NODE = 4096,
    IMAGE_INDEX_MAX = 128 << 10,  // bytes of that file
    IMAGE_NAME_MAX = 512,
};

// Fetched: unpacked, from a registry or a file, and removed when room is needed. Built: made here, kept until it is
// removed. Container: kept by name, with what was written to it.
enum image_kind { IMAGE_FETCHED, IMAGE_BUILT, IMAGE_CONTAINER, IMAGE_KIND_COUNT };
extern const char *const image_kind_words[];

struct node_image {
    uint32_t uid;
    enum image_kind kind;
    const char *name;    // of a container: its own
    const char *digest;  // "sha256:…"; NULL: not known
    uint64_t bytes;
    int64_t made_ms;
    const char *image;  // of a container: what it was made from
};
extern const struct schema node_image_schema;

struct node_image_list {
    struct node_image *at;
    uint32_t len;
};
// Reads the file's text. Lines that are not understood are passed over: it was written by a user.
void image_index_parse(const char *text, size_t len, uint32_t uid, struct arena *a,
                       struct node_image_list *out);
// One line of it, without an end of line in any of the texts.
struct buf;
void image_index_line(struct buf *out, const struct node_image *i);
