// What agents measure: the latest figures of each node for lists and /metrics, time series for the
// charts, and jobs that hold GPUs without using them.
#pragma once
#include "controller.h"
#include "metrics/efficiency.h"
#include "metrics/openmetrics.h"
#include "metrics/series.h"

// A node whose figures are older than this is not heard of: no figure is better than one of long ago.
enum { TELEMETRY_FRESH_MS = 15000 };

void telemetry_open(struct controller *c);  // loads what the last run saved
void telemetry_add(struct controller *c, const char *node, const struct message_telemetry *m);
void telemetry_job_usage(struct controller *c, uint64_t id,
                         struct live_usage *u);  // of a job: new figures came
const struct message_telemetry *telemetry_latest(const struct controller *c, const char *node);  // NULL: none
void telemetry_tick(struct controller *c);  // once a second
void telemetry_save(struct controller *c);  // at the end; waits for the disk
void telemetry_done(struct controller *c);

struct series_store *telemetry_series(const struct controller *c);
const struct metrics_recent *telemetry_recent(const struct controller *c);
uint64_t telemetry_gpu_idle_s(const struct controller *c, uint64_t job, const char *node, uint32_t index);
// How long a job has used none of its GPUs, and what it is told; NULL: nothing.
uint64_t telemetry_idle_s(const struct controller *c, uint64_t job);
// How much of its GPUs a job kept busy in the last second, all together; false: not known.
bool telemetry_job_use(const struct controller *c, uint64_t job, uint64_t *milli);
// "2 jobs hold GPUs without using them: 12 of eva (1 for 40m), 15 of joan (0.5 for 2h)", and those that do not
// keep to their part; false: there are none.
bool telemetry_waste(const struct controller *c, struct buf *out);
bool telemetry_outside(const struct controller *c, struct buf *out);
const char *telemetry_warning(const struct controller *c, uint64_t job, char *out, size_t size);
