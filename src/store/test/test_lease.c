// Several stores on one PostgreSQL database: one leads, an older leader commits nothing, an answer that was lost is
// found out, and databases that would lose acknowledged records are refused.
#include "lab.h"

#include <errno.h>
#include <poll.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include "base/alloc.h"
#include "base/cleanup.h"
#include "base/clock.h"
#include "../pg.h"

static const char *place;

struct owner {
    struct lab_watch watch;
    struct store *store;
};

static void owner_open(struct owner *o, const char *where, const char *address) {
    struct error e = {0};
    memset(&o->watch, 0, sizeof o->watch);
    struct store_config config = lab_config(where, &o->watch);
    config.address = address;
    config.lease_ms = 60000;  // it ends when a test says so, not because the machine is slow
    if (store_open(&config, &o->store, &e) < 0)
        fail_msg("open: %s", e.text);
}

static int setup(void **state) {
    place = lab_database();
    return 0;
}

static int skip_event(void *ctx, const struct store_event *event) {
    return 0;
}

static uint64_t follow(struct owner *o) {
    struct store_loader loader = {.event = skip_event};
    struct error e = {0};
    uint64_t last = 0;
    if (store_follow(o->store, &loader, &last, &e) < 0)
        fail_msg("follow: %s", e.text);
    return last;
}

static void sql(const char *text) {
    struct pg_conn c;
    struct error e = {0};
    if (pg_open(&c, place, "test", NULL, 0, &e) < 0 || pg_exec(&c, text, &e) < 0)
        fail_msg("%s", e.text);
    pg_close(&c);
}

static int64_t sql_int(const char *text) {
    struct pg_conn c;
    struct error e = {0};
    int64_t v = 0;
    if (pg_open(&c, place, "test", NULL, 0, &e) < 0 || pg_first_int(&c, text, 0, &v, &e) < 0)
        fail_msg("%s", e.text);
    pg_close(&c);
    return v;
}

static void end_lease(void) {
    sql("UPDATE lease SET until = '-infinity'");
}

static void wait_failed(struct owner *o) {
    int64_t deadline = clock_mono_ms() + 60000;
    while (!o->watch.failures) {
        assert_true(clock_mono_ms() < deadline);
        struct pollfd p = {.fd = store_fd(o->store), .events = POLLIN};
        poll(&p, 1, 100);
        store_poll(o->store);
    }
}

static void test_one_leads(void **state) {
    struct owner a, b;
    struct store_lease lease;
    owner_open(&a, place, "a:1");
    lab_load(a.store, NULL);
    lab_lead(a.store);
    owner_open(&b, place, "b:2");
    lab_load(b.store, NULL);
    store_claim(b.store);
    lab_wait(a.store, &a.watch, store_submit(a.store, lab_batch(1, 10, 20)));
    assert_int_equal(follow(&b), 10);
    int64_t deadline = clock_mono_ms() + 60000;
    do {
        store_lease(b.store, &lease);
        assert_true(clock_mono_ms() < deadline);
        usleep(1000);
    } while (!lease.known);
    assert_false(lease.mine);
    assert_int_equal(store_others(a.store), 1);
    assert_string_equal(lease.address, "a:1");
    assert_int_equal(lease.term, 1);
    lab_wait(a.store, &a.watch, store_submit(a.store, lab_batch(11, 5, 20)));
    a.store = store_close(a.store);  // gives it up
    lab_lead(b.store);
    store_lease(b.store, &lease);
    assert_int_equal(lease.term, 2);
    assert_in_range(lease.left_ms, 1, 60000);
    assert_int_equal(follow(&b), 15);
    lab_wait(b.store, &b.watch, store_submit(b.store, lab_batch(16, 1, 20)));
    while (store_others(b.store) > 0) {  // the server notices that the session of the other has ended
        assert_true(clock_mono_ms() < deadline + 60000);
        usleep(1000);
    }
    assert_int_equal(store_others(b.store), 0);
    store_close(b.store);
}

// A leader that was paused for too long: what it had not committed is not, whatever it does.
static void test_an_older_leader_commits_nothing(void **state) {
    struct owner a, b;
    owner_open(&a, place, "a:1");
    lab_load(a.store, NULL);
    lab_lead(a.store);
    lab_wait(a.store, &a.watch, store_submit(a.store, lab_batch(1, 3, 20)));
    owner_open(&b, place, "b:2");
    lab_load(b.store, NULL);
    end_lease();
    lab_lead(b.store);
    follow(&b);
    store_submit(a.store, lab_batch(4, 2, 20));
    wait_failed(&a);
    assert_int_equal(a.watch.failure.code, ESTALE);
    assert_int_equal(a.watch.seq, 3);
    store_retry(a.store);
    lab_wait(b.store, &b.watch, store_submit(b.store, lab_batch(4, 1, 20)));
    assert_int_equal(sql_int("SELECT max(seq) FROM journal"), 4);
    store_close(a.store);
    assert_int_equal(sql_int("SELECT count(*) FROM lease WHERE term = 2 AND until > clock_timestamp()"), 1);
    store_close(b.store);
}

// The same while its connection stays: the check in the transaction alone keeps it from committing.
static void test_the_check_in_the_transaction(void **state) {
    struct owner a;
    owner_open(&a, place, "a:1");
    lab_load(a.store, NULL);
    lab_lead(a.store);
    lab_wait(a.store, &a.watch, store_submit(a.store, lab_batch(1, 3, 20)));
    sql("UPDATE lease SET term = term + 1, address = 'b:2'");
    store_submit(a.store, lab_batch(4, 2, 20));
    wait_failed(&a);
    assert_int_equal(a.watch.failure.code, ESTALE);
    assert_int_equal(sql_int("SELECT max(seq) FROM journal"), 3);
    store_close(a.store);
}

// It was paused in the middle of a transaction, with rows written: nobody waits for it.
static void test_a_paused_transaction(void **state) {
    struct owner b;
    struct pg_conn paused;
    struct error e = {0};
    owner_open(&b, place, "b:2");
    lab_load(b.store, NULL);
    assert_int_equal(pg_open(&paused, place, "acequia writer", NULL, 0, &e), 0);
    assert_int_equal(pg_exec(&paused, "UPDATE lease SET term = 7, backend = pg_backend_pid()", &e), 0);
    assert_int_equal(pg_exec(&paused, "BEGIN; INSERT INTO journal VALUES(1,1,1,1,1,'')", &e), 0);
    lab_lead(b.store);
    lab_wait(b.store, &b.watch, store_submit(b.store, lab_batch(1, 1, 20)));
    assert_true(pg_exec(&paused, "COMMIT", &e) < 0);
    pg_close(&paused);
    struct store_lease lease;
    store_lease(b.store, &lease);
    assert_int_equal(lease.term, 8);
    store_close(b.store);
}

static void test_raise(void **state) {
    struct owner a;
    struct store_lease lease;
    owner_open(&a, place, "a:1");
    lab_load(a.store, NULL);
    lab_lead(a.store);
    store_raise_term(a.store, 41);
    int64_t deadline = clock_mono_ms() + 60000;
    do {
        assert_true(clock_mono_ms() < deadline);
        usleep(1000);
        store_lease(a.store, &lease);
    } while (lease.term != 41);
    lab_wait(a.store, &a.watch, store_submit(a.store, lab_batch(1, 1, 20)));
    assert_int_equal(sql_int("SELECT term FROM lease"), 41);
    store_close(a.store);
}

static int skip_snapshot(void *ctx, uint64_t seq, const void *data, size_t len) {
    return 0;
}

// A follower that has read a snapshot and nothing after it. The database is replaced by another copy, which gets as far
// before the follower looks again: its record of that number is another one.
static void test_a_replaced_database(void **state) {
    struct owner a, b;
    struct store_loader loader = {.snapshot = skip_snapshot, .event = skip_event};
    struct error e = {0};
    uint64_t last = 0, at = 10;
    owner_open(&a, place, "a:1");
    lab_load(a.store, NULL);
    lab_lead(a.store);
    lab_wait(a.store, &a.watch, store_submit(a.store, lab_batch(1, 10, 20)));
    assert_int_equal(store_snapshot(a.store, at, &at, sizeof at), 0);
    lab_wait_snapshot(a.store, &a.watch, 1);
    owner_open(&b, place, "b:2");
    assert_int_equal(store_load(b.store, &loader, &last, &e), 0);
    assert_int_equal(last, 10);
    assert_int_equal(follow(&b), 10);
    sql("UPDATE journal SET at_ms = at_ms + 1, sum = sum + 1 WHERE seq < 10");
    assert_int_equal(follow(&b), 10);  // those before do not matter
    a.store = store_close(a.store);
    sql("DELETE FROM journal");
    sql("DELETE FROM snapshot");
    struct owner c;
    owner_open(&c, place, "c:3");
    assert_int_equal(lab_load(c.store, NULL), 0);
    lab_lead(c.store);
    lab_wait(c.store, &c.watch, store_submit(c.store, lab_batch(1, 12, 30)));
    assert_int_equal(store_follow(b.store, &loader, &last, &e), -ESTALE);
    assert_string_equal(e.text, "the database was replaced by another copy");
    store_close(b.store);
    store_close(c.store);
}

// A follower that read an empty journal and was away until its first records were pruned.
static void test_pruned_before_it_was_read(void **state) {
    struct owner a, b;
    struct store_loader loader = {.snapshot = skip_snapshot, .event = skip_event};
    struct error e = {0};
    uint64_t last = 0;
    owner_open(&a, place, "a:1");
    lab_load(a.store, NULL);
    owner_open(&b, place, "b:2");
    assert_int_equal(lab_load(b.store, NULL), 0);
    lab_lead(a.store);
    lab_wait(a.store, &a.watch, store_submit(a.store, lab_batch(1, 12, 20)));
    sql("DELETE FROM journal WHERE seq < 10");
    assert_int_equal(store_follow(b.store, &loader, &last, &e), -ESTALE);
    store_close(b.store);
    store_close(a.store);
}

// --- a connection that breaks at a chosen point ---

enum cut { CUT_NOTHING, CUT_REQUESTS, CUT_ANSWERS };

// Between the store and the server's socket. CUT_REQUESTS: what the store sends does not arrive; CUT_ANSWERS: it
// arrives, its answer does not. Then the connection ends.
struct wire {
    char folder[64], target[100];
    int listener;
    pthread_t thread;
    _Atomic int cut;
    _Atomic bool stop;
};

static int connect_unix(const char *path) {
    struct sockaddr_un a = {.sun_family = AF_UNIX};
    snprintf(a.sun_path, sizeof a.sun_path, "%s", path);
    int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
    assert_int_equal(connect(fd, (struct sockaddr *)&a, sizeof a), 0);
    return fd;
}

static void send_all(int fd, const char *data, ssize_t len) {
    while (len > 0) {
        ssize_t n = send(fd, data, (size_t)len, MSG_NOSIGNAL);
        if (n <= 0)
            return;
        data += n;
        len -= n;
    }
}

struct pair {
    struct wire *wire;
    int client, server;
};

static void *pump(void *arg) {
    struct pair *p = arg;
    char data[65536];
    bool sent = false;  // something was cut
    while (!p->wire->stop) {
        struct pollfd fds[2] = {{.fd = p->client, .events = POLLIN}, {.fd = p->server, .events = POLLIN}};
        if (poll(fds, 2, 20) < 0)
            break;
        int cut = p->wire->cut;
        if (fds[0].revents) {
            ssize_t n = read(p->client, data, sizeof data);
            if (n <= 0 || cut == CUT_REQUESTS)
                break;
            send_all(p->server, data, n);
            sent = cut == CUT_ANSWERS;
        }
        if (fds[1].revents) {
            ssize_t n = read(p->server, data, sizeof data);
            if (n <= 0 || (cut == CUT_ANSWERS && sent))
                break;
            send_all(p->client, data, n);
        }
    }
    p->wire->cut = CUT_NOTHING;
    close(p->client);
    close(p->server);
    free(p);
    return NULL;
}

static void *accept_all(void *arg) {
    struct wire *w = arg;
    while (!w->stop) {
        struct pollfd p = {.fd = w->listener, .events = POLLIN};
        if (poll(&p, 1, 20) <= 0)
            continue;
        int client = accept4(w->listener, NULL, NULL, SOCK_CLOEXEC);
        struct pair *pair = xcalloc(1, sizeof *pair);
        *pair = (struct pair){w, client, connect_unix(w->target)};
        pthread_t t;
        pthread_create(&t, NULL, pump, pair);
        pthread_detach(t);
    }
    return NULL;
}

static char *wire_open(struct wire *w) {
    const char *from = strstr(place, "host=");
    struct sockaddr_un a = {.sun_family = AF_UNIX};
    *w = (struct wire){.folder = "/tmp/acequia-wire-XXXXXX"};
    assert_non_null(from);
    assert_non_null(mkdtemp(w->folder));
    snprintf(w->target, sizeof w->target, "%.*s/.s.PGSQL.5432", (int)strcspn(from + 5, "&"), from + 5);
    snprintf(a.sun_path, sizeof a.sun_path, "%s/.s.PGSQL.5432", w->folder);
    w->listener = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
    assert_int_equal(bind(w->listener, (struct sockaddr *)&a, sizeof a), 0);
    assert_int_equal(listen(w->listener, 8), 0);
    pthread_create(&w->thread, NULL, accept_all, w);
    return xasprintf("postgresql:///acequia?host=%s&user=acequia", w->folder);
}

static void wire_close(struct wire *w) {
    char path[128];
    w->stop = true;
    pthread_join(w->thread, NULL);
    close(w->listener);
    snprintf(path, sizeof path, "%s/.s.PGSQL.5432", w->folder);
    unlink(path);
    rmdir(w->folder);
    usleep(100000);  // its threads look at `stop`
}

// Whether or not the commit had arrived, each record is there once and is acknowledged once.
static void cut_commits(enum cut cut) {
    static struct wire wire;
    cleanup_free char *through = wire_open(&wire);
    struct owner a;
    owner_open(&a, through, "a:1");
    lab_load(a.store, NULL);
    lab_lead(a.store);
    for (uint64_t i = 0; i < 8; i++) {
        wire.cut = cut;
        store_submit(a.store, lab_batch(1 + i * 3, 3, 2000));
        if (i % 2)
            store_submit(a.store, store_batch_new());
        int64_t deadline = clock_mono_ms() + 60000;
        while (a.watch.seq < 3 + i * 3) {
            assert_true(clock_mono_ms() < deadline);
            store_retry(a.store);
            store_flush(a.store);
        }
    }
    assert_int_equal(sql_int("SELECT count(*) FROM journal"), 24);
    store_close(a.store);
    struct owner b;
    owner_open(&b, place, "b:2");
    assert_int_equal(lab_load(b.store, NULL), 24);
    store_close(b.store);
    wire_close(&wire);
}

static void test_lost_requests(void **state) {
    cut_commits(CUT_REQUESTS);
}

static void test_lost_answers(void **state) {
    cut_commits(CUT_ANSWERS);
}

// Reads through a connection that broke fail at once, and work again through another.
static void test_reads_come_back(void **state) {
    struct owner a;
    void *data = NULL;
    size_t len;
    owner_open(&a, place, "a:1");
    lab_load(a.store, NULL);
    lab_lead(a.store);
    struct store_batch *b = store_batch_new();
    store_batch_blob(b, "x", "1", 1);
    lab_wait(a.store, &a.watch, store_submit(a.store, b));
    sql("SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE application_name LIKE 'acequia %'");
    int64_t deadline = clock_mono_ms() + 60000;
    while (store_blob(a.store, "x", &data, &len, NULL) < 0) {
        assert_true(clock_mono_ms() < deadline);
        usleep(1000);
    }
    free(data);
    lab_wait(a.store, &a.watch, store_submit(a.store, lab_batch(1, 1, 20)));
    store_close(a.store);
}

static void assert_refused(const char *address, const char *why) {
    struct lab_watch watch = {0};
    struct store_config config = lab_config(address, &watch);
    struct store *s = NULL;
    struct error e = {0};
    assert_true(store_open(&config, &s, &e) < 0);
    if (!strstr(e.text, why))
        fail_msg("\"%s\" does not say \"%s\"", e.text, why);
}

static void test_refused(void **state) {
    cleanup_free char *loose = xasprintf("%s&options=-csynchronous_commit%%3Doff", place);
    assert_refused(loose, "synchronous_commit = off");
    cleanup_free char *password = xasprintf("%s&password=x", place);
    assert_refused(password, "passfile=FILE");
    assert_refused("postgresql://db.example/acequia", "sslmode=verify-full");
    assert_refused("postgresql://db.example/acequia?sslmode=require", "sslmode=verify-full");
    assert_refused("postgresql://db.example/acequia?hostaddr=10.1.2.3", "sslmode=verify-full");
    assert_refused("postgresql:///acequia?host=/nowhere", "cannot be reached");
    assert_refused("postgresql:///acequia?nonsense=1", "nonsense");
}

// Bytes that the database would not take in a column of text must not keep anything from being committed.
static int take_name(void *ctx, const struct store_history *row) {
    snprintf(ctx, 32, "%s", row->name);
    return 0;
}

static void test_any_bytes(void **state) {
    struct owner a;
    char name[32] = "";
    owner_open(&a, place, "a:1");
    lab_load(a.store, NULL);
    lab_lead(a.store);
    struct store_batch *b = lab_batch(1, 1, 20);
    store_batch_history(b, &(struct store_history){.id = 5,
                                                   .user = "ann",
                                                   .project = "p",
                                                   .name = "b\xff\xc3",
                                                   .nodes = "n",
                                                   .end_ms = 1,
                                                   .data = "",
                                                   .len = 0});
    lab_wait(a.store, &a.watch, store_submit(a.store, b));
    assert_int_equal(store_history(a.store, &(struct store_query){.id = 5}, take_name, name, NULL), 0);
    assert_string_equal(name, "b??");
    store_close(a.store);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup(test_one_leads, setup),
        cmocka_unit_test_setup(test_an_older_leader_commits_nothing, setup),
        cmocka_unit_test_setup(test_the_check_in_the_transaction, setup),
        cmocka_unit_test_setup(test_a_paused_transaction, setup),
        cmocka_unit_test_setup(test_raise, setup),
        cmocka_unit_test_setup(test_a_replaced_database, setup),
        cmocka_unit_test_setup(test_pruned_before_it_was_read, setup),
        cmocka_unit_test_setup(test_lost_requests, setup),
        cmocka_unit_test_setup(test_lost_answers, setup),
        cmocka_unit_test_setup(test_reads_come_back, setup),
        cmocka_unit_test_setup(test_refused, setup),
        cmocka_unit_test_setup(test_any_bytes, setup),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
