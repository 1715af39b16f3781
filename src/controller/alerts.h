// Alerts: looks at every metric that comes in against the built-in rules and those that administrators have set, and
// tells the core when one is beyond its rule for long enough, and when it is back. Which hold, and who has
// acknowledged them, is the core's state.
#pragma once
#include "controller.h"
#include "model/alert.h"

struct alerts *alerts_new(void);
struct alerts *alerts_free(struct alerts *a);  // returns NULL

// A value of a metric; of those that are fine as long as nobody speaks of them (node/NAME/up) only what is not.
void alerts_measure(struct controller *c, const char *metric, double value);
void alerts_tick(struct controller *c, int64_t mono_ms);  // once a second
// "gpu/n1/0/temperature_celsius is above 85 for 2 min: 91.5"
void alerts_describe(const struct controller *c, const char *rule, const char *subject, double value,
                     struct buf *out);
const struct alert_rule *alerts_rule(const struct controller *c,
                                     const char *name);  // as in force; NULL: none
