// Options of the command line, and messages about them.
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>
#include <cmocka.h>

#include "base/text.h"
#include "cli/command/command.h"

static const struct option_spec specs[] = {
    {"gpus", 'g', "COUNT", "", 0, "gpu", NULL},
    {"hold", 'H', NULL, "", 0, NULL, NULL},
    {"watch", 'w', "SECONDS", "", OPTION_OPTIONAL, NULL, NULL},
    {"env", 'E', "NAME=VALUE", "", OPTION_REPEAT, NULL, NULL},
};
static const struct option_table table = OPTION_TABLE("", specs);
static const struct option_table *const tables[] = {&table, NULL};

static int parse(struct cli_options *o, struct error *e, bool stop, int argc, ...) {
    static char *argv[16];
    va_list args;
    va_start(args, argc);
    for (int i = 0; i < argc; i++)
        argv[i] = va_arg(args, char *);
    va_end(args);
    return options_parse(tables, argc, argv, stop, o, e);
}

static void all_forms(void **state) {
    struct cli_options o;
    struct error e;
    uint32_t it = 0;
    assert_int_equal(
        parse(&o, &e, false, 9, "--gpus", "2", "a", "-Hg3", "--watch", "-E", "A=1", "--env=B=2", "--gpu=4"),
        0);
    assert_string_equal(option_get(&o, "gpus"), "4");
    assert_true(option_given(&o, "hold"));
    assert_true(option_given(&o, "watch") && !option_get(&o, "watch"));
    assert_string_equal(option_next(&o, "env", &it), "A=1");
    assert_string_equal(option_next(&o, "env", &it), "B=2");
    assert_null(option_next(&o, "env", &it));
    assert_int_equal(o.arguments.len, 1);
    options_done(&o);
    assert_int_equal(parse(&o, &e, true, 5, "-g1", "cmd", "--gpus", "9", "--"), 0);
    assert_string_equal(option_get(&o, "gpus"), "1");
    assert_int_equal(o.arguments.len, 4);
    options_done(&o);
    assert_int_equal(parse(&o, &e, false, 3, "--", "--gpus", "-H"), 0);
    assert_int_equal(o.arguments.len, 2);
    options_done(&o);
    assert_int_equal(parse(&o, &e, false, 1, "-"), 0);
    assert_int_equal(o.arguments.len, 1);
    options_done(&o);
}

static void fields_become_options(void **state) {
    static const struct option_spec here[] = {
        {"time", 't', "DURATION", "", 0, NULL, NULL},    {"chdir", 'D', "FOLDER", "", 0, "workdir", NULL},
        {"cpus", 'c', "COUNT", "", 0, "cpus-per-task", NULL}, {"nodelist", 'w', "NODES", "", 0, NULL, NULL},
        {"deadline", 0, "TIME", "", 0, NULL, NULL},
    };
    static const struct option_table one = OPTION_TABLE("", here);
    static const struct verb verb = {.name = "x", .options = {&one}};
    static const char *const cases[][2] = {
        {"time_limit_s: 99 is too large; at most 5 is allowed", "--time: 99 is too large; at most 5 is allowed"},
        {"workdir: \"a\" is not an absolute path", "--chdir: \"a\" is not an absolute path"},
        {"cpus_per_task: 9 is too large", "--cpus: 9 is too large"},
        {"deadline: that time has passed already", "--deadline: that time has passed already"},
        {"end_ms: a reservation must end after it starts", "end: a reservation must end after it starts"},
        {"nodes: node \"n9\" does not exist", "--nodelist: node \"n9\" does not exist"},
        {"array: 5 elements; at most 2 are allowed (max_array_size)", "array: 5 elements; at most 2 are allowed (max_array_size)"},
        {"default_time_s: 9 is above max_time_s, 3", "default time: 9 is above max time, 3"},
        {"argv: it is empty", "the command: it is empty"},
        {"parameter \"deadline\": 0 is out of range", "--deadline: 0 is out of range"},
        {"field \"time_limit_s\": expected a whole number", "--time: expected a whole number"},
        {"field \"x y\": expected text", "field \"x y\": expected text"},
        {"job 3 has no time left; /a/b_s x_ms.txt \"q_ms\"", "job 3 has no time left; /a/b_s x_ms.txt \"q_ms\""},
    };
    struct cli c = {.verb = &verb};
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++)
        assert_string_equal(cli_field_options(&c, cases[i][0]), cases[i][1]);
    arena_done(&c.arena);
}

static void mistakes(void **state) {
    struct cli_options o;
    struct error e;
    assert_true(parse(&o, &e, false, 1, "--gpsu") < 0);
    assert_string_equal(e.text, "unknown option --gpsu; did you mean --gpus?");
    assert_true(parse(&o, &e, false, 1, "--xylophone") < 0);
    assert_non_null(strstr(e.text, "see --help"));
    assert_true(parse(&o, &e, false, 1, "--gpus") < 0);
    assert_non_null(strstr(e.text, "needs a value"));
    assert_true(parse(&o, &e, false, 1, "--hold=1") < 0);
    assert_non_null(strstr(e.text, "takes no value"));
    assert_true(parse(&o, &e, false, 1, "-z") < 0);
    assert_true(parse(&o, &e, false, 1, "-g") < 0);
}

static void typed_values(void **state) {
    struct cli_options o;
    struct error e;
    uint32_t v = 7;
    assert_int_equal(parse(&o, &e, false, 2, "--gpus", "4294967296"), 0);
    assert_true(option_u32(&o, "gpus", 0, 10, &v, &e) < 0 && v == 7);
    assert_string_equal(e.text, "--gpus is \"4294967296\"; give a whole number from 0 to 10");
    assert_true(option_u32(&o, "watch", 0, 10, &v, &e) == 0 && v == 7);
    options_done(&o);
}

static void earlier_ones_do_not_override(void **state) {
    struct cli_options o, script;
    struct error e;
    assert_int_equal(parse(&script, &e, false, 3, "--gpus", "8", "--hold"), 0);
    assert_int_equal(parse(&o, &e, false, 2, "--gpus", "1"), 0);
    options_add_missing(&o, &script);
    assert_string_equal(option_get(&o, "gpus"), "1");
    assert_true(option_given(&o, "hold"));
    options_done(&o);
    options_done(&script);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(all_forms), cmocka_unit_test(mistakes),
        cmocka_unit_test(fields_become_options), cmocka_unit_test(typed_values),
        cmocka_unit_test(earlier_ones_do_not_override)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
