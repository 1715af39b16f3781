// The agent's decisions, message by message.
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

#include "agent/logic/logic.h"

static struct node node = {.name = "n1", .boot_id = "b", .spool_id = "s", .cpus = 4};

static struct agent_logic *connected(void) {
    struct agent_logic *l = agent_logic_new(4);
    struct message_welcome w = {.heartbeat_s = 10, .usage_every_s = 5, .grace_s = 7};
    agent_logic_connected(l, &node, 0);
    agent_logic_message(l, &(struct message){MESSAGE_WELCOME, &w}, 0);
    agent_logic_clear(l);
    return l;
}

static const struct agent_action *only(struct agent_logic *l, enum agent_action_type type) {
    const struct agent_actions *a = agent_logic_actions(l);
    assert_int_equal(a->list.len, 1);
    assert_int_equal(a->list.at[0].type, type);
    return &a->list.at[0];
}

static void nothing(struct agent_logic *l) {
    assert_int_equal(agent_logic_actions(l)->list.len, 0);
}

static void launch(struct agent_logic *l, uint64_t id, uint32_t attempt, uint32_t cpus) {
    struct spec spec = {.name = "x"};
    struct part part = {.cpus = cpus};
    struct message_launch m = {.id = id, .attempt = attempt, .spec = &spec, .part = &part};
    agent_logic_message(l, &(struct message){MESSAGE_LAUNCH, &m}, 0);
}

static void kill_it(struct agent_logic *l, uint64_t id, uint32_t signal, int64_t now_ms) {
    struct message_kill m = {.id = id, .attempt = 1, .cause = END_CANCEL, .signal = signal};
    agent_logic_message(l, &(struct message){MESSAGE_KILL, &m}, now_ms);
}

static void ack(struct agent_logic *l, uint64_t id) {
    struct message_ack m = {id, 1};
    agent_logic_message(l, &(struct message){MESSAGE_ACK, &m}, 0);
}

static void end(struct agent_logic *l, uint64_t id, int exit_code) {
    struct message_ended m = {.id = id, .attempt = 1, .exit_code = exit_code, .start_ms = 5};
    agent_logic_ended(l, &m);
}

static void a_launch_happens_once(void **state) {
    struct agent_logic *l = connected();
    launch(l, 7, 1, 2);
    const struct agent_action *a = only(l, AGENT_LAUNCH);
    assert_int_equal(a->ncpus, 2);
    assert_int_equal(a->cpus[0] + a->cpus[1], 1);
    agent_logic_clear(l);
    launch(l, 7, 1, 2);
    nothing(l);
    agent_logic_started(l, 7, 1, 99, 5);
    assert_int_equal(only(l, AGENT_SEND)->message.type, MESSAGE_STARTED);
    assert_string_equal(((const struct message_started *)only(l, AGENT_SEND)->message.body)->cpu_ids, "0-1");
    agent_logic_clear(l);
    launch(l, 7, 1, 2);
    assert_int_equal(only(l, AGENT_SEND)->message.type, MESSAGE_STARTED);
    agent_logic_clear(l);
    end(l, 7, 3);
    agent_logic_clear(l);
    launch(l, 7, 1, 2);
    assert_int_equal(only(l, AGENT_SEND)->message.type, MESSAGE_ENDED);
    agent_logic_clear(l);
    ack(l, 7);
    only(l, AGENT_REMOVE);
    agent_logic_clear(l);
    launch(l, 7, 1, 2);  // a late copy
    nothing(l);
    launch(l, 7, 2, 2);  // another attempt is another matter
    only(l, AGENT_LAUNCH);
    agent_logic_free(l);
}

static void ends_are_kept_until_acknowledged(void **state) {
    struct agent_logic *l = connected();
    launch(l, 7, 1, 1);
    agent_logic_disconnected(l);
    agent_logic_clear(l);
    end(l, 7, 3);
    nothing(l);
    for (int i = 0; i < 2; i++) {
        agent_logic_connected(l, &node, 0);
        const struct message_hello *h = only(l, AGENT_SEND)->message.body;
        assert_int_equal(h->attempts.len, 1);
        assert_int_equal(h->attempts.at[0].state, ATTEMPT_ENDED);
        assert_int_equal(h->attempts.at[0].end->exit_code, 3);
        agent_logic_clear(l);
    }
    ack(l, 7);
    only(l, AGENT_REMOVE);
    agent_logic_clear(l);
    agent_logic_connected(l, &node, 0);
    assert_int_equal(((struct message_hello *)only(l, AGENT_SEND)->message.body)->attempts.len, 0);
    agent_logic_free(l);
}

static void an_early_acknowledgement_is_ignored(void **state) {
    struct agent_logic *l = connected();
    launch(l, 7, 1, 1);
    agent_logic_clear(l);
    ack(l, 7);
    nothing(l);
    assert_int_equal(agent_logic_phase(l, 7, 1), AGENT_LAUNCHING);
    agent_logic_free(l);
}

static void kills_are_repeated_until_told(void **state) {
    struct agent_logic *l = connected();
    launch(l, 7, 1, 1);
    agent_logic_clear(l);
    kill_it(l, 7, 0, 1000);
    const struct agent_action *a = only(l, AGENT_KILL);
    assert_int_equal(a->signal, SIGTERM);
    assert_int_equal(a->grace_ms, 7000);
    agent_logic_clear(l);
    kill_it(l, 7, 0, 1010);
    nothing(l);
    agent_logic_tick(l, 1000 + AGENT_KILL_RETRY_MS);
    only(l, AGENT_KILL);
    agent_logic_clear(l);
    agent_logic_kill_sent(l, 7, 1);
    agent_logic_tick(l, 5000);
    nothing(l);
    kill_it(l, 7, SIGKILL, 6000);  // harder
    a = only(l, AGENT_KILL);
    assert_int_equal(a->grace_ms, 0);
    agent_logic_free(l);
}

static void suspend(struct agent_logic *l, bool resume, int64_t now_ms) {
    struct message_suspend m = {.id = 7, .attempt = 1, .resume = resume};
    agent_logic_message(l, &(struct message){MESSAGE_SUSPEND, &m}, now_ms);
}

// A shepherd that does not listen is told later, and only the latest wish counts.
static void suspension_is_kept_until_told(void **state) {
    struct agent_logic *l = connected();
    launch(l, 7, 1, 1);
    agent_logic_clear(l);
    suspend(l, false, 0);
    assert_false(only(l, AGENT_SUSPEND)->resume);
    agent_logic_clear(l);
    suspend(l, true, 1);
    assert_true(only(l, AGENT_SUSPEND)->resume);
    agent_logic_clear(l);
    agent_logic_tick(l, 5000);
    assert_true(only(l, AGENT_SUSPEND)->resume);
    agent_logic_told(l, 7, 1, AGENT_SUSPEND);
    agent_logic_clear(l);
    agent_logic_tick(l, 6000);
    nothing(l);
    suspend(l, true, 6000);  // said again at a hello
    nothing(l);
    struct message_time_limit limit = {.id = 7, .attempt = 1, .time_limit_s = 60};
    agent_logic_message(l, &(struct message){MESSAGE_TIME_LIMIT, &limit}, 6000);
    assert_int_equal(only(l, AGENT_TIME_LIMIT)->time_limit_s, 60);
    agent_logic_clear(l);
    agent_logic_tick(l, 7000);
    assert_int_equal(only(l, AGENT_TIME_LIMIT)->time_limit_s, 60);
    agent_logic_free(l);
}

// A membership is written once for each worker that is here, and again when it has changed.
static void members_are_written_when_they_change(void **state) {
    struct agent_logic *l = connected();
    uint64_t ids[] = {7, 8};
    uint32_t attempts[] = {1, 1};
    struct message_workers m = {.job = 6, .generation = 3, .ids = {ids, 2}, .attempts = {attempts, 2}};
    struct message message = {MESSAGE_WORKERS, &m};
    launch(l, 7, 1, 1);
    agent_logic_clear(l);
    agent_logic_message(l, &message, 1000);
    assert_int_equal(only(l, AGENT_MEMBERS)->id, 7);  // 8 is not known here
    agent_logic_clear(l);
    agent_logic_message(l, &message, 2000);
    nothing(l);
    m.generation = 4;
    agent_logic_message(l, &message, 3000);
    assert_ptr_equal(only(l, AGENT_MEMBERS)->message.body, &m);
    agent_logic_clear(l);
    m.generation = 5;
    m.attempts.len = 0;  // damaged: as many as there are of both
    agent_logic_message(l, &message, 4000);
    nothing(l);
    agent_logic_free(l);
}

static void a_stop_carries_its_reason(void **state) {
    struct agent_logic *l = connected();
    for (uint64_t id = 7; id <= 9; id++) {
        launch(l, id, 1, 1);
        agent_logic_started(l, id, 1, 99, 5);
    }
    agent_logic_clear(l);
    agent_logic_stop(l, 7, 1, END_GPU, "took too much", 1000);
    const struct agent_action *a = only(l, AGENT_KILL);
    assert_int_equal(a->signal, SIGKILL);
    assert_int_equal(a->grace_ms, 0);
    assert_int_equal(a->cause, END_GPU);
    agent_logic_clear(l);
    agent_logic_stop(l, 7, 1, END_GPU, "took too much again", 2000);
    agent_logic_kill_sent(l, 7, 1);
    nothing(l);
    agent_logic_ended(
        l, &(struct message_ended){.id = 7, .attempt = 1, .cause = END_GPU, .exit_signal = 9, .start_ms = 5});
    const struct message_ended *m = only(l, AGENT_SEND)->message.body;
    assert_string_equal(m->reason, "took too much");
    agent_logic_clear(l);
    // One that ended by itself before the kill came keeps its own end.
    agent_logic_stop(l, 8, 1, END_GPU, "took too much", 1000);
    agent_logic_clear(l);
    end(l, 8, 3);
    m = only(l, AGENT_SEND)->message.body;
    assert_null(m->reason);
    assert_int_equal(m->exit_code, 3);
    agent_logic_clear(l);
    // One that is being cancelled stays cancelled, but has no more time; one that is not known is nothing.
    kill_it(l, 9, 0, 1000);
    agent_logic_kill_sent(l, 9, 1);
    agent_logic_clear(l);
    agent_logic_stop(l, 9, 1, END_GPU, "took too much", 1000);
    a = only(l, AGENT_KILL);
    assert_int_equal(a->cause, END_CANCEL);
    assert_int_equal(a->signal, SIGKILL);
    assert_int_equal(a->grace_ms, 0);
    agent_logic_clear(l);
    agent_logic_stop(l, 9, 1, END_GPU, "took too much", 1200);
    agent_logic_stop(l, 10, 1, END_GPU, "took too much", 1000);
    nothing(l);
    agent_logic_free(l);
}

static void a_kill_before_its_launch_wins(void **state) {
    struct agent_logic *l = connected();
    kill_it(l, 7, 0, 0);
    const struct message_ended *m = only(l, AGENT_SEND)->message.body;
    assert_int_equal(m->cause, END_CANCEL);
    assert_int_equal(m->start_ms, 0);
    agent_logic_clear(l);
    launch(l, 7, 1, 1);
    nothing(l);
    agent_logic_free(l);
}

static void cpus_are_shared_out(void **state) {
    struct agent_logic *l = connected();
    for (uint64_t id = 1; id <= 5; id++)
        launch(l, id, 1, 1);
    const struct agent_actions *a = agent_logic_actions(l);
    for (uint32_t i = 0; i < 4; i++)
        assert_int_equal(a->list.at[i].cpus[0], i);
    assert_int_equal(a->list.at[4].ncpus, 0);
    agent_logic_clear(l);
    end(l, 2, 0);
    agent_logic_clear(l);
    launch(l, 6, 1, 1);
    assert_int_equal(only(l, AGENT_LAUNCH)->cpus[0], 1);
    agent_logic_free(l);
    l = agent_logic_new(4);
    agent_logic_recover(l, 1, 1, 5, 10, (uint32_t[]){0, 2}, 2, NULL);
    agent_logic_connected(l, &node, 0);
    agent_logic_clear(l);
    launch(l, 3, 1, 2);
    a = agent_logic_actions(l);
    assert_int_equal(a->list.at[0].cpus[0], 1);
    assert_int_equal(a->list.at[0].cpus[1], 3);
    agent_logic_free(l);
}

static void secrets(struct agent_logic *l, uint64_t id, const char *value) {
    struct message_secret s = {.name = "A", .variable = "A", .value = {value, strlen(value)}};
    struct message_secrets m = {.id = id, .attempt = 1, .secrets = {&s, 1}};
    agent_logic_message(l, &(struct message){MESSAGE_SECRETS, &m}, 0);
    nothing(l);
}

// Secrets come before their launch and go with it, once: the newest ones, and only to the attempt they are for.
static void secrets_go_with_their_launch(void **state) {
    struct agent_logic *l = connected();
    secrets(l, 7, "old");
    secrets(l, 8, "other");
    secrets(l, 7, "new");
    launch(l, 7, 1, 1);
    const struct message_secrets *got = only(l, AGENT_LAUNCH)->secrets;
    assert_non_null(got);
    assert_int_equal(got->id, 7);
    assert_int_equal(got->secrets.len, 1);
    assert_memory_equal(got->secrets.at[0].value.data, "new", 3);
    agent_logic_clear(l);
    secrets(l, 7, "again");
    launch(l, 7, 1, 1);  // a repeat: nothing is launched, and its secrets do not stay
    nothing(l);
    agent_logic_clear(l);
    launch(l, 9, 1, 1);
    assert_null(only(l, AGENT_LAUNCH)->secrets);
    agent_logic_clear(l);
    for (uint64_t id = 100; id < 100 + AGENT_SECRETS_MAX; id++)  // launches that never come: the oldest goes
        secrets(l, id, "x");
    launch(l, 8, 1, 1);
    assert_null(only(l, AGENT_LAUNCH)->secrets);
    agent_logic_clear(l);
    launch(l, 100, 1, 0);
    assert_non_null(only(l, AGENT_LAUNCH)->secrets);
    agent_logic_free(l);
}

static void silence_ends_the_connection(void **state) {
    struct agent_logic *l = connected();
    struct message_ping p = {.at_ms = 1};
    agent_logic_message(l, &(struct message){MESSAGE_PING, &p}, 20000);
    assert_int_equal(only(l, AGENT_SEND)->message.type, MESSAGE_PONG);
    agent_logic_clear(l);
    agent_logic_tick(l, 50000);
    nothing(l);
    agent_logic_tick(l, 50001);
    only(l, AGENT_DISCONNECT);
    agent_logic_free(l);
}

// One that could not be written is tried again until it is, or until a newer one comes.
static void a_membership_is_written_later(void **state) {
    struct agent_logic *l = connected();
    uint64_t id = 7;
    uint32_t attempt = 1;
    struct message_workers m = {
        .job = 6, .generation = 3, .ids = {&id, 1}, .attempts = {&attempt, 1}, .lines = {"x", 1}};
    launch(l, 7, 1, 1);
    agent_logic_clear(l);
    agent_logic_message(l, &(struct message){MESSAGE_WORKERS, &m}, 1000);
    const struct agent_action *a = only(l, AGENT_MEMBERS);
    agent_logic_members_failed(l, 7, 1, a->message.body, 1000);
    agent_logic_clear(l);
    agent_logic_tick(l, 1000 + AGENT_MEMBERS_RETRY_MS - 1);
    nothing(l);
    for (int i = 1; i < 4; i++) {
        agent_logic_tick(l, 1000 + i * AGENT_MEMBERS_RETRY_MS);
        const struct message_workers *again = only(l, AGENT_MEMBERS)->message.body;
        assert_int_equal(again->generation, 3);
        agent_logic_members_failed(l, 7, 1, again, 1000 + i * AGENT_MEMBERS_RETRY_MS);
        agent_logic_clear(l);
    }
    m.generation = 4;
    agent_logic_message(l, &(struct message){MESSAGE_WORKERS, &m}, 20000);
    only(l, AGENT_MEMBERS);
    agent_logic_told(l, 7, 1, AGENT_MEMBERS);
    agent_logic_clear(l);
    agent_logic_tick(l, 20000 + 2 * AGENT_MEMBERS_RETRY_MS);
    nothing(l);
    agent_logic_free(l);
}

// After a restore numbers come again: a port of another attempt is not reached.
static void attempts_are_told_apart(void **state) {
    struct agent_logic *l = connected();
    struct spec spec = {.name = "x"};
    struct part part = {.cpus = 1};
    struct message_launch m = {.id = 7, .attempt = 1, .spec = &spec, .part = &part, .epoch = 5, .seq = 9};
    agent_logic_message(l, &(struct message){MESSAGE_LAUNCH, &m}, 0);
    assert_false(agent_logic_is_other(l, 7, 1, 5));
    assert_true(agent_logic_is_other(l, 7, 1, 6));
    assert_false(agent_logic_is_other(l, 7, 1, 0));  // a controller that does not say
    assert_false(agent_logic_is_other(l, 8, 1, 6));  // it does not run here at all
    agent_logic_free(l);
}

// A controller that dies before its welcome leaves a connection that nobody closes.
static void a_welcome_is_not_waited_for_ever(void **state) {
    struct agent_logic *l = agent_logic_new(4);
    agent_logic_connected(l, &node, 1000);
    agent_logic_clear(l);
    agent_logic_tick(l, 1000 + AGENT_WELCOME_WAIT_S * 1000);
    nothing(l);
    agent_logic_tick(l, 1001 + AGENT_WELCOME_WAIT_S * 1000);
    only(l, AGENT_DISCONNECT);
    agent_logic_free(l);
}

static void an_older_leader_is_refused(void **state) {
    struct agent_logic *l = agent_logic_new(4);
    assert_true(agent_logic_term(l, 3));
    assert_true(agent_logic_term(l, 3));
    assert_true(agent_logic_term(l, 0));  // of a controller that shares its database with nobody
    assert_int_equal(agent_logic_newest_term(l), 3);
    assert_true(agent_logic_term(l, 5));
    assert_false(agent_logic_term(l, 4));
    assert_int_equal(agent_logic_newest_term(l), 5);
    agent_logic_free(l);
}

// A controller that was started anew, or a connection that was cut, is told again until the nodes have met.
static void where_an_mpi_step_listens_is_said_again(void **state) {
    struct agent_logic *l = connected();
    struct message_welcome w = {.heartbeat_s = 10};
    struct message_exec step = {.id = 7, .attempt = 1, .step = 2, .epoch = 9};
    struct message_step_hub hub = {.port = 4000, .key = {"0123456789abcdef", 16}};
    launch(l, 7, 1, 1);
    agent_logic_started(l, 7, 1, 100, 5);
    agent_logic_message(l, &(struct message){MESSAGE_STEP, &step}, 0);
    agent_logic_clear(l);
    for (int i = 0; i < 2; i++) {
        agent_logic_step_listens(l, 7, 1, 2, &hub);
        if (i)
            nothing(l);  // it was said
        else
            assert_int_equal(only(l, AGENT_SEND)->message.type, MESSAGE_STEP_LISTENS);
        agent_logic_clear(l);
    }
    agent_logic_disconnected(l);
    agent_logic_connected(l, &node, 0);
    agent_logic_clear(l);
    agent_logic_message(l, &(struct message){MESSAGE_WELCOME, &w}, 0);
    const struct message_step_hub *again = only(l, AGENT_SEND)->message.body;
    assert_int_equal(again->port, 4000);
    assert_int_equal(again->epoch, 9);
    assert_int_equal(again->step, 2);
    agent_logic_clear(l);
    agent_logic_message(l, &(struct message){MESSAGE_STEP_HUB, &(struct message_step_hub){7, 1, 2, 9, 4000}},
                        0);
    assert_int_equal(only(l, AGENT_STEP_HUB)->step, 2);
    agent_logic_clear(l);
    agent_logic_message(l, &(struct message){MESSAGE_STEP_HUB, &(struct message_step_hub){7, 1, 3, 9, 4000}},
                        0);
    nothing(l);  // no such step
    agent_logic_step_listens(l, 7, 1, 2, NULL);
    agent_logic_disconnected(l);
    agent_logic_connected(l, &node, 0);
    agent_logic_clear(l);
    agent_logic_message(l, &(struct message){MESSAGE_WELCOME, &w}, 0);
    nothing(l);
    agent_logic_free(l);
}

// A restored controller sends a step again whose end it has acknowledged: it does not run a second time, and the
// controller does not wait for it.
static void a_step_that_is_over_is_not_run_again(void **state) {
    struct agent_logic *l = connected();
    struct message_exec step = {.id = 7, .attempt = 1, .step = 2, .epoch = 9};
    launch(l, 7, 1, 1);
    agent_logic_started(l, 7, 1, 99, 5);
    agent_logic_message(l, &(struct message){MESSAGE_STEP, &step}, 0);
    agent_logic_step_ended(l, &(struct step_end){.id = 7, .attempt = 1, .step = 2});
    agent_logic_message(l, &(struct message){MESSAGE_STEP_ACK, &(struct message_step){7, 1, 2, .epoch = 9}},
                        0);
    agent_logic_clear(l);
    agent_logic_message(l, &(struct message){MESSAGE_STEP, &step}, 0);
    const struct agent_action *a = only(l, AGENT_SEND);
    const struct step_end *end = a->message.body;
    assert_int_equal(a->message.type, MESSAGE_STEP_END);
    assert_true(end->step == 2 && end->epoch == 9 && strstr(end->error, "restored"));
    agent_logic_free(l);
}

// After a restore the job may have an attempt of the same number: what is acknowledged of the one before is not its end.
static void an_end_of_another_epoch_is_kept(void **state) {
    struct agent_logic *l = connected();
    struct spec spec = {.name = "x"};
    struct part part = {.cpus = 1};
    struct message_launch m = {.id = 7, .attempt = 1, .epoch = 20, .seq = 3, .spec = &spec, .part = &part};
    struct message_ack ack = {.id = 7, .attempt = 1, .of_epoch = 10};
    agent_logic_message(l, &(struct message){MESSAGE_LAUNCH, &m}, 0);
    agent_logic_clear(l);
    end(l, 7, 0);
    const struct message_ended *told = only(l, AGENT_SEND)->message.body;
    assert_int_equal(told->epoch, 20);
    agent_logic_clear(l);
    agent_logic_message(l, &(struct message){MESSAGE_ACK, &ack}, 0);
    nothing(l);
    ack.of_epoch = 20;
    agent_logic_message(l, &(struct message){MESSAGE_ACK, &ack}, 0);
    only(l, AGENT_REMOVE);
    agent_logic_free(l);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_welcome_is_not_waited_for_ever),
        cmocka_unit_test(an_older_leader_is_refused),
        cmocka_unit_test(a_launch_happens_once),
        cmocka_unit_test(ends_are_kept_until_acknowledged),
        cmocka_unit_test(an_early_acknowledgement_is_ignored),
        cmocka_unit_test(kills_are_repeated_until_told),
        cmocka_unit_test(suspension_is_kept_until_told),
        cmocka_unit_test(members_are_written_when_they_change),
        cmocka_unit_test(a_membership_is_written_later),
        cmocka_unit_test(attempts_are_told_apart),
        cmocka_unit_test(a_stop_carries_its_reason),
        cmocka_unit_test(a_kill_before_its_launch_wins),
        cmocka_unit_test(cpus_are_shared_out),
        cmocka_unit_test(secrets_go_with_their_launch),
        cmocka_unit_test(silence_ends_the_connection),
        cmocka_unit_test(where_an_mpi_step_listens_is_said_again),
        cmocka_unit_test(a_step_that_is_over_is_not_run_again),
        cmocka_unit_test(an_end_of_another_epoch_is_kept),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
