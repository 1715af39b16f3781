// Restores of older copies while elastic jobs run: their workers are the same workers of the same job again.
#include "elastic_rig.h"
#include "restore_rig.h"

#include "sched/explain.h"

enum { WORKERS = 4 };

// What agents know of the workers of a job that run.
struct kept {
    struct remembered one[WORKERS];
    const char *node[WORKERS];
    uint32_t count;
};

// All that find room run: optional workers are placed after the minimum.
static void keep(struct rig *r, uint64_t job, struct kept *out) {
    *out = (struct kept){0};
    for (int i = 0; i < 2; i++) {
        start_all(r, job);
        core_schedule(r->core, r->now_ms);
        rig_drain(r);
    }
    for (uint32_t i = 0; i < WORKERS && i < core_worker_count(r->core, job); i++) {
        uint64_t id = worker(r, job, i);
        if (!id || rig_state(r, id) != JOB_RUNNING)
            continue;
        out->node[out->count] = node_of(r, id)[1] == '1' ? "n1" : "n2";
        remember(r, out->node[out->count], id, view(r, id).attempt, &out->one[out->count]);
        out->count++;
    }
}

static void forget(struct kept *k) {
    for (uint32_t i = 0; i < k->count; i++)
        arena_done(&k->one[i].arena);
}

// The node connects with what it runs, and is asked and answers.
static void found(struct rig *r, const char *node, struct kept *k, uint64_t generation) {
    struct attempt list[WORKERS];
    uint32_t n = 0;
    for (uint32_t i = 0; i < k->count; i++)
        if (streq(k->node[i], node))
            list[n++] = attempt_of(&k->one[i]);
    rig_hello(r, node, 4, 4, "b1", list, n);
    for (uint32_t i = 0; i < k->count; i++) {
        struct message_attempt m = {.id = k->one[i].launch.id,
                                    .attempt = k->one[i].launch.attempt,
                                    .launch = &k->one[i].launch,
                                    .start_ms = 1000500,
                                    .generation = generation};
        if (streq(k->node[i], node))
            core_agent_attempt(r->core, node, &m, r->now_ms);
    }
    core_schedule(r->core, r->now_ms);
    rig_drain(r);
}

static uint64_t generation_of(struct rig *r, uint64_t job) {
    cleanup_arena struct arena a = {0};
    struct message_launch l;
    uint64_t id = worker(r, job, 0);
    assert_int_equal(core_launch(r->core, id, view(r, id).attempt, node_of(r, id), &a, &l), 0);
    return l.workers->generation;
}

// The job waits in the copy: it runs again with all that were found, and none is started a second time.
static void test_the_job_waits_in_the_copy(void **state) {
    struct rig r;
    struct kept k;
    rig_init(&r);
    struct spec s = workers(2, 4);
    uint64_t job = rig_submit(&r, &alice, &s);
    uint32_t copy = r.journal.len;
    rig_hello(&r, "n1", 4, 4, "b1", NULL, 0);
    rig_hello(&r, "n2", 4, 4, "b1", NULL, 0);
    keep(&r, job, &k);
    assert_int_equal(k.count, WORKERS);
    restore(&r, copy);
    found(&r, "n1", &k, 70);
    found(&r, "n2", &k, 71);
    assert_int_equal(rig_state(&r, job), JOB_RUNNING);
    assert_int_equal(r.launches.len, 0);
    for (uint32_t i = 0; i < WORKERS; i++) {
        assert_int_equal(worker(&r, job, i), k.one[i].launch.id);
        assert_int_equal(rig_state(&r, worker(&r, job, i)), JOB_RUNNING);
    }
    assert_true(generation_of(&r, job) > 71);
    same_after_recovery(&r);
    // It is one job: the end of all its workers is its end.
    for (uint32_t i = 0; i < WORKERS; i++)
        end_one(&r, job, i, END_EXIT, 0);
    assert_int_equal(rig_state(&r, job), JOB_STATE_COUNT);
    assert_int_equal(r.last_state, JOB_COMPLETED);
    forget(&k);
    rig_done(&r);
}

// The copy does not know it at all, and its first number was given to another job meanwhile.
static void test_the_submit_is_lost(void **state, bool taken) {
    struct rig r;
    struct kept k;
    init(&r);
    struct spec s = workers(2, 3), other = rig_spec();
    uint32_t copy = r.journal.len;
    uint64_t job = rig_submit(&r, &alice, &s);
    keep(&r, job, &k);
    assert_int_equal(k.count, 3);
    restore(&r, copy);
    if (taken)
        assert_int_equal(rig_submit(&r, &bob, &other), job);
    found(&r, "n2", &k, 9);
    found(&r, "n1", &k, 9);
    uint64_t again = job;
    while (!core_worker_count(r.core, again) && again < job + 5000)
        again++;
    assert_int_equal(taken, again != job);
    assert_int_equal(rig_state(&r, again), JOB_RUNNING);
    assert_int_equal(core_worker_count(r.core, again), 3);
    for (uint32_t i = 0; i < 3; i++)
        assert_int_equal(rig_state(&r, worker(&r, again, i)), JOB_RUNNING);
    same_after_recovery(&r);
    // A worker ends under the number that its node knows; the job ends with a cancel of it as a whole.
    rig_end(&r, k.node[2], k.one[2].launch.id, 1, END_EXIT, 0);
    assert_int_equal(rig_state(&r, worker(&r, again, 2)), JOB_STATE_COUNT);
    assert_int_equal(do_cancel(r.core, &alice, again, &(struct command_cancel){0}, r.now_ms, NULL), 0);
    rig_drain(&r);
    assert_int_equal(r.kills, 2);
    for (uint32_t i = 0; i < 2; i++)
        rig_end(&r, k.node[i], k.one[i].launch.id, 1, END_CANCEL, 0);
    assert_int_equal(rig_state(&r, again), JOB_STATE_COUNT);
    forget(&k);
    rig_done(&r);
}

// Its number was given to another job with workers of the same user: that one is left alone.
static void test_its_number_is_taken_by_another_elastic_job(void **state) {
    struct rig r;
    struct kept k;
    init(&r);
    struct spec s = workers(2, 3);
    uint32_t copy = r.journal.len;
    uint64_t job = rig_submit(&r, &alice, &s);
    keep(&r, job, &k);
    assert_int_equal(k.count, 3);
    restore(&r, copy);
    s.hold = true;
    assert_int_equal(rig_submit(&r, &alice, &s), job);
    found(&r, "n1", &k, 9);
    found(&r, "n2", &k, 9);
    assert_int_equal(rig_state(&r, job), JOB_PENDING);
    uint64_t again = job + 4;
    while (!core_worker_count(r.core, again) && again < job + 5000)
        again++;
    assert_int_equal(rig_state(&r, again), JOB_RUNNING);
    for (uint32_t i = 0; i < 3; i++)
        assert_int_equal(rig_state(&r, worker(&r, again, i)), JOB_RUNNING);
    same_after_recovery(&r);
    forget(&k);
    rig_done(&r);
}

static void test_unknown_to_the_copy(void **state) {
    test_the_submit_is_lost(state, false);
}

static void test_its_number_is_taken(void **state) {
    test_the_submit_is_lost(state, true);
}

// Only one of two nodes is back: what runs on the other is not started here before that had time to say so.
static void test_workers_of_a_node_that_is_late(void **state) {
    struct rig r;
    struct kept k;
    rig_init(&r);
    struct spec s = workers(2, 2);
    s.cpus_per_task = 3;  // one on each node
    uint64_t job = rig_submit(&r, &alice, &s);
    uint32_t copy = r.journal.len;
    rig_hello(&r, "n1", 4, 4, "b1", NULL, 0);
    rig_hello(&r, "n2", 4, 4, "b1", NULL, 0);
    rig_hello(&r, "n3", 4, 4, "b1", NULL, 0);
    keep(&r, job, &k);
    restore(&r, copy);
    found(&r, k.node[0], &k, 3);
    rig_hello(&r, "n3", 4, 4, "b1", NULL, 0);
    core_schedule(r.core, r.now_ms);
    rig_drain(&r);
    assert_int_equal(r.launches.len, 0);
    r.now_ms += 10000;
    found(&r, k.node[1], &k, 3);
    assert_int_equal(rig_state(&r, worker(&r, job, 1)), JOB_RUNNING);
    assert_int_equal(r.launches.len, 0);
    // One that is never found is started when the time is over.
    restore(&r, copy);
    found(&r, k.node[0], &k, 3);
    rig_hello(&r, "n3", 4, 4, "b1", NULL, 0);
    r.now_ms += 121000;
    core_schedule(r.core, r.now_ms);
    rig_drain(&r);
    assert_int_equal(r.launches.len, 1);
    assert_int_equal(rig_state(&r, worker(&r, job, 1)), JOB_STARTING);
    forget(&k);
    rig_done(&r);
}

// The copy has the job with fewer numbers: it was made larger since.
static void test_resized_since(void **state) {
    struct rig r;
    struct kept k;
    init(&r);
    struct spec s = workers(1, 1);
    struct error e = {0};
    uint64_t job = rig_submit(&r, &alice, &s);
    start_all(&r, job);
    uint32_t copy = r.journal.len;
    assert_int_equal(resize(&r, job, 1, 3, &e), 0);
    keep(&r, job, &k);
    assert_int_equal(k.count, 3);
    restore(&r, copy);
    found(&r, "n1", &k, 9);
    found(&r, "n2", &k, 9);
    assert_int_equal(core_worker_count(r.core, job), 3);
    for (uint32_t i = 0; i < 3; i++)
        assert_int_equal(rig_state(&r, worker(&r, job, i)), JOB_RUNNING);
    same_after_recovery(&r);
    forget(&k);
    rig_done(&r);
}

// Its script went with the lost state: what runs goes on, and no further worker is started, ever.
static void test_its_script_is_lost(void **state) {
    struct rig r;
    struct kept k;
    init(&r);
    struct spec s = workers(1, 4);
    s.argv.len = 0;
    s.script_id = "0123456789abcdef0123456789abcdef";
    s.script_bytes = 10;
    s.cpus_per_task = 3;
    s.requeue = true;
    uint32_t copy = r.journal.len;
    uint64_t job = rig_submit(&r, &alice, &s);
    keep(&r, job, &k);
    assert_int_equal(k.count, 2);
    restore(&r, copy);
    found(&r, "n1", &k, 9);
    found(&r, "n2", &k, 9);
    rig_hello(&r, "n3", 4, 4, "b1", NULL, 0);
    r.now_ms += 3600 * 1000;
    core_schedule(r.core, r.now_ms);
    rig_drain(&r);
    assert_int_equal(r.launches.len, 0);
    assert_int_equal(rig_state(&r, job), JOB_RUNNING);
    // A worker that waits says why, and nobody expects its start.
    struct sched_explanation x;
    uint64_t waits = worker(&r, job, 3);
    assert_int_equal(view(&r, waits).reason, REASON_SCRIPT_LOST);
    assert_int_equal(sched_explain(core_world(r.core), waits, r.now_ms, core_policy(r.core), &x), 0);
    assert_int_equal(x.hold, SCHED_HOLD_OTHER);
    assert_int_equal(x.band.early_ms, 0);
    same_after_recovery(&r);
    struct error e = {0};
    assert_int_equal(resize(&r, job, 1, 5, &e), -ENOTSUP);
    assert_int_equal(resize(&r, job, 1, 3, &e), 0);
    core_node_lost(r.core, "n1", "silent", r.now_ms);
    core_node_lost(r.core, "n2", "silent", r.now_ms);
    rig_drain(&r);
    assert_int_equal(rig_state(&r, job), JOB_STATE_COUNT);
    assert_int_equal(r.last_state, JOB_NODE_FAIL);
    forget(&k);
    rig_done(&r);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_the_job_waits_in_the_copy),
        cmocka_unit_test(test_unknown_to_the_copy),
        cmocka_unit_test(test_its_number_is_taken),
        cmocka_unit_test(test_its_number_is_taken_by_another_elastic_job),
        cmocka_unit_test(test_workers_of_a_node_that_is_late),
        cmocka_unit_test(test_resized_since),
        cmocka_unit_test(test_its_script_is_lost),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
