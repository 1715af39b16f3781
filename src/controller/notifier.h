// Tells people about their jobs: composes mails and webhooks for committed events and hands them to acequia-notify, a
// child process. What is not acknowledged by it is sent again, also after a restart of the controller: the journal is
// read from the last event that everything before it was delivered (or given up) for.
#pragma once
#include "controller/commit_pipeline.h"

struct controller;
struct notifier;

enum {
    NOTIFIER_WAITING_MAX = 20000,     // composed and not acknowledged; beyond it new ones are dropped and counted
    NOTIFIER_PER_USER_HOUR = 200,     // messages, one for each address; the last one says that no more are sent
    NOTIFIER_RECOVER_EVENTS = 100000, // read back at most after a restart
};

// `program` NULL: acequia-notify, beside this one.
struct notifier *notifier_new(struct controller *c, const char *program);
struct notifier *notifier_free(struct notifier *n);
// Refuses webhooks to hosts that are not allowed, before the job is submitted.
int notifier_check(const struct controller *c, const struct spec *s, struct error *e);
void notifier_start(struct notifier *n);                            // after the journal is loaded
void notifier_event(struct notifier *n, const struct notice *what);  // committed
void notifier_tick(struct notifier *n);                             // once a second
const char *notifier_problem(const struct notifier *n);             // for status; NULL: none
