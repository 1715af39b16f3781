// Nodes that cannot launch jobs for reasons of their own: a full spool or disk, a user directory that does not
// answer, control groups that cannot be made. The job goes back to the queue unharmed (report.c); the node gets no
// launches for a while, twice as long after every failure, and is then tried again by itself. The first attempt that
// starts there clears the count.
#include <stdlib.h>

#include "base/text.h"
#include "pauses.h"
#include "state.h"

enum {
    PAUSE_FIRST_MS = 5000,
    PAUSE_MAX_MS = 30 * 60 * 1000,
};

static int64_t pause_ms(uint32_t failures) {
    int64_t ms = PAUSE_FIRST_MS;
    for (uint32_t i = 1; i < failures && ms < PAUSE_MAX_MS; i++)
        ms *= 2;
    return ms < PAUSE_MAX_MS ? ms : PAUSE_MAX_MS;
}

static void emit(struct core *c, const struct node_entry *n, uint32_t failures, int64_t retry_ms, const char *reason,
                 const char *by, int64_t now_ms) {
    struct event_node_launches b = {
        .name = n->name, .failures = failures, .retry_ms = retry_ms, .reason = reason, .by = by};
    core_emit(c, now_ms, EVENT_NODE_LAUNCHES, &b);
}

void core_node_launch_failed(struct core *c, struct node_entry *n, const char *reason, int64_t now_ms) {
    // Others of the same burst fail for the same reason: they count once.
    if (!core_feature(c, FEATURE_NODE_HEALTH) || n->retry_ms)
        return;
    uint32_t failures = n->launch_failures < UINT16_MAX ? n->launch_failures + 1 : n->launch_failures;
    emit(c, n, failures, now_ms + pause_ms(failures), reason, NULL, now_ms);
}

void core_node_launch_worked(struct core *c, struct node_entry *n, int64_t now_ms) {
    if (n->launch_failures && !n->retry_ms)
        emit(c, n, 0, 0, NULL, NULL, now_ms);
}

void core_node_trust(struct core *c, struct node_entry *n, const char *by, int64_t now_ms) {
    if (n->launch_failures)
        emit(c, n, 0, 0, NULL, by, now_ms);
}

void core_node_retries(struct core *c, int64_t now_ms) {
    for (uint32_t i = 0; i < c->node_list.len; i++) {
        struct node_entry *n = c->node_list.at[i];
        if (!n->removed && n->retry_ms && n->retry_ms <= now_ms)
            emit(c, n, n->launch_failures, 0, n->launch_reason, NULL, now_ms);
    }
}

void core_node_pauses_end(struct core *c, int64_t now_ms) {
    for (uint32_t i = 0; i < c->node_list.len; i++) {
        struct node_entry *n = c->node_list.at[i];
        if (!n->removed && n->retry_ms - now_ms > pause_ms(n->launch_failures))
            emit(c, n, n->launch_failures, 0, n->launch_reason, NULL, now_ms);
    }
}

void core_apply_node_launches(struct core *c, struct node_entry *n, const struct event_node_launches *b) {
    char *reason = b->reason ? xstrdup(b->reason) : NULL;  // may be the one that is replaced
    free(n->launch_reason);
    n->launch_reason = reason;
    n->launch_failures = b->failures;
    n->retry_ms = b->retry_ms;
    c->next_retry_ms = INT64_MAX;
    for (uint32_t i = 0; i < c->node_list.len; i++)
        if (c->node_list.at[i]->retry_ms && c->node_list.at[i]->retry_ms < c->next_retry_ms)
            c->next_retry_ms = c->node_list.at[i]->retry_ms;
}
