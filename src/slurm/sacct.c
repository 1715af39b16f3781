// sacct: jobs of the past and present, with their steps.
#include <stdio.h>
#include <string.h>

#include "base/text.h"
#include "option.h"
#include "sacct_columns.h"
#include "sacct_filter.h"
#include "json.h"

static const struct opt table[] = {
    {"accounts", 'A', OPT_VALUE, OPT_DOES, NULL, NULL, 0},
    {"account", 0, OPT_VALUE, OPT_DOES, NULL, NULL, 0},
    {"allclusters", 'L', OPT_FLAG, OPT_HARMLESS, NULL, "there is one cluster", 0},
    {"allocations", 'X', OPT_FLAG, OPT_DOES, NULL, NULL, 0},
    {"allusers", 'a', OPT_FLAG, OPT_DOES, NULL, NULL, 0},
    {"array", 0, OPT_FLAG, OPT_DOES, NULL, NULL, 0},
    {"batch-script", 'B', OPT_FLAG, OPT_DOES, NULL, NULL, 0},
    {"brief", 'b', OPT_FLAG, OPT_DOES, NULL, NULL, 0},
    {"clusters", 'M', OPT_VALUE, OPT_DOES, "CLUSTERS", NULL, 0},
    {"completion", 'c', OPT_FLAG, OPT_DOES, NULL, NULL, 0},
    {"constraints", 'C', OPT_VALUE, OPT_DOES, NULL, NULL, 0},
    {"delimiter", 0, OPT_VALUE, OPT_DOES, NULL, NULL, 0},
    {"duplicates", 'D', OPT_FLAG, OPT_HARMLESS, NULL, "the newest attempt is shown; see acequia events", 0},
    {"endtime", 'E', OPT_VALUE, OPT_DOES, NULL, NULL, 0},
    {"env-vars", 0, OPT_FLAG, OPT_DOES, NULL, NULL, 0},
    {"federation", 0, OPT_FLAG, OPT_HARMLESS, NULL, "there is one cluster", 0},
    {"file", 'f', OPT_VALUE, OPT_REFUSED, NULL, "history is kept by the controller", 0},
    {"format", 'o', OPT_VALUE, OPT_DOES, "FORMAT", NULL, 0},
    {"gid", 0, OPT_VALUE, OPT_DOES, NULL, NULL, 0},
    {"group", 'g', OPT_VALUE, OPT_DOES, NULL, NULL, 0},
    {"help", 'h', OPT_FLAG, OPT_DOES, NULL, NULL, 0},
    {"helpformat", 'e', OPT_FLAG, OPT_DOES, NULL, NULL, 0},
    {"jobs", 'j', OPT_VALUE, OPT_DOES, NULL, NULL, 0},
    {"json", 0, OPT_FLAG, OPT_DOES, NULL, NULL, 0},
    {"local", 0, OPT_FLAG, OPT_HARMLESS, NULL, "there is one cluster", 0},
    {"long", 'l', OPT_FLAG, OPT_DOES, NULL, NULL, 0},
    {"name", 0, OPT_VALUE, OPT_DOES, NULL, NULL, 0},
    {"ncpus", 'I', OPT_VALUE, OPT_DOES, NULL, NULL, 0},
    {"nnodes", 'i', OPT_VALUE, OPT_DOES, NULL, NULL, 0},
    {"noconvert", 0, OPT_FLAG, OPT_DOES, NULL, NULL, 0},
    {"nodelist", 'N', OPT_VALUE, OPT_DOES, NULL, NULL, 0},
    {"noheader", 'n', OPT_FLAG, OPT_DOES, NULL, NULL, 0},
    {"parsable", 'p', OPT_FLAG, OPT_DOES, NULL, NULL, 0},
    {"parsable2", 'P', OPT_FLAG, OPT_DOES, NULL, NULL, 0},
    {"partition", 'r', OPT_VALUE, OPT_DOES, NULL, NULL, 0},
    {"qos", 'q', OPT_VALUE, OPT_DOES, NULL, NULL, 0},
    {"starttime", 'S', OPT_VALUE, OPT_DOES, NULL, NULL, 0},
    {"state", 's', OPT_VALUE, OPT_DOES, NULL, NULL, 0},
    {"timelimit-max", 'K', OPT_VALUE, OPT_DOES, NULL, NULL, 0},
    {"timelimit-min", 'k', OPT_VALUE, OPT_DOES, NULL, NULL, 0},
    {"truncate", 'T', OPT_FLAG, OPT_DOES, NULL, NULL, 0},
    {"units", 0, OPT_VALUE, OPT_DOES, NULL, NULL, 0},
    {"usage", 0, OPT_FLAG, OPT_DOES, NULL, NULL, 0},
    {"user", 'u', OPT_VALUE, OPT_DOES, NULL, NULL, 0},
    {"uid", 0, OPT_VALUE, OPT_DOES, NULL, NULL, 0},
    {"use-local-uid", 0, OPT_FLAG, OPT_HARMLESS, NULL, "user ids are those of this machine", 0},
    {"verbose", 'v', OPT_FLAG, OPT_DOES, NULL, NULL, 0},
    {"version", 'V', OPT_FLAG, OPT_DOES, NULL, NULL, 0},
    {"wckeys", 'W', OPT_VALUE, OPT_DOES, NULL, NULL, 0},
    {"whole-hetjob", 0, OPT_MAYBE, OPT_HARMLESS, NULL, "a heterogeneous job is shown as a whole", 0},
    {"yaml", 0, OPT_FLAG, OPT_REFUSED, NULL, "use --json", 0},
};

// -j may be given several times; getopt keeps the last, so the line is read once more.
static const char *all_ids(struct slurm *s, int argc, char **argv) {
    cleanup_buf struct buf b = {0};
    for (int i = 1; i < argc; i++) {
        const char *v = NULL;
        if (streq(argv[i], "-j") || streq(argv[i], "--jobs"))
            v = i + 1 < argc ? argv[++i] : NULL;
        else if (str_has_prefix(argv[i], "--jobs="))
            v = argv[i] + 7;
        else if (str_has_prefix(argv[i], "-j") && argv[i][2])
            v = argv[i] + 2;
        if (v)
            buf_addf(&b, "%s%s", b.len ? "," : "", v);
    }
    return b.len ? arena_strdup(&s->cli.arena, buf_str(&b)) : NULL;
}

static int order(const void *x, const void *y) {
    const struct sjob *a = x, *b = y;
    return a->id < b->id ? -1 : a->id > b->id;
}

static int fetch(struct slurm *s, const struct opts *o, const struct acct_wanted *w, const char *fields,
                 sjob_vec *kept) {
    sjob_vec jobs = {0};
    fields = sacct_wanted_fields(&s->cli.arena, w, fields);
    struct job_query q = sacct_wanted_query(s, w, fields, slurm_opt_given(o, "array"));
    int status = slurm_jobs_fetch(s, &q, &jobs);
    for (uint32_t i = 0; !status && i < jobs.len; i++)
        if (sacct_wanted_has(w, &jobs.at[i]))
            vec_push(kept, jobs.at[i]);
    if (kept->len)
        qsort(kept->at, kept->len, sizeof *kept->at, order);
    vec_done(&jobs);
    return status;
}

static int print_texts(struct slurm *s, const sjob_vec *jobs, bool script) {
    for (uint32_t i = 0; i < jobs->len; i++) {
        struct reply r;
        const char *what = script ? "script" : "environment";
        if (slurm_get(s, arena_printf(&s->cli.arena, "/v1/jobs/%llu/%s", (unsigned long long)jobs->at[i].id, what), &r))
            return SLURM_FAILED;
        printf("%s for %s\n--------------------------------------------------------------------------------\n%s\n",
               script ? "Batch Script" : "Environment used", jobs->at[i].label, r.text);
    }
    return SLURM_OK;
}

static int print_json(struct slurm *s, const sjob_vec *jobs, bool with_steps) {
    cleanup_buf struct buf out = {0};
    struct json_writer w = {.out = &out};
    const char *cluster = slurm_cluster(s);
    sstep_vec steps = {0};
    slurm_json_open(&w, "openapi/dbv0.0.38", "jobs");
    for (uint32_t i = 0; i < jobs->len; i++) {
        steps.len = 0;
        if (with_steps)
            slurm_steps_of(&s->cli.arena, &jobs->at[i], &steps);
        slurm_job_history_json(&jobs->at[i], cluster, &steps, &w);
    }
    vec_done(&steps);
    slurm_json_close(&w);
    return cli_print(&out);
}

// The lines of one job, made when its row arrives and put in order at the end.
struct sacct_lines {
    uint64_t id;
    size_t at, len;  // in the text
};

struct sacct_report {
    const struct acct_wanted *wanted;
    const struct acct_format *format;
    bool rows_only;  // without steps
    struct buf text;
    VEC(struct sacct_lines) jobs;
    sstep_vec steps;
};

static int report_job(void *ctx, const struct sjob *row) {
    struct sacct_report *r = ctx;
    if (!sacct_wanted_has(r->wanted, row))
        return 0;
    struct sjob cut = *row;
    const struct sjob *j = &cut;
    sacct_wanted_cut(r->wanted, &cut);
    struct sacct_lines l = {.id = j->id, .at = r->text.len};
    if (slurm_ids_have_step(r->wanted->ids, j, ""))  // not for a step alone
        sacct_put(r->format, &(struct acct_row){.job = j}, &r->text);
    if (!r->rows_only) {
        cleanup_arena struct arena a = {0};
        r->steps.len = 0;
        slurm_steps_of(&a, j, &r->steps);
        for (uint32_t k = 0; k < r->steps.len; k++)
            if (slurm_ids_have_step(r->wanted->ids, j, r->steps.at[k].id))
                sacct_put(r->format, &(struct acct_row){.job = j, .step = &r->steps.at[k]}, &r->text);
    }
    l.len = r->text.len - l.at;
    vec_push(&r->jobs, l);
    return 0;
}

// By id; of the same job the newest row last, as it was read.
static int by_id(const void *x, const void *y) {
    const struct sacct_lines *a = x, *b = y;
    if (a->id != b->id)
        return a->id < b->id ? -1 : 1;
    return a->at < b->at ? -1 : a->at > b->at;
}

static int report_print(struct sacct_report *r, struct buf *out) {
    bool ordered = true;
    for (uint32_t i = 1; i < r->jobs.len && ordered; i++)
        ordered = r->jobs.at[i - 1].id < r->jobs.at[i].id;
    if (!ordered)
        qsort(r->jobs.at, r->jobs.len, sizeof *r->jobs.at, by_id);
    buf_reserve(out, r->text.len);
    for (uint32_t i = 0; i < r->jobs.len; i++) {
        const struct sacct_lines *l = &r->jobs.at[i];
        // A job that ended while the list was written is in it twice; its end counts.
        if (i + 1 < r->jobs.len && l[1].id == l->id)
            continue;
        buf_add(out, r->text.data + l->at, l->len);
    }
    return cli_print(out);
}

static int show_report(struct slurm *s, const struct opts *o, const struct acct_wanted *w,
                       const struct acct_format *f) {
    struct sacct_report r = {.wanted = w, .format = f, .rows_only = slurm_opt_given(o, "allocations")};
    const char *shown = sacct_fields(&s->cli.arena, f, !r.rows_only);
    struct job_query q =
        sacct_wanted_query(s, w, sacct_wanted_fields(&s->cli.arena, w, shown), slurm_opt_given(o, "array"));
    cleanup_buf struct buf out = {0};
    int status = slurm_jobs_each(s, &q, report_job, &r);
    if (!status) {
        if (!slurm_opt_given(o, "noheader"))
            sacct_heading(f, &out);
        status = report_print(&r, &out);
    }
    buf_done(&r.text);
    vec_done(&r.jobs);
    vec_done(&r.steps);
    return status;
}

static int show_others(struct slurm *s, const struct opts *o, const struct acct_wanted *w) {
    sjob_vec jobs = {0};
    bool json = slurm_opt_given(o, "json");
    int status = fetch(s, o, w,
                       json ? SJOB_JSON_FIELDS ",steps,launch,usage,by"
                            : "id,label,state,user,project,name,partition,qos,nodes,array_id,array_index,"
                              "start_ms,end_ms,submit_ms",
                       &jobs);
    if (!status)
        status = json ? print_json(s, &jobs, !slurm_opt_given(o, "allocations"))
                      : print_texts(s, &jobs, slurm_opt_given(o, "batch-script"));
    vec_done(&jobs);
    return status;
}

static int show(struct slurm *s, const struct opts *o, const struct acct_wanted *w) {
    struct acct_format f = {.parsable = slurm_opt_given(o, "parsable")    ? 1
                                        : slurm_opt_given(o, "parsable2") ? 2
                                                                          : 0,
                            .delimiter = slurm_opt_get(o, "delimiter"),
                            .units = slurm_opt_get(o, "units"),
                            .plain_numbers = slurm_opt_given(o, "noconvert")};
    const char *format = slurm_opt_get(o, "format");
    if (!f.delimiter)
        f.delimiter = "|";
    if (!format)
        format = slurm_opt_given(o, "brief")  ? "jobid,state,exitcode"
                 : slurm_opt_given(o, "long") ? ACCT_LONG
                                              : ACCT_DEFAULT;
    if (sacct_columns(s, format, &f))
        return SLURM_FAILED;
    if (strcasestr(format, "cluster"))
        f.cluster = slurm_cluster(s);
    bool others =
        slurm_opt_given(o, "batch-script") || slurm_opt_given(o, "env-vars") || slurm_opt_given(o, "json");
    int status = others ? show_others(s, o, w) : show_report(s, o, w, &f);
    sacct_columns_done(&f);
    return status;
}

int sacct_run(struct slurm *s, int argc, char **argv) {
    struct opts o;
    int status;
    struct acct_wanted w;
    const char *ids = all_ids(s, argc, argv);
    slurm_opts_init(&o, table, sizeof table / sizeof *table, 0);
    if (!slurm_opts_begin(&o, s, argc, argv, "SACCT", "[OPTIONS]", &status))
        return status;
    if (slurm_opt_given(&o, "helpformat"))
        return sacct_help();
    if (slurm_opt_given(&o, "completion")) {  // history is one, and not that of a plugin
        fprintf(stderr, "Slurm job completion is disabled\n");
        return SLURM_FAILED;
    }
    const char *units = slurm_opt_get(&o, "units");
    if (units && (!*units || !strchr("KMGTP", *units & 0x5f) || units[1])) {
        slurm_error(s, "Invalid unit type '%s'. Possible options are 'KMGTP'", units);
        slurm_fatal(s, "Invalid unit type");
        return SLURM_FAILED;
    }
    if (slurm_check_clusters(s) || sacct_wanted_read(s, &o, ids, &w))
        return SLURM_FAILED;
    return show(s, &o, &w);
}
