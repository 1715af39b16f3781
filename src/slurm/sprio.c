// sprio: what the priorities of pending jobs are made of.
#include <stdio.h>
#include <string.h>
#include <strings.h>

#include "base/text.h"
#include "base/vec.h"
#include "columns.h"
#include "option.h"
#include "squeue_columns.h"

enum { PRIORITY_STEP = 2000000000 };  // points of one step of priority; see "order" in docs/api.md

#define PUT(fn) static void put_##fn(const void *row, struct buf *out)
#define JOB const struct sjob *j = row
PUT(label) { JOB; buf_adds(out, j->label); }
PUT(partition) { JOB; buf_adds(out, j->partition ? j->partition : ""); }
PUT(user) { JOB; buf_adds(out, j->user ? j->user : ""); }
PUT(account) { JOB; buf_adds(out, j->project ? j->project : ""); }
PUT(qos) { JOB; buf_adds(out, j->qos ? j->qos : "normal"); }
PUT(name) { JOB; buf_adds(out, j->name ? j->name : ""); }
PUT(priority) {
    JOB;
    buf_addu(out, slurm_job_priority(j));
}
PUT(norm_priority) {
    JOB;
    buf_addf(out, "%.14f", slurm_job_priority(j) / 4294967295.0);
}
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
    slurm_opts_init(&o, table, sizeof table / sizeof *table, 0);
    if (!slurm_opts_begin(&o, s, argc, argv, NULL, "[OPTIONS]", &status))
        return status;
    if (slurm_check_clusters(s))
        return SLURM_FAILED;
    struct columns c = {0};
    sjob_vec jobs = {0};
    cleanup_buf struct buf out = {0};
    const char *ids = slurm_opt_get(&o, "jobs")                         ? slurm_opt_get(&o, "jobs")
                      : slurm_opt_given(&o, "jobs") && o.argument_count ? o.arguments[0]
                                                                        : NULL;
    const char *bad = NULL, *fields, *plain = ids ? slurm_ids_plain(&s->cli.arena, ids, &bad) : NULL;
    if (ids && !plain) {
        slurm_error(s, "Invalid job id: %s", bad);
        return SLURM_FAILED;
    }
    if (slurm_opt_given(&o, "weights"))
        return show_weights(!slurm_opt_given(&o, "noheader"));
    const char *format = slurm_opt_get(&o, "format") ? slurm_opt_get(&o, "format")
                         : slurm_opt_given(&o, "long")
                             ? "%.15i %9r %.8u %.10Y %.10S %.10A %.10B %.10F %.10J %.10P %.10Q %.11N %.20T"
                         : slurm_opt_given(&o, "norm")
                             ? "%.15i %9r %.16y %.10S %.10a %.10f %.10J %.10p %.10q"
                             : "%.15i %9r %.10Y %.10S %.10A %.10F %.10J %.10P %.10Q";
    slurm_columns_by_letters(s, prio_columns, sizeof prio_columns / sizeof *prio_columns, format, "job", &c);
    slurm_columns_fields(&s->cli.arena, &c,
                         "id,label,state,user,partition,array_id,array_index,hold,eligible_ms", &fields);
    const char *users = slurm_opt_get(&o, "user");
    if (users && !strchr(users, ',') && !slurm_user_name_of(&s->cli.arena, users)) {
        slurm_error(s, "Invalid user: %s", users);
        slurm_columns_done(&c);
        return SLURM_OK;
    }
    status = slurm_jobs_fetch(s, &(struct job_query){.live = true, .fields = fields, .ids = plain}, &jobs);
    slurm_jobs_by_partition(slurm_opt_get(&o, "partition"), &s->cli.arena, &jobs);
    if (!status && !slurm_opt_given(&o, "noheader"))
        slurm_columns_heading(&c, &out);
    uint32_t shown = 0;
    for (uint32_t i = 0; !status && i < jobs.len; i++) {
        const struct sjob *j = &jobs.at[i];
        // As Slurm does: jobs that are held or wait for others have no priority yet.
        bool in_turn = j->state == JOB_PENDING && !j->hold && j->eligible_ms && j->eligible_ms <= j->now_ms;
        if (in_turn && slurm_list_has(users, j->user) &&
            slurm_list_has(slurm_opt_get(&o, "partition"), j->partition) && slurm_ids_have(ids, j)) {
            slurm_columns_row(&c, j, &out);
            shown++;
        }
    }
    vec_done(&jobs);
    slurm_columns_done(&c);
    if (!status && !shown && ids) {
        buf_clear(&out);
        buf_adds(&out, "Unable to find jobs matching user/id(s) specified\n");
    }
    return status ? status : cli_print(&out);
}
