// scontrol: what it shows (scontrol_show.c) and what it changes: jobs (scontrol_update.c), nodes, partitions and
// reservations (scontrol_cluster.c).
#pragma once
#include "context.h"

struct scontrol {
    struct slurm *s;
    bool one_line, details, quiet, all;
};

int scontrol_show(struct scontrol *c, int argc, char **argv);    // argv[0] is the entity
int scontrol_update(struct scontrol *c, int argc, char **argv);  // argv: NAME=VALUE
// Nodes, partitions, reservations; -1: the line names none of these.
int scontrol_update_entity(struct scontrol *c, int argc, char **argv);
const char *scontrol_value(int argc, char **argv, const char *name);  // of "NAME=VALUE"; NULL: not there
int scontrol_top(struct scontrol *c, int argc, char **argv);   // argv: ids
int scontrol_pids(struct scontrol *c, int argc, char **argv);  // "listpids", on this machine
int scontrol_pid(struct scontrol *c, int argc, char **argv);   // "pidinfo"
int scontrol_create(struct scontrol *c, int argc, char **argv);
int scontrol_delete(struct scontrol *c, int argc, char **argv);
// hold, release, requeue, suspend, resume of "12", "12,13_4", "name=x".
int scontrol_act(struct scontrol *c, const char *word, const char *action, bool hold, int argc, char **argv);
