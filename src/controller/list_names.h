// Lists of jobs by their ids: "12", "12_3", "12+1", "12_[1-5,7]", an array as a whole. Each name is looked up in turn,
// among the live jobs and then in history, with as many pauses as it takes.
#pragma once
#include "listing.h"
#include "sliced_read.h"

// Live jobs that were looked at, by ascending ids: they may end meanwhile, and be in history.
struct id_range {
    uint64_t first, last;
};
struct seen_ids {
    VEC(struct id_range) ranges;
};
void seen_ids_add(struct seen_ids *s, uint64_t id);
bool seen_ids_have(const struct seen_ids *s, uint64_t id);
void seen_ids_done(struct seen_ids *s);

struct list_names;
// NULL: one of them is none, as `e` says. Ended by list_names_free.
struct list_names *list_names_new(const char *text, struct listing *l, struct sliced_read *read,
                                  struct error *e);
bool list_names_go_on(struct list_names *n);  // true: all were looked up, or the list is as long as it may be
struct list_names *list_names_free(struct list_names *n);
