// Administration: commands about nodes, projects, partitions, QoS, reservations and tokens. A command that
// is refused changes nothing.
#include <errno.h>
#include <string.h>

#include "base/text.h"
#include "state.h"
#include "model/license.h"
#include "model/gpuspec.h"
#include "model/name.h"
#include "model/nodelist.h"
#include "model/units.h"

enum { TOKENS_MAX = 1000 };  // of one user, or for agents, that have not ended

static int need_node(const struct core *c, const char *name, struct node_entry **out, struct error *e) {
    char shown[64];
    *out = core_find_node(c, name);
    return *out ? 0
                : error_set(e, ENOENT, "node \"%s\" does not exist; see 'acequia nodes'",
                            str_printable(name, shown, sizeof shown));
}

CORE_COMMAND(core_command_node_drain) {
    const struct command_node_drain *m = body;
    const char *reason = m->reason;
    struct node_entry *n;
    int r;
    if ((r = core_need_operator(actor, "drain a node", e)) < 0 || (r = need_node(c, m->node, &n, e)) < 0)
        return r;
    if (str_empty(reason))
        return error_set(e, EINVAL, "reason: give a reason for draining node %s", m->node);
    if ((r = name_line_check("reason", reason, COMMENT_MAX, e)) < 0)
        return r;
    struct event_node b = {.name = n->name, .state = n->state, .reason = reason, .by = actor->user};
    core_emit(c, now_ms, EVENT_NODE_DRAINED, &b);
    return 0;
}

CORE_COMMAND(core_command_node_resume) {
    const struct command_node *m = body;
    struct node_entry *n;
    int r;
    if ((r = core_need_operator(actor, "resume a node", e)) < 0 || (r = need_node(c, m->node, &n, e)) < 0)
        return r;
    bool distrusted = n->launch_failures != 0;
    core_node_trust(c, n, actor->user, now_ms);
    if (!n->drained && !distrusted) {
        error_set(e, EALREADY, "node %s was not drained", m->node);
        return CORE_UNCHANGED;
    }
    if (!n->drained)
        return 0;
    struct event_node b = {.name = n->name, .state = n->state, .by = actor->user};
    core_emit(c, now_ms, EVENT_NODE_RESUMED, &b);
    return 0;
}

CORE_COMMAND(core_command_node_remove) {
    const struct command_node *m = body;
    struct node_entry *n;
    int r;
    if ((r = core_need_admin(actor, "remove a node", e)) < 0 || (r = need_node(c, m->node, &n, e)) < 0)
        return r;
    if (n->jobs.len)
        return error_set(e, EBUSY, "node %s runs %u jobs; drain it and wait, or cancel them", m->node, n->jobs.len);
    if (n->state == NODE_UP || n->stale.len || n->unknown.len)  // also while old attempts are cleared away or described
        return error_set(e, EBUSY, "node %s is connected; stop its agent first", m->node);
    struct event_node b = {.name = n->name, .by = actor->user};
    core_emit(c, now_ms, EVENT_NODE_REMOVED, &b);
    return 0;
}

static int check_limit(const struct core *c, enum entity_kind t, const char *name, uint32_t max, struct error *e) {
    if (strmap_get(&c->entities[t], name) || c->entity_list[t].len + 1 < max)
        return 0;
    return error_set(
        e, E2BIG,
        "%s \"%s\": the cluster has had %u of them, deleted ones included, and no more are supported",
        entity_word(t), name, max - 1);
}

// Release 0.1.0 took a limit of zero for none.
static int check_zero_limits(const struct core *c, enum entity_kind kind, const void *value,
                             struct error *e) {
    if (core_feature(c, FEATURE_LIMITS) || !entity_has_zero_limit(kind, value))
        return 0;
    return error_set(
        e, EINVAL,
        "a limit of 0 needs a finished upgrade: 'acequia upgrade finish'; without one leave the limit out");
}

static int check_nodes(const char *list, struct error *e) {
    cleanup_arena struct arena a = {0};
    struct name_list names;
    return str_empty(list) || streq(list, "ALL") ? 0 : nodelist_expand(list, &a, &names, e);
}

// Follows the parents upwards; more steps than there are projects means a circle.
static bool is_below(const struct core *c, const char *name, const char *ancestor) {
    for (uint32_t steps = 0; name && steps <= c->entity_list[ENTITY_PROJECT].len; steps++) {
        if (streq(name, ancestor))
            return true;
        const struct entity_entry *t = core_find_entity(c, ENTITY_PROJECT, name);
        name = t ? ((const struct project *)t->value)->parent : NULL;
    }
    return false;
}

static int check_model_quotas(const struct project *p, struct error *e) {
    for (uint32_t i = 0; i < p->model_quotas.len; i++) {
        const char *text = p->model_quotas.at[i], *eq = strchr(text, '=');
        uint32_t n;
        char shown[64];
        if (!eq || eq == text || parse_u32(eq + 1, &n) < 0)
            return error_set(e, EINVAL,
                             "model_quotas: \"%s\" is not understood; expected MODEL=GPUS, e.g. V100=4",
                             str_printable(text, shown, sizeof shown));
    }
    return 0;
}

int core_check_not_deleted(const struct core *c, const char *field, const char *name, struct error *e) {
    const struct entity_entry *t = core_find_entity(c, ENTITY_PROJECT, name);
    if (!t || !((const struct project *)t->value)->deleted_by)
        return 0;
    uint64_t jobs = core_jobs_in(c, ENTITY_PROJECT, name);
    return error_set(e, EBUSY,
                     "%s: \"%s\" is being deleted; it is gone when its last job has ended (%llu %s)", field,
                     name, (unsigned long long)jobs, jobs == 1 ? "job" : "jobs");
}

// A lead may name the members of the project, and change nothing else.
static int may_set_project(const struct core *c, const struct actor *actor, const struct project *p,
                           struct error *e) {
    const struct entity_entry *t = core_find_entity(c, ENTITY_PROJECT, p->name);
    if (actor->admin || !t || !core_leads(c, actor->user, p->name))
        return core_need_admin(actor, "change projects", e);
    struct project same = *(const struct project *)t->value;
    same.members.at = p->members.at;
    same.members.len = p->members.len;
    if (!schema_equal(&entity_project_schema, &same, p))
        return error_set(
            e, EPERM,
            "only an administrator may change more of a project than its members; you are %s, a lead",
            actor->user);
    return 0;
}

CORE_COMMAND(core_command_project_set) {
    struct project kept = *(const struct project *)body, *p = &kept;
    int r;
    entity_normalize(ENTITY_PROJECT, p);
    if (p->deleted_by)
        return error_set(e, EINVAL, "deleted_by: it is only in answers; leave it out");
    // Permission comes before all that would tell which projects, parents or QoS there are.
    if ((r = name_check("project", p->name, e)) < 0 || (r = may_set_project(c, actor, p, e)) < 0 ||
        (r = check_limit(c, ENTITY_PROJECT, p->name, SCHED_PROJECTS_MAX, e)) < 0 ||
        (r = check_nodes(p->nodes, e)) < 0 || (r = check_model_quotas(p, e)) < 0 ||
        (r = check_zero_limits(c, ENTITY_PROJECT, p, e)) < 0)
        return r;
    if ((r = core_check_not_deleted(c, "project", p->name, e)) < 0 ||
        (p->parent && (r = core_check_not_deleted(c, "parent", p->parent, e)) < 0))
        return r;
    if (p->parent && !core_find_entity(c, ENTITY_PROJECT, p->parent))
        return error_set(e, ENOENT, "parent: project \"%s\" does not exist; create it first", p->parent);
    // A cycle would make every walk to the root endless.
    if (p->parent && is_below(c, p->parent, p->name))
        return error_set(e, ELOOP,
                         "parent: \"%s\" is below \"%s\" already; a project cannot be its own ancestor",
                         p->parent, p->name);
    char limit[GPU_TEXT_MAX], quota[GPU_TEXT_MAX];
    if (p->has_limit && p->quota_milligpu != PROJECT_QUOTA_ALL && p->limit_milligpu < p->quota_milligpu)
        return error_set(
            e, EINVAL, "limit: %s is below the quota of %s; raise the limit or lower the quota",
            gpu_milli_format(p->limit_milligpu, limit), gpu_milli_format(p->quota_milligpu, quota));
    if (p->default_qos && !core_find_entity(c, ENTITY_QOS, p->default_qos))
        return error_set(e, ENOENT, "default_qos: QoS \"%s\" does not exist; create it first", p->default_qos);
    for (uint32_t i = 0; i < p->members.len; i++)
        if ((r = name_check("member", p->members.at[i], e)) < 0)
            return r;
    for (uint32_t i = 0; i < p->leads.len; i++)
        if ((r = name_check("lead", p->leads.at[i], e)) < 0)
            return r;
    if (p->leads.len && !core_feature(c, FEATURE_USERS))
        return error_set(e, ENOTSUP, "leads: finish the upgrade first: acequia upgrade finish");
    struct event_project_set b = {.project = p, .by = actor->user};
    core_emit(c, now_ms, EVENT_PROJECT_SET, &b);
    return 0;
}

// There is one default: the others are it no longer.
static void only_default(struct core *c, const struct actor *actor, const char *name, int64_t now_ms) {
    for (uint32_t i = 0; i < c->entity_list[ENTITY_PARTITION].len; i++) {
        const struct partition *p = c->entity_list[ENTITY_PARTITION].at[i]->value;
        if (!p || !p->is_default || streq(p->name, name))
            continue;
        struct partition other = *p;
        struct event_partition_set b = {.partition = &other, .by = actor->user};
        other.is_default = false;
        core_emit(c, now_ms, EVENT_PARTITION_SET, &b);
    }
}

static bool has(const struct partition *p, const void *member) {
    return entity_has(ENTITY_PARTITION, p, member);
}

CORE_COMMAND(core_command_partition_set) {
    struct partition kept = *(const struct partition *)body, *p = &kept;
    char most[UNIT_TEXT_MAX], usual[UNIT_TEXT_MAX];
    int r;
    entity_normalize(ENTITY_PARTITION, p);
    if ((r = core_need_admin(actor, "change partitions", e)) < 0 ||
        (r = name_check("partition", p->name, e)) < 0 ||
        (r = check_limit(c, ENTITY_PARTITION, p->name, SCHED_PARTITIONS_MAX, e)) < 0 ||
        (r = check_nodes(p->nodes, e)) < 0 || (r = check_zero_limits(c, ENTITY_PARTITION, p, e)) < 0)
        return r;
    if (has(p, &p->default_time_s) && !p->default_time_s)
        return error_set(e, EINVAL,
                         "default_time_s: 0 would end every job at once; give a time, or unlimited for none");
    if (has(p, &p->default_memory_per_cpu_bytes) && !p->default_memory_per_cpu_bytes)
        return error_set(
            e, EINVAL,
            "default_memory_per_cpu_bytes: no job runs with 0; give a size, or none for the cluster's "
            "default_memory_per_cpu");
    if (has(p, &p->max_time_s) && p->default_time_s > p->max_time_s)
        return error_set(e, EINVAL, "default_time_s: %s is above max_time_s, %s",
                         duration_format(p->default_time_s, usual), duration_format(p->max_time_s, most));
    struct event_partition_set b = {.partition = p, .by = actor->user};
    core_emit(c, now_ms, EVENT_PARTITION_SET, &b);
    if (p->is_default)
        only_default(c, actor, p->name, now_ms);
    return 0;
}

// The scheduler refuses the same (rules.c); an event that it refused would be in the journal without effect.
static int check_preempts(const struct core *c, const char *name, const char *preempted, struct error *e) {
    if (streq(name, preempted))
        return error_set(e, EINVAL, "preempts: QoS \"%s\" cannot preempt itself; remove it from the list", name);
    const struct entity_entry *t = core_find_entity(c, ENTITY_QOS, preempted);
    if (!t)
        return error_set(e, ENOENT, "preempts: QoS \"%s\" does not exist; create it first", preempted);
    const struct qos *other = t->value;
    for (uint32_t i = 0; i < other->preempts.len; i++)
        if (streq(other->preempts.at[i], name))
            return error_set(e, EINVAL,
                             "preempts: QoS \"%s\" preempts \"%s\" already; only one of the two can",
                             preempted, name);
    return 0;
}

CORE_COMMAND(core_command_qos_set) {
    struct qos kept = *(const struct qos *)body, *q = &kept;
    int r;
    entity_normalize(ENTITY_QOS, q);
    if ((r = core_need_admin(actor, "change QoS", e)) < 0 || (r = name_check("QoS", q->name, e)) < 0 ||
        (r = check_limit(c, ENTITY_QOS, q->name, SCHED_QOS_MAX, e)) < 0 ||
        (r = check_zero_limits(c, ENTITY_QOS, q, e)) < 0)
        return r;
    if (!(q->usage_factor >= 0 && q->usage_factor <= 1000))
        return error_set(e, ERANGE, "usage_factor: expected 0 to 1000");
    for (uint32_t i = 0; i < q->preempts.len; i++)
        if ((r = check_preempts(c, q->name, q->preempts.at[i], e)) < 0)
            return r;
    struct event_qos_set b = {.qos = q, .by = actor->user};
    core_emit(c, now_ms, EVENT_QOS_SET, &b);
    return 0;
}

CORE_COMMAND(core_command_license_set) {
    struct license kept = *(const struct license *)body;
    int r;
    kept.used = 0;
    if ((r = core_need_admin(actor, "change licenses", e)) < 0 || (r = name_check("license", kept.name, e)) < 0 ||
        (r = check_limit(c, ENTITY_LICENSE, kept.name, SCHED_LICENSES_MAX, e)) < 0)
        return r;
    if (!core_feature(c, FEATURE_LICENSES))
        return error_set(e, ENOTSUP, "license: finish the upgrade first: acequia upgrade finish");
    if (kept.count > LICENSE_SEATS_MAX)
        return error_set(e, ERANGE, "count: expected 0 to %d seats", LICENSE_SEATS_MAX);
    struct event_license_set b = {.license = &kept, .by = actor->user};
    core_emit(c, now_ms, EVENT_LICENSE_SET, &b);
    return 0;
}

CORE_COMMAND(core_command_reservation_set) {
    const struct reservation *v = body;
    int r;
    if ((r = core_need_operator(actor, "change reservations", e)) < 0 ||
        (r = name_check("reservation", v->name, e)) < 0 ||
        (r = check_limit(c, ENTITY_RESERVATION, v->name, SCHED_PROJECTS_MAX, e)) < 0)
        return r;
    if (!str_empty(v->nodes) && (r = check_nodes(v->nodes, e)) < 0)
        return r;
    if (v->end_ms <= v->start_ms || v->end_ms <= now_ms)
        return error_set(e, EINVAL, "end_ms: a reservation must end after it starts, and in the future");
    for (uint32_t i = 0; i < v->projects.len; i++)
        if (!core_find_entity(c, ENTITY_PROJECT, v->projects.at[i]))
            return error_set(e, ENOENT, "projects: project \"%s\" does not exist", v->projects.at[i]);
    struct event_reservation_set b = {.reservation = (struct reservation *)(uintptr_t)v, .by = actor->user};
    core_emit(c, now_ms, EVENT_RESERVATION_SET, &b);
    return 0;
}

static uint32_t entities_alive(const struct core *c, enum entity_kind kind) {
    uint32_t n = 0;
    for (uint32_t i = 0; i < c->entity_list[kind].len; i++)
        n += c->entity_list[kind].at[i]->value != NULL;
    return n;
}

// A job may name several partitions, with commas.
static bool names(const char *list, const char *name) {
    size_t len = strlen(name);
    for (const char *p = list; p; p = strchr(p, ',') ? strchr(p, ',') + 1 : NULL)
        if (!strncmp(p, name, len) && (!p[len] || p[len] == ','))
            return true;
    return false;
}

uint64_t core_jobs_in(const struct core *c, enum entity_kind kind, const char *name) {
    uint64_t n = 0;
    for (uint32_t i = 0; i < c->order.len; i++) {
        const struct submission *s = c->order.at[i].job ? c->order.at[i].job->sub : NULL;
        const char *const in[ENTITY_COUNT] = {[ENTITY_PROJECT] = s ? s->project : NULL,
                                              [ENTITY_PARTITION] = s ? s->partition : NULL,
                                              [ENTITY_QOS] = s ? s->qos : NULL};
        n += names(in[kind], name);
    }
    return n;
}

static int check_unused(const struct core *c, enum entity_kind kind, const char *name, struct error *e) {
    uint64_t jobs = core_jobs_in(c, kind, name);
    if (!jobs)
        return 0;
    return error_set(
        e, EBUSY,
        "%s \"%s\" has %llu live %s; wait until they have ended or end them with 'acequia cancel "
        "--%s %s', or delete it with --force: running jobs go on to their end then, pending ones are "
        "cancelled%s",
        entity_word(kind), name, (unsigned long long)jobs, jobs == 1 ? "job" : "jobs", entity_command(kind),
        name, kind == ENTITY_PARTITION ? " unless they name another partition, too" : "");
}

CORE_COMMAND(core_command_entity_delete) {
    const struct command_entity_delete *m = body;
    enum entity_kind kind = m->kind;
    const char *name = m->name;
    static const enum event_type types[] = {EVENT_PROJECT_DELETED, EVENT_PARTITION_DELETED, EVENT_QOS_DELETED,
                                            EVENT_RESERVATION_DELETED, EVENT_LICENSE_DELETED};
    char shown[64];
    int r = kind == ENTITY_RESERVATION ? core_need_operator(actor, "delete reservations", e)
                                       : core_need_admin(actor, "delete that", e);
    if (r < 0)
        return r;
    if (kind >= ENTITY_COUNT)
        return error_set(e, EINVAL, "kind: expected project, partition, qos, reservation or license");
    if (!core_find_entity(c, kind, name))
        return error_set(e, ENOENT, "%s \"%s\" does not exist; see 'acequia %s list'", entity_word(kind),
                         str_printable(name, shown, sizeof shown), entity_command(kind));
    for (uint32_t i = 0; kind == ENTITY_PROJECT && i < c->entity_list[kind].len; i++) {
        const struct entity_entry *t = c->entity_list[kind].at[i];
        if (t->value && streq(((const struct project *)t->value)->parent, name))
            return error_set(e, EBUSY, "project \"%s\" has a child, \"%s\"; delete or move that first", name,
                             t->name);
    }
    if (kind == ENTITY_PROJECT && streq(name, PROJECT_DEFAULT))
        return error_set(
            e, EBUSY,
            "project \"%s\" is where jobs without a project belong; it cannot be deleted, only edited", name);
    if (kind == ENTITY_PARTITION && entities_alive(c, kind) == 1)
        return error_set(e, EBUSY, "partition \"%s\" is the only one; create another before deleting it", name);
    if (kind == ENTITY_PROJECT && (r = core_check_not_deleted(c, "project", name, e)) < 0)
        return r;
    if (kind == ENTITY_PARTITION && !m->force && streq(core_default_partition(c), name))
        return error_set(e, EBUSY,
                         "partition \"%s\" is where jobs that name none go; first make another the default: 'acequia "
                         "partition edit NAME --default true'",
                         name);
    if (kind == ENTITY_PROJECT && core_volumes_of_project(c, name))
        return error_set(e, EBUSY, "project \"%s\" has volumes; delete them first: acequia volume list",
                         name);
    if (!m->force && (r = check_unused(c, kind, name, e)) < 0)
        return r;
    // A later project of the name must not find them.
    if (kind == ENTITY_PROJECT) {
        core_secrets_of_project_delete(c, name, actor->user, now_ms);
        core_saved_of_project_delete(c, name, actor->user, now_ms);
    }
    if (kind == ENTITY_PROJECT && core_jobs_in(c, kind, name)) {
        struct project p = *(const struct project *)core_find_entity(c, kind, name)->value;
        struct event_project_set being_deleted = {.project = &p, .by = actor->user};
        p.deleted_by = actor->user;
        core_emit(c, now_ms, EVENT_PROJECT_SET, &being_deleted);
        return 0;
    }
    struct event_name b = {.name = name, .by = actor->user};
    core_emit(c, now_ms, types[kind], &b);
    return 0;
}

// Those that have ended are forgotten, except where a node's certificate hangs on them. Returns how
// many the user still has, or an agent's: those nobody has used.
static uint32_t sweep_tokens(struct core *c, const char *user, int64_t now_ms) {
    struct core_token_list tokens = core_tokens_by_id(c);
    uint32_t n = 0;
    for (uint32_t i = 0; i < tokens.len; i++) {
        const struct token_entry *t = tokens.at[i];
        if (t->used || !streq(t->token->user, user))
            continue;
        if (t->token->expires_ms > now_ms) {
            n++;
            continue;
        }
        cleanup_arena struct arena a = {0};
        struct event_token b = {.id = arena_strdup(&a, t->token->id)};
        core_emit(c, now_ms, EVENT_TOKEN_REVOKED, &b);
    }
    vec_done(&tokens);
    return n;
}

// A token allows no more than the one it was made with.
static int check_scopes(const struct core *c, const struct actor *actor, const struct command_token_create *t,
                        struct error *e) {
    uint32_t own = actor->scopes ? actor->scopes : USER_SCOPES_ALL,
             wanted = t->scopes ? t->scopes : USER_SCOPES_ALL;
    if ((t->scopes || t->project) && !t->user)
        return error_set(e, EINVAL, "scopes: only a token for a user has scopes or a project");
    if ((t->scopes || t->project) && !core_feature(c, FEATURE_USERS))
        return error_set(e, ENOTSUP, "scopes: finish the upgrade first: acequia upgrade finish");
    if (t->scopes > USER_SCOPES_ALL || wanted & ~own)
        return error_set(e, EPERM, "scopes: a token allows no more than the login or token it is made with");
    if (t->project && !core_find_entity(c, ENTITY_PROJECT, t->project))
        return error_set(e, ENOENT, "project: \"%s\" does not exist; see 'acequia project list'", t->project);
    if (actor->project && !streq(actor->project, t->project))
        return error_set(e, EPERM, "project: you have a token for project %s alone; name that one",
                         actor->project);
    return 0;
}

CORE_COMMAND(core_command_token_create) {
    const struct command_token_create *t = body;
    int r = 0;
    // A user may make tokens for themselves; everything else is an administrator's.
    if (!t->user || !streq(t->user, actor->user))
        r = core_need_admin(actor, t->user ? "create tokens for others" : "create tokens for agents", e);
    if (r < 0)
        return r;
    if (t->expires_ms <= now_ms)
        return error_set(e, EINVAL, "expires_ms: the token would have expired already");
    // Else one who got hold of a token for an hour would have it for ever.
    if (actor->until_ms && t->expires_ms > actor->until_ms)
        return error_set(e, EPERM,
                         "ttl: a token made with a token ends no later than that one; ask for less, or make "
                         "it on the controller's machine");
    if ((r = check_scopes(c, actor, t, e)) < 0)
        return r;
    if (t->node && (t->user || (r = name_check("node", t->node, e)) < 0))
        return t->user ? error_set(e, EINVAL, "node: only a token for an agent can be for one node") : r;
    if (sweep_tokens(c, t->user, now_ms) >= TOKENS_MAX)
        return error_set(e, EAGAIN,
                         "%s has %d tokens that have not ended; revoke some first, see 'acequia token list'",
                         t->user ? t->user : "the cluster", TOKENS_MAX);
    struct event_token b = {.id = t->id,
                            .hash = t->hash,
                            .user = t->user,
                            .node = t->node,
                            .expires_ms = t->expires_ms,
                            .by = actor->user,
                            .scopes = t->scopes,
                            .project = t->project};
    core_emit(c, now_ms, EVENT_TOKEN_CREATED, &b);
    return 0;
}

static struct token_entry *valid_token(const struct core *c, const char *id, const char *hash, int64_t now_ms) {
    struct token_entry *t = strmap_get(&c->tokens, id);
    unsigned char differ = 0;
    size_t n = strlen(hash);
    if (!t || t->token->expires_ms <= now_ms || strlen(t->token->hash) != n)
        return NULL;
    for (size_t i = 0; i < n; i++)  // in constant time
        differ |= (unsigned char)(t->token->hash[i] ^ hash[i]);
    return differ ? NULL : t;
}

CORE_COMMAND(core_command_token_use) {
    const struct command_token_use *m = body;
    struct token_entry *t = valid_token(c, m->id, m->hash, now_ms);
    if (t && !t->used && t->token->node && !streq(t->token->node, m->node))
        return error_set(e, EACCES,
                         "the token is for another node than %s; make one for it with 'acequia token create'",
                         m->node);
    if (!t || t->used || t->token->user)
        return error_set(e, EACCES,
                         "the token is not valid: it is wrong, used or expired. Make a new one with 'acequia "
                         "token create'");
    struct event_token b = {.id = m->id, .node = m->node, .fingerprint = m->fingerprint, .used_ms = now_ms};
    core_emit(c, now_ms, EVENT_TOKEN_USED, &b);
    return 0;
}

// The latest certificate given to a node of this name is the one that counts.
bool core_enrolled(const struct core *c, const char *node, const char *fingerprint) {
    const struct event_token *newest = NULL;
    size_t it = 0;
    void *v;
    while (strmap_next(&c->tokens, &it, NULL, &v)) {
        const struct event_token *t = ((struct token_entry *)v)->token;
        if (!((struct token_entry *)v)->used || !streq(t->node, node))
            continue;
        // Of two used in the same millisecond the id decides, whatever the order of the map.
        if (!newest || t->used_ms > newest->used_ms ||
            (t->used_ms == newest->used_ms && strcmp(t->id, newest->id) > 0))
            newest = t;
    }
    return newest && newest->fingerprint && streq(newest->fingerprint, fingerprint);
}

CORE_COMMAND(core_command_token_revoke) {
    struct token_entry *t = strmap_get(&c->tokens, ((const struct command_token_revoke *)body)->id);
    if (!t || (!actor->admin && !streq(t->token->user, actor->user)))
        return error_set(e, ENOENT, "there is no token with that id; see 'acequia token list'");
    struct event_token b = {.id = t->token->id, .by = actor->user};
    core_emit(c, now_ms, EVENT_TOKEN_REVOKED, &b);
    return 0;
}

bool core_token_holds(const struct core *c, const char *id, int64_t now_ms) {
    const struct token_entry *t = strmap_get(&c->tokens, id);
    return t && t->token->expires_ms > now_ms;
}

const struct event_token *core_token_of_user(const struct core *c, const char *id, const char *hash,
                                             int64_t now_ms) {
    const struct token_entry *t = valid_token(c, id, hash, now_ms);
    return t && t->token->user ? t->token : NULL;
}
