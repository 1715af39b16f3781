// Jobs as the API shows them: which fields are asked for, and their values. The fields are those of
// answer_job_schema; the enum below numbers them in the same order.
#include "listing.h"

#include <assert.h>
#include <errno.h>
#include <string.h>

#include "base/text.h"
#include "app.h"
#include "sliced_read.h"
#include "telemetry.h"
#include "model/arrayspec.h"
#include "model/name.h"
#include "model/nodelist.h"

enum column {
    COL_ID,
    COL_ARRAY_ID,
    COL_ARRAY_INDEX,
    COL_LABEL,
    COL_NAME,
    COL_USER,
    COL_PROJECT,
    COL_PARTITION,
    COL_QOS,
    COL_CLASS,
    COL_STATE,
    COL_REASON,
    COL_NODES,
    COL_NODE_COUNT,
    COL_TASKS,
    COL_CPUS,
    COL_MEMORY,
    COL_GPUS,
    COL_GPU_MODEL,
    COL_TIME_LIMIT,
    COL_SUBMIT,
    COL_ELIGIBLE,
    COL_START,
    COL_END,
    COL_ELAPSED,
    COL_EXPECTED,
    COL_EXIT_CODE,
    COL_EXIT_SIGNAL,
    COL_ATTEMPT,
    COL_PRIORITY,
    COL_NICE,
    COL_COMMENT,
    COL_WORKDIR,
    COL_OUTPUT,
    COL_ERROR,
    COL_COMMAND,
    COL_DEPENDENCY,
    COL_HOLD,
    COL_CPU,
    COL_MEMORY_PEAK,
    COL_GPU_BUSY,
    COL_ENERGY,
    COL_PREEMPTED,
    COL_FEATURES,
    COL_BEGIN,
    COL_UID,
    COL_SPEC,
    COL_STEPS,
    COL_BY,
    COL_USAGE,
    COL_ENDING,
    COL_LAUNCH,
    COL_ORDER,
    COL_GPU_USE,
    COL_WARNING,
    COL_SUSPENDED,
    COL_SUSPEND,
    COL_MEMORY_NOW,
    COL_CONTAINER,
    COL_STEP_COUNT,
    COL_ELEMENTS,
    COL_FOLDED,
    COL_TAGS,
    COL_WORKERS,
    COL_PROGRESS,
    COL_HEALTH,
    COL_HEALTH_REASON,
    COL_URLS,
    COL_COUNT  // the others are not for lists
};

enum { STEP_EVENT_ROWS = 5 };  // an event of a step takes as long as looking at so many rows

static_assert(COL_COUNT < 128, "a bit for each");
#define BIT COLUMN_BIT
static const column_set default_columns =
    BIT(COL_ID) | BIT(COL_LABEL) | BIT(COL_NAME) | BIT(COL_USER) | BIT(COL_PROJECT) | BIT(COL_PARTITION) |
    BIT(COL_STATE) | BIT(COL_REASON) | BIT(COL_NODES) | BIT(COL_NODE_COUNT) | BIT(COL_CPUS) |
    BIT(COL_MEMORY) | BIT(COL_GPUS) | BIT(COL_TIME_LIMIT) | BIT(COL_SUBMIT) | BIT(COL_START) | BIT(COL_END) |
    BIT(COL_ELAPSED) | BIT(COL_EXIT_CODE) | BIT(COL_EXIT_SIGNAL);
static const column_set portal_columns =
    BIT(COL_ID) | BIT(COL_ARRAY_ID) | BIT(COL_ARRAY_INDEX) | BIT(COL_LABEL) | BIT(COL_NAME) | BIT(COL_USER) |
    BIT(COL_PROJECT) | BIT(COL_PARTITION) | BIT(COL_QOS) | BIT(COL_CLASS) | BIT(COL_STATE) | BIT(COL_REASON) |
    BIT(COL_NODES) | BIT(COL_NODE_COUNT) | BIT(COL_TASKS) | BIT(COL_CPUS) | BIT(COL_MEMORY) | BIT(COL_GPUS) |
    BIT(COL_TIME_LIMIT) | BIT(COL_SUBMIT) | BIT(COL_ELIGIBLE) | BIT(COL_START) | BIT(COL_END) |
    BIT(COL_EXPECTED) | BIT(COL_EXIT_CODE) | BIT(COL_EXIT_SIGNAL) | BIT(COL_ATTEMPT) | BIT(COL_HOLD) |
    BIT(COL_PREEMPTED) | BIT(COL_ENDING) | BIT(COL_PROGRESS) | BIT(COL_HEALTH);
static const column_set private_columns = BIT(COL_COMMENT) | BIT(COL_WORKDIR) | BIT(COL_OUTPUT) |
                                          BIT(COL_ERROR) | BIT(COL_COMMAND) | BIT(COL_HEALTH_REASON);
static const column_set spec_columns = private_columns | BIT(COL_GPU_MODEL) | BIT(COL_DEPENDENCY) |
                                       BIT(COL_FEATURES) | BIT(COL_CONTAINER) | BIT(COL_BEGIN) |
                                       BIT(COL_SPEC) | BIT(COL_LAUNCH) | BIT(COL_TAGS) | BIT(COL_URLS);
static const column_set costly_columns =
    BIT(COL_STEPS) | BIT(COL_ORDER) | BIT(COL_GPU_USE) | BIT(COL_WARNING);

enum job_sight listing_sight(struct listing *l, const char *user, const char *project) {
    if (l->fixed)
        return l->fixed;
    if (*l->judged.user && streq(l->judged.user, user) && streq(l->judged.project, project))
        return l->judged.sight;
    enum job_sight sight = job_sight(l->controller, &l->viewer, user, project);
    int n = snprintf(l->judged.user, sizeof l->judged.user, "%s", user ? user : "");
    int m = snprintf(l->judged.project, sizeof l->judged.project, "%s", project ? project : "");
    l->judged.sight = sight;
    if (n >= (int)sizeof l->judged.user || m >= (int)sizeof l->judged.project)
        *l->judged.user = 0;  // cut short it could be another's
    return sight;
}

// False: the viewer may not know of the job. Filters by name and user look at `seen`, so that they tell nothing.
static bool see(struct listing *l, const struct job_view *v, struct job_view *seen) {
    l->sight = listing_sight(l, v->user, v->project);
    *seen = *v;
    if (l->sight == SIGHT_MASKED)
        seen->name = seen->user = NULL;
    return l->sight != SIGHT_NONE;
}

static int64_t time_or_zero(int64_t ms) {
    return ms > 0 ? ms : 0;
}

static void fill_spec(struct listing *l, const struct row *r, bool mine, struct answer_job *out) {
    const struct spec *s = r->spec;
    out->gpu_model = s->gpu_model;
    out->dependency = s->dependency;
    out->features = s->features;
    out->container = s->container;
    out->begin_ms = time_or_zero(s->begin_ms);
    out->launch = s->launch;
    out->tags.at = s->tags.at;
    out->tags.len = s->tags.len;
    if (mine) {
        out->comment = s->comment;
        out->workdir = s->workdir;
        out->output = s->output;
        out->error = s->error;
        out->command_text = s->command_text;
        out->health_reason = r->v.health_reason;
    }
    if (mine && l->columns & BIT(COL_URLS) && !r->end_ms)
        app_job_urls(l->controller, l->way, r->v.id, r->v.attempt, s, &l->scratch, out);
    if (l->columns & BIT(COL_SPEC)) {
        if (!mine)
            api_hide_private(r->spec);
        out->spec = r->spec;
    }
}

static int put_step(void *ctx, const struct store_event *e) {
    struct listing *l = ctx;
    struct listing_steps *s = &l->steps;
    s->after = e->seq;
    s->looked++;
    if (e->type == EVENT_STEP_STARTED || e->type == EVENT_STEP_ENDED)
        api_event_json(e, SIGHT_PUBLIC, &s->w);
    s->complete = s->text.len >= LISTING_STEPS_BYTES || (!l->read && s->looked >= LISTING_STEPS_AT_ONCE);
    s->cut = !s->complete && l->read && sliced_read_over(l->read, STEP_EVENT_ROWS);
    return s->complete || s->cut;
}

// Reads on. False: the slice is over before all are read.
static bool read_steps(struct listing *l, uint64_t job, uint32_t count) {
    struct listing_steps *s = &l->steps;
    if (s->job != job) {
        buf_clear(&s->text);
        *s = (struct listing_steps){.job = job, .text = s->text, .w.out = &s->text, .complete = !count};
    }
    if (!s->complete) {
        s->cut = false;
        store_events(l->controller->store, job, s->after, 0, put_step, l, NULL);
        s->complete = !s->cut;
    }
    return s->complete;
}

// False: the row cannot be written in this slice.
static bool is_row_ready(struct listing *l, uint64_t job, uint32_t steps) {
    l->unfinished = l->columns & BIT(COL_STEPS) && !read_steps(l, job, steps);
    return !l->unfinished;
}

// The events of its steps, in order.
static const char *steps_json(struct listing *l, const struct row *r) {
    (void)read_steps(l, r->v.id, r->steps);
    return arena_printf(&l->scratch, "[%s]", buf_str(&l->steps.text));
}

// What has to be looked up elsewhere, only where it is asked for.
static void fill_costly(struct listing *l, const struct row *r, bool mine, struct answer_job *out) {
    char text[320];
    uint64_t milli;
    if (l->columns & BIT(COL_STEPS))
        out->steps = steps_json(l, r);
    if (l->columns & BIT(COL_ORDER) && r->v.state == JOB_PENDING)
        out->order = api_order(l->controller, r->v.id, l->now, &l->scratch);
    if (l->columns & BIT(COL_GPU_USE) && !r->end_ms && telemetry_job_use(l->controller, r->v.id, &milli)) {
        out->gpu_use_milli = milli;
        schema_give(&answer_job_schema, out, &out->gpu_use_milli);
    }
    if (l->columns & BIT(COL_WARNING) && mine && !r->end_ms &&
        telemetry_warning(l->controller, r->v.id, text, sizeof text))
        out->warning = arena_strdup(&l->scratch, text);
}

static void fill_usage(const struct usage *u, struct answer_job *out) {
    out->usage = u;
    out->cpu_ms = (u->cpu_user_us + u->cpu_system_us) / 1000;
    out->memory_peak_bytes = u->memory_peak_bytes;
    out->gpu_busy_ms = u->gpu_busy_ms;
    out->energy_mj = u->energy_mj;
}

static int64_t elapsed_ms(const struct listing *l, const struct row *r) {
    int64_t end = r->end_ms ? r->end_ms : l->now;
    return !r->v.start_ms ? 0 : time_or_zero(end - r->v.start_ms - core_view_paused_ms(&r->v, l->now));
}

void listing_answer(struct listing *l, const struct row *r, struct answer_job *out) {
    const struct job_view *v = &r->v;
    bool mine = r->sight == SIGHT_ALL;
    *out = (struct answer_job){.id = v->id,
                               .array_id = v->array_id,
                               .array_index = v->array_index,
                               .label = r->label,
                               .name = v->name,
                               .user = v->user,
                               .project = v->project,
                               .partition = v->partition,
                               .qos = v->qos,
                               .class = v->class,
                               .state = v->state,
                               .reason = job_sight_reason(r->sight, &l->scratch, r->reason),
                               .nodes = r->nodes,
                               .node_count = v->node_count,
                               .tasks = v->tasks,
                               .cpus = v->cpus,
                               .memory_bytes = v->memory_bytes,
                               .gpus_milli = v->gpus_milli,
                               .time_limit_s = v->time_limit_s,
                               .submit_ms = time_or_zero(v->submit_ms),
                               .eligible_ms = time_or_zero(v->eligible_ms),
                               .start_ms = time_or_zero(v->start_ms),
                               .end_ms = time_or_zero(r->end_ms),
                               .elapsed_ms = elapsed_ms(l, r),
                               .expected_start_ms = time_or_zero(v->expected_start_ms),
                               .exit_code = r->exit_code,
                               .exit_signal = r->exit_signal,
                               .attempt = v->attempt,
                               .priority = v->priority,
                               .nice = v->nice,
                               .hold = v->held,
                               .preempted = v->preempted,
                               .memory_now_bytes = r->memory_now_bytes,
                               .uid = v->uid,
                               .by = r->by,
                               .ending = v->ending,
                               .suspended_ms = core_view_paused_ms(v, l->now),
                               .suspend_ms = time_or_zero(v->suspend_ms),
                               .step_count = r->steps,
                               .elements = r->elements,
                               .count = r->count,
                               .health = v->health ? job_health_words[v->health] : NULL};
    schema_give(&answer_job_schema, out, &out->uid);
    if (r->progress_known) {
        out->progress_milli = r->progress_milli;
        schema_give(&answer_job_schema, out, &out->progress_milli);
    }
    if (v->workers_max && !r->end_ms)
        out->workers = arena_printf(&l->scratch, "%u/%u", v->workers_running, v->workers_max);
    if (r->spec)
        fill_spec(l, r, mine, out);
    if (r->usage)
        fill_usage(r->usage, out);
    if (l->columns & costly_columns)
        fill_costly(l, r, mine, out);
    if (r->sight < SIGHT_PUBLIC)
        job_sight_mask(out);
}

static void put_row(struct listing *l, const struct row *r) {
    struct answer_job job;
    const struct field *fields = answer_job_schema.fields;
    listing_answer(l, r, &job);
    json_open(&l->w, l->compact ? '[' : '{');
    for (column_set left = l->columns; left; left &= left - 1) {
        const struct field *f = &fields[column_first(left)];
        if (!l->compact)
            json_key(&l->w, f->name);
        if (f->nullable && !schema_field_given(&answer_job_schema, f, &job))
            json_put_null(&l->w);
        else
            schema_write_value(f, &job, &l->w);
    }
    json_close(&l->w, l->compact ? ']' : '}');
    l->rows++;
    if (l->lines) {
        buf_addc(&l->out, '\n');
        l->w.need_comma = false;
    }
}

bool listing_several(const char *names) {
    return names && strchr(names, ',');
}

bool listing_names(const char *names, const char *name) {
    if (!names || streq(names, name))
        return true;
    size_t len = name ? strlen(name) : 0;
    for (const char *p = len && listing_several(names) ? names : NULL; p;
         p = strchr(p, ',') ? strchr(p, ',') + 1 : NULL)
        if (!strncmp(p, name, len) && (p[len] == ',' || !p[len]))
            return true;
    return false;
}

static bool wanted(const struct listing *l, const struct job_view *v) {
    return (!l->states || l->states >> v->state & 1) && listing_names(l->user, v->user) &&
           listing_names(l->project, v->project) &&
           (!l->partition || name_list_meet(l->partition, v->partition)) &&
           (!l->name || streq(l->name, v->name)) && listing_names(l->qos, v->qos) &&
           (!l->began_before_ms || (v->start_ms ? v->start_ms : v->submit_ms) < l->began_before_ms);
}

// What can be said before the record is decoded.
static bool row_wanted(const struct listing *l, const struct store_history *row) {
    return (!l->states || l->states >> row->state & 1) && listing_names(l->user, row->user) &&
           listing_names(l->project, row->project) && (!l->name || streq(l->name, row->name)) &&
           (!l->began_before_ms || store_history_began_ms(row) < l->began_before_ms);
}

void listing_fold_end(struct listing *l) {
    cleanup_buf struct buf text = {0}, label = {0};
    if (!l->fold_indices.len)
        return;
    array_fold(l->fold_indices.at, l->fold_indices.len, l->fold.v.array_limit, &text);
    buf_addf(&label, "%llu_[%s]", (unsigned long long)l->fold.v.array_id, buf_str(&text));
    l->fold.label = buf_str(&label);
    if (l->fold_indices.len == 1) {
        buf_clear(&label);
        buf_addf(&label, "%llu_%u", (unsigned long long)l->fold.v.array_id, l->fold.v.array_index);
        l->fold.label = buf_str(&label);
    } else {
        l->fold.elements = buf_str(&text);
        l->fold.count = l->fold_indices.len;
    }
    put_row(l, &l->fold);
    l->fold.elements = NULL;
    vec_clear(&l->fold_indices);
    l->fold_step = l->fold_gaps = 0;
}

// A row names few ranges of indices: it is written in one piece.
static void fold_add(struct listing *l, uint32_t index) {
    uint32_t step = l->fold_indices.len ? index - l->fold_indices.at[l->fold_indices.len - 1] : 0;
    l->fold_gaps += step != l->fold_step;
    l->fold_step = step;
    vec_push(&l->fold_indices, index);
}

static bool folds_with(const struct listing *l, const struct job_view *v) {
    return l->fold_indices.len && l->fold_gaps < LISTING_GAPS_MAX && l->fold.v.array_id == v->array_id &&
           l->fold.v.state == v->state && l->fold.v.reason == v->reason &&
           (l->fold.v.spec_bytes == v->spec_bytes ||
            (l->fold.v.spec_len == v->spec_len && !memcmp(l->fold.v.spec_bytes, v->spec_bytes, v->spec_len)));
}

void listing_pause(struct listing *l) {
    l->filtered.spec = NULL;
    if (!l->fold_indices.len)
        return;
    struct arena old = l->fold_keep;
    struct job_view *v = &l->fold.v;  // its other texts stay as long as the core
    l->fold_keep = (struct arena){0};
    v->name = v->name ? arena_strdup(&l->fold_keep, v->name) : NULL;
    v->spec_bytes = arena_memdup(&l->fold_keep, v->spec_bytes, v->spec_len);
    if (l->fold.usage)
        l->fold.usage = arena_memdup(&l->fold_keep, l->fold.usage, sizeof *l->fold.usage);
    arena_done(&old);
}

enum { LABEL_MAX = 48 };

static char *put_digits(char *end, uint64_t n) {
    do {
        *--end = (char)('0' + n % 10);
        n /= 10;
    } while (n);
    return end;
}

// "12", "12_3" in an array, or "12+3" of a worker.
static const char *label_of(const struct job_view *v, char out[static LABEL_MAX]) {
    char *p = out + LABEL_MAX - 1;
    *p = 0;
    if (!v->array_id && !v->job)
        return put_digits(p, v->id);
    p = put_digits(p, v->job ? v->worker : v->array_index);
    *--p = v->job ? '+' : '_';
    return put_digits(p, v->job ? v->job : v->array_id);
}

// What the columns need. Texts and the spec live in l->scratch, which is emptied first.
static bool live_row(struct listing *l, const struct job_view *v, column_set columns, struct row *out) {
    bool waits = v->state == JOB_PENDING || (v->held && !v->ending);  // held: when it comes back
    struct live_usage *u = map_get(&l->controller->live, v->id);
    struct row r = {.v = *v,
                    .sight = l->sight,
                    .steps = v->steps,
                    .reason = waits                             ? job_reason_words[v->reason]
                              : u && u->preparing && !v->ending ? LISTING_FETCHING
                                                                : v->ending_reason,
                    .usage = u ? &u->usage : NULL,
                    .memory_now_bytes = u ? u->memory_now_bytes : 0,
                    .progress_known = u && u->progress_known,
                    .progress_milli = u ? u->progress_milli : 0};
    arena_reset(&l->scratch);
    const struct usage *kept = columns & BIT(COL_USAGE) ? core_usage(l->controller->core, v->id) : NULL;
    if (kept && kept->earlier_attempts) {
        struct usage *both = arena_alloc(&l->scratch, sizeof *both);
        *both = u ? u->usage : (struct usage){0};
        usage_copy_earlier(both, kept);
        r.usage = both;
    }
    if (v->start_ms && columns & BIT(COL_NODES)) {
        cleanup_buf struct buf text = {0};
        core_job_nodes(l->controller->core, v->id, &text);
        r.nodes = arena_strdup(&l->scratch, buf_str(&text));
    }
    if (columns & spec_columns) {
        r.spec = arena_alloc(&l->scratch, sizeof *r.spec);
        if (schema_decode(&spec_schema, v->spec_bytes, v->spec_len, &l->scratch, r.spec) < 0)
            return false;
    }
    *out = r;
    return true;
}

static bool row_passes(struct listing *l, enum filter_part part, const struct row *r) {
    column_set shown = l->columns;
    struct answer_job job;
    l->columns = l->filter.columns;
    listing_answer(l, r, &job);
    l->columns = shown;
    return listing_filter_passes(&l->filter, part, &job, l->now);
}

// Elements of an array that wait and have never started differ in few fields; what the filter says of the others
// is kept, so that an array of a million elements costs little.
static bool element_passes(struct listing *l, const struct job_view *v) {
    struct row r;
    if (l->filtered.spec != v->spec_bytes || l->filtered.reason != v->reason || l->filtered.held != v->held) {
        l->filtered.passes = live_row(l, v, l->filter.columns, &r) && row_passes(l, FILTER_SHARED, &r);
        l->filtered.spec = v->spec_bytes;
        l->filtered.reason = v->reason;
        l->filtered.held = v->held;
    }
    struct answer_job job = {.id = v->id,
                             .array_index = v->array_index,
                             .eligible_ms = time_or_zero(v->eligible_ms),
                             .expected_start_ms = time_or_zero(v->expected_start_ms)};
    return l->filtered.passes && listing_filter_passes(&l->filter, FILTER_ELEMENT, &job, l->now);
}

static bool live_passes(struct listing *l, const struct job_view *v) {
    struct row r;
    struct arena shown = l->scratch;  // may hold the row that is being folded
    if (!l->filter.where.count)
        return true;
    l->scratch = l->filter_scratch;
    bool passes = v->array_id && v->state == JOB_PENDING && !v->attempt
                      ? element_passes(l, v)
                      : live_row(l, v, l->filter.columns, &r) && row_passes(l, FILTER_ALL, &r);
    l->filter_scratch = l->scratch;
    l->scratch = shown;
    return passes;
}

static bool is_on_node(const struct listing *l, const struct job_view *v) {
    const char *names[64];
    uint32_t n = l->node ? core_job_node_names(l->controller->core, v->id, names, 64) : 0;
    bool there = !l->node;
    for (uint32_t i = 0; i < n; i++)
        there |= streq(names[i], l->node);
    return there;
}

// Workers are shown where each is asked for, or named; else their job stands for them. Where each is asked for, a job
// that has started is there by its workers, so that nothing is counted twice.
static bool hidden(const struct listing *l, const struct job_view *v) {
    if (l->components &&
        v->components > 1)  // workers that never ran are not in history: their job is, for them
        return !v->job && (v->start_ms || v->state < JOB_COMPLETED);
    if (l->named)
        return false;
    return v->job ? !l->elements : v->workers_max && l->elements && v->start_ms;
}

bool listing_live(void *ctx, const struct job_view *view) {
    struct listing *l = ctx;
    struct job_view seen;
    const struct job_view *v = &seen;
    struct row r;
    char label[LABEL_MAX];
    l->unfinished = false;
    if (!see(l, view, &seen) || hidden(l, v) || !wanted(l, v) || !live_passes(l, v))
        return true;
    if (folds_with(l, v)) {
        l->fold.v.spec_bytes = v->spec_bytes;  // the same bytes: found by their address from here on
        fold_add(l, v->array_index);
        l->last_id = v->id;
        return true;
    }
    listing_fold_end(l);
    if (l->limit && l->rows >= l->limit)
        return false;
    if (!is_on_node(l, v) || !live_row(l, v, l->columns, &r))
        return true;
    l->last_id = v->id;
    if (v->array_id && v->state == JOB_PENDING && !l->elements) {
        l->fold = r;
        fold_add(l, v->array_index);
        return true;
    }
    if (!is_row_ready(l, v->id, v->steps))
        return false;
    r.label = label_of(v, label);
    put_row(l, &r);
    return true;
}

static void view_of_record(const struct store_history *row, const struct job_record *j, struct job_view *v) {
    static const struct spec none;
    const struct spec *s = j->spec ? j->spec : &none;
    *v = (struct job_view){.id = row->id,
                           .array_id = row->array,
                           .array_index = row->index,
                           .name = row->name,
                           .user = row->user,
                           .project = row->project,
                           .partition = s->partition,
                           .qos = s->qos,
                           .class = s->class,
                           .state = (enum job_state)row->state,
                           .attempt = j->attempt,
                           .tasks = s->tasks ? s->tasks : 1,
                           .node_count = j->parts.len,
                           .time_limit_s = s->time_limit_s,
                           .preempted = j->preempted,
                           .uid = s->uid,
                           .submit_ms = row->submit_ms,
                           .eligible_ms = j->eligible_ms,
                           .start_ms = row->start_ms,
                           .suspended_ms = j->suspended_ms,
                           .nice = s->nice,
                           .priority = s->priority,
                           .job = j->job,
                           .worker = j->worker,
                           .components = j->components,
                           .workers_max = j->job ? 0 : s->workers_max};
    for (uint32_t i = 0, ran = 0; !j->job && i < j->workers.len; i++)  // as many as have run
        if (j->workers.at[i].node)
            v->tasks = ++ran;
    if (!j->parts.len) {  // it never started: what it asked for
        v->cpus = v->tasks * (s->cpus_per_task ? s->cpus_per_task : 1);
        v->memory_bytes = s->memory_per_node_bytes ? s->memory_per_node_bytes : v->cpus * s->memory_per_cpu_bytes;
    }
    for (uint32_t i = 0; i < j->parts.len; i++) {
        v->cpus += j->parts.at[i].cpus;
        v->memory_bytes += j->parts.at[i].memory_bytes;
        for (uint32_t g = 0; g < j->parts.at[i].gpus.len; g++)
            v->gpus_milli += j->parts.at[i].gpus.at[g].milli;
    }
}

// Of the record only what the columns need is decoded, into l->scratch, which is emptied first.
static bool history_row(struct listing *l, const struct store_history *row, struct row *out) {
    struct job_record j;
    arena_reset(&l->scratch);
    if (schema_decode(&l->record_schema, row->data, row->len, &l->scratch, &j) < 0)
        return false;
    *out = (struct row){.sight = l->sight,
                        .spec = j.spec,
                        .end_ms = row->end_ms,
                        .exit_code = j.exit_code,
                        .exit_signal = j.exit_signal,
                        .reason = j.reason,
                        .nodes = row->nodes,
                        .usage = j.usage,
                        .steps = j.steps,
                        .by = j.by};
    view_of_record(row, &j, &out->v);
    return !(l->columns & spec_columns) || out->spec;
}

// As `see`, of a record of history.
static bool see_record(struct listing *l, const struct store_history *row, struct store_history *seen) {
    l->sight = listing_sight(l, row->user, row->project);
    *seen = *row;
    if (l->sight == SIGHT_MASKED)
        seen->name = seen->user = NULL;
    return l->sight != SIGHT_NONE;
}

// Components of a heterogeneous job that never started have no rows in history: they are made of what was asked for.
// False: it is no such job, and stands for itself.
static bool put_components(struct listing *l, const struct store_history *row, const struct row *whole) {
    struct job_record j;
    char label[LABEL_MAX];
    if (!l->components || whole->v.components < 2 || whole->v.job || whole->v.start_ms ||
        schema_decode(&job_record_schema, row->data, row->len, &l->scratch, &j) < 0 || !j.spec)
        return false;
    for (uint32_t i = 0; i < j.spec->components.len; i++)
        if (j.spec->components.at[i].workers_max != 1)
            return false;
    const struct spec *spec = j.spec;
    for (uint32_t i = 0; i < spec->components.len; i++) {
        struct spec own;
        struct row r = *whole;
        spec_component(spec, i, &own);
        j.spec = &own;
        j.workers.len = 0;
        view_of_record(row, &j, &r.v);
        r.v.id = row->id + 1 + i;  // workers are numbered after their job
        r.v.job = row->id;
        r.v.worker = i;
        r.spec = whole->spec ? &own : NULL;
        r.label = label_of(&r.v, label);
        put_row(l, &r);
    }
    return spec->components.len > 0;
}

int listing_finished(void *ctx, const struct store_history *record) {
    struct listing *l = ctx;
    struct store_history seen;
    const struct store_history *row = &seen;
    struct row r;
    char label[LABEL_MAX];
    l->unfinished = false;
    if (!see_record(l, record, &seen) || !row_wanted(l, row) || !history_row(l, row, &r) || hidden(l, &r.v) ||
        !wanted(l, &r.v) || (l->filter.where.count && !row_passes(l, FILTER_ALL, &r)))
        return 0;
    if (!is_row_ready(l, row->id, r.steps))
        return 1;
    r.label = label_of(&r.v, label);
    if (!put_components(l, row, &r))
        put_row(l, &r);
    if (!l->lines)
        snprintf(l->key, sizeof l->key, "%lld.%llu", (long long)row->end_ms, (unsigned long long)row->id);
    return l->limit && l->rows >= l->limit ? 1 : 0;
}

void listing_all_columns(struct listing *l) {
    l->columns = BIT(COL_COUNT) - 1;
}

void listing_row_of(struct listing *l, const struct job_record *j, const struct job_view *live, struct row *out) {
    const struct spec *s = j->spec;
    struct live_usage *u = live ? map_get(&l->controller->live, j->id) : NULL;
    *out = (struct row){.sight = l->sight,
                        .spec = j->spec,
                        .end_ms = j->end_ms,
                        .exit_code = j->exit_code,
                        .exit_signal = j->exit_signal,
                        .reason = j->reason,
                        .usage = u ? &u->usage : j->usage,
                        .memory_now_bytes = u ? u->memory_now_bytes : 0,
                        .progress_known = u && u->progress_known,
                        .progress_milli = u ? u->progress_milli : 0,
                        .steps = j->steps,
                        .by = j->by};
    struct store_history row = {.id = j->id,
                                .array = j->array_id,
                                .index = j->array_index,
                                .name = s->name,
                                .user = s->user,
                                .project = s->project,
                                .state = j->state,
                                .submit_ms = j->submit_ms,
                                .start_ms = j->start_ms,
                                .end_ms = j->end_ms};
    if (live)
        out->v = *live;
    else
        view_of_record(&row, j, &out->v);
    cleanup_buf struct buf nodes = {0};
    const char **names = arena_alloc(&l->scratch, (j->parts.len + 1) * sizeof *names);
    for (uint32_t i = 0; i < j->parts.len; i++)
        names[i] = j->parts.at[i].node;
    if (j->parts.len) {
        nodelist_fold(names, j->parts.len, &nodes);
        out->nodes = arena_strdup(&l->scratch, buf_str(&nodes));
    }
    char label[LABEL_MAX];
    out->label = arena_strdup(&l->scratch, label_of(&out->v, label));
}

static int find_column(const char *name) {
    for (int c = 0; c < COL_COUNT; c++)
        if (streq(answer_job_schema.fields[c].name, name))
            return c;
    return -1;
}

static int parse_columns(struct listing *l, const char *text, struct error *e) {
    if (str_empty(text)) {
        l->columns = default_columns;
        return 0;
    }
    for (const char *p = text; *p;) {
        size_t n = strcspn(p, ",");
        const char *name = arena_strndup(&l->keep, p, n);
        int c = find_column(name);
        if (c < 0)
            return error_set(e, EINVAL, "parameter \"fields\": a list of jobs has no field \"%.40s\"", name);
        l->columns |= BIT(c);
        p += n + (p[n] == ',');
    }
    return 0;
}

static int parse_states(struct listing *l, const char *text, struct error *e) {
    for (const char *p = text; p && *p;) {
        size_t n = strcspn(p, ",");
        const char *name = arena_strndup(&l->keep, p, n);
        int s = schema_word_find(job_state_words, name);
        if (s < 0)
            return error_set(e, EINVAL,
                             "parameter \"state\": there is no state \"%.40s\"; expected PENDING, RUNNING, "
                             "COMPLETED, …",
                             name);
        l->states |= 1u << s;
        p += n + (p[n] == ',');
    }
    return 0;
}

// Fields of history's records by what needs them; those of no column here are not decoded.
static const struct {
    const char *name;
    column_set columns;
} record_needs[] =
    {
        {"reason", BIT(COL_REASON)},
        {"exit_code", BIT(COL_EXIT_CODE)},
        {"exit_signal", BIT(COL_EXIT_SIGNAL)},
        {"attempt", BIT(COL_ATTEMPT)},
        {"eligible_ms", BIT(COL_ELIGIBLE)},
        {"workers", BIT(COL_TASKS) | BIT(COL_CPUS) | BIT(COL_MEMORY)},
        {"parts", BIT(COL_NODE_COUNT) | BIT(COL_CPUS) | BIT(COL_MEMORY) | BIT(COL_GPUS)},
        {"usage", BIT(COL_CPU) | BIT(COL_MEMORY_PEAK) | BIT(COL_GPU_BUSY) | BIT(COL_ENERGY) | BIT(COL_USAGE)},
        {"preempted", BIT(COL_PREEMPTED)},
        {"steps", BIT(COL_STEPS) | BIT(COL_STEP_COUNT)},
        {"by", BIT(COL_BY)},
        {"suspended_ms", BIT(COL_SUSPENDED) | BIT(COL_ELAPSED)},
},
  spec_needs[] = {
      {"partition", BIT(COL_PARTITION)},
      {"qos", BIT(COL_QOS)},
      {"class", BIT(COL_CLASS)},
      {"tasks", BIT(COL_TASKS) | BIT(COL_CPUS) | BIT(COL_MEMORY)},
      {"cpus_per_task", BIT(COL_CPUS) | BIT(COL_MEMORY)},
      {"memory_per_node_bytes", BIT(COL_MEMORY)},
      {"memory_per_cpu_bytes", BIT(COL_MEMORY)},
      {"time_limit_s", BIT(COL_TIME_LIMIT)},
      {"uid", BIT(COL_UID)},
      {"nice", BIT(COL_NICE)},
      {"priority", BIT(COL_PRIORITY)},
      {"workers_max", BIT(COL_WORKERS)},
};

static void take_field(const struct schema *from, const char *name, struct schema *to, struct field *fields) {
    for (size_t i = 0; i < from->count; i++)
        if (streq(from->fields[i].name, name)) {
            assert(to->count < LISTING_FIELDS_MAX);
            fields[to->count++] = from->fields[i];
            return;
        }
    assert(!"a field of the record");
}

// Unknown fields are skipped, so a table of few of them decodes few.
static void choose_fields(struct listing *l) {
    column_set columns = l->columns | l->filter.columns | (l->elements ? BIT(COL_WORKERS) : 0) |
                         (l->partition ? BIT(COL_PARTITION) : 0) | (l->qos ? BIT(COL_QOS) : 0);
    l->spec_schema = (struct schema){.name = spec_schema.name, .size = spec_schema.size, .fields = l->spec_fields};
    l->record_schema = (struct schema){
        .name = job_record_schema.name, .size = job_record_schema.size, .fields = l->record_fields};
    for (size_t i = 0; i < sizeof spec_needs / sizeof *spec_needs; i++)
        if (columns & spec_needs[i].columns)
            take_field(&spec_schema, spec_needs[i].name, &l->spec_schema, l->spec_fields);
    if (l->spec_schema.count || columns & spec_columns) {
        take_field(&job_record_schema, "spec", &l->record_schema, l->record_fields);
        l->record_fields[0].sub = columns & spec_columns ? &spec_schema : &l->spec_schema;
    }
    for (size_t i = 0; i < sizeof record_needs / sizeof *record_needs; i++)
        if (columns & record_needs[i].columns)
            take_field(&job_record_schema, record_needs[i].name, &l->record_schema, l->record_fields);
    take_field(&job_record_schema, "job", &l->record_schema, l->record_fields);
    take_field(&job_record_schema, "worker", &l->record_schema, l->record_fields);
    take_field(&job_record_schema, "components", &l->record_schema, l->record_fields);
}

static const char *keep(struct listing *l, const char *value) {
    return value ? arena_strdup(&l->keep, value) : NULL;
}

int listing_init_filter(struct listing *l, const struct listing_filter *f, struct error *e) {
    l->user = keep(l, f->user);
    l->project = keep(l, f->project);
    l->partition = keep(l, f->partition);
    l->name = keep(l, f->name);
    l->node = keep(l, f->node);
    l->qos = keep(l, f->qos);
    int r = parse_states(l, f->state, e);
    if (r == 0)
        r = listing_filter_init(&l->filter, f->where, l->now, &l->keep, e);
    if (r == 0)
        choose_fields(l);
    return r;
}

int listing_init(struct listing *l, struct api_call *call, struct error *e) {
    *l = (struct listing){.controller = call->controller,
                          .viewer = call->actor,
                          .now = controller_now_ms(),
                          .way = call->req->peer->kind};
    l->viewer.user = arena_strdup(&l->keep, call->actor.user);
    l->w.out = &l->out;
    const struct query_jobs *q = call->query;
    l->elements = q->elements;
    l->components = q->components;
    l->compact = q->compact;
    l->limit = q->limit;
    l->began_before_ms = q->to_ms ? q->to_ms + 1 : 0;
    int r = parse_columns(l, q->fields, e);
    if (str_empty(q->fields) && !q->compact && !q->stream)
        l->columns |= BIT(COL_ELEMENTS) | BIT(COL_FOLDED);
    if (r == 0)
        r = listing_init_filter(l,
                                &(struct listing_filter){.user = q->mine ? l->viewer.user : q->user,
                                                         .project = q->project,
                                                         .partition = q->partition,
                                                         .qos = q->qos,
                                                         .name = q->name,
                                                         .node = q->node,
                                                         .state = q->state,
                                                         .where = q->where},
                                e);
    if (r < 0)
        listing_done(l);
    return r;
}

void listing_done(struct listing *l) {
    buf_done(&l->out);
    arena_done(&l->keep);
    arena_done(&l->scratch);
    arena_done(&l->filter_scratch);
    arena_done(&l->fold_keep);
    vec_done(&l->fold_indices);
    buf_done(&l->steps.text);
}

void listing_fields(struct listing *l) {
    json_open(&l->w, '[');
    for (int c = 0; c < COL_COUNT; c++)
        if (l->columns & BIT(c))
            json_put_str(&l->w, answer_job_schema.fields[c].name);
    json_close(&l->w, ']');
}

// --- single jobs, for the live feed and the job table ---

struct finding {
    struct listing *l;
    uint64_t id;
    listing_row_fn fn;
    void *ctx;
    bool found;
};

static int take_ended(void *ctx, const struct store_history *row) {
    struct finding *f = ctx;
    struct store_history seen;
    struct row r;
    char label[LABEL_MAX];
    if (row->id != f->id || f->found || !see_record(f->l, row, &seen) || !history_row(f->l, &seen, &r))
        return 0;
    f->found = true;
    r.label = label_of(&r.v, label);
    f->fn(f->l, &r, f->ctx);
    return 1;
}

bool listing_find(struct listing *l, uint64_t id, listing_row_fn fn, void *ctx) {
    struct controller *c = l->controller;
    struct finding f = {.l = l, .id = id, .fn = fn, .ctx = ctx};
    struct job_view view, v;
    struct row r;
    char label[LABEL_MAX];
    if (core_view(c->core, id, &view)) {
        f.found = see(l, &view, &v) && live_row(l, &v, l->columns | l->filter.columns, &r);
        r.label = label_of(&v, label);
        if (f.found)
            fn(l, &r, ctx);
        return f.found;
    }
    if (pipeline_has_endings(c->pipeline))
        pipeline_each_ending(c->pipeline, take_ended, &f);
    if (!f.found)
        store_history(c->store, &(struct store_query){.id = id}, take_ended, &f, NULL);
    return f.found;
}

bool listing_record(struct listing *l, const struct store_history *record, struct answer_job *out,
                    bool *worker) {
    struct store_history seen;
    struct row r;
    if (!see_record(l, record, &seen) || !history_row(l, &seen, &r))
        return false;
    listing_answer(l, &r, out);
    *worker = r.v.job != 0;
    return true;
}

bool listing_passes(struct listing *l, const struct row *r) {
    return !l->filter.where.count || row_passes(l, FILTER_ALL, r);
}

void listing_put(struct listing *l, const struct row *r) {
    put_row(l, r);
}

void listing_init_plain(struct listing *l, struct controller *c, const struct actor *viewer) {
    *l = (struct listing){.controller = c, .viewer = *viewer, .now = controller_now_ms()};
    l->viewer.user = arena_strdup(&l->keep, viewer->user);
    l->w.out = &l->out;
    l->columns = portal_columns;
    choose_fields(l);
}

int listing_init_columns(struct listing *l, const char *fields, struct error *e) {
    if (str_empty(fields))
        return 0;
    l->columns = 0;
    int r = parse_columns(l, fields, e);
    choose_fields(l);
    return r;
}
