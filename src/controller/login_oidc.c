// Logins by way of an OpenID Connect provider: authorization code with PKCE. A login that was begun is kept in memory
// until the browser comes back, once, with the provider's code, our state, and the cookie that it was given: a page
// elsewhere can neither begin a login nor finish one that is not this browser's. The program acequia-oidc talks to the
// provider; what it says about the person is checked here against the configuration.
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "admission.h"
#include "api.h"
#include "base/clock.h"
#include "base/rand.h"
#include "base/text.h"
#include "helper_process.h"
#include "login.h"
#include "login_turns.h"
#include "model/name.h"
#include "net/token.h"
#include "user_messages.h"

enum {
    LOGIN_MS = 10 * 60 * 1000,  // for the person to prove who they are at the provider
    LOGINS_MAX = 4096,          // begun and not finished
    ADDRESS_LOGINS_MAX = 64,    // of them, from one address
    WAITING_MAX = 256,          // requests that wait for one provider's address
    ADDRESS_WAITING_MAX = 32,   // of them, from one address
    PLACE_MS = 10 * 60 * 1000,  // how long a provider's address is believed
    PLACE_RETRY_MS = 5000,      // and that it cannot be reached
    ASK_MS = 30000,
    SECRET_HEX = 64,
};

// Where a provider's login page is.
struct oidc_place {
    const char *name, *issuer;  // interned
    char *endpoint;             // NULL: not known, `problem` says why
    struct error problem;
    int64_t until_mono_ms;
    bool asking;
    VEC(struct net_request *) waiting;
    struct controller *controller;
};

struct oidc_login {
    char state[SECRET_HEX + 1], nonce[SECRET_HEX + 1], verifier[SECRET_HEX + 1];
    char hash[TOKEN_SHA256_HEX + 1];  // of the cookie
    char address[NET_ADDRESS_MAX];
    const char *provider;  // interned
    char *redirect_uri;
    int64_t expires_mono_ms;
    struct controller *controller;
    struct net_request *req;  // that came back with the code; NULL: not yet
    struct login_turn *turn;
    bool answered;
    struct arena arena;  // of what the provider said
    const struct json *person;
};

struct oidc {
    VEC(struct oidc_place *) places;
    VEC(struct oidc_login *) logins;
};

static struct oidc *state_of(struct controller *c) {
    if (!c->oidc)
        c->oidc = xcalloc(1, sizeof *c->oidc);
    return c->oidc;
}

static void login_free(struct oidc_login *l) {
    arena_done(&l->arena);
    free(l->redirect_uri);
    explicit_bzero(l, sizeof *l);
    free(l);
}

static void place_free(struct oidc_place *p) {
    vec_done(&p->waiting);
    free(p->endpoint);
    free(p);
}

void login_oidc_done(struct controller *c) {
    struct oidc *o = c->oidc;
    if (!o)
        return;
    for (uint32_t i = 0; i < o->logins.len; i++)
        login_free(o->logins.at[i]);
    for (uint32_t i = 0; i < o->places.len; i++)
        place_free(o->places.at[i]);
    vec_done(&o->logins);
    vec_done(&o->places);
    free(o);
    c->oidc = NULL;
}

static const struct config_oidc *find_provider(const struct controller *c, const char *name, size_t len) {
    for (uint32_t i = 0; i < c->config.oidc.len; i++) {
        const struct config_oidc *k = &c->config.oidc.at[i];
        if (strlen(k->name) == len && !strncmp(k->name, name, len))
            return k;
    }
    return NULL;
}

uint32_t login_oidc_min_uid(const struct controller *c, const char *identity) {
    const char *name = identity + strlen("oidc:");
    const struct config_oidc *k = find_provider(c, name, strcspn(name, ":"));
    return k ? k->min_uid : UINT32_MAX;  // a provider that is not trusted any more names nobody
}

static void end_login(struct oidc *o, struct oidc_login *l) {
    for (uint32_t i = 0; i < o->logins.len; i++)
        if (o->logins.at[i] == l) {
            vec_remove_swap(&o->logins, i);
            login_free(l);
            return;
        }
}

// --- the question ---

static void write_question(const struct config_oidc *k, const struct oidc_login *l, const char *code,
                           struct buf *out) {
    struct json_writer w = {.out = out};
    json_open(&w, '{');
    json_kv_str(&w, "issuer", k->issuer);
    json_kv_str(&w, "client_id", k->client_id);
    json_kv_str(&w, "client_secret_file", k->client_secret_file);
    json_kv_str(&w, "ca_file", k->ca_file);
    if (l) {
        json_kv_bool(&w, "finish", true);
        json_kv_str(&w, "code", code);
        json_kv_str(&w, "verifier", l->verifier);
        json_kv_str(&w, "nonce", l->nonce);
        json_kv_str(&w, "redirect_uri", l->redirect_uri);
        json_kv_str(&w, "user_claim", k->user_claim);
        json_kv_str(&w, "groups_claim", k->groups_claim);
    }
    json_close(&w, '}');
}

static int ask_provider(struct controller *c, const struct config_oidc *k, const struct oidc_login *l,
                        const char *code, helper_done done, void *arg, struct error *e) {
    struct helper_question q = {
        .program = "acequia-oidc", .module = "oidc", .limit_ms = ASK_MS, .done = done, .arg = arg};
    write_question(k, l, code, &q.input);
    return helper_ask(c, &q, e);
}

// The answer, or why there is none.
static const struct json *read_answer(int status, const struct buf *output, struct arena *a,
                                      struct error *e) {
    struct json *j = NULL;
    if (status != 0 || json_parse(buf_str(output), output->len, a, &j, NULL) < 0) {
        error_set(e, ETIMEDOUT, "the provider does not answer in time; try again later");
        return NULL;
    }
    const char *problem = json_str(j, "problem");
    char shown[400];
    if (!problem)
        return j;
    error_set(e, json_true(j, "refused") ? EACCES : EIO, "%s", str_printable(problem, shown, sizeof shown));
    return NULL;
}

// --- beginning ---

static struct oidc_place *place_of(struct controller *c, const struct config_oidc *k) {
    struct oidc *o = state_of(c);
    for (uint32_t i = 0; i < o->places.len; i++)
        if (streq(o->places.at[i]->name, k->name) && streq(o->places.at[i]->issuer, k->issuer))
            return o->places.at[i];
    struct oidc_place *p = xcalloc(1, sizeof *p);
    *p = (struct oidc_place){
        .name = core_intern(c->core, k->name), .issuer = core_intern(c->core, k->issuer), .controller = c};
    vec_push(&o->places, p);
    return p;
}

static void on_place(void *arg, int status, struct buf *output) {
    struct oidc_place *p = arg;
    cleanup_arena struct arena a = {0};
    struct error e = {0};
    const struct json *j = read_answer(status, output, &a, &e);
    const char *endpoint = j ? json_str(j, "authorization_endpoint") : NULL;
    p->asking = false;
    p->until_mono_ms = clock_mono_ms() + (endpoint ? PLACE_MS : PLACE_RETRY_MS);
    free(p->endpoint);
    p->endpoint = endpoint ? xstrdup(endpoint) : NULL;
    p->problem = e;
    // Those who waited come again; by then it is known, or known why not.
    struct net_request **list = p->waiting.at;
    uint32_t n = p->waiting.len;
    p->waiting.at = NULL;
    p->waiting.len = p->waiting.cap = 0;
    for (uint32_t i = 0; i < n; i++)
        api_dispatch(p->controller, list[i]);
    free(list);
}

static uint32_t waiting_from_there(const struct oidc_place *p, const struct net_request *req) {
    char here[NET_ADDRESS_MAX], there[NET_ADDRESS_MAX];
    uint32_t n = 0;
    admission_address(req, here, sizeof here);
    for (uint32_t i = 0; i < p->waiting.len; i++) {
        admission_address(p->waiting.at[i], there, sizeof there);
        n += streq(here, there);
    }
    return n;
}

// False: the request waits, or `e` says why there is no address.
static bool place_is_known(struct api_call *call, const struct config_oidc *k, struct oidc_place *p,
                           struct error *e) {
    if (clock_mono_ms() < p->until_mono_ms) {
        if (!p->endpoint)
            *e = p->problem;
        return p->endpoint;
    }
    if (p->waiting.len >= WAITING_MAX || waiting_from_there(p, call->req) >= ADDRESS_WAITING_MAX) {
        error_set(e, EAGAIN, "too many logins at once; try again in a moment");
        return false;
    }
    if (!p->asking && ask_provider(call->controller, k, NULL, NULL, on_place, p, e) < 0)
        return false;
    p->asking = true;
    vec_push(&p->waiting, call->req);
    return false;
}

// The oldest one of the address with the most that are begun; NULL: the browsers of all are back.
static struct oidc_login *one_of_the_most(const struct oidc *o) {
    struct strmap counts = {0};
    struct oidc_login *best = NULL;
    uintptr_t most = 0;
    for (uint32_t i = 0; i < o->logins.len; i++) {
        const char *address = o->logins.at[i]->address;
        strmap_put(&counts, address, (void *)((uintptr_t)strmap_get(&counts, address) + 1));
    }
    for (uint32_t i = 0; i < o->logins.len; i++) {
        struct oidc_login *l = o->logins.at[i];
        uintptr_t n = (uintptr_t)strmap_get(&counts, l->address);
        if (l->req || n < most || (n == most && best && best->expires_mono_ms <= l->expires_mono_ms))
            continue;
        best = l;
        most = n;
    }
    strmap_done(&counts);
    return best;
}

// Room for one more: what is too old goes, then this address's own oldest, then one of whoever has begun the most: who
// begins logins from very many addresses keeps nobody else out.
static int make_room(struct oidc *o, const char *address, struct error *e) {
    uint32_t own = 0;
    struct oidc_login *oldest = NULL;
    int64_t now = clock_mono_ms();
    for (uint32_t i = 0; i < o->logins.len;) {
        struct oidc_login *l = o->logins.at[i];
        if (l->expires_mono_ms <= now && !l->req) {
            vec_remove_swap(&o->logins, i);
            login_free(l);
            continue;
        }
        if (streq(l->address, address) && !l->req) {
            own++;
            if (!oldest || l->expires_mono_ms < oldest->expires_mono_ms)
                oldest = l;
        }
        i++;
    }
    if (own >= ADDRESS_LOGINS_MAX)
        end_login(o, oldest);
    if (o->logins.len < LOGINS_MAX)
        return 0;
    if (!(oldest = one_of_the_most(o)))
        return error_set(e, EAGAIN, "many are logging in now; try again in a minute");
    end_login(o, oldest);
    return 0;
}

static int random_hex(char out[static SECRET_HEX + 1], struct error *e) {
    unsigned char bytes[SECRET_HEX / 2];
    if (rand_secret(bytes, sizeof bytes) < 0)
        return error_set(e, EIO, "the kernel gives no random numbers");
    for (size_t i = 0; i < sizeof bytes; i++)
        snprintf(out + 2 * i, 3, "%02x", bytes[i]);
    return 0;
}

static void add_pair(struct buf *b, const char *key, const char *value) {
    buf_addf(b, "%c%s=", strchr(buf_str(b), '?') ? '&' : '?', key);
    http_percent_encode(b, value);
}

static void login_page(const struct config_oidc *k, const struct oidc_place *p, const struct oidc_login *l,
                       struct buf *out) {
    char challenge[TOKEN_CHALLENGE_LEN + 1];
    token_challenge(l->verifier, challenge);
    buf_adds(out, p->endpoint);
    add_pair(out, "response_type", "code");
    add_pair(out, "client_id", k->client_id);
    add_pair(out, "redirect_uri", l->redirect_uri);
    add_pair(out, "scope", k->scopes);
    add_pair(out, "state", l->state);
    add_pair(out, "nonce", l->nonce);
    add_pair(out, "code_challenge", challenge);
    add_pair(out, "code_challenge_method", "S256");
}

static int begin(struct api_call *call, const struct config_oidc *k, const struct oidc_place *p,
                 struct error *e) {
    struct controller *c = call->controller;
    struct oidc *o = state_of(c);
    const char *host = http_message_header(call->req->http, "Host");
    char address[NET_ADDRESS_MAX], cookie[TOKEN_SHORT_LEN + 1];
    struct token t;
    int r;
    admission_address(call->req, address, sizeof address);
    if ((r = make_room(o, address, e)) < 0 || (r = token_random(&t, e)) < 0)
        return r;
    struct oidc_login *l = xcalloc(1, sizeof *l);
    *l = (struct oidc_login){.provider = core_intern(c->core, k->name),
                             .expires_mono_ms = clock_mono_ms() + LOGIN_MS,
                             .controller = c};
    memcpy(l->address, address, sizeof l->address);
    if ((r = random_hex(l->state, e)) < 0 || (r = random_hex(l->nonce, e)) < 0 ||
        (r = random_hex(l->verifier, e)) < 0) {
        login_free(l);
        return r;
    }
    token_hash(&t, l->hash);
    token_short_format(&t, cookie);
    l->redirect_uri =
        xasprintf("%s://%s/login/%s/callback", call->req->peer->kind == NET_PEER_TLS ? "https" : "http",
                  host ? host : "", k->name);
    vec_push(&o->logins, l);
    cleanup_buf struct buf url = {0};
    login_page(k, p, l, &url);
    login_set_cookie(call->req, LOGIN_COOKIE_PROVIDER, cookie, LOGIN_MS / 1000);
    api_answer(call, &answer_oidc_begun_schema, &(struct answer_oidc_begun){buf_str(&url)});
    explicit_bzero(cookie, sizeof cookie);
    token_wipe(&t);
    return 0;
}

static const struct config_oidc *provider_of(struct api_call *call, struct error *e) {
    const struct config_oidc *k = find_provider(call->controller, call->name, strlen(call->name));
    if (call->req->peer->kind == NET_PEER_UNIX) {
        error_set(
            e, ENOTSUP,
            "no login is needed on this socket, where the kernel says who you are; log in over TLS or the "
            "portal's address");
        return NULL;
    }
    if (!k)
        error_set(e, ENOENT,
                  "there is no provider of that name; [oidc NAME] in the configuration sets one up");
    return k;
}

void api_oidc_begin(struct api_call *call) {
    struct error e = {0};
    const struct config_oidc *k = provider_of(call, &e);
    struct oidc_place *p = k ? place_of(call->controller, k) : NULL;
    if (p && place_is_known(call, k, p, &e))
        begin(call, k, p, &e);
    if (e.code)
        api_fail(call->req, &e);
}

// --- finishing ---

static struct oidc_login *find_login(struct controller *c, const char *state) {
    struct oidc *o = state_of(c);
    for (uint32_t i = 0; i < o->logins.len; i++)
        if (streq(o->logins.at[i]->state, state))
            return o->logins.at[i];
    return NULL;
}

// The browser that began the login has its cookie.
static bool has_its_cookie(const struct net_request *req, const struct oidc_login *l) {
    struct token t;
    size_t len;
    const char *value = login_cookie(req, LOGIN_COOKIE_PROVIDER, &len);
    if (!value || token_short_parse(value, len, &t) < 0)
        return false;
    bool same = token_matches(&t, l->hash);
    token_wipe(&t);
    return same;
}

static bool list_has(const char *list, const char *group) {
    size_t len = strlen(group);
    for (const char *at = list; *at;) {
        at += strspn(at, ", ");
        size_t n = strcspn(at, ",");
        while (n && at[n - 1] == ' ')
            n--;
        if (n == len && n && !strncmp(at, group, n))
            return true;
        at += strcspn(at, ",");
    }
    return false;
}

static bool in_some(const char *list, const struct json *groups) {
    for (uint32_t i = 0; groups && groups->type == JSON_ARRAY && i < groups->len; i++)
        if (groups->items[i].type == JSON_STRING && list_has(list, groups->items[i].s))
            return true;
    return false;
}

// "GROUP=PROJECT, …": projects of the groups that the person is in.
static void granted_projects(const char *list, const struct json *groups, struct arena *a,
                             struct event_user_grant *out) {
    const char **names = arena_alloc(a, USER_GRANT_PROJECTS_MAX * sizeof *names);
    out->projects.at = names;
    for (const char *at = list; *at && out->projects.len < USER_GRANT_PROJECTS_MAX; at += strspn(at, ", ")) {
        const char *one = arena_strndup(a, at, strcspn(at, ",")), *equals = strrchr(one, '=');
        at += strlen(one);
        const char *group = equals ? arena_strndup(a, one, (size_t)(equals - one)) : one;
        const char *project = equals ? arena_strndup(a, equals + 1, strcspn(equals + 1, " ")) : "";
        if (name_check("project", project, NULL) == 0 && in_some(group, groups))
            names[out->projects.len++] = project;
    }
}

// Before the session begins, so that its first answer shows it. Without groups in the configuration nothing is said.
static int grant(struct api_call *call, const struct config_oidc *k, const struct json *groups,
                 struct error *e) {
    static const struct actor self = {.user = "controller", .admin = true};
    struct controller *c = call->controller;
    int64_t now = controller_now_ms();
    struct event_user_grant g = {.unix_user = call->actor.user,
                                 .role = in_some(k->admin_groups, groups)      ? USER_ROLE_ADMIN
                                         : in_some(k->operator_groups, groups) ? USER_ROLE_OPERATOR
                                                                               : USER_ROLE_USER,
                                 .expires_ms = now + (int64_t)c->config.portal.session_max_s * 1000};
    if (call->actor.scopes ||
        (str_empty(k->admin_groups) && str_empty(k->operator_groups) && str_empty(k->project_groups)))
        return 0;
    granted_projects(k->project_groups, groups, &call->arena, &g);
    return core_command(c->core, &self, NULL, &(struct command){COMMAND_USER_GRANT, &g}, now, NULL, e);
}

// Who the provider says it is becomes who they are here. 1: it is not known yet, the request comes again.
static int let_in(struct api_call *call, const struct config_oidc *k, struct oidc_login *l, struct error *e) {
    const struct json *person = l->person, *groups = json_get(person, "groups");
    const char *claimed = json_str(person, "user"), *full_name = json_str(person, "full_name");
    const char *identity = arena_printf(&call->arena, "oidc:%s:%s", k->name, json_str(person, "subject"));
    snprintf(call->req->note, sizeof call->req->note, "%.200s", identity);
    if (user_identity_check(identity, NULL) < 0)
        return error_set(e, EACCES, "the provider's name for you (sub) cannot be used here");
    if (!str_empty(k->allowed_groups) && !in_some(k->allowed_groups, groups))
        return error_set(e, EACCES,
                         "you are in none of the groups that may log in here; ask an administrator");
    if (claimed && name_check("user", claimed, NULL) < 0)
        claimed = NULL;
    if (full_name && name_line_check("name", full_name, 255, NULL) < 0)
        full_name = NULL;
    int r = api_actor_of_person(call->controller, identity, claimed, false, &call->arena, &call->actor, e);
    if (r == -EINPROGRESS) {
        vec_push(&call->controller->unidentified, call->req);
        return 1;
    }
    if (r < 0)
        return e->code ? r : error_set(e, EACCES, "your account is disabled; ask an administrator");
    snprintf(call->req->who, sizeof call->req->who, "%s", call->actor.user);
    // The role may have changed by it; the user was found a moment ago.
    if ((r = grant(call, k, groups, e)) < 0 ||
        (r = api_actor_of_person(call->controller, identity, claimed, true, &call->arena, &call->actor, e)) <
            0)
        return r;
    return login_begin_session(call, identity, claimed, full_name, e);
}

// It is over, whatever came of it: the next one's turn.
static void finish_login(struct oidc_login *l) {
    struct controller *c = l->controller;
    struct login_turn *turn = l->turn;
    end_login(c->oidc, l);
    login_turn_end(turn);
}

static void on_person(void *arg, int status, struct buf *output) {
    struct oidc_login *l = arg;
    struct controller *c = l->controller;
    struct net_request *req = l->req;
    struct error e = {0};
    l->person = read_answer(status, output, &l->arena, &e);
    l->answered = true;
    if (l->person) {
        api_dispatch(c, req);  // to api_oidc_finish, with the answer
        return;
    }
    if (e.code == EACCES)
        admission_wrong_secret(c, req);
    finish_login(l);
    api_fail(req, &e);
}

static int check_return(struct api_call *call, const struct config_oidc *k, const struct oidc_login *l,
                        const struct request_oidc *q, struct error *e) {
    if (!l || l->req || l->expires_mono_ms <= clock_mono_ms() || !streq(l->provider, k->name) ||
        !has_its_cookie(call->req, l))
        return error_set(
            e, EACCES,
            "this login was begun in another browser or more than ten minutes ago, or was finished "
            "already; log in again");
    if (q->iss && !streq(q->iss, k->issuer))
        return error_set(e, EACCES, "the answer comes from another provider than the one that was asked");
    return 0;
}

static void on_turn(void *arg, const struct error *problem) {
    struct oidc_login *l = arg;
    struct net_request *req = l->req;
    if (!problem) {
        api_dispatch(l->controller, req);  // to api_oidc_finish, with its turn
        return;
    }
    end_login(l->controller->oidc, l);
    api_fail(req, problem);
}

// The browser is back: from now on the login is used up, whatever comes.
static int come_back(struct api_call *call, const struct config_oidc *k, struct oidc_login *l,
                     const struct request_oidc *q, struct error *e) {
    int r = check_return(call, k, l, q, e);
    if (r < 0)
        return r;
    l->req = call->req;
    r = login_turn_take(call->controller, LOGIN_TURN_PROVIDER, call->req, l->state, on_turn, l, &l->turn, e);
    if (r < 0)
        end_login(call->controller->oidc, l);
    return r;
}

void api_oidc_finish(struct api_call *call) {
    struct controller *c = call->controller;
    const struct request_oidc *q = call->body;
    struct error e = {0};
    const struct config_oidc *k = provider_of(call, &e);
    struct oidc_login *l = find_login(c, q->state);
    bool again = l && l->req == call->req;
    int r = !k ? -e.code : again ? 1 : come_back(call, k, l, q, &e);
    if (r > 0 && !l->answered) {
        if ((r = ask_provider(c, k, l, q->code, on_person, l, &e)) == 0) {
            login_set_cookie(call->req, LOGIN_COOKIE_PROVIDER, "", 0);
            return;
        }
        again = true;
    } else if (r > 0 && (r = let_in(call, k, l, &e)) > 0) {
        return;  // it comes again when the user is known
    }
    if (again)  // answered, failed, or its provider is not configured any more
        finish_login(l);
    if (r < 0)
        api_fail(call->req, &e);
}
