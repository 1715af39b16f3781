// Owns the variables for Open MPI. Debian's Open MPI 4 loads the libraries of Intel's PSM adapters also where there is
// none, and each of them first measures the clock for a tenth of a second: on nodes without any fabric they are left
// out. A list in the environment replaces that of the settings files, so it begins with what is left out there, and
// whoever has a list of his own keeps it.
#include "open_mpi.h"

#include <dirent.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/cleanup.h"
#include "base/text.h"

enum { SETTINGS_MAX = 64 << 10, LIST_MAX = 256, PATH_LEN = 4096 };

bool open_mpi_setting(const char *text, const char *name, char *out, size_t room) {
    bool found = false;
    for (const char *line = text; *line; line += strcspn(line, "\n"), line += *line == '\n') {
        const char *p = line + strspn(line, " \t");
        size_t len = strlen(name);
        if (strncmp(p, name, len) != 0)
            continue;
        p += len + strspn(p + len, " \t");
        if (*p++ != '=')
            continue;
        p += strspn(p, " \t");
        len = strcspn(p, "\n");
        while (len && strchr(" \t\r", p[len - 1]))
            len--;
        found = len < room;
        if (found)
            snprintf(out, room, "%.*s", (int)len, p);
    }
    return found;
}

static bool setting_of(const char *path, const char *name, char *out, size_t room) {
    static char text[SETTINGS_MAX + 1];
    cleanup_close int fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK);
    ssize_t n = fd < 0 ? -1 : read(fd, text, SETTINGS_MAX);
    if (n <= 0)
        return false;
    text[n] = 0;
    return open_mpi_setting(text, name, out, room);
}

static bool is_empty(const char *folder) {
    DIR *d = opendir(folder);
    bool empty = true;
    for (const struct dirent *ent; d && empty && (ent = readdir(d));)
        empty = *ent->d_name == '.';
    if (d)
        closedir(d);
    return empty;
}

static bool has_fabric(void) {
    return !is_empty("/sys/class/infiniband") || !is_empty("/sys/class/cxi") ||
           access("/dev/hfi1_0", F_OK) == 0 || access("/dev/ipath", F_OK) == 0 ||
           access("/dev/ipath0", F_OK) == 0;
}

void open_mpi_environment(const char *folder, struct buf *out) {
    char list[LIST_MAX], own[LIST_MAX], path[PATH_LEN];
    const char *home = getenv("HOME");
    snprintf(path, sizeof path, "%s/.openmpi/mca-params.conf", home ? home : "");
    if (setting_of("/etc/openmpi/openmpi-mca-params.conf", "mtl", list, sizeof list) && *list == '^' &&
        !setting_of(path, "mtl", own, sizeof own) && !has_fabric())
        buf_addf(out, "?OMPI_MCA_mtl=%s,psm,psm2%c", list, 0);
    // Shared memory where it goes with the step, and where nodes on one machine keep apart.
    if (folder)
        buf_addf(out, "?OMPI_MCA_btl_vader_backing_directory=%s%c?OMPI_MCA_btl_sm_backing_directory=%s%c", folder,
                 0, folder, 0);
}
