// Owns the connections of a pool: hands their frames to where they belong, and lets go of what a closed one held.
#include "tasks/pool.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "base/alloc.h"
#include "state.h"

struct tasks_pool *tasks_pool_new(const struct tasks_options *o, const struct tasks_host *host, void *ctx) {
    struct tasks_pool *p = xcalloc(1, sizeof *p);
    p->o = *o;
    p->host = host;
    p->ctx = ctx;
    tasks_pool_node_joined(p,
                           &(struct tasks_node){.name = o->name ? o->name : "",
                                                .cpus = o->cpus,
                                                .gpus = o->gpus,
                                                .workers = o->workers,
                                                .gpu_names = o->gpu_names,
                                                .memory_bytes = o->memory_bytes},
                           0);
    return p;
}

static void free_connection(struct tasks_pool *p, struct connection *c) {
    for (uint32_t i = 0; i < c->transfers.len; i++)
        tasks_object_unref(p, c->transfers.at[i].object);
    vec_done(&c->transfers);
    vec_done(&c->later);
    free(c);
}

static void free_task_of_pool(struct tasks_pool *p, struct pool_task *t) {
    struct object *o = t->result, *handle = t->actor ? t->actor->handle : NULL;
    bool makes = t->flags & TASKS_NEW_ACTOR;
    o->task = NULL;
    vec_done(&o->waiting);
    tasks_task_free(p, t);
    tasks_object_unref(p, o);
    if (handle && !makes)
        tasks_object_unref(p, handle);
}

struct tasks_pool *tasks_pool_free(struct tasks_pool *p) {
    uint64_t id;
    void *value;
    for (size_t it = 0; map_next(&p->workers, &it, &id, &value);)
        free(value);
    for (size_t it = 0; map_next(&p->connections, &it, &id, &value);) {
        tasks_objects_forget(p, (uint32_t)id);
        free_connection(p, value);
    }
    map_done(&p->connections);
    vec_clear(&p->settled);
    for (size_t it = 0; map_next(&p->objects, &it, &id, &value);)
        vec_done(&((struct object *)value)->waiting);
    for (struct pool_task *t = p->tasks, *next; t; t = next) {
        next = t->all_next;
        free_task_of_pool(p, t);
    }
    for (size_t it = 0; map_next(&p->objects, &it, &id, &value);)
        tasks_kept_forget(p, value);
    // What is left is held by nothing that will let go of it.
    p->unused.len = 0;
    for (size_t it = 0; map_next(&p->actors, &it, &id, &value);) {
        struct pool_actor *a = value;
        if (a->maker)
            tasks_task_free(p, a->maker);
        free(a->name);
        free(a);
    }
    for (size_t it = 0; map_next(&p->objects, &it, &id, &value);) {
        struct object *o = value;
        tasks_blob_unref(p, o->bytes);
        vec_done(&o->holders);
        vec_done(&o->wanted);
        vec_done(&o->places);
        free(o->nested);
        free(o);
    }
    for (uint32_t i = 0; i < p->shapes.len; i++)
        free(p->shapes.at[i]);
    for (uint32_t i = 0; i < FINISHED_KEPT; i++) {
        free(p->finished[i].name);
        free(p->finished[i].error);
        free(p->finished[i].output);
    }
    map_done(&p->objects);
    map_done(&p->workers);
    map_done(&p->actors);
    vec_done(&p->shapes);
    vec_done(&p->settled);
    vec_done(&p->unused);
    vec_done(&p->fills);
    tasks_nodes_free(p);
    buf_done(&p->scratch);
    free(p);
    return NULL;
}

struct connection *tasks_connection(const struct tasks_pool *p, uint32_t conn) {
    return map_get(&p->connections, conn);
}

bool tasks_pool_ending(const struct tasks_pool *p) {
    return p->ending;
}

struct tasks_counts tasks_pool_counts(const struct tasks_pool *p) {
    uint64_t used = 0;
    for (uint32_t i = 0; i < p->nodes.len; i++)
        used += p->nodes.at[i]->space.used;
    return (struct tasks_counts){p->objects.len, p->ntasks,     p->actors.len,
                                 p->workers.len, used, p->held_bytes};
}

void tasks_pool_open(struct tasks_pool *p, uint32_t conn, enum tasks_kind kind, bool shares, bool inside,
                     uint32_t worker) {
    struct connection *c = xcalloc(1, sizeof *c);
    *c = (struct connection){.number = conn, .kind = kind, .shares = shares, .inside = inside};
    if (kind == TASKS_WORKER && (c->worker = map_get(&p->workers, worker))) {
        c->worker->conn = conn;
        c->node = c->worker->node->number;
    }
    map_put(&p->connections, conn, c);
}

// Tasks of a client that has gone, which nobody else waits for, need not begin.
static void cancel_unwanted(struct tasks_pool *p, uint32_t conn) {
    for (struct pool_task *t = p->tasks, *next; t; t = next) {
        next = t->all_next;
        if (t->submitter == conn && t->result->refs == 1 && t->state != TASK_GIVEN && !t->result->waiting.len)
            tasks_cancel(p, t->result, false);
    }
}

void tasks_pool_close(struct tasks_pool *p, uint32_t conn, int64_t now_us) {
    struct connection *c = map_remove(&p->connections, conn);
    p->now_us = now_us;
    if (!c)
        return;
    if (c->worker)
        c->worker->conn = UINT32_MAX;
    tasks_objects_forget(p, conn);
    if (c->kind == TASKS_CLIENT)
        cancel_unwanted(p, conn);
    struct pool_node *n = tasks_node(p, c->node);
    for (uint32_t i = 0; n && i < n->allocations.len; i++)
        if (n->allocations.at[i].conn == conn)
            vec_remove(&n->allocations, i--);
    free_connection(p, c);
    tasks_object_work(p);
}

// --- frames ---

static bool may_make(struct tasks_pool *p, const struct connection *c, uint64_t id) {
    return id >> 40 == c->number && !tasks_object_find(p, id);
}

// Reads a count and as many ids, all of the rest if `last`.
static const uint8_t *read_nested(struct tasks_reader *r, uint16_t *n) {
    *n = tasks_read_u16(r);
    if (*n > TASKS_NESTED_MAX)
        r->bad = true;
    return tasks_read_bytes(r, *n * sizeof(uint64_t));
}

static int on_put(struct tasks_pool *p, struct connection *c, struct tasks_reader *r) {
    uint16_t n;
    uint64_t id = tasks_read_u64(r);
    const uint8_t *nested = read_nested(r, &n);
    size_t len = (size_t)(r->end - r->at);
    if (r->bad || len > TASKS_INLINE_MAX || !may_make(p, c, id))
        return -EPROTO;
    struct object *o = tasks_object_new(p, id);
    tasks_object_hold(o, c->number);
    tasks_object_nest(p, o, nested, n);
    if (p->held_bytes > p->o.held_bytes)
        tasks_object_failf(
            p, o, TASKS_FULL,
            "the pool holds too many bytes of arguments and small values; release references, or give "
            "the pool more memory");
    else
        tasks_object_value(p, o, r->at, len);
    return 0;
}

static int on_alloc(struct tasks_pool *p, struct connection *c, struct tasks_reader *r) {
    uint64_t id = tasks_read_u64(r), size = tasks_read_u64(r);
    struct object *o = tasks_object_find(p, id);
    if (r->bad || !size)
        return -EPROTO;
    bool result = o && o->state == OBJECT_PENDING && !o->places.len && o->task && c->worker &&
                  o->task->worker == c->worker;
    if (!result && !may_make(p, c, id))
        return -EPROTO;
    const struct pool_node *n = tasks_node(p, c->node);
    for (uint32_t i = 0; n && i < n->allocations.len; i++)
        if (n->allocations.at[i].id == id)
            return -EPROTO;
    tasks_alloc(p, c, id, size);
    return 0;
}

static int on_write(struct tasks_pool *p, struct connection *c, struct tasks_reader *r) {
    uint64_t id = tasks_read_u64(r), at = tasks_read_u64(r), len = (uint64_t)(r->end - r->at);
    struct object *o = tasks_object_find(p, id);
    if (r->bad || !o || o->state != OBJECT_UNSEALED || !o->places.len || o->allocator != c->number ||
        c->shares || at > o->size || len > o->size - at)
        return -EPROTO;
    memcpy(p->host->memory(p->ctx, o->places.at[0].at + at), r->at, len);
    return 0;
}

static int on_seal(struct tasks_pool *p, struct connection *c, struct tasks_reader *r) {
    uint16_t n;
    uint64_t id = tasks_read_u64(r);
    const uint8_t *nested = read_nested(r, &n);
    struct object *o = tasks_object_find(p, id);
    if (r->bad || !o || o->state != OBJECT_UNSEALED || !o->places.len || o->allocator != c->number)
        return -EPROTO;
    tasks_object_nest(p, o, nested, n);
    tasks_object_shared(p, o);
    return 0;
}

static int on_get(struct tasks_pool *p, struct connection *c, struct tasks_reader *r) {
    uint64_t id = tasks_read_u64(r);
    struct object *o = tasks_object_find(p, id);
    static const char text[] = "the value is not known to the pool: it was freed";
    if (r->bad)
        return -EPROTO;
    if (o && o->state > OBJECT_UNSEALED)
        tasks_object_send(p, o, c);
    if (o && o->state <= OBJECT_UNSEALED)
        tasks_object_want(o, c->number);
    if (o && o->again && o->state == OBJECT_PENDING && c->worker)
        tasks_blocked(p, c->worker, true);  // its task was given when the value was still there
    if (o)
        return 0;
    tasks_begin(&p->scratch, TASKS_VALUE, sizeof id + 2 + strlen(text));
    tasks_add_u64(&p->scratch, id);
    tasks_add_u8(&p->scratch, TASKS_VALUE_ERROR);
    tasks_add_u8(&p->scratch, TASKS_UNKNOWN);
    buf_add(&p->scratch, text, strlen(text));
    p->host->send(p->ctx, c->number, &p->scratch);
    buf_clear(&p->scratch);
    return 0;
}

static int on_ids(struct tasks_pool *p, struct connection *c, struct tasks_reader *r, bool hold) {
    size_t n = (size_t)(r->end - r->at) / sizeof(uint64_t);
    if ((size_t)(r->end - r->at) % sizeof(uint64_t))
        return -EPROTO;
    for (size_t i = 0; i < n; i++) {
        struct object *o = tasks_object_find(p, tasks_id(r->at, i));
        if (o && hold)
            tasks_object_hold(o, c->number);
        else if (o)
            tasks_object_release(p, o, c->number);
    }
    return 0;
}

static int on_cancel(struct tasks_pool *p, struct tasks_reader *r) {
    struct object *o = tasks_object_find(p, tasks_read_u64(r));
    bool force = tasks_read_u8(r);
    if (r->bad)
        return -EPROTO;
    if (o && o->actor && force)
        tasks_actor_kill(p, o->actor);
    if (o)
        tasks_cancel(p, o, force);
    return 0;
}

static int on_viewer_frame(struct tasks_pool *p, struct connection *c, enum tasks_frame type,
                           struct tasks_reader *r) {
    if (type != TASKS_LIST)
        return -EPROTO;
    uint8_t what = tasks_read_u8(r);
    uint64_t id = tasks_read_u64(r);
    uint32_t limit = tasks_read_u32(r);
    if (r->bad)
        return -EPROTO;
    tasks_list(p, c, what, id, limit);
    return 0;
}

static int on_worker_frame(struct tasks_pool *p, struct connection *c, enum tasks_frame type,
                           const char *body, size_t len) {
    struct tasks_done d;
    if (type == TASKS_DONE)
        return tasks_read_done(body, len, &d) < 0 || tasks_done(p, c, &d) < 0 ? -EPROTO : 0;
    if (len != 1)
        return -EPROTO;
    if (c->worker)
        tasks_blocked(p, c->worker, body[0]);
    return 0;
}

static int on_frame(struct tasks_pool *p, struct connection *c, enum tasks_frame type, const char *body,
                    size_t len) {
    struct tasks_reader r = {.at = (const uint8_t *)body, .end = (const uint8_t *)body + len};
    struct tasks_submit s;
    switch (type) {
    case TASKS_SUBMIT:
        return tasks_read_submit(body, len, &s) < 0 || tasks_submit(p, c, &s) < 0 ? -EPROTO : 0;
    case TASKS_PUT: return on_put(p, c, &r);
    case TASKS_ALLOC: return on_alloc(p, c, &r);
    case TASKS_WRITE: return on_write(p, c, &r);
    case TASKS_SEAL: return on_seal(p, c, &r);
    case TASKS_GET: return on_get(p, c, &r);
    case TASKS_HOLD: return on_ids(p, c, &r, true);
    case TASKS_RELEASE: return on_ids(p, c, &r, false);
    case TASKS_CANCEL: return on_cancel(p, &r);
    case TASKS_LIST: return on_viewer_frame(p, c, type, &r);
    case TASKS_END: p->ending = true; return 0;
    case TASKS_DONE:
    case TASKS_BLOCKED: return c->kind == TASKS_WORKER ? on_worker_frame(p, c, type, body, len) : -EPROTO;
    default: return -EPROTO;
    }
}

int tasks_pool_frame(struct tasks_pool *p, uint32_t conn, enum tasks_frame type, const char *body, size_t len,
                     int64_t now_us) {
    struct connection *c = tasks_connection(p, conn);
    struct tasks_reader r = {.at = (const uint8_t *)body, .end = (const uint8_t *)body + len};
    p->now_us = now_us;
    if (!c)
        return -EPROTO;
    int rc = c->kind == TASKS_VIEWER ? on_viewer_frame(p, c, type, &r) : on_frame(p, c, type, body, len);
    tasks_object_work(p);
    return rc;
}
