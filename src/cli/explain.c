// Owns the printing of explanations: the controller sends the sentences ready to read.
#include "cli/explain.h"

void explain_print(const struct json *answer, struct buf *out) {
    const struct json *lines = answer ? json_get(answer, "lines") : NULL;
    for (uint32_t i = 0; lines && lines->type == JSON_ARRAY && i < lines->len; i++)
        if (lines->items[i].type == JSON_STRING)
            help_wrap(out, lines->items[i].s, 0, 2);
}
