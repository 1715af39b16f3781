// Heterogeneous jobs in Slurm's words: blocks of options separated by ":" or "#SBATCH hetjob". Each block is a
// component of the job, with one worker; what is common is the first one's.
#pragma once
#include "submit_options.h"

// Reads "options : options … [arguments]" into out[0 … *count-1]; the arguments are in the last. False: printed.
bool slurm_het_parse(struct slurm *s, int argc, char **argv, struct opts *out, uint32_t *count);
struct opts *slurm_het_opts(struct slurm *s, unsigned program);  // room for as many blocks as there can be
// Makes components of a job's spec, which is the first block's, and of the blocks after it.
int slurm_het_spec(struct slurm *s, const struct opts *blocks, uint32_t count, struct spec *spec);

// --het-group: which components of the job a step runs in. Bit 0 is the first.
int slurm_het_groups(struct slurm *s, const char *text, uint64_t *groups);
uint32_t slurm_het_size(void);  // components of the job that this runs in; 0: it has no such
// Makes the variables of one component those of the job, for a step in it.
void slurm_het_enter(uint32_t group);
// Tasks that a step has in a component, when it does not say how many.
uint32_t slurm_het_tasks(uint32_t group);

// The nodes of the components that one step runs in, side by side: entry i of each list is of the same node.
struct het_nodes {
    struct buf nodes, cpus, tasks;  // "n[1-3]", "4,2(x2)", "2(x3)"
    uint32_t count;
    bool tasks_known;  // of every component
};
// Adds a component's, with so many tasks of the step in it. False: its variables are not there.
bool slurm_het_add_nodes(struct slurm *s, uint32_t group, uint32_t tasks, struct het_nodes *all);
void slurm_het_nodes_fold(struct het_nodes *all);  // once all are added
void slurm_het_nodes_done(struct het_nodes *all);
