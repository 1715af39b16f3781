// What people keep: drafts of jobs, templates, and views of the table of jobs. Drafts and views are their user's alone;
// a template is a user's, or belongs to a project and is there for its members.
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "base/text.h"
#include "model/name.h"
#include "state.h"

enum { TITLE_MAX = 255 };

static const char *owner_key(struct arena *a, const char *user, const char *project) {
    return arena_printf(a, "%c/%s", user ? 'u' : 'p', user ? user : project);
}

static struct saved_owner *find_owner(const struct core *c, const char *user, const char *project) {
    cleanup_arena struct arena a = {0};
    return user || project ? strmap_get(&c->saved_owners, owner_key(&a, user, project)) : NULL;
}

static int compare(const struct event_saved *s, unsigned kind, const char *name) {
    return s->kind != kind ? s->kind > kind ? 1 : -1 : strcmp(s->name, name);
}

// Where it is, or would be.
static uint32_t place_of(const struct saved_owner *o, unsigned kind, const char *name, bool *found) {
    uint32_t i = 0;
    while (i < o->list.len && compare(o->list.at[i]->saved, kind, name) < 0)
        i++;
    *found = i < o->list.len && compare(o->list.at[i]->saved, kind, name) == 0;
    return i;
}

static const struct saved_entry *find(const struct saved_owner *o, unsigned kind, const char *name) {
    bool found = false;
    uint32_t i = o ? place_of(o, kind, name, &found) : 0;
    return found ? o->list.at[i] : NULL;
}

const struct event_saved *core_saved(const struct core *c, enum saved_kind kind, const char *user,
                                     const char *project, const char *name) {
    const struct saved_entry *s = find(find_owner(c, user, project), kind, name);
    return s ? s->saved : NULL;
}

static bool is_of_project(const struct core *c, const struct actor *actor, const char *project) {
    return (!actor->project || streq(actor->project, project)) &&
           (actor->admin || core_is_named_member(c, actor->user, project) ||
            core_leads(c, actor->user, project));
}

// A token of one project has to do with that project only.
static bool is_in_scope(const struct actor *actor, const struct event_saved *s) {
    return !actor->project || (s->spec && streq(s->spec->project, actor->project));
}

bool core_saved_visible(const struct core *c, const struct actor *actor, const struct event_saved *s) {
    return s->user ? streq(s->user, actor->user) && is_in_scope(actor, s)
                   : is_of_project(c, actor, s->project);
}

// --- commands ---

static int check_owner(const struct core *c, const struct actor *actor, const struct event_saved *m,
                       struct error *e) {
    char shown[64];
    int r = name_check(event_saved_words[m->kind], m->name, e);
    if (r < 0 || !m->project)
        return r;
    if (m->kind != SAVED_TEMPLATE)
        return error_set(e, EINVAL, "project: a %s is yours alone; leave project out",
                         event_saved_words[m->kind]);
    if (!core_find_entity(c, ENTITY_PROJECT, m->project))
        return error_set(e, ENOENT, "project \"%s\" does not exist; see 'acequia project list'",
                         str_printable(m->project, shown, sizeof shown));
    if ((r = core_check_not_deleted(c, "project", m->project, e)) < 0 || is_of_project(c, actor, m->project))
        return r;
    return error_set(e, EPERM,
                     "project \"%s\": only its leads, the members it names and administrators may change its "
                     "templates",
                     m->project);
}

static int check_content(const struct event_saved *m, struct error *e) {
    int r;
    if (m->title && (r = name_line_check("title", m->title, TITLE_MAX, e)) < 0)
        return r;
    if (m->kind == SAVED_VIEW) {
        if (m->spec || m->script)
            return error_set(e, EINVAL, "view: it has a query; leave spec and script out");
        if (str_empty(m->query))
            return error_set(e, EINVAL, "query: it is missing: filters, order and columns of the view");
        return name_line_check("query", m->query, CORE_SAVED_QUERY_MAX, e);
    }
    if (m->query)
        return error_set(e, EINVAL, "query: only views have one");
    if (!m->spec)
        return error_set(e, EINVAL, "spec: it is missing; what is not filled in yet can be left out of it");
    return 0;
}

static int check_room(const struct core *c, const struct event_saved *s, size_t bytes, struct error *e) {
    const struct saved_owner *o = find_owner(c, s->user, s->project);
    const struct saved_entry *old = find(o, s->kind, s->name);
    const char *word = event_saved_words[s->kind];
    uint64_t before = old ? old->bytes : 0;
    uint32_t count = 0;
    for (uint32_t i = 0; o && i < o->list.len; i++)
        count += o->list.at[i]->saved->kind == s->kind;
    if (bytes > CORE_SAVED_BYTES_MAX)
        return error_set(e, E2BIG, "%s: %zu bytes; at most %d are kept. Put the script into a file", word,
                         bytes, CORE_SAVED_BYTES_MAX);
    if (!old && count >= CORE_SAVED_MAX)
        return error_set(e, E2BIG, "%s: there are %d already, which is the most; delete one", word,
                         CORE_SAVED_MAX);
    if (o && o->bytes - before + bytes > CORE_SAVED_OWNER_BYTES)
        return error_set(e, E2BIG,
                         "%s: what is kept for %s would be more than %d bytes; delete some, or put scripts "
                         "into files",
                         word, s->user ? "you" : "the project", CORE_SAVED_OWNER_BYTES);
    if (c->saved_bytes - before + bytes > CORE_SAVED_ALL_BYTES)
        return error_set(e, ENOSPC, "%s: nothing more can be kept; tell an administrator", word);
    return 0;
}

static int check_feature(const struct core *c, struct error *e) {
    return core_feature(c, FEATURE_SAVED)
               ? 0
               : error_set(e, ENOTSUP, "finish the upgrade first: acequia upgrade finish");
}

CORE_COMMAND(core_command_saved_set) {
    const struct event_saved *m = body;
    cleanup_buf struct buf encoded = {0};
    struct spec spec;
    int r;
    if (m->kind >= SAVED_KINDS)
        return error_set(e, EINVAL, "kind: expected draft, template or view");
    if ((r = check_feature(c, e)) < 0 || (r = check_owner(c, actor, m, e)) < 0 ||
        (r = check_content(m, e)) < 0)
        return r;
    const struct event_saved *old = core_saved(c, (enum saved_kind)m->kind, actor->user, NULL, m->name);
    if (!m->project && (!is_in_scope(actor, m) || (old && !is_in_scope(actor, old))))
        return error_set(e, EPERM,
                         "your token is for project %s: it keeps drafts and templates of that project only",
                         actor->project);
    struct event_saved b = *m;
    b.user = m->project ? NULL : actor->user;
    b.by = actor->user;
    b.set_ms = 0;
    if (m->spec) {  // who it belongs to is decided when it is submitted
        spec = *m->spec;
        spec.user = spec.script_id = spec.environment_id = spec.upload_id = spec.submit_line = spec.key_hash = NULL;
        spec.uid = spec.gid = 0;
        spec.script_bytes = spec.environment_bytes = spec.upload_bytes = 0;
        b.spec = &spec;
    }
    schema_encode(&event_saved_schema, &b, &encoded);
    if ((r = check_room(c, &b, encoded.len, e)) < 0)
        return r;
    core_emit(c, now_ms, EVENT_SAVED_SET, &b);
    return 0;
}

static void emit_deleted(struct core *c, const struct event_saved *s, const char *by, int64_t now_ms) {
    cleanup_arena struct arena a = {0};
    struct event_saved b = {.kind = s->kind, .name = arena_strdup(&a, s->name), .by = by};
    b.user = s->user ? arena_strdup(&a, s->user) : NULL;
    b.project = s->project ? arena_strdup(&a, s->project) : NULL;
    core_emit(c, now_ms, EVENT_SAVED_DELETED, &b);
}

CORE_COMMAND(core_command_saved_delete) {
    const struct event_saved *m = body;
    char shown[64];
    int r;
    if (m->kind >= SAVED_KINDS)
        return error_set(e, EINVAL, "kind: expected draft, template or view");
    if ((r = check_owner(c, actor, m, e)) < 0)
        return r;
    const struct event_saved *s =
        core_saved(c, (enum saved_kind)m->kind, m->project ? NULL : actor->user, m->project, m->name);
    if (!s || !core_saved_visible(c, actor, s))
        return error_set(e, ENOENT, "there is no %s \"%s\"", event_saved_words[m->kind],
                         str_printable(m->name, shown, sizeof shown));
    emit_deleted(c, s, actor->user, now_ms);
    return 0;
}

void core_saved_of_project_delete(struct core *c, const char *project, const char *by, int64_t now_ms) {
    for (const struct saved_owner *o; (o = find_owner(c, NULL, project));)
        emit_deleted(c, o->list.at[0]->saved, by, now_ms);
}

// --- state ---

bool core_saved_loads(const struct event_saved *s) {
    return s->kind < SAVED_KINDS && !str_empty(s->name) && !s->user != !s->project;
}

static struct saved_owner *owner_of(struct core *c, const struct event_saved *s) {
    cleanup_arena struct arena a = {0};
    struct saved_owner *o = find_owner(c, s->user, s->project);
    if (!o) {
        o = xcalloc(1, sizeof *o);
        o->key = xstrdup(owner_key(&a, s->user, s->project));
        strmap_put(&c->saved_owners, o->key, o);
    }
    return o;
}

static void entry_free(struct saved_entry *s) {
    arena_done(&s->arena);
    free(s);
}

static void owner_free(struct saved_owner *o) {
    for (uint32_t i = 0; i < o->list.len; i++)
        entry_free(o->list.at[i]);
    vec_done(&o->list);
    free(o->key);
    free(o);
}

static void count_bytes(struct core *c, struct saved_owner *o, const struct saved_entry *s, int sign) {
    o->bytes += (uint64_t)sign * s->bytes;
    c->saved_bytes += (uint64_t)sign * s->bytes;
}

static struct saved_entry *entry_of(const struct event_saved *b, int64_t at_ms) {
    cleanup_buf struct buf encoded = {0};
    struct saved_entry *s = xcalloc(1, sizeof *s);
    s->saved = schema_copy(&event_saved_schema, b, &s->arena);
    s->saved->set_ms = 0;  // the room it takes is the same from the journal and from a snapshot
    schema_encode(&event_saved_schema, s->saved, &encoded);
    s->bytes = encoded.len;
    s->saved->set_ms = at_ms;
    return s;
}

void core_apply_saved(struct core *c, const struct event *e) {
    const struct event_saved *b = e->body;
    bool found;
    if (!core_saved_loads(b))
        return;
    // In a snapshot it has its time; in the journal that of its event.
    struct saved_entry *s = e->type == EVENT_SAVED_SET ? entry_of(b, b->set_ms ? b->set_ms : e->at_ms) : NULL;
    struct saved_owner *o = owner_of(c, b);
    uint32_t i = place_of(o, b->kind, b->name, &found);
    if (found) {
        int64_t before = o->list.at[i]->saved->set_ms;
        if (s && s->saved->set_ms <= before)
            s->saved->set_ms = before + 1;  // it is also its version: two never have the same
        count_bytes(c, o, o->list.at[i], -1);
        entry_free(o->list.at[i]);
        vec_remove(&o->list, i);
    }
    if (s) {
        count_bytes(c, o, s, 1);
        vec_push(&o->list, s);
        memmove(o->list.at + i + 1, o->list.at + i, (o->list.len - 1 - i) * sizeof *o->list.at);
        o->list.at[i] = s;
    }
    if (!o->list.len) {
        strmap_remove(&c->saved_owners, o->key);
        owner_free(o);
    }
}

void core_saved_free(struct core *c) {
    size_t it = 0;
    void *v;
    while (strmap_next(&c->saved_owners, &it, NULL, &v))
        owner_free(v);
    strmap_done(&c->saved_owners);
}

static bool each_of(const struct saved_owner *o, core_saved_fn fn, void *ctx) {
    for (uint32_t i = 0; o && i < o->list.len; i++)
        if (!fn(ctx, o->list.at[i]->saved))
            return false;
    return true;
}

void core_each_saved_of(const struct core *c, const char *user, const char *project, core_saved_fn fn,
                        void *ctx) {
    (void)each_of(find_owner(c, user, project), fn, ctx);
}

static int by_key(const void *a, const void *b) {
    return strcmp((*(struct saved_owner *const *)a)->key, (*(struct saved_owner *const *)b)->key);
}

void core_each_saved(const struct core *c, core_saved_fn fn, void *ctx) {
    VEC(struct saved_owner *) list = {0};
    size_t it = 0;
    void *v;
    while (strmap_next(&c->saved_owners, &it, NULL, &v))
        vec_push(&list, (struct saved_owner *)v);
    if (list.len)
        qsort(list.at, list.len, sizeof *list.at, by_key);
    for (uint32_t i = 0; i < list.len && each_of(list.at[i], fn, ctx); i++)
        ;
    vec_done(&list);
}

bool core_saved_adds_up(const struct core *c) {
    size_t it = 0;
    uint64_t all = 0;
    void *v;
    while (strmap_next(&c->saved_owners, &it, NULL, &v)) {
        const struct saved_owner *o = v;
        uint64_t bytes = 0;
        for (uint32_t i = 0; i < o->list.len; i++)
            bytes += o->list.at[i]->bytes;
        if (!o->list.len || bytes != o->bytes)
            return false;
        all += bytes;
    }
    return all == c->saved_bytes;
}
