// sstat: resource use of running jobs and their steps.
#include <pwd.h>
#include <stdio.h>
#include <string.h>
#include <strings.h>
#include <time.h>

#include "base/clock.h"
#include "base/text.h"
#include "columns.h"
#include "option.h"
#include "sacct_columns.h"
#include "squeue_columns.h"
#include "model/node.h"

#define STAT_DEFAULT                                                                                          \
    "jobid,maxvmsize,maxvmsizenode,maxvmsizetask,avevmsize,maxrss,maxrssnode,maxrsstask,averss,maxpages,"     \
    "maxpagesnode,maxpagestask,avepages,mincpu,mincpunode,mincputask,avecpu,ntasks,avecpufreq,"               \
    "reqcpufreqmin,reqcpufreqmax,reqcpufreqgov,consumedenergy,maxdiskread,maxdiskreadnode,maxdiskreadtask,"   \
    "avediskread%12,maxdiskwrite,maxdiskwritenode,maxdiskwritetask,avediskwrite%12,tresusageinave,"           \
    "tresusageinmax,"                                                                                         \
    "tresusageinmaxnode,tresusageinmaxtask,tresusageinmin,tresusageinminnode,tresusageinmintask,"             \
    "tresusageintot,tresusageoutave,tresusageoutmax,tresusageoutmaxnode,tresusageoutmaxtask,"                 \
    "tresusageoutmin,tresusageoutminnode,tresusageoutmintask,tresusageouttot"

// Steps that run: those that are named; of a job without -a the first that srun started, else the script.
static uint32_t put_steps(const struct acct_format *f, const sstep_vec *steps, uint32_t from, const char *ids,
                          bool all, struct buf *out) {
    const struct sstep *first = NULL;
    uint32_t shown = 0;
    for (uint32_t k = from; k < steps->len; k++) {
        const struct sstep *p = &steps->at[k];
        if (p->state != JOB_RUNNING || !slurm_ids_have_step(ids, p->job, p->id))
            continue;
        if (all || strchr(ids, '.')) {
            sacct_put(f, &(struct acct_row){.job = p->job, .step = p}, out);
            shown++;
        } else if (!first || streq(first->id, "batch")) {
            first = p;
        }
    }
    if (first)
        sacct_put(f, &(struct acct_row){.job = first->job, .step = first}, out);
    return shown + (first != NULL);
}

static void tell_none(struct slurm *s, const char *ids, uint32_t jobs) {
    if (!jobs)
        slurm_error(s, "couldn't get steps for job %s", ids);
    else if (strchr(ids, '.'))
        slurm_error(s, "StepId=%s not found running.", ids);
    else
        slurm_error(s, "No steps running for job %s", ids);
}

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
    struct opts o;
    int status;
    slurm_opts_init(&o, table, sizeof table / sizeof *table, 0);
    if (!slurm_opts_begin(&o, s, argc, argv, NULL, "[OPTIONS] -j JOB", &status))
        return status;
    if (slurm_check_clusters(s))
        return SLURM_FAILED;
    struct acct_format f = {.parsable = slurm_opt_given(&o, "parsable")    ? 1
                                        : slurm_opt_given(&o, "parsable2") ? 2
                                                                           : 0,
                            .delimiter = "|",
                            .plain_numbers = slurm_opt_given(&o, "noconvert")};
    const char *ids = slurm_opt_get(&o, "jobs") ? slurm_opt_get(&o, "jobs")
                      : o.argument_count        ? o.arguments[0]
                                                : NULL,
               *bad = NULL;
    sjob_vec jobs = {0};
    sstep_vec steps = {0};
    uint32_t shown = 0;
    cleanup_buf struct buf out = {0};
    if (slurm_opt_given(&o, "helpformat"))
        return sacct_help();
    if (!ids) {
        slurm_error(s, "You didn't give me any jobs to stat.");
        return SLURM_FAILED;
    }
    const char *plain = slurm_ids_plain(&s->cli.arena, ids, &bad);
    if (!plain) {
        slurm_fatal(s, "Bad job/step specified: %s", bad);
        return SLURM_FAILED;
    }
    if (sacct_columns(s, slurm_opt_get(&o, "format") ? slurm_opt_get(&o, "format") : STAT_DEFAULT, &f))
        return SLURM_FAILED;
    status =
        slurm_jobs_fetch(s,
                         &(struct job_query){.ids = plain,
                                             .fields = arena_printf(&s->cli.arena, "%s,usage",
                                                                    sacct_fields(&s->cli.arena, &f, true))},
                         &jobs);
    if (!status && !slurm_opt_given(&o, "noheader"))
        sacct_heading(&f, &out);
    for (uint32_t i = 0; !status && i < jobs.len; i++) {
        uint32_t from = steps.len;
        if (!job_state_final(jobs.at[i].state))
            slurm_steps_of(&s->cli.arena, &jobs.at[i], &steps);
        shown += put_steps(&f, &steps, from, ids, slurm_opt_given(&o, "allsteps"), &out);
    }
    if (!status && !shown)
        tell_none(s, ids, jobs.len);
    vec_done(&jobs);
    vec_done(&steps);
    sacct_columns_done(&f);
    return status ? status : cli_print(&out);
}
