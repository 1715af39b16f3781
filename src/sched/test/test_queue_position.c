// A job's turn as people are told it: the parts add up, and the number sorts as the scheduler does.
#include "base/rand.h"
#include "cluster.h"
#include "sched/explain.h"

enum { JOBS = 40, HOUR = 3600 * 1000 };

static struct sched_queue_position entry_of(struct cluster *c, uint64_t id) {
    struct sched_queue_position t;
    assert_int_equal(sched_queue_position(c->w, id, c->now_ms, &c->policy, &t), 0);
    return t;
}

static void parts_add_up(void **state) {
    (void)state;
    struct cluster c = cluster_new(1, 4);
    cluster_project(&c, 1, 0, 4);
    c.policy.size_ms = 60000;
    struct sched_request q = {
        .project = 1, .user = 1, .gpu_milli_per_task = 2000, .time_limit_ms = 2 * HOUR, .nice = 3};
    cluster_submit(&c, &q);
    cluster_submit(&c, &q);
    cluster_settle(&c);
    c.now_ms += 10 * HOUR;
    int64_t submitted = c.now_ms;
    uint64_t id = cluster_submit(&c, &q);
    c.now_ms += HOUR;
    struct sched_queue_position t = entry_of(&c, id);
    assert_int_equal(t.age_ms, HOUR);
    assert_int_equal(t.short_ms, 10 * HOUR);
    assert_int_equal(t.size_ms, 2 * 60000);
    assert_true(t.use_ms > 0);  // the user holds all GPUs
    assert_int_equal(t.queue_time_ms, submitted + t.short_ms + t.use_ms + t.size_ms);
    assert_int_equal(t.nice, 3);
    assert_true(t.priority > 0 && t.priority < 100000000);  // below the usual
    world_job_hold(c.w, id, SCHED_HOLD_USER);
    assert_int_equal(entry_of(&c, id).priority, 0);
    assert_int_equal(sched_queue_position(c.w, 1, c.now_ms, &c.policy, &t), -ENOENT);  // it runs
    world_free(c.w);
}

static void the_number_sorts_as_the_scheduler_does(void **state) {
    (void)state;
    struct rand rnd;
    rand_seed(&rnd, 7);
    struct cluster c = cluster_new(1, 1);
    cluster_project(&c, 1, 0, 1);
    struct sched_qos urgent = {.id = 1, .name = "urgent", .priority = 2};
    assert_int_equal(test_qos_set(c.w, &urgent, NULL), 0);
    cluster_submit(&c, &(struct sched_request){.project = 1, .user = 9, .gpu_milli_per_task = 1000});
    cluster_settle(&c);
    c.policy.size_ms = -60000;
    c.policy.max_wait_ms = 30LL * HOUR;
    for (int i = 0; i < JOBS; i++) {
        struct sched_request q = {.project = 1, .user = 1 + (uint32_t)rand_below(&rnd, 5), .gpu_milli_per_task = 1000,
                                  .time_limit_ms = HOUR * (1 + (int64_t)rand_below(&rnd, 9)),
                                  .qos = (uint32_t)rand_below(&rnd, 4) == 0, .nice = (int32_t)rand_below(&rnd, 3) - 1};
        cluster_submit(&c, &q);
        c.now_ms += 1 + (int64_t)rand_below(&rnd, 2 * HOUR);
    }
    uint64_t by_place[JOBS + 2] = {0};
    for (uint64_t id = 2; id < c.next_id; id++) {
        struct sched_explanation e;
        assert_int_equal(sched_explain(c.w, id, c.now_ms, &c.policy, &e), 0);
        assert_in_range(e.position, 1, JOBS);
        by_place[e.position] = id;
    }
    for (uint32_t i = 2; i <= JOBS; i++) {
        struct sched_queue_position a = entry_of(&c, by_place[i - 1]), b = entry_of(&c, by_place[i]);
        bool rough = a.qos + a.own < a.nice &&
                     b.queue_time_ms - a.queue_time_ms < 1000000;  // told apart to 1,000 s only
        if (rough ? a.priority < b.priority : a.priority <= b.priority)
            fail_msg("place %u: job %llu has no more than job %llu", i - 1, (unsigned long long)by_place[i - 1],
                     (unsigned long long)by_place[i]);
    }
    world_free(c.w);
}

// A step of nice or of QoS can be worth a time, so that a nice job's turn comes as well.
static void steps_can_count_as_time(void **state) {
    (void)state;
    struct cluster c = cluster_new(1, 1);
    cluster_project(&c, 1, 0, 1);
    struct sched_qos urgent = {.id = 1, .name = "urgent", .priority = 2};
    assert_int_equal(test_qos_set(c.w, &urgent, NULL), 0);
    struct sched_request q = {.project = 1, .user = 1, .gpu_milli_per_task = 1000, .time_limit_ms = HOUR},
                         nice = q, high = q;
    uint64_t holds = cluster_submit(&c, &q);
    cluster_settle(&c);
    nice.nice = 10;
    high.qos = 1;
    uint64_t a = cluster_submit(&c, &nice);
    c.now_ms += 5 * 60000;
    uint64_t b = cluster_submit(&c, &q);
    c.now_ms += HOUR;
    uint64_t late = cluster_submit(&c, &high);
    assert_true(entry_of(&c, late).priority > entry_of(&c, b).priority);
    assert_true(entry_of(&c, b).priority > entry_of(&c, a).priority);
    c.policy.nice_ms = c.policy.qos_ms = 60000;
    assert_int_equal(entry_of(&c, a).nice_ms, 10 * 60000);
    assert_int_equal(entry_of(&c, late).qos_ms, -2 * 60000);
    assert_true(entry_of(&c, b).priority > entry_of(&c, a).priority);      // ten minutes for five
    assert_true(entry_of(&c, a).priority > entry_of(&c, late).priority);   // two minutes for an hour
    c.policy.nice_ms = 1000;
    assert_true(entry_of(&c, a).priority > entry_of(&c, b).priority);
    assert_int_equal(world_job_end(c.w, holds, c.now_ms), 0);
    cluster_settle(&c);
    assert_true(cluster_runs(&c, a));
    world_free(c.w);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(parts_add_up),
        cmocka_unit_test(steps_can_count_as_time),
        cmocka_unit_test(the_number_sorts_as_the_scheduler_does),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
