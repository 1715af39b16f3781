// Owns the lists that `acequia tasks`, `actors` and `objects` show, as JSON.
#include <stdio.h>
#include <string.h>

#include "base/json.h"
#include "state.h"

static void put_u64(struct json_writer *w, const char *key, uint64_t v) {
    json_key(w, key);
    json_put_u64(w, v);
}

static void put_id(struct json_writer *w, const char *key, uint64_t id) {
    char text[24];
    snprintf(text, sizeof text, "%llx", (unsigned long long)id);
    json_kv_str(w, key, text);
}

// Names come from users: what is no UTF-8 must not break the document.
static void put_text(struct json_writer *w, const char *key, const char *text) {
    cleanup_buf struct buf clean = {0};
    for (const char *s = text; s && *s; s++)
        buf_addc(&clean, (unsigned char)*s < 0x80 ? *s : '?');
    json_kv_str(w, key, buf_str(&clean));
}

static const char *state_of(const struct pool_task *t) {
    if (t->state == TASK_GIVEN)
        return t->worker->given.first == t ? t->worker->blocked ? "blocked" : "running" : "given";
    return t->missing ? "waiting" : "ready";
}

static void put_task(struct tasks_pool *p, struct json_writer *w, const struct pool_task *t) {
    json_open(w, '{');
    put_id(w, "id", t->result->id);
    put_text(w, "name", t->name);
    json_kv_str(w, "state", state_of(t));
    put_u64(w, "cpu_milli", t->cpu_milli);
    put_u64(w, "gpu_milli", t->gpu_milli);
    put_u64(w, "tries", t->tries);
    put_u64(w, "waits_for", t->missing);
    put_u64(w, "age_us", (uint64_t)(p->now_us - t->since_us));
    if (t->worker) {
        put_u64(w, "worker", t->worker->number);
        put_text(w, "node", t->worker->node->name);
    }
    if (t->actor)
        put_id(w, "actor", t->actor->handle->id);
    json_close(w, '}');
}

static void put_finished(struct json_writer *w, const struct finished *f) {
    json_open(w, '{');
    put_id(w, "id", f->id);
    put_text(w, "name", f->name);
    json_kv_str(w, "state", f->failed ? "failed" : "finished");
    put_u64(w, "tries", f->tries);
    put_u64(w, "micros", f->micros);
    if (f->worker != UINT32_MAX)
        put_u64(w, "worker", f->worker);
    if (f->error)
        put_text(w, "error", f->error);
    if (f->output)
        put_text(w, "output", f->output);
    json_close(w, '}');
}

static void list_tasks(struct tasks_pool *p, struct json_writer *w, uint64_t id, uint32_t limit) {
    uint32_t n = 0;
    for (const struct pool_task *t = p->tasks; t && n < limit && w->out->len < LIST_BYTES; t = t->all_next)
        if (!id || t->result->id == id) {
            put_task(p, w, t);
            n++;
        }
    uint64_t kept = p->nfinished < FINISHED_KEPT ? p->nfinished : FINISHED_KEPT;
    for (uint64_t i = 0; i < kept && n < limit && w->out->len < LIST_BYTES; i++) {
        const struct finished *f = &p->finished[(p->nfinished - 1 - i) % FINISHED_KEPT];
        if (!id || f->id == id) {
            put_finished(w, f);
            n++;
        }
    }
}

static void list_actors(struct tasks_pool *p, struct json_writer *w, uint64_t id, uint32_t limit) {
    uint64_t key;
    void *value;
    uint32_t n = 0;
    for (size_t it = 0; n < limit && w->out->len < LIST_BYTES && map_next(&p->actors, &it, &key, &value);) {
        const struct pool_actor *a = value;
        if (id && id != key)
            continue;
        json_open(w, '{');
        put_id(w, "id", key);
        put_text(w, "name", a->name);
        json_kv_str(w, "state", a->stopped ? "ended" : a->ready ? "ready" : "starting");
        put_u64(w, "calls", a->calls_done);
        put_u64(w, "waiting", a->calls.len);
        put_u64(w, "restarts_left", a->restarts);
        if (a->worker) {
            put_u64(w, "worker", a->worker->number);
            put_text(w, "node", a->worker->node->name);
        }
        json_close(w, '}');
        n++;
    }
}

static void list_objects(struct tasks_pool *p, struct json_writer *w, uint64_t id, uint32_t limit) {
    static const char *const states[OBJECT_STATES] = {"pending", "unsealed", "small", "shared", "failed"};
    uint64_t key;
    void *value;
    uint32_t n = 0;
    for (size_t it = 0; n < limit && w->out->len < LIST_BYTES && map_next(&p->objects, &it, &key, &value);) {
        const struct object *o = value;
        if ((id && id != key) || o->actor)
            continue;
        json_open(w, '{');
        put_id(w, "id", key);
        json_kv_str(w, "state", states[o->state]);
        put_u64(w, "bytes", o->places.len ? o->size : o->bytes ? o->bytes->len : 0);
        put_u64(w, "references", o->refs);
        put_u64(w, "holders", o->holders.len);
        put_u64(w, "nodes", o->places.len);
        json_close(w, '}');
        n++;
    }
}

static void list_nodes(struct tasks_pool *p, struct json_writer *w) {
    for (uint32_t i = 0; i < p->nodes.len && w->out->len < LIST_BYTES; i++) {
        const struct pool_node *n = p->nodes.at[i];
        json_open(w, '{');
        put_u64(w, "number", n->number);
        put_text(w, "name", n->name);
        put_u64(w, "cpus", n->cpus);
        put_u64(w, "gpus", n->gpus);
        put_u64(w, "workers", n->nworkers);
        put_u64(w, "memory_bytes", n->space.total);
        put_u64(w, "memory_used_bytes", n->space.used);
        json_close(w, '}');
    }
}

static void put_summary(struct tasks_pool *p, struct json_writer *w) {
    uint64_t counts[TASK_STATES] = {0};
    uint64_t total = 0, used = 0, cpus = 0, gpus = 0;
    for (const struct pool_task *t = p->tasks; t; t = t->all_next)
        counts[t->state < TASK_STATES ? t->state : 0]++;
    for (uint32_t i = 0; i < p->nodes.len; i++) {
        total += p->nodes.at[i]->space.total;
        used += p->nodes.at[i]->space.used;
        cpus += p->nodes.at[i]->cpus;
        gpus += p->nodes.at[i]->gpus;
    }
    put_u64(w, "waiting", counts[TASK_WAITING]);
    put_u64(w, "ready", counts[TASK_READY]);
    put_u64(w, "given", counts[TASK_GIVEN]);
    put_u64(w, "finished", p->nfinished - p->nfailed);
    put_u64(w, "failed", p->nfailed);
    put_u64(w, "retried", p->nretried);
    put_u64(w, "actors", p->actors.len);
    put_u64(w, "objects", p->objects.len);
    put_u64(w, "memory_bytes", total);
    put_u64(w, "memory_used_bytes", used);
    put_u64(w, "small_bytes", p->held_bytes);
    put_u64(w, "workers", p->workers.len);
    put_u64(w, "cpus", cpus);
    put_u64(w, "gpus", gpus);
    put_u64(w, "nodes", p->nodes.len);
    put_u64(w, "made_again", p->nagain);
    put_u64(w, "moved", p->nmoved);
    put_u64(w, "moved_bytes", p->moved_bytes);
}

void tasks_list(struct tasks_pool *p, struct connection *c, uint8_t what, uint64_t id, uint32_t limit) {
    cleanup_buf struct buf text = {0};
    struct json_writer w = {.out = &text};
    uint32_t most = !limit || limit > LIST_MAX ? LIST_MAX : limit;
    json_open(&w, '{');
    json_open_key(&w, "summary", '{');
    put_summary(p, &w);
    json_close(&w, '}');
    json_open_key(&w, "rows", '[');
    if (what == TASKS_LIST_TASKS)
        list_tasks(p, &w, id, most);
    else if (what == TASKS_LIST_ACTORS)
        list_actors(p, &w, id, most);
    else if (what == TASKS_LIST_OBJECTS)
        list_objects(p, &w, id, most);
    else if (what == TASKS_LIST_NODES)
        list_nodes(p, &w);
    json_close(&w, ']');
    json_close(&w, '}');
    struct buf head = {0};
    tasks_begin(&head, TASKS_LISTED, text.len);
    buf_add(&head, text.data, text.len);
    p->host->send(p->ctx, c->number, &head);
    buf_done(&head);
}
