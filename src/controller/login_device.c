// Logins of programs on other machines, as RFC 8628 has them (`acequia login`): the program shows a code, its user
// enters it in the portal, where they are logged in already, sees what is asked for and by whom, and agrees. Then the
// program is given a token, once. Kept in memory: after a restart of the controller the program asks anew.
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "admission.h"
#include "api.h"
#include "base/clock.h"
#include "base/rand.h"
#include "base/text.h"
#include "login.h"
#include "model/name.h"
#include "user_messages.h"

enum {
    LIFE_MS = 10 * 60 * 1000,
    INTERVAL_S = 2,
    DEVICES_MAX = 1024,
    ADDRESS_DEVICES_MAX = 16,
    CODE_LETTERS = 8,
    TTL_MAX_S = 365 * 86400,
};

struct device_login {
    char id[TOKEN_ID_HEX + 1], hash[TOKEN_SHA256_HEX + 1];
    char code[CODE_LETTERS + 2];  // "WDJB-MJHT"
    char address[NET_ADDRESS_MAX];
    struct arena arena;
    uint32_t scopes, ttl_s;
    const char *project, *client;
    int64_t asked_ms, expires_mono_ms;
    enum answer_device_state state;
    // Who agreed; the token is made when the program fetches it, so that nothing here lets anybody in.
    struct actor actor;
    char session[TOKEN_ID_HEX + 1];  // by which they were known; "": the socket
};

struct device_logins {
    VEC(struct device_login *) list;
};

static void device_free(struct device_login *d) {
    arena_done(&d->arena);
    free(d);
}

void login_devices_done(struct controller *c) {
    struct device_logins *all = c->device_logins;
    if (!all)
        return;
    for (uint32_t i = 0; i < all->list.len; i++)
        device_free(all->list.at[i]);
    vec_done(&all->list);
    free(all);
    c->device_logins = NULL;
}

// All that are not too old; those are forgotten.
static struct device_logins *current(struct controller *c) {
    struct device_logins *all = c->device_logins;
    if (!all)
        all = c->device_logins = xcalloc(1, sizeof *all);
    for (uint32_t i = 0; i < all->list.len;) {
        if (all->list.at[i]->expires_mono_ms > clock_mono_ms()) {
            i++;
            continue;
        }
        device_free(all->list.at[i]);
        vec_remove_swap(&all->list, i);
    }
    return all;
}

static void device_end(struct device_logins *all, struct device_login *d) {
    for (uint32_t i = 0; i < all->list.len; i++)
        if (all->list.at[i] == d) {
            vec_remove_swap(&all->list, i);
            device_free(d);
            return;
        }
}

// --- the program ---

// Letters that are not taken for others, and no vowels: no words come out.
static int make_code(char out[static CODE_LETTERS + 2]) {
    static const char letters[] = "BCDFGHJKLMNPQRSTVWXZ";
    unsigned char bytes[4 * CODE_LETTERS];
    size_t n = 0;
    if (rand_secret(bytes, sizeof bytes) < 0)
        return -EIO;
    for (size_t i = 0; i < sizeof bytes && n < CODE_LETTERS + 1; i++) {
        if (n == CODE_LETTERS / 2)
            out[n++] = '-';
        if (bytes[i] < 240)  // 12 times 20: each letter is as likely
            out[n++] = letters[bytes[i] % 20];
    }
    out[n] = 0;
    return n == CODE_LETTERS + 1 ? 0 : -EIO;
}

static int check_request(struct api_call *call, const struct request_device *q, uint32_t *scopes,
                         struct error *e) {
    struct device_logins *all = current(call->controller);
    char address[NET_ADDRESS_MAX];
    uint32_t own = 0;
    int r;
    admission_address(call->req, address, sizeof address);
    for (uint32_t i = 0; i < all->list.len; i++)
        own += streq(all->list.at[i]->address, address);
    if (call->req->peer->kind != NET_PEER_TLS || !call->controller->ca)
        return error_set(e, ENOTSUP,
                         "on the controller's machine commands need no login: the kernel says who you are");
    if (own >= ADDRESS_DEVICES_MAX || all->list.len >= DEVICES_MAX)
        return error_set(e, EAGAIN, "too many programs ask to be logged in; wait some minutes and try again");
    if ((r = user_scopes_parse((const char *const *)q->scopes.at, q->scopes.len, scopes, e)) < 0 ||
        (!str_empty(q->project) && (r = name_check("project", q->project, e)) < 0))
        return r;
    if (q->ttl_s > TTL_MAX_S)
        return error_set(e, EINVAL, "ttl_s: at most %d, a year", TTL_MAX_S);
    return q->client ? name_line_check("client", q->client, 200, e) : 0;
}

static struct device_login *device_new(struct api_call *call, const struct request_device *q, uint32_t scopes,
                                       const struct token *t) {
    struct device_login *d = xcalloc(1, sizeof *d);
    *d = (struct device_login){.scopes = scopes,
                               .ttl_s = q->ttl_s,
                               .asked_ms = controller_now_ms(),
                               .expires_mono_ms = clock_mono_ms() + LIFE_MS};
    memcpy(d->id, t->id, sizeof d->id);
    token_hash(t, d->hash);
    admission_address(call->req, d->address, sizeof d->address);
    d->project = str_empty(q->project) ? NULL : arena_strdup(&d->arena, q->project);
    d->client = arena_strdup(&d->arena, q->client ? q->client : "a program");
    return d;
}

void api_device_begin(struct api_call *call) {
    const struct request_device *q = call->body;
    struct error e = {0};
    struct token t;
    uint32_t scopes;
    char code[TOKEN_SHORT_LEN + 1];
    const char *host = http_message_header(call->req->http, "Host");
    if (check_request(call, q, &scopes, &e) < 0 || token_random(&t, &e) < 0) {
        api_fail(call->req, &e);
        return;
    }
    struct device_login *d = device_new(call, q, scopes, &t);
    if (make_code(d->code) < 0) {
        device_free(d);
        api_error(call->req, 503, "EIO", "the kernel gives no random numbers");
        return;
    }
    vec_push(&call->controller->device_logins->list, d);
    token_short_format(&t, code);
    struct answer_device_begun answer = {
        .device_code = code,
        .user_code = d->code,
        .verification_uri = arena_printf(&call->arena, "https://%s/device", host ? host : ""),
        .verification_uri_complete =
            arena_printf(&call->arena, "https://%s/device?code=%s", host ? host : "", d->code),
        .expires_in = LIFE_MS / 1000,
        .interval = INTERVAL_S};
    api_answer_to(call->req, 201, &answer_device_begun_schema, &answer);
    explicit_bzero(code, sizeof code);
    token_wipe(&t);
}

static struct device_login *by_device_code(struct controller *c, const char *text) {
    struct device_logins *all = current(c);
    struct device_login *found = NULL;
    struct token t;
    if (token_short_parse(text, strlen(text), &t) < 0)
        return NULL;
    for (uint32_t i = 0; i < all->list.len && !found; i++)
        if (streq(all->list.at[i]->id, t.id) && token_matches(&t, all->list.at[i]->hash))
            found = all->list.at[i];
    token_wipe(&t);
    return found;
}

void api_device_token(struct api_call *call) {
    struct controller *c = call->controller;
    const struct request_device_code *q = call->body;
    struct device_login *d = by_device_code(c, q->device_code);
    struct answer_device_token answer = {.state = d ? d->state : DEVICE_EXPIRED};
    struct error e = {0};
    if (!d || d->state != DEVICE_GRANTED) {
        if (d && d->state == DEVICE_DENIED)
            device_end(c->device_logins, d);
        api_answer(call, &answer_device_token_schema, &answer);
        return;
    }
    struct login_token t = {.scopes = d->scopes, .ttl_s = d->ttl_s, .project = d->project};
    call->actor = d->actor;
    snprintf(call->req->who, sizeof call->req->who, "%s", d->actor.user);
    if (*d->session && !core_session_holds(c->core, d->session, controller_now_ms()))
        error_set(&e, EACCES, "the login that agreed has ended since; begin again");
    else
        login_make_token(call, &t, &e);
    if (e.code) {
        api_fail(call->req, &e);
    } else {
        answer.token = t.text;
        answer.user = d->actor.user;
        answer.expires_ms = t.expires_ms;
        api_answer_committed(call, 200, &answer_device_token_schema, &answer);
    }
    explicit_bzero(&t, sizeof t);
    device_end(c->device_logins, d);
}

// --- its user ---

// Codes are typed: capitals and the hyphen do not matter.
static bool same_code(const char *typed, const char *code) {
    for (; *code; code++) {
        if (*code == '-') {
            typed += *typed == '-' || *typed == ' ';
            continue;
        }
        char t = *typed >= 'a' && *typed <= 'z' ? (char)(*typed - 'a' + 'A') : *typed;
        if (t != *code)
            return false;
        typed++;
    }
    return !*typed;
}

// Wrong codes are counted like wrong passwords: who could guess would log the programs of others in as themselves.
static struct device_login *by_user_code(struct api_call *call, struct error *e) {
    struct device_logins *all = current(call->controller);
    const char *who = arena_printf(&call->arena, "device:%s", call->actor.user);
    if (admission_login_locked(call->controller, call->req, who)) {
        error_set(e, EAGAIN, "too many wrong codes from your address; wait a minute and try again");
        return NULL;
    }
    for (uint32_t i = 0; i < all->list.len; i++)
        if (all->list.at[i]->state == DEVICE_PENDING && same_code(call->name, all->list.at[i]->code))
            return all->list.at[i];
    admission_wrong_login(call->controller, call->req, who);
    error_set(e, ENOENT, "no program waits with that code; codes hold for ten minutes, and once");
    return NULL;
}

void api_device_show(struct api_call *call) {
    struct error e = {0};
    const char *words[3];
    const struct device_login *d = by_user_code(call, &e);
    if (!d) {
        api_fail(call->req, &e);
        return;
    }
    struct answer_device answer = {.user_code = d->code,
                                   .client = d->client,
                                   .from = d->address,
                                   .scopes = {words, user_scopes_words(d->scopes, words)},
                                   .project = d->project,
                                   .ttl_s =
                                       d->ttl_s ? d->ttl_s : call->controller->config.portal.session_max_s,
                                   .asked_ms = d->asked_ms};
    api_answer(call, &answer_device_schema, &answer);
}

void api_device_answer(struct api_call *call) {
    const struct request_device_answer *q = call->body;
    struct error e = {0};
    struct device_login *d = by_user_code(call, &e);
    const struct event_session *s = login_session(call->controller, call->req);
    // A token that was given for a while must not be able to make itself another one.
    if (d && (call->actor.until_ms || call->actor.project))
        error_set(&e, EPERM, "a program's login is confirmed in the portal, not with a token");
    if (e.code) {
        api_fail(call->req, &e);
        return;
    }
    d->state = q->allow ? DEVICE_GRANTED : DEVICE_DENIED;
    d->actor = call->actor;
    d->actor.user = arena_strdup(&d->arena, call->actor.user);
    snprintf(d->session, sizeof d->session, "%s", s ? s->id : "");
    snprintf(call->req->note, sizeof call->req->note, "%s: %.200s", q->allow ? "agreed" : "refused",
             d->client);
    api_answer(call, &answer_done_schema, &(struct answer_done){true});
}
