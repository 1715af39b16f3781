// Owns --prolog, --epilog, --task-prolog, --task-epilog and --bcast of srun, and sbcast.
#include "step_hooks.h"

#include <errno.h>
#include <spawn.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/text.h"
#include "job_row.h"
#include "option.h"
#include "srun.h"

// $1 and $2 are the programs, the rest is the command. Lines that the first one prints change the task's environment,
// as in Slurm: "export NAME=VALUE", "unset NAME", "print TEXT".
static const char hooked[] =
    "before=$1 after=$2\n"
    "shift 2\n"
    "if [ -n \"$before\" ]; then\n"
    "  said=$(\"$before\") || exit\n"
    "  while IFS= read -r line; do\n"
    "    case $line in\n"
    "    'export '[A-Za-z_]*=*)\n"
    "      name=${line#export } name=${name%%=*}\n"
    "      case $name in *[!A-Za-z0-9_]*) ;; *) export \"$name=${line#*=}\" ;; esac ;;\n"
    "    'unset '[A-Za-z_]*)\n"
    "      name=${line#unset }\n"
    "      case $name in *[!A-Za-z0-9_]*) ;; *) unset \"$name\" ;; esac ;;\n"
    "    'print '*) printf '%s\\n' \"${line#print }\" ;;\n"
    "    esac\n"
    "  done <<END\n"
    "$said\n"
    "END\n"
    "fi\n"
    "[ -n \"$after\" ] || exec \"$@\"\n"
    "\"$@\"\n"
    "status=$?\n"
    "\"$after\"\n"
    "[ $status -le 128 ] || kill -$((status - 128)) $$\n"
    "exit $status\n";

char **slurm_hooked_command(struct arena *a, const char *prolog, const char *epilog, char *const *argv,
                            int argc, int *count) {
    enum { BEFORE = 6 };
    if (str_empty(prolog) && str_empty(epilog))
        return NULL;
    char **out = arena_alloc(a, sizeof *out * (size_t)(BEFORE + argc));
    const char *const first[BEFORE] = {"/bin/sh",           "-c", hooked, "sh", prolog ? prolog : "",
                                       epilog ? epilog : ""};
    for (int i = 0; i < BEFORE; i++)
        out[i] = arena_strdup(a, first[i]);
    for (int i = 0; i < argc; i++)
        out[BEFORE + i] = argv[i];
    *count = BEFORE + argc;
    return out;
}

int slurm_hook_run(struct slurm *s, const char *program) {
    if (str_empty(program))
        return 0;
    pid_t pid;
    int status = 0;
    char *argv[] = {arena_strdup(&s->cli.arena, program), NULL};
    int r = posix_spawnp(&pid, program, NULL, NULL, argv, environ);
    if (r) {
        slurm_error(s, "%s cannot be run: %s", program, strerror(r));
        return -1;
    }
    while (waitpid(pid, &status, 0) < 0)
        if (errno != EINTR)
            return -1;
    return WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
}

// $1 is the target, $2 the name of a file in it when it is a folder, $3 how many bytes must come, $4 the mode, $5 the
// time of change (empty: now), $6 whether a file that is there is replaced. The folder is often /tmp, where others can
// guess the name of the unfinished file: it is made anew, never taken over.
const char slurm_bcast_receive[] =
    "to=$1\n"
    "[ ! -d \"$to\" ] || to=$to/$2\n"
    "if [ -z \"$6\" ] && [ -e \"$to\" ]; then\n"
    "  echo \"sbcast: error: $(hostname): $to: File exists; --force replaces it\" >&2\n"
    "  exit 1\n"
    "fi\n"
    "part=$to.$$.part\n"
    "(umask 077 && set -C && : >\"$part\") || exit 1\n"
    "trap 'rm -f \"$part\"' EXIT\n"
    "cat >\"$part\" || exit 1\n"
    "if [ \"$(wc -c <\"$part\")\" -ne \"$3\" ]; then\n"
    "  echo \"sbcast: error: $(hostname): $to: the copy is not whole\" >&2\n"
    "  exit 1\n"
    "fi\n"
    "chmod \"$4\" \"$part\" && { [ -z \"$5\" ] || touch -d \"@$5\" \"$part\"; } && mv -f \"$part\" \"$to\"\n";

static int count_nodes(struct slurm *s, const char *job, uint32_t *nodes) {
    sjob_vec jobs = {0};
    const char *bad = NULL, *plain = slurm_ids_plain(&s->cli.arena, job, &bad);
    if (!plain) {
        slurm_error(s, "%s is not the id of a job", bad);
        return SLURM_FAILED;
    }
    int status =
        slurm_jobs_fetch(s, &(struct job_query){.ids = plain, .fields = "id,state,node_count"}, &jobs);
    if (!status && (!jobs.len || job_state_final(jobs.at[0].state) || jobs.at[0].state == JOB_PENDING)) {
        slurm_error(s, "job %s does not run: files are copied to the nodes of a running job", job);
        status = SLURM_FAILED;
    }
    if (!status)
        *nodes = jobs.at[0].node_count ? jobs.at[0].node_count : 1;
    vec_done(&jobs);
    return status;
}

static const char *file_name(const char *path) {
    const char *slash = strrchr(path, '/');
    return slash ? slash + 1 : path;
}

int slurm_bcast(struct slurm *s, const struct bcast *b) {
    struct arena *a = &s->cli.arena;
    struct stat st;
    uint32_t nodes = 1;
    const char *job = b->job ? b->job : getenv("SLURM_JOB_ID");
    if (str_empty(job)) {
        slurm_error(s, "no job: use it inside one (salloc, sbatch), or name it with --jobid");
        return SLURM_FAILED;
    }
    int r = stat(b->source, &st);
    if (r < 0 || !S_ISREG(st.st_mode)) {
        slurm_error(s, "%s: %s", b->source, r < 0 ? strerror(errno) : "it is not a file");
        return SLURM_FAILED;
    }
    if (count_nodes(s, job, &nodes))
        return SLURM_FAILED;
    const char *const words[] = {
        s->program,
        "--quiet",
        "--overlap",
        "--mpi=none",
        "--bcast=",
        "--prolog=",
        "--epilog=",
        "--task-prolog=",
        "--task-epilog=",
        arena_printf(a, "--jobid=%s", job),
        arena_printf(a, "--nodes=%u", nodes),
        arena_printf(a, "--ntasks=%u", nodes),
        "--ntasks-per-node=1",
        arena_printf(a, "--input=%s", b->source),
        "/bin/sh",
        "-c",
        slurm_bcast_receive,
        "sh",
        b->target,
        file_name(b->source),
        arena_printf(a, "%lld", (long long)st.st_size),
        arena_printf(a, "%o", (unsigned)(b->preserve ? st.st_mode & 07777 : (st.st_mode & 0777) | 0600)),
        b->preserve ? arena_printf(a, "%lld", (long long)st.st_mtime) : "",
        b->force ? "force" : "",
    };
    enum { COUNT = sizeof words / sizeof *words };
    char *argv[COUNT + 1];
    for (size_t i = 0; i < COUNT; i++)
        argv[i] = arena_strdup(a, words[i]);
    argv[COUNT] = NULL;
    return slurm_srun_one(s, COUNT, argv, NULL);
}

int sbcast_run(struct slurm *s, int argc, char **argv) {
    static const struct opt table[] = {
        {"compress", 'C', OPT_MAYBE, OPT_HARMLESS, NULL, "the file is sent as it is", 0},
        {"exclude", 0, OPT_VALUE, OPT_HARMLESS, NULL, "it belongs to --send-libs", 0},
        {"fanout", 'F', OPT_VALUE, OPT_HARMLESS, NULL, "all nodes are sent the file at once", 0},
        {"force", 'f', OPT_FLAG, OPT_DOES, NULL, NULL, 0},
        {"jobid", 'j', OPT_VALUE, OPT_DOES, NULL, NULL, 0},
        {"preserve", 'p', OPT_FLAG, OPT_DOES, NULL, NULL, 0},
        {"send-libs", 0, OPT_MAYBE, OPT_REFUSED, NULL, "use a container, or a shared folder", 0},
        {"size", 's', OPT_VALUE, OPT_HARMLESS, NULL, "the size of blocks is chosen here", 0},
        {"timeout", 't', OPT_VALUE, OPT_HARMLESS, NULL, "waits are bounded by the controller", 0},
        {"treewidth", 0, OPT_VALUE, OPT_HARMLESS, NULL, "all nodes are sent the file at once", 0},
        OPTS_COMMON};
    struct opts o;
    int status;
    slurm_opts_init(&o, table, sizeof table / sizeof *table, 0);
    if (!slurm_opts_begin(&o, s, argc, argv, "SBCAST", "[OPTIONS] SOURCE DEST", &status))
        return status;
    if (slurm_check_clusters(s))
        return SLURM_FAILED;
    if (o.argument_count != 2) {
        slurm_error(s, "Need two file names, have %d names", o.argument_count);
        return SLURM_FAILED;
    }
    return slurm_bcast(s, &(struct bcast){.source = o.arguments[0],
                                          .target = o.arguments[1],
                                          .job = slurm_opt_filled(&o, "jobid"),
                                          .force = slurm_opt_given(&o, "force"),
                                          .preserve = slurm_opt_given(&o, "preserve")});
}
