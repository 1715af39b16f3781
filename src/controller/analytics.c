// GET /v1/analytics: what projects, users or months have used, from the ended jobs in memory and those that run.
// Each job adds its GPUs to the steps it ran in: whole steps by differences, so that a long job costs no more than a
// short one.
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "answers_portal.h"
#include "api.h"
#include "base/text.h"
#include "job_table.h"
#include "sliced_read.h"
#include "table_sort.h"

enum {
    STEPS_MAX = 2000,
    POINTS_MAX = 100000,  // of all groups, written in one piece; those beyond it have none
    HOUR_MS = 3600000,
    DAY_MS = 24 * HOUR_MS,
    USUAL_DAYS = 30,
    MONTH_TEXT = 16,
};

struct use_group {
    struct answer_analytics_group answer;
    double *whole, *parts;  // thousandths of GPUs times ms: whole steps as differences, and parts of steps
    VEC(int64_t) waits;
};

struct analysis {
    struct sliced_read read;
    bool begun, admin, csv;
    uint32_t at;  // row, then group, that comes next
    enum { ANALYSE_JOBS, ANALYSE_GROUPS } phase;
    char user[USER_NAME_MAX];
    enum query_group by;
    int64_t from_ms, to_ms, step_ms;
    uint32_t steps;
    struct arena arena;
    struct strmap groups;  // name → struct use_group
    VEC(struct use_group *) list;
};

static const char *month_of(struct analysis *a, int64_t at_ms, char out[static MONTH_TEXT]) {
    time_t t = (time_t)(at_ms / 1000);
    struct tm tm;
    gmtime_r(&t, &tm);
    strftime(out, MONTH_TEXT, "%Y-%m", &tm);
    return out;
}

static struct use_group *group_of(struct analysis *a, const struct table_row *r, int64_t end_ms) {
    char month[MONTH_TEXT];
    const char *name = a->by == QUERY_BY_PROJECT ? r->project
                       : a->by == QUERY_BY_USER  ? r->user
                                                 : month_of(a, end_ms, month);
    struct use_group *g = strmap_get(&a->groups, name ? name : "");
    if (g)
        return g;
    g = arena_alloc(&a->arena, sizeof *g);
    *g = (struct use_group){.answer.name = arena_strdup(&a->arena, name ? name : "")};
    if (a->by != QUERY_BY_MONTH && (uint64_t)(a->list.len + 1) * a->steps <= POINTS_MAX) {
        size_t bytes = (a->steps + 1) * sizeof(double);
        g->whole = arena_alloc(&a->arena, bytes);
        g->parts = arena_alloc(&a->arena, bytes);
        memset(g->whole, 0, bytes);
        memset(g->parts, 0, bytes);
    }
    strmap_put(&a->groups, g->answer.name, g);
    vec_push(&a->list, g);
    return g;
}

static void add_span(struct analysis *a, struct use_group *g, int64_t begin_ms, int64_t end_ms, double milli) {
    uint32_t first = (uint32_t)((begin_ms - a->from_ms) / a->step_ms);
    uint32_t last = (uint32_t)((end_ms - 1 - a->from_ms) / a->step_ms);
    if (first == last) {
        g->parts[first] += milli * (double)(end_ms - begin_ms);
        return;
    }
    g->parts[first] += milli * (double)(a->from_ms + (first + 1) * a->step_ms - begin_ms);
    g->parts[last] += milli * (double)(end_ms - a->from_ms - last * a->step_ms);
    // Whole steps by differences: a job of a year costs as much as one of a minute. The sums are made at the end.
    g->whole[first + 1] += milli * (double)a->step_ms;
    g->whole[last] -= milli * (double)a->step_ms;
}

static void add_row(struct analysis *a, const struct table_row *r) {
    int64_t begin_ms = r->start_ms > a->from_ms ? r->start_ms : a->from_ms;
    int64_t end_ms = r->end_ms && r->end_ms < a->to_ms ? r->end_ms : a->to_ms;
    bool mine = a->admin || a->by != QUERY_BY_USER || streq(r->user, a->user);
    if (!mine || !r->start_ms || begin_ms >= end_ms)
        return;
    struct use_group *g = group_of(a, r, end_ms);
    double hours = (double)(end_ms - begin_ms) / HOUR_MS;
    g->answer.jobs++;
    g->answer.gpu_hours += hours * (double)r->gpus_milli / 1000;
    g->answer.cpu_hours += hours * r->cpus;
    if (r->gpus_milli && g->whole)
        add_span(a, g, begin_ms, end_ms, (double)r->gpus_milli);
    // Use is known when a job has ended; it is set against the hours of those jobs, not of all.
    if (r->end_ms && r->end_ms <= a->to_ms) {
        g->answer.gpu_busy_hours += (double)r->gpu_busy_ms / HOUR_MS;
        g->answer.gpu_ended_hours +=
            (double)(r->end_ms - r->start_ms) / HOUR_MS * (double)r->gpus_milli / 1000;
        g->answer.energy_kwh += (double)r->energy_mj / 3.6e9;
    }
    int64_t from_ms = r->eligible_ms > r->submit_ms ? r->eligible_ms : r->submit_ms;
    if (r->start_ms >= a->from_ms)
        vec_push(&g->waits, r->start_ms > from_ms ? r->start_ms - from_ms : 0);
}

static void add_running(void *ctx, const struct job_view *v) {
    struct table_row r = {.gpus_milli = v->gpus_milli,
                          .cpus = v->cpus,
                          .submit_ms = v->submit_ms,
                          .eligible_ms = v->eligible_ms,
                          .start_ms = v->start_ms,
                          .user = v->user,
                          .project = v->project};
    add_row(ctx, &r);
}

static void finish_group(struct analysis *a, struct use_group *g) {
    const struct config_report *p = &a->read.controller->config.report;
    struct answer_analytics_group *o = &g->answer;
    o->cost =
        o->gpu_hours * p->price_gpu_hour + o->cpu_hours * p->price_cpu_hour + o->energy_kwh * p->price_kwh;
    o->wait_median_ms = g->waits.len ? table_nth(g->waits.at, g->waits.len, g->waits.len / 2) : 0;
    vec_done(&g->waits);
    if (!g->whole)
        return;
    double sum = 0;
    o->gpus.at = arena_alloc(&a->arena, (a->steps + 1) * sizeof *o->gpus.at);
    o->gpus.len = a->steps;
    for (uint32_t i = 0; i < a->steps; i++) {
        int64_t step_end_ms = a->from_ms + (i + 1) * a->step_ms;
        int64_t len_ms = a->step_ms - (step_end_ms > a->to_ms ? step_end_ms - a->to_ms : 0);
        sum += g->whole[i];
        double mean = (sum + g->parts[i]) / 1000 / (double)len_ms;
        o->gpus.at[i] = mean < 1e-6 ? 0 : mean;
    }
}

static int by_use(const void *x, const void *y) {
    const struct answer_analytics_group *a = x, *b = y;
    int r = (a->gpu_hours < b->gpu_hours) - (a->gpu_hours > b->gpu_hours);
    return r ? r : strcmp(a->name, b->name);
}

static void put_csv(const struct answer_analytics *o, struct buf *out) {
    buf_adds(out,
             "name,jobs,gpu_hours,cpu_hours,gpu_busy_hours,energy_kwh,cost,wait_median_s,gpu_ended_hours\n");
    for (uint32_t i = 0; i < o->groups.len; i++) {
        const struct answer_analytics_group *g = &o->groups.at[i];
        buf_addc(out, '"');
        for (const char *p = g->name; *p; p++)
            buf_adds(out, *p == '"' ? "\"\"" : (char[]){*p, 0});
        buf_addf(out, "\",%llu,%.3f,%.3f,%.3f,%.3f,%.2f,%.1f,%.3f\n", (unsigned long long)g->jobs,
                 g->gpu_hours, g->cpu_hours, g->gpu_busy_hours, g->energy_kwh, g->cost,
                 (double)g->wait_median_ms / 1000, g->gpu_ended_hours);
    }
}

static void answer(struct analysis *a, bool complete) {
    const struct config_report *p = &a->read.controller->config.report;
    struct answer_analytics o = {
        .from_ms = a->from_ms,
        .to_ms = a->to_ms,
        .step_ms = a->step_ms,
        .complete = complete,
        .currency = p->price_gpu_hour > 0 || p->price_cpu_hour > 0 || p->price_kwh > 0 ? p->currency : NULL};
    o.groups.at = arena_alloc(&a->arena, (a->list.len + 1) * sizeof *o.groups.at);
    for (uint32_t i = 0; i < a->list.len; i++)
        o.groups.at[o.groups.len++] = a->list.at[i]->answer;
    if (o.groups.len)
        qsort(o.groups.at, o.groups.len, sizeof *o.groups.at, by_use);
    if (!a->csv) {
        api_answer_to(a->read.req, 200, &answer_analytics_schema, &o);
        return;
    }
    cleanup_buf struct buf csv = {0};
    put_csv(&o, &csv);
    net_reply(a->read.req, 200, "text/csv; charset=utf-8", csv.data, csv.len);
}

static void begin(struct analysis *a) {
    job_table_read_begin(a->read.controller);
    a->begun = true;
}

static bool run(struct sliced_read *r) {
    struct analysis *a = (struct analysis *)r;
    struct controller *c = r->controller;
    bool cut = false, complete;
    uint32_t len;
    if (!a->begun)
        begin(a);
    const struct table_row *rows = job_table_rows(c, &len, &complete);
    if (a->phase == ANALYSE_JOBS) {
        for (; a->at < len && !cut; a->at++) {
            if (!rows[a->at].worker)
                add_row(a, &rows[a->at]);
            cut = sliced_read_over(r, 1);
        }
        if (a->at < len)
            return false;
        core_each_running(c->core, add_running, a);  // in the same turn: none ends between the two
        a->phase = ANALYSE_GROUPS;
        a->at = 0;
    }
    for (; a->at < a->list.len && !cut; a->at++) {
        struct use_group *g = a->list.at[a->at];
        uint32_t looked = a->steps + g->waits.len + 1;
        finish_group(a, g);
        cut = sliced_read_over(r, looked);
    }
    if (a->at < a->list.len)
        return false;
    answer(a, complete);
    return true;
}

static bool may_run(const struct sliced_read *r) {
    return ((const struct analysis *)r)->begun || job_table_ready(r->controller);
}

static void analysis_free(struct sliced_read *r) {
    struct analysis *a = (struct analysis *)r;
    if (a->begun)
        job_table_read_end(r->controller);
    for (uint32_t i = 0; i < a->list.len; i++)
        vec_done(&a->list.at[i]->waits);
    vec_done(&a->list);
    strmap_done(&a->groups);
    arena_done(&a->arena);
    free(a);
}

void api_analytics(struct api_call *call) {
    const struct query_analytics *q = call->query;
    struct error e = {0};
    int64_t to_ms = q->to_ms ? q->to_ms : controller_now_ms();
    int64_t from_ms = q->from_ms ? q->from_ms : to_ms - (int64_t)USUAL_DAYS * DAY_MS;
    int64_t step_ms = q->step_ms ? q->step_ms : to_ms - from_ms > 7 * (int64_t)DAY_MS ? DAY_MS : HOUR_MS;
    if (from_ms >= to_ms)
        error_set(&e, EINVAL, "from_ms: it must be before to_ms");
    else if ((to_ms - from_ms + step_ms - 1) / step_ms > STEPS_MAX)
        error_set(&e, EINVAL, "step_ms: more than %d steps; give a longer one", STEPS_MAX);
    if (e.code) {
        api_fail(call->req, &e);
        return;
    }
    struct analysis *a = xcalloc(1, sizeof *a);
    *a = (struct analysis){.read = {.run = run, .free = analysis_free, .has_news = may_run},
                           .admin = call->actor.admin,
                           .csv = q->csv,
                           .by = (enum query_group)q->by,
                           .from_ms = from_ms,
                           .to_ms = to_ms,
                           .step_ms = step_ms,
                           .steps = (uint32_t)((to_ms - from_ms + step_ms - 1) / step_ms)};
    snprintf(a->user, sizeof a->user, "%s", call->actor.user);
    job_table_want(call->controller);
    sliced_read_begin(&a->read, call);
}
