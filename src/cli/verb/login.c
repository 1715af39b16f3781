// acequia login, acequia logout, acequia whoami
#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/text.h"
#include "cli/client/addresses.h"
#include "cli/client/client.h"
#include "cli/client/daemon.h"
#include "cli/client/saved_login.h"
#include "cli/term/local_time.h"
#include "model/config.h"
#include "model/paths.h"
#include "model/units.h"
#include "verbs.h"

enum { POLL_LEAST_S = 1, POLL_MOST_S = 30 };

static const struct option_spec specs[] = {
    {"password", 0, NULL, "Ask for a name and password here instead of confirming in a browser.", 0, NULL,
     NULL},
    {"user", 'u', "NAME", "With --password: log in as this user; default: the one you are here.", 0, NULL,
     "@user"},
    {"method", 0, "WORD",
     "With --password: own (a user of the cluster) or pam (of the controller's machine).", 0, NULL,
     "own pam"},
    {"fingerprint", 0, "SHA256",
     "Fingerprint of the cluster, as 'acequia whoami' on the controller shows it; without it you are asked "
     "to compare.",
     0, NULL, NULL},
    {"scopes", 0, "WORDS",
     "What commands may do from here: read, submit, admin, joined by commas; default: all.", 0, NULL, NULL},
    {"project", 'P', "NAME", "They may act on jobs of this project only.", 0, NULL, "@project"},
    {"ttl", 0, "DURATION", "How long the login holds, such as 8h or 30d; default: as the cluster says.", 0,
     NULL, NULL},
};
static const struct option_table table_options = OPTION_TABLE("Options", specs);

struct login_run {
    struct cli *cli;
    struct paths paths;
    const char *server;  // addresses in normal form
    char fingerprint[CLIENT_FINGERPRINT_MAX];
    struct client *client;
};

static int use_server(struct login_run *l, const char *text) {
    cleanup_buf struct buf normal = {0};
    int r = addresses_normal(text, &normal, &l->cli->error);
    if (r == 0)
        l->server = arena_strdup(&l->cli->arena, buf_str(&normal));
    return r;
}

// The argument, the environment, the login before, or the configuration.
static int find_server(struct login_run *l) {
    struct cli *c = l->cli;
    const char *host = getenv("ACEQUIA_HOST");
    struct saved_login saved;
    if (c->count)
        return use_server(l, c->arguments[0]);
    if (!str_empty(host))
        return use_server(l, host);
    if (saved_login_read(l->paths.config_dir, &c->arena, &saved, &(struct error){0}) == 0)
        return use_server(l, saved.server);
    cleanup_config struct config config = {0};
    if (config_load(l->paths.config, clock_wall_ms(), 0, &config, &c->error) < 0)
        return -EINVAL;
    if (str_empty(config.cluster.controller))
        return error_set(&c->error, EINVAL, "which cluster? Give its address: acequia login HOST:PORT");
    return use_server(l, config.cluster.controller);
}

// Whom nobody has vouched for yet is shown, as ssh does.
static int meet(struct login_run *l) {
    struct cli *c = l->cli;
    char answer[16] = "";
    int r = client_open_at(c, l->server, l->fingerprint, NULL, &l->client);
    if (r < 0)
        return r;
    l->client = client_free(l->client);
    if (!isatty(STDIN_FILENO))
        return error_set(&c->error, EPERM,
                         "the cluster at %s is not known here. Compare the fingerprint with what 'acequia "
                         "whoami' shows on "
                         "the controller's machine, then: --fingerprint %s",
                         l->server, l->fingerprint);
    fprintf(stderr,
            "The cluster at %s is not known here. Its fingerprint is\n  %s\n"
            "'acequia whoami' on the controller's machine shows it too. Is it the same? (yes/no) ",
            l->server, l->fingerprint);
    if (!fgets(answer, sizeof answer, stdin) || strcmp(answer, "yes\n") != 0)
        return error_set(&c->error, EPERM, "not logged in: the fingerprint was not confirmed");
    return 0;
}

static int find_fingerprint(struct login_run *l) {
    struct cli *c = l->cli;
    const char *given = option_get(&c->options, "fingerprint");
    struct saved_login saved;
    if (given && (strlen(given) != CLIENT_FINGERPRINT_MAX - 1 ||
                  strspn(given, "0123456789abcdefABCDEF") != CLIENT_FINGERPRINT_MAX - 1))
        return error_set(&c->error, EINVAL, "--fingerprint is not 64 hexadecimal digits");
    if (!given && saved_login_read(l->paths.config_dir, &c->arena, &saved, &(struct error){0}) == 0 &&
        addresses_within(l->server, saved.server))
        given = saved.fingerprint;
    if (!given)
        return meet(l);
    snprintf(l->fingerprint, sizeof l->fingerprint, "%s", given);
    return 0;
}

static int call(struct login_run *l, const char *target, struct buf *body, struct reply *reply) {
    int r = client_call(l->client, "POST", target, body, reply);
    if (body->data)
        explicit_bzero(body->data, body->cap);
    if (r == 0 && !reply->json)
        r = error_set(&l->cli->error, EPROTO, "the controller's answer is not understood");
    return r;
}

static int keep(struct login_run *l, const char *token, const char *user, int64_t expires_ms) {
    struct cli *c = l->cli;
    cleanup_buf struct buf out = {0}, server = {0};
    char until[UNIT_TEXT_MAX];
    client_server_text(l->client, &server);
    struct saved_login saved = {.server = buf_str(&server),
                                .fingerprint = l->fingerprint,
                                .token = token,
                                .user = user,
                                .expires_ms = expires_ms};
    if (!token)
        return error_set(&c->error, EPROTO, "the controller's answer has no token");
    int r = saved_login_write(l->paths.config_dir, &saved, &c->arena, &c->error);
    if (r < 0)
        return r;
    struct json_writer w = {.out = &out};
    if (c->json) {
        json_open(&w, '{');
        json_kv_str(&w, "server", saved.server);
        json_kv_str(&w, "user", user);
        json_kv_i64(&w, "expires_ms", expires_ms);
        json_close(&w, '}');
    } else {
        buf_addf(&out, "Logged in at %s as %s", saved.server, user);
        if (expires_ms)
            buf_addf(&out, ", until %s", local_time_format(expires_ms, until));
    }
    buf_addc(&out, '\n');
    return cli_print(&out) == CLI_OK ? 0 : -EIO;
}

// --- with a password ---

static int find_method(struct login_run *l, const char **out) {
    struct cli *c = l->cli;
    struct reply reply;
    const char *given = option_get(&c->options, "method"), *only = NULL;
    int r = client_call(l->client, "GET", "/v1/login", NULL, &reply);
    const struct json *all = r == 0 ? json_get(reply.json, "methods") : NULL;
    uint32_t count = 0;
    bool offered = false;
    for (uint32_t i = 0; all && all->type == JSON_ARRAY && i < all->len; i++) {
        const char *one = all->items[i].type == JSON_STRING ? all->items[i].s : "";
        if (!streq(one, "own") && !streq(one, "pam"))
            continue;
        only = one;
        count++;
        offered = offered || streq(one, given);
    }
    if (r < 0)
        return r;
    if (!count || (given && !offered))
        return error_set(&c->error, ENOTSUP, "this cluster does not take %s; log in without --password",
                         given ? "that kind of password" : "passwords");
    if (!given && count > 1)
        return error_set(
            &c->error, EINVAL,
            "whose password? --method own is a user of the cluster, --method pam one of its machine");
    *out = given ? given : only;
    return 0;
}

static int by_password(struct login_run *l) {
    struct cli *c = l->cli;
    cleanup_buf struct buf body = {0}, password = {0};
    struct json_writer w = {.out = &body};
    struct reply reply;
    const char *method = NULL, *user = option_get(&c->options, "user"), *env = getenv("USER");
    int r = find_method(l, &method);
    if (r < 0)
        return r;
    if (!user && str_empty(env))
        return error_set(&c->error, EINVAL, "which user? Give --user NAME");
    if ((r = verb_read_password(c, arena_printf(&c->arena, "Password of %s", user ? user : env), &password)) <
        0)
        return r;
    json_open(&w, '{');
    json_kv_str(&w, "method", method);
    json_kv_str(&w, "user", user ? user : env);
    json_kv_str(&w, "password", buf_str(&password));
    json_kv_bool(&w, "token", true);
    r = verb_token_wish(c, &w);
    json_close(&w, '}');
    if (password.data)
        explicit_bzero(password.data, password.cap);
    if (r < 0 || (r = call(l, "/v1/login", &body, &reply)) < 0)
        return r;
    return keep(l, json_str(reply.json, "token"), json_str(reply.json, "user"),
                json_i64(reply.json, "token_expires_ms", 0));
}

// --- in a browser ---

static void write_ask(struct cli *c, struct buf *body) {
    struct json_writer w = {.out = body};
    char host[256] = "";
    const char *user = getenv("USER");
    gethostname(host, sizeof host - 1);
    json_open(&w, '{');
    json_kv_str(&w, "client",
                arena_printf(&c->arena, "acequia " ACEQUIA_VERSION " of %.60s@%.100s",
                             str_empty(user) ? "somebody" : user, host));
    verb_token_wish(c, &w);
    json_close(&w, '}');
}

static int wait_for_answer(struct login_run *l, const char *device_code, int64_t interval_s, int64_t until_ms,
                           struct reply *reply) {
    struct error *e = &l->cli->error;
    for (;;) {
        cleanup_buf struct buf body = {0};
        struct json_writer w = {.out = &body};
        json_open(&w, '{');
        json_kv_str(&w, "device_code", device_code);
        json_close(&w, '}');
        int r = call(l, "/v1/login/device/token", &body, reply);
        if (r < 0)
            return r;
        const char *state = json_str(reply->json, "state");
        if (streq(state, "granted"))
            return 0;
        if (streq(state, "denied"))
            return error_set(e, EACCES, "not logged in: it was refused in the portal");
        if (!streq(state, "pending") || clock_mono_ms() > until_ms)
            return error_set(e, ETIMEDOUT, "not logged in: nobody has confirmed it in time; try again");
        sleep((unsigned)interval_s);
    }
}

static int by_browser(struct login_run *l) {
    cleanup_buf struct buf body = {0};
    struct reply reply;
    write_ask(l->cli, &body);
    int r = call(l, "/v1/login/device", &body, &reply);
    if (r < 0)
        return r;
    const char *device = json_str(reply.json, "device_code"), *code = json_str(reply.json, "user_code"),
               *where = json_str(reply.json, "verification_uri"),
               *whole = json_str(reply.json, "verification_uri_complete");
    int64_t interval_s = json_i64(reply.json, "interval", 5),
            life_s = json_i64(reply.json, "expires_in", 600);
    interval_s = interval_s < POLL_LEAST_S  ? POLL_LEAST_S
                 : interval_s > POLL_MOST_S ? POLL_MOST_S
                                            : interval_s;
    if (!device || !code || !where)
        return error_set(&l->cli->error, EPROTO, "the controller's answer is not understood");
    cleanup_buf struct buf text = {0};
    buf_adds(&text, "In a browser, open  ");
    buf_add_visible(&text, whole ? whole : where);
    buf_adds(&text, "\nand confirm the code  ");
    buf_add_visible(&text, code);
    fprintf(stderr, "%s\nWaiting ...\n", buf_str(&text));
    r = wait_for_answer(l, device, interval_s, clock_mono_ms() + life_s * 1000, &reply);
    return r < 0 ? r
                 : keep(l, json_str(reply.json, "token"), json_str(reply.json, "user"),
                        json_i64(reply.json, "expires_ms", 0));
}

static int run_login(struct cli *c) {
    struct login_run l = {.cli = c};
    cleanup_buf struct buf unused = {0};
    if (!c->tls) {
        client_daemon_exec_client(c, &c->error);  // returns only when it failed
        return cli_fail(c);
    }
    if (verb_token_wish(c, &(struct json_writer){.out = &unused}) < 0)
        return cli_usage(c, "%s", arena_strdup(&c->arena, c->error.text));
    if (!option_given(&c->options, "password") &&
        (option_given(&c->options, "user") || option_given(&c->options, "method")))
        return cli_usage(c, "--%s needs --password; in a browser you say there who you are",
                         option_given(&c->options, "user") ? "user" : "method");
    if (paths_get(&c->arena, &l.paths, &c->error) < 0 || find_server(&l) < 0 || find_fingerprint(&l) < 0)
        return cli_fail(c);
    if (client_open_at(c, l.server, l.fingerprint, NULL, &l.client) < 0)
        return strstr(c->error.text, "certificate")
                   ? cli_failf(c,
                               "the cluster at %s does not have the fingerprint %s: it is another one, or "
                               "somebody is "
                               "in between. Compare with 'acequia whoami' on the controller's machine, and "
                               "give that "
                               "with --fingerprint",
                               l.server, l.fingerprint)
                   : cli_fail(c);
    int r = option_given(&c->options, "password") ? by_password(&l) : by_browser(&l);
    client_free(l.client);
    return r < 0 ? cli_fail(c) : CLI_OK;
}

const struct verb verb_login = {
    .name = "login",
    .group = "Cluster",
    .arguments = "[HOST[:PORT],...]",
    .summary = "log in to a cluster on another machine",
    .text =
        "Shows a code to confirm in the cluster's portal, where you log in as you always do; with --password "
        "asks for "
        "a name and password here. Commands go to that cluster from then on, until logout. The token they "
        "use is "
        "kept in the file login of your configuration folder (~/.config/acequia), which only you can read. "
        "Where several controllers share a database, name all of them: the one that leads is found by "
        "itself.",
    .examples =
        "acequia login head.lab.example\nacequia login head.lab.example:6820 --password --user ana --ttl 8h\n"
        "acequia login head.lab.example --scopes read\n"
        "acequia login head1.lab.example,head2.lab.example",
    .options = {&table_options, &cli_common_options},
    .run = run_login,
    .least = 0,
    .most = 1,
};

// --- and out ---

// "aq1.ID.SECRET.FINGERPRINT"
static const char *token_id(struct cli *c, const char *token) {
    const char *at = strchr(token, '.');
    return at ? arena_strndup(&c->arena, at + 1, strcspn(at + 1, ".")) : "";
}

static int run_logout(struct cli *c) {
    struct paths p;
    struct saved_login saved;
    struct client *k;
    struct reply reply;
    char until[UNIT_TEXT_MAX], fingerprint[CLIENT_FINGERPRINT_MAX];
    if (!c->tls) {
        client_daemon_exec_client(c, &c->error);
        return cli_fail(c);
    }
    int r = paths_get(&c->arena, &p, &c->error);
    r = r < 0 ? r : saved_login_read(p.config_dir, &c->arena, &saved, &c->error);
    if (r == -ENOENT)
        return cli_failf(c, "you are not logged in to a cluster on another machine; see acequia login");
    if (r < 0)
        return cli_fail(c);
    snprintf(fingerprint, sizeof fingerprint, "%s", saved.fingerprint);
    r = client_open_at(c, saved.server, fingerprint, saved.token, &k);
    if (r == 0) {
        r = client_call(k, "DELETE", arena_printf(&c->arena, "/v1/tokens/%s", token_id(c, saved.token)), NULL,
                        &reply);
        client_free(k);
    }
    saved_login_remove(p.config_dir, &c->arena);
    // One that the controller does not know any more is as good as revoked.
    if (r < 0 && r != -EACCES && r != -ENOENT) {
        cli_note("the token could not be revoked (%s); it holds until %s. Revoke it with 'acequia token "
                 "revoke %s'",
                 c->error.text, local_time_format(saved.expires_ms, until), token_id(c, saved.token));
        return CLI_FAILED;
    }
    printf("Logged out from %s\n", saved.server);
    return CLI_OK;
}

const struct verb verb_logout = {
    .name = "logout",
    .group = "Cluster",
    .arguments = "",
    .summary = "end the login of acequia login",
    .text =
        "Revokes the token and removes it from this machine. Commands use the cluster of this machine again.",
    .examples = "acequia logout",
    .options = {&cli_common_options},
    .run = run_logout,
    .least = 0,
    .most = 0,
};

// --- who one is ---

// What may be done from here; the scope admin gives nothing to somebody who is no administrator or operator.
static void add_scopes(struct buf *out, const struct json *list, bool plain_user) {
    bool any = false;
    for (uint32_t i = 0; list && list->type == JSON_ARRAY && i < list->len; i++) {
        const char *word = list->items[i].type == JSON_STRING ? list->items[i].s : NULL;
        if (!word || (plain_user && streq(word, "admin")))
            continue;
        buf_addf(out, "%s%s", any ? ", " : "", word);
        any = true;
    }
}

static void describe(const struct client *k, const struct json *me, const struct json *about,
                     struct buf *out) {
    const char *identity = json_str(me, "identity"), *project = json_str(me, "project"),
               *fingerprint = json_str(about, "fingerprint");
    buf_adds(out, "User         ");
    buf_add_visible(out, json_str(me, "user") ? json_str(me, "user") : "?");
    if (identity)
        buf_addf(out, " (%s)", identity);
    buf_addf(out, "\nRole         %s\nMay          ", json_str(me, "role"));
    add_scopes(out, json_get(me, "scopes"), streq(json_str(me, "role"), "user"));
    if (project)
        buf_addf(out, ", of project %s alone", project);
    buf_addf(out, "\nCluster      %s at ", json_str(about, "cluster"));
    client_server_text(k, out);
    if (fingerprint)
        buf_addf(out, "\nFingerprint  %s", fingerprint);
    buf_addc(out, '\n');
}

static int run_whoami(struct cli *c) {
    cleanup_buf struct buf out = {0};
    struct client *k;
    struct reply me, about;
    if (client_open(c, &k) < 0)
        return cli_fail(c);
    int r = client_call(k, "GET", "/v1/me", NULL, &me);
    r = r < 0 ? r : client_call(k, "GET", "/v1/login", NULL, &about);
    if (r == 0 && c->json)
        buf_addf(&out, "%s\n", me.text);
    else if (r == 0)
        describe(k, me.json, about.json, &out);
    client_free(k);
    return r < 0 ? cli_fail(c) : cli_print(&out);
}

const struct verb verb_whoami = {
    .name = "whoami",
    .group = "Cluster",
    .arguments = "",
    .summary = "who you are to the cluster, and which cluster",
    .text = "The fingerprint is that of the cluster's certificate authority: 'acequia login' on another "
            "machine shows it "
            "to be compared.",
    .examples = "acequia whoami",
    .options = {&cli_common_options},
    .run = run_whoami,
    .least = 0,
    .most = 0,
};
