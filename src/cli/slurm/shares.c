// sprio: where the turns of waiting jobs come from. sshare: shares of projects and what they use.
#include <stdio.h>
#include <string.h>
#include <strings.h>

#include "base/text.h"
#include "base/vec.h"
#include "cli/slurm/columns.h"
#include "cli/slurm/opt.h"
#include "cli/slurm/squeue_columns.h"

// --- sprio ---

enum { PRIORITY_STEP = 2000000000 };  // points of one step of priority; see "order" in docs/api.md

#define PUT(fn) static void put_##fn(const void *row, struct buf *out)
#define JOB const struct sjob *j = row
PUT(label) { JOB; buf_adds(out, j->label); }
PUT(partition) { JOB; buf_adds(out, j->partition ? j->partition : ""); }
PUT(user) { JOB; buf_adds(out, j->user ? j->user : ""); }
PUT(account) { JOB; buf_adds(out, j->project ? j->project : ""); }
PUT(qos) { JOB; buf_adds(out, j->qos ? j->qos : "normal"); }
PUT(name) { JOB; buf_adds(out, j->name ? j->name : ""); }
PUT(priority) { JOB; buf_addu(out, sjob_priority(j)); }
PUT(norm_priority) { JOB; buf_addf(out, "%.14f", sjob_priority(j) / 4294967295.0); }
PUT(nice) { JOB; buf_addf(out, "%d", j->nice); }
PUT(age) { JOB; buf_addf(out, "%lld", (long long)j->age_s); }
PUT(share) { JOB; buf_addf(out, "%lld", (long long)-j->use_s); }
PUT(size) { JOB; buf_addf(out, "%lld", (long long)(-j->short_s - j->size_s)); }
PUT(tier) { JOB; buf_addf(out, "%lld", (long long)j->tier); }
PUT(qos_part) { JOB; buf_addf(out, "%lld", (long long)j->qos_priority * PRIORITY_STEP); }
PUT(zero) { buf_adds(out, "0"); }
PUT(none) { buf_adds(out, ""); }

static const struct column prio_columns[] = {
    {'i', NULL, "JOBID", "label", put_label},
    {'r', NULL, "PARTITION", "partition", put_partition},
    {'u', NULL, "USER", "user", put_user},
    {'o', NULL, "ACCOUNT", "project", put_account},
    {'n', NULL, "QOS_NAME", "qos", put_qos},
    {'j', NULL, "NAME", "name", put_name},
    {'Y', NULL, "PRIORITY", "priority,hold,order", put_priority},
    {'y', NULL, "PRIORITY", "priority,hold,order", put_norm_priority},
    {'N', NULL, "NICE", "nice", put_nice},
    {'A', NULL, "AGE", "order", put_age},
    {'a', NULL, "AGE", "order", put_age},
    {'F', NULL, "FAIRSHARE", "order", put_share},
    {'f', NULL, "FAIRSHARE", "order", put_share},
    {'J', NULL, "JOBSIZE", "order", put_size},
    {'P', NULL, "PARTITION", "order", put_tier},
    {'p', NULL, "PARTITION", "order", put_tier},
    {'Q', NULL, "QOS", "order", put_qos_part},
    {'q', NULL, "QOS", "order", put_qos_part},
    {'S', NULL, "SITE", "", put_zero},
    {'B', NULL, "ASSOC", "", put_zero},
    {'T', NULL, "TRES", "", put_none},
};

static int show_weights(bool heading) {
    if (heading)
        printf("          JOBID PARTITION   PRIORITY       SITE        AGE  FAIRSHARE    JOBSIZE  PARTITION  "
               "      QOS\n");
    printf("        Weights                             1          1          1          1          1 %10d\n",
           PRIORITY_STEP);
    return SLURM_OK;
}

int sprio_run(struct slurm *s, int argc, char **argv) {
    static const struct opt table[] = {
        {"format", 'o', OPT_VALUE, OPT_DOES, NULL, NULL, 0},
        {"jobs", 'j', OPT_MAYBE, OPT_DOES, NULL, NULL, 0},
        {"long", 'l', OPT_FLAG, OPT_DOES, NULL, NULL, 0},
        {"noheader", 'h', OPT_FLAG, OPT_DOES, NULL, NULL, 0},
        {"norm", 'n', OPT_FLAG, OPT_DOES, NULL, NULL, 0},
        {"partition", 'p', OPT_VALUE, OPT_DOES, NULL, NULL, 0},
        {"sort", 'S', OPT_VALUE, OPT_HARMLESS, NULL, "lines come in order of id", 0},
        {"user", 'u', OPT_VALUE, OPT_DOES, NULL, NULL, 0},
        {"weights", 'w', OPT_FLAG, OPT_DOES, NULL, NULL, 0},
        OPTS_COMMON};
    struct opts o;
    int status;
    opts_init(&o, table, sizeof table / sizeof *table, 0);
    if (!opts_begin(&o, s, argc, argv, NULL, "[OPTIONS]", &status))
        return status;
    if (slurm_check_clusters(s))
        return SLURM_FAILED;
    struct columns c = {0};
    sjob_vec jobs = {0};
    cleanup_buf struct buf out = {0};
    const char *ids = opt_get(&o, "jobs")                         ? opt_get(&o, "jobs")
                      : opt_given(&o, "jobs") && o.argument_count ? o.arguments[0]
                                                                  : NULL;
    const char *bad = NULL, *fields, *plain = ids ? ids_plain(&s->cli.arena, ids, &bad) : NULL;
    if (ids && !plain) {
        slurm_error(s, "Invalid job id: %s", bad);
        return SLURM_FAILED;
    }
    if (opt_given(&o, "weights"))
        return show_weights(!opt_given(&o, "noheader"));
    const char *format = opt_get(&o, "format") ? opt_get(&o, "format")
                         : opt_given(&o, "long")
                             ? "%.15i %9r %.8u %.10Y %.10S %.10A %.10B %.10F %.10J %.10P %.10Q %.11N %.20T"
                         : opt_given(&o, "norm") ? "%.15i %9r %.16y %.10S %.10a %.10f %.10J %.10p %.10q"
                                                 : "%.15i %9r %.10Y %.10S %.10A %.10F %.10J %.10P %.10Q";
    columns_by_letters(s, prio_columns, sizeof prio_columns / sizeof *prio_columns, format, "job", &c);
    columns_fields(&s->cli.arena, &c, "id,label,state,user,partition,array_id,array_index,hold,eligible_ms", &fields);
    const char *users = opt_get(&o, "user");
    if (users && !strchr(users, ',') && !user_name_of(&s->cli.arena, users)) {
        slurm_error(s, "Invalid user: %s", users);
        columns_done(&c);
        return SLURM_OK;
    }
    status = jobs_fetch(s, &(struct job_query){.live = true, .fields = fields, .ids = plain}, &jobs);
    jobs_by_partition(opt_get(&o, "partition"), &s->cli.arena, &jobs);
    if (!status && !opt_given(&o, "noheader"))
        columns_heading(&c, &out);
    uint32_t shown = 0;
    for (uint32_t i = 0; !status && i < jobs.len; i++) {
        const struct sjob *j = &jobs.at[i];
        bool in_turn = j->state == JOB_PENDING && !j->hold && j->eligible_ms && j->eligible_ms <= j->now_ms;
        if (in_turn && list_has(users, j->user) &&
            list_has(opt_get(&o, "partition"), j->partition) && ids_have(ids, j)) {
            columns_row(&c, j, &out);
            shown++;
        }
    }
    vec_done(&jobs);
    columns_done(&c);
    if (!status && !shown && ids) {
        buf_clear(&out);
        buf_adds(&out, "Unable to find jobs matching user/id(s) specified\n");
    }
    return status ? status : cli_print(&out);
}

// --- sshare ---

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
    const char *accounts = opt_get(o, "accounts"),
               *user = opt_get(o, "user") ? opt_get(o, "user") : own_name(&s->cli.arena);
    if (!accounts && !opt_given(o, "Users"))
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
        if (!list_has(accounts, json_str(p, "project")))
            continue;
        if (!opt_given(o, "Users"))
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
    opts_init(&o, table, sizeof table / sizeof *table, 0);
    if (!opts_begin(&o, s, argc, argv, NULL, "[OPTIONS]", &status))
        return status;
    if (slurm_check_clusters(s))
        return SLURM_FAILED;
    struct reply r;
    cleanup_buf struct buf out = {0};
    struct share_table t = {.out = &out, .bar = opt_given(&o, "parsable") ? 1 : opt_given(&o, "parsable2") ? 2 : 0};
    const char *format = opt_get(&o, "format") ? opt_get(&o, "format")
                         : opt_given(&o, "long")
                             ? "Account,User,RawShares,NormShares,RawUsage,NormUsage,EffectvUsage,FairShare,"
                               "LevelFS,GrpTRESMins,TRESRunMins"
                             : "Account,User,RawShares,NormShares,RawUsage,EffectvUsage,FairShare";
    if (share_format(s, format, &t) || slurm_get(s, "/v1/shares", &r))
        return SLURM_FAILED;
    if (!opt_given(&o, "noheader") && !opt_given(&o, "no-header")) {
        share_line(&t, NULL, 0);
        if (!t.bar)
            share_line(&t, NULL, '-');
    }
    share_rows(s, &o, r.json, &t);
    return cli_print(&out);
}
