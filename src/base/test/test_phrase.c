// Phrases: the English text, and the same as a code and values.
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include "base/phrase.h"

static const struct phrase holds = {"holds", "Job {job} holds {n} {n|node|nodes}: {what}."};
static const struct phrase waits = {"waits", "It waits {time}, {time}"};
static const struct phrase some = {"some", "{n} down"};
static const struct phrase most = {"most", "{gpus}, {cpus}, {bytes}, {time}"};

static void are_text_and_code(void **state) {
    (void)state;
    struct buf text = {0}, json = {0};
    struct json_writer w = {.out = &json};
    struct phrase_out out = {&text, &w};
    const struct phrase_part parts[] = {{&some, {SAY_NUMBER(2)}}, {&most, {SAY_GPUS(500), SAY_CPUS(1), SAY_BYTES(5 << 20), SAY_SPAN(60000)}}};
    json_open(&w, '[');
    SAY(&out, &holds, SAY_TEXT("7 {n} \"x\""), SAY_NUMBER(1), SAY_PARTS(parts, 2));
    SAY(&out, &waits, SAY_RANGE(2160000, 3600000));
    json_close(&w, ']');
    assert_string_equal(text.data, "Job 7 {n} \"x\" holds 1 node: 2 down, 0.5 GPUs, 1 CPU, 5 MiB, 60 s.\n"
                                   "It waits 36 to 60 min, 36 to 60 min\n");
    assert_string_equal(json.data,
                        "[{\"code\":\"holds\",\"values\":{\"job\":\"7 {n} \\\"x\\\"\",\"n\":1,\"what\":["
                        "{\"code\":\"some\",\"values\":{\"n\":2}},{\"code\":\"most\",\"values\":{\"gpus\":{\"gpus_milli\":500},"
                        "\"cpus\":{\"cpus\":1},\"bytes\":{\"bytes\":5242880},\"time\":{\"ms\":60000}}}]}},"
                        "{\"code\":\"waits\",\"values\":{\"time\":{\"from_ms\":2160000,\"to_ms\":3600000}}}]");
    buf_done(&text);
    buf_done(&json);
}

static void amounts_are_rounded(void **state) {
    (void)state;
    const struct {
        struct phrase_value value;
        const char *text;
    } cases[] = {
        {SAY_RANGE(50000, 7200000), "50 s to 2 h"}, {SAY_RANGE(60000, 60000), "60 s"}, {SAY_SPAN(-5), "0 s"},
        {SAY_SPAN(INT64_C(400) * 86400000), "400 days"}, {SAY_GPUS(1000), "1 GPU"}, {SAY_GPUS(1250), "1.25 GPUs"},
        {SAY_BYTES(INT64_C(64) << 30), "64 GiB"}, {SAY_CPUS(2), "2 CPUs"},
    };
    static const struct phrase one = {"one", "{value}"};
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        struct buf text = {0};
        phrase_text(&text, &one, (const struct phrase_value[PHRASE_VALUES_MAX]){cases[i].value});
        assert_string_equal(text.data, cases[i].text);
        buf_done(&text);
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(are_text_and_code), cmocka_unit_test(amounts_are_rounded)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
