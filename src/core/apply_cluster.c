// Changes of the state by events about nodes, projects, partitions, QoS, reservations and tokens. Each is kept
// as its event says, and set in the scheduler's world.
#include <assert.h>
#include <string.h>

#include "base/text.h"
#include "images.h"
#include "state.h"
#include "model/nodelist.h"

static enum sched_node_state state_in_world(const struct node_entry *n) {
    if (n->state != NODE_UP)
        return SCHED_NODE_DOWN;
    return n->drained || n->retry_ms ? SCHED_NODE_DRAINED : SCHED_NODE_UP;
}

static void node_to_world(struct core *c, struct node_entry *n) {
    cleanup_arena struct arena a = {0};
    const struct node *d = n->node;
    struct sched_gpu *gpus = arena_alloc(&a, d->gpus.len * sizeof *gpus);
    for (uint32_t i = 0; i < d->gpus.len; i++)
        gpus[i] = (struct sched_gpu){.model = d->gpus.at[i].model, .memory_bytes = d->gpus.at[i].memory_bytes,
                                     .group = d->gpus.at[i].link_group, .unusable = d->gpus.at[i].unhealthy != NULL,
                                     .socket = d->gpus.at[i].numa > 0 ? (uint32_t)d->gpus.at[i].numa : 0};
    const char **features = arena_alloc(&a, (d->features.len + 1) * sizeof *features);
    uint32_t count = 0;
    for (; count < d->features.len; count++)
        features[count] = d->features.at[count];
    if (d->containers && count < SCHED_FEATURES_MAX)
        features[count++] = CORE_CONTAINERS;
    struct sched_node s = {
        .id = n->handle, .name = n->name, .cpus = d->cpus, .memory_bytes = d->memory_bytes,
        .gpus = gpus, .gpu_count = d->gpus.len, .features = features, .feature_count = count,
        .state = state_in_world(n), .user = str_empty(d->user) ? 0 : core_user_handle(c, d->user),
        .until_ms = d->until_ms};
    int r = world_node_set(c->world, &s, NULL);
    assert(r == 0);  // checked before the event was made
}

static void node_state_to_world(struct core *c, const struct node_entry *n) {
    world_node_state(c->world, n->handle, state_in_world(n));
    c->dirty = true;
}

// The ids of the nodes in a list. The scheduler takes an empty list for all nodes, so a list whose nodes are all
// unknown (not registered yet, or forgotten) is the id 0, which no node has.
static uint32_t *node_ids(struct core *c, const char *list, struct arena *a, uint32_t *count) {
    *count = 0;
    if (str_empty(list) || streq(list, "ALL"))
        return NULL;
    struct name_list names = {0};
    if (nodelist_expand(list, a, &names, NULL) < 0)
        return NULL;
    uint32_t *ids = arena_alloc(a, (names.len + 1) * sizeof *ids);
    for (uint32_t i = 0; i < names.len; i++) {
        struct node_entry *n = core_find_node(c, names.at[i]);
        if (n)
            ids[(*count)++] = n->handle;
    }
    if (!*count)
        ids[(*count)++] = 0;
    return ids;
}

static int64_t limit(enum entity_kind kind, const void *value, const uint32_t *member) {
    return entity_has(kind, value, member) ? (int64_t)*member : SCHED_UNLIMITED;
}

static int64_t limit_ms(enum entity_kind kind, const void *value, const uint32_t *member) {
    int64_t seconds = limit(kind, value, member);
    return seconds == SCHED_UNLIMITED ? SCHED_UNLIMITED : seconds * 1000;
}

static void partition_to_world(struct core *c, const struct entity_entry *t) {
    cleanup_arena struct arena a = {0};
    const struct partition *p = t->value;
    struct sched_partition s = {.id = t->handle,
                                .name = t->name,
                                .all_nodes = str_empty(p->nodes) || streq(p->nodes, "ALL"),
                                .default_time_ms = limit_ms(ENTITY_PARTITION, p, &p->default_time_s),
                                .max_time_ms = limit_ms(ENTITY_PARTITION, p, &p->max_time_s),
                                .tier = (int32_t)p->tier,
                                .fifo = p->fifo,
                                .closed = p->down};
    if (!s.all_nodes)
        s.nodes = node_ids(c, p->nodes, &a, &s.node_count);
    world_partition_set(c->world, &s, NULL);
}

static uint32_t parse_model_quotas(const struct project *p, struct sched_model_quota *out, struct arena *a) {
    uint32_t n = 0;
    for (uint32_t i = 0; i < p->model_quotas.len; i++) {
        const char *eq = strchr(p->model_quotas.at[i], '=');
        uint32_t gpus;
        if (eq && parse_u32(eq + 1, &gpus) == 0)
            out[n++] = (struct sched_model_quota){
                .model = arena_strndup(a, p->model_quotas.at[i], (size_t)(eq - p->model_quotas.at[i])),
                .quota_milligpu = (int64_t)gpus * 1000, .limit_milligpu = SCHED_UNLIMITED};
    }
    return n;
}

static void project_to_world(struct core *c, const struct entity_entry *t) {
    cleanup_arena struct arena a = {0};
    const struct project *p = t->value;
    struct entity_entry *parent = core_find_entity(c, ENTITY_PROJECT, p->parent);
    struct sched_model_quota *quotas = arena_alloc(&a, p->model_quotas.len * sizeof *quotas);
    struct sched_project s = {.id = t->handle,
                              .parent = parent ? parent->handle : 0,
                              .name = t->name,
                              .closed = p->deleted_by != NULL,
                              .quota_milligpu =
                                  p->quota_milligpu == PROJECT_QUOTA_ALL ? 0 : p->quota_milligpu,
                              .quota_rest = p->quota_milligpu == PROJECT_QUOTA_ALL,
                              .weight_milli = p->has_weight ? (int64_t)p->weight_milli : SCHED_UNLIMITED,
                              .limit_milligpu = p->has_limit ? (int64_t)p->limit_milligpu : SCHED_UNLIMITED,
                              .quota_cpus = SCHED_UNLIMITED,
                              .limit_cpus = SCHED_UNLIMITED,
                              .models = quotas,
                              .model_count = parse_model_quotas(p, quotas, &a),
                              .interactive_limit_ms = limit_ms(ENTITY_PROJECT, p, &p->interactive_limit_s)};
    s.nodes = node_ids(c, p->nodes, &a, &s.node_count);
    world_project_set(c->world, &s, NULL);
}

static void qos_to_world(struct core *c, const struct entity_entry *t) {
    cleanup_arena struct arena a = {0};
    const struct qos *q = t->value;
    uint32_t *preempts = arena_alloc(&a, q->preempts.len * sizeof *preempts), n = 0;
    for (uint32_t i = 0; i < q->preempts.len; i++) {
        struct entity_entry *other = core_find_entity(c, ENTITY_QOS, q->preempts.at[i]);
        if (other)
            preempts[n++] = other->handle;
    }
    struct sched_qos s = {.id = t->handle,
                          .name = t->name,
                          .priority = q->priority,
                          .max_jobs_per_user = limit(ENTITY_QOS, q, &q->max_jobs_per_user),
                          .max_gpu_milli_per_user = limit(ENTITY_QOS, q, &q->max_gpus_per_user_milli),
                          .max_gpu_milli = SCHED_UNLIMITED,
                          .max_cpus_per_user = SCHED_UNLIMITED,
                          .max_time_ms = limit_ms(ENTITY_QOS, q, &q->max_wall_s),
                          .preempts = preempts,
                          .preempts_count = n,
                          .usage_factor_milli = entity_has(ENTITY_QOS, q, &q->usage_factor)
                                                    ? (uint32_t)(q->usage_factor * 1000)
                                                    : 1000,
                          .preemptible = q->no_preempt ? SCHED_NO : SCHED_BY_CLASS};
    world_qos_set(c->world, &s, NULL);
}

static void reservation_to_world(struct core *c, const struct entity_entry *t) {
    cleanup_arena struct arena a = {0};
    const struct reservation *r = t->value;
    uint32_t *users = arena_alloc(&a, r->users.len * sizeof *users);
    uint32_t *projects = arena_alloc(&a, r->projects.len * sizeof *projects), n = 0, count = 0;
    for (uint32_t i = 0; i < r->users.len; i++)
        if (!str_empty(r->users.at[i]))  // nobody; and a snapshot has no user without a name
            users[count++] = core_user_handle(c, r->users.at[i]);
    for (uint32_t i = 0; i < r->projects.len; i++) {
        struct entity_entry *p = core_find_entity(c, ENTITY_PROJECT, r->projects.at[i]);
        if (p)
            projects[n++] = p->handle;
    }
    struct sched_reservation s = {.id = t->handle, .name = t->name, .start_ms = r->start_ms, .end_ms = r->end_ms,
                                  .maintenance = r->maintenance, .users = users, .user_count = count,
                                  .projects = projects, .project_count = n};
    s.nodes = node_ids(c, r->nodes, &a, &s.node_count);
    world_reservation_set(c->world, &s, NULL);
}

static void license_to_world(struct core *c, const struct entity_entry *t) {
    const struct license *l = t->value;
    world_license_set(c->world, &(struct sched_license){.id = t->handle, .name = t->name, .count = l->count}, NULL);
}

static void entity_to_world(struct core *c, enum entity_kind kind, const struct entity_entry *t) {
    switch (kind) {
    case ENTITY_PROJECT: project_to_world(c, t); break;
    case ENTITY_PARTITION: partition_to_world(c, t); break;
    case ENTITY_QOS: qos_to_world(c, t); break;
    case ENTITY_RESERVATION: reservation_to_world(c, t); break;
    case ENTITY_LICENSE: license_to_world(c, t); break;
    case ENTITY_COUNT: break;
    }
    c->dirty = true;
}

// Node lists may name nodes that join later: set again in the world when the set of nodes changes.
static void lists_to_world(struct core *c) {
    for (int kind = 0; kind < ENTITY_COUNT; kind++)
        for (uint32_t i = 0; i < c->entity_list[kind].len; i++)
            if (c->entity_list[kind].at[i]->value)
                entity_to_world(c, (enum entity_kind)kind, c->entity_list[kind].at[i]);
}

static struct node_entry *node_slot(struct core *c, const char *name) {
    struct node_entry *n = core_find_node(c, name);
    if (n)
        return n;
    n = strmap_get(&c->nodes, name);  // was here before
    if (!n) {
        n = xcalloc(1, sizeof *n);
        n->name = core_intern(c, name);
        vec_push(&c->node_list, n);
        n->handle = c->node_list.len;
        strmap_put(&c->nodes, n->name, n);
    }
    n->removed = false;
    n->state = NODE_SILENT;
    return n;
}

static void apply_joined(struct core *c, const struct event_node_joined *b) {
    bool is_new = !core_find_node(c, b->node->name);
    struct node_entry *n = node_slot(c, b->node->name);
    struct arena old = n->arena;
    n->arena = (struct arena){0};
    n->node = schema_copy(&node_schema, b->node, &n->arena);
    arena_done(&old);
    free(n->fingerprint);
    n->fingerprint = b->fingerprint ? xstrdup(b->fingerprint) : NULL;
    node_to_world(c, n);
    if (is_new)
        lists_to_world(c);
    c->dirty = true;
}

static void node_reason(struct node_entry *n, const struct event_node *b, int64_t at_ms) {
    free(n->reason);
    free(n->by);
    n->reason = b->reason ? xstrdup(b->reason) : NULL;
    n->by = b->by ? xstrdup(b->by) : NULL;
    n->reason_ms = at_ms;
}

// A removed node needs a new token to come back.
static void forget_certificates(struct core *c, const char *node) {
    size_t it = 0;
    void *v;
    while (strmap_next(&c->tokens, &it, NULL, &v))
        if (streq(((struct token_entry *)v)->token->node, node))
            ((struct token_entry *)v)->token->fingerprint = NULL;
}

static void apply_removed(struct core *c, struct node_entry *n) {
    world_node_remove(c->world, n->handle);
    n->removed = true;
    n->drained = false;
    core_apply_node_launches(c, n, &(struct event_node_launches){0});
    core_images_forget(n);
    n->node = NULL;
    arena_done(&n->arena);
    free(n->fingerprint);
    n->fingerprint = NULL;
    vec_clear(&n->stale);
    forget_certificates(c, n->name);
    lists_to_world(c);
}

static void apply_node(struct core *c, const struct event *e) {
    const struct event_node *b = e->body;
    struct node_entry *n = core_find_node(c, b->name);
    if (!n)
        return;
    switch (e->type) {
    case EVENT_NODE_STATE:
        n->state = b->state;
        // The reason for which an administrator drained it is kept while its connection comes and goes.
        if (!n->drained)
            node_reason(n, b, e->at_ms);
        break;
    case EVENT_NODE_DRAINED:
        n->drained = true;
        node_reason(n, b, e->at_ms);
        break;
    case EVENT_NODE_RESUMED:
        n->drained = false;
        node_reason(n, &(struct event_node){0}, e->at_ms);
        break;
    case EVENT_NODE_REMOVED:
        apply_removed(c, n);
        return;
    default: return;
    }
    node_state_to_world(c, n);
}

static void apply_node_launches(struct core *c, const struct event_node_launches *b) {
    struct node_entry *n = core_find_node(c, b->name);
    if (!n || n->removed)
        return;
    core_apply_node_launches(c, n, b);
    node_state_to_world(c, n);
}

// Shares and rights to preempt have changed: earlier preemptions no longer order jobs.
static void rights_changed(struct core *c, enum entity_kind kind) {
    if (kind == ENTITY_PROJECT || kind == ENTITY_QOS)
        world_preemptions_forget(c->world);
}

static bool is_deleted(enum entity_kind kind, const void *value) {
    return kind == ENTITY_PROJECT && value && ((const struct project *)value)->deleted_by;
}

static void apply_set(struct core *c, enum entity_kind kind, const void *value) {
    const char *name = *(const char *const *)value;  // every one of these structs begins with its name
    struct entity_entry *t = strmap_get(&c->entities[kind], name);
    if (!t) {
        t = xcalloc(1, sizeof *t);
        t->name = core_intern(c, name);
        vec_push(&c->entity_list[kind], t);
        t->handle = c->entity_list[kind].len;
        strmap_put(&c->entities[kind], t->name, t);
    }
    // The new value may share texts with the old one (a change of one field), so the old arena goes last.
    struct arena old = t->arena;
    bool was_deleted = is_deleted(kind, t->value);
    t->arena = (struct arena){0};
    t->value = schema_copy(entity_schema(kind), value, &t->arena);
    t->version = c->seq;
    entity_normalize(kind, t->value);  // the events of release 0.1.0 are not in this form
    arena_done(&old);
    c->projects_deleted += (uint32_t)is_deleted(kind, t->value) - was_deleted;
    c->next_deletion_ms = 0;
    entity_to_world(c, kind, t);
    rights_changed(c, kind);
}

static void apply_deleted(struct core *c, enum entity_kind kind, const struct event_name *b) {
    struct entity_entry *t = core_find_entity(c, kind, b->name);
    if (!t)
        return;
    switch (kind) {
    case ENTITY_PROJECT: world_project_remove(c->world, t->handle); break;
    case ENTITY_PARTITION: world_partition_remove(c->world, t->handle); break;
    case ENTITY_QOS: world_qos_remove(c->world, t->handle); break;
    case ENTITY_RESERVATION: world_reservation_remove(c->world, t->handle); break;
    case ENTITY_LICENSE: world_license_remove(c->world, t->handle); break;
    case ENTITY_COUNT: break;
    }
    c->projects_deleted -= is_deleted(kind, t->value);
    // Jobs in the queue may name it: project_delete.c ends those that have no partition or QoS left, some at
    // a time.
    if (kind == ENTITY_PARTITION || kind == ENTITY_QOS) {
        c->orphans = true;
        c->next_deletion_ms = 0;
    }
    t->value = NULL;
    arena_done(&t->arena);
    lists_to_world(c);
    rights_changed(c, kind);
}

static void apply_token(struct core *c, const struct event *e) {
    const struct event_token *b = e->body;
    struct token_entry *t = strmap_get(&c->tokens, b->id);
    if (e->type == EVENT_TOKEN_CREATED && !t) {
        t = xcalloc(1, sizeof *t);
        t->token = schema_copy(event_info(e->type)->schema, b, &t->arena);
        strmap_put(&c->tokens, t->token->id, t);
    } else if (e->type == EVENT_TOKEN_USED && t) {
        t->used = true;
        t->token->node = b->node ? arena_strdup(&t->arena, b->node) : NULL;
        t->token->fingerprint = b->fingerprint ? arena_strdup(&t->arena, b->fingerprint) : NULL;
        t->token->used_ms = b->used_ms;
    } else if (e->type == EVENT_TOKEN_REVOKED && t) {
        strmap_remove(&c->tokens, t->token->id);
        arena_done(&t->arena);
        free(t);
    }
}

void core_apply_cluster(struct core *c, const struct event *e) {
    // What is derived from nodes and entities (default memory, lists of members) is made anew when this moves.
    c->cluster_generation++;
    switch (e->type) {
    case EVENT_NODE_JOINED: apply_joined(c, e->body); break;
    case EVENT_NODE_STATE:
    case EVENT_NODE_DRAINED:
    case EVENT_NODE_RESUMED:
    case EVENT_NODE_REMOVED: apply_node(c, e); break;
    case EVENT_NODE_LAUNCHES: apply_node_launches(c, e->body); break;
    case EVENT_PROJECT_SET:
        apply_set(c, ENTITY_PROJECT, ((struct event_project_set *)e->body)->project);
        break;
    case EVENT_PARTITION_SET:
        apply_set(c, ENTITY_PARTITION, ((struct event_partition_set *)e->body)->partition);
        break;
    case EVENT_QOS_SET: apply_set(c, ENTITY_QOS, ((struct event_qos_set *)e->body)->qos); break;
    case EVENT_RESERVATION_SET:
        apply_set(c, ENTITY_RESERVATION, ((struct event_reservation_set *)e->body)->reservation);
        break;
    case EVENT_LICENSE_SET:
        apply_set(c, ENTITY_LICENSE, ((struct event_license_set *)e->body)->license);
        break;
    case EVENT_PROJECT_DELETED: apply_deleted(c, ENTITY_PROJECT, e->body); break;
    case EVENT_PARTITION_DELETED: apply_deleted(c, ENTITY_PARTITION, e->body); break;
    case EVENT_QOS_DELETED: apply_deleted(c, ENTITY_QOS, e->body); break;
    case EVENT_RESERVATION_DELETED: apply_deleted(c, ENTITY_RESERVATION, e->body); break;
    case EVENT_LICENSE_DELETED: apply_deleted(c, ENTITY_LICENSE, e->body); break;
    case EVENT_POLICY_SET: core_apply_policy(c, ((struct event_policy_set *)e->body)->policy, e->at_ms); break;
    case EVENT_TOKEN_CREATED:
    case EVENT_TOKEN_USED:
    case EVENT_TOKEN_REVOKED: apply_token(c, e); break;
    case EVENT_SECRET_SET:
    case EVENT_SECRET_DELETED: core_apply_secret(c, e); break;
    case EVENT_USER_SET:
    case EVENT_USER_REMOVED:
    case EVENT_USER_PASSWORD: core_apply_user(c, e); break;
    case EVENT_USER_GRANTED: core_apply_grant(c, e->body); break;
    case EVENT_SESSION_BEGUN:
    case EVENT_SESSION_SEEN:
    case EVENT_SESSION_ENDED: core_apply_session(c, e); break;
    case EVENT_SAVED_SET:
    case EVENT_SAVED_DELETED: core_apply_saved(c, e); break;
    case EVENT_ALERT_RULE_SET:
    case EVENT_ALERT_RULE_DELETED: core_apply_alert_rule(c, e); break;
    case EVENT_ALERT_RAISED:
    case EVENT_ALERT_ACKNOWLEDGED:
    case EVENT_ALERT_CLEARED: core_apply_alert(c, e); break;
    case EVENT_SHARE_SET:
    case EVENT_SHARE_ENDED: core_apply_share(c, e); break;
    case EVENT_SERVICE_SET:
    case EVENT_SERVICE_DELETED: core_apply_service(c, e); break;
    case EVENT_SERVICE_TOKEN_SET:
    case EVENT_SERVICE_TOKEN_REVOKED: core_apply_service_token(c, e); break;
    case EVENT_VOLUME_SET:
    case EVENT_VOLUME_DELETED: core_apply_volume(c, e); break;
    case EVENT_NODE_IMAGES: core_apply_images(c, e); break;
    case EVENT_PROVIDER_SET:
    case EVENT_PROVIDER_REMOVED: core_apply_provider(c, e); break;
    case EVENT_WANTED_NODE: core_apply_wanted(c, e); break;
    case EVENT_LEVEL_SET: core_apply_level(c, e->body); break;
    case EVENT_KEYS_INIT:
    case EVENT_KEY_IMPORTED:
    case EVENT_KEYS_EXPIRED: core_apply_keys(c, e); break;
    case EVENT_CONTROLLER_STARTED: core_apply_started_controller(c, e->body); break;
    case EVENT_RESTORE_FOUND: core_apply_restore(c, e->at_ms, e->body); break;
    default: break;
    }
}
