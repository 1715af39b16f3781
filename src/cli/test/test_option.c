// Options, verbs, help, completion.
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>
#include <cmocka.h>

#include "base/text.h"
#include "cli/cli.h"
#include "cli/table.h"

static const struct option_spec specs[] = {
    {"gpus", 'g', "COUNT", "", 0, "gpu", NULL},
    {"hold", 'H', NULL, "", 0, NULL, NULL},
    {"watch", 'w', "SECONDS", "", OPTION_OPTIONAL, NULL, NULL},
    {"env", 'E', "NAME=VALUE", "", OPTION_REPEAT, NULL, NULL},
};
static const struct option_table table = OPTION_TABLE("", specs);
static const struct option_table *const tables[] = {&table, NULL};

static int parse(struct options *o, struct error *e, bool stop, int argc, ...) {
    static char *argv[16];
    va_list args;
    va_start(args, argc);
    for (int i = 0; i < argc; i++)
        argv[i] = va_arg(args, char *);
    va_end(args);
    return options_parse(tables, argc, argv, stop, o, e);
}

static void all_forms(void **state) {
    struct options o;
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
        {"job 3 has no time left; /a/b_s x_ms.txt \"q_ms\"", "job 3 has no time left; /a/b_s x_ms.txt \"q_ms\""},
    };
    struct cli c = {.verb = &verb};
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++)
        assert_string_equal(cli_field_words(&c, cases[i][0]), cases[i][1]);
    arena_done(&c.arena);
}

static void mistakes(void **state) {
    struct options o;
    struct error e;
    assert_true(parse(&o, &e, false, 1, "--gpsu") < 0);
    assert_string_equal(e.text, "there is no option --gpsu; did you mean --gpus?");
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
    struct options o;
    struct error e;
    uint32_t v = 7;
    assert_int_equal(parse(&o, &e, false, 2, "--gpus", "4294967296"), 0);
    assert_true(option_u32(&o, "gpus", 0, 10, &v, &e) < 0 && v == 7);
    assert_string_equal(e.text, "--gpus is \"4294967296\"; give a whole number from 0 to 10");
    assert_true(option_u32(&o, "watch", 0, 10, &v, &e) == 0 && v == 7);
    options_done(&o);
}

static void earlier_ones_do_not_override(void **state) {
    struct options o, script;
    struct error e;
    assert_int_equal(parse(&script, &e, false, 3, "--gpus", "8", "--hold"), 0);
    assert_int_equal(parse(&o, &e, false, 2, "--gpus", "1"), 0);
    options_add_missing(&o, &script);
    assert_string_equal(option_get(&o, "gpus"), "1");
    assert_true(option_given(&o, "hold"));
    options_done(&o);
    options_done(&script);
}

static void widest_line(const char *text, size_t most, const char *what) {
    for (const char *p = text; *p; p += *p == '\n') {
        size_t len = strcspn(p, "\n");
        if (len > most)
            print_error("%s: %.*s\n", what, (int)len, p);
        assert_true(len <= most);
        p += len;
    }
}

// Every verb says what it does within 80 columns, has a page and completes.
static void verbs_are_whole(void **state) {
    size_t count;
    const struct verb *const *verbs = verbs_all(&count);
    cleanup_buf struct buf overview = {0}, bash = {0}, zsh = {0}, docs = {0};
    help_overview(&overview, false);
    completion_bash(&bash);
    completion_zsh(&zsh);
    docs_markdown(&docs);
    widest_line(buf_str(&overview), 80, "overview");
    for (size_t i = 0; i < count; i++) {
        const struct verb *v = verbs[i];
        cleanup_buf struct buf help = {0}, man = {0};
        assert_non_null(v->summary);
        assert_non_null(v->run);
        help_verb(v, &help);
        man_verb(v, &man);
        widest_line(buf_str(&help), 80, v->name);
        assert_non_null(strstr(buf_str(&help), "--json"));
        assert_non_null(strstr(buf_str(&man), ".SH NAME"));
        if (!v->group)
            continue;
        assert_non_null(strstr(buf_str(&bash), v->name));
        assert_non_null(strstr(buf_str(&zsh), v->name));
        assert_non_null(strstr(buf_str(&docs), v->name));
    }
    // No letter twice in one verb.
    for (size_t i = 0; i < count; i++) {
        char seen[128] = {0};
        for (int t = 0; verbs[i]->options[t]; t++)
            for (size_t k = 0; k < verbs[i]->options[t]->count; k++) {
                char letter = verbs[i]->options[t]->at[k].letter;
                if (letter && seen[(unsigned char)letter])
                    print_error("%s: -%c twice\n", verbs[i]->name, letter);
                assert_true(!letter || !seen[(unsigned char)letter]);
                seen[(unsigned char)letter] = 1;
            }
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(all_forms), cmocka_unit_test(mistakes),
        cmocka_unit_test(fields_become_options), cmocka_unit_test(typed_values),
        cmocka_unit_test(earlier_ones_do_not_override), cmocka_unit_test(verbs_are_whole)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
