// Fair share of one resource at one level of the project tree. share.c.
#pragma once
#include <stdint.h>

enum {
    SHARE_EXACT = 0
};  // as a unit: 1, and nothing is given to one of several equal claims and not to another

// One project that wants a part. In: quota, want (demand, capped by limit), weight, id. Out: got.
struct share_claim {
    int64_t quota, want, weight;
    uint32_t id;
    int64_t got;
    int64_t remainder;  // of the division by weight, while it is under way
};

// Each gets min(quota, want), scaled down in proportion if that is more than the capacity. The rest is divided by
// weight among those that want more, in whole units; units left over by rounding go one by one to the largest
// remainder, then to the lowest id. That tie must not depend on who uses the unit now, or two projects would
// preempt each other for it for ever. Gives no more than `capacity` in all, and to none more than it wants.
// Example: 10 GPUs, A (quota 2, weight 1) wants 8, B (quota 4, weight 2) wants 8. Quotas: 2 and 4. The other 4
// by weight are 1.33 and 2.67, so 1 and 2 whole ones; the last goes to B, whose remainder is larger: 3 and 7.
void sched_share_pour(struct share_claim *claims, uint32_t n, int64_t capacity, int64_t unit);
