// The order matters: the lease is looked at before the journal is read. One that finds the lease to be its own then
// reads what its predecessor committed last, and nobody can commit anything after that.
#include "controller/leadership.h"

#include <errno.h>

static bool is_away(int code) {
    return code == -EPIPE || code == -ETIMEDOUT;
}

enum leadership_next leadership_follow(struct leadership *l, struct commit_pipeline *pipeline, bool may_claim,
                                       struct error *e) {
    struct store *store = pipeline_store(pipeline);
    store_poll(store);
    store_lease(store, &l->lease);
    int r = l->read ? pipeline_follow(pipeline, e) : pipeline_read(pipeline, e);
    // What was read stays read. A state of which only a part could be loaded is of no use.
    if (is_away(r) && l->read)
        return LEADERSHIP_FOLLOW;
    if (is_away(r) || r == -ESTALE)
        return LEADERSHIP_ANEW;
    if (r < 0)
        return LEADERSHIP_FAIL;
    l->read = true;
    if (l->lease.mine)
        return LEADERSHIP_LEAD;
    if (!l->claims && may_claim) {
        l->claims = true;
        store_claim(store);
    }
    return LEADERSHIP_FOLLOW;
}

enum leadership_next leadership_look(struct leadership *l, struct store *store, int64_t waited_ms,
                                     int64_t most_ms) {
    store_lease(store, &l->lease);
    if (l->lease.mine && l->lease.left_ms > 0)
        return LEADERSHIP_LEAD;
    return !l->lease.mine || waited_ms > most_ms ? LEADERSHIP_ANEW : LEADERSHIP_WAIT;
}
