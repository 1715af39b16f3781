// Owns the routes about providers.
#include <assert.h>

#include "api.h"
#include "base/cleanup.h"
#include "base/text.h"
#include "provider_messages.h"
#include "providers.h"

struct provider_listing {
    struct api_call *call;
    VEC(struct answer_provider_status) list;
    VEC(struct wanted_node) nodes;
};

static bool count_node(void *ctx, const struct wanted_node *n) {
    struct answer_provider_status *a = ctx;
    a->joined += n->state == WANTED_JOINED;
    a->coming += wanted_is_coming(n->state);
    a->leaving += n->state == WANTED_DRAINING || n->state == WANTED_STOPPING;
    return true;
}

static bool list_provider(void *ctx, const struct node_provider *p) {
    struct provider_listing *l = ctx;
    struct controller *c = l->call->controller;
    struct node_provider *shown = arena_alloc(&l->call->arena, sizeof *shown);
    *shown = *p;
    if (!l->call->actor.admin)  // they may say where an engine is, and as whom it is asked
        shown->args.len = shown->secrets.len = 0;
    struct answer_provider_status a = {.settings = shown,
                                .spent_milli = core_provider_spent_micro(c->core, p, controller_now_ms()) / 1000,
                                .problem = providers_problem(c->providers, p->name)};
    const char *note = core_provider_note(c->core, p->name);
    a.decision = str_empty(note) ? NULL : note;
    core_each_wanted(c->core, p->name, count_node, &a);
    vec_push(&l->list, a);
    return true;
}

static bool list_wanted(void *ctx, const struct wanted_node *n) {
    struct provider_listing *l = ctx;
    vec_push(&l->nodes, *n);
    return true;
}

void api_providers(struct api_call *call) {
    struct provider_listing l = {.call = call};
    core_each_provider(call->controller->core, list_provider, &l);
    core_each_wanted(call->controller->core, NULL, list_wanted, &l);
    struct answer_provider_list answer = {.providers = {l.list.at, l.list.len}, .nodes = {l.nodes.at, l.nodes.len}};
    api_answer(call, &answer_provider_list_schema, &answer);
    vec_done(&l.list);
    vec_done(&l.nodes);
}

void api_provider_set(struct api_call *call) {
    cleanup_buf struct buf encoded = {0};
    struct node_provider m;
    schema_encode(&request_provider_schema, call->body, &encoded);  // zeros that are given stay given
    int r = schema_decode(&provider_schema, encoded.data, encoded.len, &call->arena, &m);
    assert(r == 0);
    m.name = call->name;
    api_give(call, COMMAND_PROVIDER_SET, &m);
}

void api_provider_remove(struct api_call *call) {
    const struct query_provider *q = call->query;
    api_give(call, COMMAND_PROVIDER_REMOVE,
             &(struct command_provider_remove){.name = call->name, .now = q->now, .forget = q->forget});
}
