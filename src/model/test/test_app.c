// Apps: which documents are apps, and what their fields make of a job.
#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>
#include <cmocka.h>

#include "model/app.h"

#define DOCUMENT                                                                                             \
    "{\"spec\":{\"ports\":[\"unix:/tmp/"                                                                     \
    "a-%j-RANDOM.sock\"],\"health\":\"jupyter\",\"tags\":[\"x=1\"]},\"fields\":["                            \
    "{\"name\":\"file\",\"required\":true},{\"name\":\"word\",\"value\":\"hello\",\"choices\":[\"hello\","   \
    "\"bye\"]},"                                                                                             \
    "{\"name\":\"gpus\",\"kind\":\"gpus\"},{\"name\":\"cpus\",\"kind\":\"cpus\"},"                           \
    "{\"name\":\"memory\",\"kind\":\"memory\"},{\"name\":\"time\",\"kind\":\"time\"},"                       \
    "{\"name\":\"idle\",\"kind\":\"idle\",\"value\":\"2h\"}]}"

static int read_app(const char *name, const char *json, const char *script, struct arena *a, struct app *out,
                    struct error *e) {
    *e = (struct error){0};
    return app_read(name, json, strlen(json), script, a, out, e);
}

static void wrong_documents_are_refused(void **state) {
    static const struct {
        const char *name, *json, *script, *says;
    } cases[] = {
        {"app", "{", "#!/bin/sh\n", ""},
        {"App", "{}", "#!/bin/sh\n", "small letters"},
        {"", "{}", "#!/bin/sh\n", "small letters"},
        {"app", "{}", NULL, "must begin with #!"},
        {"app", "{}", "echo", "must begin with #!"},
        {"app", "{\"colour\":1}", "#!/bin/sh\n", "colour"},
        {"app", "{\"fields\":[{\"name\":\"a-b\"}]}", "#!/bin/sh\n", "is no name of a field"},
        {"app", "{\"fields\":[{\"title\":\"x\"}]}", "#!/bin/sh\n", "is no name of a field"},
        {"app", "{\"fields\":[{\"name\":\"a\",\"value\":\"c\",\"choices\":[\"a\"]}]}", "#!/bin/sh\n",
         "none of its choices"},
        {"app", "{\"spec\":{\"ports\":[\"99999\"]}}", "#!/bin/sh\n", "port"},
        {"app", "{\"spec\":{\"health\":\"/\"}}", "#!/bin/sh\n", "no HTTP port to ask"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        cleanup_arena struct arena a = {0};
        struct app app;
        struct error e;
        if (read_app(cases[i].name, cases[i].json, cases[i].script, &a, &app, &e) == 0 ||
            !strstr(e.text, cases[i].says))
            fail_msg("case %zu: %s", i, e.text);
    }
}

static bool has(const struct app_job *j, const char *variable) {
    for (uint32_t i = 0; i < j->environment.len; i++)
        if (strcmp(j->environment.at[i], variable) == 0)
            return true;
    return false;
}

static void fields_become_a_job(void **state) {
    cleanup_arena struct arena a = {0};
    struct app app;
    struct app_job j;
    struct error e = {0};
    assert_int_equal(read_app("nb", DOCUMENT, "#!/bin/sh\n", &a, &app, &e), 0);
    assert_string_equal(app.title, "nb");
    // A value with a quote and a line end stays a value.
    const char *values[] = {
        "file=it's; rm -rf *\n", "gpus=0.5", "cpus=3", "memory=2G", "time=90", "word=bye"};
    assert_int_equal(app_job(&app, values, 6, 0xab, &a, &j, &e), 0);
    assert_true(has(&j, "APP_FILE=it's; rm -rf *\n") && has(&j, "APP_WORD=bye"));
    assert_int_equal(j.environment.len, 2);
    assert_int_equal(j.spec.gpus_milli, 500);
    assert_int_equal(j.spec.cpus_per_task, 3);
    assert_int_equal(j.spec.memory_per_node_bytes, 2ull << 30);
    assert_int_equal(j.spec.time_limit_s, 90 * 60);
    assert_int_equal(j.spec.idle_s, 2 * 3600);
    assert_string_equal(j.spec.ports.at[0], "unix:/tmp/a-%j-00000000000000ab.sock");
    assert_int_equal(j.spec.tags.len, 2);
    assert_string_equal(j.spec.tags.at[1], "app=nb");
    assert_string_equal(j.spec.name, "nb");
    assert_int_equal(app.spec->tags.len, 1);  // the app stays as it was
    // None is a value: never closed.
    const char *never[] = {"file=x", "idle=none"};
    assert_int_equal(app_job(&app, never, 2, 0, &a, &j, &e), 0);
    assert_int_equal(j.spec.idle_s, 0);
    assert_true(schema_given(&spec_schema, &j.spec, &j.spec.idle_s) && has(&j, "APP_WORD=hello"));
}

static void wrong_values_are_refused(void **state) {
    static const char *const cases[][2] = {
        {"word=hello", "file: it must be given"},
        {"colour=red", "is no field of nb"},
        {"word=what", "choose one of hello, bye"},
        {"cpus=many", "cpus: write a number"},
        {"gpus=x y", "gpus"},
        {"memory=lots", "memory"},
        {"time=soon", "time"},
        {"fil", "is no field of nb"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        cleanup_arena struct arena a = {0};
        struct app app;
        struct app_job j;
        struct error e;
        const char *values[] = {i ? "file=x" : "word=bye", cases[i][0]};
        assert_int_equal(read_app("nb", DOCUMENT, "#!/bin/sh\n", &a, &app, &e), 0);
        if (app_job(&app, values, 2, 0, &a, &j, &e) == 0 || !strstr(e.text, cases[i][1]))
            fail_msg("case %zu: %s", i, e.text);
    }
}

#define CLUSTER                                                                                              \
    "{\"spec\":{\"tags\":[\"cluster\"],\"components\":[{\"name\":\"head\"},{\"name\":\"worker\"}]},"         \
    "\"fields\":[{\"name\":\"name\",\"kind\":\"name\"},{\"name\":\"workers\",\"kind\":\"workers\","          \
    "\"value\":\"2\"},{\"name\":\"gpus\",\"kind\":\"gpus\"},{\"name\":\"image\","                            \
    "\"kind\":\"container\"}]}"

// What is asked for is the workers', the image everybody's; the script begins with what all clusters have in common.
static void a_cluster_is_a_head_and_workers(void **state) {
    cleanup_arena struct arena a = {0};
    struct app app;
    struct app_job j;
    struct error e = {0};
    assert_int_equal(read_app("c", CLUSTER, "#!/bin/sh\nmine\n", &a, &app, &e), 0);
    assert_true(app_is_cluster(&app));
    const char *values[] = {"name=lab", "workers=0-8", "gpus=1", "image=debian:12"};
    assert_int_equal(app_job(&app, values, 4, 0, &a, &j, &e), 0);
    assert_string_equal(j.spec.name, "lab");
    assert_true(has(&j, "APP_WORKERS=0-8"));
    assert_null(j.spec.container);
    assert_int_equal(j.spec.gpus_milli, 0);
    const struct job_component *head = &j.spec.components.at[0], *worker = &j.spec.components.at[1];
    assert_int_equal(head->gpus_milli, 0);
    assert_string_equal(head->container, "debian:12");
    assert_int_equal(worker->gpus_milli, 1000);
    assert_string_equal(worker->container, "debian:12");
    assert_int_equal(worker->workers_min, 0);
    assert_int_equal(worker->workers_max, 8);
    assert_true(worker->workers_given);
    assert_null(app.spec->components.at[1].container);  // the app stays as it was
    assert_non_null(strstr(j.script, "cluster_main() {"));
    assert_string_equal(j.script + strlen(j.script) - 6, "\nmine\n");
    assert_int_equal(app_job(&app, values, 1, 0, &a, &j, &e), 0);
    assert_int_equal(j.spec.components.at[1].workers_min, 2);
    const char *wrong[] = {"workers=8-2"};
    assert_int_equal(app_job(&app, wrong, 1, 0, &a, &j, &e), -EINVAL);
    assert_int_equal(
        read_app("c", "{\"fields\":[{\"name\":\"w\",\"kind\":\"workers\"}]}", "#!/bin/sh\n", &a, &app, &e),
        -EINVAL);
    assert_non_null(strstr(e.text, "needs components"));
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(wrong_documents_are_refused),
        cmocka_unit_test(fields_become_a_job),
        cmocka_unit_test(wrong_values_are_refused),
        cmocka_unit_test(a_cluster_is_a_head_and_workers),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
