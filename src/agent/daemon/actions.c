// Owns carrying out the logic's actions: sending, launching, telling shepherds, removing.
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "agent.h"
#include "agent/node/container.h"
#include "base/clock.h"
#include "base/log.h"
#include "base/text.h"

// The node cannot launch it, whatever the job asks for: the controller queues the job again and gives this node
// fewer launches.
static void node_failed(struct agent *a, uint64_t id, uint32_t attempt, const char *text) {
    struct message_ended end = {.id = id, .attempt = attempt, .cause = END_NODE_FAIL, .launch_failed = true,
                                .end_ms = clock_wall_ms(), .reason = text};
    log_warn("job %llu: not started: %s", (unsigned long long)id, text);
    agent_logic_ended(a->shared.logic, &end);
}

static void launch_failed(struct agent *a, uint64_t id, uint32_t attempt, enum launch_code code,
                          const char *text) {
    cleanup_arena struct arena arena = {0};
    struct message_ended end = {
        .id = id, .attempt = attempt, .cause = END_LAUNCH, .exit_code = 127,
        .end_ms = clock_wall_ms(),
        .reason = arena_printf(&arena, LAUNCH_FAILED_WORDS "%s", text),
    };
    log_info("job %llu: not started (%s): %s", (unsigned long long)id, launch_code_name(code), text);
    agent_logic_ended(a->shared.logic, &end);
}

// What is done for a launch before the job's user is asked anything fails for the node's reasons, unless the
// request itself is wrong.
static bool node_is_to_blame(int rc) {
    switch (-rc) {
    case ENOSPC: case EDQUOT: case EROFS: case EIO: case ENOMEM: case EMFILE: case ENFILE: case EAGAIN: case EACCES:
    case EPERM: case ENOENT: case ENODEV: case ENOTDIR: case ESTALE: return true;
    default: return false;
    }
}

// The descriptors stay the caller's; a launch that has to wait keeps copies.
static bool wait_in_line(struct agent *a, uint64_t id, uint32_t attempt, const int *fds, int nfds) {
    struct waiting_launch w = {.id = id, .attempt = attempt, .fds = {-1, -1, -1}};
    for (; w.nfds < nfds; w.nfds++)
        if ((w.fds[w.nfds] = fcntl(fds[w.nfds], F_DUPFD_CLOEXEC, 3)) < 0) {
            while (w.nfds > 0)
                close(w.fds[--w.nfds]);
            return false;
        }
    vec_push(&a->handed_back, w);
    return true;
}

static void hand_over(struct agent *a, uint64_t id, uint32_t attempt, const int *fds, int nfds) {
    int rc = launch_shepherds_launch(a->shepherds, id, attempt, fds, nfds);
    if (rc == 0 || (rc == -EAGAIN && wait_in_line(a, id, attempt, fds, nfds)))
        return;
    struct spool_status s;
    spool_close_attempt(a->shared.spool_fd, id, attempt, ENDED_NEVER_STARTED, strerror(-rc),
                        clock_wall_ms(), &s);
    node_failed(a, id, attempt, strerror(-rc));
}

static void wait_for_user(struct agent *a, const struct agent_action *action) {
    struct unresolved_launch w = {.ncpus = action->ncpus, .until_ms = clock_mono_ms() + AGENT_USER_PATIENCE_MS};
    w.launch = schema_copy(message_info(MESSAGE_LAUNCH)->schema, action->launch, &w.arena);
    w.cpus = arena_memdup(&w.arena, action->cpus, action->ncpus * sizeof *w.cpus);
    w.origin = arena_memdup(&w.arena, action->origin, action->origin_len);
    w.origin_len = action->origin_len;
    vec_push(&a->unresolved, w);
}

static const char *members_folder(const struct agent *a, const struct message_launch *m,
                                  struct arena *arena) {
    char name[SPOOL_NAME_MAX];
    spool_name(name, m->id, m->attempt);
    return arena_printf(arena, "%s/%s/" SPOOL_MEMBERS, a->shared.spool_path, name);
}

static void launch(struct agent *a, const struct agent_action *action) {
    const struct message_launch *m = action->launch;
    cleanup_arena struct arena arena = {0};
    struct launch_request r;
    struct error e = {0};
    enum launch_code code;
    int fds[3] = {-1, -1, -1}, nfds = 0;
    int rc = agent_request_from_launch(&a->shared.request_node, a->shared.users, m, action->cpus,
                                       action->ncpus, clock_mono_ms(), &arena, &r, &code, &e);
    if (rc == -EINPROGRESS || rc == -ETIMEDOUT) {
        wait_for_user(a, action);
        return;
    }
    if (rc < 0) {
        launch_failed(a, m->id, m->attempt, code, e.text);
        return;
    }
    rc = agent_secrets_apply(a, m, &r, &arena, &e);
    if (rc < 0) {
        launch_failed(a, m->id, m->attempt, LAUNCH_REQUEST, e.text);
        agent_secrets_forget(a, m->id, m->attempt);
        return;
    }
    rc = gpus_grant(a->gpus, m, &r, &arena, &e);
    struct container_wish box = {m->spec->container, m->spec->container_mounts, m->spec->container_workdir};
    if (m->workers && !str_empty(box.image))  // seen in the container where it is outside
        box.mounts = arena_printf(&arena, "%s%s%s:%s:ro", str_empty(box.mounts) ? "" : box.mounts,
                                  str_empty(box.mounts) ? "" : ",", members_folder(a, m, &arena),
                                  members_folder(a, m, &arena));
    if (rc >= 0)
        rc = agent_container_apply(&a->shared.request_node, &r, &box, false, &arena, &e);
    if (rc >= 0 && m->spec->attach && r.ntasks)
        rc = nfds = streams_attach(a->streams, m, &r, fds, &e);
    if (rc >= 0)
        rc = spool_quota_take(&a->quota, m->id, m->attempt, r.uid,
                              spool_quota_bytes(&r, (m->script.len ? spool_file_bytes(m->script.len) : 0) +
                                                        agent_secrets_bytes(a, m)),
                              &e);
    if (rc >= 0)
        rc = spool_create(a->shared.spool_fd, &r, m->script.len ? m->script.data : NULL, m->script.len,
                          a->shared.node.boot_id, clock_wall_ms(), &e);
    bool created = rc >= 0;
    if (created && m->workers) {
        rc = spool_write_members(a->shared.spool_fd, m->id, m->attempt, m->workers->lines.data,
                                 m->workers->lines.len);
        if (rc < 0)
            error_set(&e, -rc, "the membership of its workers cannot be written: %s", strerror(-rc));
    }
    if (rc >= 0)
        rc = agent_secrets_write(a, m, &r, &e);
    if (created && rc < 0)
        spool_remove(a->shared.spool_fd, m->id, m->attempt);
    agent_secrets_forget(a, m->id, m->attempt);
    if (rc >= 0 && action->origin_len &&
        spool_write_origin(a->shared.spool_fd, m->id, m->attempt, action->origin, action->origin_len) < 0)
        log_warn("job %llu: what it was started from cannot be written; a controller whose state is restored will not "
                 "know it", (unsigned long long)m->id);
    if (rc == -EEXIST) {
        agent_check(a, m->id, m->attempt, true);  // known from before: it is where it is
    } else if (rc < 0) {
        gpus_forget(a->gpus, m->id, m->attempt);
        spool_quota_release(&a->quota, m->id, m->attempt);
        if (node_is_to_blame(rc))
            node_failed(a, m->id, m->attempt, e.text);
        else
            launch_failed(a, m->id, m->attempt, LAUNCH_REQUEST, e.text);
    } else {
        hand_over(a, m->id, m->attempt, fds, nfds);
        if (r.boxc)
            agent_image_watch(a, m->id, m->attempt);
    }
    for (int i = 0; i < nfds; i++)
        close(fds[i]);
}

bool agent_unresolved(const struct agent *a, uint64_t id, uint32_t attempt) {
    for (uint32_t i = 0; i < a->unresolved.len; i++)
        if (a->unresolved.at[i].launch->id == id && a->unresolved.at[i].launch->attempt == attempt)
            return true;
    return false;
}

// False while it has to wait.
static bool launch_resolved(struct agent *a, const struct unresolved_launch *w, int64_t now_ms) {
    struct agent_action action = {.launch = w->launch,
                                  .cpus = w->cpus,
                                  .ncpus = w->ncpus,
                                  .origin = w->origin,
                                  .origin_len = w->origin_len};
    const struct user_info *user;
    struct error e = {0};
    int rc = agent_request_user(a->shared.users, w->launch->spec, now_ms, &user, &e);
    bool silent = rc == -EINPROGRESS || rc == -ETIMEDOUT;
    if (silent && now_ms < w->until_ms)
        return false;
    if (silent)
        node_failed(a, w->launch->id, w->launch->attempt, "the node's directory of users does not answer");
    else
        launch(a, &action);
    return true;
}

void agent_users_changed(struct agent *a) {
    int64_t now_ms = clock_mono_ms();
    uint32_t kept = 0;
    for (uint32_t i = 0; i < a->unresolved.len; i++) {
        struct unresolved_launch w = a->unresolved.at[i];
        if (launch_resolved(a, &w, now_ms))
            arena_done(&w.arena);
        else
            a->unresolved.at[kept++] = w;
    }
    a->unresolved.len = kept;
    streams_users_changed(a->streams);
    agent_execute(a);
}

// True when it waited: it ends before it began.
static bool end_unresolved(struct agent *a, const struct agent_action *k) {
    struct message_ended end = {.id = k->id, .attempt = k->attempt, .cause = k->cause, .end_ms = clock_wall_ms(),
                                .reason = "ended before it began: its user was still being looked up"};
    for (uint32_t i = 0; i < a->unresolved.len; i++)
        if (a->unresolved.at[i].launch->id == k->id && a->unresolved.at[i].launch->attempt == k->attempt) {
            arena_done(&a->unresolved.at[i].arena);
            vec_remove(&a->unresolved, i);
            agent_logic_ended(a->shared.logic, &end);
            return true;
        }
    return false;
}

static bool too_young(int rc) {
    return rc == -ENOENT || rc == -ECONNREFUSED || rc == -EAGAIN;
}

// The reply is not waited for: what was sent is done, or the shepherd is gone and so is the job.
int agent_send_control(struct agent *a, uint64_t id, uint32_t attempt, const struct control_request *r) {
    int fd = launch_control_send(a->shared.spool_fd, id, attempt, r, NULL, 0);
    if (fd < 0)
        return fd;
    close(fd);
    return 0;
}

static void retry_soon(struct agent *a);

int agent_control(struct agent_node *n, uint64_t id, uint32_t attempt, const struct control_request *r) {
    struct agent *a = agent_of(n);
    int rc = agent_send_control(a, id, attempt, r);
    if (too_young(rc)) {
        struct waiting_control w = {.id = id, .attempt = attempt, .request = *r,
                                    .until_ms = clock_mono_ms() + AGENT_CONTROL_PATIENCE_MS};
        vec_push(&a->waiting, w);
        retry_soon(a);
        return 0;
    }
    return rc;
}

static void kill_attempt(struct agent *a, const struct agent_action *k) {
    if (!k->step && end_unresolved(a, k))
        return;
    if (k->checkpoint && agent_step_runner_checkpoint(a->step_runner, k, clock_mono_ms()))
        return;  // not told yet: the logic asks again
    struct control_request r = {.type = CONTROL_KILL, .step = k->step, .why = k->cause,
                                .signal = (int32_t)k->signal, .value_ms = k->grace_ms};
    if (k->step) {
        agent_control(&a->shared, k->id, k->attempt, &r);
        return;
    }
    if (agent_send_control(a, k->id, k->attempt, &r) == 0)
        agent_logic_kill_sent(a->shared.logic, k->id, k->attempt);
    else
        agent_check(a, k->id, k->attempt, true);  // gone, or too young: the logic asks again
}

// The logic asks again until the shepherd has been told.
static void tell_desired(struct agent *a, const struct agent_action *x, const struct control_request *r) {
    if (agent_send_control(a, x->id, x->attempt, r) == 0)
        agent_logic_told(a->shared.logic, x->id, x->attempt, x->type);
}

// Before the folder of an attempt goes: after a restart this is all that shows a controller which was restored from an
// older copy that the attempt may have run.
static void keep_seen(struct agent *a) {
    struct journal_position p = agent_logic_seen(a->shared.logic);
    uint64_t numbers[] = {p.epoch, p.seq, p.next_id};
    if (p.epoch == a->kept_seen.epoch && p.seq == a->kept_seen.seq)
        return;
    a->kept_seen = p;
    spool_write_seen(a->shared.spool_fd, numbers);
}

// A new membership of the worker's job; what it was told before, perhaps before this agent began, changes nothing.
static void write_members(struct agent *a, const struct agent_action *x) {
    const struct message_workers *m = x->message.body;
    struct control_request r = {.type = CONTROL_SIGNAL, .target = SIGNAL_ALL, .signal = (int32_t)m->signal};
    int rc = spool_write_members(a->shared.spool_fd, x->id, x->attempt, m->lines.data, m->lines.len);
    if (rc < 0)
        log_warn("job %llu: the membership of its workers cannot be written: %s", (unsigned long long)x->id,
                 strerror(-rc));
    else if (rc == 0 && m->signal)
        agent_control(&a->shared, x->id, x->attempt, &r);
}

static void carry_out(struct agent *a, const struct agent_action *x) {
    struct control_request r = {.signal = (int32_t)x->signal, .step = x->step};
    switch (x->type) {
    case AGENT_SEND:
        agent_send(&a->shared, x->message.type, x->message.body);
        break;
    case AGENT_LAUNCH:
        launch(a, x);
        break;
    case AGENT_KILL:
        kill_attempt(a, x);
        break;
    case AGENT_SIGNAL:
        r.type = CONTROL_SIGNAL;
        r.target = x->batch_only ? SIGNAL_MAIN : x->steps_only ? SIGNAL_STEPS : SIGNAL_ALL;
        agent_control(&a->shared, x->id, x->attempt, &r);
        break;
    case AGENT_TIME_LIMIT:
        r.type = CONTROL_TIME_LIMIT;
        r.signal = 0;
        r.value_ms = (int64_t)x->time_limit_s * 1000;
        tell_desired(a, x, &r);
        break;
    case AGENT_SUSPEND:
        r.type = x->resume ? CONTROL_RESUME : CONTROL_SUSPEND;
        r.signal = 0;
        tell_desired(a, x, &r);
        break;
    case AGENT_MEMBERS: write_members(a, x); break;
    case AGENT_REMOVE:
        keep_seen(a);
        gpus_forget(a->gpus, x->id, x->attempt);
        agent_ends_forget(a, x->id, x->attempt);
        spool_quota_release(&a->quota, x->id, x->attempt);
        agent_attempt_remove(a, x->id, x->attempt);
        break;
    case AGENT_STEP: agent_step_runner_start(a->step_runner, x->message.body, clock_mono_ms()); break;
    case AGENT_STEP_REMOVE: agent_step_remove(a, x->id, x->attempt, x->step); break;
    case AGENT_STREAM:
        streams_message(a->streams, &x->message);
        break;
    case AGENT_DISCONNECT:
        log_warn("the controller is silent; connecting anew");
        if (a->shared.ws)
            net_ws_abort(a->shared.ws);
        break;
    }
}

// Carrying out may bring about more (a launch that fails is an end to report): the list grows.
void agent_execute(struct agent *a) {
    if (a->executing)
        return;
    a->executing = true;
    const struct agent_actions *list = agent_logic_actions(a->shared.logic);
    for (uint32_t i = 0; i < list->list.len; i++) {
        struct agent_action x = list->list.at[i];
        carry_out(a, &x);
    }
    agent_logic_clear(a->shared.logic);
    a->executing = false;
    // Kills that found no listener are asked for again soon rather than at the next tick.
    if (a->handed_back.len || a->waiting.len || agent_step_runner_waits(a->step_runner))
        retry_soon(a);
}

static void on_retry(uv_timer_t *t) {
    agent_retry(t->data);
}

static void retry_soon(struct agent *a) {
    if (!a->stopping && !uv_is_active((uv_handle_t *)&a->retry))
        uv_timer_start(&a->retry, on_retry, AGENT_CONTROL_RETRY_MS, 0);
}

static void retry_launches(struct agent *a) {
    uint32_t n = a->handed_back.len;
    struct waiting_launch *list = a->handed_back.at;
    a->handed_back.at = NULL;
    a->handed_back.len = a->handed_back.cap = 0;
    for (uint32_t i = 0; i < n; i++) {
        hand_over(a, list[i].id, list[i].attempt, list[i].fds, list[i].nfds);
        for (int k = 0; k < list[i].nfds; k++)
            close(list[i].fds[k]);
    }
    free(list);
}

void agent_retry(struct agent *a) {
    int64_t now_ms = clock_mono_ms();
    retry_launches(a);
    agent_step_runner_retry(a->step_runner, now_ms);
    for (uint32_t i = 0; i < a->waiting.len;) {
        struct waiting_control *w = &a->waiting.at[i];
        int rc = agent_send_control(a, w->id, w->attempt, &w->request);
        bool over = agent_logic_phase(a->shared.logic, w->id, w->attempt) == AGENT_ENDED;
        bool patient = now_ms < w->until_ms || agent_unresolved(a, w->id, w->attempt);
        if (too_young(rc) && patient && !over)
            i++;
        else
            vec_remove(&a->waiting, i);
    }
    agent_execute(a);
}
