// Reads the figures of host.h from /proc; a file that is missing or looks different leaves a 0.
#include "device/host.h"

#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/statvfs.h>
#include <unistd.h>

#include "base/cleanup.h"

enum { PROC_BYTES = 4096 };

static bool read_start(const char *path, char out[static PROC_BYTES]) {
    cleanup_close int fd = open(path, O_RDONLY | O_CLOEXEC);
    ssize_t n = fd < 0 ? -1 : read(fd, out, PROC_BYTES - 1);
    out[n > 0 ? n : 0] = 0;
    return n > 0;
}

// "cpu user nice system idle iowait irq softirq steal …"
static void sample_cpu(struct host_state *s, struct message_telemetry *out) {
    char text[PROC_BYTES];
    if (!read_start("/proc/stat", text) || strncmp(text, "cpu ", 4))
        return;
    uint64_t v[8] = {0}, total = 0;
    char *p = text + 4;
    for (int i = 0; i < 8; i++) {
        v[i] = strtoull(p, &p, 10);
        total += v[i];
    }
    uint64_t busy = total - v[3] - v[4];
    if (s->total && total > s->total && busy >= s->busy)
        out->cpu_milli = (uint32_t)((busy - s->busy) * 1000 / (total - s->total));
    *s = (struct host_state){.busy = busy, .total = total};
}

static uint64_t meminfo(const char *text, const char *label) {
    const char *p = strstr(text, label);
    return p ? strtoull(p + strlen(label), NULL, 10) * 1024 : 0;
}

void gpu_host_sample(struct host_state *s, const char *path, struct message_telemetry *out) {
    char text[PROC_BYTES];
    sample_cpu(s, out);
    if (read_start("/proc/loadavg", text))
        out->load_milli = (uint32_t)(strtod(text, NULL) * 1000 + 0.5);
    if (read_start("/proc/meminfo", text)) {
        uint64_t total = meminfo(text, "MemTotal:"), free_bytes = meminfo(text, "MemAvailable:");
        out->memory_used_bytes = total > free_bytes ? total - free_bytes : 0;
    }
    struct statvfs v;
    if (path && statvfs(path, &v) == 0) {
        out->disk_free_bytes = (uint64_t)v.f_bavail * v.f_frsize;
        out->disk_bytes = (uint64_t)v.f_blocks * v.f_frsize;
    }
}
