// Slurm's commands (sbatch, squeue, …) for this cluster: the table of commands, and how one is run.
#pragma once
#include <stdbool.h>
#include <stddef.h>
#include <stdio.h>

#include "cli/command/command.h"

struct slurm;

struct slurm_command {
    const char *name;
    int (*run)(struct slurm *s, int argc, char **argv);  // argv[0] is the program's name
    const char *help;
    bool names;  // looks up names of users or groups
};

// Whether the system's name service switch has users and groups in files only.
bool slurm_names_local(FILE *nsswitch);
const struct slurm_command *slurm_commands(size_t *count);
const struct slurm_command *slurm_command_find(const char *name);
// Runs the command called `name`; argv[0] is replaced by it. Returns the exit status.
int slurm_main(const char *name, int argc, char **argv, const struct cli_transport *tls);
