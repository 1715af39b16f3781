// Drafts of jobs, templates, and views of the table of jobs: what people keep between two visits. Drafts and views are
// shown to nobody but their owner.
#include <errno.h>
#include <string.h>

#include "api.h"
#include "base/text.h"
#include "saved_messages.h"

// --- templates that everybody has ---

static const struct {
    const char *name, *title, *script;
    struct spec spec;
} built_in[] = {
    {"train",
     "Training on one GPU",
     "#!/bin/bash\n#ACEQUIA --name train --gpus 1 --memory 16G --time 4h\n\npython train.py\n",
     {.name = "train", .gpus_milli = 1000, .memory_per_node_bytes = 16ULL << 30, .time_limit_s = 4 * 3600}},
    {"sweep",
     "Sweep over parameters, half a GPU each",
     "#!/bin/bash\n#ACEQUIA --name sweep --array 0-31%8 --gpus 0.5 --memory 8G --time 1h\n\n"
     "python train.py --seed $ACEQUIA_ARRAY_INDEX\n",
     {.name = "sweep",
      .array = {(struct array_range[]){{0, 31, 1}}, 1},
      .array_limit = 8,
      .gpus_milli = 500,
      .memory_per_node_bytes = 8ULL << 30,
      .time_limit_s = 3600}},
    {"mpi",
     "MPI program on two nodes",
     "#!/bin/bash\n#ACEQUIA --name mpi --nodes 2 --tasks 8 --memory 32G --time 2h\n\nmpirun ./solver\n",
     {.name = "mpi",
      .nodes_min = 2,
      .tasks = 8,
      .memory_per_node_bytes = 32ULL << 30,
      .time_limit_s = 2 * 3600}},
    {"cpu",
     "Preparation of data without a GPU",
     "#!/bin/bash\n#ACEQUIA --name prepare --cpus 8 --memory 32G --time 2h\n\npython prepare.py\n",
     {.name = "prepare", .cpus_per_task = 8, .memory_per_node_bytes = 32ULL << 30, .time_limit_s = 2 * 3600}},
};
enum { BUILT_IN = sizeof built_in / sizeof *built_in };

// --- answers ---

static const char *spec_json(struct arena *a, const struct spec *s) {
    cleanup_buf struct buf b = {0};
    schema_write_given_json(&spec_schema, s, &(struct json_writer){.out = &b});
    return arena_strdup(a, buf_str(&b));
}

static struct answer_draft draft_of(struct arena *a, const struct event_saved *s, bool whole) {
    return (struct answer_draft){.name = s->name,
                                 .title = s->title,
                                 .project = s->spec ? s->spec->project : NULL,
                                 .spec = s->spec ? spec_json(a, s->spec) : "{}",
                                 .script = whole ? s->script : NULL,
                                 .set_ms = s->set_ms};
}

static struct answer_template template_of(struct arena *a, const struct event_saved *s, bool whole) {
    return (struct answer_template){.of = s->user ? TEMPLATE_OWN : TEMPLATE_OF_PROJECT,
                                    .name = s->name,
                                    .title = s->title,
                                    .project = s->project,
                                    .by = s->by,
                                    .spec = s->spec ? spec_json(a, s->spec) : "{}",
                                    .script = whole ? s->script : NULL,
                                    .set_ms = s->set_ms};
}

static struct answer_template template_built_in(struct arena *a, uint32_t i, bool whole) {
    return (struct answer_template){.of = TEMPLATE_BUILT_IN,
                                    .name = built_in[i].name,
                                    .title = built_in[i].title,
                                    .spec = spec_json(a, &built_in[i].spec),
                                    .script = whole ? built_in[i].script : NULL};
}

// --- lists ---

struct saved_listing {
    struct api_call *call;
    enum saved_kind kind;
    VEC(struct answer_draft) drafts;
    VEC(struct answer_template) templates;
    VEC(struct answer_view) views;
};

static bool list_one(void *ctx, const struct event_saved *s) {
    struct saved_listing *l = ctx;
    struct arena *a = &l->call->arena;
    if (s->kind != l->kind || !core_saved_visible(l->call->controller->core, &l->call->actor, s))
        return true;
    if (s->kind == SAVED_DRAFT)
        vec_push(&l->drafts, draft_of(a, s, false));
    else if (s->kind == SAVED_TEMPLATE)
        vec_push(&l->templates, template_of(a, s, false));
    else
        vec_push(&l->views, ((struct answer_view){s->name, s->title, s->query, s->set_ms}));
    return true;
}

static void list_own(struct saved_listing *l) {
    core_each_saved_of(l->call->controller->core, l->call->actor.user, NULL, list_one, l);
}

void api_drafts(struct api_call *call) {
    struct saved_listing l = {.call = call, .kind = SAVED_DRAFT};
    struct answer_drafts out = {0};
    list_own(&l);
    out.drafts.at = l.drafts.at;
    out.drafts.len = l.drafts.len;
    api_answer(call, &answer_drafts_schema, &out);
    vec_done(&l.drafts);
}

// Projects that name the caller; an administrator, who may change those of every project, sees all.
static bool list_of_project(void *ctx, const char *name, const void *value) {
    struct saved_listing *l = ctx;
    const struct controller *c = l->call->controller;
    const struct actor *actor = &l->call->actor;
    if ((!actor->project || streq(actor->project, name)) &&
        (actor->admin || core_is_named_member(c->core, actor->user, name) ||
         core_leads(c->core, actor->user, name)))
        core_each_saved_of(c->core, NULL, name, list_one, l);
    return true;
}

void api_templates(struct api_call *call) {
    struct saved_listing l = {.call = call, .kind = SAVED_TEMPLATE};
    struct answer_templates out = {0};
    list_own(&l);
    core_each_entity(call->controller->core, ENTITY_PROJECT, list_of_project, &l);
    for (uint32_t i = 0; i < BUILT_IN; i++)
        vec_push(&l.templates, template_built_in(&call->arena, i, false));
    out.templates.at = l.templates.at;
    out.templates.len = l.templates.len;
    api_answer(call, &answer_templates_schema, &out);
    vec_done(&l.templates);
}

void api_views(struct api_call *call) {
    struct saved_listing l = {.call = call, .kind = SAVED_VIEW};
    struct answer_views out = {0};
    list_own(&l);
    out.views.at = l.views.at;
    out.views.len = l.views.len;
    api_answer(call, &answer_views_schema, &out);
    vec_done(&l.views);
}

// --- one of them ---

static void there_is_none(struct api_call *call, enum saved_kind kind) {
    struct error e = {0};
    char shown[64];
    const char *word = event_saved_words[kind];
    error_set(&e, ENOENT,
              kind == SAVED_VIEW ? "there is no %s \"%s\"" : "there is no %s \"%s\"; see 'acequia %s list'",
              word, str_printable(call->name, shown, sizeof shown), word);
    api_fail(call->req, &e);
}

void api_draft(struct api_call *call) {
    const struct event_saved *s =
        core_saved(call->controller->core, SAVED_DRAFT, call->actor.user, NULL, call->name);
    if (!s || !core_saved_visible(call->controller->core, &call->actor, s)) {
        there_is_none(call, SAVED_DRAFT);
        return;
    }
    struct answer_draft out = draft_of(&call->arena, s, true);
    api_version_tag(call->req, (uint64_t)s->set_ms);
    api_answer(call, &answer_draft_schema, &out);
}

// Of the project that is named; else one's own, then one that comes with Acequia.
void api_template(struct api_call *call) {
    const struct query_saved *q = call->query;
    const struct core *core = call->controller->core;
    struct answer_template out = {0};
    const struct event_saved *s =
        core_saved(core, SAVED_TEMPLATE, q->project ? NULL : call->actor.user, q->project, call->name);
    if (s && core_saved_visible(core, &call->actor, s))
        out = template_of(&call->arena, s, true);
    if (out.name)
        api_version_tag(call->req, (uint64_t)s->set_ms);
    for (uint32_t i = 0; i < BUILT_IN && !out.name && !q->project; i++)
        if (streq(built_in[i].name, call->name))
            out = template_built_in(&call->arena, i, true);
    if (out.name)
        api_answer(call, &answer_template_schema, &out);
    else
        there_is_none(call, SAVED_TEMPLATE);
}

static const struct event_saved *kept_now(const struct api_call *call, const struct event_saved *body) {
    const struct core *core = call->controller->core;
    const struct event_saved *s =
        core_saved(core, (enum saved_kind)body->kind, body->project ? NULL : call->actor.user, body->project,
                   call->name);
    return s && core_saved_visible(core, &call->actor, s) ? s : NULL;
}

// The answer has the new version, so that whoever sent it can go on from there.
static void give(struct api_call *call, enum command_type type, const struct event_saved *body) {
    struct command command = {type, body};
    struct error e = {0};
    if (!api_saved_version_holds(call, event_saved_words[body->kind], kept_now(call, body)))
        return;
    if (core_command(call->controller->core, &call->actor, NULL, &command, controller_now_ms(), NULL, &e) <
        0) {
        api_fail(call->req, &e);
        return;
    }
    const struct event_saved *now = kept_now(call, body);
    if (now)
        api_version_tag(call->req, (uint64_t)now->set_ms);
    api_answer_committed(call, 200, &answer_done_schema, &(struct answer_done){true});
}

void api_draft_set(struct api_call *call) {
    const struct request_draft *q = call->body;
    give(call, COMMAND_SAVED_SET,
         &(struct event_saved){.kind = SAVED_DRAFT,
                               .name = call->name,
                               .title = q->title,
                               .spec = q->spec,
                               .script = q->script});
}

void api_template_set(struct api_call *call) {
    const struct request_template *q = call->body;
    give(call, COMMAND_SAVED_SET,
         &(struct event_saved){.kind = SAVED_TEMPLATE,
                               .name = call->name,
                               .project = q->project,
                               .title = q->title,
                               .spec = q->spec,
                               .script = q->script});
}

void api_view_set(struct api_call *call) {
    const struct request_view *q = call->body;
    give(call, COMMAND_SAVED_SET,
         &(struct event_saved){.kind = SAVED_VIEW, .name = call->name, .title = q->title, .query = q->query});
}

void api_draft_delete(struct api_call *call) {
    give(call, COMMAND_SAVED_DELETE, &(struct event_saved){.kind = SAVED_DRAFT, .name = call->name});
}

void api_template_delete(struct api_call *call) {
    const struct query_saved *q = call->query;
    give(call, COMMAND_SAVED_DELETE,
         &(struct event_saved){.kind = SAVED_TEMPLATE, .name = call->name, .project = q->project});
}

void api_view_delete(struct api_call *call) {
    give(call, COMMAND_SAVED_DELETE, &(struct event_saved){.kind = SAVED_VIEW, .name = call->name});
}
