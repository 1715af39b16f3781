// Idempotency keys of the previous release: found in the store at the first start, known to the core afterwards,
// also after a restart.
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>
#include <dirent.h>
#include <sqlite3.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "controller/commit_pipeline.h"

static const struct actor alice = {"alice", 1001, 1001, false};
static const uint8_t secret[PIPELINE_KEY_SECRET_BYTES] = "0123456789abcde";

struct head {
    char folder[64];
    struct core *core;
    struct commit_pipeline *pipeline;
    struct store *store;
};

static void on_send(void *ctx, const char *node, const void *data, size_t len) {
}

static void on_job(void *ctx, uint64_t id) {
}

static void on_storage(void *ctx, const struct error *problem) {
}

static void open_head(struct head *h) {
    struct core_config config;
    struct pipeline_hooks hooks = {.ctx = h, .send = on_send, .job_changed = on_job, .storage = on_storage};
    struct error e = {0};
    core_config_default(&config);
    h->core = core_new(&config);
    h->pipeline = pipeline_new(h->core, &hooks);
    struct store_config store = {
        .path = h->folder, .watch = pipeline_watch(h->pipeline), .level = FEATURE_LEVEL_NEWEST};
    if (store_open(&store, &h->store, &e) < 0)
        fail_msg("%s", e.text);
    pipeline_attach(h->pipeline, h->store);
    assert_int_equal(pipeline_load(h->pipeline, 1000, &e), 0);
}

static void close_head(struct head *h) {
    pipeline_flush(h->pipeline, 1000, false);
    store_flush(h->store);
    h->store = store_close(h->store);
    h->pipeline = pipeline_free(h->pipeline);
    h->core = core_free(h->core);
}

static void remove_folder(const char *folder) {
    char path[512];
    DIR *d = opendir(folder);
    struct dirent *entry;
    while ((entry = readdir(d))) {
        snprintf(path, sizeof path, "%s/%s", folder, entry->d_name);
        unlink(path);
    }
    closedir(d);
    rmdir(folder);
}

static int submit(struct head *h, const char *key, struct command_result *out) {
    static const char *argv[] = {"true"};
    struct array_range range = {0, 4, 1};
    struct spec s = {.name = "t", .workdir = "/", .argv = {argv, 1}, .array = {&range, 1}};
    struct command m = {COMMAND_SUBMIT, &(struct command_submit){.spec = &s}};
    return core_command(h->core, &alice, key, &m, 1000, out, NULL);
}

static void old_keys_are_imported_once(void **state) {
    struct head h = {.folder = "/tmp/acequia-keys-XXXXXX"};
    struct command_result out;
    char path[128];
    sqlite3 *db;
    assert_non_null(mkdtemp(h.folder));
    open_head(&h);
    assert_int_equal(submit(&h, NULL, &out), 0);  // job 1, five elements, in the journal
    assert_int_equal(out.count, 5);
    close_head(&h);
    snprintf(path, sizeof path, "%s/acequia.db", h.folder);
    assert_int_equal(sqlite3_open(path, &db), SQLITE_OK);
    const char *rows = "INSERT INTO idem(user, key, job, expires_ms) VALUES"
                       "('alice','live',1,5000000), ('alice','pruned',77,5000000), ('alice','expired',78,10)";
    assert_int_equal(sqlite3_exec(db, rows, NULL, NULL, NULL), SQLITE_OK);
    open_head(&h);
    assert_false(core_keys_ready(h.core));
    assert_int_equal(pipeline_init_keys(h.pipeline, secret, 1000, NULL), 0);
    assert_int_equal(submit(&h, "live", &out), 0);
    assert_true(out.repeated && out.id == 1 && out.count == 5);
    assert_int_equal(submit(&h, "pruned", &out), 0);
    assert_true(out.repeated && out.id == 77);
    assert_int_equal(submit(&h, "expired", &out), 0);
    assert_false(out.repeated);
    close_head(&h);
    // The table is not looked at again.
    assert_int_equal(sqlite3_exec(db, "DELETE FROM idem", NULL, NULL, NULL), SQLITE_OK);
    sqlite3_close(db);
    open_head(&h);
    assert_true(core_keys_ready(h.core));
    assert_int_equal(pipeline_init_keys(h.pipeline, secret, 1000, NULL), 0);
    assert_int_equal(submit(&h, "live", &out), 0);
    assert_true(out.repeated && out.id == 1 && out.count == 5);
    close_head(&h);
    remove_folder(h.folder);
}

int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(old_keys_are_imported_once)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
