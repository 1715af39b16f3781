// Owns the table of attempts and every decision about them. No clock, no randomness, no I/O; the
// order of everything that leaves is the order in which attempts came.
#include "agent/logic/logic.h"

#include <assert.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>

#include "base/alloc.h"
#include "base/map.h"
#include "base/text.h"
#include "model/feature.h"
#include "model/reason.h"

enum { PROTOCOL = 1, ATTEMPT_BITS = 20, DEFAULT_GRACE_S = 30 };

struct agent_attempt {
    uint64_t id;
    uint32_t attempt;
    enum agent_phase phase;
    uint32_t pid;
    int64_t start_ms;
    uint32_t *cpus;
    uint32_t ncpus;
    struct arena arena;         // of end and checkpoint
    struct message_ended *end;  // once ended
    uint64_t epoch, seq;        // of the event that placed it; 0: the controller has no epochs
    const void *origin;         // what it was told to start, encoded, for a controller that does not know it
    size_t origin_len;
    bool kill, kill_sent;
    enum end_cause kill_cause;
    uint32_t kill_signal, kill_grace_ms;
    const char *kill_checkpoint;  // in the arena
    const char *stop_reason;      // of our own decision; in the arena
    int64_t kill_next_ms;
    // What the controller wants of it besides: kept until the shepherd has been told.
    enum { UNCHANGED, WANTED, TOLD } limit_state, suspend_state;
    uint32_t time_limit_s;
    bool suspended;
    int64_t limit_next_ms, suspend_next_ms;
    enum job_health health;       // as its shepherd last said
    char *health_reason;          // NULL: none
    uint64_t members_generation;  // of the membership of its elastic job that it was last told
    struct message_workers *members;  // one that could not be written, in an arena of its own; NULL: none
    struct arena members_arena;
    int64_t members_next_ms;
};

// An attempt that is over. After a restore of the controller's state another may have the same number,
// with a later epoch.
struct forgotten {
    uint64_t key, epoch;
};

// They come just before their launch, are kept in memory until it is carried out, and overwritten then.
struct launch_secrets {
    struct arena arena;
    struct message_secrets *message;
};

struct agent_logic {
    VEC(struct agent_attempt *) entries;
    struct map index;
    struct map forgotten;        // key -> 1 + place in `ring`
    VEC(struct forgotten) ring;  // once it is full, the oldest is overwritten
    uint32_t ring_at;
    uint8_t *cpu_used;
    uint32_t cpus;
    bool connected, welcomed;
    int64_t heard_ms, hub_next_ms;
    uint32_t heartbeat_s, usage_every_s, grace_s;
    struct journal_position seen;  // the newest that a controller has told
    uint64_t term;                 // likewise, of a leader; 0: none has one
    struct agent_steps *steps;
    VEC(struct launch_secrets) secrets;   // of launches to come, oldest first
    VEC(struct launch_secrets) attached;  // to the actions of now
    struct agent_actions actions;
    struct arena images_arena;
    struct message_node_images *images;  // what the node holds; NULL: not known yet
};

static uint64_t key_of(uint64_t id, uint32_t attempt) {
    return id << ATTEMPT_BITS | (attempt & ((1u << ATTEMPT_BITS) - 1));
}

struct agent_logic *agent_logic_new(uint32_t cpus) {
    struct agent_logic *l = xcalloc(1, sizeof *l);
    l->cpus = cpus;
    l->cpu_used = xcalloc(cpus + 1, 1);
    l->grace_s = DEFAULT_GRACE_S;
    l->steps = agent_steps_new();
    return l;
}

static void drop_members(struct agent_attempt *e) {
    arena_done(&e->members_arena);
    e->members_arena = (struct arena){0};
    e->members = NULL;
}

static void attempt_free(struct agent_attempt *e) {
    drop_members(e);
    arena_done(&e->arena);
    free(e->health_reason);
    free(e->cpus);
    free(e);
}

static void secrets_done(struct launch_secrets *s) {
    message_wipe(&(struct message){MESSAGE_SECRETS, s->message});
    arena_done(&s->arena);
}

static void detach_secrets(struct agent_logic *l) {
    while (l->attached.len)
        secrets_done(&l->attached.at[--l->attached.len]);
}

struct agent_logic *agent_logic_free(struct agent_logic *l) {
    if (!l)
        return NULL;
    detach_secrets(l);
    vec_done(&l->attached);
    for (uint32_t i = 0; i < l->secrets.len; i++)
        secrets_done(&l->secrets.at[i]);
    vec_done(&l->secrets);
    for (uint32_t i = 0; i < l->entries.len; i++)
        attempt_free(l->entries.at[i]);
    vec_done(&l->entries);
    vec_done(&l->actions.list);
    arena_done(&l->actions.arena);
    map_done(&l->index);
    map_done(&l->forgotten);
    agent_steps_free(l->steps);
    free(l->cpu_used);
    vec_done(&l->ring);
    arena_done(&l->images_arena);
    free(l);
    return NULL;
}

const struct agent_actions *agent_logic_actions(const struct agent_logic *l) {
    return &l->actions;
}

void agent_logic_clear(struct agent_logic *l) {
    vec_clear(&l->actions.list);
    detach_secrets(l);
    arena_done(&l->actions.arena);
    l->actions.arena = (struct arena){0};
}

static struct agent_attempt *find(const struct agent_logic *l, uint64_t id, uint32_t attempt) {
    return map_get(&l->index, key_of(id, attempt));
}

static struct agent_attempt *add(struct agent_logic *l, uint64_t id, uint32_t attempt) {
    struct agent_attempt *e = xcalloc(1, sizeof *e);
    e->id = id;
    e->attempt = attempt;
    e->phase = AGENT_LAUNCHING;
    vec_push(&l->entries, e);
    map_put(&l->index, key_of(id, attempt), e);
    return e;
}

// A launch of a later epoch is another attempt.
static bool is_forgotten(const struct agent_logic *l, uint64_t id, uint32_t attempt, uint64_t epoch) {
    uintptr_t at = (uintptr_t)map_get(&l->forgotten, key_of(id, attempt));
    return at && epoch <= l->ring.at[at - 1].epoch;
}

// A copy of a launch that comes late must not start what is long over.
// Example: launch of attempt 1, its end, the acknowledgement, and then the copy of the launch that a retry had sent
// through a slow connection: without this memory the job would run a second time.
static void forget(struct agent_logic *l, uint64_t id, uint32_t attempt, uint64_t epoch) {
    uint64_t key = key_of(id, attempt);
    uintptr_t known = (uintptr_t)map_get(&l->forgotten, key);
    if (known) {
        if (l->ring.at[known - 1].epoch < epoch)
            l->ring.at[known - 1].epoch = epoch;
        return;
    }
    if (l->ring.len < AGENT_FORGOTTEN_MAX)
        vec_push(&l->ring, (struct forgotten){0});
    else
        map_remove(&l->forgotten, l->ring.at[l->ring_at].key);
    l->ring.at[l->ring_at] = (struct forgotten){key, epoch};
    map_put(&l->forgotten, key, (void *)(uintptr_t)(l->ring_at + 1));
    l->ring_at = (l->ring_at + 1) % AGENT_FORGOTTEN_MAX;
}

static struct agent_action *act(struct agent_logic *l, enum agent_action_type type, uint64_t id,
                                uint32_t attempt) {
    vec_push(&l->actions.list, (struct agent_action){.type = type, .id = id, .attempt = attempt});
    return &l->actions.list.at[l->actions.list.len - 1];
}

static void send(struct agent_logic *l, enum message_type type, const void *body) {
    if (!l->connected)
        return;
    const struct message_info *info = message_info(type);
    assert(info && info->from_agent);
    void *copy = schema_copy(info->schema, body, &l->actions.arena);
    act(l, AGENT_SEND, 0, 0)->message = (struct message){.type = type, .body = copy};
}

// The lowest free numbers, so that a job's CPUs lie side by side where they can. The controller has counted before:
// what is asked for is there.
static void take_cpus(struct agent_logic *l, struct agent_attempt *e, uint32_t want) {
    uint32_t n = 0;
    if (!l->cpus || !want)
        return;
    e->cpus = xcalloc(want, sizeof *e->cpus);
    for (uint32_t i = 0; i < l->cpus && n < want; i++)
        if (!l->cpu_used[i])
            e->cpus[n++] = i;
    // Fewer than asked for: somebody counted wrong. Better unbound than squeezed.
    if (n < want)
        n = 0;
    for (uint32_t i = 0; i < n; i++)
        l->cpu_used[e->cpus[i]] = 1;
    e->ncpus = n;
}

static void release_cpus(struct agent_logic *l, struct agent_attempt *e) {
    for (uint32_t i = 0; i < e->ncpus; i++)
        if (e->cpus[i] < l->cpus)
            l->cpu_used[e->cpus[i]] = 0;
    e->ncpus = 0;
}

static void set_end(struct agent_logic *l, struct agent_attempt *e, const struct message_ended *end) {
    release_cpus(l, e);
    e->phase = AGENT_ENDED;
    e->kill = false;
    e->end = schema_copy(message_info(MESSAGE_ENDED)->schema, end, &e->arena);
    if (e->stop_reason && end->cause == e->kill_cause)
        e->end->reason = e->stop_reason;
}

// Positions only go forward: (epoch, seq) are compared as a pair, since a later life of the controller may have a
// shorter journal. The next job's number never goes back, not even when a restored journal says a smaller one.
static void saw(struct agent_logic *l, const struct journal_position *p) {
    if (!p || p->epoch < l->seen.epoch || (p->epoch == l->seen.epoch && p->seq < l->seen.seq))
        return;
    uint64_t next_id = l->seen.next_id > p->next_id ? l->seen.next_id : p->next_id;
    l->seen = *p;
    l->seen.next_id = next_id;
}

void agent_logic_recover(struct agent_logic *l, uint64_t id, uint32_t attempt, int64_t start_ms,
                         uint32_t pid, const uint32_t *cpus, uint32_t ncpus,
                         const struct message_ended *end) {
    if (find(l, id, attempt))
        return;
    struct agent_attempt *e = add(l, id, attempt);
    if (end) {
        set_end(l, e, end);
        return;
    }
    e->phase = start_ms ? AGENT_RUNNING : AGENT_LAUNCHING;
    e->start_ms = start_ms;
    e->pid = pid;
    if (ncpus && l->cpus) {
        e->cpus = xmemdup(cpus, ncpus * sizeof *cpus);
        e->ncpus = ncpus;
        for (uint32_t i = 0; i < ncpus; i++)
            if (cpus[i] < l->cpus)
                l->cpu_used[cpus[i]] = 1;
    }
}

void agent_logic_recover_origin(struct agent_logic *l, uint64_t id, uint32_t attempt, const void *origin, size_t len) {
    struct agent_attempt *e = find(l, id, attempt);
    cleanup_arena struct arena a = {0};
    struct message_launch m;
    if (!e || !len || schema_decode(message_info(MESSAGE_LAUNCH)->schema, origin, len, &a, &m) < 0)
        return;
    e->epoch = m.epoch;
    e->seq = m.seq;
    e->origin = arena_memdup(&e->arena, origin, len);
    e->origin_len = len;
    saw(l, &(struct journal_position){.epoch = m.epoch, .seq = m.seq, .next_id = id + 1});
}

// A controller without a term is the only one of its cluster.
bool agent_logic_term(struct agent_logic *l, uint64_t term) {
    if (term && term < l->term)
        return false;
    l->term = term ? term : l->term;
    return true;
}

uint64_t agent_logic_newest_term(const struct agent_logic *l) {
    return l->term;
}

struct journal_position agent_logic_seen(const struct agent_logic *l) {
    return l->seen;
}

void agent_logic_recover_seen(struct agent_logic *l, const struct journal_position *seen) {
    saw(l, seen);
}

void agent_logic_connected(struct agent_logic *l, const struct node *node, int64_t now_ms) {
    struct arena *a = &l->actions.arena;
    struct message_hello hello = {.protocol = PROTOCOL, .level = FEATURE_LEVEL_NEWEST};
    struct node copy = *node;
    l->connected = true;
    l->welcomed = false;
    l->heard_ms = now_ms;
    hello.node = &copy;
    hello.seen = l->seen.epoch ? &l->seen : NULL;
    hello.term = l->term + 1;
    hello.attempts.at = arena_alloc(a, (l->entries.len + 1) * sizeof *hello.attempts.at);
    for (uint32_t i = 0; i < l->entries.len; i++) {
        const struct agent_attempt *e = l->entries.at[i];
        hello.attempts.at[hello.attempts.len++] = (struct attempt){
            .id = e->id,
            .attempt = e->attempt,
            .end = e->end,
            .state = e->phase == AGENT_ENDED ? ATTEMPT_ENDED : ATTEMPT_RUNNING,
            .epoch = e->epoch,
            .seq = e->seq,
            .health = e->health,
            .health_reason = e->health_reason,
        };
        agent_steps_list(l->steps, &hello.attempts.at[hello.attempts.len - 1], a);
    }
    send(l, MESSAGE_HELLO, &hello);
}

void agent_logic_disconnected(struct agent_logic *l) {
    l->connected = l->welcomed = false;
}

// "0-3,8"
static void put_cpus(const struct agent_attempt *e, struct buf *out) {
    for (uint32_t i = 0, last; i < e->ncpus; i = last + 1) {
        for (last = i; last + 1 < e->ncpus && e->cpus[last + 1] == e->cpus[last] + 1;)
            last++;
        buf_addf(out, last > i ? "%s%u-%u" : "%s%u", i ? "," : "", e->cpus[i], e->cpus[last]);
    }
}

static void report_started(struct agent_logic *l, const struct agent_attempt *e) {
    cleanup_buf struct buf cpus = {0};
    put_cpus(e, &cpus);
    struct message_started m = {.id = e->id, .attempt = e->attempt, .pid = e->pid, .at_ms = e->start_ms,
                                .cpu_ids = cpus.len ? buf_str(&cpus) : NULL};
    send(l, MESSAGE_STARTED, &m);
}

static void report_ended(struct agent_logic *l, const struct agent_attempt *e) {
    e->end->epoch = e->epoch;
    send(l, MESSAGE_ENDED, e->end);
}

static void report_health(struct agent_logic *l, const struct agent_attempt *e) {
    struct message_health m = {
        .id = e->id, .attempt = e->attempt, .health = e->health, .reason = e->health_reason};
    send(l, MESSAGE_HEALTH, &m);
}

// Without what is large and only needed for the start.
static void keep_origin(struct agent_attempt *e, const struct message_launch *m) {
    struct message_launch small = *m;
    cleanup_buf struct buf b = {0};
    if (!m->epoch)
        return;
    small.script = (struct bytes){0};
    small.environment.len = 0;
    small.gpu_uuids.len = 0;
    small.workers = NULL;
    small.components.len = 0;
    schema_encode(message_info(MESSAGE_LAUNCH)->schema, &small, &b);
    e->origin = arena_memdup(&e->arena, b.data, b.len);
    e->origin_len = b.len;
}

static void on_describe(struct agent_logic *l, const struct message_describe *m) {
    struct agent_attempt *e = find(l, m->id, m->attempt);
    struct message_attempt answer = {.id = m->id, .attempt = m->attempt};
    cleanup_arena struct arena arena = {0};
    cleanup_buf struct buf cpus = {0};
    const struct schema *schema = message_info(MESSAGE_LAUNCH)->schema;
    if (e && e->origin) {
        struct message_launch *launch = arena_alloc(&arena, sizeof *launch);
        if (schema_decode(schema, e->origin, e->origin_len, &arena, launch) == 0)
            answer.launch = launch;
    }
    if (e) {
        put_cpus(e, &cpus);
        answer.start_ms = e->start_ms;
        answer.cpu_ids = cpus.len ? buf_str(&cpus) : NULL;
        answer.end = e->end;
        struct attempt listed = {.id = m->id, .attempt = m->attempt};
        agent_steps_list(l->steps, &listed, &arena);
        answer.last_step = listed.last_step;
        answer.steps.at = listed.steps.at;
        answer.steps.len = listed.steps.len;
        answer.generation = e->members_generation;
    }
    send(l, MESSAGE_ATTEMPT, &answer);
    if (e && e->health && e->phase == AGENT_RUNNING)
        report_health(l, e);
}

static void on_step_describe(struct agent_logic *l, const struct message_step *m) {
    struct message_step_known answer = {
        .id = m->id, .attempt = m->attempt, .step = m->step, .epoch = m->epoch};
    agent_steps_describe(l->steps, &answer);
    send(l, MESSAGE_STEP_KNOWN, &answer);
}

static void on_secrets(struct agent_logic *l, const struct message_secrets *m) {
    struct launch_secrets s = {0};
    for (uint32_t i = 0; i < l->secrets.len; i++)
        if ((l->secrets.at[i].message->id == m->id && l->secrets.at[i].message->attempt == m->attempt) ||
            l->secrets.len == AGENT_SECRETS_MAX) {  // a repeat, or one of a launch that never came
            secrets_done(&l->secrets.at[i]);
            vec_remove(&l->secrets, i);
            break;
        }
    s.message = schema_copy(message_info(MESSAGE_SECRETS)->schema, m, &s.arena);
    vec_push(&l->secrets, s);
}

// NULL: none came for this launch.
static const struct message_secrets *attach_secrets(struct agent_logic *l, const struct message_launch *m) {
    for (uint32_t i = 0; i < l->secrets.len; i++)
        if (l->secrets.at[i].message->id == m->id && l->secrets.at[i].message->attempt == m->attempt) {
            vec_push(&l->attached, l->secrets.at[i]);
            vec_remove(&l->secrets, i);
            return l->attached.at[l->attached.len - 1].message;
        }
    return NULL;
}

static void on_launch(struct agent_logic *l, const struct message_launch *m) {
    struct agent_attempt *e = find(l, m->id, m->attempt);
    const struct message_secrets *secrets =
        attach_secrets(l, m);  // a launch that is not carried out drops them
    if (is_forgotten(l, m->id, m->attempt, m->epoch) || !m->id || !m->spec || !m->part)
        return;
    saw(l, &(struct journal_position){.epoch = m->epoch, .seq = m->seq, .next_id = m->id + 1});
    if (e && m->epoch > e->epoch) {  // two attempts of one number cannot be told apart here
        struct message_ended end = {.id = m->id,
                                    .attempt = m->attempt,
                                    .cause = END_REQUEUE,
                                    .epoch = m->epoch,
                                    .reason = "the node has an attempt of this number from before a restore"};
        send(l, MESSAGE_ENDED, &end);
        return;
    }
    if (e) {  // a repeat: say where it stands
        if (e->phase == AGENT_RUNNING)
            report_started(l, e);
        else if (e->phase == AGENT_ENDED)
            report_ended(l, e);
        if (e->phase == AGENT_RUNNING && e->health)
            report_health(l, e);
        return;
    }
    e = add(l, m->id, m->attempt);
    e->epoch = m->epoch;
    e->seq = m->seq;
    keep_origin(e, m);
    take_cpus(l, e, m->part->cpus);
    struct agent_action *a = act(l, AGENT_LAUNCH, m->id, m->attempt);
    a->launch = m;
    a->secrets = secrets;
    a->origin = e->origin;
    a->origin_len = e->origin_len;
    a->cpus = e->cpus;
    a->ncpus = e->ncpus;
}

// Asked for again every AGENT_KILL_RETRY_MS until the shepherd was told (agent_logic_kill_sent): it may not listen
// yet, or the attempt may still be on its way into the spool folder.
static void emit_kill(struct agent_logic *l, struct agent_attempt *e, int64_t now_ms) {
    struct agent_action *a = act(l, AGENT_KILL, e->id, e->attempt);
    a->cause = e->kill_cause;
    a->signal = e->kill_signal;
    a->grace_ms = e->kill_grace_ms;
    a->checkpoint = e->kill_signal == SIGKILL ? NULL : e->kill_checkpoint;
    e->kill_next_ms = now_ms + AGENT_KILL_RETRY_MS;
}

static uint32_t kill_grace_ms(const struct agent_logic *l, const struct message_kill *m) {
    uint32_t s = m->grace_s ? m->grace_s : l->grace_s;
    return m->signal == SIGKILL ? 0 : s > UINT32_MAX / 1000 ? UINT32_MAX : s * 1000;
}

static void kill_steps(struct agent_logic *l, int64_t now_ms) {
    struct message_kill m;
    while (agent_steps_due(l->steps, now_ms, &m)) {
        struct agent_action *a = act(l, AGENT_KILL, m.id, m.attempt);
        a->step = m.step;
        a->cause = m.cause;
        a->signal = m.signal ? m.signal : SIGTERM;
        a->grace_ms = kill_grace_ms(l, &m);
    }
}

static void send_step_end(struct agent_logic *l, const struct step_end *end) {
    send(l, MESSAGE_STEP_END, end);
}

static void on_step(struct agent_logic *l, const struct message_exec *m) {
    struct agent_attempt *e = find(l, m->id, m->attempt);
    const struct step_end *end = agent_steps_end(l->steps, m->id, m->attempt, m->step);
    if (!e || e->phase == AGENT_ENDED) {
        struct step_end none = {.id = m->id, .attempt = m->attempt, .step = m->step, .cause = END_NODE_FAIL,
                                .exit_code = 1, .error = "the job is not running on this node"};
        send_step_end(l, end ? end : &none);
    } else if (agent_steps_taken(l->steps, m)) {
        struct step_end other = {.id = m->id,
                                 .attempt = m->attempt,
                                 .step = m->step,
                                 .epoch = m->epoch,
                                 .cause = END_LAUNCH,
                                 .exit_code = 1,
                                 .error =
                                     "another step has its number on the node: the controller's state was "
                                     "restored from an older copy; start it again"};
        send_step_end(l, &other);
    } else if (agent_steps_start(l->steps, m)) {
        struct agent_action *a = act(l, AGENT_STEP, m->id, m->attempt);
        a->step = m->step;
        a->message = (struct message){.type = MESSAGE_STEP,
                                      .body = schema_copy(&message_exec_schema, m, &l->actions.arena)};
    } else if (end) {
        send_step_end(l, end);
    } else if (agent_steps_phase(l->steps, m->id, m->attempt, m->step) == AGENT_STEP_FORGOTTEN) {
        // Its end was acknowledged by a state that is lost: it does not run a second time.
        struct step_end lost = {.id = m->id,
                                .attempt = m->attempt,
                                .step = m->step,
                                .epoch = m->epoch,
                                .cause = END_NODE_FAIL,
                                .exit_code = 1,
                                .error = "how it ended was lost when the controller's state was restored"};
        send_step_end(l, &lost);
    }
}

static void send_listens(void *ctx, const struct message_step_hub *m) {
    send(ctx, MESSAGE_STEP_LISTENS, m);
}

static void on_step_hub(struct agent_logic *l, const struct message_step_hub *m) {
    if (agent_steps_phase(l->steps, m->id, m->attempt, m->step) != AGENT_STEP_RUNNING)
        return;
    struct agent_action *a = act(l, AGENT_STEP_HUB, m->id, m->attempt);
    a->step = m->step;
    a->message = (struct message){.type = MESSAGE_STEP_HUB,
                                  .body = schema_copy(&message_step_hub_schema, m, &l->actions.arena)};
}

static void on_step_ack(struct agent_logic *l, const struct message_step *m) {
    if (agent_steps_acked(l->steps, m))
        act(l, AGENT_STEP_REMOVE, m->id, m->attempt)->step = m->step;
}

void agent_logic_step_ended(struct agent_logic *l, const struct step_end *end) {
    if (agent_steps_ended(l->steps, end))
        send_step_end(l, agent_steps_end(l->steps, end->id, end->attempt, end->step));
}

void agent_logic_step_listens(struct agent_logic *l, uint64_t id, uint32_t attempt, uint32_t step,
                              const struct message_step_hub *m) {
    const struct message_step_hub *news = agent_steps_listens(l->steps, id, attempt, step, m);
    if (news && l->welcomed)
        send_listens(l, news);
}

void agent_logic_step_recover(struct agent_logic *l, uint64_t id, uint32_t attempt, uint32_t step,
                              const struct agent_step_origin *origin, const struct step_end *end) {
    agent_steps_recover(l->steps, id, attempt, step, origin, end);
}

const struct agent_steps *agent_logic_steps(const struct agent_logic *l) {
    return l->steps;
}

static void on_kill(struct agent_logic *l, const struct message_kill *m, int64_t now_ms) {
    struct agent_attempt *e = find(l, m->id, m->attempt);
    if (!e) {
        // Never heard of, or acknowledged: it does not run, and from now on never will.
        struct message_ended end = {.id = m->id,
                                    .attempt = m->attempt,
                                    .cause = m->cause,
                                    .epoch = m->epoch,
                                    .reason = reason_text(BECAUSE_NOT_RUNNING)};
        if (!m->step) {
            forget(l, m->id, m->attempt, m->epoch);
            send(l, MESSAGE_ENDED, &end);
        }
        return;
    }
    if (e->phase == AGENT_ENDED) {
        if (!m->step)
            report_ended(l, e);
        return;
    }
    uint32_t signal = m->signal ? m->signal : SIGTERM;
    if (m->step) {
        agent_steps_kill(l->steps, m, now_ms);
        kill_steps(l, now_ms);
        return;
    }
    if (e->kill && !(signal == SIGKILL && e->kill_signal != SIGKILL))
        return;  // a repeat; only a harder one changes anything
    e->kill_cause = e->kill ? e->kill_cause : m->cause;
    e->kill = true;
    e->kill_sent = false;
    e->kill_signal = signal;
    e->kill_grace_ms = kill_grace_ms(l, m);
    if (m->checkpoint && !e->kill_checkpoint)
        e->kill_checkpoint = arena_strdup(&e->arena, m->checkpoint);
    emit_kill(l, e, now_ms);
}

static void remove_attempt(struct agent_logic *l, struct agent_attempt *e) {
    for (uint32_t i = 0; i < l->entries.len; i++)
        if (l->entries.at[i] == e) {
            vec_remove(&l->entries, i);
            break;
        }
    map_remove(&l->index, key_of(e->id, e->attempt));
    attempt_free(e);
}

static void on_ack(struct agent_logic *l, const struct message_ack *m) {
    struct agent_attempt *e = find(l, m->id, m->attempt);
    if (!e || e->phase != AGENT_ENDED || (m->of_epoch && e->epoch && m->of_epoch != e->epoch))
        return;
    saw(l, &(struct journal_position){.epoch = m->epoch, .seq = m->seq, .next_id = m->id + 1});
    act(l, AGENT_REMOVE, m->id, m->attempt);
    agent_steps_drop(l->steps, m->id, m->attempt);
    forget(l, m->id, m->attempt, e->epoch);
    remove_attempt(l, e);
}

static void on_signal(struct agent_logic *l, const struct message_signal *m) {
    struct agent_attempt *e = find(l, m->id, m->attempt);
    if (!e || e->phase == AGENT_ENDED || !m->signal)
        return;
    struct agent_action *a = act(l, AGENT_SIGNAL, m->id, m->attempt);
    a->signal = m->signal;
    a->batch_only = m->batch_only;
    a->steps_only = m->steps_only;
    a->step = m->step;
}

static void emit_time_limit(struct agent_logic *l, struct agent_attempt *e, int64_t now_ms) {
    act(l, AGENT_TIME_LIMIT, e->id, e->attempt)->time_limit_s = e->time_limit_s;
    e->limit_next_ms = now_ms + AGENT_KILL_RETRY_MS;
}

static void emit_suspend(struct agent_logic *l, struct agent_attempt *e, int64_t now_ms) {
    act(l, AGENT_SUSPEND, e->id, e->attempt)->resume = !e->suspended;
    e->suspend_next_ms = now_ms + AGENT_KILL_RETRY_MS;
}

static void on_time_limit(struct agent_logic *l, const struct message_time_limit *m, int64_t now_ms) {
    struct agent_attempt *e = find(l, m->id, m->attempt);
    if (!e || e->phase == AGENT_ENDED || (e->limit_state == TOLD && e->time_limit_s == m->time_limit_s))
        return;
    e->limit_state = WANTED;
    e->time_limit_s = m->time_limit_s;
    emit_time_limit(l, e, now_ms);
}

static void on_suspend(struct agent_logic *l, const struct message_suspend *m, int64_t now_ms) {
    struct agent_attempt *e = find(l, m->id, m->attempt);
    if (!e || e->phase == AGENT_ENDED || (e->suspend_state == TOLD && e->suspended == !m->resume))
        return;
    e->suspend_state = WANTED;
    e->suspended = !m->resume;
    emit_suspend(l, e, now_ms);
}

static void on_workers(struct agent_logic *l, const struct message *m) {
    const struct message_workers *w = m->body;
    for (uint32_t i = 0; i < w->ids.len && i < w->attempts.len; i++) {
        struct agent_attempt *e = find(l, w->ids.at[i], w->attempts.at[i]);
        if (!e || e->phase == AGENT_ENDED || e->members_generation == w->generation)
            continue;
        e->members_generation = w->generation;
        drop_members(e);
        act(l, AGENT_MEMBERS, e->id, e->attempt)->message = *m;
    }
}

static void on_welcome(struct agent_logic *l, const struct message_welcome *m) {
    l->welcomed = true;
    saw(l, m->at);
    l->heartbeat_s = m->heartbeat_s;
    l->usage_every_s = m->usage_every_s;
    if (m->grace_s)
        l->grace_s = m->grace_s;
    agent_steps_each_listening(l->steps, send_listens, l);
    if (l->images)
        send(l, MESSAGE_NODE_IMAGES, l->images);
}

void agent_logic_images(struct agent_logic *l, const struct message_node_images *m) {
    if (l->images && schema_equal(&message_node_images_schema, l->images, m))
        return;
    struct arena old = l->images_arena;
    l->images_arena = (struct arena){0};
    l->images = schema_copy(&message_node_images_schema, m, &l->images_arena);
    arena_done(&old);
    if (l->welcomed)
        send(l, MESSAGE_NODE_IMAGES, l->images);
}

void agent_logic_message(struct agent_logic *l, const struct message *m, int64_t now_ms) {
    const struct message_info *info = message_info(m->type);
    // What was on its way when the connection was cut is not acted on: the hello of the next one settles everything.
    if (!l->connected || !info || !info->from_controller)
        return;
    l->heard_ms = now_ms;
    switch (m->type) {
    case MESSAGE_WELCOME:
        on_welcome(l, m->body);
        break;
    case MESSAGE_STEP_HUB: on_step_hub(l, m->body); break;
    case MESSAGE_SECRETS: on_secrets(l, m->body); break;
    case MESSAGE_LAUNCH:
        on_launch(l, m->body);
        break;
    case MESSAGE_KILL:
        on_kill(l, m->body, now_ms);
        break;
    case MESSAGE_SIGNAL:
        on_signal(l, m->body);
        break;
    case MESSAGE_ACK:
        on_ack(l, m->body);
        break;
    case MESSAGE_STEP:
        on_step(l, m->body);
        break;
    case MESSAGE_STEP_ACK:
        on_step_ack(l, m->body);
        break;
    case MESSAGE_PING:
        saw(l, ((const struct message_ping *)m->body)->at);
        send(l, MESSAGE_PONG, m->body);
        break;
    case MESSAGE_DESCRIBE:
        on_describe(l, m->body);
        break;
    case MESSAGE_STEP_DESCRIBE: on_step_describe(l, m->body); break;
    case MESSAGE_TIME_LIMIT:
        on_time_limit(l, m->body, now_ms);
        break;
    case MESSAGE_SUSPEND:
        on_suspend(l, m->body, now_ms);
        break;
    case MESSAGE_WORKERS: on_workers(l, m); break;
    default:
        act(l, AGENT_STREAM, 0, 0)->message = *m;
    }
}

void agent_logic_tick(struct agent_logic *l, int64_t now_ms) {
    int64_t silence_ms = (int64_t)l->heartbeat_s * 1000 * AGENT_HEARTBEATS_MISSED;
    if (!l->welcomed)
        silence_ms = (int64_t)AGENT_WELCOME_WAIT_S * 1000;
    if (l->connected && silence_ms && now_ms - l->heard_ms > silence_ms) {
        // Once, not at every tick until the connection has ended.
        l->heard_ms = now_ms;
        act(l, AGENT_DISCONNECT, 0, 0);
    }
    if (l->welcomed && now_ms >= l->hub_next_ms) {  // an answer may have come to nothing, as with a full disk
        l->hub_next_ms = now_ms + AGENT_HUB_RETRY_MS;
        agent_steps_each_listening(l->steps, send_listens, l);
    }
    for (uint32_t i = 0; i < l->entries.len; i++) {
        struct agent_attempt *e = l->entries.at[i];
        if (e->kill && !e->kill_sent && now_ms >= e->kill_next_ms)
            emit_kill(l, e, now_ms);
        if (e->phase == AGENT_ENDED)
            continue;
        if (e->limit_state == WANTED && now_ms >= e->limit_next_ms)
            emit_time_limit(l, e, now_ms);
        if (e->suspend_state == WANTED && now_ms >= e->suspend_next_ms)
            emit_suspend(l, e, now_ms);
        if (e->members && now_ms >= e->members_next_ms) {
            e->members_next_ms = now_ms + AGENT_MEMBERS_RETRY_MS;
            act(l, AGENT_MEMBERS, e->id, e->attempt)->message = (struct message){MESSAGE_WORKERS, e->members};
        }
    }
    kill_steps(l, now_ms);
}

void agent_logic_started(struct agent_logic *l, uint64_t id, uint32_t attempt, uint32_t pid,
                         int64_t start_ms) {
    struct agent_attempt *e = find(l, id, attempt);
    if (!e || e->phase != AGENT_LAUNCHING)
        return;
    e->phase = AGENT_RUNNING;
    e->pid = pid;
    e->start_ms = start_ms;
    report_started(l, e);
}

void agent_logic_health(struct agent_logic *l, uint64_t id, uint32_t attempt, enum job_health health,
                        const char *reason) {
    struct agent_attempt *e = find(l, id, attempt);
    if (!e || e->phase != AGENT_RUNNING || (e->health == health && streq(e->health_reason, reason)))
        return;
    free(e->health_reason);
    e->health_reason = reason ? xstrdup(reason) : NULL;
    e->health = health;
    report_health(l, e);
}

void agent_logic_ended(struct agent_logic *l, const struct message_ended *end) {
    struct agent_attempt *e = find(l, end->id, end->attempt);
    if (!e || e->phase == AGENT_ENDED)
        return;
    set_end(l, e, end);
    report_ended(l, e);
}

void agent_logic_stop(struct agent_logic *l, uint64_t id, uint32_t attempt, enum end_cause cause,
                      const char *reason, int64_t now_ms) {
    struct agent_attempt *e = find(l, id, attempt);
    if (!e || e->phase == AGENT_ENDED || (e->kill && e->kill_signal == SIGKILL))
        return;
    if (!e->kill) {
        e->kill_cause = cause;
        e->stop_reason = arena_strdup(&e->arena, reason);
    }
    e->kill = true;
    e->kill_sent = false;
    e->kill_signal = SIGKILL;
    e->kill_grace_ms = 0;
    emit_kill(l, e, now_ms);
}

void agent_logic_kill_sent(struct agent_logic *l, uint64_t id, uint32_t attempt) {
    struct agent_attempt *e = find(l, id, attempt);
    if (e)
        e->kill_sent = true;
}

void agent_logic_told(struct agent_logic *l, uint64_t id, uint32_t attempt, enum agent_action_type what) {
    struct agent_attempt *e = find(l, id, attempt);
    if (e && what == AGENT_TIME_LIMIT)
        e->limit_state = TOLD;
    else if (e && what == AGENT_SUSPEND)
        e->suspend_state = TOLD;
    else if (e && what == AGENT_MEMBERS)
        drop_members(e);
}

void agent_logic_members_failed(struct agent_logic *l, uint64_t id, uint32_t attempt,
                                const struct message_workers *m, int64_t now_ms) {
    struct agent_attempt *e = find(l, id, attempt);
    if (!e || e->phase == AGENT_ENDED || e->members == m)
        return;  // kept already
    drop_members(e);
    e->members = schema_copy(message_info(MESSAGE_WORKERS)->schema, m, &e->members_arena);
    e->members_next_ms = now_ms + AGENT_MEMBERS_RETRY_MS;
}

uint32_t agent_logic_usage_every_s(const struct agent_logic *l) {
    return l->welcomed ? l->usage_every_s : 0;
}

bool agent_logic_welcomed(const struct agent_logic *l) {
    return l->welcomed;
}

enum agent_phase agent_logic_phase(const struct agent_logic *l, uint64_t id, uint32_t attempt) {
    struct agent_attempt *e = find(l, id, attempt);
    return e ? e->phase : AGENT_UNKNOWN;
}

const char *agent_logic_launch_failure(const struct agent_logic *l, uint64_t id, uint32_t attempt) {
    const struct agent_attempt *e = find(l, id, attempt);
    return e && e->end && e->end->launch_failed ? e->end->reason : NULL;
}

bool agent_logic_is_other(const struct agent_logic *l, uint64_t id, uint32_t attempt, uint64_t epoch) {
    const struct agent_attempt *e = find(l, id, attempt);
    uintptr_t at = e ? 0 : (uintptr_t)map_get(&l->forgotten, key_of(id, attempt));
    if (at)
        return l->ring.at[at - 1].epoch && l->ring.at[at - 1].epoch < epoch;
    return e && e->epoch && epoch && e->epoch != epoch;
}

bool agent_logic_forgotten(const struct agent_logic *l, uint64_t id, uint32_t attempt, uint64_t epoch) {
    return is_forgotten(l, id, attempt, epoch);
}

void agent_logic_each(const struct agent_logic *l, agent_logic_fn *fn, void *ctx) {
    for (uint32_t i = 0; i < l->entries.len; i++)
        fn(ctx, l->entries.at[i]->id, l->entries.at[i]->attempt, l->entries.at[i]->phase);
}
