// Run:AI's command line for this cluster.
#pragma once
#include "cli/command/command.h"

// Runs "runai ..."; argv[0] is the program's name. Returns the exit status.
int verb_runai_main(int argc, char **argv, const struct cli_transport *tls);
// runai list jobs: jobs that wait and run, and those that ended within a day, in Run:AI's columns.
int verb_runai_list(struct cli *c, const char *project);
