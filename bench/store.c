// What the store costs on this disk: latency of one commit, records and whole jobs per second with
// group commit, loading 100,000 records, and a walk over the history. Prints one line per figure:
// name, value, unit. The state folder is the only argument; it must be empty or missing.
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "base/vec.h"
#include "store/store.h"

enum { COMMITS = 1000, RECORDS = 100000, RECORD_BYTES = 300, JOBS = 50000, JOB_EVENTS = 5 };

struct bench {
    struct store *store;
    uint64_t seq, committed;
    char data[RECORD_BYTES];
};

static void on_committed(void *ctx, uint64_t ticket, uint64_t seq) {
    ((struct bench *)ctx)->committed = ticket;
}

static void on_failed(void *ctx, const struct error *e) {
    fprintf(stderr, "store: %s\n", e->text);
    exit(1);
}

static void must(int r, const struct error *e) {
    if (r < 0) {
        fprintf(stderr, "store: %s\n", e->text);
        exit(1);
    }
}

static void wait_ticket(struct bench *b, uint64_t ticket) {
    while (b->committed < ticket) {
        struct pollfd p = {.fd = store_fd(b->store), .events = POLLIN};
        poll(&p, 1, 1000);
        store_poll(b->store);
    }
}

static void add_event(struct bench *b, struct store_batch *batch, uint64_t job) {
    store_batch_event(batch, &(struct store_event){.seq = ++b->seq, .at_ms = 1, .type = 1,
                                                   .job = job, .data = b->data,
                                                   .len = sizeof b->data});
}

static int compare_i64(const void *a, const void *b) {
    const int64_t *x = a, *y = b;
    return *x < *y ? -1 : *x > *y;
}

static void bench_latency(struct bench *b) {
    static int64_t took[COMMITS];
    for (int i = 0; i < COMMITS; i++) {
        int64_t before = clock_mono_us();
        struct store_batch *batch = store_batch_new();
        add_event(b, batch, 1);
        wait_ticket(b, store_submit(b->store, batch));
        took[i] = clock_mono_us() - before;
    }
    qsort(took, COMMITS, sizeof took[0], compare_i64);
    printf("commit_median %lld us\n", (long long)took[COMMITS / 2]);
    printf("commit_p99 %lld us\n", (long long)took[COMMITS * 99 / 100]);
}

static void bench_records(struct bench *b) {
    int64_t before = clock_mono_us();
    uint64_t ticket = 0;
    for (int i = 0; i < RECORDS; i += 100) {
        struct store_batch *batch = store_batch_new();
        for (int k = 0; k < 100; k++)
            add_event(b, batch, (uint64_t)(i + k + 1));
        ticket = store_submit(b->store, batch);
    }
    wait_ticket(b, ticket);
    printf("records_rate %.0f /s\n", RECORDS * 1e6 / (double)(clock_mono_us() - before));
}

// A job as the controller writes it: submitted with a script and an environment, four more events,
// a row of history.
static void bench_jobs(struct bench *b) {
    struct store_key script, environment;
    store_key_of("#!/bin/sh\ntrue\n", 15, &script);
    store_key_of(b->data, sizeof b->data, &environment);
    int64_t before = clock_mono_us();
    uint64_t ticket = 0;
    for (uint64_t job = 1; job <= JOBS; job++) {
        struct store_batch *batch = store_batch_new();
        store_batch_text(batch, job, &script, "#!/bin/sh\ntrue\n", 15);
        store_batch_text(batch, job, &environment, b->data, sizeof b->data);
        for (int k = 0; k < JOB_EVENTS; k++)
            add_event(b, batch, job);
        store_batch_history(batch, &(struct store_history){
            .id = job, .state = 3, .user = job % 3 ? "ann" : "bob", .project = "vision",
            .name = "train", .nodes = "n1", .submit_ms = (int64_t)job, .start_ms = (int64_t)job,
            .end_ms = (int64_t)job, .data = b->data, .len = 200});
        store_batch_release(batch, job);
        ticket = store_submit(b->store, batch);
    }
    wait_ticket(b, ticket);
    printf("jobs_rate %.0f /s\n", JOBS * 1e6 / (double)(clock_mono_us() - before));
}

static int see_event(void *ctx, const struct store_event *ev) {
    ++*(uint64_t *)ctx;
    return 0;
}

static int see_snapshot(void *ctx, uint64_t seq, const void *data, size_t len) {
    return 0;
}

static int see_row(void *ctx, const struct store_history *row) {
    ++*(uint64_t *)ctx;
    return 0;
}

static void bench_history(struct bench *b) {
    uint64_t rows = 0;
    struct error e = {0};
    int64_t before = clock_mono_us();
    struct store_query all = {.descending = true};
    must(store_history(b->store, &all, see_row, &rows, &e), &e);
    printf("history_all_%llu %.1f ms\n", (unsigned long long)rows,
           (double)(clock_mono_us() - before) / 1e3);
    before = clock_mono_us();
    struct store_query page = {.user = "bob", .descending = true, .limit = 100};
    must(store_history(b->store, &page, see_row, &rows, &e), &e);
    printf("history_page_100 %.2f ms\n", (double)(clock_mono_us() - before) / 1e3);
    // Everything that was there in a short time long before the end.
    before = clock_mono_us();
    rows = 0;
    struct store_query window = {.order = STORE_ANY, .ended_from_ms = JOBS / 2,
                                 .began_before_ms = JOBS / 2 + 100};
    must(store_history(b->store, &window, see_row, &rows, &e), &e);
    printf("history_window_%llu %.2f ms\n", (unsigned long long)rows,
           (double)(clock_mono_us() - before) / 1e3);
}

static void open_store(struct bench *b, const char *path) {
    struct store_config config = {.path = path, .watch = {b, on_committed, on_failed, NULL}};
    struct error e = {0};
    must(store_open(&config, &b->store, &e), &e);
    b->committed = 0;
    uint64_t events = 0;
    int64_t before = clock_mono_us();
    struct store_loader loader = {&events, see_snapshot, see_event};
    must(store_load(b->store, &loader, &b->seq, &e), &e);
    if (events)
        printf("load_%llu %.1f ms\n", (unsigned long long)events,
               (double)(clock_mono_us() - before) / 1e3);
}

int main(int argc, char **argv) {
    if (argc != 2) {
        fprintf(stderr, "usage: bench_store FOLDER\n");
        return 2;
    }
    struct bench b = {0};
    memset(b.data, 'e', sizeof b.data);
    open_store(&b, argv[1]);
    bench_records(&b);
    b.store = store_close(b.store);
    open_store(&b, argv[1]);
    bench_latency(&b);
    bench_jobs(&b);
    bench_history(&b);
    store_close(b.store);
    return 0;
}
