// What the machine does for steps (agent/logic/step_runner.h decides): requests in the attempts' folders, orders to
// shepherds, and what the folders say became of them.
#include <errno.h>
#include <stdio.h>
#include <string.h>

#include "launcher_state.h"
#include "base/clock.h"
#include "base/log.h"
#include "base/text.h"
#include "launch/mpi.h"
#include "launch/relay.h"

enum { REPLY_TIMEOUT_MS = 1000 };

// What a checkpoint command prints goes to /dev/null; steps have streams.
static void add_streams(const struct message_exec *m, struct launch_request *r) {
    if (m->step == SPOOL_CHECKPOINT_STEP)
        return;
    r->relay = true;
    r->relay_input = true;
    r->tty = m->pty;
    r->rows = m->rows;
    r->columns = m->columns;
    for (uint32_t t = 0; m->input_rank && t < r->ntasks; t++)
        if (r->tasks[t].rank != m->input_rank - 1)
            r->tasks[t].in = "/dev/null";
}

static int create(void *ctx, const struct message_exec *m, struct error *e) {
    struct launcher *l = ctx;
    cleanup_arena struct arena arena = {0};
    struct launch_request parent, r;
    int rc = spool_read_request(l->node->spool_fd, m->id, m->attempt, 0, &arena, &parent, e);
    if (rc == -ENOENT && agent_logic_phase(l->node->logic, m->id, m->attempt) == AGENT_LAUNCHING)
        return -EAGAIN;  // the job itself is not in the spool yet
    if (rc == 0)
        rc = agent_request_from_exec(&l->node->request_node, &parent, m, m->step, &arena, &r, e);
    if (rc < 0)
        return rc;
    add_streams(m, &r);
    struct spool_event event = {m->seq, m->epoch};
    rc = spool_create_step(l->node->spool_fd, &r, &event, clock_wall_ms(), e);
    if (rc == 0 && m->origin.len)  // without it the step cannot be adopted after a restore: no reason to fail
        spool_write_origin(l->node->spool_fd, m->id, m->attempt, m->step, m->origin.data, m->origin.len);
    return rc;
}

static int start(void *ctx, uint64_t id, uint32_t attempt, uint32_t step) {
    struct launcher *l = ctx;
    struct control_request r = {.type = CONTROL_STEP, .step = step};
    struct control_reply reply;
    if (step == SPOOL_CHECKPOINT_STEP)  // asked for again while the kill waits: the reply is not waited for
        return launcher_send_control(l, id, attempt, &r);
    int fd = launch_control_send(l->node->spool_fd, id, attempt, &r, NULL, 0);
    return fd < 0 ? fd : launch_control_receive(fd, REPLY_TIMEOUT_MS, &reply);
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

static void describe_end(struct launcher *l, const struct spool_status *st, struct arena *arena,
                         struct step_end *out) {
    uint32_t n = st->ntasks <= LAUNCH_TASKS_MAX ? st->ntasks : 0;
    int32_t *exits = arena_alloc(arena, (n + 1) * sizeof *exits);
    int known = spool_read_exits(l->node->spool_fd, st->job, st->attempt, st->step, exits, n);
    const char *words = end_words(st);
    struct usage *used = arena_alloc(arena, sizeof *used);
    *used = agent_request_usage(&st->usage);
    *out = (struct step_end){.id = st->job,
                             .attempt = st->attempt,
                             .step = st->step,
                             .cause = agent_request_cause(st),
                             .exit_code = st->exit_code,
                             .exit_signal = (uint32_t)st->signal,
                             .task = st->failed_rank,
                             .error = words ? arena_strdup(arena, words) : NULL,
                             .usage = used,
                             .exits = {(uint32_t *)exits, known > 0 ? (uint32_t)known : 0}};
    struct relay_page *page = launch_relay_map(l->node->spool_fd, st->job, st->attempt, st->step);
    if (page)
        out->output_bytes = atomic_load(&page->out_bytes) + atomic_load(&page->out_lost);
    launch_relay_unmap(page);
}

// What the step's MPI helper has left with the shepherd for the other nodes.
static const struct message_step_hub *listens(struct launcher *l, const struct spool_status *st,
                                              struct arena *arena) {
    struct mpi_note n;
    if (spool_mpi_read(l->node->spool_fd, st->job, st->attempt, st->step, SPOOL_MPI_OWN, &n) < 0)
        return NULL;
    struct message_step_hub *m = arena_alloc(arena, sizeof *m);
    m->port = n.port;
    m->key = (struct bytes){arena_memdup(arena, n.key, sizeof n.key), sizeof n.key};
    return m;
}

void launcher_step_hub(struct launcher *l, const struct agent_action *x) {
    const struct message_step_hub *m = x->message.body;
    struct control_request r = {.type = CONTROL_MPI, .step = x->step};
    struct mpi_note n = {.type = MPI_HUB, .port = m->port};
    const char *address = str_empty(m->address) ? l->node->controller_host : m->address;
    if (m->key.len != sizeof n.key)
        return;
    memcpy(n.key, m->key.data, sizeof n.key);
    bool bracket = address && address[0] == '[';
    snprintf(n.address, sizeof n.address, "%s", str_empty(address) ? "127.0.0.1" : address + bracket);
    n.address[strcspn(n.address, "]")] = 0;
    if (spool_mpi_write(l->node->spool_fd, x->id, x->attempt, x->step, SPOOL_MPI_HUB, &n) == 0)
        launcher_control(l, x->id, x->attempt, &r);
    explicit_bzero(&n, sizeof n);
}

static void describe(struct launcher *l, const struct spool_status *st, struct arena *arena,
                     struct agent_step_look *out) {
    struct spool_event event = spool_step_event(l->node->spool_fd, st->job, st->attempt, st->step);
    *out = (struct agent_step_look){.state = st->state == SPOOL_CREATED   ? AGENT_STEP_CREATED
                                             : st->state == SPOOL_STARTED ? AGENT_STEP_STARTED
                                                                          : AGENT_STEP_OVER,
                                    .started_mono_ms = st->started_mono_ms,
                                    .origin = {.epoch = event.epoch, .seq = event.seq}};
    if (out->state == AGENT_STEP_OVER)
        describe_end(l, st, arena, &out->end);
    else if (out->state == AGENT_STEP_STARTED)
        out->listens = listens(l, st, arena);
}

static int look(void *ctx, uint64_t id, uint32_t attempt, uint32_t step, struct arena *arena,
                struct agent_step_look *out) {
    struct launcher *l = ctx;
    struct spool_status st;
    int rc = spool_read_status(l->node->spool_fd, id, attempt, step, &st);
    if (rc == -ENOENT)
        *out = (struct agent_step_look){.state = AGENT_STEP_ABSENT};
    else if (rc == 0)
        describe(l, &st, arena, out);
    return rc == -ENOENT ? 0 : rc;
}

static void ended(void *ctx, const struct step_end *end) {
    struct launcher *l = ctx;
    streams_changed(l->streams, end->id, end->attempt, end->step);
}

static void warn(void *ctx, uint64_t id, const char *text) {
    log_warn("job %llu: its checkpoint command cannot be run: %s", (unsigned long long)id, text);
}

const struct agent_step_host launcher_step_host = {create, start, look, ended, warn, SPOOL_CHECKPOINT_STEP};

static void recover_one(void *ctx, const struct spool_status *st) {
    struct launcher *l = ctx;
    cleanup_arena struct arena arena = {0};
    struct agent_step_look found;
    const void *origin;
    size_t len;
    describe(l, st, &arena, &found);
    if (spool_read_origin(l->node->spool_fd, st->job, st->attempt, st->step, &arena, &origin, &len) == 0)
        found.origin.data = (struct bytes){origin, len};
    agent_step_runner_recover(l->step_runner, st->job, st->attempt, st->step, &found, clock_mono_ms());
}

void launcher_step_recover(struct launcher *l, uint64_t id, uint32_t attempt) {
    if (spool_scan_steps(l->node->spool_fd, id, attempt, recover_one, l) < 0)
        log_warn("job %llu: its steps cannot be read from the spool folder", (unsigned long long)id);
}

// --- after the end ---

static bool is_wanted(struct launcher *l, uint64_t id, uint32_t attempt, uint32_t step) {
    struct relay_page *page = launch_relay_map(l->node->spool_fd, id, attempt, step);
    bool wanted = page && atomic_load(&page->out_acked) < atomic_load(&page->out_len);
    launch_relay_unmap(page);
    return wanted;
}

static void remove_attempt(struct launcher *l, uint64_t id, uint32_t attempt) {
    if (l->streams)
        streams_times_keep(l->streams, id, attempt);
    if (spool_remove(l->node->spool_fd, id, attempt) < 0)
        log_warn("job %llu: its spool folder cannot be removed", (unsigned long long)id);
}

static void keep(struct launcher *l, uint64_t id, uint32_t attempt, uint32_t step) {
    struct leftover x = {id, attempt, step, clock_mono_ms() + LAUNCHER_LEFTOVER_MS};
    if (l->leftovers.len >= LAUNCHER_LEFTOVERS_MAX)
        l->leftovers.at[0].until_ms = 0;  // goes at the next look
    vec_push(&l->leftovers, x);
}

void launcher_step_remove(struct launcher *l, uint64_t id, uint32_t attempt, uint32_t step) {
    if (is_wanted(l, id, attempt, step))
        keep(l, id, attempt, step);
    else
        spool_remove_step(l->node->spool_fd, id, attempt, step);
}

static bool has_leftovers(const struct launcher *l, uint64_t id, uint32_t attempt) {
    for (uint32_t i = 0; i < l->leftovers.len; i++)
        if (l->leftovers.at[i].step && l->leftovers.at[i].id == id && l->leftovers.at[i].attempt == attempt)
            return true;
    return false;
}

void launcher_attempt_remove(struct launcher *l, uint64_t id, uint32_t attempt) {
    if (has_leftovers(l, id, attempt))
        keep(l, id, attempt, 0);
    else
        remove_attempt(l, id, attempt);
}

void launcher_leftovers_check(struct launcher *l, int64_t now_ms) {
    uint32_t kept = 0;
    for (uint32_t i = 0; i < l->leftovers.len; i++) {
        struct leftover x = l->leftovers.at[i];
        if (x.step && (now_ms >= x.until_ms || !is_wanted(l, x.id, x.attempt, x.step)))
            spool_remove_step(l->node->spool_fd, x.id, x.attempt, x.step);
        else
            l->leftovers.at[kept++] = x;
    }
    l->leftovers.len = kept;
    for (uint32_t i = l->leftovers.len; i-- > 0;) {
        struct leftover x = l->leftovers.at[i];
        if (x.step || has_leftovers(l, x.id, x.attempt))
            continue;
        vec_remove(&l->leftovers, i);
        remove_attempt(l, x.id, x.attempt);
    }
}
