// Owns GET /v1/jobs: jobs by their ids are looked up here and answered at once; those that wait and run,
// and finished ones, are written while others are served (list_stream.c).
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "base/text.h"
#include "list_stream.h"
#include "model/arrayspec.h"
#include "model/dependency.h"

enum {
    LISTED_ELEMENTS_MAX = 10000,  // named one by one
    LIST_TIME_US = 500000,        // for looking up what was named
    QUICK_NAMES = 500,            // named jobs, or elements of a named array, that are found in a moment
};

// Looking up what was named. A job that has ended is neither live nor in history until that is
// committed; it is shown, but the answer waits for the commit.
struct naming {
    struct listing *l;
    uint64_t id, array;  // what is looked for
    struct map told;     // from those that are ending: history may have them already
    bool waits;
};

static int add_ending(void *ctx, const struct store_history *row) {
    struct naming *n = ctx;
    if ((row->id != n->id && !(n->array && row->array == n->array)) || map_get(&n->told, row->id))
        return 0;
    map_put(&n->told, row->id, n);
    n->waits = true;
    return listing_finished(n->l, row);
}

static int add_finished(void *ctx, const struct store_history *row) {
    struct naming *n = ctx;
    return map_get(&n->told, row->id) ? 0 : listing_finished(n->l, row);
}

static void list_id(struct naming *n, const char *text, const struct job_ref *ref) {
    struct listing *l = n->l;
    struct controller *c = l->controller;
    struct job_view v;
    uint64_t before = l->rows + l->fold_indices.len;
    uint64_t id = ref->has_index || ref->is_worker ? api_parse_job(c, text, NULL) : ref->job;
    l->named = true;
    // A bare array id means every element of it.
    bool live = id && core_view(c->core, id, &v);
    if (!ref->has_index && (core_is_array(c->core, id) || (live && v.array_id == id)))
        core_each_element(c->core, id, listing_live, l);
    else if (live)
        listing_live(l, &v);
    bool workers = l->elements || l->components;
    for (uint32_t i = 0; live && workers && i < core_worker_count(c->core, id); i++)
        if (core_view(c->core, core_worker(c->core, id, i), &v))
            listing_live(l, &v);
    listing_fold_end(l);
    n->id = id;
    n->array = ref->has_index ? 0 : id;
    if (id && !pipeline_degraded(c->pipeline, NULL, 0))
        pipeline_each_ending(c->pipeline, add_ending, n);
    if (!ref->has_index)
        store_history(c->store, &(struct store_query){.array = id, .order = STORE_BY_ID}, add_finished, n, NULL);
    if (id && !live && l->rows == before)
        store_history(c->store, &(struct store_query){.id = id}, add_finished, n, NULL);
}

// "12_[1-5,7]"
static int list_elements(struct naming *n, const char *text, size_t bracket, struct error *e) {
    struct arena *a = &n->l->keep;
    struct array_spec spec;
    size_t len = strlen(text);
    const char *stem = arena_strndup(a, text, bracket);
    struct job_ref array;
    if (bracket < 2 || stem[bracket - 1] != '_' || text[len - 1] != ']' ||
        job_ref_parse(arena_strndup(a, text, bracket - 1), &array, NULL) < 0)
        return error_set(e, EINVAL, "\"%.60s\" is not a job; expected 12, 12_3 or 12_[1-5]", text);
    int r = array_parse(arena_strndup(a, text + bracket + 1, len - bracket - 2), a, &spec, e);
    if (r < 0)
        return r;
    if (spec.elements > LISTED_ELEMENTS_MAX)
        return error_set(
            e, E2BIG, "\"%.60s\" names %llu elements; at most %d can be listed this way, list %llu instead",
            text, (unsigned long long)spec.elements, LISTED_ELEMENTS_MAX, (unsigned long long)array.job);
    for (uint32_t i = 0; i < spec.len; i++)
        for (uint64_t k = spec.at[i].first; k <= spec.at[i].last; k += spec.at[i].step) {
            struct job_ref one = {.job = array.job, .has_index = true, .index = (uint32_t)k};
            list_id(n, arena_printf(a, "%s%llu", stem, (unsigned long long)k), &one);
        }
    return 0;
}

// Everybody else waits meanwhile.
static int in_time(int64_t began_us, struct error *e) {
    if (clock_mono_us() - began_us < LIST_TIME_US)
        return 0;
    return error_set(e, E2BIG, "ids: this takes too long in one request; name fewer jobs at a time");
}

static int list_names(struct naming *n, const char *text, int64_t began_us, struct error *e) {
    for (const char *p = text; *p;) {
        size_t len = strcspn(p, ",["), bracket = len;
        if (p[len] == '[') {
            len += strcspn(p + len, "]");
            len += strcspn(p + len, ",");
        }
        const char *one = arena_strndup(&n->l->keep, p, len);
        struct job_ref ref;
        int r = in_time(began_us, e);
        if (r == 0)
            r = bracket < len ? list_elements(n, one, bracket, e) : job_ref_parse(one, &ref, e);
        if (r < 0)
            return r;
        if (bracket == len)
            list_id(n, one, &ref);
        p += len + (p[len] == ',');
    }
    return 0;
}

// 1: the answer must wait until what happened so far is committed.
static int list_ids(struct listing *l, const char *text, int64_t began_us, struct error *e) {
    struct naming n = {.l = l};
    int r = list_names(&n, text, began_us, e);
    map_done(&n.told);
    return r < 0 ? r : n.waits;
}

struct answer {
    struct net_request *req;
    const char *type;
    struct buf body;
};

static void answer_now(void *arg) {
    struct answer *a = arg;
    net_reply(a->req, 200, a->type, a->body.data, a->body.len);
    buf_done(&a->body);
    free(a);
}

static void answer(struct listing *l, struct api_call *call, const char *type, bool waits) {
    struct answer *a = xcalloc(1, sizeof *a);
    *a = (struct answer){call->req, type, l->out};
    l->out = (struct buf){0};
    if (waits)
        pipeline_when_committed(call->controller->pipeline, answer_now, a);
    else
        answer_now(a);
}

// In lines, as a stream would be: the ids are looked up at once.
static void reply_lines(struct listing *l, struct api_call *call, const char *ids) {
    struct error e = {0};
    listing_stream_head(l);
    int r = list_ids(l, ids, call->req->began_us, &e);
    listing_stream_tail(l, NULL);
    if (r < 0)
        api_fail(call->req, &e);
    else
        answer(l, call, LIST_STREAM_TYPE, r > 0);
}

static void reply_whole(struct listing *l, struct api_call *call, const char *ids) {
    struct error e = {0};
    listing_document_head(l);
    int r = list_ids(l, ids, call->req->began_us, &e);
    json_close(&l->w, ']');
    json_kv_str(&l->w, "next", NULL);
    json_close(&l->w, '}');
    buf_addc(&l->out, '\n');
    if (r < 0)
        api_fail(call->req, &e);
    else
        answer(l, call, "application/json", r > 0);
}

// Everybody waits while it is made, so it gets its turn among the questions that take long.
static bool takes_long(const struct controller *c, const char *ids) {
    uint32_t names = 0;
    for (const char *p = ids; *p && names <= QUICK_NAMES; names++) {
        uint64_t id = strtoull(p, NULL, 10);
        size_t len = strcspn(p, ",[");
        if (p[len] == '[' || (!memchr(p, '_', len) && core_array_size(c->core, id) > QUICK_NAMES))
            return true;
        p += len + (p[len] == ',');
    }
    return names > QUICK_NAMES;
}

void api_list(struct api_call *call) {
    struct listing l;
    struct error e = {0};
    const struct query_jobs *q = call->query;
    const char *ids = q->ids;
    if (!ids) {
        listing_stream_begin(call, q->stream ? LIST_LINES : LIST_DOCUMENT);
        return;
    }
    bool slow = takes_long(call->controller, ids);
    if (slow && !query_throttle_begin(call))
        return;
    if (listing_init(&l, call, &e) < 0) {
        api_fail(call->req, &e);
    } else {
        if (q->stream)
            reply_lines(&l, call, ids);
        else
            reply_whole(&l, call, ids);
        listing_done(&l);
    }
    if (slow)
        query_throttle_end(call->controller);
}
