// Identity before the body: a request over TLS or the loopback interface is admitted by a valid token or certificate,
// or because its route needs none (joining, agents); the latter may have a small body only.
// Wrong tokens: each answer is delayed, longer with every wrong token of the address; after GUESSES_MAX wrong secrets
// for one token from one address, that token is refused from there for LOCK_MS, right or wrong. Other tokens from the
// same address go on working: many users may share one address.
#include "admission.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "api.h"
#include "audit.h"
#include "base/clock.h"
#include "base/log.h"
#include "base/text.h"
#include "browser.h"
#include "login.h"
#include "net/token.h"
#include "portal.h"

enum {
    GUESSES_MAX = 10,          // wrong secrets for one token from one address
    GUESS_WINDOW_MS = 600000,  // wrong tokens are forgotten after this time without another
    LOCK_MS = 60000,
    DELAY_FIRST_MS = 100,
    DELAY_DOUBLINGS = 5,             // at most 3.2 s
    TRACKED_MAX = 4096,              // addresses and tokens that are remembered
    KEY_MAX = NET_ADDRESS_MAX + 96,  // address, and the id of a token or the identity of a login
    ACCOUNT_MAX = 320,
};

struct admission_guess {
    uint32_t wrong;
    int64_t last_ms, locked_until_ms;
    char key[KEY_MAX];
};

void admission_address(const struct net_request *req, char *out, size_t size) {
    net_address_network(req->peer->address, out, size);
}

static void forget_old(struct controller *c, int64_t now) {
    size_t it = 0;
    void *v;
    const char *key;
    while (strmap_next(&c->guesses, &it, &key, &v)) {
        struct admission_guess *g = v;
        if (now - g->last_ms < GUESS_WINDOW_MS)
            continue;
        strmap_remove(&c->guesses, key);
        free(g);
    }
}

// Makes room for one more: whoever has guessed from very many addresses must not make us forget how to count.
static void forget_oldest(struct controller *c) {
    struct admission_guess *oldest = NULL;
    size_t it = 0;
    void *v;
    while (strmap_next(&c->guesses, &it, NULL, &v)) {
        struct admission_guess *g = v;
        if (!oldest || g->last_ms < oldest->last_ms)
            oldest = g;
    }
    strmap_remove(&c->guesses, oldest->key);
    free(oldest);
}

static struct admission_guess *guess_count(struct controller *c, const char *key, int64_t now) {
    struct admission_guess *g = strmap_get(&c->guesses, key);
    if (!g) {
        if (c->guesses.len >= TRACKED_MAX)
            forget_old(c, now);
        if (c->guesses.len >= TRACKED_MAX)
            forget_oldest(c);
        g = xcalloc(1, sizeof *g);
        snprintf(g->key, sizeof g->key, "%s", key);
        strmap_put(&c->guesses, g->key, g);
    }
    if (now - g->last_ms >= GUESS_WINDOW_MS)
        g->wrong = 0;
    g->wrong++;
    g->last_ms = now;
    return g;
}

static uint32_t delay_ms(const struct admission_guess *from) {
    uint32_t doublings = from->wrong - 1;
    return (uint32_t)DELAY_FIRST_MS << (doublings < DELAY_DOUBLINGS ? doublings : DELAY_DOUBLINGS);
}

// One wrong secret for what is named, from one address.
static void count_wrong(struct controller *c, const char *address, const char *what, int64_t now) {
    char key[KEY_MAX];
    snprintf(key, sizeof key, "%s %s", address, what);
    struct admission_guess *g = guess_count(c, key, now);
    if (g->wrong < GUESSES_MAX)
        return;
    if (g->locked_until_ms <= now)
        log_warn("%s is refused from %s for %d s: too many wrong secrets", what, address, LOCK_MS / 1000);
    g->locked_until_ms = now + LOCK_MS;
}

static uint32_t wrong_token(struct controller *c, const struct net_request *req, const char *token_id) {
    char address[NET_ADDRESS_MAX];
    int64_t now = clock_mono_ms();
    admission_address(req, address, sizeof address);
    uint32_t delay = delay_ms(guess_count(c, address, now));
    if (token_id && core_token_holds(c->core, token_id, controller_now_ms()))
        count_wrong(c, address, token_id, now);
    return delay;
}

uint32_t admission_wrong_login(struct controller *c, const struct net_request *req, const char *identity) {
    char address[NET_ADDRESS_MAX];
    int64_t now = clock_mono_ms();
    admission_address(req, address, sizeof address);
    uint32_t delay = delay_ms(guess_count(c, address, now));
    count_wrong(c, address, identity, now);
    return delay;
}

static bool is_locked(const struct controller *c, const struct net_request *req, const char *token_id) {
    char address[NET_ADDRESS_MAX], key[KEY_MAX];
    admission_address(req, address, sizeof address);
    snprintf(key, sizeof key, "%s %s", address, token_id);
    const struct admission_guess *g = strmap_get(&c->guesses, key);
    return g && g->locked_until_ms > clock_mono_ms();
}

bool admission_login_locked(const struct controller *c, const struct net_request *req, const char *identity) {
    return is_locked(c, req, identity);
}

static uint32_t wrong_lately(const struct controller *c, const char *key) {
    const struct admission_guess *g = strmap_get(&c->guesses, key);
    return g && clock_mono_ms() - g->last_ms < GUESS_WINDOW_MS ? g->wrong : 0;
}

bool admission_guesses_much(const struct controller *c, const char *address) {
    return wrong_lately(c, address) >= GUESSES_MAX;
}

bool admission_has_guessed(const struct controller *c, const char *address, const char *account) {
    char key[KEY_MAX];
    snprintf(key, sizeof key, "%s %s", address, account);
    return wrong_lately(c, key) > 0;
}

uint32_t admission_wrong_secret(struct controller *c, const struct net_request *req) {
    return req->peer->kind == NET_PEER_UNIX ? 0 : wrong_token(c, req, NULL);
}

static void refuse(const struct net_request *req, struct net_admission *out, int status, const char *text,
                   uint32_t delay_ms) {
    out->status = status;
    out->content_type = api_problem_type(req);
    out->text = text;
    out->delay_ms = delay_ms;
}

// A problem document, as problem.c writes them for requests that have been admitted.
#define PROBLEM(status, title, code, text)                                                         \
    "{\"type\":\"about:blank\",\"title\":\"" title "\",\"status\":" #status ",\"detail\":\"" text  \
    "\",\"instance\":null,\"field\":null,\"error\":{\"code\":\"" code "\",\"message\":\"" text "\"}}\n"
static const char unknown[] = PROBLEM(401, "Unauthorized", "EACCES", API_NOT_AUTHENTICATED);
static const char misdirected[] =
    PROBLEM(421, "Misdirected Request", "EACCES",
            "This is not the name of this server: open the portal with the link that 'acequia portal' prints, or add "
            "the name to names in [portal]");
static const char foreign[] = PROBLEM(
    403, "Forbidden", "EPERM",
    "This request comes from a page of another server: only pages of this one may act with your login");
static const char locked[] =
    PROBLEM(429, "Too Many Requests", "EAGAIN",
            "Too many wrong secrets for this token from your address; wait a minute and try again");

void admission_by_token(struct controller *c, const struct net_request *req, const char *header,
                        struct net_admission *out) {
    static char account[ACCOUNT_MAX];  // copied by the server before the next call
    struct token t;
    char hash[TOKEN_SHA256_HEX + 1];
    if (!str_has_prefix(header, "Bearer ") || token_parse(header + 7, &t, NULL) < 0) {
        refuse(req, out, 401, unknown, wrong_token(c, req, NULL));
        return;
    }
    token_hash(&t, hash);
    const struct event_token *token = core_token_of_user(c->core, t.id, hash, controller_now_ms());
    if (is_locked(c, req, t.id))
        refuse(req, out, 429, locked, ADMISSION_LOCKED_DELAY_MS);
    else if (!token)
        refuse(req, out, 401, unknown, wrong_token(c, req, t.id));
    else {
        snprintf(account, sizeof account, "user %s", token->user);
        out->account = account;
        audit_login(c, req, token->user, t.id);
    }
    token_wipe(&t);
}

// A cookie is sent by the browser whoever's page asks: what changes something must come from a page of ours.
static void by_session(struct controller *c, struct net_request *req, struct net_admission *out) {
    static char account[ACCOUNT_MAX];
    struct core_person p;
    if (browser_is_unsafe(req) && !browser_same_origin(req, false)) {
        refuse(req, out, 403, foreign, 0);
        return;
    }
    const struct event_session *s = login_session(c, req);
    if (!s) {
        refuse(req, out, 401, unknown, 0);
        return;
    }
    core_person(c->core, s->identity, s->unix_user, &p);
    snprintf(account, sizeof account, "user %.300s", p.unix_user ? p.unix_user : s->identity);
    out->account = account;
    login_seen(c, s);
}

// A login sets a cookie: another page must not log its visitors in as somebody else.
static bool is_login(const struct net_request *req) {
    return str_has_prefix(req->path, "/v1/login") || str_has_prefix(req->path, "/v1/logout");
}

void admission_check(struct net_request *req, struct net_admission *out, void *user) {
    static char account[ACCOUNT_MAX];
    struct controller *c = user;
    const char *header = http_message_header(req->http, "Authorization");
    browser_headers(req);
    if (req->peer->kind == NET_PEER_HTTP && !browser_host_known(c, req)) {
        refuse(req, out, 421, misdirected, 0);
        return;
    }
    // A token that was given is what counts, also beside a cookie: a page elsewhere cannot set this header.
    if (header) {
        admission_by_token(c, req, header, out);
        return;
    }
    bool needs_user = !api_needs_no_user(req), cookie = login_has_cookie(req);
    if ((cookie || is_login(req) || portal_has_path(req)) && !browser_host_known(c, req)) {
        refuse(req, out, 421, misdirected, 0);
        return;
    }
    if (needs_user && cookie) {
        by_session(c, req, out);
        return;
    }
    if (needs_user) {
        refuse(req, out, 401, unknown, 0);
        return;
    }
    if (is_login(req) && browser_is_unsafe(req) && !browser_same_origin(req, true)) {
        refuse(req, out, 403, foreign, 0);
        return;
    }
    // Nobody knows who this is: a small body is all that is read.
    out->body_max = NET_SMALL_BODY_BYTES;
    if (req->peer->has_cert) {
        snprintf(account, sizeof account, "node %s", req->peer->cert_cn);
        out->account = account;
    }
}

void admission_done(struct controller *c) {
    size_t it = 0;
    void *v;
    while (strmap_next(&c->guesses, &it, NULL, &v))
        free(v);
    strmap_done(&c->guesses);
}
