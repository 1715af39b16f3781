// seff: how much of its CPUs, memory and GPUs a job used, in the form of the script that comes with Slurm.
#include <stdio.h>
#include <string.h>

#include "base/text.h"
#include "job_row.h"
#include "model/gpuspec.h"
#include "option.h"

static const char *span(int64_t seconds, char out[static UNIT_TEXT_MAX]) {
    return duration_elapsed_format_full(seconds, out);
}

static const char *bytes(uint64_t n, char out[static UNIT_TEXT_MAX]) {
    static const char *const units[] = {"KB", "MB", "GB", "TB", "PB"};
    double v = (double)n / 1024;
    size_t unit = 0;
    for (; v >= 1024 && unit + 1 < sizeof units / sizeof *units; unit++)
        v /= 1024;
    snprintf(out, UNIT_TEXT_MAX, "%.2f %s", v, units[unit]);
    return out;
}

static double percent(double part, double whole) {
    return whole > 0 ? 100 * part / whole : 0;
}

static void put_use(const struct sjob *j, struct buf *out) {
    char a[UNIT_TEXT_MAX], b[UNIT_TEXT_MAX];
    uint32_t nodes = j->node_count ? j->node_count : 1;
    int64_t wall_s = j->elapsed_ms / 1000;
    if (j->cpus == 1)
        buf_adds(out, "Cores: 1\n");
    else
        buf_addf(out, "Nodes: %u\nCores per node: %u\n", nodes, j->cpus / nodes);
    buf_addf(out, "CPU Utilized: %s\n", span((int64_t)(j->cpu_ms / 1000), a));
    buf_addf(out, "CPU Efficiency: %.2f%% of %s core-walltime\n",
             percent((double)j->cpu_ms, (double)j->elapsed_ms * j->cpus), span(wall_s * j->cpus, a));
    buf_addf(out, "Job Wall-clock time: %s\n", span(wall_s, a));
    buf_addf(out, "Memory Utilized: %s\n", bytes(j->memory_peak_bytes, a));
    if (j->memory_bytes)
        buf_addf(out, "Memory Efficiency: %.2f%% of %s (%s/node)\n",
                 percent((double)j->memory_peak_bytes, (double)j->memory_bytes), bytes(j->memory_bytes, a),
                 bytes(j->memory_bytes / nodes, b));
    if (j->gpus_milli) {
        char gpus[GPU_TEXT_MAX];
        buf_addf(out, "GPUs: %s\n", gpu_milli_format(j->gpus_milli, gpus));
        buf_addf(out, "GPU Efficiency: %.2f%% of %s GPU-walltime\n",
                 percent((double)j->gpu_busy_ms, (double)j->elapsed_ms * (double)j->gpus_milli / 1000),
                 span(wall_s * (int64_t)j->gpus_milli / 1000, a));
    }
}

static void put_job(const struct sjob *j, const char *cluster, struct arena *a, struct buf *out) {
    buf_addf(out, "Job ID: %llu\n", (unsigned long long)j->id);
    if (j->array_id)
        buf_addf(out, "Array Job ID: %llu_%u\n", (unsigned long long)j->array_id, j->array_index);
    buf_addf(out, "Cluster: %s\n", cluster);
    buf_addf(out, "User/Group: %s/%s\n", j->user ? j->user : "",
             j->spec ? slurm_group_name(a, j->spec->gid) : "");
    if (job_state_final(j->state))
        buf_addf(out, "State: %s (exit code %d)\n", slurm_state_word(j->state), (int)j->exit_code);
    else
        buf_addf(out, "State: %s\n", slurm_state_word(j->state));
    if (!j->start_ms) {
        buf_addf(out, "Efficiency not available for jobs in the %s state.\n", slurm_state_word(j->state));
        return;
    }
    put_use(j, out);
    if (!job_state_final(j->state))
        buf_addf(out, "WARNING: Efficiency statistics may be misleading for %s jobs.\n",
                 slurm_state_word(j->state));
}

int seff_run(struct slurm *s, int argc, char **argv) {
    static const struct opt table[] = {
        {"help-short", 'h', OPT_FLAG, OPT_DOES, NULL, NULL, 0},
        {"debug", 'd', OPT_FLAG, OPT_HARMLESS, NULL, "nothing more is known", 0},
        OPTS_COMMON};
    static const char usage[] = "[OPTIONS] JOBID [CLUSTER]";
    struct opts o;
    int status;
    const char *bad = NULL;
    sjob_vec jobs = {0};
    cleanup_buf struct buf out = {0};
    slurm_opts_init(&o, table, sizeof table / sizeof *table, 0);
    if (!slurm_opts_begin(&o, s, argc, argv, NULL, usage, &status))
        return status;
    if (slurm_opt_given(&o, "help-short")) {
        slurm_opts_help(&o, s->program, usage, &out);
        return cli_print(&out);
    }
    if (!o.argument_count || o.argument_count > 2) {
        slurm_error(s, "%s; usage: seff %s", o.argument_count ? "too many arguments" : "give the id of a job",
                    usage);
        return SLURM_FAILED;
    }
    if (o.argument_count == 2)
        s->clusters = o.arguments[1];
    const char *cluster = slurm_check_clusters(s) ? NULL : slurm_cluster(s);
    const char *plain = slurm_ids_plain(&s->cli.arena, o.arguments[0], &bad);
    if (!cluster)
        return SLURM_FAILED;
    if (!plain) {
        slurm_error(s, "%s is not the id of a job", bad);
        return SLURM_FAILED;
    }
    status = slurm_jobs_fetch(
        s,
        &(struct job_query){.ids = o.arguments[0],
                            .fields = "id,label,array_id,array_index,user,state,exit_code,"
                                      "node_count,cpus,cpu_ms,start_ms,elapsed_ms,memory_bytes,"
                                      "memory_peak_bytes,gpus_milli,gpu_busy_ms,spec",
                            .elements = true},
        &jobs);
    if (!status && !jobs.len) {
        slurm_error(s, "Job not found.");
        status = SLURM_FAILED;
    }
    for (uint32_t i = 0; !status && i < jobs.len; i++) {
        if (i)
            buf_addc(&out, '\n');
        put_job(&jobs.at[i], cluster, &s->cli.arena, &out);
    }
    vec_done(&jobs);
    return status ? status : cli_print(&out);
}
