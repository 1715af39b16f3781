// Owns finding out what became of attempts: by hints from shepherds, by looking at all of them now
// and then, and at the start by reading the spool. The spool is the truth, a hint only says where
// to look.
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "launcher_state.h"
#include "agent/gpu/saved_usage.h"
#include "base/cleanup.h"
#include "base/clock.h"
#include "base/log.h"
#include "base/text.h"
#include "cgroup/owners.h"
#include "cgroup/procs.h"
#include "model/reason.h"

enum { HINTS_AT_ONCE = 256, MARK_ROUNDS = 20, USAGE_TIMEOUT_MS = 100, USAGE_AT_ONCE = 64 };

static void report(struct launcher *l, const struct spool_status *s) {
    cleanup_arena struct arena arena = {0};
    struct message_ended end;
    agent_request_report(s, &arena, &end);
    gpus_usage(l->gpus, s->job, s->attempt, end.usage);
    gpus_release(l->gpus, s->job, s->attempt);
    agent_step_runner_attempt_ended(l->step_runner, s->job,
                                    s->attempt);  // before the job's: a step's end is news only while it runs
    agent_logic_ended(l->node->logic, &end);
    streams_attempt_ended(l->streams, s->job, s->attempt);
}

// Its shepherd is gone and left no end: kill what it watched over, then say so.
static void close_lost(struct launcher *l, struct spool_status *s, enum launch_end end, const char *text) {
    if (end != ENDED_REBOOT && s->state == SPOOL_STARTED) {
        if (cgroup_destroy(&l->node->site, s->cgroup, AGENT_LOST_PATIENCE_MS) < 0)
            log_warn("job %llu: some processes of a lost attempt could not be killed",
                     (unsigned long long)s->job);
        if (l->node->site.kind == CGROUP_NONE)
            for (int i = 0; i < MARK_ROUNDS && cgroup_procs_signal_marked(s->id, SIGKILL) > 0; i++)
                usleep(2000);
    }
    int rc = spool_close_attempt(l->node->spool_fd, s->job, s->attempt, end, text, clock_wall_ms(), s);
    if (rc < 0 && rc != -EALREADY && rc != -EBUSY)
        log_warn("job %llu: its end cannot be written: %s", (unsigned long long)s->job,
                 strerror(-rc));
}

static const char lost_text[] = "the process that watched over the job was killed";

// Only what says that there is no record any more, or that it cannot be read by anybody. Without free descriptors or
// memory this agent cannot look, and the attempt runs on.
static bool record_is_gone(int rc, bool alive) {
    return rc == -ENOENT || rc == -ENOTDIR || rc == -ELOOP || (rc == -EBADMSG && !alive);
}

// Nobody can report the attempt any more, so it must not run any more: its job is about to be started elsewhere.
static void kill_unrecorded(struct launcher *l, uint64_t id, uint32_t attempt) {
    char slot[CGROUP_NAME_MAX];
    pid_t shepherd;
    if (!cgroup_owners_shepherd(gpus_owners(l->gpus), id, attempt, &shepherd, slot))
        return;  // it was not seen to start; its shepherd notices by itself
    if (cgroup_destroy(&l->node->site, slot, AGENT_LOST_PATIENCE_MS) < 0)
        log_warn("job %llu: some processes of an attempt without a record could not be killed",
                 (unsigned long long)id);
    if (!cgroup_owners_has_open((uint32_t)shepherd, l->node->spool_path))
        return;  // it is gone, and its number may be somebody else's
    cgroup_procs_signal_tree(shepherd, SIGKILL, NULL, NULL);
    kill(shepherd, SIGKILL);
}

static void record_lost(struct launcher *l, uint64_t id, uint32_t attempt, int rc) {
    struct message_ended end = {.id = id,
                                .attempt = attempt,
                                .cause = END_NODE_FAIL,
                                .reason = reason_text(BECAUSE_RECORD_LOST)};
    log_error("job %llu: its record in the spool folder is gone (%s); its processes are killed",
              (unsigned long long)id, strerror(-rc));
    kill_unrecorded(l, id, attempt);
    gpus_release(l->gpus, id, attempt);
    agent_logic_ended(l->node->logic, &end);
}

// As its shepherd last wrote; read again at every look, since a hint may get lost.
static void check_health(struct launcher *l, uint64_t id, uint32_t attempt) {
    struct spool_health h;
    if (spool_read_health(l->node->spool_fd, id, attempt, &h) && h.health < HEALTH_COUNT)
        agent_logic_health(l->node->logic, id, attempt, (enum job_health)h.health,
                           *h.reason ? h.reason : NULL);
}

void launcher_check(struct launcher *l, uint64_t id, uint32_t attempt, bool look_alive) {
    struct spool_status s;
    enum agent_phase phase = agent_logic_phase(l->node->logic, id, attempt);
    if ((phase != AGENT_LAUNCHING && phase != AGENT_RUNNING) || launcher_unresolved(l, id, attempt))
        return;
    bool alive = true;
    int rc = look_alive ? spool_look(l->node->spool_fd, id, attempt, &s, &alive)
                        : spool_read_status(l->node->spool_fd, id, attempt, 0, &s);
    if (rc < 0 && record_is_gone(rc, alive))
        record_lost(l, id, attempt, rc);
    else if (rc < 0 && clock_mono_ms() - l->unreadable_ms >= LAUNCHER_UNREADABLE_MS) {
        l->unreadable_ms = clock_mono_ms();
        log_error("job %llu: its record in the spool folder cannot be read now (%s); it runs on, and its end "
                  "is found "
                  "as soon as that is over",
                  (unsigned long long)id, strerror(-rc));
    }
    if (rc < 0)
        return;
    // Its shepherd alone would write its end: without one it is lost.
    if (s.state == SPOOL_STARTED && !alive)
        close_lost(l, &s, ENDED_LOST, lost_text);
    if (s.state == SPOOL_STARTED) {
        gpus_started(l->gpus, &s);
        agent_logic_started(l->node->logic, id, attempt, (uint32_t)s.first_pid, s.started_wall_ms);
    }
    if (s.state == SPOOL_STARTED && look_alive)
        check_health(l, id, attempt);
    if (s.state == SPOOL_ENDED)
        report(l, &s);
}

// Killed before it wrote that it began: nothing has run, and another may have it. If it lives in
// the hands of another after all, the lock decides.
static void check_orphan(struct launcher *l, uint64_t id, uint32_t attempt) {
    struct spool_status s;
    bool alive;
    launcher_check(l, id, attempt, true);
    if (agent_logic_phase(l->node->logic, id, attempt) != AGENT_LAUNCHING ||
        spool_look(l->node->spool_fd, id, attempt, &s, &alive) < 0 || alive || s.state != SPOOL_CREATED)
        return;
    struct waiting_launch w = {.id = id, .attempt = attempt};
    vec_push(&l->handed_back, w);
}

static void step_hint(struct launcher *l, const struct spool_hint *h) {
    if (h->state == SPOOL_OUTPUT)
        streams_changed(l->streams, h->job, h->attempt, h->step);
    else if ((h->state == SPOOL_ENDED || h->state == SPOOL_MPI) && h->step < AGENT_STEPS_BELOW)
        agent_step_runner_check(l->step_runner, h->job, h->attempt, h->step);
}

void launcher_read_hints(struct launcher *l) {
    struct spool_hint h[HINTS_AT_ONCE];
    ssize_t n;
    do {
        n = read(l->hints_fd, h, sizeof h);
        for (ssize_t i = 0; i < n / (ssize_t)sizeof h[0]; i++) {
            if (h[i].state == SPOOL_HEALTH) {
                check_health(l, h[i].job, h[i].attempt);
                continue;
            }
            if (h[i].step || h[i].state == SPOOL_OUTPUT) {
                step_hint(l, &h[i]);
                continue;
            }
            if (h[i].state == SPOOL_ORPHANED)
                check_orphan(l, h[i].job, h[i].attempt);
            else
                launcher_check(l, h[i].job, h[i].attempt, false);
        }
    } while (n == sizeof h);
    launcher_execute(l);
}

struct name_list_ctx {
    VEC(uint64_t) names;
};

static void collect(void *ctx, uint64_t id, uint32_t attempt, enum agent_phase phase) {
    struct name_list_ctx *c = ctx;
    if (phase == AGENT_LAUNCHING || phase == AGENT_RUNNING) {
        vec_push(&c->names, id);
        vec_push(&c->names, attempt);
    }
}

void launcher_look(struct launcher *l) {
    struct name_list_ctx c = {0};
    agent_logic_each(l->node->logic, collect, &c);
    for (uint32_t i = 0; i + 1 < c.names.len; i += 2)
        launcher_check(l, c.names.at[i], (uint32_t)c.names.at[i + 1], true);
    vec_done(&c.names);
    agent_step_runner_look(l->step_runner);
    launcher_execute(l);
}

// It ended while there was no agent: what the last one counted on its GPUs.
static void add_kept(struct launcher *l, struct message_ended *end) {
    struct usage u;
    if (gpus_saved_usage_read(l->node->spool_fd, end->id, end->attempt, &u))
        usage_add(end->usage, &u);
}

static void recover_origin(struct launcher *l, const struct spool_status *s) {
    cleanup_arena struct arena arena = {0};
    const void *data;
    size_t len;
    if (spool_read_origin(l->node->spool_fd, s->job, s->attempt, 0, &arena, &data, &len) == 0)
        agent_logic_recover_origin(l->node->logic, s->job, s->attempt, data, len);
}

static void recover_one(void *ctx, const struct spool_status *found, bool alive) {
    struct launcher *l = ctx;
    struct spool_status s = *found;
    struct launch_request r = {0};
    struct message_ended end;
    cleanup_arena struct arena arena = {0};
    if (s.state != SPOOL_ENDED && !streq(s.boot_id, l->node->node.boot_id))
        close_lost(l, &s, ENDED_REBOOT, "the machine was restarted");
    else if (s.state == SPOOL_STARTED && !alive)
        close_lost(l, &s, ENDED_LOST, lost_text);
    if (s.state == SPOOL_ENDED) {
        agent_request_report(&s, &arena, &end);
        add_kept(l, &end);
        agent_logic_recover(l->node->logic, s.job, s.attempt, s.started_wall_ms, 0, NULL, 0, &end);
        recover_origin(l, &s);
        return;
    }
    spool_read_request(l->node->spool_fd, s.job, s.attempt, 0, &arena, &r, NULL);
    spool_quota_note(&l->quota, s.job, s.attempt, r.uid,
                     spool_quota_bytes(&r, spool_texts_bytes(l->node->spool_fd, s.job, s.attempt)));
    spool_quota_note_members(&l->quota, s.job, s.attempt,
                             spool_members_held(l->node->spool_fd, s.job, s.attempt));
    agent_logic_recover(l->node->logic, s.job, s.attempt, s.state == SPOOL_STARTED ? s.started_wall_ms : 0,
                        (uint32_t)s.first_pid, r.cpus, r.ncpus, NULL);
    recover_origin(l, &s);
    if (s.state == SPOOL_STARTED)
        check_health(l, s.job, s.attempt);
    launcher_step_recover(l, s.job, s.attempt);
    gpus_recover(l->gpus, &r);
    if (r.boxc)
        launcher_image_watch(l, s.job, s.attempt);
    if (s.state == SPOOL_STARTED)
        gpus_started(l->gpus, &s);
    // Not taken by any shepherd yet. If an old one takes it after all, the lock decides.
    if (s.state == SPOOL_CREATED && !alive) {
        struct waiting_launch w = {.id = s.job, .attempt = s.attempt};
        vec_push(&l->handed_back, w);
    }
}

void launcher_scan(struct launcher *l) {
    struct error e = {0};
    uint64_t seen[3];
    spool_read_seen(l->node->spool_fd, seen);
    agent_logic_recover_seen(
        l->node->logic, &(struct journal_position){.epoch = seen[0], .seq = seen[1], .next_id = seen[2]});
    if (spool_scan(l->node->spool_fd, recover_one, l, &e) < 0)
        log_error("%s", e.text);
    cgroup_tidy(&l->node->site);
    launcher_retry(l);
}

static void ask_usage(struct launcher *l, uint64_t id, uint32_t attempt) {
    struct spool_status s;
    struct control_request r = {.type = CONTROL_USAGE};
    struct control_reply reply;
    int fd = launch_control_send(l->node->spool_fd, id, attempt, &r, NULL, 0);
    if (fd < 0 || launch_control_receive(fd, USAGE_TIMEOUT_MS, &reply) < 0)
        return;
    struct usage u = agent_request_usage(&reply.usage);
    gpus_usage(l->gpus, id, attempt, &u);
    struct message_usage m = {.id = id,
                              .attempt = attempt,
                              .usage = &u,
                              .memory_now_bytes = reply.memory_now_bytes,
                              .processes = reply.processes,
                              .preparing = launcher_image_preparing(l, id, attempt, &s),
                              .progress_known = reply.progress_milli >= 0,
                              .progress_milli = reply.progress_milli > 0 ? (uint32_t)reply.progress_milli : 0,
                              .progress_text = reply.progress_text};
    agent_send(l->node, MESSAGE_USAGE, &m);
}

// Some of them at every tick, so that all have had their turn after the interval.
void launcher_report_usage(struct launcher *l, int64_t now_ms) {
    struct name_list_ctx c = {0};
    uint32_t every_s = agent_logic_usage_every_s(l->node->logic);
    if (!l->node->open || !every_s)
        return;
    agent_logic_each(l->node->logic, collect, &c);
    uint32_t n = c.names.len / 2;
    uint32_t turns = every_s * 1000 / LAUNCHER_TICK_MS;
    uint32_t share = n / turns + 1;
    if (share > USAGE_AT_ONCE)
        share = USAGE_AT_ONCE;
    // Few of them: only as often as asked for.
    if (n && n < turns && now_ms < l->usage_done_ms + (int64_t)every_s * 1000 / n)
        share = 0;
    for (uint32_t i = 0; i < share && n; i++) {
        uint32_t k = l->usage_at++ % n;
        ask_usage(l, c.names.at[2 * k], (uint32_t)c.names.at[2 * k + 1]);
        l->usage_done_ms = now_ms;
    }
    vec_done(&c.names);
}
