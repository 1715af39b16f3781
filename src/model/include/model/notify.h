// When somebody wants to hear of a job, and where. "end,fail" and "ana@example.org,https://hooks.example.org/x".
#pragma once
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/error.h"
#include "base/schema.h"

// Bits of a mask. The words are Slurm's --mail-type in small letters.
enum notify_when {
    NOTIFY_BEGIN = 1 << 0,
    NOTIFY_END = 1 << 1,
    NOTIFY_FAIL = 1 << 2,           // ended in any other way than COMPLETED
    NOTIFY_REQUEUE = 1 << 3,        // preempted, or its node failed, and queued again
    NOTIFY_TIME_LIMIT = 1 << 4,     // its time limit ended it
    NOTIFY_TIME_LIMIT_90 = 1 << 5,  // 90 % of its time limit is used
    NOTIFY_TIME_LIMIT_80 = 1 << 6,
    NOTIFY_TIME_LIMIT_50 = 1 << 7,
    NOTIFY_INVALID_DEPEND = 1 << 8, // a dependency can no longer be satisfied
    NOTIFY_ARRAY_TASKS = 1 << 9,    // for each element of an array instead of once for the whole
};
enum {
    NOTIFY_ALL = NOTIFY_BEGIN | NOTIFY_END | NOTIFY_FAIL | NOTIFY_REQUEUE | NOTIFY_INVALID_DEPEND,
    NOTIFY_TIME_WARNINGS = NOTIFY_TIME_LIMIT_90 | NOTIFY_TIME_LIMIT_80 | NOTIFY_TIME_LIMIT_50,
    NOTIFY_TARGETS_MAX = 8,
    NOTIFY_TEXT_MAX = 2000,
};

// One message on its way, as the controller tells acequia-notify: a line of JSON.
enum delivery_kind { DELIVERY_MAIL, DELIVERY_WEBHOOK };
struct delivery {
    uint64_t id;
    enum delivery_kind kind;
    const char *to;       // a mail address or user name; a URL
    const char *subject;  // of a mail
    const char *text;     // of a mail
    const char *body;     // of a webhook: JSON
};
extern const struct schema message_delivery_schema;

// `words` may be NULL or "none": 0. Capitals are accepted.
int spec_notify_parse(const char *words, uint32_t *mask, struct error *e);
// Checks a list of mail addresses (or local users) and URLs, separated by commas.
int spec_notify_targets_check(const char *targets, struct error *e);
bool spec_notify_target_is_url(const char *target, size_t len);
bool spec_notify_target_is_mail(const char *target, size_t len);
// The next target of a list: its length, 0 at the end. Call with *at = the list.
uint32_t spec_notify_target_next(const char **at, const char **target);
uint32_t spec_notify_time_percent(uint32_t mask,
                                  uint32_t after_percent);  // the next warning; 0: none is left
