// Backups: a copy of one moment while commits go on, damage that is found, a restore that loses nothing of what was
// there; and a folder that has lost its database or its log.
#include "lab.h"

#include <errno.h>
#include <fcntl.h>
#include <sqlite3.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/alloc.h"
#include "base/cleanup.h"
#include "base/text.h"

struct yard {
    char *folder, *other, *file;
    struct lab_watch watch;
    struct store_config config;
    struct store *store;
    struct lab_check check;
    struct store_loader loader;
    struct store_contents contents;
    struct error e;
};

static int count_snapshot(void *ctx, uint64_t seq, const void *data, size_t len) {
    struct lab_check *c = ctx;
    c->snapshots++;
    c->next = seq + 1;
    return 0;
}

static int count_event(void *ctx, const struct store_event *ev) {
    struct lab_check *c = ctx;
    c->events++;
    c->next = ev->seq + 1;
    return 0;
}

static int setup(void **state) {
    struct yard *y = xcalloc(1, sizeof *y);
    y->folder = lab_folder();
    y->other = lab_folder();
    y->file = xasprintf("%s/copy.backup", y->other);
    y->config = lab_config(y->folder, &y->watch);
    y->loader = (struct store_loader){&y->check, count_snapshot, count_event};
    assert_int_equal(store_open(&y->config, &y->store, &y->e), 0);
    *state = y;
    return 0;
}

static int teardown(void **state) {
    struct yard *y = *state;
    store_close(y->store);
    lab_remove(y->folder);
    lab_remove(y->other);
    free(y->file);
    free(y);
    return 0;
}

static void commit(struct yard *y, uint64_t first, uint64_t count) {
    struct store_batch *b = lab_batch(first, count, 100);
    lab_history(b, first, "ana", 3, 1000);
    lab_wait(y->store, &y->watch, store_submit(y->store, b));
}

static int open_again(struct yard *y, const char *folder) {
    y->config.path = folder;
    memset(&y->watch, 0, sizeof y->watch);
    return store_open(&y->config, &y->store, &y->e);
}

static void write_more(void *ctx, uint64_t done, uint64_t all) {
    struct yard *y = ctx;
    if (y->watch.seq == 10)
        commit(y, 11, 5);
}

static void a_backup_is_of_one_moment(void **state) {
    struct yard *y = *state;
    commit(y, 1, 10);
    struct store_backup_hooks hooks = {y, write_more, NULL};
    assert_int_equal(store_backup(y->folder, y->file, &hooks, &y->loader, &y->contents, &y->e), 0);
    assert_int_equal(y->watch.seq, 15);          // written while the copy was made,
    assert_int_equal(y->contents.last_seq, 10);  // and not in it
    assert_int_equal(y->contents.finished, 1);
    assert_int_equal(y->check.events, 10);
    struct stat st;
    assert_int_equal(stat(y->file, &st), 0);
    assert_int_equal(st.st_mode & 0777, 0600);
    assert_int_equal(store_backup(y->folder, y->file, NULL, &y->loader, &y->contents, &y->e), -EEXIST);
}

// A path is never taken for anything else: not the first part of one with two slashes for a host.
static void paths_are_read_as_they_are(void **state) {
    struct yard *y = *state;
    cleanup_free char *doubled = xasprintf("/%s", y->file),
                      *odd = xasprintf("%s?mode=memory&a#b%%41", y->file);
    commit(y, 1, 10);
    assert_int_equal(store_backup(y->folder, doubled, NULL, &y->loader, &y->contents, &y->e), 0);
    assert_int_equal(store_check_file(doubled, &y->loader, 0, &y->contents, &y->e), 0);
    assert_int_equal(store_backup(y->folder, odd, NULL, &y->loader, &y->contents, &y->e), 0);
    assert_int_equal(store_check_file(odd, &y->loader, 0, &y->contents, &y->e), 0);
}

static void a_restore_keeps_what_was_there(void **state) {
    struct yard *y = *state;
    char aside[STORE_ASIDE_MAX];
    commit(y, 1, 10);
    assert_int_equal(store_backup(y->folder, y->file, NULL, &y->loader, &y->contents, &y->e), 0);
    assert_int_equal(store_backup_value_set(y->file, "note", "x", 1, &y->e), 0);
    commit(y, 11, 5);
    assert_int_equal(store_restore(y->file, y->folder, aside, &y->e), -EBUSY);
    assert_non_null(strstr(y->e.text, "in use by another controller"));
    y->store = store_close(y->store);
    assert_int_equal(store_restore(y->file, y->folder, aside, &y->e), 0);
    assert_true(str_has_prefix(aside, "acequia.db.before-"));
    assert_int_equal(open_again(y, y->folder), 0);
    assert_int_equal(lab_load(y->store, &y->check), 10);
    void *data;
    size_t len;
    assert_int_equal(store_blob(y->store, "backup/note", &data, &len, &y->e), -ENOENT);
    y->store = store_close(y->store);
    cleanup_free char *kept = xasprintf("%s/%s", y->folder, aside);
    assert_int_equal(store_check_file(kept, &y->loader, 0, &y->contents, &y->e), 0);
    assert_int_equal(y->contents.last_seq, 15);
}

static void damage_is_found(void **state) {
    struct yard *y = *state;
    sqlite3 *db;
    commit(y, 1, 10);
    assert_int_equal(store_backup(y->folder, y->file, NULL, &y->loader, &y->contents, &y->e), 0);
    assert_int_equal(store_check_file(y->file, &y->loader, 0, &y->contents, &y->e), 0);
    assert_int_equal(sqlite3_open(y->file, &db), SQLITE_OK);
    assert_int_equal(sqlite3_exec(db, "UPDATE journal SET at_ms = at_ms + 1 WHERE seq = 7", NULL, NULL, NULL),
                     SQLITE_OK);
    sqlite3_close(db);
    assert_int_equal(store_check_file(y->file, &y->loader, 0, &y->contents, &y->e), -EBADMSG);
    assert_non_null(strstr(y->e.text, "checksum does not match; use another backup"));
    struct stat st;
    assert_int_equal(stat(y->file, &st), 0);
    assert_int_equal(truncate(y->file, st.st_size - st.st_size % 4096),
                     0);  // as a release that knew no checksum of files
    assert_int_equal(store_check_file(y->file, &y->loader, 0, &y->contents, &y->e), -EBADMSG);
    assert_non_null(strstr(y->e.text, "record 7"));
    cleanup_free char *text = xasprintf("%s/text", y->other);
    FILE *f = fopen(text, "w");
    fputs("no database at all, but long enough to have a header of one hundred bytes, which is what SQLite "
          "looks at first",
          f);
    fclose(f);
    assert_int_equal(store_check_file(text, &y->loader, 0, &y->contents, &y->e), -EBADMSG);
    cleanup_free char *missing = xasprintf("%s/missing", y->other);
    assert_int_equal(store_check_file(missing, &y->loader, 0, &y->contents, &y->e), -ENOENT);
    assert_int_equal(access(missing, F_OK), -1);  // looking for it does not make it
}

static void run(const char *file, const char *sql) {
    sqlite3 *db;
    assert_int_equal(sqlite3_open(file, &db), SQLITE_OK);
    assert_int_equal(sqlite3_exec(db, sql, NULL, NULL, NULL), SQLITE_OK);
    sqlite3_close(db);
}

static void copy_bytes(const char *from, const char *to) {
    cleanup_close int in = open(from, O_RDONLY | O_CLOEXEC),
                      out = open(to, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0600);
    char piece[4096];
    assert_true(in >= 0 && out >= 0);
    for (ssize_t n; (n = read(in, piece, sizeof piece)) > 0;)
        assert_int_equal(write(out, piece, (size_t)n), n);
}

// The journal that SQLite leaves when a program is killed in the middle of a change: it would be read back into the
// database beside it. Here it holds a page with another content.
static void leave_journal(struct yard *y) {
    cleanup_free char *other = xasprintf("%s/other", y->other), *its = xasprintf("%s-journal", other),
                      *journal = xasprintf("%s-journal", y->file);
    sqlite3 *db;
    copy_bytes(y->file, other);
    run(other, "UPDATE journal SET at_ms = at_ms + 1 WHERE seq = 7");
    assert_int_equal(sqlite3_open(other, &db), SQLITE_OK);
    assert_int_equal(
        sqlite3_exec(db,
                     "PRAGMA cache_size=5; BEGIN; UPDATE journal SET at_ms = at_ms + 1 WHERE seq = 7;"
                     "WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < 200)"
                     "  INSERT INTO blob SELECT 'x' || i, 0, zeroblob(4000) FROM n",
                     NULL, NULL, NULL),
        SQLITE_OK);
    copy_bytes(its, journal);
    sqlite3_close(db);
}

static int add_note(void *ctx, const char *unfinished, struct error *e) {
    struct yard *y = ctx;
    struct stat st;
    cleanup_free char *folder = xasprintf("%s.unfinished", y->file);
    assert_int_equal(access(y->file, F_OK), -1);  // whoever kills it now leaves nothing that looks whole
    assert_int_equal(stat(folder, &st), 0);
    assert_int_equal(st.st_mode & 0777, 0700);
    assert_int_equal(store_backup(y->folder, y->file, NULL, &y->loader, &y->contents, e), -EEXIST);
    assert_non_null(strstr(e->text, "another backup to that file is being made"));
    *e = (struct error){0};
    return store_backup_value_set(unfinished, "note", "x", 1, e);
}

static int give_up(void *ctx, const char *unfinished, struct error *e) {
    return error_set(e, EIO, "no");
}

static void a_backup_is_whole_when_it_has_its_name(void **state) {
    struct yard *y = *state;
    struct store_backup_hooks hooks = {y, NULL, give_up};
    cleanup_free char *folder = xasprintf("%s.unfinished", y->file), *left = xasprintf("%s/backup", folder);
    cleanup_free char *elsewhere = xasprintf("%s/backup", y->other), *above = xstrdup(y->file);
    cleanup_free void *note = NULL;
    size_t len;
    commit(y, 1, 10);
    assert_int_equal(store_backup(y->folder, y->file, &hooks, &y->loader, &y->contents, &y->e), -EIO);
    assert_int_equal(access(y->file, F_OK), -1);
    assert_int_equal(access(folder, F_OK), -1);
    // What a killed one has left is no hindrance, and goes.
    *strrchr(above, '/') = 0;
    for (int i = 0; i < 2; i++) {
        assert_int_equal(mkdir(folder, 0700), 0);
        copy_bytes("/dev/null", left);
        if (i == 0)
            store_backup_clear(above);
        assert_int_equal(access(folder, F_OK), i == 0 ? -1 : 0);
    }
    hooks.finish = add_note;
    assert_int_equal(store_backup(y->folder, y->file, &hooks, &y->loader, &y->contents, &y->e), 0);
    assert_int_equal(access(folder, F_OK), -1);
    assert_int_equal(store_check_file(y->file, &y->loader, 0, &y->contents, &y->e), 0);
    assert_int_equal(store_backup_value(y->file, "note", &note, &len, &y->e), 0);
    assert_int_equal(store_backup(y->folder, y->other, NULL, &y->loader, &y->contents, &y->e), -EISDIR);
    // Somebody else's folder, or a link to one, is left alone.
    assert_int_equal(unlink(y->file), 0);
    copy_bytes("/dev/null", elsewhere);
    assert_int_equal(symlink(y->other, folder), 0);
    assert_int_equal(store_backup(y->folder, y->file, NULL, &y->loader, &y->contents, &y->e), -EEXIST);
    assert_int_equal(access(elsewhere, F_OK), 0);
    assert_int_equal(unlink(folder), 0);
}

static void files_beside_a_backup_are_not_read(void **state) {
    struct yard *y = *state;
    char aside[STORE_ASIDE_MAX];
    commit(y, 1, 10);
    assert_int_equal(store_backup(y->folder, y->file, NULL, &y->loader, &y->contents, &y->e), 0);
    leave_journal(y);
    assert_int_equal(store_check_file(y->file, &y->loader, 0, &y->contents, &y->e), 0);
    y->store = store_close(y->store);
    assert_int_equal(store_restore(y->file, y->folder, aside, &y->e), 0);
    assert_int_equal(store_check_folder(y->folder, &y->loader, 0, &y->contents, &y->e), 0);
    assert_int_equal(y->contents.last_seq, 10);
    // SQLite itself would have read it.
    run(y->file, "SELECT count(*) FROM journal");
    assert_int_equal(store_check_file(y->file, &y->loader, 0, &y->contents, &y->e), -EBADMSG);
}

// What was set aside is a database with its log: both are restored.
static void what_was_set_aside_can_be_restored(void **state) {
    struct yard *y = *state;
    char aside[STORE_ASIDE_MAX], again[STORE_ASIDE_MAX];
    cleanup_free char *database = xasprintf("%s/acequia.db", y->folder), *log = xasprintf("%s-wal", database);
    cleanup_free char *kept_log = xasprintf("%s/log", y->other), *kept = xasprintf("%s/database", y->other);
    commit(y, 1, 10);
    assert_int_equal(store_backup(y->folder, y->file, NULL, &y->loader, &y->contents, &y->e), 0);
    commit(y, 11, 5);
    copy_bytes(database, kept);  // as a kill leaves them
    copy_bytes(log, kept_log);
    y->store = store_close(y->store);
    copy_bytes(kept, database);
    copy_bytes(kept_log, log);
    assert_int_equal(store_restore(y->file, y->folder, aside, &y->e), 0);
    cleanup_free char *from = xasprintf("%s/%s", y->folder, aside);
    assert_int_equal(store_restore(from, y->folder, again, &y->e), 0);
    assert_int_equal(store_check_folder(y->folder, &y->loader, 0, &y->contents, &y->e), 0);
    assert_int_equal(y->contents.last_seq, 15);
}

static void a_backup_with_programs_in_it_is_refused(void **state) {
    static const char *const sql[] = {
        "CREATE TRIGGER t AFTER DELETE ON blob BEGIN DELETE FROM journal; END",
        "CREATE VIEW v AS SELECT * FROM journal", "CREATE VIRTUAL TABLE v USING fts5(x)",
        "PRAGMA writable_schema=ON; INSERT INTO sqlite_schema(type, name, tbl_name, rootpage, sql) "
        "VALUES('table', 'v', 'v', 0, 'CREATE/**/VIRTUAL TABLE v USING fts5(x)')"};
    struct yard *y = *state;
    commit(y, 1, 10);
    for (size_t i = 0; i < sizeof sql / sizeof *sql; i++) {
        assert_int_equal(store_backup(y->folder, y->file, NULL, &y->loader, &y->contents, &y->e), 0);
        run(y->file, sql[i]);
        assert_int_equal(store_backup_value_set(y->file, "note", "x", 1, &y->e), 0);  // with the checksum that it needs
        assert_int_equal(store_check_file(y->file, &y->loader, 0, &y->contents, &y->e), -EBADMSG);
        assert_non_null(strstr(y->e.text, "use another one"));
        assert_int_equal(unlink(y->file), 0);
    }
}

// Wherever a bit is another one: in rows of history, in keys, in the free part of a page.
static void every_bit_counts(void **state) {
    struct yard *y = *state;
    struct stat st;
    char aside[STORE_ASIDE_MAX], byte;
    commit(y, 1, 10);
    struct store_batch *b = store_batch_new();
    store_batch_blob(b, "key", "secret", 6);
    lab_wait(y->store, &y->watch, store_submit(y->store, b));
    assert_int_equal(store_backup(y->folder, y->file, NULL, &y->loader, &y->contents, &y->e), 0);
    assert_int_equal(store_backup_value_set(y->file, "note", "x", 1, &y->e), 0);
    assert_int_equal(store_check_file(y->file, &y->loader, 0, &y->contents, &y->e), 0);
    assert_int_equal(stat(y->file, &st), 0);
    int fd = open(y->file, O_RDWR | O_CLOEXEC);
    for (off_t at = 0; at < st.st_size; at += 509) {
        assert_int_equal(pread(fd, &byte, 1, at), 1);
        byte ^= 4;
        assert_int_equal(pwrite(fd, &byte, 1, at), 1);
        if (store_check_file(y->file, &y->loader, 0, &y->contents, &y->e) != -EBADMSG)
            fail_msg("byte %lld of %lld is another one, and nobody notices", (long long)at,
                     (long long)st.st_size);
        byte ^= 4;
        assert_int_equal(pwrite(fd, &byte, 1, at), 1);
    }
    assert_int_equal(ftruncate(fd, st.st_size - 1), 0);
    close(fd);
    assert_int_equal(store_check_file(y->file, &y->loader, 0, &y->contents, &y->e), -EBADMSG);
    assert_int_equal(store_restore(y->file, y->other, aside, &y->e),
                     0);  // it is checked before that; the end is cut off
    cleanup_free char *restored = xasprintf("%s/acequia.db", y->other);
    assert_int_equal(stat(restored, &st), 0);
    assert_int_equal(st.st_size % 4096, 0);
}

// In a state folder, which has no such checksum: values and texts have their own.
static void damaged_values_are_found(void **state) {
    struct yard *y = *state;
    sqlite3 *db;
    struct store_key key;
    store_key_of("text", 4, &key);
    struct store_batch *b = lab_batch(1, 1, 10);
    store_batch_blob(b, "key", "secret", 6);
    store_batch_text(b, 1, &key, "text", 4);
    lab_wait(y->store, &y->watch, store_submit(y->store, b));
    assert_int_equal(store_check_folder(y->folder, &y->loader, 0, &y->contents, &y->e), 0);
    cleanup_free char *file = xasprintf("%s/acequia.db", y->folder);
    static const char *const damage[][2] = {
        {"UPDATE blob SET data = x'00' WHERE name = 'key'", "\"key\" is damaged"},
        {"UPDATE text SET data = x'00'", "script or environment is damaged"}};
    for (int i = 1; i >= 0; i--) {
        assert_int_equal(sqlite3_open(file, &db), SQLITE_OK);
        sqlite3_busy_timeout(db, 60000);
        assert_int_equal(sqlite3_exec(db, damage[i][0], NULL, NULL, NULL), SQLITE_OK);
        sqlite3_close(db);
        assert_int_equal(store_check_folder(y->folder, &y->loader, 0, &y->contents, &y->e), -EBADMSG);
        assert_non_null(strstr(y->e.text, damage[i][1]));
    }
}

static void copy(struct yard *y, const char *name) {
    cleanup_free char *from = xasprintf("%s/%s", y->folder, name), *to = xasprintf("%s/%s", y->other, name);
    cleanup_close int in = open(from, O_RDONLY | O_CLOEXEC);
    cleanup_close int out = open(to, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0600);
    assert_true(in >= 0 && out >= 0);
    for (ssize_t n; (n = copy_file_range(in, NULL, out, NULL, 1 << 20, 0)) != 0;)
        assert_true(n > 0);
}

// As after kill -9: the log is there, until somebody deletes it.
static void a_lost_log_is_noticed(void **state) {
    struct yard *y = *state;
    commit(y, 1, 10);
    for (int i = 0; i < 3; i++)
        copy(y, ((const char *[]){"acequia.db", "acequia.db-wal", "lock"})[i]);
    y->store = store_close(y->store);
    assert_int_equal(open_again(y, y->other), 0);
    assert_int_equal(lab_load(y->store, &y->check), 10);
    y->store = store_close(y->store);
    assert_int_equal(open_again(y, y->folder), 0);
    assert_int_equal(lab_load(y->store, &y->check), 10);
    commit(y, 11, 5);
    copy(y, "acequia.db");  // without the log: record 11 is not in it
    copy(y, "lock");
    y->store = store_close(y->store);
    assert_int_equal(open_again(y, y->other), -EBADMSG);
    assert_non_null(strstr(y->e.text, "ends at record 10, but record 15 was committed"));
    assert_non_null(strstr(y->e.text, "acequia restore"));
    cleanup_free char *lock = xasprintf("%s/lock", y->other);
    assert_int_equal(unlink(lock), 0);  // as the message says, to go on without them
    assert_int_equal(open_again(y, y->other), 0);
    assert_int_equal(lab_load(y->store, &y->check), 10);
}

static void an_emptied_database_is_noticed(void **state) {
    struct yard *y = *state;
    cleanup_free char *db = xasprintf("%s/acequia.db", y->folder);
    y->store = store_close(y->store);
    assert_int_equal(truncate(db, 0), 0);  // before the first record: a start that was interrupted
    assert_int_equal(open_again(y, y->folder), 0);
    commit(y, 1, 10);
    y->store = store_close(y->store);
    assert_int_equal(truncate(db, 0), 0);
    assert_int_equal(open_again(y, y->folder), -ENOENT);
    assert_non_null(strstr(y->e.text, "is empty although"));
    assert_int_equal(unlink(db), 0);
    assert_int_equal(open_again(y, y->folder), -ENOENT);
    assert_non_null(strstr(y->e.text, "is missing although"));
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(a_backup_is_of_one_moment, setup, teardown),
        cmocka_unit_test_setup_teardown(a_backup_is_whole_when_it_has_its_name, setup, teardown),
        cmocka_unit_test_setup_teardown(paths_are_read_as_they_are, setup, teardown),
        cmocka_unit_test_setup_teardown(a_restore_keeps_what_was_there, setup, teardown),
        cmocka_unit_test_setup_teardown(files_beside_a_backup_are_not_read, setup, teardown),
        cmocka_unit_test_setup_teardown(what_was_set_aside_can_be_restored, setup, teardown),
        cmocka_unit_test_setup_teardown(a_backup_with_programs_in_it_is_refused, setup, teardown),
        cmocka_unit_test_setup_teardown(damage_is_found, setup, teardown),
        cmocka_unit_test_setup_teardown(every_bit_counts, setup, teardown),
        cmocka_unit_test_setup_teardown(damaged_values_are_found, setup, teardown),
        cmocka_unit_test_setup_teardown(a_lost_log_is_noticed, setup, teardown),
        cmocka_unit_test_setup_teardown(an_emptied_database_is_noticed, setup, teardown),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
