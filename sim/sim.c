// The command `sim`: reads options, runs each policy, writes the reports.
#include "sim/sim.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <time.h>

#include "base/buf.h"
#include "base/cleanup.h"
#include "base/text.h"

enum { POLICIES_MAX = 8, FILL_RUNS_MAX = 1000 };

struct sim_options {
    const char *trace, *nodes, *json, *html;
    const char *policies[POLICIES_MAX];
    uint32_t policy_count;
    uint32_t fill, runs;
    uint64_t seed;
    bool help;
};

static const char HELP[] =
    "Usage: acequia sim TRACE [options]\n"
    "Replays a workload trace through the scheduler and prints what users would have seen.\n"
    "\n"
    "TRACE is in the Standard Workload Format, an openb pod list, or a CSV with the\n"
    "columns submit_s, run_s, limit_s, user, project, nodes, tasks, cpus_per_task,\n"
    "memory_mib, gpu_milli, gpu_model, class; gzipped or not.\n"
    "\n"
    "  --nodes FILE    the machines, as CSV: sn,cpu_milli,memory_mib,gpu,model\n"
    "  --policy P      may be repeated to compare; see below\n"
    "  --json FILE     the figures as JSON ('-': standard output instead of the table)\n"
    "  --html FILE     a report with charts\n"
    "  --fill PERCENT  placement only: draw jobs until their GPUs reach PERCENT of all\n"
    "  --seed N        first seed of --fill (default 1)\n"
    "  --runs N        seeds of --fill to average over (default 10)\n"
    "\n"
    "Policies: ";

// Processor time, so that the figure does not depend on who else uses the machine.
static int64_t cpu_us(void) {
    struct timespec t;
    clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &t);
    return (int64_t)t.tv_sec * 1000000 + t.tv_nsec / 1000;
}

static int option_value(int argc, char **argv, int *i, const char **out, struct error *err) {
    if (*i + 1 >= argc)
        return error_set(err, EINVAL, "%s needs a value", argv[*i]);
    *out = argv[++*i];
    return 0;
}

static int option_number(int argc, char **argv, int *i, uint64_t high, uint64_t *out, struct error *err) {
    const char *name = argv[*i], *text = "";
    int r = option_value(argc, argv, i, &text, err);
    if (!r && (parse_u64(text, out) || *out > high))
        r = error_set(err, EINVAL, "%s %s: give a whole number up to %llu", name, text, (unsigned long long)high);
    return r;
}

static int options_parse(int argc, char **argv, struct sim_options *o, struct error *err) {
    *o = (struct sim_options){.runs = 10, .seed = 1};
    for (int i = 1; i < argc; i++) {
        const char *a = argv[i], *policy = "";
        uint64_t n = 0;
        int r = 0;
        if (streq(a, "--help") || streq(a, "-h"))
            o->help = true;
        else if (streq(a, "--nodes"))
            r = option_value(argc, argv, &i, &o->nodes, err);
        else if (streq(a, "--json") && (i + 1 == argc || !strncmp(argv[i + 1], "--", 2)))
            o->json = "-";
        else if (streq(a, "--json"))
            r = option_value(argc, argv, &i, &o->json, err);
        else if (streq(a, "--html"))
            r = option_value(argc, argv, &i, &o->html, err);
        else if (streq(a, "--policy")) {
            r = option_value(argc, argv, &i, &policy, err);
            if (!r && o->policy_count == POLICIES_MAX)
                r = error_set(err, E2BIG, "at most %d policies can be compared", POLICIES_MAX);
            if (!r)
                o->policies[o->policy_count++] = policy;
        } else if (streq(a, "--fill")) {
            r = option_number(argc, argv, &i, 1000, &n, err);
            o->fill = (uint32_t)n;
        } else if (streq(a, "--runs")) {
            r = option_number(argc, argv, &i, FILL_RUNS_MAX, &n, err);
            o->runs = n ? (uint32_t)n : 1;
        } else if (streq(a, "--seed"))
            r = option_number(argc, argv, &i, UINT64_MAX, &o->seed, err);
        else if (*a == '-' && a[1])
            r = error_set(err, EINVAL, "option %s is not known: see --help", a);
        else if (o->trace)
            r = error_set(err, EINVAL, "one trace at a time: %s is one too many", a);
        else
            o->trace = a;
        if (r)
            return r;
    }
    if (!o->trace && !o->help)
        return error_set(err, EINVAL, "which trace? Give a file, or --help");
    if (!o->policy_count)
        o->policies[o->policy_count++] = "default";
    return 0;
}

static int write_file(const char *path, const struct buf *b, struct error *err) {
    FILE *f = streq(path, "-") ? stdout : fopen(path, "w");
    if (!f)
        return error_set(err, errno, "%s: %s", path, strerror(errno));
    bool bad = fwrite(b->data, 1, b->len, f) != b->len;
    bad |= fflush(f) != 0;
    if (f != stdout)
        bad |= fclose(f) != 0;
    return bad ? error_set(err, EIO, "%s: could not be written", path) : 0;
}

static int fill_all(const struct sim_options *o, const struct trace *t, struct error *err) {
    printf("%-28s %12s %12s %12s   (mean of %u seeds, per cent of all GPUs)\n", "placement only", "at 100 %", "at end",
           "s per run", o->runs);
    for (uint32_t i = 0; i < o->policy_count; i++) {
        struct policy p;
        int r = sim_policy(o->policies[i], &p, err);
        int64_t sum_100 = 0, sum_end = 0, began = cpu_us();
        for (uint32_t k = 0; k < o->runs && !r; k++) {
            struct fill f;
            r = sim_fill_run(t, &p, o->fill, o->seed + k, &f, err);
            sum_100 += f.at_100;
            sum_end += f.at_end;
        }
        if (r)
            return r;
        printf("%-28.28s %12.2f %12.2f %12.2f\n", o->policies[i], (double)sum_100 / o->runs / 100,
               (double)sum_end / o->runs / 100, (double)(cpu_us() - began) / 1e6 / o->runs);
    }
    puts("Ties: equal growth of fragmentation goes to the fullest node, then to the lowest id.");
    return 0;
}

static int replay_all(const struct sim_options *o, const struct trace *t, struct error *err) {
    struct sim_run runs[POLICIES_MAX] = {0};
    uint32_t n = 0;
    int r = 0;
    for (; n < o->policy_count && !r; n++) {
        struct policy p;
        struct replay replay = {0};
        r = sim_policy(o->policies[n], &p, err);
        int64_t began = cpu_us();
        if (!r)
            r = sim_replay_run(t, &p, &replay, err);
        runs[n].name = o->policies[n];
        int64_t took = cpu_us() - began;
        if (!r)
            sim_metrics_make(t, &replay, &runs[n].m);
        runs[n].m.seconds = (double)took / 1e6;
        sim_replay_done(&replay);
    }
    cleanup_buf struct buf b = {0};
    if (!r && o->html) {
        sim_report_html(t, o->trace, runs, n, &b);
        r = write_file(o->html, &b, err);
        buf_clear(&b);
    }
    if (!r && o->json) {
        sim_report_json(t, runs, n, &b);
        r = write_file(o->json, &b, err);
        buf_clear(&b);
    }
    if (!r && (!o->json || !streq(o->json, "-"))) {
        sim_report_text(t, runs, n, &b);
        r = write_file("-", &b, err);
    }
    for (uint32_t i = 0; i < n; i++)
        sim_metrics_done(&runs[i].m);
    return r;
}

int sim_main(int argc, char **argv) {
    struct sim_options o;
    struct error err = {0};
    struct trace t = {0};
    int r = options_parse(argc, argv, &o, &err);
    if (!r && o.help) {
        printf("%s%s.\n", HELP, sim_policy_help());
        return 0;
    }
    if (!r)
        r = trace_read(&t, o.trace, &err);
    if (!r && o.nodes)
        r = trace_read_nodes(&t, o.nodes, &err);
    if (!r)
        r = o.fill ? fill_all(&o, &t, &err) : replay_all(&o, &t, &err);
    trace_done(&t);
    if (r)
        fprintf(stderr, "acequia sim: %s\n", err.text);
    return r ? 1 : 0;
}
