// The step runner against a host that fails on purpose: steps are asked for until their shepherd listens, a checkpoint
// command is started once and the kill waits for it, also in an agent that starts anew.
#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

#include "agent/logic/step_runner.h"

enum { CHECKPOINT = 0x7fffffff };

struct host {
    int create_rc, start_rc;
    uint32_t created, asked, ended;
    struct agent_step_look look;
    char error[120];
};

static int create(void *ctx, const struct message_exec *m, struct error *e) {
    struct host *h = ctx;
    h->created++;
    return h->create_rc < 0 ? error_set(e, -h->create_rc, "cannot be written") : 0;
}

static int start(void *ctx, uint64_t id, uint32_t attempt, uint32_t step) {
    struct host *h = ctx;
    h->asked++;
    return h->start_rc;
}

static int look(void *ctx, uint64_t id, uint32_t attempt, uint32_t step, struct arena *a,
                struct agent_step_look *out) {
    struct host *h = ctx;
    *out = h->look;
    return 0;
}

static void ended(void *ctx, const struct step_end *end) {
    struct host *h = ctx;
    h->ended++;
    snprintf(h->error, sizeof h->error, "%s", end->error ? end->error : "");
}

static void warn(void *ctx, uint64_t id, const char *text) {
}

static const struct agent_step_host calls = {create, start, look, ended, warn, CHECKPOINT};

static struct agent_logic *logic;
static struct agent_step_runner *runner;
static struct host host;

static int set_up(void **state) {
    host = (struct host){0};
    logic = agent_logic_new(4);
    runner = agent_step_runner_new(logic, &calls, &host);
    agent_logic_recover(logic, 7, 1, 1000, 99, NULL, 0, NULL);
    agent_logic_step_recover(logic, 7, 1, 1, &(struct agent_step_origin){0}, NULL);
    return 0;
}

static int tear_down(void **state) {
    runner = agent_step_runner_free(runner);
    logic = agent_logic_free(logic);
    return 0;
}

static void a_step_waits_for_its_shepherd(void **state) {
    struct message_exec m = {.id = 7, .attempt = 1, .step = 1};
    host.start_rc = -ECONNREFUSED;
    agent_step_runner_start(runner, &m, 1000);
    agent_step_runner_retry(runner, 1500);
    assert_true(agent_step_runner_waits(runner) && host.asked == 2 && host.ended == 0);
    host.start_rc = 0;
    agent_step_runner_retry(runner, 1600);
    assert_true(!agent_step_runner_waits(runner) && host.asked == 3 && host.ended == 0);
}

static void patience_has_an_end(void **state) {
    struct message_exec m = {.id = 7, .attempt = 1, .step = 1};
    host.start_rc = -ECONNREFUSED;
    agent_step_runner_start(runner, &m, 1000);
    agent_step_runner_retry(runner, 1000 + AGENT_STEP_PATIENCE_MS);
    assert_int_equal(host.ended, 1);
    assert_string_equal(host.error, "cannot be started inside the job: the job is ending");
    assert_int_equal(agent_steps_phase(agent_logic_steps(logic), 7, 1, 1), AGENT_STEP_ENDED);
}

static void a_late_answer_is_no_failure(void **state) {
    struct message_exec m = {.id = 7, .attempt = 1, .step = 1};
    host.start_rc = -ETIMEDOUT;
    agent_step_runner_start(runner, &m, 1000);
    assert_true(!agent_step_runner_waits(runner) && host.ended == 0);
    host.look = (struct agent_step_look){.state = AGENT_STEP_OVER, .end = {.id = 7, .attempt = 1, .step = 1}};
    agent_step_runner_look(runner);
    agent_step_runner_look(runner);
    assert_int_equal(host.ended, 1);
}

static void the_end_of_an_attempt_ends_its_steps(void **state) {
    host.look.state = AGENT_STEP_STARTED;
    agent_step_runner_attempt_ended(runner, 8, 1);
    assert_int_equal(host.ended, 0);
    agent_step_runner_attempt_ended(runner, 7, 1);
    assert_int_equal(host.ended, 1);
    assert_string_equal(host.error, "ended together with its job");
}

static void a_kill_waits_for_the_checkpoint(void **state) {
    struct agent_action k = {
        .type = AGENT_KILL, .id = 7, .attempt = 1, .checkpoint = "save", .grace_ms = 5000};
    assert_true(agent_step_runner_checkpoint(runner, &k, 1000));
    assert_true(host.created == 1 && host.asked == 1);
    host.look = (struct agent_step_look){.state = AGENT_STEP_STARTED, .started_mono_ms = 1000};
    assert_true(agent_step_runner_checkpoint(runner, &k, 2000));
    agent_step_runner_free(runner);  // an agent that starts anew
    runner = agent_step_runner_new(logic, &calls, &host);
    assert_true(agent_step_runner_checkpoint(runner, &k, 3000));
    assert_true(host.created == 1 && host.asked == 1);
    assert_false(agent_step_runner_checkpoint(runner, &k, 6000));  // the grace is over
    host.look.started_mono_ms = 5900;
    host.look.state = AGENT_STEP_OVER;
    assert_false(agent_step_runner_checkpoint(runner, &k, 6100));
}

static void a_checkpoint_that_cannot_run_holds_nothing_up(void **state) {
    struct agent_action k = {
        .type = AGENT_KILL, .id = 7, .attempt = 1, .checkpoint = "save", .grace_ms = 5000};
    host.create_rc = -ENOSPC;
    assert_false(agent_step_runner_checkpoint(runner, &k, 1000));
    host.create_rc = -ENOENT;
    assert_false(agent_step_runner_checkpoint(runner, &k, 1000));
    host.create_rc = 0;
    host.start_rc = -ECONNREFUSED;  // it listens in a moment, or never
    assert_true(agent_step_runner_checkpoint(runner, &k, 1000));
    assert_false(agent_step_runner_checkpoint(runner, &k, 6000));
}

// Numbers come again after a restore of the controller's state.
static void a_step_of_another_epoch_is_another_step(void **state) {
    struct agent_steps *s = agent_steps_new();
    struct message_exec m = {.id = 7, .attempt = 1, .step = 1, .epoch = 5}, other = m, unknown = m;
    other.epoch = 6;
    unknown.epoch = 0;
    assert_true(agent_steps_start(s, &m));
    assert_false(agent_steps_start(s, &other));
    assert_true(agent_steps_taken(s, &other));
    assert_false(agent_steps_taken(s, &m) || agent_steps_taken(s, &unknown));
    agent_steps_ended(s, &(struct step_end){.id = 7, .attempt = 1, .step = 1});
    assert_int_equal(agent_steps_end(s, 7, 1, 1)->epoch, 5);
    struct message_step ack = {.id = 7, .attempt = 1, .step = 1, .epoch = 6};
    assert_false(agent_steps_acked(s, &ack));
    ack.epoch = 5;
    assert_true(agent_steps_acked(s, &ack));
    agent_steps_free(s);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_step_of_another_epoch_is_another_step),
        cmocka_unit_test_setup_teardown(a_step_waits_for_its_shepherd, set_up, tear_down),
        cmocka_unit_test_setup_teardown(patience_has_an_end, set_up, tear_down),
        cmocka_unit_test_setup_teardown(a_late_answer_is_no_failure, set_up, tear_down),
        cmocka_unit_test_setup_teardown(the_end_of_an_attempt_ends_its_steps, set_up, tear_down),
        cmocka_unit_test_setup_teardown(a_kill_waits_for_the_checkpoint, set_up, tear_down),
        cmocka_unit_test_setup_teardown(a_checkpoint_that_cannot_run_holds_nothing_up, set_up, tear_down),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
