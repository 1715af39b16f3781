// What nodes hold of their users' images, as part of the state.
#pragma once
#include "state.h"

struct node_images {
    struct arena arena;
    struct event_node_images *list;
};

void core_apply_images(struct core *c, const struct event *e);
bool core_images_load(const struct event_node_images *b);
void core_images_forget(struct node_entry *n);
