// acequia reload
#include "base/text.h"
#include "cli/client/client.h"
#include "verbs.h"

static int run(struct cli *c) {
    cleanup_buf struct buf out = {0}, body = {0};
    struct reply reply;
    buf_adds(&body, "{}");
    int status = client_post(c, "/v1/reload", &body, &reply);
    if (status != CLI_OK)
        return status;
    if (c->json) {
        buf_addf(&out, "%s\n", reply.text);
        return cli_print(&out);
    }
    const struct json *notes = json_get(reply.json, "warnings");
    buf_addf(&out, "The controller has read %s again.\n", json_str(reply.json, "file"));
    for (uint32_t i = 0; notes && notes->type == JSON_ARRAY && i < notes->len; i++)
        buf_addf(&out, "Warning: %s\n", notes->items[i].type == JSON_STRING ? notes->items[i].s : "");
    return cli_print(&out);
}

const struct verb verb_reload = {
    .name = "reload",
    .group = "Cluster",
    .summary = "let the controller read its configuration file again",
    .text = "Limits, policy, projects, partitions, QoS and reservations of the file take effect at once. A "
            "file with "
            "an error is refused and what was in force stays. Addresses it listens on change with a restart "
            "only.",
    .examples = "acequia config check && acequia reload",
    .options = {&cli_common_options},
    .run = run,
};
