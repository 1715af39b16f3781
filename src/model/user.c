// Accounts, identities and scopes: their grammar and tables.
#include "model/user.h"

#include <errno.h>
#include <string.h>

#include "base/text.h"
#include "model/name.h"

const char *const user_role_words[] = {"user", "operator", "admin", NULL};
static const char *const scope_words[] = {"read", "submit", "admin"};

#define S struct user_account
static const struct field account_fields[] = {
    FIELD(1, S, name, "Name of the account; own users log in with it."),
    FIELD(2, S, full_name, "The person's name."),
    FIELD(3, S, email, "Mail address."),
    FIELD(4, S, unix_user, "Unix user that jobs run as; null: none, the person has read-only access."),
    FIELD_WORDS(5, S, role, user_role_words,
                "user; operator: acts on everybody's jobs, on nodes and reservations; admin: everything."),
    FIELD(6, S, disabled, "Cannot log in."),
    FIELD_LIST(7, S, identities,
               "Other logins of the same person: pam:NAME, oidc:PROVIDER:SUBJECT. own:NAME is always one."),
};
const struct schema user_account_schema = SCHEMA_GIVEN(S, "an account", account_fields);
#undef S

int user_identity_check(const char *identity, struct error *e) {
    size_t len = strlen(identity);
    char shown[96];
    if (len <= USER_IDENTITY_MAX && str_utf8_valid(identity, len) && !str_has_control_chars(identity, len) &&
        !strchr(identity, ' ')) {
        if (str_has_prefix(identity, "own:") || str_has_prefix(identity, "pam:"))
            return name_check("identity", identity + 4, e);
        char name[IDENTIFIER_MAX + 1];
        const char *colon = str_has_prefix(identity, "oidc:") ? strchr(identity + 5, ':') : NULL;
        size_t n = colon ? (size_t)(colon - identity - 5) : 0;
        if (n && n < sizeof name && colon[1]) {
            memcpy(name, identity + 5, n);
            name[n] = 0;
            return name_check("identity", name, e);
        }
    }
    return error_set(e, EINVAL,
                     "identity: \"%s\" is not an identity; expected own:NAME, pam:NAME or oidc:PROVIDER:SUBJECT",
                     str_printable(identity, shown, sizeof shown));
}

int user_scopes_parse(const char *const *at, uint32_t len, uint32_t *out, struct error *e) {
    uint32_t scopes = 0;
    for (uint32_t i = 0; i < len; i++) {
        uint32_t k = 0;
        char shown[64];
        while (k < 3 && !streq(scope_words[k], at[i]))
            k++;
        if (k == 3)
            return error_set(e, EINVAL, "scopes: \"%s\" is not a scope; expected read, submit or admin",
                             str_printable(at[i], shown, sizeof shown));
        scopes |= 1u << k;
    }
    if (scopes & (USER_SCOPE_SUBMIT | USER_SCOPE_ADMIN))
        scopes |= USER_SCOPE_READ;  // what is changed is also seen
    *out = scopes;
    return 0;
}

uint32_t user_scopes_words(uint32_t scopes, const char *out[static 3]) {
    uint32_t n = 0;
    for (uint32_t k = 0; k < 3; k++)
        if (!scopes || scopes >> k & 1)
            out[n++] = scope_words[k];
    return n;
}
