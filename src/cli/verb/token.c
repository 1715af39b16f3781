// acequia token
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "base/cleanup.h"
#include "base/clock.h"
#include "base/json.h"
#include "base/text.h"
#include "cli/client/client.h"
#include "cli/term/local_time.h"
#include "cli/term/table.h"
#include "verbs.h"
#include "model/name.h"
#include "model/units.h"

enum { TTL_MAX_S = 365 * 86400 };

static const struct option_spec specs[] = {
    {"user", 'u', "NAME",
     "Token for this user's commands on other machines; default: a token for an agent to join.", 0, NULL, NULL},
    {"node", 0, "NAME", "The agent may join only under this name.", 0, NULL, NULL},
    {"ttl", 0, "DURATION", "Lifetime, such as 1h or 30d; a bare number is seconds.", 0, NULL, NULL},
    {"scopes", 0, "WORDS", "What a user's token allows: read, submit, admin, joined by commas; default: all.", 0,
     NULL, NULL},
    {"project", 'P', "NAME", "A user's token acts on jobs of this project only.", 0, NULL, "@project"},
    {"output", 'o', "FILE", "Write the token into this new file, readable only by you.", 0, NULL, "@file"},
};
static const struct option_table table_options = OPTION_TABLE("Options of create", specs);

static int write_secret(struct cli *c, int fd, const char *file, const char *token) {
    if (write(fd, token, strlen(token)) != (ssize_t)strlen(token) || write(fd, "\n", 1) != 1)
        return error_set(&c->error, errno ? errno : ENOSPC, "cannot write the file %s: %s", file,
                         strerror(errno ? errno : ENOSPC));
    return 0;
}

static void tell_use(struct buf *out, const char *file, const char *user, const char *address,
                     const struct json *reply) {
    char until[UNIT_TEXT_MAX];
    buf_addf(out, "Token written to %s; valid %suntil %s.\n", file, user ? "" : "for one node, ",
             local_time_format(json_i64(reply, "expires_ms", 0), until));
    if (user)
        buf_addf(out, "For %s: put it into ~/.config/acequia/token with mode 600, and set ACEQUIA_HOST.\n", user);
    else
        buf_addf(out, "Copy the file to the node, and there, as root: acequia join %s --token-file %s\n",
                 address, file);
}

// Where nodes reach the controller: its address, or this machine's name when it listens on all of them.
static const char *controller_address(struct cli *c) {
    struct reply status;
    char host[256] = "";
    if (client_get(c, "/v1/status", &status) != CLI_OK)
        return "HOST:PORT";
    const char *listen = json_str(status.json, "listen"), *colon = listen ? strrchr(listen, ':') : NULL;
    if (!colon) {
        fprintf(stderr,
                "Note: other machines cannot reach the controller yet. Set 'listen' in [cluster] of its "
                "configuration file, for example to 0.0.0.0:6820, and restart it.\n");
        return "HOST:PORT";
    }
    if (!str_has_prefix(listen, "0.0.0.0:") && !str_has_prefix(listen, "[::]:"))
        return arena_strdup(&c->arena, listen);
    gethostname(host, sizeof host - 1);
    return arena_printf(&c->arena, "%s%s", host, colon);
}

// For people; a program that reads the output gets the bare token.
static void show_join_line(struct buf *out, const char *address, const char *token,
                           const struct json *reply) {
    char until[UNIT_TEXT_MAX];
    local_time_format(json_i64(reply, "expires_ms", 0), until);
    buf_addf(out,
             "Token for one node, valid until %s. On the node, as root:\n\n  echo %s | acequia join %s\n",
             until, token, address);
}

static int wished_ttl(struct cli *c, uint32_t *ttl) {
    const char *text = option_get(&c->options, "ttl");
    *ttl = 0;
    if (!option_given(&c->options, "ttl"))
        return 0;
    if (option_duration(&c->options, "ttl", 1, ttl, &c->error) < 0)
        return -EINVAL;
    if (!*ttl)
        return error_set(&c->error, EINVAL, "--ttl is \"%s\"; give more than 0, as 1h or 30d", text);
    if (*ttl > TTL_MAX_S)
        return error_set(&c->error, EINVAL, "--ttl is \"%s\"; a token is valid for at most 365d", text);
    return 0;
}

int verb_token_wish(struct cli *c, struct json_writer *w) {
    uint32_t ttl;
    int r = wished_ttl(c, &ttl);
    if (r < 0)
        return r;
    if (ttl)
        json_kv_i64(w, "ttl_s", ttl);
    if (option_get(&c->options, "project"))
        json_kv_str(w, "project", option_get(&c->options, "project"));
    if (option_get(&c->options, "scopes")) {
        json_open_key(w, "scopes", '[');
        size_t len;
        for (const char *rest = option_get(&c->options, "scopes"), *at; (at = name_list_next(&rest, &len));)
            json_put_strn(w, at, len);
        json_close(w, ']');
    }
    return 0;
}

static int create(struct cli *c) {
    cleanup_buf struct buf body = {0}, out = {0};
    struct json_writer w = {.out = &body};
    struct reply reply;
    uint32_t ttl;
    const char *user = option_get(&c->options, "user"), *file = option_get(&c->options, "output"),
               *node = option_get(&c->options, "node");
    if (user && node)
        return cli_usage(c, "a token is for a person (--user) or for a node (--node); give one of them");
    if (wished_ttl(c, &ttl) < 0 || (user && name_check("--user", user, &c->error) < 0))
        return cli_usage(c, "%s", arena_strdup(&c->arena, c->error.text));
    // Before the token is made: one that nobody knows would stay valid.
    cleanup_close int fd = file ? open(file, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC | O_NOFOLLOW, 0600) : -1;
    if (file && fd < 0)
        return cli_failf(c, "cannot create the file %s: %s", file, strerror(errno));
    json_open(&w, '{');
    json_kv_str(&w, "kind", user ? "user" : "agent");
    if (user)
        json_kv_str(&w, "user", user);
    if (node)
        json_kv_str(&w, "node", node);
    verb_token_wish(c, &w);
    json_close(&w, '}');
    int status = client_post(c, "/v1/tokens", &body, &reply);
    if (status != CLI_OK && file)
        unlink(file);
    if (status != CLI_OK)
        return status;
    const char *token = json_str(reply.json, "token");
    bool show_line = !user && !c->json && (file || isatty(STDOUT_FILENO));
    const char *address = show_line ? controller_address(c) : NULL;
    if (file && token) {
        if (write_secret(c, fd, file, token) < 0)
            return cli_fail(c);
        struct json_writer j = {.out = &out};
        if (c->json) {
            json_open(&j, '{');
            json_kv_str(&j, "file", file);
            json_kv_str(&j, "id", json_str(reply.json, "id"));
            json_close(&j, '}');
            buf_addc(&out, '\n');
        } else {
            tell_use(&out, file, user, address, reply.json);
        }
    } else if (c->json) {
        buf_addf(&out, "%s\n", reply.text);
    } else if (show_line && token) {
        show_join_line(&out, address, token, reply.json);
    } else {
        buf_addf(&out, "%s\n", token ? token : "");
    }
    return cli_print(&out);
}

static int list(struct cli *c) {
    static const struct table_column columns[] = {{"ID", false, 0, 0},      {"KIND", false, 0, 0},
                                                  {"USER", false, 3, 5},    {"EXPIRES", false, 0, 0},
                                                  {"USED BY", false, 4, 8}, {"MADE BY", false, 4, 8}};
    struct reply reply;
    struct text_table t;
    cleanup_buf struct buf out = {0};
    int status = client_get(c, "/v1/tokens", &reply);
    if (status != CLI_OK)
        return status;
    if (c->json) {
        buf_addf(&out, "%s\n", reply.text);
        return cli_print(&out);
    }
    const struct json *tokens = json_get(reply.json, "tokens");
    table_init(&t, &c->arena, columns, 6);
    for (uint32_t i = 0; tokens && tokens->type == JSON_ARRAY && i < tokens->len; i++) {
        const struct json *j = &tokens->items[i];
        char when[UNIT_TEXT_MAX];
        table_add(&t, json_str(j, "id"), COLOUR_NONE);
        table_add(&t, json_str(j, "user") ? "user" : "agent", COLOUR_NONE);
        table_add(&t, json_str(j, "user"), COLOUR_NONE);
        table_add(
            &t,
            arena_strdup(&c->arena, local_time_short(json_i64(j, "expires_ms", 0), clock_wall_ms(), when)),
            COLOUR_NONE);
        table_add(&t, json_str(j, "node"), COLOUR_NONE);
        table_add(&t, json_str(j, "by"), COLOUR_NONE);
    }
    table_print(&t, terminal_table_width(), true, terminal_colour(), &out);
    table_done(&t);
    return cli_print(&out);
}

static int revoke_tokens(struct cli *c) {
    if (c->count < 2)
        return cli_usage(c, "revoke needs the id of a token; see acequia token list");
    return client_delete_each(c, "/v1/tokens/", "Token", "revoked");
}

static int run(struct cli *c) {
    const char *what = c->count ? c->arguments[0] : "list";
    if (!streq(what, "revoke") && c->count > 1)
        return cli_usage(c, "unexpected argument \"%.40s\"", c->arguments[1]);
    if (streq(what, "create"))
        return create(c);
    if (streq(what, "list"))
        return list(c);
    if (streq(what, "revoke"))
        return revoke_tokens(c);
    return cli_usage(c, "unknown action \"%.40s\"; use create, list or revoke", what);
}

const struct verb verb_token = {
    .name = "token",
    .group = "Cluster",
    .arguments = "create [options]\n[list]\nrevoke ID...",
    .summary = "create, list and revoke tokens for nodes and users",
    .text =
        "Without --user the token lets one node join, once: the line to paste on the node is printed. With "
        "--user "
        "it is for that person's commands on other machines. Keep tokens in files that only you can read.",
    .examples =
        "acequia token create --ttl 1h -o join.token\nacequia token create --user eva --ttl 30d -o eva.token",
    .options = {&table_options, &cli_common_options},
    .run = run,
    .complete = "create list revoke",
    .most = -1,
};
