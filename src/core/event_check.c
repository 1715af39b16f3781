// What an event of the journal, or a record of a snapshot, must have so that applying it touches nothing that is not
// there. Records carry checksums, so this meets only damage that happened before they were written. It is not the check
// of a command: what earlier releases accepted must still load, so nothing is refused here for being unusual.
#include <errno.h>
#include <string.h>

#include "base/cleanup.h"
#include "base/text.h"
#include "images.h"
#include "state.h"

enum { ELEMENTS_MAX = 1 << 24, PLACED_PARTS_MAX = 1 << 20 };

// A fraction of one GPU, or whole ones.
static bool gpus_load(uint32_t milli) {
    return milli < SCHED_GPU || milli % SCHED_GPU == 0;
}

static bool components_load(const struct spec *s) {
    uint64_t max = 0, min = 0;
    for (uint32_t i = 0; i < s->components.len; i++) {
        const struct job_component *k = &s->components.at[i];
        if (str_empty(k->name) || (!k->workers_min && !k->workers_given) || k->workers_min > k->workers_max ||
            !gpus_load(k->gpus_milli) || !gpus_load(k->gpus_per_node_milli) ||
            !gpus_load(k->gpus_per_task_milli))
            return false;
        min += k->workers_min;
        max += k->workers_max;
    }
    return s->components.len <= JOB_COMPONENTS_MAX && !s->component &&
           (!s->components.len || (max == s->workers_max && min == s->workers_min && min && !s->array.len));
}

bool core_spec_loads(const struct spec *s) {
    uint64_t count = 0;
    if (!s || str_empty(s->user) || str_empty(s->project) || str_empty(s->partition) ||
        s->class >= CLASS_COUNT || s->workers_max > ELEMENTS_MAX || s->workers_min > s->workers_max ||
        !s->workers_min != !s->workers_max || !gpus_load(s->gpus_milli) ||
        !gpus_load(s->gpus_per_node_milli) || !gpus_load(s->gpus_per_task_milli))
        return false;
    if (!components_load(s) || (s->workers_max && s->array.len))
        return false;
    for (uint32_t i = 0; i < s->array.len; i++) {
        const struct array_range *r = &s->array.at[i];
        if (!r->step || r->last < r->first || (count += (r->last - r->first) / r->step + 1) > ELEMENTS_MAX)
            return false;
    }
    return true;
}

bool core_node_loads(const struct node *n) {
    if (!n || str_empty(n->name) || !n->cpus || n->gpus.len > SCHED_GPUS_MAX ||
        !core_time_loads(n->until_ms))
        return false;
    for (uint32_t i = 0; i < n->gpus.len; i++)
        if (str_empty(n->gpus.at[i].uuid) || str_empty(n->gpus.at[i].model))
            return false;
    return true;
}

bool core_part_loads(const struct core *c, const struct part *p) {
    const struct node_entry *n = p && p->node ? strmap_get(&c->nodes, p->node) : NULL;
    if (!n || p->gpus.len > SCHED_GPUS_MAX)
        return false;
    for (uint32_t i = 0; i < p->gpus.len; i++)
        if (p->gpus.at[i].index >= SCHED_GPUS_MAX || p->gpus.at[i].milli > 1000)
            return false;
    return true;
}

static bool entity_loads(const void *value) {
    return value && !str_empty(*(const char *const *)value);  // every one of these structs begins with its name
}

// Ids that jobs already have would make two of them.
static bool ids_free(const struct core *c, uint64_t first, uint64_t count) {
    uint32_t at = first ? core_order_after(c, first - 1) : 0;
    return first && first < CORE_ID_MAX && (at == c->order.len || c->order.at[at].id >= first + count);
}

static bool submitted_loads(const struct core *c, const struct event_job_submitted *b) {
    if (!core_spec_loads(b->spec) || !spec_known(b->spec) || (b->spec->array_limit && !b->spec->array.len))
        return false;
    if (b->spec->workers_max && !core_feature(c, FEATURE_ELASTIC))
        return false;  // no record that this journal may hold would start it
    uint64_t count = spec_array_count(b->spec);
    return ids_free(c, b->id, count + b->spec->workers_max) && !map_get(&c->arrays, b->id) &&
           b->created <= count;
}

bool core_array_loads(const struct core *c, const struct event_array_continued *b) {
    const struct array *a = map_get(&c->arrays, b->id);
    if (!a)
        return true;  // it changes nothing
    return b->created <= a->count && b->limited <= a->count &&
           (b->created <= a->created || ids_free(c, a->id + a->created, b->created - a->created));
}

// A part on a node that is there, with GPUs that it has.
static bool placed_part_loads(const struct core *c, const struct part *p) {
    const struct node_entry *n = core_part_loads(c, p) ? core_find_node(c, p->node) : NULL;
    if (!n || !n->node)
        return false;
    for (uint32_t g = 0; g < p->gpus.len; g++)
        if (p->gpus.at[g].index >= n->node->gpus.len || !p->gpus.at[g].milli)
            return false;
    return true;
}

static bool placed_loads(const struct core *c, const struct core_job *j, const struct event_job_placed *b) {
    if (j->state != JOB_PENDING || j->run || core_is_group(j) || !b->parts.len || b->parts.len > PLACED_PARTS_MAX)
        return false;
    if (!core_time_loads(b->start_ms) || (core_is_worker(j) && !core_group_job(c, j)->run))
        return false;  // workers run with their job
    for (uint32_t i = 0; i < b->parts.len; i++)
        if (!placed_part_loads(c, &b->parts.at[i]))
            return false;
    return true;
}

static bool part_adopted_loads(const struct core *c, struct core_job *j, const struct event_part_adopted *b) {
    return j->run && j->run->part_count && j->run->part_count < PLACED_PARTS_MAX && b->part &&
           placed_part_loads(c, b->part) && !core_part_on(j, b->part->node) &&
           !(core_is_worker(j) && core_worker_of(j)->flags & GROUP_PIECE);
}

static bool workers_load(const struct core *c, const struct core_job *job,
                         const struct event_workers_placed *b) {
    if (!core_is_group(job))
        return true;  // it changes nothing
    if (job->state != JOB_PENDING || job->run || !b->workers.len)
        return false;
    for (uint32_t i = 0; i < b->workers.len; i++) {
        const struct placed_worker *w = &b->workers.at[i];
        if (!placed_part_loads(c, w->part))
            return false;
        for (uint32_t k = 0; k < w->more.len; k++)
            if (!placed_part_loads(c, &w->more.at[k]))
                return false;
    }
    return true;
}

// Its workers have ended before a job ends or is queued again.
static bool workers_have_ended(const struct core *c, const struct core_job *j) {
    const struct group *g = core_is_group(j) ? j->sub->group : NULL;
    for (uint32_t i = 0; g && i < g->workers.len; i++) {
        const struct core_job *w = core_find_job(c, g->workers.at[i].id);
        if (w && w->run)
            return false;
    }
    return true;
}

// Whether the job has a worker besides `except` that has not left: what is queued must have something to start.
static bool has_worker(const struct core *c, const struct group *g, const struct core_job *except) {
    for (uint32_t i = 0; i < g->workers.len; i++) {
        const struct core_job *w = core_worker_job(c, &g->workers.at[i]);
        if (w && w != except)
            return true;
    }
    return false;
}

static bool ended_loads(const struct core *c, const struct core_job *j, const struct event_job_ended *b) {
    if (b->state < JOB_COMPLETED || b->state >= JOB_STATE_COUNT)
        return false;
    if (core_is_worker(j))
        return core_group_job(c, j)->run || has_worker(c, core_group_of(j), j);
    return workers_have_ended(c, j);
}

static bool requeued_loads(const struct core *c, const struct core_job *j) {
    return j->run && workers_have_ended(c, j) && (!core_is_group(j) || has_worker(c, core_group_of(j), NULL));
}

// As placed_loads: the node of each part is still there.
static bool restarted_loads(const struct core *c, const struct core_job *j) {
    for (uint32_t i = 0; core_is_worker(j) && j->run && i < j->run->part_count; i++)
        if (!core_find_node(c, j->run->parts[i].node->name))
            return false;
    return true;
}

static bool resized_loads(const struct core *c, const struct core_job *j, const struct event_job_resized *b) {
    cleanup_arena struct arena a = {0};
    struct spec s;
    if (!core_is_group(j))
        return true;  // it changes nothing
    int component = b->component ? core_component_find(j->sub->group, b->component) : 0;
    if (component < 0)
        return true;
    if (b->added > ELEMENTS_MAX || (b->added && !ids_free(c, b->first_id, b->added)))
        return false;
    core_spec_of(j, &a, &s);
    core_spec_resize(&s, (uint32_t)component, b->workers_min, b->workers_max);
    return s.workers_max && core_spec_loads(&s);
}

// A time of this calendar, so that sums and differences of two are numbers too.
bool core_time_loads(int64_t at_ms) {
    return at_ms >= 0 && at_ms < INT64_MAX / 4;
}

bool core_worker_rank_loads(int64_t rank) {
    return rank >= -JOB_WORKER_RANK_MAX && rank <= JOB_WORKER_RANK_MAX;
}

static bool ranked_loads(const struct event_workers_ranked *b) {
    for (uint32_t i = 0; i < b->ranks.len; i++)
        if (!core_worker_rank_loads(b->ranks.at[i].rank))
            return false;
    return true;
}

// A job with workers keeps its components, any other never gets workers, and a worker is changed with its job only.
static bool updated_loads(const struct core_job *j, const struct spec *s) {
    const struct group *g = core_group_of(j);
    if (!core_spec_loads(s) || !spec_known(s) || core_is_worker(j))
        return false;
    if (!g)
        return !s->workers_max;
    return s->workers_max && (s->components.len ? s->components.len : 1) == g->components.len &&
           (s->components.len > 0) == (g->components.at[0].sub != NULL);
}

static bool job_event_loads(const struct core *c, const struct event *e) {
    struct core_job *j = core_find_job(c, event_job_id(e));
    if (!j)
        return true;  // it changes nothing
    switch (e->type) {
    case EVENT_JOB_PROMISED: return core_promise_loads(e->body);
    case EVENT_JOB_UPDATED: return updated_loads(j, ((const struct event_job_updated *)e->body)->spec);
    case EVENT_JOB_PLACED: return placed_loads(c, j, e->body);
    case EVENT_PART_ADOPTED: return part_adopted_loads(c, j, e->body);
    case EVENT_JOB_STARTED: return ((const struct event_job_started *)e->body)->node != NULL;
    case EVENT_JOB_HEALTH: return ((const struct event_job_health *)e->body)->node != NULL;
    case EVENT_PART_ENDED: return ((const struct event_part_ended *)e->body)->node != NULL;
    case EVENT_JOB_ENDED: return ended_loads(c, j, e->body);
    case EVENT_JOB_REQUEUED: return requeued_loads(c, j);
    case EVENT_WORKERS_PLACED: return workers_load(c, j, e->body);
    case EVENT_WORKERS_RANKED: return ranked_loads(e->body);
    case EVENT_WORKER_RESTARTED: return restarted_loads(c, j);
    case EVENT_JOB_RESIZED: return resized_loads(c, j, e->body);
    case EVENT_JOB_ADOPTED: {
        const struct event_job_adopted *b = e->body;
        return core_is_group(j) && j->state == JOB_PENDING && !j->run && core_time_loads(b->start_ms);
    }
    default: return true;
    }
}

static bool cluster_event_loads(const struct core *c, const struct event *e) {
    switch (e->type) {
    case EVENT_LEVEL_SET: return ((const struct event_level_set *)e->body)->level >= c->level;
    case EVENT_ARRAY_CONTINUED: return core_array_loads(c, e->body);
    case EVENT_NODE_JOINED: return core_node_loads(((const struct event_node_joined *)e->body)->node);
    case EVENT_NODE_STATE:
    case EVENT_NODE_DRAINED:
    case EVENT_NODE_RESUMED:
    case EVENT_NODE_REMOVED: {
        const struct event_node *b = e->body;
        return b->name && b->state <= NODE_DOWN;
    }
    case EVENT_NODE_LAUNCHES: return ((const struct event_node_launches *)e->body)->name != NULL;
    // All five begin with a pointer to what is set.
    case EVENT_PROJECT_SET:
    case EVENT_PARTITION_SET:
    case EVENT_QOS_SET:
    case EVENT_LICENSE_SET:
    case EVENT_RESERVATION_SET: return entity_loads(((const struct event_project_set *)e->body)->project);
    case EVENT_PROJECT_DELETED:
    case EVENT_PARTITION_DELETED:
    case EVENT_QOS_DELETED:
    case EVENT_LICENSE_DELETED:
    case EVENT_RESERVATION_DELETED: return ((const struct event_name *)e->body)->name != NULL;
    case EVENT_POLICY_SET: return core_policy_loads(((const struct event_policy_set *)e->body)->policy);
    case EVENT_TOKEN_CREATED:
    case EVENT_TOKEN_USED:
    case EVENT_TOKEN_REVOKED: return ((const struct event_token *)e->body)->id != NULL;
    case EVENT_USER_REMOVED:
    case EVENT_USER_PASSWORD: return ((const struct event_name *)e->body)->name != NULL;
    case EVENT_USER_GRANTED: return core_grant_loads(e->body);
    case EVENT_ALERT_RULE_SET: {
        const struct alert_rule *r = ((const struct event_alert_rule *)e->body)->rule;
        return r && alert_rule_check(r, NULL) == 0;
    }
    case EVENT_ALERT_RULE_DELETED: return ((const struct event_name *)e->body)->name != NULL;
    case EVENT_ALERT_RAISED:
    case EVENT_ALERT_ACKNOWLEDGED:
    case EVENT_ALERT_CLEARED: return core_alert_loads(e->body);
    case EVENT_RESTORE_FOUND: return ((const struct event_restore_found *)e->body)->next_id < CORE_ID_MAX;
    case EVENT_SHARE_SET:
    case EVENT_SHARE_ENDED: return core_share_loads(e->body);
    case EVENT_SERVICE_SET:
    case EVENT_SERVICE_DELETED: return core_service_loads(e->body);
    case EVENT_SERVICE_TOKEN_SET:
    case EVENT_SERVICE_TOKEN_REVOKED: return core_service_token_loads(e->body);
    case EVENT_VOLUME_SET:
    case EVENT_VOLUME_DELETED: return core_volume_loads(e->body);
    case EVENT_NODE_IMAGES: return core_images_load(e->body);
    case EVENT_PROVIDER_SET: return core_provider_loads(((const struct event_provider *)e->body)->provider);
    case EVENT_PROVIDER_REMOVED: return ((const struct event_name *)e->body)->name != NULL;
    case EVENT_WANTED_NODE: return core_wanted_loads(e->body);
    case EVENT_SESSION_BEGUN: {
        const struct event_session *s = e->body;
        return s->id && s->hash && s->identity;
    }
    case EVENT_SESSION_SEEN:
    case EVENT_SESSION_ENDED: return ((const struct event_session_seen *)e->body)->id != NULL;
    case EVENT_SAVED_SET:
    case EVENT_SAVED_DELETED: return core_saved_loads(e->body);
    default: return true;
    }
}

bool core_event_loads(const struct core *c, const struct event *e) {
    if (e->type == EVENT_JOB_SUBMITTED)
        return submitted_loads(c, e->body);
    if (e->type == EVENT_USER_SET)
        return core_account_loads(c, ((const struct event_user_set *)e->body)->account);
    return event_job_id(e) ? job_event_loads(c, e) : cluster_event_loads(c, e);
}
