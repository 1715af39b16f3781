// acequia status
#include <stdio.h>
#include <string.h>

#include "base/text.h"
#include "cluster_status.h"
#include "cli/term/terminal.h"
#include "verbs.h"
#include "model/gpuspec.h"
#include "model/units.h"

void verb_cluster_totals(const struct json *nodes, struct verb_cluster_totals *out) {
    struct verb_cluster_totals t = {0};
    for (uint32_t i = 0; nodes && nodes->type == JSON_ARRAY && i < nodes->len; i++) {
        const struct json *n = &nodes->items[i];
        t.nodes++;
        if (streq(json_str(n, "state"), "down")) {
            t.nodes_down++;
            continue;
        }
        t.cpus += json_i64(n, "cpus", 0);
        t.cpus_used += json_i64(n, "cpus_used", 0);
        t.memory_bytes += (uint64_t)json_i64(n, "memory_bytes", 0);
        t.memory_used_bytes += (uint64_t)json_i64(n, "memory_used_bytes", 0);
        t.gpus_milli += json_i64(n, "gpus_milli", 0);
        t.gpus_used_milli += json_i64(n, "gpus_used_milli", 0);
    }
    *out = t;
}

void verb_cluster_bar(struct buf *out, double share, int width, bool colour) {
    int full = share <= 0 ? 0 : share >= 1 ? width : (int)(share * width + 0.5);
    enum colour c = colour ? share > 0.9 ? COLOUR_RED : share > 0.6 ? COLOUR_YELLOW : COLOUR_GREEN : COLOUR_NONE;
    buf_addf(out, "[%s", terminal_colour_on(c));
    for (int i = 0; i < width; i++) {
        if (i == full)
            buf_adds(out, terminal_colour_off(c));
        buf_addc(out, i < full ? '#' : '.');
    }
    buf_addf(out, "%s]", full == width ? terminal_colour_off(c) : "");
}

static void counts(struct buf *out, const char *label, const struct json *j) {
    bool any = false;
    buf_addf(out, "%-10s", label);
    for (uint32_t i = 0; j && j->type == JSON_OBJECT && i < j->len; i++) {
        int64_t v = j->members[i].value.type == JSON_INT ? j->members[i].value.i : 0;
        // Of jobs, counters such as "submitted" are in small letters. The total of nodes is the sum of what follows.
        bool other = streq(label, "Jobs") ? j->members[i].key[0] >= 'a' : streq(j->members[i].key, "total");
        if (!v || other)
            continue;
        buf_addf(out, "%s%lld ", any ? ", " : "", (long long)v);
        for (const char *p = j->members[i].key; *p; p++)
            buf_addc(out, *p >= 'A' && *p <= 'Z' ? (char)(*p + 32) : *p == '_' ? ' ' : *p);
        any = true;
    }
    buf_adds(out, any ? "\n" : "none\n");
}

static void resource_line(struct buf *out, const char *label, const char *used, const char *all, double share) {
    buf_addf(out, "%-10s", label);
    verb_cluster_bar(out, share, 30, terminal_colour());
    buf_addf(out, " %s of %s\n", used, all);
}

static double ratio(double a, double b) {
    return b > 0 ? a / b : 0;
}

// What the GPUs do, held or not; nothing where none is measured.
static void gpu_line(struct buf *out, const struct json *gpus) {
    int64_t measured = gpus && gpus->type == JSON_OBJECT ? json_i64(gpus, "measured", 0) : 0;
    char text[64];
    if (!measured)
        return;
    double busy = (double)json_i64(gpus, "busy_milli", 0) / (double)measured / 1000;
    buf_addf(out, "%-10s", "GPU use");
    verb_cluster_bar(out, busy, 30, false);
    int64_t watts = json_i64(gpus, "power_mw", 0) / 1000;
    if (watts < 10000)
        snprintf(text, sizeof text, "%lld W", (long long)watts);
    else
        snprintf(text, sizeof text, "%lld.%lld kW", (long long)(watts / 1000), (long long)(watts % 1000 / 100));
    buf_addf(out, " %.0f %%, %s\n", busy * 100, text);
}

void verb_cluster_status_lines(struct cli *c, const struct json *status, const struct json *nodes,
                               struct buf *out) {
    char a[UNIT_TEXT_MAX], b[UNIT_TEXT_MAX];
    struct verb_cluster_totals t;
    const struct json *warnings = json_get(status, "warnings");
    verb_cluster_totals(nodes, &t);
    buf_addf(out, "%-10s%s, Acequia %s, up %s\n", "Cluster",
             json_str(status, "cluster") ? json_str(status, "cluster") : "?",
             json_str(status, "version") ? json_str(status, "version") : "?",
             duration_format((uint64_t)json_i64(status, "uptime_ms", 0) / 1000, a));
    counts(out, "Nodes", json_get(status, "nodes"));
    counts(out, "Jobs", json_get(status, "jobs"));
    if (t.cpus) {
        snprintf(a, sizeof a, "%lld", (long long)t.cpus_used);
        snprintf(b, sizeof b, "%lld", (long long)t.cpus);
        resource_line(out, "CPUs", a, b, ratio((double)t.cpus_used, (double)t.cpus));
        resource_line(out, "Memory", size_format(t.memory_used_bytes, a), size_format(t.memory_bytes, b),
                      ratio((double)t.memory_used_bytes, (double)t.memory_bytes));
    }
    if (t.gpus_milli)
        resource_line(out, "GPUs", gpu_milli_format((uint64_t)t.gpus_used_milli, a),
                      gpu_milli_format((uint64_t)t.gpus_milli, b),
                      ratio((double)t.gpus_used_milli, (double)t.gpus_milli));
    gpu_line(out, json_get(status, "gpus"));
    for (uint32_t i = 0; warnings && warnings->type == JSON_ARRAY && i < warnings->len; i++)
        if (warnings->items[i].type == JSON_STRING) {
            buf_addf(out, "%-10s", "Note");
            terminal_wrap(out, warnings->items[i].s, 10, 10);
        }
}

static int run(struct cli *c) {
    struct client *k;
    struct reply status, nodes;
    cleanup_buf struct buf out = {0};
    if (client_open(c, &k) < 0)
        return cli_fail(c);
    int r = client_call(k, "GET", "/v1/status", NULL, &status);
    r = r < 0 || c->json ? r : client_call(k, "GET", "/v1/nodes", NULL, &nodes);
    client_free(k);
    if (r < 0)
        return cli_fail(c);
    if (c->json)
        buf_addf(&out, "%s\n", status.text);
    else
        verb_cluster_status_lines(c, status.json, json_get(nodes.json, "nodes"), &out);
    return cli_print(&out);
}

const struct verb verb_status = {
    .name = "status",
    .group = "Cluster",
    .arguments = "[options]",
    .summary = "show how the cluster is doing",
    .examples = "acequia status",
    .options = {&cli_common_options},
    .run = run,
};
