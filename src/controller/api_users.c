// Accounts of people: /v1/users, and the ways to log in.
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "admission.h"
#include "api.h"
#include "base/clock.h"
#include "base/text.h"
#include "login.h"
#include "login_turns.h"
#include "user_messages.h"

const char *login_password_context(struct arena *a, const char *name, uint32_t version) {
    return arena_printf(a, "password %s %u", name, version);
}

static bool has_password(void *ctx, const struct core_user_view *u) {
    *(bool *)ctx = *(bool *)ctx || u->password;
    return !*(bool *)ctx;
}

void api_login_methods(struct api_call *call) {
    const struct controller *c = call->controller;
    const char *words[3];
    bool own = false;
    uint32_t count = c->config.oidc.len;
    struct answer_provider *providers = arena_alloc(&call->arena, (count ? count : 1) * sizeof *providers);
    struct answer_login_methods answer = {.cluster = c->config.cluster.name,
                                          .providers = {providers, count},
                                          .fingerprint = c->ca ? pki_ca_sha256(c->ca) : NULL};
    core_each_user(c->core, has_password, &own);
    answer.methods.at = words;
    if (own)
        words[answer.methods.len++] = "own";
    if (!str_empty(c->config.login.pam_service))
        words[answer.methods.len++] = "pam";
    if (count)
        words[answer.methods.len++] = "oidc";
    for (uint32_t i = 0; i < count; i++) {
        const struct config_oidc *k = &c->config.oidc.at[i];
        providers[i] = (struct answer_provider){k->name, str_empty(k->title) ? k->name : k->title};
    }
    api_answer(call, &answer_login_methods_schema, &answer);
}

static struct answer_user answer_of(const struct core_user_view *u) {
    const struct user_account *m = u->account;
    return (struct answer_user){.name = m->name,
                                .full_name = m->full_name,
                                .email = m->email,
                                .unix_user = m->unix_user,
                                .role = m->role,
                                .identities = {m->identities.at, m->identities.len},
                                .has_password = u->password,
                                .disabled = m->disabled,
                                .set_ms = u->set_ms};
}

struct user_listing {
    VEC(struct answer_user) list;
};

static bool list_user(void *ctx, const struct core_user_view *u) {
    struct user_listing *l = ctx;
    vec_push(&l->list, answer_of(u));
    return true;
}

void api_users(struct api_call *call) {
    struct user_listing l = {0};
    core_each_user(call->controller->core, list_user, &l);
    struct answer_users answer = {.users = {l.list.at, l.list.len}};
    api_answer(call, &answer_users_schema, &answer);
    vec_done(&l.list);
}

void api_user_set(struct api_call *call) {
    const struct request_user *q = call->body;
    struct user_account m = {.name = call->name,
                             .full_name = q->full_name,
                             .email = q->email,
                             .unix_user = q->unix_user,
                             .role = q->role,
                             .disabled = q->disabled,
                             .identities = {q->identities.at, q->identities.len}};
    const struct {
        const void *from, *to;
    } zeros[] = {{&q->full_name, &m.full_name}, {&q->email, &m.email},       {&q->unix_user, &m.unix_user},
                 {&q->role, &m.role},           {&q->disabled, &m.disabled}, {&q->identities, &m.identities}};
    for (size_t i = 0; i < sizeof zeros / sizeof *zeros; i++)
        if (schema_given(&request_user_schema, q, zeros[i].from))
            schema_give(&user_account_schema, &m, zeros[i].to);
    struct error e = {0};
    int r = str_empty(q->unix_user) ? 0 : api_need_user(call, "unix_user", q->unix_user, &e);
    if (r == -EINPROGRESS)
        return;
    if (r < 0) {
        api_fail(call->req, &e);
        return;
    }
    api_give(call, COMMAND_USER_SET, &m);
}

void api_user_remove(struct api_call *call) {
    api_give(call, COMMAND_USER_REMOVE, &(struct command_user){call->name});
}

// --- passwords: hashed off the loop ---

struct password_change {
    struct controller *controller;
    struct net_request *req;
    struct arena arena;
    struct actor actor;
    const char *name, *keep;
    const char *account;  // whose turn it is: of the one who asks
    char *password, *current;
    uint64_t old_number;  // of the password that `old` is the hash of; 0: there was none
    char old[LOGIN_HASH_MAX], hash[LOGIN_HASH_MAX];
    bool wrong;
    struct error problem;
    struct login_turn *turn;
    uv_work_t work;
};

static void change_free(struct password_change *p) {
    struct controller *c = p->controller;
    for (uint32_t i = 0; i < c->password_changes.len; i++)
        if (c->password_changes.at[i] == p) {
            vec_remove_swap(&c->password_changes, i);
            break;
        }
    explicit_bzero(p->password, strlen(p->password));
    if (p->current)
        explicit_bzero(p->current, strlen(p->current));
    arena_done(&p->arena);
    explicit_bzero(p, sizeof *p);
    free(p);
}

void api_password_changes_done(struct controller *c) {
    while (c->password_changes.len)
        change_free(c->password_changes.at[0]);
    vec_done(&c->password_changes);
}

static void hash_password(uv_work_t *w) {
    struct password_change *p = w->data;
    p->wrong = p->current && !login_password_matches(*p->old ? p->old : NULL, p->current);
    if (!p->wrong)
        login_password_hash(p->password, p->hash, &p->problem);
}

static int keep_password(struct password_change *p, struct error *e) {
    struct controller *c = p->controller;
    struct core_user_view u = {0};
    cleanup_buf struct buf sealed = {0};
    struct command_user body = {p->name, p->keep};
    core_user(c->core, p->name, &u);
    if (!p->actor.admin && u.password != p->old_number)  // by an administrator, who knows why
        return error_set(e, EPERM, "current: the password was changed meanwhile; log in with the new one");
    int r = controller_seal(c, login_password_context(&p->arena, p->name, u.version + 1), p->hash,
                            strlen(p->hash), &sealed, e);
    if (r == 0)
        r = core_command(c->core, &p->actor, NULL, &(struct command){COMMAND_USER_PASSWORD, &body},
                         controller_now_ms(), NULL, e);
    if (r == 0 && core_user(c->core, p->name, &u))
        controller_sealed_keep(c, u.password, &sealed);
    return r;
}

static void password_hashed(uv_work_t *w, int status) {
    struct password_change *p = w->data;
    struct api_call call = {.controller = p->controller, .req = p->req};
    struct login_turn *turn = p->turn;
    if (p->wrong) {
        admission_wrong_login(p->controller, p->req, p->account);
        error_set(&p->problem, EPERM, "current: the current password is wrong");
    }
    if (!p->problem.code)
        keep_password(p, &p->problem);
    if (p->problem.code)
        api_fail(p->req, &p->problem);
    else
        api_answer_committed(&call, 200, &answer_done_schema, &(struct answer_done){true});
    change_free(p);
    login_turn_end(turn);
}

static int read_old(struct password_change *p, const struct core_user_view *u, struct error *e) {
    cleanup_buf struct buf hash = {0};
    int r = u->password ? controller_unseal(p->controller, u->password,
                                            login_password_context(&p->arena, p->name, u->version), &hash, e)
                        : 0;
    if (r == 0)
        snprintf(p->old, sizeof p->old, "%s", buf_str(&hash));
    p->old_number = u->password;
    return r;
}

static int check_guesses(const struct password_change *p, struct error *e) {
    return p->current && admission_login_locked(p->controller, p->req, p->account)
               ? error_set(e, EAGAIN,
                           "too many wrong passwords from your address; wait a minute and try again")
               : 0;
}

static void on_turn(void *arg, const struct error *problem) {
    struct password_change *p = arg;
    struct login_turn *turn = p->turn;
    struct error e = {0};
    if (!problem && check_guesses(p, &e) < 0)
        problem = &e;
    if (problem) {
        api_fail(p->req, problem);
        change_free(p);
        login_turn_end(e.code ? turn : NULL);
        return;
    }
    p->work.data = p;
    uv_queue_work(&p->controller->loop, &p->work, hash_password, password_hashed);
}

// Both hashes take a while: it has a turn as a login has. Wrong current passwords are counted like those of logins.
static void change_when_its_turn_comes(struct password_change *p, struct error *e) {
    struct controller *c = p->controller;
    int r = check_guesses(p, e);
    if (r == 0)
        r = login_turn_take(c, LOGIN_TURN_OWN, p->req, p->account, on_turn, p, &p->turn, e);
    if (r > 0)
        on_turn(p, NULL);
}

void api_user_password(struct api_call *call) {
    struct controller *c = call->controller;
    const struct request_password *q = call->body;
    struct error e = {0};
    struct core_user_view u;
    if (!core_user(c->core, call->name, &u) ||
        (!call->actor.admin &&
         !streq(call->actor.identity, arena_printf(&call->arena, "own:%s", call->name)) &&
         !streq(call->actor.user, u.account->unix_user)))
        error_set(&e, call->actor.admin ? ENOENT : EPERM, "%s",
                  call->actor.admin ? "there is no account of that name; see 'acequia user list'"
                                    : "only an administrator may set the password of others");
    else if (!call->actor.admin && u.password && !q->current)
        error_set(&e, EINVAL, "current: give your current password to change it");
    if (e.code) {
        api_fail(call->req, &e);
        return;
    }
    struct password_change *p = xcalloc(1, sizeof *p);
    const struct event_session *s = login_session(c, call->req);
    *p = (struct password_change){.controller = c, .req = call->req, .actor = call->actor};
    p->actor.user = arena_strdup(&p->arena, call->actor.user);
    p->name = arena_strdup(&p->arena, call->name);
    p->keep = s ? arena_strdup(&p->arena, s->id) : NULL;
    p->password = arena_strdup(&p->arena, q->password);
    // An administrator need not know the old password.
    p->current = q->current && !call->actor.admin ? arena_strdup(&p->arena, q->current) : NULL;
    p->account = arena_printf(&p->arena, "password:%s", call->actor.user);
    vec_push(&c->password_changes, p);
    if (read_old(p, &u, &e) == 0)
        change_when_its_turn_comes(p, &e);
    if (e.code) {
        api_fail(call->req, &e);
        change_free(p);
    }
}
