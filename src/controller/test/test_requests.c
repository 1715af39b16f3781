// The route table and the reading of requests: every route is complete, query strings and bodies are
// validated by name, and the OpenAPI document has what the table has.
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>
#include <cmocka.h>

#include "api.h"
#include "user_messages.h"
#include "base/text.h"

static int read_query(const struct schema *s, const char *text, void *out, struct arena *a, struct error *e) {
    *e = (struct error){0};
    return query_read(s, text, a, out, e);
}

static void parameters_become_a_struct(void **state) {
    cleanup_arena struct arena a = {0};
    struct error e;
    struct query_jobs q;
    const char *text = "fields=id%2Cname&user=eva+maria&mine=1&compact=false&limit=50&since_ms=1700000000000";
    assert_int_equal(read_query(&query_jobs_schema, text, &q, &a, &e), 0);
    assert_string_equal(q.fields, "id,name");
    assert_string_equal(q.user, "eva maria");
    assert_true(q.mine && !q.compact && !q.finished && q.limit == 50 && q.since_ms == 1700000000000);
    assert_null(q.project);
    assert_int_equal(read_query(&query_jobs_schema, NULL, &q, &a, &e), 0);
    assert_int_equal(read_query(&query_jobs_schema, "", &q, &a, &e), 0);
    assert_int_equal(read_query(&query_jobs_schema, "&&limit=0&", &q, &a, &e), 0);
}

static void a_parameter_that_is_zero_was_given(void **state) {
    cleanup_arena struct arena a = {0};
    struct error e;
    struct query_logs q;
    assert_int_equal(read_query(&query_logs_schema, "tail=0", &q, &a, &e), 0);
    assert_true(schema_given(&query_logs_schema, &q, &q.tail));
    assert_false(schema_given(&query_logs_schema, &q, &q.node));
    assert_int_equal(read_query(&query_logs_schema, "source=error", &q, &a, &e), 0);
    assert_int_equal(q.source, QUERY_ERROR);
    assert_false(schema_given(&query_logs_schema, &q, &q.tail));
}

static void bad_parameters_are_named(void **state) {
    static const struct {
        const struct schema *schema;
        const char *text, *says;
    } cases[] = {
        {&query_jobs_schema, "colour=red", "unknown parameter \"colour\"; expected fields"},
        {&query_jobs_schema, "limit=ten", "parameter \"limit\": \"ten\" is not a whole number"},
        {&query_jobs_schema, "limit=-1", "parameter \"limit\": -1 is out of range; expected 0 to 1000000"},
        {&query_jobs_schema, "limit=1000001", "out of range"},
        {&query_jobs_schema, "limit=99999999999999999999", "\"limit\""},
        {&query_jobs_schema, "limit=", "\"limit\""},
        {&query_jobs_schema, "limit", "\"limit\""},
        {&query_jobs_schema, "mine=yes", "parameter \"mine\": \"yes\" is not true, false, 1 or 0"},
        {&query_jobs_schema, "user=a&user=b", "parameter \"user\" is given twice"},
        {&query_jobs_schema, "user=%0a", "parameter \"user\""},
        {&query_jobs_schema, "user=%ff", "parameter \"user\""},
        {&query_jobs_schema, "user=%00", "not properly encoded"},
        {&query_jobs_schema, "user=%4", "not properly encoded"},
        {&query_logs_schema, "source=both", "parameter \"source\""},
        {&query_wait_schema, "timeout_s=0", "expected 1 to 3600"},
        {&query_events_schema, "after=-1", "\"after\""},
        {NULL, "x=1", "unknown parameter \"x\"; this path takes none"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        cleanup_arena struct arena a = {0};
        struct error e;
        char out[1024];
        assert_true(read_query(cases[i].schema, cases[i].text, out, &a, &e) < 0);
        if (!strstr(e.text, cases[i].says))
            fail_msg("%s gave: %s", cases[i].text, e.text);
    }
}

static void bad_bodies_are_named(void **state) {
    static const struct {
        const struct schema *schema;
        const char *text, *says;
    } cases[] = {
        {&request_submit_schema, "{}", "field \"spec\" is missing"},
        {&request_submit_schema, "{\"spec\":null}", "field \"spec\" is missing"},
        {&request_submit_schema, "{\"spec\":{},\"skript\":\"x\"}", "did you mean \"script\""},
        {&request_submit_schema, "{\"spec\":{\"nise\":1}}", "did you mean \"nice\""},
        {&request_submit_schema, "{\"spec\":{},\"key\":\"\"}",
         "field \"key\": 0 characters; expected at least 1"},
        // Eight bytes, four characters: JSON Schema counts the latter.
        {&request_password_schema, "{\"password\":\"\xc3\xa9\xc3\xa9\xc3\xa9\xc3\xa9\"}",
         "field \"password\": 4 characters; expected at least 8"},
        {&request_submit_schema, "{\"spec\":{},\"environment\":[1]}", "field \"environment\": expected text"},
        {&request_action_schema, "{\"ids\":\"12\"}", "field \"ids\": expected a list"},
        {&request_action_schema, "{\"signal\":65}", "expected 0 to 64"},
        {&request_action_schema, "{\"as\":\"king\"}", "expected one of owner, user, admin"},
        {&request_token_schema, "{\"ttl_s\":0}", "field \"ttl_s\""},
        {&request_join_schema, "{\"token\":\"a\",\"name\":\"n\"}", "field \"csr\" is missing"},
        {&policy_schema, "{\"short_factor\":-1e-50}", "field \"short_factor\": the number is out of range"},
        {&policy_schema, "{\"short_factor\":1000.5}", "expected 0 to 1000"},
        {&policy_schema, "{\"reclaim\":0}", "field \"reclaim\": expected true or false"},
        {&request_secret_schema, "{\"value\":\"\"}", "field \"value\": 0 bytes; expected 1 to 65536"},
        {&request_secret_schema, "{\"value\":\"0\"}", "bytes as hexadecimal text"},
        {&request_when_schema, "[]", "expected a JSON object"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        cleanup_arena struct arena a = {0};
        struct error e = {0};
        struct json *j;
        char out[2048];
        assert_true(cases[i].schema->size <= sizeof out);
        assert_int_equal(json_parse(cases[i].text, strlen(cases[i].text), &a, &j, &e), 0);
        assert_true(schema_read_json(cases[i].schema, j, &a, out, &e) < 0);
        if (!strstr(e.text, cases[i].says))
            fail_msg("%s gave: %s", cases[i].text, e.text);
    }
}

static const struct route *find(const char *method, const char *path) {
    for (size_t i = 0; i < api_route_count; i++)
        if (streq(api_routes[i].method, method) && streq(api_routes[i].path, path))
            return &api_routes[i];
    return NULL;
}

// Who may do what: a route that is added or changed has to be entered here on purpose.
static void permissions_are_these(void **state) {
    static const struct {
        const char *method, *path;
        enum permission permission;
    } special[] = {
        {"POST", "/v1/join", ALLOW_ANYBODY},
        {"GET", "/v1/login", ALLOW_ANYBODY},
        {"POST", "/v1/login", ALLOW_ANYBODY},
        {"POST", "/v1/login/code", ALLOW_ANYBODY},
        {"POST", "/v1/login/oidc/{name}", ALLOW_ANYBODY},
        {"POST", "/v1/login/oidc/{name}/finish", ALLOW_ANYBODY},
        {"POST", "/v1/login/device", ALLOW_ANYBODY},
        {"POST", "/v1/login/device/token", ALLOW_ANYBODY},
        {"POST", "/v1/logout", ALLOW_ANYBODY},
        {"GET", "/v1/users", ALLOW_ADMIN},
        {"PUT", "/v1/users/{name}", ALLOW_ADMIN},
        {"DELETE", "/v1/users/{name}", ALLOW_ADMIN},
        {"GET", "/v1/agent", ALLOW_AGENT},
        {"GET", "/v1/jobs/{job}/script", ALLOW_JOB},
        {"GET", "/v1/jobs/{job}/environment", ALLOW_JOB},
        {"GET", "/v1/jobs/{job}/logs", ALLOW_JOB},
        {"GET", "/v1/jobs/{job}/exec", ALLOW_OWNER},
        {"GET", "/v1/jobs/{job}/connect", ALLOW_OWNER},
        {"GET", "/v1/jobs/{job}/shares", ALLOW_OWNER},
        {"POST", "/v1/jobs/{job}/shares", ALLOW_OWNER},
        {"DELETE", "/v1/jobs/{job}/shares", ALLOW_OWNER},
        {"GET", "/v1/apps/authorize", ALLOW_ANYBODY},
        {"GET", "/v1/jobs/{job}/attach", ALLOW_OWNER},
        {"GET", "/v1/jobs/{job}/step", ALLOW_OWNER},
        {"POST", "/v1/jobs/{job}/resize", ALLOW_OWNER},
        {"POST", "/v1/jobs/{job}/workers", ALLOW_OWNER},
        {"GET", "/v1/replay", ALLOW_ADMIN},
        {"GET", "/v1/nodes/{name}/log", ALLOW_ADMIN},
        {"GET", "/v1/log", ALLOW_ADMIN},
        {"GET", "/v1/trace", ALLOW_ADMIN},
        {"POST", "/v1/nodes/{name}/drain", ALLOW_OPERATOR},
        {"POST", "/v1/nodes/{name}/resume", ALLOW_OPERATOR},
        {"DELETE", "/v1/nodes/{name}", ALLOW_ADMIN},
        {"POST", "/v1/upgrade/finish", ALLOW_ADMIN},
        {"POST", "/v1/reload", ALLOW_ADMIN},
        {"POST", "/v1/hand-over", ALLOW_ADMIN},
        {"GET", "/v1/backups", ALLOW_ADMIN},
        {"POST", "/v1/backups", ALLOW_ADMIN},
        {"GET", "/v1/audit", ALLOW_ADMIN},
        {"PUT", "/v1/policy", ALLOW_ADMIN},
        {"POST", "/v1/policy/dry-run", ALLOW_ADMIN},
        {"POST", "/v1/alerts/ack", ALLOW_OPERATOR},
        {"PUT", "/v1/alerts/{name}", ALLOW_ADMIN},
        {"DELETE", "/v1/alerts/{name}", ALLOW_ADMIN},
        {"PUT", "/v1/providers/{name}", ALLOW_ADMIN},
        {"DELETE", "/v1/providers/{name}", ALLOW_ADMIN},
        {"PUT", "/v1/partitions/{name}", ALLOW_ADMIN},
        {"PUT", "/v1/qos/{name}", ALLOW_ADMIN},
        {"PUT", "/v1/licenses/{name}", ALLOW_ADMIN},
        {"PUT", "/v1/reservations/{name}", ALLOW_OPERATOR},
        {"DELETE", "/v1/projects/{name}", ALLOW_ADMIN},
        {"DELETE", "/v1/partitions/{name}", ALLOW_ADMIN},
        {"DELETE", "/v1/qos/{name}", ALLOW_ADMIN},
        {"DELETE", "/v1/licenses/{name}", ALLOW_ADMIN},
        {"DELETE", "/v1/reservations/{name}", ALLOW_OPERATOR},
    };
    size_t count = sizeof special / sizeof *special, found = 0;
    for (size_t i = 0; i < count; i++)
        assert_non_null(find(special[i].method, special[i].path));
    for (size_t i = 0; i < api_route_count; i++) {
        enum permission expected = ALLOW_USER;
        for (size_t k = 0; k < count; k++)
            if (find(special[k].method, special[k].path) == &api_routes[i]) {
                expected = special[k].permission;
                found++;
            }
        if (api_routes[i].permission != expected)
            fail_msg("%s %s has permission %d", api_routes[i].method, api_routes[i].path, api_routes[i].permission);
    }
    assert_int_equal(found, count);
}

static void every_route_names_its_types(void **state) {
    for (size_t i = 0; i < api_route_count; i++) {
        const struct route *r = &api_routes[i];
        assert_non_null(r->handler);
        assert_true(r->help && *r->help);
        if ((r->form == FORM_JSON || r->form == FORM_LIST || r->form == FORM_WAIT || r->form == FORM_EVENTS) && !r->answer)
            fail_msg("%s %s has no answer", r->method, r->path);
        if (streq(r->method, "PUT") && !r->body && !r->body_is_bytes)
            fail_msg("%s %s has no body", r->method, r->path);
        assert_true(!r->query || r->query->count <= 64);
        for (size_t k = 0; k < i; k++)
            assert_false(streq(r->method, api_routes[k].method) && streq(r->path, api_routes[k].path));
    }
}

static void states_have_the_words_of_jobs(void **state) {
    const struct schema *states = NULL;
    for (size_t i = 0; i < answer_array_schema.count; i++)
        if (streq(answer_array_schema.fields[i].name, "states"))
            states = answer_array_schema.fields[i].sub;
    assert_int_equal(states->count, JOB_STATE_COUNT);
    for (int i = 0; i < JOB_STATE_COUNT; i++)
        assert_string_equal(states->fields[i].name, job_state_words[i]);
}

static void the_document_is_json_with_every_route(void **state) {
    cleanup_arena struct arena a = {0};
    cleanup_buf struct buf b = {0};
    struct error e = {0};
    struct json *j;
    api_openapi_write(&b);
    assert_int_equal(json_parse(b.data, b.len, &a, &j, &e), 0);  // repeated keys are refused
    const struct json *paths = json_get(j, "paths"), *schemas = json_get(json_get(j, "components"), "schemas");
    assert_true(paths && schemas && schemas->len > 50);
    size_t operations = 0;
    for (uint32_t i = 0; i < paths->len; i++)
        operations += paths->members[i].value.len;
    assert_int_equal(operations, api_route_count);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(parameters_become_a_struct),
        cmocka_unit_test(a_parameter_that_is_zero_was_given),
        cmocka_unit_test(bad_parameters_are_named),
        cmocka_unit_test(bad_bodies_are_named),
        cmocka_unit_test(permissions_are_these),
        cmocka_unit_test(every_route_names_its_types),
        cmocka_unit_test(states_have_the_words_of_jobs),
        cmocka_unit_test(the_document_is_json_with_every_route),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
