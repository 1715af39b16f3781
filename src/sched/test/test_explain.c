// Explanations: every blocker counted, and the stated change really starts the job.
#include <inttypes.h>

#include "base/rand.h"
#include "base/text.h"
#include "cluster.h"
#include "sched/explain.h"

static bool starts(struct world *w, uint64_t job, int64_t now_ms, const struct policy *policy) {
    struct sched_decisions d;
    bool found = false;
    sched_decide(w, now_ms, policy, &d);
    for (uint32_t i = 0; i < d.starts.len; i++)
        found |= d.starts.at[i].job == job;
    sched_decisions_done(&d);
    return found;
}

// Does what the explanation says, on a copy, and looks whether the job starts.
static bool change_works(const struct cluster *c, const struct sched_explanation *e) {
    struct world *w = world_clone(c->w);
    struct sched_job_view v;
    assert_true(world_job(w, e->job, &v));
    struct sched_request q = *sched_request_asked(v.request);
    struct sched_job j = {.id = v.id, .submit_ms = v.submit_ms, .begin_ms = v.begin_ms, .hold = v.hold};
    switch (e->change) {
    case CHANGE_RELEASE:
    case CHANGE_BEGIN_NOW:
        j.hold = SCHED_HOLD_NONE;
        j.begin_ms = 0;
        break;
    case CHANGE_TIME_LIMIT: q.time_limit_ms = e->value; break;
    case CHANGE_GPUS:
        *(q.gpu_milli_per_task ? &q.gpu_milli_per_task : &q.gpu_milli_per_node) = (uint32_t)e->value;
        break;
    case CHANGE_NODES:
        q.tasks_per_node = sched_request_tasks(v.request) / q.nodes_min;
        q.nodes_min = (uint32_t)e->value;
        q.nodes_max = 0;
        q.tasks = 0;
        break;
    case CHANGE_TASKS: q.tasks = (uint32_t)e->value; break;
    case CHANGE_CPUS: q.cpus_per_task = (uint32_t)e->value; break;
    case CHANGE_MEMORY: q.memory_per_node_bytes = (uint64_t)e->value; break;
    case CHANGE_ANY_MODEL: q.gpu_model = NULL; break;
    case CHANGE_SHARED: q.exclusive = false; break;
    case CHANGE_TRAIN: q.class = SCHED_TRAIN; break;
    case CHANGE_PARTITION: q.partition = (uint32_t)e->value; break;
    case CHANGE_QOS: q.qos = (uint32_t)e->value; break;
    case CHANGE_PRIORITY: q.priority += (int32_t)e->value; break;
    case CHANGE_END_JOBS:
        for (uint32_t i = 0; i < e->end_count; i++)
            assert_int_equal(world_job_end(w, e->ends[i], c->now_ms), 0);
        break;
    default: fail_msg("change %d was not expected", e->change);
    }
    if (e->also_release) {
        j.hold = SCHED_HOLD_NONE;
        j.begin_ms = 0;
    }
    if (e->also_first)
        q.priority += 1000000;
    const struct world_request *r = world_request(w, &q);
    j.request = r;
    assert_int_equal(world_job_update(w, &j), 0);
    world_request_unref(w, r);
    bool works = starts(w, e->job, c->now_ms, &c->policy);
    world_free(w);
    return works;
}

static uint32_t counted(const struct explain_nodes *n) {
    return n->partition + n->project + n->listed + n->features + n->model + n->down + n->drained + n->small +
           n->reserved + n->busy_gpus + n->busy_cpus + n->busy_memory + n->busy_alone + n->planned + n->fit;
}

static struct sched_request random_request(struct rand *rnd) {
    struct sched_request q = {.project = 1 + (uint32_t)rand_below(rnd, 3), .user = 1 + (uint32_t)rand_below(rnd, 3),
                              .cpus_per_task = 1 + (uint32_t)rand_below(rnd, 20),
                              .memory_per_node_bytes = rand_below(rnd, 300) << 30,
                              .time_limit_ms = 60000 * rand_between(rnd, 1, 600)};
    switch (rand_below(rnd, 6)) {
    case 0:
        q.nodes_min = 1 + (uint32_t)rand_below(rnd, 4);
        q.gpu_milli_per_node = 1000 * (uint32_t)rand_below(rnd, 5);
        break;
    case 1: q.gpu_milli_per_task = 500; break;
    case 2: q.gpu_milli_per_task = 1000; q.gpu_model = "A100"; break;
    case 3: q.exclusive = true; break;
    default: q.gpu_milli_per_task = 1000 * (uint32_t)rand_between(rnd, 1, 4);
    }
    if (rand_below(rnd, 5) == 0)
        q.class = SCHED_INTERACTIVE;
    return q;
}

// A question changes nothing: the world decides as a copy made before does.
static void decides_as(struct cluster *c, struct world *before, uint64_t seed) {
    struct sched_decisions a, b;
    sched_decide(before, c->now_ms, &c->policy, &a);
    sched_decide(c->w, c->now_ms, &c->policy, &b);
    bool same = a.starts.len == b.starts.len && a.preempts.len == b.preempts.len && a.plans.len == b.plans.len;
    for (uint32_t i = 0; same && i < a.starts.len; i++)
        same = a.starts.at[i].job == b.starts.at[i].job &&
               a.starts.at[i].alloc->nodes[0].node == b.starts.at[i].alloc->nodes[0].node;
    for (uint32_t i = 0; same && i < a.preempts.len; i++)
        same = a.preempts.at[i].victim == b.preempts.at[i].victim;
    for (uint32_t i = 0; same && i < a.plans.len; i++)
        same = a.plans.at[i].job == b.plans.at[i].job && a.plans.at[i].start_ms == b.plans.at[i].start_ms;
    for (uint32_t user = 1; same && user <= 3; user++)
        for (uint32_t project = 1; same && project <= 3; project++)
            same = world_usage(before, project, user, c->now_ms + 1000000) ==
                   world_usage(c->w, project, user, c->now_ms + 1000000);
    if (!same)
        fail_msg("seed %" PRIu64 ": a question changed what is decided", seed);
    sched_decisions_done(&a);
    sched_decisions_done(&b);
    world_free(before);
}

static void stated_changes_start_the_job(void **state) {
    (void)state;
    uint32_t jobs = 0, with_change = 0;
    for (uint64_t seed = 1; seed <= 60; seed++) {
        struct rand rnd;
        rand_seed(&rnd, seed);
        struct cluster c = cluster_new(0, 0);
        for (uint32_t i = 1; i <= 4; i++)
            cluster_node(&c, i, 4, i == 4 ? "A100" : "V100");
        if (rand_below(&rnd, 3) == 0)
            world_node_state(c.w, 2, SCHED_NODE_DRAINED);
        for (uint32_t i = 1; i <= 3; i++)
            cluster_project(&c, i, 0, (int64_t)rand_below(&rnd, 6));
        for (unsigned i = 0; i < 24; i++) {
            struct sched_request q = random_request(&rnd);
            uint64_t id = cluster_submit(&c, &q);
            if (rand_below(&rnd, 8) == 0)
                world_job_hold(c.w, id, SCHED_HOLD_USER);
            if (i % 4 == 3)
                cluster_round(&c);
        }
        cluster_settle(&c);
        for (uint64_t id = 1; id < c.next_id; id++) {
            struct sched_explanation e;
            struct sched_job_view v;
            if (!world_job(c.w, id, &v) || v.state != SCHED_JOB_PENDING)
                continue;
            struct world *before = world_clone(c.w);
            assert_int_equal(sched_explain(c.w, id, c.now_ms, &c.policy, &e), 0);
            world_assert(c.w);
            decides_as(&c, before, seed);
            assert_int_equal(counted(&e.nodes), e.nodes.all);
            if (e.hold == SCHED_HOLD_NONE)
                assert_in_range(e.position, 1, e.waiting);
            cleanup_buf struct buf text = {0};
            sched_explain_text(c.w, &e, c.now_ms, &text);
            assert_true(text.len > 20);
            jobs++;
            if (e.change == CHANGE_NONE || e.band.basis == EXPLAIN_NOW || e.change == CHANGE_PROJECT_QUOTA)
                continue;
            with_change++;
            if (!change_works(&c, &e))
                fail_msg("seed %" PRIu64 " job %" PRIu64 ": change %d to %" PRId64 " does not start it\n%s", seed, id,
                         e.change, e.value, text.data);
        }
        world_free(c.w);
    }
    print_message("%u jobs explained, %u with a change\n", jobs, with_change);
    assert_true(with_change * 10 > jobs * 6);
}

static void says_who_holds_what(void **state) {
    (void)state;
    struct cluster c = cluster_new(2, 4);
    cluster_project(&c, 1, 0, 8);
    uint64_t a =
        cluster_submit(&c, &(struct sched_request){
                               .project = 1, .user = 1, .gpu_milli_per_task = 4000, .time_limit_ms = 600000});
    uint64_t b =
        cluster_submit(&c, &(struct sched_request){
                               .project = 1, .user = 1, .gpu_milli_per_task = 3000, .time_limit_ms = 900000});
    cluster_settle(&c);
    uint64_t w =
        cluster_submit(&c, &(struct sched_request){
                               .project = 1, .user = 2, .gpu_milli_per_task = 4000, .time_limit_ms = 600000});
    struct sched_explanation e;
    assert_int_equal(sched_explain(c.w, w, c.now_ms, &c.policy, &e), 0);
    assert_int_equal(e.reason, SCHED_REASON_RESOURCES);
    assert_int_equal(e.nodes.all, 2);
    assert_int_equal(e.nodes.busy_gpus, 2);
    assert_int_equal(e.holders_all, 2);
    assert_int_equal(e.holders[0].job, a);
    assert_int_equal(e.holders[1].job, b);
    assert_int_equal(e.position, 1);
    assert_int_equal(e.change, CHANGE_GPUS);
    assert_int_equal(e.value, 1000);
    assert_int_equal(e.band.basis, EXPLAIN_FORECAST);
    assert_int_equal(e.band.late_ms, 1000 + 600000);  // job a by its limit
    assert_true(e.band.early_ms < e.band.late_ms);
    world_free(c.w);
}

static void when_compares_variants(void **state) {
    (void)state;
    struct cluster c = cluster_new(1, 4);
    cluster_project(&c, 1, 0, 4);
    cluster_submit(&c, &(struct sched_request){
                           .project = 1, .user = 1, .gpu_milli_per_task = 3000, .time_limit_ms = 600000});
    cluster_settle(&c);
    struct sched_request variants[] = {
        {.project = 1, .user = 2, .gpu_milli_per_task = 2000, .time_limit_ms = 600000},
        {.project = 1, .user = 2, .gpu_milli_per_task = 1000, .time_limit_ms = 600000},
        {.project = 1, .user = 2, .gpu_milli_per_task = 8000, .time_limit_ms = 600000},
    };
    struct sched_when out[3];
    struct world *before = world_clone(c.w);
    sched_when(c.w, variants, 3, c.now_ms, &c.policy, out);
    assert_int_equal(world_pending(c.w), 0);
    decides_as(&c, before, 0);
    assert_int_equal(out[0].band.basis, EXPLAIN_FORECAST);
    assert_int_equal(out[0].band.late_ms, 1000 + 600000);
    assert_int_equal(out[1].band.basis, EXPLAIN_NOW);
    assert_int_equal(out[2].band.basis, EXPLAIN_NEVER);
    world_assert(c.w);
    world_free(c.w);
}

// Too large to be played forward: all GPUs are taken for an hour, and the queue takes them all once more
// before the job that is asked about comes.
static void large_clusters_are_estimated(void **state) {
    (void)state;
    enum { NODES = 128, HOUR = 3600 * 1000 };
    struct cluster c = cluster_new(NODES, 8);
    cluster_project(&c, 1, 0, NODES * 8);
    struct sched_request q = {.project = 1, .user = 1, .gpu_milli_per_task = 1000, .time_limit_ms = HOUR};
    for (int i = 0; i < 2 * NODES * 8; i++) {
        cluster_submit(&c, &q);
        c.now_ms += i % 8 == 0;
    }
    cluster_round(&c);
    int64_t began = c.now_ms - 1000;
    uint64_t id = cluster_submit(&c, &q);
    cluster_round(&c);
    struct sched_explanation e;
    assert_int_equal(sched_explain(c.w, id, c.now_ms, &c.policy, &e), 0);
    assert_int_equal(e.position, NODES * 8 + 1);
    assert_int_equal(e.band.basis, EXPLAIN_ESTIMATE);
    assert_in_range(e.band.late_ms, began + 2 * HOUR - HOUR / 20, began + 2 * HOUR + HOUR / 20);
    assert_in_range(e.band.early_ms, began + 2 * HOUR * 6 / 10 - HOUR / 20, began + 2 * HOUR * 6 / 10 + HOUR / 20);
    struct sched_when when;
    sched_when(c.w, &q, 1, c.now_ms, &c.policy, &when);
    assert_int_equal(when.band.basis, EXPLAIN_ESTIMATE);
    assert_in_range(when.band.late_ms, began + 2 * HOUR - HOUR / 20, began + 2 * HOUR + HOUR / 20);
    world_assert(c.w);
    world_free(c.w);
}

// Two GPUs, each held for an hour; two jobs wait for one each, in order. An hour more for one holder delays the job
// that would have had its GPU, and nobody else; and the world is as before.
static void longer_limits_delay_those_who_wait(void **state) {
    (void)state;
    enum { HOUR = 3600 * 1000 };
    struct cluster c = cluster_new(1, 2);
    cluster_project(&c, 1, 0, 2);
    struct sched_request q = {.project = 1, .user = 1, .gpu_milli_per_task = 1000, .time_limit_ms = HOUR};
    uint64_t holder = cluster_submit(&c, &q);
    int64_t began_ms = c.now_ms;
    cluster_settle(&c);
    cluster_submit(&c, &q);
    cluster_settle(&c);
    uint64_t next = cluster_submit(&c, &q);
    cluster_submit(&c, &q);
    cluster_settle(&c);
    struct sched_delays d;
    struct world *before = world_clone(c.w);
    sched_extension(c.w, holder, 2 * HOUR, c.now_ms, &c.policy, &d);
    assert_true(d.complete);
    // The first in the queue takes the other GPU, a little later; the second one the GPU of the holder.
    assert_int_equal(d.moved.len, 2);
    assert_int_equal(d.moved.at[0].after_ms, began_ms + 2 * HOUR);
    assert_int_equal(d.moved.at[1].job, next);
    assert_int_equal(d.moved.at[1].before_ms, began_ms + HOUR);
    assert_in_range(d.moved.at[1].after_ms, began_ms + HOUR + 1000, began_ms + HOUR + 60000);
    decides_as(&c, before, 0);
    vec_done(&d.moved);
    sched_extension(c.w, holder, HOUR, c.now_ms, &c.policy, &d);  // as it is: nothing moves
    assert_int_equal(d.moved.len, 0);
    vec_done(&d.moved);
    world_free(c.w);
}

// Work for GPUs that have a fault is taken and waits; nobody is told that there are none.
static void gpus_with_a_fault_are_waited_for(void **state) {
    (void)state;
    struct cluster c = cluster_new(1, 0);
    struct sched_gpu g[2] = {{"V100", 32ULL << 30, 1, true}, {"V100", 32ULL << 30, 1, false}};
    struct sched_node n = {
        .id = 1, .name = "n1", .cpus = 64, .memory_bytes = 512ULL << 30, .gpus = g, .gpu_count = 2};
    struct sched_request two = {.user = 1, .gpu_milli_per_task = 2000, .gpu_model = "V100"};
    struct sched_explanation e;
    struct error err;
    struct buf text = {0};
    for (int sick = 1; sick <= 2; sick++) {
        g[1].unusable = sick == 2;
        assert_int_equal(world_node_set(c.w, &n, &err), 0);
        assert_int_equal(world_check_request(c.w, &two, c.now_ms, &c.policy, &err), 0);
        assert_true(world_check_request(c.w, &(struct sched_request){.user = 1, .gpu_milli_per_task = 3000},
                                        c.now_ms, &c.policy, &err) < 0);
        uint64_t job = cluster_submit(&c, &two);
        cluster_settle(&c);
        assert_int_equal(sched_explain(c.w, job, c.now_ms, &c.policy, &e), 0);
        assert_int_equal(e.nodes.sick_gpus, sick);
        sched_explain_text(c.w, &e, c.now_ms, &text);
        assert_non_null(strstr(buf_str(&text), sick == 1 ? "1 GPU there is faulty and not used."
                                                         : "2 GPUs there are faulty and not used."));
        buf_done(&text);
        text = (struct buf){0};
        assert_int_equal(world_job_end(c.w, job, c.now_ms), 0);
    }
    g[0].unusable = g[1].unusable = false;
    assert_int_equal(world_node_set(c.w, &n, &err), 0);
    uint64_t job = cluster_submit(&c, &two);
    cluster_settle(&c);
    assert_true(cluster_runs(&c, job));
    world_free(c.w);
}

static void says(struct cluster *c, uint64_t job, const char *sentence) {
    struct sched_explanation e;
    struct buf text = {0};
    cluster_settle(c);
    assert_int_equal(sched_explain(c->w, job, c->now_ms, &c->policy, &e), 0);
    sched_explain_text(c->w, &e, c->now_ms, &text);
    assert_true(str_has_prefix(buf_str(&text), sentence));
    buf_done(&text);
}

static void the_limit_of_a_qos_is_named(void **state) {
    (void)state;
    struct cluster c = cluster_new(1, 8);
    cluster_project(&c, 1, 0, 8);
    struct sched_qos few = {.id = 1, .name = "few", .max_jobs_per_user = 1},
                     small = {.id = 2, .name = "small", .max_gpu_milli_per_user = 2000};
    assert_int_equal(test_qos_set(c.w, &few, NULL), 0);
    assert_int_equal(test_qos_set(c.w, &small, NULL), 0);
    struct sched_request q = {.project = 1, .user = 1, .gpu_milli_per_task = 1000, .qos = 1};
    cluster_submit(&c, &q);
    says(&c, cluster_submit(&c, &q),
         "It would exceed max_jobs_per_user of QoS few: 1 running job for each user, and 1 runs.\n");
    q.qos = 2;
    cluster_submit(&c, &q);
    q.gpu_milli_per_task = 1500;
    says(&c, cluster_submit(&c, &q),
         "It would exceed max_gpus_per_user of QoS small: 2 GPUs for each user, 1 GPU in use; it asks for "
         "1.5 GPUs.\n");
    world_free(c.w);
}

static void a_job_that_is_not_pending_has_none(void **state) {
    (void)state;
    struct cluster c = cluster_new(1, 4);
    struct sched_explanation e;
    assert_true(sched_explain(c.w, 77, c.now_ms, &c.policy, &e) < 0);
    world_free(c.w);
}

enum { ASKED_JOBS = 40 };

// Everything a list shows of the jobs that depends on the latest pass.
static void record(struct cluster *c, uint8_t reasons[ASKED_JOBS], bool preemptors[ASKED_JOBS]) {
    for (uint64_t id = 1; id < c->next_id; id++) {
        struct sched_job_view v;
        assert_true(world_job(c->w, id, &v));
        reasons[id] = (uint8_t)sched_job_reason(c->w, id);
        preemptors[id] = v.preemptor;
    }
}

// Questions leave no trace: after "why" for every job and "when" for a new one, all jobs have the reasons and
// marks they had, including those queued since the latest pass and those whose begin time came since.
static void questions_change_nothing(void **state) {
    (void)state;
    struct cluster c = cluster_new(2, 4);
    for (uint32_t p = 1; p <= 2; p++)
        cluster_project(&c, p, 0, 4);
    struct sched_request q = {.project = 1, .user = 1, .time_limit_ms = 3600 * 1000, .gpu_milli_per_task = 2000};
    for (unsigned i = 0; i < 6; i++)
        cluster_submit(&c, &q);
    cluster_settle(&c);
    // A preemptor whose victims have not ended, and a mark that a pass would take away: nothing ends for it.
    q.project = q.user = 2;
    uint64_t preemptor = cluster_submit(&c, &q);
    struct sched_decisions d;
    sched_decide(c.w, c.now_ms, &c.policy, &d);
    assert_int_equal(d.preempts.len, 1);
    assert_int_equal(world_job_preempt(c.w, &d.preempts.at[0]), 0);
    sched_decisions_done(&d);
    q.gpu_milli_per_task = 4000;
    uint64_t marked = cluster_submit(&c, &q);
    world_job_preemptor_set(c.w, marked, true);
    uint64_t later = c.next_id++;
    const struct world_request *r = world_request(c.w, &q);
    assert_int_equal(world_job_add(c.w, &(struct sched_job){.id = later, .request = r, .submit_ms = c.now_ms,
                                                            .begin_ms = c.now_ms + 1000}), 0);
    world_request_unref(c.w, r);
    sched_decide(c.w, c.now_ms, &c.policy, &d);
    sched_decisions_done(&d);
    world_job_preemptor_set(c.w, marked, true);
    uint64_t fresh = cluster_submit(&c, &q);
    c.now_ms += 2000;
    uint8_t before[ASKED_JOBS] = {0}, after[ASKED_JOBS] = {0};
    bool marks[ASKED_JOBS] = {0}, marks_after[ASKED_JOBS] = {0};
    record(&c, before, marks);
    assert_int_equal(before[later], SCHED_REASON_BEGIN_TIME);
    assert_int_equal(before[fresh], SCHED_REASON_NONE);
    assert_true(marks[preemptor] && marks[marked]);
    for (uint64_t id = 1; id < c.next_id; id++) {
        struct sched_explanation e;
        if (sched_explain(c.w, id, c.now_ms, &c.policy, &e) == 0) {
            record(&c, after, marks_after);
            assert_memory_equal(before, after, sizeof before);
            assert_memory_equal(marks, marks_after, sizeof marks);
        }
    }
    struct sched_when when;
    sched_when(c.w, &q, 1, c.now_ms, &c.policy, &when);
    record(&c, after, marks_after);
    assert_memory_equal(before, after, sizeof before);
    assert_memory_equal(marks, marks_after, sizeof marks);
    world_assert(c.w);
    world_free(c.w);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(questions_change_nothing),
        cmocka_unit_test(stated_changes_start_the_job),
        cmocka_unit_test(says_who_holds_what),
        cmocka_unit_test(when_compares_variants),
        cmocka_unit_test(large_clusters_are_estimated),
        cmocka_unit_test(gpus_with_a_fault_are_waited_for),
        cmocka_unit_test(longer_limits_delay_those_who_wait),
        cmocka_unit_test(the_limit_of_a_qos_is_named),
        cmocka_unit_test(a_job_that_is_not_pending_has_none),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
