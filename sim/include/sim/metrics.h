// The figures of a replay: waits, slowdowns, utilisation, fairness; in total and by project or user.
#pragma once
#include "sim/replay.h"

enum { METRICS_BINS = 240, METRICS_GROUPS_MAX = 12, METRICS_QUANTILES = 100 };

struct sim_group {
    const char *name;
    uint32_t jobs, preempted;
    double wait_mean_s, wait_median_s, wait_p95_s, wait_p99_s, wait_max_s;
    double slowdown_mean, slowdown_median;  // bounded at 10 s
    double speed_mean;                      // 1 / slowdown: the part of a job's time that it ran
    double flow_mean_s;                     // submit to end
    double amount_share;                    // of all GPU- or CPU-time used
};

struct metrics {
    struct sim_group total;
    VEC(struct sim_group) groups;       // the largest projects (users when there are no projects)
    const char *group_word;
    // Mean waits of the jobs as large as the largest tenth or larger, as long (by their limits) as the longest tenth
    // or longer, and of those that are both.
    double wide_wait_s, long_wait_s, wide_long_wait_s;
    double lost_h;                          // GPU-hours (CPU-hours without GPUs) that preempted jobs had run in vain
    double utilisation;                     // of what was there, first submit to last end
    double fragmented;                      // of all GPUs, mean over samples; -1 without GPUs
    double fairness;                        // Jain's index of users' (projects') mean speed; 1: all alike
    uint32_t preemptions, unstarted, users;
    uint64_t decisions;
    double seconds;                         // the replay took
    double use_bins[METRICS_BINS], pending_bins[METRICS_BINS];
    double wait_quantiles_s[METRICS_QUANTILES + 1];
    int64_t first_ms, last_ms;
};

void sim_metrics_make(const struct trace *t, const struct replay *r, struct metrics *m);
void sim_metrics_done(struct metrics *m);
