// Fair share: what each project is due of one resource, level by level of the tree.
#pragma once
#include <stdint.h>

// One claimant at one level. In: quota, want (demand, capped by limit), weight, id.
// Out: got.
struct share_claim {
    int64_t quota, want, weight;
    uint32_t id;
    int64_t got;
    int64_t remainder;  // scratch
};

// Everybody gets min(quota, want) — scaled down when that is more than there is — and the rest is
// poured by weight among those who want more, in whole units; leftovers one unit at a time by
// largest remainder, then oldest project (lowest id): a tie that waiting cannot turn around, or two
// projects would take the last unit from each other for ever. Never gives more than `capacity` or than anyone wants.
void sched_share_pour(struct share_claim *claims, uint32_t n, int64_t capacity, int64_t unit);
