// Owns the objects of a pool: who holds them, where their bytes are, when they are freed, and the parts of the shared
// memory. What follows from a change (users that are told, objects that nothing holds any more) is put on lists and
// done by tasks_object_work, so that long chains of references need no deep recursion.
#include <assert.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/alloc.h"
#include "state.h"

// --- bytes ---

struct blob *tasks_blob_new(struct tasks_pool *p, const void *data, size_t len) {
    struct blob *b = xmalloc(sizeof *b + len);
    *b = (struct blob){.refs = 1, .len = (uint32_t)len};
    if (len)
        memcpy(b->data, data, len);
    p->held_bytes += len;
    return b;
}

void tasks_blob_unref(struct tasks_pool *p, struct blob *b) {
    if (!b || --b->refs)
        return;
    p->held_bytes -= b->len;
    free(b);
}

// --- references ---

struct object *tasks_object_find(struct tasks_pool *p, uint64_t id) {
    return map_get(&p->objects, id);
}

struct object *tasks_object_new(struct tasks_pool *p, uint64_t id) {
    struct object *o = xcalloc(1, sizeof *o);
    o->id = id;
    map_put(&p->objects, id, o);
    return o;
}

void tasks_object_ref(struct object *o) {
    o->refs++;
}

void tasks_object_unref(struct tasks_pool *p, struct object *o) {
    assert(o->refs);
    if (!--o->refs)
        vec_push(&p->unused, o);
}

bool tasks_object_held(const struct object *o, uint32_t conn) {
    for (uint32_t i = 0; i < o->holders.len; i++)
        if (o->holders.at[i] == conn)
            return true;
    return false;
}

void tasks_object_hold(struct object *o, uint32_t conn) {
    if (tasks_object_held(o, conn))
        return;
    vec_push(&o->holders, conn);
    o->refs++;
}

void tasks_object_release(struct tasks_pool *p, struct object *o, uint32_t conn) {
    for (uint32_t i = 0; i < o->holders.len; i++)
        if (o->holders.at[i] == conn) {
            vec_remove_swap(&o->holders, i);
            tasks_object_unref(p, o);
            return;
        }
}

// Ids that are not known any more are left out: the value that names them finds an error there.
void tasks_object_nest(struct tasks_pool *p, struct object *o, const uint8_t *ids, uint32_t n) {
    assert(!o->nested);
    if (!n)
        return;
    o->nested = xmalloc(n * sizeof *o->nested);
    for (uint32_t i = 0; i < n; i++) {
        struct object *in = tasks_object_find(p, tasks_id(ids, i));
        if (!in || in == o)
            continue;
        tasks_object_ref(in);
        o->nested[o->nnested++] = in->id;
    }
}

void tasks_object_unallocate(struct tasks_pool *p, struct object *o) {
    if (!o->allocated)
        return;
    o->allocated = false;
    tasks_space_give(&p->space, o->offset, o->size);
    p->dirty = true;
    p->used_us = p->now_us;
    for (uint32_t i = 0; i < p->fills.len; i++)
        if (p->fills.at[i].id == o->id)
            vec_remove(&p->fills, i--);
}

static void free_object(struct tasks_pool *p, struct object *o) {
    for (uint32_t i = 0; i < o->nnested; i++) {
        struct object *in = tasks_object_find(p, o->nested[i]);
        if (in)
            tasks_object_unref(p, in);
    }
    assert(!o->task && !o->actor && !o->holders.len && !o->waiting.len);
    tasks_object_unallocate(p, o);
    map_remove(&p->objects, o->id);
    tasks_blob_unref(p, o->bytes);
    vec_done(&o->holders);
    vec_done(&o->wanted);
    vec_done(&o->waiting);
    free(o->nested);
    free(o);
}

// --- values ---

static void settle(struct tasks_pool *p, struct object *o, enum object_state state) {
    o->state = (uint8_t)state;
    tasks_object_ref(o);  // until its users were told
    vec_push(&p->settled, o);
}

void tasks_object_value(struct tasks_pool *p, struct object *o, const void *data, size_t len) {
    o->bytes = tasks_blob_new(p, data, len);
    settle(p, o, OBJECT_INLINE);
}

void tasks_object_shared(struct tasks_pool *p, struct object *o) {
    settle(p, o, OBJECT_SHARED);
}

void tasks_object_fail(struct tasks_pool *p, struct object *o, enum tasks_error code, struct blob *bytes) {
    tasks_object_unallocate(p, o);
    o->error = (uint8_t)code;
    o->bytes = bytes;
    settle(p, o, OBJECT_FAILED);
}

void tasks_object_failf(struct tasks_pool *p, struct object *o, enum tasks_error code, const char *fmt, ...) {
    cleanup_buf struct buf text = {0};
    va_list args;
    va_start(args, fmt);
    buf_vaddf(&text, fmt, args);
    va_end(args);
    tasks_object_fail(p, o, code, tasks_blob_new(p, text.data, text.len));
}

static void send_begun(struct tasks_pool *p, const struct connection *c) {
    p->host->send(p->ctx, c->number, &p->scratch);
    buf_clear(&p->scratch);
}

void tasks_object_send(struct tasks_pool *p, struct object *o, struct connection *c) {
    struct buf *b = &p->scratch;
    if (p->host->unsent(p->ctx, c->number) > OUT_ENOUGH) {
        vec_push(&c->later, o->id);
        return;
    }
    bool shared = o->state == OBJECT_SHARED, failed = o->state == OBJECT_FAILED;
    size_t len = shared ? 2 * sizeof(uint64_t) : o->bytes->len + (size_t)failed;
    tasks_begin(b, TASKS_VALUE, sizeof(uint64_t) + 1 + len);
    tasks_add_u64(b, o->id);
    tasks_add_u8(b, shared ? TASKS_VALUE_SHARED : failed ? TASKS_VALUE_ERROR : TASKS_VALUE_INLINE);
    if (shared) {
        tasks_add_u64(b, c->shares ? o->offset : 0);
        tasks_add_u64(b, o->size);
    } else {
        if (failed)
            tasks_add_u8(b, o->error);
        buf_add(b, o->bytes->data, o->bytes->len);
    }
    send_begun(p, c);
    if (shared && !c->shares) {
        tasks_object_ref(o);
        vec_push(&c->transfers, (struct transfer){o, 0});
        tasks_pool_drained(p, c->number);
    }
}

// A piece of the first value that is on its way to a client that does not map the memory. False: there is none.
static bool send_piece(struct tasks_pool *p, struct connection *c) {
    if (!c->transfers.len)
        return false;
    struct transfer *t = &c->transfers.at[0];
    struct object *o = t->object;
    uint64_t n = o->size - t->at < PIECE_BYTES ? o->size - t->at : PIECE_BYTES;
    tasks_begin(&p->scratch, TASKS_DATA, sizeof o->id + n);
    tasks_add_u64(&p->scratch, o->id);
    buf_add(&p->scratch, p->host->memory(p->ctx, o->offset + t->at), n);
    send_begun(p, c);
    t->at += n;
    if (t->at >= o->size) {
        vec_remove(&c->transfers, 0);
        tasks_object_unref(p, o);
    }
    return true;
}

void tasks_pool_drained(struct tasks_pool *p, uint32_t conn) {
    struct connection *c = tasks_connection(p, conn);
    uint32_t sent = 0;
    if (!c || c->draining)  // a value that waited is sent: its pieces come when that has left
        return;
    c->draining = true;
    while (p->host->unsent(p->ctx, conn) < PIECE_BYTES && send_piece(p, c))
        continue;
    for (; sent < c->later.len && p->host->unsent(p->ctx, conn) <= OUT_ENOUGH / 2; sent++) {
        struct object *o = tasks_object_find(p, c->later.at[sent]);
        if (o && tasks_object_held(o, conn))
            tasks_object_send(p, o, c);
    }
    if (sent) {
        memmove(c->later.at, c->later.at + sent, (c->later.len - sent) * sizeof *c->later.at);
        c->later.len -= sent;
    }
    c->draining = false;
}

static void tell(struct tasks_pool *p, struct object *o) {
    for (uint32_t i = 0; i < o->wanted.len; i++) {
        struct connection *c = tasks_connection(p, o->wanted.at[i]);
        if (c && tasks_object_held(o, c->number))
            tasks_object_send(p, o, c);
    }
    vec_done(&o->wanted);
    for (uint32_t i = 0, k = o->waiting.len; i + 1 < k;
         i++) {  // in order, and a failed task may be in it twice
        struct pool_task *t = o->waiting.at[i];
        o->waiting.at[i] = o->waiting.at[--k];
        o->waiting.at[k] = t;
    }
    while (o->waiting.len)
        tasks_settled(p, vec_pop(&o->waiting), o);
    vec_done(&o->waiting);
    tasks_object_unref(p, o);
}

void tasks_object_work(struct tasks_pool *p) {
    if (p->working)
        return;
    p->working = true;
    while (p->settled.len || p->unused.len) {
        if (p->settled.len) {
            tell(p, vec_pop(&p->settled));
            continue;
        }
        struct object *o = vec_pop(&p->unused);
        if (o->refs)
            continue;  // held again meanwhile
        if (o->actor)
            tasks_actor_unused(p, o->actor);
        else
            free_object(p, o);
    }
    p->working = false;
}

void tasks_objects_forget(struct tasks_pool *p, uint32_t conn) {
    uint64_t id;
    void *value;
    for (size_t it = 0; map_next(&p->objects, &it, &id, &value);) {
        struct object *o = value;
        if (o->allocated && o->allocator == conn &&
            (o->state == OBJECT_PENDING || o->state == OBJECT_UNSEALED)) {
            tasks_object_unallocate(p, o);
            if (o->state == OBJECT_UNSEALED)
                tasks_object_failf(p, o, TASKS_WORKER_LOST,
                                   "whoever put this value has gone before it was whole");
        }
        tasks_object_release(p, o, conn);
    }
}

// --- shared memory ---

static void answer(struct tasks_pool *p, const struct connection *c, uint64_t id, uint64_t at,
                   const char *text) {
    size_t len = text ? strlen(text) : 0;
    tasks_begin(&p->scratch, TASKS_ALLOCATED, 2 * sizeof id + len);
    tasks_add_u64(&p->scratch, id);
    tasks_add_u64(&p->scratch, at);
    buf_add(&p->scratch, text, len);
    send_begun(p, c);
}

// False: there is no room now.
static bool allocate(struct tasks_pool *p, struct connection *c, uint64_t id, uint64_t size) {
    struct object *o = tasks_object_find(p, id);
    uint64_t at;
    if (!tasks_space_take(&p->space, size, &at))
        return false;
    if (!o) {
        o = tasks_object_new(p, id);
        o->state = OBJECT_UNSEALED;
        tasks_object_hold(o, c->number);
    }
    o->allocated = true;
    o->allocator = c->number;
    o->offset = at;
    o->size = size;
    p->dirty = true;
    p->used_us = p->now_us;
    if (c->inside || !c->shares)
        answer(p, c, id, c->shares ? at : 0, NULL);
    else  // pages that a process outside the job touches first would not be charged to it
        vec_push(&p->fills, (struct memory_fill){c->number, id, at, at, at + tasks_space_rounded(size)});
    return true;
}

static void refuse(struct tasks_pool *p, const struct connection *c, uint64_t id, uint64_t size) {
    cleanup_buf struct buf text = {0};
    buf_addf(&text,
             "no room for a value of %llu bytes: of %llu bytes of shared memory %llu are used; release "
             "references, or "
             "give the pool more memory",
             (unsigned long long)size, (unsigned long long)p->space.total, (unsigned long long)p->space.used);
    answer(p, c, id, UINT64_MAX, buf_str(&text));
}

void tasks_alloc(struct tasks_pool *p, struct connection *c, uint64_t id, uint64_t size) {
    if (size > p->space.total) {
        refuse(p, c, id, size);
        return;
    }
    if (p->allocations.len || !allocate(p, c, id, size))
        vec_push(&p->allocations, (struct allocation){c->number, id, size, p->now_us + ALLOC_PATIENCE_US});
}

void tasks_alloc_again(struct tasks_pool *p) {
    while (p->allocations.len) {
        struct allocation a = p->allocations.at[0];
        struct connection *c = tasks_connection(p, a.conn);
        if (c && !allocate(p, c, a.id, a.size)) {
            if (p->now_us < a.until_us)
                return;
            refuse(p, c, a.id, a.size);
        }
        vec_remove(&p->allocations, 0);
    }
}

static void fill(struct tasks_pool *p) {
    struct memory_fill *f = &p->fills.at[0];
    uint64_t n = f->end - f->at < FILL_BYTES ? f->end - f->at : FILL_BYTES;
    p->host->fill(p->ctx, f->at, n);
    f->at += n;
    if (f->at < f->end)
        return;
    struct connection *c = tasks_connection(p, f->conn);
    if (c)
        answer(p, c, f->id, f->offset, NULL);
    vec_remove(&p->fills, 0);
}

int tasks_pool_turn(struct tasks_pool *p, int64_t now_us) {
    p->now_us = now_us;
    tasks_object_work(p);
    tasks_alloc_again(p);
    if (p->fills.len)
        fill(p);
    if (p->dirty && now_us - p->used_us >= IDLE_DROP_US) {
        for (uint32_t i = 0; i < p->space.holes.len; i++)
            p->host->drop(p->ctx, p->space.holes.at[i].at, p->space.holes.at[i].size);
        p->dirty = false;
    }
    tasks_dispatch(p);
    tasks_object_work(p);
    if (p->fills.len)
        return 0;
    int wait = p->allocations.len || p->dirty ? 500 : -1;
    if (p->idle.len && p->plain.len > p->idle.len)  // somebody may be given what another has not begun
        for (uint32_t i = 0; i < p->plain.len; i++)
            if (p->plain.at[i]->given.len > 1)
                return PREFETCH_US / 1000;
    return wait;
}
