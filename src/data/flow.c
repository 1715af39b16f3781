// Owns chunks and their pieces. Invariants: the pieces of a chunk are in the order of its rows, whatever is cut out of
// them; each piece waits for its stage, is run by one worker, or is through; a chunk is written once all are through.
// Later stages go first, so that memory is given back before more is taken.
#include "flow.h"

#include <assert.h>
#include <stdlib.h>
#include <string.h>

#include "base/alloc.h"

enum { CHUNK_ROWS_MIN = 16, CHUNK_ROWS_MAX = 4096, BATCHES_PER_CHUNK = 4, LOADING_MAX = 8, WRITING_MAX = 64 };

void data_flow_init(struct data_flow *f, uint32_t stages, const struct data_flow_hooks *hooks, void *ctx) {
    *f = (struct data_flow){.hooks = *hooks, .ctx = ctx, .nstages = stages};
    f->stages = xcalloc(stages ? stages : 1, sizeof *f->stages);
}

void data_flow_stage_init(struct data_flow *f, uint32_t stage, uint32_t batch, uint32_t batch_max, uint32_t workers) {
    struct data_flow_stage *s = &f->stages[stage];
    data_tuner_init(&s->tuner, batch, batch_max, workers);
    s->workers = workers;
    for (uint32_t i = 0; i < workers; i++) {
        vec_push(&s->busy, NULL);
        vec_push(&s->ready, 0);
    }
}

// --- blocks, pieces and chunks ---

static void block_unref(struct data_flow *f, struct data_block *b) {
    assert(b->refs);
    if (!--b->refs)
        f->hooks.block_free(f->ctx, b);
}

struct data_chunk *data_chunk_new(uint64_t id) {
    struct data_chunk *c = xcalloc(1, sizeof *c);
    c->id = id;
    return c;
}

void data_chunk_free(struct data_chunk *c) {
    if (!c)
        return;
    for (uint32_t i = 0; i < c->failures.len; i++)
        free((char *)(uintptr_t)c->failures.at[i].text);
    vec_done(&c->failures);
    vec_done(&c->items);
    free(c->origins);
    arena_done(&c->arena);
    free(c);
}

void data_flow_failure(struct data_flow *f, struct data_chunk *c, const char *address, const char *text) {
    f->failures++;
    free(f->last_failure);
    f->last_failure = xstrndup(text, DATA_FAILURE_TEXT_MAX);
    vec_push(&c->failures, (struct data_failure){address, xstrndup(text, DATA_FAILURE_TEXT_MAX)});
}

static struct data_piece *piece_new(struct data_chunk *c, struct data_block *b, uint64_t from, uint64_t count,
                                    uint32_t stage) {
    struct data_piece *p = xcalloc(1, sizeof *p);
    *p = (struct data_piece){.chunk = c, .block = b, .from = from, .count = count, .stage = stage};
    b->refs++;
    return p;
}

static void piece_insert_after(struct data_chunk *c, struct data_piece *where, struct data_piece *p) {
    p->previous = where;
    p->next = where ? where->next : c->first;
    *(p->next ? &p->next->previous : &c->last) = p;
    *(where ? &where->next : &c->first) = p;
}

static void piece_remove(struct data_flow *f, struct data_piece *p) {
    struct data_chunk *c = p->chunk;
    *(p->previous ? &p->previous->next : &c->first) = p->next;
    *(p->next ? &p->next->previous : &c->last) = p->previous;
    block_unref(f, p->block);
    free(p);
}

static void chunk_unlink(struct data_flow *f, struct data_chunk *c) {
    struct data_chunk **at = &f->first, *before = NULL;
    while (*at != c) {
        before = *at;
        at = &(*at)->next;
    }
    *at = c->next;
    if (f->last == c)
        f->last = before;
    f->nchunks--;
}

static void chunk_drop(struct data_flow *f, struct data_chunk *c) {
    while (c->first)
        piece_remove(f, c->first);
    if (c->block)
        block_unref(f, c->block);
    c->block = NULL;
    chunk_unlink(f, c);
    data_chunk_free(c);
}

void data_flow_done(struct data_flow *f) {
    while (f->first)
        chunk_drop(f, f->first);
    for (uint32_t i = 0; i < f->nstages; i++) {
        vec_done(&f->stages[i].busy);
        vec_done(&f->stages[i].ready);
    }
    free(f->stages);
    free(f->last_failure);
    f->stages = NULL;
}

// --- queues of stages ---

static void enqueue(struct data_flow *f, struct data_piece *p, bool front) {
    struct data_flow_stage *s = &f->stages[p->stage];
    p->next_ready = front ? s->first_ready : NULL;
    if (front)
        s->first_ready = p;
    else
        *(s->last_ready ? &s->last_ready->next_ready : &s->first_ready) = p;
    if (!front || !s->last_ready)
        s->last_ready = p;
    s->ready_rows += p->count;
}

// The piece's rows go to the next stage, or the piece is through.
static void piece_arrives(struct data_flow *f, struct data_piece *p) {
    if (p->count && p->stage < f->nstages) {
        enqueue(f, p, false);
        return;
    }
    struct data_chunk *c = p->chunk;
    assert(c->pending);
    c->pending--;
    c->rows_out += p->count;
    p->through = true;
    if (!p->count)
        piece_remove(f, p);
}

static void chunk_check(struct data_flow *f, struct data_chunk *c) {
    if (!c->loaded || c->pending || c->writing)
        return;
    c->writing = true;
    f->hooks.write(f->ctx, c);
}

bool data_flow_wants(const struct data_flow *f, uint32_t *rows) {
    if (f->broken || f->nloading >= LOADING_MAX || f->nchunks >= WRITING_MAX)
        return false;
    *rows = CHUNK_ROWS_MIN * 4;
    if (!f->nstages)
        return f->nloading < LOADING_MAX / 2;
    const struct data_flow_stage *s = &f->stages[0];
    uint64_t one_round = (uint64_t)s->tuner.size * (s->workers ? s->workers : 1);
    uint64_t wanted = (uint64_t)s->tuner.size * BATCHES_PER_CHUNK;
    *rows = (uint32_t)(wanted < CHUNK_ROWS_MIN ? CHUNK_ROWS_MIN : wanted > CHUNK_ROWS_MAX ? CHUNK_ROWS_MAX : wanted);
    // As much again as the workers hold: whoever is done finds the next batch.
    return s->ready_rows + f->loading_rows < 2 * one_round;
}

void data_flow_add(struct data_flow *f, struct data_chunk *c) {
    *(f->last ? &f->last->next : &f->first) = c;
    f->last = c;
    f->nchunks++;
    f->nloading++;
    f->loading_rows += c->items.len;
}

void data_flow_loaded(struct data_flow *f, struct data_chunk *c, struct data_block *b) {
    f->nloading--;
    f->loading_rows -= c->items.len;
    c->loaded = true;
    c->block = b;
    c->rows_in = b ? b->rows : 0;
    f->loaded_rows += c->rows_in;
    if (c->rows_in) {
        struct data_piece *p = piece_new(c, b, 0, b->rows, 0);
        p->origins = c->origins != NULL;
        piece_insert_after(c, NULL, p);
        c->pending = 1;
        piece_arrives(f, p);
    }
    chunk_check(f, c);
}

// --- workers ---

void data_flow_worker_ready(struct data_flow *f, uint32_t stage, uint32_t worker) {
    struct data_flow_stage *s = &f->stages[stage];
    assert(!s->busy.at[worker]);
    s->ready.at[worker] = 1;
}

static struct data_piece *take_running(struct data_flow *f, uint32_t stage, uint32_t worker) {
    struct data_flow_stage *s = &f->stages[stage];
    struct data_piece *p = s->busy.at[worker];
    s->busy.at[worker] = NULL;
    if (p)
        s->running--;
    return p;
}

// Cuts the first `rows` rows off; they come before the rest.
static struct data_piece *piece_cut(struct data_piece *p, uint64_t rows) {
    struct data_piece *front = piece_new(p->chunk, p->block, p->from, rows, p->stage);
    front->tries = p->tries;
    front->origins = p->origins;
    front->first_row = p->first_row;
    piece_insert_after(p->chunk, p->previous, front);
    p->from += rows;
    p->first_row += rows;
    p->count -= rows;
    p->chunk->pending++;
    return front;
}

static const char *piece_address(const struct data_piece *p) {
    const struct data_chunk *c = p->chunk;
    uint32_t item = p->origins && c->origins ? c->origins[p->first_row] : 0;
    if (!c->items.len)
        return "";
    return c->items.at[item].name && strcmp(c->items.at[item].name, "group") ? c->items.at[item].name
                                                                             : c->items.at[item].address;
}

// A batch did not work: its halves are tried, until the row is found that does not; that one is put aside.
static void piece_failed(struct data_flow *f, struct data_piece *p, const char *text) {
    struct data_chunk *c = p->chunk;
    if (p->count > 1) {
        struct data_piece *front = piece_cut(p, p->count / 2);
        p->tries = front->tries = DATA_TRIES;  // halves are not tried three times again
        enqueue(f, p, true);
        enqueue(f, front, true);
        return;
    }
    data_flow_failure(f, c, piece_address(p), text);
    c->pending--;
    piece_remove(f, p);
    chunk_check(f, c);
}

void data_flow_worker_lost(struct data_flow *f, uint32_t stage, uint32_t worker, bool out_of_memory, const char *text) {
    struct data_flow_stage *s = &f->stages[stage];
    struct data_piece *p = take_running(f, stage, worker);
    s->ready.at[worker] = 0;
    if (!p)
        return;
    if (out_of_memory)
        data_tuner_too_large(&s->tuner, (uint32_t)p->count);
    if (++p->tries >= DATA_TRIES || (out_of_memory && p->count > 1))
        piece_failed(f, p, text);
    else
        enqueue(f, p, true);
}

void data_flow_failed(struct data_flow *f, uint32_t stage, uint32_t worker, bool out_of_memory, const char *text) {
    struct data_flow_stage *s = &f->stages[stage];
    struct data_piece *p = take_running(f, stage, worker);
    s->ready.at[worker] = 1;
    if (!p)
        return;
    if (out_of_memory)
        data_tuner_too_large(&s->tuner, (uint32_t)p->count);
    piece_failed(f, p, text);
}

void data_flow_result(struct data_flow *f, uint32_t stage, uint32_t worker, struct data_block *b, int64_t now_us) {
    struct data_flow_stage *s = &f->stages[stage];
    struct data_piece *p = take_running(f, stage, worker);
    s->ready.at[worker] = 1;
    if (!p) {
        block_unref(f, b);
        return;
    }
    double us = (double)(now_us - p->begun_us);
    s->busy_us += us;
    s->batches++;
    s->rows_in += p->count;
    s->rows_out += b->rows;
    data_tuner_report(&s->tuner, (uint32_t)p->count, us);
    struct data_chunk *c = p->chunk;
    block_unref(f, p->block);
    p->origins = p->origins && b->rows == p->count;
    p->block = b;  // its first reference
    p->from = 0;
    p->count = b->rows;
    p->tries = 0;
    p->stage++;
    piece_arrives(f, p);
    chunk_check(f, c);
}

static void dispatch(struct data_flow *f, uint32_t stage, int64_t now_us) {
    struct data_flow_stage *s = &f->stages[stage];
    for (uint32_t w = 0; w < s->workers && s->first_ready; w++) {
        if (!s->ready.at[w] || s->busy.at[w])
            continue;
        struct data_piece *p = s->first_ready;
        if (p->count > s->tuner.size) {
            s->ready_rows -= s->tuner.size;
            p = piece_cut(p, s->tuner.size);
        } else {
            s->first_ready = p->next_ready;
            if (!s->first_ready)
                s->last_ready = NULL;
            s->ready_rows -= p->count;
        }
        p->begun_us = now_us;
        s->busy.at[w] = p;
        s->running++;
        f->hooks.run(f->ctx, stage, w, p);
    }
}

void data_flow_advance(struct data_flow *f, int64_t now_us) {
    if (f->broken)
        return;
    for (uint32_t stage = f->nstages; stage-- > 0;)
        dispatch(f, stage, now_us);
}

void data_flow_written(struct data_flow *f, struct data_chunk *c) {
    chunk_drop(f, c);
}
