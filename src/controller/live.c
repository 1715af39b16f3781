// Owns the viewers of the live feed. A ring holds which jobs changed, the newest change of each; every viewer has a
// position in it. A job's row is written once, when the first viewer needs it, in a form for each sight of it
// (job_sight.h). Viewers that ask for the same and are at the same position share the whole event.
// A viewer that does not read stays where it is; when the ring has passed it, it is told to load again.
#include "live.h"

#include <errno.h>
#include <string.h>

#include "base/clock.h"
#include "base/text.h"

struct change {
    uint64_t id, seq;                              // id 0: the job has changed again since
    bool known;                                    // the rest is filled in
    const char *user, *project, *partition, *qos;  // interned
    enum job_state state;
    char *rows[SIGHT_COUNT];  // by what may be seen of it; SIGHT_NONE: there is none
};

// Viewers that ask for the same.
struct live_group {
    char *key;
    uint32_t viewers, topics;
    struct actor actor;
    struct listing listing;  // its names, states and filter
    // The event that was made last, for viewers at the same position that have seen the same parts.
    uint64_t from, to;
    uint64_t seen[3];
    bool made;
    struct buf event;
};

struct live_viewer {
    struct live_group *group;
    struct net_request *req;
    struct controller *controller;
    uint64_t at;       // position in the ring
    uint64_t seen[3];  // versions of nodes, shares and status
    int64_t wrote_ms;
    bool reset, gone;
};

struct live_feed {
    struct change ring[LIVE_RING];
    uint64_t head;         // position of the next change
    uint64_t dropped_seq;  // changes up to this event may have left the ring
    struct map newest;     // job → position + 1
    struct listing forms[SIGHT_COUNT];
    struct feed_parts parts;
    VEC(struct live_viewer *) viewers;
    struct strmap groups;  // key → struct live_group
    uint32_t next;         // viewer whose turn it is
    uv_timer_t timer;
    bool ticking;
};

static struct change *change_at(struct live_feed *f, uint64_t at) {
    return &f->ring[at % LIVE_RING];
}

static uint64_t tail_of(const struct live_feed *f) {
    return f->head > LIVE_RING ? f->head - LIVE_RING : 0;
}

static void forget_text(struct change *ch) {
    for (int i = 0; i < SIGHT_COUNT; i++) {
        free(ch->rows[i]);
        ch->rows[i] = NULL;
    }
    ch->known = false;
}

static void add_change(struct live_feed *f, uint64_t id, uint64_t seq) {
    uint64_t before = (uint64_t)(uintptr_t)map_get(&f->newest, id);
    struct change *ch = change_at(f, f->head);
    if (before) {
        struct change *old = change_at(f, before - 1);
        forget_text(old);
        old->id = 0;
    }
    if (f->head >= LIVE_RING) {
        f->dropped_seq = ch->seq;
        if (ch->id)
            map_remove(&f->newest, ch->id);
        forget_text(ch);
    }
    *ch = (struct change){.id = id, .seq = seq};
    map_put(&f->newest, id, (void *)(uintptr_t)(f->head + 1));
    f->head++;
}

void live_job_changed(struct controller *c, uint64_t id) {
    if (c->live_feed)
        add_change(c->live_feed, id, pipeline_committed_seq(c->pipeline));
}

// --- rows ---

static void note_row(struct listing *l, struct row *r, void *ctx) {
    struct change *ch = ctx;
    struct core *core = l->controller->core;
    if (r->sight == SIGHT_ALL)
        ch->user = core_intern(core, r->v.user);
    ch->project = core_intern(core, r->v.project);
    ch->partition = core_intern(core, r->v.partition);
    ch->qos = core_intern(core, r->v.qos);
    ch->state = r->v.state;
    listing_put(l, r);
}

static char *row_text(struct listing *l, struct change *ch) {
    buf_clear(&l->out);
    l->w.need_comma = false;
    l->now = controller_now_ms();
    if (!listing_find(l, ch->id, note_row, ch))
        return NULL;
    char *text = strdup(buf_str(&l->out));
    buf_clear(&l->out);
    return text;
}

static const char *text_for(struct live_feed *f, struct change *ch, enum job_sight sight) {
    if (!ch->rows[sight])
        ch->rows[sight] = row_text(&f->forms[sight], ch);
    return ch->rows[sight];
}

// Whose job it is; false: there is no such job any more.
static bool know(struct live_feed *f, struct change *ch) {
    if (!ch->known)
        (void)text_for(f, ch, SIGHT_ALL);
    ch->known = true;
    return ch->rows[SIGHT_ALL] != NULL;
}

// --- events ---

enum wanted { ROW_NO, ROW_GONE, ROW_YES };

static bool is_named(const char *names, const char *name) {
    return !names || listing_names(names, name);
}

static void put_wanted(struct listing *l, struct row *r, void *ctx) {
    if (listing_passes(l, r))
        listing_put(l, r);
}

// Writes the row behind what is there if the group wants it.
static enum wanted add_row(struct live_feed *f, struct live_group *g, struct change *ch, struct buf *rows) {
    struct listing *l = &g->listing;
    if (!know(f, ch))
        return ROW_NO;
    enum job_sight sight = job_sight(l->controller, &g->actor, ch->user, ch->project);
    const char *text = sight == SIGHT_NONE ? NULL : text_for(f, ch, sight);
    if (!text || !is_named(l->user, sight == SIGHT_MASKED ? NULL : ch->user) ||
        !is_named(l->project, ch->project) || !is_named(l->partition, ch->partition))
        return ROW_NO;
    if (l->states && !(l->states >> ch->state & 1))
        return ROW_GONE;
    if (l->filter.where.count) {  // looks at more than what is kept here
        buf_clear(&l->out);
        l->w.need_comma = false;
        l->now = controller_now_ms();
        *l->judged.user = 0;  // projects may have changed
        listing_find(l, ch->id, put_wanted, NULL);
        text = l->out.len ? buf_str(&l->out) : NULL;
    }
    if (!text)
        return ROW_GONE;
    buf_adds(rows, rows->len ? "," : "");
    buf_adds(rows, text);
    return ROW_YES;
}

static size_t event_bytes_max(const struct live_feed *f, int64_t interval_ms) {
    size_t most = (size_t)((uint64_t)LIVE_BYTES_PER_S * (uint64_t)interval_ms / 1000 / (f->viewers.len + 1));
    return most < LIVE_EVENT_BYTES_MIN   ? LIVE_EVENT_BYTES_MIN
           : most > LIVE_EVENT_BYTES_MAX ? LIVE_EVENT_BYTES_MAX
                                         : most;
}

static int64_t interval_ms(const struct live_feed *f) {
    int64_t by_number = (int64_t)f->viewers.len * 1000 / LIVE_VIEWERS_PER_S;
    return by_number > LIVE_INTERVAL_MS ? by_number : LIVE_INTERVAL_MS;
}

// The changes from `from` on, as many as one event may hold; returns the position behind them.
static uint64_t add_jobs(struct controller *c, struct live_group *g, uint64_t from, struct buf *out) {
    struct live_feed *f = c->live_feed;
    cleanup_buf struct buf rows = {0}, gone = {0};
    size_t most = event_bytes_max(f, interval_ms(f));
    uint64_t at = from, seq = 0;
    int64_t until_us = clock_mono_us() + LIVE_VIEWER_US;
    for (; at < f->head && rows.len + gone.len < most && (at == from || clock_mono_us() < until_us); at++) {
        struct change *ch = change_at(f, at);
        seq = ch->seq;
        if (ch->id && add_row(f, g, ch, &rows) == ROW_GONE)
            buf_addf(&gone, "%s%llu", gone.len ? "," : "", (unsigned long long)ch->id);
    }
    // Changes of one commit have one number: a viewer that has some of them must get all of them again.
    if (at < f->head && change_at(f, at)->seq == seq)
        seq--;
    if (rows.len || gone.len)
        buf_addf(out, "event: jobs\nid: %llu\ndata: {\"seq\":%llu,\"jobs\":[%s],\"gone\":[%s]}\n\n",
                 (unsigned long long)seq, (unsigned long long)seq, buf_str(&rows), buf_str(&gone));
    return at;
}

static void add_part(const struct feed_part *p, uint64_t seen, struct buf *out) {
    if (p->version != seen)
        buf_add(out, p->event.data, p->event.len);
}

// What the viewer has not seen, shared with others at the same position. NULL: nothing.
static const struct buf *event_for(struct live_viewer *v) {
    struct controller *c = v->controller;
    struct live_feed *f = c->live_feed;
    struct live_group *g = v->group;
    const struct feed_part *parts[] = {&f->parts.nodes, &f->parts.shares, &f->parts.status};
    if (!g->made || g->from != v->at || memcmp(g->seen, v->seen, sizeof g->seen) != 0) {
        g->made = true;
        g->from = g->to = v->at;
        memcpy(g->seen, v->seen, sizeof g->seen);
        buf_clear(&g->event);
        if (g->topics & LIVE_JOBS)
            g->to = add_jobs(c, g, v->at, &g->event);
        for (int i = 0; i < 3; i++)
            if (g->topics & LIVE_NODES << i)
                add_part(parts[i], v->seen[i], &g->event);
    }
    v->at = g->topics & LIVE_JOBS ? g->to : f->head;
    for (int i = 0; i < 3; i++)
        v->seen[i] = parts[i]->version;
    return g->event.len ? &g->event : NULL;
}

static void reset_event(struct live_feed *f, struct live_viewer *v, uint64_t seq, struct buf *out) {
    buf_addf(out, "event: reset\nid: %llu\ndata: {\"seq\":%llu,\"reason\":\"%s\"}\n\n",
             (unsigned long long)seq, (unsigned long long)seq,
             "too much has changed since then; load it again");
    v->at = f->head;
    v->reset = false;
}

static void serve(struct live_viewer *v, int64_t mono_ms) {
    struct controller *c = v->controller;
    struct live_feed *f = c->live_feed;
    cleanup_buf struct buf own = {0};
    if (v->gone || net_reply_stream_pending(v->req) > LIVE_BACKLOG_BYTES)
        return;
    if (v->at < tail_of(f))
        v->reset = true;
    if (v->reset)
        reset_event(f, v, pipeline_committed_seq(c->pipeline), &own);
    const struct buf *event = own.len ? &own : event_for(v);
    if (!event && mono_ms - v->wrote_ms >= LIVE_QUIET_MS) {
        buf_adds(&own, ": \n\n");
        event = &own;
    }
    if (!event)
        return;
    v->wrote_ms = mono_ms;
    if (net_reply_stream_write(v->req, event->data, event->len) < 0)
        v->gone = true;
}

// --- viewers ---

static void group_leave(struct live_feed *f, struct live_group *g) {
    if (--g->viewers)
        return;
    strmap_remove(&f->groups, g->key);
    listing_done(&g->listing);
    buf_done(&g->event);
    free(g->key);
    free(g);
}

static void viewer_free(struct live_feed *f, struct live_viewer *v) {
    group_leave(f, v->group);
    free(v);
}

static void on_tick(uv_timer_t *t);

// Viewers are served in slices, spread over the interval.
static void tick_later(struct live_feed *f, bool cut) {
    uint32_t slices = (f->viewers.len + LIVE_SLICE_VIEWERS - 1) / LIVE_SLICE_VIEWERS;
    f->ticking = slices > 0;
    if (f->ticking)
        uv_timer_start(&f->timer, on_tick, cut ? LIVE_SLICE_PAUSE_MS : (uint64_t)(interval_ms(f) / slices),
                       0);
}

static void on_tick(uv_timer_t *t) {
    struct controller *c = t->data;
    struct live_feed *f = c->live_feed;
    int64_t mono_ms = clock_mono_ms(), until_us = clock_mono_us() + LIVE_SLICE_US;
    bool cut = false;
    feed_parts_look(c, &f->parts, f->viewers.len, mono_ms);
    for (uint32_t n = 0; n < LIVE_SLICE_VIEWERS && n < f->viewers.len && !cut; n++) {
        uint32_t i = f->next++ % f->viewers.len;
        struct live_viewer *v = f->viewers.at[i];
        serve(v, mono_ms);
        if (v->gone) {
            vec_remove_swap(&f->viewers, i);
            net_reply_stream_end(v->req);
            viewer_free(f, v);
            if (!f->viewers.len)
                break;
        }
        cut = clock_mono_us() >= until_us;
    }
    size_t it = 0;
    void *g;
    while (strmap_next(&f->groups, &it, NULL, &g))
        ((struct live_group *)g)->made = false;  // the next slice looks at what has changed meanwhile
    tick_later(f, cut);
}

static void on_close(struct net_request *req, void *user) {
    ((struct live_viewer *)user)->gone = true;
}

static int parse_topics(const char *text, uint32_t *out, struct error *e) {
    static const char *const words[] = {"jobs", "nodes", "shares", "status", NULL};
    cleanup_arena struct arena a = {0};
    *out = str_empty(text) ? LIVE_ALL : 0;
    for (const char *p = text; p && *p;) {
        size_t n = strcspn(p, ",");
        const char *word = arena_strndup(&a, p, n);
        int found = schema_word_find(words, word);
        if (found < 0)
            return error_set(
                e, EINVAL,
                "parameter \"topics\": \"%.40s\" is not known; expected jobs, nodes, shares, status", word);
        *out |= 1u << found;
        p += n + (p[n] == ',');
    }
    return 0;
}

static struct live_group *find_group(struct api_call *call, uint32_t topics, struct error *e) {
    struct live_feed *f = call->controller->live_feed;
    const struct query_live *q = call->query;
    cleanup_buf struct buf key = {0};
    const char *const parts[] = {call->actor.user, q->user, q->project, q->partition, q->state, q->where};
    buf_addf(&key, "%u%d%d%d%s", topics, call->actor.admin, call->actor.operates, q->mine,
             call->actor.project ? call->actor.project : "");
    for (size_t i = 0; i < sizeof parts / sizeof *parts; i++)
        buf_addf(&key, "\n%s", parts[i] ? parts[i] : "");
    struct live_group *g = strmap_get(&f->groups, buf_str(&key));
    if (g)
        return g;
    g = xcalloc(1, sizeof *g);
    listing_init_plain(&g->listing, call->controller, &call->actor);
    if (listing_init_filter(&g->listing,
                            &(struct listing_filter){.user = q->mine ? call->actor.user : q->user,
                                                     .project = q->project,
                                                     .partition = q->partition,
                                                     .state = q->state,
                                                     .where = q->where},
                            e) < 0) {
        listing_done(&g->listing);
        free(g);
        return NULL;
    }
    g->topics = topics;
    g->actor = g->listing.viewer;
    g->key = buf_take(&key);
    strmap_put(&f->groups, g->key, g);
    return g;
}

// The first change after event `seq`; UINT64_MAX: it may have left the ring.
static uint64_t position_after(struct live_feed *f, uint64_t seq) {
    uint64_t from = tail_of(f), to = f->head;
    if (seq < f->dropped_seq)
        return UINT64_MAX;
    while (from < to) {
        uint64_t mid = from + (to - from) / 2;
        if (change_at(f, mid)->seq <= seq)
            from = mid + 1;
        else
            to = mid;
    }
    return from;
}

// Where the viewer begins: behind what it has seen, else now.
static int find_begin(struct api_call *call, struct live_viewer *v, struct error *e) {
    struct live_feed *f = call->controller->live_feed;
    const struct query_live *q = call->query;
    const char *last = http_message_header(call->req->http, "Last-Event-ID");
    uint64_t seq = q->after, newest = pipeline_committed_seq(call->controller->pipeline);
    if (!str_empty(last) && parse_u64(last, &seq) < 0)
        return error_set(e, EINVAL, "Last-Event-ID: expected the id of an event of this stream, a number");
    bool given = !str_empty(last) || schema_given(&query_live_schema, q, &q->after);
    v->at = given ? position_after(f, seq) : f->head;
    v->reset = v->at == UINT64_MAX || (given && seq > newest);  // larger: of a state that was lost
    if (v->reset)
        v->at = f->head;
    return 0;
}

static uint32_t viewers_of(const struct live_feed *f, const char *user) {
    uint32_t n = 0;
    for (uint32_t i = 0; i < f->viewers.len; i++)
        n += streq(f->viewers.at[i]->group->actor.user, user);
    return n;
}

static int admit(struct api_call *call, struct live_viewer *v, struct error *e) {
    struct live_feed *f = call->controller->live_feed;
    uint32_t topics;
    if (f->viewers.len >= LIVE_VIEWERS_MAX ||
        (!call->actor.admin && viewers_of(f, call->actor.user) >= LIVE_USER_VIEWERS_MAX))
        return error_set(e, EAGAIN, "too many live views are open; close some, or try again later");
    int r = parse_topics(((const struct query_live *)call->query)->topics, &topics, e);
    if (r < 0 || (r = find_begin(call, v, e)) < 0)
        return r;
    v->group = find_group(call, topics, e);
    return v->group ? 0 : -e->code;
}

void api_live(struct api_call *call) {
    struct controller *c = call->controller;
    struct live_feed *f = c->live_feed;
    struct live_viewer *v = xcalloc(1, sizeof *v);
    struct error e = {0};
    cleanup_buf struct buf hello = {0};
    *v = (struct live_viewer){.req = call->req, .controller = c, .wrote_ms = clock_mono_ms()};
    if (admit(call, v, &e) < 0) {
        api_fail(call->req, &e);
        free(v);
        return;
    }
    v->group->viewers++;
    unsigned long long seq = pipeline_committed_seq(c->pipeline);
    net_reply_header(call->req, "Cache-Control", "no-store");
    net_reply_header(call->req, "X-Accel-Buffering", "no");  // proxies pass every event on at once
    net_reply_stream_start(call->req, 200, "text/event-stream");
    net_request_watch(call->req, on_close, NULL, v);
    buf_adds(&hello, "retry: 2000\n");
    if (v->at == f->head && !v->reset)  // else the first changes bring their number
        buf_addf(&hello, "id: %llu\n", seq);
    buf_addf(&hello, "event: hello\ndata: {\"seq\":%llu}\n\n", seq);
    if (net_reply_stream_write(call->req, hello.data, hello.len) < 0)
        v->gone = true;
    vec_push(&f->viewers, v);
    if (!f->ticking)
        tick_later(f, false);
}

// --- life ---

static int preload(void *ctx, const struct store_event *e) {
    if (e->job)
        add_change(ctx, e->job, e->seq);
    return 0;
}

void live_open(struct controller *c) {
    struct live_feed *f = c->live_feed = xcalloc(1, sizeof *f);
    uint64_t seq = pipeline_committed_seq(c->pipeline);
    static const struct actor nobody = {.user = ""};
    for (int i = SIGHT_NONE + 1; i < SIGHT_COUNT; i++) {
        listing_init_plain(&f->forms[i], c, &nobody);
        f->forms[i].fixed = (enum job_sight)i;
    }
    f->dropped_seq = seq > LIVE_PRELOAD_EVENTS ? seq - LIVE_PRELOAD_EVENTS : 0;
    store_events(c->store, 0, f->dropped_seq, LIVE_PRELOAD_EVENTS, preload, f, NULL);
    uv_timer_init(&c->loop, &f->timer);
    f->timer.data = c;
}

void live_close(struct controller *c) {
    struct live_feed *f = c->live_feed;
    if (!f)
        return;
    for (uint32_t i = 0; i < f->viewers.len; i++)
        viewer_free(f, f->viewers.at[i]);
    vec_done(&f->viewers);
    strmap_done(&f->groups);
    for (uint32_t i = 0; i < LIVE_RING; i++)
        forget_text(&f->ring[i]);
    map_done(&f->newest);
    for (int i = SIGHT_NONE + 1; i < SIGHT_COUNT; i++)
        listing_done(&f->forms[i]);
    feed_parts_done(&f->parts);
    free(f);
    c->live_feed = NULL;
}
