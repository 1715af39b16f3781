// The jobs of services: each revision that is to have replicas has one elastic job, whose workers they are. Jobs carry
// the number of their service and revision, so that which there are follows from the jobs themselves: after a restart
// nothing has to be remembered, only compared.
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/alloc.h"
#include "base/text.h"
#include "model/reason.h"
#include "pauses.h"
#include "state.h"

enum {
    RETRY_LEAST_S = 2,
    RETRY_MOST_S = 300,
    REFUSED_RETRY_S = 10,         // after a submit was refused
    LASTING_MS = 10 * 60 * 1000,  // a job that ran so long did not fail at once
    CHANGES_AT_ONCE = 32,         // jobs that are submitted, resized or cancelled in one go
};

static const struct actor self = {.user = "controller", .admin = true};

static uint64_t service_of(const struct core_job *j) {
    return core_group_of(j) ? core_group_of(j)->service : 0;
}

struct service_job_list {
    VEC(uint64_t) jobs;
};

void core_service_job_linked(struct core *c, const struct core_job *j) {
    uint64_t service = service_of(j);
    if (!service)
        return;
    struct service_job_list *l = map_get(&c->jobs_of_service, service);
    if (!l) {
        l = xcalloc(1, sizeof *l);
        map_put(&c->jobs_of_service, service, l);
    }
    vec_push(&l->jobs, j->id);
    vec_push(&c->service_jobs, j->id);
}

static void list_free(struct service_job_list *l) {
    vec_done(&l->jobs);
    free(l);
}

static void unlink_job(struct core *c, uint64_t service, uint64_t job) {
    struct service_job_list *l = map_get(&c->jobs_of_service, service);
    for (uint32_t i = 0; l && i < l->jobs.len; i++)
        if (l->jobs.at[i] == job) {
            vec_remove(&l->jobs, i);
            break;
        }
    if (l && !l->jobs.len)
        list_free(map_remove(&c->jobs_of_service, service));
}

void core_service_jobs_done(struct core *c) {
    size_t it = 0;
    void *v;
    while (map_next(&c->jobs_of_service, &it, NULL, &v))
        list_free(v);
    map_done(&c->jobs_of_service);
    vec_done(&c->service_jobs);
}

static struct service_revision *revision_of(const struct event_service *s, uint32_t number) {
    for (uint32_t i = 0; s && i < s->revisions.len; i++)
        if (s->revisions.at[i].number == number)
            return &s->revisions.at[i];
    return NULL;
}

// The service still wants the job, which has ended by itself: it is submitted again after a pause that doubles.
void core_service_job_gone(struct core *c, const struct core_job *j, int64_t at_ms) {
    if (!service_of(j))
        return;
    for (uint32_t i = 0; i < c->service_jobs.len; i++)
        if (c->service_jobs.at[i] == j->id) {
            vec_remove(&c->service_jobs, i);
            break;
        }
    unlink_job(c, service_of(j), j->id);
    c->services_changed = true;
    struct service_entry *x = map_get(&c->service_ids, service_of(j));
    const struct service_revision *r = x ? revision_of(x->service, core_group_of(j)->revision) : NULL;
    if (!r || r->state == REVISION_RETIRING || !r->replicas)
        return;
    if (j->start_ms && at_ms - j->start_ms > LASTING_MS)
        x->failures = 0;
    int64_t pause_s = (int64_t)RETRY_LEAST_S << (x->failures < 8 ? x->failures : 8);
    x->failures++;
    x->retry_ms = at_ms + 1000 * (pause_s < RETRY_MOST_S ? pause_s : RETRY_MOST_S);
    snprintf(x->problem, sizeof x->problem, "job %llu of revision %u has ended; 'acequia get %llu' says why",
             (unsigned long long)j->id, r->number, (unsigned long long)j->id);
}

uint64_t core_service_of_job(const struct core *c, uint64_t job) {
    const struct core_job *j = c->service_jobs.len ? core_find_job(c, job) : NULL;
    return j ? service_of(j) : 0;
}

uint64_t core_service_job(const struct core *c, uint64_t service, uint32_t revision) {
    const struct service_job_list *l = map_get(&c->jobs_of_service, service);
    for (uint32_t i = l ? l->jobs.len : 0; i-- > 0;) {
        const struct core_job *j = core_find_job(c, l->jobs.at[i]);
        bool ends = j && j->run && j->run->ending && j->run->cause == END_CANCEL;
        if (j && !ends && core_group_of(j)->revision == revision)
            return j->id;
    }
    return 0;
}

void core_each_worker(const struct core *c, uint64_t job, bool (*fn)(void *ctx, const struct job_view *v),
                      void *ctx) {
    const struct core_job *j = core_find_job(c, job);
    const struct group *g = j && core_is_group(j) ? core_group_of(j) : NULL;
    struct job_view v;
    for (uint32_t i = 0; g && i < g->workers.len; i++) {
        const struct core_job *w = core_worker_job(c, &g->workers.at[i]);
        if (w && core_view(c, w->id, &v) && !fn(ctx, &v))
            return;
    }
}

static bool has_http_port(const struct spec *s) {
    for (uint32_t i = 0; i < s->ports.len; i++)
        if (!str_has_prefix(s->ports.at[i], "tcp:"))
            return true;
    return false;
}

void core_service_spec(const struct event_service *s, const struct service_revision *r, uint32_t replicas,
                       struct arena *a, struct spec *out) {
    uint32_t least = s->replicas_min ? s->replicas_min : 1;
    *out = *r->spec;
    schema_forget_given(&spec_schema, out);
    out->user = NULL;
    out->name = s->name;
    out->workers_max = replicas ? replicas : 1;
    out->workers_min = least < out->workers_max ? least : out->workers_max;
    out->on_worker_end = WORKER_END_RESTART;
    out->requeue = true;
    schema_give(&spec_schema, out, &out->requeue);
    if (has_http_port(out))
        return;
    const char **ports = arena_alloc(a, (out->ports.len + 1) * sizeof *ports);
    ports[0] = "http:0";
    for (uint32_t i = 0; i < out->ports.len; i++)
        ports[i + 1] = out->ports.at[i];
    out->ports.at = ports;
    out->ports.len++;
}

static void submit(struct core *c, struct service_entry *x, const struct service_revision *r, int64_t now_ms,
                   core_service_fn submitted, void *ctx) {
    cleanup_arena struct arena a = {0};
    struct spec spec;
    struct command_result result;
    struct error e = {0};
    const struct event_service *s = x->service;
    core_service_spec(s, r, r->replicas, &a, &spec);
    struct actor owner = {.user = s->user, .uid = s->uid, .gid = s->gid};
    struct command_submit m = {.spec = &spec, .service = s->id, .revision = r->number};
    if (core_command_submit(c, &owner, NULL, &m, now_ms, &result, &e) < 0) {
        snprintf(x->problem, sizeof x->problem, "its job was refused: %.120s", e.text);
        x->retry_ms = now_ms + REFUSED_RETRY_S * 1000;
        return;
    }
    if (!x->failures)
        x->problem[0] = 0;
    if (submitted)
        submitted(ctx, result.id, s, r->number);
}

// Returns whether it changed something.
static bool fit_job(struct core *c, struct service_entry *x, const struct core_job *j, uint32_t replicas,
                    int64_t now_ms) {
    struct error e = {0};
    const struct group *g = core_group_of(j);
    uint32_t least = x->service->replicas_min ? x->service->replicas_min : 1;
    struct command_resize resize = {
        .id = j->id, .workers_min = least < replicas ? least : replicas, .workers_max = replicas};
    if (!replicas)
        core_command_cancel(
            c, &self, &(struct command_cancel){.id = j->id, .reason = reason_text(BECAUSE_NO_REPLICAS)}, now_ms, &e);
    else if (j->run && j->run->ending)
        return false;  // it ends, or goes back to the queue; then it is looked at again
    else if (g->components.at[0].max == resize.workers_max && g->components.at[0].min == resize.workers_min)
        return false;
    else if (core_command_resize(c, &self, &resize, now_ms, &e) < 0) {
        snprintf(x->problem, sizeof x->problem, "its job cannot be resized: %.120s", e.text);
        c->next_service_ms = now_ms + REFUSED_RETRY_S * 1000;
    }
    return true;
}

// The jobs that no revision stands for. Those of services that this state has lost by a restore are left alone.
static uint32_t end_others(struct core *c, int64_t now_ms) {
    uint32_t changes = 0;
    struct error e = {0};
    for (uint32_t i = c->service_jobs.len; i-- > 0 && changes < CHANGES_AT_ONCE;) {
        const struct core_job *j = core_find_job(c, c->service_jobs.at[i]);
        if (!j || (j->run && (j->run->ending || j->run->adopted)))
            continue;
        const struct service_entry *x = map_get(&c->service_ids, service_of(j));
        if (x && revision_of(x->service, core_group_of(j)->revision))
            continue;
        core_command_cancel(
            c, &self,
            &(struct command_cancel){.id = j->id,
                                     .reason = reason_text(x ? BECAUSE_REVISION_REPLACED : BECAUSE_SERVICE_DELETED)},
            now_ms, &e);
        changes++;
    }
    return changes;
}

void core_service_pauses_end(struct core *c) {
    for (uint32_t i = 0; i < c->services.len; i++)
        c->services.at[i]->retry_ms = 0;
    c->services_changed = true;
}

int64_t core_services_reconcile(struct core *c, int64_t now_ms, core_service_fn submitted, void *ctx) {
    if ((!c->services.len && !c->service_jobs.len) || (!c->services_changed && now_ms < c->next_service_ms))
        return c->services.len ? c->next_service_ms : INT64_MAX;
    c->services_changed = false;
    c->next_service_ms = INT64_MAX;
    uint32_t changes = end_others(c, now_ms);
    for (uint32_t i = 0; i < c->services.len && changes < CHANGES_AT_ONCE; i++) {
        struct service_entry *x = c->services.at[i];
        for (uint32_t k = 0; k < x->service->revisions.len; k++) {
            const struct service_revision *r = &x->service->revisions.at[k];
            const struct core_job *j = core_find_job(c, core_service_job(c, x->service->id, r->number));
            if (r->state == REVISION_RETIRING)
                continue;  // until its last request is answered
            if (j) {
                changes += fit_job(c, x, j, r->replicas, now_ms);
            } else if (r->replicas && now_ms >= x->retry_ms) {
                submit(c, x, r, now_ms, submitted, ctx);
                changes++;
            }
            if (r->replicas && x->retry_ms > now_ms && x->retry_ms < c->next_service_ms)
                c->next_service_ms = x->retry_ms;
        }
    }
    c->services_changed = changes >= CHANGES_AT_ONCE;  // the rest in the next turn
    return c->services_changed ? 0 : c->next_service_ms;
}
