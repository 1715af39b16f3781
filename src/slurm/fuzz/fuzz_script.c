// Fuzz target: batch scripts with #SBATCH lines, as sbatch reads them.
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "driver.h"
#include "submit_options.h"

const struct fuzz_seed fuzz_seeds[] = {
    FUZZ_SEED(
        "#!/bin/sh\n#SBATCH -J script -n 2 --time=7\n\n# comment\n#SBATCH --comment=\"two words\"\ntrue\n"),
    FUZZ_SEED("#!/bin/bash\n#SBATCH --array=0-99%10 --gres=gpu:a100:2 -N 2-4 --mem-per-cpu=2G\n#SBATCH -o "
              "out-%j.txt\n"),
    FUZZ_SEED("#!/bin/sh\n#SBATCH --dependency=afterok:1:2,afterany:3 --begin=now+1hour -t 1-12:30:00\nsrun "
              "true\n"),
    FUZZ_SEED(
        "#!/bin/sh\n#SBATCH --export=ALL,A=b\\ c,'D=e f' --signal=B:USR1@60 -w n[1-4] -x n2 --nice=-5\n"),
    {0},
};

// Messages about bad values are many and wanted by nobody here.
static void silence(void) {
    static bool done;
    int fd = done ? -1 : open("/dev/null", O_WRONLY | O_CLOEXEC);
    if (fd >= 0) {
        stderr = fdopen(fd, "w");
        done = true;
    }
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    struct slurm s = {.program = "sbatch"};
    struct opts o;
    struct spec spec;
    silence();
    char *text = arena_strndup(&s.cli.arena, (const char *)data, size);
    struct script script = {.text = text, .len = size};
    slurm_opts_init(&o, slurm_job_opts, slurm_job_opt_count, FOR_SBATCH);
    if (strlen(text) == size && slurm_script_check(&s, &script) == 0 &&
        slurm_script_options(&s, &script, &o, 1, &(uint32_t){0}) == 0 && slurm_job_values_check(&s, &o) == 0)
        (void)slurm_job_spec_from(&s, &o, &spec);
    arena_done(&s.cli.arena);
    return 0;
}
