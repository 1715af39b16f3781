// acequia slurm-commands, acequia slurm
#include <errno.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/text.h"
#include "slurm/slurm.h"
#include "verbs.h"

static int place(struct cli *c, const char *folder, const char *program, const char *name, bool force) {
    const char *path = arena_printf(&c->arena, "%s/%s", folder, name);
    struct stat st;
    char target[PATH_MAX];
    if (lstat(path, &st) == 0) {
        ssize_t n = S_ISLNK(st.st_mode) ? readlink(path, target, sizeof target - 1) : -1;
        bool ours = n > 0 && (target[n] = 0, streq(target, program));
        if (ours)
            return 0;
        if (!force)
            return error_set(&c->error, EEXIST,
                             "%s exists and is not a link to acequia; use another folder, or --force to replace it",
                             path);
        if (unlink(path) < 0)
            return error_set(&c->error, errno, "cannot remove %s: %s", path, strerror(errno));
    }
    if (symlink(program, path) < 0)
        return error_set(&c->error, errno, "cannot create %s: %s", path, strerror(errno));
    return 0;
}

static int make_links(struct cli *c, const char *const *names, size_t count) {
    char program[PATH_MAX];
    const char *folder = c->arguments[0];
    ssize_t n = readlink("/proc/self/exe", program, sizeof program - 1);
    if (n <= 0)
        return cli_failf(c, "cannot find out where this program is: %s", strerror(errno));
    program[n] = 0;
    if (mkdir(folder, 0755) < 0 && errno != EEXIST)
        return cli_failf(c, "cannot create %s: %s", folder, strerror(errno));
    for (size_t i = 0; i < count; i++)
        if (place(c, folder, program, names[i], option_given(&c->options, "force")) < 0)
            return cli_fail(c);
    if (place(c, folder, program, "runai", option_given(&c->options, "force")) < 0)
        return cli_fail(c);
    char *whole = realpath(folder, NULL);
    printf("%zu commands and runai are in %s; put it first on PATH: export PATH=%s:$PATH\n", count, folder,
           whole ? whole : folder);
    free(whole);
    return CLI_OK;
}

static int commands(struct cli *c) {
    size_t count;
    const struct slurm_command *all = slurm_commands(&count);
    const char **names = arena_alloc(&c->arena, count * sizeof *names);
    for (size_t i = 0; i < count; i++)
        names[i] = all[i].name;
    return make_links(c, names, count);
}

static int docker_commands(struct cli *c) {
    static const char *const names[] = {"docker", "nvidia-docker", "sudo"};
    return make_links(c, names, sizeof names / sizeof *names);
}

static int run(struct cli *c) {
    const char *name = c->count ? c->arguments[0] : "";
    char shown[64];
    if (!slurm_command_find(name))
        return cli_failf(c, "Slurm command \"%s\" is not available; see acequia slurm-commands --help",
                         str_printable(name, shown, sizeof shown));
    return slurm_main(name, c->count, c->arguments, c->tls);
}

static const struct option_spec specs[] = {
    {"force", 'f', NULL, "Replace existing files of these names.", 0, NULL, NULL},
};
static const struct option_table table = OPTION_TABLE("Options", specs);

const struct verb verb_slurm_commands = {
    .name = "slurm-commands",
    .group = "Cluster",
    .arguments = "DIR",
    .summary = "install sbatch, squeue and the others into a folder",
    .text = "The links speak Slurm's command line to this cluster: scripts with #SBATCH lines and tools made "
            "for Slurm run unchanged when "
            "the folder is first on PATH.",
    .examples = "acequia slurm-commands ~/slurm\nexport PATH=~/slurm:$PATH",
    .options = {&table, &cli_common_options},
    .run = commands,
    .complete = "@dir",
    .least = 1,
    .most = 1,
};

const struct verb verb_docker_commands = {
    .name = "docker-commands",
    .group = "Cluster",
    .arguments = "DIR",
    .summary = "install docker and nvidia-docker into a folder",
    .text = "The links speak docker's command line inside jobs (see acequia docker): scripts with docker "
            "lines run "
            "unchanged when the folder is first on PATH. The link sudo runs 'sudo docker' and 'sudo "
            "nvidia-docker' as "
            "yourself, and leaves everything else to the machine's own sudo.",
    .examples = "acequia docker-commands ~/docker\nexport PATH=~/docker:$PATH",
    .options = {&table, &cli_common_options},
    .run = docker_commands,
    .complete = "@dir",
    .least = 1,
    .most = 1,
};

const struct verb verb_slurm = {
    .name = "slurm",
    .arguments = "COMMAND [arguments...]",
    .summary = "run one of Slurm's commands",
    .options = {&cli_common_options},
    .run = run,
    .raw = true,
    .most = -1,
};
