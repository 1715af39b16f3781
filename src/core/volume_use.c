// Which jobs have a volume: none of theirs is deleted.
#include <assert.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "base/alloc.h"
#include "base/text.h"
#include "model/volume.h"
#include "state.h"
#include "volume_use.h"

// What is submitted with a volume, in the order in which it came. Asking does not depend on how many jobs there are:
// users ask as often as they like.
struct volume_users {
    uint64_t count;
    struct volume_use *first, *last;
    char title[];
};

struct volume_use {
    const struct submission *sub;
    struct volume_users *of;
    struct volume_use *prev, *next;
    struct volume_use *more;  // further volumes of the submission
};

static struct volume_users *users_of(struct core *c, const char *title) {
    struct volume_users *u = strmap_get(&c->volume_users, title);
    if (u)
        return u;
    size_t size = strlen(title) + 1;
    u = xcalloc(1, sizeof *u + size);
    memcpy(u->title, title, size);
    strmap_put(&c->volume_users, u->title, u);
    return u;
}

void core_volumes_used(struct core *c, const struct submission *sub, const struct spec *s) {
    cleanup_arena struct arena a = {0};
    struct volume_wish w;
    struct volume_use *all = NULL;
    for (uint32_t i = 0; i < s->volumes.len; i++) {
        if (volume_wish_parse(s->volumes.at[i], &a, &w, NULL) < 0 || !w.name)
            continue;
        struct volume_users *u = users_of(c, volume_title(&a, w.user, w.project, w.name));
        if (u->last && u->last->sub == sub)
            continue;  // it names it twice
        struct volume_use *use = xcalloc(1, sizeof *use);
        *use = (struct volume_use){.sub = sub, .of = u, .prev = u->last, .more = all};
        *(u->last ? &u->last->next : &u->first) = use;
        u->last = all = use;
        u->count++;
    }
    if (all)
        map_put(&c->volume_uses, (uintptr_t)sub, all);
}

void core_volumes_unused(struct core *c, const struct submission *sub) {
    struct volume_use *more;
    for (struct volume_use *use = map_remove(&c->volume_uses, (uintptr_t)sub); use; use = more) {
        struct volume_users *u = use->of;
        more = use->more;
        *(use->prev ? &use->prev->next : &u->first) = use->next;
        *(use->next ? &use->next->prev : &u->last) = use->prev;
        free(use);
        if (--u->count)
            continue;
        strmap_remove(&c->volume_users, u->title);
        free(u);
    }
}

void core_volume_uses_done(struct core *c) {
    assert(!c->volume_users.len && !c->volume_uses.len);
    strmap_done(&c->volume_users);
    map_done(&c->volume_uses);
}

uint64_t core_volume_jobs(const struct core *c, const char *title, uint64_t *jobs, uint32_t most) {
    const struct volume_users *u = strmap_get(&c->volume_users, title);
    uint32_t n = 0;
    for (const struct volume_use *use = u ? u->first : NULL; use && n < most; use = use->next)
        jobs[n++] = use->sub->id;
    return u ? u->count : 0;
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
    const char *title = volume_title(&a, v->user, v->project, v->name);
    uint64_t count = core_volume_jobs(c, title, &job, 1);
    if (!count)
        return 0;
    uint64_t others = count - 1;
    const char *owner = ((const struct volume_users *)strmap_get(&c->volume_users, title))->first->sub->user;
    return others ? error_set(e, EBUSY,
                              "volume \"%s\" is in use by job %llu (%s) and %llu more; cancel them or wait",
                              v->name, (unsigned long long)job, owner, (unsigned long long)others)
                  : error_set(e, EBUSY, "volume \"%s\" is in use by job %llu (%s); cancel it or wait",
                              v->name, (unsigned long long)job, owner);
}
