// Elastic jobs: the minimum starts and goes back together, workers end by policy, the size is changed while it runs;
// each of them also out of a snapshot and out of the journal.
#include "elastic_rig.h"

#include "../state.h"

static void the_minimum_starts_together(void **state) {
    struct rig r;
    init(&r);
    struct spec s = workers(6, 6);
    struct spec other = rig_spec();
    other.cpus_per_task = 3;
    other.memory_per_cpu_bytes = 1 << 20;
    uint64_t first = rig_submit(&r, &bob, &other);
    uint64_t id = rig_submit(&r, &alice, &s);
    assert_int_equal(rig_state(&r, id), JOB_PENDING);  // five CPUs are free
    assert_int_equal(rig_state(&r, worker(&r, id, 0)), JOB_PENDING);
    same_after_recovery(&r);
    rig_started(&r, node_of(&r, first), first, 1);
    rig_end(&r, node_of(&r, first), first, 1, END_EXIT, 0);
    assert_int_equal(rig_state(&r, id), JOB_STARTING);
    uint32_t launches = 0;
    for (uint32_t i = 0; i < r.launches.len; i++)
        launches += r.launches.at[i].job > id;
    assert_int_equal(launches, 6);
    same_after_recovery(&r);
    start_all(&r, id);
    struct job_view v = view(&r, id);
    assert_int_equal(v.state, JOB_RUNNING);
    assert_int_equal(v.workers_running, 6);
    assert_int_equal(v.cpus, 6);
    struct core_counts n;
    core_counts(r.core, &n);
    assert_int_equal(n.by_state[JOB_RUNNING], 1);  // workers are not counted as jobs
    for (uint32_t i = 0; i < 6; i++) {
        assert_int_equal(rig_state(&r, id), JOB_RUNNING);
        end_one(&r, id, i, END_EXIT, 0);
        if (i == 2)
            same_after_recovery(&r);
    }
    assert_int_equal(rig_state(&r, id), JOB_STATE_COUNT);
    assert_int_equal(r.last_state, JOB_COMPLETED);
    assert_int_equal(r.finished, 8);  // the other job, six workers, the job
    same_after_recovery(&r);
    rig_done(&r);
}

static void gpus_are_split(void **state) {
    struct rig r;
    init(&r);
    struct spec s = workers(3, 3);
    s.gpus_milli = 2000;
    uint64_t id = rig_submit(&r, &alice, &s);
    uint32_t seen[2] = {0};
    for (uint32_t i = 0; i < 3; i++) {
        cleanup_arena struct arena a = {0};
        struct job_record record;
        assert_int_equal(core_record(r.core, worker(&r, id, i), &a, &record), 0);
        assert_int_equal(record.parts.len, 1);
        assert_int_equal(record.parts.at[0].gpus.len, 2);
        assert_true(record.job == id && record.worker == i);
        for (uint32_t g = 0; g < 2; g++) {
            uint32_t node = streq(record.parts.at[0].node, "n2"),
                     bit = 1u << record.parts.at[0].gpus.at[g].index;
            assert_false(seen[node] & bit);
            seen[node] |= bit;
        }
    }
    same_after_recovery(&r);
    rig_done(&r);
}

static void a_failed_worker_ends_the_job(void **state) {
    struct rig r;
    init(&r);
    struct spec s = workers(3, 3);
    uint64_t id = rig_submit(&r, &alice, &s);
    start_all(&r, id);
    end_one(&r, id, 1, END_EXIT, 7);
    assert_int_equal(rig_state(&r, id), JOB_COMPLETING);
    assert_int_equal(r.kills, 2);
    same_after_recovery(&r);
    end_one(&r, id, 0, END_CANCEL, 0);
    end_one(&r, id, 2, END_EXIT, 0);
    assert_int_equal(rig_state(&r, id), JOB_STATE_COUNT);
    assert_int_equal(r.last_state, JOB_FAILED);
    rig_done(&r);
}

static void the_whole_job_is_tried_again(void **state) {
    struct rig r;
    init(&r);
    struct spec s = workers(2, 2);
    s.retries = 1;
    uint64_t id = rig_submit(&r, &alice, &s);
    start_all(&r, id);
    end_one(&r, id, 1, END_EXIT, 7);
    end_one(&r, id, 0, END_EXIT, 1);
    assert_int_equal(rig_state(&r, id), JOB_STARTING);
    assert_int_equal(view(&r, id).attempt, 2);
    assert_int_equal(view(&r, worker(&r, id, 1)).attempt, 2);
    same_after_recovery(&r);
    start_all(&r, id);
    end_one(&r, id, 1, END_EXIT, 7);
    end_one(&r, id, 0, END_EXIT, 0);
    assert_int_equal(rig_state(&r, id), JOB_STATE_COUNT);
    assert_int_equal(r.last_state, JOB_FAILED);
    rig_done(&r);
}

static void a_worker_is_restarted_in_its_place(void **state) {
    struct rig r;
    init(&r);
    struct spec s = workers(2, 2), other = rig_spec();
    s.cpus_per_task = 4;
    s.on_worker_end = WORKER_END_RESTART;
    s.retries = 2;
    s.backoff_s = 5;
    uint64_t id = rig_submit(&r, &alice, &s);
    start_all(&r, id);
    rig_submit(&r, &bob, &other);
    const char *node = node_of(&r, worker(&r, id, 1));
    r.launches.len = 0;
    end_one(&r, id, 1, END_EXIT, 3);
    assert_int_equal(rig_state(&r, worker(&r, id, 1)), JOB_STARTING);  // nobody else got its place
    assert_string_equal(node_of(&r, worker(&r, id, 1)), node);
    assert_int_equal(r.launches.len, 0);
    cleanup_arena struct arena a = {0};
    struct message_launch m;
    assert_int_equal(core_launch(r.core, worker(&r, id, 1), 2, node, &a, &m), -ESTALE);
    same_after_recovery(&r);
    assert_true(core_schedule(r.core, r.now_ms) <= r.now_ms + 5000);
    r.now_ms += 4999;
    core_schedule(r.core, r.now_ms);
    rig_drain(&r);
    assert_int_equal(r.launches.len, 0);
    r.now_ms++;
    core_schedule(r.core, r.now_ms);
    rig_drain(&r);
    assert_int_equal(r.launches.len, 1);
    assert_int_equal(core_launch(r.core, worker(&r, id, 1), 2, node, &a, &m), 0);
    assert_true(m.workers && m.workers->lines.len && m.worker == 1);
    start_all(&r, id);
    r.launches.len = 0;
    end_one(&r, id, 1, END_EXIT, 3);
    r.now_ms += 9999;  // the pause has doubled
    core_schedule(r.core, r.now_ms);
    rig_drain(&r);
    assert_int_equal(r.launches.len, 0);
    r.now_ms++;
    core_schedule(r.core, r.now_ms);
    rig_drain(&r);
    assert_int_equal(r.launches.len, 1);
    start_all(&r, id);
    end_one(&r, id, 1, END_EXIT, 3);  // the third time is once too often
    assert_int_equal(rig_state(&r, id), JOB_COMPLETING);
    end_one(&r, id, 0, END_EXIT, 0);
    assert_int_equal(r.last_state, JOB_FAILED);
    rig_done(&r);
}

// Idle ones leave first, whatever their rank; then the lowest rank; of equals the newest.
static void a_smaller_job_loses_the_least_useful(void **state) {
    static const uint32_t order[] = {3, 2, 4, 1};
    struct rig r;
    init(&r);
    struct spec s = workers(1, 5);
    uint64_t id = rig_submit(&r, &alice, &s);
    for (int i = 0; i < 2; i++) {
        start_all(&r, id);
        core_schedule(r.core, r.now_ms);
        rig_drain(&r);
    }
    start_all(&r, id);
    assert_int_equal(view(&r, id).workers_running, 5);
    struct worker_rank ranks[] = {{.number = 1, .rank = 3},
                                  {.number = 2, .rank = -2},
                                  {.number = 3, .rank = 9, .idle = true},
                                  {.number = 4, .rank = 3}};
    struct command_rank_workers m = {.id = id, .ranks = {ranks, 4}};
    assert_int_equal(rig_command(r.core, &alice, COMMAND_RANK_WORKERS, &m, r.now_ms, NULL), 0);
    rig_drain(&r);
    for (uint32_t i = 0; i < 4; i++) {
        assert_int_equal(resize(&r, id, 1, 4 - i, NULL), 0);
        for (uint32_t k = i; k < 4; k++)
            assert_int_equal(view(&r, worker(&r, id, order[k])).ending != NULL, k == i);
        end_one(&r, id, order[i], END_CANCEL, 0);
    }
    assert_int_equal(view(&r, id).workers_running, 1);
    same_after_recovery(&r);
    rig_done(&r);
}

// A worker whose nodes fail again and again is not started for ever.
static void a_worker_is_not_started_too_often(void **state) {
    struct rig r;
    struct core_config config;
    core_config_default(&config);
    init(&r);
    struct spec s = workers(2, 2);
    s.requeue = true;
    uint64_t id = rig_submit(&r, &alice, &s);
    for (uint32_t i = 1; i < config.max_attempts; i++) {
        start_all(&r, id);
        assert_int_equal(view(&r, worker(&r, id, 1)).attempt, i);
        end_one(&r, id, 1, END_NODE_FAIL, 0);
        assert_int_equal(rig_state(&r, id), JOB_RUNNING);
        core_schedule(r.core, r.now_ms);
        rig_drain(&r);
    }
    start_all(&r, id);
    end_one(&r, id, 1, END_NODE_FAIL, 0);
    assert_int_equal(rig_state(&r, id), JOB_COMPLETING);
    same_after_recovery(&r);
    rig_done(&r);
}

static void the_others_continue(void **state) {
    struct rig r;
    init(&r);
    struct spec s = workers(3, 3);
    s.on_worker_end = WORKER_END_CONTINUE;
    uint64_t id = rig_submit(&r, &alice, &s);
    start_all(&r, id);
    end_one(&r, id, 1, END_EXIT, 9);
    assert_int_equal(rig_state(&r, id), JOB_RUNNING);
    assert_int_equal(view(&r, id).workers_running, 2);
    end_one(&r, id, 0, END_EXIT, 0);
    end_one(&r, id, 2, END_EXIT, 0);
    assert_int_equal(r.last_state, JOB_FAILED);  // the worst
    rig_done(&r);
}

static void what_a_worker_held_is_free_for_others(void **state) {
    struct rig r;
    init(&r);
    struct spec s = workers(2, 2), other = rig_spec();
    s.cpus_per_task = 4;
    other.cpus_per_task = 4;
    other.memory_per_cpu_bytes = 1 << 20;
    uint64_t id = rig_submit(&r, &alice, &s);
    start_all(&r, id);
    uint64_t next = rig_submit(&r, &bob, &other);
    assert_int_equal(rig_state(&r, next), JOB_PENDING);
    end_one(&r, id, 0, END_EXIT, 0);
    assert_int_equal(rig_state(&r, next), JOB_STARTING);
    assert_int_equal(rig_state(&r, id), JOB_RUNNING);
    same_after_recovery(&r);
    rig_done(&r);
}

static void a_lost_node_is_replaced(void **state) {
    struct rig r;
    init(&r);
    rig_hello(&r, "n3", 4, 0, "b1", NULL, 0);
    struct spec s = workers(2, 2);
    s.cpus_per_task = 3;
    uint64_t id = rig_submit(&r, &alice, &s);
    start_all(&r, id);
    const char *node = node_of(&r, worker(&r, id, 1));
    core_node_lost(r.core, node, "gone", r.now_ms);
    rig_drain(&r);
    assert_int_equal(rig_state(&r, id), JOB_RUNNING);
    same_after_recovery(&r);
    core_schedule(r.core, r.now_ms);
    rig_drain(&r);
    assert_int_equal(rig_state(&r, worker(&r, id, 1)), JOB_STARTING);
    assert_string_not_equal(node_of(&r, worker(&r, id, 1)), node);
    start_all(&r, id);
    same_after_recovery(&r);
    // When none of them runs any more, the whole job waits again.
    for (int i = 0; i < 2; i++)
        core_node_lost(r.core, node_of(&r, worker(&r, id, (uint32_t)i)), "gone", r.now_ms);
    rig_drain(&r);
    assert_int_equal(rig_state(&r, id), JOB_PENDING);
    same_after_recovery(&r);
    rig_hello(&r, "n1", 4, 0, "b2", NULL, 0);
    assert_int_equal(rig_state(&r, id), JOB_PENDING);
    rig_hello(&r, "n2", 4, 0, "b2", NULL, 0);
    assert_int_equal(rig_state(&r, id), JOB_STARTING);
    rig_done(&r);
}

static void cancels(void **state) {
    struct rig r;
    struct error e = {0};
    init(&r);
    struct spec s = workers(3, 3);
    uint64_t id = rig_submit(&r, &alice, &s);
    start_all(&r, id);
    assert_int_equal(do_cancel(r.core, &alice, worker(&r, id, 2), &(struct command_cancel){0}, r.now_ms, &e),
                     0);
    end_one(&r, id, 2, END_CANCEL, 0);
    assert_int_equal(rig_state(&r, id), JOB_RUNNING);
    assert_int_equal(view(&r, id).workers_running, 2);
    same_after_recovery(&r);
    assert_int_equal(do_cancel(r.core, &alice, id, &(struct command_cancel){0}, r.now_ms, &e), 0);
    rig_drain(&r);
    assert_int_equal(r.kills, 3);
    end_one(&r, id, 0, END_CANCEL, 0);
    assert_int_equal(rig_state(&r, id), JOB_COMPLETING);
    same_after_recovery(&r);
    end_one(&r, id, 1, END_CANCEL, 0);
    assert_int_equal(rig_state(&r, id), JOB_STATE_COUNT);
    assert_int_equal(r.last_state, JOB_CANCELLED);
    // One that waits goes with all its workers, and no worker alone.
    s.workers_min = s.workers_max = 8;
    s.hold = true;
    id = rig_submit(&r, &alice, &s);
    assert_int_equal(do_cancel(r.core, &alice, worker(&r, id, 2), &(struct command_cancel){0}, r.now_ms, &e),
                     -EBUSY);
    assert_int_equal(do_cancel(r.core, &alice, id, &(struct command_cancel){0}, r.now_ms, &e), 0);
    rig_drain(&r);
    assert_int_equal(rig_state(&r, id), JOB_STATE_COUNT);
    assert_int_equal(rig_state(&r, id + 1), JOB_STATE_COUNT);
    same_after_recovery(&r);
    rig_done(&r);
}

static void goes_back_as_a_whole(void **state) {
    struct rig r;
    struct error e = {0};
    init(&r);
    struct spec s = workers(3, 3);
    uint64_t id = rig_submit(&r, &alice, &s);
    start_all(&r, id);
    assert_int_equal(do_requeue(r.core, &alice, id, true, r.now_ms, &e), 0);
    rig_drain(&r);
    end_one(&r, id, 0, END_REQUEUE, 0);
    assert_int_equal(rig_state(&r, id), JOB_COMPLETING);
    same_after_recovery(&r);
    end_one(&r, id, 1, END_REQUEUE, 0);
    end_one(&r, id, 2, END_EXIT, 0);
    assert_int_equal(rig_state(&r, id), JOB_PENDING);
    assert_true(view(&r, id).held);
    same_after_recovery(&r);
    assert_int_equal(do_release(r.core, &alice, id, r.now_ms, &e), 0);
    core_schedule(r.core, r.now_ms);
    rig_drain(&r);
    assert_int_equal(rig_state(&r, id), JOB_STARTING);
    assert_int_equal(view(&r, worker(&r, id, 2)).attempt, 2);
    rig_done(&r);
}

static void pauses(void **state) {
    struct rig r;
    struct error e = {0};
    init(&r);
    struct spec s = workers(2, 2);
    uint64_t id = rig_submit(&r, &alice, &s);
    rig_started(&r, node_of(&r, worker(&r, id, 0)), worker(&r, id, 0), 1);
    assert_int_equal(do_suspend(r.core, &alice, id, false, r.now_ms, &e), 0);
    rig_drain(&r);
    assert_int_equal(rig_state(&r, worker(&r, id, 0)), JOB_SUSPENDED);
    start_all(&r, id);
    assert_int_equal(rig_state(&r, worker(&r, id, 1)), JOB_SUSPENDED);
    same_after_recovery(&r);
    assert_int_equal(do_suspend(r.core, &alice, id, true, r.now_ms, &e), 0);
    rig_drain(&r);
    assert_int_equal(rig_state(&r, id), JOB_RUNNING);
    assert_int_equal(rig_state(&r, worker(&r, id, 1)), JOB_RUNNING);
    same_after_recovery(&r);
    rig_done(&r);
}

static void sizes(void **state) {
    struct rig r;
    struct error e = {0};
    init(&r);
    struct spec s = workers(3, 3);
    s.hold = true;
    uint64_t id = rig_submit(&r, &alice, &s);
    assert_int_equal(resize(&r, id, 0, 2, &e), 0);
    assert_int_equal(view(&r, id).workers_min, 2);
    assert_int_equal(do_release(r.core, &alice, id, r.now_ms, &e), 0);
    core_schedule(r.core, r.now_ms);
    rig_drain(&r);
    start_all(&r, id);
    assert_int_equal(view(&r, id).workers_running, 2);
    same_after_recovery(&r);
    // More of the minimum are asked for like any job.
    assert_int_equal(resize(&r, id, 4, 4, &e), 0);
    assert_int_equal(core_worker_count(r.core, id), 5);  // number 2 left before
    start_all(&r, id);
    assert_int_equal(view(&r, id).workers_running, 4);
    same_after_recovery(&r);
    assert_int_equal(resize(&r, id, 1, 1, &e), 0);
    assert_int_equal(r.kills, 3);
    same_after_recovery(&r);
    for (uint32_t i = 1; i < 5; i++)
        if (rig_state(&r, worker(&r, id, i)) == JOB_COMPLETING)
            end_one(&r, id, i, END_CANCEL, 0);
    assert_int_equal(view(&r, id).workers_running, 1);
    assert_int_equal(rig_state(&r, id), JOB_RUNNING);
    same_after_recovery(&r);
    end_one(&r, id, 0, END_EXIT, 0);
    assert_int_equal(r.last_state, JOB_COMPLETED);
    assert_int_equal(resize(&r, id, 1, 1, &e), -EALREADY);
    rig_done(&r);
}

static void what_is_refused(void **state) {
    struct rig r;
    struct error e = {0};
    uint64_t id, count;
    init(&r);
    struct spec bad[8];
    for (int i = 0; i < 8; i++)
        bad[i] = workers(2, 4);
    bad[0].workers_min = 5;
    bad[1].workers_max = JOB_WORKERS_MAX + 1;
    bad[2].tasks = 2;
    bad[3].nodes_min = 2;
    bad[4].exclusive = true;
    bad[5].launch = LAUNCH_STEPS;
    bad[6].workers_min = bad[6].workers_max = 0;
    bad[6].on_worker_end = WORKER_END_RESTART;
    bad[7].workers_min = bad[7].workers_max = 9;  // the cluster has eight CPUs
    for (int i = 0; i < 8; i++)
        assert_true(do_submit(r.core, &alice, &bad[i], NULL, false, r.now_ms, &id, &count, &e) < 0);
    struct spec s = rig_spec();
    id = rig_submit(&r, &alice, &s);
    assert_int_equal(resize(&r, id, 1, 2, &e), -EINVAL);
    s = workers(1, 2);
    id = rig_submit(&r, &alice, &s);
    struct worker_rank rank = {.number = 7};
    struct command_rank_workers m = {.id = id, .ranks = {&rank, 1}};
    assert_int_equal(rig_command(r.core, &alice, COMMAND_RANK_WORKERS, &m, r.now_ms, &e), -ENOENT);
    assert_int_equal(rig_command(r.core, &bob, COMMAND_RANK_WORKERS, &m, r.now_ms, &e), -EPERM);
    rank = (struct worker_rank){.number = 1, .rank = -5, .idle = true};
    assert_int_equal(rig_command(r.core, &alice, COMMAND_RANK_WORKERS, &m, r.now_ms, &e), 0);
    assert_int_equal(resize(&r, id, 3, 2, &e), -EINVAL);
    assert_int_equal(resize(&r, id, 0, 0, &e), -EINVAL);
    rig_drain(&r);
    same_after_recovery(&r);
    rig_done(&r);
}

static void a_time_limit_is_the_jobs(void **state) {
    struct rig r;
    init(&r);
    struct spec s = workers(2, 2);
    s.time_limit_s = 100;
    s.cpus_per_task = 3;  // one on each node
    uint64_t id = rig_submit(&r, &alice, &s);
    start_all(&r, id);
    r.now_ms += 40000;
    uint64_t w = worker(&r, id, 1);
    const char *lost = node_of(&r, w);
    core_node_lost(r.core, lost, "gone", r.now_ms);
    rig_drain(&r);
    rig_hello(&r, lost, 4, 4, "b2", NULL, 0);
    assert_int_equal(rig_state(&r, id), JOB_RUNNING);
    assert_int_equal(view(&r, w).time_limit_s, 60);
    start_all(&r, id);
    end_one(&r, id, 0, END_TIMEOUT, 0);
    assert_int_equal(rig_state(&r, id), JOB_COMPLETING);
    end_one(&r, id, 1, END_TIMEOUT, 0);
    assert_int_equal(r.last_state, JOB_TIMEOUT);
    rig_done(&r);
}

// A worker that came after a pause of its job has lost nothing by it.
static void a_changed_time_limit_leaves_pauses_out(void **state) {
    struct rig r;
    struct error e = {0};
    struct spec s = workers(1, 1), change = {.time_limit_s = 90};
    init(&r);
    s.time_limit_s = 100;
    uint64_t id = rig_submit(&r, &alice, &s);
    start_all(&r, id);
    assert_int_equal(do_suspend(r.core, &alice, id, false, r.now_ms, &e), 0);
    r.now_ms += 50000;
    assert_int_equal(do_suspend(r.core, &alice, id, true, r.now_ms, &e), 0);
    r.now_ms += 10000;
    assert_int_equal(resize(&r, id, 1, 2, &e), 0);
    start_all(&r, id);
    assert_int_equal(view(&r, worker(&r, id, 1)).time_limit_s, 90);
    assert_int_equal(do_update(r.core, &alice, id, &change, r.now_ms, &e), 0);
    rig_drain(&r);
    assert_int_equal(view(&r, worker(&r, id, 0)).time_limit_s, 90);
    assert_int_equal(view(&r, worker(&r, id, 1)).time_limit_s, 80);
    same_after_recovery(&r);
    rig_done(&r);
}

static uint32_t launches_of(const struct rig *r, uint64_t id) {
    uint32_t n = 0;
    for (uint32_t i = 0; i < r->launches.len; i++)
        n += r->launches.at[i].job == id;
    return n;
}

static uint64_t any_in_state(struct rig *r, uint64_t job, enum job_state state) {
    for (uint32_t i = 0; i < core_worker_count(r->core, job); i++)
        if (rig_state(r, worker(r, job, i)) == state)
            return worker(r, job, i);
    return 0;
}

// The room of an optional worker that is being ended already is given away: the job is launched when it is free.
static void room_of_one_that_ends(void **state) {
    struct rig r;
    init(&r);
    struct spec s = workers(2, 6), other = rig_spec();
    uint64_t id = rig_submit(&r, &alice, &s);
    core_schedule(r.core, r.now_ms);
    rig_drain(&r);
    start_all(&r, id);
    for (uint32_t i = 2; i < 6; i++) {
        struct command_cancel m = {.id = worker(&r, id, i)};
        struct error e = {0};
        assert_int_equal(rig_command(r.core, &alice, COMMAND_CANCEL, &m, r.now_ms, &e), 0);
    }
    rig_drain(&r);
    other.cpus_per_task = 3;  // two are free
    other.memory_per_cpu_bytes = 1 << 20;
    uint64_t taker = rig_submit(&r, &bob, &other);
    assert_int_equal(rig_state(&r, taker), JOB_STARTING);
    cleanup_arena struct arena a = {0};
    struct message_launch launch;
    assert_int_equal(core_launch(r.core, taker, 1, node_of(&r, taker), &a, &launch), -ESTALE);
    assert_true(core_launch_told_seq(r.core, taker, 1) == UINT64_MAX);
    r.launches.len = 0;
    for (uint32_t i = 2; i < 6; i++)
        rig_end(&r, node_of(&r, worker(&r, id, i)), worker(&r, id, i), 1, END_CANCEL, 0);
    assert_int_equal(launches_of(&r, taker), 1);
    assert_true(core_launch_told_seq(r.core, taker, 1) < UINT64_MAX);
    rig_done(&r);
}

// Optional workers use what is free, and give it back to a job that starts there: it is launched when they have ended.
static void optional_workers_give_way(void **state) {
    struct rig r;
    init(&r);
    struct spec s = workers(2, 6);
    uint64_t id = rig_submit(&r, &alice, &s);
    core_schedule(r.core, r.now_ms);
    rig_drain(&r);
    start_all(&r, id);
    assert_int_equal(view(&r, id).workers_running, 6);
    assert_true(view(&r, worker(&r, id, 3)).optional);
    assert_false(view(&r, worker(&r, id, 1)).optional);
    same_after_recovery(&r);
    struct worker_rank rank = {.number = 4, .idle = true};
    struct command_rank_workers m = {.id = id, .ranks = {&rank, 1}};
    struct error e = {0};
    assert_int_equal(rig_command(r.core, &alice, COMMAND_RANK_WORKERS, &m, r.now_ms, &e), 0);
    rig_drain(&r);
    // Of eight CPUs two are free: one with three needs one or two of the workers' places.
    struct spec other = rig_spec();
    other.cpus_per_task = 3;
    other.memory_per_cpu_bytes = 1 << 20;
    r.launches.len = 0;
    uint64_t taker = rig_submit(&r, &bob, &other);
    assert_int_equal(rig_state(&r, taker), JOB_STARTING);
    same_after_recovery(&r);
    cleanup_arena struct arena a = {0};
    struct message_launch launch;
    assert_int_equal(core_launch(r.core, taker, 1, node_of(&r, taker), &a, &launch), -ESTALE);
    assert_true(r.kills > 0);
    uint64_t leaving;
    while ((leaving = any_in_state(&r, id, JOB_COMPLETING))) {
        r.launches.len = 0;
        rig_end(&r, node_of(&r, leaving), leaving, view(&r, leaving).attempt, END_PREEMPT, 0);
        same_after_recovery(&r);
    }
    assert_int_equal(launches_of(&r, taker), 1);
    assert_int_equal(core_launch(r.core, taker, 1, node_of(&r, taker), &a, &launch), 0);
    assert_int_equal(rig_state(&r, id), JOB_RUNNING);
    assert_true(view(&r, id).workers_running <= 5 && view(&r, id).workers_running >= 2);
    // The place is free again: the job grows.
    rig_started(&r, node_of(&r, taker), taker, 1);
    rig_end(&r, node_of(&r, taker), taker, 1, END_EXIT, 0);
    r.now_ms += 60000;
    core_schedule(r.core, r.now_ms);
    rig_drain(&r);
    start_all(&r, id);
    assert_int_equal(view(&r, id).workers_running, 6);
    same_after_recovery(&r);
    // The job ends when all that run have: nobody waits for optional ones.
    for (uint32_t i = 0; i < 6; i++)
        end_one(&r, id, i, END_EXIT, 0);
    assert_int_equal(rig_state(&r, id), JOB_STATE_COUNT);
    assert_int_equal(r.last_state, JOB_COMPLETED);
    same_after_recovery(&r);
    rig_done(&r);
}

static void the_minimum_may_be_gone(void **state) {
    struct rig r;
    struct error e = {0};
    init(&r);
    struct spec s = workers(1, 3);
    uint64_t id = rig_submit(&r, &alice, &s);
    core_schedule(r.core, r.now_ms);
    rig_drain(&r);
    start_all(&r, id);
    assert_int_equal(view(&r, id).workers_running, 3);
    end_one(&r, id, 0, END_EXIT, 0);
    assert_int_equal(rig_state(&r, id), JOB_RUNNING);
    same_after_recovery(&r);
    assert_int_equal(do_cancel(r.core, &alice, id, &(struct command_cancel){0}, r.now_ms, &e), 0);
    end_one(&r, id, 1, END_CANCEL, 0);
    end_one(&r, id, 2, END_CANCEL, 0);
    assert_int_equal(rig_state(&r, id), JOB_STATE_COUNT);
    assert_int_equal(r.last_state, JOB_CANCELLED);
    rig_done(&r);
}

// As many workers as a job can have: every worker's end looks at all of them.
static void the_largest(void **state) {
    struct rig r;
    struct error e = {0};
    rig_init(&r);
    rig_hello(&r, "n1", 2048, 0, "b1", NULL, 0);
    struct spec s = workers(JOB_WORKERS_MAX / 2, JOB_WORKERS_MAX);
    uint64_t id = rig_submit(&r, &alice, &s);
    core_schedule(r.core, r.now_ms);
    rig_drain(&r);
    assert_int_equal(view(&r, id).workers_running, JOB_WORKERS_MAX);
    for (uint32_t i = 0; i < JOB_WORKERS_MAX; i++)
        core_agent_started(r.core, "n1", &(struct message_started){.id = id + 1 + i, .attempt = 1}, r.now_ms);
    r.now_ms += 2000;
    core_schedule(r.core, r.now_ms);
    rig_drain(&r);
    struct command_resize m = {id, 1, 1};
    assert_int_equal(rig_command(r.core, &alice, COMMAND_RESIZE, &m, r.now_ms, &e), 0);
    rig_drain(&r);
    assert_int_equal(r.kills, JOB_WORKERS_MAX - 1);
    for (uint32_t i = 1; i < JOB_WORKERS_MAX; i++) {
        struct message_ended end = {
            .id = id + 1 + i, .attempt = 1, .cause = END_CANCEL, .start_ms = r.now_ms};
        core_agent_ended(r.core, "n1", &end, r.now_ms);
    }
    rig_drain(&r);
    assert_int_equal(view(&r, id).workers_running, 1);
    same_after_recovery(&r);
    rig_done(&r);
}

// The last membership was sent by a clock that was a day ahead: a change after it was set right is sent at once.
static void memberships_are_sent_when_the_clock_is_set_back(void **state) {
    struct rig r;
    init(&r);
    r.now_ms += 2 * 86400 * 1000;
    struct spec s = workers(2, 4);
    struct error e = {0};
    uint64_t id = rig_submit(&r, &alice, &s);
    core_schedule(r.core, r.now_ms);
    rig_drain(&r);
    start_all(&r, id);
    for (int i = 0; i < 4; i++) {
        core_schedule(r.core, r.now_ms += 2000);
        rig_drain(&r);
    }
    r.now_ms -= 86400 * 1000;
    core_schedule(r.core, r.now_ms);
    const struct group *g = core_find_job(r.core, id)->sub->group;
    assert_false(g->listed);
    assert_int_equal(resize(&r, id, 0, 3, &e), 0);
    core_schedule(r.core, r.now_ms += 2000);
    rig_drain(&r);
    assert_false(g->listed);  // nothing waits to be sent
    rig_done(&r);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(memberships_are_sent_when_the_clock_is_set_back),
        cmocka_unit_test(the_minimum_starts_together),
        cmocka_unit_test(gpus_are_split),
        cmocka_unit_test(a_failed_worker_ends_the_job),
        cmocka_unit_test(the_whole_job_is_tried_again),
        cmocka_unit_test(a_worker_is_restarted_in_its_place),
        cmocka_unit_test(a_smaller_job_loses_the_least_useful),
        cmocka_unit_test(a_worker_is_not_started_too_often),
        cmocka_unit_test(the_others_continue),
        cmocka_unit_test(what_a_worker_held_is_free_for_others),
        cmocka_unit_test(a_lost_node_is_replaced),
        cmocka_unit_test(cancels),
        cmocka_unit_test(goes_back_as_a_whole),
        cmocka_unit_test(pauses),
        cmocka_unit_test(sizes),
        cmocka_unit_test(what_is_refused),
        cmocka_unit_test(a_time_limit_is_the_jobs),
        cmocka_unit_test(a_changed_time_limit_leaves_pauses_out),
        cmocka_unit_test(room_of_one_that_ends),
        cmocka_unit_test(optional_workers_give_way),
        cmocka_unit_test(the_minimum_may_be_gone),
        cmocka_unit_test(the_largest),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
