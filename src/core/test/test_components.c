// Jobs with several kinds of workers: all start together, the job ends with its head, a worker may have several nodes;
// each of them also out of a snapshot and out of the journal.
#include "elastic_rig.h"

static struct job_component component(const char *name, uint32_t min, uint32_t max, uint32_t cpus, uint32_t gpus) {
    return (struct job_component){.name = name,
                                  .workers_min = min,
                                  .workers_max = max,
                                  .cpus_per_task = cpus,
                                  .gpus_milli = gpus * 1000,
                                  .memory_per_cpu_bytes = 1 << 20};
}

static struct spec several(struct job_component *list, uint32_t count) {
    struct spec s = rig_spec();
    s.tasks = s.cpus_per_task = s.nodes_min = 0;
    s.components.at = list;
    s.components.len = count;
    return s;
}

static void components_start_together(void **state) {
    struct rig r;
    init(&r);
    struct job_component list[] = {component(COMPONENT_HEAD, 1, 1, 3, 0), component("train", 2, 3, 2, 2)};
    struct spec s = several(list, 2), other = rig_spec();
    other.cpus_per_task = 2;
    other.memory_per_cpu_bytes = 1 << 20;
    uint64_t first = rig_submit(&r, &bob, &other), id = rig_submit(&r, &alice, &s);
    assert_int_equal(rig_state(&r, id), JOB_PENDING);  // six CPUs are free, it needs seven
    same_after_recovery(&r);
    rig_started(&r, node_of(&r, first), first, 1);
    rig_end(&r, node_of(&r, first), first, 1, END_EXIT, 0);
    assert_int_equal(rig_state(&r, id), JOB_STARTING);
    same_after_recovery(&r);
    for (uint32_t i = 0; i < 3; i++)
        assert_int_equal(rig_state(&r, worker(&r, id, i)), JOB_STARTING);
    assert_int_equal(rig_state(&r, worker(&r, id, 3)), JOB_PENDING);  // optional, and one CPU is free
    start_all(&r, id);
    struct job_view v = view(&r, id), head = view(&r, worker(&r, id, 0)), train = view(&r, worker(&r, id, 1));
    assert_int_equal(v.workers_running, 3);
    assert_int_equal(v.cpus, 7);
    assert_int_equal(v.gpus_milli, 4000);
    assert_int_equal(v.components, 2);
    assert_int_equal(head.cpus, 3);
    assert_int_equal(head.gpus_milli, 0);
    assert_string_equal(head.component, "head");
    assert_int_equal(train.cpus, 2);
    assert_int_equal(train.gpus_milli, 2000);
    assert_string_equal(train.component, "train");
    same_after_recovery(&r);
    // The job ends with its head, whatever the others do, and has the head's status.
    end_one(&r, id, 1, END_EXIT, 0);
    assert_int_equal(rig_state(&r, id), JOB_RUNNING);
    end_one(&r, id, 0, END_EXIT, 0);
    assert_int_equal(rig_state(&r, id), JOB_COMPLETING);
    same_after_recovery(&r);
    end_one(&r, id, 2, END_EXIT, 143);
    end_one(&r, id, 3, END_EXIT, 143);  // an optional one, that took the place of the first that ended
    assert_int_equal(rig_state(&r, id), JOB_STATE_COUNT);
    assert_int_equal(r.last_state, JOB_COMPLETED);
    same_after_recovery(&r);
    rig_done(&r);
}

static void a_failed_head_ends_the_job(void **state) {
    struct rig r;
    init(&r);
    struct job_component list[] = {component(COMPONENT_HEAD, 1, 1, 1, 0), component("train", 2, 2, 1, 0)};
    struct spec s = several(list, 2);
    s.on_worker_end = WORKER_END_CONTINUE;
    uint64_t id = rig_submit(&r, &alice, &s);
    start_all(&r, id);
    end_one(&r, id, 2, END_EXIT, 5);
    assert_int_equal(rig_state(&r, id), JOB_RUNNING);
    end_one(&r, id, 0, END_EXIT, 7);
    assert_int_equal(rig_state(&r, id), JOB_COMPLETING);
    end_one(&r, id, 1, END_EXIT, 143);
    assert_int_equal(r.last_state, JOB_FAILED);
    rig_done(&r);
}

// One of two heads fails: the job is tried again, with the head that failed and the workers, but without the head that
// had ended well. It ends when all heads have.
static void a_job_with_several_heads_is_tried_again(void **state) {
    struct rig r;
    init(&r);
    struct job_component list[] = {component(COMPONENT_HEAD, 2, 2, 1, 0), component("train", 1, 1, 1, 0)};
    struct spec s = several(list, 2);
    s.retries = 1;
    for (int last = 0; last < 2; last++) {
        uint64_t id = rig_submit(&r, &alice, &s);
        start_all(&r, id);
        end_one(&r, id, 0, END_EXIT, 0);
        assert_int_equal(rig_state(&r, id), JOB_RUNNING);
        end_one(&r, id, 1, END_EXIT, 7);
        assert_int_equal(rig_state(&r, id), JOB_COMPLETING);
        same_after_recovery(&r);
        end_one(&r, id, 2, END_EXIT, 143);
        assert_int_equal(rig_state(&r, id), JOB_STARTING);
        assert_int_equal(view(&r, id).attempt, 2);
        assert_int_equal(rig_state(&r, worker(&r, id, 0)), JOB_STATE_COUNT);
        assert_int_equal(view(&r, worker(&r, id, 1)).attempt, 2);
        assert_int_equal(view(&r, worker(&r, id, 2)).attempt, 2);
        same_after_recovery(&r);
        start_all(&r, id);
        end_one(&r, id, 1, END_EXIT, last ? 7 : 0);
        assert_int_equal(rig_state(&r, id), JOB_COMPLETING);
        end_one(&r, id, 2, END_EXIT, 143);
        assert_int_equal(rig_state(&r, id), JOB_STATE_COUNT);
        assert_int_equal(r.last_state, last ? JOB_FAILED : JOB_COMPLETED);
    }
    rig_done(&r);
}

static void report_ready(struct rig *r, uint64_t id) {
    struct message_health m = {.id = id, .attempt = view(r, id).attempt, .health = HEALTH_READY};
    core_agent_health(r->core, node_of(r, id), &m, r->now_ms);
    rig_drain(r);
}

// Whichever component is named first, and also when the first of several heads has ended.
static void what_a_job_serves_is_its_heads(void **state) {
    struct rig r;
    init(&r);
    struct job_component list[] = {component("train", 1, 1, 1, 0), component(COMPONENT_HEAD, 2, 2, 1, 0)};
    struct spec s = several(list, 2);
    uint64_t id = rig_submit(&r, &alice, &s);
    start_all(&r, id);
    report_ready(&r, worker(&r, id, 0));
    assert_int_equal(view(&r, id).health, HEALTH_NONE);
    assert_int_equal(core_head(r.core, id), worker(&r, id, 1));
    report_ready(&r, worker(&r, id, 1));
    assert_int_equal(view(&r, id).health, HEALTH_READY);
    end_one(&r, id, 1, END_EXIT, 0);
    assert_int_equal(rig_state(&r, id), JOB_RUNNING);
    assert_int_equal(core_head(r.core, id), worker(&r, id, 2));
    assert_int_equal(view(&r, id).health, HEALTH_NONE);
    report_ready(&r, worker(&r, id, 2));
    assert_int_equal(view(&r, id).health, HEALTH_READY);
    assert_int_equal(core_head(r.core, worker(&r, id, 0)), 0);
    same_after_recovery(&r);
    rig_done(&r);
}

static void a_worker_has_several_nodes(void **state) {
    struct rig r;
    init(&r);
    struct job_component list[] = {component("mpi", 1, 1, 1, 0), component("one", 1, 1, 1, 1)};
    list[0].nodes_min = 2;
    list[0].tasks = 4;
    struct spec s = several(list, 2);
    s.on_worker_end = WORKER_END_RESTART;
    uint64_t id = rig_submit(&r, &alice, &s), mpi = worker(&r, id, 0);
    assert_int_equal(view(&r, mpi).node_count, 2);
    assert_int_equal(view(&r, mpi).cpus, 4);
    rig_started(&r, "n1", mpi, 1);
    rig_started(&r, "n2", mpi, 1);
    rig_started(&r, node_of(&r, worker(&r, id, 1)), worker(&r, id, 1), 1);
    same_after_recovery(&r);
    // It fails on one node: the other is ended, and it is run again on both.
    rig_end(&r, "n1", mpi, 1, END_EXIT, 3);
    assert_int_equal(rig_state(&r, mpi), JOB_COMPLETING);
    rig_end(&r, "n2", mpi, 1, END_EXIT, 0);
    assert_int_equal(rig_state(&r, mpi), JOB_STARTING);
    assert_int_equal(view(&r, mpi).attempt, 2);
    same_after_recovery(&r);
    rig_started(&r, "n1", mpi, 2);
    rig_started(&r, "n2", mpi, 2);
    rig_end(&r, "n1", mpi, 2, END_EXIT, 0);
    rig_end(&r, "n2", mpi, 2, END_EXIT, 0);
    assert_int_equal(rig_state(&r, id), JOB_RUNNING);  // without a head all have to end
    end_one(&r, id, 1, END_EXIT, 0);
    assert_int_equal(r.last_state, JOB_COMPLETED);
    same_after_recovery(&r);
    rig_done(&r);
}

// The first node of a worker is lost and removed while its part on the other one still ends. A controller that starts
// from a snapshot knows only the name of that node, and tells the membership all the same.
static void a_node_of_a_worker_is_removed(void **state) {
    struct rig r;
    struct error e = {0};
    struct core_config config;
    cleanup_buf struct buf b = {0};
    init(&r);
    struct job_component list[] = {component("mpi", 1, 1, 1, 0), component("one", 1, 1, 1, 1)};
    list[0].nodes_min = list[0].tasks = 2;
    struct spec s = several(list, 2);
    uint64_t id = rig_submit(&r, &alice, &s), mpi = worker(&r, id, 0);
    rig_started(&r, "n1", mpi, 1);
    rig_started(&r, "n2", mpi, 1);
    core_agent_gone(r.core, "n1", r.now_ms);
    core_node_lost(r.core, "n1", "it does not answer", r.now_ms);
    assert_int_equal(do_node_remove(r.core, &root, "n1", r.now_ms, &e), 0);
    rig_drain(&r);
    assert_int_equal(rig_state(&r, mpi), JOB_COMPLETING);
    core_snapshot(r.core, &b);
    core_config_default(&config);
    struct core *c = core_new(&config);
    assert_int_equal(core_load_snapshot(c, core_seq(r.core), b.data, b.len, &e), 0);
    core_start(c, r.now_ms);
    core_schedule(c, r.now_ms);
    core_assert(c);
    core_free(c);
    rig_done(&r);
}

static void components_are_resized(void **state) {
    struct rig r;
    struct error e = {0};
    init(&r);
    struct job_component list[] = {component(COMPONENT_HEAD, 1, 1, 1, 0), component("train", 1, 2, 1, 0)};
    struct spec s = several(list, 2);
    uint64_t id = rig_submit(&r, &alice, &s);
    start_all(&r, id);
    assert_int_equal(resize(&r, id, 1, 4, &e), -EINVAL);  // which component
    struct command_resize m = {id, 2, 4, "train"};
    assert_int_equal(rig_command(r.core, &alice, COMMAND_RESIZE, &m, r.now_ms, &e), 0);
    core_schedule(r.core, r.now_ms);
    rig_drain(&r);
    core_schedule(r.core, r.now_ms);
    rig_drain(&r);
    assert_int_equal(core_worker_count(r.core, id), 5);
    start_all(&r, id);
    assert_int_equal(view(&r, id).workers_running, 5);
    assert_string_equal(view(&r, worker(&r, id, 4)).component, "train");
    same_after_recovery(&r);
    m = (struct command_resize){id, 0, 1, "train"};
    assert_int_equal(rig_command(r.core, &alice, COMMAND_RESIZE, &m, r.now_ms, &e), 0);
    rig_drain(&r);
    assert_int_equal(rig_state(&r, worker(&r, id, 0)), JOB_RUNNING);  // the head stays
    m.component = "trane";
    assert_int_equal(rig_command(r.core, &alice, COMMAND_RESIZE, &m, r.now_ms, &e), -ENOENT);
    same_after_recovery(&r);
    rig_done(&r);
}

static int resize_train(struct rig *r, uint64_t id, uint32_t min, uint32_t max, struct error *e) {
    struct command_resize m = {id, min, max, "train", true};
    int v = rig_command(r->core, &alice, COMMAND_RESIZE, &m, r->now_ms, e);
    core_schedule(r->core, r->now_ms);
    rig_drain(r);
    return v;
}

// Beside a head there may be no workers: at the submit, after a resize, and again more after that.
static void a_head_may_be_alone(void **state) {
    struct rig r;
    struct error e = {0};
    init(&r);
    struct job_component list[] = {component(COMPONENT_HEAD, 1, 1, 1, 0), component("train", 0, 0, 1, 0)};
    list[1].workers_given = true;
    struct spec s = several(list, 2);
    uint64_t id = rig_submit(&r, &alice, &s);
    start_all(&r, id);
    assert_int_equal(core_worker_count(r.core, id), 1);
    assert_int_equal(view(&r, id).workers_running, 1);
    same_after_recovery(&r);
    assert_int_equal(resize_train(&r, id, 2, 2, &e), 0);
    start_all(&r, id);
    assert_int_equal(view(&r, id).workers_running, 3);
    assert_int_equal(resize_train(&r, id, 0, 0, &e), 0);
    same_after_recovery(&r);
    // While the two still end, others come: they are of the minimum, not optional.
    assert_int_equal(resize_train(&r, id, 1, 1, &e), 0);
    struct job_record record = {0};
    cleanup_arena struct arena a = {0};
    assert_int_equal(core_record(r.core, id, &a, &record), 0);
    assert_int_equal(record.workers.len, 4);
    assert_false(record.workers.at[3].optional);
    end_one(&r, id, 1, END_CANCEL, 0);
    end_one(&r, id, 2, END_CANCEL, 0);
    start_all(&r, id);
    assert_int_equal(view(&r, id).workers_running, 2);
    assert_int_equal(resize_train(&r, id, 0, 0, &e), 0);
    end_one(&r, id, 3, END_CANCEL, 0);
    assert_int_equal(rig_state(&r, id), JOB_RUNNING);
    assert_int_equal(view(&r, id).workers_running, 1);
    same_after_recovery(&r);
    struct command_resize head = {id, 0, 0, COMPONENT_HEAD, true};
    assert_int_equal(rig_command(r.core, &alice, COMMAND_RESIZE, &head, r.now_ms, &e), -EINVAL);
    assert_non_null(strstr(e.text, "head has at least one"));
    end_one(&r, id, 0, END_EXIT, 0);
    assert_int_equal(r.last_state, JOB_COMPLETED);
    rig_done(&r);
}

static void components_go_back_as_a_whole(void **state) {
    struct rig r;
    struct error e = {0};
    init(&r);
    struct job_component list[] = {component(COMPONENT_HEAD, 1, 1, 1, 0), component("train", 2, 2, 3, 1)};
    struct spec s = several(list, 2);
    s.requeue = true;
    uint64_t id = rig_submit(&r, &alice, &s);
    start_all(&r, id);
    struct command_requeue m = {.id = id};
    assert_int_equal(rig_command(r.core, &alice, COMMAND_REQUEUE, &m, r.now_ms, &e), 0);
    rig_drain(&r);
    for (uint32_t i = 0; i < 3; i++)
        end_one(&r, id, i, END_REQUEUE, 0);
    assert_int_equal(rig_state(&r, id), JOB_STARTING);
    for (uint32_t i = 0; i < 3; i++)
        assert_int_equal(view(&r, worker(&r, id, i)).attempt, 2);
    same_after_recovery(&r);
    rig_done(&r);
}

// A job that is being sent back to the queue when its head is cancelled does not start again without it.
static void a_head_that_leaves_ends_a_job_that_goes_back(void **state) {
    for (uint32_t last = 0; last < 2; last++) {
        struct rig r;
        struct error e = {0};
        init(&r);
        struct job_component list[] = {component(COMPONENT_HEAD, 1, 1, 1, 0), component("train", 2, 2, 1, 0)};
        struct spec s = several(list, 2);
        uint64_t id = rig_submit(&r, &alice, &s);
        start_all(&r, id);
        assert_int_equal(do_requeue(r.core, &alice, id, false, r.now_ms, &e), 0);
        if (last)
            end_one(&r, id, 1, END_REQUEUE, 0);
        assert_int_equal(do_cancel(r.core, &alice, worker(&r, id, 0), &(struct command_cancel){0}, r.now_ms, &e), 0);
        rig_drain(&r);
        end_one(&r, id, 0, END_REQUEUE, 0);
        same_after_recovery(&r);
        if (!last)
            end_one(&r, id, 1, END_REQUEUE, 0);
        end_one(&r, id, 2, END_REQUEUE, 0);
        assert_int_equal(rig_state(&r, id), JOB_STATE_COUNT);
        assert_int_equal(r.last_state, JOB_CANCELLED);
        same_after_recovery(&r);
        rig_done(&r);
    }
}

// A head whose node was lost waits for another one; cancelled there, it ends the job as well.
static void a_head_that_waits_is_cancelled(void **state) {
    struct rig r;
    struct error e = {0};
    init(&r);
    struct job_component list[] = {component(COMPONENT_HEAD, 1, 1, 3, 0), component("train", 1, 1, 3, 0)};
    struct spec s = several(list, 2);
    s.requeue = true;
    uint64_t id = rig_submit(&r, &alice, &s), head = worker(&r, id, 0);
    start_all(&r, id);
    core_node_lost(r.core, node_of(&r, head), "gone", r.now_ms);
    core_schedule(r.core, r.now_ms);
    rig_drain(&r);
    assert_int_equal(rig_state(&r, head), JOB_PENDING);
    assert_int_equal(rig_state(&r, id), JOB_RUNNING);
    assert_int_equal(do_cancel(r.core, &alice, head, &(struct command_cancel){0}, r.now_ms, &e), 0);
    rig_drain(&r);
    assert_int_equal(rig_state(&r, id), JOB_COMPLETING);
    same_after_recovery(&r);
    end_one(&r, id, 1, END_EXIT, 143);
    assert_int_equal(rig_state(&r, id), JOB_STATE_COUNT);
    assert_int_equal(r.last_state, JOB_CANCELLED);
    same_after_recovery(&r);
    rig_done(&r);
}

static void which_components_are_refused(void **state) {
    struct rig r;
    struct error e;
    uint64_t id, count;
    init(&r);
    const struct {
        struct job_component list[2];
        uint32_t count, cpus;
        const char *message;
    } cases[] = {
        {{component("a", 1, 1, 1, 0), component("a", 1, 1, 1, 0)}, 2, 0, "two with the name"},
        {{component(NULL, 1, 1, 1, 0)}, 1, 0, "has no name"},
        {{component("a", 3, 2, 1, 0)}, 1, 0, "3-2"},
        {{component("a", 1, 1, 1, 0)}, 1, 2, "cpus_per_task"},
        {{component("a", 1, 1, 99, 0)}, 1, 0, "99"},
        {{component("a b", 1, 1, 1, 0)}, 1, 0, "component"},
        {{component("a", 600, 600, 1, 0), component("b", 600, 600, 1, 0)}, 2, 0, "1200"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        struct job_component list[2];
        memcpy(list, cases[i].list, sizeof list);
        struct spec s = several(list, cases[i].count);
        s.cpus_per_task = cases[i].cpus;
        e = (struct error){0};
        assert_true(do_submit(r.core, &alice, &s, NULL, false, r.now_ms, &id, &count, &e) < 0);
        if (!strstr(e.text, cases[i].message))
            fail_msg("%zu: %s", i, e.text);
    }
    struct job_component none[] = {component("a", 0, 2, 1, 0), component("b", 1, 1, 1, 0)};
    none[0].workers_given = true;
    struct spec nobody = several(none, 2);
    assert_true(do_submit(r.core, &alice, &nobody, NULL, false, r.now_ms, &id, &count, &e) < 0);
    assert_non_null(strstr(e.text, "only beside a component"));
    struct job_component list[] = {component("mpi", 1, 2, 1, 0)};
    list[0].tasks = 2;
    struct spec s = several(list, 1);
    assert_true(do_submit(r.core, &alice, &s, NULL, false, r.now_ms, &id, &count, &e) < 0);
    assert_non_null(strstr(e.text, "fixed number"));
    rig_done(&r);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(components_start_together),
        cmocka_unit_test(a_failed_head_ends_the_job),
        cmocka_unit_test(a_job_with_several_heads_is_tried_again),
        cmocka_unit_test(what_a_job_serves_is_its_heads),
        cmocka_unit_test(a_worker_has_several_nodes),
        cmocka_unit_test(a_node_of_a_worker_is_removed),
        cmocka_unit_test(components_are_resized),
        cmocka_unit_test(a_head_may_be_alone),
        cmocka_unit_test(components_go_back_as_a_whole),
        cmocka_unit_test(a_head_that_leaves_ends_a_job_that_goes_back),
        cmocka_unit_test(a_head_that_waits_is_cancelled),
        cmocka_unit_test(which_components_are_refused),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
