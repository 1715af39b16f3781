// Filters as people write them: terms separated by blanks, all of which must hold.
//   user=ana* state=R|PD gpus>=2 tag=exp1 age>1d name="my job*"
// A term is a column, one of = != < <= > >=, and a value. Texts are compared by = and !=, with patterns (* any
// characters, ? one) and alternatives (a|b); numbers, sizes, durations and times by all six. Quotes protect blanks, a
// backslash the character after it.
#pragma once
#include <stdbool.h>
#include <stdint.h>

#include "base/arena.h"
#include "base/error.h"

enum {
    WHERE_BYTES_MAX = 1024,
    WHERE_TERMS_MAX = 16,
    WHERE_VALUES_MAX = 16,     // alternatives of a term
    WHERE_MATCHED_MAX = 4096,  // bytes of a text that are looked at
};

enum where_kind {
    WHERE_TEXT,
    WHERE_NUMBER,
    WHERE_FLAG,     // yes, no
    WHERE_GPUS,     // thousandths; written 2 or 0.5
    WHERE_BYTES,    // written 8G
    WHERE_SECONDS,  // written 8h, 1d
    WHERE_MILLIS,   // likewise
    WHERE_TIME,     // ms since 1970, 0: none; written as model/units.h time_parse
};
enum where_op { WHERE_EQUAL, WHERE_UNEQUAL, WHERE_BELOW, WHERE_AT_MOST, WHERE_ABOVE, WHERE_AT_LEAST };

struct where_column {
    const char *name;
    enum where_kind kind;
};

struct where_term {
    uint32_t column;
    enum where_kind kind;
    enum where_op op;
    uint32_t count;
    const char *patterns[WHERE_VALUES_MAX];  // of texts
    int64_t numbers[WHERE_VALUES_MAX];       // of the others
};

struct where {
    uint32_t count;
    struct where_term at[WHERE_TERMS_MAX];
};

// Where times without a zone are meant.
struct where_clock {
    int64_t now_ms;
    int32_t zone_offset_s;
};

int where_parse(const char *text, const struct where_column *columns, uint32_t column_count,
                const struct where_clock *clock, struct arena *a, struct where *out, struct error *e);
bool where_number(const struct where_term *t, int64_t value);
// Of several texts (a job's tags, both words of a state) one must match, or for != none.
bool where_texts(const struct where_term *t, const char *const *texts, uint32_t count);
// * any characters, ? one, \ the next character itself. Steps are at most the product of both lengths.
bool where_pattern_match(const char *pattern, const char *text, size_t len);
