// Fit classes: requests that can be placed in the same ways share one, which knows the nodes they may use
// and how many of their tasks fit on each now. Kept current by the log of changed nodes. fit_class.c.
#pragma once
#include "requests.h"

#define SCORE_UNKNOWN INT64_MIN

struct ranked_node {
    int64_t score;
    uint32_t node;
};

struct sched_fit {
    char *code;                   // canonical bytes, equal for requests of the class
    uint32_t code_len;
    uint64_t hash;
    struct sched_fit *next;       // with the same hash
    uint32_t users;               // requests that point here
    struct sched_demand demand;
    uint64_t config_version;      // version.config of `allowed`
    uint64_t synced;              // changes of the log seen so far
    uint32_t nodes_len;
    uint8_t *allowed;             // by node id, whether it is up or not
    uint16_t *cap;                // by node id: tasks that fit now
    int64_t *score;               // by node id: of placing on it, lower is better; SCORE_UNKNOWN
    uint64_t score_version;       // of request mix and placement policy
    uint32_t nodes_fit;           // nodes with cap > 0
    uint64_t tasks_fit;           // sum of cap
    uint8_t *gpus;                // by node id, of a class with gpu_total: GPUs it could have there now; else NULL
    uint64_t gpus_fit;            // sum of them
    uint64_t idle_version;        // version.nodes of `fits_idle`
    bool fits_idle;               // enough would fit if all nodes that are up were idle
    // What a pass knows of the class; each is valid in the pass it names (last_pass.number).
    uint64_t failed_pass;         // placement failed …
    int64_t failed_limit_ms;      // … for jobs with this limit or a longer one
    uint64_t tally_pass;          // `any` to `named` count the class's queue entries
    struct world_request *any;    // one of its requests
    uint32_t left;                // entries not looked at yet
    uint64_t bit;                 // stands for the class in masks (several may share one)
    int64_t least_ms;             // the shortest limit
    bool named;                   // some name a reservation
    uint64_t dead_pass;           // too little is free for it, and that stays so
    uint64_t own_plan_pass;       // one has a planned start in another partition, which is not in its own way
    int64_t weight;               // in estimates (estimate.c)
    uint64_t full_pass;           // no room in both ledgers for an optional worker, and that stays so
    // While one pass places many jobs of the class: its nodes as a heap by (score, id), see place.c.
    uint64_t scan_pass;
    uint32_t scans;
    bool ranked;
    VEC(struct ranked_node) ranks;
    VEC(uint32_t) unranked;       // nodes that changed since
};

struct sched_fit *sched_fit_class(struct world *w, struct world_request *r);  // perhaps not current
struct sched_fit *sched_fit_of(struct world *w, struct world_request *r);     // brought up to date
bool sched_fit_enough(const struct sched_fit *f);  // enough is free, plans and reservations left aside
bool sched_fit_enough_together(const struct sched_fit *f);  // the same on as many nodes as it may have
bool sched_fits_together_when_idle(const struct world *w, const struct sched_fit *f);  // check.c
bool sched_fits_when_idle(const struct world *w, struct sched_fit *f);
void sched_fit_unrank(struct sched_fit *f);
void sched_fits_free(struct world *w);
void sched_fit_forget(struct world *w, struct world_request *r);  // the request goes away
