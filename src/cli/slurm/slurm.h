// Slurm's commands: one file per command, thin over the client library of the command line. This
// header holds what they share: the context of one call, messages in Slurm's form, and time texts.
// Exit codes and the sense of messages follow Slurm 22.05; docs/slurm-differences.md lists the rest.
#pragma once
#include <stdio.h>

#include "base/json.h"
#include "cli/cli.h"
#include "cli/client.h"
#include "model/units.h"

enum { SLURM_OK = 0, SLURM_FAILED = 1, SLURM_USAGE = 255, SLURM_RECENT_MS = 300 * 1000 };

struct slurm {
    struct cli cli;        // for the client library; its arena is freed with the call
    const char *program;   // "sbatch"
    int verbose;
    bool quiet;
    const char *clusters;  // -M; NULL: not given
    struct client *client;
};

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

void slurm_error(const struct slurm *s, const char *fmt, ...) __attribute__((format(printf, 2, 3)));
// The same, for what ends the program: "srun: fatal: …".
void slurm_fatal(const struct slurm *s, const char *fmt, ...) __attribute__((format(printf, 2, 3)));
// A note under -v.
void slurm_verbose(const struct slurm *s, const char *fmt, ...) __attribute__((format(printf, 2, 3)));
// The connection, opened at the first use. Prints why not.
struct client *slurm_client(struct slurm *s);
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
bool same_word(const char *a, const char *b);  // without regard to case
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
int sstat_run(struct slurm *s, int argc, char **argv);
int sdiag_run(struct slurm *s, int argc, char **argv);
int sattach_run(struct slurm *s, int argc, char **argv);
int sacctmgr_run(struct slurm *s, int argc, char **argv);
