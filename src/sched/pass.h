// One scheduling pass under way. Starts are tried on the world itself and taken back at the end, so
// a pass sees its own decisions and leaves no trace but caches.
#pragma once
#include "fitcache.h"
#include "internal.h"

// A part of a planned job: from `from_ms` on, `tasks` of its tasks must fit on the node.
struct part {
    uint32_t node, next;  // next: 1 + index of another part on the same node
    int64_t from_ms;
    const struct request *request;
    uint32_t tasks;
    struct job *job;
};

// What a job that waits for others to end was promised.
struct promise {
    struct job *job;
    struct request *request;  // its own, or the option it was made for
    struct alloc *alloc;
    struct alloc *withheld;  // the part of it that is free now
};

struct pass {
    struct world *w;
    const struct policy *policy;
    int64_t now_ms;
    struct decisions *out;
    VEC(struct part) parts;
    VEC(struct promise) promises;
    VEC(struct job *) vacating;    // victims: ending already or chosen in this pass
    VEC(uint32_t) special;         // nodes whose `special` is set
    uint8_t plans[SCHED_PARTITIONS_MAX];  // made per partition
    bool closed[SCHED_PARTITIONS_MAX];    // strict order and somebody is blocked
    bool any_plan, choice_planned;
    const struct job *placing;     // a job with a planned start is tried elsewhere: its plan is not in its way
    uint32_t over_moves;           // when `over` was looked at
    bool over;                     // some project is above its share or quota
    uint64_t running_pass;
    uint32_t running_projects;     // with running jobs, when running_pass is this pass
    uint32_t victims_from;         // world's victims before it are vacating
    VEC(struct fit *) ranked;      // classes whose nodes are in a heap
    VEC(uint8_t) gives;            // by project: may have to give to the taker at hand …
    VEC(int64_t) gives_most;       // … so many milli-GPU at most
    int64_t gives_all;             // and all together
    VEC(uint16_t) freeable;        // by node: GPUs that giving projects' jobs hold
    uint64_t freeable_for;         // hash of who gives and what moved since
    struct map reclaims_failed;    // taker's place, project and rights → moves made by then
    struct map above;  // jobs above the taker at hand → 1 + the kind of steps it takes (preemption_order.c)
    VEC(struct fit *) classes;     // of all requests in the order
    uint32_t moves;                // starts, victims and promises so far
    bool served;                   // some job got its decision before the order was made
    bool all;                      // for tests: nobody is left out
    bool again;                    // reclaim freed something: earlier failures do not count
};

// place.c
struct spot {
    uint32_t node, tasks;
};
struct alloc *place(struct pass *p, struct request *r);  // NULL: not now
struct alloc *place_build(const struct world *w, const struct request *r, struct spot *spots, uint32_t n,
                          enum policy_placement how);
void place_done(struct pass *p);  // forgets the heaps
int64_t place_score(const struct pass *p, const struct fit *f, const struct node *n, uint32_t tasks);

// plan.c
// A copy of a node that can be changed freely.
struct scratch {
    struct node node;
    struct gpu gpus[SCHED_GPUS_MAX];
};
void scratch_copy(struct scratch *s, const struct node *n);
void scratch_give(struct scratch *s, const struct job *j);
void plan_windows(struct pass *p);                     // marks nodes of reservations
// Gives the job a planned start as the one of these requests with which it is soonest; NULL: with none.
struct request *plan_make(struct pass *p, struct job *j, struct request *const *among, uint32_t count);
bool plan_allows(struct pass *p, const struct request *r, const struct node *n, uint32_t tasks);
bool window_allows(const struct world *w, const struct request *r, uint32_t node, int64_t at_ms, int64_t limit_ms);
void plan_clear(struct pass *p);

// trial.c: decisions tried on the world, and taken back
// `r`: the job's request, or the option it starts in.
void trial_start(struct pass *p, struct job *j, struct request *r, struct alloc *a, bool backfill);
void trial_vacate(struct pass *p, struct job *victim);
// Owns a; the victims are those that make room for it.
void trial_promise(struct pass *p, struct job *j, struct request *r, struct alloc *a, struct job *const *victims,
                   uint32_t n);
// Places as if these had ended.
struct alloc *trial_place_without(struct pass *p, struct request *r, struct job *const *victims, uint32_t n);
void trial_undo(struct pass *p);
void project_use(struct world *w, struct project *p, const int64_t held[DIMS_MAX], bool fixed, int sign);

// eligibility.c: whether a request's next job may start at all, apart from resources
enum sched_reason gate(const struct pass *p, const struct request *r);
void request_refresh(struct world *w, struct request *r);  // limit, priority, tier, … after changes
int64_t user_load(const struct world *w, struct user *u, int64_t now_ms);

// decide.c
bool pass_strict(const struct pass *p, const struct request *r);  // nobody passes a blocked job

// choice.c: of a job with several partitions, about the one at hand
// Could another of them have it now? `now`: only those whose turn is the same, so that it starts there next.
bool choice_room(struct pass *p, const struct job *j, struct request *r, bool now);
struct request *choice_cheapest(struct pass *p, struct job *j, struct request *r);       // to take others' place in
// Gives it a planned start in the partition at hand or in one whose turn is the same; NULL: in none.
struct request *choice_plan(struct pass *p, struct job *j, struct request *r);

// preemption_order.c: finds the jobs above the taker (pass.above); false: it never made room for any
bool gave_above(struct pass *p, const struct job *taker);
struct sched_gave gave_grounds(struct world *w, const struct job *victim, const struct job *taker,
                               enum sched_claim claim);

// reclaim.c
bool reclaim(struct pass *p, struct job *j, struct request *r);
uint32_t reclaim_count(struct pass *p, struct job *j, struct request *r);  // victims it would take; 0: none would do
bool reclaim_hope(struct pass *p);  // somebody is above share or quota
