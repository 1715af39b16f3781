// Sentences that people read in their own language: a code, and the English text as a template. A sentence is said with
// values; that gives its English text, and its code and values as JSON, from which a reader with a catalogue of
// another language makes its own text.
//
// "{n}" stands for a value; values are given in the order in which their names come first. "{n|job|jobs}" is the
// first word for 1 and the second one for all else; the number is not repeated.
#pragma once
#include <stddef.h>
#include <stdint.h>

#include "base/buf.h"
#include "base/json.h"

enum { PHRASE_VALUES_MAX = 5 };

struct phrase {
    const char *code, *english;
};

struct phrase_part;
struct phrase_value {
    enum {
        PHRASE_NUMBER,
        PHRASE_TEXT,
        PHRASE_GPUS,   // thousandths
        PHRASE_CPUS,
        PHRASE_BYTES,
        PHRASE_SPAN,   // ms, rounded as a forecast is
        PHRASE_RANGE,  // from `number` to `to`, both ms
        PHRASE_PARTS   // phrases, joined by commas
    } kind;
    int64_t number, to;
    const char *text;
    const struct phrase_part *parts;
    uint32_t part_count;
};
struct phrase_part {
    const struct phrase *phrase;
    struct phrase_value values[PHRASE_VALUES_MAX];
};

struct phrase_out {
    struct buf *text;          // a line for each sentence
    struct json_writer *json;  // inside an array: [{"code": …, "values": {…}}]; NULL: the text only
};

#define SAY(out, phrase, ...) \
    phrase_say(out, phrase, (const struct phrase_value[PHRASE_VALUES_MAX]){__VA_ARGS__})
#define SAY_NUMBER(n) {.kind = PHRASE_NUMBER, .number = (int64_t)(n)}
#define SAY_TEXT(s) {.kind = PHRASE_TEXT, .text = (s)}
#define SAY_GPUS(milli) {.kind = PHRASE_GPUS, .number = (int64_t)(milli)}
#define SAY_CPUS(n) {.kind = PHRASE_CPUS, .number = (int64_t)(n)}
#define SAY_BYTES(n) {.kind = PHRASE_BYTES, .number = (int64_t)(n)}
#define SAY_SPAN(ms) {.kind = PHRASE_SPAN, .number = (ms)}
#define SAY_RANGE(from_ms, to_ms) {.kind = PHRASE_RANGE, .number = (from_ms), .to = (to_ms)}
#define SAY_PARTS(list, count) {.kind = PHRASE_PARTS, .parts = (list), .part_count = (count)}

void phrase_say(struct phrase_out *out, const struct phrase *p, const struct phrase_value values[PHRASE_VALUES_MAX]);
// The English text alone, without the end of the line.
void phrase_text(struct buf *out, const struct phrase *p, const struct phrase_value values[PHRASE_VALUES_MAX]);
