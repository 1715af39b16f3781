// acequia report
#include <string.h>

#include "base/clock.h"
#include "base/text.h"
#include "cli/job/usage.h"
#include "cli/term/local_time.h"
#include "cli/term/table.h"
#include "verbs.h"

enum { DEFAULT_DAYS = 30 };

static const struct option_spec specs[] = {
    {"by", 'b', "WHAT", "Sum by project, user, month, or several with commas; default: project.", 0, NULL,
     "project user month project,user project,month"},
    {"since", 0, "TIME", "From this time; default: 30 days ago.", 0, NULL, NULL},
    {"until", 0, "TIME", "Up to this time; default: now.", 0, NULL, NULL},
    {"project", 'P', "NAME", "Only jobs of this project.", 0, NULL, "@project"},
    {"user", 'u', "NAME", "Only jobs of this user.", 0, NULL, NULL},
    {"csv", 0, NULL, "Print CSV.", 0, NULL, NULL},
};
static const struct option_table table = OPTION_TABLE("Options", specs);

struct prices {
    const char *currency;
    double gpu_hour, cpu_hour, kwh, co2_g_per_kwh;
};

static double price(const struct json *prices, const char *name) {
    const struct json *v = prices ? json_get(prices, name) : NULL;
    return !v ? 0 : v->type == JSON_DOUBLE ? v->d : v->type == JSON_INT ? (double)v->i : 0;
}

static int read_prices(struct client *k, struct prices *out) {
    struct reply reply;
    int r = client_call(k, "GET", "/v1/status", NULL, &reply);
    const struct json *p = r < 0 ? NULL : json_get(reply.json, "prices");
    const char *currency = p ? json_str(p, "currency") : NULL;
    *out = (struct prices){.currency = currency ? currency : "EUR",
                           .gpu_hour = price(p, "gpu_hour"),
                           .cpu_hour = price(p, "cpu_hour"),
                           .kwh = price(p, "kwh"),
                           .co2_g_per_kwh = price(p, "co2_g_per_kwh")};
    return r;
}

static double cost(const struct prices *p, const struct job_usage *u) {
    return u->gpu_hours * p->gpu_hour + u->cpu_hours * p->cpu_hour + u->kwh * p->kwh;
}

static double co2_kg(const struct prices *p, const struct job_usage *u) {
    return u->kwh * p->co2_g_per_kwh / 1000;
}

static double mean_wait_s(const struct job_usage *u) {
    return u->started ? u->wait_s / (double)u->started : 0;
}

static const char *month_text(struct arena *a, int month) {
    return month ? arena_printf(a, "%04d-%02d", month / 12, month % 12 + 1) : "";
}

static int parse_by(struct cli *c, unsigned *out) {
    static const char *const words[] = {"project", "user", "month"};
    const char *text = option_get(&c->options, "by");
    for (const char *p = text ? text : "project"; *p; p += *p == ',') {
        size_t n = strcspn(p, ",");
        unsigned bit = 0;
        for (unsigned i = 0; i < 3; i++)
            if (strlen(words[i]) == n && !strncmp(words[i], p, n))
                bit = 1u << i;
        if (!bit)
            return cli_usage(c, "--by is \"%.40s\"; use project, user, month, or several of them with commas", text);
        *out |= bit;
        p += n;
    }
    return CLI_OK;
}

static int parse_time(struct cli *c, const char *name, int64_t now, int64_t *out) {
    const char *text = option_get(&c->options, name);
    if (text && local_time_parse(text, now, TIME_TODAY, out, &c->error) < 0)
        return cli_usage(c, "--%s: %s", name, arena_strdup(&c->arena, c->error.text));
    return CLI_OK;
}

struct report {
    const struct prices *prices;
    unsigned by;
    bool gpus, costs, co2;
};

static void put_json_row(const struct report *r, const struct job_usage *u, struct arena *a, struct json_writer *w) {
    const struct {
        const char *name;
        double value;
    } numbers[] = {{"gpu_hours", u->gpu_hours},           {"cpu_hours", u->cpu_hours},
                   {"energy_kwh", u->kwh},                {"cost", cost(r->prices, u)},
                   {"co2_kg", co2_kg(r->prices, u)},      {"mean_wait_s", mean_wait_s(u)},
                   {"idle_gpu_hours", u->idle_gpu_hours}, {"idle_cpu_hours", u->idle_cpu_hours},
                   {"failed_gpu_hours", u->lost_gpu_hours}, {"failed_cpu_hours", u->lost_cpu_hours}};
    json_open(w, '{');
    if (u->project)
        json_kv_str(w, "project", u->project);
    if (u->user)
        json_kv_str(w, "user", u->user);
    if (u->month)
        json_kv_str(w, "month", month_text(a, u->month));
    json_kv_i64(w, "jobs", (int64_t)u->jobs);
    for (size_t i = 0; i < sizeof numbers / sizeof *numbers; i++) {
        json_key(w, numbers[i].name);
        json_put_double(w, numbers[i].value);
    }
    json_close(w, '}');
}

static void print_json(const struct report *r, const struct job_usages *all, const struct job_usage_query *q,
                       struct arena *a, struct buf *out) {
    struct json_writer w = {.out = out};
    json_open(&w, '{');
    json_kv_i64(&w, "from_ms", q->from_ms);
    json_kv_i64(&w, "to_ms", q->to_ms);
    json_kv_str(&w, "currency", r->prices->currency);
    json_open_key(&w, "rows", '[');
    for (uint32_t i = 0; i < all->at.len; i++)
        put_json_row(r, &all->at.at[i], a, &w);
    json_close(&w, ']');
    json_key(&w, "total");
    put_json_row(r, &all->total, a, &w);
    json_close(&w, '}');
    buf_addc(out, '\n');
}

// A text that begins like a formula would be computed by a spreadsheet; names of projects and users cannot.
static void print_csv(const struct report *r, const struct job_usages *all, struct arena *a, struct buf *out) {
    buf_adds(out, "month,project,user,jobs,gpu_hours,cpu_hours,energy_kwh,cost,co2_kg,mean_wait_s,idle_gpu_hours,"
                  "idle_cpu_hours,failed_gpu_hours,failed_cpu_hours\n");
    for (uint32_t i = 0; i < all->at.len; i++) {
        const struct job_usage *u = &all->at.at[i];
        buf_addf(out, "%s,%s,%s,%llu,%.4f,%.4f,%.4f,%.2f,%.3f,%.0f,%.4f,%.4f,%.4f,%.4f\n", month_text(a, u->month),
                 u->project ? u->project : "", u->user ? u->user : "", (unsigned long long)u->jobs, u->gpu_hours,
                 u->cpu_hours, u->kwh, cost(r->prices, u), co2_kg(r->prices, u), mean_wait_s(u), u->idle_gpu_hours,
                 u->idle_cpu_hours, u->lost_gpu_hours, u->lost_cpu_hours);
    }
}

static void add_cells(const struct report *r, const struct job_usage *u, bool total, struct arena *a,
                      struct text_table *t) {
    char wait[UNIT_TEXT_MAX];
    const char *name = "TOTAL";
    if (r->by & USAGE_BY_MONTH)
        table_add(t, total ? name : month_text(a, u->month), COLOUR_NONE), name = "";
    if (r->by & USAGE_BY_PROJECT)
        table_add(t, total ? name : u->project, COLOUR_NONE), name = "";
    if (r->by & USAGE_BY_USER)
        table_add(t, total ? name : u->user, COLOUR_NONE);
    table_addf(t, "%llu", (unsigned long long)u->jobs);
    if (r->gpus)
        table_addf(t, "%.1f", u->gpu_hours);
    table_addf(t, "%.1f", u->cpu_hours);
    if (r->gpus)
        table_addf(t, "%.1f", u->kwh);
    if (r->costs)
        table_addf(t, "%.2f", cost(r->prices, u));
    if (r->co2)
        table_addf(t, "%.1f", co2_kg(r->prices, u));
    table_add(t, arena_strdup(a, duration_elapsed_format((int64_t)mean_wait_s(u), wait)), COLOUR_NONE);
    table_addf(t, "%.1f", r->gpus ? u->idle_gpu_hours : u->idle_cpu_hours);
    table_addf(t, "%.1f", r->gpus ? u->lost_gpu_hours : u->lost_cpu_hours);
}

static void print_table(const struct report *r, const struct job_usages *all, const struct job_usage_query *q,
                        struct arena *a, struct buf *out) {
    struct table_column columns[16];
    struct text_table t;
    char from[UNIT_TEXT_MAX], to[UNIT_TEXT_MAX];
    uint32_t n = 0;
#define COLUMN(when, ...) \
    if (when)             \
    columns[n++] = (struct table_column){__VA_ARGS__}
    COLUMN(r->by & USAGE_BY_MONTH, "MONTH", false, 0, 0);
    COLUMN(r->by & USAGE_BY_PROJECT, "PROJECT", false, 2, 8);
    COLUMN(r->by & USAGE_BY_USER, "USER", false, 2, 8);
    COLUMN(true, "JOBS", true, 0, 0);
    COLUMN(r->gpus, "GPU-H", true, 0, 0);
    COLUMN(true, "CPU-H", true, 0, 0);
    COLUMN(r->gpus, "KWH", true, 0, 0);
    COLUMN(r->costs, r->prices->currency, true, 0, 0);
    COLUMN(r->co2, "CO2 KG", true, 0, 0);
    COLUMN(true, "WAIT", true, 0, 0);
    COLUMN(true, "IDLE-H", true, 0, 0);
    COLUMN(true, "FAILED-H", true, 0, 0);
#undef COLUMN
    buf_addf(out, "Use from %s to %s\n\n", local_time_format(q->from_ms, from), local_time_format(q->to_ms, to));
    table_init(&t, a, columns, n);
    for (uint32_t i = 0; i < all->at.len; i++)
        add_cells(r, &all->at.at[i], false, a, &t);
    add_cells(r, &all->total, true, a, &t);
    table_print(&t, terminal_table_width(), true, terminal_colour(), out);
    table_done(&t);
}

static int run(struct cli *c) {
    int64_t now = clock_wall_ms();
    struct job_usage_query q = {.from_ms = now - (int64_t)DEFAULT_DAYS * 86400000,
                                .to_ms = now,
                                .project = option_get(&c->options, "project"),
                                .user = option_get(&c->options, "user")};
    struct job_usages all = {0};
    struct prices prices;
    cleanup_buf struct buf out = {0};
    struct client *k;
    int status = parse_by(c, &q.by);
    status = status ? status : parse_time(c, "since", now, &q.from_ms);
    status = status ? status : parse_time(c, "until", now, &q.to_ms);
    if (status)
        return status;
    if (q.from_ms >= q.to_ms)
        return cli_usage(c, "--since must be before --until");
    if (client_open(c, &k) < 0)
        return cli_fail(c);
    int r = read_prices(k, &prices);
    r = r < 0 ? r : job_usage_fetch(c, k, &q, &all);
    client_free(k);
    if (r == 0) {
        struct report how = {&prices, q.by, all.total.gpu_hours > 0, prices.gpu_hour || prices.cpu_hour || prices.kwh,
                             prices.co2_g_per_kwh > 0};
        if (c->json)
            print_json(&how, &all, &q, &c->arena, &out);
        else if (option_given(&c->options, "csv"))
            print_csv(&how, &all, &c->arena, &out);
        else
            print_table(&how, &all, &q, &c->arena, &out);
    }
    job_usages_done(&all);
    return r < 0 ? cli_fail(c) : cli_print(&out);
}

const struct verb verb_report = {
    .name = "report",
    .group = "Sharing",
    .arguments = "[options]",
    .summary = "report use, cost and waste by project, user, month",
    .text =
        "A job counts with the part of its time that lies in the window. Cost and CO2 are shown when the "
        "administrator has set prices ([report] in acequia.conf). WAIT is the mean time from when a job "
        "could start "
        "until it did. IDLE-H is what jobs held and did not use: GPU-hours where GPUs were used (as far as "
        "measured), "
        "else CPU-hours. FAILED-H is what jobs used that did not complete; cancelled ones are not counted.",
    .examples = "acequia report\nacequia report --by project,month --since 2026-01-01\nacequia report --by "
                "user -P vision --csv",
    .options = {&table, &cli_common_options},
    .run = run,
};
