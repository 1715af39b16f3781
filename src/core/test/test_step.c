// Steps and leases: what a step holds, what nodes are told after a hello, ends that wait for all nodes, and
// all of it out of a snapshot.
#include <errno.h>
#include <signal.h>

#include "rig.h"
#include "sched/step_pack.h"

static struct core *reloaded(struct rig *r) {
    cleanup_buf struct buf b = {0};
    struct core_config config;
    struct error e = {0};
    core_config_default(&config);
    struct core *c = core_new(&config);
    core_snapshot(r->core, &b);
    assert_int_equal(core_load_snapshot(c, core_seq(r->core), b.data, b.len, &e), 0);
    core_assert(c);
    return c;
}

static uint64_t running(struct rig *r, uint32_t cpus, uint32_t lease_s) {
    struct spec s = rig_spec();
    s.tasks = cpus;
    s.lease_s = lease_s;
    uint64_t id = rig_submit(r, &alice, &s);
    rig_started(r, "n1", id, 1);
    assert_int_equal(rig_state(r, id), JOB_RUNNING);
    return id;
}

static int create(struct core *c, const struct rig *r, const struct actor *who, uint64_t id, uint32_t tasks,
                  const char *key, uint32_t *number) {
    struct message_exec command = {.kill_on_bad_exit = true};
    struct step_request where = {.tasks = tasks, .cpus_per_task = 1};
    struct core_step_request q = {.key = key, .name = "work", .request = &where, .command = &command};
    struct error e = {0};
    return core_step_create(c, who, id, &q, r->now_ms, number, &e);
}

static uint32_t effects(struct core *c, enum effect_type type) {
    uint32_t n = 0;
    for (uint32_t i = 0; i < core_outbox(c)->effects.len; i++)
        n += core_outbox(c)->effects.at[i].type == type;
    return n;
}

static void a_step_holds_its_part_until_it_ends(void **state) {
    struct rig r;
    uint32_t one, two, none;
    rig_init(&r);
    rig_hello(&r, "n1", 4, 0, "b1", NULL, 0);
    uint64_t id = running(&r, 4, 0);
    assert_int_equal(create(r.core, &r, &alice, id, 3, "k1", &one), 0);
    assert_int_equal(effects(r.core, EFFECT_STEP), 1);
    rig_drain(&r);
    assert_int_equal(create(r.core, &r, &bob, id, 1, NULL, &none), -EPERM);
    assert_int_equal(create(r.core, &r, &alice, id, 2, NULL, &none), -EAGAIN);
    assert_int_equal(create(r.core, &r, &alice, id, 5, NULL, &none), -E2BIG);
    assert_int_equal(create(r.core, &r, &alice, id, 1, NULL, &two), 0);
    assert_true(one == 1 && two == 2);
    struct core *other = reloaded(&r);
    assert_int_equal(create(other, &r, &alice, id, 1, NULL, &none), -EAGAIN);  // it knows what is held
    struct core_step_view v;
    assert_true(core_step_view(other, id, 0, "k1", &v) && v.number == 1 && !v.ended);
    core_free(other);
    uint32_t exits[] = {0, 0, 768};
    struct step_end end = {.id = id, .attempt = 1, .step = 1, .exit_code = 3, .task = 2, .exits = {exits, 3}};
    core_agent_step_ended(r.core, "n1", &end, r.now_ms);
    core_agent_step_ended(r.core, "n1", &end, r.now_ms);  // a repeat changes nothing
    assert_true(core_step_view(r.core, id, 1, NULL, &v) && v.ended);
    assert_int_equal(v.ended->exit_code, 3);
    assert_int_equal(v.ended->state, JOB_FAILED);
    assert_int_equal(v.ended->ends.at[0].exits.len, 3);
    rig_drain(&r);
    assert_int_equal(create(r.core, &r, &alice, id, 3, NULL, &none), 0);
    assert_int_equal(none, 3);
    rig_drain(&r);
    rig_done(&r);
}

// After a controller's or agent's restart: a step that the node does not know is sent again, one that it
// should not have is killed, and an end that was not acknowledged is taken.
static void a_step_begins_only_where_its_job_runs(void **state) {
    struct rig r;
    uint32_t one, none;
    struct core_step_view v;
    rig_init(&r);
    rig_hello(&r, "n1", 4, 0, "b1", NULL, 0);
    rig_hello(&r, "n2", 4, 0, "b2", NULL, 0);
    struct spec s = rig_spec();
    s.tasks = 8;
    s.launch = LAUNCH_TASKS;
    uint64_t id = rig_submit(&r, &alice, &s);
    rig_started(&r, "n1", id, 1);
    rig_started(&r, "n2", id, 1);
    rig_end(&r, "n1", id, 1, END_EXIT, 0);
    assert_int_equal(rig_state(&r, id), JOB_RUNNING);
    assert_int_equal(create(r.core, &r, &alice, id, 5, NULL, &none), -EBUSY);
    assert_int_equal(create(r.core, &r, &alice, id, 1, NULL, &one), 0);
    assert_true(core_step_view(r.core, id, one, NULL, &v));
    assert_string_equal(v.started->parts.at[0].node, "n2");
    rig_done(&r);
}

static void a_hello_makes_both_sides_agree(void **state) {
    struct rig r;
    uint32_t one, two;
    rig_init(&r);
    rig_hello(&r, "n1", 4, 0, "b1", NULL, 0);
    uint64_t id = running(&r, 4, 0);
    create(r.core, &r, &alice, id, 1, NULL, &one);
    create(r.core, &r, &alice, id, 1, NULL, &two);
    rig_drain(&r);
    struct step_end end = {.id = id, .attempt = 1, .step = 1};
    struct step_state steps[] = {{.step = 1, .end = &end}, {.step = 7}};
    struct attempt known = {.id = id, .attempt = 1, .state = ATTEMPT_RUNNING, .steps = {steps, 2}};
    struct node n = {.name = "n1", .cpus = 4, .boot_id = "b1", .spool_id = "b1"};
    struct message_hello h = {.node = &n, .attempts = {&known, 1}};
    struct error e = {0};
    struct core_step_view v;
    assert_int_equal(core_agent_hello(r.core, &h, NULL, r.now_ms, &e), 0);
    assert_int_equal(effects(r.core, EFFECT_STEP), 1);
    assert_true(core_step_view(r.core, id, 1, NULL, &v) && v.ended);
    assert_true(core_step_view(r.core, id, 2, NULL, &v) && !v.ended);
    // The job's end is the end of its steps.
    rig_end(&r, "n1", id, 1, END_EXIT, 0);
    assert_false(core_step_view(r.core, id, 2, NULL, &v));
    rig_done(&r);
}

// After a restore a number may come again: a node that has another step of that number has not started ours, and how
// that one ended is nothing to ours.
static void a_step_of_another_epoch_is_another_step(void **state) {
    struct rig r;
    uint32_t one;
    struct core_step_view v;
    rig_init(&r);
    rig_hello(&r, "n1", 4, 0, "b1", NULL, 0);
    uint64_t id = running(&r, 4, 0);
    create(r.core, &r, &alice, id, 1, NULL, &one);
    rig_drain(&r);
    assert_true(core_step_view(r.core, id, one, NULL, &v) && v.started->epoch);
    struct step_end end = {.id = id, .attempt = 1, .step = one, .epoch = v.started->epoch + 1};
    core_agent_step_ended(r.core, "n1", &end, r.now_ms);
    assert_true(core_step_view(r.core, id, one, NULL, &v) && !v.ended);
    struct step_state steps[] = {{.step = one, .epoch = v.started->epoch + 1}};
    struct attempt known = {.id = id, .attempt = 1, .state = ATTEMPT_RUNNING, .steps = {steps, 1}};
    struct node n = {.name = "n1", .cpus = 4, .boot_id = "b1", .spool_id = "b1"};
    struct message_hello h = {.node = &n, .attempts = {&known, 1}};
    struct error e = {0};
    assert_int_equal(core_agent_hello(r.core, &h, NULL, r.now_ms, &e), 0);
    assert_int_equal(effects(r.core, EFFECT_STEP), 1);
    rig_drain(&r);
    steps[0].epoch = v.started->epoch;
    assert_int_equal(core_agent_hello(r.core, &h, NULL, r.now_ms, &e), 0);
    assert_int_equal(effects(r.core, EFFECT_STEP), 0);
    end.epoch = v.started->epoch;
    core_agent_step_ended(r.core, "n1", &end, r.now_ms);
    assert_true(core_step_view(r.core, id, one, NULL, &v) && v.ended);
    rig_done(&r);
}

static void a_step_is_ended_until_it_has_ended(void **state) {
    struct rig r;
    uint32_t one;
    struct error e = {0};
    rig_init(&r);
    rig_hello(&r, "n1", 4, 0, "b1", NULL, 0);
    uint64_t id = running(&r, 4, 0);
    create(r.core, &r, &alice, id, 1, NULL, &one);
    assert_int_equal(core_step_signal(r.core, &bob, id, one, SIGTERM, true, r.now_ms, &e), -EPERM);
    assert_int_equal(core_step_signal(r.core, &alice, id, 9, SIGTERM, true, r.now_ms, &e), -ENOENT);
    rig_drain(&r);
    assert_int_equal(core_step_signal(r.core, &alice, id, one, SIGTERM, true, r.now_ms, &e), 0);
    assert_int_equal(core_outbox(r.core)->events.at[0].type, EVENT_STEP_ENDING);
    rig_drain(&r);
    struct core *other = reloaded(&r);
    struct step_state steps[] = {{.step = 1}};
    struct attempt known = {.id = id, .attempt = 1, .state = ATTEMPT_RUNNING, .steps = {steps, 1}};
    struct node n = {.name = "n1", .cpus = 4, .boot_id = "b1", .spool_id = "b1"};
    struct message_hello h = {.node = &n, .attempts = {&known, 1}};
    uint32_t kills = 0;
    assert_int_equal(core_agent_hello(other, &h, NULL, r.now_ms, &e), 0);
    const struct outbox *o = core_outbox(other);
    for (uint32_t i = 0; i < o->effects.len; i++) {
        cleanup_arena struct arena a = {0};
        struct message m;
        if (o->effects.at[i].type == EFFECT_SEND &&
            message_decode(o->bytes.data + o->effects.at[i].offset, o->effects.at[i].len, &a, &m) == 0)
            kills += m.type == MESSAGE_KILL && ((struct message_kill *)m.body)->step == 1;
    }
    assert_int_equal(kills, 1);
    core_free(other);
    rig_done(&r);
}

static void a_lease_ends_an_allocation_that_nobody_claims(void **state) {
    struct rig r;
    rig_init(&r);
    rig_hello(&r, "n1", 4, 0, "b1", NULL, 0);
    uint64_t id = running(&r, 1, 60), kept = running(&r, 1, 0);
    for (int i = 0; i < 90; i++) {  // renewed: it stays
        core_lease_renew(r.core, id);
        core_schedule(r.core, r.now_ms += 1000);
    }
    assert_int_equal(rig_state(&r, id), JOB_RUNNING);
    r.now_ms += 3600 * 1000;  // the controller stood still: nobody could renew it
    core_schedule(r.core, r.now_ms);
    assert_int_equal(rig_state(&r, id), JOB_RUNNING);
    struct core *other = reloaded(&r);  // and after a start it has its full term
    int64_t at = r.now_ms;
    struct job_view v;
    for (int i = 0; i < 59; i++)
        core_schedule(other, at += 1000);
    assert_true(core_view(other, id, &v) && v.state == JOB_RUNNING);
    for (int i = 0; i < 5; i++)
        core_schedule(other, at += 1000);
    assert_true(core_view(other, id, &v) && v.state == JOB_COMPLETING);
    assert_string_equal(v.ending_reason, "its client was not connected for 60 s");
    assert_true(core_view(other, kept, &v) && v.state == JOB_RUNNING);
    core_free(other);
    rig_drain(&r);
    rig_done(&r);
}

static void a_clock_that_is_set_back_puts_no_lease_off(void **state) {
    struct rig r;
    rig_init(&r);
    rig_hello(&r, "n1", 4, 0, "b1", NULL, 0);
    uint64_t id = running(&r, 1, 60), gone = running(&r, 1, 60);
    for (int i = 0; i < 5; i++) {
        core_lease_renew(r.core, id);
        core_schedule(r.core, r.now_ms += 1000);
    }
    r.now_ms -= 500 * 1000;
    for (int i = 0; i < 90; i++) {
        core_lease_renew(r.core, id);
        core_schedule(r.core, r.now_ms += 1000);
    }
    assert_int_equal(rig_state(&r, id), JOB_RUNNING);
    assert_int_equal(rig_state(&r, gone), JOB_COMPLETING);
    r.now_ms += 500 * 1000;  // and forward again: nobody could renew it in between
    core_schedule(r.core, r.now_ms);
    assert_int_equal(rig_state(&r, id), JOB_RUNNING);
    rig_drain(&r);
    rig_done(&r);
}

// A launch that was lost with its connection took the job's steps on that node with it.
static void a_lost_launch_is_sent_again_with_its_steps(void **state) {
    struct rig r;
    uint32_t number;
    rig_init(&r);
    rig_hello(&r, "n1", 4, 0, "b1", NULL, 0);
    rig_hello(&r, "n2", 4, 0, "b2", NULL, 0);
    struct spec s = rig_spec();
    s.tasks = s.nodes_min = s.nodes_max = 2;
    uint64_t id = rig_submit(&r, &alice, &s);
    rig_started(&r, "n1", id, 1);
    assert_int_equal(rig_state(&r, id), JOB_RUNNING);
    assert_int_equal(create(r.core, &r, &alice, id, 2, NULL, &number), 0);
    assert_int_equal(effects(r.core, EFFECT_STEP), 1);  // the other node does not know the job yet
    rig_drain(&r);
    struct node n = {.name = "n2", .cpus = 4, .boot_id = "b2", .spool_id = "s", .memory_bytes = 64ull << 30};
    struct message_hello h = {.node = &n};
    struct error e = {0};
    assert_int_equal(core_agent_hello(r.core, &h, NULL, r.now_ms, &e), 0);
    assert_int_equal(effects(r.core, EFFECT_LAUNCH), 1);
    rig_drain(&r);
    core_agent_started(r.core, "n2", &(struct message_started){.id = id, .attempt = 1}, r.now_ms);
    assert_int_equal(effects(r.core, EFFECT_STEP), 1);
    rig_drain(&r);
    // Attempts of before are ended first: what a new one was given may still be in use.
    struct attempt old = {.id = id + 7, .attempt = 1, .state = ATTEMPT_RUNNING};
    uint64_t next = rig_submit(
        &r, &alice,
        &(struct spec){
            .name = "x", .workdir = "/tmp", .tasks = 3, .cpus_per_task = 1, .argv = rig_spec().argv});
    assert_int_equal(rig_state(&r, next), JOB_STARTING);
    struct attempt both[] = {old, {.id = id, .attempt = 1, .state = ATTEMPT_RUNNING}};
    struct node_view v;
    h.attempts.at = both;
    h.attempts.len = 2;
    n.name = core_runs_on(r.core, next, 1, "n1") ? "n1" : "n2";
    n.boot_id = n.name[1] == '1' ? "b1" : "b2";
    assert_int_equal(core_agent_hello(r.core, &h, NULL, r.now_ms, &e), 0);
    assert_int_equal(effects(r.core, EFFECT_LAUNCH), 0);
    assert_true(core_node(r.core, n.name, &v) && v.state == NODE_SILENT);
    core_agent_ended(r.core, n.name, &(struct message_ended){.id = id + 7, .attempt = 1}, r.now_ms);
    assert_int_equal(effects(r.core, EFFECT_LAUNCH), 1);
    assert_true(core_node(r.core, n.name, &v) && v.state == NODE_UP);
    rig_drain(&r);
    rig_done(&r);
}

static void a_lease_ends_a_step_that_nobody_claims(void **state) {
    struct rig r;
    uint32_t leased, kept;
    rig_init(&r);
    rig_hello(&r, "n1", 4, 0, "b1", NULL, 0);
    uint64_t id = running(&r, 4, 0);
    struct message_exec command = {0};
    struct step_request where = {.tasks = 1, .cpus_per_task = 1};
    struct core_step_request q = {
        .key = "k", .name = "work", .request = &where, .command = &command, .lease_s = 60};
    struct error e = {0};
    assert_int_equal(core_step_create(r.core, &alice, id, &q, r.now_ms, &leased, &e), 0);
    q.lease_s = 0;
    assert_int_equal(core_step_create(r.core, &alice, id, &q, r.now_ms, &kept, &e), 0);
    rig_drain(&r);
    for (int i = 0; i < 90; i++) {  // renewed: it stays
        core_step_renew(r.core, id, leased);
        core_schedule(r.core, r.now_ms += 1000);
    }
    core_step_renew(r.core, id, 77);  // of no step
    r.now_ms += 3600 * 1000;          // the controller stood still: nobody could renew it
    core_schedule(r.core, r.now_ms);
    assert_int_equal(effects(r.core, EFFECT_SEND), 0);
    rig_drain(&r);
    struct core *other = reloaded(&r);  // and after a start it has its full term
    int64_t at = r.now_ms;
    for (int i = 0; i < 59; i++)
        core_schedule(other, at += 1000);
    assert_int_equal(effects(other, EFFECT_SEND), 0);
    for (int i = 0; i < 5; i++)
        core_schedule(other, at += 1000);
    uint32_t kills = 0;
    for (uint32_t i = 0; i < core_outbox(other)->effects.len; i++) {
        cleanup_arena struct arena a = {0};
        const struct effect *x = &core_outbox(other)->effects.at[i];
        struct message m;
        if (x->type == EFFECT_SEND &&
            message_decode(core_outbox(other)->bytes.data + x->offset, x->len, &a, &m) == 0 &&
            m.type == MESSAGE_KILL) {
            assert_int_equal(((struct message_kill *)m.body)->step, leased);
            kills++;
        }
    }
    assert_int_equal(kills, 1);  // once, and only that step: the job goes on
    struct job_view v;
    assert_true(core_view(other, id, &v) && v.state == JOB_RUNNING);
    core_free(other);
    rig_drain(&r);
    rig_done(&r);
}

// A controller that follows another checks no leases, so that it has those of an earlier attempt too when it leads.
static void the_lease_of_an_earlier_attempt_does_not_count(void **state) {
    struct rig r;
    uint32_t number;
    rig_init(&r);
    rig_hello(&r, "n1", 4, 0, "b1", NULL, 0);
    uint64_t id = running(&r, 4, 0);
    struct message_exec command = {0};
    struct step_request where = {.tasks = 1, .cpus_per_task = 1};
    struct core_step_request q = {
        .key = "k", .name = "work", .request = &where, .command = &command, .lease_s = 60};
    struct error e = {0};
    assert_int_equal(core_step_create(r.core, &alice, id, &q, r.now_ms, &number, &e), 0);
    core_schedule(r.core, r.now_ms);  // the next check of leases comes after a second
    rig_drain(&r);
    rig_end(&r, "n1", id, 1, END_NODE_FAIL, 0);
    rig_started(&r, "n1", id, 2);
    q.key = "l";
    assert_int_equal(core_step_create(r.core, &alice, id, &q, r.now_ms, &number, &e), 0);
    rig_drain(&r);
    for (int i = 0; i < 59; i++)
        core_schedule(r.core, r.now_ms += 1000);
    assert_int_equal(effects(r.core, EFFECT_SEND), 0);
    for (int i = 0; i < 5; i++)
        core_schedule(r.core, r.now_ms += 1000);
    assert_int_equal(effects(r.core, EFFECT_SEND), 1);
    rig_drain(&r);
    rig_done(&r);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_lease_of_an_earlier_attempt_does_not_count),
        cmocka_unit_test(a_step_holds_its_part_until_it_ends),
        cmocka_unit_test(a_step_begins_only_where_its_job_runs),
        cmocka_unit_test(a_hello_makes_both_sides_agree),
        cmocka_unit_test(a_step_of_another_epoch_is_another_step),
        cmocka_unit_test(a_step_is_ended_until_it_has_ended),
        cmocka_unit_test(a_lease_ends_an_allocation_that_nobody_claims),
        cmocka_unit_test(a_clock_that_is_set_back_puts_no_lease_off),
        cmocka_unit_test(a_lost_launch_is_sent_again_with_its_steps),
        cmocka_unit_test(a_lease_ends_a_step_that_nobody_claims),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
