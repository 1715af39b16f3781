// The report as one HTML page with inline charts; it loads nothing from elsewhere.
#include <stdio.h>

#include "base/buf.h"
#include "sim/sim.h"

enum { WIDTH = 860, HEIGHT = 220, LEFT = 60, BOTTOM = 30, TOP = 12 };

static const char *const COLOURS[] = {"#0b6e99", "#c2571a", "#3c7d22", "#7a3e9d",
                                      "#a3123a", "#5b5b00", "#006d6d", "#444"};

static void text(struct buf *out, const char *s) {
    for (; *s; s++) {
        switch (*s) {
        case '<': buf_adds(out, "&lt;"); break;
        case '>': buf_adds(out, "&gt;"); break;
        case '&': buf_adds(out, "&amp;"); break;
        case '"': buf_adds(out, "&quot;"); break;
        default: buf_addc(out, *s);
        }
    }
}

static double x_of(double part) {
    return LEFT + part * (WIDTH - LEFT - 10);
}

static double y_of(double part) {
    return TOP + (1 - part) * (HEIGHT - TOP - BOTTOM);
}

static void frame(struct buf *out, const char *title, double top, const char *unit, const char *left,
                  const char *right) {
    buf_adds(out, "<figure><figcaption>");
    text(out, title);
    buf_addf(out, "</figcaption><svg viewBox=\"0 0 %d %d\" role=\"img\" aria-label=\"", WIDTH, HEIGHT);
    text(out, title);
    buf_adds(out, "\">");
    for (int i = 0; i <= 4; i++) {
        double y = y_of(i / 4.0);
        buf_addf(out, "<line x1=\"%d\" x2=\"%d\" y1=\"%.1f\" y2=\"%.1f\" class=\"grid\"/><text x=\"%d\" y=\"%.1f\" "
                 "text-anchor=\"end\">%.4g%s</text>", LEFT, WIDTH - 10, y, y, LEFT - 6, y + 4, top * i / 4, unit);
    }
    buf_addf(out, "<text x=\"%d\" y=\"%d\">%s</text><text x=\"%d\" y=\"%d\" text-anchor=\"end\">%s</text>", LEFT,
             HEIGHT - 8, left, WIDTH - 10, HEIGHT - 8, right);
}

static void curve(struct buf *out, const double *v, uint32_t n, double top, unsigned colour) {
    buf_addf(out, "<polyline fill=\"none\" stroke=\"%s\" stroke-width=\"1.6\" points=\"", COLOURS[colour % 8]);
    for (uint32_t i = 0; i < n; i++) {
        double part = top > 0 ? v[i] / top : 0;
        buf_addf(out, "%.1f,%.1f ", x_of((double)i / (n - 1)), y_of(part > 1 ? 1 : part));
    }
    buf_adds(out, "\"/>");
}

// A little above the highest value, so that its quarters are short numbers.
static double round_top(double v) {
    static const double steps[] = {1, 1.2, 1.6, 2, 3, 4, 6, 8, 10};
    double unit = 1;
    while (unit * 10 < v)
        unit *= 10;
    for (size_t i = 0; i < sizeof steps / sizeof *steps; i++)
        if (steps[i] * unit >= v)
            return steps[i] * unit;
    return v;
}

struct html_unit {
    double seconds;
    const char *word, *letter;
};

static const struct html_unit *unit_for(double seconds) {
    static const struct html_unit units[] = {
        {86400, "day", " d"}, {3600, "hour", " h"}, {60, "minute", " min"}, {1, "second", " s"}};
    size_t i = 0;
    while (i + 1 < sizeof units / sizeof *units && seconds < 3 * units[i].seconds)
        i++;
    return &units[i];
}

static double highest(const struct sim_run *runs, uint32_t n, bool pending) {
    double top = 0;
    for (uint32_t i = 0; i < n; i++)
        for (unsigned k = 0; k <= METRICS_QUANTILES || (pending && k < METRICS_BINS); k++) {
            double v = pending ? (k < METRICS_BINS ? runs[i].m.pending_bins[k] : 0)
                               : (k <= METRICS_QUANTILES ? runs[i].m.wait_quantiles_s[k] : 0);
            top = v > top ? v : top;
        }
    return top > 0 ? top : 1;
}

static void charts(const struct sim_run *runs, uint32_t n, struct buf *out) {
    char from[32], to[32];
    double span_s = (double)(runs[0].m.last_ms - runs[0].m.first_ms) / 1000;
    const struct html_unit *u = unit_for(span_s);
    snprintf(from, sizeof from, "%s 0", u->word);
    snprintf(to, sizeof to, "%s %.1f", u->word, span_s / u->seconds);
    frame(out, "Use of the machines over time", 100, "%", from, to);
    for (uint32_t i = 0; i < n; i++) {
        double v[METRICS_BINS];
        for (unsigned b = 0; b < METRICS_BINS; b++)
            v[b] = runs[i].m.use_bins[b] * 100;
        curve(out, v, METRICS_BINS, 100, i);
    }
    buf_adds(out, "</svg></figure>");
    double top = round_top(highest(runs, n, true));
    frame(out, "Jobs waiting over time", top, "", from, to);
    for (uint32_t i = 0; i < n; i++)
        curve(out, runs[i].m.pending_bins, METRICS_BINS, top, i);
    buf_adds(out, "</svg></figure>");
    top = highest(runs, n, false);
    u = unit_for(top);
    top = round_top(top / u->seconds);
    frame(out, "Waiting time: from the luckiest job to the unluckiest", top, u->letter, "0 % of jobs", "100 % of jobs");
    for (uint32_t i = 0; i < n; i++) {
        double v[METRICS_QUANTILES + 1];
        for (unsigned q = 0; q <= METRICS_QUANTILES; q++)
            v[q] = runs[i].m.wait_quantiles_s[q] / u->seconds;
        curve(out, v, METRICS_QUANTILES + 1, top, i);
    }
    buf_adds(out, "</svg></figure>");
}

static void bars(const struct sim_run *runs, uint32_t n, struct buf *out) {
    double top = 0;
    for (uint32_t i = 0; i < n; i++)
        for (uint32_t g = 0; g < runs[i].m.groups.len; g++)
            top = runs[i].m.groups.at[g].slowdown_mean > top ? runs[i].m.groups.at[g].slowdown_mean : top;
    uint32_t groups = runs[0].m.groups.len;
    if (!groups || top <= 0)
        return;
    buf_addf(out, "<figure><figcaption>Mean bounded slowdown by %s (heaviest use first)</figcaption>",
             runs[0].m.group_word);
    unsigned row = 14 * n + 10, height = groups * row + 10;
    buf_addf(out, "<svg viewBox=\"0 0 %d %u\" role=\"img\">", WIDTH, height);
    for (uint32_t g = 0; g < groups; g++) {
        buf_addf(out, "<text x=\"150\" y=\"%u\" text-anchor=\"end\">", g * row + 16);
        text(out, runs[0].m.groups.at[g].name);
        buf_adds(out, "</text>");
        for (uint32_t i = 0; i < n && g < runs[i].m.groups.len; i++) {
            double v = runs[i].m.groups.at[g].slowdown_mean;
            buf_addf(out,
                     "<rect x=\"160\" y=\"%u\" height=\"11\" width=\"%.1f\" fill=\"%s\"/><text x=\"%.1f\" "
                     "y=\"%u\">"
                     "%.1f</text>",
                     g * row + 6 + 14 * i, v / top * 600, COLOURS[i % 8], 166 + v / top * 600,
                     g * row + 16 + 14 * i, v);
        }
    }
    buf_adds(out, "</svg></figure>");
}

static void table(const struct trace *t, const struct sim_run *runs, uint32_t n, struct buf *out) {
    cleanup_buf struct buf plain = {0};
    sim_report_text(t, runs, n, &plain);
    buf_adds(out, "<pre>");
    text(out, buf_str(&plain));
    buf_adds(out, "</pre>");
}

void sim_report_html(const struct trace *t, const char *path, const struct sim_run *runs, uint32_t n, struct buf *out) {
    buf_adds(out, "<!doctype html><html lang=\"en\"><head><meta charset=\"utf-8\"><title>Trace replay</title><style>"
             "body{font:15px/1.5 system-ui,sans-serif;max-width:900px;margin:2em auto;padding:0 1em;color:#222}"
             "svg{width:100%;height:auto}svg text{font-size:12px;fill:#555}.grid{stroke:#ddd}"
             "figure{margin:1.5em 0}figcaption{font-weight:600}pre{overflow-x:auto;background:#f6f6f6;padding:1em}"
             ".key{display:inline-block;margin-right:1.5em}.key i{display:inline-block;width:1em;height:.3em;"
             "margin-right:.4em;vertical-align:middle}</style></head><body><h1>Trace replay</h1><p>");
    text(out, path);
    buf_adds(out, "</p><p>");
    for (uint32_t i = 0; i < n; i++) {
        buf_addf(out, "<span class=\"key\"><i style=\"background:%s\"></i>", COLOURS[i % 8]);
        text(out, runs[i].name);
        buf_adds(out, "</span>");
    }
    buf_adds(out, "</p>");
    charts(runs, n, out);
    bars(runs, n, out);
    table(t, runs, n, out);
    buf_adds(out, "</body></html>\n");
}
