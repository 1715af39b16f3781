// Rules of alerts: their table, their grammar and what they match.
#include "model/alert.h"

#include <ctype.h>
#include <errno.h>
#include <math.h>
#include <string.h>

#include "base/text.h"
#include "model/name.h"
#include "model/notify.h"

const char *const alert_when_words[] = {"above", "below", NULL};

#define S struct alert_rule
static const struct field rule_fields[] = {
    FIELD(1, S, name, "Name of the rule."),
    FIELD(2, S, metric,
          "Metric as /v1/series names them; * stands for any one part: gpu/*/*/temperature_celsius."),
    FIELD_WORDS(3, S, when, alert_when_words, "above or below."),
    FIELD(4, S, value, "The value it must not be above or below."),
    FIELD(5, S, for_s, "For so many seconds without a break."),
    FIELD(6, S, to, "Mail addresses, users and URLs with commas; null: alerts_to of [notify]."),
    FIELD(7, S, disabled, "It is not looked at."),
};
const struct schema alert_rule_schema = SCHEMA(S, "an alert rule", rule_fields);
#undef S

bool alert_metric_matches(const char *pattern, const char *name) {
    for (;;) {
        size_t want = strcspn(pattern, "/"), have = strcspn(name, "/");
        bool any = want == 1 && *pattern == '*';
        if (!any && (want != have || memcmp(pattern, name, want) != 0))
            return false;
        pattern += want;
        name += have;
        if (*pattern != *name || !*pattern)
            return *pattern == *name;
        pattern++;
        name++;
    }
}

static int metric_check(const char *metric, struct error *e) {
    size_t len = metric ? strlen(metric) : 0;
    bool ok = len && len <= ALERT_METRIC_MAX && strchr(metric, '/') && metric[len - 1] != '*' &&
              metric[len - 1] != '/';
    for (size_t i = 0; ok && i < len; i++)
        ok = isalnum((unsigned char)metric[i]) || strchr("/*._-", metric[i]);
    if (ok)
        return 0;
    return error_set(
        e, EINVAL,
        "metric: give the name of a series, with * for any one part, as gpu/*/*/temperature_celsius; "
        "GET /v1/series lists them");
}

int alert_rule_check(const struct alert_rule *r, struct error *e) {
    int rc;
    if ((rc = name_check("alert", r->name, e)) < 0 || (rc = metric_check(r->metric, e)) < 0 ||
        (!str_empty(r->to) && (rc = spec_notify_targets_check(r->to, e)) < 0))
        return rc;
    if (!isfinite(r->value))
        return error_set(e, ERANGE, "value: give a number");
    if (r->when > ALERT_BELOW)
        return error_set(e, EINVAL, "when: expected above or below");
    if (r->for_s > ALERT_FOR_MAX_S)
        return error_set(e, ERANGE, "for_s: at most a week, %d", ALERT_FOR_MAX_S);
    return 0;
}

bool alert_is_beyond(const struct alert_rule *r, double value) {
    return r->when == ALERT_ABOVE ? value > r->value : value < r->value;
}
