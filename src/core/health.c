// Owns whether the program of a job is ready for others, as the node of its first part says. The node says so when it
// changes and at every hello, so that both sides agree after any loss; what is known already changes nothing.
#include <stdlib.h>

#include "base/alloc.h"
#include "base/text.h"
#include "state.h"

enum { HEALTH_REASON_MAX = 256 };

void core_agent_health(struct core *c, const char *node, const struct message_health *m, int64_t now_ms) {
    struct core_job *j;
    char reason[HEALTH_REASON_MAX];  // shown at terminals: control characters are removed
    const struct run_part *p = core_reported_part(c, node, m->id, m->attempt, &j);
    if (!p || !p->started || !m->health || m->health >= HEALTH_COUNT || p->health == m->health ||
        !core_feature(c, FEATURE_HEALTH))
        return;
    struct event_job_health b = {.id = j->id,
                                 .attempt = m->attempt,
                                 .node = p->node->name,
                                 .health = m->health,
                                 .reason =
                                     m->reason ? str_printable(m->reason, reason, sizeof reason) : NULL};
    core_emit(c, now_ms, EVENT_JOB_HEALTH, &b);
    core_effect(c, EFFECT_JOB_CHANGED, NULL, j->id, 0);
}

void core_part_set_health(struct run_part *p, enum job_health health, const char *reason) {
    free(p->health_reason);
    p->health = health;
    p->health_reason = reason ? xstrdup(reason) : NULL;
}

void core_apply_health(struct core_job *j, const struct event_job_health *b) {
    struct run_part *p =
        j->attempt == b->attempt && b->health < HEALTH_COUNT ? core_part_on(j, b->node) : NULL;
    if (p && !p->ended)
        core_part_set_health(p, b->health, b->reason);
}

void core_health_reconcile(struct core *c, const struct core_job *j, const char *node,
                           const struct attempt *a, int64_t now_ms) {
    struct message_health m = {
        .id = core_agent_job(j), .attempt = j->attempt, .health = a->health, .reason = a->health_reason};
    core_agent_health(c, node, &m, now_ms);
}

enum job_health core_health_of(const struct core_job *j, const char **reason) {
    *reason = NULL;
    const struct core_run *r = j->run;
    if (!r || !r->part_count || r->ending)
        return HEALTH_NONE;
    *reason = r->parts[0].health_reason;
    return r->parts[0].health ? r->parts[0].health : j->sub->health ? HEALTH_STARTING : HEALTH_NONE;
}
