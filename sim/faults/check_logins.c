// What must hold for accounts and logins, by the journal alone: a login that was acknowledged lets its browser in, over
// restarts, until it is ended, is not used for its idle time, or has expired. Nobody is let in after that, nor after
// the account was disabled or removed or got another password.
#include <string.h>

#include "base/cleanup.h"
#include "base/text.h"
#include "fault_sim.h"
#include "state.h"
#include "store/sim_disk.h"

struct told_account {
    const char *name, *unix_user, *identity;  // identity: beside its own; NULL: none
    bool removed;
    uint32_t version;  // of its password; 0: none
    uint64_t value;
};

struct told_login {
    const char *id, *identity, *unix_user;
    bool ended, out;  // out: it must be ended, because of what happened to its account
    int64_t seen_ms, expires_ms, idle_ms;
};

static struct told_login *login_of(struct check *c, const char *id) {
    for (uint32_t i = 0; i < c->logins.len; i++)
        if (streq(c->logins.at[i]->id, id))
            return c->logins.at[i];
    return NULL;
}

static struct told_account *account_of(struct check *c, const char *name) {
    for (uint32_t i = 0; i < c->accounts.len; i++)
        if (streq(c->accounts.at[i]->name, name))
            return c->accounts.at[i];
    return NULL;
}

void check_logins_clear(struct check *c) {
    vec_clear(&c->logins);  // they are the arena's
    vec_clear(&c->accounts);
}

void check_logins_done(struct check *c) {
    vec_done(&c->logins);
    vec_done(&c->accounts);
    map_done(&c->kept);
}

// --- whose a login is ---

static bool has_identity(const struct told_account *a, const char *identity) {
    return !a->removed && (streq(a->identity, identity) ||
                           (str_has_prefix(identity, "own:") && streq(identity + 4, a->name)));
}

// By its identity; else by the Unix user that the system or the provider names.
static bool is_of(struct check *c, const struct told_login *l, const struct told_account *a) {
    const char *user = str_has_prefix(l->identity, "pam:")    ? l->identity + 4
                       : str_has_prefix(l->identity, "oidc:") ? l->unix_user
                                                              : NULL;
    for (uint32_t i = 0; i < c->accounts.len; i++)
        if (has_identity(c->accounts.at[i], l->identity))
            return c->accounts.at[i] == a;
    return user && streq(a->unix_user, user);
}

static void shut_out(struct check *c, const struct told_account *a, const char *but) {
    for (uint32_t i = 0; i < c->logins.len; i++)
        if (!streq(c->logins.at[i]->id, but))
            c->logins.at[i]->out |= is_of(c, c->logins.at[i], a);
}

// --- the journal ---

static uint64_t kept_key(const char *name, uint32_t version) {
    return hash_bytes(name, strlen(name)) ^ hash_u64(version);
}

void check_login_kept(struct sim *s, const char *name, uint32_t version, const char *id) {
    map_remove(&s->check.kept, kept_key(name, version));
    if (id)
        map_put(&s->check.kept, kept_key(name, version), arena_strdup(&s->arena, id));
}

static void account_set(struct check *c, const struct user_account *m) {
    struct told_account *a = account_of(c, m->name);
    if (!a) {
        a = arena_alloc(&c->arena, sizeof *a);
        *a = (struct told_account){.name = arena_strdup(&c->arena, m->name)};
        vec_push(&c->accounts, a);
    }
    if (a->removed)
        a->version = 0;
    a->removed = false;
    a->unix_user = m->unix_user ? arena_strdup(&c->arena, m->unix_user) : NULL;
    a->identity = m->identities.len ? arena_strdup(&c->arena, m->identities.at[0]) : NULL;
    if (m->disabled)
        shut_out(c, a, NULL);
}

static void password_set(struct sim *s, const struct event_user_password *b) {
    struct told_account *a = account_of(&s->check, b->name);
    if (!a || a->removed || b->version != a->version + 1 || b->replaced != a->value)
        sim_fail(s, "password %u of account %s comes after %u", b->version, b->name, a ? a->version : 0);
    if (!a)
        return;
    a->version = b->version;
    a->value = b->value;
    shut_out(&s->check, a, map_get(&s->check.kept, kept_key(b->name, b->version)));
}

static void session_begun(struct sim *s, const struct event_session *b) {
    struct check *c = &s->check;
    struct told_login *l = login_of(c, b->id);
    const struct told_account *a =
        str_has_prefix(b->identity, "own:") ? account_of(c, b->identity + 4) : NULL;
    if (l && !l->ended)
        sim_fail(s, "login %s begins twice", b->id);
    if (str_has_prefix(b->identity, "own:") && (!a || a->removed))
        sim_fail(s, "login %s is of %s, which is no account", b->id, b->identity);
    if (!l) {
        l = arena_alloc(&c->arena, sizeof *l);
        vec_push(&c->logins, l);
    }
    *l = (struct told_login){.id = arena_strdup(&c->arena, b->id),
                             .identity = arena_strdup(&c->arena, b->identity),
                             .unix_user = b->unix_user ? arena_strdup(&c->arena, b->unix_user) : NULL,
                             .seen_ms = b->seen_ms,
                             .expires_ms = b->expires_ms,
                             .idle_ms = (int64_t)b->idle_s * 1000};
}

static void session_changed(struct sim *s, const char *id, const struct event_session_seen *seen) {
    struct told_login *l = login_of(&s->check, id);
    if (!l || l->ended) {
        sim_fail(s, "login %s %s, which is not there", id, seen ? "was used" : "has ended");
        return;
    }
    l->ended = !seen;
    l->seen_ms = seen ? seen->seen_ms : l->seen_ms;
}

void check_login_event(struct sim *s, const struct event *e) {
    struct told_account *a;
    switch (e->type) {
    case EVENT_USER_SET: account_set(&s->check, ((const struct event_user_set *)e->body)->account); break;
    case EVENT_USER_PASSWORD: password_set(s, e->body); break;
    case EVENT_USER_REMOVED:
        a = account_of(&s->check, ((const struct event_user_removed *)e->body)->name);
        if (!a)
            break;
        shut_out(&s->check, a, NULL);
        a->removed = true;
        a->value = 0;
        break;
    case EVENT_SESSION_BEGUN: session_begun(s, e->body); break;
    case EVENT_SESSION_SEEN:
        session_changed(s, ((const struct event_session_seen *)e->body)->id, e->body);
        break;
    case EVENT_SESSION_ENDED:
        session_changed(s, ((const struct event_session_ended *)e->body)->id, NULL);
        break;
    default: break;
    }
}

// --- browsers ---

const char *check_login_of(struct sim *s, const char *account) {
    struct told_account *a = account_of(&s->check, account);
    for (uint32_t i = s->check.logins.len; a && i-- > 0;)
        if (!s->check.logins.at[i]->ended && is_of(&s->check, s->check.logins.at[i], a))
            return s->check.logins.at[i]->id;
    return NULL;
}

void check_login_acknowledged(struct sim *s, const char *id) {
    if (!s->restored && !login_of(&s->check, id))
        sim_fail(s, "login %s was acknowledged but is not in the journal", id);
}

void check_login_used(struct sim *s, const struct sim_login *b, bool let_in) {
    const struct told_login *l = login_of(&s->check, b->id);
    int64_t now = head_wall_ms(s);
    bool settled = core_seq(s->head->core) == core_seq(s->check.shadow);
    // Use is written down once in a quarter of the idle time.
    bool idle = l && now - l->seen_ms >= l->idle_ms &&
                !(!s->restored && b->used_ms <= now && now - b->used_ms < l->idle_ms * 3 / 4);
    bool over = l && (now >= l->expires_ms || idle);
    if (let_in && l && (l->ended || l->out))
        sim_fail(s, "login %s is let in although it %s", b->id,
                 l->ended ? "has ended" : "must end: its account was changed");
    else if (let_in && settled && (!l || now >= l->expires_ms))
        sim_fail(s, "login %s is let in although it %s", b->id, l ? "has expired" : "is not in the journal");
    else if (!let_in && settled && l && !l->ended && !l->out && !over)
        sim_fail(s, "login %s is shut out although it holds", b->id);
}

static int count_blob(void *ctx, const char *name, const void *data, size_t len) {
    ++*(uint32_t *)ctx;
    return 0;
}

// The newest of each account, and no older one.
static void check_passwords(struct sim *s) {
    uint32_t due = 0, stored = 0;
    for (uint32_t i = 0; i < s->check.accounts.len; i++) {
        const struct told_account *a = s->check.accounts.at[i];
        char name[STORE_BLOB_NAME_MAX], text[64];
        cleanup_free void *found = NULL;
        size_t len = 0;
        if (!a->value)
            continue;
        due++;
        pipeline_secret_name(a->value, name);
        login_password_text(a->name, a->version, text, sizeof text);
        if (sim_disk_blob(s->disk, name, &found, &len, NULL) < 0 || len != strlen(text) ||
            memcmp(found, text, len) != 0)
            sim_fail(s, "password %u of account %s is not in the store", a->version, a->name);
    }
    sim_disk_blobs(s->disk, "secret-", count_blob, &stored);
    if (stored != due)
        sim_fail(s, "%u passwords are stored, there are %u", stored, due);
}

// Everything is committed: who is logged in, and which passwords there are.
void check_logins_equal(struct sim *s) {
    struct check *c = &s->check;
    uint32_t live = 0;
    for (uint32_t i = 0; i < c->logins.len; i++) {
        const struct told_login *l = c->logins.at[i];
        live += !l->ended;
        if (l->out && !l->ended)
            sim_fail(s, "login %s outlives what happened to its account", l->id);
    }
    if (live != s->head->core->login_sessions.len)
        sim_fail(s, "%u logins are in the journal, %u are open", live,
                 (uint32_t)s->head->core->login_sessions.len);
    if (!s->restored)
        check_passwords(s);
}
