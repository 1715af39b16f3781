// From the command line to the request of a job.
#include <fcntl.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include <cmocka.h>

#include "base/text.h"
#include "cli/job/options.h"

static const struct option_table *const tables[] = {&job_resource_options, &job_control_options, NULL};

struct job_fixture {
    struct cli cli;
    char *argv[24];
};

static void begin(struct job_fixture *f, bool stop, int argc, ...) {
    va_list args;
    *f = (struct job_fixture){.argv = {(char[]){"acequia"}, (char[]){"submit"}}};
    va_start(args, argc);
    for (int i = 0; i < argc; i++)
        f->argv[i + 2] = va_arg(args, char *);
    va_end(args);
    f->cli.argv = f->argv;
    f->cli.argc = argc + 2;
    assert_int_equal(options_parse(tables, argc, f->argv + 2, stop, &f->cli.options, &f->cli.error), 0);
    f->cli.arguments = f->cli.options.arguments.at;
    f->cli.count = (int)f->cli.options.arguments.len;
}

static void end(struct job_fixture *f) {
    options_done(&f->cli.options);
    arena_done(&f->cli.arena);
}

static void a_whole_request(void **state) {
    struct job_fixture f;
    struct spec s;
    begin(&f, true, 17, "--no-requeue", "-g", "a100:2", "-m64G", "-t", "8h", "--array=0-9%2", "-N2-4", "-c", "4", "-H", "-d",
          "afterok:1", "-D", "/tmp", "--", "x");
    assert_true(job_dashes(&f.cli));
    assert_int_equal(job_spec(&f.cli, &f.cli.options, &s), 0);
    assert_int_equal(s.gpus_milli, 2000);
    assert_string_equal(s.gpu_model, "a100");
    assert_true(s.memory_per_node_bytes == 64ull << 30);
    assert_int_equal(s.time_limit_s, 28800);
    assert_true(s.array.len == 1 && s.array.at[0].last == 9 && s.array_limit == 2);
    assert_true(s.nodes_min == 2 && s.nodes_max == 4 && s.cpus_per_task == 4 && s.hold);
    assert_string_equal(s.workdir, "/tmp");
    cleanup_buf struct buf body = {0};
    cleanup_arena struct arena a = {0};
    struct json *j;
    job_request_write(&(struct job_request){.spec = &s, .key = "k", .dry_run = true}, &body);
    assert_int_equal(json_parse(buf_str(&body), body.len, &a, &j, NULL), 0);
    const struct json *spec = json_get(j, "spec"), *requeue = json_get(spec, "requeue");
    assert_true(requeue && requeue->type == JSON_BOOL && !requeue->boolean);
    assert_string_equal(json_str(j, "key"), "k");
    end(&f);
}

static void a_zero_that_was_given_is_sent(void **state) {
    struct job_fixture f;
    struct spec s;
    cleanup_buf struct buf body = {0};
    begin(&f, false, 8, "--gpus", "0", "--memory", "0", "--nice", "0", "--dependency", "none");
    assert_int_equal(job_spec(&f.cli, &f.cli.options, &s), 0);
    s.workdir = NULL;
    schema_write_given_json(&spec_schema, &s, &(struct json_writer){.out = &body});
    assert_string_equal(buf_str(&body),
                        "{\"memory_per_node_bytes\":0,\"gpus_milli\":0,\"dependency\":\"\",\"nice\":0}");
    end(&f);
}

static void bad_values_name_the_option(void **state) {
    static const struct {
        const char *option, *value;
    } bad[] = {{"--gpus", "1.5"},     {"--memory", "lots"},
               {"--time", "-5"},      {"--nodes", "0"},
               {"--nodes", "4-2"},    {"--tasks", "99999999999"},
               {"--array", "5-1"},    {"--dependency", "before:1"},
               {"--begin", "soon"},   {"--output", "%q"},
               {"--nice", "x"},       {"--signal", "FOO"},
               {"--nodelist", "n["},  {"--time", "0"},
               {"--name", "a\nb"},    {"--project", "a b"},
               {"--comment", "\x01"}, {"--cpus", "0"},
               {"--grace", "1y"}};
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        struct job_fixture f;
        struct spec s;
        begin(&f, true, 2, bad[i].option, bad[i].value);
        assert_true(job_spec(&f.cli, &f.cli.options, &s) < 0);
        if (!strstr(f.cli.error.text, bad[i].option + 2) && !strstr(f.cli.error.text, "job name"))
            print_error("%s %s: %s\n", bad[i].option, bad[i].value, f.cli.error.text);
        assert_true(strstr(f.cli.error.text, bad[i].option + 2) || strstr(f.cli.error.text, "job name"));
        end(&f);
    }
}

static void environments(void **state) {
    struct job_fixture f;
    struct job_environment e;
    setenv("CHOSEN", "yes", 1);
    begin(&f, true, 4, "--export", "CHOSEN,NEW=1,MISSING", "--env", "CHOSEN=no");
    assert_int_equal(job_environment(&f.cli, &f.cli.options, &e), 0);
    assert_int_equal(e.len, 2);
    assert_string_equal(e.at[0], "CHOSEN=no");
    assert_string_equal(e.at[1], "NEW=1");
    end(&f);
    begin(&f, true, 2, "--export", "none");
    assert_int_equal(job_environment(&f.cli, &f.cli.options, &e), 0);
    assert_int_equal(e.len, 0);
    end(&f);
    begin(&f, true, 2, "--export", "a b");
    assert_true(job_environment(&f.cli, &f.cli.options, &e) < 0);
    end(&f);
    begin(&f, true, 2, "--env", "NOVALUE");
    assert_true(job_environment(&f.cli, &f.cli.options, &e) < 0);
    end(&f);
}

static void write_script(const char *path, const char *text) {
    FILE *out = fopen(path, "w");
    assert_non_null(out);
    fputs(text, out);
    fclose(out);
}

static void scripts_carry_options(void **state) {
    char path[] = "/tmp/acequia-test-XXXXXX";
    struct job_fixture f;
    struct job_source source;
    struct spec s;
    close(mkstemp(path));
    write_script(path, "#!/bin/sh\n#ACEQUIA --gpus 2 --name 'two words'  # why\n\n#ACEQUIA -t "
                       "1h\necho\n#ACEQUIA --gpus 9\n");
    begin(&f, true, 4, "-t", "2h", path, "--flag");
    assert_false(job_dashes(&f.cli));
    assert_int_equal(job_source(&f.cli, &f.cli.options, false, &source), 0);
    assert_int_equal(job_spec(&f.cli, &f.cli.options, &s), 0);
    assert_int_equal(s.gpus_milli, 2000);
    assert_string_equal(s.name, "two words");
    assert_int_equal(s.time_limit_s, 7200);
    assert_true(source.argc == 1 && streq(source.argv[0], "--flag"));
    end(&f);
    static const char *const bad[] = {"echo\n", "", "#!/bin/sh\n#ACEQUIA --nope\n", "#!/bin/sh\n#ACEQUIA word\n"};
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        write_script(path, bad[i]);
        begin(&f, true, 1, path);
        assert_true(job_source(&f.cli, &f.cli.options, false, &source) < 0);
        end(&f);
    }
    unlink(path);
    begin(&f, true, 1, path);
    assert_true(job_source(&f.cli, &f.cli.options, false, &source) < 0);
    assert_non_null(strstr(f.cli.error.text, "write it after --"));
    end(&f);
}

int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(a_whole_request),
                                       cmocka_unit_test(a_zero_that_was_given_is_sent),
                                       cmocka_unit_test(bad_values_name_the_option),
                                       cmocka_unit_test(environments), cmocka_unit_test(scripts_carry_options)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
