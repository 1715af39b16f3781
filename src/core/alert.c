// Rules of alerts, and the alerts that hold now with who has acknowledged them. What is measured never comes here: the
// controller looks, and says when a metric is beyond a rule and when it is back.
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/text.h"
#include "model/name.h"
#include "state.h"

enum { KEY_MAX = IDENTIFIER_MAX + ALERT_METRIC_MAX + 2 };

static int need_feature(const struct core *c, struct error *e) {
    return core_feature(c, FEATURE_ALERTS)
               ? 0
               : error_set(e, ENOTSUP, "alert: finish the upgrade first: acequia upgrade finish");
}

static const char *key_of(const char *rule, const char *subject, char out[static KEY_MAX]) {
    snprintf(out, KEY_MAX, "%s %s", rule, subject);
    return out;
}

static struct alert_entry *find(const struct core *c, const char *rule, const char *subject) {
    char key[KEY_MAX];
    return rule && subject ? strmap_get(&c->alerts, key_of(rule, subject, key)) : NULL;
}

const struct alert_rule *core_alert_rule(const struct core *c, const char *name) {
    const struct alert_rule_entry *r = strmap_get(&c->alert_rules, name);
    return r ? r->set->rule : NULL;
}

const struct event_alert *core_alert(const struct core *c, const char *rule, const char *subject) {
    const struct alert_entry *a = find(c, rule, subject);
    return a ? a->alert : NULL;
}

static int by_rule(const void *a, const void *b) {
    return strcmp((*(struct alert_rule_entry *const *)a)->set->rule->name,
                  (*(struct alert_rule_entry *const *)b)->set->rule->name);
}

void core_each_alert_rule(const struct core *c, bool (*fn)(void *ctx, const struct event_alert_rule *r),
                          void *ctx) {
    VEC(struct alert_rule_entry *) list = {0};
    size_t it = 0;
    void *v;
    while (strmap_next(&c->alert_rules, &it, NULL, &v))
        vec_push(&list, (struct alert_rule_entry *)v);
    if (list.len)
        qsort(list.at, list.len, sizeof *list.at, by_rule);
    for (uint32_t i = 0; i < list.len && fn(ctx, list.at[i]->set); i++)
        ;
    vec_done(&list);
}

struct alert_entries {
    struct alert_entry **at;
    uint32_t len, cap;
};

static int by_key(const void *a, const void *b) {
    return strcmp((*(struct alert_entry *const *)a)->key, (*(struct alert_entry *const *)b)->key);
}

// In the order of their keys: what is emitted does not depend on the map's order.
static struct alert_entries all(const struct core *c) {
    struct alert_entries list = {0};
    size_t it = 0;
    void *v;
    while (strmap_next(&c->alerts, &it, NULL, &v))
        vec_push(&list, (struct alert_entry *)v);
    if (list.len)
        qsort(list.at, list.len, sizeof *list.at, by_key);
    return list;
}

void core_each_alert(const struct core *c, bool (*fn)(void *ctx, const struct event_alert *a), void *ctx) {
    struct alert_entries list = all(c);
    for (uint32_t i = 0; i < list.len && fn(ctx, list.at[i]->alert); i++)
        ;
    vec_done(&list);
}

// --- commands ---

static void emit(struct core *c, enum event_type type, const struct event_alert *alert, int64_t now_ms) {
    cleanup_arena struct arena a = {0};  // applying it may free what it is made of
    core_emit(c, now_ms, type, schema_copy(&event_alert_schema, alert, &a));
}

static void clear_of_rule(struct core *c, const char *rule, const char *by, int64_t now_ms) {
    struct alert_entries list = all(c);
    for (uint32_t i = 0; i < list.len; i++)
        if (streq(list.at[i]->alert->rule, rule))
            emit(c, EVENT_ALERT_CLEARED,
                 &(struct event_alert){.rule = rule, .subject = list.at[i]->alert->subject, .by = by},
                 now_ms);
    vec_done(&list);
}

CORE_COMMAND(core_command_alert_set) {
    const struct alert_rule *m = body;
    cleanup_arena struct arena a = {0};
    int r;
    if ((r = core_need_admin(actor, "set alerts", e)) < 0 || (r = need_feature(c, e)) < 0 ||
        (r = alert_rule_check(m, e)) < 0)
        return r;
    const struct alert_rule_entry *old = strmap_get(&c->alert_rules, m->name);
    if (!old && c->alert_rules.len >= ALERT_RULES_MAX)
        return error_set(e, E2BIG, "alert: there are %d rules, which is the most", ALERT_RULES_MAX);
    if (old && schema_equal(&alert_rule_schema, m, old->set->rule)) {
        error_set(e, EALREADY, "the alert rule %s has these values already", m->name);
        return CORE_UNCHANGED;
    }
    struct event_alert_rule b = {
        .rule = schema_copy(&alert_rule_schema, m, &a), .by = actor->user, .set_ms = now_ms};
    clear_of_rule(c, b.rule->name, actor->user, now_ms);  // those of the rule as it was
    core_emit(c, now_ms, EVENT_ALERT_RULE_SET, &b);
    return 0;
}

CORE_COMMAND(core_command_alert_delete) {
    const struct command_alert *m = body;
    int r;
    if ((r = core_need_admin(actor, "delete alerts", e)) < 0 || (r = need_feature(c, e)) < 0)
        return r;
    if (!core_alert_rule(c, m->rule))
        return error_set(e, ENOENT,
                         "no alert rule \"%s\" was set; a built-in one cannot be deleted, but switched off: "
                         "'acequia alert set NAME --off'",
                         m->rule);
    clear_of_rule(c, m->rule, actor->user, now_ms);
    core_emit(c, now_ms, EVENT_ALERT_RULE_DELETED, &(struct event_name){m->rule, actor->user});
    return 0;
}

// Says that a metric is beyond a rule; the rule may be one of the controller's own.
CORE_COMMAND(core_command_alert_raise) {
    const struct command_alert *m = body;
    int r;
    if ((r = core_need_admin(actor, "raise alerts", e)) < 0 || (r = need_feature(c, e)) < 0 ||
        (r = name_check("alert", m->rule, e)) < 0 ||
        (r = name_line_check("subject", m->subject, ALERT_METRIC_MAX, e)) < 0)
        return r;
    if (find(c, m->rule, m->subject))
        return CORE_UNCHANGED;
    if (c->alerts.len >= ALERTS_MAX)
        return error_set(e, E2BIG, "alert: there are %d already, which is the most", ALERTS_MAX);
    emit(
        c, EVENT_ALERT_RAISED,
        &(struct event_alert){.rule = m->rule, .subject = m->subject, .value = m->value, .raised_ms = now_ms},
        now_ms);
    return 0;
}

static int need_alert(const struct core *c, const struct command_alert *m, struct error *e) {
    return find(c, m->rule, m->subject)
               ? 0
               : error_set(e, ENOENT, "there is no such alert now; see 'acequia alert list'");
}

CORE_COMMAND(core_command_alert_clear) {
    const struct command_alert *m = body;
    int r;
    if ((r = core_need_admin(actor, "clear alerts", e)) < 0 || (r = need_alert(c, m, e)) < 0)
        return r;
    emit(c, EVENT_ALERT_CLEARED, &(struct event_alert){.rule = m->rule, .subject = m->subject}, now_ms);
    return 0;
}

CORE_COMMAND(core_command_alert_ack) {
    const struct command_alert *m = body;
    int r;
    if ((r = core_need_operator(actor, "acknowledge alerts", e)) < 0 || (r = need_alert(c, m, e)) < 0 ||
        (m->comment && (r = name_line_check("comment", m->comment, COMMENT_MAX, e)) < 0))
        return r;
    const struct event_alert *now = find(c, m->rule, m->subject)->alert;
    if (now->by && streq(now->by, actor->user) && streq(now->comment, m->comment))
        return CORE_UNCHANGED;
    emit(c, EVENT_ALERT_ACKNOWLEDGED,
         &(struct event_alert){.rule = m->rule,
                               .subject = m->subject,
                               .by = actor->user,
                               .comment = str_empty(m->comment) ? NULL : m->comment,
                               .acknowledged_ms = now_ms},
         now_ms);
    return 0;
}

// --- state ---

static void rule_free(struct alert_rule_entry *r) {
    arena_done(&r->arena);
    free(r);
}

static void alert_free(struct alert_entry *a) {
    arena_done(&a->arena);
    free(a);
}

void core_apply_alert_rule(struct core *c, const struct event *e) {
    const struct event_alert_rule *b = e->body;
    const char *name =
        e->type == EVENT_ALERT_RULE_SET ? b->rule->name : ((const struct event_name *)e->body)->name;
    struct alert_rule_entry *old = strmap_remove(&c->alert_rules, name);
    if (e->type == EVENT_ALERT_RULE_SET) {
        struct alert_rule_entry *r = xcalloc(1, sizeof *r);
        r->set = schema_copy(&event_alert_rule_schema, b, &r->arena);
        strmap_put(&c->alert_rules, r->set->rule->name, r);
    }
    if (old)
        rule_free(old);
}

// An acknowledgement keeps what was raised; an alert that is raised again is one that nobody has acknowledged.
void core_apply_alert(struct core *c, const struct event *e) {
    const struct event_alert *b = e->body;
    struct alert_entry *old = find(c, b->rule, b->subject);
    struct event_alert now = *b;
    char key[KEY_MAX];
    if (e->type == EVENT_ALERT_ACKNOWLEDGED) {
        if (!old)
            return;
        now.value = old->alert->value;
        now.raised_ms = old->alert->raised_ms;
    }
    if (old)
        strmap_remove(&c->alerts, old->key);
    if (e->type != EVENT_ALERT_CLEARED) {
        struct alert_entry *a = xcalloc(1, sizeof *a);
        a->alert = schema_copy(&event_alert_schema, &now, &a->arena);
        a->key = arena_strdup(&a->arena, key_of(now.rule, now.subject, key));
        strmap_put(&c->alerts, a->key, a);
    }
    if (old)
        alert_free(old);
}

bool core_alert_loads(const struct event_alert *a) {
    return a->rule && a->subject && strlen(a->rule) <= IDENTIFIER_MAX &&
           strlen(a->subject) <= ALERT_METRIC_MAX;
}

void core_alerts_free(struct core *c) {
    size_t it = 0;
    void *v;
    while (strmap_next(&c->alert_rules, &it, NULL, &v))
        rule_free(v);
    for (it = 0; strmap_next(&c->alerts, &it, NULL, &v);)
        alert_free(v);
    strmap_done(&c->alert_rules);
    strmap_done(&c->alerts);
}
