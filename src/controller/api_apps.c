// The apps that the controller knows: built-in ones and the site's. A user's own are files of theirs, which the command
// line reads, and the portal, which sends them with the request.
#include <errno.h>
#include <string.h>

#include "api.h"
#include "apps_builtin.h"
#include "base/log.h"
#include "base/rand.h"
#include "base/text.h"

static void bad_file(void *ctx, const char *file, const char *why) {
    log_warn("app %s/%s is left out: %s", (const char *)ctx, file, why);
}

static void list(struct api_call *call, struct app_list *out) {
    const char *folder = call->controller->config.portal.apps;
    struct app_list built, site = {0};
    struct error e = {0};
    apps_builtin(&call->arena, &built);
    if (!str_empty(folder) &&
        app_folder(folder, "site", &call->arena, &site, bad_file, (void *)(uintptr_t)folder, &e) < 0)
        log_warn("%s", e.text);
    *out = (struct app_list){.at = arena_alloc(&call->arena, (built.len + site.len + 1) * sizeof *out->at)};
    for (uint32_t i = 0; i < site.len; i++)
        out->at[out->len++] = site.at[i];
    for (uint32_t i = 0; i < built.len; i++)
        if (!app_find(&site, built.at[i].name))
            out->at[out->len++] = built.at[i];
}

void api_apps(struct api_call *call) {
    struct app_list all;
    list(call, &all);
    struct answer_apps out = {.apps = {all.at, all.len}};
    api_answer(call, &answer_apps_schema, &out);
}

// The app that a request is about: the one it brings, or one that is known by its name.
static int find(struct api_call *call, const struct request_app_start *q, struct app *out, struct error *e) {
    struct app_list all;
    char shown[64];
    if (q->app)
        return app_complete(call->name, q->app, &call->arena, out, e);
    list(call, &all);
    const struct app *app = app_find(&all, call->name);
    if (!app)
        return error_set(e, ENOENT, "there is no app \"%s\"", str_printable(call->name, shown, sizeof shown));
    *out = *app;
    return 0;
}

void api_app_start(struct api_call *call) {
    const struct request_app_start *q = call->body;
    struct app app;
    struct app_job job;
    struct error e = {0};
    struct command_result result;
    uint64_t random = 0;
    rand_secret(&random, sizeof random);
    int r = find(call, q, &app, &e);
    if (r == 0)
        r = app_job(&app, q->values.at, q->values.len, random, &call->arena, &job, &e);
    if (r == 0)
        r = api_check_storage(call->controller, &e);
    if (r < 0) {
        api_fail(call->req, &e);
        return;
    }
    if (!str_empty(q->workdir) && str_empty(job.spec.workdir))
        job.spec.workdir = q->workdir;
    struct request_submit submit = {
        .spec = &job.spec, .script = job.script, .key = q->key, .dry_run = q->dry_run};
    submit.environment.at = job.environment.at;
    submit.environment.len = job.environment.len;
    if (api_submit_one(call, &submit, &result, &e) < 0)
        api_fail(call->req, &e);
    else
        api_answer_committed(call, 201, &command_result_schema, &result);
}
