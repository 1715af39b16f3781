// Reconciliation when an agent connects. After its hello both sides agree: attempts that should not run there are
// killed; attempts that should and do not are launched if they cannot have run before, and otherwise count as lost.
#include <assert.h>
#include <errno.h>

#include "base/text.h"
#include "model/reason.h"
#include "state.h"
#include "model/name.h"

enum { NODE_TEXT_MAX = 1000 };

// Launches that the node has not heard of: lost with a connection. Not before its old attempts are gone, whose
// resources may have been given to these.
static void launch_missing(struct core *c, struct node_entry *n) {
    for (uint32_t i = 0; i < n->jobs.len; i++) {
        struct core_job *j = n->jobs.at[i];
        const struct run_part *p = core_part_on(j, n->name);
        if (!p->started && !j->run->ending && !j->run->adopted)
            core_effect(c, EFFECT_LAUNCH, n->name, j->id, j->attempt);
    }
}

void core_node_ready(struct core *c, struct node_entry *n, int64_t now_ms) {
    struct event_node b = {.name = n->name, .state = NODE_UP};
    if (n->state != NODE_UP)
        core_emit(c, now_ms, EVENT_NODE_STATE, &b);
    core_wanted_hello(c, n->name, now_ms);
    launch_missing(c, n);
}

// Texts of a node are shown to people and used as labels of metrics.
static int check_words(const struct node *d, struct error *e) {
    const char *const texts[] = {d->version, d->os, d->arch, d->missing, d->boot_id,
                                 d->spool_id, d->address, d->user};
    for (size_t i = 0; i < sizeof texts / sizeof *texts; i++)
        if (texts[i] && name_line_check("node", texts[i], NODE_TEXT_MAX, e) < 0)
            return -EINVAL;
    for (uint32_t i = 0; i < d->features.len; i++)
        if (name_line_check("feature", d->features.at[i], NODE_TEXT_MAX, e) < 0)
            return -EINVAL;
    for (uint32_t i = 0; i < d->gpus.len; i++) {
        const struct gpu *g = &d->gpus.at[i];
        const char *const words[] = {g->uuid, g->model, g->pci, g->unhealthy, g->minor_path};
        for (size_t k = 0; k < sizeof words / sizeof *words; k++)
            if (words[k] && name_line_check("GPU", words[k], NODE_TEXT_MAX, e) < 0)
                return -EINVAL;
    }
    return 0;
}

static int check_node(struct core *c, const struct node *d, struct error *e) {
    int r = name_check("node", d->name, e);
    if (r < 0)
        return r;
    if ((r = check_words(d, e)) < 0)
        return r;
    if (!d->cpus || d->cpus > 65536)
        return error_set(e, EINVAL, "node %s: %u CPUs; expected 1 to 65536", d->name, d->cpus);
    if (d->gpus.len > SCHED_GPUS_MAX)
        return error_set(e, EINVAL, "node %s: %u GPUs; at most %d are supported", d->name, d->gpus.len, SCHED_GPUS_MAX);
    if (!core_time_loads(d->until_ms))
        return error_set(e, EINVAL, "node %s: it cannot be there until that time", d->name);
    if (str_empty(d->boot_id) || str_empty(d->spool_id))
        return error_set(e, EINVAL, "node %s: no boot or spool id", d->name);
    for (uint32_t i = 0; i < d->gpus.len; i++)
        if (str_empty(d->gpus.at[i].uuid) || str_empty(d->gpus.at[i].model))
            return error_set(e, EINVAL, "node %s: GPU %u has no id or no model", d->name, i);
    if (!core_find_node(c, d->name) && c->node_list.len + 1 >= SCHED_NODES_MAX)
        return error_set(e, E2BIG, "the cluster has seen %d node names; no more are supported", SCHED_NODES_MAX);
    return 0;
}

// Attempts have the same number after a restore of an older copy: then the epochs differ.
static bool same_epoch(const struct core_run *r, const struct attempt *a) {
    return !a->epoch || !r->epoch || a->epoch == r->epoch;
}

static const struct attempt *listed(const struct message_hello *h, const struct core_job *j) {
    for (uint32_t i = 0; i < h->attempts.len; i++)
        if (h->attempts.at[i].id == core_agent_job(j) && h->attempts.at[i].attempt == j->attempt &&
            same_epoch(j->run, &h->attempts.at[i]))
            return &h->attempts.at[i];
    return NULL;
}

// The agent does not list an attempt that should be there.
static void missing_here(struct core *c, struct core_job *j, struct run_part *p, bool same_memory, int64_t now_ms) {
    if (j->run->adopted && !p->started) {  // it was over on this node before the others described it
        core_end_part(c, j, p, END_EXIT, NULL, now_ms);
        core_finish_if_done(c, j, now_ms);
        return;
    }
    if (same_memory && !j->run->ending && !p->started) {
        return;  // launched again when the node is ready
    }
    if (same_memory && !p->started)
        core_end_part(c, j, p, j->run->cause, "ended before it was started", now_ms);
    else
        core_end_part(c, j, p, END_NODE_FAIL, "the node restarted or lost its record of the job", now_ms);
    if (!j->run->ending && j->run->part_count > 1)
        core_begin_ending(
            c, j, &(struct event_job_ending){.cause = END_NODE_FAIL, .reason = reason_text(BECAUSE_NODE_LOST)},
            now_ms);
    core_finish_if_done(c, j, now_ms);
}

// What the attempt should be like, whatever the agent knows of it: each message says a state, so that repeats do
// no harm. Sent when something changes and at every hello; the agent sees to it that its shepherd gets it.
void core_send_desired(struct core *c, const struct core_job *j, const struct run_part *p) {
    if (j->run->ending) {
        core_send_kill(c, j, p);
        return;
    }
    core_send_time_limit(c, j, p);
    if (core_is_worker(j))
        core_group_send_members(c, j, p);
    core_send_suspend(
        c, j, p);  // also to one that never was: it may have been in a state that was lost by a restore
}

static void reconcile_expected(struct core *c, struct node_entry *n, const struct message_hello *h,
                               bool same_memory, bool restored, int64_t now_ms) {
    VEC(struct core_job *) jobs = {0};  // the list changes while jobs end
    for (uint32_t i = 0; i < n->jobs.len; i++)
        vec_push(&jobs, n->jobs.at[i]);
    for (uint32_t i = 0; i < jobs.len; i++) {
        struct core_job *j = jobs.at[i];
        struct run_part *p = core_part_on(j, n->name);
        assert(p && !p->ended);
        const struct attempt *a = listed(h, j);
        if (!a)
            missing_here(c, j, p, same_memory, now_ms);
        else if (a->state != ATTEMPT_ENDED && !p->started)
            core_agent_started(
                c, n->name, &(struct message_started){.id = core_agent_job(j), .attempt = j->attempt}, now_ms);
        if (a && a->state != ATTEMPT_ENDED)
            core_send_desired(c, j, p);  // may have changed while the agent was away
        if (a) {
            core_steps_reconcile(c, j, n->name, a, restored, now_ms);
            core_health_reconcile(c, j, n->name, a, now_ms);
        }
    }
    vec_done(&jobs);
}

// The attempt was given up while the node was away: it is killed, and the node is not used before that is done.
static void clear_stale(struct core *c, struct node_entry *n, const struct attempt *a) {
    struct message_kill m = {.id = a->id, .attempt = a->attempt, .cause = END_NODE_FAIL, .signal = 9, .epoch = a->epoch,
                             .reason = reason_text(BECAUSE_GIVEN_UP)};
    vec_push(&n->stale, a->id);
    vec_push(&n->stale, a->attempt);
    core_effect_send(c, n->name, MESSAGE_KILL, &m);
}

// What the agent has and we do not expect. Every attempt it lists is one of: known here, of a lost journal (asked
// about), ended (acknowledged, so that the agent can forget it), or given up (killed, and the node waits for that).
static void reconcile_listed(struct core *c, struct node_entry *n, const struct message_hello *h, int64_t now_ms) {
    vec_clear(&n->stale);
    vec_clear(&n->unknown);
    for (uint32_t i = 0; i < h->attempts.len; i++) {
        const struct attempt *a = &h->attempts.at[i];
        struct core_job *j;
        struct run_part *p = core_reported_part(c, n->name, a->id, a->attempt, &j);
        // The same numbers from another life of the controller are another attempt: after a restore an id may have
        // been given a second time.
        if (p && !same_epoch(j->run, a))
            p = NULL;
        if (!p && core_attempt_unknown(c, n, a)) {
            core_ask_attempt(c, n, a);
        } else if (a->state == ATTEMPT_ENDED) {
            struct message_ended end =
                a->end ? *a->end
                       : (struct message_ended){.cause = END_NODE_FAIL,
                                                .reason = reason_text(BECAUSE_END_NOT_RECORDED)};
            end.id = a->id;
            end.attempt = a->attempt;
            end.epoch = a->epoch;
            core_agent_ended(c, n->name, &end, now_ms);
        } else if (!p) {
            clear_stale(c, n, a);
        }
    }
}

int core_agent_hello(struct core *c, const struct message_hello *h, const char *fingerprint, int64_t now_ms,
                     struct error *e) {
    if (!h->node || !h->node->name)
        return error_set(e, EINVAL, "the agent did not say which node it is");
    int r = check_node(c, h->node, e);
    if (r < 0)
        return r;
    struct node_entry *n = core_find_node(c, h->node->name);
    bool same_memory = n && streq(n->node->boot_id, h->node->boot_id) && streq(n->node->spool_id, h->node->spool_id);
    if (!n || !schema_equal(&node_schema, n->node, h->node) || !streq(n->fingerprint, fingerprint)) {
        struct event_node_joined b = {.node = h->node, .fingerprint = fingerprint};
        core_emit(c, now_ms, EVENT_NODE_JOINED, &b);
        n = core_find_node(c, h->node->name);
    }
    // After a restore of an older copy "not started" means nothing: the attempt may have run and be over.
    bool restored = core_find_restore(c, n, h, now_ms);
    reconcile_expected(c, n, h, same_memory && !restored, restored, now_ms);
    reconcile_listed(c, n, h, now_ms);
    struct event_node b = {
        .name = n->name, .state = NODE_SILENT, .reason = reason_text(BECAUSE_ATTEMPTS_END)};
    if (!n->stale.len && !n->unknown.len)
        core_node_ready(c, n, now_ms);
    else if (n->state == NODE_UP)  // a new connection took the place of one that nobody had missed yet
        core_emit(c, now_ms, EVENT_NODE_STATE, &b);
    return 0;
}

void core_agent_node_changed(struct core *c, const struct node *node, int64_t now_ms) {
    struct node_entry *n = core_find_node(c, node->name);
    struct event_node_joined b = {.node = (struct node *)(uintptr_t)node, .fingerprint = n ? n->fingerprint : NULL};
    if (n && check_node(c, node, NULL) == 0 && !schema_equal(&node_schema, n->node, node))
        core_emit(c, now_ms, EVENT_NODE_JOINED, &b);
}

void core_agent_gone(struct core *c, const char *node, int64_t now_ms) {
    struct node_entry *n = core_find_node(c, node);
    if (n) {  // counted anew when it comes back
        vec_clear(&n->stale);
        vec_clear(&n->unknown);
    }
    if (!n || n->state != NODE_UP)
        return;
    struct event_node b = {.name = n->name, .state = NODE_SILENT, .reason = reason_text(BECAUSE_NOT_CONNECTED)};
    core_emit(c, now_ms, EVENT_NODE_STATE, &b);
}

void core_node_lost(struct core *c, const char *node, const char *reason, int64_t now_ms) {
    struct node_entry *n = core_find_node(c, node);
    if (n) {
        vec_clear(&n->stale);
        vec_clear(&n->unknown);
    }
    if (!n || n->state == NODE_DOWN)
        return;
    struct event_node b = {.name = n->name, .state = NODE_DOWN, .reason = reason};
    core_emit(c, now_ms, EVENT_NODE_STATE, &b);
    while (n->jobs.len) {
        struct core_job *j = n->jobs.at[n->jobs.len - 1];
        struct run_part *p = core_part_on(j, n->name);
        core_end_part(c, j, p, END_NODE_FAIL, "the node was lost", now_ms);
        // The other nodes of the job still run their parts: they are told to end them, and the job ends with the last.
        if (!j->run->ending && j->run->part_count > 1)
            core_begin_ending(
                c, j,
                &(struct event_job_ending){.cause = END_NODE_FAIL, .reason = reason_text(BECAUSE_NODE_LOST)},
                now_ms);
        core_finish_if_done(c, j, now_ms);
    }
}
