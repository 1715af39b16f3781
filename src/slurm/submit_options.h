// The options of sbatch, srun and salloc, in one table, and what becomes of them: a spec, an
// environment, a script. Precedence: command line, then SBATCH_… (SLURM_…, SALLOC_…) variables, then
// #SBATCH lines.
#pragma once
#include "option.h"
#include "model/job.h"

enum { FOR_SBATCH = 1, FOR_SRUN = 2, FOR_SALLOC = 4 };

extern const struct opt slurm_job_opts[];
extern const uint32_t slurm_job_opt_count;

// Exit statuses of a bad value differ between options in Slurm; 0: fine. Messages are printed.
int slurm_job_spec_from(struct slurm *s, const struct opts *o, struct spec *out);
// Values of options without effect; 0: fine.
int slurm_job_values_check(struct slurm *s, const struct opts *o);
// Parts of it, for steps.
int slurm_job_count_arg(struct slurm *s, const struct opts *o, const char *name, uint32_t *out);  // at least 1
int slurm_job_memory_arg(struct slurm *s, const struct opts *o, const char *name, uint64_t *bytes, bool *given);
int slurm_job_time_arg(struct slurm *s, const struct opts *o, const char *name, uint32_t *seconds);
int slurm_job_gpu_arg(struct slurm *s, const struct opts *o, const char *name, uint32_t *milli, const char **model);
int slurm_job_gres_arg(struct slurm *s, const struct opts *o, uint32_t *milli, const char **model);
int slurm_job_nodes_arg(struct slurm *s, const struct opts *o, uint32_t *least, uint32_t *most);

// The environment that goes with a job; NAME=value texts in the arena.
struct texts {
    const char **at;
    uint32_t len;
};
// `spec`: of a job that is submitted; NULL: a step.
int slurm_job_export(struct slurm *s, const struct opts *o, const struct spec *spec, struct texts *out);

// The variables that say what was asked for.
void slurm_job_asked(struct slurm *s, const struct opts *o, const struct spec *spec, struct texts *out);

// A batch script. `text` ends in NUL.
struct script {
    const char *text;
    size_t len;
    const char *path;  // as it was found; NULL: standard input or --wrap
};
int slurm_script_read(struct slurm *s, const char *path, struct script *out);  // NULL: standard input
int slurm_script_wrap(struct slurm *s, const char *command, struct script *out);
int slurm_script_check(struct slurm *s, const struct script *script);
// Options of its #SBATCH lines. Prints what is wrong, with the exit status.
// `most`: blocks, separated by "#SBATCH hetjob", that there is room for in `out`; *count: how many there are.
int slurm_script_options(struct slurm *s, const struct script *script, struct opts *out, uint32_t most,
                         uint32_t *count);
// One word of a line as Slurm splits it; NULL at the end. Exposed for tests.
char *slurm_script_word(char **p);

// The body of a submit.
void slurm_job_request(const struct spec *spec, const struct script *script, const struct texts *environment,
                 bool dry_run, bool no_requeue, struct buf *out);
// What to print for an error of the controller: Slurm's words where clients look for them. What the
// controller says is printed before.
// Slurm's words for a sentence of the controller; NULL: it has none.
const char *slurm_submit_words(const char *text);
// "Batch job submission failed: " and the like, by program.
const char *slurm_submit_prefix(const struct slurm *s);
const char *slurm_submit_error_text(struct slurm *s, const struct spec *spec);
