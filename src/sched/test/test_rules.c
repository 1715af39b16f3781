// Each rule by itself: partitions, QoS, reservations, time, quotas by model, departments, topology,
// fractions, gangs.
#include <inttypes.h>

#include "base/buf.h"
#include "cluster.h"
#include "sched/explain.h"

static struct sched_request gpus(uint32_t project, uint32_t n) {
    return (struct sched_request){.project = project, .user = 1, .gpu_milli_per_task = n * 1000};
}

static enum sched_reason reason(const struct cluster *c, uint64_t id) {
    return sched_job_reason(c->w, id);
}

static void end(struct cluster *c, uint64_t id) {
    assert_int_equal(world_job_end(c->w, id, c->now_ms), 0);
}

static void partitions_bound_nodes_time_and_order(void **state) {
    (void)state;
    struct cluster c = cluster_new(2, 4);
    cluster_project(&c, 1, 0, 8);
    uint32_t first = 1;
    struct sched_partition small = {.id = 1, .name = "small", .nodes = &first, .node_count = 1, .max_time_ms = 3600000};
    assert_int_equal(test_partition_set(c.w, &small, NULL), 0);
    struct sched_request q = gpus(1, 4);
    q.partition = 1;
    uint64_t a = cluster_submit(&c, &q), b = cluster_submit(&c, &q);
    q.time_limit_ms = 2 * 3600000;
    uint64_t slow = cluster_submit(&c, &q);
    cluster_settle(&c);
    assert_true(cluster_runs(&c, a));
    assert_false(cluster_runs(&c, b));  // the other node is not in the partition
    assert_int_equal(reason(&c, slow), SCHED_REASON_TIME_LIMIT);
    small.closed = true;
    test_partition_set(c.w, &small, NULL);
    end(&c, a);
    cluster_settle(&c);
    assert_false(cluster_runs(&c, b));
    assert_int_equal(reason(&c, b), SCHED_REASON_PARTITION);
    small.closed = false;
    test_partition_set(c.w, &small, NULL);
    cluster_settle(&c);
    assert_true(cluster_runs(&c, b));
    world_free(c.w);
}

static void fifo_lets_nobody_pass(void **state) {
    (void)state;
    struct cluster c = cluster_new(2, 4);
    cluster_project(&c, 1, 0, 8);
    struct sched_partition p = {.id = 1, .name = "p", .all_nodes = true, .fifo = true};
    assert_int_equal(test_partition_set(c.w, &p, NULL), 0);
    struct sched_request three = gpus(1, 3), wide = gpus(1, 0), one = gpus(1, 1);
    three.partition = wide.partition = one.partition = 1;
    wide.nodes_min = 2;
    wide.gpu_milli_per_node = 4000;
    one.time_limit_ms = 1000;
    cluster_submit(&c, &three);
    cluster_settle(&c);
    uint64_t w = cluster_submit(&c, &wide);
    uint64_t s = cluster_submit(&c, &one);
    cluster_settle(&c);
    assert_false(cluster_runs(&c, w));
    assert_false(cluster_runs(&c, s));
    assert_int_equal(reason(&c, s), SCHED_REASON_PRIORITY);
    p.fifo = false;
    test_partition_set(c.w, &p, NULL);
    cluster_settle(&c);
    assert_true(cluster_runs(&c, s));  // nothing has a limit it could delay
    world_free(c.w);
}

static void higher_tiers_first(void **state) {
    (void)state;
    struct cluster c = cluster_new(1, 2);
    cluster_project(&c, 1, 0, 2);
    test_partition_set(c.w, &(struct sched_partition){.id = 1, .name = "low", .all_nodes = true}, NULL);
    test_partition_set(c.w, &(struct sched_partition){.id = 2, .name = "high", .all_nodes = true, .tier = 5},
                       NULL);
    struct sched_request q = gpus(1, 2);
    q.partition = 1;
    uint64_t low = cluster_submit(&c, &q);
    q.partition = 2;
    uint64_t high = cluster_submit(&c, &q);
    cluster_settle(&c);
    assert_false(cluster_runs(&c, low));
    assert_true(cluster_runs(&c, high));
    world_free(c.w);
}

static void licenses_are_shared(void **state) {
    (void)state;
    struct cluster c = cluster_new(2, 4);
    cluster_project(&c, 1, 0, 8);
    struct sched_license seats = {.id = 3, .name = "matlab", .count = 3};
    assert_int_equal(world_license_set(c.w, &seats, NULL), 0);
    struct sched_license_use use = {3, 2};
    struct sched_request q = gpus(1, 1), one = gpus(1, 1);
    q.licenses = &use;
    q.license_count = 1;
    uint64_t a = cluster_submit(&c, &q), b = cluster_submit(&c, &q);
    use.count = 1;
    one.licenses = &use;
    one.license_count = 1;
    uint64_t small = cluster_submit(&c, &one);  // one seat is left
    cluster_settle(&c);
    assert_true(cluster_runs(&c, a) && !cluster_runs(&c, b) && cluster_runs(&c, small));
    assert_int_equal(world_license_used(c.w, 3), 3);
    assert_int_equal(reason(&c, b), SCHED_REASON_LICENSES);
    world_assert(c.w);
    struct world *copy = world_clone(c.w);
    assert_int_equal(world_license_used(copy, 3), 3);
    world_free(copy);
    world_license_remove(c.w, 3);  // what runs goes on
    world_job_end(c.w, a, c.now_ms);
    cluster_settle(&c);
    assert_true(!cluster_runs(&c, b) && cluster_runs(&c, small));
    seats.count = 2;
    world_license_set(c.w, &seats, NULL);
    cluster_settle(&c);
    assert_false(cluster_runs(&c, b));  // the small one still holds a seat
    seats.count = 3;
    world_license_set(c.w, &seats, NULL);
    cluster_settle(&c);
    assert_true(cluster_runs(&c, b));
    world_assert(c.w);
    world_free(c.w);
}

static void qos_limits_and_rights(void **state) {
    (void)state;
    struct cluster c = cluster_new(1, 4);
    cluster_project(&c, 1, 0, 4);
    uint32_t low = 1;
    assert_int_equal(
        test_qos_set(c.w, &(struct sched_qos){.id = 1, .name = "low", .max_jobs_per_user = 2}, NULL), 0);
    struct sched_qos high = {.id = 2, .name = "high", .priority = 10, .preempts = &low, .preempts_count = 1,
                             .max_gpu_milli_per_user = 2000};
    assert_int_equal(test_qos_set(c.w, &high, NULL), 0);
    struct sched_request q = gpus(1, 1);
    q.qos = 1;
    uint64_t id[3];
    for (int i = 0; i < 3; i++)
        id[i] = cluster_submit(&c, &q);
    cluster_settle(&c);
    assert_true(cluster_runs(&c, id[1]));
    assert_int_equal(reason(&c, id[2]), SCHED_REASON_QOS_LIMIT);
    struct sched_request plain = gpus(1, 2);
    cluster_submit(&c, &plain);  // without QoS: cannot be taken by right
    cluster_settle(&c);
    q.qos = 2;
    uint64_t x = cluster_submit(&c, &q);
    cluster_settle(&c);
    assert_true(cluster_runs(&c, x));
    assert_int_equal(c.preempted, 1);
    assert_true(cluster_runs(&c, id[0]));  // the latest started gave
    q.gpu_milli_per_task = 2000;
    uint64_t y = cluster_submit(&c, &q);
    cluster_settle(&c);
    assert_int_equal(reason(&c, y), SCHED_REASON_QOS_LIMIT);
    struct error e;
    uint32_t back = 2;
    struct sched_qos cycle = {.id = 1, .name = "low", .preempts = &back, .preempts_count = 1};
    assert_true(test_qos_set(c.w, &cycle, &e) < 0);
    world_qos_remove(c.w, 2);
    cluster_settle(&c);
    assert_int_equal(reason(&c, y), SCHED_REASON_QOS_GONE);
    assert_true(cluster_runs(&c, x));
    world_free(c.w);
}

static void maintenance_is_planned_around(void **state) {
    (void)state;
    struct cluster c = cluster_new(2, 4);
    cluster_project(&c, 1, 0, 8);
    uint32_t node = 1, user = 1;
    struct sched_reservation window = {.id = 1, .name = "service", .start_ms = 100000, .end_ms = 200000, .nodes = &node,
                                       .node_count = 1, .maintenance = true};
    assert_int_equal(world_reservation_set(c.w, &window, NULL), 0);
    struct sched_request q = gpus(1, 4);
    q.time_limit_ms = 150000;
    uint64_t a = cluster_submit(&c, &q), b = cluster_submit(&c, &q);
    q.time_limit_ms = 50000;
    uint64_t s = cluster_submit(&c, &q);
    cluster_settle(&c);
    struct sched_job_view v;
    assert_true(cluster_runs(&c, a) != cluster_runs(&c, b));
    assert_true(world_job(c.w, cluster_runs(&c, a) ? a : b, &v) && v.alloc->nodes[0].node == 2);
    assert_true(world_job(c.w, s, &v) && v.state == SCHED_JOB_RUNNING && v.alloc->nodes[0].node == 1);
    struct sched_decisions d;
    sched_decide(c.w, c.now_ms, &c.policy, &d);
    assert_int_equal(d.next_ms, 100000);
    sched_decisions_done(&d);
    assert_int_equal(reason(&c, cluster_runs(&c, a) ? b : a), SCHED_REASON_RESOURCES);  // s has what it needs
    end(&c, s);
    cluster_settle(&c);
    assert_int_equal(reason(&c, cluster_runs(&c, a) ? b : a), SCHED_REASON_RESERVATION);
    c.now_ms = 201000;
    cluster_settle(&c);
    assert_true(cluster_runs(&c, a) && cluster_runs(&c, b));
    // A user's own reservation: others stay out, jobs that name it get in.
    struct sched_reservation own = {.id = 2, .name = "demo", .start_ms = 0, .end_ms = 10000000, .nodes = &node,
                                    .node_count = 1, .users = &user, .user_count = 1};
    assert_int_equal(world_reservation_set(c.w, &own, NULL), 0);
    assert_true(world_job(c.w, a, &v));
    end(&c, v.alloc->nodes[0].node == 1 ? a : b);
    q.time_limit_ms = 1000;
    uint64_t other = cluster_submit(&c, &q);
    q.reservation = "demo";
    uint64_t inside = cluster_submit(&c, &q);
    q.user = 2;
    uint64_t stranger = cluster_submit(&c, &q);
    cluster_settle(&c);
    assert_false(cluster_runs(&c, other));
    assert_true(cluster_runs(&c, inside));
    assert_int_equal(reason(&c, stranger), SCHED_REASON_RESERVATION);
    world_reservation_remove(c.w, 2);
    cluster_settle(&c);
    assert_int_equal(reason(&c, stranger), SCHED_REASON_RESERVATION_GONE);
    struct sched_explanation x;
    cleanup_buf struct buf text = {0};
    assert_int_equal(sched_explain(c.w, stranger, c.now_ms, &c.policy, &x), 0);
    sched_explain_text(c.w, &x, c.now_ms, &text);
    assert_non_null(strstr(buf_str(&text), "Its reservation demo was deleted"));
    world_free(c.w);
}

// However far away it is: nobody knows when such a job ends. Why it waits names the remedy, which works.
static void without_a_limit_a_reservation_is_waited_for(void **state) {
    (void)state;
    struct cluster c = cluster_new(1, 4);
    cluster_project(&c, 1, 0, 4);
    uint32_t node = 1;
    int64_t day_ms = 86400000, start_ms = 100 * day_ms;
    struct sched_reservation window = {.id = 1,
                                       .name = "service",
                                       .start_ms = start_ms,
                                       .end_ms = start_ms + day_ms,
                                       .nodes = &node,
                                       .node_count = 1,
                                       .maintenance = true};
    assert_int_equal(world_reservation_set(c.w, &window, NULL), 0);
    struct sched_request q = gpus(1, 1);
    q.time_limit_ms = 0;
    uint64_t job = cluster_submit(&c, &q);
    cluster_settle(&c);
    assert_int_equal(reason(&c, job), SCHED_REASON_RESERVATION);
    struct sched_explanation x;
    cleanup_buf struct buf text = {0};
    assert_int_equal(sched_explain(c.w, job, c.now_ms, &c.policy, &x), 0);
    sched_explain_text(c.w, &x, c.now_ms, &text);
    assert_non_null(strstr(buf_str(&text), "It has no time limit, so it could still run when a reservation"));
    assert_int_equal(x.change, CHANGE_TIME_LIMIT);
    q.time_limit_ms = x.value;
    uint64_t limited = cluster_submit(&c, &q);
    cluster_settle(&c);
    assert_true(cluster_runs(&c, limited) && !cluster_runs(&c, job));
    world_free(c.w);
}

static void begin_hold_and_deadline(void **state) {
    (void)state;
    struct cluster c = cluster_new(1, 4);
    cluster_project(&c, 1, 0, 4);
    struct sched_request q = gpus(1, 1);
    const struct world_request *r = world_request(c.w, &q);
    world_job_add(c.w, &(struct sched_job){.id = 100, .request = r, .submit_ms = 1, .begin_ms = 50000});
    world_job_add(c.w, &(struct sched_job){.id = 101, .request = r, .submit_ms = 1, .hold = SCHED_HOLD_USER});
    world_request_unref(c.w, r);
    q.deadline_ms = 20000;
    q.time_limit_ms = 30000;
    uint64_t late = cluster_submit(&c, &q);
    cluster_settle(&c);
    assert_false(cluster_runs(&c, 100));
    assert_int_equal(reason(&c, 100), SCHED_REASON_BEGIN_TIME);
    assert_int_equal(reason(&c, 101), SCHED_REASON_HELD);
    assert_int_equal(reason(&c, late), SCHED_REASON_DEADLINE);
    world_job_hold(c.w, 101, SCHED_HOLD_NONE);
    c.now_ms = 50000;
    cluster_settle(&c);
    assert_true(cluster_runs(&c, 100) && cluster_runs(&c, 101));
    world_free(c.w);
}

static void quotas_by_model(void **state) {
    (void)state;
    struct cluster c = cluster_new(0, 0);
    cluster_node(&c, 1, 4, "A100");
    cluster_node(&c, 2, 4, "V100");
    struct sched_model_quota a100 = {"A100", 1000, SCHED_UNLIMITED}, most = {"A100", 3000, 3000};
    struct sched_project p = {.id = 1,
                              .name = "p1",
                              .quota_milligpu = 4000,
                              .weight_milli = SCHED_UNLIMITED,
                              .limit_milligpu = SCHED_UNLIMITED,
                              .quota_cpus = SCHED_UNLIMITED,
                              .limit_cpus = SCHED_UNLIMITED,
                              .interactive_limit_ms = SCHED_UNLIMITED,
                              .models = &most,
                              .model_count = 1};
    assert_int_equal(world_project_set(c.w, &p, NULL), 0);
    p.id = 2;
    p.name = "p2";
    p.models = &a100;
    assert_int_equal(world_project_set(c.w, &p, NULL), 0);
    struct sched_request q = gpus(1, 1);
    q.gpu_model = "A100";
    uint64_t id[4];
    for (int i = 0; i < 4; i++)
        id[i] = cluster_submit(&c, &q);
    cluster_settle(&c);
    assert_true(cluster_runs(&c, id[2]));
    assert_int_equal(reason(&c, id[3]), SCHED_REASON_PROJECT_LIMIT);
    q.project = 2;
    uint64_t over = cluster_submit(&c, &q);
    cluster_settle(&c);
    assert_true(cluster_runs(&c, over));
    q.class = SCHED_INTERACTIVE;
    uint64_t x = cluster_submit(&c, &q);
    cluster_settle(&c);
    assert_true(cluster_runs(&c, x));  // inside the model quota: it took the train job's place
    assert_false(cluster_runs(&c, over));
    uint64_t y = cluster_submit(&c, &q);
    cluster_settle(&c);
    assert_int_equal(reason(&c, y), SCHED_REASON_QUOTA);
    world_free(c.w);
}

static void departments_share_first(void **state) {
    (void)state;
    struct cluster c = cluster_new(2, 4);
    cluster_project(&c, 1, 0, 4);  // departments
    cluster_project(&c, 2, 0, 4);
    cluster_project(&c, 3, 1, 2);  // two teams of the first, one of the second
    cluster_project(&c, 4, 1, 2);
    cluster_project(&c, 5, 2, 4);
    for (int i = 0; i < 8; i++) {
        struct sched_request q = gpus(3, 1);
        cluster_submit(&c, &q);
    }
    cluster_settle(&c);
    assert_int_equal(cluster_used(&c, 3), 8000);
    for (int i = 0; i < 8; i++) {
        struct sched_request q = gpus(5, 1);
        cluster_submit(&c, &q);
    }
    cluster_settle(&c);
    assert_int_equal(cluster_used(&c, 1), 4000);
    assert_int_equal(cluster_used(&c, 5), 4000);
    for (int i = 0; i < 8; i++) {
        struct sched_request q = gpus(4, 1);
        cluster_submit(&c, &q);
    }
    cluster_settle(&c);
    assert_int_equal(cluster_used(&c, 3), 2000);
    assert_int_equal(cluster_used(&c, 4), 2000);
    assert_int_equal(cluster_used(&c, 5), 4000);
    world_free(c.w);
}

static void gpus_of_a_job_stay_together(void **state) {
    (void)state;
    struct cluster c = cluster_new(1, 8);  // groups 0-3 and 4-7
    cluster_project(&c, 1, 0, 8);
    struct sched_request q = gpus(1, 1);
    cluster_submit(&c, &q);
    cluster_settle(&c);
    q = gpus(1, 4);
    q.same_group = true;
    uint64_t four = cluster_submit(&c, &q), again = cluster_submit(&c, &q);
    cluster_settle(&c);
    struct sched_job_view v;
    assert_true(world_job(c.w, four, &v) && v.alloc);
    for (unsigned i = 0; i < 4; i++)
        assert_int_equal(v.alloc->nodes[0].gpus[i].index / 4, v.alloc->nodes[0].gpus[0].index / 4);
    assert_false(cluster_runs(&c, again));
    world_free(c.w);
}

static void fractions_share_one_gpu(void **state) {
    (void)state;
    struct cluster c = cluster_new(1, 2);
    cluster_project(&c, 1, 0, 2);
    uint64_t id[4];
    const uint32_t milli[] = {600, 300, 100, 500};
    for (int i = 0; i < 4; i++) {
        struct sched_request q = {.project = 1, .user = 1, .gpu_milli_per_task = milli[i]};
        id[i] = cluster_submit(&c, &q);
        cluster_settle(&c);
    }
    struct sched_job_view a, b, x;
    assert_true(world_job(c.w, id[0], &a) && world_job(c.w, id[1], &b) && world_job(c.w, id[2], &x));
    assert_int_equal(a.alloc->nodes[0].gpus[0].index, b.alloc->nodes[0].gpus[0].index);
    assert_int_equal(a.alloc->nodes[0].gpus[0].index, x.alloc->nodes[0].gpus[0].index);
    // by memory: 16 of 32 GiB is half a GPU
    struct sched_request m = {.project = 1, .user = 1, .gpu_memory_bytes = 16ULL << 30};
    uint64_t mem = cluster_submit(&c, &m);
    cluster_settle(&c);
    assert_true(world_job(c.w, mem, &x) && x.alloc && x.alloc->nodes[0].gpus[0].milli == 500);
    assert_int_equal(cluster_used(&c, 1), 2000);
    world_free(c.w);
}

static void gangs_start_whole(void **state) {
    (void)state;
    struct cluster c = cluster_new(3, 4);
    cluster_project(&c, 1, 0, 12);
    struct sched_request one = gpus(1, 1);
    uint64_t blocker = cluster_submit(&c, &one);
    cluster_settle(&c);
    struct sched_request gang = {.project = 1, .user = 1, .nodes_min = 3, .gpu_milli_per_node = 4000};
    uint64_t g = cluster_submit(&c, &gang);
    cluster_settle(&c);
    assert_false(cluster_runs(&c, g));
    end(&c, blocker);
    cluster_settle(&c);
    struct sched_job_view v;
    assert_true(world_job(c.w, g, &v) && v.alloc && v.alloc->node_count == 3);
    end(&c, g);
    struct sched_request tasks = {.project = 1, .user = 1, .tasks = 10, .gpu_milli_per_task = 1000};
    uint64_t t = cluster_submit(&c, &tasks);
    cluster_settle(&c);
    assert_true(world_job(c.w, t, &v) && v.alloc && sched_alloc_gpu_milli(v.alloc) == 10000);
    world_free(c.w);
}

static void heavy_users_wait_longer(void **state) {
    (void)state;
    struct cluster c = cluster_new(1, 1);
    cluster_project(&c, 1, 0, 1);
    world_usage_set(c.w, 1, 1, 800, c.now_ms);
    struct sched_request q = gpus(1, 1);
    q.time_limit_ms = 60000;
    uint64_t heavy = cluster_submit(&c, &q);
    c.now_ms += 1000;
    q.user = 2;
    uint64_t light = cluster_submit(&c, &q);
    cluster_settle(&c);
    assert_true(cluster_runs(&c, light));
    assert_false(cluster_runs(&c, heavy));
    int64_t now = world_usage(c.w, 1, 1, c.now_ms), week = world_usage(c.w, 1, 1, c.now_ms + 7LL * 24 * 3600 * 1000);
    assert_in_range(week, now / 2 - 1, now / 2 + 1);
    world_free(c.w);
}

static void weight_zero_takes_nothing_over_quota(void **state) {
    (void)state;
    struct cluster c = cluster_new(1, 4);
    struct sched_project p = {.id = 1,
                              .name = "p",
                              .quota_milligpu = 2000,
                              .weight_milli = 0,
                              .limit_milligpu = SCHED_UNLIMITED,
                              .quota_cpus = SCHED_UNLIMITED,
                              .limit_cpus = SCHED_UNLIMITED,
                              .interactive_limit_ms = SCHED_UNLIMITED};
    assert_int_equal(world_project_set(c.w, &p, NULL), 0);
    struct sched_request q = gpus(1, 1);
    for (int i = 0; i < 4; i++)
        cluster_submit(&c, &q);
    cluster_settle(&c);
    assert_int_equal(cluster_used(&c, 1), 2000);
    world_free(c.w);
}

// A job others made room for starts out of order. Who comes before it has found nothing to take yet,
// so the pass asks for another one at once.
static void what_made_room_may_be_taken_from(void **state) {
    (void)state;
    struct cluster c = cluster_new(1, 8);
    for (uint32_t p = 1; p <= 3; p++)
        cluster_project(&c, p, 0, p == 3 ? 6 : 1);
    struct sched_request idle = gpus(1, 8), half = gpus(2, 4), own = gpus(3, 6);
    cluster_submit(&c, &idle);
    cluster_settle(&c);
    uint64_t over = cluster_submit(&c, &half);
    assert_int_equal(cluster_round(&c), 1);  // makes room
    uint64_t inside = cluster_submit(&c, &own);
    struct sched_decisions d;
    sched_decide(c.w, c.now_ms, &c.policy, &d);
    assert_int_equal(d.starts.len, 1);
    assert_int_equal(d.starts.at[0].job, over);
    assert_int_equal(d.preempts.len, 0);
    assert_int_equal(d.next_ms, c.now_ms);
    sched_decisions_done(&d);
    cluster_settle(&c);
    assert_true(cluster_runs(&c, inside));
    world_free(c.w);
}

// Only interactive work takes from its own project; what merely cannot be queued again waits.
static void only_interactive_takes_from_its_own(void **state) {
    (void)state;
    struct cluster c = cluster_new(1, 4);
    cluster_project(&c, 1, 0, 4);
    struct sched_request train = gpus(1, 4), attached = gpus(1, 1), shell = gpus(1, 1);
    attached.preemptible = SCHED_NO;
    shell.class = SCHED_INTERACTIVE;
    uint64_t first = cluster_submit(&c, &train);
    cluster_settle(&c);
    uint64_t waits = cluster_submit(&c, &attached);
    cluster_settle(&c);
    assert_true(cluster_runs(&c, first));
    assert_false(cluster_runs(&c, waits));
    uint64_t takes = cluster_submit(&c, &shell);
    cluster_settle(&c);
    assert_true(cluster_runs(&c, takes));
    assert_false(cluster_runs(&c, first));
    world_free(c.w);
}

// What a victim leaves beyond what its preemptor needs does not free what others were promised: a younger
// job that asks for the same as the preemptor would start on it, before the preemptor.
static void nobody_starts_on_what_is_promised(void **state) {
    (void)state;
    struct cluster c = cluster_new(1, 8);
    cluster_project(&c, 1, 0, 8);
    cluster_project(&c, 2, 0, 0);
    struct sched_request large = gpus(2, 1), small = gpus(2, 1), first = gpus(1, 1), same = gpus(1, 1);
    large.cpus_per_task = 30;
    small.cpus_per_task = 20;
    first.cpus_per_task = 34;  // the 14 that are free and the 20 of the small one
    same.cpus_per_task = 14;
    cluster_submit(&c, &large);
    cluster_settle(&c);
    uint64_t latest = cluster_submit(&c, &small);
    cluster_settle(&c);
    uint64_t a = cluster_submit(&c, &first);
    c.now_ms += 1000;
    uint64_t b = cluster_submit(&c, &same);
    cluster_submit(&c, &same);
    struct sched_decisions d;
    sched_decide(c.w, c.now_ms, &c.policy, &d);
    assert_int_equal(d.starts.len, 0);
    assert_int_equal(d.preempts.len, 2);
    assert_int_equal(d.preempts.at[0].victim, latest);
    assert_int_equal(d.preempts.at[0].for_job, a);
    assert_int_equal(d.preempts.at[1].for_job, b);
    sched_decisions_done(&d);
    world_free(c.w);
}

// Hundreds that started since the last look are put in order at once: by end, and by worth.
static void many_starts_are_put_in_order(void **state) {
    (void)state;
    enum { MANY = 300 };
    struct cluster c = cluster_new(MANY / 8 + 1, 8);
    cluster_project(&c, 1, 0, 0);
    cluster_project(&c, 2, 0, MANY + 8);
    struct sched_alloc *a = sched_alloc_new(1, 1);
    for (uint32_t i = 0; i < MANY; i++) {
        struct sched_request q = {.project = 1, .user = 1, .gpu_milli_per_task = 1000, .nice = (int32_t)(i * 7 % 3) - 1,
                                  .time_limit_ms = i * 7919 % 100 ? 1000 * (1 + i * 7919 % 100) : 0};
        uint64_t id = cluster_submit(&c, &q);
        sched_alloc_gpus(a)[0] = (struct sched_alloc_gpu){(uint16_t)(i % 8), 1000};
        a->nodes[0] = (struct sched_alloc_node){
            .node = 1 + i / 8, .cpus = 1, .tasks = 1, .gpus = sched_alloc_gpus(a), .gpu_count = 1};
        assert_int_equal(world_job_start(c.w, id, a, 1000 + i * 104729 % 5000), 0);
    }
    sched_alloc_free(a);
    struct sched_request wide = {
        .project = 2, .user = 1, .nodes_min = MANY / 8 + 1, .gpu_milli_per_node = 8000, .class = SCHED_TRAIN};
    cluster_submit(&c, &wide);
    c.now_ms = 10000;
    struct sched_decisions d;
    sched_decide(c.w, c.now_ms, &c.policy, &d);  // takes from all: both orders are made
    assert_int_equal(d.preempts.len, MANY);
    sched_decisions_done(&d);
    c.policy.reclaim = false;
    sched_decide(c.w, c.now_ms, &c.policy, &d);
    sched_decisions_done(&d);
    world_assert(c.w);
    world_free(c.w);
}

// One that may be shorter starts before a planned job instead of waiting behind it, for as long as it can.
static void a_shorter_limit_lets_a_job_start_before_a_planned_one(void **state) {
    (void)state;
    enum { HOUR = 3600 * 1000 };
    for (int with = 0; with <= 1; with++) {
        struct cluster c = cluster_new(1, 4);
        cluster_project(&c, 1, 0, 4);
        struct sched_request q = gpus(1, 3);
        q.time_limit_ms = HOUR;
        uint64_t running = cluster_submit(&c, &q);
        cluster_settle(&c);
        q = gpus(1, 4);
        q.time_limit_ms = HOUR;
        uint64_t planned = cluster_submit(&c, &q);
        cluster_settle(&c);
        q = gpus(1, 1);
        q.time_limit_ms = 2 * HOUR;
        q.time_min_ms = with ? HOUR / 2 : 0;
        uint64_t id = cluster_submit(&c, &q);
        q.time_min_ms = with ? 3 * HOUR / 2 : 0;  // even this is too long
        uint64_t too_long = cluster_submit(&c, &q);
        struct sched_decisions d;
        sched_decide(c.w, c.now_ms, &c.policy, &d);
        assert_int_equal(d.starts.len, with);
        if (with) {
            assert_int_equal(d.starts.at[0].job, id);
            assert_true(d.starts.at[0].backfill);
            assert_in_range(d.starts.at[0].limit_ms, HOUR - 3 * 60 * 1000, HOUR);
        }
        sched_decisions_done(&d);
        cluster_settle(&c);
        assert_true(cluster_runs(&c, running) && !cluster_runs(&c, planned) && !cluster_runs(&c, too_long));
        assert_int_equal(cluster_runs(&c, id), with);
        world_assert(c.w);
        world_free(c.w);
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_shorter_limit_lets_a_job_start_before_a_planned_one),
        cmocka_unit_test(partitions_bound_nodes_time_and_order),
        cmocka_unit_test(fifo_lets_nobody_pass),
        cmocka_unit_test(higher_tiers_first),
        cmocka_unit_test(licenses_are_shared), cmocka_unit_test(qos_limits_and_rights),
        cmocka_unit_test(maintenance_is_planned_around),
        cmocka_unit_test(without_a_limit_a_reservation_is_waited_for),
        cmocka_unit_test(begin_hold_and_deadline),
        cmocka_unit_test(quotas_by_model),
        cmocka_unit_test(departments_share_first),
        cmocka_unit_test(gpus_of_a_job_stay_together),
        cmocka_unit_test(fractions_share_one_gpu),
        cmocka_unit_test(gangs_start_whole),
        cmocka_unit_test(heavy_users_wait_longer),
        cmocka_unit_test(weight_zero_takes_nothing_over_quota),
        cmocka_unit_test(what_made_room_may_be_taken_from),
        cmocka_unit_test(only_interactive_takes_from_its_own),
        cmocka_unit_test(nobody_starts_on_what_is_promised),
        cmocka_unit_test(many_starts_are_put_in_order),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
