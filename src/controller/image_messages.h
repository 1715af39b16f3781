// Answers about images that nodes hold.
#pragma once
#include "base/schema.h"
#include "model/image.h"

struct query_images {
    bool all;
};
extern const struct schema query_images_schema;

struct answer_image {
    const char *name, *user, *digest, *image, *nodes;
    enum image_kind kind;
    uint64_t bytes;
    int64_t made_ms;
};
struct answer_images {
    LIST(struct answer_image) images;
};
extern const struct schema answer_images_schema;
