// Owns what nodes hold of their users' images, as their agents say: at every hello, and when it changes. What is known
// already changes nothing, so that both sides agree after any loss.
#include "images.h"

#include <stdlib.h>
#include <string.h>

#include "base/alloc.h"
#include "base/text.h"
#include "model/image.h"

enum { IMAGE_TEXT_MAX = IMAGE_NAME_MAX };

static bool text_loads(const char *text) {
    size_t n = text ? strlen(text) : 0;
    return n < IMAGE_TEXT_MAX && (!n || (str_utf8_valid(text, n) && !str_has_control_chars(text, n)));
}

static bool image_loads(const struct node_image *i) {
    return !str_empty(i->name) && i->kind < IMAGE_KIND_COUNT && text_loads(i->name) &&
           text_loads(i->digest) && text_loads(i->image) && core_time_loads(i->made_ms);
}

bool core_images_load(const struct event_node_images *b) {
    if (!b->name || b->images.len > IMAGES_PER_NODE)
        return false;
    for (uint32_t i = 0; i < b->images.len; i++)
        if (!image_loads(&b->images.at[i]))
            return false;
    return true;
}

void core_agent_images(struct core *c, const char *node, const struct message_node_images *m,
                       int64_t now_ms) {
    cleanup_arena struct arena a = {0};
    struct node_entry *n = core_find_node(c, node);
    if (!n || n->removed || !core_feature(c, FEATURE_IMAGES))
        return;
    struct event_node_images b = {
        .name = n->name,
        .images.at = arena_alloc(&a, (m->images.len < IMAGES_PER_NODE ? m->images.len + 1 : IMAGES_PER_NODE) *
                                         sizeof *b.images.at)};
    for (uint32_t i = 0; i < m->images.len && b.images.len < IMAGES_PER_NODE; i++)
        if (image_loads(&m->images.at[i]))  // of a newer agent: kinds that this release does not know
            b.images.at[b.images.len++] = m->images.at[i];
    const struct event_node_images none = {.name = n->name};
    if (!schema_equal(&event_node_images_schema, n->images ? n->images->list : &none, &b))
        core_emit(c, now_ms, EVENT_NODE_IMAGES, &b);
}

void core_images_forget(struct node_entry *n) {
    if (n->images)
        arena_done(&n->images->arena);
    free(n->images);
    n->images = NULL;
}

void core_apply_images(struct core *c, const struct event *e) {
    const struct event_node_images *b = e->body;
    struct node_entry *n = core_find_node(c, b->name);
    if (!n || n->removed)
        return;
    struct node_images *new = b->images.len ? xcalloc(1, sizeof *new) : NULL;
    if (new)
        new->list = schema_copy(&event_node_images_schema, b, &new->arena);
    core_images_forget(n);
    n->images = new;
}

const struct event_node_images *core_node_images(const struct core *c, const char *node) {
    const struct node_entry *n = core_find_node(c, node);
    return n && !n->removed && n->images ? n->images->list : NULL;
}
