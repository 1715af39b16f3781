// acequia resize
#include <stdio.h>
#include <string.h>

#include "base/json.h"
#include "base/text.h"
#include "cli/client/client.h"
#include "cli/job/options.h"
#include "cli/job/resolve.h"
#include "model/units.h"
#include "verbs.h"

static int run(struct cli *c) {
    cleanup_buf struct buf body = {0}, target = {0};
    struct json_writer w = {.out = &body};
    struct reply reply;
    uint32_t min = 0, max = 0;
    const char *equals = strchr(c->arguments[1], '='), *size = equals ? equals + 1 : c->arguments[1];
    if (job_workers_parse("the size", size, &min, &max, &c->error) < 0)
        return cli_usage(c, "%s", arena_strdup(&c->arena, c->error.text));
    json_open(&w, '{');
    if (equals)
        json_kv_str(&w, "component",
                    arena_strndup(&c->arena, c->arguments[1], (size_t)(equals - c->arguments[1])));
    if (strchr(size, '-'))
        json_kv_i64(&w, "workers_min", min);
    json_kv_i64(&w, "workers_max", max);
    json_close(&w, '}');
    buf_adds(&target, "/v1/jobs/");
    http_percent_encode(&target, c->arguments[0]);
    buf_adds(&target, "/resize");
    int status = client_post(c, buf_str(&target), &body, &reply);
    if (status == CLI_OK && !c->json)
        printf(strchr(size, '-') ? "Job %s: %s workers from now on; new ones start when there is room\n"
                                 : "Job %s: at most %s workers from now on\n",
               c->arguments[0], c->arguments[1]);
    else if (status == CLI_OK)
        printf("%s\n", reply.text);
    return status;
}

const struct verb verb_resize = {
    .name = "resize",
    .group = "Work",
    .arguments = "JOB [COMPONENT=]MAX\nJOB [COMPONENT=]MIN-MAX",
    .summary = "change how many workers an elastic job has",
    .text =
        "With one number the job has at most so many workers; its minimum stays, unless it is larger. "
        "Workers "
        "that are too many are told to end: those that wait first, then optional ones as the job ranks them "
        "(see acequia workers), then the newest. New ones start when there is room; those that a larger "
        "minimum "
        "asks for wait their turn like any job.",
    .examples = "acequia resize 12 4\nacequia resize 12 2-16\nacequia resize 12 train=4",
    .options = {&job_pick_options, &cli_common_options},
    .run = run,
    .complete = "@job",
    .least = 2,
    .most = 2,
    .jobs = VERB_JOB_FIRST,
    .live_jobs = true,
};
