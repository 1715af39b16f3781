// Owns the comparison of the configuration's policy with the core's.
#include "policy.h"

#include "base/log.h"
#include "base/text.h"
#include "model/config_table.h"

static const struct actor file_actor = {.user = "configuration", .admin = true};

struct comparison {
    const struct schema *schema;
    const char *name;
    const void *value;
    bool same;
};

static bool compare(void *ctx, const char *name, const void *value) {
    struct comparison *k = ctx;
    if (streq(k->name, name))
        k->same = schema_equal(k->schema, k->value, value);
    return true;
}

static bool is_set(struct controller *c, enum entity_kind kind, const void *value) {
    struct comparison k = {
        .schema = entity_schema(kind), .name = *(const char *const *)value, .value = value};
    core_each_entity(c->core, kind, compare, &k);
    return k.same;
}

static void report(const char *what, const char *name, int r, const struct error *e) {
    if (r < 0)
        log_error("%s \"%s\" of the configuration not taken: %s", what, name, e->text);
    else
        log_info("%s \"%s\" set from the configuration", what, name);
}

#define TAKE(list, kind, set)                                                                                \
    for (uint32_t i = 0; i < c->config.list.len; i++) {                                                      \
        struct error e = {0};                                                                                \
        if (!is_set(c, kind, &c->config.list.at[i]))                                                         \
            report(entity_word(kind), c->config.list.at[i].name,                                             \
                   set(c->core, &file_actor, &c->config.list.at[i], now_ms(), &e), &e);                      \
    }

// Keys that stand in the file; what was set otherwise stays.
static void overlay(const struct config *config, struct arena *a, struct policy_settings *to) {
    const struct config_section *policy = config_section_find("policy");
    for (uint32_t i = 0; i < config->blocks.len; i++)
        for (uint32_t k = 0; config->blocks.at[i].section == policy && k < config->blocks.at[i].entries.len; k++)
            config_value_parse(config->blocks.at[i].entries.at[k].key,
                               config->blocks.at[i].entries.at[k].text, NULL, a, to, NULL);
}

static void take_policy(struct controller *c) {
    cleanup_arena struct arena a = {0};
    struct policy_settings now, wanted;
    struct error e = {0};
    core_policy_settings(c->core, &now);
    wanted = now;
    overlay(&c->config, &a, &wanted);
    if (schema_equal(&policy_schema, &now, &wanted))
        return;
    if (core_policy_set(c->core, &file_actor, &wanted, now_ms(), &e) < 0)
        log_error("[policy] of the configuration not taken, the one in force stays: %s", e.text);
    else
        log_info("policy set from the configuration");
}

void policy_from_config(struct controller *c) {
    take_policy(c);
    // QoS first: projects may name one.
    TAKE(qos, ENTITY_QOS, core_qos_set)
    TAKE(partitions, ENTITY_PARTITION, core_partition_set)
    TAKE(projects, ENTITY_PROJECT, core_project_set)
    TAKE(reservations, ENTITY_RESERVATION, core_reservation_set)
}
