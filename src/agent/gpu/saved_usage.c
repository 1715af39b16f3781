// Owns the file "gpu" of an attempt's spool folder: one record, written over in place, with a check.
#include "agent/gpu/saved_usage.h"

#include <fcntl.h>
#include <stddef.h>
#include <stdio.h>
#include <unistd.h>

#include "base/cleanup.h"
#include "base/map.h"
#include "launch/spool.h"

struct record {
    uint64_t job, attempt;
    uint64_t busy_ms, throttled_ms, memory_peak_bytes, energy_mj;
    uint64_t check;  // of what is before it
    uint64_t measured_ms, check_measured;  // not in the records of older agents
};
enum { OLDER_SIZE = offsetof(struct record, measured_ms) };

static uint64_t check_of(const struct record *r) {
    return hash_bytes((const char *)r, offsetof(struct record, check));
}

static uint64_t check_measured_of(const struct record *r) {
    return hash_bytes((const char *)r, offsetof(struct record, check_measured));
}

static int open_record(int spool_fd, uint64_t job, uint32_t attempt, int flags) {
    char name[SPOOL_NAME_MAX], path[SPOOL_PATH_MAX];
    spool_name(name, job, attempt);
    snprintf(path, sizeof path, "%s/gpu", name);
    return openat(spool_fd, path, flags | O_CLOEXEC | O_NOFOLLOW, 0600);
}

void gpus_saved_usage_write(int spool_fd, uint64_t job, uint32_t attempt, const struct usage *u) {
    struct record r = {.job = job, .attempt = attempt, .busy_ms = u->gpu_busy_ms, .throttled_ms = u->gpu_throttled_ms,
                       .memory_peak_bytes = u->gpu_memory_peak_bytes, .energy_mj = u->energy_mj};
    r.measured_ms = u->gpu_measured_ms;
    r.check = check_of(&r);
    r.check_measured = check_measured_of(&r);
    cleanup_close int fd = open_record(spool_fd, job, attempt, O_WRONLY | O_CREAT);
    // Half a record fails its check; the one after the next second is whole again.
    if (fd >= 0 && pwrite(fd, &r, sizeof r, 0) != sizeof r)
        return;
}

bool gpus_saved_usage_read(int spool_fd, uint64_t job, uint32_t attempt, struct usage *out) {
    struct record r = {0};
    cleanup_close int fd = open_record(spool_fd, job, attempt, O_RDONLY);
    if (fd < 0 || pread(fd, &r, sizeof r, 0) < OLDER_SIZE || r.check != check_of(&r) || r.job != job ||
        r.attempt != attempt)
        return false;
    *out = (struct usage){.gpu_busy_ms = r.busy_ms, .gpu_throttled_ms = r.throttled_ms,
                          .gpu_memory_peak_bytes = r.memory_peak_bytes, .energy_mj = r.energy_mj};
    if (r.check_measured == check_measured_of(&r))
        out->gpu_measured_ms = r.measured_ms;
    return true;
}
