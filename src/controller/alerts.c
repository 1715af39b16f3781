// Owns how long each metric has been beyond its rule. A metric that nobody speaks of any more counts as back: its
// node or job is gone. After a start alerts of the journal stay until it is known how things are. Time is counted by
// ticks, and one that comes late counts as a short one: a clock that is set, or a controller that stood still, neither
// raises alerts nor ends them.
#include "alerts.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "answers_portal.h"
#include "api.h"
#include "base/text.h"
#include "job_sight.h"
#include "model/name.h"
#include "model/units.h"
#include "telemetry.h"

enum {
    WATCHES_MAX = 4096,  // metrics that are beyond a rule, or were a moment ago
    GONE_MS = 30000,     // without a value for so long it is back
    BACK_LEAST_S = 10,   // it is back after as long as it must be beyond, within these
    BACK_MOST_S = 60,
    TICK_MOST_MS = 2000,
    START_MS = 120000,  // alerts from before the start are kept for so long without a value
    KEY_MAX = IDENTIFIER_MAX + ALERT_METRIC_MAX + 2,
};

static const struct alert_rule built_in[] = {
    {.name = "gpu-too-hot", .metric = "gpu/*/*/temperature_celsius", .value = 85, .for_s = 300},
    {.name = "gpu-out-of-use", .metric = "gpu/*/*/healthy", .when = ALERT_BELOW, .value = 1, .for_s = 10},
    {.name = "node-down", .metric = "node/*/up", .when = ALERT_BELOW, .value = 1, .for_s = 300},
    {.name = "node-disk-filling",
     .metric = "node/*/disk_free_ratio",
     .when = ALERT_BELOW,
     .value = 0.05,
     .for_s = 60},
    {.name = "job-holds-idle-gpus", .metric = "job/*/gpu_idle_seconds", .value = 1800},
    {.name = "job-outside-gpu-limits", .metric = "job/*/outside_gpu_limits", .value = 0},
};
enum { BUILT_IN = sizeof built_in / sizeof *built_in };

struct watch {
    char *key;
    const char *subject;  // in the key
    char rule[IDENTIFIER_MAX + 1];
    int64_t since_ms;  // beyond its rule, or back, since then
    int64_t seen_ms;
    double value;
    bool beyond;
};

struct active_rule {
    const struct alert_rule *rule;
    const char *last;  // the last part of its metric: tells most metrics apart
};

struct alerts {
    struct strmap watches;           // rule and metric → struct watch
    VEC(struct active_rule) active;  // copied every second: they are compared with every value that comes in
    struct arena arena;
    int64_t now_ms;     // since the start, as the ticks count it; 0: no tick yet
    int64_t ticked_ms;  // on the clock that is never set
};

static const struct actor watcher = {.user = "root", .admin = true};

struct alerts *alerts_new(void) {
    return xcalloc(1, sizeof(struct alerts));
}

static void watch_free(struct watch *w) {
    free(w->key);
    free(w);
}

struct alerts *alerts_free(struct alerts *a) {
    size_t it = 0;
    void *v;
    while (a && strmap_next(&a->watches, &it, NULL, &v))
        watch_free(v);
    if (a) {
        strmap_done(&a->watches);
        vec_done(&a->active);
        arena_done(&a->arena);
    }
    free(a);
    return NULL;
}

// --- rules ---

const struct alert_rule *alerts_rule(const struct controller *c, const char *name) {
    const struct alert_rule *set = core_alert_rule(c->core, name);
    for (int i = 0; !set && i < BUILT_IN; i++)
        if (streq(built_in[i].name, name))
            return &built_in[i];
    return set;
}

struct rule_walk {
    void (*fn)(void *ctx, const struct alert_rule *r);
    void *ctx;
};

static bool walk_set(void *ctx, const struct event_alert_rule *r) {
    struct rule_walk *w = ctx;
    w->fn(w->ctx, r->rule);
    return true;
}

// Those in force: a rule that was set replaces the built-in one of its name.
static void each_rule(const struct controller *c, void (*fn)(void *ctx, const struct alert_rule *r),
                      void *ctx) {
    for (int i = 0; i < BUILT_IN; i++)
        if (!core_alert_rule(c->core, built_in[i].name))
            fn(ctx, &built_in[i]);
    core_each_alert_rule(c->core, walk_set, &(struct rule_walk){fn, ctx});
}

void alerts_describe(const struct controller *c, const char *rule, const char *subject, double value,
                     struct buf *out) {
    const struct alert_rule *r = alerts_rule(c, rule);
    char span[UNIT_TEXT_MAX];
    if (!r) {
        buf_addf(out, "%s: %g", subject, value);
        return;
    }
    buf_addf(out, "%s is %s %g", subject, alert_when_words[r->when], r->value);
    if (r->for_s)
        buf_addf(out, " for %s", duration_format(r->for_s, span));
    buf_addf(out, ": %g", value);
}

// --- measuring ---

struct measure {
    struct controller *c;
    const char *metric;
    double value;
};

static void measure_rule(const struct measure *m, const struct alert_rule *r) {
    struct alerts *a = m->c->alerts;
    char key[KEY_MAX];
    bool beyond = alert_is_beyond(r, m->value);
    snprintf(key, sizeof key, "%s %s", r->name, m->metric);
    struct watch *w = strmap_get(&a->watches, key);
    bool fresh = !w;
    if (fresh && (!beyond || a->watches.len >= WATCHES_MAX))
        return;
    if (fresh) {
        w = xcalloc(1, sizeof *w);
        w->key = xstrdup(key);
        w->subject = w->key + strlen(r->name) + 1;
        snprintf(w->rule, sizeof w->rule, "%s", r->name);
        strmap_put(&a->watches, w->key, w);
    }
    if (fresh || beyond != w->beyond)
        w->since_ms = a->now_ms;
    w->beyond = beyond;
    w->value = m->value;
    w->seen_ms = a->now_ms;
}

void alerts_measure(struct controller *c, const char *metric, double value) {
    const struct alerts *a = c->alerts;
    const char *last = strrchr(metric, '/');
    if (!last || strlen(metric) > ALERT_METRIC_MAX)
        return;
    for (uint32_t i = 0; i < a->active.len; i++)
        if (streq(a->active.at[i].last, last) && alert_metric_matches(a->active.at[i].rule->metric, metric))
            measure_rule(&(struct measure){c, metric, value}, a->active.at[i].rule);
}

static void activate(void *ctx, const struct alert_rule *r) {
    struct alerts *a = ctx;
    if (r->disabled)
        return;
    const struct alert_rule *copy = schema_copy(&alert_rule_schema, r, &a->arena);
    vec_push(&a->active, ((struct active_rule){copy, strrchr(copy->metric, '/')}));
}

static bool measure_node(void *ctx, const struct node_view *v) {
    struct controller *c = ctx;
    const struct message_telemetry *t = telemetry_latest(c, v->node->name);
    char name[ALERT_METRIC_MAX + 1];
    if (v->state != NODE_UP && !v->drained) {
        snprintf(name, sizeof name, "node/%s/up", v->node->name);
        alerts_measure(c, name, 0);
    }
    for (uint32_t i = 0; i < v->node->gpus.len; i++)
        if (!str_empty(v->node->gpus.at[i].unhealthy)) {
            snprintf(name, sizeof name, "gpu/%s/%u/healthy", v->node->name, i);
            alerts_measure(c, name, 0);
        }
    if (t && t->disk_bytes) {
        snprintf(name, sizeof name, "node/%s/disk_free_ratio", v->node->name);
        alerts_measure(c, name, (double)t->disk_free_bytes / (double)t->disk_bytes);
    }
    return true;
}

// --- once a second ---

static int64_t back_ms(const struct alert_rule *r) {
    uint32_t s = r->for_s < BACK_LEAST_S ? BACK_LEAST_S : r->for_s > BACK_MOST_S ? BACK_MOST_S : r->for_s;
    return (int64_t)s * 1000;
}

static void tell(struct controller *c, enum command_type type, const char *rule, const char *subject,
                 double value) {
    struct command_alert m = {.rule = rule, .subject = subject, .value = value};
    struct error e = {0};
    core_command(c->core, &watcher, NULL, &(struct command){type, &m}, controller_now_ms(), NULL, &e);
}

// False: it need not be watched any longer.
static bool look(struct controller *c, const struct watch *w, int64_t now_ms) {
    const struct alert_rule *r = alerts_rule(c, w->rule);
    const struct event_alert *now = core_alert(c->core, w->rule, w->subject);
    bool gone = !r || r->disabled || now_ms - w->seen_ms > GONE_MS;
    if (!gone && w->beyond) {
        if (!now && now_ms - w->since_ms >= (int64_t)r->for_s * 1000)
            tell(c, COMMAND_ALERT_RAISE, w->rule, w->subject, w->value);
        return true;
    }
    if (!gone && now && now_ms - w->since_ms < back_ms(r))
        return true;
    if (now)
        tell(c, COMMAND_ALERT_CLEAR, w->rule, w->subject, 0);
    return false;
}

struct orphan_search {
    const struct controller *c;
    char rule[IDENTIFIER_MAX + 1], subject[ALERT_METRIC_MAX + 1];
};

// The first alert of the journal that no value speaks of.
static bool find_orphan(void *ctx, const struct event_alert *a) {
    struct orphan_search *s = ctx;
    char key[KEY_MAX];
    snprintf(key, sizeof key, "%s %s", a->rule, a->subject);
    if (strmap_get(&s->c->alerts->watches, key))
        return true;
    snprintf(s->rule, sizeof s->rule, "%s", a->rule);
    snprintf(s->subject, sizeof s->subject, "%s", a->subject);
    return false;
}

void alerts_tick(struct controller *c, int64_t mono_ms) {
    struct alerts *a = c->alerts;
    int64_t gap_ms = mono_ms - a->ticked_ms;
    a->now_ms += gap_ms < TICK_MOST_MS ? gap_ms : TICK_MOST_MS;
    a->ticked_ms = mono_ms;
    size_t it = 0;
    void *v;
    vec_clear(&a->active);
    arena_done(&a->arena);
    each_rule(c, activate, a);
    core_each_node(c->core, measure_node, c);
    while (strmap_next(&a->watches, &it, NULL, &v)) {
        struct watch *w = v;
        if (!look(c, w, a->now_ms)) {
            strmap_remove(&a->watches, w->key);
            watch_free(w);
        }
    }
    struct orphan_search s = {.c = c};
    if (a->now_ms > START_MS)
        core_each_alert(c->core, find_orphan, &s);
    if (*s.rule)
        tell(c, COMMAND_ALERT_CLEAR, s.rule, s.subject, 0);
}

// --- the API ---

struct alert_list {
    struct api_call *call;
    VEC(struct answer_alert) alerts;
    VEC(struct answer_alert_rule_now) rules;
};

// Of a job that the asker may not know of, its alert is not told either.
static bool is_hidden(struct api_call *call, const char *subject) {
    unsigned long long id;
    return sscanf(subject, "job/%llu/", &id) == 1 && job_sight_of(call->controller, &call->actor, id) == SIGHT_NONE;
}

static bool list_alert(void *ctx, const struct event_alert *a) {
    struct alert_list *l = ctx;
    if (is_hidden(l->call, a->subject))
        return true;
    cleanup_buf struct buf text = {0};
    char key[KEY_MAX];
    snprintf(key, sizeof key, "%s %s", a->rule, a->subject);
    const struct watch *w = strmap_get(&l->call->controller->alerts->watches, key);
    alerts_describe(l->call->controller, a->rule, a->subject, a->value, &text);
    struct answer_alert o = {.rule = a->rule,
                             .subject = a->subject,
                             .text = arena_strdup(&l->call->arena, buf_str(&text)),
                             .value = a->value,
                             .raised_ms = a->raised_ms,
                             .by = a->by,
                             .comment = a->comment,
                             .acknowledged_ms = a->acknowledged_ms};
    if (a->acknowledged_ms)
        schema_give(&answer_alert_schema, &o, &o.acknowledged_ms);
    if (w) {
        o.now = w->value;
        schema_give(&answer_alert_schema, &o, &o.now);
    }
    vec_push(&l->alerts, o);
    return true;
}

static void list_rule(void *ctx, const struct alert_rule *r) {
    struct alert_list *l = ctx;
    struct answer_alert_rule_now o = {.name = r->name,
                                      .metric = r->metric,
                                      .when = r->when,
                                      .value = r->value,
                                      .for_s = r->for_s,
                                      .to = l->call->actor.operates || l->call->actor.admin ? r->to : NULL,
                                      .disabled = r->disabled};
    for (int i = 0; i < BUILT_IN; i++)
        o.built_in |= streq(built_in[i].name, r->name);
    o.set = core_alert_rule(l->call->controller->core, r->name) != NULL;
    vec_push(&l->rules, o);
}

void api_alerts(struct api_call *call) {
    struct alert_list l = {.call = call};
    core_each_alert(call->controller->core, list_alert, &l);
    each_rule(call->controller, list_rule, &l);
    struct answer_alerts out = {0};
    out.alerts.at = l.alerts.at;
    out.alerts.len = l.alerts.len;
    out.rules.at = l.rules.at;
    out.rules.len = l.rules.len;
    api_answer(call, &answer_alerts_schema, &out);
    vec_done(&l.alerts);
    vec_done(&l.rules);
}

void api_alert_set(struct api_call *call) {
    const struct request_alert_rule *q = call->body;
    struct alert_rule m = {.name = call->name,
                           .metric = q->metric,
                           .when = (enum alert_when)q->when,
                           .value = q->value,
                           .for_s = q->for_s,
                           .to = str_empty(q->to) ? NULL : q->to,
                           .disabled = q->disabled};
    api_give(call, COMMAND_ALERT_SET, &m);
}

void api_alert_delete(struct api_call *call) {
    api_give(call, COMMAND_ALERT_DELETE, &(struct command_alert){.rule = call->name});
}

void api_alert_ack(struct api_call *call) {
    const struct request_alert_ack *q = call->body;
    api_give(call, COMMAND_ALERT_ACK,
             &(struct command_alert){.rule = q->rule, .subject = q->subject, .comment = q->comment});
}
