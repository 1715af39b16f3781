// The apps that the controller knows: built-in ones and the site's. A user's own are files of theirs, which the command
// line reads, and the portal, which sends them with the request.
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "api.h"
#include "apps_builtin.h"
#include "base/clock.h"
#include "base/log.h"
#include "base/rand.h"
#include "base/text.h"

enum { READ_AGAIN_MS = 2000 };

// The site's folder is read now and then, not for every request; what is wrong there is logged when it changes.
struct site_apps {
    struct arena arena;
    struct app_list list;
    int64_t read_ms;  // monotonic; 0: never
    uint64_t reads;
    struct buf problems;
};

static void bad_file(void *ctx, const char *file, const char *why) {
    buf_addf(ctx, "app %s is left out: %s; ", file, why);
}

static const struct app_list *site_apps(struct controller *c) {
    const char *folder = c->config.portal.apps;
    int64_t now = clock_mono_ms();
    cleanup_buf struct buf problems = {0};
    struct error e = {0};
    if (!c->site_apps)
        c->site_apps = xcalloc(1, sizeof *c->site_apps);
    struct site_apps *s = c->site_apps;
    if (s->read_ms && now - s->read_ms < READ_AGAIN_MS)
        return &s->list;
    arena_reset(&s->arena);
    s->list = (struct app_list){0};
    s->read_ms = now;
    s->reads++;
    if (!str_empty(folder) && app_folder(folder, "site", &s->arena, &s->list, bad_file, &problems, &e) < 0)
        buf_adds(&problems, e.text);
    if (problems.len && !streq(buf_str(&problems), buf_str(&s->problems)))
        log_warn("%s: %s", folder, buf_str(&problems));
    buf_clear(&s->problems);
    buf_add(&s->problems, problems.data, problems.len);
    return &s->list;
}

uint64_t apps_site_reads(const struct controller *c) {
    return c->site_apps ? c->site_apps->reads : 0;
}

void apps_site_done(struct controller *c) {
    if (!c->site_apps)
        return;
    arena_done(&c->site_apps->arena);
    buf_done(&c->site_apps->problems);
    free(c->site_apps);
    c->site_apps = NULL;
}

static void list(struct api_call *call, struct app_list *out) {
    struct app_list built, site = *site_apps(call->controller);
    apps_builtin(&call->arena, &built);
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
