// acequia upgrade
#include "base/text.h"
#include "cli/client/client.h"
#include "verbs.h"

static void describe(const struct json *j, struct buf *out) {
    const char *version = json_str(j, "version"), *since = json_str(j, "readable_since");
    if (json_true(j, "finished"))
        buf_addf(out, "The state can be read by Acequia %s and later; no upgrade is waiting to be finished.\n", since);
    else
        buf_addf(out,
                 "Acequia %s runs on a state that %s can still read: going back is possible.\n"
                 "When all is well, finish with: acequia upgrade finish\n",
                 version, since);
}

static int run(struct cli *c) {
    cleanup_buf struct buf out = {0}, body = {0};
    struct reply reply;
    bool finish = c->count && streq(c->arguments[0], "finish");
    if (c->count && !finish)
        return cli_usage(c, "\"%s\" is not known; expected 'acequia upgrade' or 'acequia upgrade finish'",
                         c->arguments[0]);
    buf_adds(&body, "{}");
    int status = client_request(c, finish ? "POST" : "GET", finish ? "/v1/upgrade/finish" : "/v1/upgrade",
                                finish ? &body : NULL, &reply);
    if (status != CLI_OK)
        return status;
    if (c->json)
        buf_addf(&out, "%s\n", reply.text);
    else
        describe(reply.json, &out);
    return cli_print(&out);
}

const struct verb verb_upgrade = {
    .name = "upgrade",
    .group = "Cluster",
    .arguments = "[finish]",
    .summary = "show whether an upgrade is finished, or finish it",
    .text = "After a new version was installed, the controller writes only what the version before can read, "
            "so that "
            "it can be installed again. Finishing the upgrade ends that: new kinds of records are written "
            "from then "
            "on, and earlier versions refuse the state.",
    .examples = "acequia upgrade\nacequia upgrade finish",
    .options = {&cli_common_options},
    .run = run,
    .least = 0,
    .most = 1,
};
