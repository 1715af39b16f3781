// acequia forget
#include "base/text.h"
#include "cli/client/client.h"
#include "verbs.h"

static int run(struct cli *c) {
    for (int i = 0; i < c->count; i++) {
        cleanup_buf struct buf target = {0}, out = {0};
        struct reply reply;
        buf_adds(&target, "/v1/nodes/");
        http_percent_encode(&target, c->arguments[i]);
        int status = client_request(c, "DELETE", buf_str(&target), NULL, &reply);
        if (status != CLI_OK)
            return status;
        if (c->json)
            buf_addf(&out, "%s\n", reply.text);
        else
            buf_addf(&out, "%s is forgotten\n", c->arguments[i]);
        cli_print(&out);
    }
    return CLI_OK;
}

const struct verb verb_forget = {
    .name = "forget",
    .group = "Cluster",
    .arguments = "NODE...",
    .summary = "remove nodes that are gone for good",
    .text = "To join again, a removed node needs a new token.",
    .examples = "acequia forget n7",
    .options = {&cli_common_options},
    .run = run,
    .complete = "@node",
    .least = 1,
    .most = -1,
};
