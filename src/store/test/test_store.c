// What every store must do, run against SQLite and the simulated disk, or, when ACEQUIA_TEST_DATABASE names one, against
// a PostgreSQL database (tests/lab/postgres.py starts one for that).
#include "lab.h"

#include <errno.h>
#include <pthread.h>
#include <sqlite3.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "base/buf.h"
#include "base/cleanup.h"
#include "base/vec.h"
#include "store/retention.h"
#include "store/sim_store.h"

struct bed {
    bool simulated, postgres;
    char *folder;
    struct sim_disk *disk;
    struct lab_watch watch;
    struct store_config config;
    struct store *store;
};

static void bed_open(struct bed *bed) {
    struct error e = {0};
    memset(&bed->watch, 0, sizeof bed->watch);
    int r = bed->simulated ? sim_store_open(bed->disk, &bed->config, &bed->store, &e)
                           : store_open(&bed->config, &bed->store, &e);
    if (r < 0)
        fail_msg("open: %s", e.text);
    lab_lead(bed->store);
}

static void bed_reopen(struct bed *bed) {
    bed->store = store_close(bed->store);
    bed_open(bed);
}

enum kind { SQLITE, SIMULATED, POSTGRES };

static int bed_setup_kind(void **state, enum kind kind) {
    struct bed *bed = xcalloc(1, sizeof *bed);
    bed->simulated = kind == SIMULATED;
    bed->postgres = kind == POSTGRES;
    bed->folder = lab_folder();
    bed->config = lab_config(kind == POSTGRES ? lab_database() : bed->folder, &bed->watch);
    bed->disk = sim_disk_new(7);
    sim_disk_faults(bed->disk, &(struct sim_disk_faults){.commit_ms_min = 1, .commit_ms_max = 5});
    bed_open(bed);
    *state = bed;
    return 0;
}

static int setup_sqlite(void **state) {
    return bed_setup_kind(state, SQLITE);
}

static int setup_sim(void **state) {
    return bed_setup_kind(state, SIMULATED);
}

static int setup_postgres(void **state) {
    return bed_setup_kind(state, POSTGRES);
}

static int teardown(void **state) {
    struct bed *bed = *state;
    store_close(bed->store);
    sim_disk_free(bed->disk);
    lab_remove(bed->folder);
    free(bed);
    return 0;
}

static void settle(struct bed *bed, uint64_t ticket) {
    lab_wait(bed->store, &bed->watch, ticket);
}

// Returns when it has happened: a simulated disk does it at once.
static void prune(struct bed *bed, int64_t now_ms) {
    if (bed->simulated)
        store_prune(bed->store, now_ms);
    else
        lab_prune(bed->store, now_ms);
}

static void snapshot(struct bed *bed, uint64_t seq) {
    unsigned before = bed->watch.snapshots + bed->watch.snapshot_failures;
    assert_int_equal(store_snapshot(bed->store, seq, &seq, sizeof seq), 0);
    if (bed->simulated) {
        sim_disk_tick(bed->disk, sim_disk_due(bed->disk));
        store_poll(bed->store);
    }
    lab_wait_snapshot(bed->store, &bed->watch, before + 1);
}

static void test_journal(void **state) {
    struct bed *bed = *state;
    assert_int_equal(lab_load(bed->store, NULL), 0);
    settle(bed, store_submit(bed->store, lab_batch(1, 10, 40)));
    assert_int_equal(bed->watch.seq, 10);
    for (uint64_t i = 0; i < 50; i++)
        store_submit(bed->store, lab_batch(11 + i * 3, 3, i));
    settle(bed, 51);
    assert_int_equal(bed->watch.seq, 160);
    struct store_stats stats;
    store_stats(bed->store, &stats);
    assert_int_equal(stats.records, 160);
    assert_int_equal(stats.waiting_batches, 0);
    assert_int_equal(stats.waiting_bytes, 0);
    bed_reopen(bed);
    assert_int_equal(lab_load(bed->store, NULL), 160);
    settle(bed, store_submit(bed->store, lab_batch(161, 1, 0)));
    assert_int_equal(bed->watch.seq, 161);
}

static void test_snapshots(void **state) {
    struct bed *bed = *state;
    struct lab_check check;
    lab_load(bed->store, NULL);
    settle(bed, store_submit(bed->store, lab_batch(1, 100, 20)));
    for (uint64_t seq = 20; seq <= 80; seq += 20)
        snapshot(bed, seq);
    bed_reopen(bed);
    assert_int_equal(lab_load(bed->store, &check), 100);
    assert_int_equal(check.snapshot_seq, 80);
    assert_int_equal(check.events, 20);

    // One that the loader refuses: the older one is used.
    uint64_t wrong = 1;
    assert_int_equal(store_snapshot(bed->store, 90, &wrong, sizeof wrong), 0);
    assert_int_equal(store_snapshot(bed->store, 91, &wrong, sizeof wrong), -EBUSY);
    if (bed->simulated)
        sim_disk_tick(bed->disk, sim_disk_due(bed->disk));
    lab_wait_snapshot(bed->store, &bed->watch, 1);
    bed_reopen(bed);
    assert_int_equal(lab_load(bed->store, &check), 100);
    assert_int_equal(check.snapshots, 2);
    assert_int_equal(check.snapshot_seq, 80);
}

// Larger than what is written in one transaction; from a file; and read beside the owner.
static int take_snapshot(void *ctx, uint64_t seq, const void *data, size_t len) {
    struct buf *out = ctx;
    buf_clear(out);
    buf_add(out, data, len);
    return 0;
}

static int pass_event(void *ctx, const struct store_event *ev) {
    return 0;
}

static void test_large_snapshots(void **state) {
    struct bed *bed = *state;
    enum { LEN = 3000000, AT = 4096 };
    cleanup_free char *data = xmalloc(LEN);
    for (size_t i = 0; i < LEN; i++)
        data[i] = (char)(i * i >> 7);
    lab_load(bed->store, NULL);
    settle(bed, store_submit(bed->store, lab_batch(1, 100, 20)));
    for (uint64_t seq = 60; seq <= 90; seq += 10) {
        data[5] = (char)seq;
        int fd = memfd_create("snapshot", MFD_CLOEXEC);
        assert_int_equal(pwrite(fd, data, LEN, AT), LEN);
        if (seq % 20)
            assert_int_equal(store_snapshot_file(bed->store, seq, fd, AT, LEN), 0);
        else
            assert_int_equal(store_snapshot(bed->store, seq, data, LEN), 0);
        if (seq % 20 == 0)
            close(fd);
        if (bed->simulated)
            sim_disk_tick(bed->disk, sim_disk_due(bed->disk));
        lab_wait_snapshot(bed->store, &bed->watch, (unsigned)(seq - 50) / 10);
    }
    assert_int_equal(bed->watch.snapshot_failures, 0);
    cleanup_buf struct buf found = {0};
    struct store_loader loader = {&found, take_snapshot, pass_event};
    uint64_t last = 0;
    struct error e = {0};
    if (!bed->simulated) {
        assert_int_equal(store_load_copy(bed->config.path, &loader, &last, &e), 0);
        assert_int_equal(last, 100);
        assert_int_equal(found.len, LEN);
        assert_memory_equal(found.data, data, LEN);
    }
    bed_reopen(bed);
    assert_int_equal(store_load(bed->store, &loader, &last, &e), 0);
    assert_int_equal(found.len, LEN);
    assert_memory_equal(found.data, data, LEN);
    assert_int_equal(store_check(bed->store, &e), 0);
}

static bool has_text(struct bed *bed, const char *text) {
    struct store_key key;
    store_key_of(text, strlen(text), &key);
    void *out = NULL;
    size_t len = 0;
    int r = store_text(bed->store, &key, &out, &len, NULL);
    assert_true(r == 0 || r == -ENOENT);
    if (r == 0) {
        assert_int_equal(len, strlen(text));
        assert_memory_equal(out, text, len);
    }
    free(out);
    return r == 0;
}

static void add_text(struct store_batch *b, uint64_t owner, const char *text) {
    struct store_key key;
    store_key_of(text, strlen(text), &key);
    store_batch_text(b, owner, &key, text, strlen(text));
}

static void test_texts(void **state) {
    struct bed *bed = *state;
    bed->config.retention.history_ms = 1000;
    bed_reopen(bed);
    struct store_batch *b = store_batch_new();
    add_text(b, 10, "shared");
    add_text(b, 20, "shared");
    add_text(b, 10, "mine");
    add_text(b, 10, "mine");
    add_text(b, 30, "brief");
    settle(bed, store_submit(bed->store, b));
    assert_true(has_text(bed, "shared") && has_text(bed, "mine") && has_text(bed, "brief"));
    assert_false(has_text(bed, "other"));

    // No row of history stands for 30: gone at once. Rows 10 and 11 (of array 10) keep 10's.
    b = store_batch_new();
    lab_history(b, 10, "ann", 3, 5000);
    lab_history(b, 11, "ann", 3, 9000);
    store_batch_release(b, 10);
    store_batch_release(b, 30);
    settle(bed, store_submit(bed->store, b));
    assert_true(has_text(bed, "shared") && has_text(bed, "mine") && !has_text(bed, "brief"));

    prune(bed, 6500);  // row 10 goes, row 11 still speaks for the array
    settle(bed, store_submit(bed->store, store_batch_new()));
    assert_true(has_text(bed, "mine"));
    prune(bed, 20000);
    assert_false(has_text(bed, "mine"));
    assert_true(has_text(bed, "shared"));  // 20 is alive
}

struct rows {
    VEC(uint64_t) ids;
    int64_t last_end;
};

static int collect(void *ctx, const struct store_history *row) {
    struct rows *rows = ctx;
    assert_int_equal(row->len, sizeof row->id);
    assert_memory_equal(row->data, &row->id, sizeof row->id);
    assert_string_equal(row->nodes, "n[1-4]");
    vec_push(&rows->ids, row->id);
    rows->last_end = row->end_ms;
    return 0;
}

static uint32_t count_rows(struct bed *bed, struct store_query q) {
    struct rows rows = {0};
    struct error e = {0};
    assert_int_equal(store_history(bed->store, &q, collect, &rows, &e), 0);
    uint32_t count = rows.ids.len;
    vec_done(&rows.ids);
    return count;
}

static void fill_history(struct bed *bed) {
    struct store_batch *b = store_batch_new();
    for (uint64_t id = 1; id <= 100; id++)
        lab_history(b, id, id % 4 ? "ann" : "bob", id % 3 ? 3 : 4, (int64_t)(id * 7 % 50) * 100 + 1);
    settle(bed, store_submit(bed->store, b));
}

static void test_history(void **state) {
    struct bed *bed = *state;
    fill_history(bed);
    assert_int_equal(count_rows(bed, (struct store_query){0}), 100);
    assert_int_equal(count_rows(bed, (struct store_query){.id = 17}), 1);
    assert_int_equal(count_rows(bed, (struct store_query){.array = 20}), 9);
    assert_int_equal(count_rows(bed, (struct store_query){.array = 20, .has_index = true, .index = 3}), 1);
    assert_int_equal(count_rows(bed, (struct store_query){.array = 20, .has_index = true}), 0);
    assert_int_equal(count_rows(bed, (struct store_query){.user = "bob"}), 25);
    assert_int_equal(count_rows(bed, (struct store_query){.user = "'; DROP TABLE history;"}), 0);
    assert_int_equal(count_rows(bed, (struct store_query){.project = "odd", .user = "ann"}), 50);
    assert_int_equal(count_rows(bed, (struct store_query){.name = "train", .limit = 7}), 7);
    assert_int_equal(count_rows(bed, (struct store_query){.state_mask = 1u << 4}), 33);
    assert_int_equal(count_rows(bed, (struct store_query){.state_mask = 1u << 4 | 1u << 3}), 100);
    assert_int_equal(count_rows(bed, (struct store_query){.ended_from_ms = 4901}), 2);
    assert_int_equal(count_rows(bed, (struct store_query){.ended_before_ms = 101}), 2);
    assert_int_equal(count_rows(bed, (struct store_query){.submitted_before_ms = 81}), 2);

    // A row written again replaces the first one.
    struct store_batch *b = store_batch_new();
    lab_history(b, 17, "cyd", 5, 777);
    settle(bed, store_submit(bed->store, b));
    assert_int_equal(count_rows(bed, (struct store_query){0}), 100);
    assert_int_equal(count_rows(bed, (struct store_query){.user = "cyd"}), 1);
}

static void test_pages(void **state) {
    struct bed *bed = *state;
    fill_history(bed);
    for (int kind = 0; kind < 4; kind++) {
        struct store_query q = {.order = kind & 1 ? STORE_BY_ID : STORE_BY_END,
                                .descending = kind & 2, .limit = 9};
        struct rows rows = {0};
        uint32_t before;
        do {
            before = rows.ids.len;
            assert_int_equal(store_history(bed->store, &q, collect, &rows, NULL), 0);
            q.resume = true;
            q.after_end_ms = rows.last_end;
            q.after_id = rows.ids.at[rows.ids.len - 1];
        } while (rows.ids.len > before);
        assert_int_equal(rows.ids.len, 100);
        bool seen[101] = {0};
        for (uint32_t i = 0; i < 100; i++) {
            assert_false(seen[rows.ids.at[i]]);
            seen[rows.ids.at[i]] = true;
            if (i && q.order == STORE_BY_ID)
                assert_true((rows.ids.at[i] > rows.ids.at[i - 1]) != q.descending);
        }
        vec_done(&rows.ids);
    }
}

// The oldest finished jobs go when the database is too large, and only then.
static void test_prune_by_size(void **state) {
    enum { ROWS = 4000, LIMIT = 512 << 10 };
    struct bed *bed = *state;
    bed->config.retention.file_bytes = 100 << 20;
    bed_reopen(bed);
    lab_load(bed->store, NULL);
    struct store_batch *b = store_batch_new();
    for (uint64_t id = 1; id <= ROWS; id++)
        lab_history(b, id, "ann", 3, (int64_t)(ROWS - id) * 100 + 1);
    settle(bed, store_submit(bed->store, b));
    prune(bed, 1000000);
    assert_int_equal(count_rows(bed, (struct store_query){0}), ROWS);
    bed->config.retention.file_bytes = LIMIT;
    bed_reopen(bed);
    lab_load(bed->store, NULL);
    prune(bed, 1000000);
    uint32_t left = count_rows(bed, (struct store_query){0});
    assert_in_range(left, ROWS / 4, ROWS - 500);
    assert_int_equal(count_rows(bed, (struct store_query){.id = 1}), 1);     // it ended last
    assert_int_equal(count_rows(bed, (struct store_query){.id = ROWS}), 0);
    prune(bed, 1000000);
    assert_int_equal(count_rows(bed, (struct store_query){0}), left);
}

// Jobs that took from nothing to months, some never started, one whose clock ran backwards.
struct span {
    int64_t submit_ms, start_ms, end_ms;
};
enum { SPAN_ROWS = 300, SPAN_STEP_MS = 1000000 };

static struct span span_of(uint64_t id) {
    static const int64_t lengths_s[] = {0, 3, 9, 10, 11, 99, 100, 5000, 86400, 999999, 1000000, 9000000, -20};
    int64_t end = 20000000000 + (int64_t)id * SPAN_STEP_MS;
    int64_t began = end - lengths_s[id % (sizeof lengths_s / sizeof *lengths_s)] * 1000;
    return (struct span){.submit_ms = began - (id % 5 ? 700 : 0), .start_ms = id % 5 ? began : 0, .end_ms = end};
}

static void fill_spans(struct bed *bed) {
    struct store_batch *b = store_batch_new();
    for (uint64_t id = 1; id <= SPAN_ROWS; id++) {
        struct span t = span_of(id);
        store_batch_history(b, &(struct store_history){
            .id = id, .user = id % 3 ? "ann" : "bob", .project = "p", .name = "n", .nodes = "n[1-4]",
            .submit_ms = t.submit_ms, .start_ms = t.start_ms, .end_ms = t.end_ms, .state = 3,
            .data = &id, .len = sizeof id});
    }
    settle(bed, store_submit(bed->store, b));
}

static void check_window(struct bed *bed, struct store_query q) {
    struct rows rows = {0};
    bool seen[SPAN_ROWS + 1] = {0};
    uint32_t before, expected = 0;
    do {
        before = rows.ids.len;
        assert_int_equal(store_history(bed->store, &q, collect, &rows, NULL), 0);
        for (uint32_t i = before; i < rows.ids.len; i++) {
            assert_false(seen[rows.ids.at[i]]);
            seen[rows.ids.at[i]] = true;
        }
        if (rows.ids.len) {
            struct span last = span_of(rows.ids.at[rows.ids.len - 1]);
            q.resume = true;
            q.after_id = rows.ids.at[rows.ids.len - 1];
            q.after_end_ms = last.end_ms;
            q.after_began_ms = last.start_ms ? last.start_ms : last.submit_ms;
        }
    } while (rows.ids.len > before && q.limit);
    for (uint64_t id = 1; id <= SPAN_ROWS; id++) {
        struct span t = span_of(id);
        int64_t began = t.start_ms ? t.start_ms : t.submit_ms;
        bool wanted = t.end_ms >= q.ended_from_ms && began < q.began_before_ms && (!q.user || id % 3 == 0);
        expected += wanted;
        assert_int_equal(seen[id], wanted);
    }
    assert_int_equal(rows.ids.len, expected);
    vec_done(&rows.ids);
}

static void test_jobs_of_a_time(void **state) {
    struct bed *bed = *state;
    fill_spans(bed);
    for (int64_t from = 1; from < SPAN_ROWS; from += 23)
        for (int64_t to = from; to < SPAN_ROWS + 40; to += 41) {
            struct store_query q = {.order = STORE_ANY, .ended_from_ms = 20000000000 + from * SPAN_STEP_MS,
                                    .began_before_ms = 20000000000 + to * SPAN_STEP_MS + 1};
            check_window(bed, q);
            q.limit = 7;
            check_window(bed, q);
            q.user = "bob";
            check_window(bed, q);
        }
    check_window(bed, (struct store_query){.order = STORE_ANY, .began_before_ms = INT64_MAX, .limit = 50});
    check_window(bed, (struct store_query){.order = STORE_ANY, .began_before_ms = 1});
}

static int count_event(void *ctx, const struct store_event *ev) {
    uint64_t *last = ctx;
    assert_true(ev->seq > *last);
    *last = ev->seq;
    return ev->seq == 50 ? 1 : 0;
}

static void test_events(void **state) {
    struct bed *bed = *state;
    lab_load(bed->store, NULL);
    settle(bed, store_submit(bed->store, lab_batch(1, 100, 8)));
    uint64_t last = 0;
    assert_int_equal(store_events(bed->store, 3, 0, 0, count_event, &last, NULL), 0);
    assert_int_equal(last, 98);
    last = 0;
    assert_int_equal(store_events(bed->store, 3, 20, 2, count_event, &last, NULL), 0);
    assert_int_equal(last, 28);
    last = 0;
    assert_int_equal(store_events(bed->store, 0, 0, 0, count_event, &last, NULL), 0);
    assert_int_equal(last, 50);
    assert_int_equal(store_check(bed->store, NULL), 0);
}

struct old_keys {
    char text[128];
    int stop_after;
};

static int note_key(void *ctx, const struct store_old_key *k) {
    struct old_keys *o = ctx;
    size_t len = strlen(o->text);
    snprintf(o->text + len, sizeof o->text - len, "%s/%s=%u@%d ", k->user, k->key, (unsigned)k->job, (int)k->expires_ms);
    return --o->stop_after == 0;
}

// As release 0.1.0 wrote them: nothing of this program does.
static void test_old_keys(void **state) {
    struct bed *bed = *state;
    struct old_keys o = {0};
    if (bed->simulated || bed->postgres) {
        assert_int_equal(store_old_keys(bed->store, 0, note_key, &o, NULL), 0);
        assert_string_equal(o.text, "");
        return;
    }
    char path[512];
    sqlite3 *db;
    snprintf(path, sizeof path, "%s/acequia.db", bed->folder);
    assert_int_equal(sqlite3_open(path, &db), SQLITE_OK);
    assert_int_equal(sqlite3_exec(db,
                                  "INSERT INTO idem(user, key, job, expires_ms) VALUES"
                                  "('ann','k1',41,1000), ('bob','k1',42,2000), ('bob','k2',43,3000)",
                                  NULL, NULL, NULL),
                     SQLITE_OK);
    sqlite3_close(db);
    assert_int_equal(store_old_keys(bed->store, 1000, note_key, &o, NULL), 0);
    assert_string_equal(o.text, "bob/k2=43@3000 bob/k1=42@2000 ");
    o = (struct old_keys){.stop_after = 1};
    assert_int_equal(store_old_keys(bed->store, 0, note_key, &o, NULL), 0);
    assert_string_equal(o.text, "bob/k2=43@3000 ");
}

struct walk {
    struct store *store;
    uint64_t records;
    int result;
};

static int next_record(void *ctx, const struct store_event *event) {
    struct walk *w = ctx;
    return event->seq == ++w->records ? 0 : -EBADMSG;
}

static void *walk_journal(void *arg) {
    struct walk *w = arg;
    w->result = store_journal(w->store, next_record, w, NULL);
    return NULL;
}

// Another thread reads all of it while the owner writes.
static void test_journal_by_another_thread(void **state) {
    enum { RECORDS = 20000, MORE = 50 };
    struct bed *bed = *state;
    lab_load(bed->store, NULL);
    settle(bed, store_submit(bed->store, lab_batch(1, RECORDS, 100)));
    struct walk w = {.store = bed->store};
    pthread_t thread;
    assert_int_equal(pthread_create(&thread, NULL, walk_journal, &w), 0);
    for (uint64_t i = 0; i < MORE; i++)
        settle(bed, store_submit(bed->store, lab_batch(RECORDS + 1 + i * 10, 10, 100)));
    pthread_join(thread, NULL);
    assert_int_equal(w.result, 0);
    assert_in_range(w.records, RECORDS, RECORDS + MORE * 10);
}

static void test_prune_journal(void **state) {
    struct bed *bed = *state;
    bed->config.retention.journal_ms = 100;
    bed_reopen(bed);
    lab_load(bed->store, NULL);
    struct store_batch *b = lab_batch(1, 2000, 8);
    store_batch_level(b, 2, "0.2.0");
    settle(bed, store_submit(bed->store, b));
    prune(bed, 1000000);  // no snapshots: nothing may go
    snapshot(bed, 1200);
    prune(bed, 1000000);  // one is not enough
    snapshot(bed, 1500);
    prune(bed, 1000000);
    uint64_t first = 0;
    store_events(bed->store, 0, 0, 1, count_event, &first, NULL);
    assert_int_equal(first, 1200);
    struct lab_check check;
    bed_reopen(bed);
    assert_int_equal(lab_load(bed->store, &check), 2000);
    assert_int_equal(check.snapshot_seq, 1500);
}

static void assert_blob(struct bed *bed, const char *name, const char *expected) {
    void *data = NULL;
    size_t len = 0;
    int r = store_blob(bed->store, name, &data, &len, NULL);
    if (!expected) {
        assert_int_equal(r, -ENOENT);
        return;
    }
    assert_int_equal(r, 0);
    assert_int_equal(len, strlen(expected));
    assert_memory_equal(data, expected, len);
    free(data);
}

static void test_blobs(void **state) {
    struct bed *bed = *state;
    lab_load(bed->store, NULL);
    assert_blob(bed, "ca.key", NULL);
    struct store_batch *b = store_batch_new();
    store_batch_blob(b, "ca.key", "secret", 6);
    store_batch_blob(b, "ca.crt", "public", 6);
    store_batch_blob(b, "empty", "", 0);
    assert_false(store_batch_empty(b));
    settle(bed, store_submit(bed->store, b));
    assert_blob(bed, "ca.key", "secret");
    bed_reopen(bed);
    lab_load(bed->store, NULL);
    assert_blob(bed, "ca.key", "secret");
    assert_blob(bed, "empty", "");
    b = store_batch_new();
    store_batch_blob(b, "ca.key", "another", 7);
    store_batch_blob(b, "ca.crt", NULL, 0);
    settle(bed, store_submit(bed->store, b));
    assert_blob(bed, "ca.key", "another");
    assert_blob(bed, "ca.crt", NULL);
}

// A journal of a later level is refused with the release it needs, also after it was opened before.
static void test_level(void **state) {
    struct bed *bed = *state;
    struct error e = {0};
    lab_load(bed->store, NULL);
    struct store_batch *b = lab_batch(1, 1, 0);
    store_batch_level(b, 7, "3.1.0");
    settle(bed, store_submit(bed->store, b));
    bed->config.level = 7;
    bed_reopen(bed);
    bed->store = store_close(bed->store);
    bed->config.level = 6;
    int r = bed->simulated ? sim_store_open(bed->disk, &bed->config, &bed->store, &e)
                           : store_open(&bed->config, &bed->store, &e);
    assert_int_equal(r, -EPROTONOSUPPORT);
    assert_non_null(strstr(e.text, "needs Acequia 3.1.0 or later"));
    bed->store = NULL;
}

// A year forward by mistake, for an hour: nothing of last year may be gone.
static void a_clock_that_jumps_makes_nothing_old(void **state) {
    const int64_t year = 365LL * 86400000, hour = 3600000, day = 24 * hour, at = 1800000000000;
    struct store_retention_clock r;
    int64_t jump;
    store_retention_begin(&r, at - day, at, 0);
    assert_int_equal(store_retention_now_ms(&r, at + 1000, 1000, &jump), at + 1000);
    assert_int_equal(jump, 0);
    assert_int_equal(store_retention_now_ms(&r, at + year + 2000, 2000, &jump), at + 2000);
    assert_int_equal(jump, year);
    assert_int_equal(store_retention_now_ms(&r, at + year + hour, hour, &jump), at + hour);
    assert_int_equal(jump, 0);
    assert_int_equal(store_retention_now_ms(&r, at + hour + 1000, hour + 1000, &jump),
                     at + hour + 1000);  // set right
    // One that lasts is believed after a day, and one that is set back at once.
    assert_int_equal(store_retention_now_ms(&r, at + year, 2 * hour, &jump), at + 2 * hour);
    for (int64_t t = 3 * hour; t < 26 * hour; t += hour)
        assert_int_equal(store_retention_now_ms(&r, at + year + t - 2 * hour, t, &jump), at + t);
    assert_int_equal(store_retention_now_ms(&r, at + year + day, 26 * hour, &jump), at + year + day);
    assert_int_equal(store_retention_now_ms(&r, at, 27 * hour, &jump), at);
    // Wrong from the start.
    store_retention_begin(&r, at, at + year, 5);
    assert_int_equal(store_retention_now_ms(&r, at + year + 60000, 60005, &jump), at + 60000);
    store_retention_begin(&r, 0, at, 5);
    assert_int_equal(store_retention_now_ms(&r, at, 5, &jump), at);
}

int main(void) {
#define BOTH(test)                                                   \
    cmocka_unit_test_setup_teardown(test, setup_sqlite, teardown),   \
        cmocka_unit_test_setup_teardown(test, setup_sim, teardown)
    const struct CMUnitTest tests[] = {
        BOTH(test_journal),
        BOTH(test_snapshots),
        BOTH(test_large_snapshots),
        BOTH(test_texts),
        BOTH(test_history),
        BOTH(test_jobs_of_a_time),
        cmocka_unit_test_setup_teardown(test_prune_by_size, setup_sqlite, teardown),
        cmocka_unit_test_setup_teardown(test_journal_by_another_thread, setup_sqlite, teardown),
        BOTH(test_blobs),
        BOTH(test_level),
        BOTH(test_pages),
        BOTH(test_events),
        BOTH(test_old_keys),
        BOTH(test_prune_journal),
        cmocka_unit_test(a_clock_that_jumps_makes_nothing_old),
    };
#define PG(test) cmocka_unit_test_setup_teardown(test, setup_postgres, teardown)
    const struct CMUnitTest postgres_tests[] = {
        PG(test_journal),
        PG(test_snapshots),
        PG(test_large_snapshots),
        PG(test_texts),
        PG(test_history),
        PG(test_jobs_of_a_time),
        PG(test_journal_by_another_thread),
        PG(test_blobs),
        PG(test_level),
        PG(test_pages),
        PG(test_events),
        PG(test_old_keys),
        PG(test_prune_journal),
    };
    return getenv("ACEQUIA_TEST_DATABASE") ? cmocka_run_group_tests(postgres_tests, NULL, NULL)
                                           : cmocka_run_group_tests(tests, NULL, NULL);
}
