// Loads a snapshot into an empty core.
#include <assert.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "base/cleanup.h"
#include "base/text.h"
#include "images.h"
#include "snapshot_records.h"

struct loader {
    struct core *core;
    VEC(struct submission *) submissions;
    VEC(struct rec_usage) usage;  // set after the jobs are in the scheduler's world
    VEC(struct sched_preemption) gave;  // likewise
    VEC(uint64_t) givers;         // the jobs that were preempted
    bool begun, complete;
    const char *why;  // what is wrong with the record
};

static int bad(struct loader *l, const char *why) {
    l->why = why;
    return -EBADMSG;
}

static int load_node(struct loader *l, const struct rec_node *r) {
    struct core *c = l->core;
    if (str_empty(r->name) || r->state > NODE_DOWN)
        return bad(l, "no name, or an unknown state");
    if (strmap_get(&c->nodes, r->name))
        return bad(l, "the second with this name");
    if (r->node && (!core_node_loads(r->node) || !streq(r->node->name, r->name)))
        return bad(l, "its machine is not described");
    // A removed node's name keeps its handle.
    struct node empty = {.name = r->name, .boot_id = "-", .spool_id = "-", .cpus = 1};
    struct event_node_joined joined = {.node = r->node ? r->node : &empty, .fingerprint = r->fingerprint};
    struct event_node state = {.name = r->name, .state = (enum node_state)r->state, .reason = r->reason, .by = r->by};
    core_apply(c, &(struct event){.type = EVENT_NODE_JOINED, .body = &joined});
    core_apply(c, &(struct event){.type = EVENT_NODE_STATE, .at_ms = r->reason_ms, .body = &state});
    if (r->drained)
        core_apply(c, &(struct event){.type = EVENT_NODE_DRAINED, .at_ms = r->reason_ms, .body = &state});
    struct node_entry *n = core_find_node(c, r->name);
    if (n)
        n->busy_ms = r->busy_ms;
    struct event_node_launches launches = {
        .name = r->name, .failures = r->launch_failures, .retry_ms = r->retry_ms, .reason = r->launch_reason};
    if (r->launch_failures)
        core_apply(c, &(struct event){.type = EVENT_NODE_LAUNCHES, .body = &launches});
    if (r->removed)
        core_apply(c, &(struct event){.type = EVENT_NODE_REMOVED, .body = &state});
    return 0;
}

static int load_entity(struct loader *l, const struct rec_entity *r, struct arena *a) {
    struct core *c = l->core;
    if (r->kind >= ENTITY_COUNT || str_empty(r->name))
        return bad(l, "no name, or an unknown kind");
    const struct schema *s = entity_schema((enum entity_kind)r->kind);
    static const enum event_type set[] = {EVENT_PROJECT_SET, EVENT_PARTITION_SET, EVENT_QOS_SET, EVENT_RESERVATION_SET,
                                          EVENT_LICENSE_SET};
    static const enum event_type deleted[] = {EVENT_PROJECT_DELETED, EVENT_PARTITION_DELETED,
                                              EVENT_QOS_DELETED, EVENT_RESERVATION_DELETED, EVENT_LICENSE_DELETED};
    void *value = arena_alloc(a, s->size);
    int e = schema_decode(s, r->value.data, r->value.len, a, value);
    if (e < 0)
        return e;
    *(const char **)value = r->name;
    struct event_project_set body = {.project = value};  // all five begin with the pointer
    core_apply(c, &(struct event){.type = set[r->kind], .body = &body});
    if (!r->value.len)
        core_apply(c, &(struct event){.type = deleted[r->kind], .body = &(struct event_name){.name = r->name}});
    struct entity_entry *t = strmap_get(&c->entities[r->kind], r->name);
    if (t)
        t->version = r->version;
    return 0;
}

static int load_token(struct loader *l, const struct rec_token *r, struct arena *a) {
    struct core *c = l->core;
    struct event_token t;
    int e = schema_decode(event_info(EVENT_TOKEN_CREATED)->schema, r->token.data, r->token.len, a, &t);
    if (e < 0)
        return e;
    if (str_empty(t.id))
        return bad(l, "no id");
    core_apply(c, &(struct event){.type = EVENT_TOKEN_CREATED, .body = &t});
    if (r->used)
        core_apply(c, &(struct event){.type = EVENT_TOKEN_USED, .body = &t});
    return 0;
}

static int load_secret(struct core *c, struct event_secret *s) {
    if (!s->name || !s->user == !s->project)
        return -EBADMSG;
    core_apply(c, &(struct event){.type = EVENT_SECRET_SET, .at_ms = s->set_ms, .body = s});
    return 0;
}

static int load_deleted_secret(struct core *c, struct event_secret *s) {
    if (!s->name || !s->user == !s->project)
        return -EBADMSG;
    core_apply(c, &(struct event){.type = EVENT_SECRET_DELETED, .body = s});
    return 0;
}

static int load_account(struct core *c, struct event_user_set *u) {
    if (!core_account_loads(c, u->account) || strmap_get(&c->accounts, u->account->name))
        return -EBADMSG;
    core_apply(c, &(struct event){.type = EVENT_USER_SET, .at_ms = u->set_ms, .body = u});
    return 0;
}

static int load_session(struct core *c, struct event_session *s) {
    if (!s->id || !s->hash || !s->identity)
        return -EBADMSG;
    core_apply(c, &(struct event){.type = EVENT_SESSION_BEGUN, .body = s});
    return 0;
}

static int load_saved(struct core *c, struct event_saved *s) {
    if (!core_saved_loads(s))
        return -EBADMSG;
    core_apply(c, &(struct event){.type = EVENT_SAVED_SET, .body = s});
    return 0;
}

static int load_grant(struct core *c, struct event_user_grant *g) {
    if (!core_grant_loads(g))
        return -EBADMSG;
    core_apply(c, &(struct event){.type = EVENT_USER_GRANTED, .body = g});
    return 0;
}

// As the event of the same body does; one of each.
static int load_alert_rule(struct core *c, struct event_alert_rule *r) {
    struct event e = {.type = EVENT_ALERT_RULE_SET, .body = r};
    if (!core_event_loads(c, &e) || core_alert_rule(c, r->rule->name))
        return -EBADMSG;
    core_apply(c, &e);
    return 0;
}

static int load_alert(struct core *c, struct event_alert *a) {
    if (!core_alert_loads(a) || core_alert(c, a->rule, a->subject))
        return -EBADMSG;
    core_apply(c, &(struct event){.type = EVENT_ALERT_RAISED, .body = a});
    return 0;
}

static int load_share(struct core *c, struct event_share *s) {
    if (!core_share_loads(s) || core_share(c, s))
        return -EBADMSG;
    core_apply(c, &(struct event){.type = EVENT_SHARE_SET, .body = s});
    return 0;
}

static int load_service(struct core *c, struct event_service *s) {
    if (!core_service_loads(s) || core_service_by_id(c, s->id) || core_service(c, s->user, s->name))
        return -EBADMSG;
    core_apply(c, &(struct event){.type = EVENT_SERVICE_SET, .body = s});
    return 0;
}

static int load_service_token(struct core *c, struct event_service_token *t) {
    if (!core_service_token_loads(t) || !core_service_by_id(c, t->service))
        return -EBADMSG;
    core_apply(c, &(struct event){.type = EVENT_SERVICE_TOKEN_SET, .body = t});
    return 0;
}

static int load_volume(struct core *c, struct event_volume *v) {
    if (!core_volume_loads(v) || core_volume(c, v->project ? NULL : v->user, v->project, v->name))
        return -EBADMSG;
    core_apply(c, &(struct event){.type = EVENT_VOLUME_SET, .body = v});
    return 0;
}

static int load_provider(struct core *c, struct event_provider *b) {
    if (!core_provider_loads(b->provider) || core_provider(c, b->provider->name))
        return -EBADMSG;
    core_apply(c, &(struct event){.type = EVENT_PROVIDER_SET, .body = b});
    return 0;
}

static int load_wanted(struct core *c, struct wanted_node *n) {
    if (!core_wanted_loads(n) || core_wanted(c, n->id))
        return -EBADMSG;
    core_apply(c, &(struct event){.type = EVENT_WANTED_NODE, .body = n});
    return 0;
}

static int load_images(struct core *c, struct event_node_images *b) {
    const struct node_entry *n = core_images_load(b) ? core_find_node(c, b->name) : NULL;
    if (!n || n->removed || n->images || !b->images.len)
        return -EBADMSG;
    core_apply(c, &(struct event){.type = EVENT_NODE_IMAGES, .body = b});
    return 0;
}

// The elements of an array are found by these.
static bool ranges_load(const struct rec_submission *r) {
    uint64_t count = 0;
    for (uint32_t i = 0; i < r->ranges.len; i++) {
        const struct array_range *x = &r->ranges.at[i];
        if (!x->step || x->last < x->first)
            return false;
        count += (x->last - x->first) / x->step + 1;
    }
    return r->id && r->id < CORE_ID_MAX && r->count && r->count <= CORE_ID_MAX &&
           (!r->has_array || count == r->count) && r->uncreated < r->count &&
           r->unlimited <= r->count - r->uncreated && (r->has_array || (!r->creating && !r->uncreated));
}

static void load_array(struct array *a, const struct rec_submission *r) {
    a->ended = r->ended;
    a->ended_ok = r->ended_ok;
    a->begun = r->begun;
    a->live = r->live;
    a->limit = r->limit;
    a->cursor = r->cursor;
    a->begun_ms = r->begun_ms;
    a->created = r->count - r->uncreated;
    a->limited = a->created - r->unlimited;
}

static int load_submission(struct loader *l, const struct rec_submission *r, struct arena *a) {
    struct core *c = l->core;
    struct spec spec;
    int e = schema_decode(&spec_schema, r->spec.data, r->spec.len, a, &spec);
    if (e < 0)
        return e;
    if (r->number != l->submissions.len + 1)
        return bad(l, "out of order");
    if (!core_spec_loads(&spec) || !spec_known(&spec))
        return bad(l, "what was submitted is not complete");
    if (spec.workers_max && !core_feature(c, FEATURE_ELASTIC))
        return bad(l, "workers in a journal of a release without them");
    if (!ranges_load(r))
        return bad(l, "the array's ranges do not add up");
    const struct array *known = map_get(&c->arrays, r->id);
    if (r->has_array && known && known->count != r->count)
        return bad(l, "another size than its array");
    struct submission *s = core_submission_new(c, r->id, &spec, r->submit_ms);
    s->count = r->count;
    s->is_array = r->is_array;
    s->limit = r->limit;
    s->refs = 1;  // dropped when loading is done
    core_depend_parse(s, &spec);
    if (r->has_array && !(s->array = map_get(&c->arrays, r->id))) {
        s->array = core_array_new(c, r->id, r->count, r->ranges.at, r->ranges.len);
        load_array(s->array, r);
    }
    if (r->creating && s->array && !s->array->sub) {
        s->array->sub = s;
        s->refs++;
        c->uncreated += s->array->count - s->array->created;
        core_user_count(c, s->user)->live += s->array->count - s->array->created;
    }
    if (spec.workers_max)
        core_group_attach(c, s, &spec);
    vec_push(&l->submissions, s);
    return 0;
}

// Comes right after its submission, before the job and its workers.
static int load_group(struct loader *l, const struct rec_group *r) {
    struct submission *s = l->submissions.len ? l->submissions.at[l->submissions.len - 1] : NULL;
    struct group *g = s ? s->group : NULL;
    if (!g || g->id != r->id || g->workers.len)
        return -EBADMSG;
    g->generation = r->generation;
    g->components.at[0].together = r->together;
    for (uint32_t i = 0; i < r->together_more.len && i + 1 < g->components.len; i++)
        g->components.at[i + 1].together = r->together_more.at[i];
    g->worst_state = (uint8_t)r->worst_state;
    g->worst_code = r->worst_code;
    g->worst_signal = r->worst_signal;
    for (uint32_t i = 0; i < r->workers.len; i++) {
        const struct rec_worker *w = &r->workers.at[i];
        if (w->node > l->core->node_list.len || w->state >= JOB_STATE_COUNT || !w->id ||
            w->component >= g->components.len || !core_worker_rank_loads(w->rank))
            return -EBADMSG;
        vec_push(&g->workers, ((struct group_worker){.id = w->id,
                                                     .rank = w->rank,
                                                     .flags = (uint8_t)w->flags,
                                                     .state = (uint8_t)w->state,
                                                     .component = (uint8_t)w->component,
                                                     .node = w->node,
                                                     .exit_code = w->exit_code,
                                                     .exit_signal = w->exit_signal}));
    }
    return 0;
}

static int load_run(struct loader *l, struct core_job *j, const struct rec_job *r) {
    struct core *c = l->core;
    if (!r->parts.len != core_is_group(j))
        return bad(l, "it holds nothing");
    struct core_run *run = xcalloc(1, sizeof *run);
    j->run = run;
    run->parts = xcalloc(r->parts.len + 1, sizeof *run->parts);
    run->time_limit_s = r->time_limit_s;
    run->ending = r->ending;
    run->hold = r->hold;
    run->cause = (enum end_cause)r->cause;
    run->exit_code = r->exit_code;
    run->exit_signal = r->exit_signal;
    run->signal = r->signal;
    run->grace_s = r->grace_s;
    run->by = r->by ? xstrdup(r->by) : NULL;
    run->reason = r->reason ? xstrdup(r->reason) : NULL;
    run->end_reason = r->end_reason ? xstrdup(r->end_reason) : NULL;
    run->partition = r->partition ? core_intern(c, r->partition) : NULL;
    run->epoch = r->epoch;
    run->seq = r->seq;
    run->agent_id = r->agent_id;
    run->adopted = r->adopted;
    run->suspended_ms = r->suspended_ms;
    run->suspend_ms = r->suspend_ms;
    run->warned_percent = (uint8_t)r->warned_percent;
    for (uint32_t i = 0; i < r->parts.len; i++) {
        const struct rec_part *from = &r->parts.at[i];
        struct run_part *p = &run->parts[i];
        // Also one that was removed: a part that ended there is still part of the job.
        if (!core_part_loads(c, from->part))
            return bad(l, "what it holds is not there");
        p->node = strmap_get(&c->nodes, from->part->node);
        p->cpus = from->part->cpus;
        p->tasks = from->part->tasks;
        p->memory_bytes = from->part->memory_bytes;
        p->gpus = xmemdup(from->part->gpus.at, from->part->gpus.len * sizeof *p->gpus);
        p->gpu_count = from->part->gpus.len;
        p->cpu_ids = from->part->cpu_ids ? xstrdup(from->part->cpu_ids) : NULL;
        p->started = from->started;
        p->ended = from->ended;
        p->cause = (enum end_cause)from->cause;
        p->exit_code = from->exit_code;
        p->exit_signal = from->exit_signal;
        p->launch_failed = from->launch_failed;
        if (from->health < HEALTH_COUNT)
            core_part_set_health(p, (enum job_health)from->health, from->health_reason);
        run->part_count++;
    }
    for (uint32_t i = 1; i + 1 < r->adopted_steps.len; i += 2)
        core_step_note_adopted(
            j, &(struct core_step_name){(uint32_t)r->adopted_steps.at[i], r->adopted_steps.at[i + 1]});
    for (uint32_t i = 0; i < r->running.len; i++) {
        cleanup_arena struct arena a = {0};
        const struct rec_step *s = &r->running.at[i];
        struct event e;
        if (event_decode(EVENT_STEP_STARTED, s->started.data, s->started.len, &a, &e) < 0 ||
            core_steps_load(c, j, e.body, s->ending, s->signal, s->grace_s) < 0)
            return bad(l, "a step of it is not complete");
    }
    if (r->adopted_steps.len)
        core_steps_set_own(j, (uint32_t)r->adopted_steps.at[0]);
    return 0;
}

static int load_job(struct loader *l, const struct rec_job *r) {
    struct core *c = l->core;
    if (!r->id || !r->submission || r->submission > l->submissions.len)
        return bad(l, "its submission is missing");
    if (r->state >= JOB_COMPLETED)
        return bad(l, "it has ended");
    if (!core_time_loads(r->start_ms))
        return bad(l, "it started at no time");
    if (core_find_job(c, r->id) || r->id >= c->next_id ||
        (c->order.len && c->order.at[c->order.len - 1].id >= r->id))
        return bad(l, "out of order");
    struct core_job *j = xcalloc(1, sizeof *j);
    j->id = r->id;
    j->sub = l->submissions.at[r->submission - 1];
    j->sub->refs++;
    j->array_index = r->array_index;
    // Groups are loaded before their workers: a worker must be the one that its group names in this place.
    const struct group *of = j->sub->group;
    if (of && j->id != of->id &&
        (j->array_index >= of->workers.len || of->workers.at[j->array_index].id != j->id)) {
        core_submission_unref(c, j->sub);
        free(j);
        return -EBADMSG;
    }
    // The submissions of components are derived from the job's.
    struct submission *own = of && j->id != of->id ? core_component_of(of, core_worker_of(j))->sub : NULL;
    if (own) {
        own->refs++;
        core_submission_unref(c, j->sub);
        j->sub = own;
    }
    j->version = r->version;
    j->attempt = r->attempt;
    j->preempted = r->preempted < UINT16_MAX ? (uint16_t)r->preempted : UINT16_MAX;
    j->steps = r->steps;
    j->uncounted = (uint16_t)r->uncounted;
    j->retried = (uint16_t)r->retried;
    j->state = (uint8_t)r->state;
    j->flags = (uint8_t)r->flags;
    j->begin_ms = r->begin_ms;
    j->eligible_ms = r->eligible_ms;
    j->start_ms = r->start_ms;
    j->usage = r->usage ? xmemdup(r->usage, sizeof *r->usage) : NULL;
    if (r->preempted_why)
        map_put(&c->preempted_why, j->id, xstrdup(r->preempted_why));
    core_job_link(c, j);
    // Who was preempted for whom is set when all jobs are there: a preemptor may come later in the snapshot.
    for (uint32_t i = 0; i < r->gave.len; i++) {
        const struct rec_gave *g = &r->gave.at[i];
        vec_push(&l->gave, (struct sched_preemption){g->to, g->share, g->to_share, core_claim_read(g->claim)});
        vec_push(&l->givers, r->id);
    }
    if ((r->promised.len || r->late_why) && core_promise_load(c, j, r->promised, r->late_why) < 0)
        return -EBADMSG;
    return job_state_holds_resources((enum job_state)j->state) ? load_run(l, j, r) : 0;
}

static int load_judging(struct core *c, const struct rec_judging *r) {
    if (!r->target || !r->ids.len || map_get(&c->judging, r->target))
        return -EBADMSG;
    struct judging *g = xcalloc(1, sizeof *g);
    g->target = r->target;
    map_put(&c->judging, g->target, g);
    for (uint32_t i = 0; i < r->ids.len; i++)
        core_dependents_add(&g->ids, r->ids.at[i]);
    return 0;
}

static int load_keys(struct core *c, const struct rec_outcomes *r) {
    uint32_t n = r->key_hashes.len;
    if (r->key_specs.len != n || r->key_ids.len != n || r->key_counts.len != n || r->key_users.len != n ||
        r->key_expires.len != n || r->key_plain.len != n)
        return -EBADMSG;
    for (uint32_t i = 0; i < n; i++) {
        struct core_key k = {.hash = r->key_hashes.at[i],
                             .spec_hash = r->key_specs.at[i],
                             .id = r->key_ids.at[i],
                             .count = (uint32_t)r->key_counts.at[i],
                             .user = (uint32_t)r->key_users.at[i],
                             .expires_s = (uint32_t)r->key_expires.at[i],
                             .plain = r->key_plain.at[i] != 0};
        if (!k.user || k.user > c->users.len)
            return -EBADMSG;
        core_key_put(c, &k);
    }
    return 0;
}

static int load_outcomes(struct core *c, const struct rec_outcomes *r) {
    if (r->ids.len != r->flags.len)
        return -EBADMSG;
    for (uint32_t i = 0; i < r->ids.len; i++)
        core_outcome_add(c, r->ids.at[i], r->flags.at[i] & 1, r->flags.at[i] & 2,
                    r->starts.len == r->ids.len ? (uint32_t)r->starts.at[i] : 0);
    return load_keys(c, r);
}

static int load_user(struct loader *l, const struct rec_user *r) {
    if (str_empty(r->name))
        return bad(l, "no name");
    if (core_user_known(l->core, r->name))
        return bad(l, "the second with this name");
    core_user_handle(l->core, r->name);
    return 0;
}

static int load_usage(struct loader *l, const struct rec_usage *r) {
    const struct core *c = l->core;
    if (!r->project || r->project > c->entity_list[ENTITY_PROJECT].len || !r->user || r->user > c->users.len)
        return bad(l, "of a project or a user that is not there");
    vec_push(&l->usage, *r);
    return 0;
}

static int load_meta(struct loader *l, const struct rec_meta *m) {
    struct core *c = l->core;
    if (l->begun || !m->next_id || m->next_id >= CORE_ID_MAX)
        return bad(l, "the second of its kind, or its numbers are out of range");
    l->begun = true;
    // Before anything else: what a newer release means by the rest is not known.
    if (m->level > FEATURE_LEVEL_NEWEST)
        return -EPROTONOSUPPORT;
    if (m->policy && !core_policy_loads(m->policy))
        return -EBADMSG;
    if (m->epochs.len != m->epoch_seqs.len || m->epochs.len > EPOCHS_KEPT)
        return -EBADMSG;
    c->level = m->level ? m->level : FEATURE_LEVEL_FIRST;
    for (uint32_t i = 0; i < m->epochs.len; i++)
        vec_push(&c->epochs, (struct core_epoch){m->epochs.at[i], m->epoch_seqs.at[i]});
    if (m->adopted.len % 4 || m->adopted.len / 4 > ADOPTED_KEPT)
        return -EBADMSG;
    for (uint32_t i = 0; i < m->adopted.len; i += 4)
        core_note_adopted(c, &(struct core_adopted){m->adopted.at[i], m->adopted.at[i + 1], m->adopted.at[i + 2],
                                                    m->adopted.at[i + 3]});
    c->unused_from = m->unused_from;
    c->unused_to = m->unused_to;
    c->restore_epoch = m->restore_epoch;
    c->restore_ms = m->restore_ms;
    c->next_id = m->next_id;
    c->last_event_ms = m->last_event_ms;
    c->counts.submitted = m->submitted;
    c->counts.requeued = m->requeued;
    c->counts.preempted = m->preempted;
    core_keys_set_secret(c, &m->key_secret);
    c->keys.swept_ms = m->keys_swept_ms;
    if (m->policy)
        core_apply_policy(c, m->policy, 0);
    for (uint32_t i = 0; i < m->by_state.len && i < JOB_STATE_COUNT; i++)
        c->counts.by_state[i] = m->by_state.at[i];
    return 0;
}

static int load_record(struct loader *l, enum record_type type, const uint8_t *p, size_t len) {
    cleanup_arena struct arena a = {0};
    struct core *c = l->core;
    if (type != REC_META && !l->begun)
        return bad(l, "before the first");
    if (type == REC_END) {
        l->complete = true;
        return 0;
    }
    // A record refers only to records before it (nodes, projects, submissions, then jobs), in the order in which
    // snapshot_write.c puts them: what is not there yet will not come.
    const struct schema *schema = core_record_schema(type);
    if (!schema)
        return -EBADMSG;
    void *value = arena_alloc(&a, schema->size);
    int e = schema_decode(schema, p, len, &a, value);
    if (e < 0)
        return e;
    switch (type) {
    case REC_META: return load_meta(l, value);
    case REC_USER: return load_user(l, value);
    case REC_NODE: return load_node(l, value);
    case REC_ENTITY: return load_entity(l, value, &a);
    case REC_TOKEN: return load_token(l, value, &a);
    case REC_SUBMISSION: return load_submission(l, value, &a);
    case REC_JOB: return load_job(l, value);
    case REC_OUTCOMES: return load_outcomes(c, value);
    case REC_GROUP: return load_group(l, value);
    case REC_JUDGING: return load_judging(c, value);
    case REC_SECRET: return load_secret(c, value);
    case REC_SECRET_DELETED: return load_deleted_secret(c, value);
    case REC_ACCOUNT: return load_account(c, value);
    case REC_SESSION: return load_session(c, value);
    case REC_GRANT: return load_grant(c, value);
    case REC_SAVED: return load_saved(c, value);
    case REC_ALERT_RULE: return load_alert_rule(c, value);
    case REC_ALERT: return load_alert(c, value);
    case REC_SHARE: return load_share(c, value);
    case REC_SERVICE: return load_service(c, value);
    case REC_SERVICE_TOKEN: return load_service_token(c, value);
    case REC_VOLUME: return load_volume(c, value);
    case REC_PROVIDER: return load_provider(c, value);
    case REC_WANTED: return load_wanted(c, value);
    case REC_NODE_IMAGES: return load_images(c, value);
    case REC_USAGE: return load_usage(l, value);
    default: return -EBADMSG;
    }
}

// Each array has as many elements as it says.
static bool elements_add_up(const struct core *c) {
    struct map found = {0};
    bool ok = true;
    void *v;
    for (uint32_t i = 0; i < c->order.len; i++) {
        const struct array *a = c->order.at[i].job->sub->array;
        if (a)
            map_put(&found, a->id, (void *)((uintptr_t)map_get(&found, a->id) + 1));
    }
    for (size_t it = 0; ok && map_next(&c->arrays, &it, NULL, &v);) {
        const struct array *a = v;
        ok = (uintptr_t)map_get(&found, a->id) + (a->count - a->created) == a->live &&
             a->live + a->ended == a->count && !a->sub == (a->created == a->count);
    }
    map_done(&found);
    return ok;
}

// Every worker that has not left is there, and its job. While a job waits, none of its workers runs and one can be
// started.
static bool workers_add_up(const struct core *c) {
    void *v;
    for (size_t it = 0; map_next(&c->groups, &it, NULL, &v);) {
        const struct group *g = v;
        const struct core_job *job = core_find_job(c, g->id);
        uint32_t present = 0;
        if (!job || core_group_of(job) != g)
            return false;
        for (uint32_t i = 0; i < g->workers.len; i++) {
            const struct core_job *j = core_find_job(c, g->workers.at[i].id);
            bool mine = j && core_group_of(j) == g && j != job, left = g->workers.at[i].flags & GROUP_LEFT;
            if (left ? mine : !mine || (j->run && !job->run))
                return false;
            present += !left;
        }
        if (!job->run && !present)
            return false;
    }
    return true;
}

static void gave_to_world(const struct loader *l) {
    world_preemptions_forget(l->core->world);
    for (uint32_t i = 0, n; i < l->gave.len; i += n) {
        for (n = 1; i + n < l->gave.len && l->givers.at[i + n] == l->givers.at[i];)
            n++;
        world_job_preemptions_set(l->core->world, l->givers.at[i], l->gave.at + i, n);
    }
}

int core_load_snapshot(struct core *c, uint64_t seq, const void *data, size_t len, struct error *e) {
    const uint8_t *p = data, *end = p + len;
    struct loader l = {.core = c};
    int r = 0;
    uint64_t count = 0, type = 0;
    assert(!c->seq && !c->jobs.len);
    c->replaying = true;
    // Records, each with its kind and length. The last one says that the snapshot is complete: one that was
    // cut off between two records is found too.
    while (r == 0 && p < end && !l.complete) {
        uint64_t size;
        count++;
        if ((r = schema_get_varint(&p, end, &type)) < 0 || (r = schema_get_varint(&p, end, &size)) < 0)
            break;
        if (size > (uint64_t)(end - p)) {
            r = -EBADMSG;
            break;
        }
        r = load_record(&l, (enum record_type)type, p, size);
        p += size;
    }
    if (r == 0 && !l.complete)
        r = -EBADMSG;
    if (r == 0 && !elements_add_up(c))
        r = bad(&l, "the elements of an array do not add up");
    if (r == 0 && !workers_add_up(c))
        r = bad(&l, "the workers of a job do not add up");
    // The scheduler's world is not in a snapshot: it is derived when all jobs, nodes and entities are there.
    if (r == 0) {
        core_jobs_to_world(c);
        gave_to_world(&l);
        core_promises_to_world(c);
        void *v;
        for (size_t it = 0; map_next(&c->arrays, &it, NULL, &v);)
            core_array_note_unfinished(c, v);
    }
    for (uint32_t i = 0; r == 0 && i < l.usage.len; i++) {
        const struct rec_usage *u = &l.usage.at[i];
        world_usage_set(c->world, u->project, u->user, u->milli, u->at_ms);
    }
    vec_done(&l.usage);
    vec_done(&l.gave);
    vec_done(&l.givers);
    // The loader's own references; one that no job refers to goes now.
    for (uint32_t i = 0; i < l.submissions.len; i++)
        core_submission_unref(c, l.submissions.at[i]);
    vec_done(&l.submissions);
    c->replaying = false;
    c->dirty = true;
    if (r < 0) {
        const struct schema *schema = core_record_schema((enum record_type)type);
        core_reset(c);
        return error_set(e, -r, "the snapshot at event %llu is damaged: record %llu (%s)%s%s",
                         (unsigned long long)seq, (unsigned long long)count,
                         schema ? schema->name : "of an unknown kind", l.why ? ": " : "", l.why ? l.why : "");
    }
    c->seq = seq;
    return 0;
}
