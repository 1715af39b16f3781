// Owns the leases of allocations: jobs that are there for a client (salloc, srun) and end when it does not
// come back. When a client was last seen is not journaled: a controller that was away cannot know, so every
// lease begins anew when it starts.
#include "state.h"

enum { CHECK_EVERY_MS = 1000, STALL_MS = 5000 };

void core_lease_renew(struct core *c, uint64_t id, int64_t now_ms) {
    for (uint32_t i = c->leased.len; i-- > 0;)
        if (c->leased.at[i].id == id) {
            c->leased.at[i].seen_ms = now_ms;
            return;
        }
}

static void expire(struct core *c, struct core_job *j, int64_t now_ms) {
    cleanup_arena struct arena a = {0};
    struct event_job_ending how = {
        .cause = END_CANCEL,
        .reason = arena_printf(&a, "its client was not connected for %u s", j->sub->lease_s)};
    if (!j->run)
        core_end_pending(c, j, JOB_CANCELLED, NULL, how.reason, now_ms);
    else if (!j->run->ending)
        core_begin_ending(c, j, &how, now_ms);
}

void core_leases_check(struct core *c, int64_t now_ms) {
    // Time in which the controller itself stood still counts for no lease: nobody could renew one.
    int64_t late_ms = c->next_lease_ms ? now_ms - c->next_lease_ms : 0;
    int64_t given_ms = late_ms > STALL_MS ? late_ms : 0;
    c->next_lease_ms = now_ms + CHECK_EVERY_MS;
    for (uint32_t i = c->leased.len; i-- > 0;) {
        struct core_lease *l = &c->leased.at[i];
        struct core_job *j = core_find_job(c, l->id);
        if (!j)
            vec_remove(&c->leased, i);
        else if (!l->seen_ms || (l->seen_ms += given_ms) > now_ms)
            l->seen_ms = now_ms;
        else if (now_ms - l->seen_ms > (int64_t)j->sub->lease_s * 1000)
            expire(c, j, now_ms);
    }
}
