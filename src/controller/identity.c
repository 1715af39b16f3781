// Who a request comes from: the kernel's word on the unix socket, a token, or the cookie of a login. From there to the
// Unix user that jobs run as, and to the role. Nothing in a body counts.
#include <errno.h>
#include <string.h>

#include "api.h"
#include "base/clock.h"
#include "base/log.h"
#include "base/text.h"
#include "login.h"
#include "net/token.h"

static bool is_admin(const struct controller *c, const char *user, uid_t uid) {
    if (uid == 0 || uid == c->uid)
        return true;
    for (uint32_t i = 0; i < c->config.cluster.admins.len; i++)
        if (streq(c->config.cluster.admins.at[i], user))
            return true;
    return false;
}

// Passes of connections: the id of a token, or 's' and that of a login.
static bool pass_holds(const char *pass, void *ctx) {
    const struct core *core = ((struct controller *)ctx)->core;
    int64_t now = controller_now_ms();
    return *pass == 's' ? core_session_holds(core, pass + 1, now) : core_token_holds(core, pass, now);
}

// Whoever was let in by a token or login, and still streams or follows, goes with it.
void api_end_tokens(struct controller *c) {
    uint32_t ended = net_server_end_passes(c->server, pass_holds, c);
    if (ended)
        log_info("%u connections ended with their tokens or logins", ended);
}

// Who somebody is that was identified a moment ago (`again`) is not asked anew.
static int find_user(struct controller *c, uid_t uid, const char *name, bool again,
                     const struct user_info **out, struct error *e) {
    *out = again ? users_last(c->users, uid, name) : NULL;
    if (*out)
        return 0;
    return name ? users_by_name(c->users, name, clock_mono_ms(), out, e)
                : users_by_uid(c->users, uid, clock_mono_ms(), out, e);
}

static void give_role(const struct controller *c, const struct core_person *p, struct actor *out) {
    out->admin = is_admin(c, out->user, out->uid) || p->role == USER_ROLE_ADMIN;
    out->operates = p->role == USER_ROLE_OPERATOR;
    if (out->scopes && !(out->scopes & USER_SCOPE_ADMIN))
        out->admin = out->operates = false;
}

int api_actor_of_token(struct controller *c, const char *header, bool again, struct arena *a,
                       struct actor *out, char *id, struct error *e) {
    struct token t;
    char hash[TOKEN_SHA256_HEX + 1];
    const struct user_info *found;
    struct core_person p;
    if (!str_has_prefix(header, "Bearer ") || token_parse(header + 7, &t, NULL) < 0)
        return -EACCES;
    token_hash(&t, hash);
    const struct event_token *token = core_token_of_user(c->core, t.id, hash, controller_now_ms());
    memcpy(id, t.id, sizeof t.id);
    token_wipe(&t);
    int r = token ? find_user(c, 0, token->user, again, &found, e) : -EACCES;
    if (r < 0)
        return r == -ENOENT ? -EACCES : r;
    core_person(c->core, NULL, token->user, &p);
    if (p.disabled)
        return -EACCES;
    *out = (struct actor){.user = arena_strdup(a, token->user),
                          .uid = found->uid,
                          .gid = found->gid,
                          .until_ms = token->expires_ms,
                          .scopes = token->scopes,
                          .project = core_intern(c->core, token->project)};
    give_role(c, &p, out);
    return 0;
}

static int actor_by_token(struct controller *c, struct net_request *req, const char *header, bool again,
                          struct arena *a, struct actor *out, struct error *e) {
    char id[TOKEN_ID_HEX + 1] = "";
    int r = api_actor_of_token(c, header, again, a, out, id, e);
    if (r == 0)
        net_request_set_pass(req, id);
    return r;
}

int api_actor_of_person(struct controller *c, const char *identity, const char *claimed, bool again,
                        struct arena *a, struct actor *out, struct error *e) {
    const struct user_info *found = NULL;
    struct core_person p;
    core_person(c->core, identity, claimed, &p);
    if (p.disabled)
        return -EACCES;
    int r = p.unix_user ? find_user(c, 0, p.unix_user, again, &found, e) : -ENOENT;
    if (r < 0 && r != -ENOENT)
        return r;
    // A provider makes nobody a user of the system's own: only an account that an administrator has made does.
    if (r < 0 || (p.by_claim && found->uid < login_oidc_min_uid(c, identity))) {
        *out = (struct actor){.user = arena_strdup(a, identity),
                              .uid = UINT32_MAX,
                              .gid = UINT32_MAX,
                              .scopes = USER_SCOPE_READ,
                              .identity = core_intern(c->core, identity)};
        return 0;
    }
    *out = (struct actor){.user = arena_strdup(a, p.unix_user),
                          .uid = found->uid,
                          .gid = found->gid,
                          .identity = core_intern(c->core, identity)};
    give_role(c, &p, out);
    return 0;
}

static int actor_by_session(struct controller *c, struct net_request *req, bool again, struct arena *a,
                            struct actor *out, struct error *e) {
    const struct event_session *s = login_session(c, req);
    char pass[NET_PASS_MAX + 1];
    if (!s)
        return -EACCES;
    snprintf(pass, sizeof pass, "s%s", s->id);
    net_request_set_pass(req, pass);
    return api_actor_of_person(c, s->identity, s->unix_user, again, a, out, e);
}

int api_actor_of(struct controller *c, struct net_request *req, bool again, struct arena *a,
                 struct actor *out, struct error *e) {
    const char *header = http_message_header(req->http, "Authorization");
    struct core_person p;
    if (req->peer->kind != NET_PEER_UNIX)
        return header ? actor_by_token(c, req, header, again, a, out, e)
                      : actor_by_session(c, req, again, a, out, e);
    const struct user_info *found;
    int r = find_user(c, req->peer->uid, NULL, again, &found, e);
    if (r < 0 && r != -ENOENT)
        return r;
    // No name: the number stands for it.
    const char *user =
        r == 0 ? arena_strdup(a, found->name) : arena_printf(a, "%u", (unsigned)req->peer->uid);
    *out = (struct actor){.user = user, .uid = req->peer->uid, .gid = req->peer->gid};
    core_person(c->core, NULL, user, &p);
    give_role(c, &p, out);
    return 0;
}

int api_need_user(struct api_call *call, const char *field, const char *user, struct error *e) {
    const struct user_info *found;
    int r = users_by_name(call->controller->users, user, clock_mono_ms(), &found, e);
    if (r == -EINPROGRESS)
        vec_push(&call->controller->unidentified, call->req);
    if (r == -ENOENT)
        r = error_set(e, ENOENT, "%s: there is no user %.64s on the controller's machine", field, user);
    return r;
}
