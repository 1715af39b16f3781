// See the header. Commits are made on a thread, many chunks at a time: one sync serves all that are done by then.
#include "run.h"

#include <errno.h>
#include <fcntl.h>
#include <libgen.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <sys/signalfd.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/alloc.h"
#include "base/cleanup.h"
#include "base/clock.h"
#include "base/json.h"
#include "base/text.h"
#include "ledger.h"
#include "list.h"
#include "node.h"
#include "pool.h"
#include "progress.h"

enum { TICK_MS = 500, COMMITS_MAX = 256, TAKE_MAX = 4096, STREAM_MESSAGE_MAX = 4 << 20 };

struct commit_task {
    struct data_task task;
    struct run *run;
    VEC(struct data_record) records;
    struct error error;
};

struct run {
    const struct data_plan *plan;
    const struct data_run_options *o;
    struct data_remote *remote;
    struct data_fetcher *fetcher;
    struct data_lister *lister;
    struct data_node *node;
    struct data_ledger *ledger;
    struct data_pool *committer;
    struct commit_task *committing;
    VEC(struct data_record) to_commit;
    char *folder;                     // of parts; NULL: nothing is written
    int lister_wake, committer_wake, signals;
    struct arena items_arena;
    data_items items;                 // listed, in no chunk yet
    uint32_t items_from;
    uint64_t ordinal, skipped, taken, rows, failures_before;
    bool listed, failed, stopped, all_given;
    struct error error;
    // Output to a reader: chunks leave in the order in which they began.
    VEC(uint64_t) order;
    uint32_t order_from;
    VEC(struct data_chunk *) ready, sent;
    struct data_progress progress;
};

static void run_fails(struct run *r, const struct error *e) {
    if (!r->failed)
        r->error = *e;
    r->failed = true;
}

static void on_failed(void *ctx, const struct error *e) {
    run_fails(ctx, e);
}

static void wake(void *ctx) {
    uint64_t one = 1;
    (void)!write(*(int *)ctx, &one, sizeof one);
}

static void drain(int fd) {
    uint64_t ignored;
    (void)!read(fd, &ignored, sizeof ignored);
}

// --- what is done ---

static void commit_run(struct data_task *t, struct data_fetcher *f) {
    struct commit_task *c = (struct commit_task *)t;
    data_ledger_commit(c->run->ledger, c->records.at, c->records.len, f, &c->error);
}

static void commit_next(struct run *r);

static void commit_done(struct data_task *t) {
    struct commit_task *c = (struct commit_task *)t;
    struct run *r = c->run;
    if (c->error.code)
        run_fails(r, &c->error);
    vec_done(&c->records);
    free(c);
    r->committing = NULL;
    commit_next(r);
}

static void commit_next(struct run *r) {
    if (r->committing || !r->to_commit.len || r->failed)
        return;
    struct commit_task *c = xcalloc(1, sizeof *c);
    *c = (struct commit_task){.task = {.run = commit_run, .done = commit_done}, .run = r};
    for (uint32_t i = 0; i < r->to_commit.len; i++)
        vec_push(&c->records, r->to_commit.at[i]);
    vec_clear(&r->to_commit);
    r->committing = c;
    data_pool_give(r->committer, &c->task);
}

static void on_done(void *ctx, const struct data_node_result *d) {
    struct run *r = ctx;
    const struct data_chunk *c = d->chunk;
    r->rows += d->rows;
    r->progress.items_done += c->items.len;
    r->progress.rows = r->rows;
    for (uint32_t i = 0; i < c->failures.len && !r->ledger; i++) {
        char safe[256];
        data_progress_clear(&r->progress);
        fprintf(stderr, "left out: %s: %.*s\n", str_printable(c->failures.at[i].address, safe, sizeof safe),
                (int)strcspn(c->failures.at[i].text, "\n"), c->failures.at[i].text);
    }
    if (!r->ledger)
        return;
    struct data_record record = {.part = xstrdup(d->part), .rows = d->rows, .bytes = d->bytes};
    for (uint32_t i = 0; i < c->items.len; i++)
        vec_push(&record.items, data_item_hash(&c->items.at[i]));
    for (uint32_t i = 0; i < c->failures.len; i++)
        vec_push(&record.failures,
                 (struct data_failure){xstrdup(c->failures.at[i].address), xstrdup(c->failures.at[i].text)});
    vec_push(&r->to_commit, record);
    commit_next(r);
}

// --- output to a reader ---

static void stream_flush(struct run *r);

static void on_stream(void *ctx, struct data_chunk *c) {
    struct run *r = ctx;
    vec_push(&r->ready, c);
    stream_flush(r);
}

static void stream_send(struct run *r, const struct data_chunk *c) {
    struct buf cleanup_buf b = {0};
    struct json_writer j = {.out = &b};
    struct error e = {0};
    json_open(&j, '{');
    json_kv_i64(&j, "chunk", (int64_t)c->id);
    json_open_key(&j, "pieces", '[');
    for (const struct data_piece *p = c->first; p; p = p->next) {
        json_open(&j, '{');
        json_kv_i64(&j, "rows", (int64_t)p->count);
        data_block_describe(p->block, p->from, p->count, &j);
        json_close(&j, '}');
    }
    json_close(&j, ']');
    json_close(&j, '}');
    buf_addc(&b, '\n');
    for (size_t at = 0; at < b.len;) {
        ssize_t n = send(r->o->stream_fd, b.data + at, b.len - at, MSG_NOSIGNAL);
        if (n < 0 && errno != EINTR) {
            r->stopped = true;  // the reader has what it wanted
            error_set(&e, ECANCELED, "the reader of the results is gone");
            run_fails(r, &e);
            return;
        }
        at += n > 0 ? (size_t)n : 0;
    }
}

static void stream_flush(struct run *r) {
    while (r->order_from < r->order.len && !r->failed) {
        struct data_chunk *c = NULL;
        for (uint32_t i = 0; i < r->ready.len && !c; i++) {
            if (r->ready.at[i]->id == r->order.at[r->order_from]) {
                c = r->ready.at[i];
                vec_remove(&r->ready, i);
            }
        }
        if (!c)
            return;
        r->order_from++;
        if (!c->rows_out) {
            data_node_streamed(r->node, c);
            continue;
        }
        stream_send(r, c);
        vec_push(&r->sent, c);
    }
}

// Each byte that comes back frees the oldest chunk; the end of the stream says that no more is wanted.
static void stream_read(struct run *r) {
    char bytes[256];
    ssize_t n = recv(r->o->stream_fd, bytes, sizeof bytes, MSG_DONTWAIT);
    if (n < 0 && (errno == EAGAIN || errno == EINTR))
        return;
    if (n <= 0) {
        struct error e = {0};
        r->stopped = true;
        error_set(&e, ECANCELED, "the reader of the results is gone");
        run_fails(r, &e);
        return;
    }
    for (ssize_t i = 0; i < n && r->sent.len; i++) {
        struct data_chunk *c = r->sent.at[0];
        vec_remove(&r->sent, 0);
        data_node_streamed(r->node, c);
    }
}

// --- chunks ---

static bool take_items(struct run *r) {
    if (r->listed)
        return r->items_from < r->items.len;
    if (r->items_from == r->items.len) {
        vec_clear(&r->items);
        r->items_from = 0;
        arena_reset(&r->items_arena);
        struct error e = {0};
        data_lister_take(r->lister, TAKE_MAX, &r->items_arena, &r->items, &r->listed, &e);
        if (r->listed && e.code)
            run_fails(r, &e);
    }
    return r->items_from < r->items.len;
}

static bool next_item(struct run *r, struct data_item *out, uint64_t *ordinal) {
    uint64_t limit = r->plan->source->limit;
    while (take_items(r)) {
        if (limit && r->taken >= limit)
            return false;
        struct data_item *i = &r->items.at[r->items_from];
        *ordinal = r->ordinal;
        r->items_from++;
        r->ordinal++;
        if (r->ledger && data_ledger_has(r->ledger, i)) {
            r->skipped++;
            continue;
        }
        *out = *i;
        return true;
    }
    return false;
}

// Images and files are cut into chunks of many; a part of a file of rows is a chunk itself.
static uint32_t items_per_chunk(const struct run *r, uint32_t rows) {
    switch (r->plan->source->kind) {
    case DATA_IMAGES:
    case DATA_FILES:
    case DATA_TAR: return rows;
    default: return 1;
    }
}

static void give_chunks(struct run *r) {
    uint32_t rows;
    while (!r->failed && data_node_wants(r->node, &rows)) {
        struct data_item item;
        uint64_t ordinal;
        if (!next_item(r, &item, &ordinal))
            break;
        struct data_chunk *c = data_chunk_new(ordinal);
        uint32_t max = items_per_chunk(r, rows);
        do {
            vec_push(&c->items, (struct data_item){arena_strdup(&c->arena, item.address),
                                                   item.name ? arena_strdup(&c->arena, item.name) : NULL,
                                                   item.offset, item.len});
            r->taken++;
        } while (c->items.len < max && next_item(r, &item, &ordinal));
        if (r->plan->output->kind == DATA_OUT_STREAM)
            vec_push(&r->order, c->id);
        data_node_add(r->node, c);
    }
    uint64_t limit = r->plan->source->limit;
    r->all_given = (r->listed && r->items_from == r->items.len) || (limit && r->taken >= limit);
}

// Counted as they come: a function that fails on every row is not called for all of them.
static void check_failures(struct run *r) {
    const char *last;
    uint64_t failures = r->failures_before + data_node_failures(r->node, &last);
    struct error e = {0};
    r->progress.failures = failures;
    if (failures <= r->plan->errors_max || r->plan->errors_unlimited || r->failed)
        return;
    if (strchr(last, '\n')) {  // where in the function
        data_progress_clear(&r->progress);
        fprintf(stderr, "%s\n", last);
    }
    error_set(&e, EIO, "%llu rows failed, more than the %llu that may (--max-errors); the last one: %.*s",
              (unsigned long long)failures, (unsigned long long)r->plan->errors_max, (int)strcspn(last, "\n"),
              last);
    run_fails(r, &e);
}

static bool run_over(const struct run *r) {
    return r->failed || (r->all_given && data_node_idle(r->node) && !r->committing && !r->to_commit.len);
}

static void show(struct run *r, bool last) {
    struct data_node_figures f;
    data_node_figures(r->node, &f);
    r->progress.items_found = data_lister_found(r->lister) - r->skipped;
    r->progress.listed = r->listed;
    r->progress.loading = f.loading;
    r->progress.working = f.working;
    r->progress.stage = r->plan->stages.len && r->plan->stages.at[f.slowest].name
                            ? r->plan->stages.at[f.slowest].name
                            : "the model";
    data_progress_show(&r->progress, clock_mono_ms(), last);
}

static void loop(struct run *r) {
    int64_t next_show = clock_mono_ms() + TICK_MS;
    while (!run_over(r)) {
        struct pollfd fds[] = {{data_node_fd(r->node), POLLIN, 0},
                               {r->lister_wake, POLLIN, 0},
                               {r->committer_wake, POLLIN, 0},
                               {r->signals, POLLIN, 0},
                               {r->o->stream_fd, POLLIN, 0}};
        int64_t left = next_show - clock_mono_ms();
        poll(fds, 5, left > 0 ? (int)left : 0);
        if (fds[1].revents)
            drain(r->lister_wake);
        if (fds[2].revents) {
            drain(r->committer_wake);
            data_pool_finish(r->committer);
        }
        if (fds[3].revents) {
            struct error e = {0};
            r->stopped = true;
            error_set(&e, EINTR, "stopped; what is done is kept, and the same command goes on after it");
            run_fails(r, &e);
        }
        if (fds[4].revents)
            stream_read(r);
        data_node_step(r->node);
        give_chunks(r);
        data_node_step(r->node);
        check_failures(r);
        if (clock_mono_ms() >= next_show) {
            show(r, false);
            next_show = clock_mono_ms() + TICK_MS;
        }
    }
    // What was under way when it ended is recorded all the same.
    while (r->committing) {
        struct pollfd fd = {r->committer_wake, POLLIN, 0};
        poll(&fd, 1, -1);
        drain(r->committer_wake);
        data_pool_finish(r->committer);
    }
}

static int signals_open(void) {
    sigset_t set;
    sigemptyset(&set);
    sigaddset(&set, SIGINT);
    sigaddset(&set, SIGTERM);
    sigprocmask(SIG_BLOCK, &set, NULL);
    return signalfd(-1, &set, SFD_CLOEXEC | SFD_NONBLOCK);
}

static bool writes_parts(const struct data_plan *p) {
    return p->output->kind != DATA_OUT_NONE && p->output->kind != DATA_OUT_STREAM;
}

// The folder of the parts: what was named, or, for one file, one beside it.
static char *parts_folder(const struct data_output *o) {
    if (o->single)
        return xasprintf("%s.parts/", o->path);
    size_t n = strlen(o->path);
    return xasprintf("%s%s", o->path, o->path[n - 1] == '/' ? "" : "/");
}

// Results that the next run would read, or that take the place of somebody's file, are refused before anything is done.
static int check_output(const struct data_plan *p, const char *folder, struct error *e) {
    static const uint32_t same[] = {[DATA_OUT_JSONL] = DATA_JSONL, [DATA_OUT_CSV] = DATA_CSV,
                                    [DATA_OUT_PARQUET] = DATA_PARQUET};
    const struct data_source *s = p->source;
    const char *path = p->output->path;
    struct stat out, in;
    if (data_is_remote(path))
        return 0;
    cleanup_free char *copy = xstrdup(path), *real = realpath(dirname(copy), NULL),
                      *ledger = xasprintf("%s_ledger.jsonl", folder);
    bool there = stat(path, &out) == 0;
    bool read_again = s->any_name || s->kind == DATA_FILES || s->kind == same[p->output->kind];
    for (uint32_t i = 0; i < s->inputs.len; i++) {
        if (data_is_remote(s->inputs.at[i]) || stat(s->inputs.at[i], &in) < 0)
            continue;
        cleanup_free char *input = realpath(s->inputs.at[i], NULL);
        size_t n = input ? strlen(input) : 0;
        bool inside = real && n && S_ISDIR(in.st_mode) && !strncmp(real, input, n) && (real[n] == '/' || !real[n]);
        if ((there && in.st_dev == out.st_dev && in.st_ino == out.st_ino && (p->output->single || read_again)) ||
            (inside && read_again))
            return error_set(e, EINVAL, "the results in %s would be inputs, too: choose an output outside of %s", path,
                             s->inputs.at[i]);
    }
    if (there && p->output->single && !p->fresh && access(ledger, F_OK) < 0)
        return error_set(e, EEXIST, "%s is there already: choose another output, or --fresh to replace it", path);
    return 0;
}

static int open_all(struct run *r, struct error *e) {
    r->lister_wake = eventfd(0, EFD_NONBLOCK | EFD_CLOEXEC);
    r->committer_wake = eventfd(0, EFD_NONBLOCK | EFD_CLOEXEC);
    r->signals = signals_open();
    r->remote = data_remote_new();
    r->fetcher = data_fetcher_new(r->remote);
    r->committer = data_pool_new(1, r->remote, r->committer_wake);
    int rc = 0;
    if (writes_parts(r->plan)) {
        r->folder = parts_folder(r->plan->output);
        rc = check_output(r->plan, r->folder, e);
        if (!rc)
            rc = data_ledger_open(r->folder, data_plan_identity(r->plan), r->plan->fresh, r->fetcher, &r->ledger, e);
        if (!rc)
            r->failures_before = data_ledger_failures(r->ledger);
    }
    if (rc)
        return rc;
    struct data_node_options o = {.program = r->o->program,
                                  .scheme_part = r->folder ? r->folder : "",
                                  .cpus = r->o->cpus,
                                  .gpus = r->o->gpus,
                                  .memory_bytes = r->o->memory_bytes,
                                  .memory_fd = r->o->memory_fd};
    struct data_node_hooks hooks = {.done = on_done, .failed = on_failed, .stream = on_stream};
    rc = data_node_new(r->plan, r->remote, &o, &hooks, r, &r->node, e);
    if (!rc)
        r->lister =
            data_lister_start(r->plan->source, r->remote, r->plan->python ? r->plan->python : "python3",
                              r->o->program, wake, &r->lister_wake);
    return rc;
}

static void close_all(struct run *r) {
    data_lister_stop(r->lister);
    data_pool_free(r->committer);
    free(r->committing);
    data_node_free(r->node);
    for (uint32_t i = 0; i < r->to_commit.len; i++)
        data_record_free(&r->to_commit.at[i]);
    vec_done(&r->to_commit);
    data_ledger_close(r->ledger);
    data_fetcher_free(r->fetcher);
    data_remote_free(r->remote);
    vec_done(&r->items);
    arena_done(&r->items_arena);
    vec_done(&r->order);
    vec_done(&r->ready);
    vec_done(&r->sent);
    free(r->folder);
    close(r->lister_wake);
    close(r->committer_wake);
    close(r->signals);
}

static int finish(struct run *r, struct error *e) {
    if (!r->ledger)
        return 0;
    int rc = data_ledger_finish(r->ledger, true, r->fetcher, e);
    if (!rc && r->plan->output->single)
        rc = data_ledger_merge(r->ledger, r->plan->output->kind, r->plan->output->path, r->fetcher, e);
    return rc;
}

int data_run(const struct data_plan *plan, const struct data_run_options *o, struct error *e) {
    struct run r = {.plan = plan, .o = o, .lister_wake = -1, .committer_wake = -1, .signals = -1};
    data_progress_begin(&r.progress, !o->quiet, clock_mono_ms());
    int rc = open_all(&r, e);
    if (!rc) {
        loop(&r);
        show(&r, true);
        if (r.failed) {
            *e = r.error;
            rc = -e->code;
        } else {
            rc = finish(&r, e);
        }
        if (!o->quiet && !rc && r.ledger)
            fprintf(stderr, "%llu rows in %s%s%s\n", (unsigned long long)data_ledger_rows(r.ledger),
                    plan->output->single ? plan->output->path : r.folder,
                    r.skipped ? "; what an earlier run had done was not done again" : "",
                    data_ledger_failures(r.ledger) ? "; _errors.jsonl there lists the rows that were left out"
                                                   : "");
        if (o->explain) {
            struct buf cleanup_buf b = {0};
            data_node_explain(r.node, &b);
            fputs(buf_str(&b), stderr);
        }
    }
    close_all(&r);
    return rc;
}
