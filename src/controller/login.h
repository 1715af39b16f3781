// Logins of browsers and people: passwords of own users and of the system's, one-time codes, cookies, sessions.
#pragma once
#include <stdbool.h>
#include <stdint.h>

#include "base/error.h"
#include "net/token.h"

struct controller;
struct event_session;
struct login;
struct net_request;

struct api_call;

enum login_cookie {
    LOGIN_COOKIE_SESSION,
    LOGIN_COOKIE_PROVIDER,  // a login that goes by way of a provider, until it comes back
};
const char *login_cookie(const struct net_request *req, enum login_cookie which,
                         size_t *len);  // NULL: none, or two
void login_set_cookie(struct net_request *req, enum login_cookie which, const char *value,
                      uint32_t max_age_s);

// Begins a session for call->actor and answers. claimed: the Unix user that a provider names; may be NULL.
int login_begin_session(struct api_call *call, const char *identity, const char *claimed,
                        const char *full_name, struct error *e);
// Makes a token for call->actor's commands. ttl_s 0: as long as a session.
struct login_token {
    uint32_t scopes, ttl_s;
    const char *project;
    char text[TOKEN_TEXT_LEN + 1];  // made; the caller wipes it
    int64_t expires_ms;
};
int login_make_token(struct api_call *call, struct login_token *t, struct error *e);

// login_oidc.c
uint32_t login_oidc_min_uid(const struct controller *c,
                            const char *identity);  // of Unix users that claims name
void login_oidc_done(struct controller *c);
// login_device.c
void login_devices_done(struct controller *c);

bool login_has_cookie(const struct net_request *req);
// The login whose cookie the request brings; NULL: none, or it is over.
const struct event_session *login_session(const struct controller *c, const struct net_request *req);
void login_seen(struct controller *c, const struct event_session *s);  // it is in use
void login_done(struct controller *c);
void login_codes_done(struct controller *c);
void api_password_changes_done(struct controller *c);  // api_users.c

// login_password.c
enum { LOGIN_HASH_MAX = 128 };
// Hashes a password with argon2id and a fresh salt. Takes a tenth of a second or more.
int login_password_hash(const char *password, char out[static LOGIN_HASH_MAX], struct error *e);
bool login_password_matches(const char *hash, const char *password);  // as slow; hash NULL: slow, and false
struct arena;
const char *login_password_context(struct arena *a, const char *name,
                                   uint32_t version);  // what its hash is sealed for

// login_check.c: is it them? Off the loop, in a turn that the caller has. Calls back once, unless it could not begin.
typedef void (*login_checked)(void *arg, bool right, const struct error *problem);
void login_check_own(struct controller *c, const char *hash, const char *password, login_checked fn,
                     void *arg);
int login_check_pam(struct controller *c, const char *user, const char *password, const char *from,
                    login_checked fn, void *arg, struct error *e);
