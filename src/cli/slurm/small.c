// sstat, sdiag, and the little of sacctmgr that clients call: all of them only look.
#include <pwd.h>
#include <stdio.h>
#include <string.h>
#include <strings.h>
#include <time.h>

#include "base/clock.h"
#include "base/text.h"
#include "cli/slurm/columns.h"
#include "cli/slurm/opt.h"
#include "cli/slurm/sacct_columns.h"
#include "cli/slurm/squeue_columns.h"
#include "model/node.h"

#define BEGIN(usage)                                               \
    struct opts o;                                                 \
    int status;                                                    \
    opts_init(&o, table, sizeof table / sizeof *table, 0);         \
    if (!opts_begin(&o, s, argc, argv, NULL, usage, &status))      \
        return status;                                             \
    if (slurm_check_clusters(s))                                   \
        return SLURM_FAILED

// --- sstat ---

int sstat_run(struct slurm *s, int argc, char **argv) {
    static const struct opt table[] = {
        {"allsteps", 'a', OPT_FLAG, OPT_DOES, NULL, NULL, 0},
        {"format", 'o', OPT_VALUE, OPT_DOES, NULL, NULL, 0},
        {"helpformat", 'e', OPT_FLAG, OPT_DOES, NULL, NULL, 0},
        {"jobs", 'j', OPT_VALUE, OPT_DOES, NULL, NULL, 0},
        {"noconvert", 0, OPT_FLAG, OPT_DOES, NULL, NULL, 0},
        {"noheader", 'n', OPT_FLAG, OPT_DOES, NULL, NULL, 0},
        {"parsable", 'p', OPT_FLAG, OPT_DOES, NULL, NULL, 0},
        {"parsable2", 'P', OPT_FLAG, OPT_DOES, NULL, NULL, 0},
        {"pidformat", 'i', OPT_FLAG, OPT_REFUSED, NULL, "use ps on the node", 0},
        OPTS_COMMON};
    BEGIN("[OPTIONS] -j JOB");
    struct acct_format f = {.parsable = opt_given(&o, "parsable")    ? 1
                                        : opt_given(&o, "parsable2") ? 2
                                                                     : 0,
                            .delimiter = "|",
                            .plain_numbers = opt_given(&o, "noconvert")};
    const char *ids = opt_get(&o, "jobs") ? opt_get(&o, "jobs") : o.argument_count ? o.arguments[0] : NULL, *bad = NULL;
    sjob_vec jobs = {0};
    sstep_vec steps = {0};
    cleanup_buf struct buf out = {0};
    if (opt_given(&o, "helpformat"))
        return acct_help();
    if (!ids) {
        slurm_error(s, "You didn't give me any jobs to stat.");
        return SLURM_FAILED;
    }
    const char *plain = ids_plain(&s->cli.arena, ids, &bad);
    if (!plain) {
        slurm_error(s, "Bad job/step specified: %s", bad);
        return SLURM_FAILED;
    }
    if (acct_columns(s,
                     opt_get(&o, "format") ? opt_get(&o, "format")
                                           : "jobid,maxvmsize,maxrss,averss,maxpages,mincpu,avecpu,ntasks,"
                                             "consumedenergy,maxdiskread,maxdiskwrite",
                     &f))
        return SLURM_FAILED;
    status = jobs_fetch(s,
                        &(struct job_query){.ids = plain,
                                            .fields = arena_printf(&s->cli.arena, "%s,usage",
                                                                   acct_fields(&s->cli.arena, &f, true))},
                        &jobs);
    if (!status && !opt_given(&o, "noheader"))
        acct_heading(&f, &out);
    for (uint32_t i = 0; !status && i < jobs.len; i++) {
        uint32_t from = steps.len;
        if (!job_state_final(jobs.at[i].state))
            steps_of(&s->cli.arena, &jobs.at[i], &steps);
        for (uint32_t k = from; k < steps.len; k++)
            if (steps.at[k].state == JOB_RUNNING)
                acct_put(&f, &(struct acct_row){.job = &jobs.at[i], .step = &steps.at[k]}, &out);
    }
    if (!status && !steps.len)
        slurm_error(s, "No steps running for job %s", ids);
    vec_done(&jobs);
    vec_done(&steps);
    acct_done(&f);
    return status ? status : cli_print(&out);
}

// --- sdiag ---

int sdiag_run(struct slurm *s, int argc, char **argv) {
    static const struct opt table[] = {
        {"all", 'a', OPT_FLAG, OPT_DOES, NULL, NULL, 0},
        {"json", 0, OPT_FLAG, OPT_DOES, NULL, NULL, 0},
        {"reset", 'r', OPT_FLAG, OPT_REFUSED, NULL, "figures count from the controller's start", 0},
        {"sort-by-id", 'i', OPT_FLAG, OPT_HARMLESS, NULL, NULL, 0},
        {"sort-by-time", 't', OPT_FLAG, OPT_HARMLESS, NULL, NULL, 0},
        {"sort-by-time2", 'T', OPT_FLAG, OPT_HARMLESS, NULL, NULL, 0},
        OPTS_COMMON};
    BEGIN("[OPTIONS]");
    struct reply r;
    char now[64], since[64];
    struct tm tm;
    if (slurm_get(s, "/v1/status", &r))
        return SLURM_FAILED;
    if (opt_given(&o, "json")) {
        printf("%s\n", r.text);
        return SLURM_OK;
    }
    time_t t = time(NULL), began = t - (time_t)(json_i64(r.json, "uptime_ms", 0) / 1000);
    strftime(now, sizeof now, "%a %b %d %H:%M:%S %Y", localtime_r(&t, &tm));
    strftime(since, sizeof since, "%a %b %d %H:%M:%S %Y", localtime_r(&began, &tm));
    const struct json *jobs = json_get(r.json, "jobs"), *sched = json_get(r.json, "scheduler");
    static const char line[] = "*******************************************************";
    int64_t done = json_i64(jobs, "COMPLETED", 0), failed = json_i64(jobs, "FAILED", 0),
            cancelled = json_i64(jobs, "CANCELLED", 0);
    printf("%s\nsdiag output at %s (%lld)\nData since      %s (%lld)\n%s\n", line, now, (long long)t, since,
           (long long)began, line);
    printf("Server thread count:  1\nAgent queue size:     0\nAgent count:          0\nAgent thread count:   "
           "0\nDBD Agent queue size: 0\n\n");
    printf("Jobs submitted: %lld\nJobs started:   %lld\nJobs completed: %lld\nJobs canceled:  %lld\nJobs "
           "failed:    %lld\n\n",
           (long long)json_i64(jobs, "submitted", 0),
           (long long)(done + failed + json_i64(jobs, "RUNNING", 0)), (long long)done, (long long)cancelled,
           (long long)failed);
    printf("Job states ts:  %s (%lld)\nJobs pending:   %lld\nJobs running:   %lld\n\n", now, (long long)t,
           (long long)json_i64(jobs, "PENDING", 0),
           (long long)(json_i64(jobs, "RUNNING", 0) + json_i64(jobs, "STARTING", 0)));
    long long last = (long long)json_i64(sched, "last_us", 0), passes = (long long)json_i64(sched, "passes", 0);
    long long minutes = (long long)(t - began) / 60, queue = (long long)json_i64(jobs, "PENDING", 0);
    printf("Main schedule statistics (microseconds):\n\tLast cycle:   %lld\n\tTotal cycles: %lld\n\tCycles "
           "per minute: %lld\n\tLast queue length: %lld\n\n",
           last, passes, passes / (minutes > 0 ? minutes : 1), queue);
    // There is one pass for both: what is planned and what is filled in behind it.
    printf("Backfilling stats\n\tTotal cycles: %lld\n\tLast cycle: %lld\n\tLast queue length: %lld\n\n",
           passes, last, queue);
    printf("Remote Procedure Call statistics by message type\n\tREQUEST                                 (    "
           "1) count:%lld\n\n",
           (long long)json_i64(r.json, "requests", 0));
    return SLURM_OK;
}

// --- sacctmgr ---

struct acct_table {
    const char *names[16];
    uint32_t columns;
    bool parsable, trailing, heading;
    const char *format;  // names joined by ','; NULL: all
    VEC(const char *) cells;
};

static int column_index(const struct acct_table *t, const char *name, size_t len) {
    for (uint32_t i = 0; i < t->columns; i++)
        if (!strncasecmp(t->names[i], name, len))
            return (int)i;
    return -1;
}

static int print_table(struct slurm *s, const struct acct_table *t) {
    cleanup_buf struct buf out = {0};
    int order[16];
    int n = 0;
    for (const char *p = t->format ? t->format : ""; *p && n < 16;) {
        size_t len = strcspn(p, ","), name = strcspn(p, ",%");
        int i = column_index(t, p, name);
        if (i < 0) {
            fprintf(stderr, " Unknown field '%.*s'\n", (int)name, p);
            return SLURM_FAILED;
        }
        order[n++] = i;
        p += len + (p[len] == ',');
    }
    for (uint32_t i = 0; !t->format && i < t->columns; i++)
        order[n++] = (int)i;
    uint32_t rows = t->columns ? t->cells.len / t->columns : 0;
    for (int64_t r = t->heading ? -1 : 0; r < (int64_t)rows; r++) {
        for (int i = 0; i < n; i++) {
            const char *cell = r < 0 ? t->names[order[i]] : t->cells.at[(uint32_t)r * t->columns + (uint32_t)order[i]];
            if (t->parsable)
                buf_addf(&out, "%s%s", cell, i + 1 < n || t->trailing ? "|" : "");
            else
                buf_addf(&out, "%10.10s ", cell);
        }
        buf_addc(&out, '\n');
        for (int i = 0; r < 0 && !t->parsable && i < n; i++)
            buf_adds(&out, i + 1 < n ? "---------- " : "---------- \n");
    }
    return cli_print(&out);
}

static void cell(struct acct_table *t, const char *text) {
    vec_push(&t->cells, text ? text : "");
}

// One line per user and project: members where there are, else everybody asked for.
static int list_associations(struct slurm *s, struct acct_table *t, const char *user, const char *account,
                             const char *cluster, bool users) {
    struct reply r, q;
    cleanup_buf struct buf qos = {0};
    if (slurm_get(s, "/v1/projects", &r) || slurm_get(s, "/v1/qos", &q))
        return SLURM_FAILED;
    const struct json *list = json_get(q.json, "qos");
    for (uint32_t i = 0; list && i < list->len; i++)
        buf_addf(&qos, "%s%s", qos.len ? "," : "", json_str(&list->items[i], "name"));
    const char *all_qos = arena_strdup(&s->cli.arena, qos.len ? buf_str(&qos) : "normal"),
               *me = own_name(&s->cli.arena);
    static const char *const names[] = {"User",       "Account",   "QOS",   "Cluster", "DefaultAccount",
                                        "AdminLevel", "Partition", "Share", "Def QOS"};
    memcpy(t->names, names, sizeof names);
    t->columns = sizeof names / sizeof *names;
    list = json_get(r.json, "projects");
    for (uint32_t i = 0; list && i < list->len; i++) {
        struct project p;
        if (schema_read_json(&project_schema, &list->items[i], &s->cli.arena, &p, NULL) < 0 ||
            !list_has(account, p.name))
            continue;
        const char *anybody = user ? user : me;
        uint32_t n = p.members.len ? p.members.len : 1;
        for (uint32_t k = 0; k < n; k++) {
            const char *who = p.members.len ? p.members.at[k] : anybody;
            if (users && !list_has(user, who))
                continue;
            cell(t, who), cell(t, p.name), cell(t, all_qos), cell(t, cluster), cell(t, p.name),
                cell(t, "None"), cell(t, ""), cell(t, "1"), cell(t, p.default_qos);
        }
    }
    return 0;
}

static int list_things(struct slurm *s, struct acct_table *t, const char *kind) {
    struct reply r;
    if (slurm_get(s, arena_printf(&s->cli.arena, "/v1/%s", kind), &r))
        return SLURM_FAILED;
    bool qos = streq(kind, "qos");
    static const char *const qos_names[] = {"Name", "Priority", "Preempt", "Flags", "MaxWall", "MaxJobsPU"},
                             *const account_names[] = {"Account", "Descr", "Org"};
    memcpy(t->names, qos ? (const void *)qos_names : (const void *)account_names,
           qos ? sizeof qos_names : sizeof account_names);
    t->columns = qos ? 6 : 3;
    const struct json *list = json_get(r.json, kind);
    for (uint32_t i = 0; list && i < list->len; i++) {
        const struct json *j = &list->items[i];
        const char *name = json_str(j, "name");
        char wall[UNIT_TEXT_MAX];
        cell(t, name);
        if (qos) {
            cell(t, arena_printf(&s->cli.arena, "%lld", (long long)json_i64(j, "priority", 0)));
            cell(t, ""), cell(t, "");
            cell(t, arena_strdup(&s->cli.arena, slurm_limit((uint64_t)json_i64(j, "max_wall_s", 0), "", wall)));
            cell(t, json_i64(j, "max_jobs_per_user", 0)
                        ? arena_printf(&s->cli.arena, "%lld", (long long)json_i64(j, "max_jobs_per_user", 0))
                        : "");
        } else {
            cell(t, name), cell(t, json_str(j, "parent") ? json_str(j, "parent") : "root");
        }
    }
    return 0;
}

int sacctmgr_run(struct slurm *s, int argc, char **argv) {
    static const struct opt table[] = {{"associations", 's', OPT_FLAG, OPT_DOES, NULL, NULL, 0},
                                       {"immediate", 'i', OPT_FLAG, OPT_HARMLESS, NULL, NULL, 0},
                                       {"noheader", 'n', OPT_FLAG, OPT_DOES, NULL, NULL, 0},
                                       {"oneliner", 'o', OPT_FLAG, OPT_HARMLESS, NULL, NULL, 0},
                                       {"parsable", 'p', OPT_FLAG, OPT_DOES, NULL, NULL, 0},
                                       {"parsable2", 'P', OPT_FLAG, OPT_DOES, NULL, NULL, 0},
                                       {"quiet", 'Q', OPT_FLAG, OPT_DOES, NULL, NULL, 0},
                                       {"readonly", 'r', OPT_FLAG, OPT_HARMLESS, NULL, "it only shows", 0},
                                       OPTS_COMMON};
    BEGIN("[OPTIONS] show users|accounts|associations|qos|clusters [withassoc] [format=…] [where user=…]");
    struct acct_table t = {.parsable = opt_given(&o, "parsable") || opt_given(&o, "parsable2"),
                           .trailing = opt_given(&o, "parsable"),
                           .heading = !opt_given(&o, "noheader")};
    const char *verb = o.argument_count ? o.arguments[0] : "",
               *what = o.argument_count > 1 ? o.arguments[1] : "", *user = NULL, *account = NULL;
    if (!same_word(verb, "show") && !same_word(verb, "list")) {
        slurm_error(s, "%s%sonly show and list are supported: projects are changed with acequia project",
                    *verb ? verb : "", *verb ? ": " : "");
        return SLURM_FAILED;
    }
    for (int i = 2; i < o.argument_count; i++) {
        const char *v = strchr(o.arguments[i], '=');
        if (v && !strncasecmp(o.arguments[i], "format", 6))
            t.format = v + 1;
        else if (v && (!strncasecmp(o.arguments[i], "user", 4) || !strncasecmp(o.arguments[i], "name", 4)))
            user = v + 1;
        else if (v && !strncasecmp(o.arguments[i], "account", 7))
            account = v + 1;
    }
    const char *cluster = slurm_cluster(s);
    if (!cluster)
        return SLURM_FAILED;
    if (!strncasecmp(what, "user", 4) || !strncasecmp(what, "assoc", 5)) {
        status = list_associations(s, &t, user, account, cluster, true);
    } else if (!strncasecmp(what, "account", 7)) {
        status = list_things(s, &t, "projects");
    } else if (!strncasecmp(what, "qos", 3)) {
        status = list_things(s, &t, "qos");
    } else if (!strncasecmp(what, "cluster", 7)) {
        static const char *const names[] = {"Cluster", "ControlHost", "ControlPort", "RPC", "Share"};
        memcpy(t.names, names, sizeof names);
        t.columns = 5;
        cell(&t, cluster), cell(&t, "127.0.0.1"), cell(&t, "0"), cell(&t, "9728"), cell(&t, "1");
        status = 0;
    } else {
        slurm_error(s, "\"%s\" is not known here; show users, accounts, associations, qos or clusters", what);
        status = SLURM_FAILED;
    }
    if (!status)
        status = print_table(s, &t);
    vec_done(&t.cells);
    return status;
}
