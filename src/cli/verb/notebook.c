// acequia notebook
#include <stdlib.h>
#include <string.h>

#include "app_start.h"
#include "base/text.h"
#include "cli/job/options.h"

static const struct option_spec specs[] = {
    {"environment", 0, "FOLDER",
     "A virtual or conda environment that has JupyterLab; default: the one in the PATH.", 0, "venv", "@dir"},
    {"kernel", 0, "FOLDER|IMAGE",
     "A further environment or container image whose kernel can be chosen; may be given several times.", OPTION_REPEAT,
     NULL, "@dir"},
};
static const struct option_table table = OPTION_TABLE("Notebook", specs);

static const char *absolute(struct cli *c, const char *folder) {
    char *full = realpath(folder, NULL);
    const char *out = full ? arena_strdup(&c->arena, full) : folder;
    free(full);
    return out;
}

static int run_notebook(struct cli *c) {
    const char *values[2], *environment = option_get(&c->options, "environment");
    cleanup_buf struct buf kernels = {0};
    uint32_t n = 0, it = 0;
    for (const char *k; (k = option_next(&c->options, "kernel", &it));)
        buf_addf(&kernels, "%s%s", kernels.len ? "," : "", absolute(c, k));
    if (environment)
        values[n++] = arena_printf(&c->arena, "environment=%s", absolute(c, environment));
    if (kernels.len)
        values[n++] = arena_printf(&c->arena, "kernels=%s", buf_str(&kernels));
    return verb_app_start(c, "jupyter", values, n);
}

const struct verb verb_notebook = {
    .name = "notebook",
    .group = "Programs",
    .arguments = "[options]",
    .summary = "start or open JupyterLab in a job",
    .text =
        "Starts JupyterLab, or the classic notebook where only that is there, as a job with any options of "
        "submit, "
        "waits until it is ready, and prints its address and a link that opens it once, logged in as you. "
        "Only you "
        "get in, and those you share it with (acequia share); there is no token to copy. Called again it "
        "opens the "
        "one that runs, or starts one with the settings of the last time; --new starts another. With --idle "
        "2h it "
        "is closed when no kernel was used for so long, and says so before, in acequia get and the portal; "
        "where the site sends "
        "mails, one comes before its time ends (--notify says otherwise), and acequia update JOB --time "
        "gives it more. Where "
        "JupyterLab is not installed it says how to get it.",
    .examples = "acequia notebook\nacequia notebook --gpus 0.5 --memory 16G --time 8h --idle 2h\n"
                "acequia notebook --kernel ~/torch --kernel pytorch/pytorch:latest\n"
                "acequia notebook --container docker://quay.io/jupyter/scipy-notebook",
    .options = {&table, &verb_app_options, &job_resource_options, &job_control_options, &cli_common_options},
    .run = run_notebook,
};
