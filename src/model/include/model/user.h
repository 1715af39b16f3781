// People and how they log in. An identity says who somebody is to the program that knows them: "own:NAME" (a password
// kept here), "pam:NAME" (a user of the controller's machine), "oidc:PROVIDER:SUBJECT" (an OpenID Connect provider). An
// account gathers the identities of one person and names the Unix user that their jobs run as.
#pragma once
#include <stdbool.h>
#include <stdint.h>

#include "base/arena.h"
#include "base/error.h"
#include "base/schema.h"

enum user_role { USER_ROLE_USER, USER_ROLE_OPERATOR, USER_ROLE_ADMIN };
extern const char *const user_role_words[];

enum user_scope {
    USER_SCOPE_READ = 1,
    USER_SCOPE_SUBMIT = 2,  // submit, and act on jobs
    USER_SCOPE_ADMIN = 4,   // what the role of its user allows beyond that
    USER_SCOPES_ALL = 7,
};

enum {
    USER_IDENTITY_MAX = 512,
    USER_IDENTITIES_MAX = 16,
    USER_ACCOUNTS_MAX = 100000,
    USER_SESSIONS_MAX = 64,  // of one identity
    USER_ALL_SESSIONS_MAX = 65536,
    USER_GRANT_PROJECTS_MAX = 64,
    USER_PASSWORD_MIN = 8,  // characters
    USER_PASSWORD_MAX = 1024,
};

struct user_account {
    const char *name;
    const char *full_name, *email;
    const char *unix_user;  // NULL: none, they may look and not submit
    enum user_role role;
    bool disabled;  // cannot log in
    LIST(const char *) identities;
    uint64_t given[1];
};
extern const struct schema user_account_schema;

// "own:NAME", "pam:NAME" with the grammar of names, "oidc:PROVIDER:SUBJECT".
int user_identity_check(const char *identity, struct error *e);
int user_scopes_parse(const char *const *at, uint32_t len, uint32_t *out, struct error *e);  // none: all
uint32_t user_scopes_words(uint32_t scopes, const char *out[static 3]);  // 0 is all; how many words
