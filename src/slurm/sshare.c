// sshare: shares of projects and how much of them is used.
#include <stdio.h>
#include <string.h>
#include <strings.h>

#include "base/text.h"
#include "job_row.h"
#include "option.h"

struct share_row {
    const char *account, *user;
    int64_t shares;                 // -1: the root has none
    double norm, usage, effective, fair;
};

static const struct share_column {
    const char *name;
    int width;  // negative: left-justified
} share_columns[] = {{"Account", -20}, {"User", 10},        {"RawShares", 10},    {"NormShares", 11},
                     {"RawUsage", 11}, {"NormUsage", 11},   {"EffectvUsage", 13}, {"FairShare", 10},
                     {"LevelFS", 10},  {"GrpTRESMins", 30}, {"TRESRunMins", 30},  {"Cluster", 10},
                     {"Partition", 10}};

static void share_cell(const struct share_row *r, const char *name, struct buf *out) {
    if (streq(name, "Account"))
        buf_adds(out, r->account);
    else if (streq(name, "User"))
        buf_adds(out, r->user);
    else if (streq(name, "RawShares") && r->shares >= 0)
        buf_addf(out, "%lld", (long long)r->shares);
    else if (streq(name, "NormShares"))
        buf_addf(out, "%.6f", r->norm);
    else if (streq(name, "RawUsage"))
        buf_addf(out, "%.0f", r->usage);
    else if (streq(name, "NormUsage") || streq(name, "EffectvUsage"))
        buf_addf(out, "%.6f", r->effective);
    else if ((streq(name, "FairShare") || streq(name, "LevelFS")) && r->shares >= 0)
        buf_addf(out, "%.6f", r->fair);
}

struct share_table {
    const struct share_column *at[16];
    uint32_t count;
    int bar;  // 0: columns, 1: a bar after each, 2: between
    struct buf *out;
};

static void share_line(const struct share_table *t, const struct share_row *r, char fill) {
    cleanup_buf struct buf cell = {0};
    for (uint32_t i = 0; i < t->count; i++) {
        int width = t->at[i]->width < 0 ? -t->at[i]->width : t->at[i]->width;
        buf_clear(&cell);
        if (fill)
            for (int k = 0; k < width; k++)
                buf_addc(&cell, fill);
        else if (r)
            share_cell(r, t->at[i]->name, &cell);
        else
            buf_adds(&cell, t->at[i]->name);
        if (t->bar)
            buf_addf(t->out, "%s%s", buf_str(&cell), t->bar == 1 || i + 1 < t->count ? "|" : "");
        else
            buf_addf(t->out, t->at[i]->width < 0 ? "%-*s " : "%*s ", width, buf_str(&cell));
    }
    buf_addc(t->out, '\n');
}

static int share_format(struct slurm *s, const char *format, struct share_table *t) {
    for (const char *p = format; *p && t->count < 16;) {
        size_t n = strcspn(p, ","), name = strcspn(p, ",%");
        uint32_t before = t->count;
        for (size_t i = 0; i < sizeof share_columns / sizeof *share_columns && t->count == before; i++)
            if (!strncasecmp(share_columns[i].name, p, name))
                t->at[t->count++] = &share_columns[i];
        if (t->count == before) {
            slurm_error(s, "Invalid field requested: \"%.*s\"", (int)name, p);
            return SLURM_FAILED;
        }
        p += n + (p[n] == ',');
    }
    return 0;
}

// Of GPUs where there are any, else of CPUs. A project without a quota has one share.
static void share_rows(struct slurm *s, const struct opts *o, const struct json *answer, const struct share_table *t) {
    const struct json *list = json_get(answer, "projects");
    bool gpus = json_i64(answer, "total_milligpu", 0) > 0;
    double total = gpus ? (double)json_i64(answer, "total_milligpu", 0) / 1000
                        : (double)json_i64(answer, "total_cpus", 0),
           shares = 0, used = 0;
    for (uint32_t i = 0; list && i < list->len; i++) {
        int64_t quota = json_i64(&list->items[i], "quota_milligpu", 0);
        shares += quota ? (double)quota / 1000 : 1;
        used += gpus ? (double)json_i64(&list->items[i], "used_milligpu", 0) / 1000
                     : (double)json_i64(&list->items[i], "used_cpus", 0);
    }
    const char *accounts = slurm_opt_get(o, "accounts"),
               *user = slurm_opt_get(o, "user") ? slurm_opt_get(o, "user") : slurm_own_name(&s->cli.arena);
    if (!accounts && !slurm_opt_given(o, "Users"))
        share_line(t,
                   &(struct share_row){.account = "root",
                                       .user = "",
                                       .shares = -1,
                                       .usage = used,
                                       .effective = total > 0 ? used / total : 0},
                   0);
    for (uint32_t i = 0; list && i < list->len; i++) {
        const struct json *p = &list->items[i];
        int64_t quota = json_i64(p, "quota_milligpu", 0);
        double own = quota ? (double)quota / 1000 : 1,
               mine = gpus ? (double)json_i64(p, "used_milligpu", 0) / 1000
                           : (double)json_i64(p, "used_cpus", 0);
        struct share_row r = {.account = arena_printf(&s->cli.arena, " %s", json_str(p, "project")),
                              .user = "",
                              .shares = (int64_t)own,
                              .norm = shares > 0 ? own / shares : 0,
                              .usage = mine,
                              .effective = total > 0 ? mine / total : 0};
        r.fair = r.effective <= 0 ? 1 : r.norm / (r.norm + r.effective);
        if (!slurm_list_has(accounts, json_str(p, "project")))
            continue;
        if (!slurm_opt_given(o, "Users"))
            share_line(t, &r, 0);
        r.account = arena_printf(&s->cli.arena, "  %s", json_str(p, "project"));
        r.user = user;
        r.shares = 1;
        share_line(t, &r, 0);
    }
}

int sshare_run(struct slurm *s, int argc, char **argv) {
    static const struct opt table[] = {
        {"accounts", 'A', OPT_VALUE, OPT_DOES, NULL, NULL, 0},
        {"all", 'a', OPT_FLAG, OPT_HARMLESS, NULL, "shares are those of projects", 0},
        {"format", 'o', OPT_VALUE, OPT_DOES, NULL, NULL, 0},
        {"long", 'l', OPT_FLAG, OPT_DOES, NULL, NULL, 0},
        {"noheader", 'h', OPT_FLAG, OPT_DOES, NULL, NULL, 0},
        {"no-header", 'n', OPT_FLAG, OPT_DOES, NULL, NULL, 0},
        {"parsable", 'p', OPT_FLAG, OPT_DOES, NULL, NULL, 0},
        {"parsable2", 'P', OPT_FLAG, OPT_DOES, NULL, NULL, 0},
        {"partition", 'm', OPT_FLAG, OPT_HARMLESS, NULL, "shares hold for all partitions", 0},
        {"user", 'u', OPT_VALUE, OPT_DOES, NULL, NULL, 0},
        {"Users", 'U', OPT_FLAG, OPT_DOES, NULL, NULL, 0},
        OPTS_COMMON};
    struct opts o;
    int status;
    slurm_opts_init(&o, table, sizeof table / sizeof *table, 0);
    if (!slurm_opts_begin(&o, s, argc, argv, NULL, "[OPTIONS]", &status))
        return status;
    if (slurm_check_clusters(s))
        return SLURM_FAILED;
    struct reply r;
    cleanup_buf struct buf out = {0};
    struct share_table t = {.out = &out,
                            .bar = slurm_opt_given(&o, "parsable")    ? 1
                                   : slurm_opt_given(&o, "parsable2") ? 2
                                                                      : 0};
    const char *format = slurm_opt_get(&o, "format") ? slurm_opt_get(&o, "format")
                         : slurm_opt_given(&o, "long")
                             ? "Account,User,RawShares,NormShares,RawUsage,NormUsage,EffectvUsage,FairShare,"
                               "LevelFS,GrpTRESMins,TRESRunMins"
                             : "Account,User,RawShares,NormShares,RawUsage,EffectvUsage,FairShare";
    if (share_format(s, format, &t) || slurm_get(s, "/v1/shares", &r))
        return SLURM_FAILED;
    if (!slurm_opt_given(&o, "noheader") && !slurm_opt_given(&o, "no-header")) {
        share_line(&t, NULL, 0);
        if (!t.bar)
            share_line(&t, NULL, '-');
    }
    share_rows(s, &o, r.json, &t);
    return cli_print(&out);
}
