// POST /v1/policy/dry-run: what another policy would have done to the jobs of the last days. A process of its own
// (`acequiad try-policy`) reads them from the journal and sends them through the scheduler twice in virtual time, as
// `acequia sim` does: with the rules in force and with the changed ones. Both runs know the same: jobs with the time
// they really ran, nodes and quotas as they are now. Dependencies and holds count as a later arrival; partitions, QoS
// and reservations are not replayed.
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>

#include "answers_portal.h"
#include "api.h"
#include "base/log.h"
#include "base/text.h"
#include "controller/daemon.h"
#include "past_view.h"
#include "sim/replay.h"
#include "snapshot_maker.h"

enum { DAYS = 7, DAY_MS = 86400000, TRIAL_MS = 120000, JOBS_MAX = 100000, MOVED_MS = 60000, HOUR_MS = 3600000 };

// --- the controller's side ---

static const char *settings_json(struct arena *a, const struct policy_settings *s) {
    cleanup_buf struct buf b = {0};
    schema_write_json(&policy_schema, s, &(struct json_writer){.out = &b});
    return arena_strdup(a, buf_str(&b));
}

void api_policy_trial(struct api_call *call) {
    const struct controller *c = call->controller;
    const struct request_policy_trial *q = call->body;
    struct policy p = *core_policy(c->core);
    struct policy_settings before, after;
    struct error e = {0};
    char since[24], grace[24];
    core_policy_settings(c->core, &before);
    after = before;
    schema_merge(&policy_schema, &after, q->change);
    schema_forget_given(&policy_schema, &after);
    if (core_policy_of(&after, &p, &e) < 0) {
        api_fail(call->req, &e);
        return;
    }
    int64_t days = q->days ? q->days : DAYS;
    snprintf(since, sizeof since, "%lld", (long long)(controller_now_ms() - days * DAY_MS));
    snprintf(grace, sizeof grace, "%lld", (long long)p.grace_ms);
    char *args[] = {"acequiad",
                    "try-policy",
                    (char *)(uintptr_t)c->place,
                    (char *)(uintptr_t)c->paths.state,
                    since,
                    grace,
                    (char *)(uintptr_t)settings_json(&call->arena, &before),
                    (char *)(uintptr_t)settings_json(&call->arena, &after),
                    NULL};
    past_process_answer(call, args, TRIAL_MS);
}

// --- the other process: the jobs ---

struct trial_input {
    struct core *core;
    struct trace trace;
    struct arena scratch;
    uint64_t left_out;
    int64_t to_ms;
};

static void add_job(struct trial_input *g, const struct job_record *j, int64_t end_ms) {
    const struct spec *s = j->spec;
    uint64_t memory = 0, gpus = 0;
    uint32_t tasks = s && s->tasks ? s->tasks : 1;
    if (!s || !j->start_ms || s->components.len || j->job) {
        g->left_out += !j->job;  // a worker is part of its job
        return;
    }
    for (uint32_t i = 0; i < j->parts.len; i++) {
        memory = j->parts.at[i].memory_bytes > memory ? j->parts.at[i].memory_bytes : memory;
        for (uint32_t k = 0; k < j->parts.at[i].gpus.len; k++)
            gpus += j->parts.at[i].gpus.at[k].milli;
    }
    int64_t run_ms = end_ms - j->start_ms - j->suspended_ms;
    struct trace_job t = {
        .submit_ms = j->eligible_ms > j->submit_ms ? j->eligible_ms : j->submit_ms,
        .run_ms = run_ms > 1000 ? run_ms : 1000,
        .limit_ms = (int64_t)s->time_limit_s * 1000,
        .nodes = j->parts.len > 1 ? j->parts.len : 0,
        .tasks = tasks,
        .cpus_per_task = s->cpus_per_task ? s->cpus_per_task : 1,
        .memory_bytes = memory,
        .gpu_milli = (uint32_t)(gpus / tasks),
        .user = trace_names_number(&g->trace.users, s->user),
        .project = trace_names_number(&g->trace.projects, s->project),
        .model = trace_names_number(&g->trace.models, s->gpu_model),
        .interactive = s->class == CLASS_INTERACTIVE,
    };
    g->trace.gpus |= t.gpu_milli > 0;
    vec_push(&g->trace.jobs, t);
}

static int take_event(void *ctx, const struct store_event *e) {
    struct trial_input *g = ctx;
    struct job_record j;
    if (e->type == EVENT_JOB_ENDED && core_record(g->core, e->job, &g->scratch, &j) == 0)
        add_job(g, &j, e->at_ms);
    arena_reset(&g->scratch);
    g->to_ms = e->at_ms;
    return core_replay(g->core, e->seq, e->at_ms, (enum event_type)e->type, e->data, e->len);
}

// What runs still has run for so long at least.
static void take_running(void *ctx, const struct job_view *v) {
    struct trial_input *g = ctx;
    struct job_record j;
    if (core_record(g->core, v->id, &g->scratch, &j) == 0)
        add_job(g, &j, g->to_ms);
    arena_reset(&g->scratch);
}

// --- nodes and projects as they are now ---

static bool take_node(void *ctx, const struct node_view *v) {
    struct trial_input *g = ctx;
    const struct node *n = v->node;
    if (v->state == NODE_UP && !v->drained)
        vec_push(&g->trace.nodes, ((struct trace_node){.name = xstrdup(n->name),
                                                       .cpus = n->cpus,
                                                       .gpus = n->gpus.len,
                                                       .memory_bytes = n->memory_bytes,
                                                       .model = xstrdup(n->gpus.len ? n->gpus.at[0].model : "")}));
    return true;
}

static bool has_settings(const struct trace *t, uint32_t number) {
    for (uint32_t i = 0; i < t->settings.len; i++)
        if (t->settings.at[i].id == number)
            return true;
    return false;
}

static bool take_project(void *ctx, const char *name, const void *value) {
    struct trial_input *g = ctx;
    const struct project *p = value;
    uint32_t number = trace_names_number(&g->trace.projects, name);
    uint32_t parent = str_empty(p->parent) ? 0 : trace_names_number(&g->trace.projects, p->parent);
    if (has_settings(&g->trace, number) || (parent && !has_settings(&g->trace, parent)))
        return true;  // done, or its turn comes after its parent's
    bool rest = p->quota_milligpu == PROJECT_QUOTA_ALL;
    vec_push(&g->trace.settings,
             ((struct sched_project){.id = number,
                                     .parent = parent,
                                     .name = trace_names_get(&g->trace.projects, number),
                                     .quota_milligpu = rest ? 0 : p->quota_milligpu,
                                     .quota_rest = rest,
                                     .weight_milli = p->has_weight ? (int64_t)p->weight_milli : SCHED_UNLIMITED,
                                     .limit_milligpu = p->has_limit ? (int64_t)p->limit_milligpu : SCHED_UNLIMITED,
                                     .quota_cpus = SCHED_UNLIMITED,
                                     .limit_cpus = SCHED_UNLIMITED,
                                     .interactive_limit_ms = SCHED_UNLIMITED}));
    return true;
}

static void take_projects(struct trial_input *g) {
    uint32_t before;
    do {
        before = g->trace.settings.len;
        core_each_entity(g->core, ENTITY_PROJECT, take_project, g);
    } while (g->trace.settings.len > before);
    // Projects of the jobs that are gone: without a quota.
    for (uint32_t n = 1; n <= g->trace.projects.at.len; n++)
        if (!has_settings(&g->trace, n))
            vec_push(&g->trace.settings, ((struct sched_project){.id = n,
                                                                 .name = trace_names_get(&g->trace.projects, n),
                                                                 .weight_milli = SCHED_UNLIMITED,
                                                                 .limit_milligpu = SCHED_UNLIMITED,
                                                                 .quota_cpus = SCHED_UNLIMITED,
                                                                 .limit_cpus = SCHED_UNLIMITED,
                                                                 .interactive_limit_ms = SCHED_UNLIMITED}));
}

static int by_submit(const void *a, const void *b) {
    const struct trace_job *x = a, *y = b;
    return (x->submit_ms > y->submit_ms) - (x->submit_ms < y->submit_ms);
}

// True: all are taken; else the newest.
static bool put_in_order(struct trace *t) {
    if (t->jobs.len)
        qsort(t->jobs.at, t->jobs.len, sizeof *t->jobs.at, by_submit);
    if (t->jobs.len <= JOBS_MAX)
        return true;
    memmove(t->jobs.at, t->jobs.at + t->jobs.len - JOBS_MAX, JOBS_MAX * sizeof *t->jobs.at);
    t->jobs.len = JOBS_MAX;
    return false;
}

static int gather(const char *place, const char *state, int64_t since_ms, struct trial_input *g,
                  struct error *e) {
    int64_t oldest_ms = past_oldest_ms(place, state);
    int r = past_load(place, state, since_ms > oldest_ms ? since_ms : oldest_ms, g->core, e);
    g->to_ms = since_ms > oldest_ms ? since_ms : oldest_ms;
    if (r == 0)
        r = store_journal_copy(place, core_seq(g->core), take_event, g, e);
    if (r < 0)
        return r;
    core_each_running(g->core, take_running, g);
    core_each_node(g->core, take_node, g);
    take_projects(g);
    return 0;
}

// --- the figures ---

static int by_double(const void *pa, const void *pb) {
    double a = *(const double *)pa, b = *(const double *)pb;
    return (a > b) - (a < b);
}

static double gpu_hours(const struct trace_job *j, const struct replay_outcome *o, int64_t to_ms) {
    int64_t end_ms = o->end_ms >= 0 && o->end_ms < to_ms ? o->end_ms : to_ms;
    if (o->start_ms < 0 || end_ms <= o->start_ms)
        return 0;
    return (double)j->gpu_milli * j->tasks / 1000 * (double)(end_ms - o->start_ms) / HOUR_MS;
}

// Of one project; 0: of all.
static struct answer_trial_run figures(const struct trial_input *g, const struct replay *r, uint32_t project) {
    struct answer_trial_run out = {0};
    double *waits = xcalloc(g->trace.jobs.len + 1, sizeof *waits);
    uint32_t n = 0;
    for (uint32_t i = 0; i < g->trace.jobs.len; i++) {
        const struct trace_job *j = &g->trace.jobs.at[i];
        const struct replay_outcome *o = &r->jobs.at[i];
        if (project && j->project != project)
            continue;
        out.preemptions += o->preempted;
        out.gpu_hours += gpu_hours(j, o, g->to_ms);
        out.not_started += o->end_ms < 0 || o->end_ms > g->to_ms + MOVED_MS;
        if (o->end_ms < 0)
            continue;
        waits[n] = (double)(o->end_ms - j->submit_ms - j->run_ms) / 1000;
        out.wait_mean_s += waits[n++];
    }
    qsort(waits, n, sizeof *waits, by_double);
    if (n) {
        out.wait_mean_s /= n;
        out.wait_median_s = waits[(n - 1) / 2];
        out.wait_p95_s = waits[(uint32_t)(0.95 * (n - 1) + 0.5)];
    }
    free(waits);
    return out;
}

static struct answer_trial_run *kept(struct arena *a, struct answer_trial_run run) {
    struct answer_trial_run *out = arena_alloc(a, sizeof *out);
    *out = run;
    return out;
}

static void fill(const struct trial_input *g, const struct replay *now, const struct replay *changed, struct arena *a,
                 struct answer_policy_trial *out) {
    uint32_t projects = g->trace.projects.at.len;
    out->now = kept(a, figures(g, now, 0));
    out->changed = kept(a, figures(g, changed, 0));
    out->projects.at = arena_alloc(a, (projects + 1) * sizeof *out->projects.at);
    for (uint32_t p = 1; p <= projects; p++) {
        struct answer_trial_project row = {.project = trace_names_get(&g->trace.projects, p)};
        for (uint32_t i = 0; i < g->trace.jobs.len; i++)
            row.jobs += g->trace.jobs.at[i].project == p;
        row.now = kept(a, figures(g, now, p));
        row.changed = kept(a, figures(g, changed, p));
        if (row.jobs)
            out->projects.at[out->projects.len++] = row;
    }
    for (uint32_t i = 0; i < g->trace.jobs.len; i++) {
        int64_t before = now->jobs.at[i].end_ms, after = changed->jobs.at[i].end_ms;
        before = before < 0 ? INT64_MAX / 2 : before;
        after = after < 0 ? INT64_MAX / 2 : after;
        out->sooner += after + MOVED_MS <= before;
        out->later += before + MOVED_MS <= after;
    }
}

static int try_both(struct trial_input *g, const struct policy *now, const struct policy *changed, struct arena *a,
                    struct answer_policy_trial *out, struct error *e) {
    struct replay first, second;
    if (!g->trace.jobs.len || !g->trace.nodes.len) {  // nothing to try: all figures are zero
        out->now = kept(a, (struct answer_trial_run){0});
        out->changed = kept(a, (struct answer_trial_run){0});
        return 0;
    }
    int r = sim_replay_run(&g->trace, now, &first, e);
    r = r ? r : sim_replay_run(&g->trace, changed, &second, e);
    if (r == 0)
        fill(g, &first, &second, a, out);
    return r;
}

static int read_policy(const char *text, int64_t grace_ms, struct arena *a, struct policy *out, struct error *e) {
    struct policy_settings s = {0};
    struct json *j;
    int r = json_parse(text, strlen(text), a, &j, e);
    r = r < 0 ? r : schema_read_json(&policy_schema, j, a, &s, e);
    sched_policy_default(out);
    out->grace_ms = grace_ms;
    return r < 0 ? r : core_policy_of(&s, out, e);
}

int controller_trial_main(int argc, char **argv) {
    struct core_config config;
    struct policy now, changed;
    struct error e = {0};
    struct arena a = {0};
    struct buf out = {0};
    int64_t since_ms, grace_ms;
    if (argc != 7 || parse_i64(argv[3], &since_ms) < 0 || parse_i64(argv[4], &grace_ms) < 0 ||
        read_policy(argv[5], grace_ms, &a, &now, &e) < 0 ||
        read_policy(argv[6], grace_ms, &a, &changed, &e) < 0) {
        log_error("try-policy is started by the controller");
        return 2;
    }
    controller_stay_behind();
    core_config_default(&config);
    struct trial_input g = {.core = core_new(&config)};
    struct answer_policy_trial answer = {.from_ms = since_ms};
    int r = gather(argv[1], argv[2], since_ms, &g, &e);
    answer.complete = put_in_order(&g.trace);
    answer.to_ms = g.to_ms;
    answer.jobs = g.trace.jobs.len;
    answer.left_out = g.left_out;
    r = r < 0 ? r : try_both(&g, &now, &changed, &a, &answer, &e);
    if (r < 0) {
        log_warn("the trial of a policy: %s", e.text);
        return 1;
    }
    schema_write_json(&answer_policy_trial_schema, &answer, &(struct json_writer){.out = &out});
    buf_addc(&out, '\n');
    return past_process_write(&out);  // the memory goes with the process
}
