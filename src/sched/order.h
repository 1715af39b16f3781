// The order of a pass: which pending job is looked at next.
#pragma once
#include "pass.h"
#include "queue_position.h"

// One project's requests (or everybody's, first come first served), and the project's place.
struct line {
    struct project *project;
    uint32_t next, count;   // of the project's sorted turns, while none of its jobs got a decision
    bool heaped;            // then its turns are here instead
    VEC(struct turn) heap;
    // What its turns have in common; of all it began with.
    uint64_t classes, partitions;
    uint32_t dims;
    bool special;
    // Its place among the others, by its first turn.
    bool over_share, over_quota;
    int32_t tier, priority;
    int64_t used, share;    // in the dimension of its first job
    unsigned dim;
    uint32_t moves;         // 1 + the pass's when used and share were looked at
};

struct order {
    struct pass *p;
    int64_t cost_capacity;  // what the whole cluster counts as in users' use
    VEC(struct line) lines;
    VEC(uint32_t) heap;     // of lines
    bool shortest;          // backfilling by length now
    VEC(uint32_t) moved, partitions;
    bool listed[SCHED_PARTITIONS_MAX];
    uint32_t idle, patience;  // looks in vain since lines were last left out, and until then
};

void order_make(struct order *o, struct pass *p);
struct turn *order_next(struct order *o);  // the job that comes next, NULL at the end
void order_started(struct order *o);       // its job got a decision: the request's next job
void order_drop(struct order *o);          // its request is done with for this pass
void order_projects(struct order *o);      // after some project's use went down
void order_rebuild(struct order *o);       // after the rule changed
// Leaves out lines none of whose jobs can get anything in this pass; costs nothing most of the time.
void order_trim(struct order *o, bool in_vain);
bool order_inert(struct order *o, const struct turn *t);  // looking at it would change nothing
void order_done(struct order *o);

void line_place(const struct order *o, struct line *l);
bool line_before(const struct line *a, const struct line *b);

// position.c: the job's place in an order that was made and not walked; 0: it is not in it. Tells, if
// asked, up to where each project's turns come before it (NULL: all of them).
typedef void (*order_cut_fn)(void *ctx, struct project *p, const struct turn *bound);
uint32_t order_position(struct order *o, const struct job *j, order_cut_fn cut, void *ctx);
uint32_t order_jobs_before(const struct order *o, const struct turn *t, const struct turn *bound);  // of one request

int64_t turn_key(const struct order *o, const struct turn *t);
bool turn_before(const struct turn *a, const struct turn *b);
// project_queue.c: a project's turns as of now, in order; what they have in common goes to the line.
void turns_sort(struct order *o, struct project *p, struct line *l);
