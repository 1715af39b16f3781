// Path patterns of output files: %j job, %x name, %u user, %A array, %a index, %b index modulo 10,
// %N node, %n node number, %t task, %s step, %J job.step, %%; %5j pads a number with zeros.
#pragma once
#include <stdbool.h>
#include <stdint.h>

#include "base/buf.h"
#include "base/error.h"

enum { PATTERN_PATH_MAX = 4095, PATTERN_WIDTH_MAX = 10 };

#define PATTERN_DEFAULT "acequia-%j.out"
#define PATTERN_DEFAULT_ARRAY "acequia-%A_%a.out"
#define PATTERN_DEFAULT_WORKER "acequia-%A+%a.out"

struct pattern_values {
    uint64_t job, array;  // array: 0 outside arrays
    uint32_t array_index;
    const char *name, *user, *node;
    uint32_t node_index, task, step;
};

int pattern_check(const char *pattern, struct error *e);
// Appends an absolute path; a relative pattern lies below `workdir`. A '/' in a name becomes '_'.
int pattern_expand(const char *pattern, const char *workdir, const struct pattern_values *v, struct buf *out,
                   struct error *e);
