// Owns what /proc says of a process.
#include "base/process.h"

#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "base/cleanup.h"

enum { STAT_MAX = 1024, START_FIELD = 20 };  // counted after the name

uint64_t process_start(pid_t pid) {
    char path[64], text[STAT_MAX];
    unsigned long long start = 0;
    snprintf(path, sizeof path, "/proc/%d/stat", pid);
    cleanup_close int fd = open(path, O_RDONLY | O_CLOEXEC);
    ssize_t n = fd < 0 ? -1 : read(fd, text, sizeof text - 1);
    text[n > 0 ? n : 0] = 0;
    const char *p = strrchr(text, ')');  // the name may contain anything
    if (p && p[1] && p[2] == 'Z')
        return 0;
    for (int i = 0; p && i < START_FIELD; i++)
        p = strchr(p + 1, ' ');
    return p && sscanf(p, "%llu", &start) == 1 ? start : 0;
}
