// Promised starts: what the scheduler planned becomes an event, so that a restarted controller keeps it. The event
// names nodes and says why an earlier promise could not be kept; it is kept with the job as it was encoded.
#include <errno.h>
#include <stdio.h>
#include <string.h>

#include "base/cleanup.h"
#include "state.h"

enum { REASON_MAX = 2 * IDENTIFIER_MAX + 128 };

static void late_text(const struct core *c, const struct sched_broken_promise *b, char out[static REASON_MAX]) {
    const struct core_job *by = core_find_job(c, b->by);
    unsigned long long id = b->by;
    const char *node = b->late == SCHED_LATE_NODE && b->by && b->by <= c->node_list.len
                           ? c->node_list.at[b->by - 1]->name : NULL;
    switch (b->late) {
    case SCHED_LATE_NODE:
        snprintf(out, REASON_MAX, "%s%s was lost, drained or has less than before", node ? "node " : "a node",
                 node ? node : "");
        break;
    case SCHED_LATE_QUOTA:
        snprintf(out, REASON_MAX, "project %s claims its guaranteed quota for job %llu",
                 by ? by->sub->project : "?", id);
        break;
    case SCHED_LATE_OVERRUN:
        if (id)
            snprintf(out, REASON_MAX, "job %llu ran longer than it was expected to", id);
        else
            snprintf(out, REASON_MAX, "a job ran longer than it was expected to");
        break;
    case SCHED_LATE_LIMIT: snprintf(out, REASON_MAX, "its project, user or QoS is at a limit"); break;
    case SCHED_LATE_RULES:
    default:
        snprintf(out, REASON_MAX, "partitions, projects, reservations, quality of service or the time limit of a job "
                                  "were changed");
    }
}

static const struct sched_plan *plan_of(const struct sched_decisions *d, uint64_t job) {
    for (uint32_t i = 0; i < d->plans.len; i++)
        if (d->plans.at[i].job == job)
            return &d->plans.at[i];
    return NULL;
}

static void promise(struct core *c, uint64_t job, const struct sched_plan *plan, const char *reason, int64_t now_ms) {
    cleanup_arena struct arena a = {0};
    struct event_job_promised b = {.id = job, .reason = reason};
    const struct core_job *j = core_find_job(c, job);
    if (!j || j->state != JOB_PENDING)
        return;
    if (plan && plan->partition && plan->nodes) {
        b.start_ms = plan->start_ms;
        b.partition = c->entity_list[ENTITY_PARTITION].at[plan->partition - 1]->name;
        b.nodes.at = arena_alloc(&a, plan->node_count * sizeof *b.nodes.at);
        for (; b.nodes.len < plan->node_count; b.nodes.len++) {
            const struct sched_promise_node *n = &plan->nodes[b.nodes.len];
            const char *node = c->node_list.at[n->node - 1]->name;
            b.nodes.at[b.nodes.len] = (struct promised_node){node, n->tasks, n->gpus, n->part};
        }
    }
    core_emit(c, now_ms, EVENT_JOB_PROMISED, &b);
}

void core_promises(struct core *c, const struct sched_decisions *d, int64_t now_ms) {
    if (!core_feature(c, FEATURE_PROMISES))
        return;
    for (uint32_t i = 0; i < d->broken.len; i++) {
        char reason[REASON_MAX];
        late_text(c, &d->broken.at[i], reason);
        promise(c, d->broken.at[i].job, plan_of(d, d->broken.at[i].job), reason, now_ms);
    }
    for (uint32_t i = 0; i < d->plans.len; i++) {
        bool broken = false;
        for (uint32_t k = 0; k < d->broken.len; k++)
            broken |= d->broken.at[k].job == d->plans.at[i].job;
        if (d->plans.at[i].nodes && !broken)
            promise(c, d->plans.at[i].job, &d->plans.at[i], NULL, now_ms);
    }
}

bool core_promise_loads(const struct event_job_promised *b) {
    for (uint32_t i = 0; i < b->nodes.len; i++)
        if (!b->nodes.at[i].node)
            return false;
    return core_time_loads(b->start_ms) && (!b->start_ms || b->partition);
}

void core_promise_forget(struct core *c, const struct core_job *j) {
    struct core_promise *p = map_remove(&c->promised, j->id);
    if (!p)
        return;
    free((void *)(uintptr_t)p->event.data);
    free(p->late_why);
    free(p);
}

const struct core_promise *core_promise_of(const struct core *c, const struct core_job *j) {
    return map_get(&c->promised, j->id);
}

static void to_world(struct core *c, const struct event_job_promised *b) {
    VEC(struct sched_promise_node) nodes = {0};
    const struct entity_entry *partition = core_find_entity(c, ENTITY_PARTITION, b->partition);
    for (uint32_t i = 0; i < b->nodes.len; i++) {
        const struct node_entry *n = core_find_node(c, b->nodes.at[i].node);
        if (n)
            vec_push(&nodes, ((struct sched_promise_node){n->handle, b->nodes.at[i].tasks, b->nodes.at[i].gpus,
                                                        b->nodes.at[i].part}));
    }
    bool whole = partition && nodes.len == b->nodes.len;
    world_job_promise(c->world, b->id, whole ? b->start_ms : 0, whole ? partition->handle : 0, nodes.at,
                      whole ? nodes.len : 0);
    vec_done(&nodes);
}

void core_apply_promised(struct core *c, struct core_job *j, const struct event *e) {
    const struct event_job_promised *b = e->body;
    struct core_promise *p = map_get(&c->promised, j->id);
    if (!p) {
        p = xcalloc(1, sizeof *p);
        map_put(&c->promised, j->id, p);
    }
    cleanup_buf struct buf encoded = {0};
    schema_encode(event_info(EVENT_JOB_PROMISED)->schema, b, &encoded);  // what this release knows of it
    free((void *)(uintptr_t)p->event.data);
    p->event.len = encoded.len;
    p->event.data = buf_take(&encoded);
    if (b->reason) {
        free(p->late_why);
        p->late_why = xstrdup(b->reason);
    }
    j->expected_start_s = (uint32_t)((b->start_ms + 999) / 1000);
    to_world(c, b);
}

int core_promise_load(struct core *c, struct core_job *j, struct bytes event, const char *late_why) {
    cleanup_arena struct arena a = {0};
    struct event e;
    if (!event.len) {
        struct core_promise *late = xcalloc(1, sizeof *late);
        late->late_why = xstrdup(late_why);
        map_put(&c->promised, j->id, late);
        return 0;
    }
    if (event_decode(EVENT_JOB_PROMISED, event.data, event.len, &a, &e) < 0)
        return -EBADMSG;
    const struct event_job_promised *b = e.body;
    if (b->id != j->id || !core_promise_loads(b))
        return -EBADMSG;
    core_apply_promised(c, j, &e);
    struct core_promise *p = map_get(&c->promised, j->id);
    if (late_why && !b->reason)
        p->late_why = xstrdup(late_why);
    return 0;
}

// While a snapshot is loaded, jobs that wait for others leave the world and come back.
void core_promises_to_world(struct core *c) {
    size_t it = 0;
    void *value;
    uint64_t job;
    while (map_next(&c->promised, &it, &job, &value)) {
        const struct core_promise *p = value;
        cleanup_arena struct arena a = {0};
        struct event e;
        if (p->event.len && event_decode(EVENT_JOB_PROMISED, p->event.data, p->event.len, &a, &e) == 0)
            to_world(c, e.body);
    }
}
