// Providers and wanted nodes: from the wish to the end, with a program that refuses, repeats, forgets and is wrong.
#include "model/provider.h"

#include <errno.h>

#include "rig.h"

static struct node_provider fake(uint32_t max) {
    struct node_provider p = {.name = "fake", .program = "/bin/fake", .max = max, .idle_s = 60};
    if (!max)
        schema_give(&provider_schema, &p, &p.max);
    return p;
}

static void tick(struct rig *r) {
    r->now_ms += 1000;
    core_providers_tick(r->core, r->now_ms);
    core_schedule(r->core, r->now_ms);
    rig_drain(r);
}

static int set(struct rig *r, const struct node_provider *p, struct error *e) {
    int rc = rig_command(r->core, &root, COMMAND_PROVIDER_SET, p, r->now_ms, e);
    rig_drain(r);
    return rc;
}

static int report(struct rig *r, const struct provider_report *m) {
    struct error e = {0};
    int rc = rig_command(r->core, &root, COMMAND_PROVIDER_REPORT, m, r->now_ms, &e);
    rig_drain(r);
    return rc;
}

static void offer(struct rig *r, uint32_t cpus, uint64_t cost_milli) {
    struct provider_shape s = {
        .name = "std", .cpus = cpus, .memory_bytes = 64ull << 30, .boot_s = 5, .cost_milli = cost_milli};
    assert_int_equal(report(r, &(struct provider_report){.provider = "fake", .shapes = {&s, 1}}), 0);
}

static void begin(struct rig *r, const struct node_provider *p) {
    struct error e = {0};
    rig_init(r);
    if (set(r, p, &e) < 0)
        fail_msg("%s", e.text);
    offer(r, 4, 0);
    tick(r);
}

static uint64_t submit(struct rig *r, uint32_t cpus) {
    struct spec s = rig_spec();
    s.cpus_per_task = cpus;
    s.time_limit_s = 600;
    return rig_submit(r, &alice, &s);
}

// Of those that are not gone.
static const struct wanted_node *nth(struct rig *r, uint32_t n) {
    for (uint64_t id = 1; id < 100; id++) {
        const struct wanted_node *w = core_wanted(r->core, id);
        if (w && w->state != WANTED_GONE && !n--)
            return w;
    }
    return NULL;
}

static uint32_t count(struct rig *r) {
    uint32_t n = 0;
    while (nth(r, n))
        n++;
    return n;
}

static enum wanted_state state(struct rig *r, uint64_t id) {
    const struct wanted_node *w = core_wanted(r->core, id);
    return w ? w->state : WANTED_STATES;
}

static void say(struct rig *r, enum provider_verb verb, struct engine_node *list, uint32_t n) {
    assert_int_equal(report(r, &(struct provider_report){.provider = "fake", .verb = verb, .nodes = {list, n}}), 0);
}

// Until the next call; what the core keeps moves with every event.
static const char *key_of(const struct wanted_node *w) {
    static char key[PROVIDER_HANDLE_MAX + 1];
    snprintf(key, sizeof key, "%s", w->key);
    return key;
}

static struct engine_node of(const struct wanted_node *w, const char *handle, enum engine_state s) {
    return (struct engine_node){.key = key_of(w), .handle = handle, .state = s};
}

static void start_one(struct rig *r, const struct wanted_node *w) {
    struct engine_node n = of(w, "vm-1", ENGINE_PENDING);
    say(r, VERB_START, &n, 1);
    n.state = ENGINE_RUNNING;
    say(r, VERB_LIST, &n, 1);
}

static void the_settings(void **unused) {
    struct rig r;
    struct error e = {0};
    rig_init(&r);
    struct node_provider p = fake(4), bad = fake(4);
    assert_int_equal(rig_command(r.core, &alice, COMMAND_PROVIDER_SET, &p, 1, &e), -EPERM);
    bad.name = "Fake";
    assert_int_equal(set(&r, &bad, &e), -EINVAL);
    bad = fake(4);
    bad.program = "relative";
    assert_int_equal(set(&r, &bad, &e), -EINVAL);
    bad = (struct node_provider){.name = "fake", .program = "/bin/fake"};
    assert_int_equal(set(&r, &bad, &e), -EINVAL);  // how many?
    bad = fake(4);
    bad.min = 5;
    assert_int_equal(set(&r, &bad, &e), -EINVAL);
    bad = fake(4);
    bad.secrets.at = (const char *[]){"key"};
    bad.secrets.len = 1;
    assert_int_equal(set(&r, &bad, &e), -ENOENT);
    p.tag = "mine";
    assert_int_equal(set(&r, &p, &e), 0);
    const struct node_provider *now = core_provider(r.core, "fake");
    assert_int_equal(strlen(now->tag), 16);
    assert_int_equal(now->rate, PROVIDER_RATE_DEFAULT);
    assert_int_equal(now->idle_s, 60);
    // Only what is given changes, and zero is given too.
    struct node_provider change = {.name = "fake", .idle_s = 0};
    schema_give(&provider_schema, &change, &change.idle_s);
    assert_int_equal(set(&r, &change, &e), 0);
    assert_int_equal(core_provider(r.core, "fake")->idle_s, 0);
    assert_int_equal(core_provider(r.core, "fake")->max, 4);
    assert_string_equal(core_provider(r.core, "fake")->program, "/bin/fake");
    change = (struct node_provider){.name = "fake", .kind = PROVIDER_SLURM};
    assert_int_equal(set(&r, &change, &e), -EINVAL);
    rig_done(&r);
}

static void from_the_wish_to_the_end(void **unused) {
    struct rig r;
    struct node_provider p = fake(4);
    begin(&r, &p);
    uint64_t a = submit(&r, 3), b = submit(&r, 3);
    tick(&r);
    assert_int_equal(count(&r), 2);
    const struct wanted_node *w = nth(&r, 0);
    uint64_t first = w->id, second = nth(&r, 1)->id;
    assert_int_equal(w->state, WANTED_REQUESTED);
    assert_string_equal(w->node, "fake-1");
    assert_non_null(strstr(w->reason, "2 jobs wait"));
    assert_int_equal(w->job, a);
    for (int i = 0; i < 5; i++) {  // nothing is wanted twice
        r.now_ms += 2000;
        tick(&r);
    }
    assert_int_equal(count(&r), 2);
    start_one(&r, core_wanted(r.core, first));
    assert_int_equal(state(&r, first), WANTED_BOOTING);
    start_one(&r, core_wanted(r.core, first));  // an answer that comes again changes nothing
    rig_hello(&r, "fake-1", 4, 0, "b", NULL, 0);
    assert_int_equal(state(&r, first), WANTED_JOINED);
    assert_int_equal(rig_state(&r, a), JOB_STARTING);
    tick(&r);
    assert_true(core_wanted(r.core, first)->job_ms);
    struct provider_report none = {.provider = "fake", .verb = VERB_LIST};
    report(&r, &none);  // a list that leaves it out: its agent is there
    report(&r, &none);
    report(&r, &none);
    assert_int_equal(state(&r, first), WANTED_JOINED);
    start_one(&r, core_wanted(r.core, second));
    rig_hello(&r, "fake-2", 4, 0, "b", NULL, 0);
    rig_end(&r, "fake-1", a, 1, END_EXIT, 0);
    r.now_ms += 57000;
    tick(&r);
    assert_int_equal(state(&r, first), WANTED_JOINED);
    r.now_ms += 2000;
    tick(&r);
    assert_int_equal(state(&r, first), WANTED_STOPPING);
    assert_string_equal(core_wanted(r.core, first)->reason, "without jobs for 60 s");
    assert_int_equal(state(&r, second), WANTED_JOINED);
    assert_int_equal(rig_state(&r, b), JOB_STARTING);
    struct engine_node ended = of(core_wanted(r.core, first), NULL, ENGINE_ENDED);
    say(&r, VERB_LIST, &ended, 1);
    assert_int_equal(state(&r, first), WANTED_STOPPING);  // its agent is still there
    core_agent_gone(r.core, "fake-1", r.now_ms);
    say(&r, VERB_LIST, &ended, 1);
    say(&r, VERB_LIST, &ended, 1);
    assert_int_equal(state(&r, first), WANTED_GONE);
    tick(&r);
    struct node_view v;
    assert_false(core_node(r.core, "fake-1", &v));
    assert_true(core_node(r.core, "fake-2", &v));
    rig_done(&r);
}

static void refusals_are_waited_for(void **unused) {
    struct rig r;
    struct node_provider p = fake(4);
    begin(&r, &p);
    submit(&r, 4);
    tick(&r);
    uint64_t id = nth(&r, 0)->id;
    struct engine_node no = {.key = key_of(nth(&r, 0)), .error = "quota exceeded"};
    say(&r, VERB_START, &no, 1);
    assert_int_equal(state(&r, id), WANTED_REFUSED);
    const struct provider_pause *pause = core_provider(r.core, "fake")->pauses.at;
    assert_int_equal(pause->until_ms, r.now_ms + 15000);
    tick(&r);
    assert_non_null(strstr(core_provider_note(r.core, "fake"), "quota exceeded"));
    r.now_ms += 12000;
    tick(&r);
    assert_int_equal(state(&r, id), WANTED_REFUSED);
    r.now_ms += 2000;
    tick(&r);
    assert_int_equal(state(&r, id), WANTED_REQUESTED);  // the same one, not another
    assert_int_equal(count(&r), 1);
    say(&r, VERB_START, &no, 1);
    assert_int_equal(core_provider(r.core, "fake")->pauses.at[0].until_ms, r.now_ms + 30000);
    r.now_ms += 31000;
    tick(&r);
    start_one(&r, core_wanted(r.core, id));
    rig_hello(&r, "fake-1", 4, 0, "b", NULL, 0);
    assert_int_equal(core_provider(r.core, "fake")->pauses.len, 0);
    rig_done(&r);
}

static void who_never_joins_is_given_up(void **unused) {
    struct rig r;
    struct node_provider p = fake(4);
    p.start_s = 100;
    begin(&r, &p);
    uint64_t job = submit(&r, 4);
    tick(&r);
    uint64_t id = nth(&r, 0)->id;
    start_one(&r, nth(&r, 0));
    r.now_ms += 101000;
    tick(&r);
    assert_int_equal(state(&r, id), WANTED_STOPPING);
    assert_true(core_wanted(r.core, id)->failed);
    struct command_token_create t = {.id = "t1", .hash = "00", .node = "fake-1", .expires_ms = r.now_ms + 3600000};
    assert_int_equal(do_token_create(r.core, &root, &t, r.now_ms, NULL), 0);
    struct provider_report none = {.provider = "fake", .verb = VERB_LIST};
    report(&r, &none);
    report(&r, &none);
    assert_int_equal(state(&r, id), WANTED_GONE);
    assert_false(core_token_holds(r.core, "t1", r.now_ms));
    // It joins all the same: it gets nothing, as it is about to be stopped.
    rig_hello(&r, "fake-1", 4, 0, "b", NULL, 0);
    assert_int_equal(rig_state(&r, job), JOB_PENDING);
    rig_done(&r);
}

static void limits_rate_and_budget(void **unused) {
    struct rig r;
    struct node_provider p = fake(100);
    p.rate = 3;
    begin(&r, &p);
    for (int i = 0; i < 9; i++)
        submit(&r, 4);
    tick(&r);
    assert_int_equal(count(&r), 3);
    r.now_ms += 2000;
    tick(&r);
    assert_int_equal(count(&r), 3);
    assert_non_null(strstr(core_provider_note(r.core, "fake"), "rate"));
    r.now_ms += 61000;
    tick(&r);
    assert_int_equal(count(&r), 6);
    struct node_provider change = {.name = "fake", .max = 7, .rate = 100};
    struct error e = {0};
    assert_int_equal(set(&r, &change, &e), 0);
    r.now_ms += 2000;
    tick(&r);
    assert_int_equal(count(&r), 7);
    rig_done(&r);

    p = fake(100);
    p.budget_milli = 3500;
    begin(&r, &p);
    offer(&r, 4, 1000);  // one an hour
    for (int i = 0; i < 9; i++)
        submit(&r, 4);
    tick(&r);
    assert_int_equal(count(&r), 3);
    r.now_ms += 2000;
    tick(&r);
    assert_non_null(strstr(core_provider_note(r.core, "fake"), "budget"));
    rig_done(&r);

    p = fake(5);
    p.min = 2;
    begin(&r, &p);
    assert_int_equal(count(&r), 2);  // without any job
    rig_done(&r);
}

static void strangers_are_stopped_and_the_living_adopted(void **unused) {
    struct rig r;
    struct node_provider p = fake(4);
    const struct engine_node *out[4];
    begin(&r, &p);
    rig_hello(&r, "fake-3", 4, 0, "b", NULL, 0);
    struct engine_node list[] = {{.key = "fake-9.9.00000000", .handle = "vm-9", .state = ENGINE_RUNNING},
                                 {.key = "fake-3.3.00000000", .handle = "vm-3", .state = ENGINE_RUNNING}};
    struct provider_report m = {.provider = "fake", .verb = VERB_LIST, .nodes = {list, 2}};
    assert_int_equal(core_provider_strangers(r.core, &m, false, out, 4), 0);  // agents may still say hello
    report(&r, &m);
    assert_int_equal(core_provider_strangers(r.core, &m, true, out, 4), 1);
    assert_string_equal(out[0]->handle, "vm-9");
    const struct wanted_node *w = nth(&r, 0);
    assert_int_equal(count(&r), 1);
    assert_int_equal(w->state, WANTED_JOINED);
    assert_string_equal(w->node, "fake-3");
    rig_done(&r);
}

static void a_provider_goes_with_its_last_node(void **unused) {
    struct rig r;
    struct node_provider p = fake(4);
    struct provider_report none = {.provider = "fake", .verb = VERB_LIST};
    begin(&r, &p);
    uint64_t job = submit(&r, 4);
    tick(&r);
    uint64_t id = nth(&r, 0)->id;
    start_one(&r, nth(&r, 0));
    rig_hello(&r, "fake-1", 4, 0, "b", NULL, 0);
    struct command_provider_remove m = {.name = "fake"};
    struct error e = {0};
    assert_int_equal(rig_command(r.core, &root, COMMAND_PROVIDER_REMOVE, &m, r.now_ms, &e), 0);
    tick(&r);
    assert_int_equal(state(&r, id), WANTED_DRAINING);
    assert_int_equal(rig_state(&r, job), JOB_STARTING);  // it runs on
    assert_int_equal(set(&r, &p, &e), -EBUSY);
    rig_end(&r, "fake-1", job, 1, END_EXIT, 0);
    tick(&r);
    assert_int_equal(state(&r, id), WANTED_STOPPING);
    core_agent_gone(r.core, "fake-1", r.now_ms);
    report(&r, &none);
    tick(&r);
    assert_non_null(core_provider(r.core, "fake"));
    report(&r, &none);
    tick(&r);
    report(&r, &none);
    tick(&r);
    assert_null(core_provider(r.core, "fake"));
    rig_done(&r);
}

static void a_node_leaves_before_its_time_is_over(void **unused) {
    struct rig r;
    struct node_provider p = fake(4);
    begin(&r, &p);
    uint64_t job = submit(&r, 4);
    tick(&r);
    uint64_t id = nth(&r, 0)->id;
    start_one(&r, nth(&r, 0));
    struct node n = {.name = "fake-1", .boot_id = "b", .spool_id = "s", .cpus = 4, .memory_bytes = 64ull << 30,
                     .until_ms = r.now_ms + 700000, .user = "alice"};
    struct message_hello h = {.node = &n};
    struct error e = {0};
    assert_int_equal(core_agent_hello(r.core, &h, NULL, r.now_ms, &e), 0);
    core_schedule(r.core, r.now_ms);
    rig_drain(&r);
    assert_int_equal(rig_state(&r, job), JOB_STARTING);
    r.now_ms += 120000;
    struct spec s = rig_spec();
    s.cpus_per_task = 4;
    s.time_limit_s = 600;
    rig_end(&r, "fake-1", job, 1, END_EXIT, 0);
    uint64_t late = rig_submit(&r, &alice, &s);
    assert_int_equal(rig_state(&r, late), JOB_PENDING);  // it could run longer than the node is there
    s.time_limit_s = 300;
    uint64_t other = rig_submit(&r, &bob, &s), own = rig_submit(&r, &alice, &s);
    assert_int_equal(rig_state(&r, other), JOB_PENDING);
    assert_int_equal(rig_state(&r, own), JOB_STARTING);
    r.now_ms += 530000;
    tick(&r);
    assert_int_equal(state(&r, id), WANTED_DRAINING);
    rig_done(&r);
}

static void all_of_it_is_in_snapshots(void **unused) {
    struct rig r;
    struct node_provider p = fake(4);
    begin(&r, &p);
    submit(&r, 4);
    submit(&r, 4);
    tick(&r);
    struct engine_node no = {.key = key_of(nth(&r, 1)), .error = "quota exceeded"};
    say(&r, VERB_START, &no, 1);
    start_one(&r, nth(&r, 0));
    rig_assert_same_after_reload(&r);
    rig_done(&r);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_settings),
        cmocka_unit_test(from_the_wish_to_the_end),
        cmocka_unit_test(refusals_are_waited_for),
        cmocka_unit_test(who_never_joins_is_given_up),
        cmocka_unit_test(limits_rate_and_budget),
        cmocka_unit_test(strangers_are_stopped_and_the_living_adopted),
        cmocka_unit_test(a_provider_goes_with_its_last_node),
        cmocka_unit_test(a_node_leaves_before_its_time_is_over),
        cmocka_unit_test(all_of_it_is_in_snapshots),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
