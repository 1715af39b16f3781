// Writes metrics by the rules of OpenMetrics 1.0: each family once and in one piece, with its TYPE,
// UNIT and HELP; _total on counters; labels in the table's order, escaped; # EOF at the end. Breaking
// a rule is a bug of the caller and fails an assertion. The older text format of Prometheus is the
// same with other comments, for tools that ask for it.
#pragma once
#include <stdbool.h>
#include <stdint.h>

#include "base/buf.h"
#include "metrics/table.h"

enum metrics_format { METRICS_OPENMETRICS, METRICS_PLAIN };

struct metrics_writer {
    struct buf *out;
    enum metrics_format format;
    const struct metric_info *family;
    size_t name_len;
    uint32_t samples;  // of this family so far
    bool written[METRIC_COUNT];
    bool ended;
};

void metrics_start(struct metrics_writer *w, struct buf *out, enum metrics_format format);
void metrics_family(struct metrics_writer *w, enum metric_id id);
// One sample of the family; `labels` as built by metrics_label, NULL: none. For an info metric the
// value is 1.
void metrics_put(struct metrics_writer *w, const char *labels, double value);
void metrics_put_u64(struct metrics_writer *w, const char *labels, uint64_t value);
void metrics_put_milli(struct metrics_writer *w, const char *labels, uint64_t value);  // value / 1000
void metrics_end(struct metrics_writer *w);

// Appends name="value" to a label text, escaped; bytes that are no UTF-8 become '?'.
void metrics_label(struct buf *labels, const char *name, const char *value);
void metrics_label_u64(struct buf *labels, const char *name, uint64_t value);

// Durations in fixed buckets from 100 µs to 60 s; the owner zeroes it and observes.
enum { METRICS_BUCKETS = 18 };
struct metrics_histogram {
    uint64_t buckets[METRICS_BUCKETS + 1];  // not summed up; the last is beyond all bounds
    uint64_t count, sum_us;
};
void metrics_observe(struct metrics_histogram *h, uint64_t us);
void metrics_put_histogram(struct metrics_writer *w, const struct metrics_histogram *h);
