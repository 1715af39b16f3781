// Secrets of users and projects: which there are, whose, and under which number the store has their encrypted value.
// The value itself never passes through here.
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "base/text.h"
#include "model/name.h"
#include "model/secret.h"
#include "state.h"

// "u/ana" or "p/vision"; names have no '/'.
static const char *owner_of(struct arena *a, const char *user, const char *project) {
    return arena_printf(a, "%s/%s", user ? "u" : "p", user ? user : project);
}

static struct secret_entry *find(const struct core *c, const char *user, const char *project,
                                 const char *name) {
    cleanup_arena struct arena a = {0};
    return strmap_get(&c->secrets, arena_printf(&a, "%s/%s", owner_of(&a, user, project), name));
}

const struct event_secret *core_secret(const struct core *c, const char *user, const char *project,
                                       const char *name) {
    const struct secret_entry *s = find(c, user, project, name);
    return s ? s->secret : NULL;
}

const struct event_secret *core_secret_of_job(const struct core *c, const char *user, const char *project,
                                              const char *name) {
    const struct event_secret *own = core_secret(c, user, NULL, name);
    return own || !project ? own : core_secret(c, NULL, project, name);
}

bool core_secret_visible(const struct core *c, const struct actor *actor, const struct event_secret *s) {
    return actor->admin ||
           (s->user ? streq(s->user, actor->user) : core_is_named_member(c, actor->user, s->project));
}

// A project without a list of members is everybody's: its secrets are its administrators'.
static int check_owner(const struct core *c, const struct actor *actor, const struct command_secret *m,
                       struct error *e) {
    char shown[64];
    int r = name_check("secret", m->name, e);
    if (r < 0)
        return r;
    if (!core_feature(c, FEATURE_SECRETS))
        return error_set(e, ENOTSUP, "secret: finish the upgrade first: acequia upgrade finish");
    if (m->user && !streq(m->user, actor->user))
        return core_need_admin(actor, "delete secrets of others", e);
    if (!m->project)
        return 0;
    if (!core_find_entity(c, ENTITY_PROJECT, m->project))
        return error_set(e, ENOENT, "project \"%s\" does not exist; see 'acequia project list'",
                         str_printable(m->project, shown, sizeof shown));
    if ((r = core_check_not_deleted(c, "project", m->project, e)) < 0)
        return r;
    if (actor->admin || core_is_named_member(c, actor->user, m->project) ||
        core_leads(c, actor->user, m->project))
        return 0;
    return error_set(e, EPERM,
                     "project \"%s\": only its members, where it names them, and administrators may change "
                     "its secrets",
                     m->project);
}

// One number for each owner, not for each name: names can be made without end. So that an encrypted value can never be
// put in the place of a later one, a version is not used again.
uint32_t core_secret_next_version(const struct core *c, const char *user, const char *project,
                                  const char *name) {
    cleanup_arena struct arena a = {0};
    const struct event_secret *old = core_secret(c, user, project, name);
    uint32_t deleted = (uint32_t)(uintptr_t)strmap_get(&c->secret_versions, owner_of(&a, user, project)),
             version = old && old->version > deleted ? old->version : deleted;
    return version < UINT32_MAX ? version + 1 : version;
}

static void note_deleted(struct core *c, const struct event_secret *s) {
    cleanup_arena struct arena a = {0};
    const char *owner = owner_of(&a, s->user, s->project);
    if (core_feature(c, FEATURE_SECRET_VERSIONS) &&
        s->version > (uintptr_t)strmap_get(&c->secret_versions, owner))
        strmap_put(&c->secret_versions, core_intern(c, owner), (void *)(uintptr_t)s->version);
}

CORE_COMMAND(core_command_secret_set) {
    const struct command_secret *m = body;
    cleanup_arena struct arena a = {0};
    int r = check_owner(c, actor, m, e);
    if (r < 0)
        return r;
    if (m->user && (m->project || !streq(m->user, actor->user)))
        return error_set(e, EINVAL, "user: a secret is stored for yourself or for a project; leave user out");
    const char *user = m->project ? NULL : actor->user;
    const struct event_secret *old = core_secret(c, user, m->project, m->name);
    uintptr_t count = (uintptr_t)strmap_get(&c->secret_owners, owner_of(&a, user, m->project));
    if (!old && count >= SECRETS_PER_OWNER)
        return error_set(e, E2BIG,
                         "secret: %s has %d already, which is the most; delete one with 'acequia secret "
                         "delete'",
                         m->project ? "the project" : "the user", SECRETS_PER_OWNER);
    struct event_secret b = {.name = m->name,
                             .user = user,
                             .project = m->project,
                             .version = core_secret_next_version(c, user, m->project, m->name),
                             .value = c->seq + 1,
                             .replaced = old ? old->value : 0,
                             .by = actor->user};
    core_emit(c, now_ms, EVENT_SECRET_SET, &b);
    return 0;
}

static void emit_deleted(struct core *c, const struct event_secret *s, const char *by, int64_t now_ms) {
    cleanup_arena struct arena a = {0};
    struct event_secret b = {
        .name = arena_strdup(&a, s->name), .version = s->version, .replaced = s->value, .by = by};
    b.user = s->user ? arena_strdup(&a, s->user) : NULL;
    b.project = s->project ? arena_strdup(&a, s->project) : NULL;
    core_emit(c, now_ms, EVENT_SECRET_DELETED, &b);
}

CORE_COMMAND(core_command_secret_delete) {
    const struct command_secret *m = body;
    char shown[64];
    int r = check_owner(c, actor, m, e);
    if (r < 0)
        return r;
    const struct event_secret *s = core_secret(c,
                                               m->project ? NULL
                                               : m->user  ? m->user
                                                          : actor->user,
                                               m->project, m->name);
    if (!s)
        return error_set(e, ENOENT, "secret \"%s\" does not exist; see 'acequia secret list'",
                         str_printable(m->name, shown, sizeof shown));
    emit_deleted(c, s, actor->user, now_ms);
    return 0;
}

void core_secrets_of_project_delete(struct core *c, const char *project, const char *by, int64_t now_ms) {
    for (bool more = true; more;) {
        const struct event_secret *found = NULL;
        size_t it = 0;
        void *v;
        while (!found && strmap_next(&c->secrets, &it, NULL, &v))
            if (streq(((struct secret_entry *)v)->secret->project, project))
                found = ((struct secret_entry *)v)->secret;
        if ((more = found))
            emit_deleted(c, found, by, now_ms);
    }
}

int core_secrets_check(const struct core *c, const struct spec *s, struct error *e) {
    cleanup_arena struct arena a = {0};
    struct secret_wish w;
    if (s->secrets.len && !core_feature(c, FEATURE_SECRETS))
        return error_set(e, ENOTSUP, "secret: finish the upgrade first: acequia upgrade finish");
    for (uint32_t i = 0; i < s->secrets.len; i++) {
        int r = secret_wish_parse(s->secrets.at[i], &a, &w, e);
        if (r < 0)
            return r;
        if (!core_secret_of_job(c, s->user, s->project, w.name))
            return error_set(e, ENOENT,
                             "secret: neither you nor project %s has a secret %s; store it with 'acequia "
                             "secret set %s'",
                             s->project, w.name, w.name);
    }
    return 0;
}

static void count_owner(struct core *c, struct secret_entry *s, int change) {
    uintptr_t n = (uintptr_t)strmap_get(&c->secret_owners, s->owner) + (uintptr_t)change;
    if (n)
        strmap_put(&c->secret_owners, core_intern(c, s->owner), (void *)n);
    else
        strmap_remove(&c->secret_owners, s->owner);
}

static void entry_free(struct secret_entry *s) {
    arena_done(&s->arena);
    free(s->key);
    free(s->owner);
    free(s);
}

void core_apply_secret(struct core *c, const struct event *e) {
    const struct event_secret *b = e->body;
    cleanup_arena struct arena a = {0};
    if (!b->name || !b->user == !b->project)
        return;
    struct secret_entry *old = find(c, b->user, b->project, b->name);
    if (old) {
        strmap_remove(&c->secrets, old->key);
        count_owner(c, old, -1);
        entry_free(old);
    }
    if (e->type == EVENT_SECRET_DELETED) {
        note_deleted(c, b);
        return;
    }
    struct secret_entry *s = xcalloc(1, sizeof *s);
    s->secret = schema_copy(event_info(e->type)->schema, b, &s->arena);
    s->secret->set_ms = e->at_ms;
    s->secret->replaced = 0;
    s->owner = xstrdup(owner_of(&a, b->user, b->project));
    s->key = xstrdup(arena_printf(&a, "%s/%s", s->owner, b->name));
    strmap_put(&c->secrets, s->key, s);
    count_owner(c, s, 1);
}

void core_secrets_free(struct core *c) {
    size_t it = 0;
    void *v;
    while (strmap_next(&c->secrets, &it, NULL, &v))
        entry_free(v);
    strmap_done(&c->secrets);
    strmap_done(&c->secret_owners);
    strmap_done(&c->secret_versions);
}

static int by_key(const void *a, const void *b) {
    return strcmp((*(struct secret_entry *const *)a)->key, (*(struct secret_entry *const *)b)->key);
}

void core_each_secret(const struct core *c, bool (*fn)(void *ctx, const struct event_secret *s), void *ctx) {
    VEC(struct secret_entry *) list = {0};
    size_t it = 0;
    void *v;
    while (strmap_next(&c->secrets, &it, NULL, &v))
        vec_push(&list, (struct secret_entry *)v);
    if (list.len)
        qsort(list.at, list.len, sizeof *list.at, by_key);
    for (uint32_t i = 0; i < list.len; i++)
        if (!fn(ctx, list.at[i]->secret))
            break;
    vec_done(&list);
}

static int by_owner(const void *a, const void *b) {
    return strcmp(*(const char *const *)a, *(const char *const *)b);
}

void core_each_deleted_secret(const struct core *c, bool (*fn)(void *ctx, const struct event_secret *s),
                              void *ctx) {
    VEC(const char *) owners = {0};
    const char *owner;
    size_t it = 0;
    while (strmap_next(&c->secret_versions, &it, &owner, NULL))
        vec_push(&owners, owner);
    if (owners.len)
        qsort(owners.at, owners.len, sizeof *owners.at, by_owner);
    for (uint32_t i = 0; i < owners.len; i++) {
        owner = owners.at[i];
        bool user = *owner == 'u';
        struct event_secret s = {.name = "deleted",
                                 .user = user ? owner + 2 : NULL,
                                 .project = user ? NULL : owner + 2,
                                 .version = (uint32_t)(uintptr_t)strmap_get(&c->secret_versions, owner)};
        if (!fn(ctx, &s))
            break;
    }
    vec_done(&owners);
}

uint64_t core_secret_count(const struct core *c) {
    return c->secrets.len;
}

bool core_secrets_add_up(const struct core *c) {
    size_t it = 0;
    uintptr_t sum = 0;
    void *n;
    while (strmap_next(&c->secret_owners, &it, NULL, &n))
        sum += (uintptr_t)n;
    return sum == c->secrets.len;
}
