// A disk that fails, is full, is damaged, or is somebody else's: nothing is lost or reordered, and
// each case says in a sentence what is wrong.
#include "lab.h"

#include <assert.h>
#include <errno.h>
#include <fcntl.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mount.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/alloc.h"
#include "base/buf.h"
#include "base/clock.h"
#include "base/rand.h"
#include "shim.h"
#include "../schema.h"
#include "../sql.h"

enum { BATCHES = 12, PER_BATCH = 5, RECORDS = 2000 };

static void open_or_fail(const struct store_config *config, struct store **s) {
    struct error e = {0};
    if (store_open(config, s, &e) < 0)
        fail_msg("open: %s", e.text);
}

static void wait_outcome(struct store *s, const struct lab_watch *watch, uint64_t ticket,
                         unsigned failures) {
    int64_t deadline = clock_mono_ms() + 10000;
    while (watch->ticket < ticket && watch->failures == failures) {
        store_flush(s);
        assert_true(clock_mono_ms() < deadline);
    }
}

// Every Nth operation fails, once or three times over; told to retry, the store catches up.
static void failing(enum shim_fault fault, unsigned nth, unsigned count, int code) {
    char *folder = lab_folder();
    struct lab_watch watch = {0};
    struct store_config config = lab_config(folder, &watch);
    config.vfs = SHIM_VFS;
    struct store *s = NULL;
    open_or_fail(&config, &s);
    assert_int_equal(lab_load(s, NULL), 0);
    shim_arm(fault, nth, count, 1);
    for (uint64_t i = 0; i < BATCHES; i++) {
        store_submit(s, lab_batch(i * PER_BATCH + 1, PER_BATCH, 700));
        if (i % 3 == 0 && !watch.failures)
            wait_outcome(s, &watch, i + 1, watch.failures);
    }
    for (unsigned tries = 0; watch.ticket < BATCHES; tries++) {
        assert_true(tries < 20);
        unsigned before = watch.failures;
        store_retry(s);
        wait_outcome(s, &watch, BATCHES, before);
    }
    if (shim_hits()) {
        assert_true(watch.failures > 0);
        assert_int_equal(watch.failure.code, code);
    }
    shim_disarm();
    store_close(s);
    open_or_fail(&config, &s);
    assert_int_equal(lab_load(s, NULL), BATCHES * PER_BATCH);
    store_close(s);
    lab_remove(folder);
}

static void test_failing_io(void **state) {
    for (unsigned nth = 1; nth <= 40; nth += nth < 12 ? 1 : 7) {
        failing(SHIM_WRITE_FAILS, nth, 1, EIO);
        failing(SHIM_WRITE_FAILS, nth, 3, EIO);
        failing(SHIM_FULL, nth, 3, ENOSPC);
    }
    for (unsigned nth = 1; nth <= 5; nth++) {
        failing(SHIM_SYNC_FAILS, nth, 1, EIO);
        failing(SHIM_SYNC_FAILS, nth, 3, EIO);
    }
}

// The log is copied into the database by another thread: commits go on, however long that takes.
static void test_commits_while_the_log_is_copied(void **state) {
    enum { LARGE = 60000, MORE = 50, BATCHES_MAX = 2000 };
    char *folder = lab_folder();
    struct lab_watch watch = {0};
    struct store_config config = lab_config(folder, &watch);
    struct store *s = NULL;
    uint64_t seq = 0;
    config.vfs = SHIM_VFS;
    open_or_fail(&config, &s);
    assert_int_equal(lab_load(s, NULL), 0);
    shim_hold_database(true);
    for (; !shim_held(); seq++) {  // until the log is long enough
        assert_true(seq < BATCHES_MAX);
        store_submit(s, lab_batch(seq + 1, 1, LARGE));
        lab_wait(s, &watch, seq + 1);
    }
    for (int i = 0; i < MORE; i++, seq++) {
        store_submit(s, lab_batch(seq + 1, 1, 700));
        lab_wait(s, &watch, seq + 1);
        assert_true(shim_held());
    }
    shim_hold_database(false);
    store_close(s);
    open_or_fail(&config, &s);
    assert_int_equal(lab_load(s, NULL), seq);
    store_close(s);
    lab_remove(folder);
}

// Giving up instead of retrying: what was acknowledged is there, and a prefix of the rest.
static void test_failing_then_restart(void **state) {
    for (unsigned nth = 1; nth <= 9; nth++) {
        char *folder = lab_folder();
        struct lab_watch watch = {0};
        struct store_config config = lab_config(folder, &watch);
        config.vfs = SHIM_VFS;
        struct store *s = NULL;
        open_or_fail(&config, &s);
        lab_load(s, NULL);
        shim_arm(nth % 2 ? SHIM_SYNC_FAILS : SHIM_WRITE_FAILS, nth, 1000000, 1);
        for (uint64_t i = 0; i < BATCHES && !watch.failures; i++) {
            store_submit(s, lab_batch(i * PER_BATCH + 1, PER_BATCH, 700));
            wait_outcome(s, &watch, i + 1, 0);
        }
        assert_int_equal(watch.failures, 1);
        uint64_t acked = watch.seq;
        shim_disarm();
        store_close(s);
        open_or_fail(&config, &s);
        uint64_t last = lab_load(s, NULL);
        assert_true(last >= acked && last <= acked + PER_BATCH);
        store_close(s);
        lab_remove(folder);
    }
}

// A snapshot must not be there before the journal record it stands on.
static void test_snapshot_waits(void **state) {
    char *folder = lab_folder();
    struct lab_watch watch = {0};
    struct store_config config = lab_config(folder, &watch);
    config.vfs = SHIM_VFS;
    struct store *s = NULL;
    open_or_fail(&config, &s);
    lab_load(s, NULL);
    shim_arm(SHIM_WRITE_FAILS, 1, 1000, 1);
    store_submit(s, lab_batch(1, 10, 10));
    wait_outcome(s, &watch, 1, 0);
    assert_int_equal(watch.failures, 1);
    uint64_t seq = 10;
    assert_int_equal(store_snapshot(s, seq, &seq, sizeof seq), 0);
    usleep(50000);
    store_poll(s);
    assert_int_equal(watch.snapshots, 0);
    shim_disarm();
    store_retry(s);
    lab_wait_snapshot(s, &watch, 1);
    assert_int_equal(watch.seq, 10);
    assert_int_equal(watch.snapshots, 1);
    store_close(s);
    lab_remove(folder);
}

// --- a full disk, for real: a small tmpfs in a mount namespace of its own ---

enum { TMPFS_BYTES = 8 << 20, RESERVE_BYTES = 2 << 20 };

static void fill_disk(const char *folder) {
    char name[256];
    snprintf(name, sizeof name, "%s/filler", folder);
    int fd = open(name, O_WRONLY | O_CREAT | O_CLOEXEC, 0600);
    assert_true(fd >= 0);
    char block[4096];
    memset(block, 'x', sizeof block);
    while (write(fd, block, sizeof block) > 0)
        ;
    assert_int_equal(errno, ENOSPC);
    close(fd);
}

static void submit_until(struct store *s, const struct lab_watch *watch, uint64_t *seq,
                         uint64_t *ticket, unsigned most) {
    for (unsigned i = 0; i < most && !watch->failures; i++) {
        *ticket = store_submit(s, lab_batch(*seq + 1, 10, 2000));
        *seq += 10;
        wait_outcome(s, watch, *ticket, 0);
    }
}

static void full_disk_body(const char *folder) {
    struct lab_watch watch = {0};
    struct store_config config = lab_config(folder, &watch);
    config.reserve_bytes = RESERVE_BYTES;
    config.low_bytes = 1 << 20;
    struct store *s = NULL;
    open_or_fail(&config, &s);
    lab_load(s, NULL);
    uint64_t seq = 0, ticket = 0;
    submit_until(s, &watch, &seq, &ticket, 5);
    assert_int_equal(store_space(s), STORE_SPACE_OK);
    fill_disk(folder);
    assert_int_equal(store_space(s), STORE_SPACE_LOW);
    // The reserve lets the next commits through, and that is reported.
    submit_until(s, &watch, &seq, &ticket, 10);
    assert_int_equal(watch.failures, 0);
    assert_int_equal(store_space(s), STORE_SPACE_CRITICAL);
    // Then it really is full: everything waits, in order.
    submit_until(s, &watch, &seq, &ticket, 1000);
    assert_int_equal(watch.failures, 1);
    assert_int_equal(watch.failure.code, ENOSPC);
    assert_non_null(strstr(watch.failure.text, "make room"));
    assert_int_equal(store_space(s), STORE_SPACE_CRITICAL);
    uint64_t acked = watch.seq;
    assert_true(acked < seq);
    store_retry(s);  // still full
    wait_outcome(s, &watch, ticket, 1);
    assert_int_equal(watch.failures, 2);

    char name[256];
    snprintf(name, sizeof name, "%s/filler", folder);
    unlink(name);
    store_retry(s);
    wait_outcome(s, &watch, ticket, 2);
    assert_int_equal(watch.failures, 2);
    assert_int_equal(watch.seq, seq);
    store_close(s);
    open_or_fail(&config, &s);
    assert_int_equal(lab_load(s, NULL), seq);
    store_close(s);
}

static void test_full_disk(void **state) {
    if (geteuid() != 0) {
        print_message("skipped: mounting a small disk needs root\n");
        skip();
    }
    char *folder = lab_folder();
    pid_t pid = fork();
    if (pid == 0) {
        char options[64];
        snprintf(options, sizeof options, "size=%d", TMPFS_BYTES);
        if (unshare(CLONE_NEWNS) < 0 || mount("none", "/", NULL, MS_REC | MS_PRIVATE, NULL) < 0 ||
            mount("none", folder, "tmpfs", 0, options) < 0)
            _exit(77);
        full_disk_body(folder);
        _exit(0);
    }
    int status = 0;
    waitpid(pid, &status, 0);
    lab_remove(folder);
    if (WIFEXITED(status) && WEXITSTATUS(status) == 77) {
        print_message("skipped: a mount namespace cannot be had here\n");
        skip();
    }
    assert_true(WIFEXITED(status) && WEXITSTATUS(status) == 0);
}

// --- damage, and folders that are not ours ---

static void damage(const char *folder, const char *file, off_t at, const char *with) {
    char name[300];
    snprintf(name, sizeof name, "%s/%s", folder, file);
    int fd = open(name, O_RDWR | O_CLOEXEC);
    assert_true(fd >= 0);
    assert_int_equal(pwrite(fd, with, strlen(with), at), strlen(with));
    close(fd);
}

static void fill_and_close(const struct store_config *config, struct lab_watch *watch) {
    struct store *s = NULL;
    open_or_fail(config, &s);
    lab_load(s, NULL);
    lab_wait(s, watch, store_submit(s, lab_batch(1, RECORDS, 500)));
    for (uint64_t seq = 50; seq <= 100; seq += 50) {
        assert_int_equal(store_snapshot(s, seq, &seq, sizeof seq), 0);
        lab_wait_snapshot(s, watch, (unsigned)seq / 50);
    }
    store_close(s);
}

static void test_damaged_header(void **state) {
    char *folder = lab_folder();
    struct lab_watch watch = {0};
    struct store_config config = lab_config(folder, &watch);
    fill_and_close(&config, &watch);
    damage(folder, "acequia.db", 0, "this is no database");
    struct store *s = NULL;
    struct error e = {0};
    assert_int_equal(store_open(&config, &s, &e), -EBADMSG);
    assert_non_null(strstr(e.text, "acequia.db"));
    assert_non_null(strstr(e.text, "restore the state folder"));
    assert_null(s);
    lab_remove(folder);
}

static int ignore_snapshot(void *ctx, uint64_t seq, const void *data, size_t len) {
    return 0;
}

static int ignore_event(void *ctx, const struct store_event *ev) {
    return 0;
}

// Turns over bytes all over the file: the store must notice or be unaffected, never go astray.
static void test_damaged_pages(void **state) {
    struct store_loader loader = {NULL, ignore_snapshot, ignore_event};
    unsigned noticed = 0;
    for (unsigned round = 0; round < 30; round++) {
        char *folder = lab_folder();
        struct lab_watch watch = {0};
        struct store_config config = lab_config(folder, &watch);
        fill_and_close(&config, &watch);
        char name[300];
        snprintf(name, sizeof name, "%s/acequia.db", folder);
        struct stat st;
        assert_int_equal(stat(name, &st), 0);
        damage(folder, "acequia.db", 100 + (off_t)round * (st.st_size - 200) / 30, "\xff\x01\xfe\x55");
        struct store *s = NULL;
        struct error e = {0};
        int r = store_open(&config, &s, &e);
        if (r == 0)
            r = store_load(s, &loader, NULL, &e);
        if (r == 0)
            r = store_check(s, &e);
        if (r < 0) {
            noticed++;
            assert_true(strlen(e.text) > 20);
        }
        store_close(s);
        lab_remove(folder);
    }
    assert_true(noticed > 20);
}

static int note_seq(void *ctx, const struct store_event *ev) {
    *(uint64_t *)ctx = ev->seq;
    return 1;
}

static void run_sql(const char *folder, const char *sql) {
    cleanup_buf struct buf name = {0};
    buf_addf(&name, "%s/acequia.db", folder);
    sqlite3 *db = NULL;
    assert_int_equal(sqlite3_open(buf_str(&name), &db), SQLITE_OK);
    assert_int_equal(sqlite3_exec(db, sql, NULL, NULL, NULL), SQLITE_OK);
    sqlite3_close(db);
}

// Whatever happened to the newest snapshot, the older one stands in for it.
static void test_damaged_snapshot(void **state) {
    static const char *const damages[] = {"UPDATE snapshot_piece SET data = x'78' WHERE seq = 100",
                                          "UPDATE snapshot_piece SET data = zeroblob(8) WHERE seq = 100",
                                          "UPDATE snapshot_piece SET data = zeroblob(900000) WHERE seq = 100",
                                          "UPDATE snapshot_piece SET n = 1 WHERE seq = 100",
                                          "DELETE FROM snapshot_piece WHERE seq = 100",
                                          "UPDATE snapshot SET len = 7 WHERE seq = 100",
                                          "UPDATE snapshot SET len = -1 WHERE seq = 100",
                                          "UPDATE snapshot SET len = 1 << 40, pieces = 9 WHERE seq = 100",
                                          "UPDATE snapshot SET sum = 1 WHERE seq = 100",
                                          "UPDATE snapshot SET pieces = 2 WHERE seq = 100",
                                          "INSERT INTO snapshot_piece(seq, n, data) VALUES(100, 1, x'00')",
                                          "UPDATE snapshot SET seq = 99 WHERE seq = 100"};
    for (size_t i = 0; i < sizeof damages / sizeof *damages; i++) {
        char *folder = lab_folder();
        struct lab_watch watch = {0};
        struct store_config config = lab_config(folder, &watch);
        fill_and_close(&config, &watch);
        run_sql(folder, damages[i]);
        struct store *s = NULL;
        struct lab_check check;
        struct error e = {0};
        open_or_fail(&config, &s);
        assert_int_equal(lab_load(s, &check), RECORDS);
        assert_int_equal(check.snapshot_seq, 50);
        assert_int_equal(check.snapshots, 1);  // the damaged one was not even shown
        assert_int_equal(store_check(s, &e), -EBADMSG);
        assert_non_null(strstr(e.text, "snapshot"));
        store_close(s);
        lab_remove(folder);
    }
}

// A snapshot as earlier releases wrote it: a file.
static int write_old_snapshot(const char *folder, uint64_t seq, char out[static 48]) {
    char name[300];
    uint64_t head[5] = {0, 1, seq, sizeof seq, store_sql_checksum(seq, &seq, sizeof seq)};
    memcpy(head, "ACEQSNAP", 8);
    memcpy(out, head, sizeof head);
    memcpy(out + sizeof head, &seq, sizeof seq);
    snprintf(name, sizeof name, "%s/snapshot-%020llu", folder, (unsigned long long)seq);
    int fd = open(name, O_RDWR | O_CREAT | O_CLOEXEC, 0600);
    assert_int_equal(pwrite(fd, out, 48, 0), 48);
    return fd;
}

static void test_mangled_old_snapshots(void **state) {
    char *folder = lab_folder();
    struct lab_watch watch = {0};
    struct store_config config = lab_config(folder, &watch);
    fill_and_close(&config, &watch);
    char whole[48];
    int fd = write_old_snapshot(folder, 120, whole);
    struct rand rand;
    rand_seed(&rand, 3);
    for (unsigned round = 0; round < 200; round++) {
        char bytes[96];
        memset(bytes, (int)rand_below(&rand, 256), sizeof bytes);
        memcpy(bytes, whole, sizeof whole);
        size_t len = rand_below(&rand, 2) ? sizeof whole : (size_t)rand_below(&rand, sizeof bytes);
        if (round)
            bytes[rand_below(&rand, len < sizeof whole && len ? len : sizeof whole)] ^=
                (char)(1u << rand_below(&rand, 8));
        else
            len = sizeof whole;
        assert_int_equal(ftruncate(fd, 0), 0);
        assert_int_equal(pwrite(fd, bytes, len, 0), len);
        struct store *s = NULL;
        struct lab_check check;
        open_or_fail(&config, &s);
        assert_int_equal(lab_load(s, &check), RECORDS);
        assert_int_equal(check.snapshot_seq, round ? 100 : 120);
        store_close(s);
    }
    close(fd);
    lab_remove(folder);
}

static int64_t readable_by(const char *folder);

// The release before finds only the files: they, and the journal after them, stay until the upgrade is finished.
static void test_old_snapshots_stay_until_the_upgrade_is_finished(void **state) {
    char *folder = lab_folder(), name[300], bytes[48];
    struct lab_watch watch = {0};
    struct store_config config = lab_config(folder, &watch);
    struct store *s = NULL;
    struct lab_check check;
    config.retention.journal_ms = 1;
    open_or_fail(&config, &s);
    lab_load(s, NULL);
    lab_wait(s, &watch, store_submit(s, lab_batch(1, RECORDS, 20)));
    store_close(s);
    close(write_old_snapshot(folder, 30, bytes));
    close(write_old_snapshot(folder, 40, bytes));
    for (int finished = 0; finished < 2; finished++) {
        watch = (struct lab_watch){0};
        open_or_fail(&config, &s);
        assert_int_equal(lab_load(s, &check), RECORDS + (unsigned)finished);
        assert_int_equal(check.snapshot_seq, finished ? 100 : 40);
        struct store_batch *b = lab_batch(RECORDS + 1 + (unsigned)finished, 1, 10);
        if (finished)
            store_batch_level(b, 2, "0.2.0");
        lab_wait(s, &watch, store_submit(s, b));
        for (uint64_t seq = 90; seq <= 100; seq += 10) {
            uint64_t at = seq + (unsigned)finished * 20;
            assert_int_equal(store_snapshot(s, at, &at, sizeof at), 0);
            lab_wait_snapshot(s, &watch, (unsigned)(seq - 80) / 10);
        }
        lab_prune(s, 1000000000);
        uint64_t first = 0;
        store_events(s, 0, 0, 1, note_seq, &first, NULL);
        assert_int_equal(first, finished ? 110 : 30);
        store_close(s);
        snprintf(name, sizeof name, "%s/snapshot-%020d", folder, 40);
        assert_int_equal(access(name, F_OK) == 0, !finished);
        assert_int_equal(readable_by(folder), finished ? 4 : 1);
    }
    lab_remove(folder);
}

static void test_second_controller(void **state) {
    char *folder = lab_folder();
    struct lab_watch watch = {0};
    struct store_config config = lab_config(folder, &watch);
    struct store *first = NULL, *second = NULL;
    open_or_fail(&config, &first);
    struct error e = {0};
    assert_int_equal(store_open(&config, &second, &e), -EBUSY);
    char expected[64];
    snprintf(expected, sizeof expected, "process %d", (int)getpid());
    assert_non_null(strstr(e.text, expected));
    store_close(first);
    open_or_fail(&config, &first);
    store_close(first);
    lab_remove(folder);
}

// One that is on its way out lets the next one in.
static void test_controller_leaves(void **state) {
    char *folder = lab_folder();
    struct lab_watch watch = {0};
    struct store_config config = lab_config(folder, &watch);
    struct store *s = NULL;
    int ready[2];
    assert_int_equal(pipe(ready), 0);
    pid_t pid = fork();
    if (pid == 0) {
        open_or_fail(&config, &s);
        if (write(ready[1], "x", 1) != 1)
            _exit(1);
        usleep(200000);
        _exit(0);
    }
    char byte;
    assert_int_equal(read(ready[0], &byte, 1), 1);
    open_or_fail(&config, &s);
    store_close(s);
    waitpid(pid, NULL, 0);
    close(ready[0]);
    close(ready[1]);
    lab_remove(folder);
}

static void test_unusable_folder(void **state) {
    struct lab_watch watch = {0};
    struct store_config config = lab_config("/proc/none/state", &watch);
    struct store *s = NULL;
    struct error e = {0};
    assert_true(store_open(&config, &s, &e) < 0);
    assert_non_null(strstr(e.text, "/proc/none/state"));
}

// --- versions ---

static void test_versions(void **state) {
    char *folder = lab_folder();
    struct lab_watch watch = {0};
    struct store_config config = lab_config(folder, &watch);
    fill_and_close(&config, &watch);
    struct store *s = NULL;
    struct error e = {0};
    // One version newer, and it says that this program may go on using it: a taken-back upgrade.
    static_assert(STORE_FORMAT == 4, "the next version is 5");
    run_sql(folder, "PRAGMA user_version=5");
    open_or_fail(&config, &s);
    assert_int_equal(lab_load(s, NULL), RECORDS);
    store_close(s);
    run_sql(folder, "UPDATE meta SET value=5 WHERE name='readable_by'");
    assert_int_equal(store_open(&config, &s, &e), -EPROTONOSUPPORT);
    assert_non_null(strstr(e.text, "format 5"));
    assert_non_null(strstr(e.text, "newer program"));
    run_sql(folder, "PRAGMA application_id=5");
    assert_int_equal(store_open(&config, &s, &e), -EBADMSG);
    assert_non_null(strstr(e.text, "another program"));
    lab_remove(folder);
}

// What programs of format 2 look at: they may go on with a file of format 3 until its level is raised.
static int64_t readable_by(const char *folder) {
    cleanup_buf struct buf name = {0};
    buf_addf(&name, "%s/acequia.db", folder);
    sqlite3 *db = NULL;
    int64_t value = 0;
    assert_int_equal(sqlite3_open(buf_str(&name), &db), SQLITE_OK);
    assert_int_equal(store_sql_int(db, "SELECT value FROM meta WHERE name = 'readable_by'", 0, &value, NULL),
                     0);
    sqlite3_close(db);
    return value;
}

static void test_level_shuts_out_earlier_formats(void **state) {
    char *folder = lab_folder();
    struct lab_watch watch = {0};
    struct store_config config = lab_config(folder, &watch);
    struct store *s = NULL;
    open_or_fail(&config, &s);
    lab_load(s, NULL);
    lab_wait(s, &watch, store_submit(s, lab_batch(1, 2, 10)));
    assert_int_equal(readable_by(folder), 1);
    struct store_batch *b = lab_batch(3, 1, 10);
    store_batch_level(b, 2, "0.2.0");
    lab_wait(s, &watch, store_submit(s, b));
    store_close(s);
    assert_int_equal(readable_by(folder), 3);
    lab_remove(folder);
}

static void test_upgrade(void **state) {
    const struct schema_step steps[] = {
        store_schema_steps[0],
        {.sql = "ALTER TABLE history ADD COLUMN note TEXT", .readable_by = 1},
        {.sql = "CREATE TABLE broken(; ", .readable_by = 1},
    };
    sqlite3 *db = NULL;
    struct error e = {0};
    int64_t version = 0;
    assert_int_equal(sqlite3_open(":memory:", &db), SQLITE_OK);
    assert_int_equal(store_schema_prepare(db, "x.db", steps, 1, &e), 0);
    assert_int_equal(store_schema_prepare(db, "x.db", steps, 2, &e), 0);
    assert_int_equal(store_schema_prepare(db, "x.db", steps, 2, &e), 0);
    assert_int_equal(store_sql_exec(db, "SELECT note FROM history", &e), 0);
    assert_true(store_schema_prepare(db, "x.db", steps, 3, &e) < 0);  // and nothing is half done
    assert_int_equal(store_sql_int(db, "PRAGMA user_version", 0, &version, &e), 0);
    assert_int_equal(version, 2);
    assert_int_equal(store_schema_prepare(db, "x.db", steps, 1, &e), 0);  // back by one
    sqlite3_close(db);
}

int main(void) {
    shim_register();
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_level_shuts_out_earlier_formats),
        cmocka_unit_test(test_failing_io),
        cmocka_unit_test(test_commits_while_the_log_is_copied),
        cmocka_unit_test(test_failing_then_restart),
        cmocka_unit_test(test_snapshot_waits),
        cmocka_unit_test(test_full_disk),
        cmocka_unit_test(test_damaged_header),
        cmocka_unit_test(test_damaged_pages),
        cmocka_unit_test(test_damaged_snapshot),
        cmocka_unit_test(test_mangled_old_snapshots),
        cmocka_unit_test(test_old_snapshots_stay_until_the_upgrade_is_finished),
        cmocka_unit_test(test_second_controller),
        cmocka_unit_test(test_controller_leaves),
        cmocka_unit_test(test_unusable_folder),
        cmocka_unit_test(test_versions),
        cmocka_unit_test(test_upgrade),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
