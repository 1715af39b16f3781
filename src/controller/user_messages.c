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
    FIELD_LIST(5, S, scopes,
               "What the token shall allow: read, submit, admin; none: all that the person may do."),
    FIELD(6, S, project, "Project whose jobs the token shall be limited to."),
    FIELD(7, S, ttl_s, "How long the token shall hold, at most a year; 0: as long as a session.",
          .max = 31536000),
};
const struct schema request_login_schema = SCHEMA_GIVEN(S, "a login", login_fields);
#undef S
static const struct field code_fields[] = {
    FIELD(1, struct request_code, code, "The code of the link, which works once.", .required = true)};
const struct schema request_code_schema = SCHEMA(struct request_code, "a code", code_fields);
#define S struct request_oidc
static const struct field oidc_fields[] = {
    FIELD(1, S, code, "The provider's code.", .required = true, .min = 1, .max = 4096),
    FIELD(2, S, state, "The state that came back with it.", .required = true),
    FIELD(3, S, iss, "The issuer that came back with it, if one did."),
};
const struct schema request_oidc_schema = SCHEMA(S, "a provider's answer", oidc_fields);
#undef S
#define S struct request_device
static const struct field device_fields[] = {
    FIELD_LIST(1, S, scopes,
               "What the token shall allow: read, submit, admin; none: all that the person may do."),
    FIELD(2, S, project, "Project whose jobs it shall be limited to."),
    FIELD(3, S, client, "What asks, for the person who is asked: program and machine.", .max = 200),
    FIELD(4, S, ttl_s, "How long it shall hold; 0: as long as a login, session_max."),
};
const struct schema request_device_schema = SCHEMA(S, "a program that asks to be logged in", device_fields);
#undef S
static const struct field device_code_fields[] = {FIELD(
    1, struct request_device_code, device_code, "The code that the program was given.", .required = true)};
const struct schema request_device_code_schema =
    SCHEMA(struct request_device_code, "a device code", device_code_fields);
static const struct field device_answer_fields[] = {
    FIELD(1, struct request_device_answer, allow, "Whether it is given what it asks for.", .required = true)};
const struct schema request_device_answer_schema =
    SCHEMA(struct request_device_answer, "the answer to a program", device_answer_fields);
#define S struct request_user
static const struct field request_user_fields[] = {
    FIELD(1, S, full_name, "The person's name."),
    FIELD(2, S, email, "Mail address."),
    FIELD(3, S, unix_user, "Unix user that jobs run as; empty: none, the person has read-only access."),
    FIELD_WORDS(4, S, role, user_role_words, "user, operator or admin."),
    FIELD(5, S, disabled, "The person cannot log in; open sessions end."),
    FIELD_LIST(6, S, identities, "Other logins of the same person: pam:NAME, oidc:PROVIDER:SUBJECT."),
};
const struct schema request_user_schema = SCHEMA_GIVEN(S, "an account", request_user_fields);
#undef S
#define S struct request_password
static const struct field password_fields[] = {
    FIELD(1, S, password, "The new one.", .required = true, .min = USER_PASSWORD_MIN,
          .max = USER_PASSWORD_MAX),
    FIELD(2, S, current, "The current password; needed to change one's own."),
};
const struct schema request_password_schema = SCHEMA(S, "a password", password_fields);
#undef S

#define S struct answer_provider
static const struct field provider_fields[] = {
    FIELD(1, S, name, "Its name, part of the address where a login begins."),
    FIELD(2, S, title, "Its name for people."),
};
static const struct schema provider_schema = SCHEMA(S, "a provider of OpenID Connect", provider_fields);
#undef S
static const struct field oidc_begun_fields[] = {
    FIELD(1, struct answer_oidc_begun, url, "The provider's login page, where the browser goes next.")};
const struct schema answer_oidc_begun_schema =
    SCHEMA(struct answer_oidc_begun, "a login by way of a provider", oidc_begun_fields);
#define S struct answer_device_begun
static const struct field device_begun_fields[] = {
    FIELD(1, S, device_code, "By which the program asks for its token."),
    FIELD(2, S, user_code, "What the person enters in the portal."),
    FIELD(3, S, verification_uri, "Where."),
    FIELD(4, S, verification_uri_complete, "The same with the code."),
    FIELD(5, S, expires_in, "Seconds until it is too late."),
    FIELD(6, S, interval, "Seconds between two questions for the token."),
};
const struct schema answer_device_begun_schema = SCHEMA(S, "the login of a program", device_begun_fields);
#undef S
#define S struct answer_device
static const struct field device_shown_fields[] = {
    FIELD(1, S, user_code, "The code."),
    FIELD(2, S, client, "What asks, as it says itself."),
    FIELD(3, S, from, "Address it asks from."),
    FIELD_LIST(4, S, scopes, "What its token would allow."),
    FIELD(5, S, project, "Project it would be limited to; null: none."),
    FIELD(6, S, ttl_s, "How long it would hold."),
    FIELD(7, S, asked_ms, "When it asked."),
};
const struct schema answer_device_schema =
    SCHEMA(S, "a program that asks to be logged in", device_shown_fields);
#undef S
const char *const answer_device_words[] = {"pending", "granted", "denied", "expired", NULL};
#define S struct answer_device_token
static const struct field device_token_fields[] = {
    FIELD_WORDS(1, S, state, answer_device_words,
                "pending: nobody has answered yet; granted, denied, expired."),
    FIELD(2, S, token, "The token, given once."),
    FIELD(3, S, user, "Unix user that it is for."),
    FIELD(4, S, expires_ms, "When it ends."),
};
const struct schema answer_device_token_schema = SCHEMA(S, "the token of a program", device_token_fields);
#undef S
#define S struct answer_login_methods
static const struct field methods_fields[] = {
    FIELD(1, S, cluster, "Name of the cluster."),
    FIELD_LIST(2, S, methods, "Ways to log in: own, pam, oidc."),
    FIELD_LIST_SUB(3, S, providers, &provider_schema, "Providers of OpenID Connect."),
    FIELD(4, S, fingerprint,
          "SHA-256 of the certificate of the cluster's authority, to compare with what `acequia login` "
          "shows; null: the "
          "controller serves only its own machine."),
};
const struct schema answer_login_methods_schema = SCHEMA(S, "ways to log in", methods_fields);
#undef S
#define S struct answer_session
static const struct field session_fields[] = {
    FIELD(1, S, id, "Its id."),
    FIELD(2, S, identity, "Who logged in: own:NAME, pam:NAME or oidc:PROVIDER:SUBJECT."),
    FIELD(3, S, user, "Unix user; null: none."),
    FIELD(4, S, from, "Address it was begun from."),
    FIELD(5, S, agent, "Program it was begun with."),
    FIELD(6, S, begun_ms, "When it began."),
    FIELD(7, S, seen_ms, "When it was used last, within minutes."),
    FIELD(8, S, expires_ms, "When it ends at the latest."),
    FIELD(9, S, idle_s, "It ends when it was not used for this long."),
    FIELD(10, S, current, "It is the session of this request."),
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
    FIELD(2, S, identity, "Who logged in; null: authenticated by the socket or a token."),
    FIELD(3, S, full_name, "The person's name."),
    FIELD_WORDS(4, S, role, user_role_words, "Role."),
    FIELD(5, S, uid, "Number of the Unix user."),
    FIELD(6, S, gid, "Number of its group."),
    FIELD(7, S, may_submit, "Whether jobs can be submitted; else access is read-only."),
    FIELD_LIST(8, S, scopes, "What the token or login allows: read, submit, admin."),
    FIELD(9, S, project, "Project whose jobs the token is limited to; null: all."),
    FIELD_LIST_SUB(10, S, projects, &membership_schema, "Projects one may submit to."),
    FIELD_WORDS(11, S, via, answer_via_words, "How the caller was authenticated."),
    FIELD_SUB(12, S, session, &session_schema, "The login session; null: none."),
    FIELD_LIST(13, S, capabilities,
               "What one may do: submit, jobs (everybody's), nodes, reservations, projects, policy, users, "
               "tokens, audit, "
               "reload."),
    FIELD(14, S, token, "The token that was asked for at a login."),
    FIELD(15, S, token_expires_ms, "When that one ends."),
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
#define S struct request_share
static const struct field request_share_fields[] = {
    FIELD(1, S, port, "The port that its program listens on; 0: the first HTTP port of the job.",
          .max = 65535),
    FIELD(2, S, user, "The user who may use it."),
    FIELD(3, S, project, "The members of the job's project may use it."),
    FIELD(4, S, for_s, "For how long; 0: 8 hours."),
};
const struct schema request_share_schema = SCHEMA(S, "a share", request_share_fields);
#undef S
#define S struct answer_app_share
static const struct field answer_app_share_fields[] = {
    FIELD(1, S, port, "The port that its program listens on."),
    FIELD(2, S, user, "The user who may use it; null: a project."),
    FIELD(3, S, project, "The project whose members may use it; null: a user."),
    FIELD(4, S, by, "Who shared it."),
    FIELD(5, S, url, "Its address; null: it has none this way."),
    FIELD(6, S, made_ms, "When it was shared."),
    FIELD(7, S, expires_ms, "Until when."),
};
const struct schema answer_app_share_schema = SCHEMA(S, "a share", answer_app_share_fields);
#undef S
#define S struct answer_app_shares
static const struct field answer_app_shares_fields[] = {
    FIELD_LIST_SUB(1, S, shares, &answer_app_share_schema, "With whom its programs are shared now."),
};
const struct schema answer_app_shares_schema = SCHEMA(S, "shares", answer_app_shares_fields);
#undef S
#define S struct answer_app_opened
static const struct field app_opened_fields[] = {
    FIELD(1, S, url, "The program's address, for those who are logged in to the portal."),
    FIELD(2, S, link, "Opens it, logged in; works once."),
    FIELD(3, S, port, "The port that its program listens on."),
    FIELD(4, S, expires_ms, "The link works until then."),
};
const struct schema answer_app_opened_schema = SCHEMA(S, "a link to a program", app_opened_fields);
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
