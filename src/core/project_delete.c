// Projects that are being deleted although they have jobs: no job of theirs starts any more, those that wait are
// cancelled, those that run go on to their end, and with the last of them the project is gone. That a project is being
// deleted is part of it (project.deleted_by), so that it survives a restart of the controller.
// A partition or QoS is gone at once; jobs that would wait for it for ever are cancelled, too. Such jobs are looked for
// when one is deleted, when a job comes back to the queue, and after a restart (core.orphans).
#include <stdio.h>
#include <string.h>

#include "state.h"
#include "model/name.h"

enum { CANCELLED_PER_PASS = 1000, LOOK_EVERY_MS = 1000 };

static const struct project *deleted_project(const struct core *c, const char *name) {
    const struct entity_entry *t = name ? core_find_entity(c, ENTITY_PROJECT, name) : NULL;
    const struct project *p = t ? t->value : NULL;
    return p && p->deleted_by ? p : NULL;
}

// One of several partitions is enough.
static bool no_partition_left(const struct core *c, const char *list) {
    char name[IDENTIFIER_MAX + 1];
    size_t len;
    for (const char *at; list && (at = name_list_next(&list, &len));) {
        snprintf(name, sizeof name, "%.*s", (int)len, at);
        if (core_find_entity(c, ENTITY_PARTITION, name))
            return false;
    }
    return true;
}

// What the job needs and was deleted; ENTITY_COUNT: nothing.
static enum entity_kind missing(const struct core *c, const struct submission *s) {
    if (deleted_project(c, s->project))
        return ENTITY_PROJECT;
    if (c->orphans && no_partition_left(c, s->partition))
        return ENTITY_PARTITION;
    if (c->orphans && s->qos && !core_find_entity(c, ENTITY_QOS, s->qos))
        return ENTITY_QOS;
    return ENTITY_COUNT;
}

void core_orphan_check(struct core *c, const struct core_job *j) {
    c->orphans = c->orphans || no_partition_left(c, j->sub->partition) ||
                 (j->sub->qos && !core_find_entity(c, ENTITY_QOS, j->sub->qos));
}

static void cancel_pending(struct core *c, struct core_job *j, enum entity_kind kind, int64_t now_ms) {
    cleanup_arena struct arena a = {0};
    const struct submission *s = j->sub;
    const char *name = kind == ENTITY_PROJECT ? s->project : kind == ENTITY_QOS ? s->qos : s->partition;
    bool several = kind == ENTITY_PARTITION && strchr(name, ',');
    const char *by = kind == ENTITY_PROJECT ? deleted_project(c, name)->deleted_by : NULL;
    core_end_pending(c, j, JOB_CANCELLED, by,
                     arena_printf(&a, "%s%s %s %s deleted", entity_word(kind), several ? "s" : "", name,
                                  several ? "were" : "was"),
                     now_ms);
}

// Cancels some of the waiting jobs; false when there may be more.
static bool cancel_some(struct core *c, int64_t now_ms) {
    uint64_t found[CANCELLED_PER_PASS];
    uint32_t count = 0;
    for (uint32_t i = 0; i < c->order.len && count < CANCELLED_PER_PASS; i++) {
        struct core_job *j = c->order.at[i].job;
        if (j && !j->run && !core_is_worker(j) && missing(c, j->sub) != ENTITY_COUNT)
            found[count++] = j->id;
    }
    for (uint32_t i = 0; i < count; i++) {  // an end may end others that depend on it, and reorder the list
        struct core_job *j = core_find_job(c, found[i]);
        if (j && !j->run)
            cancel_pending(c, j, missing(c, j->sub), now_ms);
    }
    return count < CANCELLED_PER_PASS;
}

void core_deletions(struct core *c, int64_t now_ms) {
    if (!cancel_some(c, now_ms)) {
        c->next_deletion_ms = now_ms;
        return;
    }
    c->orphans = false;
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
