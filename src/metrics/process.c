// The exporting process itself, and the jobs that ended lately.
#include <assert.h>
#include <dirent.h>
#include <fcntl.h>
#include <string.h>
#include <sys/resource.h>
#include <unistd.h>

#include "base/cleanup.h"
#include "base/text.h"
#include "metrics/openmetrics.h"

static uint64_t resident_bytes(void) {
    cleanup_close int fd = open("/proc/self/statm", O_RDONLY | O_CLOEXEC);
    char text[128];
    ssize_t n = fd < 0 ? -1 : read(fd, text, sizeof text - 1);
    if (n <= 0)
        return 0;
    text[n] = 0;
    char *second = strchr(text, ' ');
    if (!second)
        return 0;
    second[1 + strcspn(second + 1, " ")] = 0;
    uint64_t pages;
    return parse_u64(second + 1, &pages) < 0 ? 0 : pages * (uint64_t)sysconf(_SC_PAGESIZE);
}

static uint64_t open_fds(void) {
    DIR *d = opendir("/proc/self/fd");
    if (!d)
        return 0;
    uint64_t n = 0;
    for (const struct dirent *e; (e = readdir(d));)
        n += e->d_name[0] != '.';
    closedir(d);
    return n - 1;  // not the one of the listing
}

void metrics_process_self(struct metrics_process *out) {
    struct rusage u = {0};
    getrusage(RUSAGE_SELF, &u);
    *out = (struct metrics_process){
        .cpu_us = (uint64_t)(u.ru_utime.tv_sec + u.ru_stime.tv_sec) * 1000000 +
                  (uint64_t)(u.ru_utime.tv_usec + u.ru_stime.tv_usec),
        .memory_bytes = resident_bytes(),
        .fds = open_fds(),
    };
}

// Slots end up between half a step and a step apart, so that all of them span the window.
enum { RECENT_STEP_MS = METRICS_RECENT_MS * 2 / (METRICS_RECENT_SLOTS - 4) };

void metrics_recent_update(struct metrics_recent *r, int64_t now_ms, const uint64_t by_state[JOB_STATE_COUNT]) {
    uint32_t last = (r->next + METRICS_RECENT_SLOTS - 1) % METRICS_RECENT_SLOTS;
    // Two slots are always there: the newest is moved forward until it is a step after the one before.
    if (r->len >= 2) {
        uint32_t before = (last + METRICS_RECENT_SLOTS - 1) % METRICS_RECENT_SLOTS;
        if (now_ms - r->slots[before].at_ms < RECENT_STEP_MS)
            r->next = last;
        else if (r->len < METRICS_RECENT_SLOTS)
            r->len++;
    } else {
        r->len++;
    }
    r->slots[r->next].at_ms = now_ms;
    memcpy(r->slots[r->next].by_state, by_state, sizeof r->slots[r->next].by_state);
    r->next = (r->next + 1) % METRICS_RECENT_SLOTS;
}

uint64_t metrics_recent_count(const struct metrics_recent *r, int64_t now_ms, enum job_state state) {
    assert(job_state_final(state));
    if (!r->len)
        return 0;
    uint32_t last = (r->next + METRICS_RECENT_SLOTS - 1) % METRICS_RECENT_SLOTS;
    uint64_t newest = r->slots[last].by_state[state], oldest = newest;
    for (uint32_t i = 0; i < r->len; i++) {  // newest to oldest; the last one within the window counts
        uint32_t at = (last + METRICS_RECENT_SLOTS - i) % METRICS_RECENT_SLOTS;
        if (now_ms - r->slots[at].at_ms > METRICS_RECENT_MS)
            break;
        oldest = r->slots[at].by_state[state];
    }
    return newest > oldest ? newest - oldest : 0;
}
