// The grammar of health checks, and which of them a job may have.
#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>
#include <cmocka.h>

#include "model/health.h"
#include "model/job.h"

static void checks_are_read(void **state) {
    static const struct {
        const char *text;
        enum health_kind kind;
        uint32_t port;
        const char *path;
    } good[] = {
        {"/", HEALTH_HTTP, 0, "/"},
        {"/healthz?full=1", HEALTH_HTTP, 0, "/healthz?full=1"},
        {"http:8080/ready", HEALTH_HTTP, 8080, "/ready"},
        {"http:65535/", HEALTH_HTTP, 65535, "/"},
        {"http:/x", HEALTH_HTTP, 0, "/x"},
        {"jupyter", HEALTH_JUPYTER, 0, NULL},
        {"test -e /tmp/ready", HEALTH_COMMAND, 0, NULL},
        {"jupyter2", HEALTH_COMMAND, 0, NULL},
    };
    for (size_t i = 0; i < sizeof good / sizeof *good; i++) {
        struct health_check k;
        struct error e = {0};
        assert_int_equal(health_parse(good[i].text, &k, &e), 0);
        assert_int_equal(k.kind, good[i].kind);
        assert_int_equal(k.port, good[i].port);
        if (good[i].path)
            assert_string_equal(k.path, good[i].path);
        else
            assert_null(k.path);
    }
}

static void others_are_refused(void **state) {
    static const char *const bad[] = {"",        "two\nlines", "http:0/x", "http:65536/x", "http:80",
                                      "http:x/", "http:-1/",   "/a b",     "/a#b",         "http:123456789/"};
    char longest[HEALTH_CHECK_MAX + 2];
    struct health_check k;
    struct error e = {0};
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        assert_true(health_parse(bad[i], &k, &e) < 0);
        assert_non_null(strstr(e.text, "health: "));
    }
    memset(longest, 'a', sizeof longest);
    longest[HEALTH_CHECK_MAX + 1] = 0;
    assert_int_equal(health_parse(longest, &k, &e), -E2BIG);
    longest[HEALTH_CHECK_MAX] = 0;
    assert_int_equal(health_parse(longest, &k, &e), 0);
}

static void a_check_fits_its_job(void **state) {
    const char *http[] = {"8888", "tcp:5432"}, *tcp[] = {"tcp:5432"};
    static const char absent[] = "";
    const struct {
        const char *health, *says;
        const char **ports;
        uint32_t nports, interval_s, failures, idle_s;
    } cases[] = {
        {NULL, NULL, NULL, 0, 0, 0, 0},
        {NULL, "needs a check", NULL, 0, 5, 0, 0},
        {absent, "needs a check", NULL, 0, 0, 3, 0},
        {"true", NULL, NULL, 0, 5, 3, 0},
        {"/", NULL, http, 2, HEALTH_INTERVAL_MAX_S, HEALTH_FAILURES_MAX, 0},
        {"/", "health_interval_s: 3601", http, 2, HEALTH_INTERVAL_MAX_S + 1, 0, 0},
        {"/", "health_failures: 1001", http, 2, 0, HEALTH_FAILURES_MAX + 1, 0},
        {"/", "no HTTP port to ask", tcp, 1, 0, 0, 0},
        {"http:8888/", NULL, http, 2, 0, 0, 0},
        {"http:5432/", "no HTTP port 5432", http, 2, 0, 0, 0},
        {"jupyter", NULL, http, 2, 0, 0, HEALTH_IDLE_LEAST_S},
        {"jupyter", "idle_s: 9; at least 10", http, 2, 0, 0, HEALTH_IDLE_LEAST_S - 1},
        {"/", "only a Jupyter server", http, 2, 0, 0, 60},
        {NULL, "only a Jupyter server", http, 2, 0, 0, 60},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        struct error e = {0};
        struct spec s = {.health = cases[i].health,
                         .health_interval_s = cases[i].interval_s,
                         .health_failures = cases[i].failures,
                         .idle_s = cases[i].idle_s,
                         .ports = {cases[i].ports, cases[i].nports}};
        int r = health_check_spec(&s, &e);
        if (!cases[i].says)
            assert_int_equal(r, 0);
        else if (r == 0 || !strstr(e.text, cases[i].says))
            fail_msg("case %zu: %d %s", i, r, e.text);
    }
}

static void what_is_served(void **state) {
    static const bool served[HEALTH_COUNT] = {
        [HEALTH_NONE] = true, [HEALTH_READY] = true, [HEALTH_IDLE] = true};
    for (unsigned i = 0; i < HEALTH_COUNT; i++)
        assert_int_equal(job_health_serves((enum job_health)i), served[i]);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(checks_are_read),
        cmocka_unit_test(others_are_refused),
        cmocka_unit_test(a_check_fits_its_job),
        cmocka_unit_test(what_is_served),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
