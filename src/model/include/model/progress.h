// How far a job says it has come: read from what it prints ("37%", "epoch 3/10", tqdm's bars) or from a file that it
// writes.
#pragma once
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum { PROGRESS_TEXT_MAX = 48, PROGRESS_TAIL_MAX = 2048, PROGRESS_PATH_MAX = 96 };
#define PROGRESS_FILE_VARIABLE "ACEQUIA_PROGRESS_FILE"
#define PROGRESS_FILE_PREFIX "/tmp/acequia-progress-"

struct progress {
    uint32_t milli;                // of the whole: 0 to 1000
    char text[PROGRESS_TEXT_MAX];  // what it was read from, such as "epoch 3/10"; printable
};

// The newest progress in the last bytes of a job's output. Lines end with a newline or, as progress bars have it, a
// carriage return. A percentage counts where it begins a line, or stands behind "progress" or before a bar: "accuracy
// 92%" is none. Counts need one of the usual words: "epoch 3/10", "step 40 of 200", or brackets "[3/10]".
bool progress_from_output(const char *tail, size_t len, struct progress *out);
// Of a progress file: "37%", "0.37" or "3/10", and then any text. Only its first line counts.
bool progress_from_file(const char *content, size_t len, struct progress *out);
// Where the file of an attempt is, unless the job names another.
// With the epoch of the attempt: jobs of two clusters on one machine may have the same number.
void progress_file_path(uint64_t job, uint32_t attempt, uint64_t epoch, char out[static PROGRESS_PATH_MAX]);
// When it is done at the pace until now: -1 if that cannot be said (nothing done, or no time passed).
int64_t progress_left_ms(uint32_t milli, int64_t elapsed_ms);
