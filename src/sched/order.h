// The order of a pass: which pending job is looked at next.
#pragma once
#include "sched/pass.h"

// One request's next job inside its line.
struct turn {
    struct request *request;
    uint32_t at;      // index in its queue
    int64_t key;      // turn time, or limit while backfilling shortest first
    int64_t load;     // the user's load the key was made with
};

// One project's requests (or everybody's, first come first served), as a heap; and the project's place.
struct line {
    struct project *project;
    VEC(struct turn) turns;
    bool over_share, over_quota;
    int32_t tier, priority;
    int64_t used, share;  // in the dimension of its first job
    int64_t submit_ms;
};

struct order {
    struct pass *p;
    int64_t cost_capacity;  // what the whole cluster counts as in users' use
    VEC(struct line) lines; // a heap
    bool shortest;          // backfilling by length now
};

void order_make(struct order *o, struct pass *p);
struct turn *order_next(struct order *o);  // the job that comes next, NULL at the end
void order_started(struct order *o);       // its job got a decision: the request's next job
void order_drop(struct order *o);          // its request is done with for this pass
void order_projects(struct order *o);      // after some project's use went down
void order_rebuild(struct order *o);       // after the rule changed
void order_done(struct order *o);
