// Owns the newest telemetry of each node.
#include "controller/telemetry.h"

struct telemetry {
    struct strmap nodes;  // interned name → struct latest
};

struct latest {
    struct arena arena;
    struct message_telemetry *sample;
};

void telemetry_add(struct controller *c, const char *node, const struct message_telemetry *m) {
    if (!c->telemetry)
        c->telemetry = xcalloc(1, sizeof *c->telemetry);
    struct latest *l = strmap_get(&c->telemetry->nodes, node);
    if (!l) {
        l = xcalloc(1, sizeof *l);
        strmap_put(&c->telemetry->nodes, core_intern(c->core, node), l);
    }
    arena_done(&l->arena);
    l->sample = schema_copy(message_info(MESSAGE_TELEMETRY)->schema, m, &l->arena);
}

const struct message_telemetry *telemetry_latest(const struct controller *c, const char *node) {
    const struct latest *l = c->telemetry ? strmap_get(&c->telemetry->nodes, node) : NULL;
    return l ? l->sample : NULL;
}

void telemetry_done(struct controller *c) {
    size_t it = 0;
    void *v;
    if (!c->telemetry)
        return;
    while (strmap_next(&c->telemetry->nodes, &it, NULL, &v)) {
        arena_done(&((struct latest *)v)->arena);
        free(v);
    }
    strmap_done(&c->telemetry->nodes);
    free(c->telemetry);
    c->telemetry = NULL;
}
