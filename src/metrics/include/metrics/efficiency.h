// What a job asked for against what it used, and the exact option to change; and which jobs hold GPUs
// without using them. Pure functions of a job's record and figures.
#pragma once
#include <stdbool.h>
#include <stdint.h>

#include "base/arena.h"
#include "base/json.h"
#include "model/job.h"

enum efficiency_what {
    EFFICIENCY_CPU,
    EFFICIENCY_MEMORY,
    EFFICIENCY_GPU,
    EFFICIENCY_GPU_MEMORY,
    EFFICIENCY_TIME,
    EFFICIENCY_ENERGY,
    EFFICIENCY_ROWS
};
extern const char *const efficiency_words[];  // "cpu", "memory", "gpu", "gpu_memory", "time", "energy"

struct efficiency_input {
    const struct job_record *record;
    const struct usage *usage;      // the record's own, or the live one while it runs
    int64_t now_ms;
    uint32_t time_limit_s;          // in force; 0: none
    uint64_t gpu_memory_bytes;      // it may use on all its GPUs; 0: not known
    uint64_t gpu_memory_each_bytes; // of one whole GPU of its kind; 0: not known
    // For an array: how many elements record and usage are the mean of; 0: none. The longest of them, and
    // the energy of all.
    uint32_t elements;
    uint64_t longest_s, energy_mj;
};

// Elements of an array, added up one by one; then as one that stands for all: means, but the highest peaks.
struct efficiency_sum {
    struct usage usage;
    uint64_t elapsed_ms, longest_ms;
    uint32_t count, running, completed, timeout, out_of_memory;
};
void efficiency_add(struct efficiency_sum *s, const struct job_record *r, const struct usage *u, int64_t now_ms);
// `record` (a copy of any element's) and `usage` are changed to stand for all.
void efficiency_mean(const struct efficiency_sum *s, struct job_record *record, struct usage *usage,
                     struct efficiency_input *in);

// cpu and gpu in thousandths of one, kept busy on average; memory in bytes at the peak; time in
// seconds; energy in joules.
struct efficiency_row {
    bool known;         // what was asked for, or used, is
    bool unmeasured;    // nobody measured the use
    uint64_t asked, used;
    uint32_t percent;   // of what was asked for, at most 999; energy has none
    const char *option; // "--cpus 2": what to give next time; NULL: fits
    const char *text;   // one sentence
};

struct efficiency {
    struct efficiency_row rows[EFFICIENCY_ROWS];
    uint64_t elapsed_s;
    bool final;         // the job has ended; else the figures are of now
    bool too_short;     // ran too briefly for advice
    bool failed;        // what it used until then is no measure for the next one
    uint32_t elements;  // of an array, all together; 0: one job
};

enum { EFFICIENCY_LEAST_S = 60 };  // no advice before

// Texts belong to the arena.
void efficiency_of(const struct efficiency_input *in, struct arena *a, struct efficiency *out);

// --- idle GPUs ---

struct idle_policy {
    uint32_t below_milli;  // use under this part of a GPU counts as none
    uint32_t after_s;      // then it is named; 0: never
    uint32_t warn_s;       // then its owner is warned; 0: never
    uint32_t end_s;        // then it is ended; 0: never
};

enum idle_stage { IDLE_BUSY, IDLE_QUIET, IDLE_NAMED, IDLE_WARNED, IDLE_ENDED };
enum idle_step { IDLE_NOTHING, IDLE_NAME, IDLE_WARN, IDLE_END, IDLE_BUSY_AGAIN };

struct idle_state {
    enum idle_stage stage;
    int64_t idle_ms;  // measured without use
    int64_t seen_ms;  // of the last look that counted; 0: the time until the next one does not count
};

// Time between two looks counts up to this: what lies in a longer gap was not seen, or the clock was set.
enum { IDLE_GAP_MS = 5000 };

// One look: what is to be done now, each step once per idle time. Only time that was measured counts: use
// that is not known (`use_milli` negative), a gap and a clock that jumps are nobody's fault.
enum idle_step metrics_idle_look(struct idle_state *s, const struct idle_policy *p, int64_t now_ms,
                                 int64_t use_milli);
// Below this a holder of `share_milli` counts as not using its GPUs: 1 % of what it holds of each.
uint32_t metrics_idle_below_milli(uint64_t share_milli);
uint64_t metrics_idle_seconds(const struct idle_state *s);
