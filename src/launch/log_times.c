// Owns the index of when a log was written.
#include "launch/log_times.h"

#include <assert.h>
#include <unistd.h>

enum { FIRST_GAP_MS = 100 };

const char *const launch_times_names[2] = {"times.out", "times.err"};

static_assert(sizeof(struct log_time) == 16, "entries of the file have a fixed size");

// Of each pair one entry stays, which holds the bytes of both and the time of the first. What comes from now on is not
// written down more often than what is there, so that old and new lines are equally exact.
static void thin(struct log_times *t) {
    for (uint32_t i = 0; 2 * i + 1 < t->len; i++)
        t->at[i] = (struct log_time){.upto = t->at[2 * i + 1].upto, .at_ms = t->at[2 * i].at_ms};
    t->len /= 2;
    int64_t usual_ms = (t->at[t->len - 1].at_ms - t->at[1].at_ms) / (int64_t)t->len;
    t->gap_ms = usual_ms > 2 * t->gap_ms ? usual_ms : 2 * t->gap_ms;
}

static void save(const struct log_times *t, uint32_t from, int fd) {
    size_t bytes = (t->len - from) * sizeof *t->at;
    if (pwrite(fd, &t->at[from], bytes, (off_t)(from * sizeof *t->at)) != (ssize_t)bytes)
        return;  // a full file system: lines of the log have no times
    if (from == 0 && ftruncate(fd, (off_t)bytes) < 0)
        return;
}

void launch_times_note(struct log_times *t, uint64_t size, int64_t at_ms, int fd) {
    uint32_t changed = t->len;
    if (t->len && size < t->at[t->len - 1].upto)
        t->len = changed = 0;
    if (size == (t->len ? t->at[t->len - 1].upto : 0))
        return;
    if (!t->gap_ms)
        t->gap_ms = FIRST_GAP_MS;
    if (t->len == LOG_TIMES_MAX) {
        thin(t);
        changed = 0;
    }
    struct log_time *last = t->len ? &t->at[t->len - 1] : NULL;
    if (last && last->at_ms && at_ms >= last->at_ms && at_ms - last->at_ms < t->gap_ms) {
        last->upto = size;
        changed = changed < t->len ? changed : t->len - 1;
    } else {
        t->at[t->len++] = (struct log_time){size, at_ms};
    }
    save(t, changed, fd);
}

void launch_times_read(struct log_times *t, int fd) {
    ssize_t n = pread(fd, t->at, sizeof t->at, 0);
    uint32_t count = n > 0 ? (uint32_t)((size_t)n / sizeof *t->at) : 0;
    t->len = 0;
    while (t->len < count && t->at[t->len].at_ms >= 0 &&
           t->at[t->len].upto > (t->len ? t->at[t->len - 1].upto : 0))
        t->len++;
}

int64_t launch_times_of(const struct log_times *t, uint64_t position, uint64_t *until) {
    uint32_t low = 0, high = t->len;
    while (low < high) {
        uint32_t middle = low + (high - low) / 2;
        if (t->at[middle].upto > position)
            high = middle;
        else
            low = middle + 1;
    }
    *until = low < t->len ? t->at[low].upto : UINT64_MAX;
    return low < t->len ? t->at[low].at_ms : 0;
}
