// Owns the numbers and the history of steps. What a step holds of its job is not state of the
// cluster: whoever starts it keeps that (controller/step.c), and it is gone when they are.
#include <signal.h>

#include "state.h"

uint32_t core_step_started(struct core *c, uint64_t id, const struct event_step *step, int64_t now_ms) {
    const struct core_job *j = core_find_job(c, id);
    if (!j || !j->run || j->run->ending || j->state == JOB_PENDING)
        return 0;
    struct event_step b = *step;
    b.id = id;
    b.attempt = j->attempt;
    b.step = j->steps + 1;
    b.state = JOB_RUNNING;
    core_emit(c, now_ms, EVENT_STEP_STARTED, &b);
    return b.step;
}

void core_step_ended(struct core *c, const struct event_step *end, int64_t now_ms) {
    struct event_step b = *end;
    core_emit(c, now_ms, EVENT_STEP_ENDED, &b);
}

void core_give_back(struct core *c, uint64_t id, int32_t exit_code, uint32_t exit_signal, int64_t now_ms) {
    struct core_job *j = core_find_job(c, id);
    if (!j || !j->run || j->run->ending)
        return;
    struct event_job_ending how = {
        .cause = END_EXIT, .signal = SIGKILL, .exit_code = exit_code, .exit_signal = exit_signal};
    core_begin_ending(c, j, &how, now_ms);
}
