// The tables of requests and answers about people.
#include "user_messages.h"

const char *const answer_login_words[] = {"own", "pam", NULL};
const char *const answer_via_words[] = {"socket", "token", "session", NULL};

#define S struct request_login
static const struct field login_fields[] = {
    FIELD_WORDS(1, S, method, answer_login_words,
                "own: a user of Acequia; pam: a user of the controller's machine.", .required = true),
    FIELD(2, S, user, "Name.", .required = true),
    FIELD(3, S, password, "Password.", .required = true, .min = 1, .max = USER_PASSWORD_MAX),
    FIELD(4, S, token, "Answer with a token for the command line instead of a cookie."),
};
const struct schema request_login_schema = SCHEMA_GIVEN(S, "a login", login_fields);
#undef S
static const struct field code_fields[] = {
    FIELD(1, struct request_code, code, "The code of the link, which works once.", .required = true)};
const struct schema request_code_schema = SCHEMA(struct request_code, "a code", code_fields);
#define S struct request_user
static const struct field request_user_fields[] = {
    FIELD(1, S, full_name, "The person's name."),
    FIELD(2, S, email, "Mail address."),
    FIELD(3, S, unix_user, "Unix user that jobs run as; empty: none, the person may look and not submit."),
    FIELD_WORDS(4, S, role, user_role_words, "user, operator or admin."),
    FIELD(5, S, disabled, "Cannot log in; logins that are open end."),
    FIELD_LIST(6, S, identities, "Other logins of the same person: pam:NAME, oidc:ISSUER/SUBJECT."),
};
const struct schema request_user_schema = SCHEMA_GIVEN(S, "an account", request_user_fields);
#undef S
#define S struct request_password
static const struct field password_fields[] = {
    FIELD(1, S, password, "The new one.", .required = true, .min = USER_PASSWORD_MIN,
          .max = USER_PASSWORD_MAX),
    FIELD(2, S, current, "The one until now, to change one's own."),
};
const struct schema request_password_schema = SCHEMA(S, "a password", password_fields);
#undef S

#define S struct answer_login_methods
static const struct field methods_fields[] = {
    FIELD(1, S, cluster, "Name of the cluster."),
    FIELD_LIST(2, S, methods, "Ways to log in: own, pam."),
};
const struct schema answer_login_methods_schema = SCHEMA(S, "ways to log in", methods_fields);
#undef S
#define S struct answer_session
static const struct field session_fields[] = {
    FIELD(1, S, id, "Its id."),
    FIELD(2, S, identity, "Who logged in: own:NAME, pam:NAME or oidc:ISSUER/SUBJECT."),
    FIELD(3, S, user, "Unix user; null: none."),
    FIELD(4, S, from, "Address it was begun from."),
    FIELD(5, S, agent, "Program it was begun with."),
    FIELD(6, S, begun_ms, "When it began."),
    FIELD(7, S, seen_ms, "When it was used last, within minutes."),
    FIELD(8, S, expires_ms, "When it ends at the latest."),
    FIELD(9, S, idle_s, "It ends when it was not used for this long."),
    FIELD(10, S, current, "It is the one that asks."),
};
static const struct schema session_schema = SCHEMA(S, "a login session", session_fields);
#undef S
static const struct field sessions_fields[] = {FIELD_LIST_SUB(
    1, struct answer_sessions, sessions, &session_schema, "One's own; for administrators all.")};
const struct schema answer_sessions_schema =
    SCHEMA(struct answer_sessions, "login sessions", sessions_fields);
#define S struct answer_membership
static const struct field membership_fields[] = {
    FIELD(1, S, name, "Project."),
    FIELD(2, S, lead, "One leads it."),
};
static const struct schema membership_schema = SCHEMA(S, "a membership", membership_fields);
#undef S
#define S struct answer_me
static const struct field me_fields[] = {
    FIELD(1, S, user, "Unix user; of a login without one its identity."),
    FIELD(2, S, identity, "Who logged in; null: known by the socket or a token."),
    FIELD(3, S, full_name, "The person's name."),
    FIELD_WORDS(4, S, role, user_role_words, "Role."),
    FIELD(5, S, uid, "Number of the Unix user."),
    FIELD(6, S, gid, "Number of its group."),
    FIELD(7, S, may_submit, "Whether jobs can be submitted; else one may only look."),
    FIELD_LIST(8, S, scopes, "What the token or login allows: read, submit, admin."),
    FIELD(9, S, project, "Project whose jobs the token is limited to; null: all."),
    FIELD_LIST_SUB(10, S, projects, &membership_schema, "Projects one may submit to."),
    FIELD_WORDS(11, S, via, answer_via_words, "How one is known."),
    FIELD_SUB(12, S, session, &session_schema, "The login; null: none."),
    FIELD_LIST(13, S, capabilities,
               "What one may do: submit, jobs (everybody's), nodes, reservations, projects, policy, users, "
               "tokens, audit, "
               "reload."),
    FIELD(14, S, token, "The token that was asked for at a login."),
};
const struct schema answer_me_schema = SCHEMA(S, "oneself", me_fields);
#undef S
#define S struct answer_portal_link
static const struct field link_fields[] = {
    FIELD(1, S, url, "Opens the portal, logged in; works once."),
    FIELD(2, S, expires_ms, "Until then."),
};
const struct schema answer_portal_link_schema = SCHEMA(S, "a link to the portal", link_fields);
#undef S
#define S struct answer_user
static const struct field user_fields[] = {
    FIELD(1, S, name, "Name of the account; own users log in with it."),
    FIELD(2, S, full_name, "The person's name."),
    FIELD(3, S, email, "Mail address."),
    FIELD(4, S, unix_user, "Unix user that jobs run as; null: none."),
    FIELD_WORDS(5, S, role, user_role_words, "Role."),
    FIELD_LIST(6, S, identities, "Other logins of the same person."),
    FIELD(7, S, has_password, "Can log in with a password of its own."),
    FIELD(8, S, disabled, "Cannot log in."),
    FIELD(9, S, set_ms, "When it was changed last."),
};
const struct schema answer_user_schema = SCHEMA(S, "a person's account", user_fields);
#undef S
static const struct field users_fields[] = {
    FIELD_LIST_SUB(1, struct answer_users, users, &answer_user_schema, "All accounts.")};
const struct schema answer_users_schema = SCHEMA(struct answer_users, "accounts of people", users_fields);
