// Owns the routes about volumes.
#include <errno.h>

#include "api.h"
#include "base/text.h"
#include "model/volume.h"
#include "volume_messages.h"

enum { JOBS_SHOWN = 50 };

static struct answer_volume answer_of(struct api_call *call, const struct event_volume *v) {
    const char *root = call->controller->config.cluster.volume_folder;
    struct answer_volume out = {.name = v->name,
                                .title = volume_title(&call->arena, v->user, v->project, v->name),
                                .user = v->user,
                                .project = v->project,
                                .size_bytes = v->size_bytes,
                                .mode = v->mode,
                                .readers = {v->readers.at, v->readers.len},
                                .writers = {v->writers.at, v->writers.len},
                                .made_ms = v->made_ms,
                                .by = v->by};
    if (v->at)
        out.folder = v->at;
    else if (!str_empty(root))
        out.folder = arena_printf(&call->arena, "%s/%s/%s/%s", root, v->project ? "projects" : "users",
                                  v->project ? v->project : v->user, v->name);
    return out;
}

struct volume_listing {
    struct api_call *call;
    VEC(struct answer_volume) list;
};

static bool list_volume(void *ctx, const struct event_volume *v) {
    struct volume_listing *l = ctx;
    if (core_volume_visible(l->call->controller->core, &l->call->actor, v))
        vec_push(&l->list, answer_of(l->call, v));
    return true;
}

void api_volume_list(struct api_call *call) {
    struct volume_listing l = {.call = call};
    core_each_volume(call->controller->core, list_volume, &l);
    struct answer_volumes answer = {.volumes = {l.list.at, l.list.len}};
    api_answer(call, &answer_volumes_schema, &answer);
    vec_done(&l.list);
}

static const char *given(const char *text) {
    return str_empty(text) ? NULL : text;
}

// The volume by its name alone: one's own.
static const struct event_volume *find(struct api_call *call, const char *user, const char *project,
                                       const char *name) {
    project = given(project);
    user = project ? NULL : given(user) ? user : call->actor.user;
    const struct event_volume *v = core_volume(call->controller->core, user, project, name);
    return v && core_volume_visible(call->controller->core, &call->actor, v) ? v : NULL;
}

void api_volume_get(struct api_call *call) {
    const struct query_volume *q = call->query;
    char shown[64];
    struct error e = {0};
    const struct event_volume *v = find(call, q->user, q->project, call->name);
    if (!v) {
        error_set(&e, ENOENT, "volume \"%s\" does not exist; see 'acequia volume list'",
                  str_printable(call->name, shown, sizeof shown));
        api_fail(call->req, &e);
        return;
    }
    uint64_t jobs[JOBS_SHOWN];
    struct answer_volume answer = answer_of(call, v);
    uint64_t count = core_volume_jobs(call->controller->core, answer.title, jobs, JOBS_SHOWN);
    answer.jobs.at = jobs;
    answer.jobs.len = count < JOBS_SHOWN ? (uint32_t)count : JOBS_SHOWN;
    answer.job = count ? jobs[0] : 0;
    answer.other_jobs = count ? count - 1 : 0;
    api_answer(call, &answer_volume_schema, &answer);
}

static int give(struct api_call *call, enum command_type type, const void *body) {
    struct error e = {0};
    int r = api_check_storage(call->controller, &e);
    if (r == 0)
        r = core_command(call->controller->core, &call->actor, NULL, &(struct command){type, body},
                         controller_now_ms(), NULL, &e);
    if (r < 0)
        api_fail(call->req, &e);
    return r;
}

void api_volume_create(struct api_call *call) {
    const struct request_volume *q = call->body;
    struct event_volume m = {.name = q->name,
                             .project = given(q->project),
                             .size_bytes = q->size_bytes,
                             .mode = q->mode,
                             .at = given(q->at)};
    if (give(call, COMMAND_VOLUME_CREATE, &m) < 0)
        return;
    struct answer_volume answer = answer_of(call, find(call, NULL, q->project, q->name));
    api_answer_committed(call, 201, &answer_volume_schema, &answer);
}

void api_volume_delete(struct api_call *call) {
    const struct query_volume *q = call->query;
    struct command_volume m = {.name = call->name, .user = given(q->user), .project = given(q->project)};
    if (give(call, COMMAND_VOLUME_DELETE, &m) == 0)
        api_answer_committed(call, 200, &answer_done_schema, &(struct answer_done){true});
}

void api_volume_share(struct api_call *call) {
    const struct request_volume_share *q = call->body;
    struct command_volume m = {.name = call->name,
                               .user = given(q->user),
                               .project = given(q->project),
                               .with = q->with,
                               .read_only = q->read_only,
                               .revoke = q->revoke};
    if (give(call, COMMAND_VOLUME_SHARE, &m) < 0)
        return;
    struct answer_volume answer = answer_of(call, find(call, q->user, q->project, call->name));
    api_answer_committed(call, 200, &answer_volume_schema, &answer);
}
