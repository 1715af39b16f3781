// The scheduling rules, checked from the journal alone: which job may be placed where and when, and that no job
// passes an older one that asks for the same. Independent of the scheduler.
#pragma once
#include <stdbool.h>
#include <stdint.h>

#include "base/arena.h"
#include "base/map.h"
#include "base/vec.h"
#include "model/event.h"

struct rule_node {
    const char *name;
    struct arena arena;
    struct node *node;
    bool up, drained, removed, paused;
    uint64_t memory_bytes;
    uint32_t cpus, gpus_milli[32];
    // The same of optional workers, which count as free for all others.
    uint64_t optional_bytes;
    uint32_t optional_cpus, optional_milli[32];
};

struct rule_project {
    const char *name;
    bool deleted, has_limit;
    uint64_t limit_milli, used_milli;
};

struct rule_job {
    bool uncreated;  // an element with a reserved id only
    const char *partition;  // all it names
    bool tried;             // it was placed before
    bool held_user, held_admin, placed, ending, ended, ok, began, taker, promised;
    uint64_t array, like;  // like: the same for jobs that ask for the same
    uint32_t array_limit;
    bool licensed, holds_seat;  // asks for a seat of the only license there is; has one
    int64_t submit_ms, begin_ms;
    int64_t
        asked_ms;  // the begin that its spec asks for; begin_ms is the end of a pause when it is run again
    const char *project;
    const char *dependency;  // text, NULL: none
    uint64_t job;            // of a worker: its elastic job
    bool optional;           // placed as an optional worker
    struct event_job_placed *at;  // while placed
    bool part_ended[8];
};

struct rules {
    VEC(struct rule_node *) nodes;
    VEC(struct rule_project) projects;
    VEC(struct rule_job) jobs;  // by id - 1
    bool partition_down;
    uint32_t seats, seats_held;  // of the license
    const char *small_nodes;  // of the other partition
    int64_t latest_ms;          // the controller's clock has been here; it may go back
    struct arena arena;
    // Judged when the decision is complete: others may make room in the same one.
    uint64_t passed, passed_by, limited;  // jobs
    int64_t judge_ms;
    char broken[300];           // the first rule that was broken; empty: none
};

void rules_done(struct rules *r);
// Of a worker: on its first node and on the others.
uint32_t rules_worker_parts(const struct placed_worker *w, struct part *out, uint32_t most);
void rules_event(struct rules *r, const struct event *e);
