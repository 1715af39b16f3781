// What a job waits for: "afterok:12:13_4,singleton". Terms joined by ',' must all hold, joined by
// '?' one suffices; the two do not mix.
#pragma once
#include <stdbool.h>
#include <stdint.h>

#include "base/arena.h"
#include "base/buf.h"
#include "base/error.h"

enum { DEPENDENCY_TERMS_MAX = 1024, DEPENDENCY_TEXT_MAX = 1 << 14, DEPENDENCY_DELAY_MAX_MIN = 525600 };

enum dependency_type { AFTER, AFTER_OK, AFTER_NOT_OK, AFTER_ANY, AFTER_CORR, SINGLETON, DEPENDENCY_TYPE_COUNT };
extern const char *const dependency_words[];  // "after", …

// A job, one element of an array or one worker of an elastic job: "12", "12_3", "12+3".
struct job_ref {
    uint64_t job;
    bool has_index;
    uint32_t index;
    bool is_worker;
    uint32_t worker;
};
int job_ref_parse(const char *text, struct job_ref *out, struct error *e);

struct dependency_term {
    enum dependency_type type;
    struct job_ref ref;       // not for SINGLETON
    uint32_t delay_minutes;   // AFTER: this long after the start
};

struct dependency {
    bool any;  // one term suffices
    struct dependency_term *at;
    uint32_t len;
};

int dependency_parse(const char *text, struct arena *a, struct dependency *out, struct error *e);
void dependency_format(const struct dependency *d, struct buf *out);
