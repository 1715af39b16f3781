// Accounts of people: their identities, the Unix user their jobs run as, and their role. The hash of a password never
// passes through here: the state knows under which number the store has it.
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "base/text.h"
#include "model/name.h"
#include "state.h"

enum { FULL_NAME_MAX = 255 };

static struct user_entry *find(const struct core *c, const char *name) {
    return strmap_get(&c->accounts, name);
}

bool core_user(const struct core *c, const char *name, struct core_user_view *out) {
    const struct user_entry *u = find(c, name);
    if (u)
        *out = (struct core_user_view){u->account, u->password, u->version, u->set_ms};
    return u != NULL;
}

static int by_name(const void *a, const void *b) {
    return strcmp((*(struct user_entry *const *)a)->account->name,
                  (*(struct user_entry *const *)b)->account->name);
}

void core_each_user(const struct core *c, bool (*fn)(void *ctx, const struct core_user_view *u), void *ctx) {
    VEC(struct user_entry *) list = {0};
    size_t it = 0;
    void *v;
    while (strmap_next(&c->accounts, &it, NULL, &v))
        vec_push(&list, (struct user_entry *)v);
    if (list.len)
        qsort(list.at, list.len, sizeof *list.at, by_name);
    for (uint32_t i = 0; i < list.len; i++) {
        struct core_user_view view;
        if (core_user(c, list.at[i]->account->name, &view) && !fn(ctx, &view))
            break;
    }
    vec_done(&list);
}

void core_person(const struct core *c, const char *identity, const char *claimed, struct core_person *out) {
    const struct user_entry *u = identity ? strmap_get(&c->identities, identity) : NULL;
    *out = (struct core_person){0};
    if (u)
        out->unix_user = u->account->unix_user;
    else if (identity && str_has_prefix(identity, "pam:"))
        out->unix_user = identity + 4;
    else if (!identity || str_has_prefix(identity, "oidc:"))
        out->unix_user = claimed;
    out->by_claim = !u && identity && str_has_prefix(identity, "oidc:");
    // The higher of two roles: the account's, and that of the groups which the provider named at the last login.
    const struct event_user_grant *granted = core_user_grant(c, out->unix_user);
    if (granted)
        out->role = (enum user_role)granted->role;
    if (!u && out->unix_user)
        u = strmap_get(&c->account_of_unix, out->unix_user);
    if (!u)
        return;
    out->account = u->account;
    if (u->account->role > out->role)
        out->role = u->account->role;
    out->disabled = u->account->disabled;
}

// --- commands ---

static int need_feature(const struct core *c, struct error *e) {
    return core_feature(c, FEATURE_USERS)
               ? 0
               : error_set(e, ENOTSUP, "user: finish the upgrade first: acequia upgrade finish");
}

static int check_identities(const struct core *c, const struct user_account *m, struct error *e) {
    if (m->identities.len > USER_IDENTITIES_MAX)
        return error_set(e, E2BIG, "identities: at most %d are allowed", USER_IDENTITIES_MAX);
    for (uint32_t i = 0; i < m->identities.len; i++) {
        const char *one = m->identities.at[i];
        int r = user_identity_check(one, e);
        if (r < 0)
            return r;
        const struct user_entry *u = strmap_get(&c->identities, one);
        if (u && !streq(u->account->name, m->name))
            return error_set(e, EEXIST, "identities: %s belongs to the account %s already", one,
                             u->account->name);
        if (str_has_prefix(one, "own:") && !streq(one + 4, m->name))
            return error_set(e, EINVAL, "identities: %s is the login of another account; make an account %s",
                             one, one + 4);
        for (uint32_t k = 0; k < i; k++)
            if (streq(m->identities.at[k], one))
                return error_set(e, EINVAL, "identities: %s is given twice", one);
    }
    return 0;
}

static int check_account(const struct core *c, const struct user_account *m, struct error *e) {
    int r;
    if ((r = check_identities(c, m, e)) < 0 ||
        (m->full_name && (r = name_line_check("full_name", m->full_name, FULL_NAME_MAX, e)) < 0) ||
        (m->email && (r = name_line_check("email", m->email, FULL_NAME_MAX, e)) < 0))
        return r;
    if (m->role > USER_ROLE_ADMIN)
        return error_set(e, EINVAL, "role: expected user, operator or admin");
    if (str_empty(m->unix_user))
        return 0;
    if ((r = name_check("unix_user", m->unix_user, e)) < 0)
        return r;
    const struct user_entry *u = strmap_get(&c->account_of_unix, m->unix_user);
    if (u && !streq(u->account->name, m->name))
        return error_set(e, EEXIST, "unix_user: %s is that of the account %s already", m->unix_user,
                         u->account->name);
    return 0;
}

CORE_COMMAND(core_command_user_set) {
    const struct user_account *m = body;
    struct user_account merged = {0};
    int r;
    if ((r = core_need_admin(actor, "change accounts", e)) < 0 || (r = need_feature(c, e)) < 0 ||
        (r = name_check("user", m->name, e)) < 0)
        return r;
    const struct user_entry *old = find(c, m->name);
    if (!old && c->accounts.len >= USER_ACCOUNTS_MAX)
        return error_set(e, E2BIG, "user: there are %d accounts, which is the limit; remove one first",
                         USER_ACCOUNTS_MAX);
    if (old)
        merged = *old->account;
    schema_merge(&user_account_schema, &merged, m);
    schema_forget_given(&user_account_schema, &merged);
    if (str_empty(merged.unix_user))
        merged.unix_user = NULL;
    if ((r = check_account(c, &merged, e)) < 0)
        return r;
    if (old && schema_equal(&user_account_schema, &merged, old->account)) {
        error_set(e, EALREADY, "nothing to change: account %s has these values already", m->name);
        return CORE_UNCHANGED;
    }
    cleanup_arena struct arena a = {0};
    const char *by = actor->user;
    // Emitting replaces the entry that the merged texts are shared with.
    struct event_user_set b = {.account = schema_copy(&user_account_schema, &merged, &a), .by = by};
    core_emit(c, now_ms, EVENT_USER_SET, &b);
    if (merged.disabled)
        core_sessions_of_account_end(c, b.account->name, NULL, by, now_ms);
    return 0;
}

CORE_COMMAND(core_command_user_remove) {
    const struct command_user *m = body;
    cleanup_arena struct arena a = {0};
    int r;
    if ((r = core_need_admin(actor, "remove accounts", e)) < 0 || (r = need_feature(c, e)) < 0)
        return r;
    const struct user_entry *u = find(c, m->name);
    if (!u)
        return error_set(e, ENOENT, "user: there is no account of that name; see 'acequia user list'");
    struct event_user_removed b = {
        .name = arena_strdup(&a, m->name), .by = actor->user, .replaced = u->password};
    core_sessions_of_account_end(c, b.name, NULL, actor->user, now_ms);
    core_emit(c, now_ms, EVENT_USER_REMOVED, &b);
    return 0;
}

CORE_COMMAND(core_command_user_password) {
    const struct command_user *m = body;
    cleanup_arena struct arena a = {0};
    int r = need_feature(c, e);
    const struct user_entry *u = find(c, m->name);
    if (r < 0)
        return r;
    const char *own = arena_printf(&a, "own:%s", m->name);
    bool self = u && (streq(actor->identity, own) || streq(u->account->unix_user, actor->user));
    if (!u || (!self && !actor->admin))
        return actor->admin
                   ? error_set(e, ENOENT, "user: there is no account of that name; see 'acequia user list'")
                   : core_need_admin(actor, "set the password of others", e);
    struct event_user_password b = {.name = arena_strdup(&a, m->name),
                                    .version = u->version + 1,
                                    .value = c->seq + 1,
                                    .replaced = u->password,
                                    .by = actor->user};
    core_emit(c, now_ms, EVENT_USER_PASSWORD, &b);
    // Whoever knew the old one is out.
    core_sessions_of_account_end(c, b.name, m->keep, actor->user, now_ms);
    return 0;
}

// --- state ---

bool core_account_loads(const struct core *c, const struct user_account *u) {
    return u && u->name && name_check("user", u->name, NULL) == 0 && check_account(c, u, NULL) == 0;
}

static void index_entry(struct core *c, struct user_entry *u, bool put) {
    const struct user_account *m = u->account;
    for (uint32_t i = 0; i <= m->identities.len; i++) {
        const char *one = i < m->identities.len ? m->identities.at[i] : u->own;
        if (put)
            strmap_put(&c->identities, one, u);
        else if (strmap_get(&c->identities, one) == u)
            strmap_remove(&c->identities, one);
    }
    if (m->unix_user && put)
        strmap_put(&c->account_of_unix, m->unix_user, u);
    else if (m->unix_user && strmap_get(&c->account_of_unix, m->unix_user) == u)
        strmap_remove(&c->account_of_unix, m->unix_user);
}

static void entry_free(struct user_entry *u) {
    arena_done(&u->arena);
    free(u);
}

static void apply_set(struct core *c, const struct event_user_set *b, int64_t at_ms) {
    struct user_entry *old = find(c, b->account->name), *u = xcalloc(1, sizeof *u);
    u->account = schema_copy(&user_account_schema, b->account, &u->arena);
    u->own = arena_printf(&u->arena, "own:%s", u->account->name);
    u->password = old ? old->password : b->value;
    u->version = old ? old->version : b->version;
    u->set_ms = at_ms;
    if (old) {
        index_entry(c, old, false);
        strmap_remove(&c->accounts, old->account->name);
        entry_free(old);
    }
    strmap_put(&c->accounts, u->account->name, u);
    index_entry(c, u, true);
}

void core_apply_user(struct core *c, const struct event *e) {
    const struct event_user_password *p = e->body;
    struct user_entry *u;
    switch (e->type) {
    case EVENT_USER_SET: apply_set(c, e->body, e->at_ms); break;
    case EVENT_USER_PASSWORD:
        if ((u = find(c, p->name))) {
            u->password = p->value;
            u->version = p->version;
        }
        break;
    case EVENT_USER_REMOVED:
        if ((u = find(c, ((const struct event_user_removed *)e->body)->name))) {
            index_entry(c, u, false);
            strmap_remove(&c->accounts, u->account->name);
            entry_free(u);
        }
        break;
    default: break;
    }
}

void core_users_free(struct core *c) {
    size_t it = 0;
    void *v;
    while (strmap_next(&c->accounts, &it, NULL, &v))
        entry_free(v);
    strmap_done(&c->accounts);
    strmap_done(&c->identities);
    strmap_done(&c->account_of_unix);
}

bool core_users_add_up(const struct core *c) {
    size_t it = 0, identities = 0, of_unix = 0;
    void *v;
    while (strmap_next(&c->accounts, &it, NULL, &v)) {
        const struct user_entry *u = v;
        bool own = true;
        for (uint32_t i = 0; i < u->account->identities.len; i++)
            own = own && !streq(u->account->identities.at[i], u->own);
        identities += u->account->identities.len + own;
        of_unix += u->account->unix_user != NULL;
    }
    return identities == c->identities.len && of_unix == c->account_of_unix.len;
}
