// Pending jobs that are removed by themselves: their deadline cannot be met, or their dependency can no longer be
// satisfied and they asked to be removed then.
#pragma once
#include <stdbool.h>
#include <stdint.h>

struct core;
struct submission;

bool core_may_be_removed(const struct submission *s);
void core_removals(struct core *c, int64_t now_ms);  // a slice of them
