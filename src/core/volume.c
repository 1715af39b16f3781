// Volumes of users and projects: which there are, whose, how large, and who may use them. A job names those it has in
// full from its submit on, and none of them can be deleted while it lives. Their folders are made by nodes, when a job
// that has one starts there.
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "base/text.h"
#include "model/name.h"
#include "model/units.h"
#include "model/volume.h"
#include "state.h"
#include "volume_use.h"

enum { MODE_OWN = 0700, MODE_PROJECT = 02770 };

static const char *title_of(struct arena *a, const struct event_volume *v) {
    return volume_title(a, v->user, v->project, v->name);
}

const struct event_volume *core_volume(const struct core *c, const char *user, const char *project,
                                       const char *name) {
    cleanup_arena struct arena a = {0};
    const struct volume_entry *v = strmap_get(&c->volumes, volume_title(&a, user, project, name));
    return v ? v->volume : NULL;
}

bool core_volume_loads(const struct event_volume *v) {
    return v->name && v->user && v->number && name_valid(v->name, strlen(v->name)) &&
           strlen(v->user) <= IDENTIFIER_MAX && (!v->project || strlen(v->project) <= IDENTIFIER_MAX);
}

static bool names(const char *const *at, uint32_t len, const char *user) {
    for (uint32_t i = 0; i < len; i++)
        if (streq(at[i], user))
            return true;
    return false;
}

bool core_volume_allows(const struct core *c, const char *user, const char *project,
                        const struct event_volume *v, bool write) {
    if (streq(v->user, user) || names(v->writers.at, v->writers.len, user))
        return true;
    if (v->project && ((project && streq(v->project, project)) || core_is_named_member(c, user, v->project) ||
                       core_leads(c, user, v->project)))
        return true;
    return !write && names(v->readers.at, v->readers.len, user);
}

bool core_volume_visible(const struct core *c, const struct actor *actor, const struct event_volume *v) {
    return actor->admin || core_volume_allows(c, actor->user, NULL, v, false);
}

// --- in order ---

struct volume_list {
    struct volume_entry **at;
    uint32_t len, cap;
};

static int by_title(const void *a, const void *b) {
    return strcmp((*(struct volume_entry *const *)a)->title, (*(struct volume_entry *const *)b)->title);
}

void core_each_volume(const struct core *c, bool (*fn)(void *ctx, const struct event_volume *v), void *ctx) {
    struct volume_list list = {0};
    size_t it = 0;
    void *v;
    while (strmap_next(&c->volumes, &it, NULL, &v))
        vec_push(&list, (struct volume_entry *)v);
    if (list.len)
        qsort(list.at, list.len, sizeof *list.at, by_title);
    for (uint32_t i = 0; i < list.len && fn(ctx, list.at[i]->volume); i++)
        ;
    vec_done(&list);
}

static uint32_t count_of(const struct core *c, const char *user, const char *project) {
    uint32_t n = 0;
    size_t it = 0;
    void *v;
    while (strmap_next(&c->volumes, &it, NULL, &v)) {
        const struct event_volume *k = ((struct volume_entry *)v)->volume;
        n += project ? streq(k->project, project) : !k->project && streq(k->user, user);
    }
    return n;
}

uint32_t core_volumes_of_project(const struct core *c, const char *project) {
    return count_of(c, NULL, project);
}

// --- jobs that have them ---

static const struct event_volume *wished(const struct core *c, const struct spec *s,
                                         const struct volume_wish *w) {
    if (w->user || w->project)
        return core_volume(c, w->user, w->project, w->name);
    const struct event_volume *own = core_volume(c, s->user, NULL, w->name);
    return own || str_empty(s->project) ? own : core_volume(c, NULL, s->project, w->name);
}

// Whether it is there for them: what they may not use is not there, so that names of others stay theirs.
static int find_wished(const struct core *c, const struct spec *s, const struct volume_wish *w,
                       const struct event_volume **out, struct error *e) {
    const struct event_volume *v = wished(c, s, w);
    if (!v || !core_volume_allows(c, s->user, s->project, v, false))
        return error_set(e, ENOENT,
                         "volume \"%s\" does not exist, or is not shared with %s; see 'acequia volume list'",
                         w->name, s->user);
    if (!w->read_only && !core_volume_allows(c, s->user, s->project, v, true))
        return error_set(e, EPERM, "volume \"%s\" is shared with %s for reading only; add :ro", w->name,
                         s->user);
    *out = v;
    return 0;
}

int core_volumes_resolve(const struct core *c, struct spec *s, struct arena *a, struct error *e) {
    const char **at = arena_alloc(a, (s->volumes.len + 1) * sizeof *at);
    const struct event_volume *v;
    struct volume_wish w;
    if (s->volumes.len && !core_feature(c, FEATURE_VOLUMES))
        return error_set(e, ENOTSUP, "volume: finish the upgrade first: acequia upgrade finish");
    int r = volume_wishes_check(s->volumes.at, s->volumes.len, e);
    for (uint32_t i = 0; i < s->volumes.len && r == 0; i++) {
        at[i] = s->volumes.at[i];
        r = volume_wish_parse(at[i], a, &w, e);
        if (r < 0 || !w.name)
            continue;
        r = find_wished(c, s, &w, &v, e);
        if (r == 0)
            at[i] = arena_printf(a, "%s:%s%s", title_of(a, v), w.to, w.read_only ? ":ro" : "");
    }
    s->volumes.at = at;
    return r;
}

int core_volumes_launch(const struct core *c, const struct spec *s, struct arena *a,
                        struct message_launch *out, struct error *e) {
    const struct event_volume *v;
    struct volume_wish w;
    out->volumes.at = arena_alloc(a, (s->volumes.len + 1) * sizeof *out->volumes.at);
    for (uint32_t i = 0; i < s->volumes.len; i++) {
        struct launch_volume *to = &out->volumes.at[out->volumes.len++];
        int r = volume_wish_parse(s->volumes.at[i], a, &w, e);
        *to = (struct launch_volume){.root = w.from, .to = w.to, .read_only = w.read_only, .title = w.from};
        if (r == 0 && !w.name)
            continue;
        if (r < 0 || (r = find_wished(c, s, &w, &v, e)) < 0)
            return r;
        to->title = title_of(a, v);
        to->root = v->at ? v->at : c->config.volume_folder;
        if (str_empty(to->root))
            return error_set(e, ENOTSUP, "volume %s has no place: volume_folder is not set", to->title);
        // Below one folder for users and one for projects: a user may be named like a project.
        if (!v->at)
            to->path = arena_printf(a, "%s/%s/%s", v->project ? "projects" : "users",
                                    v->project ? v->project : v->user, v->name);
        to->uid = v->uid;
        to->gid = v->gid;
        to->mode = v->mode;
        to->number = v->number;
        to->size_bytes = v->size_bytes;
        to->shared = !v->at && !streq(v->user, s->user);
    }
    return 0;
}

// --- commands ---

static void emit(struct core *c, enum event_type type, const struct event_volume *v, const char *by,
                 int64_t now_ms) {
    cleanup_arena struct arena a = {0};  // applying it may free what it is made of
    struct event_volume *b = schema_copy(&event_volume_schema, v, &a);
    b->by = by;
    core_emit(c, now_ms, type, b);
}

static int check_project(const struct core *c, const struct actor *actor, const char *project,
                         struct error *e) {
    char shown[64];
    if (!core_find_entity(c, ENTITY_PROJECT, project))
        return error_set(e, ENOENT, "project \"%s\" does not exist; see 'acequia project list'",
                         str_printable(project, shown, sizeof shown));
    int r = core_check_not_deleted(c, "project", project, e);
    if (r < 0 || actor->admin || core_is_named_member(c, actor->user, project) ||
        core_leads(c, actor->user, project))
        return r;
    return error_set(
        e, EPERM,
        "project \"%s\": only its members, where it names them, and administrators may create its volumes",
        project);
}

static int check_place(const struct core *c, const struct actor *actor, const struct event_volume *m,
                       struct error *e) {
    cleanup_arena struct arena a = {0};
    struct volume_source s;
    if (str_empty(m->at))
        return str_empty(c->config.volume_folder) ? error_set(e, ENOTSUP,
                                                              "volume: this cluster has no folder for "
                                                              "volumes; an administrator sets volume_folder "
                                                              "in [cluster], on storage that all nodes mount")
                                                  : 0;
    int r = volume_source_parse(m->at, &a, &s, e);
    if (r < 0)
        return r;
    if (m->size_bytes)
        return error_set(e, EINVAL,
                         "size: a volume at a place of its own has the size that its storage gives it; leave "
                         "the size out");
    // Mounted by the job's user with their own credentials: it gives nobody anything.
    if (s.place == VOLUME_BUCKET)
        return 0;
    return core_need_admin(
        actor, s.place == VOLUME_NFS ? "make an NFS export a volume" : "make a folder of the nodes a volume",
        e);
}

CORE_COMMAND(core_command_volume_create) {
    const struct event_volume *m = body;
    const char *project = str_empty(m->project) ? NULL : m->project;
    char shown[64];
    if (!core_feature(c, FEATURE_VOLUMES))
        return error_set(e, ENOTSUP, "volume: finish the upgrade first: acequia upgrade finish");
    int r = name_check("volume", m->name, e);
    if (r < 0 || (project && (r = check_project(c, actor, project, e)) < 0) ||
        (r = check_place(c, actor, m, e)) < 0)
        return r;
    if (core_volume(c, project ? NULL : actor->user, project, m->name))
        return error_set(e, EEXIST, "volume \"%s\" exists already",
                         str_printable(m->name, shown, sizeof shown));
    if (m->size_bytes > SIZE_LIMIT_BYTES || m->mode > VOLUME_MODE_MAX)
        return error_set(e, ERANGE, "volume: the size or the mode is too large");
    if (count_of(c, actor->user, project) >= VOLUMES_PER_OWNER)
        return error_set(e, E2BIG, "volume: %s has %d already, which is the most; delete one",
                         project ? "the project" : "the user", VOLUMES_PER_OWNER);
    struct event_volume b = {.name = m->name,
                             .user = actor->user,
                             .project = project,
                             .uid = actor->uid,
                             .gid = actor->gid,
                             .number = c->seq + 1,
                             .size_bytes = m->size_bytes,
                             .mode = m->mode   ? m->mode
                                     : project ? MODE_PROJECT
                                               : MODE_OWN,
                             .at = str_empty(m->at) ? NULL : m->at,
                             .made_ms = now_ms};
    emit(c, EVENT_VOLUME_SET, &b, actor->user, now_ms);
    return 0;
}

static int find_managed(const struct core *c, const struct actor *actor, const struct command_volume *m,
                        const struct event_volume **out, struct error *e) {
    char shown[64];
    const char *project = str_empty(m->project) ? NULL : m->project, *user = project ? NULL
                                                                             : str_empty(m->user)
                                                                                 ? actor->user
                                                                                 : m->user;
    if (!m->name)
        return error_set(e, EINVAL, "volume: its name is required");
    const struct event_volume *v = core_volume(c, user, project, m->name);
    if (!v || !core_volume_visible(c, actor, v))
        return error_set(e, ENOENT, "volume \"%s\" does not exist; see 'acequia volume list'",
                         str_printable(m->name, shown, sizeof shown));
    if (!actor->admin && !streq(actor->user, v->user) &&
        !(v->project && core_leads(c, actor->user, v->project)))
        return error_set(e, EPERM, "volume \"%s\" is %s's: only they and administrators may change it",
                         v->name, v->user);
    *out = v;
    return 0;
}

CORE_COMMAND(core_command_volume_delete) {
    const struct event_volume *v;
    int r = find_managed(c, actor, body, &v, e);
    if (r < 0 || (r = core_volume_check_unused(c, v, e)) < 0)
        return r;
    emit(c, EVENT_VOLUME_DELETED, v, actor->user, now_ms);
    return 0;
}

// The list without the user.
static uint32_t without(const char *const *at, uint32_t len, const char *user, const char **out) {
    uint32_t n = 0;
    for (uint32_t i = 0; i < len; i++)
        if (!streq(at[i], user))
            out[n++] = at[i];
    return n;
}

CORE_COMMAND(core_command_volume_share) {
    const struct command_volume *m = body;
    const char *readers[VOLUME_USERS_MAX + 1], *writers[VOLUME_USERS_MAX + 1];
    const struct event_volume *v;
    int r = find_managed(c, actor, m, &v, e);
    if (r < 0 || (r = name_check("user", m->with, e)) < 0)
        return r;
    bool known =
        names(v->readers.at, v->readers.len, m->with) || names(v->writers.at, v->writers.len, m->with);
    if (m->revoke && !known)
        return error_set(e, ENOENT, "volume \"%s\" is not shared with %s", v->name, m->with);
    if (!m->revoke && !known && v->readers.len + v->writers.len >= VOLUME_USERS_MAX)
        return error_set(e, E2BIG,
                         "volume: it is shared with %d users, which is the most; make it a project's",
                         VOLUME_USERS_MAX);
    struct event_volume b = *v;
    b.readers.len = without(v->readers.at, v->readers.len, m->with, readers);
    b.writers.len = without(v->writers.at, v->writers.len, m->with, writers);
    if (!m->revoke && m->read_only)
        readers[b.readers.len++] = m->with;
    else if (!m->revoke)
        writers[b.writers.len++] = m->with;
    b.readers.at = readers;
    b.writers.at = writers;
    emit(c, EVENT_VOLUME_SET, &b, actor->user, now_ms);
    return 0;
}

// --- state ---

static void entry_free(struct volume_entry *v) {
    if (!v)
        return;
    arena_done(&v->arena);
    free(v);
}

void core_apply_volume(struct core *c, const struct event *e) {
    cleanup_arena struct arena a = {0};
    const struct event_volume *b = e->body;
    struct volume_entry *old = strmap_remove(&c->volumes, title_of(&a, b));
    if (e->type == EVENT_VOLUME_SET) {
        struct volume_entry *v = xcalloc(1, sizeof *v);
        v->volume = schema_copy(&event_volume_schema, b, &v->arena);
        v->title = title_of(&v->arena, v->volume);
        strmap_put(&c->volumes, v->title, v);
    }
    entry_free(old);
}

void core_volumes_free(struct core *c) {
    size_t it = 0;
    void *v;
    while (strmap_next(&c->volumes, &it, NULL, &v))
        entry_free(v);
    strmap_done(&c->volumes);
}
