// Owns taking "#!interpreter [argument]" apart.
#include "launch/shebang.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

static enum launch_code refuse(char *text, size_t max, enum launch_code code, const char *why) {
    snprintf(text, max, "%s", why);
    return code;
}

static enum launch_code take_apart(struct shebang *s, char *text, size_t max) {
    char *p = s->line + 2 + strspn(s->line + 2, " \t");
    s->interpreter = p;
    p += strcspn(p, " \t");
    char *rest = p + strspn(p, " \t");
    *p = 0;
    for (size_t len = strlen(rest); len && (rest[len - 1] == ' ' || rest[len - 1] == '\t');)
        rest[--len] = 0;
    s->argument = rest < s->line + SHEBANG_MAX && *rest ? rest : NULL;
    if (!*s->interpreter)
        return refuse(text, max, LAUNCH_FORMAT, "the script has #! but no interpreter after it");
    return LAUNCH_OK;
}

enum launch_code launch_shebang_read(const char *script, struct shebang *out, char *text, size_t max) {
    int fd = open(script, O_RDONLY | O_CLOEXEC);
    if (fd < 0) {
        snprintf(text, max, "the script cannot be read: %s", strerror(errno));
        return LAUNCH_PERMISSION;
    }
    ssize_t n = read(fd, out->line, SHEBANG_MAX - 1);
    close(fd);
    out->line[n > 0 ? n : 0] = 0;
    if (strncmp(out->line, "#!", 2) != 0)
        return refuse(text, max, LAUNCH_FORMAT, "the script has no interpreter; its first line must begin with #!, "
                      "for example #!/bin/bash");
    char *end = strchr(out->line, '\n');
    if (!end && n == SHEBANG_MAX - 1) {
        snprintf(text, max, "the first line of the script is over %d bytes long", SHEBANG_MAX - 1);
        return LAUNCH_FORMAT;
    }
    if (end)
        *end = 0;
    if (end && end > out->line && end[-1] == '\r')
        return refuse(text, max, LAUNCH_FORMAT, "the script has Windows line ends; convert it with dos2unix");
    return take_apart(out, text, max);
}
