// scontrol's parts: what it shows (scontrol_show.c) and what it changes (scontrol_update.c).
#pragma once
#include "cli/slurm/slurm.h"

struct scontrol {
    struct slurm *s;
    bool one_line, details, quiet, all;
};

int scontrol_show(struct scontrol *c, int argc, char **argv);    // argv[0] is the entity
int scontrol_update(struct scontrol *c, int argc, char **argv);  // argv: NAME=VALUE
int scontrol_create(struct scontrol *c, int argc, char **argv);
int scontrol_delete(struct scontrol *c, int argc, char **argv);
// hold, release, requeue, suspend, resume of "12", "12,13_4", "name=x".
int scontrol_act(struct scontrol *c, const char *word, const char *action, bool hold, int argc, char **argv);
