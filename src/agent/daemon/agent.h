// Shared by the files of the daemon only: its state and functions. Everything runs on one event loop; decisions are
// made in agent/logic, and agent/launch carries them out.
#pragma once
#include "agent/daemon/daemon.h"
#include "agent/launch/launcher.h"

enum {
    AGENT_DIAL_FIRST_MS = 100,
    AGENT_DIAL_MAX_MS = 10000,
    // With several controllers one that does not answer is left for the next at once.
    AGENT_DIAL_NEXT_MS = 400,
    REFUSED_AGAIN_MS = 60000,
    AGENT_DIAL_ANSWER_MS = 2000,
};

// What processes had used when somebody last looked: how busy they are is the difference.
struct process_time {
    uint32_t pid;
    uint64_t cpu_ms;
};
struct node_views {
    int64_t at_ms;
    VEC(struct process_time) times;
};

struct agent {
    struct agent_node shared;
    const struct agent_options *options;
    struct launcher *launcher;
    struct streams *streams;
    struct gpus *gpus;
    bool welcomed_once;
    struct message_skips skips;  // message types of a later controller
    struct tls_context *tls;
    int64_t dial_delay_ms;
    uint32_t controller;  // whose turn it is
    uint32_t refusals;    // in a row
    int64_t refused_ms;   // when one was last logged
    uint64_t kept_term;   // of the newest leader, as it lies on disk
    uv_timer_t tick, dial;
    uv_signal_t on_term, on_int, on_child;
    bool stopping;
    uint64_t open_files;  // the limit of descriptors before it was raised; 0: it was not
    const char *metrics_listen;  // "": none
    struct agent_metrics *metrics;
    struct node_views views;
};

// node_view.c: answers the question.
void agent_look(struct agent *a, const struct message_node_look *m);

// describe.c: the machine in words.
int agent_describe(struct agent *a, struct error *e);
