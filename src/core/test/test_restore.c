// Restores of older copies: the state goes back, the nodes do not. Numbers move on, unknown attempts become
// jobs again, and nothing is ended without a word.
#include "rig.h"
#include "restore_rig.h"

#include <errno.h>

#include "../state.h"
#include "sched/step_pack.h"

static void hello(struct rig *r, struct attempt *known, uint32_t count, struct journal_position *seen) {
    struct node n = {.name = "n1", .boot_id = "boot", .spool_id = "s", .cpus = 8, .memory_bytes = 64ull << 30};
    struct message_hello h = {.node = &n, .attempts = {known, count}, .seen = seen};
    assert_int_equal(core_agent_hello(r->core, &h, NULL, r->now_ms, NULL), 0);
    core_schedule(r->core, r->now_ms);
}

static uint32_t sent(struct rig *r, const char *node, enum message_type type) {  // node NULL: to any
    struct outbox *o = core_outbox(r->core);
    uint32_t n = 0;
    for (uint32_t i = 0; i < o->effects.len; i++) {
        cleanup_arena struct arena a = {0};
        struct message m;
        if (o->effects.at[i].type != EFFECT_SEND || (node && !streq(o->effects.at[i].node, node)))
            continue;
        assert_int_equal(message_decode(o->bytes.data + o->effects.at[i].offset, o->effects.at[i].len, &a, &m), 0);
        n += m.type == type;
    }
    return n;
}

static uint32_t describes(struct rig *r) {
    return sent(r, NULL, MESSAGE_DESCRIBE);
}

static void described(struct rig *r, struct remembered *k, struct message_ended *end) {
    struct message_attempt m = {.id = k->launch.id, .attempt = k->launch.attempt, .launch = &k->launch,
                                .start_ms = 1000500, .cpu_ids = "0-1", .end = end};
    core_agent_attempt(r->core, "n1", &m, r->now_ms);
    core_schedule(r->core, r->now_ms);
    rig_drain(r);
}

// One node, one job that runs; the copy is older than the job.
static uint64_t lost_job(struct rig *r, struct remembered *k, uint32_t *copy) {
    struct spec spec = rig_spec();
    rig_init(r);
    rig_hello(r, "n1", 8, 0, "boot", NULL, 0);
    rig_submit(r, &alice, &spec);
    rig_end(r, "n1", 1, 1, END_EXIT, 0);
    *copy = r->journal.len;
    uint64_t id = rig_submit(r, &alice, &spec);
    rig_started(r, "n1", id, 1);
    remember(r, "n1", id, 1, k);
    return id;
}

static void test_unknown_attempt_becomes_a_job(void **state) {
    struct rig r;
    struct remembered k;
    uint32_t copy;
    uint64_t id = lost_job(&r, &k, &copy);
    restore(&r, copy);
    struct attempt known = attempt_of(&k);
    struct node_view v;
    hello(&r, &known, 1, NULL);
    assert_int_equal(describes(&r), 1);
    rig_drain(&r);
    assert_int_equal(r.kills, 0);
    assert_true(core_node(r.core, "n1", &v) && v.state != NODE_UP);  // no new work before it is known
    described(&r, &k, NULL);
    struct job_view view;
    assert_true(core_view(r.core, id, &view));
    assert_int_equal(view.state, JOB_RUNNING);
    assert_string_equal(view.user, "alice");
    assert_non_null(strstr(view.ending_reason, "restored from an older copy"));
    assert_int_equal(view.start_ms, 1000500);
    assert_true(core_node(r.core, "n1", &v) && v.state == NODE_UP && v.cpus_used == 1);
    assert_true(core_restore_ms(r.core) > 0);
    // New jobs have other numbers, and run beside it.
    struct spec spec = rig_spec();
    uint64_t next = rig_submit(&r, &bob, &spec);
    assert_true(next > id);
    assert_int_equal(rig_state(&r, next), JOB_STARTING);
    // It can be cancelled, and its end is recorded under its number.
    struct error e = {0};
    assert_int_equal(do_cancel(r.core, &alice, id, &(struct command_cancel){0}, r.now_ms, &e), 0);
    rig_drain(&r);
    assert_int_equal(r.kills, 1);
    rig_end(&r, "n1", id, 1, END_CANCEL, 0);
    assert_int_equal(r.last_state, JOB_CANCELLED);
    assert_int_equal(rig_state(&r, id), JOB_STATE_COUNT);
    arena_done(&k.arena);
    rig_done(&r);
}

// A node may be hostile: times that it makes up would spoil every report that they are in.
static void test_times_that_cannot_be(void **state) {
    static const int64_t times[] = {INT64_MAX, INT64_MIN, -1};
    for (size_t i = 0; i < sizeof times / sizeof *times; i++) {
        struct rig r;
        struct remembered k;
        uint32_t copy;
        uint64_t id = lost_job(&r, &k, &copy);
        restore(&r, copy);
        struct attempt known = attempt_of(&k);
        hello(&r, &known, 1, NULL);
        rig_drain(&r);
        k.launch.submit_ms = times[i];
        struct message_attempt m = {
            .id = id, .attempt = k.launch.attempt, .launch = &k.launch, .start_ms = times[i]};
        assert_true(core_agent_attempt(r.core, "n1", &m, r.now_ms));
        assert_false(core_agent_attempt(r.core, "n1", &m, r.now_ms));  // nobody asked for it again
        struct job_view view;
        assert_true(core_view(r.core, id, &view));
        assert_in_range(view.submit_ms, 1, r.now_ms);
        assert_in_range(view.start_ms, 1, r.now_ms);
        arena_done(&k.arena);
        rig_done(&r);
    }
}

// A script without arguments: there is nothing else to show as its command.
static void test_a_lost_script(void **state) {
    struct rig r;
    struct remembered k;
    struct spec spec = rig_spec();
    rig_init(&r);
    rig_hello(&r, "n1", 8, 0, "boot", NULL, 0);
    uint32_t copy = r.journal.len;
    spec.argv.len = 0;
    spec.script_id = "0123456789abcdef0123456789abcdef";
    spec.script_bytes = 10;
    uint64_t id = rig_submit(&r, &alice, &spec);
    rig_started(&r, "n1", id, 1);
    remember(&r, "n1", id, 1, &k);
    restore(&r, copy);
    struct attempt known = attempt_of(&k);
    hello(&r, &known, 1, NULL);
    rig_drain(&r);
    described(&r, &k, NULL);
    assert_int_equal(rig_state(&r, id), JOB_RUNNING);
    struct error e = {0};
    struct command_requeue again = {.id = id};
    assert_int_equal(rig_command(r.core, &alice, COMMAND_REQUEUE, &again, r.now_ms, &e), -ENOTSUP);
    arena_done(&k.arena);
    rig_done(&r);
}

static void test_its_end_is_recorded(void **state) {
    struct rig r;
    struct remembered k;
    uint32_t copy;
    uint64_t id = lost_job(&r, &k, &copy);
    restore(&r, copy);
    struct attempt known = attempt_of(&k);
    struct message_ended end = {.id = id, .attempt = 1, .cause = END_EXIT, .exit_code = 3, .start_ms = 1000500};
    known.state = ATTEMPT_ENDED;
    known.end = &end;
    hello(&r, &known, 1, NULL);
    rig_drain(&r);
    assert_int_equal(r.acks, 0);
    described(&r, &k, &end);
    assert_int_equal(r.finished, 1);
    assert_int_equal(r.last_state, JOB_FAILED);
    assert_int_equal(r.acks, 1);
    arena_done(&k.arena);
    rig_done(&r);
}

// A job was submitted before any node could report, and has the number of one that runs.
static void test_number_taken_meanwhile(void **state) {
    struct rig r;
    struct remembered k;
    uint32_t copy;
    uint64_t id = lost_job(&r, &k, &copy);
    restore(&r, copy);
    struct spec spec = rig_spec();
    assert_int_equal(rig_submit(&r, &bob, &spec), id);
    struct attempt known = attempt_of(&k);
    hello(&r, &known, 1, NULL);
    rig_drain(&r);
    described(&r, &k, NULL);
    // Bob's job has its number and starts as another attempt than the one the node knows.
    struct job_view view;
    assert_true(core_view(r.core, id, &view));
    assert_string_equal(view.user, "bob");
    assert_int_equal(view.state, JOB_STARTING);
    assert_int_equal(view.attempt, 2);
    // Alice's is there under another number, and its end is told by the number the node knows.
    uint64_t other = id + 1000;
    while (!core_view(r.core, other, &view) && other < id + 3000)
        other++;
    assert_true(core_view(r.core, other, &view));
    assert_string_equal(view.user, "alice");
    assert_int_equal(view.state, JOB_RUNNING);
    cleanup_buf struct buf snapshot = {0};
    core_snapshot(r.core, &snapshot);
    struct core_config config;
    core_config_default(&config);
    struct core *again = core_new(&config);
    assert_int_equal(core_load_snapshot(again, core_seq(r.core), snapshot.data, snapshot.len, NULL), 0);
    core_agent_ended(again, "n1", &(struct message_ended){.id = id, .attempt = 1, .cause = END_EXIT, .start_ms = 5}, 9);
    assert_false(core_view(again, other, &view));
    assert_true(core_view(again, id, &view));
    core_free(again);
    rig_end(&r, "n1", id, 1, END_EXIT, 0);
    assert_int_equal(rig_state(&r, other), JOB_STATE_COUNT);
    assert_int_equal(rig_state(&r, id), JOB_STARTING);
    arena_done(&k.arena);
    rig_done(&r);
}

// The copy has the job as pending: it is the same job, and is not started again.
static void test_pending_in_the_copy(void **state) {
    struct rig r;
    struct remembered k;
    struct spec spec = rig_spec();
    rig_init(&r);
    uint64_t id = rig_submit(&r, &alice, &spec);
    uint32_t copy = r.journal.len;
    rig_hello(&r, "n1", 8, 0, "boot", NULL, 0);
    remember(&r, "n1", id, 1, &k);
    rig_started(&r, "n1", id, 1);
    restore(&r, copy);
    struct attempt known = attempt_of(&k);
    hello(&r, &known, 1, NULL);
    rig_drain(&r);
    described(&r, &k, NULL);
    assert_int_equal(rig_state(&r, id), JOB_RUNNING);
    assert_int_equal(r.launches.len, 0);
    rig_end(&r, "n1", id, 1, END_EXIT, 0);
    assert_int_equal(r.last_state, JOB_COMPLETED);
    arena_done(&k.arena);
    rig_done(&r);
}

// Placed in the copy and not started: whether it ran since then nobody knows, so it is not launched again as
// the same attempt.
static void test_not_started_in_the_copy(void **state) {
    struct rig r;
    struct spec spec = rig_spec();
    rig_init(&r);
    rig_hello(&r, "n1", 8, 0, "boot", NULL, 0);
    uint64_t id = rig_submit(&r, &alice, &spec);
    assert_int_equal(rig_state(&r, id), JOB_STARTING);
    uint32_t copy = r.journal.len;
    struct journal_position seen;
    rig_started(&r, "n1", id, 1);
    rig_end(&r, "n1", id, 1, END_EXIT, 0);
    assert_true(core_position(r.core, core_seq(r.core), &seen));
    restore(&r, copy);
    hello(&r, NULL, 0, &seen);
    rig_drain(&r);
    for (uint32_t i = 0; i < r.launches.len; i++)
        assert_int_equal(r.launches.at[i].attempt, 2);
    assert_int_equal(r.launches.len, 1);
    rig_done(&r);
}

// A restart without a restore: what was given up is killed as ever, and nothing is taken for a restore.
static void test_plain_restart(void **state) {
    struct rig r;
    struct remembered k;
    uint32_t copy;
    uint64_t id = lost_job(&r, &k, &copy);
    struct journal_position seen;
    assert_true(core_position(r.core, core_seq(r.core), &seen));
    core_node_lost(r.core, "n1", "silent", r.now_ms);
    rig_drain(&r);
    restore(&r, r.journal.len);
    struct attempt known = attempt_of(&k);
    hello(&r, &known, 1, &seen);
    assert_int_equal(describes(&r), 0);
    rig_drain(&r);
    assert_int_equal(r.kills, 1);
    assert_int_equal(core_restore_ms(r.core), 0);
    assert_int_equal(rig_submit(&r, &alice, &(struct spec){.name = "x", .workdir = "/tmp", .tasks = 1, .cpus_per_task = 1,
                                                           .argv = rig_spec().argv}), id + 1);
    arena_done(&k.arena);
    rig_done(&r);
}

// The clock was set back meanwhile: epochs grow all the same. A node that lies about them is bounded.
static void test_epochs_grow(void **state) {
    struct rig r;
    rig_init(&r);
    struct journal_position at, later = {.epoch = 5000000000000, .seq = 7, .next_id = 1ull << 60};
    assert_true(core_position(r.core, core_seq(r.core), &at));
    r.now_ms -= 500000;
    restore(&r, r.journal.len);
    struct journal_position second;
    assert_true(core_position(r.core, core_seq(r.core), &second));
    assert_true(second.epoch > at.epoch);
    hello(&r, NULL, 0, &later);
    rig_drain(&r);
    assert_true(core_position(r.core, core_seq(r.core), &second));
    assert_true(second.epoch > later.epoch && second.next_id < 1ull << 26);
    uint64_t seq = core_seq(r.core);
    later = (struct journal_position){.epoch = UINT64_MAX, .seq = 7, .next_id = 1ull << 60};
    hello(&r, NULL, 0, &later);
    assert_int_equal(core_seq(r.core), seq);
    rig_done(&r);
}

// The clock was set back before the copy was put in place: the new controller's epoch is not that of the lost one.
static void test_epochs_differ_with_a_clock_set_back(void **state) {
    struct rig r;
    struct remembered k;
    struct spec spec = rig_spec();
    rig_init(&r);
    rig_hello(&r, "n1", 8, 0, "boot", NULL, 0);
    uint32_t copy = r.journal.len;
    r.now_ms -= 500000;
    epoch_random = 77;
    restore(&r, copy);  // a start like any other
    hello(&r, NULL, 0, NULL);
    uint64_t id = rig_submit(&r, &alice, &spec);
    rig_started(&r, "n1", id, 1);
    remember(&r, "n1", id, 1, &k);
    epoch_random = 4711;
    restore(&r, copy);
    struct attempt known = attempt_of(&k);
    hello(&r, &known, 1, NULL);
    assert_int_equal(describes(&r), 1);
    rig_drain(&r);
    assert_int_equal(r.kills, 0);
    epoch_random = 0;
    arena_done(&k.arena);
    rig_done(&r);
}

static uint32_t step(struct rig *r, uint64_t id) {
    struct message_exec command = {0};
    struct step_request where = {.tasks = 1, .cpus_per_task = 1, .overlap = true};
    struct core_step_request q = {.name = "work", .request = &where, .command = &command};
    struct error e = {0};
    uint32_t number = 0;
    assert_int_equal(core_step_create(r->core, &alice, id, &q, r->now_ms, &number, &e), 0);
    return number;
}

// Steps of the lost state are left alone, new ones have other numbers; one that the copy has as running and the node
// does not know is not started again.
static void test_steps_of_a_lost_state(void **state) {
    struct rig r;
    struct remembered k;
    struct spec spec = rig_spec();
    struct journal_position seen;
    struct core_step_view v;
    rig_init(&r);
    rig_hello(&r, "n1", 8, 0, "boot", NULL, 0);
    uint64_t id = rig_submit(&r, &alice, &spec);
    rig_started(&r, "n1", id, 1);
    remember(&r, "n1", id, 1, &k);
    uint32_t first = step(&r, id);
    rig_drain(&r);
    uint32_t copy = r.journal.len;
    assert_int_equal(step(&r, id), 2);
    rig_drain(&r);
    assert_true(core_position(r.core, core_seq(r.core), &seen));
    restore(&r, copy);
    struct attempt known = attempt_of(&k);
    struct step_state runs[] = {{.step = 2}};
    known.steps.at = runs;
    known.steps.len = 1;
    known.last_step = 9;
    hello(&r, &known, 1, &seen);
    for (uint32_t i = 0; i < core_outbox(r.core)->effects.len; i++)
        assert_int_not_equal(core_outbox(r.core)->effects.at[i].type, EFFECT_STEP);
    rig_drain(&r);
    assert_int_equal(r.kills, 0);
    assert_true(core_step_view(r.core, id, first, NULL, &v) && v.ended);
    assert_non_null(strstr(v.ended->ends.at[0].error, "restored"));
    assert_true(step(&r, id) > 9);
    rig_drain(&r);
    arena_done(&k.arena);
    rig_done(&r);
}

static void hello_as(struct rig *r, const char *name, struct attempt *known, uint32_t count) {
    struct node n = {
        .name = name, .boot_id = "boot", .spool_id = "s", .cpus = 2, .memory_bytes = 64ull << 30};
    struct message_hello h = {.node = &n, .attempts = {known, count}};
    assert_int_equal(core_agent_hello(r->core, &h, NULL, r->now_ms, NULL), 0);
    core_schedule(r->core, r->now_ms);
    rig_drain(r);
}

// A rig with two nodes, how much of its journal an older copy would have, and a job that needs both nodes.
static struct spec two_nodes(struct rig *r, uint32_t *copy) {
    struct spec spec = rig_spec();
    rig_init(r);
    rig_hello(r, "n1", 2, 0, "boot", NULL, 0);
    rig_hello(r, "n2", 2, 0, "boot", NULL, 0);
    *copy = r->journal.len;
    spec.tasks = spec.nodes_min = spec.nodes_max = 2;
    return spec;
}

// n1 has said what it runs, and that a job of both nodes is not among it: the room there is not taken by that job when
// n2 describes it, but stays for what n1 does run.
static void test_a_node_that_has_spoken_is_believed(void **state) {
    struct rig r;
    struct remembered wide, single;
    uint32_t copy;
    struct spec spec = two_nodes(&r, &copy);
    uint64_t first = rig_submit(&r, &alice, &spec);
    remember(&r, "n1", first, 1, &wide);
    rig_started(&r, "n1", first, 1);
    rig_started(&r, "n2", first, 1);
    rig_end(&r, "n1", first, 1, END_EXIT, 0);
    rig_end(&r, "n2", first, 1, END_EXIT, 0);
    spec.nodes_min = spec.nodes_max = 1;
    uint64_t second = rig_submit(&r, &alice, &spec);
    assert_int_equal(rig_state(&r, second), JOB_STARTING);
    const char *node = core_runs_on(r.core, second, 1, "n1") ? "n1" : "n2",
               *other = node[1] == '1' ? "n2" : "n1";
    single = (struct remembered){0};
    assert_int_equal(core_launch(r.core, second, 1, node, &single.arena, &single.launch), 0);
    single.launch = *(struct message_launch *)schema_copy(message_info(MESSAGE_LAUNCH)->schema,
                                                          &single.launch, &single.arena);
    restore(&r, copy);
    core_agent_gone(r.core, "n2", r.now_ms);
    struct attempt a = attempt_of(&single), b = attempt_of(&wide);
    hello_as(&r, node, &a, 1);
    hello_as(&r, other, &b, 1);
    struct message_attempt m = {.id = first, .attempt = 1, .launch = &wide.launch, .start_ms = 1000500};
    for (uint32_t i = 0; i < m.launch->parts.len; i++)
        if (m.launch->parts.at[i].node[1] == other[1])
            m.launch->part = &m.launch->parts.at[i];
    core_agent_attempt(r.core, other, &m, r.now_ms);
    m = (struct message_attempt){
        .id = second, .attempt = 1, .launch = &single.launch, .start_ms = r.now_ms + 7200000};
    core_agent_attempt(r.core, node, &m, r.now_ms);
    rig_drain(&r);
    struct job_view v;
    assert_true(core_view(r.core, second, &v) && v.state == JOB_RUNNING);
    assert_true(v.start_ms <= r.now_ms);  // the node's clock is ahead
    assert_true(core_view(r.core, first, &v) && v.state == JOB_RUNNING);
    arena_done(&wide.arena);
    arena_done(&single.arena);
    rig_done(&r);
}

static void describe_part(struct rig *r, struct remembered *k, const char *node, struct message_ended *end) {
    for (uint32_t i = 0; i < k->launch.parts.len; i++)
        if (streq(k->launch.parts.at[i].node, node))
            k->launch.part = &k->launch.parts.at[i];
    struct message_attempt m = {.id = k->launch.id,
                                .attempt = k->launch.attempt,
                                .launch = &k->launch,
                                .start_ms = 1000500,
                                .end = end};
    core_agent_attempt(r->core, node, &m, r->now_ms);
    rig_drain(r);
}

// After two restores n1 and n2 have attempts of one number and of two lives of the controller: they are two jobs, and
// the end and the use of one are not the other's.
static void test_one_number_in_two_epochs(void **state) {
    struct rig r;
    struct remembered old, new;
    uint32_t copy;
    struct spec spec = two_nodes(&r, &copy);
    uint64_t id = rig_submit(&r, &alice, &spec);
    remember(&r, "n1", id, 1, &old);
    remember(&r, "n2", id, 1, &new);
    new.launch.epoch++;
    restore(&r, copy);
    struct attempt a = attempt_of(&old), b = attempt_of(&new);
    hello_as(&r, "n1", &a, 1);
    hello_as(&r, "n2", &b, 1);
    describe_part(&r, &new, "n2", NULL);
    assert_int_equal(rig_state(&r, id), JOB_RUNNING);
    assert_false(core_runs_on(r.core, id, 1, "n1"));
    struct usage used = {.wall_ms = 17};
    struct message_ended end = {.cause = END_EXIT, .start_ms = 1000500, .usage = &used};
    describe_part(&r, &old, "n1", &end);
    assert_int_equal(r.finished, 1);  // n1's, with its use
    assert_int_equal(rig_state(&r, id), JOB_RUNNING);
    rig_end(&r, "n2", id, 1, END_EXIT, 0);
    assert_int_equal(rig_state(&r, id), JOB_STATE_COUNT);
    assert_int_equal(r.finished, 2);
    arena_done(&old.arena);
    arena_done(&new.arena);
    rig_done(&r);
}

static void reload(struct rig *r) {
    cleanup_buf struct buf before = {0}, after = {0};
    struct core_config config;
    struct error e = {0};
    core_config_default(&config);
    core_snapshot(r->core, &before);
    struct core *again = core_new(&config);
    assert_int_equal(core_load_snapshot(again, core_seq(r->core), before.data, before.len, &e), 0);
    core_assert(again);
    core_snapshot(again, &after);
    assert_int_equal(before.len, after.len);
    assert_memory_equal(before.data, after.data, before.len);
    core_free(again);
}

// A job of two nodes, of which one was given up when the other described it: `late` reports its part afterwards, and
// that is part of the same job, in its old place, with its use.
static void parts_report_one_after_the_other(const char *late, bool ends_first) {
    struct rig r;
    struct remembered k;
    uint32_t copy;
    struct spec spec = two_nodes(&r, &copy);
    const char *early = late[1] == '1' ? "n2" : "n1", *names[4] = {0};
    uint64_t id = rig_submit(&r, &alice, &spec);
    remember(&r, "n1", id, 1, &k);
    restore(&r, copy);
    core_node_lost(r.core, late, "does not answer", r.now_ms);
    struct attempt a = attempt_of(&k);
    hello_as(&r, early, &a, 1);
    describe_part(&r, &k, early, NULL);
    assert_true(core_runs_on(r.core, id, 1, early) && !core_runs_on(r.core, id, 1, late));
    struct usage used = {.wall_ms = 17};
    struct message_ended end = {.cause = END_EXIT, .start_ms = 1000500, .usage = &used};
    hello_as(&r, late, &a, 1);
    describe_part(&r, &k, late, ends_first ? &end : NULL);
    struct job_view v;
    assert_false(core_view(r.core, 1009, &v));
    assert_int_equal(r.finished, 0);
    assert_int_equal(core_job_node_names(r.core, id, names, 4), 2);
    for (uint32_t i = 0; i < k.launch.parts.len; i++)
        assert_string_equal(names[i], k.launch.parts.at[i].node);
    reload(&r);
    hello_as(&r, late, ends_first ? NULL : &a, !ends_first);  // it is known from now on
    assert_int_equal(describes(&r), 0);
    rig_drain(&r);
    if (!ends_first)
        rig_end(&r, late, id, 1, END_EXIT, 0);
    rig_end(&r, early, id, 1, END_EXIT, 0);
    assert_int_equal(r.finished, 1);
    assert_int_equal(rig_state(&r, id), JOB_STATE_COUNT);
    arena_done(&k.arena);
    rig_done(&r);
}

static void test_parts_report_one_after_the_other(void **state) {
    parts_report_one_after_the_other("n1", false);
    parts_report_one_after_the_other("n2", false);
    parts_report_one_after_the_other("n1", true);
    parts_report_one_after_the_other("n2", true);
}

// A step on both nodes of a job. Its first node describes it before the other one has reported its part of the job: it
// is asked again when that part joins, and the step is adopted then.
static void test_a_step_waits_for_the_part_of_a_later_node(void **state) {
    struct rig r;
    struct remembered k;
    uint32_t copy, number = 0;
    struct spec spec = two_nodes(&r, &copy);
    struct error e = {0};
    uint64_t id = rig_submit(&r, &alice, &spec);
    remember(&r, "n1", id, 1, &k);
    rig_started(&r, "n1", id, 1);
    rig_started(&r, "n2", id, 1);
    struct message_exec command = {0}, exec;
    struct step_request where = {.tasks = 2, .nodes = 2, .cpus_per_task = 1};
    struct core_step_request q = {.key = "wide", .name = "work", .request = &where, .command = &command};
    assert_int_equal(core_step_create(r.core, &alice, id, &q, r.now_ms, &number, &e), 0);
    rig_drain(&r);
    const char *first = k.launch.parts.at[0].node, *late = k.launch.parts.at[1].node, *environment;
    assert_int_equal(core_step_message(r.core, id, 1, number, first, &k.arena, &exec, &environment), 0);
    restore(&r, copy);
    core_node_lost(r.core, late, "does not answer", r.now_ms);
    struct attempt a = attempt_of(&k);
    struct step_state listed = {.step = number, .epoch = exec.epoch, .seq = exec.seq};
    struct message_attempt m = {
        .id = id, .attempt = 1, .launch = &k.launch, .start_ms = 1000500, .steps = {&listed, 1}};
    struct message_step_known known = {
        .id = id, .attempt = 1, .step = number, .epoch = exec.epoch, .known = true};
    struct message_step_known described = known;
    described.origin = exec.origin;
    struct core_step_view v;
    hello_as(&r, first, &a, 1);
    k.launch.part = &k.launch.parts.at[0];
    core_agent_attempt(r.core, first, &m, r.now_ms);
    assert_int_equal(sent(&r, first, MESSAGE_STEP_DESCRIBE), 1);
    rig_drain(&r);
    core_agent_step_known(r.core, first, &described, r.now_ms);
    core_agent_step_known(r.core, first, &described, r.now_ms);  // a repeat does not count twice
    rig_drain(&r);
    assert_false(core_step_view(r.core, id, number, NULL, &v));
    hello_as(&r, late, &a, 1);
    k.launch.part = &k.launch.parts.at[1];
    core_agent_attempt(r.core, late, &m, r.now_ms);
    assert_true(core_runs_on(r.core, id, 1, late));
    assert_int_equal(sent(&r, first, MESSAGE_STEP_DESCRIBE), 1);
    rig_drain(&r);
    core_agent_step_known(r.core, late, &known, r.now_ms);  // only the first node knows how it was created
    core_agent_step_known(r.core, first, &described, r.now_ms);
    rig_drain(&r);
    assert_true(core_step_of_client(r.core, id, "wide", exec.epoch, &v) && v.number == number && !v.ended);
    assert_int_equal(v.started->parts.len, 2);
    assert_int_equal(r.kills, 0);
    reload(&r);
    arena_done(&k.arena);
    rig_done(&r);
}

// A step of the lost state runs on a CPU that was given to a new one before its node reported it: its client finds it,
// and the new one keeps what it holds.
static void test_a_step_whose_cpus_are_given_away(void **state) {
    struct rig r;
    struct remembered k;
    struct spec spec = rig_spec();
    struct core_step_view v;
    struct message_exec command = {0}, exec;
    struct step_request where = {.tasks = 1, .cpus_per_task = 1};
    struct core_step_request q = {.key = "old", .name = "work", .request = &where, .command = &command};
    struct error e = {0};
    uint32_t number = 0, newer = 0;
    const char *environment;
    rig_init(&r);
    rig_hello(&r, "n1", 8, 0, "boot", NULL, 0);
    spec.cpus_per_task = 1;
    uint64_t id = rig_submit(&r, &alice, &spec);
    rig_started(&r, "n1", id, 1);
    remember(&r, "n1", id, 1, &k);
    rig_drain(&r);
    uint32_t copy = r.journal.len;
    step(&r, id);
    assert_int_equal(core_step_create(r.core, &alice, id, &q, r.now_ms, &number, &e), 0);
    assert_int_equal(number, 2);
    rig_drain(&r);
    assert_int_equal(core_step_message(r.core, id, 1, number, "n1", &k.arena, &exec, &environment), 0);
    restore(&r, copy);
    q.key = "new";
    assert_int_equal(core_step_create(r.core, &alice, id, &q, r.now_ms, &newer, &e), 0);
    assert_int_equal(newer, 1);
    rig_drain(&r);
    struct attempt known = attempt_of(&k);
    struct step_state runs = {.step = number, .epoch = exec.epoch, .seq = exec.seq};
    known.steps.at = &runs;
    known.steps.len = 1;
    hello(&r, &known, 1, NULL);
    rig_drain(&r);
    struct message_step_known described = {
        .id = id, .attempt = 1, .step = number, .epoch = exec.epoch, .known = true, .origin = exec.origin};
    core_agent_step_known(r.core, "n1", &described, r.now_ms);
    rig_drain(&r);
    assert_true(core_step_of_client(r.core, id, "old", exec.epoch, &v) && v.number == number && !v.ended);
    assert_int_equal(v.started->parts.at[0].cpus.len, 0);
    assert_true(core_step_of_client(r.core, id, "new", 0, &v) && v.number == newer && !v.ended);
    assert_int_equal(v.started->parts.at[0].cpus.len, 1);
    reload(&r);
    arena_done(&k.arena);
    rig_done(&r);
}

// A running step that takes a CPU on each of `nodes` nodes for itself; its message, as its first node keeps it.
static struct message_exec own_step(struct rig *r, uint64_t id, const char *key, uint32_t nodes,
                                    struct arena *a) {
    struct message_exec command = {0}, exec;
    struct step_request where = {.tasks = nodes, .nodes = nodes, .cpus_per_task = 1};
    struct core_step_request q = {.key = key, .name = "work", .request = &where, .command = &command};
    struct core_step_view v;
    struct error e = {0};
    const char *environment;
    uint32_t number = 0;
    assert_int_equal(core_step_create(r->core, &alice, id, &q, r->now_ms, &number, &e), 0);
    rig_drain(r);
    assert_true(core_step_view(r->core, id, number, NULL, &v));
    assert_int_equal(
        core_step_message(r->core, id, 1, number, v.started->parts.at[0].node, a, &exec, &environment), 0);
    return exec;
}

static void end_step_on(struct rig *r, const char *node, uint64_t id, const struct message_exec *x) {
    struct step_end end = {.id = id, .attempt = 1, .step = x->step, .epoch = x->epoch, .made_seq = x->seq};
    core_agent_step_ended(r->core, node, &end, r->now_ms);
    rig_drain(r);
}

static struct message_step_known known_step(uint64_t id, const struct message_exec *x) {
    return (struct message_step_known){
        .id = id, .attempt = 1, .step = x->step, .epoch = x->epoch, .known = true, .origin = x->origin};
}

// Two states are lost, and each had a step of the same number: one of them is adopted, also when it has ended by then.
static void test_two_lost_steps_of_one_number(void **state) {
    struct rig r;
    struct remembered k;
    struct spec spec = rig_spec();
    struct core_step_view v;
    struct message_exec command = {0}, exec[2];
    struct step_request where = {.tasks = 1, .cpus_per_task = 1};
    struct core_step_request q = {.name = "work", .request = &where, .command = &command};
    struct error e = {0};
    const char *keys[] = {"first", "second"}, *environment;
    rig_init(&r);
    rig_hello(&r, "n1", 8, 0, "boot", NULL, 0);
    spec.cpus_per_task = 2;
    uint64_t id = rig_submit(&r, &alice, &spec);
    rig_started(&r, "n1", id, 1);
    remember(&r, "n1", id, 1, &k);
    rig_drain(&r);
    uint32_t copy = r.journal.len, number = 0;
    for (int i = 0; i < 2; i++) {
        q.key = keys[i];
        assert_int_equal(core_step_create(r.core, &alice, id, &q, r.now_ms, &number, &e), 0);
        assert_int_equal(number, 1);
        rig_drain(&r);
        assert_int_equal(core_step_message(r.core, id, 1, number, "n1", &k.arena, &exec[i], &environment), 0);
        restore(&r, copy);
    }
    assert_true(exec[0].epoch != exec[1].epoch);
    struct attempt known = attempt_of(&k);
    struct step_state runs = {.step = 1, .epoch = exec[1].epoch, .seq = exec[1].seq};
    known.steps.at = &runs;
    known.steps.len = 1;
    hello(&r, &known, 1, NULL);
    rig_drain(&r);
    for (int i = 1; i >= 0; i--) {
        struct message_step_known described = {.id = id,
                                               .attempt = 1,
                                               .step = 1,
                                               .epoch = exec[i].epoch,
                                               .known = true,
                                               .origin = exec[i].origin};
        core_agent_step_known(r.core, "n1", &described, r.now_ms);
        rig_drain(&r);
        bool adopted = core_step_of_client(r.core, id, keys[i], exec[i].epoch, &v) && !v.ended;
        assert_int_equal(adopted, i == 1);
        struct step_end end = {.id = id, .attempt = 1, .step = 1, .epoch = exec[i].epoch, .cause = END_EXIT};
        core_agent_step_ended(r.core, "n1", &end, r.now_ms);
        rig_drain(&r);
    }
    reload(&r);
    arena_done(&k.arena);
    rig_done(&r);
}

// The end of step 1 and the start of step 2, which has its CPU, are lost, and the node has seen no other event of that
// time: step 2 is the proof that the state was restored. Step 1 is over, and step 2 is adopted.
static void test_a_step_proves_the_restore(void **state) {
    struct rig r;
    struct remembered k;
    struct spec spec = rig_spec();
    struct core_step_view v;
    rig_init(&r);
    rig_hello(&r, "n1", 8, 0, "boot", NULL, 0);
    spec.tasks = spec.cpus_per_task = 1;
    uint64_t id = rig_submit(&r, &alice, &spec);
    rig_started(&r, "n1", id, 1);
    remember(&r, "n1", id, 1, &k);
    struct message_exec first = own_step(&r, id, "first", 1, &k.arena);
    uint32_t copy = r.journal.len;
    end_step_on(&r, "n1", id, &first);
    struct message_exec second = own_step(&r, id, "second", 1, &k.arena);
    restore(&r, copy);
    struct attempt listed = attempt_of(&k);
    struct step_state runs = {.step = second.step, .epoch = second.epoch, .seq = second.seq};
    listed.steps.at = &runs;
    listed.steps.len = 1;
    listed.last_step = second.step;
    hello(&r, &listed, 1, NULL);
    assert_true(core_restore_ms(r.core) != 0);
    for (uint32_t i = 0; i < core_outbox(r.core)->effects.len; i++)
        assert_int_not_equal(core_outbox(r.core)->effects.at[i].type, EFFECT_STEP);
    assert_int_equal(sent(&r, "n1", MESSAGE_STEP_DESCRIBE), 1);
    rig_drain(&r);
    assert_true(core_step_view(r.core, id, first.step, NULL, &v) && v.ended);
    struct message_step_known known = known_step(id, &second);
    core_agent_step_known(r.core, "n1", &known, r.now_ms);
    assert_true(core_step_of_client(r.core, id, "second", second.epoch, &v) && v.number == second.step &&
                !v.ended);
    // A step that is created now cannot have been in the lost state: it is sent again when its message is lost.
    core_step_part_over(r.core, core_find_job(r.core, id),
                        core_step_same(core_find_job(r.core, id), second.step, second.epoch), "n1",
                        &(struct step_end){.id = id, .attempt = 1, .step = second.step}, r.now_ms);
    rig_drain(&r);
    struct message_exec third = own_step(&r, id, "third", 1, &k.arena);
    hello(&r, &listed, 1, &(struct journal_position){.epoch = second.epoch, .seq = second.seq});
    uint32_t steps = 0;
    for (uint32_t i = 0; i < core_outbox(r.core)->effects.len; i++)
        steps += core_outbox(r.core)->effects.at[i].type == EFFECT_STEP;
    assert_int_equal(steps, 1);
    rig_drain(&r);
    assert_true(core_step_view(r.core, id, third.step, NULL, &v) && !v.ended);
    reload(&r);
    arena_done(&k.arena);
    rig_done(&r);
}

// A node that has another name by now ends an attempt of the lost state. The job gets an attempt of the same number,
// and what is said once more of the end of the first is not taken for its own.
static void test_the_end_of_an_attempt_of_the_same_number(void **state) {
    struct rig r;
    struct remembered k;
    uint32_t copy;
    uint64_t id = lost_job(&r, &k, &copy);
    struct spec spec = rig_spec();
    restore(&r, copy);
    hello(&r, NULL, 0, NULL);
    assert_int_equal(rig_submit(&r, &alice, &spec), id);
    assert_int_equal(rig_state(&r, id), JOB_STARTING);
    struct message_ended old = {
        .id = id, .attempt = 1, .epoch = k.launch.epoch, .cause = END_EXIT, .start_ms = 1000500};
    core_agent_ended(r.core, "n1", &old, r.now_ms);
    assert_int_equal(sent(&r, "n1", MESSAGE_ACK), 1);  // the node may forget it
    rig_drain(&r);
    assert_int_equal(rig_state(&r, id), JOB_STARTING);
    rig_end(&r, "n1", id, 1, END_EXIT, 0);
    assert_int_equal(rig_state(&r, id), JOB_STATE_COUNT);
    arena_done(&k.arena);
    rig_done(&r);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_unknown_attempt_becomes_a_job),
        cmocka_unit_test(test_times_that_cannot_be),
        cmocka_unit_test(test_a_lost_script),
        cmocka_unit_test(test_its_end_is_recorded),
        cmocka_unit_test(test_number_taken_meanwhile),
        cmocka_unit_test(test_pending_in_the_copy),
        cmocka_unit_test(test_not_started_in_the_copy),
        cmocka_unit_test(test_plain_restart),
        cmocka_unit_test(test_epochs_grow),
        cmocka_unit_test(test_steps_of_a_lost_state),
        cmocka_unit_test(test_epochs_differ_with_a_clock_set_back),
        cmocka_unit_test(test_parts_report_one_after_the_other),
        cmocka_unit_test(test_a_step_waits_for_the_part_of_a_later_node),
        cmocka_unit_test(test_a_step_whose_cpus_are_given_away),
        cmocka_unit_test(test_two_lost_steps_of_one_number),
        cmocka_unit_test(test_a_node_that_has_spoken_is_believed),
        cmocka_unit_test(test_one_number_in_two_epochs),
        cmocka_unit_test(test_a_step_proves_the_restore),
        cmocka_unit_test(test_the_end_of_an_attempt_of_the_same_number),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
