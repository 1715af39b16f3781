// acequia policy: the rules of sharing in force, and changing them. Keys and values are those of the
// configuration's [policy] section.
#include <string.h>

#include "base/text.h"
#include "cli/client/client.h"
#include "verbs.h"
#include "model/config_table.h"

static int read_settings(struct cli *c, const struct json *j, struct policy_settings *out) {
    return schema_read_json(&policy_schema, j, &c->arena, out, &c->error);
}

static int show(struct cli *c) {
    const struct config_section *section = config_section_find("policy");
    struct reply reply;
    struct policy_settings now, usual;
    cleanup_buf struct buf out = {0};
    int status = client_get(c, "/v1/policy", &reply);
    if (status != CLI_OK)
        return status;
    if (c->json) {
        buf_addf(&out, "%s\n", reply.text);
        return cli_print(&out);
    }
    if (read_settings(c, reply.json, &now) < 0)
        return cli_fail(c);
    config_defaults(section, &c->arena, &usual);
    buf_adds(&out, "[policy]\n");
    for (size_t i = 0; i < section->count; i++) {
        cleanup_buf struct buf value = {0}, fallback = {0};
        config_value_format(&section->keys[i], &now, &value);
        config_value_format(&section->keys[i], &usual, &fallback);
        buf_addf(&out, "%s = %s", section->keys[i].name, buf_str(&value));
        if (!streq(buf_str(&value), buf_str(&fallback)))
            buf_addf(&out, "    # default: %s", buf_str(&fallback));
        buf_addc(&out, '\n');
    }
    return cli_print(&out);
}

static const struct config_key *find_key(const struct config_section *s, const char *name) {
    for (size_t i = 0; i < s->count; i++)
        if (streq(s->keys[i].name, name))
            return &s->keys[i];
    return NULL;
}

// Reads one KEY=VALUE into its place.
static int read_change(struct cli *c, const struct config_section *s, const char *text, struct policy_settings *to) {
    const char *equals = strchr(text, '=');
    if (!equals)
        return cli_usage(c, "\"%.40s\" is not KEY=VALUE; example: use=1d", text);
    const char *name = arena_strndup(&c->arena, text, (size_t)(equals - text));
    const struct config_key *k = find_key(s, name);
    if (!k)
        return cli_usage(c, "unknown policy setting \"%.40s\"; see 'acequia policy show'", name);
    if (config_value_parse(k, equals + 1, NULL, &c->arena, to, &c->error) < 0)
        return cli_usage(c, "%s: %s", name, arena_strdup(&c->arena, c->error.text));
    schema_give(&policy_schema, to, (char *)to + k->offset);
    return CLI_OK;
}

static int set(struct cli *c) {
    const struct config_section *s = config_section_find("policy");
    struct policy_settings change = {0};
    cleanup_buf struct buf body = {0};
    struct reply reply;
    if (c->count < 2)
        return cli_usage(c, "policy set needs KEY=VALUE; see 'acequia policy show'");
    for (int i = 1; i < c->count; i++) {
        int status = read_change(c, s, c->arguments[i], &change);
        if (status != CLI_OK)
            return status;
    }
    schema_write_given_json(&policy_schema, &change, &(struct json_writer){.out = &body});
    int status = client_request(c, "PUT", "/v1/policy", &body, &reply);
    if (status != CLI_OK)
        return status;
    cleanup_buf struct buf out = {0};
    if (c->json)
        buf_addf(&out, "%s\n", reply.text);
    else
        buf_adds(&out, "Policy changed\n");
    return cli_print(&out);
}

static int run(struct cli *c) {
    if (!c->count || (c->count == 1 && streq(c->arguments[0], "show")))
        return show(c);
    if (streq(c->arguments[0], "set"))
        return set(c);
    return cli_usage(c, "unknown action \"%.40s\"; use show or set", c->arguments[0]);
}

const struct verb verb_policy = {
    .name = "policy",
    .group = "Sharing",
    .arguments = "[show]\nset KEY=VALUE...",
    .summary = "show or change the scheduling policy",
    .text = "Keys and values are those of the [policy] section in acequia.conf(5). A change takes effect at "
            "once and survives "
            "restarts, except for settings in the configuration file: those are applied again whenever the "
            "file is read. Try a change on your own "
            "history first: acequia trace, then acequia sim.",
    .examples = "acequia policy\nacequia policy set use=1d half_life=14d\nacequia policy set min_run=10m "
                "reclaim=true",
    .options = {&cli_common_options},
    .run = run,
    .complete = "show set",
    .most = 33,
};
