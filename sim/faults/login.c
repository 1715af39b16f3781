// People with accounts who log in with a browser: they come back with their cookie, log out, or stay away; operators
// disable and remove accounts and change passwords meanwhile. Accounts and sessions are the product's (src/core/user.c,
// login_session.c). The journal alone says who must be let in (check_logins.c).
#include <errno.h>
#include <string.h>

#include "base/text.h"
#include "fault_sim.h"
#include "seams.h"

enum { TURN_MS = 6000, AWAY_MS = 60000, IDLE_LEAST_S = 8 };

typedef unsigned long long ull;

static const struct actor admin = {"root", 0, 0, true};
static const struct {
    const char *name, *unix_user, *provider;
} people[] = {{"anna", "alice", "oidc:https://id.example/anna"},
              {"ben", NULL, "oidc:https://id.example/ben"},
              {"cleo", "carol", "pam:carol"}};
enum { PEOPLE = sizeof people / sizeof people[0] };

static int command(struct sim *s, enum command_type type, const void *body, struct error *e) {
    struct command m = {type, body};
    return core_command(s->head->core, &admin, NULL, &m, head_wall_ms(s), NULL, e);
}

// --- operators ---

static int set_account(struct sim *s, const struct item *it, struct error *e) {
    uint32_t who = it->pick % PEOPLE;
    const char *identities[] = {people[who].provider};
    struct user_account m = {.name = people[who].name,
                             .unix_user = people[who].unix_user,
                             .role = (enum user_role)(it->amount % 3),
                             .disabled = it->amount % 6 == 2,
                             .identities = {identities, it->node % 2}};
    for (size_t i = 0; i < user_account_schema.count; i++)
        schema_give(&user_account_schema, &m, (char *)&m + user_account_schema.fields[i].offset);
    return command(s, COMMAND_USER_SET, &m, e);
}

void login_password_text(const char *name, uint32_t version, char *out, size_t size) {
    snprintf(out, size, "the password of %s, version %u", name, version);
}

// The hash goes into the store in the same batch, as the controller does it.
static int set_password(struct sim *s, const struct item *it, struct error *e) {
    const char *name = people[it->pick % PEOPLE].name;
    struct command_user m = {.name = name, .keep = it->amount % 2 ? check_login_of(s, name) : NULL};
    struct core_user_view u;
    char blob[STORE_BLOB_NAME_MAX], text[64];
    if (core_user(s->head->core, name, &u))
        check_login_kept(s, name, u.version + 1, m.keep);
    int r = command(s, COMMAND_USER_PASSWORD, &m, e);
    if (r == 0 && core_user(s->head->core, name, &u)) {
        pipeline_secret_name(u.password, blob);
        login_password_text(name, u.version, text, sizeof text);
        pipeline_keep_blob(s->head->pipeline, blob, text, strlen(text));
    }
    return r;
}

static int change_account(struct sim *s, const struct item *it, struct error *e) {
    switch (it->amount % 6) {
    case 3: return command(s, COMMAND_USER_REMOVE, &(struct command_user){people[it->pick % PEOPLE].name}, e);
    case 4:
    case 5: return set_password(s, it, e);
    default: return set_account(s, it, e);
    }
}

// --- logins ---

static void name_session(uint32_t item, uint64_t try, char id[static 24], char hash[static 24]) {
    snprintf(id, 24, "s-%u-%llu", item, (ull)try);
    snprintf(hash, 24, "secret-%u-%llu", item, (ull)try);
}

// Each try is a login of its own.
static int begin(struct sim *s, const struct request *q, const struct item *it, struct error *e) {
    uint32_t who = it->pick % PEOPLE;
    char own[32], id[24], hash[24];
    struct core_person p;
    snprintf(own, sizeof own, "own:%s", people[who].name);
    struct event_session b = {.id = id,
                              .hash = hash,
                              .identity = it->amount % 2 ? own : people[who].provider,
                              .unix_user = it->amount % 4 == 0 ? people[who].unix_user : NULL,
                              .idle_s = IDLE_LEAST_S + it->amount % 60,
                              .expires_ms = head_wall_ms(s) + 20000 + it->for_ms * 20};
    name_session(q->item, q->tries, id, hash);
    core_person(s->head->core, b.identity, b.unix_user, &p);
    if (p.disabled)
        return error_set(e, EACCES, "name or password is wrong");
    return command(s, COMMAND_SESSION_BEGIN, &b, e);
}

int login_command(struct sim *s, const struct request *q, const struct item *it, struct sim_answer *a,
                  struct error *e) {
    a->id = q->tries;
    return it->kind == ITEM_LOGIN ? begin(s, q, it, e) : change_account(s, it, e);
}

void login_answered(struct sim *s, const struct request *q, const struct sim_answer *a) {
    struct sim_login l = {.number = s->logins.len};
    if (s->plan->items.at[q->item].kind != ITEM_LOGIN)
        return;
    name_session(q->item, a->id, l.id, l.hash);
    check_login_acknowledged(s, l.id);
    vec_push(&s->logins, l);
    after(s, some_ms(s, 1, TURN_MS), HAPPEN_LOGIN, l.number, 0, 0);
}

struct use {
    struct sim *sim;
    uint32_t login;
    int64_t at_ms;
};

static void use_committed(void *arg) {
    const struct use *u = arg;
    u->sim->logins.at[u->login].used_ms = u->at_ms;
}

// As the controller does it for each request that comes with the cookie.
static bool let_in(struct sim *s, struct sim_login *l) {
    int64_t now = head_wall_ms(s);
    char another[24];
    struct core_person p = {0};
    const struct event_session *b = core_session(s->head->core, l->id, l->hash, now);
    snprintf(another, sizeof another, "%s", l->hash);
    another[0] ^= 1;
    if (core_session(s->head->core, l->id, another, now))
        sim_fail(s, "login %s is open to another secret", l->id);
    if (b)
        core_person(s->head->core, b->identity, b->unix_user, &p);
    if (!b || p.disabled)
        return false;
    struct use *u = arena_alloc(&s->arena, sizeof *u);
    *u = (struct use){s, l->number, now};
    command(s, COMMAND_SESSION_SEEN, &(struct command_session){l->id}, NULL);
    pipeline_when_committed(s->head->pipeline, use_committed, u);
    head_touched(s);
    return true;
}

void login_turn(struct sim *s, struct sim_login *l) {
    if (l->done)
        return;
    if (head_reachable(s)) {
        bool in = let_in(s, l);
        check_login_used(s, l, in);
        l->done = !in;
        if (in && rand_below(&s->rand, 12) == 0)  // it logs out, and tries its cookie once more
            command(s, COMMAND_SESSION_END, &(struct command_session){l->id}, NULL);
    }
    int64_t longest = rand_below(&s->rand, 8) ? TURN_MS : AWAY_MS;
    after(s, some_ms(s, TURN_MS / 6, longest), HAPPEN_LOGIN, l->number, 0, 0);
}
