// The simulated controller machine: what the daemon does around core, commit pipeline and store, on a disk that can
// fail and a machine that can stop between any two steps, also half-way through sending.
#include <errno.h>
#include <stdio.h>
#include <string.h>

#include "base/text.h"
#include "database.h"
#include "fault_sim.h"
#include "seams.h"
#include "store/sim_disk.h"
#include "threads.h"

enum { TICK_MS = 1000, LATE_MS = 2500, RETENTION_MS = 30000 };

int64_t head_wall_ms(const struct sim *s) {
    return s->now_ms + s->head->clock_offset_ms;
}

int64_t head_mono_ms(const struct sim *s) {
    return s->now_ms - RUN_BEGIN_MS + 5000000;
}

struct core_config sim_config(const struct sim *s) {
    struct core_config c;
    core_config_default(&c);
    c.volume_folder = "/volumes";
    c.policy = s->plan->policy;
    c.grace_s = s->plan->grace_s;
    c.max_attempts = s->plan->max_attempts;
    c.elements_at_once = 1 + (uint32_t)(s->plan->seed % 3);
    c.epoch_random = (uint32_t)hash_u64(s->plan->seed ^ s->head->life << 32);
    return c;
}

// --- hooks of the commit pipeline ---

struct conn *head_route(struct sim *s, const char *node) {
    for (uint32_t i = s->conns.len; i-- > 0;)
        if (s->conns.at[i]->open[HEAD_END] && s->conns.at[i]->head == s->head->number &&
            streq(s->conns.at[i]->node, node))
            return s->conns.at[i];
    return NULL;
}

static void on_send(void *ctx, const char *node, const void *data, size_t len) {
    struct sim *s = ctx;
    struct conn *c = head_route(s, node);
    if (s->head->mute_in && --s->head->mute_in == 0)
        s->head->muted = true;  // died half-way through
    if (c && !s->head->muted)
        head_say(s, c, data, len);
}

// Of several controllers one has the sessions of clients.
static bool is_served(const struct sim *s) {
    return !is_shared(s) || s->served == s->head;
}

static void on_job(void *ctx, uint64_t id) {
    struct sim *s = ctx;
    if (is_served(s)) {
        watchers_look(s);
        logs_job_changed(s, id);
    }
}

// A node that is given up must say hello again before it is used.
static void on_node_lost(void *ctx, const char *node) {
    struct sim *s = ctx;
    struct conn *c = head_route(s, node);
    check_given_up(s, node);
    if (c)
        net_close(s, c, HEAD_END);
}

static void on_storage(void *ctx, const struct error *problem) {
    struct sim *s = ctx;
    note(s, "controller: storage: %s", problem ? problem->text : "works again");
}

// --- life and death ---

void head_init(struct sim *s) {
    s->disk = sim_disk_new(s->plan->seed);
    sim_disk_faults(s->disk, &s->plan->disk);
    sim_disk_tick(s->disk, s->now_ms);
    if (is_shared(s))
        heads_begin(s);
    else
        head_start(s);
}

// Something was given to the store or is due there.
static void watch_disk(struct sim *s) {
    if (is_shared(s))
        return;  // threads look after the database
    int64_t due = sim_disk_due(s->disk);
    if (due == INT64_MAX)
        return;
    if (due < s->now_ms)
        due = s->now_ms;
    if (!s->head->disk_at_ms || due < s->head->disk_at_ms) {
        s->head->disk_at_ms = due;
        queue_put(&s->queue, due, HAPPEN_DISK, s->head->number, s->head->life, 0);
    }
}

void head_touched(struct sim *s) {
    struct sim_head *h = s->head;
    int64_t at = s->now_ms + some_ms(s, 0, 2);
    if (!h->core || (is_shared(s) && !h->leads))
        return;
    if (!h->flush_at_ms || at < h->flush_at_ms) {
        h->flush_at_ms = at;
        queue_put(&s->queue, at, HAPPEN_HEAD_FLUSH, h->number, h->life, 0);
    }
    watch_disk(s);
}

void head_start(struct sim *s) {
    struct sim_head *h = s->head;
    struct error e = {0};
    if (h->core)
        return;
    seams_next_format(h->format);
    seams_level(s->plan->level);
    seams_slice(1 + (uint32_t)(s->plan->seed % 3));
    struct core_config config = sim_config(s);
    struct pipeline_hooks hooks = {
        .ctx = s, .send = on_send, .job_changed = on_job, .node_lost = on_node_lost, .storage = on_storage};
    h->core = core_new(&config);
    h->pipeline = pipeline_new(h->core, &hooks);
    h->life = ++s->lives;
    h->flush_at_ms = h->wake_at_ms = h->disk_at_ms = 0;
    h->mute_in = 0;
    h->muted = false;
    h->checked_ms = h->started_ms = s->now_ms;
    struct store_config store = {.watch = pipeline_watch(h->pipeline),
                                 .reserve_bytes = 4096,
                                 .low_bytes = 4096,
                                 .level = FEATURE_LEVEL_NEWEST,
                                 .retention = {.journal_ms = RETENTION_MS}};
    check_journal(s);  // what reached the disk although nobody was told
    if (is_shared(s)) {
        note(s, "controller %u: started (life %llu)", h->number, (unsigned long long)h->life);
        heads_open(s);
        return;
    }
    if (sim_store_open(s->disk, &store, &h->store, &e) < 0) {
        sim_fail(s, "the store cannot be opened: %s", e.text);
        return;
    }
    pipeline_attach(h->pipeline, h->store);
    if (pipeline_read(h->pipeline, &e) < 0) {
        sim_fail(s, "the journal cannot be loaded: %s", e.text);
        return;
    }
    head_lead(s);
}

static void set_up(void *arg) {
    struct sim *s = arg;
    s->set_up = true;
}

void head_serve(struct sim *s) {
    struct sim_head *h = s->head;
    if (s->served == h)
        return;
    if (s->served) {
        s->head = s->served;
        watchers_head_gone(s);
        s->head = h;
    }
    s->served = h;
    watchers_head_started(s);
}

void head_lead(struct sim *s) {
    struct sim_head *h = s->head;
    struct error e = {0};
    pipeline_begin(h->pipeline, head_wall_ms(s));
    h->started_ms = h->checked_ms = s->now_ms;
    uint8_t secret[PIPELINE_KEY_SECRET_BYTES];
    for (size_t i = 0; i < sizeof secret; i++)
        secret[i] = (uint8_t)(s->plan->seed >> (i % 8 * 8)) ^ (uint8_t)i;
    if (pipeline_init_keys(h->pipeline, secret, head_wall_ms(s), &e) < 0)
        sim_fail(s, "the idempotency keys cannot be set up: %s", e.text);
    note(s, "controller %u: leads (life %llu, journal %llu)", h->number, (unsigned long long)h->life,
         (unsigned long long)core_seq(h->core));
    check_loaded(s);
    holders_head_started(s);
    watchers_leases_begin(s);
    head_serve(s);
    if (is_shared(s) && !s->set_up) {
        client_setup(s, false);
        pipeline_when_committed(h->pipeline, set_up, s);
    }
    h->snapshot_seq = core_seq(h->core);
    h->ping_ms = s->now_ms;
    after(s, TICK_MS, HAPPEN_HEAD_TICK, h->number, h->life, 0);
    head_touched(s);
}

// --- stalls ---

// Time is left out from when the next look for lost nodes is so late that it counts as one interval: a shorter stall is
// like any other time to the controller.
void head_stall(struct sim *s, int64_t for_ms) {
    struct sim_head *h = s->head;
    int64_t from = h->stalled_until_ms > s->now_ms ? h->stalled_until_ms : s->now_ms, until = s->now_ms + for_ms;
    int64_t late = h->checked_ms + LATE_MS, counted = from > late ? from : late;
    if (!h->core || until <= from)
        return;
    h->stalled_until_ms = until;
    h->stalled_ms += until > counted ? until - counted : 0;
}

int64_t head_awake_ms(const struct sim *s) {
    int64_t left = s->head->stalled_until_ms > s->now_ms ? s->head->stalled_until_ms - s->now_ms : 0;
    return s->now_ms - (s->head->stalled_ms - left);
}

bool head_stalled(struct sim *s, const struct queued *q) {
    struct sim_head *h = s->head;
    bool mine = q->kind == HAPPEN_DISK || q->kind == HAPPEN_HEAD_FLUSH || q->kind == HAPPEN_HEAD_TICK ||
                q->kind == HAPPEN_REQUEST || (q->kind == HAPPEN_PACKET && q->a == AGENT_END);
    if (!mine || s->now_ms >= h->stalled_until_ms)
        return false;
    if (q->kind == HAPPEN_DISK && q->a == h->life && h->disk_at_ms == s->now_ms)
        h->disk_at_ms = h->stalled_until_ms;
    if (q->kind == HAPPEN_HEAD_FLUSH && q->a == h->life && h->flush_at_ms == s->now_ms)
        h->flush_at_ms = h->stalled_until_ms;
    if (q->kind == HAPPEN_HEAD_FLUSH && q->a == h->life && h->wake_at_ms == s->now_ms)
        h->wake_at_ms = h->stalled_until_ms;
    queue_put(&s->queue, h->stalled_until_ms, q->kind, q->who, q->a, q->b);
    return true;
}

static void forget(struct sim *s) {
    struct sim_head *h = s->head;
    if (h->stalled_until_ms > s->now_ms) {
        h->stalled_ms -= h->stalled_until_ms - s->now_ms;
        h->stalled_until_ms = 0;
    }
    h->muted = true;  // what is dropped now sends nothing
    if (is_served(s)) {
        watchers_head_gone(s);
        s->served = NULL;
    }
    h->pipeline = pipeline_free(h->pipeline);
    h->core = core_free(h->core);
    h->store = NULL;
    h->life = ++s->lives;
    if (is_shared(s))
        heads_forget(s);
    h->die_in_steps = 0;
}

static void crash(struct sim *s) {
    struct sim_head *h = s->head;
    if (is_shared(s)) {
        threads_die(h->number);
        h->store = store_close(h->store);
    } else if (h->store) {
        h->store = sim_store_crash(h->store);
    }
}

static void connections_end(struct sim *s, bool power) {
    for (uint32_t i = 0; i < s->conns.len; i++) {
        struct conn *c = s->conns.at[i];
        if (!c->open[HEAD_END] || c->head != s->head->number)
            continue;
        c->node[0] = 0;
        if (power)
            net_vanish(s, c, HEAD_END);
        else
            net_close(s, c, HEAD_END);
    }
}

void head_kill(struct sim *s, int64_t for_ms) {
    struct sim_head *h = s->head;
    if (!h->core)
        return;
    note(s, "controller %u: killed for %lld ms", h->number, (long long)for_ms);
    crash(s);
    forget(s);
    connections_end(s, rand_below(&s->rand, 3) == 0);
    check_journal(s);
    after(s, for_ms, HAPPEN_HEAD_START, h->number, 0, 0);
}

// All controllers die, and an older copy is put into the database.
static void restore_all(struct sim *s, uint32_t records, int64_t for_ms) {
    for (uint32_t i = 0; i < s->head_count; i++) {
        heads_use(s, i);
        head_kill(s, for_ms + some_ms(s, 0, 500));
    }
    check_journal(s);
    uint32_t had = s->check.read;
    database_restore(s, had > records ? had - records : 1);
    check_restored(s);
    database_away(s, false);
}

void head_restore(struct sim *s, uint32_t records, int64_t for_ms) {
    struct sim_head *h = s->head;
    if (is_shared(s)) {
        restore_all(s, records, for_ms);
        return;
    }
    if (!h->core)
        return;
    sim_store_crash(h->store);
    forget(s);
    connections_end(s, false);
    check_journal(s);
    uint32_t had = s->check.read;
    uint64_t seq = had > records ? had - records : 1;
    sim_disk_restore(s->disk, seq);
    note(s, "controller: killed, an older copy put in place: %u records, not %u", s->disk->journal.len, had);
    check_restored(s);
    after(s, for_ms, HAPPEN_HEAD_START, h->number, 0, 0);
}

void head_stop(struct sim *s, int64_t for_ms) {
    struct sim_head *h = s->head;
    if (!h->core)
        return;
    note(s, "controller: stopped for %lld ms", (long long)for_ms);
    store_close(h->store);
    forget(s);
    connections_end(s, false);
    check_journal(s);
    after(s, for_ms, HAPPEN_HEAD_START, h->number, 0, 0);
}

static void done(struct sim *s) {
    struct sim_head *h = s->head;
    h->muted = true;
    if (h->core && is_served(s))
        watchers_head_gone(s);
    crash(s);
    pipeline_free(h->pipeline);
    core_free(h->core);
    if (is_shared(s))
        heads_forget(s);
    vec_done(&h->held);
}

void head_done(struct sim *s) {
    for (uint32_t i = 0; i < s->head_count; i++) {
        heads_use(s, i);
        done(s);
    }
    if (!is_shared(s))
        done(s);
    sim_disk_free(s->disk);
}

// --- agents ---

static void send_to(struct sim *s, struct conn *c, enum message_type type, void *body) {
    cleanup_buf struct buf b = {0};
    message_encode(&(struct message){type, body}, &b);
    head_say(s, c, b.data, b.len);
}

struct sim_hello {
    struct sim *sim;
    struct conn *conn;
};

static void hello_committed(void *arg) {
    const struct sim_hello *p = arg;
    if (!p->conn->open[HEAD_END] || !p->conn->node[0])
        return;
    p->conn->ready = true;
    if (p->sim->head->number == p->conn->head && is_served(p->sim))
        watchers_node_up(p->sim, p->conn->node);
}

static void on_hello(struct sim *s, struct conn *c, const struct message_hello *hello) {
    struct error e = {0};
    const char *name = hello->node ? hello->node->name : NULL;
    for (uint32_t i = 0; name && i < s->conns.len; i++) {  // one connection per node, the newest
        struct conn *old = s->conns.at[i];
        if (old != c && old->head == c->head && old->open[HEAD_END] && streq(old->node, name)) {
            if (is_served(s))
                controller_streams_node_gone(&s->head->streams, name);
            old->node[0] = 0;
            net_close(s, old, HEAD_END);
        }
    }
    if (core_agent_hello(s->head->core, hello, NULL, head_wall_ms(s), &e) < 0) {
        note(s, "controller: hello refused: %s", e.text);
        net_close(s, c, HEAD_END);
        return;
    }
    check_hello(s, hello);
    snprintf(c->node, sizeof c->node, "%s", name);
    pipeline_heard(s->head->pipeline, name);
    c->hello_seq = core_seq(s->head->core);
    struct message_welcome w = {.heartbeat_s = s->plan->heartbeat_s,
                                .cluster = "sim",
                                .usage_every_s = 30,
                                .grace_s = s->plan->grace_s};
    send_to(s, c, MESSAGE_WELCOME, &w);
    struct sim_hello *p = arena_alloc(&s->arena, sizeof *p);
    *p = (struct sim_hello){s, c};
    if (seams_planted(PLANTED_STREAM_TOO_EARLY))
        hello_committed(p);
    else
        pipeline_when_committed(s->head->pipeline, hello_committed, p);
}

// A machine may have another name by now: what it said under the old one late does not count for the new one.
static void heard(struct sim *s, const struct conn *c, const char *name) {
    struct machine *m = &s->machines[c->machine];
    if (name && streq(m->name, name)) {
        m->heard_ms = head_awake_ms(s);
        m->heard_head = s->head->number;
    }
}

// As in the daemon: it has heard of a leader that this database does not know.
static bool knows_later(struct sim *s, struct conn *c, const struct message_hello *hello) {
    if (!is_shared(s) || hello->term <= s->head->term + 1 || seams_planted(PLANTED_OLDER_TERM_OBEYED))
        return false;
    store_raise_term(s->head->store, hello->term);
    net_close(s, c, HEAD_END);
    return true;
}

void head_message(struct sim *s, struct conn *c, const struct message *m) {
    struct core *core = s->head->core;
    int64_t now = head_wall_ms(s);
    if (!core || (is_shared(s) && !s->head->leads) || !message_info(m->type)->from_agent)
        return;
    if (m->type == MESSAGE_HELLO) {
        const struct message_hello *hello = m->body;
        if (knows_later(s, c, hello))
            return;
        heard(s, c, hello->node ? hello->node->name : NULL);
        on_hello(s, c, m->body);
        head_touched(s);
        return;
    }
    if (!c->node[0])
        return;
    heard(s, c, c->node);
    pipeline_heard(s->head->pipeline, c->node);
    switch (m->type) {
    case MESSAGE_STARTED: core_agent_started(core, c->node, m->body, now); break;
    case MESSAGE_HEALTH: core_agent_health(core, c->node, m->body, now); break;
    case MESSAGE_NODE_IMAGES: core_agent_images(core, c->node, m->body, now); break;
    case MESSAGE_ENDED:
        core_agent_ended(core, c->node, m->body, now);
        if (seams_planted(PLANTED_END_ACKED_EARLY)) {
            const struct message_ended *end = m->body;
            send_to(s, c, MESSAGE_ACK, &(struct message_ack){end->id, end->attempt});
        }
        break;
    case MESSAGE_STREAM_DATA:
    case MESSAGE_STREAM_END:
    case MESSAGE_STREAM_CREDIT:
        if (is_served(s))
            controller_stream_message(&s->head->streams, c->node, m);
        return;
    case MESSAGE_STEP_END:
        core_agent_step_ended(core, c->node, m->body, now);
        if (is_served(s))
            watchers_look(s);
        break;
    case MESSAGE_ATTEMPT: core_agent_attempt(core, c->node, m->body, now); break;
    case MESSAGE_STEP_LISTENS: core_agent_step_listens(core, c->node, m->body); break;
    case MESSAGE_STEP_KNOWN: core_agent_step_known(core, c->node, m->body, now); break;
    case MESSAGE_NODE_CHANGED: core_agent_node_changed(core, m->body, now); break;
    default: return;
    }
    head_touched(s);
}

void head_closed(struct sim *s, struct conn *c) {
    if (!s->head->core || !c->node[0] || s->head->number != c->head)
        return;
    if (is_served(s))
        controller_streams_node_gone(&s->head->streams, c->node);
    core_agent_gone(s->head->core, c->node, head_wall_ms(s));
    c->node[0] = 0;
    head_touched(s);
}

// --- time passes ---

void head_flush(struct sim *s) {
    struct sim_head *h = s->head;
    h->flush_at_ms = h->wake_at_ms = 0;
    bool schedule = rand_below(&s->rand, 8) != 0;  // the daemon puts a decision off when the last took long
    service_reconcile(s);
    int64_t wall = head_wall_ms(s), next = pipeline_flush(h->pipeline, wall, schedule);
    if (!schedule)
        next = wall + some_ms(s, 1, 20);
    if (next != INT64_MAX) {
        int64_t in = next > wall ? next - wall : 1;
        h->wake_at_ms = s->now_ms + (in < 3600000 ? in : 3600000);
        queue_put(&s->queue, h->wake_at_ms, HAPPEN_HEAD_FLUSH, h->number, h->life, 0);
    }
    if (core_seq(h->core) - h->snapshot_seq >= s->plan->snapshot_every && pipeline_snapshot(h->pipeline) == 0)
        h->snapshot_seq = core_seq(h->core);
    watch_disk(s);
}

void head_disk(struct sim *s) {
    s->head->disk_at_ms = 0;
    if (!is_shared(s))
        sim_disk_tick(s->disk, s->now_ms);
    check_journal(s);
    pipeline_poll(s->head->pipeline);
    if (pipeline_dirty(s->head->pipeline))
        head_touched(s);
    watch_disk(s);
}

void head_tick(struct sim *s) {
    struct sim_head *h = s->head;
    int64_t timeout = (int64_t)s->plan->lost_after_s * 1000;
    // Planted: a stall looks like as many checks that came in time.
    for (int64_t at = h->checked_ms + TICK_MS; seams_planted(PLANTED_STALL_COUNTS) && at < s->now_ms; at += TICK_MS)
        pipeline_check_nodes(h->pipeline, head_mono_ms(s) - (s->now_ms - at), timeout, head_wall_ms(s));
    pipeline_check_nodes(h->pipeline, head_mono_ms(s), timeout, head_wall_ms(s));
    h->checked_ms = s->now_ms;
    holders_renew(s);
    if (s->plan->engine)
        provider_tick(s);
    if (is_served(s)) {
        watchers_renew(s);
        logs_tick(s);
    }
    if (s->now_ms - h->ping_ms >= (int64_t)s->plan->heartbeat_s * 1000 - TICK_MS / 2) {
        h->ping_ms = s->now_ms;
        for (uint32_t i = 0; i < s->conns.len; i++) {
            struct conn *c = s->conns.at[i];
            struct journal_position at;
            struct message_ping ping = {.at_ms = head_mono_ms(s),
                                        .at = pipeline_position(h->pipeline, c->hello_seq, &at) ? &at : NULL};
            if (c->open[HEAD_END] && c->node[0] && c->head == h->number)
                send_to(s, c, MESSAGE_PING, &ping);
        }
    }
    if (pipeline_degraded(h->pipeline, NULL, 0))
        pipeline_retry(h->pipeline);
    if (rand_below(&s->rand, 16) == 0)
        store_prune(h->store, head_wall_ms(s));
    after(s, TICK_MS, HAPPEN_HEAD_TICK, h->number, h->life, 0);
    head_touched(s);
}
