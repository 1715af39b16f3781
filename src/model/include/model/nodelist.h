// Lists of node names in folded form: "n[01-04,7],gpu1". Expanding keeps the written order and
// drops repeats; folding sorts by prefix and number.
#pragma once
#include <stdint.h>

#include "base/arena.h"
#include "base/buf.h"
#include "base/error.h"

enum { NODELIST_NAMES_MAX = 65536, NODELIST_TEXT_MAX = 1 << 20 };

struct name_list {
    const char **at;
    uint32_t len;
};

int nodelist_expand(const char *text, struct arena *a, struct name_list *out, struct error *e);
void nodelist_fold(const char *const *names, uint32_t count, struct buf *out);
