// Owns the printing of explanations: the controller sends the sentences ready to read.
#include "cli/explain.h"

void explain_print(const struct json *answer, struct buf *out) {
    const struct json *lines = answer ? json_get(answer, "lines") : NULL;
    for (uint32_t i = 0; lines && lines->type == JSON_ARRAY && i < lines->len; i++)
        if (lines->items[i].type == JSON_STRING) {
            const char *line = lines->items[i].s;
            bool item = line[0] == ' ' && line[1] == ' ';  // of a list
            if (item)
                buf_adds(out, "  ");
            help_wrap(out, line + (item ? 2 : 0), item ? 2 : 0, item ? 6 : 2);
        }
}
