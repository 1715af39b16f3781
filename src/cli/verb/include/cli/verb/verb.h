// The command line as a function: finds the verb (or Slurm command) and runs it.
#pragma once
#include "cli/command/command.h"

// `tls`: NULL in the executable that has no TLS library.
int verbs_main(int argc, char **argv, const struct cli_transport *tls);
