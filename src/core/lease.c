// Owns the leases of allocations and steps: jobs that are there for a client (salloc, srun), and steps of srun and
// exec, end when it does not come back. How long a client has been away is not journaled: a controller that was away
// cannot know, so every lease begins anew when it starts. It is counted in steps of the checks, not as a difference of
// two times: a controller that stood still could not be reached by anybody, and its clock may jump.
#include "model/reason.h"
#include "state.h"

enum { CHECK_EVERY_MS = 1000, LATE_MS = 1000, SWEEP_FROM = 1024 };

// Its job is there, in the attempt whose steps it is about.
static bool is_current(const struct core_job *j, const struct core_lease *l) {
    return j && (!l->attempt || (j->run && j->attempt == l->attempt));
}

// Whoever follows another controller never checks leases: what has ended is removed when the list has doubled.
void core_lease_add(struct core *c, uint64_t id, uint32_t attempt) {
    uint32_t len = c->leased.len, kept = 0;
    if (len >= SWEEP_FROM && !(len & (len - 1))) {
        for (uint32_t i = 0; i < len; i++)
            if (is_current(core_find_job(c, c->leased.at[i].id), &c->leased.at[i]))
                c->leased.at[kept++] = c->leased.at[i];
        c->leased.len = kept;
    }
    vec_push(&c->leased, ((struct core_lease){.id = id, .attempt = attempt}));
}

void core_lease_renew(struct core *c, uint64_t id) {
    for (uint32_t i = c->leased.len; i-- > 0;)
        if (c->leased.at[i].id == id && !c->leased.at[i].attempt) {
            c->leased.at[i].away_ms = 0;
            return;
        }
}

static void expire(struct core *c, struct core_job *j, int64_t now_ms) {
    char reason[64];
    struct event_job_ending how = {.cause = END_CANCEL, .reason = reason};
    REASON(reason, CLIENT_AWAY, SAY_NUMBER(j->sub->lease_s));
    if (!j->run)
        core_end_pending(c, j, JOB_CANCELLED, NULL, how.reason, now_ms);
    else if (!j->run->ending)
        core_begin_ending(c, j, &how, now_ms);
}

bool core_leases_due(const struct core *c, int64_t now_ms) {
    // A clock that was set back must not put the checks off.
    return c->leased.len && (now_ms >= c->next_lease_ms || c->next_lease_ms - now_ms > CHECK_EVERY_MS);
}

void core_leases_check(struct core *c, int64_t now_ms) {
    int64_t passed_ms = now_ms - (c->next_lease_ms - CHECK_EVERY_MS);
    if (passed_ms < 0 || passed_ms > CHECK_EVERY_MS + LATE_MS)
        passed_ms = CHECK_EVERY_MS;
    c->next_lease_ms = now_ms + CHECK_EVERY_MS;
    for (uint32_t i = c->leased.len; i-- > 0;) {
        struct core_lease *l = &c->leased.at[i];
        struct core_job *j = core_find_job(c, l->id);
        if (!is_current(j, l) || (l->attempt && !core_steps_leases_check(c, j, passed_ms, now_ms)))
            vec_remove(&c->leased, i);
        else if (!l->attempt && (l->away_ms += passed_ms) > (int64_t)j->sub->lease_s * 1000)
            expire(c, j, now_ms);
    }
}
