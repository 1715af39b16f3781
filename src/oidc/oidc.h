// The parts of acequia-oidc: ID tokens (id_token.c) and the provider's HTTP (provider.c). Everything that a provider
// sends is hostile until its signature was checked, and bounded also then.
#pragma once
#include <stdbool.h>
#include <stdint.h>

#include "base/arena.h"
#include "base/buf.h"
#include "base/error.h"
#include "base/json.h"
#include "base/schema.h"

enum {
    OIDC_SKEW_S = 60,  // how far the clocks of provider and controller may differ
    OIDC_BYTES_MAX = 256 << 10,
    OIDC_VALUES_MAX = 20000,
    OIDC_SUBJECT_MAX = 255,
    OIDC_GROUPS_MAX = 256,
    OIDC_KEYS_TRIED_MAX = 16,
};

// What an ID token must say.
struct oidc_expected {
    const char *issuer, *client_id, *nonce;
    int64_t now_s;
};

// Checks signature (RS256 or ES256 by a key of the set, nothing else) and claims. *claims lives in the arena.
// -EACCES: the token is not to be trusted.
int oidc_id_token_read(const char *token, const struct json *keys, const struct oidc_expected *x,
                       struct arena *a, const struct json **claims, struct error *e);

struct oidc_request {
    bool finish;  // else: only where the provider's login page is
    const char *issuer, *client_id, *client_secret_file, *ca_file;
    const char *code, *verifier, *nonce, *redirect_uri;
    const char *user_claim, *groups_claim;  // NULL or "": none
};

struct oidc_answer {
    const char *authorization_endpoint;
    const char *subject, *user, *full_name;
    LIST(const char *) groups;
};

int oidc_provider_ask(const struct oidc_request *q, int64_t now_s, struct arena *a, struct oidc_answer *out,
                      struct error *e);
