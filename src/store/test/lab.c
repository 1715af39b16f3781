// Helpers of the store's tests; see lab.h.
#include "lab.h"

#include <dirent.h>
#include <fcntl.h>
#include <poll.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/alloc.h"
#include "base/clock.h"
#include "base/map.h"
#include "../pg_store.h"
#include "sqlite_store.h"

enum { WAIT_MAX_MS = 60000 };

char *lab_folder(void) {
    char *name = xstrdup("/tmp/acequia-store-XXXXXX");
    assert_non_null(mkdtemp(name));
    return name;
}

void lab_remove(char *folder) {
    DIR *dir = opendir(folder);
    const struct dirent *entry;
    while (dir && (entry = readdir(dir)))
        unlinkat(dirfd(dir), entry->d_name, 0);
    if (dir)
        closedir(dir);
    rmdir(folder);
    free(folder);
}

static void on_committed(void *ctx, uint64_t ticket, uint64_t seq) {
    struct lab_watch *w = ctx;
    assert_true(ticket > w->ticket && seq >= w->seq);
    w->ticket = ticket;
    w->seq = seq;
    w->commits++;
}

static void on_failed(void *ctx, const struct error *e) {
    struct lab_watch *w = ctx;
    w->failures++;
    w->failure = *e;
}

static void on_snapshot(void *ctx, uint64_t seq, const struct error *e) {
    struct lab_watch *w = ctx;
    w->snapshot_seq = seq;
    if (e)
        w->snapshot_failures++;
    else
        w->snapshots++;
}

struct store_config lab_config(const char *folder, struct lab_watch *watch) {
    return (struct store_config){
        .path = folder,
        .watch = {watch, on_committed, on_failed, on_snapshot},
    };
}

const char *lab_database(void) {
    const char *place = getenv("ACEQUIA_TEST_DATABASE");
    struct pg_conn c;
    struct error e = {0};
    assert_non_null(place);
    if (pg_open(&c, place, "test", NULL, 0, &e) < 0 ||
        pg_exec(&c, "DROP SCHEMA IF EXISTS acequia CASCADE", &e) < 0)
        fail_msg("%s", e.text);
    pg_close(&c);
    return place;
}

void lab_lead(struct store *s) {
    int64_t deadline = clock_mono_ms() + WAIT_MAX_MS;
    struct store_lease lease;
    store_claim(s);
    for (store_lease(s, &lease); !lease.mine; store_lease(s, &lease)) {
        if (clock_mono_ms() > deadline)
            fail_msg("the lease was not taken in %d ms: %s", WAIT_MAX_MS, lease.problem);
        usleep(1000);
    }
}

void lab_event(struct store_batch *b, uint64_t seq, size_t len) {
    unsigned char *data = xmalloc(len + 1);
    for (size_t i = 0; i < len; i++)
        data[i] = (unsigned char)(seq * 31 + i);
    store_batch_event(b, &(struct store_event){.seq = seq, .at_ms = (int64_t)seq * 10,
                                               .type = (uint32_t)(seq % 7), .job = seq % 5,
                                               .data = data, .len = len});
    free(data);
}

struct store_batch *lab_batch(uint64_t first, uint64_t count, size_t len) {
    struct store_batch *b = store_batch_new();
    for (uint64_t i = 0; i < count; i++)
        lab_event(b, first + i, len);
    return b;
}

void lab_history(struct store_batch *b, uint64_t id, const char *user, uint32_t state,
                 int64_t end_ms) {
    store_batch_history(b, &(struct store_history){
        .id = id, .array = id % 10 == 0 ? 0 : id / 10 * 10, .index = (uint32_t)(id % 10),
        .state = state, .user = user, .project = id % 2 ? "odd" : "even", .name = "train",
        .nodes = "n[1-4]", .submit_ms = end_ms - 20, .start_ms = end_ms - 10, .end_ms = end_ms,
        .data = &id, .len = sizeof id});
}

static int check_snapshot(void *ctx, uint64_t seq, const void *data, size_t len) {
    struct lab_check *c = ctx;
    c->snapshots++;
    if (!len || len % sizeof seq)
        return -22;
    for (size_t i = 0; i < len; i += sizeof seq)
        if (memcmp((const char *)data + i, &seq, sizeof seq) != 0)
            return -22;
    c->snapshot_seq = seq;
    c->next = seq + 1;
    return 0;
}

static int check_event(void *ctx, const struct store_event *ev) {
    struct lab_check *c = ctx;
    assert_int_equal(ev->seq, c->next);
    assert_int_equal(ev->at_ms, ev->seq * 10);
    assert_int_equal(ev->type, ev->seq % 7);
    assert_int_equal(ev->job, ev->seq % 5);
    const unsigned char *data = ev->data;
    for (size_t i = 0; i < ev->len; i++)
        assert_int_equal(data[i], (unsigned char)(ev->seq * 31 + i));
    c->next++;
    c->events++;
    return 0;
}

uint64_t lab_load(struct store *s, struct lab_check *check) {
    struct lab_check own = {0};
    struct lab_check *c = check ? check : &own;
    *c = (struct lab_check){.next = 1};
    struct store_loader loader = {c, check_snapshot, check_event};
    uint64_t last = 99;
    struct error e = {0};
    int r = store_load(s, &loader, &last, &e);
    if (r < 0)
        fail_msg("load: %s", e.text);
    assert_int_equal(last + 1, c->next);
    return last;
}

static void wait_fd(struct store *s, int64_t deadline) {
    struct pollfd p = {.fd = store_fd(s), .events = POLLIN};
    if (clock_mono_ms() > deadline)
        fail_msg("nothing was reported in %d ms", WAIT_MAX_MS);
    if (p.fd >= 0)
        poll(&p, 1, 100);
    else
        store_flush(s);
    store_poll(s);
}

void lab_wait(struct store *s, const struct lab_watch *watch, uint64_t ticket) {
    int64_t deadline = clock_mono_ms() + WAIT_MAX_MS;
    while (watch->ticket < ticket)
        wait_fd(s, deadline);
}

void lab_wait_snapshot(struct store *s, const struct lab_watch *watch, unsigned count) {
    int64_t deadline = clock_mono_ms() + WAIT_MAX_MS;
    while (watch->snapshots + watch->snapshot_failures < count)
        wait_fd(s, deadline);
}

static bool is_pruning(struct store *s) {
    struct sqlite_store *disk = sqlite_store_of(s);
    struct pg_store *database = pg_store_of(s);
    bool in_folder = !getenv("ACEQUIA_TEST_DATABASE");
    pthread_mutex_t *lock = in_folder ? &disk->lock : &database->lock;
    pthread_mutex_lock(lock);
    bool busy = in_folder ? disk->prune_ms != 0 : database->prune_ms != 0;
    pthread_mutex_unlock(lock);
    return busy;
}

void lab_prune(struct store *s, int64_t now_ms) {
    int64_t deadline = clock_mono_ms() + WAIT_MAX_MS;
    bool busy = true;
    store_prune(s, now_ms);
    while (busy) {
        busy = is_pruning(s);
        if (busy && clock_mono_ms() > deadline)
            fail_msg("pruning has not ended after %d ms", WAIT_MAX_MS);
        if (busy)
            usleep(1000);
    }
}
