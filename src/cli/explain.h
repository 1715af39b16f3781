// Answers of the controller that are for reading: sentences where it gives them, else names and values.
#pragma once
#include "base/json.h"
#include "cli/cli.h"

void explain_print(struct cli *c, const struct json *answer, struct buf *out);
