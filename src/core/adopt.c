// Owns the identity of attempts over restores. Each start of the controller is an epoch, and an attempt is
// known by the epoch and number of the event that placed it. A node that knows of an event which this journal
// does not have shows that the state was restored from an older copy. Then:
// - new jobs get numbers beyond all that the node has heard of;
// - the node describes each attempt that the journal does not know, and the attempt becomes a job again: it
//   is shown, keeps what it holds until it ends, and can be cancelled. It is never ended without a word.
//   Its parts on several nodes become one job, whenever they are described (adopt_part.c).
//   Workers of an elastic job become its workers again (adopt_group.c), steps its steps (adopt_step.c).
// The node gets no new work before all its unknown attempts are described.
#include <assert.h>
#include <string.h>

#include "base/text.h"
#include "model/name.h"
#include "model/reason.h"
#include "state.h"

enum {
    ID_SLACK = 1000,         // jobs submitted after the last word that a node had of the lost copy
    ID_JUMP_MAX = 1 << 24,   // a node's word moves the numbers no further than this at once
    EPOCH_RANDOM = 1 << 20,  // by how much, in milliseconds, an epoch may be beyond the clock
};
#define EPOCH_MAX (1ULL << 53)  // epochs are milliseconds since 1970, or a little more

static const char adopted_reason[] = "Adopted: started before the controller's state was restored from an older copy";

// --- epochs ---

uint64_t core_epoch(const struct core *c) {
    return c->epochs.len ? c->epochs.at[c->epochs.len - 1].epoch : 0;
}

void core_epoch_begin(struct core *c, uint64_t at_least, int64_t now_ms) {
    uint64_t epoch = core_epoch(c) + 1;
    if (epoch < at_least)
        epoch = at_least;
    if (now_ms > 0 && epoch < (uint64_t)now_ms)
        epoch = (uint64_t)now_ms;
    // With a clock that was set back, a controller started from an older copy would take the number that the lost one
    // had taken, and would know its attempts for its own.
    epoch += c->config.epoch_random % EPOCH_RANDOM;
    struct event_controller_started b = {.epoch = epoch, .version = ACEQUIA_VERSION};
    core_emit(c, now_ms, EVENT_CONTROLLER_STARTED, &b);
}

void core_apply_started_controller(struct core *c, const struct event_controller_started *b) {
    if (c->epochs.len == EPOCHS_KEPT)
        vec_remove(&c->epochs, 0);
    vec_push(&c->epochs, (struct core_epoch){b->epoch, c->seq});
}

bool core_event_lost(const struct core *c, uint64_t epoch, uint64_t seq) {
    if (!epoch || epoch >= EPOCH_MAX || !c->epochs.len)
        return false;
    if (epoch < c->epochs.at[0].epoch && c->epochs.len == EPOCHS_KEPT)
        return false;  // older than what is kept
    for (uint32_t i = c->epochs.len; i-- > 0;) {
        if (c->epochs.at[i].epoch != epoch)
            continue;
        uint64_t end = i + 1 < c->epochs.len ? c->epochs.at[i + 1].first_seq : c->seq + 1;
        return seq >= end;
    }
    return true;
}

bool core_attempt_unknown(const struct core *c, const struct node_entry *n, const struct attempt *a) {
    for (uint32_t i = 0; i < c->adopted.len; i++) {
        const struct core_adopted *k = &c->adopted.at[i];
        if (k->id == a->id && k->attempt == a->attempt && k->epoch == a->epoch && k->node == n->handle)
            return false;  // it was a job of ours already
    }
    return core_event_lost(c, a->epoch, a->seq);
}

// The number that an adopted attempt has on its node may be that of another job: that one's attempts are
// numbered beyond it, so that no node has two attempts of one number.
uint32_t core_next_attempt(const struct core *c, const struct core_job *j) {
    uint32_t next = j->attempt + 1;
    for (uint32_t i = 0; i < c->adopted.len; i++)
        if (c->adopted.at[i].epoch && c->adopted.at[i].id == j->id && c->adopted.at[i].attempt >= next)
            next = (uint32_t)c->adopted.at[i].attempt + 1;
    return next;
}

void core_note_adopted(struct core *c, const struct core_adopted *part) {
    if (c->adopted.len == ADOPTED_KEPT)
        vec_remove(&c->adopted, 0);
    vec_push(&c->adopted, *part);
}

void core_note_numbers(struct core *c, uint64_t first, uint64_t count) {
    if (first >= c->unused_from && first < c->unused_to)
        core_note_adopted(c, &(struct core_adopted){.id = first, .attempt = count});
}

bool core_position(const struct core *c, uint64_t seq, struct journal_position *out) {
    if (!c->epochs.len || seq < c->epochs.at[c->epochs.len - 1].first_seq)
        return false;  // this epoch is not committed yet
    *out = (struct journal_position){.epoch = core_epoch(c), .seq = seq, .next_id = c->next_id};
    return true;
}

int64_t core_restore_ms(const struct core *c) {
    return c->restore_ms;
}

void core_apply_restore(struct core *c, int64_t at_ms, const struct event_restore_found *b) {
    c->restore_ms = at_ms;
    c->restore_epoch = core_epoch(c);
    if (b->next_id <= c->next_id)
        return;
    c->unused_from = c->next_id;
    c->unused_to = c->next_id = b->next_id;
}

bool core_number_unused(const struct core *c, uint64_t id) {
    return id >= c->next_id || (id >= c->unused_from && id < c->unused_to && !core_find_job(c, id));
}

static void newest(struct journal_position *p, uint64_t epoch, uint64_t seq, uint64_t next_id) {
    if (epoch > p->epoch || (epoch == p->epoch && seq > p->seq)) {
        p->epoch = epoch;
        p->seq = seq;
    }
    if (next_id > p->next_id)
        p->next_id = next_id;
}

// A step of an attempt that the copy knows may be all that a node has of the lost part of the journal.
static void newest_step(struct core *c, const struct node_entry *n, const struct attempt *a,
                        struct journal_position *lost) {
    struct core_job *j;
    if (!a->steps.len || !core_reported_part(c, n->name, a->id, a->attempt, &j))
        return;
    for (uint32_t i = 0; i < a->steps.len; i++) {
        const struct step_state *t = &a->steps.at[i];
        if (t->seq && core_event_lost(c, t->epoch, t->seq) && !core_step_was_adopted(j, t->step, t->epoch))
            newest(lost, t->epoch, t->seq, c->next_id);
    }
}

bool core_find_restore(struct core *c, const struct node_entry *n, const struct message_hello *h,
                       int64_t now_ms) {
    struct journal_position lost = {0};
    if (h->seen && core_event_lost(c, h->seen->epoch, h->seen->seq))
        newest(&lost, h->seen->epoch, h->seen->seq, h->seen->next_id);
    for (uint32_t i = 0; i < h->attempts.len; i++) {
        const struct attempt *a = &h->attempts.at[i];
        if (core_event_lost(c, a->epoch, a->seq) && a->id < INT64_MAX)
            newest(&lost, a->epoch, a->seq, a->id + 1);
        newest_step(c, n, a, &lost);
    }
    if (!lost.epoch)
        return false;
    if (lost.next_id > c->next_id + ID_JUMP_MAX)
        lost.next_id = c->next_id + ID_JUMP_MAX;
    if (lost.next_id > c->next_id || c->restore_epoch != core_epoch(c)) {
        struct event_restore_found b = {
            .node = n->name, .lost_epoch = lost.epoch, .lost_seq = lost.seq, .next_id = lost.next_id + ID_SLACK};
        core_emit(c, now_ms, EVENT_RESTORE_FOUND, &b);
    }
    if (lost.epoch >= core_epoch(c))  // the clock was set back meanwhile
        core_epoch_begin(c, lost.epoch + 1, now_ms);
    return true;
}

// --- unknown attempts ---

void core_ask_attempt(struct core *c, struct node_entry *n, const struct attempt *a) {
    struct message_describe m = {.id = a->id, .attempt = a->attempt};
    vec_push(&n->unknown, (struct asked_attempt){.id = a->id, .epoch = a->epoch, .attempt = a->attempt});
    core_effect_send(c, n->name, MESSAGE_DESCRIBE, &m);
}

static uint32_t asked_at(const struct node_entry *n, uint64_t id, uint32_t attempt) {
    uint32_t i = 0;
    while (i < n->unknown.len && (n->unknown.at[i].id != id || n->unknown.at[i].attempt != attempt))
        i++;
    return i;
}

bool core_attempt_asked(const struct node_entry *n, uint64_t id, uint32_t attempt) {
    return asked_at(n, id, attempt) < n->unknown.len;
}

static bool asked_of_epoch(const struct node_entry *n, const struct attempt *a) {
    uint32_t at = asked_at(n, a->id, a->attempt);
    return at < n->unknown.len && n->unknown.at[at].epoch == a->epoch;
}

// Whether the node has room for it beside what else is there.
static bool part_fits(const struct core *c, const struct node_entry *n, const struct part *p) {
    uint32_t held[SCHED_GPUS_MAX];
    const struct node *d = n->node;
    if (!p->cpus || p->cpus > d->cpus || n->cpus_used > d->cpus - p->cpus || p->memory_bytes > d->memory_bytes ||
        n->memory_used_bytes > d->memory_bytes - p->memory_bytes || p->gpus.len > d->gpus.len)
        return false;
    core_node_gpus(c, n->name, held, SCHED_GPUS_MAX);
    for (uint32_t i = 0; i < p->gpus.len; i++) {
        const struct gpu_grant *g = &p->gpus.at[i];
        if (g->index >= d->gpus.len || !g->milli || g->milli > 1000 || held[g->index] + g->milli > 1000)
            return false;
        held[g->index] += g->milli;
    }
    return true;
}

// Its part on the node that reports it, and on others that have not yet said whether they run it.
static void adopted_parts(const struct core *c, const struct node_entry *n, const struct message_launch *l,
                          struct arena *a, struct event_job_placed *out) {
    struct attempt self = {.id = l->id, .attempt = l->attempt, .epoch = l->epoch, .seq = l->seq};
    out->parts.at = arena_alloc(a, (l->parts.len + 1) * sizeof *out->parts.at);
    for (uint32_t i = 0; i < l->parts.len; i++) {
        const struct part *p = &l->parts.at[i];
        const struct node_entry *other = p->node && !streq(p->node, n->name) ? core_find_node(c, p->node) : NULL;
        if (other && part_fits(c, other, p) && core_attempt_unknown(c, other, &self) &&
            other->state != NODE_DOWN &&
            (asked_of_epoch(other, &self) ||
             (other->state == NODE_SILENT && !other->unknown.len && !other->stale.len)))
            out->parts.at[out->parts.len++] = *p;
        else if (streq(p->node, n->name) && part_fits(c, n, l->part))
            out->parts.at[out->parts.len++] = *l->part;
    }
}

bool core_texts_lost(const struct core *c, const struct core_job *j) {
    const struct core_job *job = core_is_worker(j) ? core_group_job(c, j) : j;
    return job && job->run && job->run->adopted && !job->sub->script && !job->sub->environment;
}

static const char *existing(const struct core *c, enum entity_kind kind, const char *name) {
    const struct entity_entry *t = str_empty(name) ? NULL : core_find_entity(c, kind, name);
    return t && t->value ? t->name : NULL;
}

void core_adopted_names(const struct core *c, struct spec *s) {
    s->project = existing(c, ENTITY_PROJECT, s->project);
    s->partition = existing(c, ENTITY_PARTITION, s->partition);
    s->qos = existing(c, ENTITY_QOS, s->qos);
    s->reservation = existing(c, ENTITY_RESERVATION, s->reservation);
    if (core_licenses_check(c, s, NULL) < 0)  // the copy has no such license, or one with fewer seats
        s->licenses = NULL;
    // Its script, which is lost, is shown as this; a job without a command is refused.
    if (!s->argv.len && s->launch != LAUNCH_STEPS) {
        static const char *script[] = {"(script)"};
        s->argv.at = script;
        s->argv.len = 1;
    }
}

// What is known of the job: it is not started anew, so what only matters for that is left out.
static int adopted_spec(struct core *c, const struct message_launch *l, int64_t now_ms, struct spec *out,
                        struct error *e) {
    const struct spec *s = l->spec;
    size_t argv_bytes = 0;
    uint32_t argc = 0;
    while (argc < s->argv.len && (argv_bytes += strlen(s->argv.at[argc]) + 1) <= CORE_ADOPTED_ARGV_MAX)
        argc++;
    struct actor owner = {.user = s->user, .uid = s->uid, .gid = s->gid, .admin = true};
    *out = (struct spec){.name = s->name,
                         .project = s->project,
                         .partition = s->partition,
                         .qos = s->qos,
                         .licenses = s->licenses,
                         .class = s->class,
                         .launch = s->launch,
                         .tasks = s->tasks ? s->tasks : 1,
                         .cpus_per_task = s->cpus_per_task ? s->cpus_per_task : 1,
                         .memory_per_node_bytes = l->part->memory_bytes,
                         .time_limit_s = l->time_limit_s,
                         .comment = s->comment,
                         .command_text = s->command_text,
                         .workdir = s->workdir,
                         .output = s->output,
                         .error = s->error,
                         .argv = {s->argv.at, argc},
                         .attach = s->attach,
                         .slurm_words = s->slurm_words,
                         .lease_s = s->lease_s,
                         .checkpoint = s->checkpoint,
                         .grace_s = s->grace_s,
                         .key_hash = s->key_hash};
    if (core_feature(c, FEATURE_PORTS)) {
        out->ports.at = s->ports.at;
        out->ports.len = s->ports.len;
        out->network = s->network;
    }
    if (core_feature(c, FEATURE_HEALTH)) {
        out->health = s->health;
        out->health_interval_s = s->health_interval_s;
        out->health_failures = s->health_failures;
        out->idle_s = s->idle_s;
    }
    core_adopted_names(c, out);
    for (uint32_t i = 0; i < l->part->gpus.len; i++)
        out->gpus_milli += l->part->gpus.at[i].milli;
    int r = name_check("user", s->user, e);
    if (r < 0)
        return r;
    core_fill_defaults(c, &owner, out);
    if (core_check_spec(c, &owner, out, 0, now_ms, e) == 0)
        return 0;
    // What it asked for cannot be asked for in this state (other nodes, other partitions): what it holds counts.
    out->project = out->partition = out->qos = NULL;
    out->tasks = out->cpus_per_task = 1;
    out->memory_per_node_bytes = out->gpus_milli = out->time_limit_s = 0;
    out->class = CLASS_TRAIN;
    core_fill_defaults(c, &owner, out);
    out->memory_per_cpu_bytes = 0;
    return core_check_spec(c, &owner, out, 0, now_ms, e);
}

// A job that waits in the older copy and was started after the copy was made.
static bool is_same_job(const struct core_job *j, const struct message_launch *l) {
    return j && !j->sub->group && j->state == JOB_PENDING && j->attempt < l->attempt &&
           j->sub->submit_ms == l->submit_ms && streq(j->sub->user, l->spec->user);
}

// A worker that cannot be one again (adopt_group.c) becomes a job of its own. Its job, if it waits in the copy, would
// do its work a second time: it is held, and its user decides.
static void hold_elastic(struct core *c, const struct core_job *j, int64_t now_ms) {
    const struct core_job *job = j && core_is_worker(j) ? core_group_job(c, j) : NULL;
    struct event_job b = {.id = job ? job->id : 0,
                          .reason = "workers of it run as jobs of their own since the state was restored"};
    if (job && job->state == JOB_PENDING && !(job->flags & HELD_USER))
        core_emit(c, now_ms, EVENT_JOB_HELD, &b);
}

uint64_t core_adopted_id(const struct core *c, uint64_t id, uint64_t count) {
    bool is_free = id >= c->unused_from && id < c->unused_to && count <= c->unused_to - id;
    for (uint64_t i = 0; is_free && i < count; i++)
        is_free = !core_find_job(c, id + i);
    for (uint32_t i = 0; i < c->adopted.len && is_free; i++) {
        const struct core_adopted *k = &c->adopted.at[i];
        is_free = k->id >= id + count || k->id + (k->epoch ? 1 : k->attempt) <= id;
    }
    return is_free ? id : c->next_id;
}

// The controller's clock may have been set back since, and parts of one job are known by it: only what is no time at
// all is replaced.
int64_t core_adopted_submit_ms(int64_t ms, int64_t now_ms) {
    const int64_t year_9999_ms = 253402300799000;
    return ms < 0 || ms > year_9999_ms ? now_ms : ms;
}

static bool adopt(struct core *c, struct node_entry *n, const struct message_attempt *m, int64_t now_ms) {
    cleanup_arena struct arena a = {0};
    const struct message_launch *l = m->launch;
    struct event_job_placed placed = {
        .attempt = m->attempt,
        .epoch = l->epoch,
        .placed_seq = l->seq,
        .time_limit_s = l->time_limit_s,
        .start_ms = m->start_ms < 0 || m->start_ms > now_ms ? now_ms : m->start_ms,  // its clock may be ahead
        .reason = adopted_reason};
    // Only what an event of the lost part of the journal has started: anything else this state knows better than the
    // node does.
    if (!l->spec || !l->part || l->id != m->id || l->attempt != m->attempt || !core_event_lost(c, l->epoch, l->seq))
        return false;
    adopted_parts(c, n, l, &a, &placed);
    bool here = false;
    for (uint32_t i = 0; i < placed.parts.len; i++)
        here |= streq(placed.parts.at[i].node, n->name);
    if (!here)
        return false;
    core_array_need(c, m->id, now_ms);
    if (core_adopt_part(c, n, l, now_ms))
        return true;
    struct core_job *j = core_find_job(c, m->id);
    if (core_adopt_worker(c, m, &placed, now_ms))
        return true;
    if (is_same_job(j, l)) {
        placed.id = j->id;
        if (name_list_several(j->sub->partition))
            placed.partition =
                name_list_have(j->sub->partition, l->spec->partition) ? l->spec->partition : NULL;
    } else {
        // The submit was lost as well, and its number may have been given to another job since.
        struct spec spec;
        hold_elastic(c, j, now_ms);
        if (adopted_spec(c, l, now_ms, &spec, NULL) < 0)
            return false;
        placed.id = core_adopted_id(c, m->id, 1);
        placed.agent_id = placed.id == m->id ? 0 : m->id;
        struct event_key key;
        bool keyed = !l->is_array && core_key_adopt(c, spec.key_hash, now_ms, &key);
        struct event_job_submitted submitted = {.id = placed.id,
                                                .spec = &spec,
                                                .key = keyed ? &key : NULL,
                                                .submit_ms = core_adopted_submit_ms(l->submit_ms, now_ms)};
        core_emit(c, now_ms, EVENT_JOB_SUBMITTED, &submitted);
    }
    core_emit(c, now_ms, EVENT_JOB_PLACED, &placed);
    core_effect(c, EFFECT_JOB_CHANGED, NULL, placed.id, 0);
    return true;
}

bool core_agent_attempt(struct core *c, const char *node, const struct message_attempt *m, int64_t now_ms) {
    struct node_entry *n = core_find_node(c, node);
    struct core_job *j;
    uint32_t at = n ? asked_at(n, m->id, m->attempt) : 0;
    if (!n || at >= n->unknown.len)
        return false;
    if (n->state == NODE_DOWN) {  // jobs are never on a node that is down
        struct event_node b = {.name = n->name, .state = NODE_SILENT, .reason = reason_text(BECAUSE_NODE_REPORTS)};
        core_emit(c, now_ms, EVENT_NODE_STATE, &b);
    }
    // Another node of the job may have described it before.
    bool known = core_reported_part(c, node, m->id, m->attempt, &j) && m->launch && j->run->epoch == m->launch->epoch;
    bool adopted = known || (m->launch && adopt(c, n, m, now_ms));
    vec_remove(&n->unknown, at);
    if (adopted && m->start_ms) {
        struct message_started started = {.id = m->id, .attempt = m->attempt, .cpu_ids = m->cpu_ids};
        core_agent_started(c, node, &started, now_ms);
    }
    struct run_part *p = adopted && !m->end ? core_reported_part(c, node, m->id, m->attempt, &j) : NULL;
    if (p) {
        struct attempt listed = {.id = m->id, .attempt = m->attempt, .last_step = m->last_step};
        listed.steps.at = m->steps.at;
        listed.steps.len = m->steps.len;
        core_send_desired(c, j, p);  // it may have been suspended, or its limit changed, in the state that is lost
        core_steps_reconcile(c, j, node, &listed, true, now_ms);
    }
    if (m->end) {
        struct message_ended end = *m->end;
        end.id = m->id;
        end.attempt = m->attempt;
        end.epoch = m->launch ? m->launch->epoch : 0;
        core_agent_ended(c, node, &end, now_ms);
    } else if (!adopted && m->launch) {
        // It cannot be shown as a job: the node is not used until it has ended. What was started while the machine
        // had another name belongs to that node, which is given up in time.
        bool elsewhere = m->launch->part && !streq(m->launch->part->node, n->name);
        struct message_kill kill = {.id = m->id, .attempt = m->attempt, .cause = END_NODE_FAIL, .signal = 9,
                                    .epoch = m->launch->epoch, .reason = "the node has another name now"};
        vec_push(&n->stale, m->id);
        vec_push(&n->stale, m->attempt);
        if (elsewhere)
            core_effect_send(c, node, MESSAGE_KILL, &kill);
    }
    if (!n->stale.len && !n->unknown.len)
        core_node_ready(c, n, now_ms);
    return true;
}
