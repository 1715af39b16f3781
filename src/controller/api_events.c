// Events of the journal: of one job, a page of all, or followed as server-sent events. They are read and sent in
// slices: a job can have very many, and each can be large.
#include <stdlib.h>
#include <string.h>

#include "api.h"
#include "base/text.h"
#include "sliced_read.h"

enum {
    PAGE_EVENTS = 1000,
    EVENT_ROWS = 4,         // an event that is written takes as long as looking at so many rows,
    EVENT_ROW_BYTES = 256,  // and one more for so many bytes
};

struct event_read {
    struct sliced_read read;
    struct actor actor;
    char user[USER_NAME_MAX];
    uint64_t array;       // the first event of it comes before those of the job; 0: none
    uint64_t job, after;  // job 0: of all
    uint32_t left;        // events to look at; 0: all
    bool follows, cut;
    bool checks;           // each event's job is looked up
    enum job_sight sight;  // else: what is shown of all
    struct json_writer writer;
    struct buf out;
    struct error error;
};

// --- what is told of an event ---

static void hide_reason(const struct schema *s, void *body, struct arena *a) {
    for (size_t i = 0; i < s->count; i++) {
        const char **at = (const char **)(void *)((char *)body + s->fields[i].offset);
        if (streq(s->fields[i].name, "reason") && s->fields[i].type == FIELD_STRING)
            *at = job_sight_reason(SIGHT_PUBLIC, a, *at);
    }
}

static void hide_key(struct event_job_submitted *b) {
    b->key_text = NULL;
    b->key = NULL;
}

// Drafts and views are their owner's alone, also for administrators.
static void hide_saved(struct event_saved *b) {
    b->title = b->script = b->query = NULL;
    b->spec = NULL;
}

// Of a masked job what happened and when, and nothing that somebody wrote.
void api_event_json(const struct store_event *e, enum job_sight sight, struct json_writer *w) {
    cleanup_arena struct arena a = {0};
    cleanup_buf struct buf body = {0};
    struct json_writer bw = {.out = &body};
    const struct event_info *info = event_info((enum event_type)e->type);
    struct event event;
    json_open(w, '{');
    json_kv_i64(w, "seq", (int64_t)e->seq);
    json_kv_i64(w, "at_ms", e->at_ms);
    json_kv_str(w, "type", info ? info->name : "unknown");
    if (sight >= SIGHT_PUBLIC && info &&
        event_decode((enum event_type)e->type, e->data, e->len, &a, &event) == 0) {
        if (e->type == EVENT_JOB_SUBMITTED || e->type == EVENT_JOB_UPDATED) {
            struct event_job_submitted *s = event.body;
            if (s->spec)
                api_hide_private(s->spec);
        }
        if (e->type == EVENT_JOB_SUBMITTED)
            hide_key(event.body);
        if (e->type == EVENT_KEYS_INIT)
            ((struct event_keys_init *)event.body)->secret = (struct bytes){0};
        if (e->type == EVENT_KEY_IMPORTED)
            ((struct event_key_imported *)event.body)->key = NULL;
        if (sight < SIGHT_ALL)
            hide_reason(info->schema, event.body, &a);
        if (e->type == EVENT_TOKEN_CREATED)
            ((struct event_token *)event.body)->hash = NULL;
        if (e->type == EVENT_SESSION_BEGUN)
            ((struct event_session *)event.body)->hash = NULL;
        if (e->type == EVENT_SAVED_SET)
            hide_saved(event.body);
        schema_write_json(info->schema, event.body, &bw);
        if (body.len > 2) {
            buf_addc(w->out, ',');
            buf_add(w->out, body.data + 1, body.len - 2);
        }
    }
    json_close(w, '}');
}

// --- reading ---

static void put_event(struct event_read *x, const struct store_event *e) {
    if (x->follows)
        buf_addf(&x->out, "id: %llu\ndata: ", (unsigned long long)e->seq);
    api_event_json(e, x->checks ? SIGHT_ALL : x->sight, &x->writer);
    if (x->follows) {
        buf_adds(&x->out, "\n\n");
        x->writer.need_comma = false;
    }
}

static int next_event(void *ctx, const struct store_event *e) {
    struct event_read *x = ctx;
    struct controller *c = x->read.controller;
    x->after = e->seq;
    bool sees_all = x->actor.admin && !x->actor.project;
    if (!x->checks || sees_all || (e->job && api_may_see(c, &x->actor, e->job)))
        put_event(x, e);
    x->cut = sliced_read_over(&x->read, EVENT_ROWS + (uint32_t)(e->len / EVENT_ROW_BYTES));
    if (x->left && --x->left == 0) {
        x->cut = false;
        return 1;
    }
    return x->cut;
}

static void read_some(struct event_read *x) {
    struct controller *c = x->read.controller;
    uint64_t newest = pipeline_committed_seq(c->pipeline);
    x->cut = false;
    // The submit of an array is recorded under its first element.
    if (x->array && store_events(c->store, x->array, 0, 1, next_event, x, &x->error) >= 0)
        x->after = 0;
    x->array = 0;
    if (!x->error.code)
        store_events(c->store, x->job, x->after, 0, next_event, x, &x->error);
    if (x->follows && !x->cut && newest > x->after)
        x->after = newest;  // those of other jobs
}

static bool run(struct sliced_read *r) {
    struct event_read *x = (struct event_read *)r;
    read_some(x);
    bool complete = !x->follows && !x->cut;
    if (complete && !x->error.code) {
        json_close(&x->writer, ']');
        buf_adds(&x->out, "}\n");
    }
    sliced_read_send(r, &x->out);
    if (x->error.code)
        net_reply_stream_abort(r->req);
    else if (complete)
        net_reply_stream_end(r->req);
    return complete || x->error.code;
}

static bool has_news(const struct sliced_read *r) {
    const struct event_read *x = (const struct event_read *)r;
    return pipeline_committed_seq(r->controller->pipeline) > x->after;
}

static void read_free(struct sliced_read *r) {
    buf_done(&((struct event_read *)r)->out);
    free(r);
}

static struct event_read *new_read(struct api_call *call) {
    struct event_read *x = xcalloc(1, sizeof *x);
    *x = (struct event_read){.actor = call->actor};
    x->read = (struct sliced_read){.run = run, .free = read_free, .stream_type = "application/json"};
    x->writer.out = &x->out;
    snprintf(x->user, sizeof x->user, "%s", call->actor.user);
    x->actor.user = x->user;
    return x;
}

// {"events":[
static void begin_document(struct event_read *x) {
    buf_addf(&x->out, "{\"%s\":", answer_events_schema.fields[0].name);
    json_open(&x->writer, '[');
}

void api_events(struct api_call *call) {
    const struct query_events *q = call->query;
    struct event_read *x = new_read(call);
    x->job = q->job;
    x->after = q->after;
    x->checks = true;
    x->follows = q->follow;
    if (q->follow) {
        x->read.stream_type = "text/event-stream";
        x->read.has_news = has_news;
        if (!schema_given(&query_events_schema, q, &q->after))
            x->after = pipeline_committed_seq(call->controller->pipeline);
    } else {
        x->left = PAGE_EVENTS;
        begin_document(x);
    }
    sliced_read_begin(&x->read, call);
}

void api_job_events(struct api_call *call) {
    struct controller *c = call->controller;
    struct job_record r;
    bool live;
    if (api_record(c, call->job, &call->arena, &r, &live) < 0) {
        api_no_job(call->req, call->job);
        return;
    }
    struct event_read *x = new_read(call);
    x->job = call->job;
    x->array = r.is_array && r.array_id != r.id ? r.array_id : 0;
    x->sight = call->sight;
    begin_document(x);
    sliced_read_begin(&x->read, call);
}
