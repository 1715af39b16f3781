// Owns the nodes of a pool: their memories, the ways of values between them, and what follows when one is lost.
//
// A value lives where it was made. A copy that was brought to another node stays there until the value is freed.
// When the last copy is lost with its node, the task that made it does it again, as soon as somebody needs the value:
// for that the task is kept while the value lives. What such a task used is known as long (`kept`), even when its
// value is freed.
#include <assert.h>
#include <stdlib.h>
#include <string.h>

#include "base/alloc.h"
#include "state.h"

struct pool_node *tasks_node(const struct tasks_pool *p, uint32_t number) {
    for (uint32_t i = 0; i < p->nodes.len; i++)
        if (p->nodes.at[i]->number == number)
            return p->nodes.at[i];
    return NULL;
}

struct value_place *tasks_place(const struct object *o, uint32_t node) {
    for (uint32_t i = 0; i < o->places.len; i++)
        if (o->places.at[i].node == node)
            return &o->places.at[i];
    return NULL;
}

bool tasks_object_there(const struct object *o) {
    for (uint32_t i = 0; i < o->places.len; i++)
        if (o->places.at[i].there)
            return true;
    return o->state != OBJECT_SHARED;
}

uint32_t tasks_pool_node_joined(struct tasks_pool *p, const struct tasks_node *of, int64_t now_us) {
    struct pool_node *n = xcalloc(1, sizeof *n);
    *n = (struct pool_node){.number = p->next_node++,
                            .cpus = of->cpus,
                            .gpus = of->gpus,
                            .workers_max = of->workers,
                            .name = xstrdup(of->name),
                            .cpu_free = of->cpus * 1000LL,
                            .used_us = now_us};
    if (!n->workers_max || n->workers_max > WORKERS_MAX)
        n->workers_max = WORKERS_MAX;
    n->gpu_free = xcalloc(of->gpus + 1, sizeof *n->gpu_free);
    n->gpu_names = xcalloc(of->gpus + 1, sizeof *n->gpu_names);
    for (uint32_t g = 0; g < of->gpus; g++) {
        n->gpu_free[g] = 1000;
        n->gpu_names[g] = xstrdup(of->gpu_names[g]);
    }
    tasks_space_init(&n->space, of->memory_bytes);
    vec_push(&p->nodes, n);
    return n->number;
}

static void free_node(struct pool_node *n) {
    for (uint32_t g = 0; g < n->gpus; g++)
        free(n->gpu_names[g]);
    free(n->gpu_names);
    free(n->gpu_free);
    free(n->name);
    tasks_space_done(&n->space);
    vec_done(&n->idle);
    vec_done(&n->plain);
    vec_done(&n->allocations);
    free(n);
}

void tasks_nodes_free(struct tasks_pool *p) {
    for (uint32_t i = 0; i < p->nodes.len; i++)
        free_node(p->nodes.at[i]);
    vec_done(&p->nodes);
}

// --- from node to node ---

static const struct value_place *source(const struct object *o, uint32_t tries) {
    const struct value_place *first = NULL;
    uint32_t there = 0;
    for (uint32_t i = 0; i < o->places.len; i++)
        there += o->places.at[i].there;
    // Those that come one after the other take it from different ones, so that not one node sends it to all.
    uint32_t turn = there ? (o->places.len - 1 + tries) % there : 0;
    for (uint32_t i = 0; i < o->places.len; i++)
        if (o->places.at[i].there && (!first || turn-- > 0))
            first = &o->places.at[i];
    return first;
}

static void fetch(struct tasks_pool *p, struct object *o, struct value_place *to) {
    const struct value_place *from = source(o, to->tries);
    to->tries++;
    p->host->fetch(p->ctx, to->node, o->id, to->at, o->size, from->node, from->at);
}

bool tasks_place_add(struct tasks_pool *p, struct object *o, struct pool_node *n) {
    uint64_t at;
    if (!tasks_object_there(o))
        return true;  // it is made again first
    if (!tasks_space_take(&n->space, o->size, &at))
        return false;
    n->dirty = true;
    n->used_us = p->now_us;
    vec_push(&o->places, (struct value_place){.node = n->number, .at = at});
    tasks_object_ref(o);  // until it has come
    fetch(p, o, &o->places.at[o->places.len - 1]);
    return true;
}

void tasks_bring(struct tasks_pool *p, struct object *o, uint32_t node) {
    struct pool_node *n = tasks_node(p, node);
    if (!n || tasks_place(o, node))
        return;
    if (!tasks_object_there(o)) {
        tasks_again(p, o);
        return;
    }
    for (uint32_t i = 0; i < n->allocations.len; i++)
        if (n->allocations.at[i].conn == UINT32_MAX && n->allocations.at[i].id == o->id)
            return;
    if (n->allocations.len || !tasks_place_add(p, o, n))
        vec_push(&n->allocations,
                 (struct allocation){UINT32_MAX, o->id, o->size, p->now_us + ALLOC_PATIENCE_US});
}

static void remove_place(struct tasks_pool *p, struct object *o, struct value_place *at) {
    struct pool_node *n = tasks_node(p, at->node);
    if (n)
        tasks_space_give(&n->space, at->at, o->size);
    vec_remove(&o->places, (uint32_t)(at - o->places.at));
}

void tasks_pool_fetched(struct tasks_pool *p, uint32_t node, uint64_t id, bool ok, int64_t now_us) {
    struct object *o = tasks_object_find(p, id);
    struct value_place *at = o ? tasks_place(o, node) : NULL;
    const struct pool_node *n = tasks_node(p, node);
    p->now_us = now_us;
    if (!at || at->there || !n)
        return;
    if (!ok && at->tries < MOVES_MAX && tasks_object_there(o)) {
        fetch(p, o, at);
        return;
    }
    if (ok) {
        at->there = true;
        p->nmoved++;
        p->moved_bytes += o->size;
        tasks_object_tell(p, o);
    } else {
        remove_place(p, o, at);
        if (tasks_object_there(o)) {
            cleanup_buf struct buf text = {0};
            buf_addf(&text,
                     "the value cannot be brought to node %s: it does not reach the node that has it; the nodes "
                     "of a pool connect to each other directly",
                     n->name);
            tasks_object_undelivered(p, o, node, TASKS_UNKNOWN, buf_str(&text));
        } else if (o->wanted.len) {
            tasks_again(p, o);
        }
    }
    tasks_object_unref(p, o);
    tasks_object_work(p);
}

// --- values that are made again ---

void tasks_keep(struct tasks_pool *p, struct pool_task *t) {
    struct object *o = t->result;
    uint32_t chain = 0;
    for (uint32_t i = 0; i < t->nuses; i++)
        if (t->uses[i]->made_by && t->uses[i]->chain > chain)
            chain = t->uses[i]->chain;
    bool possible = o->state == OBJECT_SHARED && o->places.at[0].node && !t->actor && t->retries &&
                    !(t->flags & TASKS_NEW_ACTOR) && p->nkept < KEPT_MAX && chain < KEPT_CHAIN_MAX;
    if (!possible) {
        tasks_task_free(p, t);
        return;
    }
    for (uint32_t i = 0; i < t->nuses; i++) {
        t->uses[i]->kept++;
        tasks_object_unref(p, t->uses[i]);
    }
    t->kept = true;
    t->worker = NULL;
    o->made_by = t;
    o->chain = (uint8_t)(chain + 1);
    p->nkept++;
}

void tasks_kept_forget(struct tasks_pool *p, struct object *o) {
    if (!o->made_by)
        return;
    tasks_task_free(p, o->made_by);
    o->made_by = NULL;
    p->nkept--;
}

void tasks_again(struct tasks_pool *p, struct object *o) {
    struct pool_task *t = o->made_by;
    if (o->state != OBJECT_SHARED || tasks_object_there(o))
        return;
    if (!t || !t->retries) {
        tasks_object_failf(p, o, TASKS_UNKNOWN,
                           "the value was lost with the node that had it, and cannot be made again: %s",
                           !t ? "it was put by a task or made by an actor, or its task may not be repeated"
                              : "its task was repeated as often as it may be");
        tasks_kept_forget(p, o);
        return;
    }
    o->made_by = NULL;
    p->nkept--;
    p->nagain++;
    for (uint32_t i = 0; i < t->nuses; i++) {
        tasks_object_ref(t->uses[i]);
        t->uses[i]->kept--;
    }
    t->kept = false;
    t->retries--;
    o->state = OBJECT_PENDING;
    o->again = true;
    o->task = t;
    tasks_object_ref(o);
    for (uint32_t i = 0; i < t->nuses; i++)  // chains of these have at most KEPT_CHAIN_MAX
        if (i < t->ndependencies || t->uses[i]->made_by)
            tasks_again(p, t->uses[i]);
    tasks_start_again(p, t);
}

// --- lost nodes ---

static void lose_places(struct tasks_pool *p, const struct pool_node *n) {
    uint64_t id;
    void *value;
    for (size_t it = 0; map_next(&p->objects, &it, &id, &value);) {
        struct object *o = value;
        struct value_place *at = tasks_place(o, n->number);
        if (!at)
            continue;
        bool coming = !at->there;
        remove_place(p, o, at);
        if (coming)
            tasks_object_unref(p, o);
        if (o->state == OBJECT_UNSEALED && !o->places.len)
            tasks_object_failf(p, o, TASKS_UNKNOWN, "the value was lost with node %s before it was whole", n->name);
    }
}

// Values that somebody waits for, or a task that has not ended uses.
static void make_needed(struct tasks_pool *p) {
    VEC(struct object *) lost = {0};
    uint64_t id;
    void *value;
    for (size_t it = 0; map_next(&p->objects, &it, &id, &value);) {
        struct object *o = value;
        if (o->state == OBJECT_SHARED && !tasks_object_there(o) && o->wanted.len)
            vec_push(&lost, o);
    }
    for (uint32_t i = 0; i < lost.len; i++)
        tasks_again(p, lost.at[i]);
    vec_done(&lost);
}

void tasks_pool_node_lost(struct tasks_pool *p, uint32_t node, int64_t now_us) {
    cleanup_buf struct buf how = {0};
    VEC(struct pool_worker *) workers = {0};
    struct pool_node *n = node ? tasks_node(p, node) : NULL;
    uint64_t id;
    void *value;
    if (!n)
        return;
    p->now_us = now_us;
    buf_addf(&how, "node %s was lost", n->name);
    for (uint32_t i = 0; i < p->nodes.len; i++)
        if (p->nodes.at[i] == n)
            vec_remove(&p->nodes, i--);
    lose_places(p, n);
    for (size_t it = 0; map_next(&p->workers, &it, &id, &value);)
        if (((struct pool_worker *)value)->node == n)
            vec_push(&workers, value);
    for (uint32_t i = 0; i < workers.len; i++) {
        uint32_t conn = workers.at[i]->conn;
        tasks_pool_worker_ended(p, workers.at[i]->number, buf_str(&how), now_us);
        tasks_pool_close(p, conn, now_us);
    }
    vec_done(&workers);
    make_needed(p);
    free_node(n);
    tasks_object_work(p);
}
