// What users hold and used lately. usage.c.
#pragma once
#include "base/map.h"

struct world;

// One (project, user) or (QoS, user).
struct world_user {
    uint64_t key;
    int64_t cost;         // held now, in milli-GPU
    int64_t average;      // moving average of cost, as of at_ms
    int64_t at_ms;
    int32_t ratio_milli;  // the part of their time limits that its jobs used lately, 0: not known
    uint32_t jobs;
    uint64_t gpu_milli;
    uint64_t cpus;
    uint64_t optional_gpu_milli, optional_cpus;  // held by optional workers; not in the sums above
    int64_t started_cost;  // of jobs started by the pass under way; 0 between passes
    struct {               // values computed once per pass, each valid in the pass it names
        uint64_t average_pass, use_pass;
        int64_t average;
        int64_t use_load, use_ms;  // what this load adds to queue times
    } cached;
};

struct world_usage {
    struct map users, qos_users;  // project or QoS << 32 | user → struct world_user
    int64_t half_life_ms;
};

uint64_t sched_decay_q32(int64_t elapsed_ms, int64_t half_life_ms);  // 2^-(elapsed / half-life) in Q32
struct world_user *sched_user_slot(struct map *m, uint32_t owner, uint32_t user);
int64_t sched_user_average(const struct world_user *u, int64_t now_ms, int64_t half_life_ms);
void sched_user_charge(struct world_user *u, int64_t cost, int64_t now_ms, int64_t half_life_ms);
int64_t sched_user_load(const struct world *w, struct world_user *u, int64_t now_ms);
