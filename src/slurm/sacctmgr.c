// sacctmgr, which only looks: projects as accounts, their members as associations, QoS, the cluster.
// All of it is told in Slurm's fields; one that has no meaning here is there, empty, so that the
// programs that ask for it read on.
#include <stdio.h>
#include <string.h>
#include <strings.h>

#include "base/text.h"
#include "job_row.h"
#include "option.h"
#include "model/gpuspec.h"
#include "model/node.h"

enum acct_field {
    ACCOUNT, ACTION, ACTOR, ADMIN, CLUSTER, CONTROL_HOST, CONTROL_PORT, COORDINATORS, DEFAULT_ACCOUNT, DEFAULT_QOS,
    DESCRIPTION, FED_STATE, FEATURES, FEDERATION, FLAGS, GRACE, GRP_CPU_MINS, GRP_CPU_RUN_MINS, GRP_CPUS, GRP_JOBS,
    GRP_MEM, GRP_NODES, GRP_SUBMIT, GRP_TRES, GRP_TRES_MINS, GRP_TRES_RUN_MINS, GRP_WALL, ID, INFO, LFT,
    MAX_CPU_MINS, MAX_CPUS, MAX_CPUS_USER, MAX_JOBS, MAX_JOBS_ACCOUNT, MAX_JOBS_USER, MAX_NODES, MAX_SUBMIT,
    MAX_SUBMIT_ACCOUNT, MAX_SUBMIT_USER, MAX_TRES, MAX_TRES_ACCOUNT, MAX_TRES_MINS, MAX_TRES_NODE, MAX_TRES_USER,
    MAX_WALL, MIN_TRES, NAME, NODE_NAME, ORGANIZATION, PARENT_ID, PARENT_NAME, PARTITION, PREEMPT, PREEMPT_EXEMPT,
    PREEMPT_MODE, PRIORITY, PROBLEM, QOS, REASON, RGT, RPC, SHARE, STATE, TIME, TIME_END, TIME_START, TYPE,
    USAGE_FACTOR, USAGE_THRESHOLD, USER, WCKEY, WHERE, FIELD_COUNT
};

// Words that name a field, the one written out first; any beginning of them does, too.
static const struct {
    const char *words[3], *heading;
    int width;
} fields[FIELD_COUNT] = {
    [ACCOUNT] = {{"Account", "Acct"}, "Account", 10},
    [ACTION] = {{"Action"}, "Action", 20},
    [ACTOR] = {{"Actor"}, "Actor", 10},
    [ADMIN] = {{"AdminLevel"}, "Admin", 9},
    [CLUSTER] = {{"Cluster"}, "Cluster", 10},
    [CONTROL_HOST] = {{"ControlHost"}, "ControlHost", 15},
    [CONTROL_PORT] = {{"ControlPort"}, "ControlPort", 12},
    [COORDINATORS] = {{"Coordinators"}, "Coord Accounts", 20},
    [DEFAULT_ACCOUNT] = {{"DefaultAccount"}, "Def Acct", 10},
    [DEFAULT_QOS] = {{"DefaultQOS", "Def QOS"}, "Def QOS", 9},
    [DESCRIPTION] = {{"Description"}, "Descr", 20},
    [FED_STATE] = {{"FedState"}, "FedState", 12},
    [FEATURES] = {{"Features"}, "Features", 20},
    [FEDERATION] = {{"Federation"}, "Federation", 10},
    [FLAGS] = {{"Flags"}, "Flags", 20},
    [GRACE] = {{"GraceTime"}, "GraceTime", 10},
    [GRP_CPU_MINS] = {{"GrpCPUMins"}, "GrpCPUMins", 11},
    [GRP_CPU_RUN_MINS] = {{"GrpCPURunMins"}, "GrpCPURunMins", 13},
    [GRP_CPUS] = {{"GrpCPUs"}, "GrpCPUs", 8},
    [GRP_JOBS] = {{"GrpJobs"}, "GrpJobs", 7},
    [GRP_MEM] = {{"GrpMem"}, "GrpMem", 7},
    [GRP_NODES] = {{"GrpNodes"}, "GrpNodes", 8},
    [GRP_SUBMIT] = {{"GrpSubmitJobs"}, "GrpSubmit", 9},
    [GRP_TRES] = {{"GrpTRES"}, "GrpTRES", 13},
    [GRP_TRES_MINS] = {{"GrpTRESMins"}, "GrpTRESMins", 13},
    [GRP_TRES_RUN_MINS] = {{"GrpTRESRunMins"}, "GrpTRESRunMins", 13},
    [GRP_WALL] = {{"GrpWall"}, "GrpWall", 11},
    [ID] = {{"ID"}, "ID", 6},
    [INFO] = {{"Info"}, "Info", 20},
    [LFT] = {{"LFT"}, "LFT", 6},
    [MAX_CPU_MINS] = {{"MaxCPUMinsPerJob"}, "MaxCPUMins", 11},
    [MAX_CPUS] = {{"MaxCPUsPerJob"}, "MaxCPUs", 8},
    [MAX_CPUS_USER] = {{"MaxCPUsPerUser", "MaxCPUsPU"}, "MaxCPUsPU", 9},
    [MAX_JOBS] = {{"MaxJobs"}, "MaxJobs", 7},
    [MAX_JOBS_ACCOUNT] = {{"MaxJobsPerAccount", "MaxJobsPA"}, "MaxJobsPA", 9},
    [MAX_JOBS_USER] = {{"MaxJobsPerUser", "MaxJobsPU"}, "MaxJobsPU", 9},
    [MAX_NODES] = {{"MaxNodesPerJob"}, "MaxNodes", 8},
    [MAX_SUBMIT] = {{"MaxSubmitJobs"}, "MaxSubmit", 9},
    [MAX_SUBMIT_ACCOUNT] = {{"MaxSubmitJobsPerAccount", "MaxSubmitPA"}, "MaxSubmitPA", 11},
    [MAX_SUBMIT_USER] = {{"MaxSubmitJobsPerUser", "MaxSubmitPU"}, "MaxSubmitPU", 11},
    [MAX_TRES] = {{"MaxTRESPerJob"}, "MaxTRES", 13},
    [MAX_TRES_ACCOUNT] = {{"MaxTRESPerAccount", "MaxTRESPA"}, "MaxTRESPA", 13},
    [MAX_TRES_MINS] = {{"MaxTRESMinsPerJob"}, "MaxTRESMins", 13},
    [MAX_TRES_NODE] = {{"MaxTRESPerNode", "MaxTRESPN"}, "MaxTRESPerNode", 14},
    [MAX_TRES_USER] = {{"MaxTRESPerUser", "MaxTRESPU"}, "MaxTRESPU", 13},
    [MAX_WALL] = {{"MaxWallDurationPerJob"}, "MaxWall", 11},
    [MIN_TRES] = {{"MinTRESPerJob"}, "MinTRES", 13},
    [NAME] = {{"Name"}, "Name", 10},
    [NODE_NAME] = {{"NodeName"}, "NodeName", 15},
    [ORGANIZATION] = {{"Organization"}, "Org", 20},
    [PARENT_ID] = {{"ParentID"}, "ParentID", 6},
    [PARENT_NAME] = {{"ParentName"}, "ParentName", 10},
    [PARTITION] = {{"Partition"}, "Partition", 10},
    [PREEMPT] = {{"Preempt"}, "Preempt", 10},
    [PREEMPT_EXEMPT] = {{"PreemptExemptTime"}, "PreemptExemptTime", 19},
    [PREEMPT_MODE] = {{"PreemptMode"}, "PreemptMode", 11},
    [PRIORITY] = {{"Priority"}, "Priority", 10},
    [PROBLEM] = {{"Problem"}, "Problem", 40},
    [QOS] = {{"QOS", "QOSLevel"}, "QOS", 20},
    [REASON] = {{"Reason"}, "Reason", 30},
    [RGT] = {{"RGT"}, "RGT", 6},
    [RPC] = {{"RPC"}, "RPC", 5},
    [SHARE] = {{"Shares", "Fairshare", "FS"}, "Share", 9},
    [STATE] = {{"State"}, "State", 6},
    [TIME] = {{"TimeStamp"}, "Time", 19},
    [TIME_END] = {{"TimeEnd", "End"}, "TimeEnd", 19},
    [TIME_START] = {{"TimeStart", "Start"}, "TimeStart", 19},
    [TYPE] = {{"Type"}, "Type", 8},
    [USAGE_FACTOR] = {{"UsageFactor"}, "UsageFactor", 11},
    [USAGE_THRESHOLD] = {{"UsageThreshold"}, "UsageThres", 10},
    [USER] = {{"User"}, "User", 10},
    [WCKEY] = {{"WCKey"}, "WCKey", 10},
    [WHERE] = {{"Where"}, "Where", 20},
};

struct sacctmgr_row {
    const char *cells[FIELD_COUNT];
};

// One shown: what it shows unless told, and who fills its rows.
struct acct {
    struct slurm *s;
    const char *cluster, *user, *account, *name;
    bool with_associations;
    VEC(struct sacctmgr_row) rows;
};

struct entity {
    const char *word;
    size_t least;  // letters of it that are enough
    const char *usual, *usual_associations;
    int (*fill)(struct acct *a);
};

struct shown {
    enum acct_field field;
    int width;
    bool left;
};
typedef VEC(struct shown) shown_vec;

static int field_named(const char *word, size_t len) {
    for (int pass = 0; pass < 2; pass++)
        for (int f = 0; f < FIELD_COUNT; f++)
            for (int i = 0; i < 3 && fields[f].words[i]; i++) {
                size_t full = strlen(fields[f].words[i]);
                if (!strncasecmp(fields[f].words[i], word, len) && (pass ? len < full && len > 1 : len == full))
                    return f;
            }
    return -1;
}

// "User,Account%20,QOS%-5"
static int read_format(const char *text, shown_vec *out) {
    for (const char *p = text; *p;) {
        size_t len = strcspn(p, ","), word = strcspn(p, ",%");
        int f = field_named(p, word);
        if (f < 0) {
            fprintf(stderr, " Unknown field '%.*s'\n", (int)word, p);
            return SLURM_FAILED;
        }
        struct shown s = {.field = (enum acct_field)f, .width = fields[f].width};
        long width = word < len ? strtol(p + word + 1, NULL, 10) : 0;
        if (width > -1000 && width < 1000 && width) {
            s.left = width < 0;
            s.width = (int)(width < 0 ? -width : width);
        }
        vec_push(out, s);
        p += len + (p[len] == ',');
    }
    return 0;
}

static void add_cell(struct buf *out, const struct shown *s, const char *text) {
    int len = (int)strlen(text);
    if (len > s->width)
        buf_addf(out, "%.*s+ ", s->width - 1, text);
    else
        buf_addf(out, s->left ? "%-*s " : "%*s ", s->width, text);
}

struct table_style {
    bool heading, parsable, trailing;
};

static int print_rows(const struct acct *a, const shown_vec *shown, const struct table_style *style) {
    cleanup_buf struct buf out = {0};
    for (int64_t r = style->heading ? -1 : 0; r < (int64_t)a->rows.len; r++) {
        for (uint32_t i = 0; i < shown->len; i++) {
            const struct shown *s = &shown->at[i];
            const char *text = r < 0 ? fields[s->field].heading : a->rows.at[r].cells[s->field];
            if (!style->parsable)
                add_cell(&out, s, text ? text : "");
            else
                buf_addf(&out, "%s%s", text ? text : "", i + 1 < shown->len || style->trailing ? "|" : "");
        }
        buf_addc(&out, '\n');
        for (uint32_t i = 0; r < 0 && !style->parsable && i < shown->len; i++) {
            for (int k = 0; k < shown->at[i].width; k++)
                buf_addc(&out, '-');
            buf_adds(&out, i + 1 < shown->len ? " " : " \n");
        }
    }
    return cli_print(&out);
}

static struct sacctmgr_row *add_row(struct acct *a) {
    vec_push(&a->rows, (struct sacctmgr_row){0});
    struct sacctmgr_row *r = &a->rows.at[a->rows.len - 1];
    r->cells[CLUSTER] = a->cluster;
    return r;
}

static const struct json *fetch(struct acct *a, const char *kind) {
    struct reply r;
    return slurm_get(a->s, arena_printf(&a->s->cli.arena, "/v1/%s", kind), &r) ? NULL : json_get(r.json, kind);
}

// "normal" is what Slurm's commands call a job without one, so it is always among them.
static const char *qos_names(struct acct *a) {
    cleanup_buf struct buf text = {0};
    const struct json *list = fetch(a, "qos");
    bool normal = false;
    for (uint32_t i = 0; list && i < list->len; i++) {
        const char *name = json_str(&list->items[i], "name");
        normal |= streq(name, "normal");
        buf_addf(&text, "%s%s", text.len ? "," : "", name);
    }
    if (!normal)
        buf_addf(&text, "%snormal", text.len ? "," : "");
    return arena_strdup(&a->s->cli.arena, buf_str(&text));
}

static const char *gpus(struct acct *a, uint32_t milli) {
    char text[GPU_TEXT_MAX];
    return arena_printf(&a->s->cli.arena, "gres/gpu=%s", milli ? gpu_milli_format(milli, text) : "0");
}

static void account_cells(struct acct *a, const struct project *p, struct sacctmgr_row *r) {
    r->cells[ACCOUNT] = r->cells[DESCRIPTION] = p->name;
    r->cells[ORGANIZATION] = r->cells[PARENT_NAME] = str_empty(p->parent) ? "root" : p->parent;
    r->cells[SHARE] = "1";
    r->cells[DEFAULT_QOS] = p->default_qos;
    r->cells[GRP_TRES] = p->has_limit ? gpus(a, p->limit_milligpu) : "";
}

typedef void each_fn(struct acct *a, const struct project *p, const char *qos);

static int each_project(struct acct *a, each_fn *each) {
    const struct json *list = fetch(a, "projects");
    const char *qos = list ? qos_names(a) : NULL;
    if (!list)
        return SLURM_FAILED;
    for (uint32_t i = 0; i < list->len; i++) {
        struct project p;
        if (schema_read_json(&entity_project_schema, &list->items[i], &a->s->cli.arena, &p, NULL) == 0 &&
            slurm_list_has(a->account, p.name))
            each(a, &p, qos);
    }
    return 0;
}

// A project whose members are not named is everybody's: of those who are asked for, else of who asks.
static void add_members(struct acct *a, const struct project *p, const char *qos) {
    const char *asked = a->user ? a->user : slurm_own_name(&a->s->cli.arena);
    for (uint32_t i = 0; p->members.len ? i < p->members.len : *asked != 0; i++) {
        size_t len = strcspn(asked, ",");
        const char *who = p->members.len ? p->members.at[i] : arena_printf(&a->s->cli.arena, "%.*s", (int)len, asked);
        if (!p->members.len)
            asked += len + (asked[len] == ',');
        if (!slurm_list_has(a->user, who))
            continue;
        struct sacctmgr_row *r = add_row(a);
        account_cells(a, p, r);
        r->cells[USER] = who;
        r->cells[DEFAULT_ACCOUNT] = p->name;
        r->cells[ADMIN] = "None";
        r->cells[QOS] = qos;
    }
}

static int fill_associations(struct acct *a) {
    return each_project(a, add_members);
}

// A user once, with the first project, unless all are asked for.
static int fill_users(struct acct *a) {
    int status = fill_associations(a);
    uint32_t n = 0;
    for (uint32_t i = 0; !a->with_associations && i < a->rows.len; i++) {
        bool seen = false;
        for (uint32_t k = 0; k < n && !seen; k++)
            seen = streq(a->rows.at[k].cells[USER], a->rows.at[i].cells[USER]);
        if (!seen)
            a->rows.at[n++] = a->rows.at[i];
    }
    if (!a->with_associations)
        a->rows.len = n;
    return status;
}

static void add_account(struct acct *a, const struct project *p, const char *qos) {
    struct sacctmgr_row *r = add_row(a);
    account_cells(a, p, r);
    r->cells[QOS] = qos;
    if (a->with_associations)
        add_members(a, p, qos);
}

static int fill_accounts(struct acct *a) {
    return each_project(a, add_account);
}

static bool has(const struct qos *q, const void *member) {
    return entity_has(ENTITY_QOS, q, member);
}

static void add_qos(struct acct *a, const struct qos *q) {
    struct arena *arena = &a->s->cli.arena;
    char wall[UNIT_TEXT_MAX];
    cleanup_buf struct buf preempts = {0};
    if (!slurm_list_has(a->name, q->name))
        return;
    for (uint32_t k = 0; k < q->preempts.len; k++)
        buf_addf(&preempts, "%s%s", k ? "," : "", q->preempts.at[k]);
    struct sacctmgr_row *r = add_row(a);
    r->cells[NAME] = r->cells[DESCRIPTION] = q->name;
    r->cells[ID] = arena_printf(arena, "%u", a->rows.len);
    r->cells[PRIORITY] = arena_printf(arena, "%d", q->priority);
    r->cells[GRACE] = "00:00:00";
    r->cells[PREEMPT] = arena_strdup(arena, preempts.len ? buf_str(&preempts) : "");
    r->cells[PREEMPT_MODE] = "cluster";
    r->cells[USAGE_FACTOR] = arena_printf(arena, "%f", has(q, &q->usage_factor) ? q->usage_factor : 1.0);
    r->cells[MAX_WALL] =
        has(q, &q->max_wall_s) ? arena_strdup(arena, duration_elapsed_format(q->max_wall_s, wall)) : "";
    r->cells[MAX_JOBS_USER] =
        has(q, &q->max_jobs_per_user) ? arena_printf(arena, "%u", q->max_jobs_per_user) : "";
    r->cells[MAX_TRES_USER] = has(q, &q->max_gpus_per_user_milli) ? gpus(a, q->max_gpus_per_user_milli) : "";
}

static int fill_qos(struct acct *a) {
    const struct json *list = fetch(a, "qos");
    bool normal = false;
    if (!list)
        return SLURM_FAILED;
    for (uint32_t i = 0; i < list->len; i++) {
        struct qos q;
        if (schema_read_json(&entity_qos_schema, &list->items[i], &a->s->cli.arena, &q, NULL) < 0)
            continue;
        normal |= streq(q.name, "normal");
        add_qos(a, &q);
    }
    if (!normal)
        add_qos(a, &(struct qos){.name = "normal", .usage_factor = 1});
    return 0;
}

static int fill_cluster(struct acct *a) {
    if (!slurm_list_has(a->name, a->cluster))
        return 0;
    struct sacctmgr_row *r = add_row(a);
    r->cells[CONTROL_HOST] = "127.0.0.1";
    r->cells[CONTROL_PORT] = "0";
    r->cells[RPC] = "9728";
    r->cells[SHARE] = "1";
    r->cells[QOS] = qos_names(a);
    return 0;
}

static int fill_tres(struct acct *a) {
    static const char *const all[][3] = {{"cpu", "", "1"},  {"mem", "", "2"},    {"energy", "", "3"},
                                         {"node", "", "4"}, {"billing", "", "5"}, {"gres", "gpu", "1001"}};
    for (size_t i = 0; i < sizeof all / sizeof *all; i++) {
        struct sacctmgr_row *r = add_row(a);
        r->cells[TYPE] = all[i][0];
        r->cells[NAME] = all[i][1];
        r->cells[ID] = all[i][2];
    }
    return 0;
}

static int fill_nothing(struct acct *a) {
    return 0;
}

static int fill_runaway(struct acct *a) {
    printf("Runaway Jobs: No runaway jobs found on cluster %s\n", a->cluster);
    return 0;
}

static const struct entity entities[] = {
    {"accounts", 2, "Account,Descr,Org",
     "Account,Descr,Org,Cluster,ParentName,User,Share,Priority,GrpJobs,GrpNodes,GrpCPUs,GrpMem,GrpSubmit,GrpWall,"
     "GrpCPUMins,MaxJobs,MaxNodes,MaxCPUs,MaxSubmit,MaxWall,MaxCPUMins,QOS,DefaultQOS", fill_accounts},
    {"associations", 2,
     "Cluster,Account,User,Partition,Share,Priority,GrpJobs,GrpTRES,GrpSubmit,GrpWall,GrpTRESMins,MaxJobs,MaxTRES,"
     "MaxTRESPerNode,MaxSubmit,MaxWall,MaxTRESMins,QOS,DefaultQOS,GrpTRESRunMins", NULL, fill_associations},
    {"clusters", 2,
     "Cluster,ControlHost,ControlPort,RPC,Share,GrpJobs,GrpTRES,GrpSubmit,MaxJobs,MaxTRES,MaxSubmit,MaxWall,QOS,"
     "DefaultQOS", NULL, fill_cluster},
    {"events", 1, "Cluster,NodeName,TimeStart,TimeEnd,State,Reason,User", NULL, fill_nothing},
    {"federations", 1, "Federation,Cluster,ID,Features,FedState", NULL, fill_nothing},
    {"problems", 1, "Cluster,Account,User,Problem", NULL, fill_nothing},
    {"qos", 1,
     "Name,Priority,GraceTime,Preempt,PreemptExemptTime,PreemptMode,Flags,UsageThres,UsageFactor,GrpTRES,"
     "GrpTRESMins,GrpTRESRunMins,GrpJobs,GrpSubmit,GrpWall,MaxTRES,MaxTRESPerNode,MaxTRESMins,MaxWall,MaxTRESPU,"
     "MaxJobsPU,MaxSubmitPU,MaxTRESPA,MaxJobsPA,MaxSubmitPA,MinTRES", NULL, fill_qos},
    {"runawayjobs", 2, "", NULL, fill_runaway},
    {"transactions", 1, "TimeStamp,Action,Actor,Where,Info", NULL, fill_nothing},
    {"tres", 2, "Type,Name%15,ID", NULL, fill_tres},
    {"users", 1, "User,DefaultAccount,Admin",
     "User,DefaultAccount,Admin,Cluster,Account,Partition,Share,Priority,MaxJobs,MaxNodes,MaxCPUs,MaxSubmit,MaxWall,"
     "MaxCPUMins,QOS,DefaultQOS", fill_users},
    {"wckeys", 1, "WCKey,Cluster,User", NULL, fill_nothing},
};

static const struct entity *entity_named(const char *word) {
    size_t len = strlen(word);
    for (size_t i = 0; i < sizeof entities / sizeof *entities; i++)
        if (len >= entities[i].least && !strncasecmp(entities[i].word, word, len))
            return &entities[i];
    return NULL;
}

// Whether a word such as "users=ana" sets `name`, in any number.
static const char *condition(const char *word, const char *name) {
    const char *equal = strchr(word, '=');
    size_t len = equal ? (size_t)(equal - word) : 0;
    if (len && word[len - 1] == 's')
        len--;
    return len == strlen(name) && !strncasecmp(word, name, len) ? equal + 1 : NULL;
}

static bool starts_with_any(const char *word, const char *const *list) {
    for (; *list; list++)
        if (!strncasecmp(word, *list, strlen(*list)))
            return true;
    return false;
}

// A name of what is shown: of users and accounts it is what a condition on them would say.
static void take_name(struct acct *a, const struct entity *e, const char *name) {
    if (e->fill == fill_users)
        a->user = name;
    else if (e->fill == fill_accounts)
        a->account = name;
    else
        a->name = name;
}

// One word after what is shown: the format, a condition, a name, or how much is told.
static int take_word(struct acct *a, const struct entity *e, const char *word, const char **format) {
    static const char *const without_effect[] = {"where",   "tree", "with", "only", "cluster", "partition", "start=",
                                                 "end=",    "qos",  "desc", "org",  "parent",  "admin",     "def",
                                                 "events=", "id=",  NULL};
    const char *value;
    if ((value = condition(word, "format")) || (value = condition(word, "field")))
        *format = value;
    else if ((value = condition(word, "user")))
        a->user = value;
    else if ((value = condition(word, "account")) || (value = condition(word, "acct")))
        a->account = value;
    else if ((value = condition(word, "name")))
        take_name(a, e, value);
    else if (!strncasecmp(word, "witha", 5))
        a->with_associations = true;
    else if (starts_with_any(word, without_effect))
        return 0;
    else if (!strchr(word, '='))
        take_name(a, e, word);
    else {
        fprintf(stderr, " Unknown condition: %s\n Use keyword 'set' to modify value\n", word);
        return SLURM_FAILED;
    }
    return 0;
}

static int show(struct acct *a, const struct entity *e, const struct opts *o, const struct table_style *style) {
    shown_vec shown = {0};
    const char *format = NULL;
    for (int i = 2; i < o->argument_count; i++)
        if (take_word(a, e, o->arguments[i], &format))
            return SLURM_FAILED;
    if (!format)
        format = a->with_associations && e->usual_associations ? e->usual_associations : e->usual;
    int status = read_format(format, &shown);
    if (!status)
        status = e->fill(a);
    if (!status && shown.len)
        status = print_rows(a, &shown, style);
    vec_done(&shown);
    vec_done(&a->rows);
    return status;
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
    struct opts o;
    int status;
    slurm_opts_init(&o, table, sizeof table / sizeof *table, 0);
    if (!slurm_opts_begin(
            &o, s, argc, argv, NULL,
            "[OPTIONS] show users|accounts|associations|qos|clusters|tres [withassoc] [format=…] "
            "[where user=…]",
            &status))
        return status;
    if (slurm_check_clusters(s))
        return SLURM_FAILED;
    const char *verb = o.argument_count ? o.arguments[0] : "", *what = o.argument_count > 1 ? o.arguments[1] : "";
    if (!slurm_same_word(verb, "show") && !slurm_same_word(verb, "list")) {
        slurm_error(s, "%s%sonly show and list are supported: projects are changed with acequia project",
                    *verb ? verb : "", *verb ? ": " : "");
        return SLURM_FAILED;
    }
    const struct entity *e = *what ? entity_named(what) : NULL;
    if (!e) {
        slurm_error(s, "\"%s\" is not known here; show users, accounts, associations, qos, clusters or tres", what);
        return SLURM_FAILED;
    }
    struct acct a = {
        .s = s, .cluster = slurm_cluster(s), .with_associations = slurm_opt_given(&o, "associations")};
    const struct table_style style = {.heading = !slurm_opt_given(&o, "noheader"),
                                      .parsable =
                                          slurm_opt_given(&o, "parsable") || slurm_opt_given(&o, "parsable2"),
                                      .trailing = slurm_opt_given(&o, "parsable")};
    return a.cluster ? show(&a, e, &o, &style) : SLURM_FAILED;
}
