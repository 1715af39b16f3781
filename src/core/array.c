// Arrays: creating their elements, and the limit of elements at once. Both touch every element of an array, which may
// have a million, so they are done in slices: an event says how far they have come (EVENT_ARRAY_CONTINUED), and the
// state holds the rest (array.created, array.limited). The ids of all elements are reserved by the submit; an element
// that is not created yet is pending to everybody who counts, and nothing else can happen to it.
#include <string.h>

#include "state.h"

static void set_starts(struct array *a) {
    uint64_t position = 0;
    a->starts = xcalloc(a->range_count + 1, sizeof *a->starts);
    a->ascending = true;
    for (uint32_t i = 0; i < a->range_count; i++) {
        const struct array_range *r = &a->ranges[i];
        a->starts[i] = position;
        a->ascending &= !i || r->first > r[-1].last;
        position += (r->last - r->first) / r->step + 1;
    }
    a->starts[a->range_count] = position;
}

struct array *core_array_new(struct core *c, uint64_t id, uint64_t count, const struct array_range *ranges,
                             uint32_t range_count) {
    struct array *a = xcalloc(1, sizeof *a);
    *a = (struct array){.id = id, .count = count, .live = count, .range_count = range_count};
    a->ranges = xmemdup(ranges, range_count * sizeof *ranges);
    set_starts(a);
    map_put(&c->arrays, id, a);
    return a;
}

static bool is_unfinished(const struct array *a) {
    return a->sub || a->limited < a->created || (a->limit && a->active < a->limit && a->cursor < a->created);
}

void core_array_note_unfinished(struct core *c, struct array *a) {
    bool unfinished = is_unfinished(a);
    if (unfinished == a->unfinished)
        return;
    a->unfinished = unfinished;
    if (unfinished) {
        vec_push(&c->unfinished, a);
        return;
    }
    for (uint32_t i = 0; i < c->unfinished.len; i++)
        if (c->unfinished.at[i] == a) {
            vec_remove(&c->unfinished, i);
            return;
        }
}

void core_array_free(struct core *c, struct array *a) {
    core_submission_unref(c, a->sub);
    a->sub = NULL;
    a->created = a->limited = a->limit = 0;
    core_array_note_unfinished(c, a);
    free(a->ranges);
    free(a->starts);
    free(a);
}

// The range that holds this position.
static uint32_t range_at(const struct array *a, uint64_t position) {
    uint32_t low = 0, high = a->range_count;
    while (high - low > 1) {
        uint32_t mid = low + (high - low) / 2;
        if (a->starts[mid] <= position)
            low = mid;
        else
            high = mid;
    }
    return low;
}

uint64_t core_array_element(const struct array *a, uint32_t index) {
    uint32_t low = 0, high = a->range_count;
    while (a->ascending && high - low > 1) {
        uint32_t mid = low + (high - low) / 2;
        if (a->ranges[mid].first <= index)
            low = mid;
        else
            high = mid;
    }
    for (uint32_t i = low; i < high; i++) {
        const struct array_range *r = &a->ranges[i];
        if (index >= r->first && index <= r->last && (index - r->first) % r->step == 0)
            return a->id + a->starts[i] + (index - r->first) / r->step;
    }
    return 0;
}

uint64_t core_element(const struct core *c, uint64_t array_id, uint32_t index) {
    const struct array *a = map_get(&c->arrays, array_id);
    return a ? core_array_element(a, index) : 0;
}

// --- creating ---

static void create_one(struct core *c, struct array *a, uint64_t position, uint32_t index, int64_t at_ms) {
    struct submission *s = a->sub;
    struct core_job *j = xcalloc(1, sizeof *j);
    *j = (struct core_job){
        .id = a->id + position, .sub = s, .array_index = index, .begin_ms = s->begin_ms, .version = c->seq};
    j->flags = (uint8_t)((s->hold ? HELD_USER : 0) | (a->limit ? WAITS_ARRAY : 0));
    s->refs++;
    core_job_link(c, j);
    core_depend_attach(c, j, at_ms);
    core_job_to_world(c, j);
}

void core_array_create(struct core *c, struct array *a, uint64_t upto, int64_t at_ms) {
    struct submission *s = a->sub;
    if (!s || upto <= a->created)
        return;
    uint64_t first = a->created, n = upto - first;
    bool limited = a->limited == first;
    uint32_t range = range_at(a, first);
    c->uncreated -= n;
    core_user_count(c, s->user)->live -= n;  // from now on they count one by one
    if (a->id + first < c->next_id)
        core_order_reserve(c, a->id + first, (uint32_t)n);
    for (uint64_t k = first; k < upto; k++) {
        range += k == a->starts[range + 1];
        const struct array_range *r = &a->ranges[range];
        create_one(c, a, k, r->first + (uint32_t)(k - a->starts[range]) * r->step, at_ms);
    }
    a->created = upto;
    if (limited)
        a->limited = upto;
    if (upto == a->count) {
        a->sub = NULL;
        core_submission_unref(c, s);
    }
    core_array_fill(c, a);
    core_array_note_unfinished(c, a);
    c->dirty = true;
}

void core_array_need(struct core *c, uint64_t id, int64_t now_ms) {
    for (uint32_t i = 0; i < c->unfinished.len; i++) {
        const struct array *a = c->unfinished.at[i];
        struct event_array_continued b = {.id = a->id, .created = id - a->id + 1, .limited = a->limited};
        if (id < a->id + a->created || id >= a->id + a->count)
            continue;
        core_emit(c, now_ms, EVENT_ARRAY_CONTINUED, &b);
        return;
    }
}

// --- the limit ---

void core_array_fill(struct core *c, struct array *a) {
    // A journal that an earlier release wrote was filled in one go.
    uint64_t looks = core_feature(c, FEATURE_ARRAY_SLICES) ? core_slice() : UINT64_MAX;
    if (!a->limit || a->limited < a->created)
        return;  // first the limit is applied to all elements
    for (; a->cursor < a->created && a->active < a->limit && looks; a->cursor++, looks--) {
        struct core_job *j = core_find_job(c, a->id + a->cursor);
        if (!j || !(j->flags & WAITS_ARRAY))
            continue;
        j->flags &= (uint8_t)~WAITS_ARRAY;
        a->active++;
        core_job_hold_changed(c, j);
    }
    core_array_note_unfinished(c, a);
}

// Running elements count first; pending ones are released up to the limit when it is applied to all.
static void apply_limit(struct core *c, struct array *a, uint64_t upto) {
    for (; a->limited < upto; a->limited++) {
        struct core_job *j = core_find_job(c, a->id + a->limited);
        if (!j)
            continue;
        a->active += a->limit && j->run;
        j->flags = (uint8_t)(a->limit && !j->run ? j->flags | WAITS_ARRAY : j->flags & ~WAITS_ARRAY);
        core_job_hold_changed(c, j);
    }
    core_array_fill(c, a);
    core_array_note_unfinished(c, a);
    c->dirty = true;
}

void core_array_set_limit(struct core *c, struct array *a, uint32_t limit) {
    a->limit = limit;
    a->active = 0;
    a->cursor = a->limited = 0;
    apply_limit(c, a,
                a->created <= core_slice() || !core_feature(c, FEATURE_ARRAY_SLICES) ? a->created
                                                                                     : core_slice());
}

// --- carrying on ---

void core_apply_array(struct core *c, int64_t at_ms, const struct event_array_continued *b) {
    struct array *a = map_get(&c->arrays, b->id);
    if (!a)
        return;
    core_array_create(c, a, b->created, at_ms);
    apply_limit(c, a, b->limited < a->created ? b->limited : a->created);
}

bool core_array_continue(struct core *c, int64_t now_ms) {
    if (!c->unfinished.len)
        return false;
    const struct array *a = c->unfinished.at[c->unfinished_next++ % c->unfinished.len];
    uint64_t created = a->created, limited = a->limited, most = c->config.elements_at_once;
    if (a->sub)
        created += a->count - created < most ? a->count - created : most;
    else
        limited += created - limited < most ? created - limited : most;
    struct event_array_continued b = {.id = a->id, .created = created, .limited = limited};
    core_emit(c, now_ms, EVENT_ARRAY_CONTINUED, &b);
    return true;
}

bool core_work_left(const struct core *c) {
    return c->unfinished.len || c->judging.len;
}

bool core_array_unfinished(const struct core *c, uint64_t id) {
    const struct array *a = map_get(&c->arrays, id);
    return a && a->unfinished;
}

bool core_arrays_unfinished(const struct core *c, uint64_t newest) {
    for (uint32_t i = 0; i < c->unfinished.len; i++)
        if (c->unfinished.at[i]->id <= newest)
            return true;
    return false;
}

uint64_t core_array_uncreated(const struct core *c, uint64_t id) {
    const struct array *a = map_get(&c->arrays, id);
    return a ? a->count - a->created : 0;
}
