// Logins: the cookie of a browser, and the routes that begin and end a session. A session's secret is made here at each
// login, never taken from the request: nobody can give a browser a session beforehand (fixation). One-time codes are
// kept in memory only; after a restart a new link is due.
#include "login.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "admission.h"
#include "api.h"
#include "base/clock.h"
#include "base/text.h"
#include "login_turns.h"
#include "model/name.h"
#include "net/token.h"
#include "portal.h"
#include "user_messages.h"

enum {
    CODE_TTL_MS = 5 * 60 * 1000,
    CODES_MAX = 1024,
    USER_CODES_MAX = 16,
    AGENT_MAX = 120,
    SEEN_AGAIN_MS = 10000,  // use is not told to the core more often
};

static const struct actor self = {.user = "controller", .admin = true};

// --- cookies ---

// __Host- cookies must be Secure, which plain HTTP on *.localhost is to some browsers and not to others.
static const char *cookie_name(const struct net_request *req, enum login_cookie which) {
    static const char *const names[] = {"__Host-acequia_session", "__Host-acequia_login"};
    return names[which] + (req->peer->kind == NET_PEER_TLS ? 0 : strlen("__Host-"));
}

// The value of our cookie; NULL: there is none, or there are two, of which one is somebody else's.
const char *login_cookie(const struct net_request *req, enum login_cookie which, size_t *len) {
    const char *at = http_message_header(req->http, "Cookie"), *name = cookie_name(req, which), *found = NULL;
    size_t n = strlen(name);
    while (at && *at) {
        at += strspn(at, " ;");
        size_t part = strcspn(at, ";");
        if (part > n && !strncmp(at, name, n) && at[n] == '=') {
            if (found)
                return NULL;
            found = at + n + 1;
            *len = part - n - 1;
        }
        at += part;
    }
    return found;
}

bool login_has_cookie(const struct net_request *req) {
    size_t len;
    return req->peer->kind != NET_PEER_UNIX && login_cookie(req, LOGIN_COOKIE_SESSION, &len);
}

const struct event_session *login_session(const struct controller *c, const struct net_request *req) {
    struct token t;
    char hash[TOKEN_SHA256_HEX + 1];
    size_t len;
    const char *value =
        req->peer->kind == NET_PEER_UNIX ? NULL : login_cookie(req, LOGIN_COOKIE_SESSION, &len);
    if (!value || token_short_parse(value, len, &t) < 0)
        return NULL;
    token_hash(&t, hash);
    const struct event_session *s = core_session(c->core, t.id, hash, controller_now_ms());
    token_wipe(&t);
    return s;
}

void login_seen(struct controller *c, const struct event_session *s) {
    int64_t now = controller_now_ms();
    struct command_session body = {s->id};
    if (now - s->seen_ms >= SEEN_AGAIN_MS)
        core_command(c->core, &self, NULL, &(struct command){COMMAND_SESSION_SEEN, &body}, now, NULL, NULL);
}

void login_set_cookie(struct net_request *req, enum login_cookie which, const char *value,
                      uint32_t max_age_s) {
    char text[256];
    snprintf(text, sizeof text, "%s=%s; Path=/; HttpOnly; SameSite=Lax; Max-Age=%u%s",
             cookie_name(req, which), value, max_age_s, req->peer->kind == NET_PEER_TLS ? "; Secure" : "");
    net_reply_header(req, "Set-Cookie", text);
}

// --- who one is ---

struct me_projects {
    const struct controller *controller;
    const struct actor *actor;
    VEC(struct answer_membership) list;
};

static bool add_project(void *ctx, const char *name, const void *value) {
    struct me_projects *m = ctx;
    const struct project *p = value;
    bool lead = core_leads(m->controller->core, m->actor->user, name);
    if (!p->members.len || lead || core_is_named_member(m->controller->core, m->actor->user, name))
        vec_push(&m->list, ((struct answer_membership){name, lead}));
    return true;
}

static uint32_t capabilities(const struct actor *a, const char *out[static 10]) {
    static const char *const of_operators[] = {"jobs", "nodes", "reservations"};
    static const char *const of_admins[] = {"projects", "policy", "users", "tokens", "audit", "reload"};
    uint32_t n = 0;
    if (!a->scopes || a->scopes & USER_SCOPE_SUBMIT)
        out[n++] = "submit";
    for (size_t i = 0; (a->admin || a->operates) && i < 3; i++)
        out[n++] = of_operators[i];
    for (size_t i = 0; a->admin && i < 6; i++)
        out[n++] = of_admins[i];
    return n;
}

static void session_answer(const struct controller *c, const struct event_session *s, const char *current,
                           struct answer_session *out) {
    struct core_person p;
    core_person(c->core, s->identity, s->unix_user, &p);
    *out = (struct answer_session){.id = s->id,
                                   .identity = s->identity,
                                   .user = p.unix_user,
                                   .from = s->from,
                                   .agent = s->agent,
                                   .begun_ms = s->begun_ms,
                                   .seen_ms = s->seen_ms,
                                   .expires_ms = s->expires_ms,
                                   .idle_s = s->idle_s,
                                   .current = streq(s->id, current)};
}

// Answers, after the commit when something was changed, with who the actor is.
static void reply_me(struct api_call *call, const struct event_session *s, const struct login_token *token,
                     bool changed) {
    const struct controller *c = call->controller;
    const struct actor *a = &call->actor;
    const char *scopes[3], *can[10];
    struct answer_session session;
    struct core_person p;
    struct me_projects m = {c, a, {0}};
    core_person(c->core, a->identity, a->user, &p);
    core_each_entity(c->core, ENTITY_PROJECT, add_project, &m);
    struct answer_me me = {.user = a->user,
                           .identity = a->identity,
                           .full_name = p.account && p.account->full_name ? p.account->full_name
                                        : s                               ? s->full_name
                                                                          : NULL,
                           .role = a->admin      ? USER_ROLE_ADMIN
                                   : a->operates ? USER_ROLE_OPERATOR
                                                 : USER_ROLE_USER,
                           .uid = a->uid,
                           .gid = a->gid,
                           .may_submit = !a->scopes || a->scopes & USER_SCOPE_SUBMIT,
                           .project = a->project,
                           .projects = {m.list.at, m.list.len},
                           .via = call->req->peer->kind == NET_PEER_UNIX ? 0
                                  : s                                    ? 2
                                                                         : 1,
                           .session = s ? &session : NULL,
                           .token = token ? token->text : NULL,
                           .token_expires_ms = token ? token->expires_ms : 0};
    me.scopes.at = scopes;
    me.scopes.len = user_scopes_words(a->scopes, scopes);
    me.capabilities.at = can;
    me.capabilities.len = capabilities(a, can);
    if (s)
        session_answer(c, s, s->id, &session);
    if (changed)
        api_answer_committed(call, 200, &answer_me_schema, &me);
    else
        api_answer(call, &answer_me_schema, &me);
    vec_done(&m.list);
}

void api_me(struct api_call *call) {
    reply_me(call, login_session(call->controller, call->req), NULL, false);
}

// --- beginning a session ---

static const char *short_agent(struct arena *a, const struct net_request *req) {
    const char *agent = http_message_header(req->http, "User-Agent");
    if (!agent || !str_utf8_valid(agent, strlen(agent)) || str_has_control_chars(agent, strlen(agent)))
        return NULL;
    size_t len = strlen(agent) < AGENT_MAX ? strlen(agent) : AGENT_MAX;
    while (len && len < strlen(agent) && ((unsigned char)agent[len] & 0xc0) == 0x80)
        len--;  // not in the middle of a character
    return arena_strndup(a, agent, len);
}

int login_begin_session(struct api_call *call, const char *identity, const char *claimed,
                        const char *full_name, struct error *e) {
    struct controller *c = call->controller;
    const struct config_portal *k = &c->config.portal;
    struct token t;
    char hash[TOKEN_SHA256_HEX + 1], value[TOKEN_SHORT_LEN + 1];
    int64_t now = controller_now_ms();
    int r = api_check_storage(c, e);
    if (r < 0 || (r = token_random(&t, e)) < 0)
        return r;
    token_hash(&t, hash);
    token_short_format(&t, value);
    struct event_session s = {.id = t.id,
                              .hash = hash,
                              .identity = identity,
                              .unix_user = claimed,
                              .full_name = full_name,
                              .from = call->req->peer->address,
                              .agent = short_agent(&call->arena, call->req),
                              .expires_ms = now + (int64_t)k->session_max_s * 1000,
                              .idle_s = k->session_idle_s};
    r = core_command(c->core, &self, NULL, &(struct command){COMMAND_SESSION_BEGIN, &s}, now, NULL, e);
    if (r == 0) {
        const struct event_session *old = login_session(c, call->req);
        char before[TOKEN_ID_HEX + 1] = "";
        snprintf(before, sizeof before, "%s", old ? old->id : "");
        // The browser's session until now is over: its cookie is replaced.
        if (*before)
            core_command(c->core, &self, NULL,
                         &(struct command){COMMAND_SESSION_END, &(struct command_session){before}}, now, NULL,
                         NULL);
        login_set_cookie(call->req, LOGIN_COOKIE_SESSION, value, k->session_max_s);
        reply_me(call, core_session(c->core, t.id, hash, now), NULL, true);
    }
    explicit_bzero(value, sizeof value);
    token_wipe(&t);
    return r;
}

// For the command line: a token of the Unix user.
int login_make_token(struct api_call *call, struct login_token *want, struct error *e) {
    struct controller *c = call->controller;
    struct token t;
    char hash[TOKEN_SHA256_HEX + 1];
    int64_t now = controller_now_ms();
    uint32_t ttl_s = want->ttl_s ? want->ttl_s : c->config.portal.session_max_s;
    if (!c->ca)
        return error_set(e, ENOTSUP,
                         "this controller serves only its own machine: there commands need no token");
    if (call->actor.scopes)
        return error_set(
            e, EPERM,
            "your login is not mapped to a Unix user of this cluster; an administrator can do that with "
            "'acequia user set'");
    int r = token_create(pki_ca_sha256(c->ca), &t, e);
    if (r < 0)
        return r;
    token_hash(&t, hash);
    want->expires_ms = now + (int64_t)ttl_s * 1000;
    struct command_token_create create = {.id = t.id,
                                          .hash = hash,
                                          .user = call->actor.user,
                                          .scopes = want->scopes,
                                          .project = want->project,
                                          .expires_ms = want->expires_ms};
    r = core_command(c->core, &call->actor, NULL, &(struct command){COMMAND_TOKEN_CREATE, &create}, now, NULL,
                     e);
    if (r == 0)
        token_format(&t, want->text);
    token_wipe(&t);
    return r;
}

static int begin_token(struct api_call *call, struct login_token *t, struct error *e) {
    int r = login_make_token(call, t, e);
    if (r == 0)
        reply_me(call, NULL, t, true);
    return r;
}

// --- with a password ---

struct login {
    struct controller *controller;
    struct net_request *req;
    char identity[USER_IDENTITY_MAX + 1];
    bool pam, token;
    struct login_token want;
    struct arena arena;
    struct login_turn *turn;  // NULL: it is over
    uint64_t password;        // of the account, when the login began to be checked
    uv_timer_t timer;
};

static void login_free(struct login *l) {
    struct controller *c = l->controller;
    for (uint32_t i = 0; i < c->logins.len; i++)
        if (c->logins.at[i] == l) {
            vec_remove_swap(&c->logins, i);
            break;
        }
    explicit_bzero(&l->want, sizeof l->want);
    arena_done(&l->arena);
    free(l);
}

// It is answered: the next one's turn.
static void login_end(struct login *l) {
    struct login_turn *turn = l->turn;
    login_free(l);
    login_turn_end(turn);
}

static void on_login_closed(uv_handle_t *h) {
    login_free(h->data);
}

static void refuse_late(uv_timer_t *t) {
    struct login *l = t->data;
    api_error(l->req, 401, "EACCES", "name or password is wrong");
    l->req = NULL;
    uv_close((uv_handle_t *)t, on_login_closed);
}

// The number of the account's password; 0: none, or it is no login of an account of our own.
static uint64_t password_of(const struct controller *c, const char *identity) {
    struct core_user_view u;
    bool own = str_has_prefix(identity, "own:") && core_user(c->core, identity + strlen("own:"), &u);
    return own ? u.password : 0;
}

static void let_in(struct login *l) {
    struct api_call call = {.controller = l->controller, .req = l->req};
    struct error e = {0};
    int r = api_actor_of_person(l->controller, l->identity, NULL, true, &call.arena, &call.actor, &e);
    if (r == 0) {
        snprintf(l->req->who, sizeof l->req->who, "%s", call.actor.user);
        r = l->token ? begin_token(&call, &l->want, &e)
                     : login_begin_session(&call, l->identity, NULL, NULL, &e);
    } else if (!e.code) {
        error_set(&e, EACCES,
                  "name or password is wrong");  // or the account cannot log in: nobody is told which
    }
    if (r < 0)
        api_fail(l->req, &e);
    arena_done(&call.arena);
}

static void on_checked(void *arg, bool right, const struct error *problem) {
    struct login *l = arg;
    struct login_turn *turn = l->turn;
    snprintf(l->req->note, sizeof l->req->note, "%.200s", l->identity);
    if (problem) {
        api_fail(l->req, problem);
    } else if (right && password_of(l->controller, l->identity) == l->password) {
        // Else the account was removed meanwhile, or got another password: the check takes a while.
        let_in(l);
    } else {
        uv_timer_init(&l->controller->loop, &l->timer);
        l->timer.data = l;
        uv_timer_start(&l->timer, refuse_late, admission_wrong_login(l->controller, l->req, l->identity), 0);
        l->turn = NULL;
        login_turn_end(turn);
        return;
    }
    login_end(l);
}

static int check_own(struct api_call *call, const struct request_login *q, struct login *l, struct error *e) {
    struct controller *c = call->controller;
    struct core_user_view u;
    cleanup_buf struct buf hash = {0};
    bool known = core_user(c->core, q->user, &u) && u.password;
    l->password = known ? u.password : UINT64_MAX;
    if (known) {
        int r = controller_unseal(c, u.password, login_password_context(&call->arena, q->user, u.version),
                                  &hash, e);
        if (r < 0)
            return r;
    }
    login_check_own(c, known ? buf_str(&hash) : NULL, q->password, on_checked, l);
    if (hash.data)
        explicit_bzero(hash.data, hash.cap);
    return 0;
}

static void check_request(const struct api_call *call, const struct request_login *q, struct error *e) {
    const struct controller *c = call->controller;
    if (call->req->peer->kind == NET_PEER_UNIX)
        error_set(e, ENOTSUP,
                  "no login is needed on this socket, where the kernel says who you are; log in over TLS or "
                  "the portal's address");
    else if (q->method == 1 && str_empty(c->config.login.pam_service))
        error_set(
            e, ENOTSUP,
            "logins with the system's passwords are off; an administrator can set pam_service in [login]");
    else if (name_check("user", q->user, NULL) < 0)
        error_set(e, EACCES, "name or password is wrong");
}

static struct login *login_new(struct api_call *call, const struct request_login *q, struct error *e) {
    uint32_t scopes = 0;
    if (user_scopes_parse((const char *const *)q->scopes.at, q->scopes.len, &scopes, e) < 0)
        return NULL;
    struct login *l = xcalloc(1, sizeof *l);
    *l = (struct login){.controller = call->controller,
                        .req = call->req,
                        .pam = q->method == 1,
                        .token = q->token,
                        .want = {.ttl_s = q->ttl_s, .scopes = scopes}};
    l->want.project = str_empty(q->project) ? NULL : arena_strdup(&l->arena, q->project);
    snprintf(l->identity, sizeof l->identity, "%s:%s", l->pam ? "pam" : "own", q->user);
    return l;
}

static struct login *login_of(const struct controller *c, const struct net_request *req) {
    for (uint32_t i = 0; i < c->logins.len; i++)
        if (c->logins.at[i]->req == req)
            return c->logins.at[i];
    return NULL;
}

// It has its turn. Whom the login stands for is looked up first; while that is not known the request waits and comes
// again. Not before its turn: strangers could keep the directory of users busy with names that they make up.
static void login_begin(struct api_call *call, const struct request_login *q, struct login *l) {
    struct controller *c = call->controller;
    struct error e = {0};
    struct actor who;
    if (admission_login_locked(c, call->req, l->identity))
        error_set(&e, EAGAIN,
                  "too many wrong passwords for this user from your address; wait a minute and try again");
    else if (api_actor_of_person(c, l->identity, NULL, false, &call->arena, &who, &e) == -EINPROGRESS) {
        vec_push(&c->unidentified, call->req);
        return;
    }
    if (!e.code)
        l->pam ? login_check_pam(c, q->user, q->password, call->req->peer->address, on_checked, l, &e)
               : check_own(call, q, l, &e);
    explicit_bzero((void *)(uintptr_t)q->password, strlen(q->password));
    if (e.code) {
        api_fail(call->req, &e);
        login_end(l);
    }
}

static void on_turn(void *arg, const struct error *problem) {
    struct login *l = arg;
    if (problem) {
        api_fail(l->req, problem);
        login_free(l);
    } else {
        api_dispatch(l->controller, l->req);  // to api_login, with its turn
    }
}

void api_login(struct api_call *call) {
    struct controller *c = call->controller;
    const struct request_login *q = call->body;
    struct login *l = login_of(c, call->req);
    struct error e = {0};
    if (l) {
        login_begin(call, q, l);
        return;
    }
    check_request(call, q, &e);
    l = e.code ? NULL : login_new(call, q, &e);
    int r = l ? login_turn_take(c, l->pam ? LOGIN_TURN_PAM : LOGIN_TURN_OWN, call->req, l->identity, on_turn,
                                l, &l->turn, &e)
              : -e.code;
    if (r < 0) {
        if (l)
            login_free(l);
        api_fail(call->req, &e);
        return;
    }
    vec_push(&c->logins, l);
    if (r > 0)
        login_begin(call, q, l);
    else
        explicit_bzero((void *)(uintptr_t)q->password, strlen(q->password));  // it is in the request
}

// --- with a one-time code ---

struct login_code {
    char id[TOKEN_ID_HEX + 1], hash[TOKEN_SHA256_HEX + 1];
    const char *identity;  // interned
    uint64_t password;     // of the account when it was made: another one ends it
    int64_t expires_mono_ms;
};

static uint32_t codes_of(struct controller *c, const char *identity) {
    uint32_t n = 0;
    int64_t now = clock_mono_ms();
    for (uint32_t i = 0; i < c->login_codes.len;) {
        struct login_code *k = c->login_codes.at[i];
        if (k->expires_mono_ms <= now) {
            free(k);
            vec_remove_swap(&c->login_codes, i);
            continue;
        }
        n += streq(k->identity, identity);
        i++;
    }
    return n;
}

void login_codes_done(struct controller *c) {
    for (uint32_t i = 0; i < c->login_codes.len; i++)
        free(c->login_codes.at[i]);
    vec_done(&c->login_codes);
    while (c->logins.len)
        login_free(c->logins.at[0]);
    vec_done(&c->logins);
}

// Who logs in with a code is who made it: a Unix user, or the login that asked for another one.
void api_portal_link(struct api_call *call) {
    struct controller *c = call->controller;
    const struct actor *a = &call->actor;
    struct error e = {0};
    struct token t = {0};
    char code[TOKEN_SHORT_LEN + 1];
    const char *identity = a->identity ? a->identity : arena_printf(&call->arena, "pam:%s", a->user);
    if (!*portal_host(c))
        error_set(
            &e, ENOTSUP,
            "the portal does not listen on this machine; see enabled and port in [portal], and the log");
    else if (a->scopes || a->project)
        error_set(&e, EPERM,
                  "a token limited to scopes, or a read-only login, cannot make a link to the portal");
    else if (user_identity_check(identity, NULL) < 0)
        error_set(&e, EPERM, "you have no user name on the controller's machine");
    else if (codes_of(c, identity) >= USER_CODES_MAX || c->login_codes.len >= CODES_MAX)
        error_set(&e, EAGAIN, "too many links were made; use one of them, or wait five minutes");
    if (e.code || token_random(&t, &e) < 0) {
        api_fail(call->req, &e);
        return;
    }
    struct login_code *k = xcalloc(1, sizeof *k);
    memcpy(k->id, t.id, sizeof k->id);
    token_hash(&t, k->hash);
    k->identity = core_intern(c->core, identity);
    k->password = password_of(c, identity);
    k->expires_mono_ms = clock_mono_ms() + CODE_TTL_MS;
    vec_push(&c->login_codes, k);
    token_short_format(&t, code);
    struct answer_portal_link link = {arena_printf(&call->arena, "http://%s/#code=%s", portal_host(c), code),
                                      controller_now_ms() + CODE_TTL_MS};
    api_answer(call, &answer_portal_link_schema, &link);
    explicit_bzero(code, sizeof code);
    token_wipe(&t);
}

// Whose code it is; it is used up when it is taken.
static const char *find_code(struct controller *c, const char *text, bool take) {
    struct token t;
    codes_of(c, "");
    if (token_short_parse(text, strlen(text), &t) < 0)
        return NULL;
    const char *identity = NULL;
    for (uint32_t i = 0; i < c->login_codes.len; i++) {
        struct login_code *k = c->login_codes.at[i];
        if (!streq(k->id, t.id) || !token_matches(&t, k->hash) || k->password != password_of(c, k->identity))
            continue;
        identity = k->identity;
        if (take) {
            free(k);
            vec_remove_swap(&c->login_codes, i);
        }
        break;
    }
    token_wipe(&t);
    return identity;
}

void api_login_code(struct api_call *call) {
    struct controller *c = call->controller;
    const struct request_code *q = call->body;
    struct error e = {0};
    if (call->req->peer->kind == NET_PEER_UNIX) {
        error_set(&e, ENOTSUP,
                  "no code is needed on this socket, where the kernel says who you are; open the link in a "
                  "browser");
        api_fail(call->req, &e);
        return;
    }
    const char *identity = find_code(c, q->code, false);
    int r = identity ? api_actor_of_person(c, identity, NULL, false, &call->arena, &call->actor, &e) : -EACCES;
    if (r == -EINPROGRESS) {
        vec_push(&c->unidentified, call->req);  // it comes again when the user is known
        return;
    }
    find_code(c, q->code, true);
    if (r == 0) {
        snprintf(call->req->who, sizeof call->req->who, "%s", call->actor.user);
        r = login_begin_session(call, identity, NULL, NULL, &e);
    }
    if (r < 0 && !e.code)
        error_set(
            &e, EACCES,
            "the link was used already, or is older than five minutes; 'acequia portal' prints a new one");
    if (r < 0)
        api_fail(call->req, &e);
}

// --- and out ---

void api_logout(struct api_call *call) {
    struct controller *c = call->controller;
    const struct event_session *s = login_session(c, call->req);
    if (s) {
        char id[TOKEN_ID_HEX + 1];
        snprintf(id, sizeof id, "%s", s->id);
        core_command(c->core, &self, NULL,
                     &(struct command){COMMAND_SESSION_END, &(struct command_session){id}},
                     controller_now_ms(), NULL, NULL);
    }
    if (call->req->peer->kind != NET_PEER_UNIX)
        login_set_cookie(call->req, LOGIN_COOKIE_SESSION, "", 0);
    api_answer_committed(call, 200, &answer_done_schema, &(struct answer_done){true});
}

struct session_listing {
    struct api_call *call;
    const char *current;
    VEC(struct answer_session) list;
    VEC(const char *) others;
};

static bool list_session(void *ctx, const struct event_session *s) {
    struct session_listing *l = ctx;
    const struct controller *c = l->call->controller;
    struct answer_session one;
    if (!core_session_holds(c->core, s->id, controller_now_ms()) ||
        (!l->call->actor.admin && !core_session_is_of(c->core, &l->call->actor, s)))
        return true;
    session_answer(c, s, l->current, &one);
    vec_push(&l->list, one);
    if (core_session_is_of(c->core, &l->call->actor, s) && !one.current)
        vec_push(&l->others, arena_strdup(&l->call->arena, s->id));
    return true;
}

static void collect(struct api_call *call, struct session_listing *l) {
    const struct event_session *s = login_session(call->controller, call->req);
    *l = (struct session_listing){.call = call, .current = s ? arena_strdup(&call->arena, s->id) : NULL};
    core_each_session(call->controller->core, list_session, l);
}

void api_sessions(struct api_call *call) {
    struct session_listing l;
    collect(call, &l);
    struct answer_sessions answer = {.sessions = {l.list.at, l.list.len}};
    api_answer(call, &answer_sessions_schema, &answer);
    vec_done(&l.list);
    vec_done(&l.others);
}

// One, or with the name "others" all of one's own but this one.
void api_session_end(struct api_call *call) {
    struct controller *c = call->controller;
    struct session_listing l;
    struct error e = {0};
    const char *const one[] = {call->name};
    bool others = streq(call->name, "others");
    collect(call, &l);
    uint32_t count = others ? l.others.len : 1;
    for (uint32_t i = 0; i < count && !e.code; i++) {
        struct command_session body = {others ? l.others.at[i] : one[0]};
        core_command(c->core, &call->actor, NULL, &(struct command){COMMAND_SESSION_END, &body},
                     controller_now_ms(), NULL, &e);
    }
    vec_done(&l.list);
    vec_done(&l.others);
    if (e.code)
        api_fail(call->req, &e);
    else
        api_answer_committed(call, 200, &answer_done_schema, &(struct answer_done){true});
}
