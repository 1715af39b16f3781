// sreport: hours that projects and users used. Reports AccountUtilizationByUser, UserUtilizationByAccount and TopUsage.
#include <pwd.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <time.h>

#include "base/clock.h"
#include "base/text.h"
#include "cli/job/usage.h"
#include "cli/term/local_time.h"
#include "option.h"

enum { TOP_DEFAULT = 10, CELLS = 7 };
enum report_kind { BY_ACCOUNT, BY_USER, TOP };

struct sreport {
    struct slurm *s;
    enum report_kind kind;
    const char *cluster, *unit;  // "Minutes"
    double per_hour;             // units in an hour
    bool tres;                   // a line per TRES, with its name
    bool cpu, gpu;
    int parsable;                // 1: a bar after each cell, 2: between cells
    bool heading;
    uint32_t top;
    struct job_usage_query query;
    struct buf out;
};

struct sreport_row {
    const char *account, *login;
    const struct job_usage *use;
};

static int64_t midnight_ms(int64_t now_ms, int days) {
    time_t now = (time_t)(now_ms / 1000);
    struct tm tm;
    localtime_r(&now, &tm);
    tm.tm_sec = tm.tm_min = tm.tm_hour = 0;
    tm.tm_mday += days;
    tm.tm_isdst = -1;
    return (int64_t)mktime(&tm) * 1000;
}

static const char *proper_name(struct arena *a, const char *login) {
    const struct passwd *p = str_empty(login) ? NULL : getpwnam(login);
    return !p ? "" : arena_strndup(a, p->pw_gecos, strcspn(p->pw_gecos, ","));
}

static void put_line(struct sreport *r, const char *const cells[CELLS], const int widths[CELLS], int count) {
    for (int i = 0; i < count; i++)
        if (r->parsable)
            buf_addf(&r->out, "%s%s", cells[i], r->parsable == 1 || i + 1 < count ? "|" : "");
        else
            buf_addf(&r->out, "%*.*s ", widths[i], widths[i], cells[i]);
    buf_addc(&r->out, '\n');
}

static int put_widths(const struct sreport *r, const char *titles[CELLS], int widths[CELLS]) {
    static const char *const account_first[] = {"Cluster", "Account", "Login", "Proper Name"};
    static const char *const user_first[] = {"Cluster", "Login", "Proper Name", "Account"};
    static const int account_widths[] = {9, 15, 9, 15}, user_widths[] = {9, 9, 15, 15};
    int n = 0;
    for (; n < 4; n++) {
        titles[n] = r->kind == BY_ACCOUNT ? account_first[n] : user_first[n];
        widths[n] = r->kind == BY_ACCOUNT ? account_widths[n] : user_widths[n];
    }
    if (r->tres) {
        titles[n] = "TRES Name";
        widths[n++] = 14;
    }
    titles[n] = "Used";
    widths[n++] = 8;
    if (!r->tres) {
        titles[n] = "Energy";
        widths[n++] = 8;
    }
    return n;
}

static void put_row(struct sreport *r, const struct sreport_row *row) {
    struct arena *a = &r->s->cli.arena;
    const char *titles[CELLS], *cells[CELLS];
    int widths[CELLS], count = put_widths(r, titles, widths);
    const char *proper = proper_name(a, row->login);
    cells[0] = r->cluster;
    cells[1] = r->kind == BY_ACCOUNT ? row->account : row->login;
    cells[2] = r->kind == BY_ACCOUNT ? row->login : proper;
    cells[3] = r->kind == BY_ACCOUNT ? proper : row->account;
    for (int gpu = 0; gpu < 2; gpu++) {
        if (gpu ? !r->gpu : !r->cpu)
            continue;
        double hours = gpu ? row->use->gpu_hours : row->use->cpu_hours;
        int n = 4;
        if (r->tres)
            cells[n++] = gpu ? "gres/gpu" : "cpu";
        cells[n++] = arena_printf(a, "%.0f", hours * r->per_hour);
        if (!r->tres)
            cells[n++] = arena_printf(a, "%.0f", row->use->kwh * 3.6e6);
        put_line(r, cells, widths, count);
    }
}

static void put_heading(struct sreport *r) {
    static const char line[] = "--------------------------------------------------------------------------------";
    const char *titles[CELLS], *rules[CELLS];
    char from[UNIT_TEXT_MAX], to[UNIT_TEXT_MAX];
    int widths[CELLS], count = put_widths(r, titles, widths);
    if (!r->heading)
        return;
    struct arena *a = &r->s->cli.arena;
    const char *what = r->kind == BY_ACCOUNT  ? "Cluster/Account/User Utilization"
                       : r->kind == BY_USER ? "Cluster/User/Account Utilization"
                                            : arena_printf(a, "Top %u Users", r->top);
    buf_addf(&r->out, "%s\n%s %s - %s (%lld secs)\nUsage reported in %s %s\n%s\n", line, what,
             local_time_format(r->query.from_ms, from), local_time_format(r->query.to_ms - 1000, to),
             (long long)(r->query.to_ms - r->query.from_ms) / 1000, r->tres ? "TRES" : "CPU", r->unit, line);
    put_line(r, titles, widths, count);
    for (int i = 0; i < count; i++)
        rules[i] = arena_printf(a, "%.*s", widths[i], line);
    if (!r->parsable)
        put_line(r, rules, widths, count);
}

static void add_to(struct job_usage *sum, const struct job_usage *u) {
    sum->cpu_hours += u->cpu_hours;
    sum->gpu_hours += u->gpu_hours;
    sum->kwh += u->kwh;
}

// Accounts in order, each with its sum before its users; the rows of a fetch are sorted by project, then user.
static void put_accounts(struct sreport *r, const struct job_usages *all) {
    put_row(r, &(struct sreport_row){"root", "", &all->total});
    for (uint32_t i = 0, next; i < all->at.len; i = next) {
        struct job_usage sum = {0};
        for (next = i; next < all->at.len && streq(all->at.at[next].project, all->at.at[i].project); next++)
            add_to(&sum, &all->at.at[next]);
        put_row(r, &(struct sreport_row){all->at.at[i].project, "", &sum});
        for (uint32_t k = i; k < next; k++)
            put_row(r, &(struct sreport_row){all->at.at[k].project, all->at.at[k].user, &all->at.at[k]});
    }
}

static int compare_users(const void *va, const void *vb) {
    const struct job_usage *a = va, *b = vb;
    int r = strcmp(a->user ? a->user : "", b->user ? b->user : "");
    return r ? r : strcmp(a->project ? a->project : "", b->project ? b->project : "");
}

static int compare_use(const void *va, const void *vb) {
    const struct job_usage *a = va, *b = vb;
    return a->cpu_hours != b->cpu_hours ? (a->cpu_hours < b->cpu_hours ? 1 : -1) : compare_users(va, vb);
}

static void put_users(struct sreport *r, struct job_usages *all) {
    if (all->at.len)
        qsort(all->at.at, all->at.len, sizeof *all->at.at, r->kind == TOP ? compare_use : compare_users);
    for (uint32_t i = 0; i < all->at.len && (r->kind != TOP || i < r->top); i++)
        put_row(r, &(struct sreport_row){all->at.at[i].project, all->at.at[i].user, &all->at.at[i]});
}

// "start=2026-01-01"; Slurm accepts any beginning of the word.
static int take_condition(struct sreport *r, const char *text) {
    static const char *const words[] = {"start", "end", "accounts", "users", "topcount", "cluster", "format"};
    const char *equals = strchr(text, '=');
    size_t len = equals ? (size_t)(equals - text) : 0, i = 0;
    while (len && i < sizeof words / sizeof *words && strncasecmp(words[i], text, len))
        i++;
    uint32_t count;
    int64_t *at = i == 0 ? &r->query.from_ms : &r->query.to_ms;
    if (!len || i >= 6) {
        slurm_error(r->s, "Unknown condition: %s", text);
        return SLURM_FAILED;
    }
    if (i <= 1 && local_time_parse(equals + 1, clock_wall_ms(), TIME_TODAY, at, NULL) < 0) {
        fprintf(stderr, "Invalid time specification (pos=0): %s\n", equals + 1);
        return SLURM_FAILED;
    }
    if (i == 2)
        r->query.project = equals + 1;
    if (i == 3)
        r->query.user = equals + 1;
    if (i == 4 && parse_u32(equals + 1, &count) == 0)
        r->top = count;
    return 0;
}

static int take_unit(struct sreport *r, const char *text) {
    static const struct {
        const char *word;
        double per_hour;
    } units[] = {{"Minutes", 60}, {"Seconds", 3600}, {"Hours", 1}};
    for (size_t i = 0; i < sizeof units / sizeof *units; i++)
        if (!text || !strncasecmp(units[i].word, text, strlen(text))) {
            r->unit = units[i].word;
            r->per_hour = units[i].per_hour;
            return 0;
        }
    slurm_error(r->s, "unknown time format %s", text);
    return SLURM_FAILED;
}

static int take_report(struct sreport *r, const struct opts *o) {
    const char *noun = o->argument_count > 0 ? o->arguments[0] : "",
               *word = o->argument_count > 1 ? o->arguments[1] : "";
    size_t n = strlen(word);
    if (n && !strncasecmp(noun, "user", strlen(noun)) && !strncasecmp(word, "TopUsage", n))
        r->kind = TOP;
    else if (n && !strncasecmp(noun, "cluster", strlen(noun)) && !strncasecmp(word, "AccountUtilizationByUser", n))
        r->kind = BY_ACCOUNT;
    else if (n > 4 && !strncasecmp(noun, "cluster", strlen(noun)) && !strncasecmp(word, "UserUtilizationByAccount", n))
        r->kind = BY_USER;
    else {
        fprintf(stderr, "Not valid report %s\nValid cluster reports are, \"AccountUtilizationByUser\" and "
                        "\"UserUtilizationByAccount\"; the user report is \"TopUsage\"\n", word);
        return SLURM_FAILED;
    }
    int status = 0;
    for (int i = 2; !status && i < o->argument_count; i++)
        status = take_condition(r, o->arguments[i]);
    return status;
}

static void take_tres(struct sreport *r, const char *text) {
    r->tres = text;
    r->cpu = !text || strstr(text, "cpu") || slurm_same_word(text, "all");
    r->gpu = text && (strstr(text, "gpu") || slurm_same_word(text, "all"));
}

int sreport_run(struct slurm *s, int argc, char **argv) {
    static const struct opt table[] = {
        {"all_clusters", 'a', OPT_FLAG, OPT_HARMLESS, NULL, "there is one cluster", 0},
        {"noheader", 'n', OPT_FLAG, OPT_DOES, NULL, NULL, 0},
        {"parsable", 'p', OPT_FLAG, OPT_DOES, NULL, NULL, 0},
        {"parsable2", 'P', OPT_FLAG, OPT_DOES, NULL, NULL, 0},
        {"quiet", 'Q', OPT_FLAG, OPT_HARMLESS, NULL, "nothing else is printed", 0},
        {"time", 't', OPT_VALUE, OPT_DOES, NULL, NULL, 0},
        {"tres", 'T', OPT_VALUE, OPT_DOES, NULL, NULL, 0},
        OPTS_COMMON};
    struct opts o;
    int status;
    slurm_opts_init(&o, table, sizeof table / sizeof *table, 0);
    if (!slurm_opts_begin(&o, s, argc, argv, NULL,
                          "[OPTIONS] cluster|user REPORT [start=TIME] [end=TIME] [accounts=A] [users=U]",
                          &status))
        return status;
    int64_t now = clock_wall_ms();
    struct sreport r = {.s = s,
                        .top = TOP_DEFAULT,
                        .heading = !slurm_opt_given(&o, "noheader"),
                        .parsable = slurm_opt_given(&o, "parsable")    ? 1
                                    : slurm_opt_given(&o, "parsable2") ? 2
                                                                       : 0,
                        .query = {.from_ms = midnight_ms(now, -1),
                                  .to_ms = midnight_ms(now, 0),
                                  .by = USAGE_BY_PROJECT | USAGE_BY_USER}};
    take_tres(&r, slurm_opt_get(&o, "tres"));
    if (slurm_check_clusters(s) || take_unit(&r, slurm_opt_get(&o, "time")) || take_report(&r, &o))
        return SLURM_FAILED;
    struct client *k = slurm_client(s);
    struct job_usages all = {0};
    r.cluster = k ? slurm_cluster(s) : NULL;
    if (!r.cluster)
        return SLURM_FAILED;
    if (job_usage_fetch(&s->cli, k, &r.query, &all) < 0) {
        job_usages_done(&all);
        return slurm_call_failed(s);
    }
    put_heading(&r);
    if (r.kind == BY_ACCOUNT)
        put_accounts(&r, &all);
    else
        put_users(&r, &all);
    job_usages_done(&all);
    status = cli_print(&r.out);
    buf_done(&r.out);
    return status;
}
