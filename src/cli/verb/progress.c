// acequia progress
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/cleanup.h"
#include "base/text.h"
#include "model/progress.h"
#include "verbs.h"

// A new file takes the place of the old one, so that whoever reads it meets a whole line.
static int replace_file(struct cli *c, const char *path, const char *line, size_t len) {
    const char *fresh = arena_printf(&c->arena, "%s.%d", path, (int)getpid());
    cleanup_close int fd = open(fresh, O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, 0644);
    if (fd < 0)
        return error_set(&c->error, errno, "%s cannot be written: %s", fresh, strerror(errno));
    if (write(fd, line, len) != (ssize_t)len || rename(fresh, path) < 0) {
        int rc =
            error_set(&c->error, errno ? errno : ENOSPC, "%s cannot be written: %s", path, strerror(errno));
        unlink(fresh);
        return rc;
    }
    return 0;
}

static int run(struct cli *c) {
    cleanup_buf struct buf line = {0};
    struct progress p;
    const char *path = getenv(PROGRESS_FILE_VARIABLE);
    for (int i = 0; i < c->count; i++)
        buf_addf(&line, i ? " %s" : "%s", c->arguments[i]);
    if (!progress_from_file(line.data, line.len, &p))
        return cli_usage(c, "\"%.60s\" is not a progress value; expected 37%%, 0.37 or 3/10",
                         c->arguments[0]);
    if (str_empty(path))
        return cli_failf(c, "this is not inside a job: " PROGRESS_FILE_VARIABLE " is not set");
    buf_adds(&line, "\n");
    if (replace_file(c, path, line.data, line.len) < 0)
        return cli_fail(c);
    return CLI_OK;
}

const struct verb verb_progress = {
    .name = "progress",
    .group = "Work",
    .arguments = "PERCENT|DONE/TOTAL [TEXT]...",
    .summary = "inside a job: say how far it has come",
    .text = "acequia list, top and the portal show it, with the time that is left at the pace until now. "
            "Programs need "
            "not call this: lines of a job's output such as \"37%\", \"epoch 3/10\" and tqdm's bars are "
            "understood. What "
            "is said here counts more. It is written to the file that $ACEQUIA_PROGRESS_FILE names; a "
            "program can write "
            "such a line itself. In a container with a /tmp of its own, set the variable to a file in a "
            "mounted folder.",
    .examples = "acequia progress 37%\nacequia progress 3/10 third fold",
    .options = {&cli_common_options},
    .run = run,
    .least = 1,
    .most = 20,
};
