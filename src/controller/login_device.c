// Logins of programs on other machines, as RFC 8628 has them (`acequia login`): the program shows a code, its user
// enters it in the portal, where they are logged in already, sees what is asked for and by whom, and agrees. Then the
// program is given a token, once.
//
// Anybody may ask, and many users can share an address, so nobody may be able to use up the room of others. What is
// asked for therefore travels, sealed by us, in the program's code and in the link for the browser: a request costs
// nothing here until somebody who is logged in opens its link. Only codes that are typed need to be remembered; when an
// address has many, the oldest is forgotten, and its link still works. Sealed with a key of this process: after a
// restart of the controller the program asks anew.
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
#include "net/mac.h"
#include "user_messages.h"

enum {
    LIFE_MS = 10 * 60 * 1000,
    INTERVAL_S = 2,
    TYPED_MAX = 1024,  // codes that can be typed, of all addresses
    ADDRESS_TYPED_MAX = 16,
    USER_MAX = 16,  // that one user has opened or answered
    CODE_LETTERS = 8,
    TTL_MAX_S = 365 * 86400,
    ID_BYTES = 16,
    ID_HEX = 2 * ID_BYTES,
};

// What a program asks for.
struct device_ask {
    const char *id;  // random
    const char *address, *project, *client;
    uint32_t scopes, ttl_s;
    int64_t asked_ms, expires_mono_ms;
};
#define S struct device_ask
static const struct field ask_fields[] = {
    FIELD(1, S, id, ""),       FIELD(2, S, address, ""),         FIELD(3, S, project, ""),
    FIELD(4, S, client, ""),   FIELD(5, S, scopes, ""),          FIELD(6, S, ttl_s, ""),
    FIELD(7, S, asked_ms, ""), FIELD(8, S, expires_mono_ms, ""),
};
static const struct schema ask_schema = SCHEMA(S, "a program that asks to be logged in", ask_fields);
#undef S

// One that is remembered: its code can be typed, or a user has opened it.
struct device_login {
    struct arena arena;
    struct device_ask ask;
    char code[CODE_LETTERS + 2];  // "WDJB-MJHT"
    const char *user;             // who has opened it; NULL: nobody yet
    enum answer_device_state state;
    // Who agreed; the token is made when the program fetches it, so that nothing here lets anybody in.
    struct actor actor;
    char session[TOKEN_ID_HEX + 1];  // by which they were known; "": the socket
};

struct device_logins {
    VEC(struct device_login *) list;  // the oldest first
    bool has_key;
    struct mac_key key;
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
    explicit_bzero(&all->key, sizeof all->key);
    free(all);
    c->device_logins = NULL;
}

static void forget(struct device_logins *all, uint32_t i) {
    device_free(all->list.at[i]);
    vec_remove(&all->list, i);
}

// All that are not too old; those are forgotten.
static struct device_logins *current(struct controller *c) {
    struct device_logins *all = c->device_logins;
    if (!all)
        all = c->device_logins = xcalloc(1, sizeof *all);
    for (uint32_t i = 0; i < all->list.len;) {
        if (all->list.at[i]->ask.expires_mono_ms > clock_mono_ms())
            i++;
        else
            forget(all, i);
    }
    return all;
}

static struct device_login *find_id(const struct device_logins *all, const char *id) {
    for (uint32_t i = 0; i < all->list.len; i++)
        if (streq(all->list.at[i]->ask.id, id))
            return all->list.at[i];
    return NULL;
}

// Forgets the oldest one if there are `most` already: of a user, of an address, or of all whose code nobody has typed.
static void make_room(struct device_logins *all, const char *user, const char *address, uint32_t most) {
    char network[NET_ADDRESS_MAX];
    uint32_t n = 0, oldest = 0;
    for (uint32_t i = all->list.len; i-- > 0;) {
        const struct device_login *d = all->list.at[i];
        net_address_network(d->ask.address, network, sizeof network);
        if (user ? !streq(d->user, user) : d->user || (address && !streq(network, address)))
            continue;
        n++;
        oldest = i;
    }
    if (n >= most)
        forget(all, oldest);
}

// --- seals: "TEXT.PROOF", the proof by what it is good for ---

static const char program_seal[] = "program", link_seal[] = "link", code_seal[] = "code";

static int open_key(struct device_logins *all, struct error *e) {
    if (!all->has_key && rand_secret(all->key.bytes, sizeof all->key.bytes) < 0)
        return error_set(e, EIO, "the kernel gives no random numbers");
    all->has_key = true;
    return 0;
}

static void seal(const struct device_logins *all, const struct device_ask *ask, const char *purpose,
                 struct buf *out) {
    static const char digits[] = "0123456789abcdef";
    cleanup_buf struct buf bytes = {0};
    char proof[MAC_HEX + 1];
    size_t from = out->len;
    schema_encode(&ask_schema, ask, &bytes);
    for (size_t i = 0; i < bytes.len; i++) {
        buf_addc(out, digits[(unsigned char)bytes.data[i] >> 4]);
        buf_addc(out, digits[bytes.data[i] & 15]);
    }
    mac_hex(&all->key, purpose, out->data + from, out->len - from, proof);
    buf_addc(out, '.');
    buf_adds(out, proof);
}

static int hex_digit(char c) {
    return c >= '0' && c <= '9' ? c - '0' : c >= 'a' && c <= 'f' ? c - 'a' + 10 : -1;
}

// False: we did not make it, it was made for something else, or it is too old.
static bool unseal(const struct device_logins *all, const char *text, const char *purpose, struct arena *a,
                   struct device_ask *out) {
    const char *dot = strchr(text, '.');
    size_t len = dot ? (size_t)(dot - text) : 0;
    cleanup_buf struct buf bytes = {0};
    if (!dot || len % 2 || strlen(dot + 1) != MAC_HEX || !all->has_key ||
        !mac_matches(&all->key, purpose, text, len, dot + 1, MAC_HEX))
        return false;
    for (size_t i = 0; i < len; i += 2)  // ours: only such digits
        buf_addc(&bytes, (char)(hex_digit(text[i]) << 4 | hex_digit(text[i + 1])));
    return schema_decode(&ask_schema, bytes.data, bytes.len, a, out) == 0 &&
           out->expires_mono_ms > clock_mono_ms();
}

// Letters that are not taken for others, and no vowels: no words come out.
static void code_of(const struct device_logins *all, const char *id, char out[static CODE_LETTERS + 2]) {
    static const char letters[] = "BCDFGHJKLMNPQRSTVWXZ";
    char proof[MAC_HEX + 1];
    uint64_t number = 0;
    mac_hex(&all->key, code_seal, id, strlen(id), proof);
    for (int i = 0; i < 15; i++)  // 60 bits for 35: each letter is as likely, but for a part in a million
        number = number << 4 | (uint64_t)hex_digit(proof[i]);
    for (size_t n = 0; n < CODE_LETTERS + 1; n++) {
        if (n == CODE_LETTERS / 2) {
            out[n] = '-';
            continue;
        }
        out[n] = letters[number % 20];
        number /= 20;
    }
    out[CODE_LETTERS + 1] = 0;
}

static struct device_login *remember(struct device_logins *all, const struct device_ask *ask) {
    struct device_login *d = xcalloc(1, sizeof *d);
    d->ask = *(const struct device_ask *)schema_copy(&ask_schema, ask, &d->arena);
    code_of(all, ask->id, d->code);
    vec_push(&all->list, d);
    return d;
}

// --- the program ---

static int check_request(struct api_call *call, const struct request_device *q, uint32_t *scopes,
                         struct error *e) {
    int r;
    if (call->req->peer->kind != NET_PEER_TLS || !call->controller->ca)
        return error_set(e, ENOTSUP,
                         "on the controller's machine commands need no login: the kernel says who you are");
    if ((r = user_scopes_parse((const char *const *)q->scopes.at, q->scopes.len, scopes, e)) < 0 ||
        (!str_empty(q->project) && (r = name_check("project", q->project, e)) < 0))
        return r;
    if (q->ttl_s > TTL_MAX_S)
        return error_set(e, EINVAL, "ttl_s: at most %d, a year", TTL_MAX_S);
    return q->client ? name_line_check("client", q->client, 200, e) : 0;
}

static int random_id(char out[static ID_HEX + 1], struct error *e) {
    unsigned char bytes[ID_BYTES];
    if (rand_secret(bytes, sizeof bytes) < 0)
        return error_set(e, EIO, "the kernel gives no random numbers");
    for (size_t i = 0; i < sizeof bytes; i++)
        snprintf(out + 2 * i, 3, "%02x", bytes[i]);
    return 0;
}

void api_device_begin(struct api_call *call) {
    const struct request_device *q = call->body;
    struct device_logins *all = current(call->controller);
    struct error e = {0};
    char id[ID_HEX + 1], address[NET_ADDRESS_MAX], network[NET_ADDRESS_MAX];
    const char *from = call->req->peer->address, *end = strrchr(from, ']');
    const char *host = http_message_header(call->req->http, "Host");
    struct device_ask ask = {.id = id,
                             .address = address,
                             .project = str_empty(q->project) ? NULL : q->project,
                             .client = q->client ? q->client : "a program",
                             .ttl_s = q->ttl_s,
                             .asked_ms = controller_now_ms(),
                             .expires_mono_ms = clock_mono_ms() + LIFE_MS};
    if (check_request(call, q, &ask.scopes, &e) < 0 || open_key(all, &e) < 0 || random_id(id, &e) < 0) {
        api_fail(call->req, &e);
        return;
    }
    snprintf(address, sizeof address, "%.*s", end ? (int)(end - from) + 1 : (int)strlen(from), from);
    admission_address(call->req, network, sizeof network);
    make_room(all, NULL, network, ADDRESS_TYPED_MAX);
    make_room(all, NULL, NULL, TYPED_MAX);
    const struct device_login *d = remember(all, &ask);
    cleanup_buf struct buf device = {0}, link = {0};
    seal(all, &ask, program_seal, &device);
    seal(all, &ask, link_seal, &link);
    struct answer_device_begun answer = {
        .device_code = buf_str(&device),
        .user_code = d->code,
        .verification_uri = arena_printf(&call->arena, "https://%s/device", host ? host : ""),
        .verification_uri_complete =
            arena_printf(&call->arena, "https://%s/device?code=%s", host ? host : "", buf_str(&link)),
        .expires_in = LIFE_MS / 1000,
        .interval = INTERVAL_S};
    api_answer_to(call->req, 201, &answer_device_begun_schema, &answer);
    explicit_bzero(device.data, device.len);
}

void api_device_token(struct api_call *call) {
    struct controller *c = call->controller;
    const struct request_device_code *q = call->body;
    struct device_logins *all = current(c);
    struct device_ask ask;
    struct error e = {0};
    bool ours = unseal(all, q->device_code, program_seal, &call->arena, &ask);
    struct device_login *d = ours ? find_id(all, ask.id) : NULL;
    struct answer_device_token answer = {.state = d ? d->state : ours ? DEVICE_PENDING : DEVICE_EXPIRED};
    if (!d || d->state != DEVICE_GRANTED) {
        api_answer(call, &answer_device_token_schema, &answer);
        return;
    }
    struct login_token t = {.scopes = ask.scopes, .ttl_s = ask.ttl_s, .project = ask.project};
    d->state = DEVICE_EXPIRED;  // it is given once
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

static struct device_login *by_code(struct api_call *call) {
    struct device_logins *all = current(call->controller);
    struct device_ask ask;
    if (unseal(all, call->name, link_seal, &call->arena, &ask)) {
        struct device_login *d = find_id(all, ask.id);
        return d ? d : remember(all, &ask);
    }
    for (uint32_t i = 0; i < all->list.len; i++)
        if (same_code(call->name, all->list.at[i]->code))
            return all->list.at[i];
    return NULL;
}

// Wrong codes are counted like wrong passwords: who could guess would log the programs of others in as themselves.
// What somebody has opened is theirs to answer, and is not forgotten for the sake of others.
static struct device_login *opened(struct api_call *call, struct error *e) {
    const char *who = arena_printf(&call->arena, "device:%s", call->actor.user);
    if (admission_login_locked(call->controller, call->req, who)) {
        error_set(e, EAGAIN, "too many wrong codes from your address; wait a minute and try again");
        return NULL;
    }
    struct device_login *d = by_code(call);
    if (!d || d->state != DEVICE_PENDING) {
        admission_wrong_login(call->controller, call->req, who);
        error_set(e, ENOENT, "no program waits with that code; codes hold for ten minutes, and once");
        return NULL;
    }
    if (!streq(d->user, call->actor.user)) {
        d->user = NULL;  // it is not the one that makes room
        make_room(call->controller->device_logins, call->actor.user, NULL, USER_MAX);
        d->user = arena_strdup(&d->arena, call->actor.user);
    }
    return d;
}

void api_device_show(struct api_call *call) {
    struct error e = {0};
    const char *words[3];
    const struct device_login *d = opened(call, &e);
    if (!d) {
        api_fail(call->req, &e);
        return;
    }
    struct answer_device answer = {.user_code = d->code,
                                   .client = d->ask.client,
                                   .from = d->ask.address,
                                   .scopes = {words, user_scopes_words(d->ask.scopes, words)},
                                   .project = d->ask.project,
                                   .ttl_s = d->ask.ttl_s ? d->ask.ttl_s
                                                         : call->controller->config.portal.session_max_s,
                                   .asked_ms = d->ask.asked_ms};
    api_answer(call, &answer_device_schema, &answer);
}

void api_device_answer(struct api_call *call) {
    const struct request_device_answer *q = call->body;
    struct error e = {0};
    struct device_login *d = opened(call, &e);
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
             d->ask.client);
    api_answer(call, &answer_done_schema, &(struct answer_done){true});
}
