// Parts of a job of several nodes after a restore of an older copy. The first node that describes the attempt makes it
// a job again (adopt.c), with the parts of those other nodes that may still report theirs. A node that was not among
// them (given up at that time, unknown to the copy, or full by the copy's account) describes its part later: it joins
// the same job, in the place that it had, with its steps. A part whose job has ended meanwhile becomes a job of its
// own.
#include "base/text.h"
#include "state.h"

static bool is_same_attempt(const struct core_job *j, const struct message_launch *l) {
    return j && j->run && j->run->adopted && !core_is_group(j) && core_agent_job(j) == l->id &&
           j->attempt == l->attempt && j->run->epoch == l->epoch && j->run->seq == l->seq;
}

static struct core_job *find(const struct core *c, const struct message_launch *l) {
    struct core_job *j = core_find_job(c, l->id);
    if (is_same_attempt(j, l))
        return j;
    for (uint32_t i = 0; i < l->parts.len; i++) {
        const struct node_entry *n = l->parts.at[i].node ? core_find_node(c, l->parts.at[i].node) : NULL;
        for (uint32_t k = 0; n && k < n->jobs.len; k++)
            if (is_same_attempt(n->jobs.at[k], l))
                return n->jobs.at[k];
    }
    return NULL;
}

// Parts keep the order of the launch: the first one is where the batch script and the ports are.
static uint32_t place_of(struct core_job *j, const struct message_launch *l, const char *node) {
    uint32_t place = 0;
    for (uint32_t i = 0; i < l->parts.len && !streq(l->parts.at[i].node, node); i++)
        place += l->parts.at[i].node && core_part_on(j, l->parts.at[i].node);
    return place;
}

bool core_adopt_part(struct core *c, const struct node_entry *n, const struct message_launch *l, int64_t now_ms) {
    struct core_job *j = core_feature(c, FEATURE_ADOPTED_PARTS) && l->parts.len > 1 ? find(c, l) : NULL;
    if (!j || core_part_on(j, n->name) || (core_is_worker(j) && core_worker_of(j)->flags & GROUP_PIECE))
        return false;
    struct event_part_adopted b = {
        .id = j->id, .attempt = j->attempt, .place = place_of(j, l, n->name), .part = l->part};
    core_emit(c, now_ms, EVENT_PART_ADOPTED, &b);
    core_steps_ask_again(c, j, n->name);
    return true;
}
