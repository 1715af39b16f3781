// Checks the invariants. The committed journal is replayed into a shadow core as it grows; machines report what really
// started, ran and was used. After every step the live core is audited, and whenever everything is committed it must
// equal the shadow core.
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "base/text.h"
#include "fault_sim.h"
#include "state.h"
#include "store/sim_disk.h"

enum {
    COMPARE_EVERY = 8,  // records between two comparisons
    PROMPT_CLEANUPS = 60,
    DIFFERS_MAX = 14,  // looks, five seconds apart: longer than a time-out
    FAILED_WINDOW_MS = 60000,
    FAILED_LAUNCHES_MAX = 60,  // far above what the pauses let through
};

typedef unsigned long long ull;

void check_init(struct sim *s) {
    struct core_config config = sim_config(s);
    s->check.shadow = core_new(&config);
}

static void free_values(struct map *m) {
    size_t it = 0;
    void *v;
    while (map_next(m, &it, NULL, &v))
        free(v);
    map_done(m);
}

void check_done(struct sim *s) {
    struct check *c = &s->check;
    core_free(c->shadow);
    for (uint32_t i = 0; i < c->jobs.len; i++) {
        vec_done(&c->jobs.at[i].placements);
        vec_done(&c->jobs.at[i].steps);
    }
    vec_done(&c->jobs);
    map_done(&c->keys);
    map_done(&c->refused);
    map_done(&c->starts);
    map_done(&c->recorded);
    map_done(&c->completing);
    free_values(&c->truths);
    free_values(&c->step_truths);
    map_done(&c->step_starts);
    check_logins_done(c);
    rules_done(&c->rules);
    arena_done(&c->arena);
}

// --- the journal ---

struct told *check_told(struct check *c, uint64_t id) {
    return id && id <= c->jobs.len ? &c->jobs.at[id - 1] : NULL;
}

static struct placement *placement_of(struct told *j, uint32_t attempt) {
    for (uint32_t i = 0; j && i < j->placements.len; i++)
        if (j->placements.at[i].attempt == attempt)
            return &j->placements.at[i];
    return NULL;
}

const struct placement *check_placement(struct told *j, uint32_t attempt) {
    return placement_of(j, attempt);
}

static void told_submitted(struct sim *s, const struct event_job_submitted *b) {
    struct check *c = &s->check;
    bool adopted = b->submit_ms;
    if (s->restored ? b->id <= c->jobs.len && (!adopted || c->jobs.at[b->id - 1].submitted) : b->id != c->jobs.len + 1)
        sim_fail(s, "job %llu was submitted after job %u", (ull)b->id, c->jobs.len);
    while (c->jobs.len < b->id - 1 + spec_array_count(b->spec))
        vec_push(&c->jobs, (struct told){.item = UINT32_MAX});
    uint32_t item = UINT32_MAX;
    if (b->spec->argv.len == 2)
        parse_u32(b->spec->argv.at[1], &item);
    for (uint64_t i = 0; i < spec_array_count(b->spec); i++) {
        c->jobs.at[b->id - 1 + i].submitted = true;
        c->jobs.at[b->id - 1 + i].item = item;
        c->jobs.at[b->id - 1 + i].adopted = adopted;
        c->jobs.at[b->id - 1 + i].retries = b->spec->retries;
    }
    elastic_submitted(s, b);
    if (!b->key)
        return;
    if (map_get(&c->keys, b->key->hash))
        sim_fail(s, "one key made two jobs, the second is %llu", (ull)b->id);
    map_put(&c->keys, b->key->hash, c);
}

// Parts of one attempt that nodes report at different times after a restore are one job, once the journal's level has
// an event for it.
static void check_one_job(struct sim *s, const struct event_job_placed *b) {
    uint64_t id = b->agent_id ? b->agent_id : b->id;
    bool joins = b->placed_seq && core_feature(s->check.shadow, FEATURE_ADOPTED_PARTS);
    for (uint32_t i = 0; joins && i < s->check.jobs.len; i++) {
        struct told *o = &s->check.jobs.at[i];
        const struct placement *p = o->placed && i + 1 != b->id ? placement_of(o, b->attempt) : NULL;
        if (p && p->placed_seq == b->placed_seq && p->epoch == b->epoch && o->attempt == b->attempt &&
            (p->agent_id ? p->agent_id : i + 1) == id)
            sim_fail(s, "job %llu attempt %u on the machines is two jobs, %u and %llu", (ull)id, b->attempt,
                     i + 1, (ull)b->id);
    }
}

static void told_part_adopted(struct sim *s, struct told *j, const struct event_part_adopted *b) {
    struct placement *p = placement_of(j, b->attempt);
    if (!p || !j->placed || b->attempt != j->attempt || b->place > p->part_count ||
        p->part_count >= MACHINES_MAX) {
        sim_fail(s, "job %llu attempt %u gets a part on %s that it cannot have", (ull)b->id, b->attempt,
                 b->part->node);
        return;
    }
    for (uint32_t i = p->part_count++; i > b->place; i--) {
        p->nodes[i] = p->nodes[i - 1];
        p->part_ended[i] = p->part_ended[i - 1];
    }
    p->nodes[b->place] = arena_strdup(&s->check.arena, b->part->node);
    p->part_ended[b->place] = false;
    j->cpus += b->part->cpus;
    for (uint32_t g = 0; g < b->part->gpus.len; g++)
        j->gpus_milli += b->part->gpus.at[g].milli;
}

void check_placed(struct sim *s, struct told *j, const struct event_job_placed *b, int64_t at_ms) {
    if (j->placed || (s->restored ? b->attempt <= j->attempt : b->attempt != j->attempt + 1))
        sim_fail(s, "job %llu was placed as attempt %u after attempt %u%s", (ull)b->id, b->attempt,
                 j->attempt, j->placed ? ", which goes on" : "");
    if (j->cancelled)
        sim_fail(s, "job %llu was placed again although it was cancelled", (ull)b->id);
    struct placement p = {.attempt = b->attempt,
                          .part_count = b->parts.len,
                          .epoch = b->epoch,
                          .agent_id = b->agent_id,
                          .placed_seq = b->placed_seq};
    if (b->reason)
        check_one_job(s, b);
    for (uint32_t i = 0; i < b->parts.len && i < MACHINES_MAX; i++)
        p.nodes[i] = arena_strdup(&s->check.arena, b->parts.at[i].node);
    vec_push(&j->placements, p);
    struct usage earlier = j->usage;
    j->usage = (struct usage){0};  // use is told of the newest attempt
    usage_copy_earlier(&j->usage, &earlier);
    j->has_usage = earlier.earlier_attempts;
    j->start_ms = b->start_ms ? b->start_ms : at_ms;
    j->cpus = j->gpus_milli = 0;
    for (uint32_t i = 0; i < b->parts.len; i++) {
        j->cpus += b->parts.at[i].cpus;
        for (uint32_t g = 0; g < b->parts.at[i].gpus.len; g++)
            j->gpus_milli += b->parts.at[i].gpus.at[g].milli;
    }
    j->attempt = b->attempt;
    j->placed = true;
    j->ending = false;
    elastic_whole(s, j, b);
}

// After a restore another attempt may have the number.
static uint64_t attempt_key(uint64_t id, uint32_t attempt, uint64_t epoch) {
    return hash_u64(id << 20 | attempt) ^ hash_u64(epoch);
}

static uint64_t truth_key(const char *node, uint64_t id, uint32_t attempt, uint64_t epoch) {
    return hash_bytes(node, strlen(node)) ^ hash_u64(id << 20 | attempt) ^ hash_u64(epoch);
}

// Counted here once more: everything adds up, but time passes only once.
static void add_use(struct usage *sum, const struct usage *more) {
    uint64_t wall_ms = sum->wall_ms > more->wall_ms ? sum->wall_ms : more->wall_ms;
    for (size_t i = 0; i < sizeof *sum / sizeof(uint64_t); i++)
        ((uint64_t *)sum)[i] += ((const uint64_t *)more)[i];
    sum->wall_ms = wall_ms;
}

static void told_part_ended(struct sim *s, struct told *j, const struct event_part_ended *b) {
    struct placement *p = placement_of(j, b->attempt);
    bool found = false;
    for (uint32_t i = 0; p && i < p->part_count; i++)
        if (streq(p->nodes[i], b->node) && !p->part_ended[i]) {
            found = p->part_ended[i] = true;
            break;
        }
    if (!found || b->attempt != j->attempt || !j->placed)
        sim_fail(s, "job %llu: a part of attempt %u on %s ended that was not there", (ull)b->id, b->attempt, b->node);
    j->last_cause = b->cause;
    uint64_t key = truth_key(b->node, p && p->agent_id ? p->agent_id : b->id, b->attempt, p ? p->epoch : 0);
    map_put(&s->check.recorded, key, s);
    if (p && b->reason &&
        strstr(b->reason, "from the controller's disk"))  // launched again, and then without a script
        map_remove(&s->check.refused, attempt_key(b->id, b->attempt, p->epoch));
    if (!b->usage)
        return;
    const struct usage *truth = map_get(&s->check.truths, key);
    if (truth ? memcmp(truth, b->usage, sizeof *truth) != 0 : b->usage->wall_ms != 0)
        sim_fail(s, "job %llu attempt %u on %s: the journal counts %llu ms of use, the machine %llu",
                 (ull)b->id, b->attempt, b->node, (ull)b->usage->wall_ms, (ull)(truth ? truth->wall_ms : 0));
    add_use(&j->usage, b->usage);
    j->has_usage = true;
    struct told *job = check_told(&s->check, j->job);
    if (job) {
        add_use(&job->usage, b->usage);
        job->has_usage = true;
    }
}

static void told_ended(struct sim *s, struct told *j, const struct event_job_ended *b) {
    const struct sim_disk *d = s->disk;
    cleanup_arena struct arena a = {0};
    struct job_record r;
    if (j->ended)
        sim_fail(s, "job %llu ended twice", (ull)b->id);
    j->ended = true;
    j->placed = false;
    elastic_over(s, j, b->id, true);
    if (j->job && !j->attempt)
        return;  // a worker that never ran has no place in history
    const struct placement *p = placement_of(j, b->attempt);
    if (b->state == JOB_FAILED && p && p->part_count == 1 && !j->job && !j->ending &&
        j->last_cause == END_EXIT && j->retried < j->retries)
        sim_fail(s, "job %llu failed after %u retries of %u", (ull)b->id, j->retried, j->retries);
    if (b->state == JOB_FAILED && p && map_get(&s->check.refused, attempt_key(b->id, b->attempt, p->epoch)))
        sim_fail(s, "job %llu failed because a node could not launch it", (ull)b->id);
    uintptr_t at = (uintptr_t)map_get(&d->history_by_id, b->id);
    if (!at || d->history.at[at - 1].state != b->state) {
        sim_fail(s, "job %llu ended %s but is not in history like that", (ull)b->id, job_state_words[b->state]);
        return;
    }
    const struct store_history *row = &d->history.at[at - 1];
    if (schema_decode(&job_record_schema, row->data, row->len, &a, &r) < 0) {
        sim_fail(s, "job %llu: its record in history cannot be read", (ull)b->id);
        return;
    }
    if (j->has_usage != (r.usage != NULL) || (r.usage && memcmp(r.usage, &j->usage, sizeof j->usage) != 0))
        sim_fail(s, "job %llu: history counts %llu ms, its events %llu", (ull)b->id,
                 (ull)(r.usage ? r.usage->wall_ms : 0), (ull)j->usage.wall_ms);
}

// No attempt is forgotten: what it held from its placement to its end, and what it used.
void check_attempt_over(struct told *j, int64_t at_ms) {
    struct usage *u = &j->usage;
    uint64_t held_ms = at_ms > j->start_ms ? (uint64_t)(at_ms - j->start_ms) : 0;
    u->earlier_start_ms = u->earlier_attempts ? u->earlier_start_ms : j->start_ms;
    u->earlier_end_ms = at_ms;
    u->earlier_attempts++;
    u->earlier_cpu_held_ms += held_ms * j->cpus;
    u->earlier_gpu_held_ms += held_ms * j->gpus_milli / 1000;
    u->earlier_cpu_us += u->cpu_user_us + u->cpu_system_us;
    u->earlier_gpu_busy_ms += u->gpu_busy_ms;
    u->earlier_gpu_measured_ms += u->gpu_measured_ms;
    u->earlier_energy_mj += u->energy_mj;
    j->has_usage = true;
}

static void tell_job(struct sim *s, const struct event *e) {
    if (e->type == EVENT_JOB_SUBMITTED) {
        told_submitted(s, e->body);
        return;
    }
    uint64_t id = event_job_id(e);
    struct told *j = check_told(&s->check, id);
    if (!j || !j->submitted || j->ended) {
        sim_fail(s, "%s about job %llu, which %s", event_info(e->type)->name, (ull)id,
                 j && j->ended ? "has ended" : "nobody submitted");
        return;
    }
    switch (e->type) {
    case EVENT_JOB_PLACED:
        check_placed(s, j, e->body, e->at_ms);
        elastic_adopted(s, e->body);
        break;
    case EVENT_JOB_ADOPTED:
    case EVENT_WORKERS_PLACED:
    case EVENT_WORKER_RESTARTED:
    case EVENT_JOB_RESIZED: elastic_event(s, j, e); break;
    case EVENT_PART_ADOPTED: told_part_adopted(s, j, e->body); break;
    case EVENT_PART_ENDED: told_part_ended(s, j, e->body); break;
    case EVENT_JOB_ENDED: told_ended(s, j, e->body); break;
    case EVENT_JOB_ENDING:
        j->cancelled |= ((struct event_job_ending *)e->body)->cause == END_CANCEL;
        j->ending = true;
        check_lease_ended(s, id, e->body);
        break;
    case EVENT_STEP_STARTED:
    case EVENT_STEP_ENDING:
    case EVENT_STEP_ENDED: check_step_event(s, j, e); break;
    case EVENT_JOB_REQUEUED:
        if (!j->placed)
            sim_fail(s, "job %llu went back to the queue without having left it", (ull)id);
        j->placed = false;
        j->retried += ((struct event_job_requeued *)e->body)->cause == END_EXIT;
        if (!j->job && j->retried > j->retries)
            sim_fail(s, "job %llu is run again for the %uth time, it may be %u times", (ull)id, j->retried,
                     j->retries);
        elastic_over(s, j, id, false);
        check_attempt_over(j, e->at_ms);
        break;
    default: break;
    }
}

static void tell(struct sim *s, const struct store_event *record) {
    cleanup_arena struct arena a = {0};
    struct event e;
    if (event_decode((enum event_type)record->type, record->data, record->len, &a, &e) < 0) {
        sim_fail(s, "journal record %llu cannot be decoded", (ull)record->seq);
        return;
    }
    if (e.type == EVENT_JOB_ENDING)
        note(s, "journal %llu: job %llu is to end: %s (%s)", (ull)record->seq, (ull)record->job,
             schema_word_name(event_end_cause_words, ((struct event_job_ending *)e.body)->cause),
             ((struct event_job_ending *)e.body)->reason ? ((struct event_job_ending *)e.body)->reason : "-");
    else if (e.type == EVENT_WANTED_NODE)
        note(s, "journal %llu: node %s is %s", (ull)record->seq, ((struct wanted_node *)e.body)->key,
             schema_word_name(wanted_state_words, ((struct wanted_node *)e.body)->state));
    else
        note(s, "journal %llu: %s job %llu", (ull)record->seq, event_info(e.type)->name, (ull)record->job);
    e.at_ms = record->at_ms;
    if (e.type == EVENT_LEVEL_SET)
        s->check.level_seq = record->seq;
    if (event_job_id(&e) && e.type != EVENT_JOB_TIME_WARNING)
        tell_job(s, &e);
    check_login_event(s, &e);
    provider_event(s, &e);
    rules_event(&s->check.rules, &e);
    if (s->check.rules.broken[0])
        sim_fail(s, "%s", s->check.rules.broken);
    if (core_replay(s->check.shadow, record->seq, record->at_ms, (enum event_type)record->type, record->data,
                    record->len) < 0)
        sim_fail(s, "journal record %llu cannot be replayed", (ull)record->seq);
}

void check_journal(struct sim *s) {
    const struct sim_disk *d = s->disk;
    if (s->check.read > d->journal.len)
        sim_fail(s, "the journal had %u records, now %u", s->check.read, d->journal.len);
    while (s->check.read < d->journal.len && !s->failed)
        tell(s, &d->journal.at[s->check.read++]);
}

// --- the controller ---

void check_equal(struct sim *s) {
    cleanup_buf struct buf live = {0}, shadow = {0};
    if (is_shared(s))
        heads_check_equal(s);
    core_snapshot(s->head->core, &live);
    core_snapshot(s->check.shadow, &shadow);
    s->check.compares++;
    check_logins_equal(s);
    service_rules(s);
    provider_rules(s);
    if (live.len == shadow.len && memcmp(live.data, shadow.data, live.len) == 0)
        return;
    size_t at = 0;
    while (at < live.len && at < shadow.len && live.data[at] == shadow.data[at])
        at++;
    sim_fail(s,
             "replaying the journal up to record %llu gives another state than the controller's (%zu and %zu "
             "bytes, differ at %zu)",
             (ull)core_seq(s->head->core), shadow.len, live.len, at);
}

void check_loaded(struct sim *s) {
    const struct sim_disk *d = s->disk;
    uint64_t last = d->journal.len ? d->journal.at[d->journal.len - 1].seq : 0;
    uint64_t silent = core_outbox(s->head->core)->events.len;  // nodes that now count as silent
    if (core_seq(s->head->core) - silent != last)
        sim_fail(s, "the journal ends at record %llu, the controller started from %llu", (ull)last,
                 (ull)(core_seq(s->head->core) - silent));
    s->check.compared_seq = 0;
}

static bool within(void *ctx, const struct node_view *v) {
    struct sim *s = ctx;
    elastic_within(s, v);
    if (v->state == NODE_DOWN && v->jobs)
        sim_fail(s, "node %s is down and holds %u jobs", v->node->name, v->jobs);
    return !s->failed;
}

void check_step(struct sim *s) {
    struct core *core = s->head->core;
    struct check *c = &s->check;
    if (c->rules.latest_ms < head_wall_ms(s))
        c->rules.latest_ms = head_wall_ms(s);
    if (!core)
        return;
    uint64_t seq = core_seq(core);
    if (seq != c->asserted_seq) {
        c->asserted_seq = seq;
        c->asserts++;
        core_assert(core);
        core_each_node(core, within, s);
        elastic_heads(s);
    }
    if (seq == core_seq(c->shadow) && seq - c->compared_seq >= COMPARE_EVERY) {
        c->compared_seq = seq;
        check_equal(s);
    }
}

// Nobody is given up who was heard of in time, whatever the clocks say.
void check_given_up(struct sim *s, const char *node) {
    for (uint32_t i = 0; i < s->machine_count; i++) {
        const struct machine *m = &s->machines[i];
        int64_t silent_ms = head_awake_ms(s) - m->heard_ms;
        if (streq(m->name, node) && m->heard_ms && m->heard_head == s->head->number &&
            silent_ms < (int64_t)s->plan->lost_after_s * 1000)
            sim_fail(s, "node %s was given up %lld ms after it was heard of", node, (long long)silent_ms);
    }
}

// --- the machines ---

void check_launch(struct sim *s, const struct machine *m, const struct message_launch *l) {
    const struct placement *p = placement_of(check_told(&s->check, l->id), l->attempt);
    if (s->restored && (!core_epoch(s->check.shadow) || core_event_lost(s->check.shadow, l->epoch, l->seq)))
        return;  // sent before the restore
    const char *script = l->spec->upload_id ? JOB_SCRIPT JOB_FOLDER : JOB_SCRIPT;
    if (l->script.len != strlen(script) || memcmp(l->script.data, script, l->script.len) != 0)
        sim_fail(s, "%s: job %llu attempt %u comes without its script or folder", m->name, (ull)l->id, l->attempt);
    for (uint32_t i = 0; p && i < p->part_count; i++)
        if (streq(p->nodes[i], l->part->node))
            return;
    sim_fail(s, "%s: told to launch job %llu attempt %u, which the journal does not know", m->name,
             (ull)l->id, l->attempt);
}

// A node that cannot launch anything is given little to launch.
void check_launch_failed(struct sim *s, struct machine *m, const struct message_launch *l) {
    bool kept = core_level(s->check.shadow) >
                FEATURE_LEVEL_FIRST;  // journals of the first level do not say who fails
    if (s->now_ms - m->failed_from_ms > FAILED_WINDOW_MS || !kept) {
        m->failed_from_ms = s->now_ms;
        m->failed_launches = 0;
    }
    if (++m->failed_launches > FAILED_LAUNCHES_MAX)
        sim_fail(s, "%s: %u launches failed in a minute, and more are sent", m->name, m->failed_launches);
    if (l->parts.len == 1)
        map_put(&s->check.refused, attempt_key(l->id, l->attempt, l->epoch), m);
}

void check_started(struct sim *s, struct machine *m, const struct sim_unit *u) {
    uint64_t same = attempt_key(u->id, u->attempt, u->epoch), key = same + m->number + 1;
    uint32_t cpus = 0, gpus[GPUS_MAX] = {0};
    uint64_t memory = 0;
    if (map_get(&s->check.starts, key))
        sim_fail(s, "%s: job %llu attempt %u was started twice", m->name, (ull)u->id, u->attempt);
    map_put(&s->check.starts, key, m);
    map_remove(&s->check.refused, same);  // a later launch of the same attempt worked
    for (uint32_t i = 0; i < m->units.len; i++) {
        const struct sim_unit *x = m->units.at[i];
        if (!x->live)
            continue;
        cpus += x->cpus;
        memory += x->memory_bytes;
        for (uint32_t g = 0; g < x->gpu_count; g++)
            if (x->gpus[g].index < GPUS_MAX && (gpus[x->gpus[g].index] += x->gpus[g].milli) > 1000)
                sim_fail(s, "%s: GPU %u is used by more than fits when job %llu attempt %u starts", m->name,
                         x->gpus[g].index, (ull)u->id, u->attempt);
    }
    if (cpus > m->shape->cpus || memory > m->shape->memory_bytes)
        sim_fail(s, "%s: %u CPUs are used of %u when job %llu attempt %u starts", m->name, cpus,
                 m->shape->cpus, (ull)u->id, u->attempt);
}

void check_ended(struct sim *s, const struct machine *m, const struct sim_unit *u) {
    uint64_t key = truth_key(m->name, u->id, u->attempt, u->epoch);
    struct usage *truth = map_get(&s->check.truths, key);
    if (!truth) {
        truth = xcalloc(1, sizeof *truth);
        map_put(&s->check.truths, key, truth);
    }
    *truth = u->usage;
}

// The attempt of a machine as the journal tells it; after a restore another may have its number.
static struct placement *placement_on(struct check *c, const struct sim_unit *u, struct told **of) {
    struct told *j = check_told(c, u->id);
    struct placement *p = placement_of(j, u->attempt);
    *of = j;
    if (p && p->epoch == u->epoch && !p->agent_id)
        return p;
    for (uint32_t i = 0; i < c->jobs.len; i++)
        for (uint32_t k = 0; k < c->jobs.at[i].placements.len; k++) {
            p = &c->jobs.at[i].placements.at[k];
            *of = &c->jobs.at[i];
            if (p->agent_id == u->id && p->attempt == u->attempt && p->epoch == u->epoch)
                return p;
        }
    return NULL;
}

bool check_part_ended(struct sim *s, const struct sim_unit *u) {
    struct told *j;
    const struct placement *p = placement_on(&s->check, u, &j);
    bool ended = false;
    for (uint32_t i = 0; p && i < p->part_count; i++)
        ended |= p->part_ended[i] && streq(p->nodes[i], u->node);
    return ended;
}

// What an agent may forget, the journal must know: the end of that part, or that the attempt was
// given up before.
void check_removed(struct sim *s, const struct machine *m, const struct sim_unit *u) {
    struct told *j;
    const struct placement *p = placement_on(&s->check, u, &j);
    bool over = p && (j->ended || j->attempt != u->attempt || !j->placed);
    over |= map_get(&s->check.recorded, truth_key(u->node, u->id, u->attempt, u->epoch)) != NULL;  // before a restore
    over |= check_part_ended(s, u);
    // Under another name it is nobody's: the name it was launched under is given up in time.
    if (!over && streq(m->name, u->node))
        sim_fail(s, "%s: the end of job %llu attempt %u was forgotten before it was recorded", m->name,
                 (ull)u->id, u->attempt);
}

// The journal is an older copy: everything that follows from it is read anew.
void check_restored(struct sim *s) {
    struct check *c = &s->check;
    struct core_config config = sim_config(s);
    int64_t latest_ms = c->rules.latest_ms;
    s->restored = true;
    s->restores++;
    core_free(c->shadow);
    c->shadow = core_new(&config);
    for (uint32_t i = 0; i < c->jobs.len; i++) {
        vec_done(&c->jobs.at[i].placements);
        vec_done(&c->jobs.at[i].steps);
    }
    vec_clear(&c->jobs);
    map_done(&c->keys);
    c->keys = (struct map){0};
    check_logins_clear(c);
    rules_done(&c->rules);
    c->rules = (struct rules){.latest_ms = latest_ms};
    c->read = 0;
    c->compared_seq = c->asserted_seq = 0;
    c->rereading = true;
    check_journal(s);
    c->rereading = false;
}

void check_acknowledged(struct sim *s, const struct request *q) {
    for (uint64_t i = 0; q->id && i < q->count && !s->restored; i++)
        if (!check_told(&s->check, q->id + i))
            sim_fail(s, "job %llu was acknowledged but is not in the journal", (ull)(q->id + i));
}

// --- the end ---

// Nothing takes its time without a reason: nodes are back and what is to end has ended long before
// the last job has.
static bool ending_too_long(void *ctx, const struct job_view *v) {
    struct sim *s = ctx;
    uint64_t key = v->id << 20 | v->attempt;
    if (v->state != JOB_COMPLETING)
        return true;
    uintptr_t since = (uintptr_t)map_get(&s->check.completing, key);
    if (!since)
        map_put(&s->check.completing, key, (void *)(uintptr_t)(s->cleanups + 1));
    else if (s->cleanups + 1 - since > PROMPT_CLEANUPS)
        sim_fail(s, "job %llu attempt %u has been ending for long after the last fault", (ull)v->id, v->attempt);
    return !s->failed;
}

// A job that the controller calls running runs, and one that it calls suspended does not.
static void check_suspended(struct sim *s, struct sim_unit *u) {
    struct job_view v;
    bool comparable = u->live && u->phase == PHASE_RUN && u->shepherd &&
                      core_view(s->head->core, u->id, &v) && v.attempt == u->attempt &&
                      (v.state == JOB_RUNNING || v.state == JOB_SUSPENDED);
    u->differs = comparable && (v.state == JOB_SUSPENDED) != u->suspended ? u->differs + 1 : 0;
    if (u->differs > DIFFERS_MAX)
        sim_fail(s, "job %llu attempt %u is %s but its processes %s", (ull)u->id, u->attempt,
                 job_state_words[v.state], u->suspended ? "are stopped" : "run");
}

// What a node says of the health of its attempts is known from then on.
void check_hello(struct sim *s, const struct message_hello *h) {
    struct job_view v;
    for (uint32_t i = 0; i < h->attempts.len; i++) {
        const struct attempt *a = &h->attempts.at[i];
        if (a->state != ATTEMPT_ENDED && a->health && core_feature(s->head->core, FEATURE_HEALTH) &&
            core_agent_job_number(s->head->core, a->id, a->attempt) == a->id &&
            core_runs_on(s->head->core, a->id, a->attempt, h->node->name) &&
            core_view(s->head->core, a->id, &v) && v.state == JOB_RUNNING && v.node_count == 1 &&
            !v.workers_max && v.health != a->health)
            sim_fail(s, "job %llu attempt %u is %s on its node, and the controller says %s", (ull)a->id,
                     a->attempt, job_health_words[a->health], job_health_words[v.health]);
    }
}

void check_prompt(struct sim *s) {
    struct node_view v;
    if (!s->head->core)
        return;
    for (uint32_t i = 0; i < s->machine_count; i++)
        for (uint32_t k = 0; k < s->machines[i].units.len; k++)
            if (s->machines[i].logic) {
                check_suspended(s, s->machines[i].units.at[k]);
                elastic_members(s, s->machines[i].units.at[k]);
            }
    check_steps_prompt(s);
    port_check(s);
    core_each_job(s->head->core, ending_too_long, s);
    for (uint32_t i = 0; i < s->plan->machine_count && s->cleanups > PROMPT_CLEANUPS; i++) {
        const struct machine *m = &s->machines[i];
        if (!m->gone && (!core_node(s->head->core, m->name, &v) || v.state != NODE_UP))
            sim_fail(s, "node %s is not back long after the last fault", m->name);
    }
}

static bool any_job(void *ctx, const struct job_view *v) {
    *(struct job_view *)ctx = *v;
    return false;
}

bool check_idle(struct sim *s, char *why, size_t size) {
    struct job_view left = {0};
    struct node_view v;
    if (!s->head->core || pipeline_degraded(s->head->pipeline, NULL, 0) ||
        core_seq(s->head->core) != core_seq(s->check.shadow)) {
        snprintf(why, size, "the controller has something to write");
        return false;
    }
    core_each_job(s->head->core, any_job, &left);
    if (left.id) {
        snprintf(why, size, "job %llu is %s (%s), attempt %u", (ull)left.id, job_state_words[left.state],
                 job_reason_words[left.reason], left.attempt);
        return false;
    }
    for (uint32_t i = 0; i < s->plan->machine_count; i++) {
        const struct machine *m = &s->machines[i];
        if (m->gone)
            continue;
        if (!m->logic || !core_node(s->head->core, m->name, &v) || v.state != NODE_UP || v.cpus_used ||
            v.stale) {
            snprintf(why, size, "node %s is not up and idle", m->name);
            return false;
        }
        const struct event_node_images *images = core_node_images(s->head->core, m->name);
        if (!m->shape->older && s->plan->level == FEATURE_LEVEL_NEWEST &&
            (images ? images->images.len : 0) != m->images % IMAGES_MAX) {
            snprintf(why, size, "node %s holds %u images, of which the controller knows %u", m->name,
                     m->images % IMAGES_MAX, images ? images->images.len : 0);
            return false;
        }
        if (m->units.len) {
            const struct sim_unit *u = m->units.at[0];
            snprintf(why, size, "node %s still has job %llu attempt %u in its spool", m->name, (ull)u->id, u->attempt);
            return false;
        }
    }
    if (s->plan->engine && !provider_idle(s, why, size))
        return false;
    if (is_shared(s) && !heads_idle(s, why, size))
        return false;
    if (!watchers_done_waiting(s)) {
        snprintf(why, size, "a client still waits for the output of a step");
        return false;
    }
    if (!port_clients_done(s)) {
        snprintf(why, size, "a client of a port is not done");
        return false;
    }
    if (!log_clients_done(s)) {
        snprintf(why, size, "a client still waits for the output of a job");
        return false;
    }
    if (!clients_settled(s)) {
        snprintf(why, size, "a client still waits for an answer");
        return false;
    }
    return true;
}
