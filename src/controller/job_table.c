// Owns the ended jobs in memory, and GET /v1/table. A question is answered in slices (sliced_read.h): it looks at the
// ended jobs, then at the live ones in order of their ids, then at those that ended meanwhile and were not seen; a heap
// keeps the rows of the page. What a row shows is then looked up job by job, as every list shows it.
#include "job_table.h"

#include <errno.h>
#include <string.h>

#include "answers_portal.h"
#include "app.h"
#include "base/clock.h"
#include "base/text.h"
#include "listing.h"
#include "sliced_read.h"
#include "table_sort.h"

enum {
    LOAD_ROWS = 256,  // of history, in one slice
    WAITS_KEEP_MS = 10000,
    DROP_SAMPLES = 1000,
    SHOWN_ROWS = 16,                           // a row that is shown takes as long as looking at so many
    ENDED_READ_MAX = TABLE_ENDED_MAX / 4 * 5,  // with so many, what is being read is finished first
};

// The state of a question when a slice had ended: jobs that end between two slices were seen among the live ones if
// their ids are not after the one that was looked at last.
struct slice_mark {
    uint32_t ended_len;
    uint64_t live_after;
};

enum table_phase { PHASE_ENDED, PHASE_LIVE, PHASE_LATE, PHASE_ARRAYS, PHASE_ROWS };

// The elements of an array that pass.
struct table_array {
    struct table_row row;  // of the most alive, or of the worst ended
    uint64_t best;         // its id
    struct answer_states states;
    uint64_t elements;
    bool live;
};

struct table_question {
    struct sliced_read read;
    struct listing l;
    struct arena arena;
    struct table_sort sort;
    const char *search;  // in lower case
    const char *last_user, *last_project;
    bool last_found;
    struct answer_job filtered;  // the row that the filter looks at
    bool elements, slow_filter, begun;
    int64_t since_ms;
    enum table_phase phase;
    uint64_t seq;
    uint32_t at;         // ended job, array or row that comes next
    uint32_t ended_len;  // when it began
    uint64_t live_after;
    VEC(struct slice_mark) marks;
    struct map arrays;  // id → struct table_array
    VEC(struct table_array *) array_list;
    uint64_t total, jobs;
    struct answer_states states;
    bool cut;  // the slice is over
};

// How long jobs waited: computed in slices, now and then.
struct wait_scan {
    bool running;
    int64_t since_ms;
    uint32_t at;  // ended job that comes next
    VEC(int64_t) waits;
};

struct job_table {
    struct controller *controller;
    VEC(struct table_row) ended;
    bool wanted, loaded, cut;  // cut: older ones were left out
    struct store_query load;
    struct map early;  // ended since loading began: history may bring them again
    struct listing reader;
    uint32_t readers;  // rows stay where they are while there are any
    uv_idle_t idle;    // keeps the loop turning while history is read
    struct wait_scan waits;
    int64_t waits_ms;  // when waits were last computed; 0: never
    uint64_t wait_jobs;
    int64_t wait_median_ms, wait_p90_ms;
};

// --- ended jobs ---

static void drop_oldest(struct job_table *t) {
    if (t->ended.len < TABLE_ENDED_MAX || t->readers)
        return;
    // A tenth of them goes: those that ended before a time found from samples.
    int64_t ends[DROP_SAMPLES];
    for (uint32_t i = 0; i < DROP_SAMPLES; i++)
        ends[i] = t->ended.at[(uint64_t)i * t->ended.len / DROP_SAMPLES].end_ms;
    int64_t limit_ms = table_nth(ends, DROP_SAMPLES, DROP_SAMPLES / 10);
    uint32_t kept = 0;
    for (uint32_t i = 0; i < t->ended.len; i++) {
        if (t->ended.at[i].end_ms > limit_ms)
            t->ended.at[kept++] = t->ended.at[i];
        else
            free((char *)(uintptr_t)t->ended.at[i].name);
    }
    t->cut |= kept < t->ended.len;
    t->ended.len = kept;
}

static void add_ended(struct job_table *t, const struct store_history *record) {
    struct core *core = t->controller->core;
    struct answer_job j;
    struct table_row r = {0};
    if (!listing_record(&t->reader, record, &j, &r.worker))
        return;
    r = (struct table_row){.id = j.id,
                           .array_id = j.array_id,
                           .array_index = j.array_index,
                           .node_count = j.node_count,
                           .cpus = j.cpus,
                           .time_limit_s = j.time_limit_s,
                           .attempt = j.attempt,
                           .preempted = j.preempted,
                           .gpus_milli = j.gpus_milli,
                           .memory_bytes = j.memory_bytes,
                           .cpu_ms = j.cpu_ms,
                           .memory_peak_bytes = j.memory_peak_bytes,
                           .gpu_busy_ms = j.gpu_busy_ms,
                           .energy_mj = j.energy_mj,
                           .submit_ms = j.submit_ms,
                           .eligible_ms = j.eligible_ms,
                           .start_ms = j.start_ms,
                           .end_ms = j.end_ms,
                           .paused_ms = j.suspended_ms,
                           .exit_code = j.exit_code,
                           .state = (uint8_t)j.state,
                           .class = (uint8_t)j.class,
                           .worker = r.worker,
                           .user = core_intern(core, j.user),
                           .project = core_intern(core, j.project),
                           .partition = core_intern(core, j.partition),
                           .qos = core_intern(core, j.qos),
                           .name = strdup(j.name ? j.name : "")};
    vec_push(&t->ended, r);
}

void job_table_ended(struct controller *c, const struct store_history *row) {
    struct job_table *t = c->job_table;
    if (!t || !t->wanted)
        return;
    if (!t->loaded)
        map_put(&t->early, row->id, t);
    add_ended(t, row);
    drop_oldest(t);
}

static int load_ended(void *ctx, const struct store_history *row) {
    struct job_table *t = ctx;
    t->load.resume = true;
    t->load.after_end_ms = row->end_ms;
    t->load.after_id = row->id;
    if (!map_get(&t->early, row->id))
        add_ended(t, row);
    return 0;
}

static int take_ending(void *ctx, const struct store_history *row) {
    job_table_ended(((struct job_table *)ctx)->controller, row);
    return 0;
}

static void load_some(struct job_table *t) {
    uint32_t before = t->ended.len;
    t->load.limit = LOAD_ROWS;
    uint64_t last = t->load.after_id;
    int r = store_history(t->controller->store, &t->load, load_ended, t, NULL);
    t->cut |= r < 0 || t->ended.len >= TABLE_ENDED_MAX;
    if (r >= 0 && (t->ended.len > before || t->load.after_id != last) && !t->cut)
        return;
    t->loaded = true;
    map_done(&t->early);
}

static void on_idle(uv_idle_t *h) {
}

static void want(struct job_table *t) {
    if (t->wanted)
        return;
    t->wanted = true;
    t->load = (struct store_query){.order = STORE_BY_END, .descending = true};
    pipeline_each_ending(t->controller->pipeline, take_ending, t);
    uv_idle_start(&t->idle, on_idle);
}

bool job_table_ready(const struct controller *c) {
    const struct job_table *t = c->job_table;
    return t->loaded && (t->ended.len < ENDED_READ_MAX || !t->readers);
}

void job_table_read_begin(struct controller *c) {
    drop_oldest(c->job_table);
    c->job_table->readers++;
}

void job_table_read_end(struct controller *c) {
    c->job_table->readers--;
}

void job_table_want(struct controller *c) {
    want(c->job_table);
}

const struct table_row *job_table_rows(const struct controller *c, uint32_t *len, bool *complete) {
    const struct job_table *t = c->job_table;
    *len = t->ended.len;
    *complete = t->loaded && !t->cut;
    return t->ended.at;
}

// --- waits ---

static void add_wait(struct wait_scan *w, int64_t submit_ms, int64_t eligible_ms, int64_t start_ms) {
    int64_t from_ms = eligible_ms > submit_ms ? eligible_ms : submit_ms;
    if (start_ms >= w->since_ms && start_ms > 0)
        vec_push(&w->waits, start_ms > from_ms ? start_ms - from_ms : 0);
}

static void add_running(void *ctx, const struct job_view *v) {
    add_wait(ctx, v->submit_ms, v->eligible_ms, v->start_ms);
}

static void scan_waits(struct job_table *t) {
    struct wait_scan *w = &t->waits;
    for (uint32_t n = 0; n < READ_SLICE_ROWS && w->at < t->ended.len; n++, w->at++)
        if (!t->ended.at[w->at].worker)
            add_wait(w, t->ended.at[w->at].submit_ms, t->ended.at[w->at].eligible_ms,
                     t->ended.at[w->at].start_ms);
    if (w->at < t->ended.len)
        return;
    core_each_running(t->controller->core, add_running, w);
    uint32_t len = w->waits.len;
    t->waits_ms = clock_mono_ms();
    t->wait_jobs = len;
    t->wait_median_ms = len ? table_nth(w->waits.at, len, len / 2) : 0;
    t->wait_p90_ms = len ? table_nth(w->waits.at, len, (uint32_t)((uint64_t)len * 9 / 10)) : 0;
    vec_done(&w->waits);
    w->running = false;
    t->readers--;
}

void job_table_waits(struct controller *c, int64_t since_ms, uint64_t *jobs, int64_t *median_ms,
                     int64_t *p90_ms) {
    struct job_table *t = c->job_table;
    *jobs = 0;
    *median_ms = *p90_ms = 0;
    if (!t)
        return;
    want(t);
    if (!t->waits.running && job_table_ready(c) &&
        (!t->waits_ms || clock_mono_ms() - t->waits_ms >= WAITS_KEEP_MS)) {
        t->waits.running = true;
        t->waits.since_ms = since_ms;
        t->waits.at = 0;
        job_table_read_begin(c);
        scan_waits(t);
        if (t->waits.running)  // the rest in the turns to come
            uv_idle_start(&t->idle, on_idle);
    }
    *jobs = t->wait_jobs;
    *median_ms = t->wait_median_ms;
    *p90_ms = t->wait_p90_ms;
}

// --- which jobs ---

static void row_of_view(struct controller *c, const struct job_view *v, struct table_row *out) {
    const struct live_usage *u = map_get(&c->live, v->id);
    *out = (struct table_row){.id = v->id,
                              .array_id = v->array_id,
                              .array_index = v->array_index,
                              .node_count = v->node_count,
                              .cpus = v->cpus,
                              .time_limit_s = v->time_limit_s,
                              .attempt = v->attempt,
                              .preempted = v->preempted,
                              .gpus_milli = v->gpus_milli,
                              .memory_bytes = v->memory_bytes,
                              .submit_ms = v->submit_ms,
                              .eligible_ms = v->eligible_ms,
                              .start_ms = v->start_ms,
                              .expected_start_ms = v->expected_start_ms,
                              .state = (uint8_t)v->state,
                              .class = (uint8_t)v->class,
                              .worker = v->job != 0,
                              .user = v->user,
                              .project = v->project,
                              .partition = v->partition,
                              .qos = v->qos,
                              .name = v->name};
    if (!u)
        return;
    out->cpu_ms = (u->usage.cpu_user_us + u->usage.cpu_system_us) / 1000;
    out->memory_peak_bytes = u->usage.memory_peak_bytes;
    out->gpu_busy_ms = u->usage.gpu_busy_ms;
    out->energy_mj = u->usage.energy_mj;
}

static void check_row(struct listing *l, struct row *r, void *ctx) {
    *(bool *)ctx = listing_passes(l, r);
}

static bool filter_passes(struct table_question *q, const struct table_row *r) {
    bool passes = false;
    if (!q->l.filter.where.count)
        return true;
    if (q->slow_filter) {
        listing_find(&q->l, r->id, check_row, &passes);
        return passes;
    }
    table_answer(r, q->l.now, &q->filtered);
    return listing_filter_passes(&q->l.filter, FILTER_ALL, &q->filtered, q->l.now);
}

static char lower(char c) {
    return c >= 'A' && c <= 'Z' ? (char)(c + 32) : c;
}

// `part` is in lower case.
static bool contains(const char *text, const char *part) {
    for (; text && *text; text++) {
        size_t n = 0;
        while (part[n] && lower(text[n]) == part[n])
            n++;
        if (!part[n])
            return true;
    }
    return false;
}

static bool number_begins(uint64_t number, const char *digits) {
    char text[24];
    if (*digits < '0' || *digits > '9')
        return false;
    snprintf(text, sizeof text, "%llu", (unsigned long long)number);
    return str_has_prefix(text, digits);
}

// Users and projects are few: what was found for the last ones holds for most rows.
static bool search_finds(struct table_question *q, const struct table_row *r) {
    if (!q->search)
        return true;
    // Names are interned, and neighbouring rows are mostly of one user: the last result is remembered.
    if (q->last_user != r->user || q->last_project != r->project) {
        q->last_user = r->user;
        q->last_project = r->project;
        q->last_found = contains(r->user, q->search) || contains(r->project, q->search);
    }
    return q->last_found || contains(r->name, q->search) ||
           number_begins(r->array_id ? r->array_id : r->id, q->search);
}

static bool is_wanted(struct table_question *q, const struct table_row *r) {
    const struct listing *l = &q->l;
    return !r->worker && (!l->states || l->states >> r->state & 1) &&
           (!r->end_ms || r->end_ms >= q->since_ms) && listing_names(l->user, r->user) &&
           listing_names(l->project, r->project) &&
           (!l->partition || listing_names(l->partition, r->partition)) && listing_names(l->qos, r->qos) &&
           (!l->name || streq(l->name, r->name)) && search_finds(q, r) && filter_passes(q, r);
}

// --- the page ---

static uint32_t liveness(uint8_t state) {
    static const enum job_state order[] = {JOB_RUNNING,  JOB_STARTING, JOB_COMPLETING, JOB_SUSPENDED,
                                           JOB_PENDING,  JOB_FAILED,   JOB_NODE_FAIL,  JOB_OUT_OF_MEMORY,
                                           JOB_TIMEOUT,  JOB_DEADLINE, JOB_PREEMPTED,  JOB_CANCELLED,
                                           JOB_COMPLETED};
    uint32_t i = 0;
    while (i < sizeof order / sizeof *order && order[i] != state)
        i++;
    return i;
}

static void add_element(struct table_question *q, const struct table_row *r) {
    struct table_array *a = map_get(&q->arrays, r->array_id);
    if (!a) {
        a = arena_alloc(&q->arena, sizeof *a);
        *a = (struct table_array){.row = *r, .best = r->id};
        a->row.name = r->name ? arena_strdup(&q->arena, r->name) : NULL;
        map_put(&q->arrays, r->array_id, a);
        vec_push(&q->array_list, a);
    }
    struct table_row *all = &a->row;
    if (liveness(r->state) < liveness(all->state)) {
        all->state = r->state;
        a->best = r->id;
    }
    if (r->start_ms && (!all->start_ms || r->start_ms < all->start_ms))
        all->start_ms = r->start_ms;
    if (r->end_ms > all->end_ms)
        all->end_ms = r->end_ms;
    a->live |= !r->end_ms;
    a->elements++;
    a->states.by_state[r->state]++;
}

// Search, filters and order see of a job what the viewer may see.
static void look_at(struct table_question *q, const struct table_row *row) {
    struct table_row masked;
    const struct table_row *r = row;
    q->cut = sliced_read_over(&q->read, 1);
    enum job_sight sight = listing_sight(&q->l, row->user, row->project);
    if (sight == SIGHT_MASKED) {
        masked = *row;
        masked.user = masked.name = NULL;
        r = &masked;
    }
    if (sight == SIGHT_NONE || !is_wanted(q, r))
        return;
    q->jobs++;
    q->states.by_state[r->state]++;
    if (r->array_id && !q->elements) {
        add_element(q, r);
        return;
    }
    q->total++;
    table_sort_offer(&q->sort, r, r->id, 0, &q->arena);
}

static bool look_at_live(void *ctx, const struct job_view *v) {
    struct table_question *q = ctx;
    struct table_row r;
    q->live_after = v->id;
    row_of_view(q->read.controller, v, &r);
    look_at(q, &r);
    return !q->cut;
}

// Whether it was looked at among the live ones before it ended.
static bool was_seen(const struct table_question *q, uint32_t at, uint64_t id) {
    uint64_t after = 0;
    for (uint32_t i = 0; i < q->marks.len && q->marks.at[i].ended_len <= at; i++)
        after = q->marks.at[i].live_after;
    return id <= after;
}

// --- rows ---

struct row_writing {
    struct table_question *question;
    const struct table_array *array;
};

static const char *why_of(const struct row *r) {
    return r->v.state == JOB_PENDING && !r->v.ending ? table_reason(r->v.reason) : NULL;
}

// Where its programs are reached; most jobs have none, and none is written.
static void write_urls(struct table_question *q, struct listing *l, const struct row *r) {
    struct controller *c = q->read.controller;
    cleanup_arena struct arena a = {0};
    struct answer_job job = {0};
    struct spec spec;
    if (!c->apps || r->v.state != JOB_RUNNING || r->sight != SIGHT_ALL || !r->v.spec_bytes ||
        schema_decode(&spec_schema, r->v.spec_bytes, r->v.spec_len, &a, &spec) < 0)
        return;
    app_job_urls(c, q->read.req->peer->kind, r->v.id, r->v.attempt, &spec, &a, &job);
    if (!job.urls.len)
        return;
    json_key(&l->w, "urls");
    json_open(&l->w, '[');
    for (uint32_t i = 0; i < job.urls.len; i++)
        json_put_str(&l->w, job.urls.at[i]);
    json_close(&l->w, ']');
}

static void write_row(struct listing *l, struct row *r, void *ctx) {
    struct row_writing *w = ctx;
    const struct table_array *a = w->array;
    char label[24];
    if (a) {
        snprintf(label, sizeof label, "%llu", (unsigned long long)a->row.array_id);
        r->v.id = a->row.array_id;
        r->label = label;
        r->v.start_ms = a->row.start_ms;
        r->end_ms = a->live ? 0 : a->row.end_ms;
    }
    const char *why = why_of(r);
    listing_put(l, r);
    l->out.len--;  // its last brace: two members more
    l->w.need_comma = true;
    json_kv_str(&l->w, "why", why);
    if (!a)
        write_urls(w->question, l, r);
    json_key(&l->w, "array");
    struct answer_table_array answer = {a ? a->elements : 0,
                                        a ? (struct answer_states *)(uintptr_t)&a->states : NULL};
    if (a)
        schema_write_json(&answer_table_array_schema, &answer, &l->w);
    else
        json_put_null(&l->w);
    json_close(&l->w, '}');
}

static void put_row(struct table_question *q, const struct table_place *p) {
    struct row_writing w = {.question = q, .array = p->array ? map_get(&q->arrays, p->array) : NULL};
    listing_find(&q->l, w.array ? w.array->best : p->id, write_row, &w);
}

static void answer(struct table_question *q) {
    const struct job_table *t = q->read.controller->job_table;
    cleanup_buf struct buf next = {0};
    json_close(&q->l.w, ']');
    bool more = table_sort_next(&q->sort, &next);
    struct answer_table a = {.seq = q->seq,
                             .now_ms = q->l.now,
                             .rows = buf_str(&q->l.out),
                             .next = more ? buf_str(&next) : NULL,
                             .total = q->total,
                             .jobs = q->jobs,
                             .states = &q->states,
                             .complete = t->loaded && !t->cut};
    api_answer_to(q->read.req, 200, &answer_table_schema, &a);
}

// --- slices ---

static void look_at_arrays(struct table_question *q) {
    for (; q->at < q->array_list.len && !q->cut; q->at++) {
        struct table_array *a = q->array_list.at[q->at];
        if (a->live)
            a->row.end_ms = 0;
        q->total++;
        table_sort_offer(&q->sort, &a->row, a->row.array_id, a->row.array_id, &q->arena);
        q->cut = sliced_read_over(&q->read, 1);
    }
}

static void look_at_late(struct table_question *q) {
    const struct job_table *t = q->read.controller->job_table;
    for (; q->at < t->ended.len && !q->cut; q->at++)
        if (!was_seen(q, q->at, t->ended.at[q->at].id))
            look_at(q, &t->ended.at[q->at]);
        else
            q->cut = sliced_read_over(&q->read, 1);
}

// Phases, each in slices: jobs that had ended when the question came, live ones, those that ended since, arrays as one
// row each; then the rows of the answer. A job that ends between two slices leaves the live list and joins the ended
// one: the marks tell whether it was seen as live, so that it is counted once.
static void look_at_jobs(struct table_question *q) {
    const struct job_table *t = q->read.controller->job_table;
    if (q->phase == PHASE_ENDED) {
        for (; q->at < q->ended_len && !q->cut; q->at++)
            look_at(q, &t->ended.at[q->at]);
        if (q->at >= q->ended_len)
            q->phase = PHASE_LIVE;
    } else if (q->phase == PHASE_LIVE) {
        core_each_job_after(q->read.controller->core, q->live_after, look_at_live, q);
        vec_push(&q->marks, ((struct slice_mark){t->ended.len, q->cut ? q->live_after : UINT64_MAX}));
        if (q->cut)
            return;
        q->phase = PHASE_LATE;
        q->at = q->ended_len;
    } else if (q->phase == PHASE_LATE) {
        look_at_late(q);
        if (q->at < t->ended.len)
            return;
        q->phase = PHASE_ARRAYS;
        q->at = 0;
    } else {
        look_at_arrays(q);
        if (q->at < q->array_list.len)
            return;
        table_sort_finish(&q->sort);
        json_open(&q->l.w, '[');
        q->phase = PHASE_ROWS;
        q->at = 0;
    }
}

static void begin(struct table_question *q) {
    struct controller *c = q->read.controller;
    job_table_read_begin(c);
    q->begun = true;
    q->ended_len = c->job_table->ended.len;
    q->seq = pipeline_committed_seq(c->pipeline);
}

static bool run(struct sliced_read *r) {
    struct table_question *q = (struct table_question *)r;
    if (!q->begun)
        begin(q);
    for (q->cut = false; q->phase != PHASE_ROWS && !q->cut;)
        look_at_jobs(q);
    for (; q->at < q->sort.rows && !q->cut && q->phase == PHASE_ROWS; q->at++) {
        put_row(q, &q->sort.heap.at[q->at]);
        q->cut = sliced_read_over(r, SHOWN_ROWS);
    }
    if (q->phase != PHASE_ROWS || q->at < q->sort.rows)
        return false;
    answer(q);
    return true;
}

static bool may_run(const struct sliced_read *r) {
    return ((const struct table_question *)r)->begun || job_table_ready(r->controller);
}

static void question_free(struct sliced_read *r) {
    struct table_question *q = (struct table_question *)r;
    if (q->begun)
        job_table_read_end(r->controller);
    listing_done(&q->l);
    table_sort_done(&q->sort);
    vec_done(&q->marks);
    vec_done(&q->array_list);
    map_done(&q->arrays);
    arena_done(&q->arena);
    free(q);
}

bool job_table_turn(struct controller *c) {
    struct job_table *t = c->job_table;
    if (!t || !t->wanted || (t->loaded && !t->waits.running))
        return false;
    if (t->loaded) {
        scan_waits(t);
    } else {
        load_some(t);
        if (t->loaded)
            controller_reads_wake(c);
    }
    if (t->loaded && !t->waits.running)
        uv_idle_stop(&t->idle);
    return true;
}

// --- GET /v1/table ---

static int read_question(struct table_question *q, struct api_call *call, struct error *e) {
    const struct query_table *asked = call->query;
    char *search = str_empty(asked->search) ? NULL : arena_strdup(&q->arena, asked->search);
    for (char *p = search; p && *p; p++)
        *p = lower(*p);
    q->search = search;
    q->elements = asked->elements;
    q->since_ms = asked->since_ms;
    int r = table_sort_init(&q->sort, asked->sort, asked->after,
                            asked->limit ? asked->limit : TABLE_PAGE_ROWS, q->l.now, &q->arena, e);
    if (r == 0)
        r = listing_init_columns(&q->l, asked->fields, e);
    if (r == 0)
        r = listing_init_filter(&q->l,
                                &(struct listing_filter){.user = asked->mine ? call->actor.user : asked->user,
                                                         .project = asked->project,
                                                         .partition = asked->partition,
                                                         .qos = asked->qos,
                                                         .name = asked->name,
                                                         .state = asked->state,
                                                         .where = asked->where},
                                e);
    q->slow_filter = !table_answers(q->l.filter.columns);
    return r;
}

void api_table(struct api_call *call) {
    struct controller *c = call->controller;
    struct table_question *q = xcalloc(1, sizeof *q);
    struct error e = {0};
    q->read = (struct sliced_read){.run = run, .free = question_free, .has_news = may_run, .controller = c};
    listing_init_plain(&q->l, c, &call->actor);
    if (read_question(q, call, &e) < 0) {
        api_fail(call->req, &e);
        question_free(&q->read);
        return;
    }
    q->read.slow_rows = q->search || q->l.filter.where.count;
    want(c->job_table);
    sliced_read_begin(&q->read, call);
}

// --- life ---

void job_table_open(struct controller *c) {
    static const struct actor everybody = {.user = "root", .admin = true};
    struct job_table *t = c->job_table = xcalloc(1, sizeof *t);
    t->controller = c;
    listing_init_plain(&t->reader, c, &everybody);
    (void)listing_init_columns(
        &t->reader,
        "id,array_id,array_index,name,user,project,partition,qos,class,state,node_count,cpus,"
        "memory_bytes,gpus_milli,time_limit_s,eligible_ms,elapsed_ms,exit_code,attempt,preempted,"
        "cpu_ms",
        NULL);
    uv_idle_init(&c->loop, &t->idle);
}

void job_table_close(struct controller *c) {
    struct job_table *t = c->job_table;
    if (!t)
        return;
    for (uint32_t i = 0; i < t->ended.len; i++)
        free((char *)(uintptr_t)t->ended.at[i].name);
    vec_done(&t->ended);
    map_done(&t->early);
    vec_done(&t->waits.waits);
    listing_done(&t->reader);
    free(t);
    c->job_table = NULL;
}
