// Owns who may use a program of a job. The browser has no cookie of the portal on the program's host, so it goes by the
// portal once: the login is checked there, a one-time code comes back, and becomes a cookie of the program's host that
// stands for the login. The cookie is signed and says which login and which program; whether the login still holds and
// the user may use the program is asked anew at every request.
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

#include "admission.h"
#include "app.h"
#include "base/clock.h"
#include "base/rand.h"
#include "base/text.h"
#include "login.h"
#include "model/port.h"
#include "net/http_forward.h"
#include "user_messages.h"

enum {
    CODE_TTL_MS = 60 * 1000,           // of a browser that was sent to the portal
    OPEN_CODE_TTL_MS = 5 * 60 * 1000,  // of acequia open
    CODES_MAX = 1024,
    USER_CODES_MAX = 32,
};

struct app_code {
    char id[TOKEN_ID_HEX + 1], hash[TOKEN_SHA256_HEX + 1];
    struct app_name name;
    const char *identity;            // interned; whose it is
    char session[TOKEN_ID_HEX + 1];  // "": a login begins with it
    char state[APP_STATE_HEX + 1];   // that the browser must bring; "": none
    int64_t expires_mono_ms;
};

static const struct actor self = {.user = "controller", .admin = true};

// --- what is asked of a visitor ---

static bool may_use_service(struct controller *c, const struct actor *actor, uint64_t service) {
    const struct event_service *s = core_service_by_id(c->core, service);
    if (!s || (actor->scopes && !(actor->scopes & USER_SCOPE_SUBMIT)) ||
        (actor->project && !streq(actor->project, s->project)))
        return false;
    return actor->admin || streq(s->user, actor->user);
}

bool app_may_use(struct controller *c, const struct actor *actor, const struct app_name *name) {
    const char *user, *project;
    if (app_is_service(name))
        return may_use_service(c, actor, name->job);
    if ((actor->scopes && !(actor->scopes & USER_SCOPE_SUBMIT)) ||
        !core_job_owner(c->core, name->job, &user, &project) ||
        (actor->project && !streq(actor->project, project)))
        return false;
    return actor->admin || streq(user, actor->user) ||
           core_share_allows(c->core, actor->user, name->job, name->port, controller_now_ms());
}

bool app_session_may_use(struct controller *c, const char *session, const struct app_name *name) {
    cleanup_arena struct arena a = {0};
    struct actor actor;
    struct error e = {0};
    const struct event_session *s = core_session_by_id(c->core, session, controller_now_ms());
    if (!s)
        return false;
    int r = api_actor_of_person(c, s->identity, s->unix_user, true, &a, &actor, &e);
    return r == -EINPROGRESS || (r == 0 && app_may_use(c, &actor, name));
}

bool app_token_may_use(struct controller *c, const char *header, const struct app_name *name) {
    cleanup_arena struct arena a = {0};
    struct actor actor;
    char pass[NET_PASS_MAX + 1];
    struct error e = {0};
    int r = api_actor_of_token(c, header, true, &a, &actor, pass, &e);
    return r == -EINPROGRESS || (r == 0 && app_may_use(c, &actor, name));
}

static const char *scheme_of(const struct net_peer *peer) {
    return peer->kind == NET_PEER_TLS ? "https://" : "http://";
}

static bool is_own_origin(const struct net_peer *peer, const struct http_message *m, const char *origin) {
    const char *scheme = scheme_of(peer), *host = http_message_header(m, "Host");
    size_t len = strlen(scheme);
    return host && strncasecmp(origin, scheme, len) == 0 && strcasecmp(origin + len, host) == 0;
}

// Whether the browser says that a page of another host asks. Such a page may send its visitor here, as any link may;
// it may not load, post or connect with the cookie of the visitor.
static bool is_foreign(const struct net_peer *peer, const struct http_message *m) {
    const char *site = http_message_header(m, "Sec-Fetch-Site"),
               *mode = http_message_header(m, "Sec-Fetch-Mode"),
               *dest = http_message_header(m, "Sec-Fetch-Dest"), *origin = http_message_header(m, "Origin");
    bool reads = !m->upgrade && (streq(m->method, "GET") || streq(m->method, "HEAD"));
    bool visits = reads && mode && streq(mode, "navigate") && (!dest || streq(dest, "document"));
    if (site && !streq(site, "same-origin") && !streq(site, "none") && !visits)
        return true;
    return origin && !visits && !is_own_origin(peer, m, origin);
}

// --- cookies ---

static const char *cookie_name(const struct net_peer *peer, bool state) {
    static const char *const names[] = {"__Host-acequia_app", "__Host-acequia_app_state"};
    return names[state] + (peer->kind == NET_PEER_TLS ? 0 : strlen("__Host-"));
}

static void write_cookie(const struct net_peer *peer, bool state, const char *value, uint32_t max_age_s,
                         struct buf *out) {
    buf_addf(out, "%s=%s; Path=/; HttpOnly; SameSite=Lax; Max-Age=%u%s", cookie_name(peer, state), value,
             max_age_s, peer->kind == NET_PEER_TLS ? "; Secure" : "");
}

// "JOB.PORT.LOGIN.SECONDS.PROOF"
void app_cookie(struct controller *c, const struct net_peer *peer, const struct app_name *name,
                const char *session, struct buf *out) {
    char text[128], value[128 + MAC_HEX + 2], proof[MAC_HEX + 1];
    struct error e = {0};
    const struct mac_key *key = app_key(c, &e);
    int len = snprintf(text, sizeof text, "%llu.%u.%s.%lld", (unsigned long long)name->job, name->port,
                       session, (long long)(controller_now_ms() / 1000));
    if (!key)
        return;
    mac_hex(key, "cookie", text, (size_t)len, proof);
    snprintf(value, sizeof value, "%s.%s", text, proof);
    write_cookie(peer, false, value, APP_COOKIE_S, out);
}

// The login that the cookie stands for.
static bool read_cookie(struct controller *c, const struct net_peer *peer, const struct http_message *m,
                        const struct app_name *name, struct app_visitor *out) {
    size_t len = 0;
    char text[256];
    unsigned long long job;
    unsigned port;
    long long issued;
    struct error e = {0};
    const char *value = http_cookie_get(m, cookie_name(peer, false), &len);
    const struct mac_key *key = value && len > MAC_HEX + 1 && len < sizeof text ? app_key(c, &e) : NULL;
    size_t text_len = key ? len - MAC_HEX - 1 : 0;
    if (!key || value[text_len] != '.' ||
        !mac_matches(key, "cookie", value, text_len, value + text_len + 1, MAC_HEX))
        return false;
    memcpy(text, value, text_len);  // ours: what follows is as it was written
    text[text_len] = 0;
    if (sscanf(text, "%llu.%u.%16[0-9a-f].%lld", &job, &port, out->session, &issued) != 4)
        return false;
    int64_t age_s = controller_now_ms() / 1000 - issued;
    out->issued_s = issued;
    return job == name->job && port == name->port && age_s < APP_COOKIE_S && age_s > -APP_COOKIE_S;
}

bool app_state(const struct net_peer *peer, const struct http_message *m,
               char out[static APP_STATE_HEX + 1]) {
    unsigned char bytes[APP_STATE_HEX / 2];
    size_t len;
    const char *had = http_cookie_get(m, cookie_name(peer, true), &len);
    if (had && len == APP_STATE_HEX && strspn(had, "0123456789abcdef") == len) {
        memcpy(out, had, len);
        out[len] = 0;
        return true;
    }
    if (rand_secret(bytes, sizeof bytes) < 0)
        return false;
    for (size_t i = 0; i < sizeof bytes; i++)
        snprintf(out + 2 * i, 3, "%02x", bytes[i]);
    return true;
}

void app_state_cookie(const struct net_peer *peer, const char *state, struct buf *out) {
    write_cookie(peer, true, state, CODE_TTL_MS / 1000 * 10, out);
}

// --- visitors ---

static enum app_verdict locked_out(struct error *e) {
    error_set(e, EAGAIN, "Too many wrong secrets for this token came from your address; wait a minute.");
    return APP_LOCKED;
}

static enum app_verdict by_token(struct controller *c, const struct net_peer *peer,
                                 const struct http_message *m, const char *header, struct arena *a,
                                 struct app_visitor *out, struct error *e) {
    struct net_request req = {
        .method = m->method, .path = m->path, .query = m->query, .http = m, .peer = peer};
    struct net_admission admission = {0};
    admission_by_token(c, &req, header, &admission);
    out->delay_ms = admission.delay_ms;
    if (admission.status == 429)
        return locked_out(e);
    if (admission.status) {
        error_set(e, EACCES, "%s", API_NOT_AUTHENTICATED);
        return APP_UNKNOWN;
    }
    int r = api_actor_of_token(c, header, false, a, &out->actor, out->pass, e);
    out->by_token = true;
    return r == 0 ? APP_LET_IN : r == -EINPROGRESS ? APP_WAITS : APP_UNKNOWN;
}

// A token of the service itself: whoever has it may send requests, and nothing else.
static enum app_verdict by_service_token(struct controller *c, const struct net_peer *peer,
                                         const struct http_message *m, const char *header,
                                         const struct app_name *name, struct arena *a,
                                         struct app_visitor *out, struct error *e) {
    const struct net_request req = {.method = m->method, .path = m->path, .http = m, .peer = peer};
    const char *text = header + strlen(APP_SERVICE_TOKEN);
    const struct event_service *s = app_is_service(name) ? core_service_by_id(c->core, name->job) : NULL;
    struct token t;
    if (!s || token_short_parse(text, strlen(text), &t) < 0) {
        out->delay_ms = admission_wrong_secret(c, &req);
        return APP_UNKNOWN;
    }
    const struct event_service_token *known = core_service_token(c->core, s->id, t.id);
    bool right = known && token_matches(&t, known->hash);
    const char *counted = known ? arena_printf(a, "service:%s", known->id) : NULL;
    token_wipe(&t);
    if (counted && admission_login_locked(c, &req, counted)) {
        out->delay_ms = ADMISSION_LOCKED_DELAY_MS;
        return locked_out(e);
    }
    if (!right) {
        out->delay_ms = counted ? admission_wrong_login(c, &req, counted) : admission_wrong_secret(c, &req);
        return APP_UNKNOWN;
    }
    out->actor = (struct actor){.user = arena_strdup(a, s->user), .uid = s->uid, .gid = s->gid};
    out->caller = arena_printf(a, "token:%s", str_empty(known->label) ? known->id : known->label);
    snprintf(out->token, sizeof out->token, "%s", known->id);
    out->by_token = true;
    return APP_LET_IN;
}

bool app_service_token_holds(struct controller *c, const struct app_name *name, const char *token) {
    return core_service_token(c->core, name->job, token) != NULL;
}

static enum app_verdict by_cookie(struct controller *c, const struct net_peer *peer,
                                  const struct http_message *m, const struct app_name *name, struct arena *a,
                                  struct app_visitor *out, struct error *e) {
    const struct event_session *s = read_cookie(c, peer, m, name, out)
                                        ? core_session_by_id(c->core, out->session, controller_now_ms())
                                        : NULL;
    if (!s)
        return APP_UNKNOWN;
    snprintf(out->pass, sizeof out->pass, "s%s", out->session);
    int r = api_actor_of_person(c, s->identity, s->unix_user, false, a, &out->actor, e);
    if (r == -EINPROGRESS)
        return APP_WAITS;
    if (r == 0)
        login_seen(c, s);
    return r == 0 ? APP_LET_IN : APP_UNKNOWN;
}

enum app_verdict app_visitor_of(struct controller *c, const struct net_peer *peer,
                                const struct http_message *m, const struct app_name *name, struct arena *a,
                                struct app_visitor *out, struct error *e) {
    const char *header = http_message_header(m, "Authorization");
    *out = (struct app_visitor){0};
    bool token = header && str_has_prefix(header, "Bearer aq1.");
    if (header && str_has_prefix(header, APP_SERVICE_TOKEN))
        return by_service_token(c, peer, m, header, name, a, out, e);
    if (!token && is_foreign(peer, m))
        return APP_FOREIGN;
    enum app_verdict v =
        token ? by_token(c, peer, m, header, a, out, e) : by_cookie(c, peer, m, name, a, out, e);
    if (v == APP_LET_IN && !app_may_use(c, &out->actor, name)) {
        if (app_is_service(name))
            error_set(e, EPERM, "This service is another user's: its owner can give you a token for it.");
        else
            error_set(
                e, EPERM,
                "This program of job %llu is another user's: its owner can share it with 'acequia share'.",
                (unsigned long long)name->job);
        return APP_REFUSED;
    }
    return v;
}

// --- one-time codes ---

static uint32_t codes_of(struct controller *c, const char *identity) {
    struct apps *x = c->apps;
    uint32_t n = 0;
    int64_t now = clock_mono_ms();
    for (uint32_t i = 0; i < x->codes.len;) {
        struct app_code *k = x->codes.at[i];
        if (k->expires_mono_ms <= now) {
            free(k);
            vec_remove_swap(&x->codes, i);
            continue;
        }
        n += streq(k->identity, identity);
        i++;
    }
    return n;
}

void app_codes_done(struct controller *c) {
    for (uint32_t i = 0; i < c->apps->codes.len; i++)
        free(c->apps->codes.at[i]);
    vec_done(&c->apps->codes);
}

static int make_code(struct controller *c, const struct app_code *like, int64_t ttl_ms,
                     char out[static TOKEN_SHORT_LEN + 1], struct error *e) {
    struct token t;
    if (codes_of(c, like->identity) >= USER_CODES_MAX || c->apps->codes.len >= CODES_MAX)
        return error_set(e, EAGAIN, "too many programs are being opened; wait a minute and try again");
    int r = token_random(&t, e);
    if (r < 0)
        return r;
    struct app_code *k = xcalloc(1, sizeof *k);
    *k = *like;
    memcpy(k->id, t.id, sizeof k->id);
    token_hash(&t, k->hash);
    k->expires_mono_ms = clock_mono_ms() + ttl_ms;
    vec_push(&c->apps->codes, k);
    token_short_format(&t, out);
    token_wipe(&t);
    return 0;
}

// The cookie of the program's host stands for a login, which can be seen and ended like any other; its own secret is
// known to nobody.
static int begin_session(struct controller *c, const struct net_peer *peer, const char *identity,
                         char session[static TOKEN_ID_HEX + 1], struct error *e) {
    const struct config_portal *k = &c->config.portal;
    struct token t;
    char hash[TOKEN_SHA256_HEX + 1];
    int64_t now = controller_now_ms();
    int r = api_check_storage(c, e);
    if (r < 0 || (r = token_random(&t, e)) < 0)
        return r;
    token_hash(&t, hash);
    struct event_session s = {.id = t.id,
                              .hash = hash,
                              .identity = identity,
                              .from = peer->address,
                              .agent = "acequia open",
                              .expires_ms = now + (int64_t)k->session_max_s * 1000,
                              .idle_s = k->session_idle_s};
    r = core_command(c->core, &self, NULL, &(struct command){COMMAND_SESSION_BEGIN, &s}, now, NULL, e);
    if (r == 0)
        memcpy(session, t.id, sizeof t.id);
    token_wipe(&t);
    return r;
}

static struct app_code *find_code(struct controller *c, const char *text, const struct app_name *name,
                                  uint32_t *at) {
    struct token t;
    struct app_code *found = NULL;
    codes_of(c, "");
    if (token_short_parse(text, strlen(text), &t) < 0)
        return NULL;
    for (uint32_t i = 0; i < c->apps->codes.len && !found; i++) {
        struct app_code *k = c->apps->codes.at[i];
        if (streq(k->id, t.id) && token_matches(&t, k->hash) && k->name.job == name->job &&
            k->name.port == name->port) {
            found = k;
            *at = i;
        }
    }
    token_wipe(&t);
    return found;
}

int app_take_code(struct controller *c, const struct net_peer *peer, const struct http_message *m,
                  const struct app_name *name, const char *code, char session[static TOKEN_ID_HEX + 1],
                  struct error *e) {
    static const char wrong[] = "This link was used already, or is too old.";
    cleanup_arena struct arena a = {0};
    struct actor actor;
    size_t len;
    uint32_t at;
    const struct app_code *k = find_code(c, code, name, &at);
    const char *state = http_cookie_get(m, cookie_name(peer, true), &len);
    if (!k)
        return error_set(e, EACCES, "%s", wrong);
    if (*k->state && (!state || len != APP_STATE_HEX || strncmp(state, k->state, len) != 0))
        return error_set(e, EACCES, "This link was made for another browser.");
    if (!*k->session) {
        int r = api_actor_of_person(c, k->identity, NULL, false, &a, &actor, e);
        if (r < 0)
            return r == -EINPROGRESS ? r : error_set(e, EACCES, "%s", wrong);
    }
    struct app_code taken = *k;
    free(c->apps->codes.at[at]);
    vec_remove_swap(&c->apps->codes, at);
    memcpy(session, taken.session, sizeof taken.session);
    return *session ? 0 : begin_session(c, peer, taken.identity, session, e);
}

// A path with a query, and nothing that browsers read as another host ("//host", "/\host").
bool app_path_ok(const char *to) {
    if (to[0] != '/' || to[1] == '/' || to[1] == '\\')
        return false;
    for (const char *p = to; *p; p++)
        if ((unsigned char)*p <= 0x20 || (unsigned char)*p >= 0x7f || *p == '\\')
            return false;
    return true;
}

// --- routes ---

static void redirect(struct net_request *req, const char *where) {
    if (net_reply_header(req, "Location", where) < 0)
        api_error(req, 400, "EINVAL", "the address to go to cannot be written");
    else
        net_reply(req, 303, NULL, NULL, 0);
}

// The page that asks for a login and comes back here.
static void send_to_login(struct api_call *call, const struct query_app *q) {
    cleanup_buf struct buf where = {0};
    buf_adds(&where, "/open?app=");
    http_percent_encode(&where, q->app);
    buf_adds(&where, "&to=");
    http_percent_encode(&where, str_empty(q->to) ? "/" : q->to);
    buf_adds(&where, "&state=");
    http_percent_encode(&where, str_empty(q->state) ? "" : q->state);
    redirect(call->req, buf_str(&where));
}

static int enter_url(struct api_call *call, const struct app_code *like, int64_t ttl_ms, const char *to,
                     struct buf *out, struct error *e) {
    char code[TOKEN_SHORT_LEN + 1];
    int r = app_url(call->controller, call->req->peer->kind, &like->name, out, e);
    if (r < 0 || (r = make_code(call->controller, like, ttl_ms, code, e)) < 0)
        return r;
    buf_addf(out, APP_ENTER_PATH "?code=%s", code);
    if (!streq(to, "/")) {
        buf_adds(out, "&to=");
        http_percent_encode(out, to);
    }
    explicit_bzero(code, sizeof code);
    return 0;
}

void api_app_authorize(struct api_call *call) {
    struct controller *c = call->controller;
    const struct query_app *q = call->query;
    struct app_code like = {0};
    struct error e = {0};
    cleanup_buf struct buf url = {0};
    const char *to = str_empty(q->to) ? "/" : q->to, *state = str_empty(q->state) ? "" : q->state;
    const struct event_session *s = login_session(c, call->req);
    int r = 0;
    if (!app_of_label(c, q->app, strlen(q->app), &like.name))
        r = error_set(&e, ENOENT, "there is no such program of a job");
    else if (!app_path_ok(to) || (*state && strlen(state) != APP_STATE_HEX))
        r = error_set(&e, EINVAL, "to: a path that begins with '/' is expected");
    else if (!s) {
        send_to_login(call, q);
        return;
    }
    if (r == 0)
        r = api_actor_of_person(c, s->identity, s->unix_user, false, &call->arena, &call->actor, &e);
    if (r == -EINPROGRESS) {
        vec_push(&c->unidentified, call->req);
        return;
    }
    if (r == 0)
        snprintf(call->req->who, sizeof call->req->who, "%s", call->actor.user);
    if (r == 0 && !app_may_use(c, &call->actor, &like.name))
        r = error_set(&e, EPERM, "this program of job %llu is another user's, or the job has ended",
                      (unsigned long long)like.name.job);
    if (r == 0) {
        like.identity = core_intern(c->core, s->identity);
        memcpy(like.session, s->id, sizeof like.session);
        snprintf(like.state, sizeof like.state, "%s", state);
        r = enter_url(call, &like, CODE_TTL_MS, to, &url, &e);
    }
    if (r < 0 && !e.code)
        error_set(&e, EACCES, "%s", API_NOT_AUTHENTICATED);
    if (r < 0)
        api_fail(call->req, &e);
    else
        redirect(call->req, buf_str(&url));
}

int app_choose_port(struct controller *c, uint64_t job, uint64_t given, uint32_t *out, struct error *e) {
    cleanup_arena struct arena a = {0};
    struct job_record r;
    struct job_port p;
    bool live;
    if (api_record(c, job, &a, &r, &live) < 0)
        return error_set(e, ENOENT, "there is no job %llu", (unsigned long long)job);
    uint64_t number = core_agent_job_number(c->core, job, r.attempt);
    for (uint32_t i = 0; i < r.spec->ports.len; i++)
        if (port_parse(r.spec->ports.at[i], &p, e) == 0 && p.protocol == PORT_HTTP &&
            (!given || port_number(&p, number, i) == given)) {
            *out = port_number(&p, number, i);
            return 0;
        }
    return given
               ? error_set(e, EINVAL,
                           "job %llu has no HTTP port %llu; ports are given at its submit, with --port",
                           (unsigned long long)job, (unsigned long long)given)
               : error_set(e, EINVAL, "job %llu has no HTTP port; ports are given at its submit, with --port",
                           (unsigned long long)job);
}

void api_app_open(struct api_call *call) {
    struct controller *c = call->controller;
    const struct actor *a = &call->actor;
    const struct query_app_open *q = call->query;
    struct app_code like = {.name.job = api_first_worker(c, call->job)};
    struct error e = {0};
    cleanup_buf struct buf url = {0}, link = {0};
    const char *identity = a->identity ? a->identity : arena_printf(&call->arena, "pam:%s", a->user);
    int r = app_choose_port(c, like.name.job, q->port, &like.name.port, &e);
    if (!app_may_use(c, a, &like.name))
        r = error_set(&e, EPERM, "this program is another user's, or the job has ended");
    else if (a->scopes || a->project)
        r = error_set(
            &e, EPERM,
            "a token limited to scopes, or a read-only login, cannot make a link; send the token with each "
            "request instead, as Authorization: Bearer");
    if (r == 0 && user_identity_check(identity, NULL) < 0)
        r = error_set(&e, EPERM, "you have no user name on the controller's machine");
    if (r == 0)
        r = app_url(c, call->req->peer->kind, &like.name, &url, &e);
    like.identity = core_intern(c->core, identity);
    if (r == 0 && (r = enter_url(call, &like, OPEN_CODE_TTL_MS, "/", &link, &e)) == 0) {
        struct answer_app_opened answer = {.url = arena_printf(&call->arena, "%s/", buf_str(&url)),
                                           .link = buf_str(&link),
                                           .port = like.name.port,
                                           .expires_ms = controller_now_ms() + OPEN_CODE_TTL_MS};
        api_answer(call, &answer_app_opened_schema, &answer);
    }
    if (r < 0)
        api_fail(call->req, &e);
}
