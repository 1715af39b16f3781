// What counts as progress in a job's output and in its progress file.
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>
#include <cmocka.h>

#include "model/progress.h"

static void output(void **state) {
    (void)state;
    static const struct {
        const char *text;
        int milli;  // -1: none
        const char *shown;
    } cases[] = {
        {"37%\n", 370, "37%"},
        {"loading\n 12.5 % done\n", 125, "12.5 %"},
        {"Progress: 80%", 800, "80%"},
        {"progress = 100 %\n", 1000, "100 %"},
        {"epoch 3/10\n", 300, "epoch 3/10"},
        {"Epoch [3/10] loss 0.12\n", 300, "Epoch [3/10"},
        {"Epoch 1/4, step 50/200: loss 1.2\n", 62, "Epoch 1/4"},
        {"step 40 of 200\n", 200, "step 40 of 200"},
        {"[3/12] Building C object\n", 250, "3/12"},
        {" 37%|###7      | 37/100 [00:12<00:20, 3.1it/s]", 370, "37%"},
        {"  1%|          | 1/100\r 52%|#####2    | 52/100 [00:01<00:01]", 520, "52%"},
        {"train:  45%|####5     | 9/20 [00:01<00:01]\r", 450, "45%"},
        {"epoch 2/4\nsome words\nmore words\n", 500, "epoch 2/4"},
        {"0/10\n", -1, NULL},
        {"epoch 0/10\n", 0, "epoch 0/10"},
        {"accuracy 92.3%\n", -1, NULL},
        {"GPU use 98 % of 4\n", -1, NULL},
        {"2024/11/12 all is well\n", -1, NULL},
        {"epoch 11/10\n", -1, NULL},
        {"epoch 3/0\n", -1, NULL},
        {"350%\n", -1, NULL},
        {"epochs3/10\n", -1, NULL},
        {"step 99999999999999999999/3\n", -1, NULL},
        {"", -1, NULL},
        {"\n\r\n\r", -1, NULL},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        struct progress p;
        bool found = progress_from_output(cases[i].text, strlen(cases[i].text), &p);
        if (found != (cases[i].milli >= 0) || (found && (int)p.milli != cases[i].milli))
            fail_msg("\"%s\": %s, %u", cases[i].text, found ? "found" : "none", p.milli);
        if (found)
            assert_string_equal(p.text, cases[i].shown);
    }
}

static void file(void **state) {
    (void)state;
    static const struct {
        const char *text;
        int milli;
        const char *shown;
    } cases[] = {
        {"37%", 370, ""},
        {"0.37 warming up\n", 370, "warming up"},
        {"3/10 third fold\nmore", 300, "third fold"},
        {"0", 0, ""},
        {"1.0\n", 1000, ""},
        {"  25 %  a\tb", 250, "a?b"},
        {"37", -1, NULL},
        {"none", -1, NULL},
        {"", -1, NULL},
        {"101%", -1, NULL},
        {"0.5x", -1, NULL},
        {"-1", -1, NULL},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        struct progress p;
        bool found = progress_from_file(cases[i].text, strlen(cases[i].text), &p);
        if (found != (cases[i].milli >= 0) || (found && (int)p.milli != cases[i].milli))
            fail_msg("\"%s\": %s, %u", cases[i].text, found ? "found" : "none", p.milli);
        if (found)
            assert_string_equal(p.text, cases[i].shown);
    }
}

static void time_left(void **state) {
    (void)state;
    assert_int_equal(progress_left_ms(250, 60000), 180000);
    assert_int_equal(progress_left_ms(1000, 60000), 0);
    assert_int_equal(progress_left_ms(0, 60000), -1);
    assert_int_equal(progress_left_ms(500, 0), -1);
    assert_int_equal(progress_left_ms(500, INT64_MAX), -1);
}

int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(output), cmocka_unit_test(file),
                                       cmocka_unit_test(time_left)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
