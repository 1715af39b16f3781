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

static void list_unused(struct tasks_pool *p, struct object *o) {
    if (!o->unused)
        vec_push(&p->unused, o);
    o->unused = true;
}

void tasks_object_unref(struct tasks_pool *p, struct object *o) {
    assert(o->refs);
    if (!--o->refs)
        list_unused(p, o);
}

void tasks_object_unkeep(struct tasks_pool *p, struct object *o) {
    assert(o->kept);
    if (!--o->kept && !o->refs)
        list_unused(p, o);
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

static void drop_nested(struct tasks_pool *p, struct object *o);

// Ids that are not known any more are left out: the value that names them finds an error there.
void tasks_object_nest(struct tasks_pool *p, struct object *o, const uint8_t *ids, uint32_t n) {
    drop_nested(p, o);
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
    for (uint32_t i = 0; i < o->places.len; i++) {
        struct pool_node *n = tasks_node(p, o->places.at[i].node);
        if (!n)
            continue;
        tasks_space_give(&n->space, o->places.at[i].at, o->size);
        n->dirty = true;
        n->used_us = p->now_us;
    }
    vec_done(&o->places);
    for (uint32_t i = 0; i < p->fills.len; i++)
        if (p->fills.at[i].id == o->id)
            vec_remove(&p->fills, i--);
}

static void drop_nested(struct tasks_pool *p, struct object *o) {
    for (uint32_t i = 0; i < o->nnested; i++) {
        struct object *in = tasks_object_find(p, o->nested[i]);
        if (in)
            tasks_object_unref(p, in);
    }
    free(o->nested);
    o->nested = NULL;
    o->nnested = 0;
}

// Nobody holds it, and what was made from it might have to be made again: a large value goes, a small one stays.
static void free_value(struct tasks_pool *p, struct object *o) {
    if (o->state != OBJECT_SHARED)
        return;
    drop_nested(p, o);
    tasks_object_unallocate(p, o);
}

static void free_object(struct tasks_pool *p, struct object *o) {
    drop_nested(p, o);
    assert(!o->task && !o->actor && !o->holders.len && !o->waiting.len);
    tasks_kept_forget(p, o);
    tasks_object_unallocate(p, o);
    map_remove(&p->objects, o->id);
    tasks_blob_unref(p, o->bytes);
    vec_done(&o->holders);
    vec_done(&o->wanted);
    vec_done(&o->waiting);
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

void tasks_object_want(struct object *o, uint32_t conn) {
    for (uint32_t i = 0; i < o->wanted.len; i++)
        if (o->wanted.at[i] == conn)
            return;
    vec_push(&o->wanted, conn);
}

void tasks_object_send(struct tasks_pool *p, struct object *o, struct connection *c) {
    struct buf *b = &p->scratch;
    if (p->host->unsent(p->ctx, c->number) > OUT_ENOUGH) {
        vec_push(&c->later, o->id);
        return;
    }
    bool shared = o->state == OBJECT_SHARED, failed = o->state == OBJECT_FAILED;
    const struct value_place *here = shared ? tasks_place(o, c->node) : NULL;
    if (shared && (!here || !here->there)) {
        tasks_object_want(o, c->number);
        tasks_bring(p, o, c->node);
        return;
    }
    size_t len = shared ? 2 * sizeof(uint64_t) : o->bytes->len + (size_t)failed;
    tasks_begin(b, TASKS_VALUE, sizeof(uint64_t) + 1 + len);
    tasks_add_u64(b, o->id);
    tasks_add_u8(b, shared ? TASKS_VALUE_SHARED : failed ? TASKS_VALUE_ERROR : TASKS_VALUE_INLINE);
    if (shared) {
        tasks_add_u64(b, c->shares ? here->at : 0);
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
    buf_add(&p->scratch, p->host->memory(p->ctx, tasks_place(o, 0)->at + t->at), n);
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

// Connections of a node that wait for a value which cannot be brought there.
void tasks_object_undelivered(struct tasks_pool *p, struct object *o, uint32_t node, enum tasks_error code,
                              const char *text) {
    for (uint32_t i = 0; i < o->wanted.len; i++) {
        struct connection *c = tasks_connection(p, o->wanted.at[i]);
        if (!c || c->node != node)
            continue;
        vec_remove_swap(&o->wanted, i);
        i--;
        tasks_begin(&p->scratch, TASKS_VALUE, sizeof o->id + 2 + strlen(text));
        tasks_add_u64(&p->scratch, o->id);
        tasks_add_u8(&p->scratch, TASKS_VALUE_ERROR);
        tasks_add_u8(&p->scratch, (uint8_t)code);
        buf_adds(&p->scratch, text);
        send_begun(p, c);
    }
}

static void send_notice(struct tasks_pool *p, const struct object *o, const struct connection *c) {
    tasks_begin(&p->scratch, TASKS_VALUE, 2 * sizeof o->id + 1);
    tasks_add_u64(&p->scratch, o->id);
    tasks_add_u8(&p->scratch, TASKS_VALUE_ELSEWHERE);
    tasks_add_u64(&p->scratch, o->size);
    send_begun(p, c);
}

void tasks_object_tell(struct tasks_pool *p, struct object *o) {
    VEC(uint32_t) wanted = {o->wanted.at, o->wanted.len, o->wanted.cap};
    o->wanted.at = NULL;  // those it has to be brought to are put there again
    o->wanted.len = o->wanted.cap = 0;
    for (uint32_t i = 0; i < wanted.len; i++) {
        struct connection *c = tasks_connection(p, wanted.at[i] & ~(uint32_t)NOTICE);
        if (!c || !tasks_object_held(o, c->number))
            continue;
        const struct value_place *here = o->state == OBJECT_SHARED ? tasks_place(o, c->node) : NULL;
        if (wanted.at[i] & NOTICE && o->state == OBJECT_SHARED && !(here && here->there))
            send_notice(p, o, c);
        else
            tasks_object_send(p, o, c);
    }
    vec_done(&wanted);
}

static void tell(struct tasks_pool *p, struct object *o) {
    if (o->state != OBJECT_PENDING)  // else it was lost before anybody was told
        tasks_object_tell(p, o);
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
        o->unused = false;
        if (o->refs)
            continue;  // held again meanwhile
        if (o->actor)
            tasks_actor_unused(p, o->actor);
        else if (o->kept)
            free_value(p, o);
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
        if (o->places.len && o->allocator == conn &&
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
    struct pool_node *n = tasks_node(p, c->node);
    uint64_t at;
    if (!n || !tasks_space_take(&n->space, size, &at))
        return false;
    if (!o) {
        o = tasks_object_new(p, id);
        o->state = OBJECT_UNSEALED;
        tasks_object_hold(o, c->number);
    }
    o->allocator = c->number;
    vec_push(&o->places, (struct value_place){.node = n->number, .there = true, .at = at});
    o->size = size;
    n->dirty = true;
    n->used_us = p->now_us;
    if (c->inside || !c->shares)
        answer(p, c, id, c->shares ? at : 0, NULL);
    else  // pages that a process outside the job touches first would not be charged to it
        vec_push(&p->fills, (struct memory_fill){c->number, id, at, at, at + tasks_space_rounded(size)});
    return true;
}

static void no_room(const struct pool_node *n, uint64_t size, struct buf *text) {
    buf_addf(text,
             "no room for a value of %llu bytes: of %llu bytes of shared memory of node %s %llu are used; "
             "release references, or give the pool more memory",
             (unsigned long long)size, (unsigned long long)n->space.total, n->name,
             (unsigned long long)n->space.used);
}

void tasks_alloc(struct tasks_pool *p, struct connection *c, uint64_t id, uint64_t size) {
    cleanup_buf struct buf text = {0};
    struct pool_node *n = tasks_node(p, c->node);
    if (!n)
        return;
    if (size > n->space.total) {
        no_room(n, size, &text);
        answer(p, c, id, UINT64_MAX, buf_str(&text));
        return;
    }
    if (n->allocations.len || !allocate(p, c, id, size))
        vec_push(&n->allocations, (struct allocation){c->number, id, size, p->now_us + ALLOC_PATIENCE_US});
}

// A value that is to come to the node, and for which there is room now.
static bool place_now(struct tasks_pool *p, struct pool_node *n, uint64_t id) {
    struct object *o = tasks_object_find(p, id);
    if (!o || !o->refs || o->state != OBJECT_SHARED || tasks_place(o, n->number))
        return true;
    if (!tasks_place_add(p, o, n))
        return false;
    return true;
}

// Those at the node that wait for the value are told why it does not come.
static void not_brought(struct tasks_pool *p, struct pool_node *n, uint64_t id, uint64_t size) {
    cleanup_buf struct buf text = {0};
    struct object *o = tasks_object_find(p, id);
    no_room(n, size, &text);
    if (o)
        tasks_object_undelivered(p, o, n->number, TASKS_FULL, buf_str(&text));
}

void tasks_alloc_again(struct tasks_pool *p, struct pool_node *n) {
    while (n->allocations.len) {
        struct allocation a = n->allocations.at[0];
        struct connection *c = tasks_connection(p, a.conn);
        bool move = a.conn == UINT32_MAX;
        if (move ? !place_now(p, n, a.id) : c && !allocate(p, c, a.id, a.size)) {
            if (p->now_us < a.until_us)
                return;
            cleanup_buf struct buf text = {0};
            no_room(n, a.size, &text);
            if (move)
                not_brought(p, n, a.id, a.size);
            else
                answer(p, c, a.id, UINT64_MAX, buf_str(&text));
        }
        vec_remove(&n->allocations, 0);
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

static void drop_free(struct tasks_pool *p, struct pool_node *n) {
    if (!n->dirty || p->now_us - n->used_us < IDLE_DROP_US)
        return;
    for (uint32_t i = 0; i < n->space.holes.len; i++)
        p->host->drop(p->ctx, n->number, n->space.holes.at[i].at, n->space.holes.at[i].size);
    n->dirty = false;
}

int tasks_pool_turn(struct tasks_pool *p, int64_t now_us) {
    p->now_us = now_us;
    tasks_object_work(p);
    bool later = false, idle = false;
    for (uint32_t i = 0; i < p->nodes.len; i++) {
        struct pool_node *n = p->nodes.at[i];
        tasks_alloc_again(p, n);
        drop_free(p, n);
        later |= n->allocations.len || n->dirty;
    }
    if (p->fills.len)
        fill(p);
    tasks_dispatch(p);
    tasks_object_work(p);
    if (p->fills.len)
        return 0;
    for (uint32_t i = 0; i < p->nodes.len; i++)
        idle |= p->nodes.at[i]->idle.len > 0;
    for (uint32_t i = 0; idle && i < p->nodes.len; i++)  // somebody may be given what another has not begun
        for (uint32_t k = 0; k < p->nodes.at[i]->plain.len; k++)
            if (p->nodes.at[i]->plain.at[k]->given.len > 1)
                return PREFETCH_US / 1000;
    return later ? 500 : -1;
}
