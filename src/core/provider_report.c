// What the programs of providers say. Reports may be late, repeated, incomplete or wrong: a node whose agent is
// connected is there whatever a list says, and one that a list leaves out once may only have been overlooked.
#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "base/text.h"
#include "provider_state.h"

enum {
    PAUSE_FIRST_S = 15,
    PAUSE_LONGEST_S = 900,
    MISSED_MAX = 2,  // lists in a row without a node, or with its end, before it counts as gone
};

bool core_wanted_live(const struct wanted_node *n) {
    return n->state != WANTED_DECIDED && n->state != WANTED_REFUSED && n->state != WANTED_GONE;
}

bool core_wanted_to_start(const struct wanted_node *n, int64_t now_ms) {
    return n->state == WANTED_REQUESTED;
}

bool core_wanted_to_stop(const struct wanted_node *n) {
    return n->state == WANTED_STOPPING;
}

void core_provider_pause(struct core *c, const struct provider_entry *entry, const char *shape, const char *reason,
                         uint32_t retry_s, int64_t now_ms) {
    struct node_provider p = *entry->set;
    struct provider_pause list[PROVIDER_SHAPES_MAX + 1];
    uint32_t n = 0, failures = 0;
    for (uint32_t i = 0; i < p.pauses.len; i++) {
        if (!streq(p.pauses.at[i].shape, shape))
            list[n++] = p.pauses.at[i];
        else if (p.pauses.at[i].until_ms > now_ms && !retry_s && reason)
            return;  // several nodes of one refusal count once
        else
            failures = p.pauses.at[i].failures;
    }
    if (!reason && n == p.pauses.len)
        return;
    if (reason && n < PROVIDER_SHAPES_MAX) {
        uint32_t wait_s = PAUSE_FIRST_S << (failures < 6 ? failures : 6);
        wait_s = wait_s > PAUSE_LONGEST_S ? PAUSE_LONGEST_S : wait_s;
        wait_s = retry_s > wait_s ? retry_s : wait_s;
        wait_s = wait_s > 86400 ? 86400 : wait_s;
        list[n++] = (struct provider_pause){shape, reason, failures + 1, now_ms + (int64_t)wait_s * 1000};
    }
    p.pauses.at = list;
    p.pauses.len = n;
    core_provider_emit(c, &p, now_ms);
}

// --- finding ---

static struct wanted_entry *by_key(const struct core *c, const char *provider, const char *key) {
    for (uint32_t i = c->wanted.len; key && i-- > 0;)
        if (streq(c->wanted.at[i]->node->key, key) && streq(c->wanted.at[i]->node->provider, provider))
            return c->wanted.at[i];
    return NULL;
}

// A key begins with the name of its node.
static const struct node_entry *node_of_key(const struct core *c, const char *key) {
    char name[IDENTIFIER_MAX + 1];
    size_t len = strcspn(key, ".");
    if (!key[len] || len > IDENTIFIER_MAX)
        return NULL;
    memcpy(name, key, len);
    name[len] = 0;
    return core_find_node(c, name);
}

static bool name_taken(const struct core *c, const char *node) {
    for (uint32_t i = 0; i < c->wanted.len; i++)
        if (c->wanted.at[i]->node->state != WANTED_GONE && streq(c->wanted.at[i]->node->node, node))
            return true;
    return false;
}

// Its agent is there, or was a moment ago and has jobs.
static bool is_alive(const struct node_entry *n) {
    return n && (n->state == NODE_UP || (n->state == NODE_SILENT && (n->jobs.len || n->stale.len || n->unknown.len)));
}

// --- one node ---

// What a node that is gone might still join with lets nobody in any more.
static void revoke_tokens(struct core *c, const char *node, int64_t now_ms) {
    cleanup_arena struct arena a = {0};
    struct core_token_list tokens = core_tokens_by_id(c);
    VEC(const char *) ids = {0};
    for (uint32_t i = 0; i < tokens.len; i++) {
        const struct token_entry *t = tokens.at[i];
        if (!t->used && !t->token->user && streq(t->token->node, node))
            vec_push(&ids, arena_strdup(&a, t->token->id));
    }
    for (uint32_t i = 0; i < ids.len; i++)
        core_emit(c, now_ms, EVENT_TOKEN_REVOKED, &(struct event_token){.id = ids.at[i]});
    vec_done(&ids);
    vec_done(&tokens);
}

void core_wanted_over(struct core *c, struct wanted_entry *w, const char *why, int64_t now_ms) {
    const struct node_entry *n = core_find_node(c, w->node->node);
    if (is_alive(n))
        return;  // the agent knows better; when its connection is lost the node is down some time later
    struct wanted_node now = *w->node;
    now.failed |= now.state != WANTED_STOPPING && now.state != WANTED_DRAINING;
    now.state = WANTED_GONE;
    now.gone_ms = now_ms;
    if (why)
        now.problem = why;
    cleanup_arena struct arena a = {0};
    struct wanted_node *kept = schema_copy(&wanted_node_schema, &now, &a);
    core_wanted_emit(c, kept, now_ms);
    revoke_tokens(c, kept->node, now_ms);
    const struct provider_entry *p = core_provider_entry(c, kept->provider);
    if (p && kept->failed && !kept->joined_ms)
        core_provider_pause(c, p, kept->shape, why ? why : "the engine ended it before it joined", 0, now_ms);
}

static void started(struct core *c, const struct provider_entry *p, struct wanted_entry *w,
                    const struct engine_node *said, int64_t now_ms) {
    struct wanted_node n = *w->node;
    if (said->error && n.state == WANTED_REQUESTED) {
        n.tries++;
        n.state = WANTED_REFUSED;
        n.problem = said->error;
        core_wanted_emit(c, &n, now_ms);
        core_provider_pause(c, p, w->node->shape, said->error, said->retry_s, now_ms);
        return;
    }
    if (said->error || str_empty(said->handle) || n.state == WANTED_GONE || streq(n.handle, said->handle))
        return;
    n.handle = said->handle;
    if (n.state == WANTED_REQUESTED || n.state == WANTED_REFUSED) {
        n.state = WANTED_BOOTING;
        n.booting_ms = n.booting_ms ? n.booting_ms : now_ms;
        n.problem = NULL;
    }
    core_wanted_emit(c, &n, now_ms);
}

// What a list says of a node that is wanted.
static void listed(struct core *c, struct wanted_entry *w, const struct engine_node *said, int64_t now_ms) {
    struct wanted_node n = *w->node;
    if (said->state == ENGINE_ENDED && ++w->missed < MISSED_MAX)
        return;
    if (said->state == ENGINE_ENDED) {
        if (n.state != WANTED_GONE && n.state != WANTED_DECIDED)
            core_wanted_over(c, w, said->reason ? said->reason : "the engine ended it", now_ms);
        return;
    }
    w->missed = 0;
    if (n.state == WANTED_GONE) {  // given up too early
        const struct node_entry *node = core_find_node(c, n.node);
        if (name_taken(c, n.node))
            return;
        n.gone_ms = n.stopping_ms = 0;
        n.failed = false;
        if (is_alive(node)) {
            n.state = node->drained ? WANTED_DRAINING : WANTED_JOINED;
            n.joined_ms = n.joined_ms ? n.joined_ms : now_ms;
        } else {  // its agent can come while the engine is told to stop it: no job must be placed there
            n.state = WANTED_STOPPING;
            n.stopping_ms = now_ms;
        }
    }
    if (n.state == WANTED_REQUESTED || n.state == WANTED_REFUSED) {
        n.state = WANTED_BOOTING;
        n.booting_ms = n.booting_ms ? n.booting_ms : now_ms;
    }
    if (!str_empty(said->handle))
        n.handle = said->handle;
    if (said->state == ENGINE_RUNNING && !n.running_ms)
        n.running_ms = now_ms;
    if (said->until_ms && core_time_loads(said->until_ms))
        n.until_ms = said->until_ms;
    if (n.state == WANTED_BOOTING)
        n.problem = said->reason;
    if (!schema_equal(&wanted_node_schema, w->node, &n))
        core_wanted_emit(c, &n, now_ms);
}

// A node of ours that this journal does not know, after a restore of an older copy: its agent is there.
static void adopt(struct core *c, const struct provider_entry *p, const struct engine_node *said, int64_t now_ms) {
    const struct node_entry *node = node_of_key(c, said->key);
    size_t len = strlen(p->set->name);
    if (!is_alive(node) || name_taken(c, node->name) || strncmp(node->name, p->set->name, len) != 0 ||
        node->name[len] != '-' || said->state == ENGINE_ENDED)
        return;
    struct wanted_node n = {.id = c->newest_wanted + 1,
                            .provider = p->set->name,
                            .key = said->key,
                            .node = node->name,
                            .shape = p->set->shapes.len ? p->set->shapes.at[0].name : "unknown",
                            .state = WANTED_JOINED,
                            .handle = said->handle,
                            .reason = "found in the engine after a restore",
                            .until_ms = core_time_loads(said->until_ms) ? said->until_ms : 0,
                            .wanted_ms = now_ms,
                            .booting_ms = now_ms,
                            .running_ms = now_ms,
                            .joined_ms = now_ms};
    if (p->set->shapes.len)
        n.cost_milli = provider_cost(p->set, &p->set->shapes.at[0]);
    core_wanted_emit(c, &n, now_ms);
}

// --- whole answers ---

static int offers(struct core *c, const struct provider_entry *entry, const struct provider_report *m,
                  int64_t now_ms, struct error *e) {
    struct node_provider p = *entry->set;
    if (m->shapes.len > PROVIDER_SHAPES_MAX)
        return error_set(e, E2BIG, "the program of provider %s offers %u shapes; at most %d are allowed", p.name,
                         m->shapes.len, PROVIDER_SHAPES_MAX);
    for (uint32_t i = 0; i < m->shapes.len; i++) {
        int r = provider_shape_check(&m->shapes.at[i], e);
        for (uint32_t k = 0; r == 0 && k < i; k++)
            if (streq(m->shapes.at[i].name, m->shapes.at[k].name))
                r = error_set(e, EEXIST, "shapes: %s is there twice", m->shapes.at[i].name);
        if (r < 0)
            return error_prefix(e, "what the program offers");
    }
    p.shapes.at = m->shapes.at;
    p.shapes.len = m->shapes.len;
    if (!schema_equal(&provider_schema, entry->set, &p))
        core_provider_emit(c, &p, now_ms);
    core_provider_entry(c, m->provider)->offered = true;
    return 0;
}

static bool texts_fit(const struct provider_report *m) {
    for (uint32_t i = 0; i < m->nodes.len; i++) {
        const struct engine_node *n = &m->nodes.at[i];
        if ((n->key && strlen(n->key) > PROVIDER_HANDLE_MAX) ||
            (n->handle && strlen(n->handle) > PROVIDER_HANDLE_MAX) ||
            (n->reason && strlen(n->reason) > PROVIDER_REASON_MAX) ||
            (n->error && strlen(n->error) > PROVIDER_REASON_MAX))
            return false;
    }
    return true;
}

static bool is_listed(const struct provider_report *m, const char *key) {
    for (uint32_t i = 0; i < m->nodes.len; i++)
        if (streq(m->nodes.at[i].key, key))
            return true;
    return false;
}

// An engine may still show what has ended beside what was started again under the same key.
static bool lives(const struct provider_report *m, const char *key) {
    for (uint32_t i = 0; i < m->nodes.len; i++)
        if (m->nodes.at[i].state != ENGINE_ENDED && streq(m->nodes.at[i].key, key))
            return true;
    return false;
}

// Nodes that are not in the list. One that was only asked for may not be there yet.
static void missing(struct core *c, const struct provider_report *m, int64_t now_ms) {
    VEC(struct wanted_entry *) gone = {0};  // the list changes while nodes go
    for (uint32_t i = 0; i < c->wanted.len; i++) {
        struct wanted_entry *w = c->wanted.at[i];
        bool there = core_wanted_live(w->node) && w->node->state != WANTED_REQUESTED;
        if (there && streq(w->node->provider, m->provider) && !is_listed(m, w->node->key) &&
            ++w->missed >= MISSED_MAX)
            vec_push(&gone, w);
    }
    for (uint32_t i = 0; i < gone.len; i++)
        core_wanted_over(c, gone.at[i],
                         gone.at[i]->node->state == WANTED_STOPPING ? NULL : "it is not in the engine any more",
                         now_ms);
    vec_done(&gone);
}

static void list(struct core *c, struct provider_entry *p, const struct provider_report *m, int64_t now_ms) {
    bool live = false;
    for (uint32_t i = 0; i < m->nodes.len; i++) {
        struct wanted_entry *w = by_key(c, m->provider, m->nodes.at[i].key);
        live |= m->nodes.at[i].state != ENGINE_ENDED;
        if (m->nodes.at[i].state == ENGINE_ENDED && lives(m, m->nodes.at[i].key))
            continue;
        if (w)
            listed(c, w, &m->nodes.at[i], now_ms);
        else
            adopt(c, p, &m->nodes.at[i], now_ms);
    }
    missing(c, m, now_ms);
    p = core_provider_entry(c, m->provider);
    p->empty_lists = p->set->removing && !live ? p->empty_lists + 1 : 0;
}

CORE_COMMAND(core_command_provider_report) {
    const struct provider_report *m = body;
    int r = core_need_admin(actor, "report for providers", e);
    struct provider_entry *p = core_provider_entry(c, m->provider);
    if (r < 0)
        return r;
    if (!p)
        return error_set(e, ENOENT, "provider \"%s\" does not exist", m->provider);
    if (m->error)
        return 0;
    if (m->nodes.len > 2 * PROVIDER_NODES_MAX || !texts_fit(m))
        return error_set(e, E2BIG, "the program of provider %s names too many nodes, or says too much", m->provider);
    switch (m->verb) {
    case VERB_OFFERS: return offers(c, p, m, now_ms, e);
    case VERB_LIST: list(c, p, m, now_ms); return 0;
    default: break;
    }
    for (uint32_t i = 0; i < m->nodes.len; i++) {
        struct wanted_entry *w = by_key(c, m->provider, m->nodes.at[i].key);
        p = core_provider_entry(c, m->provider);
        if (!w)
            continue;
        if (m->verb == VERB_START)
            started(c, p, w, &m->nodes.at[i], now_ms);
        else if (m->nodes.at[i].state == ENGINE_ENDED && !m->nodes.at[i].error && w->node->state == WANTED_STOPPING)
            core_wanted_over(c, w, NULL, now_ms);
    }
    return 0;
}

uint32_t core_provider_strangers(const struct core *c, const struct provider_report *r, bool settled,
                                 const struct engine_node **out, uint32_t max) {
    uint32_t n = 0;
    for (uint32_t i = 0; i < r->nodes.len && n < max; i++) {
        const struct engine_node *said = &r->nodes.at[i];
        const struct wanted_entry *w = by_key(c, r->provider, said->key);
        if (said->state == ENGINE_ENDED || (w && w->node->state != WANTED_GONE))
            continue;
        // Who has a node of this name now is another; before agents had time to say hello nobody is known.
        const struct node_entry *node = said->key ? node_of_key(c, said->key) : NULL;
        if ((!w && !settled) || (is_alive(node) && !name_taken(c, node->name)))
            continue;
        out[n++] = said;
    }
    return n;
}
