// Owns starting steps inside running attempts and finding out how they ended. The step's request lies in
// the attempt's folder before the shepherd is asked to start it, so a restarted agent asks again; the
// shepherd starts it once. The status in the folder is the truth, a hint only says where to look.
#include <errno.h>
#include <string.h>

#include "agent.h"
#include "base/clock.h"
#include "base/log.h"

enum { REPLY_TIMEOUT_MS = 1000 };

static void not_started(struct agent *a, const struct step_start *s, const char *why) {
    struct step_end end = {.id = s->id, .attempt = s->attempt, .step = s->step, .cause = END_LAUNCH, .exit_code = 1,
                           .error = why};
    agent_logic_step_ended(a->shared.logic, &end);
}

// Asks the shepherd. False: it does not listen yet.
static bool hand_over(struct agent *a, const struct step_start *s, int64_t now_ms) {
    struct control_request r = {.type = CONTROL_STEP, .step = s->step};
    struct control_reply reply;
    cleanup_arena struct arena arena = {0};
    int fd = launch_control_send(a->shared.spool_fd, s->id, s->attempt, &r, NULL, 0);
    bool young = fd == -ENOENT || fd == -ECONNREFUSED || fd == -EAGAIN;
    bool over = agent_logic_phase(a->shared.logic, s->id, s->attempt) == AGENT_ENDED;
    if (young && !over && now_ms < s->until_ms)
        return false;
    int rc = fd < 0 ? fd : launch_control_receive(fd, REPLY_TIMEOUT_MS, &reply);
    if (rc < 0 && rc != -EEXIST && rc != -EALREADY && rc != -ETIMEDOUT) {
        const char *why = rc == -ESHUTDOWN || young ? "the job is ending" : strerror(-rc);
        not_started(a, s, arena_printf(&arena, "cannot be started inside the job: %s", why));
    }
    return true;
}

static void start_later(struct agent *a, uint64_t id, uint32_t attempt, uint32_t step) {
    struct step_start s = {id, attempt, step, clock_mono_ms() + AGENT_CONTROL_PATIENCE_MS};
    if (!hand_over(a, &s, clock_mono_ms()))
        vec_push(&a->step_starts, s);
}

void agent_step_start(struct agent *a, const struct message_exec *m) {
    cleanup_arena struct arena arena = {0};
    struct launch_request parent, r;
    struct error e = {0};
    struct step_start s = {m->id, m->attempt, m->step, 0};
    int rc = spool_read_request(a->shared.spool_fd, m->id, m->attempt, 0, &arena, &parent, &e);
    if (rc == 0)
        rc = agent_request_from_exec(&a->shared.request_node, &parent, m, m->step, &arena, &r, &e);
    if (rc == 0) {
        r.relay = true;
        r.relay_input = true;
        r.tty = m->pty;
        r.rows = m->rows;
        r.columns = m->columns;
        for (uint32_t t = 0; m->input_rank && t < r.ntasks; t++)
            if (r.tasks[t].rank != m->input_rank - 1)
                r.tasks[t].in = "/dev/null";
        rc = spool_create_step(a->shared.spool_fd, &r, clock_wall_ms(), &e);
    }
    if (rc < 0 && rc != -EEXIST)
        not_started(a, &s, e.text);
    else
        start_later(a, m->id, m->attempt, m->step);
}

void agent_step_retry(struct agent *a) {
    int64_t now_ms = clock_mono_ms();
    uint32_t kept = 0;
    for (uint32_t i = 0; i < a->step_starts.len; i++) {
        struct step_start s = a->step_starts.at[i];
        if (!hand_over(a, &s, now_ms))
            a->step_starts.at[kept++] = s;
    }
    a->step_starts.len = kept;
}

static const char *end_words(const struct spool_status *st) {
    switch (st->end) {
    case ENDED_LAUNCH_FAILED:
    case ENDED_OUT_OF_MEMORY: return st->text;
    case ENDED_TIMEOUT: return "over its time limit";
    case ENDED_NONE:
    case ENDED_LOST: return "ended together with its job";
    default: return NULL;
    }
}

static void report(struct agent *a, const struct spool_status *st, agent_step_report_fn *tell) {
    uint32_t n = st->ntasks <= LAUNCH_TASKS_MAX ? st->ntasks : 0;
    cleanup_arena struct arena arena = {0};
    int32_t *exits = arena_alloc(&arena, (n + 1) * sizeof *exits);
    int known = spool_read_exits(a->shared.spool_fd, st->job, st->attempt, st->step, exits, n);
    struct usage used = {.cpu_user_us = st->usage.user_us, .cpu_system_us = st->usage.system_us,
                         .memory_peak_bytes = st->usage.peak_bytes,
                         .wall_ms = st->usage.wall_ms > 0 ? (uint64_t)st->usage.wall_ms : 0};
    struct step_end end = {.id = st->job,
                           .attempt = st->attempt,
                           .step = st->step,
                           .cause = agent_request_cause(st),
                           .exit_code = st->exit_code,
                           .exit_signal = (uint32_t)st->signal,
                           .task = st->failed_rank,
                           .error = end_words(st),
                           .usage = &used,
                           .exits = {(uint32_t *)exits, known > 0 ? (uint32_t)known : 0}};
    tell(a, &end);
}

static void tell_ended(struct agent *a, const struct step_end *end) {
    agent_logic_step_ended(a->shared.logic, end);
    streams_step_changed(a->streams, end->id, end->attempt, end->step);
}

void agent_step_check(struct agent *a, uint64_t id, uint32_t attempt, uint32_t step) {
    struct spool_status st;
    if (agent_steps_phase(agent_logic_steps(a->shared.logic), id, attempt, step) != AGENT_STEP_RUNNING)
        return;
    if (spool_read_status(a->shared.spool_fd, id, attempt, step, &st) == 0 && st.state == SPOOL_ENDED)
        report(a, &st, tell_ended);
}

struct step_look {
    struct agent *agent;
    uint64_t id;  // 0: of all attempts
    uint32_t attempt;
    bool close;   // the attempt has ended: whatever has no end yet gets one
    VEC(struct step_start) list;
};

static void collect(void *ctx, uint64_t id, uint32_t attempt, uint32_t step) {
    struct step_look *l = ctx;
    if (!l->id || (l->id == id && l->attempt == attempt))
        vec_push(&l->list, (struct step_start){.id = id, .attempt = attempt, .step = step});
}

static void look(struct step_look *l) {
    struct agent *a = l->agent;
    agent_steps_each_running(agent_logic_steps(a->shared.logic), collect, l);
    for (uint32_t i = 0; i < l->list.len; i++) {
        const struct step_start *s = &l->list.at[i];
        agent_step_check(a, s->id, s->attempt, s->step);
        struct step_end lost = {.id = s->id, .attempt = s->attempt, .step = s->step, .cause = END_NODE_FAIL,
                                .exit_code = 1, .error = "ended together with its job"};
        if (l->close)
            tell_ended(a, &lost);  // no news when its end was found
    }
    vec_done(&l->list);
}

void agent_step_look(struct agent *a) {
    struct step_look l = {.agent = a};
    look(&l);
}

void agent_step_attempt_ended(struct agent *a, uint64_t id, uint32_t attempt) {
    struct step_look l = {.agent = a, .id = id, .attempt = attempt, .close = true};
    look(&l);
}

static void recover_end(struct agent *a, const struct step_end *end) {
    agent_logic_step_recover(a->shared.logic, end->id, end->attempt, end->step, end);
}

static void recover_one(void *ctx, const struct spool_status *st) {
    struct agent *a = ctx;
    if (st->step >= STEP_RUNNER_NUMBERS)
        return;  // of a command whose stream is gone
    if (st->state == SPOOL_ENDED) {
        report(a, st, recover_end);
        return;
    }
    agent_logic_step_recover(a->shared.logic, st->job, st->attempt, st->step, NULL);
    if (st->state == SPOOL_CREATED)
        start_later(a, st->job, st->attempt, st->step);
}

void agent_step_recover(struct agent *a, uint64_t id, uint32_t attempt) {
    if (spool_scan_steps(a->shared.spool_fd, id, attempt, recover_one, a) < 0)
        log_warn("job %llu: its steps cannot be read from the spool folder", (unsigned long long)id);
}
