// Owns what a client has of a job's output.
#include "job_watch.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "base/map.h"
#include "base/text.h"

#define FILE_NUMBERS (1ULL << 53)  // those that a number in JSON holds exactly

struct job_watch {
    struct job_watch_options o;
    struct job_watch_log log;
    uint64_t job;
    uint32_t attempt;  // whose output is shown; 0: none yet
    uint64_t epoch;    // of it; 0: not known
    bool held;              // its launch was, when its streams were to be opened last
    uint64_t released_seq;  // the newest event when it was not any more
    // As it was when its streams were opened. They are opened again from this: where an attempt ran can be asked only
    // as long as the journal has it.
    struct job_record *record;
    struct controller_follow *follow;
    char *final;  // last message, sent when the output is complete
    uint32_t final_attempt;  // the newest that has run
    bool done;
    struct arena arena;  // of the sources and the record
    struct job_watch_positions has;
};

static void say(void *ctx, const struct schema *schema, const void *value) {
    struct job_watch *w = ctx;
    if (!w->done)
        w->o.client->say(w->o.ctx, schema, value);
}

static void fail(void *ctx, const struct error *e) {
    struct job_watch *w = ctx;
    if (w->done)
        return;
    w->done = true;
    w->o.client->failed(w->o.ctx, e);
}

// --- the end ---

static void write_final(struct job_watch *w) {
    cleanup_arena struct arena a = {0};
    cleanup_buf struct buf b = {0};
    struct job_record r;
    bool live;
    if (w->final || controller_job_record(&w->o.source, w->job, &a, &r, &live) < 0)
        return;
    if (live &&
        !(w->log.once && controller_follow_is_open(w->follow) && controller_follow_complete(w->follow, true)))
        return;
    schema_write_json(&answer_session_end_schema,
                      &(struct answer_session_end){w->job, r.state, r.exit_code, r.exit_signal, r.reason},
                      &(struct json_writer){.out = &b});
    w->final = buf_take(&b);
    w->final_attempt = r.attempt;
}

// A log that is followed goes on with what the next attempt writes, once it has all of the one before.
static bool log_goes_on(const struct job_watch *w, uint32_t attempt) {
    return w->o.log && !w->log.once && !w->log.attempt && !w->done && w->attempt && attempt > w->attempt &&
           controller_follow_complete(w->follow, true);
}

static void finish_if_complete(struct job_watch *w) {
    write_final(w);
    if (!w->final || w->done ||
        (controller_follow_is_open(w->follow) && !controller_follow_complete(w->follow, true)) ||
        log_goes_on(w, w->final_attempt))
        return;
    // It ended in the queue long after it had run: where is not in the journal any more.
    if (!controller_follow_is_open(w->follow) && w->has.count)
        say(w, &answer_step_missing_schema,
            &(struct answer_step_missing){"its output is incomplete: where it ran is not known any more"});
    w->done = true;
    w->o.client->complete(w->o.ctx, w->final);
}

// --- streams ---

static bool open_stream(void *ctx, uint32_t i, uint64_t stream, uint64_t at, uint64_t file) {
    struct job_watch *w = ctx;
    bool logs = w->o.log;
    uint32_t node = logs ? w->log.node : i / 2;
    struct message_log_read m = controller_logs_request(w->record, node, logs ? w->log.error : i % 2 != 0,
                                                        !w->log.once, logs && !at ? w->log.tail : -1);
    m.stream = stream;
    m.credit = controller_stream_window(w->o.streams, stream);
    m.offset = at;
    m.file = file;
    m.attached = !logs;
    m.times = logs && w->log.times;
    m.resumed = at > 0;
    return w->o.streams->host->send(w->o.streams->ctx, w->record->parts.at[node].node, MESSAGE_LOG_READ, &m);
}

// The launch has not been sent yet, because the node has to end others first or the disk is slow: the node would take
// the attempt for one that is over.
static bool node_waits(void *ctx, uint32_t i) {
    struct job_watch *w = ctx;
    uint64_t told = core_launch_told_seq(w->o.source.core, w->job, w->attempt);
    if (told == UINT64_MAX)
        w->held = true;
    else if (w->held) {
        w->held = false;
        w->released_seq = core_seq(w->o.source.core);
    }
    // A node that says that the attempt runs has its launch; nobody would look again before the next second.
    struct job_view v;
    if (told != UINT64_MAX && core_view(w->o.source.core, w->job, &v) && v.state == JOB_RUNNING &&
        v.attempt == w->attempt)
        return false;
    uint64_t committed = pipeline_committed_seq(w->o.source.pipeline);
    return told && (told > committed || w->released_seq > committed);
}

static void stream_over(void *ctx) {
    finish_if_complete(ctx);
}

static ssize_t send_output(void *ctx, const char *data, size_t len) {
    struct job_watch *w = ctx;
    return w->done ? 0 : w->o.client->send(w->o.ctx, data, len);
}

static void pause_input(void *ctx, bool on) {
    struct job_watch *w = ctx;
    w->o.client->pause(w->o.ctx, on);
}

static void new_follow(struct job_watch *w) {
    static const struct follow_client client = {open_stream, node_waits,  stream_over, fail,
                                                say,         send_output, pause_input};
    controller_follow_free(w->follow);
    w->follow = controller_follow_new(&(struct follow_options){.streams = w->o.streams,
                                                               .actor = w->o.actor,
                                                               .client = &client,
                                                               .ctx = w,
                                                               .placed = w->o.placed,
                                                               .resumed = w->o.resume});
}

static void tell_nodes(struct job_watch *w, uint32_t count) {
    struct answer_session_nodes nodes = {.nodes = count, .attempt = w->attempt, .epoch = w->epoch};
    nodes.names.at = arena_alloc(&w->arena, count * sizeof *nodes.names.at);
    for (; w->o.placed && nodes.names.len < count; nodes.names.len++)
        nodes.names.at[nodes.names.len] =
            w->record->parts.at[w->o.log ? w->log.node : nodes.names.len].node;
    if (count > 1 || w->o.placed)
        say(w, &answer_session_nodes_schema, &nodes);
}

static bool is_other_epoch(const struct job_watch *w, uint64_t epoch) {
    return epoch && w->epoch && epoch != w->epoch;
}

// After a restore of an older copy the nodes of an attempt are found one by one, each in its place among the others.
static int positions(const struct job_watch *w, struct follow_source *sources, uint32_t count, struct error *e) {
    if (!w->has.node_count)
        return controller_follow_positions(w->has.from, w->has.count, sources, count, e);
    struct map known = {0};  // number of a node, from 1
    for (uint32_t k = 0; k < w->has.node_count && 2 * k + 1 < w->has.count; k++)
        map_put(&known, hash_keyed(w->has.nodes[k], strlen(w->has.nodes[k])), (void *)(uintptr_t)(k + 1));
    for (uint32_t i = 0; i + 1 < count; i += 2) {
        uintptr_t k = (uintptr_t)map_get(&known, hash_keyed(sources[i].node, strlen(sources[i].node)));
        if (!k || !streq(w->has.nodes[k - 1], sources[i].node))
            continue;
        sources[i].at = w->has.from[2 * k - 2];
        sources[i + 1].at = w->has.from[2 * k - 1];
    }
    map_done(&known);
    return 0;
}

// All nodes' output and errors, behind the launch.
static void open_attached(struct job_watch *w, const struct job_record *r) {
    struct follow_source *sources = arena_alloc(&w->arena, 2 * r->parts.len * sizeof *sources);
    struct error e = {0};
    // A job that runs again prints from the beginning: positions in the output of another attempt mean nothing.
    bool other =
        w->has.attempt && (w->has.attempt != w->attempt || is_other_epoch(w, w->has.epoch));
    for (uint32_t i = 0; i < 2 * r->parts.len; i++)
        sources[i] = (struct follow_source){.node = core_intern(w->o.source.core, r->parts.at[i / 2].node),
                                            .node_index = i / 2,
                                            .fd = 1 + i % 2,
                                            .input = i % 2 == 0};
    if (!other && positions(w, sources, 2 * r->parts.len, &e) < 0) {
        fail(w, &e);
        return;
    }
    tell_nodes(w, r->parts.len);
    controller_follow_open(w->follow, sources, 2 * r->parts.len);
}

// Attempts of an attached job have their output apart. Its client keeps this number of the file: an attempt of the same
// number may come again after a restore, in another epoch, and then another node may be the first one that is found.
static uint64_t file_of_attempt(const struct job_watch *w) {
    const char *node = w->record->parts.at[w->log.node].node;
    uint64_t h = hash_u64(hash_bytes(node, strlen(node)) ^ hash_u64(w->epoch) ^ w->attempt);
    return (h & (FILE_NUMBERS - 1)) | 1;
}

static void open_kept_log(struct job_watch *w) {
    uint64_t file = file_of_attempt(w);
    if (w->log.file && w->log.file != file)
        w->log.from = 0;
    if (w->o.placed) {
        tell_nodes(w, 1);
        if (w->log.tail < 0 || w->log.from)
            say(w, &answer_session_file_schema, &(struct answer_session_file){file, w->log.from});
    }
    w->log.file = 0;
}

static void open_log(struct job_watch *w, const struct job_record *r) {
    if (r->spec->attach)
        open_kept_log(w);
    struct follow_source source = {.node = core_intern(w->o.source.core, r->parts.at[w->log.node].node),
                                   .fd = 1,
                                   .at = w->log.from,
                                   .file = w->log.file,
                                   .times = w->log.times};
    controller_follow_open(w->follow, &source, 1);
}

// Opens the streams of the newest attempt, or of the one that was asked for.
static void attach_streams(struct job_watch *w) {
    cleanup_arena struct arena a = {0};
    struct job_record r;
    struct error e = {0};
    bool live;
    if (controller_follow_is_open(w->follow) || w->done)
        return;
    if (!controller_job_find_part(&w->o.source, w->job, w->log.node, w->log.attempt, &a, &r, &live, &e)) {
        if (w->o.log && (e.code != EBUSY || w->log.once))
            fail(w, &e);
        return;
    }
    w->attempt = r.attempt;
    w->epoch = r.epoch;
    w->record = schema_copy(&job_record_schema, &r, &w->arena);
    if (w->o.log)
        open_log(w, &r);
    else
        open_attached(w, &r);
}

// The file is the same one, or a new one that is read from its beginning.
static void next_log(struct job_watch *w, uint32_t attempt) {
    if (w->o.log && w->final && attempt && !w->attempt)
        attach_streams(w);  // it ended in the queue, after it had run
    if (!log_goes_on(w, attempt))
        return;
    w->log.from = w->log.file = 0;
    w->log.tail = -1;
    if (!w->record->spec->attach && !w->record->spec->truncate)
        controller_follow_place(w->follow, 0, &w->log.from, &w->log.file);
    new_follow(w);
    attach_streams(w);
}

// How a job ended may not be readable at the moment when it does: a database may be away. Where its output is may not
// have been readable either.
void controller_job_watch_tick(struct job_watch *w) {
    struct job_view v;
    bool live = !w->job || core_view(w->o.source.core, w->job, &v);
    if (live && w->job && v.start_ms && v.state != JOB_PENDING)
        next_log(w, v.attempt);
    controller_follow_open_waiting(w->follow);
    if (live && !w->final)
        return;
    write_final(w);
    next_log(w, w->final_attempt);
    if (!w->o.log)
        attach_streams(w);
    finish_if_complete(w);
}

void controller_job_watch_node_up(struct job_watch *w, const char *node) {
    controller_follow_node_up(w->follow, node);
}

// --- the job ---

static void tell_state(struct job_watch *w, const struct job_view *v) {
    say(w, &answer_session_state_schema, &(struct answer_session_state){v->state});
}

// Streams are numbered by the order of the nodes: its client names those that it has positions of, and begins anew.
static bool has_other_nodes(struct job_watch *w, const struct job_view *v) {
    cleanup_arena struct arena a = {0};
    struct job_record r;
    if (!w->o.placed || w->done || !controller_follow_is_open(w->follow) || v->attempt != w->attempt ||
        v->node_count == w->record->parts.len || core_record(w->o.source.core, w->job, &a, &r) < 0 ||
        r.parts.len == w->record->parts.len || !r.parts.len)
        return false;
    w->done = true;
    w->o.client->come_again(w->o.ctx);
    return true;
}

// A job that runs again prints from the beginning.
static void next_attempt(struct job_watch *w, uint32_t attempt) {
    if (w->o.log)
        next_log(w, attempt);
    if (w->o.log || !controller_follow_is_open(w->follow))
        return;
    w->has.count = 0;
    w->o.resume = false;
    new_follow(w);
}

void controller_job_watch_changed(struct job_watch *w) {
    struct job_view v;
    if (!core_view(w->o.source.core, w->job, &v)) {
        if (w->o.resume &&
            !w->o.log)  // it ended in the queue, and the client may not have all of what ran before
            attach_streams(w);
        write_final(w);
        next_log(w, w->final_attempt);
        controller_follow_open_waiting(w->follow);
        finish_if_complete(w);
        return;
    }
    if (has_other_nodes(w, &v))
        return;
    if (v.start_ms && v.attempt != w->attempt && v.state != JOB_PENDING)
        next_attempt(w, v.attempt);
    if (v.start_ms)
        attach_streams(w);
    controller_follow_open_waiting(w->follow);
    tell_state(w, &v);
}

void controller_job_watch_set(struct job_watch *w, uint64_t job) {
    w->job = job;
}

void controller_job_watch_begin(struct job_watch *w, bool resume, const struct job_watch_positions *has) {
    struct job_view v;
    bool live = core_view(w->o.source.core, w->job, &v);
    w->o.resume = resume;
    w->has = *has;
    if (live ? v.start_ms != 0 || w->log.once : resume || w->o.log)
        attach_streams(w);
    if (live)
        tell_state(w, &v);
    else
        finish_if_complete(w);
    if (!live && !w->final && !w->o.log) {  // neither live nor in history; logs have said so already
        struct error e = {0};
        error_set(&e, ENOENT, "there is no job %llu", (unsigned long long)w->job);
        fail(w, &e);
    }
}

struct controller_follow *controller_job_watch_follow(struct job_watch *w) {
    return w->follow;
}

struct job_watch *controller_job_watch_new(const struct job_watch_options *o) {
    struct job_watch *w = xcalloc(1, sizeof *w);
    w->o = *o;
    if (o->log) {
        w->log = *o->log;
        w->o.log = &w->log;
    }
    new_follow(w);
    return w;
}

struct job_watch *controller_job_watch_free(struct job_watch *w) {
    if (!w)
        return NULL;
    controller_follow_free(w->follow);
    free(w->final);
    arena_done(&w->arena);
    free(w);
    return NULL;
}
