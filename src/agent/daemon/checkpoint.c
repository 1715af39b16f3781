// The command that saves a job's work before it is preempted. It is a step of the attempt with a number of its own,
// so it belongs to the shepherd: it runs once and to its end or to the end of the grace, whatever happens to this
// agent or to its connection. The kill waits for it; the logic asks again and again meanwhile.
#include <errno.h>
#include <string.h>

#include "agent.h"
#include "base/clock.h"
#include "base/log.h"

static int create(struct agent *a, const struct agent_action *k, struct error *e) {
    cleanup_arena struct arena arena = {0};
    struct launch_request parent, r;
    const char *argv[] = {"/bin/sh", "-c", k->checkpoint};
    struct message_exec x = {.id = k->id, .attempt = k->attempt, .argv = {argv, 3}, .tasks = 1, .total_tasks = 1};
    int rc = spool_read_request(a->shared.spool_fd, k->id, k->attempt, 0, &arena, &parent, e);
    if (rc == 0)
        rc = agent_request_from_exec(&a->shared.request_node, &parent, &x, SPOOL_CHECKPOINT_STEP, &arena, &r,
                                     e);
    return rc < 0 ? rc : spool_create_step(a->shared.spool_fd, &r, clock_wall_ms(), e);
}

// What it prints goes to /dev/null. A repeat is refused by the shepherd and does no harm.
static int start(struct agent *a, const struct agent_action *k) {
    struct control_request r = {.type = CONTROL_STEP, .step = SPOOL_CHECKPOINT_STEP};
    int rc = agent_send_control(a, k->id, k->attempt, &r);
    return rc == -ENOENT || rc == -ECONNREFUSED || rc == -EAGAIN ? 0 : rc;  // it listens in a moment
}

// When the kill stops waiting, by this agent's own count: also for a command that is never started.
static int64_t patience_until(struct agent *a, const struct agent_action *k, int64_t now_ms) {
    for (uint32_t i = 0; i < a->checkpointing.len; i++)
        if (a->checkpointing.at[i].id == k->id && a->checkpointing.at[i].attempt == k->attempt)
            return a->checkpointing.at[i].until_ms;
    if (a->checkpointing.len >= CHECKPOINTS_MAX)
        vec_remove(&a->checkpointing, 0);
    struct checkpointing c = {k->id, k->attempt, now_ms + k->grace_ms};
    vec_push(&a->checkpointing, c);
    return c.until_ms;
}

bool agent_checkpoint_first(struct agent *a, const struct agent_action *k) {
    int64_t now_ms = clock_mono_ms();
    struct spool_status s;
    struct error e = {0};
    if (agent_logic_phase(a->shared.logic, k->id, k->attempt) != AGENT_RUNNING ||
        now_ms >= patience_until(a, k, now_ms))
        return false;
    int rc = spool_read_status(a->shared.spool_fd, k->id, k->attempt, SPOOL_CHECKPOINT_STEP, &s);
    if (rc == 0 && s.state == SPOOL_ENDED)
        return false;
    if (rc == 0 && s.state == SPOOL_STARTED)  // maybe by an agent before this one
        return now_ms < s.started_mono_ms + k->grace_ms;
    if (rc == -ENOENT)
        rc = create(a, k, &e);
    if (rc == 0)
        rc = start(a, k);
    if (rc < 0 && rc != -EEXIST)
        log_warn("job %llu: its checkpoint command cannot be run: %s", (unsigned long long)k->id,
                 e.text[0] ? e.text : strerror(-rc));
    return rc == 0 || rc == -EEXIST;
}
