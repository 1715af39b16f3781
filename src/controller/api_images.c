// Owns the route about images that nodes hold.
#include <errno.h>

#include "api.h"
#include "base/clock.h"
#include "base/map.h"
#include "base/text.h"
#include "image_messages.h"

enum { ANSWER_IMAGES_MAX = 10000 };

struct image_listing {
    struct api_call *call;
    bool all;
    struct strmap index;  // what it is → 1 + place in the list
    VEC(struct answer_image) list;
};

static const char *user_of(struct image_listing *l, uint32_t uid) {
    if (uid == l->call->actor.uid)
        return l->call->actor.user;
    const struct user_info *known = users_last(l->call->controller->users, uid, NULL);
    return known ? arena_strdup(&l->call->arena, known->name) : arena_printf(&l->call->arena, "%u", uid);
}

// The same image on several nodes is one entry.
static void add(struct image_listing *l, const char *node, const struct node_image *i) {
    struct arena *a = &l->call->arena;
    const char *key = arena_printf(a, "%u\n%d\n%s\n%s\n%s", i->uid, i->kind, i->name,
                                   i->digest ? i->digest : "", i->image ? i->image : "");
    uintptr_t at = (uintptr_t)strmap_get(&l->index, key);
    if (at) {
        struct answer_image *known = &l->list.at[at - 1];
        known->nodes = arena_printf(a, "%s,%s", known->nodes, node);
        known->made_ms = known->made_ms > i->made_ms ? known->made_ms : i->made_ms;
        return;
    }
    if (l->list.len == ANSWER_IMAGES_MAX)
        return;
    vec_push(&l->list, (struct answer_image){.name = i->name,
                                             .kind = i->kind,
                                             .user = user_of(l, i->uid),
                                             .digest = i->digest,
                                             .image = i->image,
                                             .bytes = i->bytes,
                                             .made_ms = i->made_ms,
                                             .nodes = arena_strdup(a, node)});
    strmap_put(&l->index, key, (void *)(uintptr_t)l->list.len);
}

static bool list_node(void *ctx, const struct node_view *v) {
    struct image_listing *l = ctx;
    const struct event_node_images *images = core_node_images(l->call->controller->core, v->node->name);
    for (uint32_t i = 0; images && i < images->images.len; i++)
        if (l->all || images->images.at[i].uid == l->call->actor.uid)
            add(l, v->node->name, &images->images.at[i]);
    return true;
}

void api_image_list(struct api_call *call) {
    const struct query_images *q = call->query;
    struct image_listing l = {.call = call, .all = q->all};
    struct error e = {0};
    if (q->all && !call->actor.admin) {
        error_set(&e, EPERM, "images of all users are shown to administrators; leave out --all for your own");
        api_fail(call->req, &e);
        return;
    }
    core_each_node(call->controller->core, list_node, &l);
    struct answer_images answer = {.images = {l.list.at, l.list.len}};
    api_answer(call, &answer_images_schema, &answer);
    vec_done(&l.list);
    strmap_done(&l.index);
}
