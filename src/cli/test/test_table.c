// Tables and job columns.
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>
#include <cmocka.h>

#include "base/text.h"
#include "cli/job_columns.h"
#include "cli/table.h"

static void columns_line_up(void **state) {
    static const struct table_column columns[] = {{"NAME", false, 5, 4}, {"CPUS", true, 0, 0}, {"WHERE", false, 0, 0}};
    cleanup_arena struct arena a = {0};
    cleanup_buf struct buf out = {0};
    struct table t;
    table_init(&t, &a, columns, 3);
    table_add(&t, "caf\xc3\xa9", COLOUR_NONE);
    table_addf(&t, "%d", 8);
    table_add(&t, "n1", COLOUR_NONE);
    table_add(&t, "a-very-long-name-indeed", COLOUR_NONE);
    table_addf(&t, "%d", 128);
    table_add(&t, NULL, COLOUR_NONE);
    table_print(&t, 24, true, false, &out);
    assert_string_equal(buf_str(&out),
                        "NAME         CPUS  WHERE\n"
                        "caf\xc3\xa9            8  n1\n"
                        "a-very-lon+   128\n");
    buf_clear(&out);
    table_print(&t, 0, false, false, &out);
    assert_non_null(strstr(buf_str(&out), "a-very-long-name-indeed   128"));
    table_done(&t);
}

static const char row[] = "{\"id\":12,\"label\":\"12_[3-99%5]\",\"name\":\"a name that is much longer than the room there is for it\","
                          "\"user\":\"someone\",\"state\":\"PENDING\",\"reason\":\"Resources\",\"cpus\":4,\"gpus_milli\":2500,"
                          "\"time_limit_s\":28800,\"elapsed_ms\":61000,\"memory_peak_bytes\":1073741824,\"exit_signal\":9}";

static void a_row_fits(void **state) {
    cleanup_arena struct arena a = {0};
    cleanup_buf struct buf out = {0}, fields = {0};
    struct job_columns c;
    struct json *j;
    struct table t;
    struct error e;
    assert_int_equal(json_parse(row, strlen(row), &a, &j, &e), 0);
    assert_int_equal(job_columns_parse(JOB_COLUMNS_LIVE, &c, &e), 0);
    table_init(&t, &a, c.titles, c.count);
    job_columns_add(&c, &a, j, 0, &t);
    table_print(&t, 80, true, false, &out);
    for (const char *p = buf_str(&out); *p; p += strcspn(p, "\n") + 1)
        assert_true(strcspn(p, "\n") <= 80);
    assert_non_null(strstr(buf_str(&out), "12_[3-99%5]"));
    assert_non_null(strstr(buf_str(&out), "(Resources)"));
    assert_non_null(strstr(buf_str(&out), "2.5"));
    assert_non_null(strstr(buf_str(&out), "8:00:00"));
    job_columns_fields(&c, &fields);
    assert_non_null(strstr(buf_str(&fields), "gpus_milli"));
    assert_true(job_columns_parse("id,nmae", &c, &e) < 0);
    assert_non_null(strstr(e.text, "did you mean \"name\""));
    assert_true(job_columns_parse("", &c, &e) < 0);
    table_done(&t);
}

static void rows_sort(void **state) {
    static const char text[] = "[{\"id\":1,\"cpus\":4},{\"id\":2,\"cpus\":16},{\"id\":3,\"cpus\":4}]";
    cleanup_arena struct arena a = {0};
    struct json *j;
    struct error e;
    assert_int_equal(json_parse(text, strlen(text), &a, &j, &e), 0);
    const struct json *rows[] = {&j->items[0], &j->items[1], &j->items[2]};
    assert_int_equal(job_rows_sort(rows, 3, "-cpus", &e), 0);
    assert_int_equal(json_i64(rows[0], "id", 0), 2);
    assert_int_equal(json_i64(rows[1], "id", 0), 1);
    assert_true(job_rows_sort(rows, 3, "colour", &e) < 0);
}

int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(columns_line_up), cmocka_unit_test(a_row_fits), cmocka_unit_test(rows_sort)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
