// The order of a pass: which pending job is looked at next. order.c, order_position.c, project_queue.c.
#pragma once
#include "pass.h"
#include "queue_position.h"

// One project's queue in the order (or, first come first served, the queue of all), and its rank.
struct order_project {
    struct world_project *project;
    uint32_t next, count;    // of the project's sorted entries, until one of its jobs gets a decision …
    bool heaped;             // … then its entries are copied to `heap`
    VEC(struct queue_entry) heap;
    // Over all entries it began with: masks of fit classes, partitions (id % 64) and dimensions.
    uint64_t classes, partitions;
    uint32_t dims;
    bool may_preempt;        // some entry may, whatever the project's share
    // Its rank among the projects, by its first entry.
    bool over_share, over_quota;
    int32_t tier, priority;
    int64_t used, share;     // in the dimension of its first job
    unsigned dim;
    uint32_t moves;          // 1 + pass.moves when used and share were computed
};

struct sched_order {
    struct sched_pass *p;
    int64_t recent_base;     // see sched_order_make
    int64_t cost_capacity;   // what the whole cluster counts as in users' usage
    VEC(struct order_project) projects;
    VEC(uint32_t) heap;      // indexes of projects
    bool shortest;           // backfilling by length now
    VEC(uint32_t) moved, partitions;
    bool listed[SCHED_PARTITIONS_MAX];
    uint32_t idle, patience;  // fruitless looks since projects were last left out; how many before the next time
};

void sched_order_make(struct sched_order *o, struct sched_pass *p);
struct queue_entry *sched_order_next(struct sched_order *o);  // of the job that comes next, NULL at the end
void sched_order_advance(struct sched_order *o);  // its job got a decision: go on to the request's next job
void sched_order_drop(struct sched_order *o);     // its request is done with for this pass
void sched_order_rerank(struct sched_order *o);   // after some project's use went down
void sched_order_rebuild(struct sched_order *o);  // after the rule changed
// Leaves out projects none of whose jobs can get anything in this pass; costs nothing most of the time.
void sched_order_trim(struct sched_order *o, bool in_vain);
bool sched_order_skippable(struct sched_order *o, const struct queue_entry *e);  // looking at it would change nothing
void sched_order_done(struct sched_order *o);

void sched_order_project_rank(const struct sched_order *o, struct order_project *l);
bool sched_order_project_before(const struct order_project *a, const struct order_project *b);

// order_position.c: the job's place, from 1, in an order that was made and not walked; 0: it is not in it.
// `cut`, if not NULL, is told for each project up to which entry its jobs come first (NULL: all of them).
typedef void (*order_cut_fn)(void *ctx, struct world_project *p, const struct queue_entry *bound);
uint32_t sched_order_position(struct sched_order *o, const struct world_job *j, order_cut_fn cut, void *ctx);
// Number of the entry's jobs that come before `bound` (NULL: all).
uint32_t sched_order_jobs_before(const struct sched_order *o, const struct queue_entry *e,
                                 const struct queue_entry *bound);

int64_t sched_queue_entry_key(const struct sched_order *o, const struct queue_entry *e);
bool sched_queue_entry_before(const struct queue_entry *a, const struct queue_entry *b);
// project_queue.c: brings a project's queue up to date and in order; what its entries have in common goes to `l`.
void sched_project_queue_sort(struct sched_order *o, struct world_project *p, struct order_project *l);
