// Jobs from submit to end, dependencies, arrays, lost nodes, permissions; and that replay and
// snapshot give the state back.
#include "rig.h"

#include <errno.h>

#include "base/cleanup.h"
#include "base/rand.h"

static void runs_a_job(void **state) {
    struct rig r;
    rig_init(&r);
    struct spec s = rig_spec();
    uint64_t id = rig_submit(&r, &alice, &s);
    assert_int_equal(rig_state(&r, id), JOB_PENDING);
    rig_hello(&r, "n1", 4, 0, "b1", NULL, 0);
    assert_int_equal(rig_state(&r, id), JOB_STARTING);
    assert_int_equal(r.launches.len, 1);
    cleanup_arena struct arena a = {0};
    struct message_launch m;
    assert_int_equal(core_launch(r.core, id, 1, "n1", &a, &m), 0);
    assert_string_equal(m.spec->user, "alice");
    assert_int_equal(core_launch(r.core, id, 2, "n1", &a, &m), -ESTALE);
    rig_started(&r, "n1", id, 1);
    assert_int_equal(rig_state(&r, id), JOB_RUNNING);
    rig_end(&r, "n1", id, 1, END_EXIT, 0);
    assert_int_equal(rig_state(&r, id), JOB_STATE_COUNT);
    assert_int_equal(r.last_state, JOB_COMPLETED);
    rig_end(&r, "n1", id, 1, END_EXIT, 0);  // a repeat is acknowledged and changes nothing
    assert_int_equal(r.acks, 2);
    assert_int_equal(r.finished, 1);
    rig_done(&r);
}

static void refuses_bad_specs(void **state) {
    struct rig r;
    rig_init(&r);
    rig_hello(&r, "n1", 4, 2, "b1", NULL, 0);
    struct error e = {0};
    uint64_t id, n, before = core_seq(r.core);
    struct spec s = rig_spec();
#define REFUSED(change, words)                                                                  \
    do {                                                                                        \
        s = rig_spec();                                                                         \
        change;                                                                                 \
        assert_true(do_submit(r.core, &alice, &s, NULL, false, r.now_ms, &id, &n, &e) < 0);   \
        if (!strstr(e.text, words))                                                             \
            fail_msg("%s gave: %s", #change, e.text);                                           \
    } while (0)
    REFUSED(s.name = "a\nb", "name");
    REFUSED(s.workdir = "tmp", "absolute");
    REFUSED(s.argv.len = 0, "nothing to run");
    REFUSED(s.project = "defualt", "did you mean \"default\"");
    REFUSED(s.partition = "x", "partition");
    REFUSED(s.gpus_milli = 1500, "whole number");
    REFUSED(s.gpus_milli = 3000; s.nodes_min = 1, "gpus: 3 on one node");
    REFUSED(s.cpus_per_task = 5, "cpus: 5 on one node");
    REFUSED(s.time_limit_s = 61; s.deadline_ms = r.now_ms + 60000, "the job's time limit is 1 min 1 s");
    REFUSED(s.begin_ms = r.now_ms + 1000; s.deadline_ms = r.now_ms + 1000, "passes before the job could start");
    REFUSED(s.dependency = "afterok:99", "job 99 is not known");
    REFUSED(s.dependency = "after", "dependency");
    REFUSED(s.nice = -5, "administrator");
    REFUSED(s.nodes = "n9", "n9");
    REFUSED(s.features = "a&&b", "features: \"a&&b\" is not understood");
    REFUSED(s.features = "a&|b", "features: \"a&|b\" is not understood");
    REFUSED(s.features = "a||b", "features: \"a||b\" is not understood");
    REFUSED(s.features = "a|", "features: \"a|\" is not understood");
    REFUSED(s.container = "x", "none of the 1 nodes can run containers");
    REFUSED(s.container_mounts = "/a", "there is no container");
    REFUSED(s.container = "x"; s.container_mounts = "a:/b", "not an absolute path");
    REFUSED(s.container = "x"; s.container_workdir = "w", "container_workdir: \"w\" is not an absolute path");
    REFUSED(s.memory_per_cpu_bytes = 1; s.memory_per_node_bytes = 1, "memory");
    REFUSED(s.time_limit_s = UINT32_MAX, "time_limit_s");
    REFUSED(s.tasks = (1 << 20) + 1, "tasks: 1048577 is too large; at most 1048576 is allowed");
    REFUSED(s.tasks_per_node = UINT32_MAX, "tasks_per_node: 4294967295 is too large");
    REFUSED(s.cpus_per_task = 65537, "cpus_per_task: 65537 is too large; at most 65536 is allowed");
    REFUSED(s.nodes_min = 65536, "nodes: 65536 is too large; at most 65535 is allowed");
    REFUSED(s.nodes_min = 3; s.nodes_max = 2, "nodes: at least 3 and at most 2 contradict each other");
    REFUSED(s.gpus_milli = 1000; s.gpus_per_node_milli = 1000, "not more than one of them");
    REFUSED(s.gpus_per_task_milli = 2500, "gpus_per_task: 2.5 is not possible");
    assert_int_equal(core_seq(r.core), before);
    rig_done(&r);
}

// A job with an image is placed only on nodes that say that they can run it.
static void containers_go_where_they_can(void **state) {
    struct rig r;
    rig_init(&r);
    rig_hello(&r, "n1", 4, 0, "b1", NULL, 0);
    struct node able = {.name = "n2", .boot_id = "b", .spool_id = "s", .cpus = 4, .memory_bytes = 1ull << 34,
                        .containers = true};
    struct message_hello h = {.node = &able};
    struct error e = {0};
    assert_int_equal(core_agent_hello(r.core, &h, NULL, r.now_ms, &e), 0);
    core_schedule(r.core, r.now_ms);
    rig_drain(&r);
    struct spec s = rig_spec();
    s.container = "image";
    s.argv.len = 0;
    for (int i = 0; i < 5; i++) {
        uint64_t id = rig_submit(&r, &alice, &s);
        assert_int_equal(rig_state(&r, id), i < 4 ? JOB_STARTING : JOB_PENDING);
        if (i < 4)
            assert_string_equal(r.launches.at[r.launches.len - 1].node, "n2");
    }
    rig_done(&r);
}

static void the_last_partition_stays(void **state) {
    struct rig r;
    rig_init(&r);
    struct error e = {0};
    assert_int_equal(do_delete(r.core, &root, ENTITY_PARTITION, "main", false, r.now_ms, &e), -EBUSY);
    assert_non_null(strstr(e.text, "partition \"main\" is the only one"));
    struct partition other = {.name = "other"};
    assert_int_equal(do_partition_set(r.core, &root, &other, r.now_ms, &e), 0);
    assert_int_equal(do_delete(r.core, &root, ENTITY_PARTITION, "main", false, r.now_ms, &e), -EBUSY);
    assert_non_null(strstr(e.text, "partition \"main\" is where jobs that name none go"));
    other.is_default = true;
    assert_int_equal(do_partition_set(r.core, &root, &other, r.now_ms, &e), 0);
    assert_int_equal(do_delete(r.core, &root, ENTITY_PARTITION, "main", false, r.now_ms, &e), 0);
    assert_int_equal(do_delete(r.core, &root, ENTITY_PARTITION, "other", false, r.now_ms, &e), -EBUSY);
    rig_done(&r);
}

static void there_is_one_default_of_each(void **state) {
    struct rig r;
    rig_init(&r);
    struct error e = {0};
    assert_int_equal(do_delete(r.core, &root, ENTITY_PROJECT, "default", false, r.now_ms, &e), -EBUSY);
    assert_non_null(strstr(e.text, "it cannot be deleted"));
    rig_hello(&r, "n1", 16, 0, "b1", NULL, 0);
    struct spec s = rig_spec();
    s.partition = NULL;
    static const char *const order[] = {"other", "third", "main"};
    for (int i = 0; i < 3; i++) {
        cleanup_arena struct arena a = {0};
        struct job_record record;
        assert_int_equal(do_partition_set(r.core, &root,
                                            &(struct partition){.name = order[i], .is_default = true},
                                            r.now_ms, &e),
                         0);
        assert_int_equal(core_record(r.core, rig_submit(&r, &alice, &s), &a, &record), 0);
        assert_string_equal(record.spec->partition, order[i]);
    }
    rig_done(&r);
}

static void arrays_keep_their_limit(void **state) {
    struct rig r;
    rig_init(&r);
    rig_hello(&r, "n1", 16, 0, "b1", NULL, 0);
    struct spec s = rig_spec();
    struct array_range range = {0, 18, 2};
    s.array.at = &range;
    s.array.len = 1;
    s.array_limit = 3;
    uint64_t id = rig_submit(&r, &alice, &s);
    assert_int_equal(r.launches.len, 3);
    assert_int_equal(core_element(r.core, id, 4), id + 2);
    assert_int_equal(core_element(r.core, id, 3), 0);
    rig_end(&r, "n1", id + 1, 1, END_EXIT, 0);
    assert_int_equal(r.launches.len, 4);
    assert_int_equal(r.launches.at[3].job, id + 3);
    struct error e;
    assert_int_equal(do_cancel(r.core, &alice, id + 9, &(struct command_cancel){0}, r.now_ms, &e), 0);
    rig_drain(&r);
    for (uint32_t k = 0; k < r.launches.len; k++)
        if (rig_state(&r, r.launches.at[k].job) != JOB_STATE_COUNT)
            rig_end(&r, "n1", r.launches.at[k].job, 1, END_EXIT, 0);
    assert_int_equal(r.finished, 10);
    rig_done(&r);
}

static void dependencies_are_kept(void **state) {
    struct rig r;
    rig_init(&r);
    rig_hello(&r, "n1", 16, 0, "b1", NULL, 0);
    struct spec s = rig_spec();
    uint64_t first = rig_submit(&r, &alice, &s);
    char ok[32], not_ok[32], any[32];
    snprintf(ok, sizeof ok, "afterok:%llu", (unsigned long long)first);
    snprintf(not_ok, sizeof not_ok, "afternotok:%llu", (unsigned long long)first);
    snprintf(any, sizeof any, "afterany:%llu,singleton", (unsigned long long)first);
    s.dependency = ok;
    uint64_t a = rig_submit(&r, &alice, &s);
    s.dependency = not_ok;
    uint64_t b = rig_submit(&r, &alice, &s);
    s.dependency = any;
    uint64_t c = rig_submit(&r, &alice, &s);
    s.dependency = NULL;
    rig_end(&r, "n1", first, 1, END_EXIT, 1);
    struct job_view v;
    assert_true(core_view(r.core, a, &v));
    assert_int_equal(v.reason, REASON_DEPENDENCY_NEVER);
    assert_int_equal(rig_state(&r, b), JOB_STARTING);
    assert_int_equal(rig_state(&r, c), JOB_PENDING);  // a and b have its name
    rig_end(&r, "n1", b, 1, END_EXIT, 0);
    struct error e;
    assert_int_equal(do_cancel(r.core, &alice, a, &(struct command_cancel){0}, r.now_ms, &e), 0);
    core_schedule(r.core, r.now_ms);
    rig_drain(&r);
    assert_int_equal(rig_state(&r, c), JOB_STARTING);
    s.dependency = ok;  // about a job that has ended
    assert_true(do_submit(r.core, &alice, &s, NULL, false, r.now_ms, &a, &b, &e) == 0);
    rig_drain(&r);
    assert_true(core_view(r.core, a, &v));
    assert_int_equal(v.reason, REASON_DEPENDENCY_NEVER);
    rig_done(&r);
}

static void same_state(struct core *a, struct core *b);

// The third element has no counterpart: it waits for ever, also after a restart.
static void a_missing_element_is_never_there(void **state) {
    struct rig r;
    struct error e = {0};
    struct job_view v;
    struct core_config config;
    rig_init(&r);
    rig_hello(&r, "n1", 16, 0, "b1", NULL, 0);
    struct spec s = rig_spec();
    struct array_range two = {0, 1, 1}, three = {0, 2, 1};
    char text[32];
    s.array.at = &two;
    s.array.len = 1;
    uint64_t first = rig_submit(&r, &alice, &s);
    snprintf(text, sizeof text, "aftercorr:%llu", (unsigned long long)first);
    s.array.at = &three;
    s.dependency = text;
    uint64_t second = rig_submit(&r, &alice, &s);
    rig_end(&r, "n1", first, 1, END_EXIT, 0);
    assert_int_equal(rig_state(&r, second), JOB_STARTING);
    assert_true(core_view(r.core, second + 2, &v));
    assert_int_equal(v.reason, REASON_DEPENDENCY_NEVER);
    cleanup_buf struct buf b = {0};
    core_snapshot(r.core, &b);
    core_config_default(&config);
    struct core *loaded = core_new(&config);
    assert_int_equal(core_load_snapshot(loaded, core_seq(r.core), b.data, b.len, &e), 0);
    same_state(r.core, loaded);
    core_free(loaded);
    rig_end(&r, "n1", first + 1, 1, END_EXIT, 0);
    assert_true(core_view(r.core, second + 2, &v));
    assert_int_equal(v.reason, REASON_DEPENDENCY_NEVER);
    rig_done(&r);
}

static void cycles_are_refused(void **state) {
    struct rig r;
    rig_init(&r);
    struct spec s = rig_spec();
    uint64_t first = rig_submit(&r, &alice, &s);
    char text[32];
    snprintf(text, sizeof text, "afterok:%llu", (unsigned long long)first);
    s.dependency = text;
    uint64_t second = rig_submit(&r, &alice, &s);
    snprintf(text, sizeof text, "afterok:%llu", (unsigned long long)second);
    struct error e;
    assert_int_equal(do_update(r.core, &alice, first, &s, r.now_ms, &e), -EDEADLK);
    rig_done(&r);
}

static void strangers_are_kept_out(void **state) {
    struct rig r;
    rig_init(&r);
    struct spec s = rig_spec();
    uint64_t id = rig_submit(&r, &alice, &s);
    struct error e;
    assert_int_equal(do_cancel(r.core, &bob, id, &(struct command_cancel){0}, r.now_ms, &e), -EPERM);
    assert_int_equal(do_hold(r.core, &bob, id, r.now_ms, &e), -EPERM);
    assert_int_equal(do_requeue(r.core, &bob, id, false, r.now_ms, &e), -EPERM);
    assert_int_equal(do_drain(r.core, &bob, "n1", "x", r.now_ms, &e), -EPERM);
    const char *user, *project;
    assert_true(core_job_owner(r.core, id, &user, &project));
    assert_true(core_may_see(r.core, &alice, user, project));
    assert_false(core_may_see(r.core, &bob, user, project));
    assert_true(core_may_see(r.core, &root, user, project));
    assert_false(core_job_owner(r.core, id + 1, &user, &project));
    assert_int_equal(do_hold(r.core, &root, id, r.now_ms, &e), 0);
    assert_int_equal(do_release(r.core, &alice, id, r.now_ms, &e), -EPERM);
    rig_done(&r);
}

static void a_lost_node_gives_its_jobs_back(void **state) {
    struct rig r;
    rig_init(&r);
    rig_hello(&r, "n1", 4, 0, "b1", NULL, 0);
    struct spec s = rig_spec();
    uint64_t id = rig_submit(&r, &alice, &s);
    s.requeue = false;
    uint64_t fails = rig_submit(&r, &alice, &s);
    rig_started(&r, "n1", id, 1);
    core_agent_gone(r.core, "n1", r.now_ms);
    rig_drain(&r);
    assert_int_equal(rig_state(&r, id), JOB_RUNNING);  // silent, not lost
    core_node_lost(r.core, "n1", "no word for 60 s", r.now_ms);
    core_schedule(r.core, r.now_ms);
    rig_drain(&r);
    assert_int_equal(rig_state(&r, id), JOB_PENDING);
    assert_int_equal(rig_state(&r, fails), JOB_STATE_COUNT);
    assert_int_equal(r.last_state, JOB_NODE_FAIL);
    // It comes back and still runs the old attempt: killed first, used again only when that is gone.
    struct attempt known = {.id = id, .attempt = 1, .state = ATTEMPT_RUNNING};
    uint32_t kills = r.kills;
    struct error e;
    rig_hello(&r, "n1", 4, 0, "b1", &known, 1);
    assert_int_equal(do_node_remove(r.core, &root, "n1", r.now_ms, &e), -EBUSY);  // connected, though not up
    core_agent_gone(r.core, "n1", r.now_ms);
    assert_int_equal(do_node_remove(r.core, &root, "n1", r.now_ms, &e), 0);
    kills = r.kills;
    rig_hello(&r, "n1", 4, 0, "b1", &known, 1);
    assert_int_equal(r.kills, kills + 1);
    assert_int_equal(rig_state(&r, id), JOB_PENDING);
    rig_end(&r, "n1", id, 1, END_NODE_FAIL, 0);
    assert_int_equal(rig_state(&r, id), JOB_STARTING);
    assert_int_equal(r.launches.at[r.launches.len - 1].attempt, 2);
    rig_done(&r);
}

static void a_promise_outlives_the_node(void **state) {
    struct rig r;
    struct error e;
    rig_init(&r);
    rig_hello(&r, "n1", 4, 0, "b1", NULL, 0);
    struct spec s = rig_spec();
    uint64_t cancelled = rig_submit(&r, &alice, &s), both = rig_submit(&r, &alice, &s);
    s.requeue = false;
    uint64_t requeued = rig_submit(&r, &alice, &s);
    assert_int_equal(do_requeue(r.core, &alice, both, false, r.now_ms, &e), 0);
    assert_int_equal(do_cancel(r.core, &alice, both, &(struct command_cancel){0}, r.now_ms, &e), 0);
    rig_end(&r, "n1", both, 1, END_REQUEUE, 0);  // what the agent was told first
    assert_int_equal(r.last_state, JOB_CANCELLED);
    assert_int_equal(do_cancel(r.core, &alice, cancelled, &(struct command_cancel){0}, r.now_ms, &e), 0);
    assert_int_equal(do_requeue(r.core, &alice, requeued, false, r.now_ms, &e), 0);
    core_node_lost(r.core, "n1", "no word for 60 s", r.now_ms);
    rig_drain(&r);
    assert_int_equal(rig_state(&r, cancelled), JOB_STATE_COUNT);
    assert_int_equal(r.last_state, JOB_CANCELLED);
    assert_int_equal(rig_state(&r, requeued), JOB_PENDING);
    rig_done(&r);
}

static void a_refusal_changes_nothing(void **state) {
    struct rig r;
    struct error e;
    uint64_t id, n;
    cleanup_buf struct buf before = {0}, behind = {0};
    rig_init(&r);
    struct spec s = rig_spec();
    s.dependency = "afterok:99";
    core_snapshot(r.core, &before);
    assert_true(do_submit(r.core, &bob, &s, NULL, false, r.now_ms, &id, &n, &e) < 0);
    s.dependency = NULL;
    assert_int_equal(do_submit(r.core, &bob, &s, NULL, true, r.now_ms, &id, &n, &e), 0);
    core_snapshot(r.core, &behind);
    assert_int_equal(before.len, behind.len);
    assert_memory_equal(before.data, behind.data, before.len);
    rig_done(&r);
}

static void a_launch_that_never_arrived_is_sent_again(void **state) {
    struct rig r;
    rig_init(&r);
    rig_hello(&r, "n1", 4, 0, "b1", NULL, 0);
    struct spec s = rig_spec();
    uint64_t id = rig_submit(&r, &alice, &s);
    assert_int_equal(r.launches.len, 1);
    core_agent_gone(r.core, "n1", r.now_ms);
    rig_hello(&r, "n1", 4, 0, "b1", NULL, 0);
    assert_int_equal(r.launches.len, 2);  // same attempt once more
    assert_int_equal(r.launches.at[1].attempt, 1);
    // After a restart of the machine it may have run: a new attempt.
    core_agent_gone(r.core, "n1", r.now_ms);
    rig_hello(&r, "n1", 4, 0, "b2", NULL, 0);
    assert_int_equal(r.launches.len, 3);
    assert_int_equal(r.launches.at[2].attempt, 2);
    assert_int_equal(rig_state(&r, id), JOB_STARTING);
    rig_done(&r);
}

static void gangs_end_together(void **state) {
    struct rig r;
    rig_init(&r);
    rig_hello(&r, "n1", 2, 0, "b1", NULL, 0);
    rig_hello(&r, "n2", 2, 0, "b1", NULL, 0);
    struct spec s = rig_spec();
    s.nodes_min = 2;
    s.tasks = 4;
    uint64_t id = rig_submit(&r, &alice, &s);
    assert_int_equal(r.launches.len, 2);
    rig_started(&r, "n1", id, 1);
    rig_started(&r, "n2", id, 1);
    rig_end(&r, r.launches.at[0].node, id, 1, END_EXIT, 3);
    assert_int_equal(rig_state(&r, id), JOB_COMPLETING);
    assert_int_equal(r.kills, 1);
    rig_end(&r, r.launches.at[1].node, id, 1, END_EXIT, 0);
    assert_int_equal(r.last_state, JOB_FAILED);
    rig_done(&r);
}

static int32_t last_exit(const struct rig *r) {
    cleanup_arena struct arena a = {0};
    struct event e;
    const struct journal_record *j = &r->journal.at[r->journal.len - 1];
    assert_int_equal(j->e.type, EVENT_JOB_ENDED);
    assert_int_equal(event_decode(j->e.type, j->data, j->e.len, &a, &e), 0);
    return ((struct event_job_ended *)e.body)->exit_code;
}

// `codes` in the order in which the parts end; those after a bad one are told to.
static int32_t tasks_end(bool kill, const int32_t codes[3], enum job_state *state) {
    struct rig r;
    rig_init(&r);
    rig_hello(&r, "n1", 2, 0, "b1", NULL, 0);
    rig_hello(&r, "n2", 2, 0, "b1", NULL, 0);
    rig_hello(&r, "n3", 2, 0, "b1", NULL, 0);
    struct spec s = rig_spec();
    s.nodes_min = 3;
    s.tasks = 3;
    s.launch = LAUNCH_TASKS;
    s.no_kill_on_bad_exit = !kill;
    uint64_t id = rig_submit(&r, &alice, &s);
    assert_int_equal(r.launches.len, 3);
    for (int i = 0; i < 3; i++)
        rig_started(&r, r.launches.at[i].node, id, 1);
    for (int i = 0; i < 3; i++)
        rig_end(&r, r.launches.at[i].node, id, 1, END_EXIT, codes[i]);
    *state = r.last_state;
    int32_t code = last_exit(&r);
    rig_done(&r);
    return code;
}

static void tasks_of_several_nodes_end_with_the_worst(void **state) {
    enum job_state end;
    assert_int_equal(tasks_end(true, (const int32_t[]){0, 5, 0}, &end), 5);
    assert_int_equal(end, JOB_FAILED);
    assert_int_equal(tasks_end(true, (const int32_t[]){0, 0, 7}, &end), 7);
    assert_int_equal(end, JOB_FAILED);
    assert_int_equal(tasks_end(true, (const int32_t[]){3, 15, 15}, &end), 3);
    assert_int_equal(tasks_end(false, (const int32_t[]){3, 9, 4}, &end), 9);
    assert_int_equal(tasks_end(false, (const int32_t[]){0, 0, 0}, &end), 0);
    assert_int_equal(end, JOB_COMPLETED);
}

// A gang whose node is lost and then removed, before its other parts have ended.
static void a_removed_node_stays_with_its_jobs(void **state) {
    struct rig r;
    struct error e = {0};
    struct core_config config;
    rig_init(&r);
    rig_hello(&r, "n1", 2, 0, "b1", NULL, 0);
    rig_hello(&r, "n2", 2, 0, "b1", NULL, 0);
    struct spec s = rig_spec();
    s.nodes_min = 2;
    s.tasks = 4;
    uint64_t id = rig_submit(&r, &alice, &s);
    core_node_lost(r.core, "n2", "no word for 60 s", r.now_ms);
    assert_int_equal(do_node_remove(r.core, &root, "n2", r.now_ms, &e), 0);
    rig_drain(&r);
    assert_int_equal(rig_state(&r, id), JOB_COMPLETING);
    cleanup_buf struct buf b = {0};
    core_snapshot(r.core, &b);
    core_config_default(&config);
    struct core *loaded = core_new(&config);
    if (core_load_snapshot(loaded, core_seq(r.core), b.data, b.len, &e) < 0)
        fail_msg("%s", e.text);
    same_state(r.core, loaded);
    core_free(loaded);
    rig_done(&r);
}

static void same_state(struct core *a, struct core *b) {
    cleanup_buf struct buf x = {0}, y = {0};
    core_snapshot(a, &x);
    core_snapshot(b, &y);
    assert_int_equal(x.len, y.len);
    assert_memory_equal(x.data, y.data, x.len);
    core_assert(b);
}

// The right of a job that others make room for outlives the controller: they came before it, and are
// loaded before it.
static void who_takes_goes_on_taking(void **state) {
    struct rig r;
    struct error e = {0};
    struct core_config config;
    struct sched_job_view v;
    rig_init(&r);
    rig_hello(&r, "n1", 4, 4, "b1", NULL, 0);
    assert_int_equal(do_project_set(r.core, &root,
                                      &(struct project){.name = "ours", .quota_milligpu = 4000}, r.now_ms,
                                      &e),
                     0);
    struct spec s = rig_spec();
    s.gpus_milli = 4000;
    s.requeue = true;
    uint64_t victim = rig_submit(&r, &alice, &s);
    rig_started(&r, "n1", victim, 1);
    s.project = "ours";
    uint64_t taker = rig_submit(&r, &bob, &s);
    assert_int_equal(rig_state(&r, victim), JOB_COMPLETING);
    for (int ended = 0; ended < 2; ended++) {
        cleanup_buf struct buf b = {0};
        core_snapshot(r.core, &b);
        core_config_default(&config);
        struct core *loaded = core_new(&config);
        assert_int_equal(core_load_snapshot(loaded, core_seq(r.core), b.data, b.len, &e), 0);
        assert_true(world_job(core_world(loaded), taker, &v) && v.preemptor);
        same_state(r.core, loaded);
        core_free(loaded);
        if (!ended)  // reported, not decided on yet
            core_agent_ended(r.core, "n1",
                             &(struct message_ended){.id = victim, .attempt = 1, .cause = END_PREEMPT},
                             r.now_ms);
    }
    core_schedule(r.core, r.now_ms);
    rig_drain(&r);
    assert_int_equal(rig_state(&r, taker), JOB_STARTING);
    cleanup_buf struct buf b = {0};
    core_snapshot(r.core, &b);
    struct core *loaded = core_new(&config);
    assert_int_equal(core_load_snapshot(loaded, core_seq(r.core), b.data, b.len, &e), 0);
    assert_true(world_job(core_world(loaded), taker, &v) && !v.preemptor);
    // and so does whom a job made room for, until others' rights are set
    uint32_t count;
    cleanup_free struct sched_preemption *gave = world_job_preemptions(core_world(loaded), victim, &count);
    assert_int_equal(count, 1);
    assert_true(gave->by == taker && gave->by_share == 4000 && !gave->share && gave->claim == SCHED_CLAIM_SHARE);
    same_state(r.core, loaded);
    core_free(loaded);
    assert_int_equal(do_project_set(r.core, &root, &(struct project){.name = "others"}, r.now_ms, &e), 0);
    assert_null(world_job_preemptions(core_world(r.core), victim, &count));
    rig_done(&r);
}

// The policy is set while the cluster works: recorded, in force at once, kept; nonsense is refused and
// changes nothing.
static void the_policy_is_part_of_the_state(void **state) {
    struct rig r;
    struct error e = {0};
    struct core_config config;
    struct policy_settings p, now;
    rig_init(&r);
    core_policy_settings(r.core, &p);
    assert_int_equal(p.use_s, 36 * 3600);
    p.use_s = 3600;
    p.half_life_s = 86400;
    p.nice_step_s = 60;
    p.reclaim = false;
    assert_int_equal(do_policy_set(r.core, &alice, &p, r.now_ms, &e), -EPERM);
    assert_int_equal(do_policy_set(r.core, &root, &p, r.now_ms, &e), 0);
    p.plan_depth = 1000;
    assert_int_equal(do_policy_set(r.core, &root, &p, r.now_ms, &e), -EINVAL);
    assert_non_null(strstr(e.text, "plan depth is 1000"));
    p.plan_depth = 1;
    p.short_factor = -1;
    assert_true(do_policy_set(r.core, &root, &p, r.now_ms, &e) < 0);
    rig_drain(&r);
    assert_int_equal(r.journal.at[r.journal.len - 1].e.type, EVENT_POLICY_SET);
    core_config_default(&config);
    config.policy.grace_ms = 7000;
    core_configure(r.core, &config);  // the configuration is read again
    core_policy_settings(r.core, &now);
    assert_int_equal(now.use_s, 3600);
    assert_int_equal(now.half_life_s, 86400);
    assert_int_equal(core_policy(r.core)->nice_ms, 60000);
    assert_false(core_policy(r.core)->reclaim);
    assert_int_equal(core_policy(r.core)->grace_ms, 7000);
    cleanup_buf struct buf b = {0};
    core_snapshot(r.core, &b);
    struct core *loaded = core_new(&config);
    assert_int_equal(core_load_snapshot(loaded, core_seq(r.core), b.data, b.len, &e), 0);
    core_policy_settings(loaded, &p);
    assert_true(schema_equal(&policy_schema, &now, &p));
    same_state(r.core, loaded);
    core_free(loaded);
    rig_done(&r);
}

static void random_step(struct rig *r, struct rand *rnd) {
    const char *nodes[] = {"n1", "n2", "n3"};
    const char *node = nodes[rand_below(rnd, 3)];
    struct error e;
    uint64_t id = 1 + rand_below(rnd, 60);
    struct spec s = rig_spec();
    struct array_range range = {0, (uint32_t)rand_below(rnd, 6), 1};
    char dep[64];
    struct job_view v;
    r->now_ms += (int64_t)rand_below(rnd, 1000);
    switch (rand_below(rnd, 12)) {
    case 0:
    case 1:
    case 2:
        s.cpus_per_task = 1 + (uint32_t)rand_below(rnd, 3);
        s.gpus_milli = rand_below(rnd, 2) ? 500 : 0;
        s.requeue = rand_below(rnd, 2);
        if (rand_below(rnd, 3) == 0) {
            s.array.at = &range;
            s.array.len = 1;
            s.array_limit = (uint32_t)rand_below(rnd, 3);
        }
        if (rand_below(rnd, 3) == 0) {
            snprintf(dep, sizeof dep, "%s:%llu",
                     (const char *[]){"after", "afterok", "afterany", "afternotok"}[rand_below(rnd, 4)],
                     (unsigned long long)id);
            s.dependency = dep;
        }
        if (rand_below(rnd, 3) == 0)  // refused until there is such a partition
            s.partition = (const char *[]){"main,other", "other,main", "other"}[rand_below(rnd, 3)];
        uint64_t out, n;
        do_submit(r->core, rand_below(rnd, 2) ? &alice : &bob, &s, NULL, false, r->now_ms, &out, &n, &e);
        break;
    case 3: rig_hello(r, node, 4, 2, rand_below(rnd, 5) ? "b1" : "b2", NULL, 0); break;
    case 4: core_agent_gone(r->core, node, r->now_ms); break;
    case 5:
        if (rand_below(rnd, 4) == 0)
            core_node_lost(r->core, node, "lost", r->now_ms);
        break;
    case 6:
        if (rand_below(rnd, 2))
            do_suspend(r->core, &root, id, rand_below(rnd, 2), r->now_ms, &e);
        else
            do_hold(r->core, &root, id, r->now_ms, &e);
        break;
    case 7: do_release(r->core, &root, id, r->now_ms, &e); break;
    case 8: do_cancel(r->core, &root, id, &(struct command_cancel){0}, r->now_ms, &e); break;
    case 9: do_requeue(r->core, &root, id, false, r->now_ms, &e); break;
    case 10:
        if (rand_below(rnd, 4) == 0) {
            struct policy_settings p;
            core_policy_settings(r->core, &p);
            p.half_life_s = 60 * (1 + (uint32_t)rand_below(rnd, 100));
            p.nice_step_s = (uint32_t)rand_below(rnd, 2) * 60;
            p.backfill = (enum policy_backfill_word)rand_below(rnd, 3);
            do_policy_set(r->core, &root, &p, r->now_ms, &e);
        } else if (rand_below(rnd, 4)) {
            do_partition_set(r->core, &root,
                               &(struct partition){.name = "other", .nodes = node, .down = rand_below(rnd, 3) == 0},
                               r->now_ms, &e);
        } else {
            do_delete(r->core, &root, ENTITY_PARTITION, "other", true, r->now_ms, &e);
        }
        break;
    default:
        for (id = 1; id < 200; id++)
            if (core_view(r->core, id, &v) && job_state_holds_resources(v.state) && rand_below(rnd, 2)) {
                core_job_node_names(r->core, id, &node, 1);
                if (v.state == JOB_STARTING && rand_below(rnd, 2))
                    rig_started(r, node, id, v.attempt);
                else
                    rig_end(r, node, id, v.attempt, (enum end_cause)rand_below(rnd, END_LAUNCH),
                            (int32_t)rand_below(rnd, 2));
                break;
            }
    }
    core_schedule(r->core, r->now_ms);
    rig_drain(r);
}

// What is loaded from a snapshot goes on exactly as what wrote it does, also the decaying use.
static void a_snapshot_is_as_good_as_the_journal(void **state) {
    struct core_config config;
    core_config_default(&config);
    for (uint64_t seed = 100; seed <= 140; seed++) {
        struct rig r;
        struct rand rnd;
        struct error e;
        rand_seed(&rnd, seed);
        rig_init(&r);
        for (int i = 0; i < 80; i++)
            random_step(&r, &rnd);
        cleanup_buf struct buf b = {0};
        core_snapshot(r.core, &b);
        struct core *loaded = core_new(&config);
        assert_int_equal(core_load_snapshot(loaded, core_seq(r.core), b.data, b.len, &e), 0);
        uint32_t from = r.journal.len;
        for (int i = 0; i < 80; i++)
            random_step(&r, &rnd);
        for (uint32_t i = from; i < r.journal.len; i++)
            assert_int_equal(core_replay(loaded, r.journal.at[i].e.seq, r.journal.at[i].e.at_ms,
                                         r.journal.at[i].e.type, r.journal.at[i].data, r.journal.at[i].e.len),
                             0);
        same_state(r.core, loaded);
        core_free(loaded);
        rig_done(&r);
    }
}

// Two ways to the same tokens give the same snapshot, whatever came and went in between.
static void tokens_have_one_order(void **state) {
    struct rig a, b;
    struct error e;
    char id[24];
    rig_init(&a);
    rig_init(&b);
    for (int i = 0; i < 40; i++) {
        struct command_token_create t = {.id = id, .hash = "00", .expires_ms = a.now_ms + 1000};
        snprintf(id, sizeof id, "token-%d", i);
        assert_int_equal(do_token_create(a.core, &root, &t, a.now_ms, &e), 0);
        if (i >= 30)
            assert_int_equal(do_token_create(b.core, &root, &t, b.now_ms, &e), 0);
        if (i >= 10)
            snprintf(id, sizeof id, "token-%d", i - 10);
        if (i >= 10)
            assert_int_equal(do_token_revoke(a.core, &root, id, a.now_ms, &e), 0);
    }
    cleanup_buf struct buf x = {0}, y = {0};
    core_snapshot(a.core, &x);
    core_snapshot(b.core, &y);
    assert_int_equal(x.len, y.len);
    assert_memory_equal(x.data, y.data, x.len);
    rig_done(&a);
    rig_done(&b);
}

static void replay_and_snapshot_give_the_state_back(void **state) {
    for (uint64_t seed = 1; seed <= 100; seed++) {
        struct rig r;
        struct rand rnd;
        struct core_config config;
        rand_seed(&rnd, seed);
        rig_init(&r);
        for (int i = 0; i < 150; i++)
            random_step(&r, &rnd);
        core_config_default(&config);
        struct core *replayed = core_new(&config), *loaded = core_new(&config);
        for (uint32_t i = 0; i < r.journal.len; i++)
            assert_int_equal(core_replay(replayed, r.journal.at[i].e.seq, r.journal.at[i].e.at_ms,
                                         r.journal.at[i].e.type, r.journal.at[i].data, r.journal.at[i].e.len),
                             0);
        same_state(r.core, replayed);
        cleanup_buf struct buf b = {0};
        struct error e;
        core_snapshot(r.core, &b);
        if (core_load_snapshot(loaded, core_seq(r.core), b.data, b.len, &e) < 0)
            fail_msg("%s", e.text);
        same_state(r.core, loaded);
        core_free(replayed);
        core_free(loaded);
        rig_done(&r);
    }
}

static int make_token(struct rig *r, const struct actor *who, const char *id, const char *user,
                      const char *node, int64_t ends_ms) {
    struct command_token_create t = {.id = id, .hash = "aa", .user = user, .node = node, .expires_ms = ends_ms};
    int n = do_token_create(r->core, who, &t, r->now_ms, NULL);
    rig_drain(r);
    return n;
}

static void tokens_do_not_multiply(void **state) {
    struct rig r;
    rig_init(&r);
    int64_t end = r.now_ms + 1000, until;
    char id[16];
    assert_int_equal(make_token(&r, &alice, "x", NULL, NULL, end), -EPERM);
    assert_int_equal(make_token(&r, &alice, "x", "bob", NULL, end), -EPERM);
    for (int i = 0; i < 1000; i++) {
        snprintf(id, sizeof id, "a%d", i);
        assert_int_equal(make_token(&r, &alice, id, "alice", NULL, end), 0);
    }
    assert_int_equal(make_token(&r, &alice, "more", "alice", NULL, end), -EAGAIN);
    assert_int_equal(make_token(&r, &bob, "b", "bob", NULL, end), 0);
    r.now_ms = end;  // those that have ended make room
    assert_int_equal(make_token(&r, &alice, "more", "alice", NULL, end + 1000), 0);
    assert_null(core_token_of_user(r.core, "a1", "aa", end));
    const struct event_token *more = core_token_of_user(r.core, "more", "aa", end);
    assert_string_equal(more->user, "alice");
    until = more->expires_ms;
    // One that is known by a token passes on no more than that.
    struct actor by_token = alice;
    by_token.until_ms = until;
    assert_int_equal(make_token(&r, &by_token, "longer", "alice", NULL, until + 1), -EPERM);
    assert_int_equal(make_token(&r, &by_token, "same", "alice", NULL, until), 0);
    rig_done(&r);
}

static void a_token_for_one_node_is_for_that_one(void **state) {
    struct rig r;
    rig_init(&r);
    int64_t end = r.now_ms + 1000;
    assert_int_equal(make_token(&r, &root, "t", "alice", "n1", end), -EINVAL);
    assert_int_equal(make_token(&r, &root, "t", NULL, "n 1", end), -EINVAL);
    assert_int_equal(make_token(&r, &root, "t", NULL, "n1", end), 0);
    assert_false(core_enrolled(r.core, "n1", "ff"));
    assert_int_equal(do_token_use(r.core, "t", "aa", "n2", "ff", r.now_ms, NULL), -EACCES);
    assert_int_equal(do_token_use(r.core, "t", "aa", "n1", "ff", r.now_ms, NULL), 0);
    assert_true(core_enrolled(r.core, "n1", "ff"));
    r.now_ms = end + 1;  // a node stays when its token has ended, until that is revoked
    assert_int_equal(make_token(&r, &root, "u", NULL, NULL, end + 1000), 0);
    assert_true(core_enrolled(r.core, "n1", "ff"));
    assert_int_equal(do_token_revoke(r.core, &root, "t", r.now_ms, NULL), 0);
    assert_false(core_enrolled(r.core, "n1", "ff"));
    rig_drain(&r);
    rig_done(&r);
}

static void a_user_has_a_share_of_the_memory(void **state) {
    struct rig r;
    struct error e = {0};
    struct core_config config;
    rig_init(&r);
    core_config_default(&config);
    config.max_spec_bytes_per_user = 2000000;
    core_configure(r.core, &config);
    struct spec s = rig_spec();
    static char argument[100000];
    memset(argument, 'x', sizeof argument - 1);
    const char *argv[] = {"true", argument};
    s.argv.at = argv;
    s.argv.len = 2;
    s.hold = true;
    uint64_t id, count;
    int n = 0;
    while (do_submit(r.core, &alice, &s, NULL, false, r.now_ms, &id, &count, &e) == 0) {
        core_outbox_clear(core_outbox(r.core));
        assert_true(++n < 20);
    }
    assert_int_equal(e.code, EAGAIN);
    assert_int_equal(n, 19);
    assert_int_equal(do_submit(r.core, &bob, &s, NULL, false, r.now_ms, &id, &count, &e), 0);
    rig_done(&r);
}

// Each text counts once for each user who has live jobs with it.
static void a_user_has_a_share_of_the_disk(void **state) {
    struct rig r;
    struct error e = {0};
    struct core_config config;
    rig_init(&r);
    core_config_default(&config);
    config.max_text_bytes_per_user = 3 << 20;
    core_configure(r.core, &config);
    struct spec s = rig_spec();
    s.environment_id = "e1";
    s.environment_bytes = 1 << 20;
    s.script_id = "s1";
    s.script_bytes = 1 << 20;
    s.hold = true;
    uint64_t first = 0, id, count;
    for (int i = 0; i < 5; i++) {  // the same texts again and again, as arrays too
        struct array_range range = {.first = 0, .last = 99, .step = 1};
        s.array.at = &range;
        s.array.len = i % 2;
        assert_int_equal(do_submit(r.core, &alice, &s, NULL, false, r.now_ms, &id, &count, &e), 0);
        first = first ? first : id;
    }
    s.array.len = 0;
    s.script_id = "s2";
    assert_int_equal(do_submit(r.core, &alice, &s, NULL, false, r.now_ms, &id, &count, &e), 0);
    core_assert(r.core);
    struct spec other = s;
    other.script_id = "s3";
    other.script_bytes = 1;
    assert_int_equal(do_submit(r.core, &alice, &other, NULL, true, r.now_ms, &id, &count, &e), -EAGAIN);
    assert_non_null(strstr(e.text, "alice's"));
    assert_non_null(strstr(e.text, "take 3.0 MiB"));
    assert_non_null(strstr(e.text, "at most 3.0 MiB are allowed (max_texts_per_user)"));
    assert_int_equal(do_submit(r.core, &bob, &other, NULL, false, r.now_ms, &id, &count, &e), 0);
    // A restart counts the same, and what has ended makes room.
    cleanup_buf struct buf b = {0};
    core_snapshot(r.core, &b);
    struct core *again = core_new(&config);
    assert_int_equal(core_load_snapshot(again, core_seq(r.core), b.data, b.len, &e), 0);
    core_assert(again);
    assert_int_equal(do_submit(again, &alice, &other, NULL, true, r.now_ms, &id, &count, &e), -EAGAIN);
    for (id = first; do_cancel(again, &root, id, &(struct command_cancel){0}, r.now_ms, NULL) == 0; id++)
        ;
    core_assert(again);
    assert_int_equal(do_submit(again, &alice, &other, NULL, false, r.now_ms, &id, &count, &e), 0);
    core_free(again);
    rig_done(&r);
}

// What live jobs are in is not deleted under them by mistake.
static void what_jobs_need_is_not_deleted(void **state) {
    struct rig r;
    struct error e = {0};
    rig_init(&r);
    assert_int_equal(do_project_set(r.core, &root, &(struct project){.name = "p"}, r.now_ms, &e), 0);
    assert_int_equal(do_partition_set(r.core, &root, &(struct partition){.name = "q"}, r.now_ms, &e), 0);
    assert_int_equal(do_qos_set(r.core, &root, &(struct qos){.name = "u", .usage_factor = 1}, r.now_ms, &e), 0);
    struct spec s = rig_spec();
    s.project = "p";
    s.partition = "q";
    s.qos = "u";
    uint64_t id = rig_submit(&r, &alice, &s);
    static const enum entity_kind things[] = {ENTITY_PROJECT, ENTITY_PARTITION, ENTITY_QOS};
    static const char *const names[] = {"p", "q", "u"};
    for (int i = 0; i < 3; i++) {
        assert_int_equal(do_delete(r.core, &root, things[i], names[i], false, r.now_ms, &e), -EBUSY);
        assert_non_null(strstr(e.text, "has 1 live job"));
        assert_non_null(strstr(e.text, "acequia cancel --"));
        assert_non_null(strstr(e.text, "--force"));
    }
    struct job_view v;
    assert_int_equal(do_delete(r.core, &root, ENTITY_QOS, "u", true, r.now_ms, &e), 0);
    rig_hello(&r, "n1", 4, 0, "b1", NULL, 0);
    assert_false(core_view(r.core, id, &v));  // cancelled: it could never start
    assert_int_equal(do_delete(r.core, &root, ENTITY_PARTITION, "q", true, r.now_ms, &e), 0);
    assert_int_equal(do_delete(r.core, &root, ENTITY_PROJECT, "p", true, r.now_ms, &e), 0);
    assert_false(core_entity_exists(r.core, ENTITY_PROJECT, "p"));
    rig_drain(&r);
    rig_done(&r);
}

static void a_node_speaks_for_its_own_jobs(void **state) {
    struct rig r;
    rig_init(&r);
    struct spec s = rig_spec();
    uint64_t id = rig_submit(&r, &alice, &s);
    rig_hello(&r, "n1", 4, 0, "b1", NULL, 0);
    rig_hello(&r, "n2", 4, 0, "b2", NULL, 0);
    assert_true(core_runs_on(r.core, id, 1, "n1"));
    assert_false(core_runs_on(r.core, id, 2, "n1"));
    assert_false(core_runs_on(r.core, id, 1, "n2"));
    rig_end(&r, "n2", id, 1, END_EXIT, 0);
    assert_int_equal(rig_state(&r, id), JOB_STARTING);
    rig_done(&r);
}

static void words_of_nodes_are_plain(void **state) {
    struct rig r;
    struct error e = {0};
    rig_init(&r);
    struct node n = {
        .name = "n1", .cpus = 4, .memory_bytes = 1 << 30, .boot_id = "b", .spool_id = "s", .os = "x\x1b[2J"};
    struct message_hello hello = {.node = &n};
    assert_int_equal(core_agent_hello(r.core, &hello, NULL, r.now_ms, &e), -EINVAL);
    n.os = "Linux";
    assert_int_equal(core_agent_hello(r.core, &hello, NULL, r.now_ms, &e), 0);
    rig_drain(&r);
    struct spec s = rig_spec();
    uint64_t id = rig_submit(&r, &alice, &s);
    static char reason[100000];
    memset(reason, '\x1b', sizeof reason - 1);
    struct message_ended end = {.id = id, .attempt = 1, .cause = END_LAUNCH, .reason = reason};
    core_schedule(r.core, r.now_ms);
    core_agent_ended(r.core, "n1", &end, r.now_ms);
    const struct outbox *o = core_outbox(r.core);
    assert_true(o->bytes.len < 10000);
    assert_null(memchr(o->bytes.data, '\x1b', o->bytes.len));
    rig_drain(&r);
    assert_int_equal(rig_state(&r, id), JOB_STATE_COUNT);
    rig_done(&r);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(containers_go_where_they_can),
        cmocka_unit_test(words_of_nodes_are_plain),
        cmocka_unit_test(tokens_do_not_multiply),
        cmocka_unit_test(a_token_for_one_node_is_for_that_one),
        cmocka_unit_test(a_user_has_a_share_of_the_memory),
        cmocka_unit_test(a_user_has_a_share_of_the_disk),
        cmocka_unit_test(what_jobs_need_is_not_deleted),
        cmocka_unit_test(a_node_speaks_for_its_own_jobs),
        cmocka_unit_test(runs_a_job),
        cmocka_unit_test(refuses_bad_specs),
        cmocka_unit_test(the_last_partition_stays),
        cmocka_unit_test(there_is_one_default_of_each),
        cmocka_unit_test(arrays_keep_their_limit),
        cmocka_unit_test(dependencies_are_kept),
        cmocka_unit_test(a_missing_element_is_never_there),
        cmocka_unit_test(cycles_are_refused),
        cmocka_unit_test(strangers_are_kept_out),
        cmocka_unit_test(a_lost_node_gives_its_jobs_back),
        cmocka_unit_test(a_promise_outlives_the_node),
        cmocka_unit_test(a_refusal_changes_nothing),
        cmocka_unit_test(a_launch_that_never_arrived_is_sent_again),
        cmocka_unit_test(gangs_end_together),
        cmocka_unit_test(tasks_of_several_nodes_end_with_the_worst),
        cmocka_unit_test(a_removed_node_stays_with_its_jobs), cmocka_unit_test(the_policy_is_part_of_the_state),
        cmocka_unit_test(who_takes_goes_on_taking),
        cmocka_unit_test(a_snapshot_is_as_good_as_the_journal),
        cmocka_unit_test(tokens_have_one_order),
        cmocka_unit_test(replay_and_snapshot_give_the_state_back),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
