// acequia user
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "base/text.h"
#include "cli/client/client.h"
#include "cli/term/table.h"
#include "model/name.h"
#include "verbs.h"

static const struct option_spec specs[] = {
    {"unix-user", 0, "NAME", "Unix user that the person's jobs run as; empty: none.", 0, NULL, "@user"},
    {"role", 0, "ROLE", "user, operator or admin.", 0, NULL, NULL},
    {"full-name", 0, "TEXT", "The person's name.", 0, NULL, NULL},
    {"email", 0, "ADDRESS", "Mail address.", 0, NULL, NULL},
    {"identities", 0, "LIST", "Other logins, joined by commas: pam:NAME, oidc:PROVIDER:SUBJECT.", 0, NULL,
     NULL},
    {"disabled", 0, "YES|NO", "yes: the person cannot log in.", 0, NULL, NULL},
};
static const struct option_table table_options = OPTION_TABLE("Options of add and set", specs);

static void write_account(struct cli *c, struct buf *body) {
    static const char *const texts[][2] = {
        {"unix-user", "unix_user"}, {"role", "role"}, {"full-name", "full_name"}, {"email", "email"}};
    struct json_writer w = {.out = body};
    json_open(&w, '{');
    for (size_t i = 0; i < sizeof texts / sizeof *texts; i++)
        if (option_given(&c->options, texts[i][0]))
            json_kv_str(&w, texts[i][1], option_get(&c->options, texts[i][0]));
    if (option_given(&c->options, "disabled"))
        json_kv_bool(&w, "disabled", streq(option_get(&c->options, "disabled"), "yes"));
    if (option_given(&c->options, "identities")) {
        json_open_key(&w, "identities", '[');
        for (const char *at = option_get(&c->options, "identities"); *at;) {
            size_t len = strcspn(at, ",");
            if (len)
                json_put_strn(&w, at, len);
            at += len + (at[len] == ',');
        }
        json_close(&w, ']');
    }
    json_close(&w, '}');
}

static const char *target_of(struct cli *c, const char *name, const char *more) {
    cleanup_buf struct buf b = {0};
    buf_adds(&b, "/v1/users/");
    http_percent_encode(&b, name);
    buf_adds(&b, more);
    return arena_strdup(&c->arena, buf_str(&b));
}

static int send(struct cli *c, const char *method, const char *target, const struct buf *body,
                const char *done) {
    struct reply reply;
    int status = client_request(c, method, target, body, &reply);
    if (status == CLI_OK && c->json)
        printf("%s\n", reply.text);
    else if (status == CLI_OK)
        printf("%s\n", done);
    return status;
}

// Whether there is an account of that name; negative when the controller cannot be asked.
static int known(struct cli *c, const char *name) {
    struct reply reply;
    int status = client_get(c, "/v1/users", &reply);
    const struct json *users = status == CLI_OK ? json_get(reply.json, "users") : NULL;
    for (uint32_t i = 0; users && users->type == JSON_ARRAY && i < users->len; i++)
        if (streq(json_str(&users->items[i], "name"), name))
            return 1;
    return status == CLI_OK ? 0 : -1;
}

static bool any_given(const struct cli *c) {
    for (size_t i = 0; i < sizeof specs / sizeof *specs; i++)
        if (option_given(&c->options, specs[i].name))
            return true;
    return false;
}

static int set(struct cli *c, const char *name, bool add) {
    cleanup_buf struct buf body = {0};
    const char *disabled = option_get(&c->options, "disabled");
    if (disabled && !streq(disabled, "yes") && !streq(disabled, "no"))
        return cli_usage(c, "--disabled is \"%.40s\"; give yes or no", disabled);
    if (!add && !any_given(c))
        return cli_usage(c, "set needs what to change, as in: acequia user set %s --role operator", name);
    int there = known(c, name);
    if (there < 0)
        return CLI_FAILED;
    if (there && add)
        return cli_failf(c, "the account %s exists already; to change it: acequia user set %s", name, name);
    if (!there && !add)
        return cli_failf(c, "there is no account %s; to make it: acequia user add %s", name, name);
    write_account(c, &body);
    return send(c, "PUT", target_of(c, name, ""), &body,
                arena_printf(&c->arena, "Account %s %s", name, add ? "added" : "changed"));
}

static int list(struct cli *c) {
    static const struct table_column columns[] = {{"NAME", false, 0, 0},
                                                  {"UNIX USER", false, 3, 5},
                                                  {"ROLE", false, 0, 0},
                                                  {"LOGIN", false, 0, 0},
                                                  {"FULL NAME", false, 4, 8}};
    struct reply reply;
    struct text_table t;
    cleanup_buf struct buf out = {0};
    int status = client_get(c, "/v1/users", &reply);
    if (status != CLI_OK)
        return status;
    const struct json *users = json_get(reply.json, "users");
    if (c->json) {
        buf_addf(&out, "%s\n", reply.text);
        return cli_print(&out);
    }
    table_init(&t, &c->arena, columns, sizeof columns / sizeof *columns);
    for (uint32_t i = 0; users && users->type == JSON_ARRAY && i < users->len; i++) {
        const struct json *u = &users->items[i];
        table_add(&t, json_str(u, "name"), COLOUR_NONE);
        table_add(&t, json_str(u, "unix_user") ? json_str(u, "unix_user") : "-", COLOUR_NONE);
        table_add(&t, json_str(u, "role"), COLOUR_NONE);
        table_add(&t,
                  json_true(u, "disabled")       ? "disabled"
                  : json_true(u, "has_password") ? "password"
                                                 : "-",
                  COLOUR_NONE);
        table_add(&t, json_str(u, "full_name"), COLOUR_NONE);
    }
    table_print(&t, terminal_table_width(), true, terminal_colour(), &out);
    table_done(&t);
    return cli_print(&out);
}

int verb_read_password(struct cli *c, const char *what, struct buf *out) {
    char ch;
    if (isatty(STDIN_FILENO))
        return verb_read_hidden(c, what, out);
    while (read(STDIN_FILENO, &ch, 1) == 1 && ch != '\n')
        buf_addc(out, ch);
    return 0;
}

// Administrators set anybody's; of oneself the one until now is asked for first.
static int set_password(struct cli *c, const char *name) {
    cleanup_buf struct buf body = {0}, current = {0}, fresh = {0};
    struct json_writer w = {.out = &body};
    struct reply me;
    int status = client_get(c, "/v1/me", &me);
    if (status != CLI_OK)
        return status;
    if ((!streq(json_str(me.json, "role"), "admin") &&
         verb_read_password(c, "Current password", &current) < 0) ||
        verb_read_password(c, "New password", &fresh) < 0)
        return cli_fail(c);
    json_open(&w, '{');
    json_kv_str(&w, "password", buf_str(&fresh));
    if (current.len)
        json_kv_str(&w, "current", buf_str(&current));
    json_close(&w, '}');
    status = send(c, "PUT", target_of(c, name, "/password"), &body,
                  arena_printf(&c->arena, "Password of %s set; its other logins have ended", name));
    struct buf *const secrets[] = {&body, &current, &fresh};
    for (int i = 0; i < 3; i++)
        if (secrets[i]->data)
            explicit_bzero(secrets[i]->data, secrets[i]->cap);
    return status;
}

static int run(struct cli *c) {
    const char *what = c->count ? c->arguments[0] : "list", *name = c->count > 1 ? c->arguments[1] : NULL;
    if (streq(what, "list") && !name)
        return list(c);
    static const char *const actions[] = {"list", "add", "set", "remove", "passwd"};
    bool action = false;
    for (size_t i = 0; i < sizeof actions / sizeof *actions; i++)
        action |= streq(what, actions[i]);
    if (!action)
        return cli_usage(c, "unknown action \"%.40s\"; use list, add, set, remove or passwd", what);
    if (streq(what, "list"))
        return cli_usage(c, "unexpected argument \"%.40s\"", name);
    if (c->count != 2)
        return cli_usage(c, "%.40s needs the name of one account; see acequia user list", what);
    if (name_check("the account", name, &c->error) < 0)
        return cli_usage(c, "%s", arena_strdup(&c->arena, c->error.text));
    if (streq(what, "add") || streq(what, "set"))
        return set(c, name, streq(what, "add"));
    if (streq(what, "remove"))
        return send(c, "DELETE", target_of(c, name, ""), NULL,
                    arena_printf(&c->arena, "Account %s removed", name));
    return set_password(c, name);
}

const struct verb verb_user = {
    .name = "user",
    .group = "Cluster",
    .arguments = "add NAME [options]\n[list]\nset NAME [options]\nremove NAME\npasswd NAME",
    .summary = "accounts of people: logins, Unix user and role",
    .text = "An account maps a person's logins to the Unix user that their jobs run as; without one they may "
            "look "
            "and not submit. passwd reads the password from the terminal, or a line of standard input.",
    .examples = "acequia user add ana --unix-user ana --role operator\nacequia user passwd ana",
    .options = {&table_options, &cli_common_options},
    .run = run,
    .complete = "add list set remove passwd",
    .most = 2,
};
