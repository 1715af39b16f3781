// Owns carrying out the logic's actions: each is one case of carry_out. Launching has a file of its own (launch.c).
#include <errno.h>
#include <string.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/log.h"
#include "launcher_state.h"

static bool too_young(int rc) {
    return rc == -ENOENT || rc == -ECONNREFUSED || rc == -EAGAIN;
}

// The reply is not waited for: what was sent is done, or the shepherd is gone and so is the job.
int launcher_send_control(struct launcher *l, uint64_t id, uint32_t attempt,
                          const struct control_request *r) {
    int fd = launch_control_send(l->node->spool_fd, id, attempt, r, NULL, 0);
    if (fd < 0)
        return fd;
    close(fd);
    return 0;
}

static void retry_soon(struct launcher *l);

int launcher_control(struct launcher *l, uint64_t id, uint32_t attempt, const struct control_request *r) {
    int rc = launcher_send_control(l, id, attempt, r);
    if (too_young(rc)) {
        struct waiting_control w = {.id = id,
                                    .attempt = attempt,
                                    .request = *r,
                                    .until_ms = clock_mono_ms() + AGENT_CONTROL_PATIENCE_MS};
        vec_push(&l->waiting, w);
        retry_soon(l);
        return 0;
    }
    return rc;
}

static void kill_attempt(struct launcher *l, const struct agent_action *k) {
    if (!k->step && launcher_end_unresolved(l, k))
        return;
    if (k->checkpoint && agent_step_runner_checkpoint(l->step_runner, k, clock_mono_ms()))
        return;  // not told yet: the logic asks again
    struct control_request r = {.type = CONTROL_KILL,
                                .step = k->step,
                                .why = k->cause,
                                .signal = (int32_t)k->signal,
                                .value_ms = k->grace_ms};
    if (k->step) {
        launcher_control(l, k->id, k->attempt, &r);
        return;
    }
    if (launcher_send_control(l, k->id, k->attempt, &r) == 0)
        agent_logic_kill_sent(l->node->logic, k->id, k->attempt);
    else
        launcher_check(l, k->id, k->attempt, true);  // gone, or too young: the logic asks again
}

// The logic asks again until the shepherd has been told.
static void tell_desired(struct launcher *l, const struct agent_action *x, const struct control_request *r) {
    if (launcher_send_control(l, x->id, x->attempt, r) == 0)
        agent_logic_told(l->node->logic, x->id, x->attempt, x->type);
}

// Before the folder of an attempt goes: after a restart this is all that shows a controller which was restored from an
// older copy that the attempt may have run.
static void keep_seen(struct launcher *l) {
    struct journal_position p = agent_logic_seen(l->node->logic);
    uint64_t numbers[] = {p.epoch, p.seq, p.next_id};
    if (p.epoch == l->kept_seen.epoch && p.seq == l->kept_seen.seq)
        return;
    l->kept_seen = p;
    spool_write_seen(l->node->spool_fd, numbers);
}

// A new membership of the worker's job; what it was told before, perhaps before this agent began, changes nothing.
static void write_members(struct launcher *l, const struct agent_action *x) {
    const struct message_workers *m = x->message.body;
    struct control_request r = {.type = CONTROL_SIGNAL, .target = SIGNAL_ALL, .signal = (int32_t)m->signal};
    struct error e = {0};
    int rc = spool_quota_take_members(&l->quota, x->id, x->attempt, spool_members_bytes(m->lines.len), &e);
    if (rc == 0 &&
        (rc = spool_write_members(l->node->spool_fd, x->id, x->attempt, m->lines.data, m->lines.len)) < 0)
        spool_error(l->node->spool_fd, -rc, &e, "cannot be written");
    if (rc < 0)
        log_warn("job %llu: the membership of its workers cannot be written; it keeps the older one until it "
                 "can: %s",
                 (unsigned long long)x->id, e.text);
    else if (rc == 0 && m->signal)
        launcher_control(l, x->id, x->attempt, &r);
    if (rc < 0 && rc != -ENOENT)
        agent_logic_members_failed(l->node->logic, x->id, x->attempt, m, clock_mono_ms());
    else
        agent_logic_told(l->node->logic, x->id, x->attempt, AGENT_MEMBERS);
}

static void carry_out(struct launcher *l, const struct agent_action *x) {
    struct control_request r = {.signal = (int32_t)x->signal, .step = x->step};
    switch (x->type) {
    case AGENT_SEND: agent_send(l->node, x->message.type, x->message.body); break;
    case AGENT_LAUNCH: launcher_launch(l, x); break;
    case AGENT_KILL: kill_attempt(l, x); break;
    case AGENT_SIGNAL:
        r.type = CONTROL_SIGNAL;
        r.target = x->batch_only ? SIGNAL_MAIN : x->steps_only ? SIGNAL_STEPS : SIGNAL_ALL;
        launcher_control(l, x->id, x->attempt, &r);
        break;
    case AGENT_TIME_LIMIT:
        r.type = CONTROL_TIME_LIMIT;
        r.signal = 0;
        r.value_ms = (int64_t)x->time_limit_s * 1000;
        tell_desired(l, x, &r);
        break;
    case AGENT_SUSPEND:
        r.type = x->resume ? CONTROL_RESUME : CONTROL_SUSPEND;
        r.signal = 0;
        tell_desired(l, x, &r);
        break;
    case AGENT_MEMBERS: write_members(l, x); break;
    case AGENT_REMOVE:
        keep_seen(l);
        gpus_forget(l->gpus, x->id, x->attempt);
        launcher_ends_forget(l, x->id, x->attempt);
        spool_quota_release(&l->quota, x->id, x->attempt);
        launcher_attempt_remove(l, x->id, x->attempt);
        break;
    case AGENT_STEP: agent_step_runner_start(l->step_runner, x->message.body, clock_mono_ms()); break;
    case AGENT_STEP_HUB: launcher_step_hub(l, x); break;
    case AGENT_STEP_REMOVE: launcher_step_remove(l, x->id, x->attempt, x->step); break;
    case AGENT_STREAM: streams_message(l->streams, &x->message); break;
    case AGENT_DISCONNECT:
        log_warn("the controller has not been heard from; reconnecting");
        if (l->node->ws)
            net_ws_abort(l->node->ws);
        break;
    }
}

// Carrying out may bring about more (a launch that fails is an end to report): the list grows.
void launcher_execute(struct launcher *l) {
    if (l->executing)
        return;
    l->executing = true;
    const struct agent_actions *list = agent_logic_actions(l->node->logic);
    for (uint32_t i = 0; i < list->list.len; i++) {
        struct agent_action x = list->list.at[i];
        carry_out(l, &x);
    }
    agent_logic_clear(l->node->logic);
    l->executing = false;
    // Kills that found no listener are asked for again soon rather than at the next tick.
    if (l->handed_back.len || l->waiting.len || agent_step_runner_waits(l->step_runner))
        retry_soon(l);
}

static void on_retry(uv_timer_t *t) {
    launcher_retry(t->data);
}

static void retry_soon(struct launcher *l) {
    if (!l->stopping && !uv_is_active((uv_handle_t *)&l->retry_timer))
        uv_timer_start(&l->retry_timer, on_retry, LAUNCHER_RETRY_MS, 0);
}

void launcher_retry(struct launcher *l) {
    int64_t now_ms = clock_mono_ms();
    launcher_launch_again(l);
    agent_step_runner_retry(l->step_runner, now_ms);
    for (uint32_t i = 0; i < l->waiting.len;) {
        struct waiting_control *w = &l->waiting.at[i];
        int rc = launcher_send_control(l, w->id, w->attempt, &w->request);
        bool over = agent_logic_phase(l->node->logic, w->id, w->attempt) == AGENT_ENDED;
        bool patient = now_ms < w->until_ms || launcher_unresolved(l, w->id, w->attempt);
        if (too_young(rc) && patient && !over)
            i++;
        else
            vec_remove(&l->waiting, i);
    }
    launcher_execute(l);
}
