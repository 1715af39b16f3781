// Owns the tasks and actors of a pool and which worker process does what.
//
// A task waits for its dependencies, then for CPUs and GPUs among the tasks of the same shape, in order of submission.
// When all CPUs are in use, a worker is given short tasks ahead, at most PREFETCH_US of work as far as is known of
// their function: it need not wait for us between two of them. What a worker has not read can be taken back: when its
// task waits for a value, when it runs long and another worker has nothing to do, when a task is cancelled, and when
// the worker has ended. So no task waits for another one only because both were given to the same worker.
#include <assert.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/alloc.h"
#include "state.h"

// --- queues ---

static void queue_add(struct task_queue *q, struct pool_task *t) {
    t->prev = q->last;
    t->next = NULL;
    *(q->last ? &q->last->next : &q->first) = t;
    q->last = t;
    q->len++;
}

static void queue_add_first(struct task_queue *q, struct pool_task *t) {
    t->prev = NULL;
    t->next = q->first;
    *(q->first ? &q->first->prev : &q->last) = t;
    q->first = t;
    q->len++;
}

static void queue_remove(struct task_queue *q, struct pool_task *t) {
    *(t->prev ? &t->prev->next : &q->first) = t->next;
    *(t->next ? &t->next->prev : &q->last) = t->prev;
    t->prev = t->next = NULL;
    q->len--;
}

static struct task_queue *ready_queue(const struct pool_task *t) {
    return t->inner ? &t->shape->inner : &t->shape->ready;
}

// --- ends ---

void tasks_task_free(struct tasks_pool *p, struct pool_task *t) {
    for (uint32_t i = 0; i < t->nuses; i++)
        (t->kept ? tasks_object_unkeep : tasks_object_unref)(p, t->uses[i]);
    if (t->function)
        tasks_object_unref(p, t->function);
    tasks_blob_unref(p, t->arguments);
    free(t->uses);
    free(t->name);
    free(t);
}

// What the task wrote and its traceback; see exception().
static void remember_exception(struct finished *f, const struct blob *b) {
    struct tasks_reader r = {.at = (const uint8_t *)b->data, .end = (const uint8_t *)b->data + b->len};
    uint32_t n = tasks_read_u32(&r);
    const uint8_t *out = tasks_read_bytes(&r, n);
    f->output = n && !r.bad ? xstrndup((const char *)out, n) : NULL;
    n = tasks_read_u32(&r);
    const uint8_t *text = tasks_read_bytes(&r, n);
    if (!r.bad)
        f->error = xstrndup((const char *)text, n < ERROR_TEXT_KEPT ? n : ERROR_TEXT_KEPT);
}

static void remember(struct tasks_pool *p, const struct pool_task *t, uint32_t micros) {
    struct finished *f = &p->finished[p->nfinished++ % FINISHED_KEPT];
    const struct object *o = t->result;
    free(f->name);
    free(f->error);
    free(f->output);
    *f = (struct finished){.id = o->id,
                           .name = xstrdup(t->name),
                           .worker = t->worker ? t->worker->number : UINT32_MAX,
                           .micros = micros,
                           .tries = t->tries,
                           .failed = o->state == OBJECT_FAILED};
    if (!f->failed)
        return;
    p->nfailed++;
    if (o->error == TASKS_EXCEPTION)
        remember_exception(f, o->bytes);
    else
        f->error =
            xstrndup(o->bytes->data, o->bytes->len < ERROR_TEXT_KEPT ? o->bytes->len : ERROR_TEXT_KEPT);
}

// The result has its value or its error. The task is in no queue.
static void task_ended(struct tasks_pool *p, struct pool_task *t, uint32_t micros) {
    struct object *o = t->result;
    struct pool_actor *a = t->actor;
    bool makes = t->flags & TASKS_NEW_ACTOR;
    remember(p, t, micros);
    o->again = false;
    *(t->all_prev ? &t->all_prev->all_next : &p->tasks) = t->all_next;
    if (t->all_next)
        t->all_next->all_prev = t->all_prev;
    p->ntasks--;
    o->task = NULL;
    if (makes && o->actor && o->state != OBJECT_FAILED)
        o->actor->maker = t;  // kept, to make the actor again
    else
        tasks_keep(p, t);
    tasks_object_unref(p, o);
    if (a && !makes)
        tasks_object_unref(p, a->handle);
}

static void unqueue(struct pool_task *t) {
    if (t->state == TASK_READY)
        queue_remove(ready_queue(t), t);
    else if (t->state == TASK_GIVEN)
        queue_remove(&t->worker->given, t);
    else if (t->actor && !(t->flags & TASKS_NEW_ACTOR))
        queue_remove(&t->actor->calls, t);
}

static void forget_waiting(struct pool_task *t) {
    for (uint32_t i = 0; t->missing && i < t->ndependencies; i++)
        for (uint32_t k = t->uses[i]->waiting.len; k--;)  // the newest are the last, and cancelled first
            if (t->uses[i]->waiting.at[k] == t) {
                vec_remove(&t->uses[i]->waiting, k);
                break;
            }
    t->missing = 0;
}

static void actor_failed(struct tasks_pool *p, struct pool_actor *a, enum tasks_error code, struct blob *why);
static void actor_stop(struct tasks_pool *p, struct pool_actor *a, bool kill);
static void actor_dispatch(struct tasks_pool *p, struct pool_actor *a);

static void task_fail_with(struct tasks_pool *p, struct pool_task *t, enum tasks_error code,
                           struct blob *bytes) {
    struct pool_actor *made = t->flags & TASKS_NEW_ACTOR ? t->result->actor : NULL, *called = t->actor;
    unqueue(t);
    forget_waiting(t);
    bytes->refs++;
    tasks_object_fail(p, t->result, code, bytes);
    task_ended(p, t, 0);
    if (made)
        actor_failed(p, made, code, bytes);
    else if (called)
        actor_dispatch(p, called);  // the calls behind it wait for nothing else
    tasks_blob_unref(p, bytes);
}

static void task_failf(struct tasks_pool *p, struct pool_task *t, enum tasks_error code, const char *text) {
    task_fail_with(p, t, code, tasks_blob_new(p, text, strlen(text)));
}

// --- workers ---

static struct pool_worker *worker_new(struct tasks_pool *p, struct pool_node *n, uint32_t cpu_milli,
                                      uint32_t gpu_milli, uint32_t gpu, bool single) {
    cleanup_buf struct buf names = {0};
    struct pool_worker *w = xcalloc(1, sizeof *w);
    w->number = p->next_worker++;
    w->node = n;
    n->nworkers++;
    w->conn = UINT32_MAX;
    w->cpu_milli = cpu_milli;
    w->gpu_milli = gpu_milli;
    w->single = single;
    n->cpu_free -= cpu_milli;
    uint32_t left = gpu_milli;
    for (uint32_t g = gpu; left && g < n->gpus; g++) {
        uint32_t piece = left < 1000 ? left : 1000;
        if (n->gpu_free[g] < piece)
            continue;
        n->gpu_free[g] -= piece;
        w->gpus |= 1ULL << g;
        left -= piece;
        buf_addf(&names, "%s%s", names.len ? "," : "", n->gpu_names[g]);
    }
    map_put(&p->workers, w->number, w);
    if (!single)
        vec_push(&n->plain, w);
    p->host->start(p->ctx, n->number, w->number, gpu_milli ? buf_str(&names) : "");
    return w;
}

// The first GPU from which on there is so much; UINT32_MAX: there is none now. A fraction is on one GPU.
static uint32_t gpu_fit(const struct pool_node *n, uint32_t milli) {
    uint32_t whole = milli / 1000, found = 0, first = UINT32_MAX, best = UINT32_MAX;
    if (!milli)
        return 0;
    for (uint32_t g = 0; g < n->gpus; g++) {
        if (milli < 1000 && n->gpu_free[g] >= milli &&
            (best == UINT32_MAX || n->gpu_free[g] < n->gpu_free[best]))
            best = g;  // the fullest that has room
        if (milli >= 1000 && n->gpu_free[g] == 1000 && found++ == 0)
            first = g;
    }
    return milli < 1000 ? best : found >= whole ? first : UINT32_MAX;
}

static void gpu_give_back(const struct pool_worker *w) {
    for (uint32_t g = 0; g < w->node->gpus; g++)
        if (w->gpus >> g & 1)
            w->node->gpu_free[g] += w->gpu_milli < 1000 ? w->gpu_milli : 1000;
}

static void worker_cpu(struct pool_worker *w, uint32_t milli) {
    w->node->cpu_free += (int64_t)w->cpu_milli - milli;
    w->cpu_milli = milli;
}

static void drop_from(struct pool_worker *w) {
    struct pool_node *n = w->node;
    for (uint32_t i = 0; i < n->idle.len; i++)
        if (n->idle.at[i] == w)
            vec_remove(&n->idle, i--);
    for (uint32_t i = 0; i < n->plain.len; i++)
        if (n->plain.at[i] == w)
            vec_remove(&n->plain, i--);
}

static void worker_quit(struct tasks_pool *p, struct pool_worker *w) {
    w->stopping = true;
    drop_from(w);
    p->host->stop(p->ctx, w->number, false);
}

static void worker_idle(struct tasks_pool *p, struct pool_worker *w) {
    if (w->stopping || w->actor)
        return;
    worker_cpu(w, 0);
    if (w->single || w->node->idle.len >= w->node->cpus)
        worker_quit(p, w);
    else
        vec_push(&w->node->idle, w);
}

static void add_dependency(struct tasks_pool *p, struct buf *b, struct object *o, uint32_t node, size_t *room) {
    const struct value_place *here = o->state == OBJECT_SHARED ? tasks_place(o, node) : NULL;
    if (here && here->there) {
        tasks_add_u8(b, TASKS_VALUE_SHARED);
        tasks_add_u64(b, o->id);
        tasks_add_u64(b, here->at);
        tasks_add_u64(b, o->size);
    } else if (o->state == OBJECT_INLINE && o->bytes->len <= *room) {
        tasks_add_u8(b, TASKS_VALUE_INLINE);
        tasks_add_u64(b, o->id);
        tasks_add_u32(b, o->bytes->len);
        buf_add(b, o->bytes->data, o->bytes->len);
        *room -= o->bytes->len;
    } else {
        tasks_add_u8(b, TASKS_VALUE_ASK);
        tasks_add_u64(b, o->id);
    }
}

// False: the worker has enough.
static bool give(struct tasks_pool *p, struct pool_worker *w, struct pool_task *t) {
    struct buf *b = &p->scratch;
    size_t room = 48 << 10;
    tasks_add_u8(b, TASKS_TASK);
    tasks_add_u64(b, t->result->id);
    tasks_add_u64(b, t->function ? t->function->id : 0);
    tasks_add_u64(b, t->actor ? t->actor->handle->id : 0);
    tasks_add_u8(b, t->flags);
    tasks_add_u16(b, (uint16_t)t->ndependencies);
    for (uint32_t i = 0; i < t->ndependencies; i++)
        add_dependency(p, b, t->uses[i], w->node->number, &room);
    buf_add(b, t->arguments->data, t->arguments->len);
    assert(b->len <= TASKS_MESSAGE_MAX);
    int r = p->host->give(p->ctx, w->number, b);
    buf_clear(b);
    if (r < 0)
        return false;
    if (!w->given.len)
        w->since_us = p->now_us;
    t->state = TASK_GIVEN;
    t->worker = w;
    t->tries++;
    queue_add(&w->given, t);
    for (uint32_t i = 0; i < t->ndependencies; i++)  // what is elsewhere sets out now
        if (t->uses[i]->state == OBJECT_SHARED && tasks_object_there(t->uses[i]))
            tasks_bring(p, t->uses[i], w->node->number);
    return true;
}

static void requeue(struct pool_task *t) {
    t->worker = NULL;
    t->tries--;
    if (t->actor && !(t->flags & TASKS_NEW_ACTOR)) {
        t->state = TASK_WAITING;
        queue_add_first(&t->actor->calls, t);
        return;
    }
    t->state = TASK_READY;
    queue_add_first(ready_queue(t), t);
}

static void cancel_returned(struct tasks_pool *p, struct pool_task *t) {
    if (t->flags & TASKS_NEW_ACTOR)
        actor_stop(p, t->result->actor, false);
    task_failf(p, t, TASKS_CANCELLED, "the task was cancelled");
}

// What is left of those that were to be cancelled had begun.
static void cancel_begun(struct tasks_pool *p, struct pool_worker *w) {
    for (struct pool_task *t = w->given.first; t; t = t->next) {
        bool kill = t->cancel && t->force && !w->actor && !t->cancelled;
        t->cancel = false;
        if (!kill)
            continue;
        t->cancelled = true;
        w->stopping = true;  // it may finish before it is killed, and gets nothing more
        drop_from(w);
        p->host->stop(p->ctx, w->number, true);
    }
}

static void returned(struct tasks_pool *p, struct pool_worker *w, const uint8_t *ids, size_t n) {
    VEC(struct pool_task *) back = {0};
    for (size_t i = 0; i < n; i++) {
        struct object *o = tasks_object_find(p, tasks_id(ids, i));
        struct pool_task *t = o && o->actor && o->actor->maker ? o->actor->maker : o ? o->task : NULL;
        if (t && t->worker == w && t->state == TASK_GIVEN)
            vec_push(&back, t);
    }
    bool any = back.len > 0;
    while (back.len) {  // the last one first, so that the order stays
        struct pool_task *t = vec_pop(&back);
        if (t->state != TASK_GIVEN)
            continue;  // named twice
        queue_remove(&w->given, t);
        requeue(t);
        if (t->cancel)
            cancel_returned(p, t);
    }
    vec_done(&back);
    cancel_begun(p, w);
    if (w->actor)
        actor_dispatch(p, w->actor);
    else if (any && !w->given.len)
        worker_idle(p, w);
}

void tasks_pool_returned(struct tasks_pool *p, uint32_t worker, const uint8_t *ids, size_t n, int64_t now_us) {
    struct pool_worker *w = map_get(&p->workers, worker);
    p->now_us = now_us;
    if (!w)
        return;
    w->asked_back = false;
    returned(p, w, ids, n);
    tasks_object_work(p);
}

void tasks_take_back(struct tasks_pool *p, struct pool_worker *w) {
    cleanup_buf struct buf packet = {0}, ids = {0};
    if (w->node->number) {
        if (!w->asked_back)
            p->host->ask_back(p->ctx, w->number);
        w->asked_back = true;
        return;
    }
    while (p->host->take_back(p->ctx, w->number, &packet)) {
        if (packet.len > sizeof(uint64_t) && packet.data[0] == TASKS_TASK)
            buf_add(&ids, packet.data + 1, sizeof(uint64_t));
        buf_clear(&packet);
    }
    returned(p, w, (const uint8_t *)ids.data, ids.len / sizeof(uint64_t));
}

void tasks_blocked(struct tasks_pool *p, struct pool_worker *w, bool yes) {
    if (w->blocked == yes || !w->given.len)
        return;
    w->blocked = yes;
    w->node->cpu_free += yes ? w->cpu_milli : -(int64_t)w->cpu_milli;
    if (yes && !w->actor)
        tasks_take_back(p, w);
    if (yes)
        tasks_dispatch(p);
}

// --- who gets what ---

static uint32_t prefetch(const struct pool_task *t) {
    uint32_t us = t->function ? t->function->average_us : 0;
    if (!us)
        return 1;
    uint32_t n = PREFETCH_US / us;
    return n < 1 ? 1 : n > PREFETCH_MAX ? PREFETCH_MAX : n;
}

// A worker that is busy with tasks of the same shape and has room ahead.
static struct pool_worker *worker_ahead(struct tasks_pool *p, const struct pool_task *t) {
    uint32_t most = prefetch(t);
    if (most < 2)
        return NULL;
    for (uint32_t k = 0; k < p->nodes.len; k++) {
        struct pool_node *n = p->nodes.at[k];
        for (uint32_t i = 0; i < n->plain.len; i++) {
            struct pool_worker *w = n->plain.at[n->turn++ % n->plain.len];
            if (!w->blocked && !w->asked_back && w->given.len && w->given.len < most &&
                w->cpu_milli == t->cpu_milli)
                return w;
        }
    }
    return NULL;
}

static uint64_t bytes_there(const struct pool_task *t, uint32_t node) {
    uint64_t bytes = 0;
    for (uint32_t i = 0; i < t->nuses; i++) {
        const struct object *o = t->uses[i];
        if (o->state == OBJECT_SHARED && tasks_place(o, node))
            bytes += o->size;
    }
    return bytes;
}

static bool has_room(const struct pool_node *n, const struct pool_task *t, bool alone) {
    if (n->cpu_free < t->cpu_milli)
        return false;
    if (!alone && n->idle.len)
        return true;
    return n->nworkers < n->workers_max && gpu_fit(n, t->gpu_milli) != UINT32_MAX;
}

// Of the nodes with room that with most bytes of the task's arguments, then with most free CPUs. NULL: none has room.
static struct pool_node *choose_node(const struct tasks_pool *p, const struct pool_task *t, bool alone) {
    struct pool_node *best = NULL;
    uint64_t most = 0;
    for (uint32_t i = 0; i < p->nodes.len; i++) {
        struct pool_node *n = p->nodes.at[i];
        if (!has_room(n, t, alone))
            continue;
        uint64_t bytes = p->nodes.len > 1 ? bytes_there(t, n->number) : 0;
        if (best && (bytes < most || (bytes == most && n->cpu_free <= best->cpu_free)))
            continue;
        best = n;
        most = bytes;
    }
    return best;
}

static bool workers_full(const struct tasks_pool *p) {
    for (uint32_t i = 0; i < p->nodes.len; i++)
        if (p->nodes.at[i]->nworkers < p->nodes.at[i]->workers_max)
            return false;
    return true;
}

static bool everybody_waits(const struct tasks_pool *p) {
    uint64_t id;
    void *value;
    for (size_t it = 0; map_next(&p->workers, &it, &id, &value);) {
        const struct pool_worker *w = value;
        if (w->given.len && !w->blocked)
            return false;
    }
    return true;
}

// Gives a task of no GPUs to a plain worker. False: not now.
static bool place_plain(struct tasks_pool *p, struct pool_task *t) {
    struct pool_worker *w;
    struct pool_node *n = choose_node(p, t, false);
    if (n && n->idle.len) {
        w = vec_pop(&n->idle);
        worker_cpu(w, t->cpu_milli);
    } else if (n) {
        w = worker_new(p, n, t->cpu_milli, 0, 0, false);
    } else {
        w = worker_ahead(p, t);
    }
    if (!w)
        return false;
    queue_remove(ready_queue(t), t);
    if (give(p, w, t))
        return true;
    queue_add_first(ready_queue(t), t);
    if (!w->given.len)
        worker_idle(p, w);
    return false;
}

// A process of its own: for a task with GPUs, which ends with it, and for an actor.
static bool place_alone(struct tasks_pool *p, struct pool_task *t) {
    struct pool_node *n = choose_node(p, t, true);
    struct pool_actor *a = t->flags & TASKS_NEW_ACTOR ? t->result->actor : NULL;
    if (!n)
        return false;
    struct pool_worker *w = worker_new(p, n, t->cpu_milli, t->gpu_milli, gpu_fit(n, t->gpu_milli), true);
    queue_remove(ready_queue(t), t);
    if (a) {
        w->actor = a;
        a->worker = w;
    }
    if (!give(p, w, t)) {  // an empty channel has room for one
        queue_add_first(ready_queue(t), t);
        return false;
    }
    return true;
}

static void actor_dispatch(struct tasks_pool *p, struct pool_actor *a) {
    while (a->ready && a->worker && !a->worker->asked_back && a->calls.first && !a->calls.first->missing &&
           a->worker->given.len < ACTOR_PREFETCH) {
        struct pool_task *t = a->calls.first;
        queue_remove(&a->calls, t);
        if (!give(p, a->worker, t)) {
            queue_add_first(&a->calls, t);
            return;
        }
    }
}

// A worker without work gets what another was given ahead and does not come to.
static void steal(struct tasks_pool *p) {
    for (uint32_t k = 0; k < p->nodes.len; k++)
        for (uint32_t i = 0; i < p->nodes.at[k]->plain.len; i++) {
            struct pool_worker *w = p->nodes.at[k]->plain.at[i];
            if (w->given.len > 1 && p->now_us - w->since_us >= PREFETCH_US)
                tasks_take_back(p, w);
        }
}

static bool any_idle(const struct tasks_pool *p) {
    for (uint32_t i = 0; i < p->nodes.len; i++)
        if (p->nodes.at[i]->idle.len)
            return true;
    return false;
}

void tasks_dispatch(struct tasks_pool *p) {
    bool stolen = false;
again:
    for (uint32_t i = 0; i < p->shapes.len; i++) {
        struct shape *s = p->shapes.at[i];
        while (s->inner.first || s->ready.first) {
            struct pool_task *t = s->inner.first ? s->inner.first : s->ready.first;
            bool alone = t->gpu_milli || (t->flags & TASKS_NEW_ACTOR);
            if (alone ? place_alone(p, t) : place_plain(p, t))
                continue;
            if (!workers_full(p) || !everybody_waits(p))
                break;
            task_failf(p, t, TASKS_FULL,
                       "all worker processes run tasks that wait for other tasks, and no more can be "
                       "started; let fewer tasks wait for tasks they submit");
        }
    }
    if (!stolen && any_idle(p)) {
        stolen = true;
        steal(p);
        goto again;
    }
}

// --- actors ---

void tasks_actor_free(struct tasks_pool *p, struct pool_actor *a) {
    if (a->maker) {
        if (a->maker->state == TASK_READY || a->maker->state == TASK_GIVEN)
            unqueue(a->maker);
        tasks_task_free(p, a->maker);
    }
    map_remove(&p->actors, a->handle->id);
    a->handle->actor = NULL;
    free(a->name);
    free(a);
}

static void actor_stop(struct tasks_pool *p, struct pool_actor *a, bool kill) {
    a->stopped = true;
    a->ready = false;
    if (a->worker && !a->worker->stopping) {
        a->worker->stopping = true;
        p->host->stop(p->ctx, a->worker->number, kill);
    }
}

// Nobody has a handle or waits for a call any more.
void tasks_actor_unused(struct tasks_pool *p, struct pool_actor *a) {
    struct object *handle = a->handle;
    actor_stop(p, a, false);
    if (a->worker)
        a->worker->actor = NULL;
    tasks_actor_free(p, a);
    vec_push(&p->unused, handle);
}

// It will not live again: every call ends with the reason.
static void actor_failed(struct tasks_pool *p, struct pool_actor *a, enum tasks_error code,
                         struct blob *why) {
    a->ready = false;
    a->stopped = true;
    why->refs++;
    while (a->calls.first)
        task_fail_with(p, a->calls.first, code, (why->refs++, why));
    tasks_blob_unref(p, why);
}

// --- what comes in ---

static struct shape *shape_of(struct tasks_pool *p, uint32_t cpu_milli, uint32_t gpu_milli) {
    for (uint32_t i = 0; i < p->shapes.len; i++)
        if (p->shapes.at[i]->cpu_milli == cpu_milli && p->shapes.at[i]->gpu_milli == gpu_milli)
            return p->shapes.at[i];
    if (p->shapes.len == SHAPES_MAX)
        return NULL;
    struct shape *s = xcalloc(1, sizeof *s);
    s->cpu_milli = cpu_milli;
    s->gpu_milli = gpu_milli;
    vec_push(&p->shapes, s);
    return s;
}

static void task_ready(struct tasks_pool *p, struct pool_task *t) {
    if (t->actor && !(t->flags & TASKS_NEW_ACTOR)) {
        actor_dispatch(p, t->actor);
        return;
    }
    t->state = TASK_READY;
    queue_add(ready_queue(t), t);
}

void tasks_settled(struct tasks_pool *p, struct pool_task *t, struct object *o) {
    if (o->state == OBJECT_FAILED) {
        t->missing--;
        task_fail_with(p, t, o->error, (o->bytes->refs++, o->bytes));
    } else if (--t->missing == 0) {
        task_ready(p, t);
    }
}

// What is wrong with a submit beyond its form; NULL: nothing.
static const char *impossible(const struct tasks_pool *p, const struct tasks_submit *s) {
    uint32_t cpus = 0, gpus = 0;
    for (uint32_t i = 0; i < p->nodes.len; i++) {
        cpus = p->nodes.at[i]->cpus > cpus ? p->nodes.at[i]->cpus : cpus;
        gpus = p->nodes.at[i]->gpus > gpus ? p->nodes.at[i]->gpus : gpus;
    }
    if (s->cpu_milli > cpus * 1000ULL)
        return "the task needs more CPUs than the pool has on a node";
    if (s->gpu_milli > gpus * 1000ULL)
        return "the task needs more GPUs than the pool has on a node";
    if (s->gpu_milli > 1000 && s->gpu_milli % 1000)
        return "a task needs a fraction of one GPU, or whole GPUs";
    return NULL;
}

static void use(struct pool_task *t, struct object *o) {
    tasks_object_ref(o);
    t->uses[t->nuses++] = o;
}

// Dependencies that are not known or have failed fail the task; returns the first of these.
static const struct object *add_uses(struct tasks_pool *p, struct pool_task *t, const struct tasks_submit *s,
                                     bool *unknown) {
    const struct object *failed = NULL;
    t->uses = xmalloc(((size_t)s->ndependencies + s->nnested + 1) * sizeof *t->uses);
    for (uint32_t i = 0; i < s->ndependencies; i++) {
        struct object *o = tasks_object_find(p, tasks_id(s->dependencies, i));
        if (!o || o->state == OBJECT_UNSEALED) {
            *unknown = true;
            return NULL;
        }
        use(t, o);
        t->ndependencies++;
        tasks_again(p, o);  // if it was lost
        if (o->state == OBJECT_FAILED && !failed)
            failed = o;
    }
    for (uint32_t i = 0; i < s->nnested; i++) {
        struct object *o = tasks_object_find(p, tasks_id(s->nested, i));
        if (o)
            use(t, o);
    }
    return failed;
}

static void list_task(struct tasks_pool *p, struct pool_task *t) {
    t->all_prev = NULL;
    t->all_next = p->tasks;
    if (p->tasks)
        p->tasks->all_prev = t;
    p->tasks = t;
    p->ntasks++;
}

static struct pool_task *task_new(struct tasks_pool *p, const struct connection *c,
                                  const struct tasks_submit *s) {
    struct pool_task *t = xcalloc(1, sizeof *t);
    t->result = tasks_object_new(p, s->id);
    t->result->task = t;
    tasks_object_ref(t->result);  // the task's own
    tasks_object_hold(t->result, c->number);
    if (s->flags & TASKS_WANT)
        vec_push(&t->result->wanted, c->number | NOTICE);
    t->cpu_milli = s->cpu_milli || (s->flags & TASKS_NEW_ACTOR) ? s->cpu_milli : CPU_MILLI_MIN;
    t->gpu_milli = s->gpu_milli;
    t->retries = s->retries;
    t->flags = s->flags;
    t->submitter = c->number;
    t->inner = c->kind == TASKS_WORKER;
    t->since_us = p->now_us;
    t->name = xstrndup(s->name, s->name_len);
    t->arguments = tasks_blob_new(p, s->arguments, s->arguments_len);
    list_task(p, t);
    return t;
}

static void actor_new(struct tasks_pool *p, struct pool_task *t) {
    struct pool_actor *a = xcalloc(1, sizeof *a);
    a->handle = t->result;
    a->name = xstrdup(t->name);
    a->restarts = t->retries;
    t->result->actor = a;
    map_put(&p->actors, t->result->id, a);
}

static void wait_or_begin(struct tasks_pool *p, struct pool_task *t) {
    for (uint32_t i = 0; i < t->ndependencies; i++)
        if (t->uses[i]->state == OBJECT_PENDING) {
            vec_push(&t->uses[i]->waiting, t);
            t->missing++;
        }
    if (!t->missing)
        task_ready(p, t);
}

int tasks_submit(struct tasks_pool *p, struct connection *c, const struct tasks_submit *s) {
    bool unknown = false;
    if (s->id >> 40 != c->number || tasks_object_find(p, s->id))
        return -1;
    struct pool_task *t = task_new(p, c, s);
    struct object *owner = s->actor ? tasks_object_find(p, s->actor) : NULL;
    if (s->flags & TASKS_NEW_ACTOR)
        actor_new(p, t);
    const struct object *failed = add_uses(p, t, s, &unknown);
    if (s->actor && owner && owner->actor) {
        t->actor = owner->actor;
        tasks_object_ref(owner);
        queue_add(&t->actor->calls, t);
    }
    t->shape = shape_of(p, t->cpu_milli, t->gpu_milli);
    struct object *fn = s->function ? tasks_object_find(p, s->function) : NULL;
    if (fn) {
        t->function = fn;
        tasks_object_ref(fn);
    }
    const char *wrong = impossible(p, s);
    if (failed)
        task_fail_with(p, t, failed->error, (failed->bytes->refs++, failed->bytes));
    else if (unknown || (s->function && !fn))
        task_failf(p, t, TASKS_UNKNOWN,
                   "a reference among the arguments is not known to the pool: its value was freed");
    else if (s->actor && (!t->actor || t->actor->stopped))
        task_failf(p, t, TASKS_ACTOR_LOST, "the actor has ended");
    else if (wrong)
        task_failf(p, t, TASKS_IMPOSSIBLE, wrong);
    else if (!t->shape)
        task_failf(p, t, TASKS_IMPOSSIBLE, "the pool has tasks of too many different needs of CPUs and GPUs");
    else if (p->held_bytes > p->o.held_bytes)
        task_failf(p, t, TASKS_FULL,
                   "the pool holds too many bytes of arguments and small values; release references, "
                   "submit less at once, or give the pool more memory");
    else
        wait_or_begin(p, t);
    return 0;
}

// One whose value was lost.
void tasks_start_again(struct tasks_pool *p, struct pool_task *t) {
    struct object *failed = NULL;
    list_task(p, t);
    t->state = TASK_WAITING;
    t->missing = 0;
    for (uint32_t i = 0; i < t->ndependencies; i++)
        if (t->uses[i]->state == OBJECT_FAILED)
            failed = t->uses[i];
    if (failed)
        task_fail_with(p, t, failed->error, (failed->bytes->refs++, failed->bytes));
    else
        wait_or_begin(p, t);
}

static void learn(struct pool_task *t, uint32_t micros) {
    if (!t->function)
        return;
    uint32_t *a = &t->function->average_us, us = micros ? micros : 1;
    *a = *a ? (uint32_t)((*a * 7ULL + us) / 8) : us;
    if (!*a)
        *a = 1;
}

// What a task wrote, with its length before it, then what its worker says of the exception: the traceback, with its
// length before it, and a pickle.
static struct blob *exception(struct tasks_pool *p, struct pool_worker *w, const struct tasks_done *d) {
    cleanup_buf struct buf out = {0}, b = {0};
    p->host->output(p->ctx, w->number, &out);
    tasks_add_u32(&b, (uint32_t)out.len);
    buf_add(&b, out.data, out.len);
    buf_add(&b, d->value, d->value_len);
    return tasks_blob_new(p, b.data, b.len);
}

static void made_again(struct tasks_pool *p, struct pool_worker *w, struct pool_actor *a,
                       const struct tasks_done *d) {
    tasks_blocked(p, w, false);
    queue_remove(&w->given, a->maker);
    a->maker->worker = NULL;
    a->maker->state = TASK_STATES;
    if (d->error) {
        struct blob *why = exception(p, w, d);
        actor_failed(p, a, TASKS_EXCEPTION, why);
        actor_stop(p, a, false);
        tasks_blob_unref(p, why);
        return;
    }
    a->ready = !a->stopped;
    actor_dispatch(p, a);
}

int tasks_done(struct tasks_pool *p, struct connection *c, const struct tasks_done *d) {
    struct pool_worker *w = c->worker;
    struct object *o = tasks_object_find(p, d->id);
    if (!w || !o)
        return -1;
    if (o->actor && o->actor->maker && o->actor->worker == w && o->actor->maker->state == TASK_GIVEN &&
        o->actor->maker->worker == w) {
        made_again(p, w, o->actor, d);
        return 0;
    }
    struct pool_task *t = o->task;
    if (!t || t->worker != w || t->state != TASK_GIVEN ||
        (d->shared && !(o->places.len && o->allocator == c->number)))
        return -1;
    tasks_blocked(p, w, false);
    queue_remove(&w->given, t);
    w->since_us = p->now_us;
    learn(t, d->micros);
    t->state = TASK_STATES;  // in no queue
    tasks_object_nest(p, o, d->nested, d->nnested);
    if (d->error) {
        tasks_object_fail(p, o, TASKS_EXCEPTION, exception(p, w, d));
    } else if (d->shared) {
        tasks_object_shared(p, o);
    } else {
        tasks_object_unallocate(p, o);
        tasks_object_value(p, o, d->value, d->value_len);
    }
    struct pool_actor *a = t->flags & TASKS_NEW_ACTOR ? o->actor : t->actor;
    bool makes = t->flags & TASKS_NEW_ACTOR;
    task_ended(p, t, d->micros);
    if (a && makes && d->error) {
        actor_failed(p, a, TASKS_EXCEPTION, o->bytes);
        actor_stop(p, a, false);
    } else if (a) {
        a->ready = !a->stopped;
        a->calls_done += !makes;
        actor_dispatch(p, a);
    } else if (!w->given.len) {
        worker_idle(p, w);
    }
    return 0;
}

void tasks_cancel(struct tasks_pool *p, struct object *o, bool force) {
    struct pool_task *t = o->task;
    if (!t)
        return;
    if (t->state == TASK_GIVEN) {  // it has begun, or comes back
        t->cancel = true;
        t->force |= force;
        tasks_take_back(p, t->worker);
        return;
    }
    task_failf(p, t, TASKS_CANCELLED, "the task was cancelled");
}

void tasks_actor_kill(struct tasks_pool *p, struct pool_actor *a) {
    a->restarts = 0;
    if (a->worker) {
        p->host->stop(p->ctx, a->worker->number, true);
    } else if (a->maker && a->maker->state == TASK_READY) {  // it waits to be made again
        static const char text[] = "the actor was ended";
        struct blob *why = tasks_blob_new(p, text, strlen(text));
        unqueue(a->maker);
        a->maker->state = TASK_STATES;
        actor_failed(p, a, TASKS_ACTOR_LOST, why);
        tasks_blob_unref(p, why);
    }
}

// --- lost workers ---

static void actor_lost(struct tasks_pool *p, struct pool_actor *a, struct pool_worker *w, const char *how) {
    cleanup_buf struct buf text = {0};
    a->worker = NULL;
    a->ready = false;
    bool making = a->maker && a->maker->state == TASK_GIVEN && a->maker->worker == w;
    if (making) {
        queue_remove(&w->given, a->maker);
        a->maker->worker = NULL;
        a->maker->state = TASK_STATES;
    } else if (a->maker && a->maker->state == TASK_READY) {  // it was not begun, and was taken back
        unqueue(a->maker);
        a->maker->state = TASK_STATES;
    }
    buf_addf(&text, "the process of actor %s ended (%s)", a->name, how);
    struct blob *why = tasks_blob_new(p, text.data, text.len);
    if (a->handle->task && a->handle->task->state == TASK_READY)  // the same, of one that never lived
        task_fail_with(p, a->handle->task, TASKS_ACTOR_LOST, (why->refs++, why));
    while (w->given.first) {
        struct pool_task *t = w->given.first;
        if (t->retries && a->restarts && t != a->handle->task) {
            t->retries--;
            p->nretried++;
            queue_remove(&w->given, t);
            requeue(t);
            continue;
        }
        task_fail_with(p, t, TASKS_ACTOR_LOST, (why->refs++, why));
    }
    if (!a->stopped && a->restarts && a->maker) {
        a->restarts--;
        a->maker->state = TASK_READY;
        queue_add_first(ready_queue(a->maker), a->maker);
    } else {
        actor_failed(p, a, TASKS_ACTOR_LOST, why);
    }
    tasks_blob_unref(p, why);
}

static void task_lost(struct tasks_pool *p, struct pool_worker *w, struct pool_task *t, const char *how) {
    cleanup_buf struct buf text = {0};
    tasks_object_unallocate(p, t->result);
    if (t->cancelled) {
        task_failf(p, t, TASKS_CANCELLED, "the task was cancelled while it ran");
        return;
    }
    if (t->retries) {
        t->retries--;
        p->nretried++;
        queue_remove(&w->given, t);
        t->tries++;  // unlike one that it had not begun
        requeue(t);
        return;
    }
    buf_addf(&text, "the worker process ended (%s) while it ran %s, try %u", how, t->name, t->tries);
    cleanup_buf struct buf out = {0};
    p->host->output(p->ctx, w->number, &out);
    if (out.len)
        buf_addf(&text, "; its output ends with:\n%.*s", (int)out.len, out.data);
    task_failf(p, t, TASKS_WORKER_LOST, buf_str(&text));
}

void tasks_pool_worker_ended(struct tasks_pool *p, uint32_t worker, const char *how, int64_t now_us) {
    struct pool_worker *w = map_get(&p->workers, worker);
    p->now_us = now_us;
    if (!w)
        return;
    w->stopping = true;
    drop_from(w);
    if (!w->node->number)  // others have said before what came back
        tasks_take_back(p, w);
    if (w->actor)
        actor_lost(p, w->actor, w, how);
    while (w->given.first)
        task_lost(p, w, w->given.first, how);
    if (!w->blocked)
        w->node->cpu_free += w->cpu_milli;
    w->node->nworkers--;
    gpu_give_back(w);
    map_remove(&p->workers, worker);
    struct connection *c = w->conn == UINT32_MAX ? NULL : tasks_connection(p, w->conn);
    if (c)
        c->worker = NULL;
    free(w);
    tasks_object_work(p);
    tasks_dispatch(p);
    tasks_object_work(p);
}
