// Tables and job columns.
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>
#include <cmocka.h>

#include "base/text.h"
#include "cli/job/columns.h"
#include "cli/job/rows.h"
#include "cli/term/screen.h"
#include "cli/term/table.h"

static void columns_line_up(void **state) {
    static const struct table_column columns[] = {{"NAME", false, 5, 4}, {"CPUS", true, 0, 0}, {"WHERE", false, 0, 0}};
    cleanup_arena struct arena a = {0};
    cleanup_buf struct buf out = {0};
    struct text_table t;
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

static const char page[] =
    "{\"fields\":[\"label\",\"name\",\"user\",\"state\",\"reason\",\"cpus\",\"gpus_milli\",\"time_limit_s\","
    "\"elapsed_ms\"],"
    "\"jobs\":[[\"12_[3-99%5]\",\"a name that is much longer than the room there is for it\",\"someone\","
    "\"PENDING\",\"Resources\",4,2500,28800,61000]]}";

static void a_row_fits(void **state) {
    cleanup_arena struct arena a = {0};
    cleanup_buf struct buf out = {0}, fields = {0};
    struct job_columns c;
    struct json *j;
    struct text_table t;
    struct error e;
    assert_int_equal(json_parse(page, strlen(page), &a, &j, &e), 0);
    struct job_rows rows = {.fields = json_get(j, "fields")};
    assert_int_equal(job_columns_parse(JOB_COLUMNS_LIVE, &c, &e), 0);
    job_columns_bind(&c, &rows);
    table_init(&t, &a, c.titles, c.count);
    job_columns_add(&c, &a, &json_get(j, "jobs")->items[0], 0, &t);
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
    static const char text[] = "{\"fields\":[\"id\",\"cpus\"],\"jobs\":[[1,4],[2,16],[3,4]]}";
    cleanup_arena struct arena a = {0};
    struct json *j;
    struct error e;
    assert_int_equal(json_parse(text, strlen(text), &a, &j, &e), 0);
    struct job_rows rows = {.fields = json_get(j, "fields")};
    for (int i = 0; i < 3; i++)
        vec_push(&rows.rows, &json_get(j, "jobs")->items[i]);
    assert_int_equal(job_rows_sort(&rows, "-cpus", &e), 0);
    assert_int_equal(rows.rows.at[0]->items[0].i, 2);
    assert_int_equal(rows.rows.at[1]->items[0].i, 1);
    assert_true(job_rows_sort(&rows, "colour", &e) < 0);
    vec_done(&rows.rows);
}

static void wide_characters_take_two_columns(void **state) {
    static const struct table_column columns[] = {{"NAME", false, 5, 4}, {"CPUS", true, 0, 0}};
    cleanup_arena struct arena a = {0};
    cleanup_buf struct buf out = {0};
    struct text_table t;
    assert_int_equal(table_text_width("\u65e5\u672c e\u0301 \U0001f680"), 9);
    table_init(&t, &a, columns, 2);
    table_add(&t, "\u65e5\u672c\u8a9e", COLOUR_NONE);
    table_add(&t, "1", COLOUR_NONE);
    table_add(&t, "abcdefgh", COLOUR_NONE);
    table_add(&t, "2", COLOUR_NONE);
    table_print(&t, 0, false, false, &out);
    assert_string_equal(buf_str(&out), "\u65e5\u672c\u8a9e       1\nabcdefgh     2\n");
    buf_clear(&out);
    table_print(&t, 11, false, false, &out);  // five columns are left: two characters and the mark
    assert_string_equal(buf_str(&out), "\u65e5\u672c+     1\nabcd+     2\n");
    table_done(&t);
}

// Where even the least widths are too wide, columns give up more of theirs.
static void narrow_terminals(void **state) {
    static const struct table_column columns[] = {
        {"JOB", false, 1, 8}, {"STATE", false, 0, 0}, {"WHERE", false, 6, 12}};
    cleanup_arena struct arena a = {0};
    cleanup_buf struct buf out = {0};
    struct text_table t;
    table_init(&t, &a, columns, 3);
    table_add(&t, "5_[10-99%10]", COLOUR_NONE);
    table_add(&t, "PENDING", COLOUR_NONE);
    table_add(&t, "(JobArrayTaskLimit)", COLOUR_NONE);
    table_print(&t, 31, false, false, &out);
    assert_string_equal(buf_str(&out), "5_[10-9+  PENDING  (JobArrayTa+\n");
    buf_clear(&out);
    table_print(&t, 17, false, false, &out);
    assert_string_equal(buf_str(&out), "5_+  PENDING  (J+\n");
    table_done(&t);
}

static void screens_are_cut(void **state) {
    cleanup_buf struct buf out = {0};
    assert_int_equal(screen_fit("one\ncaf\xc3\xa9 au lait\n\033[32mgreen\033[0m tea\nfour\nfive\n", 3, 7, &out), 2);
    assert_string_equal(buf_str(&out),
                        "one\033[K\r\n"
                        "caf\xc3\xa9 au\033[K\r\n"
                        "\033[32mgreen\033[0m t\033[0m\033[K\r\n");
}

int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(columns_line_up),
                                       cmocka_unit_test(a_row_fits),
                                       cmocka_unit_test(rows_sort),
                                       cmocka_unit_test(narrow_terminals),
                                       cmocka_unit_test(wide_characters_take_two_columns),
                                       cmocka_unit_test(screens_are_cut)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
