// Which jobs have a volume: none of theirs is deleted.
#include <errno.h>

#include "base/text.h"
#include "model/volume.h"
#include "state.h"

static bool spec_has(const struct submission *sub, const char *title) {
    cleanup_arena struct arena a = {0};
    struct volume_wish w;
    struct core_job j = {.sub = (struct submission *)(uintptr_t)sub};
    struct spec s;
    core_spec_of(&j, &a, &s);
    for (uint32_t i = 0; i < s.volumes.len; i++)
        if (volume_wish_parse(s.volumes.at[i], &a, &w, NULL) == 0 && w.name &&
            streq(volume_title(&a, w.user, w.project, w.name), title))
            return true;
    return false;
}

static void add(uint64_t *jobs, uint32_t most, uint64_t *count, uint64_t job) {
    if (*count < most)
        jobs[*count] = job;
    ++*count;
}

uint64_t core_volume_jobs(const struct core *c, const char *title, uint64_t *jobs, uint32_t most) {
    const struct submission *seen = NULL;
    bool has = false;
    uint64_t count = 0;
    for (uint32_t i = 0; i < c->order.len; i++) {
        const struct core_job *j = c->order.at[i].job;
        if (!j || !j->sub->volumes)
            continue;
        if (j->sub != seen)  // elements of an array share one
            has = spec_has(j->sub, title);
        seen = j->sub;
        if (has)
            add(jobs, most, &count, j->id);
    }
    // An array whose elements are still being created: the first ones may be there already.
    for (uint32_t i = 0; i < c->unfinished.len && !count; i++) {
        const struct array *array = c->unfinished.at[i];
        if (array->sub && array->sub->volumes && spec_has(array->sub, title))
            add(jobs, most, &count, array->id);
    }
    return count;
}

// An attempt that was started by a controller whose state is lost may have one that was made after the copy.
static bool has_its_volumes(const struct core *c, const struct core_job *j) {
    cleanup_arena struct arena a = {0};
    struct volume_wish w;
    struct spec s;
    core_spec_of(j, &a, &s);
    for (uint32_t i = 0; i < s.volumes.len; i++)
        if (volume_wish_parse(s.volumes.at[i], &a, &w, NULL) == 0 && w.name && (w.user || w.project) &&
            !core_volume(c, w.user, w.project, w.name))
            return false;
    return true;
}

bool core_volumes_add_up(const struct core *c) {
    for (uint32_t i = 0; i < c->order.len; i++) {
        const struct core_job *j = c->order.at[i].job;
        if (j && j->sub->volumes && !c->restore_ms && !has_its_volumes(c, j))
            return false;
    }
    return true;
}

int core_volume_check_unused(const struct core *c, const struct event_volume *v, struct error *e) {
    cleanup_arena struct arena a = {0};
    uint64_t job = 0;
    const char *owner = "?", *project;
    uint64_t count = core_volume_jobs(c, volume_title(&a, v->user, v->project, v->name), &job, 1);
    if (!count)
        return 0;
    uint64_t others = count - 1;
    core_job_owner(c, job, &owner, &project);
    return others ? error_set(e, EBUSY,
                              "volume \"%s\" is in use by job %llu (%s) and %llu more; cancel them or wait",
                              v->name, (unsigned long long)job, owner, (unsigned long long)others)
                  : error_set(e, EBUSY, "volume \"%s\" is in use by job %llu (%s); cancel it or wait",
                              v->name, (unsigned long long)job, owner);
}
