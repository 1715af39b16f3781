// acequia share
#include <string.h>

#include "base/text.h"
#include "cli/client/client.h"
#include "cli/job/resolve.h"
#include "cli/term/local_time.h"
#include "net/http.h"
#include "verbs.h"

static const struct option_spec specs[] = {
    {"with", 0, "USER", "This user.", 0, NULL, NULL},
    {"with-project", 0, NULL, "The members of the job's project.", 0, NULL, NULL},
    {"for", 0, "TIME", "How long, as 2h or 3d; 8 hours unless given, at most 30 days.", 0, NULL, NULL},
    {"list", 0, NULL, "List with whom it is shared.", 0, NULL, NULL},
    {"revoke", 0, NULL, "End the share with them.", 0, NULL, NULL},
};
static const struct option_table table = OPTION_TABLE("Options", specs);

static int print_list(struct cli *c, const char *target) {
    cleanup_buf struct buf out = {0};
    struct reply reply;
    int status = client_request(c, "GET", target, NULL, &reply);
    if (status != CLI_OK)
        return status;
    const struct json *list = json_get(reply.json, "shares");
    if (c->json)
        buf_addf(&out, "%s\n", reply.text);
    for (uint32_t i = 0; !c->json && i < list->len; i++) {
        const struct json *s = &list->items[i];
        const char *user = json_str(s, "user");
        char until[UNIT_TEXT_MAX];
        local_time_format(json_i64(s, "expires_ms", 0), until);
        buf_addf(&out, "port %lld  %s %s  until %s\n", (long long)json_i64(s, "port", 0),
                 user ? "user" : "project", user ? user : json_str(s, "project"), until);
    }
    return cli_print(&out);
}

static int change(struct cli *c, const char *target, uint32_t port, const char *user, bool project) {
    cleanup_buf struct buf out = {0}, query = {0};
    struct reply reply;
    uint32_t for_s = 0;
    int status;
    if (option_given(&c->options, "revoke")) {
        buf_addf(&query, "%s?port=%u", target, port);
        if (user) {
            buf_adds(&query, "&user=");
            http_percent_encode(&query, user);
        }
        if (project)
            buf_adds(&query, "&project=1");
        return client_request(c, "DELETE", buf_str(&query), NULL, &reply);
    }
    if (option_duration(&c->options, "for", 1, &for_s, &c->error) < 0)
        return cli_usage(c, "%s", c->error.text);
    if (option_given(&c->options, "for") && !for_s)
        return cli_usage(c, "--for: give a time above 0; to end a share, use --revoke");
    struct json_writer w = {.out = &out};
    json_open(&w, '{');
    json_kv_i64(&w, "port", port);
    if (user)
        json_kv_str(&w, "user", user);
    json_kv_bool(&w, "project", project);
    json_kv_i64(&w, "for_s", for_s);
    json_close(&w, '}');
    if ((status = client_post(c, target, &out, &reply)) != CLI_OK)
        return status;
    buf_clear(&out);
    buf_addf(&out, "%s\n",
             c->json                       ? reply.text
             : json_str(reply.json, "url") ? json_str(reply.json, "url")
                                           : "shared");
    return cli_print(&out);
}

static int run_share(struct cli *c) {
    const char *user = option_get(&c->options, "with");
    bool project = option_given(&c->options, "with-project");
    const char *target = arena_printf(&c->arena, "/v1/jobs/%s/shares", c->arguments[0]);
    uint32_t port = 0;
    if (c->count > 1 && (parse_u32(c->arguments[1], &port) < 0 || port > UINT16_MAX))
        return cli_usage(c, "the port is a number up to 65535");
    if (option_given(&c->options, "list"))
        return print_list(c, target);
    if (!user == !project)
        return cli_usage(c, "say with whom: --with USER or --with-project");
    return change(c, target, port, user, project);
}

const struct verb verb_share = {
    .name = "share",
    .group = "Programs",
    .arguments = "[options] JOB [PORT]",
    .summary = "let others use a program of a job in their browser",
    .text = "Prints the address to give them; they log in to the portal with their own account. Whoever may "
            "use the "
            "program acts in it as the program lets them, with the owner's files where it is a notebook. The "
            "share "
            "ends after its time, with --revoke, or with the job; open connections end with it.",
    .examples = "acequia share 12 --with ana --for 2h\nacequia share 12 8888 --with-project\nacequia share "
                "12 --list\n"
                "acequia share 12 --with ana --revoke",
    .options = {&table, &job_pick_options, &cli_common_options},
    .run = run_share,
    .complete = "@job",
    .least = 1,
    .most = 2,
    .jobs = VERB_JOB_FIRST,
    .live_jobs = true,
};
