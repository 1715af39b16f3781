// Finding inputs, on a thread of its own: work begins with the first ones while the rest of ten million names are still
// being read. Names come in a fixed order: folders sorted, objects as S3 sorts them.
#pragma once
#include <stdbool.h>

#include "item.h"
#include "plan.h"
#include "remote.h"

struct data_lister;
// `wake` is called on the lister's thread when there are items after there were none, and at the end.
struct data_lister *data_lister_start(const struct data_source *source, struct data_remote *remote, const char *python,
                                      const char *worker, void (*wake)(void *ctx), void *ctx);
void data_lister_stop(struct data_lister *l);  // also before the end; frees
// Takes up to `max` items; their texts live in the arena. ended: there will be no more; then *e has what went wrong, or
// code 0.
uint32_t data_lister_take(struct data_lister *l, uint32_t max, struct arena *a, data_items *out, bool *ended,
                          struct error *e);
uint64_t data_lister_found(struct data_lister *l);  // so far
