// One-time join tokens. The text is given to a new node: "aq1.<id>.<secret>.<CA fingerprint>"; the
// controller keeps only id and hash, so that what it stores admits nobody. The fingerprint lets the
// node know the controller before it trusts it with the secret. Expiry and single use are the
// controller's to keep.
#pragma once
#include <stdbool.h>
#include <stddef.h>

#include "base/error.h"

enum {
    TOKEN_ID_BYTES = 8,
    TOKEN_SECRET_BYTES = 32,
    TOKEN_ID_HEX = 2 * TOKEN_ID_BYTES,
    TOKEN_SHA256_HEX = 64,
    TOKEN_SHORT_LEN = TOKEN_ID_HEX + 1 + 2 * TOKEN_SECRET_BYTES,
    TOKEN_TEXT_LEN = 4 + TOKEN_ID_HEX + 1 + 2 * TOKEN_SECRET_BYTES + 1 + TOKEN_SHA256_HEX,
};

struct token {
    char id[TOKEN_ID_HEX + 1];
    unsigned char secret[TOKEN_SECRET_BYTES];
    char ca_sha256[TOKEN_SHA256_HEX + 1];  // as tls_client_options.ca_sha256 wants it
};

int token_create(const char *ca_sha256, struct token *out, struct error *e);
void token_format(const struct token *t, char out[static TOKEN_TEXT_LEN + 1]);
// Surrounding white space (of a file) is allowed; the message never holds the token.
int token_parse(const char *text, struct token *out, struct error *e);
// What the controller keeps: a SHA-256 over id and secret, in hexadecimal.
void token_hash(const struct token *t, char out[static TOKEN_SHA256_HEX + 1]);
// Compares in constant time.
bool token_matches(const struct token *t, const char *hash_hex);
void token_wipe(struct token *t);

// The short form "<id>.<secret>", for those who know the server already: cookies and one-time codes.
int token_random(struct token *out, struct error *e);  // without a fingerprint
void token_short_format(const struct token *t, char out[static TOKEN_SHORT_LEN + 1]);
int token_short_parse(const char *text, size_t len, struct token *out);

// PKCE (RFC 7636, S256): what a verifier is announced by.
enum { TOKEN_CHALLENGE_LEN = 43 };
void token_challenge(const char *verifier, char out[static TOKEN_CHALLENGE_LEN + 1]);
