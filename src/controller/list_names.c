// Owns the position in a list of names. A name is looked at as a live job first; what has ended is in history once that
// is committed, so the look into history waits for the commit where jobs are just ending.
#include "list_names.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "base/text.h"
#include "model/arrayspec.h"
#include "model/dependency.h"

enum {
    LISTED_ELEMENTS_MAX = 10000,  // named one by one
    LISTED_MAX = 2000000,         // jobs of all names together; the same may be named twice
    LOOKUP_ROWS = 16,             // a question to the database takes as long as looking at so many rows
};

enum name_step {
    NAME_LIVE,
    NAME_ELEMENTS,
    NAME_WORKERS,
    NAME_COMMIT,
    NAME_ENDED_ELEMENTS,
    NAME_ENDED,
    NAME_ENDED_WORKERS
};

struct name {
    struct job_ref ref;
    const char *text;           // of a worker
    struct array_spec indices;  // of an array; none: see ref
};

struct list_names {
    struct listing *l;
    struct sliced_read *read;
    VEC(struct name) names;
    uint32_t at;     // the name that is looked up
    uint32_t range;  // of its elements that are named one by one
    uint64_t index;
    enum name_step step;
    uint64_t id;     // it means; 0: not known
    uint64_t after;  // live elements and workers, and ended elements, go on behind this one
    struct seen_ids seen;
    bool cut;
};

void seen_ids_add(struct seen_ids *s, uint64_t id) {
    struct id_range *last = s->ranges.len ? &s->ranges.at[s->ranges.len - 1] : NULL;
    if (last && last->last + 1 == id)
        last->last = id;
    else
        vec_push(&s->ranges, ((struct id_range){id, id}));
}

bool seen_ids_have(const struct seen_ids *s, uint64_t id) {
    uint32_t from = 0, to = s->ranges.len;
    while (from < to) {
        uint32_t mid = (from + to) / 2;
        if (s->ranges.at[mid].last < id)
            from = mid + 1;
        else
            to = mid;
    }
    return from < s->ranges.len && s->ranges.at[from].first <= id;
}

void seen_ids_done(struct seen_ids *s) {
    vec_done(&s->ranges);
}

// --- reading them ---

// "12_[1-5,7]"
static int parse_elements(struct arena *a, const char *text, size_t bracket, struct name *out,
                          struct error *e) {
    size_t len = strlen(text);
    if (bracket < 2 || text[bracket - 1] != '_' || text[len - 1] != ']' ||
        job_ref_parse(arena_strndup(a, text, bracket - 1), &out->ref, NULL) < 0)
        return error_set(e, EINVAL, "\"%.60s\" is not a job; expected 12, 12_3 or 12_[1-5]", text);
    int r = array_parse(arena_strndup(a, text + bracket + 1, len - bracket - 2), a, &out->indices, e);
    if (r < 0)
        return r;
    if (out->indices.elements > LISTED_ELEMENTS_MAX)
        return error_set(
            e, E2BIG, "\"%.60s\" names %llu elements; at most %d can be listed this way, list %llu instead",
            text, (unsigned long long)out->indices.elements, LISTED_ELEMENTS_MAX,
            (unsigned long long)out->ref.job);
    out->ref.has_index = true;
    return 0;
}

static int parse(struct list_names *n, const char *text, struct error *e) {
    struct arena *a = &n->l->keep;
    uint64_t jobs = 0;
    for (const char *p = text; *p;) {
        size_t len = strcspn(p, ",["), bracket = len;
        struct name name = {0};
        if (p[len] == '[') {
            len += strcspn(p + len, "]");
            len += strcspn(p + len, ",");
        }
        name.text = arena_strndup(a, p, len);
        int r = bracket < len ? parse_elements(a, name.text, bracket, &name, e)
                              : job_ref_parse(name.text, &name.ref, e);
        if (r < 0)
            return r;
        jobs += name.ref.has_index ? name.indices.elements : core_array_size(n->l->controller->core, name.ref.job);
        if (jobs > LISTED_MAX)
            return error_set(e, E2BIG, "ids: more than %d jobs in one request; name fewer at a time", LISTED_MAX);
        vec_push(&n->names, name);
        p += len + (p[len] == ',');
    }
    return 0;
}

struct list_names *list_names_free(struct list_names *n) {
    if (!n)
        return NULL;
    vec_done(&n->names);
    seen_ids_done(&n->seen);
    free(n);
    return NULL;
}

struct list_names *list_names_new(const char *text, struct listing *l, struct sliced_read *read,
                                  struct error *e) {
    struct list_names *n = xcalloc(1, sizeof *n);
    *n = (struct list_names){.l = l, .read = read};
    l->named = true;
    return parse(n, text, e) < 0 ? list_names_free(n) : n;
}

// --- looking them up ---

static const struct job_ref *next_ref(struct list_names *n, struct job_ref *element) {
    struct name *name = &n->names.at[n->at];
    if (!name->indices.len)
        return &name->ref;
    if (!n->index && !n->range)
        n->index = name->indices.at[0].first;
    *element = (struct job_ref){.job = name->ref.job, .has_index = true, .index = (uint32_t)n->index};
    return element;
}

static void next_name(struct list_names *n) {
    const struct array_spec *s = &n->names.at[n->at].indices;
    bool more = n->range < s->len && (n->index += s->at[n->range].step) <= s->at[n->range].last;
    if (!more && n->range + 1 < s->len) {
        n->index = s->at[++n->range].first;
        more = true;
    }
    if (!more) {
        n->at++;
        n->range = 0;
        n->index = 0;
    }
    n->step = NAME_LIVE;
}

static bool show_live(void *ctx, const struct job_view *v) {
    struct list_names *n = ctx;
    listing_live(n->l, v);
    if ((n->cut = n->l->unfinished))
        return false;
    n->after = v->id;
    seen_ids_add(&n->seen, v->id);
    n->cut = sliced_read_over(n->read, 1);
    return !n->cut && !(n->l->limit && n->l->rows >= n->l->limit);
}

static int show_ended(void *ctx, const struct store_history *row) {
    struct list_names *n = ctx;
    int r = seen_ids_have(&n->seen, row->id) ? 0 : listing_finished(n->l, row);
    if ((n->cut = n->l->unfinished))
        return 1;
    n->after = row->id;
    n->cut = sliced_read_over(n->read, 1);
    return r ? r : n->cut;
}

static uint64_t id_of(struct controller *c, const struct list_names *n, const struct job_ref *ref) {
    if (ref->is_worker)
        return api_parse_job(c, &n->l->viewer, n->names.at[n->at].text, NULL);
    return ref->has_index ? core_element(c->core, ref->job, ref->index) : ref->job;
}

static void look_at_live(struct list_names *n, const struct job_ref *ref) {
    struct controller *c = n->l->controller;
    struct job_view v;
    n->id = id_of(c, n, ref);
    n->after = 0;
    n->seen.ranges.len = 0;
    bool live = n->id && core_view(c->core, n->id, &v);
    bool array = !ref->has_index && !ref->is_worker &&
                 (core_is_array(c->core, n->id) || (live && v.array_id == n->id));
    n->step = array ? NAME_ELEMENTS : NAME_COMMIT;
    if (!live || array)
        return;
    show_live(n, &v);
    if (n->l->unfinished) {
        n->step = NAME_LIVE;
        return;
    }
    n->after = 0;
    n->step = NAME_WORKERS;
}

static void look_for_ended_workers(struct list_names *n) {
    if (n->id && n->l->components) {
        n->step = NAME_ENDED_WORKERS;
        n->after = 0;
        sliced_read_await_commit(n->read);
    } else {
        next_name(n);
    }
}

// From here on the number of the worker that comes next is in `after`.
static void look_at_workers(struct list_names *n) {
    struct controller *c = n->l->controller;
    struct job_view v;
    bool wanted = n->l->elements || n->l->components;
    while (wanted && n->after < core_worker_count(c->core, n->id)) {
        if (core_view(c->core, core_worker(c->core, n->id, (uint32_t)n->after), &v))
            listing_live(n->l, &v);
        if ((n->cut = n->l->unfinished))
            return;
        n->after++;
        if (sliced_read_over(n->read, 1)) {
            n->cut = true;
            return;
        }
    }
    listing_fold_end(n->l);
    look_for_ended_workers(n);
}

static int show_ended_worker(void *ctx, const struct store_history *row) {
    struct list_names *n = ctx;
    return listing_finished(n->l, row);
}

// Of a job with several components, whose workers have rows of their own in history. The number of the worker that
// comes next is in `after`.
static void look_at_ended_workers(struct list_names *n) {
    cleanup_arena struct arena a = {0};
    struct controller *c = n->l->controller;
    struct job_record r;
    struct job_view v;
    bool live, several = api_record(c, n->id, &a, &r, &live) == 0 && r.components > 1;
    while (several && n->after < r.workers.len) {
        uint64_t id = r.workers.at[n->after].id;
        if (!core_view(c->core, id, &v))
            store_history(c->store, &(struct store_query){.id = id}, show_ended_worker, n, NULL);
        if ((n->cut = n->l->unfinished))
            return;
        n->after++;
        if (sliced_read_over(n->read, LOOKUP_ROWS)) {
            n->cut = true;
            return;
        }
    }
    next_name(n);
}

static void look_at_elements(struct list_names *n) {
    core_each_element(n->l->controller->core, n->id, n->after, show_live, n);
    if (n->cut)
        return;
    listing_fold_end(n->l);
    n->step = NAME_COMMIT;
}

static void look_into_history(struct list_names *n, const struct job_ref *ref) {
    struct controller *c = n->l->controller;
    struct store_query q = {.order = STORE_BY_ID};
    if (n->step == NAME_COMMIT) {
        n->step = ref->has_index || ref->is_worker ? NAME_ENDED : NAME_ENDED_ELEMENTS;
        n->after = 0;
        if (sliced_read_await_commit(n->read))
            return;
    }
    if (n->step == NAME_ENDED_ELEMENTS) {
        q.array = n->id;
        q.after_id = n->after;
        q.resume = true;
        store_history(c->store, &q, show_ended, n, NULL);
        if (n->cut)
            return;
        n->step = NAME_ENDED;
        if (n->after || n->seen.ranges.len) {  // it is an array
            next_name(n);
            return;
        }
    }
    if (ref->has_index && !n->id) {
        q = (struct store_query){
            .array = ref->job, .has_index = true, .index = ref->index, .order = STORE_BY_ID};
        store_history(c->store, &q, show_ended, n, NULL);
    } else if (n->id) {
        store_history(c->store, &(struct store_query){.id = n->id}, show_ended, n, NULL);
    }
    if (n->l->unfinished)
        return;
    if (ref->has_index || ref->is_worker)
        next_name(n);
    else
        look_for_ended_workers(n);
}

bool list_names_go_on(struct list_names *n) {
    struct job_ref element;
    for (n->cut = false; n->at < n->names.len && !n->cut && !n->read->committing;) {
        const struct job_ref *ref = next_ref(n, &element);
        n->l->unfinished = false;
        if (n->l->limit && n->l->rows >= n->l->limit)
            return true;
        switch (n->step) {
        case NAME_LIVE:
            look_at_live(n, ref);
            n->cut |= sliced_read_over(n->read, 1);
            break;
        case NAME_ELEMENTS: look_at_elements(n); break;
        case NAME_WORKERS: look_at_workers(n); break;
        case NAME_ENDED_WORKERS: look_at_ended_workers(n); break;
        default:
            look_into_history(n, ref);
            n->cut |= sliced_read_over(n->read, LOOKUP_ROWS);
            break;
        }
    }
    listing_pause(n->l);
    return n->at >= n->names.len;
}
