// When the bytes of a log were written. The shepherd keeps an index beside the other files of the attempt, the agent
// keeps it for a while after the end. An entry says: the bytes before `upto`, back to the entry above it, were written
// at `at_ms` or shortly after. The index is bounded: when it is full, every second entry goes, and from then on writes
// that are closer together share an entry.
#pragma once
#include <stdint.h>
#include <sys/types.h>

enum { LOG_TIMES_MAX = 4096 };

struct log_time {
    uint64_t upto;
    int64_t at_ms;  // of the wall clock; 0: not known
};

struct log_times {
    uint32_t len;
    int64_t gap_ms;  // writes that are closer together share an entry
    struct log_time at[LOG_TIMES_MAX];
};

// The log has `size` bytes now, the last of them written at `at_ms`. A smaller size than before: it was emptied and
// begins anew. The new entry is also written to the file `fd`; a file that cannot be written to is left as it is.
void launch_times_note(struct log_times *t, uint64_t size, int64_t at_ms, int fd);
// What is in the file. It may be anybody's work, or be written right now: what cannot be true is left out.
void launch_times_read(struct log_times *t, int fd);
// The time of the byte at `position`; *until: the bytes before that have the same one. 0: not known, and not of what
// follows either (*until is UINT64_MAX).
int64_t launch_times_of(const struct log_times *t, uint64_t position, uint64_t *until);
// Names in the spool folder of an attempt.
extern const char *const launch_times_names[2];  // of standard output, of standard error
