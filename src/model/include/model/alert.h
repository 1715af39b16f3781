// Alerts: a rule says which metric must not be above or below a value for how long; an alert is one metric that is.
// Metrics are named as the charts are, "gpu/n1/0/temperature_celsius"; in a rule "*" stands for any one part.
#pragma once
#include <stdbool.h>
#include <stdint.h>

#include "base/error.h"
#include "base/schema.h"

enum alert_when { ALERT_ABOVE, ALERT_BELOW };
extern const char *const alert_when_words[];

enum {
    ALERT_METRIC_MAX = 159,  // bytes of a metric's name
    ALERT_RULES_MAX = 64,
    ALERTS_MAX = 256,  // at a time
    ALERT_FOR_MAX_S = 7 * 86400,
};

struct alert_rule {
    const char *name;
    const char *metric;
    enum alert_when when;
    double value;
    uint32_t for_s;  // without a break
    const char *to;  // mail addresses, users and URLs with commas; NULL: where alerts of this cluster go
    bool disabled;
};
extern const struct schema alert_rule_schema;

bool alert_metric_matches(const char *pattern, const char *name);
int alert_rule_check(const struct alert_rule *r, struct error *e);
bool alert_is_beyond(const struct alert_rule *r, double value);
