// Sums what jobs used. A job counts with the part of its time that lies in the window (and, by month, in the month);
// its energy and measured use are divided in the same proportion.
#include "cli/job/usage.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "base/clock.h"
#include "base/map.h"
#include "base/text.h"
#include "cli/job/rows.h"
#include "model/job.h"

enum { GROUPS_MAX = 100000, MONTHS_MAX = 1200 };
#define HOUR_MS 3.6e6

struct summing {
    struct cli *cli;
    const struct job_usage_query *query;
    struct job_usages *out;
    struct strmap index;  // key → position + 1
    int64_t now_ms;
};

struct row_values {
    const char *project, *user, *state;
    int64_t submit_ms, eligible_ms, start_ms, end_ms, elapsed_ms;
    double cpus, gpus, cpu_ms, gpu_busy_ms, gpu_measured_ms, energy_mj;
    bool counted;  // as a job that began; the earlier attempts of one that is counted anyway are not
};

static int month_of(int64_t at_ms) {
    time_t t = (time_t)(at_ms / 1000);
    struct tm tm;
    localtime_r(&t, &tm);
    return (tm.tm_year + 1900) * 12 + tm.tm_mon;
}

static int64_t month_start(int month) {
    struct tm tm = {.tm_year = month / 12 - 1900, .tm_mon = month % 12, .tm_mday = 1, .tm_isdst = -1};
    return (int64_t)mktime(&tm) * 1000;
}

static struct job_usage *group(struct summing *s, const struct row_values *v, int month) {
    unsigned by = s->query->by;
    const char *project = by & USAGE_BY_PROJECT ? v->project : NULL, *user = by & USAGE_BY_USER ? v->user : NULL;
    char *key = arena_printf(&s->cli->arena, "%d\n%s\n%s", month, project ? project : "", user ? user : "");
    uintptr_t at = (uintptr_t)strmap_get(&s->index, key);
    if (at)
        return &s->out->at.at[at - 1];
    if (s->out->at.len == GROUPS_MAX)
        return NULL;
    struct job_usage one = {.project = project ? arena_strdup(&s->cli->arena, project) : NULL,
                            .user = user ? arena_strdup(&s->cli->arena, user) : NULL,
                            .month = month};
    vec_push(&s->out->at, one);
    strmap_put(&s->index, key, (void *)(uintptr_t)s->out->at.len);
    return &s->out->at.at[s->out->at.len - 1];
}

static bool has_failed(const char *state) {
    static const enum job_state good[] = {JOB_COMPLETED, JOB_RUNNING, JOB_SUSPENDED, JOB_COMPLETING, JOB_STARTING,
                                          JOB_PENDING, JOB_CANCELLED};
    for (size_t i = 0; i < sizeof good / sizeof *good; i++)
        if (streq(state, job_state_words[good[i]]))
            return false;
    return true;
}

// `part`: of the job's time that is meant. `first`: the part in which it began.
static void add(struct job_usage *u, const struct row_values *v, double part, bool first) {
    double hours = (double)v->elapsed_ms * part / HOUR_MS, gpu = v->gpus * hours, cpu = v->cpus * hours;
    double idle_cpu = cpu - v->cpu_ms * part / HOUR_MS;
    u->jobs += first && v->counted;
    u->gpu_hours += gpu;
    u->cpu_hours += cpu;
    u->kwh += v->energy_mj * part / 3.6e9;
    u->idle_cpu_hours += idle_cpu > 0 ? idle_cpu : 0;
    if (v->gpu_measured_ms > v->gpu_busy_ms)
        u->idle_gpu_hours += (v->gpu_measured_ms - v->gpu_busy_ms) * part / HOUR_MS;
    if (has_failed(v->state)) {
        u->lost_gpu_hours += gpu;
        u->lost_cpu_hours += cpu;
    }
    if (first && v->counted) {
        int64_t since = v->eligible_ms ? v->eligible_ms : v->submit_ms;
        u->wait_s += v->start_ms > since ? (double)(v->start_ms - since) / 1000 : 0;
        u->started++;
    }
}

static int add_job(struct summing *s, const struct row_values *v) {
    const struct job_usage_query *q = s->query;
    int64_t end = v->end_ms ? v->end_ms : s->now_ms, low = v->start_ms > q->from_ms ? v->start_ms : q->from_ms,
            high = end < q->to_ms ? end : q->to_ms;
    double whole = end > v->start_ms ? (double)(end - v->start_ms) : 1;
    if (!v->start_ms || low > high || v->start_ms >= q->to_ms)
        return 0;
    bool first = true;
    add(&s->out->total, v, (double)(high - low) / whole, true);
    for (int i = 0; i < MONTHS_MAX; i++) {
        int month = q->by & USAGE_BY_MONTH ? month_of(low) : 0;
        int64_t until = month ? month_start(month + 1) : high;
        until = until < high ? until : high;
        struct job_usage *u = group(s, v, month);
        if (!u)
            return error_set(&s->cli->error, E2BIG, "more than %d groups; narrow the report with --project, --user or "
                                                    "--since", GROUPS_MAX);
        add(u, v, (double)(until - low) / whole, first);
        first = false;
        if (until >= high)
            break;
        low = until;
    }
    return 0;
}

static double number(const struct json *usage, const char *name) {
    return usage ? (double)json_i64(usage, name, 0) : 0;
}

// Attempts that were preempted, queued again or lost, as one stretch of time from the first to the last of them.
static int add_earlier(struct summing *s, const struct row_values *job, const struct json *usage) {
    struct row_values v = *job;
    v.start_ms = (int64_t)number(usage, "earlier_start_ms");
    v.end_ms = (int64_t)number(usage, "earlier_end_ms");
    if (!v.start_ms)
        return 0;
    if (v.end_ms <= v.start_ms)
        v.end_ms = v.start_ms + 1;
    v.elapsed_ms = v.end_ms - v.start_ms;
    v.cpus = number(usage, "earlier_cpu_held_ms") / (double)v.elapsed_ms;
    v.gpus = number(usage, "earlier_gpu_held_ms") / (double)v.elapsed_ms;
    v.cpu_ms = number(usage, "earlier_cpu_us") / 1000;
    v.gpu_busy_ms = number(usage, "earlier_gpu_busy_ms");
    v.gpu_measured_ms = number(usage, "earlier_gpu_measured_ms");
    v.energy_mj = number(usage, "earlier_energy_mj");
    v.counted = job->counted && !job->start_ms;
    if (!job->start_ms)
        v.state = job_state_words[JOB_CANCELLED];
    return add_job(s, &v);
}

static int take_row(void *ctx, const struct job_rows *h, const struct json *row) {
    struct summing *s = ctx;
    int usage_at = job_rows_field(h, "usage");
    const struct json *usage =
        usage_at >= 0 && (uint32_t)usage_at < row->len && row->items[usage_at].type == JSON_OBJECT
            ? &row->items[usage_at]
            : NULL;
    // An elastic job comes as its workers, 12+0 and on: their hours add up, and the first of them counts as the job.
    const char *label = job_rows_text(row, job_rows_field(h, "label")), *worker = label ? strchr(label, '+') : NULL;
    struct row_values v = {
        .project = job_rows_text(row, job_rows_field(h, "project")),
        .user = job_rows_text(row, job_rows_field(h, "user")),
        .state = job_rows_text(row, job_rows_field(h, "state")),
        .submit_ms = job_rows_number(row, job_rows_field(h, "submit_ms")),
        .eligible_ms = job_rows_number(row, job_rows_field(h, "eligible_ms")),
        .start_ms = job_rows_number(row, job_rows_field(h, "start_ms")),
        .end_ms = job_rows_number(row, job_rows_field(h, "end_ms")),
        .elapsed_ms = job_rows_number(row, job_rows_field(h, "elapsed_ms")),
        .cpus = (double)job_rows_number(row, job_rows_field(h, "cpus")),
        .gpus = (double)job_rows_number(row, job_rows_field(h, "gpus_milli")) / 1000,
        .cpu_ms = (number(usage, "cpu_user_us") + number(usage, "cpu_system_us")) / 1000,
        .gpu_busy_ms = number(usage, "gpu_busy_ms"),
        .gpu_measured_ms = number(usage, "gpu_measured_ms"),
        .energy_mj = number(usage, "energy_mj"),
        .counted = !worker || streq(worker, "+0"),
    };
    int r = add_job(s, &v);
    return r < 0 ? r : add_earlier(s, &v, usage);
}

static int compare(const void *va, const void *vb) {
    const struct job_usage *a = va, *b = vb;
    if (a->month != b->month)
        return a->month < b->month ? -1 : 1;
    int r = strcmp(a->project ? a->project : "", b->project ? b->project : "");
    return r ? r : strcmp(a->user ? a->user : "", b->user ? b->user : "");
}

int job_usage_fetch(struct cli *c, struct client *k, const struct job_usage_query *q, struct job_usages *out) {
    cleanup_query struct query t = {0};
    struct summing s = {.cli = c, .query = q, .out = out, .now_ms = clock_wall_ms()};
    *out = (struct job_usages){0};
    client_query_begin(&t, "/v1/jobs");
    client_query_add(&t, "stream", "1");
    client_query_add(&t, "all", "1");
    client_query_add(&t, "elements", "1");
    client_query_add(&t, "project", q->project);
    client_query_add(&t, "user", q->user);
    client_query_addf(&t, "from_ms", "%lld", (long long)q->from_ms);
    client_query_addf(&t, "to_ms", "%lld", (long long)q->to_ms);
    client_query_add(
        &t, "fields",
        "label,project,user,state,submit_ms,eligible_ms,start_ms,end_ms,elapsed_ms,cpus,gpus_milli,usage");
    int r = job_list_each(c, k, buf_str(&t.text), take_row, &s);
    strmap_done(&s.index);
    if (r == 0 && out->at.len)
        qsort(out->at.at, out->at.len, sizeof *out->at.at, compare);
    return r;
}

void job_usages_done(struct job_usages *u) {
    vec_done(&u->at);
}
