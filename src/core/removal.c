// Owns the removal of pending jobs that can never start in time, or never at all.
#include "removal.h"

#include "state.h"

// Could the pending job not end before its deadline even if it started now?
static bool deadline_missed(const struct core *c, const struct core_job *j, int64_t now_ms) {
    int64_t limit_ms = world_request_limit_ms(c->world, j->sub->request);
    return now_ms + (limit_ms == INT64_MAX ? 1 : limit_ms) > j->sub->deadline_ms;
}

bool core_may_be_removed(const struct submission *s) {
    return s->deadline_ms || s->remove_invalid;
}

static bool remove_one(struct core *c, struct core_job *j, int64_t now_ms) {
    if (j->state != JOB_PENDING || core_is_worker(j))
        return false;
    if (j->sub->deadline_ms && deadline_missed(c, j, now_ms))
        core_end_pending(c, j, JOB_DEADLINE, NULL, "it did not start early enough to end before its deadline",
                         now_ms);
    else if (j->sub->remove_invalid && j->flags & DEPENDENCY_NEVER)
        core_end_pending(c, j, JOB_CANCELLED, NULL, "its dependency can no longer be satisfied", now_ms);
    else
        return false;
    return true;
}

// Jobs that missed their deadline or wait for what cannot happen. Looked for once a second at most, only while there
// may be some, and in slices: the next call goes on where this one ended.
void core_removals(struct core *c, int64_t now_ms) {
    enum { LOOKS_MAX = 50000 };
    uint32_t looks = 0, ends = 0, at = core_order_after(c, c->deadline_next);
    while (at < c->order.len && looks++ < LOOKS_MAX && ends < core_slice()) {
        struct core_order entry = c->order.at[at++];
        c->deadline_next = entry.id;
        if (entry.job && core_may_be_removed(entry.job->sub) && remove_one(c, entry.job, now_ms)) {
            ends++;
            at = core_order_after(c, entry.id);  // entries of ended jobs may have been dropped
        }
    }
    bool all = at >= c->order.len;
    if (all)
        c->deadline_next = 0;
    c->next_deadline_ms = now_ms + (all ? 1000 : 0);
}
