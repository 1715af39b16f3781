// Puts what the configuration file says about sharing into the core: policy, projects, partitions, QoS and
// reservations that differ become commands. What was set otherwise and is not in the file stays.
#include "policy.h"

#include <stdlib.h>
#include <string.h>

#include "base/cleanup.h"
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
        log_error("%s \"%s\" of the configuration is refused: %s", what, name, e->text);
    else
        log_info("%s \"%s\" set from the configuration", what, name);
}

// Sets the entries of a list that differ from the core. An entry that names another one further down in the file
// (a QoS that it may preempt, a project's parent) fails at first and is tried again after the others, as long as
// that helps; then its error is reported.
static void take_entities(struct controller *c, enum entity_kind kind, const void *list, uint32_t count,
                          size_t size) {
    cleanup_free bool *done = xcalloc(count + 1, sizeof *done);
    bool progress = true, last = false;
    while (progress || !last) {
        last = !progress;
        progress = false;
        for (uint32_t i = 0; i < count; i++) {
            const void *value = (const char *)list + i * size;
            struct error e = {0};
            struct command command = {command_entity_set(kind), value};
            if (done[i] || is_set(c, kind, value))
                continue;
            int r = core_command(c->core, &file_actor, NULL, &command, controller_now_ms(), NULL, &e);
            done[i] = r >= 0;
            progress |= done[i];
            if (done[i] || last)
                report(entity_word(kind), *(const char *const *)value, r, &e);
        }
    }
}

static void take_policy(struct controller *c) {
    const struct config_section *policy = config_section_find("policy");
    cleanup_arena struct arena a = {0};
    struct policy_settings change = {0};  // the keys in the file; what was set otherwise stays
    struct error e = {0};
    uint64_t before = core_seq(c->core);
    for (uint32_t i = 0; i < c->config.blocks.len; i++) {
        const struct config_block *block = &c->config.blocks.at[i];
        for (uint32_t k = 0; block->section == policy && k < block->entries.len; k++) {
            const struct config_key *key = block->entries.at[k].key;
            config_value_parse(key, block->entries.at[k].text, NULL, &a, &change, NULL);
            schema_give(&policy_schema, &change, (char *)&change + key->offset);
        }
    }
    struct command command = {COMMAND_POLICY_SET, &change};
    if (core_command(c->core, &file_actor, NULL, &command, controller_now_ms(), NULL, &e) < 0)
        log_error("[policy] of the configuration is refused, the one in force stays: %s", e.text);
    else if (core_seq(c->core) != before)
        log_info("policy set from the configuration");
}

// --- entries that were taken out of the file ---

// One line for each entry: "project vision". Kept in the store, so that it is known after a restart which entries came
// from the file.
static void add_lines(enum entity_kind kind, const void *list, uint32_t count, size_t size, struct buf *out) {
    for (uint32_t i = 0; i < count; i++)
        buf_addf(out, "%s %s\n", entity_word(kind), *(const char *const *)((const char *)list + i * size));
}

static void lines_of_file(const struct config *f, struct buf *out) {
    add_lines(ENTITY_QOS, f->qos.at, f->qos.len, sizeof *f->qos.at, out);
    add_lines(ENTITY_LICENSE, f->licenses.at, f->licenses.len, sizeof *f->licenses.at, out);
    add_lines(ENTITY_PARTITION, f->partitions.at, f->partitions.len, sizeof *f->partitions.at, out);
    add_lines(ENTITY_PROJECT, f->projects.at, f->projects.len, sizeof *f->projects.at, out);
    add_lines(ENTITY_RESERVATION, f->reservations.at, f->reservations.len, sizeof *f->reservations.at, out);
}

static bool has_line(const struct buf *lines, const char *line, size_t len) {
    const char *end = lines->data + lines->len;
    for (const char *at = lines->data, *next; at && at < end; at = next + 1) {
        if (!(next = memchr(at, '\n', (size_t)(end - at))))
            return false;
        if ((size_t)(next - at) == len && memcmp(at, line, len) == 0)
            return true;
    }
    return false;
}

// Whether the entity of a line exists; its kind and name land in the arena.
static bool line_exists(struct controller *c, struct arena *a, const char *line, size_t len, enum entity_kind *kind,
                        const char **name) {
    const char *text = arena_strndup(a, line, len), *space = strchr(text, ' ');
    for (int k = 0; space && k < ENTITY_COUNT; k++)
        if (strlen(entity_word((enum entity_kind)k)) == (size_t)(space - text) &&
            str_has_prefix(text, entity_word((enum entity_kind)k))) {
            *kind = (enum entity_kind)k;
            *name = space + 1;
            return core_entity_exists(c->core, *kind, *name);
        }
    return false;
}

// Remembers what is in the file, and what was in it and still exists.
static void remember_entries(struct controller *c) {
    cleanup_arena struct arena a = {0};
    cleanup_buf struct buf now = {0}, all = {0};
    enum entity_kind kind;
    const char *name;
    lines_of_file(&c->config, &now);
    if (now.len)
        buf_add(&all, now.data, now.len);
    const char *end = c->configured.data + c->configured.len;
    for (const char *at = c->configured.data, *next; at && at < end; at = next + 1) {
        next = memchr(at, '\n', (size_t)(end - at));
        if (!next)
            break;
        if (!has_line(&now, at, (size_t)(next - at)) && line_exists(c, &a, at, (size_t)(next - at), &kind, &name)) {
            log_warn("%s \"%s\" is no longer in the configuration file but still exists; remove it with 'acequia %s "
                     "delete %s'",
                     entity_word(kind), name, entity_command(kind), name);
            buf_add(&all, at, (size_t)(next - at) + 1);
        }
    }
    if (all.len != c->configured.len || (all.len && memcmp(all.data, c->configured.data, all.len) != 0))
        pipeline_keep_blob(c->pipeline, "configured", all.data ? all.data : "", all.len);
    buf_done(&c->configured);
    c->configured = all;
    all = (struct buf){0};
}

void controller_policy_unlisted(struct controller *c, struct arena *a,
                                void (*fn)(void *ctx, const char *text), void *ctx) {
    cleanup_buf struct buf now = {0};
    enum entity_kind kind;
    const char *name;
    lines_of_file(&c->config, &now);
    const char *end = c->configured.data + c->configured.len;
    for (const char *at = c->configured.data, *next; at && at < end; at = next + 1) {
        next = memchr(at, '\n', (size_t)(end - at));
        if (!next)
            return;
        if (!has_line(&now, at, (size_t)(next - at)) && line_exists(c, a, at, (size_t)(next - at), &kind, &name))
            fn(ctx, arena_printf(a,
                                 "%s \"%s\" is no longer in the configuration file but still exists; remove it with "
                                 "'acequia %s delete %s'",
                                 entity_word(kind), name, entity_command(kind), name));
    }
}

static void load_entries(struct controller *c) {
    void *data;
    size_t len;
    if (c->configured.len || store_blob(c->store, "configured", &data, &len, NULL) < 0)
        return;
    buf_add(&c->configured, data, len);
    free(data);
}

void controller_policy_from_config(struct controller *c) {
    load_entries(c);
    take_policy(c);
    // QoS first: projects may name one.
    const struct config *f = &c->config;
    take_entities(c, ENTITY_QOS, f->qos.at, f->qos.len, sizeof *f->qos.at);
    take_entities(c, ENTITY_LICENSE, f->licenses.at, f->licenses.len, sizeof *f->licenses.at);
    take_entities(c, ENTITY_PARTITION, f->partitions.at, f->partitions.len, sizeof *f->partitions.at);
    take_entities(c, ENTITY_PROJECT, f->projects.at, f->projects.len, sizeof *f->projects.at);
    take_entities(c, ENTITY_RESERVATION, f->reservations.at, f->reservations.len, sizeof *f->reservations.at);
    remember_entries(c);
}
