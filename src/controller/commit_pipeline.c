// A queue of batches that are being committed, oldest first: each with the effects and answers that leave when the
// store reports its ticket.
#include "controller/commit_pipeline.h"

#include <assert.h>
#include <errno.h>
#include <stdio.h>
#include <string.h>

#include "base/map.h"
#include "base/text.h"

enum {
    TEXT_CACHE_SLOTS = 64,
    TEXT_CACHE_BYTES_MAX = 256 << 10,
    SLICES = 2,  // of a turn of the loop: 2,000 elements are created, or 2,000 dependents judged, in 2 ms
    OLD_KEYS_MAX = 1000000,  // imported from the previous release, those that expire last first
};
// Nodes are checked every second; a check that comes later than CHECK_LATE_MS counts as one interval.
enum { CHECK_INTERVAL_MS = 1000, CHECK_LATE_MS = 2500, SINCE_CHECK = -1, GIVEN_UP = -2 };

struct pipeline_answer {
    pipeline_done_fn fn;
    void *arg;
};

struct pipeline_entry {
    uint64_t ticket;
    VEC(struct effect) effects;
    VEC(struct pipeline_answer) answers;
    VEC(struct outbox_finished) finished;
    VEC(struct notice) notices;
    char *bytes;
    size_t batch_bytes;
};

struct pipeline_heard_at {
    // The first check since, by the clock `watched_ms`; SINCE_CHECK: there was none yet; GIVEN_UP: nothing was heard
    // since it was given up.
    int64_t at_ms;
};

struct cached_text {
    char id[33];
    char *text;
    size_t len;
};

struct commit_pipeline {
    struct core *core;
    struct store *store;
    struct pipeline_hooks hooks;
    VEC(struct pipeline_entry *) line;   // oldest first
    size_t backlog;                      // bytes of their batches
    VEC(struct pipeline_answer) answers;  // for the batch to come
    struct store_batch *batch;   // texts that came in since the last flush
    uint64_t snapshot_seq;
    int64_t now_ms;              // of the last flush
    bool snapshot_busy, degraded;
    char why[ERROR_TEXT_MAX];
    VEC(struct effect) waiting;  // launches and steps that found no room on their way
    struct strmap heard;         // node, interned by the core → struct pipeline_heard_at
    int64_t watched_ms;          // time in which this process really listened: stalls count as one interval
    int64_t checked_ms;          // when nodes were last checked; 0: not yet
    struct cached_text texts[TEXT_CACHE_SLOTS];
    char *uncached;
    uint64_t committed_seq;  // of the newest event on disk since the start; 0: none yet
    uint64_t loaded_seq;     // of the newest event at the start
};

struct commit_pipeline *pipeline_new(struct core *core, const struct pipeline_hooks *hooks) {
    struct commit_pipeline *s = xcalloc(1, sizeof *s);
    s->core = core;
    s->hooks = *hooks;
    s->batch = store_batch_new();
    return s;
}

static void entry_free(struct pipeline_entry *e) {
    vec_done(&e->effects);
    vec_done(&e->answers);
    vec_done(&e->finished);
    vec_done(&e->notices);
    free(e->bytes);
    free(e);
}

struct commit_pipeline *pipeline_free(struct commit_pipeline *s) {
    if (!s)
        return NULL;
    for (uint32_t i = 0; i < s->line.len; i++)
        entry_free(s->line.at[i]);
    vec_done(&s->line);
    vec_done(&s->waiting);
    vec_done(&s->answers);
    size_t it = 0;
    void *h;
    while (strmap_next(&s->heard, &it, NULL, &h))
        free(h);
    strmap_done(&s->heard);
    for (int i = 0; i < TEXT_CACHE_SLOTS; i++)
        free(s->texts[i].text);
    free(s->uncached);
    store_batch_free(s->batch);
    free(s);
    return NULL;
}

struct store *pipeline_store(struct commit_pipeline *s) {
    return s->store;
}

struct core *pipeline_core(struct commit_pipeline *s) {
    return s->core;
}

void pipeline_attach(struct commit_pipeline *s, struct store *store) {
    s->store = store;
}

// --- texts ---

void pipeline_text_id(const void *text, size_t len, char id[static 33]) {
    struct store_key key;
    store_key_of(text, len, &key);
    for (int i = 0; i < 16; i++)
        snprintf(id + i * 2, 3, "%02x", key.bytes[i]);
}

static int key_of_id(const char *id, struct store_key *key) {
    if (strlen(id) != 32)
        return -EINVAL;
    for (int i = 0; i < 16; i++) {
        unsigned byte;
        if (sscanf(id + i * 2, "%2x", &byte) != 1)
            return -EINVAL;
        key->bytes[i] = (uint8_t)byte;
    }
    return 0;
}

void pipeline_keep_text(struct commit_pipeline *s, uint64_t owner, const void *text, size_t len) {
    struct store_key key;
    store_key_of(text, len, &key);
    store_batch_text(s->batch, owner, &key, text, len);
}

int pipeline_text(struct commit_pipeline *s, const char *id, const char **text, size_t *len) {
    struct cached_text *c = &s->texts[hash_bytes(id, strlen(id)) % TEXT_CACHE_SLOTS];
    if (!c->text || strcmp(c->id, id) != 0) {
        struct store_key key;
        void *data;
        size_t n;
        int r = key_of_id(id, &key);
        if (r < 0 || (r = store_text(s->store, &key, &data, &n, NULL)) < 0)
            return r;
        if (n > TEXT_CACHE_BYTES_MAX) {
            free(s->uncached);
            s->uncached = data;
            *text = data;
            *len = n;
            return 0;
        }
        free(c->text);
        c->text = data;
        c->len = n;
        snprintf(c->id, sizeof c->id, "%s", id);
    }
    *text = c->text;
    *len = c->len;
    return 0;
}

void pipeline_keep_blob(struct commit_pipeline *s, const char *name, const void *data, size_t len) {
    store_batch_blob(s->batch, name, data, len);
}

// --- effects ---

static int source_text(void *ctx, const char *id, const char **text, size_t *len) {
    return pipeline_text(ctx, id, text, len);
}

static int source_secret(void *ctx, const char *node, const struct event_secret *secret, struct arena *a,
                         struct bytes *out, struct error *e) {
    struct commit_pipeline *s = ctx;
    return s->hooks.secret(s->hooks.ctx, node, secret, a, out, e);
}

static void send_messages(struct commit_pipeline *s, const struct effect *f) {
    cleanup_arena struct arena a = {0};
    struct message out[CORE_EFFECT_MESSAGES_MAX];
    struct core_sources from = {s, source_text, s->hooks.secret ? source_secret : NULL};
    uint32_t n = core_effect_messages(s->core, f, &from, s->now_ms, &a, out);
    for (uint32_t i = 0; i < n; i++) {
        cleanup_buf struct buf b = {0};
        message_encode(&out[i], &b);
        s->hooks.send(s->hooks.ctx, f->node, b.data, b.len);
        if (message_wipe(&out[i]))
            explicit_bzero(b.data, b.len);
    }
}

// Scripts are large and many may start at once: what the node has not taken yet is not even made.
static void send_or_wait(struct commit_pipeline *s, const struct effect *f) {
    if (s->hooks.has_room && !s->hooks.has_room(s->hooks.ctx, f->node))
        vec_push(&s->waiting, *f);
    else
        send_messages(s, f);
}

void pipeline_send_waiting(struct commit_pipeline *s, const char *node, bool gone) {
    uint32_t kept = 0;
    for (uint32_t i = 0; i < s->waiting.len; i++) {
        struct effect f = s->waiting.at[i];
        bool here = streq(f.node, node);
        if (here && !gone && s->hooks.has_room(s->hooks.ctx, node))
            send_messages(s, &f);
        else if (!here || !gone)
            s->waiting.at[kept++] = f;
    }
    s->waiting.len = kept;
}

// What goes to nodes leaves first: whoever is told "submitted", or watches a job, may ask at once, and what they ask
// about has left. The core may be called from here (a launch that cannot be made); what that brings about is in the
// next batch.
static void send_effects(struct commit_pipeline *s, const struct pipeline_entry *e) {
    for (uint32_t i = 0; i < e->effects.len; i++) {
        const struct effect *f = &e->effects.at[i];
        if (f->type == EFFECT_SEND)
            s->hooks.send(s->hooks.ctx, f->node, e->bytes + f->offset, f->len);
        else if (f->type == EFFECT_LAUNCH || f->type == EFFECT_STEP)
            send_or_wait(s, f);
    }
}

static void tell(struct commit_pipeline *s, struct pipeline_entry *e) {
    for (uint32_t i = 0; i < e->effects.len; i++) {
        const struct effect *f = &e->effects.at[i];
        switch (f->type) {
        case EFFECT_SEND:
        case EFFECT_LAUNCH:
        case EFFECT_STEP: break;
        case EFFECT_JOB_CHANGED: s->hooks.job_changed(s->hooks.ctx, f->job); break;
        case EFFECT_NOTIFY:
            if (s->hooks.notify)
                s->hooks.notify(s->hooks.ctx, &e->notices.at[f->offset]);
            break;
        }
    }
    for (uint32_t i = 0; i < e->answers.len; i++)
        e->answers.at[i].fn(e->answers.at[i].arg);
    entry_free(e);
}

void pipeline_when_committed(struct commit_pipeline *s, pipeline_done_fn fn, void *arg) {
    struct pipeline_answer a = {fn, arg};
    vec_push(&s->answers, a);
}

// --- the store's words ---

static void on_committed(void *ctx, uint64_t ticket, uint64_t seq) {
    struct commit_pipeline *s = ctx;
    uint32_t n = 0;
    s->committed_seq = seq;
    if (s->degraded) {
        s->degraded = false;
        s->hooks.storage(s->hooks.ctx, NULL);
    }
    while (n < s->line.len && s->line.at[n]->ticket <= ticket)
        n++;
    // What is released may add to the line's end, never to its front.
    VEC(struct pipeline_entry *) done = {0};
    for (uint32_t i = 0; i < n; i++) {
        s->backlog -= s->line.at[i]->batch_bytes;
        vec_push(&done, s->line.at[i]);
    }
    memmove(s->line.at, s->line.at + n, (s->line.len - n) * sizeof *s->line.at);
    s->line.len -= n;
    for (uint32_t i = 0; i < done.len; i++)
        send_effects(s, done.at[i]);
    for (uint32_t i = 0; i < done.len; i++)
        tell(s, done.at[i]);
    vec_done(&done);
}

// Nothing is lost and nothing is answered: batches wait in the store, in order, until the disk takes them. Meanwhile
// new commands are refused (api_check_storage) and agents' reports are still taken in.
static void on_failed(void *ctx, const struct error *e) {
    struct commit_pipeline *s = ctx;
    bool news = !s->degraded;
    s->degraded = true;
    snprintf(s->why, sizeof s->why, "%s", e->text);
    if (news)
        s->hooks.storage(s->hooks.ctx, e);
}

static void on_snapshot(void *ctx, uint64_t seq, const struct error *e) {
    struct commit_pipeline *s = ctx;
    s->snapshot_busy = false;  // also when it failed: the next one comes after as many events as ever
}

struct store_watch pipeline_watch(struct commit_pipeline *s) {
    return (struct store_watch){.ctx = s, .committed = on_committed, .failed = on_failed, .snapshot_done = on_snapshot};
}

void pipeline_poll(struct commit_pipeline *s) {
    store_poll(s->store);
}

void pipeline_retry(struct commit_pipeline *s) {
    store_retry(s->store);
}

// Only what is committed is told: an agent that had seen a position which a crash then took back would take the
// journal for an older copy.
bool pipeline_position(const struct commit_pipeline *s, uint64_t after, struct journal_position *out) {
    return s->committed_seq >= after && core_position(s->core, s->committed_seq, out);
}

uint64_t pipeline_committed_seq(const struct commit_pipeline *s) {
    return s->committed_seq ? s->committed_seq : s->loaded_seq;
}

bool pipeline_degraded(const struct commit_pipeline *s, char *why, size_t size) {
    if (s->degraded && why)
        snprintf(why, size, "%s", s->why);
    return s->degraded;
}

// --- out of the core, into the store ---

void pipeline_secret_name(uint64_t number, char out[static STORE_BLOB_NAME_MAX]) {
    snprintf(out, STORE_BLOB_NAME_MAX, "secret-%llu", (unsigned long long)number);
}

// The value of a secret that was replaced or deleted goes with the event that says so.
// In the same transaction, so that no crash leaves a value that nobody can delete any more.
static void remove_secret(struct store_batch *b, const void *data, const struct outbox_event *e) {
    cleanup_arena struct arena a = {0};
    char name[STORE_BLOB_NAME_MAX];
    struct event event;
    if (event_decode(e->type, data, e->len, &a, &event) < 0)
        return;
    uint64_t replaced = e->type == EVENT_USER_REMOVED ? ((struct event_user_removed *)event.body)->replaced
                        : e->type == EVENT_USER_PASSWORD
                            ? ((struct event_user_password *)event.body)->replaced
                            : ((struct event_secret *)event.body)->replaced;
    if (!replaced)
        return;
    pipeline_secret_name(replaced, name);
    store_batch_blob(b, name, NULL, 0);
}

static void add_events(struct store_batch *b, const struct core *c, const struct outbox *o) {
    bool level_set = false;
    for (uint32_t i = 0; i < o->events.len; i++) {
        const struct outbox_event *e = &o->events.at[i];
        struct store_event record = {.seq = e->seq,
                                     .at_ms = e->at_ms,
                                     .type = e->type,
                                     .job = e->job,
                                     .data = o->bytes.data + e->offset,
                                     .len = e->len};
        store_batch_event(b, &record);
        if (e->type == EVENT_SECRET_SET || e->type == EVENT_SECRET_DELETED || e->type == EVENT_USER_REMOVED ||
            e->type == EVENT_USER_PASSWORD)
            remove_secret(b, record.data, e);
        level_set |= e->type == EVENT_LEVEL_SET;
    }
    // Once, with the level after all events: a batch may hold the first level of a journal and the end of an upgrade.
    if (level_set)
        store_batch_level(b, core_level(c), feature_level_release(core_level(c)));
}

static struct store_history history_of(const struct outbox_finished *f, const char *bytes) {
    return (struct store_history){.id = f->id,
                                  .array = f->array_id,
                                  .index = f->array_index,
                                  .state = f->state,
                                  .user = f->user,
                                  .project = f->project,
                                  .name = bytes + f->name,
                                  .nodes = bytes + f->nodes,
                                  .submit_ms = f->submit_ms,
                                  .start_ms = f->start_ms,
                                  .end_ms = f->end_ms,
                                  .cpus = f->cpus,
                                  .gpu_milli = f->gpu_milli,
                                  .data = bytes + f->record,
                                  .len = f->record_len};
}

static void add_history(struct commit_pipeline *s, struct store_batch *b, const struct outbox *o) {
    for (uint32_t i = 0; i < o->finished.len; i++) {
        const struct outbox_finished *f = &o->finished.at[i];
        struct store_history row = history_of(f, o->bytes.data);
        store_batch_history(b, &row);
        if (s->hooks.job_ended)
            s->hooks.job_ended(s->hooks.ctx, &row);
        if (f->release_texts)
            store_batch_release(b, f->text_owner);
    }
}

static void maybe_snapshot(struct commit_pipeline *s) {
    uint64_t since = core_seq(s->core) - s->snapshot_seq;
    struct core_counts counts;
    if (s->snapshot_busy || since < PIPELINE_SNAPSHOT_EVENTS || core_outbox(s->core)->events.len)
        return;
    core_counts(s->core, &counts);
    uint64_t live = 0;
    for (int i = 0; i < JOB_COMPLETED; i++)
        live += counts.by_state[i];
    if (since < live / 2)  // a large queue is written less often
        return;
    if (!s->hooks.make_snapshot) {
        pipeline_snapshot(s);
        return;
    }
    s->snapshot_busy = s->hooks.make_snapshot(s->hooks.ctx) == 0;
    s->snapshot_seq = core_seq(s->core);
}

int pipeline_snapshot_made(struct commit_pipeline *s, uint64_t seq, int fd, size_t at, size_t len) {
    return store_snapshot_file(s->store, seq, fd, at, len);
}

void pipeline_snapshot_failed(struct commit_pipeline *s) {
    s->snapshot_busy = false;
}

int pipeline_snapshot(struct commit_pipeline *s) {
    cleanup_buf struct buf b = {0};
    // An effect may have had consequences (a launch whose script cannot be read): they are not in the journal yet.
    if (s->snapshot_busy || core_outbox(s->core)->events.len)
        return -EBUSY;
    if (!core_seq(s->core))
        return 0;  // nothing has happened yet
    core_snapshot(s->core, &b);
    int r = store_snapshot(s->store, core_seq(s->core), b.data, b.len);
    if (r == 0) {
        s->snapshot_busy = true;
        s->snapshot_seq = core_seq(s->core);
    }
    return r;
}

size_t pipeline_backlog(const struct commit_pipeline *s) {
    return s->backlog;
}

bool pipeline_dirty(const struct commit_pipeline *s) {
    const struct outbox *o = core_outbox(s->core);
    return o->events.len || o->effects.len || s->answers.len || !store_batch_empty(s->batch);
}

int64_t pipeline_flush(struct commit_pipeline *s, int64_t now_ms, bool schedule) {
    s->now_ms = now_ms;
    for (int i = 0; i < SLICES && !s->degraded && core_work_left(s->core); i++) {
        core_array_continue(s->core, now_ms);
        core_depend_continue(s->core, now_ms);
    }
    int64_t next = schedule ? core_schedule(s->core, now_ms) : INT64_MAX;
    if (!s->degraded && core_work_left(s->core))
        next = now_ms;
    if (!pipeline_dirty(s))
        return next;
    struct outbox *o = core_outbox(s->core);
    struct pipeline_entry *e = xcalloc(1, sizeof *e);
    add_events(s->batch, s->core, o);
    add_history(s, s->batch, o);
    for (uint32_t i = 0; i < o->effects.len; i++)
        vec_push(&e->effects, o->effects.at[i]);
    for (uint32_t i = 0; i < s->answers.len; i++)
        vec_push(&e->answers, s->answers.at[i]);
    vec_clear(&s->answers);
    for (uint32_t i = 0; i < o->finished.len; i++)
        vec_push(&e->finished, o->finished.at[i]);
    for (uint32_t i = 0; i < o->notices.len; i++)
        vec_push(&e->notices, o->notices.at[i]);
    e->bytes = buf_take(&o->bytes);
    core_outbox_clear(o);
    if (store_batch_empty(s->batch) && !s->line.len) {
        send_effects(s, e);  // nothing to write and nothing before it
        tell(s, e);
    } else {
        e->batch_bytes = store_batch_bytes(s->batch);
        s->backlog += e->batch_bytes;
        e->ticket = store_submit(s->store, s->batch);
        s->batch = store_batch_new();
        vec_push(&s->line, e);
        maybe_snapshot(s);
    }
    return next;
}

static bool find_finished(const struct outbox_finished *list, uint32_t count, const char *bytes, uint64_t id,
                          const void **record, size_t *len) {
    for (uint32_t i = 0; i < count; i++)
        if (list[i].id == id) {
            *record = bytes + list[i].record;
            *len = list[i].record_len;
            return true;
        }
    return false;
}

bool pipeline_ending(const struct commit_pipeline *s, uint64_t id, const void **record, size_t *len) {
    const struct outbox *o = core_outbox(s->core);
    if (find_finished(o->finished.at, o->finished.len, o->bytes.data, id, record, len))
        return true;
    for (uint32_t i = s->line.len; i-- > 0;)
        if (find_finished(s->line.at[i]->finished.at, s->line.at[i]->finished.len, s->line.at[i]->bytes, id,
                          record, len))
            return true;
    return false;
}

bool pipeline_has_endings(const struct commit_pipeline *s) {
    if (core_outbox(s->core)->finished.len)
        return true;
    for (uint32_t i = 0; i < s->line.len; i++)
        if (s->line.at[i]->finished.len)
            return true;
    return false;
}

static void each_finished(const struct outbox_finished *list, uint32_t count, const char *bytes,
                          store_history_fn fn, void *ctx) {
    for (uint32_t i = 0; i < count; i++) {
        struct store_history row = history_of(&list[i], bytes);
        fn(ctx, &row);
    }
}

void pipeline_each_ending(const struct commit_pipeline *s, store_history_fn fn, void *ctx) {
    const struct outbox *o = core_outbox(s->core);
    for (uint32_t i = 0; i < s->line.len; i++)
        each_finished(s->line.at[i]->finished.at, s->line.at[i]->finished.len, s->line.at[i]->bytes, fn, ctx);
    each_finished(o->finished.at, o->finished.len, o->bytes.data, fn, ctx);
}

static uint64_t find_element(const struct outbox_finished *list, uint32_t count, uint64_t array, uint32_t index) {
    for (uint32_t i = 0; i < count; i++)
        if (list[i].array_id == array && list[i].array_index == index)
            return list[i].id;
    return 0;
}

uint64_t pipeline_ending_element(const struct commit_pipeline *s, uint64_t array, uint32_t index) {
    const struct outbox *o = core_outbox(s->core);
    uint64_t id = find_element(o->finished.at, o->finished.len, array, index);
    for (uint32_t i = 0; i < s->line.len && !id; i++)
        id = find_element(s->line.at[i]->finished.at, s->line.at[i]->finished.len, array, index);
    return id;
}

// --- recovery ---

static int load_snapshot(void *ctx, uint64_t seq, const void *data, size_t len) {
    struct commit_pipeline *s = ctx;
    s->snapshot_seq = seq;
    return core_load_snapshot(s->core, seq, data, len, NULL);
}

static int load_event(void *ctx, const struct store_event *e) {
    struct commit_pipeline *s = ctx;
    return core_replay(s->core, e->seq, e->at_ms, (enum event_type)e->type, e->data, e->len);
}

struct silent {
    struct commit_pipeline *pipeline;
    VEC(const char *) nodes;
};

static bool note_node(void *ctx, const struct node_view *v) {
    struct silent *silent = ctx;
    vec_push(&silent->nodes, v->node->name);
    return true;
}

static int check_read(struct commit_pipeline *s, uint64_t last, struct error *e) {
    if (last != core_seq(s->core))
        return error_set(e, EBADMSG, "the journal ends at event %llu but was read up to %llu",
                         (unsigned long long)last, (unsigned long long)core_seq(s->core));
    s->loaded_seq = last;
    return 0;
}

int pipeline_read(struct commit_pipeline *s, struct error *e) {
    struct store_loader loader = {.ctx = s, .snapshot = load_snapshot, .event = load_event};
    uint64_t last;
    int r = store_load(s->store, &loader, &last, e);
    return r < 0 ? r : check_read(s, last, e);
}

int pipeline_follow(struct commit_pipeline *s, struct error *e) {
    struct store_loader loader = {.ctx = s, .event = load_event};
    uint64_t last;
    int r = store_follow(s->store, &loader, &last, e);
    return r < 0 ? r : check_read(s, last, e);
}

void pipeline_begin(struct commit_pipeline *s, int64_t now_ms) {
    core_start(s->core, now_ms);  // before all other events: they belong to the new epoch
    struct silent silent = {.pipeline = s};
    core_each_node(s->core, note_node, &silent);
    for (uint32_t i = 0; i < silent.nodes.len; i++)
        core_agent_gone(s->core, silent.nodes.at[i], now_ms);
    vec_done(&silent.nodes);
}

int pipeline_load(struct commit_pipeline *s, int64_t now_ms, struct error *e) {
    int r = pipeline_read(s, e);
    if (r == 0)
        pipeline_begin(s, now_ms);
    return r;
}

static const struct actor controller_actor = {.user = "controller", .admin = true};

static int count_elements(void *ctx, const struct store_event *record) {
    cleanup_arena struct arena a = {0};
    struct event e;
    if (event_decode((enum event_type)record->type, record->data, record->len, &a, &e) == 0 &&
        e.type == EVENT_JOB_SUBMITTED && ((struct event_job_submitted *)e.body)->spec)
        *(uint64_t *)ctx = spec_array_count(((struct event_job_submitted *)e.body)->spec);
    return 1;
}

struct key_import {
    struct commit_pipeline *pipeline;
    int64_t now_ms;
    uint64_t count;
};

static int import_key(void *ctx, const struct store_old_key *k) {
    struct key_import *import = ctx;
    struct commit_pipeline *s = import->pipeline;
    uint64_t count = 1;  // unless the journal still has the submit
    int r = store_events(s->store, k->job, 0, 1, count_elements, &count, NULL);
    struct command_key_import m = {
        .user = k->user, .key = k->key, .id = k->job, .count = count, .expires_ms = k->expires_ms};
    struct command command = {COMMAND_KEY_IMPORT, &m};
    if (r >= 0)
        r = core_command(s->core, &controller_actor, NULL, &command, import->now_ms, NULL, NULL);
    return r < 0 ? r : ++import->count >= OLD_KEYS_MAX;
}

int pipeline_init_keys(struct commit_pipeline *s, const uint8_t secret[static PIPELINE_KEY_SECRET_BYTES],
                       int64_t now_ms, struct error *e) {
    struct command_keys_init init = {{secret, PIPELINE_KEY_SECRET_BYTES}};
    struct command command = {COMMAND_KEYS_INIT, &init};
    struct key_import import = {.pipeline = s, .now_ms = now_ms};
    int r = 0;
    if (core_keys_ready(s->core))
        return 0;
    // Before the upgrade is finished there is no secret; the old keys are then read at every start.
    if (core_feature(s->core, FEATURE_KEYS))
        r = core_command(s->core, &controller_actor, NULL, &command, now_ms, NULL, e);
    return r < 0 ? r : store_old_keys(s->store, now_ms, import_key, &import, e);
}

// --- heartbeats ---

void pipeline_heard(struct commit_pipeline *s, const char *node) {
    struct pipeline_heard_at *h = strmap_get(&s->heard, node);
    if (!h) {
        h = xcalloc(1, sizeof *h);
        strmap_put(&s->heard, core_intern(s->core, node), h);
    }
    h->at_ms = SINCE_CHECK;
}

struct checking {
    struct commit_pipeline *pipeline;
    int64_t timeout_ms;
    VEC(const char *) lost;
};

static bool check_node(void *ctx, const struct node_view *v) {
    struct checking *c = ctx;
    struct pipeline_heard_at *h = strmap_get(&c->pipeline->heard, v->node->name);
    // One that is down and connected, while its old attempts are cleared away, is watched like any other: who waits
    // for its output waits no longer than for that of a node that is up.
    if (h ? h->at_ms == GIVEN_UP : v->state == NODE_DOWN)
        return true;
    if (!h)  // the controller has just started: its time begins with the next check
        pipeline_heard(c->pipeline, v->node->name);
    else if (h->at_ms == SINCE_CHECK)  // its silence begins with this check
        h->at_ms = c->pipeline->watched_ms;
    else if (c->pipeline->watched_ms - h->at_ms > c->timeout_ms) {
        h->at_ms = GIVEN_UP;
        vec_push(&c->lost, v->node->name);
    }
    return true;
}

void pipeline_check_nodes(struct commit_pipeline *s, int64_t mono_ms, int64_t timeout_ms, int64_t now_ms) {
    struct checking c = {.pipeline = s, .timeout_ms = timeout_ms};
    char reason[80];
    // A late check means that this process stalled and read nothing meanwhile: that time is nobody's silence.
    int64_t passed_ms = s->checked_ms ? mono_ms - s->checked_ms : 0;
    s->watched_ms += passed_ms > CHECK_LATE_MS ? CHECK_INTERVAL_MS : passed_ms > 0 ? passed_ms : 0;
    s->checked_ms = mono_ms;
    core_each_node(s->core, check_node, &c);
    snprintf(reason, sizeof reason, "no word from it for %lld s", (long long)timeout_ms / 1000);
    for (uint32_t i = 0; i < c.lost.len; i++) {
        core_node_lost(s->core, c.lost.at[i], reason, now_ms);
        if (s->hooks.node_lost)
            s->hooks.node_lost(s->hooks.ctx, c.lost.at[i]);
    }
    vec_done(&c.lost);
}
