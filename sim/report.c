// The reports of a simulation as text tables (80 columns) and JSON.
#include <stdio.h>

#include "base/buf.h"
#include "sim/sim.h"

static void span(double seconds, char *out, size_t size) {
    if (seconds < 120)
        snprintf(out, size, "%.0f s", seconds);
    else if (seconds < 2 * 3600)
        snprintf(out, size, "%.1f min", seconds / 60);
    else if (seconds < 48 * 3600)
        snprintf(out, size, "%.1f h", seconds / 3600);
    else
        snprintf(out, size, "%.1f d", seconds / 86400);
}

struct line {
    const char *name;
    enum { SPAN, RATIO, PERCENT, COUNT } kind;
    double (*value)(const struct metrics *m);
};

static double v_wait(const struct metrics *m) { return m->total.wait_mean_s; }
static double v_wait_median(const struct metrics *m) { return m->total.wait_median_s; }
static double v_wait_p95(const struct metrics *m) { return m->total.wait_p95_s; }
static double v_wait_max(const struct metrics *m) { return m->total.wait_max_s; }
static double v_wait_p99(const struct metrics *m) { return m->total.wait_p99_s; }
static double v_wide(const struct metrics *m) { return m->wide_wait_s; }
static double v_long(const struct metrics *m) { return m->long_wait_s; }
static double v_wide_long(const struct metrics *m) { return m->wide_long_wait_s; }
static double v_lost(const struct metrics *m) { return m->lost_h; }
static double v_slow(const struct metrics *m) { return m->total.slowdown_mean; }
static double v_slow_median(const struct metrics *m) { return m->total.slowdown_median; }
static double v_flow(const struct metrics *m) { return m->total.flow_mean_s; }
static double v_use(const struct metrics *m) { return m->utilisation; }
static double v_fragmented(const struct metrics *m) { return m->fragmented; }
static double v_fair(const struct metrics *m) { return m->fairness; }
static double v_preempted(const struct metrics *m) { return m->preemptions; }
static double v_unstarted(const struct metrics *m) { return m->unstarted; }
static double v_passes(const struct metrics *m) { return (double)m->decisions; }
static double v_seconds(const struct metrics *m) { return m->seconds; }

static const struct line LINES[] = {
    {"mean wait", SPAN, v_wait},
    {"median wait", SPAN, v_wait_median},
    {"95 % wait at most", SPAN, v_wait_p95},
    {"99 % wait at most", SPAN, v_wait_p99},
    {"longest wait", SPAN, v_wait_max},
    {"mean wait, widest tenth", SPAN, v_wide},
    {"mean wait, longest tenth", SPAN, v_long},
    {"mean wait, both", SPAN, v_wide_long},
    {"mean bounded slowdown", RATIO, v_slow},
    {"median bounded slowdown", RATIO, v_slow_median},
    {"mean flow time", SPAN, v_flow},
    {"utilisation", PERCENT, v_use},
    {"fragmented GPUs", PERCENT, v_fragmented},
    {"fairness (Jain, speed)", RATIO, v_fair},
    {"preemptions", COUNT, v_preempted},
    {"lost hours of GPUs (CPUs)", COUNT, v_lost},
    {"never started", COUNT, v_unstarted},
    {"scheduling passes", COUNT, v_passes},
    {"replay time (s)", RATIO, v_seconds},
};

static void cell(const struct line *l, const struct metrics *m, char *out, size_t size) {
    double v = l->value(m);
    if (v < 0)
        snprintf(out, size, "-");
    else if (l->kind == SPAN)
        span(v, out, size);
    else if (l->kind == PERCENT)
        snprintf(out, size, "%.2f %%", v * 100);
    else if (l->kind == COUNT)
        snprintf(out, size, "%.0f", v);
    else
        snprintf(out, size, "%.3f", v);
}

void sim_report_text(const struct trace *t, const struct sim_run *runs, uint32_t n, struct buf *out) {
    buf_addf(out, "%u jobs (%u left out), %u nodes, %u users\n\n%-28s", t->jobs.len, t->skipped, t->nodes.len,
             t->users.at.len, "");
    for (uint32_t i = 0; i < n; i++)
        buf_addf(out, " %16.16s", runs[i].name);
    buf_addc(out, '\n');
    for (unsigned k = 0; k < sizeof LINES / sizeof *LINES; k++) {
        buf_addf(out, "%-28s", LINES[k].name);
        for (uint32_t i = 0; i < n; i++) {
            char text[32];
            cell(&LINES[k], &runs[i].m, text, sizeof text);
            buf_addf(out, " %16s", text);
        }
        buf_addc(out, '\n');
    }
    for (uint32_t i = 0; i < n; i++) {
        buf_addf(out, "\n%s, by %s:\n%-20s %8s %6s %10s %10s %10s %8s\n", runs[i].name, runs[i].m.group_word, "",
                 "jobs", "use", "wait", "p95", "slowdown", "preempt");
        for (uint32_t g = 0; g < runs[i].m.groups.len; g++) {
            const struct sim_group *f = &runs[i].m.groups.at[g];
            char wait[24], p95[24];
            span(f->wait_mean_s, wait, sizeof wait);
            span(f->wait_p95_s, p95, sizeof p95);
            buf_addf(out, "%-20.20s %8u %5.1f%% %10s %10s %10.2f %8u\n", f->name, f->jobs, f->amount_share * 100,
                     wait, p95, f->slowdown_mean, f->preempted);
        }
    }
}

static void json_text(struct buf *out, const char *s) {
    buf_addc(out, '"');
    for (; *s; s++) {
        if (*s == '"' || *s == '\\')
            buf_addf(out, "\\%c", *s);
        else if ((unsigned char)*s < 0x20)
            buf_addf(out, "\\u%04x", *s);
        else
            buf_addc(out, *s);
    }
    buf_addc(out, '"');
}

static void json_group(struct buf *out, const struct sim_group *g) {
    buf_adds(out, "{\"name\":");
    json_text(out, g->name);
    buf_addf(out, ",\"jobs\":%u,\"preempted\":%u,\"wait_mean_s\":%.3f,\"wait_median_s\":%.3f,\"wait_p95_s\":%.3f,"
             "\"wait_p99_s\":%.3f,\"wait_max_s\":%.3f,\"slowdown_mean\":%.4f,"
             "\"slowdown_median\":%.4f,\"flow_mean_s\":%.3f,\"use\":%.5f}",
             g->jobs, g->preempted, g->wait_mean_s, g->wait_median_s, g->wait_p95_s,
             g->wait_p99_s, g->wait_max_s, g->slowdown_mean,
             g->slowdown_median, g->flow_mean_s, g->amount_share);
}

void sim_report_json(const struct trace *t, const struct sim_run *runs, uint32_t n, struct buf *out) {
    buf_addf(out, "{\"jobs\":%u,\"skipped\":%u,\"nodes\":%u,\"runs\":[", t->jobs.len, t->skipped, t->nodes.len);
    for (uint32_t i = 0; i < n; i++) {
        const struct metrics *m = &runs[i].m;
        buf_adds(out, i ? ",{\"policy\":" : "{\"policy\":");
        json_text(out, runs[i].name);
        buf_adds(out, ",\"total\":");
        json_group(out, &m->total);
        buf_addf(out, ",\"wide_wait_s\":%.3f,\"long_wait_s\":%.3f,\"wide_long_wait_s\":%.3f,\"lost_hours\":%.3f",
                 m->wide_wait_s, m->long_wait_s, m->wide_long_wait_s, m->lost_h);
        buf_addf(out, ",\"utilisation\":%.5f,\"fairness\":%.5f,\"preemptions\":%u,\"unstarted\":%u,\"passes\":%llu",
                 m->utilisation, m->fairness, m->preemptions, m->unstarted, (unsigned long long)m->decisions);
        if (m->fragmented >= 0)
            buf_addf(out, ",\"fragmented\":%.5f", m->fragmented);
        buf_addf(out, ",\"by\":\"%s\",\"groups\":[", m->group_word);
        for (uint32_t g = 0; g < m->groups.len; g++) {
            buf_adds(out, g ? "," : "");
            json_group(out, &m->groups.at[g]);
        }
        buf_adds(out, "]}");
    }
    buf_adds(out, "]}\n");
}
