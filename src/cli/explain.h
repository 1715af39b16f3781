// Answers of the controller that are for reading.
#pragma once
#include "base/json.h"
#include "cli/cli.h"

void explain_print(const struct json *answer, struct buf *out);
