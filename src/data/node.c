// See the header. One thread decides and talks to workers; reading, decoding and writing is the pool's.
#include "node.h"

#include <errno.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/alloc.h"
#include "base/cleanup.h"
#include "base/clock.h"
#include "base/json.h"
#include "base/text.h"
#include "load.h"
#include "memory.h"
#include "pool.h"
#include "worker.h"

enum {
    EVENTS = 64,
    LOST_MAX = 5,           // ends of one worker without a result in between
    REMOTE_THREADS = 16,    // more than cores: they wait for the network
    BATCH_MAX = 1024,
    PIECES_MESSAGE_MAX = 1 << 20,
};

struct write_task {
    struct data_task task;
    struct data_node *node;
    struct data_chunk *chunk;
    struct buf text;          // made by the task, or
    uint64_t at, size, room;  // made by the writer in the shared memory; room: what was taken for it
    char *part;
    struct error error;
};

struct data_node {
    const struct data_plan *plan;
    struct data_node_options o;
    struct data_node_hooks hooks;
    void *ctx;
    int epoll, wake;
    struct data_memory memory;
    struct data_pool *pool;
    struct data_loader loader;
    struct data_flow flow;
    VEC(struct data_worker *) workers;  // of all stages, one after the other
    struct data_worker *writer;         // of Parquet
    VEC(struct data_chunk *) to_writer;
    struct data_chunk *with_writer;
    VEC(struct data_chunk *) not_begun;  // no room to load them
    uint32_t *first_worker, threads;
    char **gpu_sets;
    uint64_t next_job;
    struct buf packet;
    bool failed;
    int64_t figures_us;
    double figures_loading, *figures_working;
};

static void fail(struct data_node *n, const struct error *e) {
    if (n->failed)
        return;
    n->failed = n->flow.broken = true;
    n->hooks.failed(n->ctx, e);
}

// --- blocks ---

static void block_free(void *ctx, struct data_block *b) {
    struct data_node *n = ctx;
    if (b->size)
        data_memory_give(&n->memory, b->at, b->size, b->input);
    data_block_free(b);
}

static void loaded(void *ctx, struct data_chunk *c, struct data_block *b) {
    struct data_node *n = ctx;
    b->input = true;
    data_flow_loaded(&n->flow, c, b);
}

static void load_failed(void *ctx, struct data_chunk *c, const char *address, const char *text) {
    struct data_node *n = ctx;
    data_flow_failure(&n->flow, c, address, text);
}

static bool load(void *ctx, struct data_chunk *c) {
    struct data_node *n = ctx;
    return data_load_begin(&n->loader, c);
}

// --- parts ---

static const char *part_ending(const struct data_node *n) {
    return n->plan->output->kind == DATA_OUT_JSONL ? "jsonl"
           : n->plan->output->kind == DATA_OUT_CSV ? "csv"
                                                   : "parquet";
}

static void write_run(struct data_task *t, struct data_fetcher *f) {
    struct write_task *w = (struct write_task *)t;
    struct data_node *n = w->node;
    int r = 0;
    if (!w->size) {
        bool first = true, csv = n->plan->output->kind == DATA_OUT_CSV;
        for (struct data_piece *p = w->chunk->first; p && !r; p = p->next, first = false)
            r = csv ? data_block_csv(p->block, n->memory.at, p->from, p->count, first, &w->text, &w->error)
                    : data_block_jsonl(p->block, n->memory.at, p->from, p->count, &w->text);
    }
    const void *bytes = w->size ? (const void *)(n->memory.at + w->at) : w->text.data;
    size_t len = w->size ? w->size : w->text.len;
    cleanup_free char *address = xasprintf("%s%s", n->o.scheme_part, w->part);
    if (!r)
        r = data_write(f, address, bytes, len, &w->error);
    if (r && !w->error.code)
        error_set(&w->error, -r, "%s cannot be written", address);
}

static void chunk_finished(struct data_node *n, struct data_chunk *c, const char *part, uint64_t bytes) {
    n->hooks.done(n->ctx, &(struct data_node_result){c, part, c->rows_out, bytes});
    data_flow_written(&n->flow, c);
}

static void write_done(struct data_task *t) {
    struct write_task *w = (struct write_task *)t;
    struct data_node *n = w->node;
    if (w->error.code)
        fail(n, &w->error);
    else
        chunk_finished(n, w->chunk, w->part, w->size ? w->size : w->text.len);
    if (w->size)
        data_memory_give(&n->memory, w->at, w->room, false);
    buf_done(&w->text);
    free(w->part);
    free(w);
}

static struct write_task *write_new(struct data_node *n, struct data_chunk *c) {
    struct write_task *w = xcalloc(1, sizeof *w);
    *w = (struct write_task){.task = {.run = write_run, .done = write_done}, .node = n, .chunk = c};
    // Named by the place of its first input: parts sort as the inputs do, also after a second run.
    w->part = xasprintf("part-%012llu.%s", (unsigned long long)c->id, part_ending(n));
    return w;
}

static void writer_next(struct data_node *n);

static void write_chunk(void *ctx, struct data_chunk *c) {
    struct data_node *n = ctx;
    uint32_t kind = n->plan->output->kind;
    if (kind == DATA_OUT_STREAM) {
        n->hooks.stream(n->ctx, c);
    } else if (kind == DATA_OUT_NONE || !c->rows_out) {
        chunk_finished(n, c, "", 0);
    } else if (kind == DATA_OUT_PARQUET) {
        vec_push(&n->to_writer, c);
        writer_next(n);
    } else {
        data_pool_give(n->pool, &write_new(n, c)->task);
    }
}

void data_node_streamed(struct data_node *n, struct data_chunk *c) {
    chunk_finished(n, c, "", 0);
}

// --- workers ---

static const char *gpus_of(const struct data_node *n, uint32_t worker) {
    return n->gpu_sets ? n->gpu_sets[worker] : NULL;
}

static int start_worker(struct data_node *n, struct data_worker *w, struct error *e) {
    bool writer = w == n->writer;
    struct data_worker_setup s = {.python = n->plan->python ? n->plan->python : "python3", .program = n->o.program,
                                  .memory_fd = n->memory.fd, .memory_size = n->memory.size};
    cleanup_free char *settings = NULL;
    if (writer) {
        settings = xasprintf("{\"kind\":\"writer\",\"memory\":%llu}", (unsigned long long)n->memory.size);
    } else {
        const struct data_stage *stage = &n->plan->stages.at[w->stage];
        s.threads = stage->threads ? stage->threads : n->threads;
        s.gpus = gpus_of(n, n->first_worker[w->stage] + w->index);
        settings = xasprintf("{\"kind\":\"%s\",\"memory\":%llu,\"threads\":%u,\"settings\":%s}",
                             data_stage_words[stage->kind], (unsigned long long)n->memory.size, s.threads,
                             stage->settings);
    }
    s.settings = settings;
    int r = data_worker_start(w, &s, e);
    if (r)
        return r;
    struct epoll_event event = {.events = EPOLLIN, .data.ptr = w};
    epoll_ctl(n->epoll, EPOLL_CTL_ADD, w->fd, &event);
    return 0;
}

static void give_room_back(struct data_node *n, struct data_worker *w) {
    if (w->room_size)
        data_memory_give(&n->memory, w->room_at, w->room_size, false);
    w->room_size = w->wants = 0;
}

static const char *stage_name(const struct data_node *n, const struct data_worker *w) {
    return w == n->writer                      ? "the Parquet writer"
           : n->plan->stages.at[w->stage].name ? n->plan->stages.at[w->stage].name
                                               : "a stage";
}

static void worker_lost(struct data_node *n, struct data_worker *w) {
    int status = 0;
    bool before_ready = w->state == DATA_WORKER_STARTING;
    data_worker_kill(w, &status);
    give_room_back(n, w);
    bool killed = WIFSIGNALED(status) && WTERMSIG(status) == SIGKILL;
    struct error e = {0};
    char text[256];
    if (WIFSIGNALED(status))
        snprintf(text, sizeof text, "the process that ran %s was ended by signal %d%s", stage_name(n, w),
                 WTERMSIG(status), killed ? " (out of memory?)" : "");
    else
        snprintf(text, sizeof text, "the process that ran %s ended with status %d", stage_name(n, w),
                 WEXITSTATUS(status));
    if (++w->lost >= LOST_MAX || (before_ready && !killed)) {
        error_set(&e, ECHILD, "%s%s; what it said stands above", text,
                  before_ready ? " before it was ready" : " again and again");
        fail(n, &e);
        return;
    }
    if (w == n->writer) {
        if (n->with_writer)
            vec_push(&n->to_writer, n->with_writer);
        n->with_writer = NULL;
    } else {
        data_flow_worker_lost(&n->flow, w->stage, w->index, killed, text);
    }
    if (start_worker(n, w, &e))
        fail(n, &e);
}

static void send_or_lose(struct data_node *n, struct data_worker *w, const struct buf *b) {
    int r = data_worker_send(w, b);
    struct error e = {0};
    if (r == -EMSGSIZE) {
        error_set(&e, E2BIG, "a batch of %s has too many columns for one message", stage_name(n, w));
        fail(n, &e);
    }  // anything else is seen when its socket is read
}

static void run_piece(void *ctx, uint32_t stage, uint32_t worker, struct data_piece *p) {
    struct data_node *n = ctx;
    struct data_worker *w = n->workers.at[n->first_worker[stage] + worker];
    struct buf cleanup_buf b = {0};
    struct json_writer j = {.out = &b};
    w->state = DATA_WORKER_BUSY;
    w->job = ++n->next_job;
    json_open(&j, '{');
    json_kv_i64(&j, "run", (int64_t)w->job);
    json_kv_i64(&j, "rows", (int64_t)p->count);
    data_block_describe(p->block, p->from, p->count, &j);
    json_close(&j, '}');
    send_or_lose(n, w, &b);
}

static void writer_next(struct data_node *n) {
    if (n->with_writer || !n->to_writer.len || !n->writer || n->writer->state != DATA_WORKER_READY)
        return;
    struct data_chunk *c = n->to_writer.at[0];
    vec_remove(&n->to_writer, 0);
    n->with_writer = c;
    struct buf cleanup_buf b = {0};
    struct json_writer j = {.out = &b};
    n->writer->state = DATA_WORKER_BUSY;
    n->writer->job = ++n->next_job;
    json_open(&j, '{');
    json_kv_i64(&j, "write", (int64_t)n->writer->job);
    json_open_key(&j, "pieces", '[');
    for (struct data_piece *p = c->first; p; p = p->next) {
        json_open(&j, '{');
        json_kv_i64(&j, "rows", (int64_t)p->count);
        data_block_describe(p->block, p->from, p->count, &j);
        json_close(&j, '}');
    }
    json_close(&j, ']');
    json_close(&j, '}');
    send_or_lose(n, n->writer, &b);
}

static void give_room(struct data_node *n, struct data_worker *w) {
    uint64_t at;
    if (!w->wants || !data_memory_take(&n->memory, w->wants, false, &at))
        return;
    w->room_at = at;
    w->room_size = w->wants;
    w->wants = 0;
    struct buf cleanup_buf b = {0};
    buf_addf(&b, "{\"at\":%llu}", (unsigned long long)at);
    send_or_lose(n, w, &b);
}

static void on_written(struct data_node *n, struct data_worker *w, const struct json *j) {
    struct data_chunk *c = n->with_writer;
    int64_t size = json_i64(j, "size", -1);
    struct error e = {0};
    n->with_writer = NULL;
    w->state = DATA_WORKER_READY;
    if (!c || size <= 0 || (uint64_t)size > w->room_size) {
        error_set(&e, EBADMSG, "the Parquet writer answered what cannot be");
        fail(n, &e);
        return;
    }
    struct write_task *t = write_new(n, c);
    t->at = w->room_at;
    t->size = (uint64_t)size;
    t->room = w->room_size;
    w->room_size = 0;
    data_pool_give(n->pool, &t->task);
    writer_next(n);
}

static void on_result(struct data_node *n, struct data_worker *w, const struct json *j) {
    struct data_block *b = NULL;
    struct error e = {0};
    int64_t rows = json_i64(j, "rows", -1);
    int r = rows < 0 ? error_set(&e, EBADMSG, "a worker's answer says no number of rows")
                     : data_block_read(json_get(j, "columns"), (uint64_t)rows, n->memory.at, n->memory.size, &b, &e);
    if (r) {
        fail(n, &e);
        return;
    }
    b->at = w->room_at;
    b->size = w->room_size;
    w->room_size = 0;
    w->lost = 0;
    w->state = DATA_WORKER_READY;
    data_flow_result(&n->flow, w->stage, w->index, b, clock_mono_us());
}

static void on_message(struct data_node *n, struct data_worker *w, const struct json *j) {
    struct error e = {0};
    const char *error = json_str(j, "error");
    if (json_get(j, "ready") && w->state == DATA_WORKER_STARTING) {
        w->state = DATA_WORKER_READY;
        if (w == n->writer)
            writer_next(n);
        else
            data_flow_worker_ready(&n->flow, w->stage, w->index);
    } else if (json_get(j, "need") && !w->wants && !w->room_size) {
        int64_t need = json_i64(j, "need", 0);
        w->wants = need > 0 ? (uint64_t)need : 1;
        if (w->wants > n->memory.size) {
            error_set(&e, ENOMEM,
                      "a batch of %s needs %llu bytes for its results, the shared memory has %llu: use "
                      "smaller batches "
                      "or more memory",
                      stage_name(n, w), (unsigned long long)w->wants, (unsigned long long)n->memory.size);
            fail(n, &e);
            return;
        }
        give_room(n, w);
    } else if (json_i64(j, "written", 0) == (int64_t)w->job && w == n->writer) {
        on_written(n, w, j);
    } else if (json_i64(j, "done", 0) == (int64_t)w->job && w != n->writer) {
        on_result(n, w, j);
    } else if (error && (w == n->writer || json_true(j, "fatal"))) {
        error_set(&e, EINVAL, "%s: %s", stage_name(n, w), error);
        fail(n, &e);
    } else if (error) {
        give_room_back(n, w);
        w->state = DATA_WORKER_READY;
        w->lost = 0;
        data_flow_failed(&n->flow, w->stage, w->index, json_true(j, "memory"), error);
    } else {
        error_set(&e, EPROTO, "%s sent a message that nobody knows", stage_name(n, w));
        fail(n, &e);
    }
}

static void read_worker(struct data_node *n, struct data_worker *w) {
    while (w->fd >= 0 && !n->failed) {
        int r = data_worker_receive(w, &n->packet);
        if (r == 0)
            return;
        if (r < 0) {
            worker_lost(n, w);
            return;
        }
        struct arena cleanup_arena a = {0};
        struct json *j = NULL;
        if (json_parse(n->packet.data, n->packet.len, &a, &j, NULL) || j->type != JSON_OBJECT) {
            worker_lost(n, w);
            return;
        }
        on_message(n, w, j);
    }
}

// Everybody waits for room and nothing is under way that could give some back.
static void check_stuck(struct data_node *n) {
    bool waiting = n->loader.waiting != NULL || n->not_begun.len;
    for (uint32_t i = 0; i < n->workers.len; i++) {
        if (n->workers.at[i]->wants)
            waiting = true;
        else if (n->workers.at[i]->state != DATA_WORKER_READY)
            return;
    }
    if (n->writer && (n->with_writer || n->to_writer.len) && !n->writer->wants)
        return;
    for (struct data_chunk *c = n->flow.first; c; c = c->next)
        if (c->writing || (!c->loaded && !n->loader.waiting && !n->not_begun.len))
            return;
    for (uint32_t i = 0; i < n->flow.nstages; i++)
        if (n->flow.stages[i].first_ready && !waiting)
            return;
    if (!waiting || !n->flow.nchunks || data_pool_waiting(n->pool))
        return;
    struct error e = {0};
    error_set(&e, ENOMEM,
              "the shared memory of %llu MiB is too small for what is in work at once: use smaller batches, "
              "or more with "
              "--memory",
              (unsigned long long)(n->memory.size >> 20));
    fail(n, &e);
}

void data_node_step(struct data_node *n) {
    struct epoll_event events[EVENTS];
    int count = epoll_wait(n->epoll, events, EVENTS, 0);
    for (int i = 0; i < count; i++) {
        if (events[i].data.ptr) {
            read_worker(n, events[i].data.ptr);
        } else {
            uint64_t ignored;
            (void)!read(n->wake, &ignored, sizeof ignored);
            data_pool_finish(n->pool);
        }
    }
    if (n->failed)
        return;
    // Rooms for results first: they lead to memory that becomes free.
    if (n->writer)
        give_room(n, n->writer);
    for (uint32_t i = n->workers.len; i-- > 0;)
        give_room(n, n->workers.at[i]);
    data_load_again(&n->loader);
    while (n->not_begun.len && load(n, n->not_begun.at[0]))
        vec_remove(&n->not_begun, 0);
    data_flow_advance(&n->flow, clock_mono_us());
    check_stuck(n);
}

bool data_node_wants(const struct data_node *n, uint32_t *rows) {
    if (n->failed || n->not_begun.len || n->loader.waiting || !data_flow_wants(&n->flow, rows))
        return false;
    uint64_t row = data_load_row_bytes(n->plan->source);
    uint64_t fits = row ? n->memory.size / 8 / row : *rows;
    *rows = fits < 1 ? 1 : *rows > fits ? (uint32_t)fits : *rows;
    return true;
}

void data_node_add(struct data_node *n, struct data_chunk *c) {
    data_flow_add(&n->flow, c);
    if (!load(n, c))
        vec_push(&n->not_begun, c);
}

bool data_node_idle(const struct data_node *n) {
    return n->flow.nchunks == 0;
}

int data_node_fd(const struct data_node *n) {
    return n->epoll;
}

uint64_t data_node_failures(const struct data_node *n, const char **last) {
    *last = n->flow.last_failure ? n->flow.last_failure : "";
    return n->flow.failures;
}

// --- beginning ---

// How many processes a stage has: as was asked, or as many as CPUs and GPUs allow, shared among the stages.
static uint32_t replicas_of(const struct data_node *n, const struct data_stage *s, uint32_t ngpus) {
    if (s->replicas)
        return s->replicas;
    if (s->gpus > 0) {
        uint32_t fit = s->gpus >= 1 ? ngpus / (uint32_t)s->gpus : ngpus * (uint32_t)(1 / s->gpus);
        return fit ? fit : 1;
    }
    double each = s->cpus > 0 ? s->cpus : 1;
    uint32_t fit = (uint32_t)(n->o.cpus / each);
    return fit ? fit : 1;
}

static uint32_t split_gpus(const char *text, char **out, uint32_t max) {
    uint32_t count = 0;
    for (const char *at = text ? text : ""; *at && count < max;) {
        size_t len = strcspn(at, ",");
        if (len)
            out[count++] = xstrndup(at, len);
        at += len + (at[len] == ',');
    }
    return count;
}

// Whole GPUs for one process each, or several processes on one.
static char *gpu_set(char *const *gpus, uint32_t ngpus, const struct data_stage *s, uint32_t index) {
    if (!(s->gpus > 0) || !ngpus)
        return s->gpus > 0 || !ngpus ? NULL : xstrdup("");
    struct buf b = {0};
    uint32_t each = s->gpus >= 1 ? (uint32_t)s->gpus : 1;
    uint32_t share = s->gpus >= 1 ? 1 : (uint32_t)(1 / s->gpus);
    uint32_t from = index / share * each;
    for (uint32_t i = 0; i < each; i++)
        buf_addf(&b, "%s%s", i ? "," : "", gpus[(from + i) % ngpus]);
    return buf_take(&b);
}

static int start_stages(struct data_node *n, struct error *e) {
    enum { GPUS_MAX = 256 };
    char *gpus[GPUS_MAX];
    uint32_t ngpus = split_gpus(n->o.gpus, gpus, GPUS_MAX), nstages = n->plan->stages.len;
    uint64_t row = data_load_row_bytes(n->plan->source);
    int r = 0;
    n->first_worker = xcalloc(nstages + 1, sizeof *n->first_worker);
    n->figures_working = xcalloc(nstages + 1, sizeof *n->figures_working);
    VEC(char *) sets = {0};
    for (uint32_t i = 0; i < nstages && !r; i++) {
        const struct data_stage *s = &n->plan->stages.at[i];
        uint32_t replicas = replicas_of(n, s, ngpus);
        if (s->gpus > ngpus)
            r = error_set(e, EINVAL, "stage %s needs %g GPUs, this job has %u: ask for more with --gpus",
                          s->name ? s->name : "", s->gpus, ngpus);
        if (replicas > DATA_REPLICAS_MAX)
            replicas = DATA_REPLICAS_MAX;
        uint64_t fits = row ? n->memory.size / 16 / row / replicas : BATCH_MAX;
        data_flow_stage_init(&n->flow, i, s->batch,
                             fits < 1           ? 1
                             : fits > BATCH_MAX ? BATCH_MAX
                                                : (uint32_t)fits,
                             replicas);
        n->first_worker[i] = n->workers.len;
        for (uint32_t k = 0; k < replicas; k++) {
            struct data_worker *w = xcalloc(1, sizeof *w);
            *w = (struct data_worker){.stage = i, .index = k, .fd = -1};
            vec_push(&n->workers, w);
            vec_push(&sets, gpu_set(gpus, ngpus, s, k));
        }
    }
    n->gpu_sets = sets.at;
    for (uint32_t i = 0; i < ngpus; i++)
        free(gpus[i]);
    for (uint32_t i = 0; i < n->workers.len && !r; i++)
        r = start_worker(n, n->workers.at[i], e);
    if (!r && n->plan->output->kind == DATA_OUT_PARQUET) {
        n->writer = xcalloc(1, sizeof *n->writer);
        *n->writer = (struct data_worker){.stage = nstages, .fd = -1};
        r = start_worker(n, n->writer, e);
    }
    return r;
}

int data_node_new(const struct data_plan *plan, struct data_remote *remote, const struct data_node_options *o,
                  const struct data_node_hooks *hooks, void *ctx, struct data_node **out, struct error *e) {
    struct data_node *n = xcalloc(1, sizeof *n);
    *n = (struct data_node){.plan = plan, .o = *o, .hooks = *hooks, .ctx = ctx, .threads = 1};
    n->epoll = epoll_create1(EPOLL_CLOEXEC);
    n->wake = eventfd(0, EFD_NONBLOCK | EFD_CLOEXEC);
    struct epoll_event event = {.events = EPOLLIN};
    epoll_ctl(n->epoll, EPOLL_CTL_ADD, n->wake, &event);
    data_flow_init(&n->flow, plan->stages.len,
                   &(struct data_flow_hooks){
                       .load = load, .run = run_piece, .write = write_chunk, .block_free = block_free},
                   n);
    int r = data_memory_init(&n->memory, o->memory_fd, o->memory_bytes, e);
    bool far = false;
    for (uint32_t i = 0; i < plan->source->inputs.len; i++)
        far |= data_is_remote(plan->source->inputs.at[i]) || plan->source->inputs.at[i][0] == '@';
    n->pool = data_pool_new(o->cpus + 1 + (far ? REMOTE_THREADS : 0), remote, n->wake);
    n->loader = (struct data_loader){.source = plan->source,
                                     .memory = &n->memory,
                                     .pool = n->pool,
                                     .loaded = loaded,
                                     .failed = load_failed,
                                     .ctx = n};
    n->figures_us = clock_mono_us();
    if (!r)
        r = start_stages(n, e);
    if (r) {
        data_node_free(n);
        return r;
    }
    *out = n;
    return 0;
}

void data_node_free(struct data_node *n) {
    if (!n)
        return;
    int status;
    data_pool_free(n->pool);
    for (uint32_t i = 0; i < n->workers.len; i++) {  // all end at once, and are then waited for one by one
        if (n->workers.at[i]->fd >= 0)
            close(n->workers.at[i]->fd);
        n->workers.at[i]->fd = -1;
    }
    for (uint32_t i = 0; i < n->workers.len; i++) {
        data_worker_kill(n->workers.at[i], &status);
        free(n->workers.at[i]);
        free(n->gpu_sets[i]);
    }
    if (n->writer)
        data_worker_kill(n->writer, &status);
    free(n->writer);
    free(n->gpu_sets);
    free(n->first_worker);
    free(n->figures_working);
    vec_done(&n->workers);
    vec_done(&n->to_writer);
    vec_done(&n->not_begun);
    buf_done(&n->packet);
    data_flow_done(&n->flow);
    data_memory_done(&n->memory);
    close(n->wake);
    close(n->epoll);
    free(n);
}

// --- figures ---

void data_node_figures(struct data_node *n, struct data_node_figures *out) {
    int64_t now = clock_mono_us();
    double span = (double)(now - n->figures_us) + 1, loading = data_pool_busy_us(n->pool);
    *out = (struct data_node_figures){.memory_peak = n->memory.peak};
    out->loading = (loading - n->figures_loading) / span / n->o.cpus;
    for (uint32_t i = 0; i < n->flow.nstages; i++) {
        const struct data_flow_stage *s = &n->flow.stages[i];
        double busy = s->busy_us;
        for (uint32_t k = 0; k < s->workers; k++)
            if (s->busy.at[k])
                busy += (double)(now - s->busy.at[k]->begun_us);
        double part = (busy - n->figures_working[i]) / span / s->workers;
        n->figures_working[i] = busy;
        if (part > out->working) {
            out->working = part;
            out->slowest = i;
        }
    }
    n->figures_loading = loading;
    n->figures_us = now;
}

void data_node_explain(const struct data_node *n, struct buf *out) {
    for (uint32_t i = 0; i < n->flow.nstages; i++) {
        const struct data_flow_stage *s = &n->flow.stages[i];
        const struct data_stage *stage = &n->plan->stages.at[i];
        buf_addf(out, "%s: %u process%s of %u thread%s; batches of %u rows (%s)",
                 stage->name ? stage->name : data_stage_words[stage->kind], s->workers,
                 s->workers == 1 ? "" : "es", stage->threads ? stage->threads : n->threads,
                 (stage->threads ? stage->threads : n->threads) == 1 ? "" : "s", s->tuner.size,
                 s->tuner.fixed     ? "as asked"
                 : s->tuner.settled ? "found"
                                    : "still being tried");
        for (uint32_t c = 0; c < DATA_TUNER_CLASSES && !s->tuner.fixed; c++)
            if (s->tuner.classes[c].count)
                buf_addf(out, "%s%u: %.3g ms a row", c ? ", " : "; ", 1u << c, s->tuner.classes[c].row_us / 1000);
        buf_addf(out, "; %llu batches, %llu rows in, %llu out\n", (unsigned long long)s->batches,
                 (unsigned long long)s->rows_in, (unsigned long long)s->rows_out);
    }
    buf_addf(out, "shared memory: %llu of %llu MiB at most\n", (unsigned long long)(n->memory.peak >> 20),
             (unsigned long long)(n->memory.size >> 20));
}
