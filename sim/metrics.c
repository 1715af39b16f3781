// The figures of a replay. Bounded slowdown: (wait + run) / max(run, 10 s), at least 1; for a job that was
// preempted and run again, the lost run counts as waiting.
#include "sim/metrics.h"

#include <string.h>

enum { SLOWDOWN_BOUND_MS = 10000 };

struct pick {
    uint32_t *jobs;
    uint32_t count;
};

static int by_double(const void *pa, const void *pb) {
    double a = *(const double *)pa, b = *(const double *)pb;
    return (a > b) - (a < b);
}

static double amount_of(const struct trace *t, uint32_t i) {
    const struct trace_job *j = &t->jobs.at[i];
    double size = t->gpus ? (double)j->gpu_milli * j->tasks / 1000 : (double)j->cpus_per_task * j->tasks;
    return size * (double)j->run_ms / 1000;
}

static double wait_ms(const struct trace *t, const struct replay *r, uint32_t i) {
    if (t->jobs.at[i].workers)  // it may run for a shorter time than the trace says
        return (double)(r->jobs.at[i].start_ms - t->jobs.at[i].submit_ms);
    return (double)(r->jobs.at[i].end_ms - t->jobs.at[i].submit_ms - t->jobs.at[i].run_ms);
}

static double slowdown(const struct trace *t, const struct replay *r, uint32_t i) {
    double run = (double)t->jobs.at[i].run_ms, bound = run > SLOWDOWN_BOUND_MS ? run : SLOWDOWN_BOUND_MS;
    double s = (wait_ms(t, r, i) + run) / bound;
    return s > 1 ? s : 1;
}

static double quantile(const double *sorted, uint32_t n, double q) {
    return n ? sorted[(uint32_t)(q * (n - 1) + 0.5)] : 0;
}

static struct sim_group figures(const struct trace *t, const struct replay *r, const struct pick *p,
                                    const char *name, double *wait_quantiles_s) {
    struct sim_group g = {.name = name};
    double *wait = xcalloc(p->count + 1, sizeof *wait), *slow = xcalloc(p->count + 1, sizeof *slow);
    uint32_t n = 0;
    for (uint32_t k = 0; k < p->count; k++) {
        uint32_t i = p->jobs[k];
        g.preempted += r->jobs.at[i].preempted;
        if (r->jobs.at[i].end_ms < 0)
            continue;
        wait[n] = wait_ms(t, r, i) / 1000;
        slow[n] = slowdown(t, r, i);
        g.wait_mean_s += wait[n];
        g.slowdown_mean += slow[n];
        g.speed_mean += 1 / slow[n];
        g.flow_mean_s += (double)(r->jobs.at[i].end_ms - t->jobs.at[i].submit_ms) / 1000;
        g.amount_share += amount_of(t, i);
        n++;
    }
    g.jobs = n;
    qsort(wait, n, sizeof *wait, by_double);
    qsort(slow, n, sizeof *slow, by_double);
    double d = n ? n : 1;
    g.wait_mean_s /= d;
    g.slowdown_mean /= d;
    g.speed_mean /= d;
    g.flow_mean_s /= d;
    g.wait_median_s = quantile(wait, n, 0.5);
    g.wait_p95_s = quantile(wait, n, 0.95);
    g.wait_p99_s = quantile(wait, n, 0.99);
    g.wait_max_s = n ? wait[n - 1] : 0;
    g.slowdown_median = quantile(slow, n, 0.5);
    for (unsigned q = 0; wait_quantiles_s && q <= METRICS_QUANTILES; q++)
        wait_quantiles_s[q] = quantile(wait, n, (double)q / METRICS_QUANTILES);
    free(wait);
    free(slow);
    return g;
}

static double size_of(const struct trace_job *j, bool gpus) {
    return gpus ? (double)j->gpu_milli * j->tasks : (double)j->cpus_per_task * j->tasks;
}

static double length_of(const struct trace_job *j) {
    return (double)(j->limit_ms ? j->limit_ms : j->run_ms);
}

// Mean waits of large and of long jobs. Many jobs have the same size: all that are as large as the tenth are taken.
static void by_size(const struct trace *t, const struct replay *r, struct metrics *m) {
    uint32_t n = t->jobs.len, count[3] = {0};
    double *sizes = xcalloc(n + 1, sizeof *sizes), *lengths = xcalloc(n + 1, sizeof *lengths), sum[3] = {0};
    for (uint32_t i = 0; i < n; i++) {
        sizes[i] = size_of(&t->jobs.at[i], t->gpus);
        lengths[i] = length_of(&t->jobs.at[i]);
    }
    qsort(sizes, n, sizeof *sizes, by_double);
    qsort(lengths, n, sizeof *lengths, by_double);
    double large = quantile(sizes, n, 0.9), longest = quantile(lengths, n, 0.9);
    for (uint32_t i = 0; i < n; i++) {
        bool wide = size_of(&t->jobs.at[i], t->gpus) >= large, lasting = length_of(&t->jobs.at[i]) >= longest;
        const bool in[3] = {wide, lasting, wide && lasting};
        for (unsigned k = 0; k < 3 && r->jobs.at[i].end_ms >= 0; k++) {
            count[k] += in[k];
            sum[k] += in[k] ? wait_ms(t, r, i) / 1000 : 0;
        }
    }
    m->wide_wait_s = count[0] ? sum[0] / count[0] : 0;
    m->long_wait_s = count[1] ? sum[1] / count[1] : 0;
    m->wide_long_wait_s = count[2] ? sum[2] / count[2] : 0;
    free(sizes);
    free(lengths);
}

static int by_amount(const void *pa, const void *pb) {
    const struct sim_group *a = pa, *b = pb;
    if (a->amount_share != b->amount_share)
        return a->amount_share > b->amount_share ? -1 : 1;
    return strcmp(a->name, b->name);
}

// Buckets jobs by project (or user) number in two passes.
static void by_group(const struct trace *t, const struct replay *r, struct metrics *m) {
    bool projects = t->projects.at.len > 0;
    const struct names *names = projects ? &t->projects : &t->users;
    uint32_t count = names->at.len + 1;
    uint32_t *start = xcalloc(count + 1, sizeof *start), *jobs = xcalloc(t->jobs.len + 1, sizeof *jobs);
    for (uint32_t i = 0; i < t->jobs.len; i++)
        start[(projects ? t->jobs.at[i].project : t->jobs.at[i].user) + 1]++;
    for (uint32_t i = 0; i < count; i++)
        start[i + 1] += start[i];
    uint32_t *fill = xmemdup(start, count * sizeof *start);
    for (uint32_t i = 0; i < t->jobs.len; i++)
        jobs[fill[projects ? t->jobs.at[i].project : t->jobs.at[i].user]++] = i;
    double total = 0, square = 0;
    m->group_word = projects ? "project" : "user";
    for (uint32_t g = 0; g < count; g++) {
        struct pick p = {jobs + start[g], start[g + 1] - start[g]};
        if (!p.count)
            continue;
        struct sim_group f = figures(t, r, &p, trace_names_get(names, g), NULL);
        total += f.speed_mean;
        square += f.speed_mean * f.speed_mean;
        m->users++;
        vec_push(&m->groups, f);
    }
    m->fairness = square > 0 ? total * total / (m->users * square) : 1;
    if (m->groups.len)
        qsort(m->groups.at, m->groups.len, sizeof *m->groups.at, by_amount);
    if (m->groups.len > METRICS_GROUPS_MAX)
        m->groups.len = METRICS_GROUPS_MAX;
    for (uint32_t i = 0; i < m->groups.len; i++)
        m->groups.at[i].amount_share /= m->total.amount_share > 0 ? m->total.amount_share : 1;
    free(fill);
    free(start);
    free(jobs);
}

// Averages over equal spans of time; a value holds until the next sample.
static void bins(const struct replay *r, struct metrics *m) {
    double span = (double)(r->last_ms - r->first_ms) / METRICS_BINS;
    for (uint32_t i = 0; i + 1 < r->samples.len && span > 0; i++) {
        const struct sample *s = &r->samples.at[i];
        double from = (double)(s->at_ms - r->first_ms) / span, to = (double)(s[1].at_ms - r->first_ms) / span;
        for (uint32_t b = (uint32_t)from; b < METRICS_BINS && b < to; b++) {
            double part = (to < b + 1 ? to : b + 1) - (from > b ? from : b);
            m->use_bins[b] += part * (double)s->used / (double)(r->capacity ? r->capacity : 1);
            m->pending_bins[b] += part * s->pending;
        }
    }
    double used = 0;
    for (unsigned b = 0; b < METRICS_BINS; b++)
        used += m->use_bins[b];
    m->utilisation = used / METRICS_BINS;
}

void sim_metrics_make(const struct trace *t, const struct replay *r, struct metrics *m) {
    *m = (struct metrics){.preemptions = r->preemptions, .unstarted = r->unstarted, .decisions = r->decisions,
                          .first_ms = r->first_ms, .last_ms = r->last_ms, .fragmented = -1};
    struct pick all = {xcalloc(t->jobs.len + 1, sizeof(uint32_t)), t->jobs.len};
    for (uint32_t i = 0; i < t->jobs.len; i++)
        all.jobs[i] = i;
    m->total = figures(t, r, &all, "all", m->wait_quantiles_s);
    free(all.jobs);
    by_group(t, r, m);
    by_size(t, r, m);
    m->lost_h = (double)r->lost / (t->gpus ? SCHED_GPU : 1) / 3600000;
    m->total.amount_share = 1;
    bins(r, m);
    if (r->fragmented_samples && r->capacity)
        m->fragmented = (double)r->fragmented_sum / r->fragmented_samples / (double)r->capacity;
}

void sim_metrics_done(struct metrics *m) {
    vec_done(&m->groups);
}
