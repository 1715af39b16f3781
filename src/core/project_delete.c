// Projects that are being deleted although they have jobs: no job of theirs starts any more, those that wait are
// cancelled, those that run go on to their end, and with the last of them the project is gone. That a project is being
// deleted is part of it (project.deleted_by), so that it survives a restart of the controller.
#include <stdio.h>

#include "state.h"
#include "model/name.h"

enum { CANCELLED_PER_PASS = 1000, LOOK_EVERY_MS = 1000 };

static const struct project *deleted_project(const struct core *c, const char *name) {
    const struct entity_entry *t = name ? core_find_entity(c, ENTITY_PROJECT, name) : NULL;
    const struct project *p = t ? t->value : NULL;
    return p && p->deleted_by ? p : NULL;
}

static void cancel_pending(struct core *c, struct core_job *j, const struct project *p, int64_t now_ms) {
    char reason[IDENTIFIER_MAX + 64];
    snprintf(reason, sizeof reason, "project %s was deleted", p->name);
    core_end_pending(c, j, JOB_CANCELLED, p->deleted_by, reason, now_ms);
}

// Cancels some of the waiting jobs; false when there may be more.
static bool cancel_some(struct core *c, int64_t now_ms) {
    uint64_t found[CANCELLED_PER_PASS];
    uint32_t count = 0;
    for (uint32_t i = 0; i < c->order.len && count < CANCELLED_PER_PASS; i++) {
        struct core_job *j = c->order.at[i].job;
        if (j && !j->run && !core_is_worker(j) && deleted_project(c, j->sub->project))
            found[count++] = j->id;
    }
    for (uint32_t i = 0; i < count; i++) {  // an end may end others that depend on it, and reorder the list
        struct core_job *j = core_find_job(c, found[i]);
        if (j && !j->run)
            cancel_pending(c, j, deleted_project(c, j->sub->project), now_ms);
    }
    return count < CANCELLED_PER_PASS;
}

void core_projects_delete(struct core *c, int64_t now_ms) {
    if (!cancel_some(c, now_ms)) {
        c->next_deletion_ms = now_ms;
        return;
    }
    c->next_deletion_ms = now_ms + LOOK_EVERY_MS;
    for (uint32_t i = 0; i < c->entity_list[ENTITY_PROJECT].len; i++) {
        const char *name = c->entity_list[ENTITY_PROJECT].at[i]->name;
        const struct project *p = deleted_project(c, name);
        if (!p || core_jobs_in(c, ENTITY_PROJECT, name))
            continue;
        cleanup_arena struct arena a = {0};
        struct event_name b = {.name = name, .by = arena_strdup(&a, p->deleted_by)};
        core_emit(c, now_ms, EVENT_PROJECT_DELETED, &b);
    }
}
