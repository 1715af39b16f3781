// What Slurm's commands share: the context of one call, messages in Slurm's form, times and sizes as Slurm prints
// them. Exit codes and messages follow Slurm 22.05; docs/slurm-differences.md lists the differences.
#pragma once
#include <stdio.h>

#include "base/json.h"
#include "cli/command/command.h"
#include "cli/client/client.h"
#include "model/units.h"
#include "slurm/slurm.h"

enum { SLURM_OK = 0, SLURM_FAILED = 1, SLURM_USAGE = 255, SLURM_RECENT_MS = 300 * 1000 };

struct slurm {
    struct cli cli;        // for the client library; its arena is freed with the call
    const char *program;   // "sbatch"
    int verbose;
    bool quiet;
    const char *clusters;  // -M; NULL: not given
    struct client *client;
};

void slurm_error(const struct slurm *s, const char *fmt, ...) __attribute__((format(printf, 2, 3)));
// The same, for what ends the program: "srun: fatal: …".
void slurm_fatal(const struct slurm *s, const char *fmt, ...) __attribute__((format(printf, 2, 3)));
// Printed only with -v.
void slurm_verbose(const struct slurm *s, const char *fmt, ...) __attribute__((format(printf, 2, 3)));
// The connection, opened at the first use. Prints why not.
struct client *slurm_client(struct slurm *s);
int slurm_call_failed(struct slurm *s);  // prints the error of a request; SLURM_FAILED
// 0 with the reply; else the error is printed and SLURM_FAILED returned.
int slurm_get(struct slurm *s, const char *target, struct reply *out);
int slurm_post(struct slurm *s, const char *target, const struct buf *body, struct reply *out);
// Name of the cluster, asked from the controller.
const char *slurm_cluster(struct slurm *s);
// Checks -M against the cluster there is; prints the error.
int slurm_check_clusters(struct slurm *s);

// Times and durations as Slurm prints them.
const char *slurm_time(int64_t at_ms, const char *none, char out[static UNIT_TEXT_MAX]);
const char *slurm_limit(uint64_t seconds, const char *none, char out[static UNIT_TEXT_MAX]);  // "1:00:00", "UNLIMITED"
const char *slurm_megabytes(uint64_t bytes, char out[static UNIT_TEXT_MAX]);  // "100M", "2G"
bool slurm_same_word(const char *a, const char *b);  // without regard to case
int slurm_version(void);  // -V

int sbatch_run(struct slurm *s, int argc, char **argv);
int srun_run(struct slurm *s, int argc, char **argv);
int salloc_run(struct slurm *s, int argc, char **argv);
int squeue_run(struct slurm *s, int argc, char **argv);
int sinfo_run(struct slurm *s, int argc, char **argv);
int scancel_run(struct slurm *s, int argc, char **argv);
int scontrol_run(struct slurm *s, int argc, char **argv);
int sacct_run(struct slurm *s, int argc, char **argv);
int sprio_run(struct slurm *s, int argc, char **argv);
int sshare_run(struct slurm *s, int argc, char **argv);
int sreport_run(struct slurm *s, int argc, char **argv);
int sstat_run(struct slurm *s, int argc, char **argv);
int sdiag_run(struct slurm *s, int argc, char **argv);
int sattach_run(struct slurm *s, int argc, char **argv);
int sbcast_run(struct slurm *s, int argc, char **argv);
int seff_run(struct slurm *s, int argc, char **argv);
int sacctmgr_run(struct slurm *s, int argc, char **argv);
