// Index lists of job arrays: "0-99999:2%50", "1,3,5-9". The ranges that come out are ascending and
// do not overlap, so each index is there once.
#pragma once
#include <stdint.h>

#include "base/arena.h"
#include "base/buf.h"
#include "base/error.h"
#include "model/job.h"

enum { ARRAY_INDEX_MAX = 3999999, ARRAY_ELEMENTS_MAX = 1000000, ARRAY_TEXT_MAX = 1 << 16 };

struct array_spec {
    struct array_range *at;
    uint32_t len;
    uint32_t limit;     // elements running at once; 0: no limit
    uint64_t elements;
};

int array_parse(const char *text, struct arena *a, struct array_spec *out, struct error *e);
// "3-99%5" from ascending indices; limit 0 leaves the part from % out.
void array_fold(const uint32_t *indices, uint32_t count, uint32_t limit, struct buf *out);
void array_ranges_format(const struct array_range *ranges, uint32_t count, uint32_t limit, struct buf *out);
