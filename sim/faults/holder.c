// Clients of allocations (salloc, srun alone): they hold a session with the controller, come back after cuts, stay
// away for a while, or end without a word. The lease itself is the product's (src/core/lease.c).
#include "fault_sim.h"
#include "seams.h"
#include "state.h"

enum { TURN_MS = 4000, SILENT_MS = CORE_CLIENT_SILENT_MS };

static struct sim_holder *holder_of(struct sim *s, uint32_t item) {
    for (uint32_t i = 0; i < s->holders.len; i++)
        if (s->requests.at[s->holders.at[i].request].item == item)
            return &s->holders.at[i];
    return NULL;
}

void holder_begin(struct sim *s, const struct request *q, uint32_t lease_s) {
    struct sim_holder h = {.request = q->number, .id = q->id, .lease_s = lease_s};
    vec_push(&s->holders, h);
    holder_turn(s, &s->holders.at[s->holders.len - 1]);
}

// After a restore its node has reported the job: it is found by the key of its submit.
static void find_again(struct sim *s, struct sim_holder *h) {
    const struct request *q = &s->requests.at[h->request];
    const struct job_shape *j = s->plan->items.at[q->item].job;
    uint64_t id = 0, found = 0;
    for (uint32_t i = 0; i < s->check.jobs.len && !id; i++) {
        const struct told *t = &s->check.jobs.at[i];
        if (t->submitted && !t->ended && t->adopted && t->item == q->item &&
            core_find_job(s->head->core, i + 1))
            id = i + 1;
    }
    bool known = q->key[0] && core_key_job(s->head->core, client_user(j), q->key, head_wall_ms(s), &found);
    if (id && q->key[0] && !known && core_feature(s->head->core, FEATURE_KEYS))
        sim_fail(s, "the client of job %llu, which was adopted, does not find it by its key",
                 (unsigned long long)id);
    const struct told *same = check_told(&s->check, h->id);
    if (known || id)
        h->id = known ? found : id;
    else if (same && same->item != q->item)
        h->id = 0;  // another job has its number now
}

// Its connection is looked at, and opened again if it is gone: a controller that is there has a session then.
void holder_turn(struct sim *s, struct sim_holder *h) {
    if (h->gone || h->closed)
        return;
    if (s->now_ms >= h->back_ms && head_reachable(s)) {
        if (s->restored)
            find_again(s, h);
        h->session_life = s->head->life;
        h->heard_ms = head_mono_ms(s);
    }
    after(s, some_ms(s, TURN_MS / 2, TURN_MS), HAPPEN_HOLDER, (uint32_t)(h - s->holders.at), 0, 0);
}

void holder_item(struct sim *s, const struct item *it) {
    struct sim_holder *h = holder_of(s, it->target);
    if (!h || h->gone || h->closed)
        return;
    switch (it->amount % 4) {
    case 0:  // killed: the controller sees the connection end, if there is one
        h->gone = true;
        h->session_life = 0;
        break;
    case 1: h->gone = true; break;  // its machine lost power: the session looks open
    case 2:
        h->back_ms = s->now_ms + it->for_ms;
        if (it->pick % 2)
            h->session_life = 0;
        break;
    default:
        if (!s->head->core || h->session_life != s->head->life)
            return;
        h->closed = h->gone = true;  // when the controller dies before it is recorded, the lease ends it
        core_give_back(s->head->core, h->id, 0, 0, head_wall_ms(s));
        head_touched(s);
        break;
    }
    if (h->gone)
        h->gone_ms = s->now_ms;
    note(s, "client: the holder of job %llu %s", (unsigned long long)h->id,
         h->closed ? "gives it back"
         : h->gone ? "has ended"
                   : "is away");
}

void holders_renew(struct sim *s) {
    for (uint32_t i = 0; i < s->holders.len; i++) {
        struct sim_holder *h = &s->holders.at[i];
        struct job_view v;
        if (h->session_life != s->head->life || h->closed || head_mono_ms(s) - h->heard_ms >= SILENT_MS)
            continue;
        core_lease_renew(s->head->core, h->id);
        if (core_view(s->head->core, h->id, &v) && v.state != JOB_COMPLETING && s->served == s->head)
            h->renewed_awake_ms = head_awake_ms(s);
    }
}

// A controller that was away cannot know who was there: every lease has its full term.
void holders_head_started(struct sim *s) {
    for (uint32_t i = 0; i < s->holders.len; i++)
        s->holders.at[i].renewed_awake_ms = head_awake_ms(s);
}
