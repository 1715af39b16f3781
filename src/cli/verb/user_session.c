// acequia session, acequia portal
#include <stdio.h>

#include "base/clock.h"
#include "base/text.h"
#include "cli/client/client.h"
#include "cli/term/local_time.h"
#include "cli/term/table.h"
#include "verbs.h"

static int list(struct cli *c) {
    static const struct table_column columns[] = {{"ID", false, 0, 0},
                                                  {"LOGIN", false, 3, 8},
                                                  {"FROM", false, 4, 8},
                                                  {"LAST USED", false, 0, 0},
                                                  {"PROGRAM", false, 5, 10}};
    struct reply reply;
    struct text_table t;
    cleanup_buf struct buf out = {0};
    int status = client_get(c, "/v1/sessions", &reply);
    if (status != CLI_OK)
        return status;
    const struct json *all = json_get(reply.json, "sessions");
    if (c->json) {
        buf_addf(&out, "%s\n", reply.text);
        return cli_print(&out);
    }
    table_init(&t, &c->arena, columns, sizeof columns / sizeof *columns);
    for (uint32_t i = 0; all && all->type == JSON_ARRAY && i < all->len; i++) {
        const struct json *s = &all->items[i];
        char when[UNIT_TEXT_MAX];
        table_add(&t, json_str(s, "id"), COLOUR_NONE);
        table_add(&t, json_str(s, "identity"), COLOUR_NONE);
        table_add(&t, json_str(s, "from"), COLOUR_NONE);
        table_add(&t,
                  arena_strdup(&c->arena, local_time_short(json_i64(s, "seen_ms", 0), clock_wall_ms(), when)),
                  COLOUR_NONE);
        table_add(&t, json_str(s, "agent"), COLOUR_NONE);
    }
    table_print(&t, terminal_table_width(), true, terminal_colour(), &out);
    table_done(&t);
    return cli_print(&out);
}

static int revoke(struct cli *c) {
    if (c->count < 2)
        return cli_usage(c, "revoke needs the id of a login, or others; see acequia session list");
    if (c->count == 2 && streq(c->arguments[1], "others") && !c->json) {
        struct reply reply;
        int status = client_request(c, "DELETE", "/v1/sessions/others", NULL, &reply);
        if (status == CLI_OK)
            printf("All your other logins have ended\n");
        return status;
    }
    return client_delete_each(c, "/v1/sessions/", "Login", "ended");
}

static int run_session(struct cli *c) {
    const char *what = c->count ? c->arguments[0] : "list";
    if (streq(what, "list") && c->count <= 1)
        return list(c);
    if (streq(what, "revoke"))
        return revoke(c);
    return cli_usage(c, "unknown action \"%.40s\"; use list or revoke", what);
}

const struct verb verb_session = {
    .name = "session",
    .group = "Cluster",
    .arguments = "[list]\nrevoke ID...\nrevoke others",
    .summary = "list and end logins to the portal",
    .text = "Administrators see everybody's. 'revoke others' ends all your logins but the one that asks.",
    .examples = "acequia session list\nacequia session revoke others",
    .options = {&cli_common_options},
    .run = run_session,
    .complete = "list revoke",
    .most = -1,
};

static int run_portal(struct cli *c) {
    cleanup_buf struct buf out = {0};
    struct reply reply;
    int status = client_post(c, "/v1/portal", &out, &reply);
    if (status != CLI_OK)
        return status;
    buf_clear(&out);
    buf_addf(&out, "%s\n", c->json ? reply.text : json_str(reply.json, "url"));
    return cli_print(&out);
}

const struct verb verb_portal = {
    .name = "portal",
    .group = "Cluster",
    .arguments = "",
    .summary = "print a link that opens the portal, logged in",
    .text = "The link works once, within five minutes, in a browser on the controller's machine. Do not give "
            "it away: "
            "whoever opens it is you.",
    .examples = "acequia portal",
    .options = {&cli_common_options},
    .run = run_portal,
    .least = 0,
    .most = 0,
};
