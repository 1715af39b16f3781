// The tables of answers about images.
#include "image_messages.h"

static const struct field query_fields[] = {
    FIELD(1, struct query_images, all, "Of all users, for administrators; else one's own."),
};
const struct schema query_images_schema = SCHEMA(struct query_images, "the query", query_fields);

#define S struct answer_image
static const struct field image_fields[] = {
    FIELD(1, S, name, "Name of the image, or of a container that is kept."),
    FIELD_WORDS(2, S, kind, image_kind_words,
                "fetched: unpacked, and removed when room is needed; built: kept until it is removed; "
                "container: kept "
                "by name, with what was written to it."),
    FIELD(3, S, user, "Whose it is."),
    FIELD(4, S, digest, "Digest of its manifest."),
    FIELD(5, S, bytes, "Space it takes on a node."),
    FIELD(6, S, made_ms, "When it came to a node last (ms since 1970)."),
    FIELD(7, S, image, "Of a container: the image it was made from."),
    FIELD(8, S, nodes, "Nodes that hold it, with commas."),
};
static const struct schema image_schema = SCHEMA(S, "an image", image_fields);
#undef S
static const struct field images_fields[] = {
    FIELD_LIST_SUB(1, struct answer_images, images, &image_schema, "Images and containers.")};
const struct schema answer_images_schema = SCHEMA(struct answer_images, "images", images_fields);
