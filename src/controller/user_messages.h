// Requests and answers about people: logins, sessions, accounts.
#pragma once
#include "base/schema.h"
#include "model/user.h"

struct request_login {
    unsigned method;  // answer_login_words
    const char *user, *password;
    bool token;
    LIST(const char *) scopes;
    const char *project;
    uint32_t ttl_s;
    uint64_t given[1];
};
struct request_code {
    const char *code;
};
struct request_oidc {
    const char *code, *state, *iss;
};
struct request_device {
    LIST(const char *) scopes;
    const char *project, *client;
    uint32_t ttl_s;
};
struct request_device_code {
    const char *device_code;
};
struct request_device_answer {
    bool allow;
};
struct request_user {
    const char *full_name, *email, *unix_user;
    enum user_role role;
    bool disabled;
    LIST(const char *) identities;
    uint64_t given[1];
};
struct request_password {
    const char *password, *current;
};
extern const struct schema request_login_schema, request_code_schema, request_user_schema,
    request_password_schema, request_oidc_schema, request_device_schema, request_device_code_schema,
    request_device_answer_schema;

extern const char *const answer_login_words[], *const answer_via_words[];
extern const char *const answer_device_words[];
enum answer_device_state { DEVICE_PENDING, DEVICE_GRANTED, DEVICE_DENIED, DEVICE_EXPIRED };
struct answer_provider {
    const char *name, *title;
};
struct answer_login_methods {
    const char *cluster;
    LIST(const char *) methods;
    LIST(struct answer_provider) providers;
    const char *fingerprint;
};
struct answer_oidc_begun {
    const char *url;
};
struct answer_device_begun {
    const char *device_code, *user_code, *verification_uri, *verification_uri_complete;
    uint32_t expires_in, interval;
};
struct answer_device {
    const char *user_code, *client, *from;
    LIST(const char *) scopes;
    const char *project;
    uint32_t ttl_s;
    int64_t asked_ms;
};
struct answer_device_token {
    unsigned state;  // answer_device_words
    const char *token, *user;
    int64_t expires_ms;
};
struct answer_membership {
    const char *name;
    bool lead;
};
struct answer_session {
    const char *id, *identity, *user, *from, *agent;
    int64_t begun_ms, seen_ms, expires_ms;
    uint32_t idle_s;
    bool current;
};
struct answer_sessions {
    LIST(struct answer_session) sessions;
};
struct answer_me {
    const char *user, *identity, *full_name;
    enum user_role role;
    uint32_t uid, gid;
    bool may_submit;
    LIST(const char *) scopes;
    const char *project;
    LIST(struct answer_membership) projects;
    unsigned via;  // answer_via_words
    struct answer_session *session;
    LIST(const char *) capabilities;
    const char *token;
    int64_t token_expires_ms;
};
struct answer_portal_link {
    const char *url;
    int64_t expires_ms;
};
struct request_share {
    uint32_t port;
    const char *user;
    bool project;
    uint32_t for_s;
};
struct answer_app_share {
    uint32_t port;
    const char *user, *project, *by, *url;
    int64_t made_ms, expires_ms;
};
struct answer_app_shares {
    LIST(struct answer_app_share) shares;
};
extern const struct schema request_share_schema, answer_app_share_schema, answer_app_shares_schema;
struct answer_app_opened {
    const char *url, *link;
    uint32_t port;
    int64_t expires_ms;
};
extern const struct schema answer_app_opened_schema;
struct answer_user {
    const char *name, *full_name, *email, *unix_user;
    enum user_role role;
    LIST(const char *) identities;
    bool has_password, disabled;
    int64_t set_ms;
};
struct answer_users {
    LIST(struct answer_user) users;
};
extern const struct schema answer_oidc_begun_schema, answer_device_begun_schema, answer_device_schema,
    answer_device_token_schema;
extern const struct schema answer_login_methods_schema, answer_me_schema, answer_sessions_schema,
    answer_portal_link_schema, answer_user_schema, answer_users_schema;
