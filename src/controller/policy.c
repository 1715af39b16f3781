// Owns the comparison of the configuration's policy with the core's.
#include "controller/policy.h"

#include "base/log.h"
#include "base/text.h"

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

static bool is_set(struct controller *c, enum thing thing, const void *value) {
    struct comparison k = {.schema = thing_schema(thing), .name = *(const char *const *)value, .value = value};
    core_each_thing(c->core, thing, compare, &k);
    return k.same;
}

static void report(const char *what, const char *name, int r, const struct error *e) {
    if (r < 0)
        log_error("%s \"%s\" of the configuration not taken: %s", what, name, e->text);
    else
        log_info("%s \"%s\" set from the configuration", what, name);
}

#define TAKE(list, thing, set)                                                              \
    for (uint32_t i = 0; i < c->config.list.len; i++) {                                     \
        struct error e = {0};                                                               \
        if (!is_set(c, thing, &c->config.list.at[i]))                                       \
            report(thing_word(thing), c->config.list.at[i].name,                            \
                   set(c->core, &file_actor, &c->config.list.at[i], now_ms(), &e), &e);     \
    }

void policy_from_config(struct controller *c) {
    // QoS first: projects may name one.
    TAKE(qos, THING_QOS, core_qos_set)
    TAKE(partitions, THING_PARTITION, core_partition_set)
    TAKE(projects, THING_PROJECT, core_project_set)
    TAKE(reservations, THING_RESERVATION, core_reservation_set)
}
