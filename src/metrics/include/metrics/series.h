// Time series for the charts, in memory and bounded: a value per second for two hours, a mean per
// minute for three days, a mean per hour for half a year. A series takes the same memory however long
// it runs; of too many series the one that was not written for longest goes, if that is an hour or more. Else
// the charts of jobs give way: to those of nodes and the cluster always, to those of other jobs once they have
// ended; and if there are none, the new one is not taken. Saved as bytes and loaded again, so that a restart
// keeps them. Longer history is Prometheus' business.
#pragma once
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/buf.h"
#include "base/error.h"
#include "base/json.h"

enum {
    SERIES_MAX = 2048,
    SERIES_STALE_S = 3600,
    SERIES_ENDED_S = 60,  // a job's that was not written for so long
    SERIES_BACK_MS = 10000,  // further back, the clock was set
    SERIES_NAME_MAX = 160,
    SERIES_TIERS = 3,
    SERIES_FINE_S = 1,
    SERIES_FINE_POINTS = 7200,
    SERIES_COARSE_S = 60,
    SERIES_COARSE_POINTS = 4320,
    SERIES_HOURS_S = 3600,
    SERIES_HOURS_POINTS = 4416,
    SERIES_ANSWER_MAX = 5000,  // points of one answer
};

struct series_store;
struct series_store *series_store_new(uint32_t max);  // at most SERIES_MAX series
struct series_store *series_store_free(struct series_store *s);  // returns NULL
uint32_t series_count(const struct series_store *s);
size_t series_bytes_each(void);  // memory of one series, all tiers

// Values in order of time; one that is a little older than the newest is passed over, and a clock that was
// set back further takes what was written after that moment out again: it lay in the future. Of several
// within a second the last counts. -ENAMETOOLONG: the name has more than SERIES_NAME_MAX bytes; -ENOSPC: there
// are too many series that are being written.
int series_add(struct series_store *s, const char *name, int64_t at_ms, double value);
void series_drop(struct series_store *s, const char *name);

// Points from the finest tier that reaches back to `from_ms`, as means over *step_ms, which is then the distance that
// the points have; 0: as fine as there is within SERIES_ANSWER_MAX points. Writes [[at_ms,value],…]; where nothing
// was recorded there is no point. -ENOENT: no such series, -EINVAL: the range is not one.
int series_query(const struct series_store *s, const char *name, int64_t from_ms, int64_t to_ms,
                 int64_t *step_ms, struct json_writer *w, struct error *e);
// Calls fn for each series whose name begins with `prefix`, in order of name.
void series_each(const struct series_store *s, const char *prefix, void (*fn)(void *ctx, const char *name), void *ctx);
// The mean of what was written in the range, from the finest tier that reaches back; NaN: nothing.
double series_mean(const struct series_store *s, const char *name, int64_t from_ms, int64_t to_ms);

bool series_has(const struct series_store *s, const char *name);
// What series_load reads: all, or one of them, the i-th; returns its name.
void series_save(const struct series_store *s, struct buf *out);
const char *series_save_one(const struct series_store *s, uint32_t i, struct buf *out);
// Adds what was saved. -EBADMSG: not what was saved, or one is there already; what was read until then stays.
int series_load(struct series_store *s, const void *data, size_t len);
