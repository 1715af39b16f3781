// Owns the groups of ranks that ranks here have asked for. Each is a further step of the job, started by srun as the
// job's user in this step's control group: the core knows it as every other step, nodes and restarts are its, and
// whatever ends this step ends it too. Its output goes to that of the first task here. The shepherd is told how many
// there are, because a step with such groups is not over when its own tasks are.
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <spawn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/cleanup.h"
#include "base/text.h"
#include "helper.h"

enum { ENVIRONMENT_MAX = 4 << 20 };

// Of this step and not of the one that is started.
static bool is_own(const char *entry) {
    static const char *const names[] = {
        "SLURM_NTASKS=",     "SLURM_NPROCS=",       "SLURM_NNODES=",   "SLURM_NTASKS_PER_NODE=", "SLURM_DISTRIBUTION=",
        "SLURM_MPI_TYPE=",   "SLURM_MULTI_PROG=",   "SLURM_STDINMODE=", "SLURM_STDOUTMODE=",      "SLURM_STDERRMODE=",
        "SLURM_TASK_PROLOG=", "SLURM_TASK_EPILOG=", "SLURM_PROLOG=",   "SLURM_EPILOG=",          "SLURM_BCAST=",
        "SLURM_CPUS_PER_TASK=", "SLURM_EXACT=",     "SLURM_EXCLUSIVE=", "SLURM_STEP_ID=",        "SLURM_STEPID=",
        "ACEQUIA_MPI_SPAWN="};
    for (size_t i = 0; i < sizeof names / sizeof *names; i++)
        if (str_has_prefix(entry, names[i]))
            return true;
    return str_has_prefix(entry, "SLURM_CPU_BIND") || str_has_prefix(entry, "PMI_") || str_has_prefix(entry, "PMIX_");
}

// The step's environment, which the shepherd has left in a file without a name.
static char **environment(struct arena *a, const char *spawn) {
    struct stat st;
    if (fstat(MPI_ENVIRONMENT_FD, &st) < 0 || !S_ISREG(st.st_mode) || st.st_size <= 0 || st.st_size > ENVIRONMENT_MAX)
        return NULL;
    size_t size = (size_t)st.st_size;
    char *text = arena_alloc(a, size + 1);
    if (pread(MPI_ENVIRONMENT_FD, text, size, 0) != (ssize_t)size)
        return NULL;
    size_t entries = 0;
    for (size_t at = 0; at < size; at += strlen(text + at) + 1)
        entries++;
    char **env = arena_alloc(a, (entries + 2) * sizeof *env);
    size_t n = 0;
    for (size_t at = 0; at < size; at += strlen(text + at) + 1)
        if (!is_own(text + at))
            env[n++] = text + at;
    env[n] = arena_printf(a, "ACEQUIA_MPI_SPAWN=%s", spawn);
    return env;
}

static int start(struct mpi_helper *h, char *const *argv, char *const *env, pid_t *pid) {
    posix_spawn_file_actions_t files;
    posix_spawnattr_t attributes;
    sigset_t all, none;
    sigfillset(&all);
    sigemptyset(&none);
    posix_spawn_file_actions_init(&files);
    posix_spawn_file_actions_addopen(&files, 0, "/dev/null", O_RDONLY, 0);
    posix_spawn_file_actions_adddup2(&files, h->output[0] >= 0 ? h->output[0] : 1, 1);
    posix_spawn_file_actions_adddup2(&files, h->output[1] >= 0 ? h->output[1] : 2, 2);
    posix_spawnattr_init(&attributes);
    posix_spawnattr_setsigdefault(&attributes, &all);
    posix_spawnattr_setsigmask(&attributes, &none);
    posix_spawnattr_setflags(&attributes, POSIX_SPAWN_SETSIGDEF | POSIX_SPAWN_SETSIGMASK);
    int rc = posix_spawn(pid, h->tools, &files, &attributes, argv, env);
    posix_spawnattr_destroy(&attributes);
    posix_spawn_file_actions_destroy(&files);
    return -rc;
}

static void tell_shepherd(struct mpi_helper *h) {
    struct mpi_note n = {.type = MPI_GROUPS, .rank = h->groups.len};
    helper_say(h, &n);
}

void groups_start(void *ctx, uint32_t task, const struct spawn_group *g) {
    struct mpi_helper *h = ctx;
    cleanup_arena struct arena a = {0};
    cleanup_buf struct buf spawn = {0}, script = {0};
    struct mpi_group group;
    spawn_variable(g, &spawn);
    spawn_script(g, &script);
    char **env = h->tools ? environment(&a, buf_str(&spawn)) : NULL;
    char *argv[] = {"srun",       "--overlap", "--overcommit", "--mem=0", "--mpi=pmi2",
                    arena_printf(&a, "--ntasks=%u", spawn_ranks(g)),
                    "--job-name=spawned", "/bin/sh", "-c", arena_strdup(&a, buf_str(&script)), NULL};
    if (!env) {
        pmi_spawn_done(h->world, task, "the_node_cannot_start_further_ranks");
        return;
    }
    if (h->groups.len >= MPI_GROUPS_MAX || start(h, argv, env, &group.pid) < 0) {
        pmi_spawn_done(h->world, task, "no_further_ranks_can_be_started");
        return;
    }
    group.fd = (int)syscall(SYS_pidfd_open, group.pid, 0);
    if (group.fd < 0) {
        kill(group.pid, SIGKILL);
        waitpid(group.pid, NULL, 0);
        pmi_spawn_done(h->world, task, "no_further_ranks_can_be_started");
        return;
    }
    fcntl(group.fd, F_SETFD, FD_CLOEXEC);
    vec_push(&h->groups, group);
    tell_shepherd(h);
    pmi_spawn_done(h->world, task, NULL);
}

void groups_ended(struct mpi_helper *h, uint32_t index) {
    struct mpi_group g = h->groups.at[index];
    char line[MPI_TEXT_MAX];
    int status = 0;
    if (waitpid(g.pid, &status, WNOHANG) == 0)
        return;
    close(g.fd);
    vec_remove(&h->groups, index);
    int code = WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
    if (code) {
        snprintf(line, sizeof line, "ranks that were started with MPI_Comm_spawn ended with status %d", code);
        helper_abort(h, 0, code, line);
    }
    tell_shepherd(h);
}
