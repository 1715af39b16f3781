// The past, from the journal: the state as it was at a time, and the recorded decisions made again. The
// journal is played back on a thread of its own, one question at a time; the loop goes on meanwhile.
#pragma once
#include <stdatomic.h>

#include "api.h"

enum { PAST_EVENTS_MAX = 2000000, PAST_DIFFERENCES_MAX = 100 };

struct journal_replay_difference {
    uint64_t seq;
    int64_t at_ms;
    char recorded[120], now[120];
};

struct journal_replay_report {
    uint64_t events, passes, starts, preemptions;
    VEC(struct journal_replay_difference) differences;
    uint64_t different;  // passes
};

// A question that was asked, and its answer.
struct past {
    uv_work_t work;
    struct controller *controller;
    struct net_request *req;
    struct actor actor;
    char user[USER_NAME_MAX];
    uint64_t job;
    int64_t at_ms, began_us, grace_ms;
    bool compare;             // the decisions, too
    atomic_bool stop;
    void (*done)(struct past *p);
    struct core *core;        // as it was at at_ms
    struct journal_replay_report report;
    int result;               // 0, or with a sentence in `error`
    struct error error;
};

// Calls `done` on the loop when the state at at_ms is there, or (compare) all decisions were made again;
// answering the request is its business. -EAGAIN while another question is being answered, -EFBIG when
// the journal is too long.
int controller_journal_replay_ask(struct api_call *call, int64_t at_ms, bool compare,
                                  void (*done)(struct past *p), struct error *e);
void controller_journal_replay_stop(struct controller *c);  // what is being played back ends soon
