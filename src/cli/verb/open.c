// acequia open
#include <errno.h>
#include <spawn.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/text.h"
#include "cli/client/client.h"
#include "cli/job/resolve.h"
#include "verbs.h"

static const struct option_spec specs[] = {
    {"print", 0, NULL, "Only print the link, also where a browser could be opened.", 0, NULL, NULL},
};
static const struct option_table table = OPTION_TABLE("Options", specs);

// Where somebody sits in front of a desktop, its browser is opened. Whether that worked is the desktop's to show.
static bool open_browser(const char *link) {
    const char *x11 = getenv("DISPLAY"), *wayland = getenv("WAYLAND_DISPLAY");
    char *const argv[] = {"xdg-open", (char *)(uintptr_t)link, NULL};
    pid_t pid;
    extern char **environ;
    return (!str_empty(x11) || !str_empty(wayland)) &&
           posix_spawnp(&pid, argv[0], NULL, NULL, argv, environ) == 0;
}

static int run_open(struct cli *c) {
    cleanup_buf struct buf out = {0};
    struct reply reply;
    const char *port = c->count > 1 ? c->arguments[1] : "0";
    uint32_t number;
    char shown[64];
    if (parse_u32(port, &number) < 0 || number > UINT16_MAX)
        return cli_usage(c, "\"%s\" is not a port; write a number up to 65535",
                         str_printable(port, shown, sizeof shown));
    const char *target = arena_printf(&c->arena, "/v1/jobs/%s/open?port=%u", c->arguments[0], number);
    int status = client_post(c, target, &out, &reply);
    if (status != CLI_OK)
        return status;
    buf_clear(&out);
    const char *link = json_str(reply.json, "link");
    if (!c->json && !option_given(&c->options, "print") && isatty(STDOUT_FILENO) && open_browser(link))
        buf_addf(&out, "Opened %s\n", json_str(reply.json, "url"));
    else
        buf_addf(&out, "%s\n", c->json ? reply.text : link);
    return cli_print(&out);
}

const struct verb verb_open = {
    .name = "open",
    .group = "Programs",
    .arguments = "[options] JOB [PORT]",
    .summary = "open a program of a job in the browser, logged in",
    .text = "The program listens on a port that was given with submit --port. Prints a link that works once, "
            "within "
            "five minutes; on a desktop it opens the browser. Do not give the link away: whoever opens it is "
            "you. The "
            "address without the code, which acequia get shows, works for everybody who may use the program "
            "and is "
            "logged in to the portal.",
    .examples =
        "acequia submit --port 8888 -- python3 -m http.server 8888\nacequia open 12\nacequia open 12 8888",
    .options = {&table, &job_pick_options, &cli_common_options},
    .run = run_open,
    .complete = "@job",
    .least = 1,
    .most = 2,
    .jobs = VERB_JOB_FIRST,
    .live_jobs = true,
};
