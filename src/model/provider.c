// The tables and limits of providers and wanted nodes.
#include "model/provider.h"

#include <errno.h>
#include <string.h>

#include "base/text.h"
#include "model/name.h"

const char *const provider_kind_words[] = {"program", "slurm", NULL};
const char *const wanted_state_words[] = {"wanted",  "requested", "booting",  "joined",
                                          "refused", "draining",  "stopping", "gone", NULL};
const char *const engine_state_words[] = {"pending", "running", "ended", NULL};
const char *const provider_verb_words[] = {"offers", "start", "stop", "list", NULL};

#define S struct provider_shape
static const struct field shape_fields[] = {
    FIELD(1, S, name, "Name of the shape.", .required = true),
    FIELD(2, S, cpus, "CPUs of a node."),
    FIELD(3, S, gpus, "GPUs of a node."),
    FIELD(4, S, memory_bytes, "Memory of a node."),
    FIELD(5, S, gpu_model, "Model of its GPUs."),
    FIELD(6, S, gpu_memory_bytes, "Memory of each GPU."),
    FIELD_LIST(7, S, features, "Features of a node."),
    FIELD(8, S, user, "Its nodes run the jobs of this user only; null: of everybody."),
    FIELD(9, S, lifetime_s, "A node goes after so long; 0: it stays."),
    FIELD(10, S, boot_s, "From the request until it takes jobs; 0: not known."),
    FIELD(11, S, cost_milli, "Cost of a node and hour, in thousandths."),
    FIELD(12, S, max, "Nodes that the engine would give; 0: it does not say."),
};
const struct schema provider_shape_schema = SCHEMA(S, "a shape", shape_fields);
#undef S
#define S struct provider_pause
static const struct field pause_fields[] = {
    FIELD(1, S, shape, "Name of the shape."),
    FIELD(2, S, reason, "What went wrong."),
    FIELD(3, S, failures, "How often in a row."),
    FIELD(4, S, until_ms, "It is asked for again then (ms since 1970)."),
};
const struct schema provider_pause_schema = SCHEMA(S, "a pause", pause_fields);
#undef S
#define S struct node_provider
static const struct field provider_fields[] = {
    FIELD(1, S, name, "Name."),
    FIELD_WORDS(2, S, kind, provider_kind_words, "Which program speaks with the engine."),
    FIELD(3, S, program, "Path of the program, of kind program."),
    FIELD_LIST(4, S, args, "Its arguments."),
    FIELD_LIST(5, S, secrets, "Secrets of who added it that it is given."),
    FIELD(6, S, min, "Least nodes.", .nullable = true),
    FIELD(7, S, max, "Most nodes.", .nullable = true),
    FIELD(8, S, idle_s, "A node without jobs for so long is given back.", .nullable = true),
    FIELD(9, S, rate, "Nodes that are asked for per minute at most.", .nullable = true),
    FIELD(10, S, start_s, "A node that runs for so long and has not joined is given up.", .nullable = true),
    FIELD(11, S, budget_milli, "Its nodes may cost so much a day (UTC), in thousandths; null: no limit.",
          .nullable = true),
    FIELD(12, S, cost_milli, "Cost of a node and hour, in thousandths; null: as the program says.", .nullable = true),
    FIELD(13, S, paused, "It starts no nodes.", .nullable = true),
    FIELD(14, S, tag, "Marks all that it starts in the engine."),
    FIELD(15, S, removing, "It goes when its last node is gone."),
    FIELD(16, S, forget, "It goes without a look at the engine."),
    FIELD_LIST_SUB(17, S, shapes, &provider_shape_schema, "What it offers."),
    FIELD_LIST_SUB(18, S, pauses, &provider_pause_schema, "Shapes that are left alone for a while."),
    FIELD(19, S, spent_day, "Day of the sum below, since 1970."),
    FIELD(20, S, spent_micro, "Spent on that day by nodes that are gone, in millionths."),
    FIELD(21, S, by, "Who added it."),
    FIELD(22, S, made_ms, "When (ms since 1970)."),
};
const struct schema provider_schema = SCHEMA_GIVEN(S, "a provider", provider_fields);
#undef S
#define S struct wanted_node
static const struct field wanted_fields[] = {
    FIELD(1, S, id, "Number of the node."),
    FIELD(2, S, provider, "Provider."),
    FIELD(3, S, key, "Its key in the engine."),
    FIELD(4, S, node, "Name of the node."),
    FIELD(5, S, shape, "Shape."),
    FIELD_WORDS_OPEN(6, S, state, wanted_state_words, "How far it is."),
    FIELD(7, S, handle, "The engine's own name of it."),
    FIELD(8, S, reason, "Why it is wanted or given back."),
    FIELD(9, S, problem, "What the engine said last."),
    FIELD(10, S, job, "First job it was wanted for; 0: none."),
    FIELD(11, S, cost_milli, "Cost of an hour, in thousandths."),
    FIELD(12, S, until_ms, "When it goes by itself (ms since 1970); 0: not known."),
    FIELD(13, S, demand_ms, "Since when that job waits."),
    FIELD(14, S, wanted_ms, "When it was decided."),
    FIELD(15, S, requested_ms, "When the engine was asked."),
    FIELD(16, S, booting_ms, "When the engine accepted."),
    FIELD(17, S, running_ms, "When the engine had started it."),
    FIELD(18, S, joined_ms, "When its agent was there."),
    FIELD(19, S, job_ms, "When its first job was placed there."),
    FIELD(20, S, draining_ms, "When it got no more jobs."),
    FIELD(21, S, stopping_ms, "When the engine was to stop it."),
    FIELD(22, S, gone_ms, "When nothing of it was left."),
    FIELD(23, S, next_ms, "Refused: when it is asked for again."),
    FIELD(24, S, tries, "How often the engine refused."),
    FIELD(25, S, failed, "It never joined, or went by itself."),
};
const struct schema wanted_node_schema = SCHEMA(S, "a wanted node", wanted_fields);
#undef S
#define S struct event_provider
static const struct field event_fields[] = {FIELD_SUB(1, S, provider, &provider_schema, "The provider.")};
const struct schema event_provider_schema = SCHEMA(S, "provider", event_fields);
#undef S
#define S struct command_provider_remove
static const struct field remove_fields[] = {
    FIELD(1, S, name, "Name of the provider."),
    FIELD(2, S, now, "Jobs on its nodes are queued again instead of being waited for."),
    FIELD(3, S, forget, "The engine is not asked: it is gone itself."),
};
const struct schema command_provider_remove_schema = SCHEMA(S, "provider_remove", remove_fields);
#undef S
#define S struct engine_node
static const struct field engine_fields[] = {
    FIELD(1, S, key, "Key of the node.", .required = true),
    FIELD(2, S, handle, "The engine's own name of it."),
    FIELD_WORDS(3, S, state, engine_state_words, "pending, running or ended."),
    FIELD(4, S, reason, "Why it waits, or has ended."),
    FIELD(5, S, error, "The engine refused."),
    FIELD(6, S, retry_s, "It may be asked again after so long."),
    FIELD(7, S, until_ms, "When it goes by itself (ms since 1970)."),
};
const struct schema engine_node_schema = SCHEMA(S, "a node of an engine", engine_fields);
#undef S
#define S struct provider_report
static const struct field report_fields[] = {
    FIELD(1, S, provider, "Provider."),
    FIELD_WORDS(2, S, verb, provider_verb_words, "What was asked."),
    FIELD_LIST_SUB(3, S, shapes, &provider_shape_schema, "What can be had."),
    FIELD_LIST_SUB(4, S, nodes, &engine_node_schema, "What became of nodes."),
    FIELD(5, S, error, "The engine could not be asked."),
    FIELD(6, S, id, "Number of the question."),
};
const struct schema provider_report_schema = SCHEMA(S, "an answer of a provider", report_fields);
#undef S

// It is the first part of host names, and of names in engines.
int provider_name_check(const char *name, struct error *e) {
    char shown[64];
    size_t len = name ? strlen(name) : 0;
    bool ok = len && len <= PROVIDER_NAME_MAX && name[0] >= 'a' && name[0] <= 'z' && name[len - 1] != '-' &&
              strspn(name, "abcdefghijklmnopqrstuvwxyz0123456789-") == len;
    if (ok)
        return 0;
    return error_set(e, EINVAL,
                     "name: \"%s\" cannot be the name of a provider; up to %d small letters, digits and hyphens "
                     "are expected, beginning with a letter",
                     str_printable(name ? name : "", shown, sizeof shown), PROVIDER_NAME_MAX);
}

static void fill(struct node_provider *p, uint32_t *member, uint32_t value) {
    if (!schema_given(&provider_schema, p, member))
        *member = value;
}

void provider_defaults(struct node_provider *p) {
    fill(p, &p->idle_s, PROVIDER_IDLE_DEFAULT_S);
    fill(p, &p->rate, PROVIDER_RATE_DEFAULT);
    fill(p, &p->start_s, PROVIDER_START_DEFAULT_S);
}

static int check_texts(const char *what, const char *const *at, uint32_t len, uint32_t most, size_t bytes,
                       struct error *e) {
    if (len > most)
        return error_set(e, E2BIG, "%s: %u are too many; at most %u are allowed", what, len, most);
    for (uint32_t i = 0; i < len; i++)
        if (!at[i] || strlen(at[i]) > bytes)
            return error_set(e, E2BIG, "%s: one has more than %zu bytes", what, bytes);
    return 0;
}

static int check_most(const char *what, uint64_t value, uint64_t most, struct error *e) {
    return value <= most ? 0
                         : error_set(e, ERANGE, "%s: %llu is too large; at most %llu is allowed", what,
                                     (unsigned long long)value, (unsigned long long)most);
}

int provider_check(const struct node_provider *p, struct error *e) {
    int r = provider_name_check(p->name, e);
    if (r < 0 || (r = check_texts("args", p->args.at, p->args.len, PROVIDER_ARGS_MAX, PROVIDER_ARG_MAX, e)) < 0 ||
        (r = check_texts("secrets", p->secrets.at, p->secrets.len, PROVIDER_SECRETS_MAX, IDENTIFIER_MAX, e)) < 0 ||
        (r = check_most("max", p->max, PROVIDER_NODES_MAX, e)) < 0 ||
        (r = check_most("rate", p->rate, PROVIDER_NODES_MAX, e)) < 0 ||
        (r = check_most("idle_s", p->idle_s, PROVIDER_TIME_MAX_S, e)) < 0 ||
        (r = check_most("start_s", p->start_s, PROVIDER_TIME_MAX_S, e)) < 0 ||
        (r = check_most("cost_milli", p->cost_milli, PROVIDER_COST_MAX, e)) < 0 ||
        (r = check_most("budget_milli", p->budget_milli, (uint64_t)PROVIDER_COST_MAX * 1000, e)) < 0)
        return r;
    if (p->kind >= PROVIDER_KINDS)
        return error_set(e, EINVAL, "kind: expected program or slurm");
    if (p->kind == PROVIDER_PROGRAM && (str_empty(p->program) || p->program[0] != '/'))
        return error_set(e, EINVAL, "program: the full path of a program is expected, as /usr/local/bin/my-cloud");
    if (p->kind != PROVIDER_PROGRAM && !str_empty(p->program))
        return error_set(e, EINVAL, "program: only providers of kind program name one; leave it out");
    if (!p->start_s)
        return error_set(e, EINVAL, "start_s: no node joins in 0 seconds; give it some minutes");
    if (p->min > p->max)
        return error_set(e, EINVAL, "min: %u is above max, %u; lower one or raise the other", p->min, p->max);
    return 0;
}

int provider_shape_check(const struct provider_shape *s, struct error *e) {
    int r = name_check("shape", s->name ? s->name : "", e);
    if (r < 0 || (r = check_texts("features", s->features.at, s->features.len, PROVIDER_FEATURES_MAX,
                                  IDENTIFIER_MAX, e)) < 0 ||
        (r = check_most("cpus", s->cpus, 4096, e)) < 0 || (r = check_most("gpus", s->gpus, 64, e)) < 0 ||
        (r = check_most("memory_bytes", s->memory_bytes, 1ULL << 50, e)) < 0 ||
        (r = check_most("gpu_memory_bytes", s->gpu_memory_bytes, 1ULL << 50, e)) < 0 ||
        (r = check_most("lifetime_s", s->lifetime_s, 10 * 366 * 86400, e)) < 0 ||
        (r = check_most("boot_s", s->boot_s, PROVIDER_TIME_MAX_S, e)) < 0 ||
        (r = check_most("cost_milli", s->cost_milli, PROVIDER_COST_MAX, e)) < 0)
        return r;
    for (uint32_t i = 0; i < s->features.len; i++)
        if ((r = name_check("feature", s->features.at[i], e)) < 0)
            return r;
    if (!str_empty(s->user) && (r = name_check("user", s->user, e)) < 0)
        return r;
    if (!str_empty(s->gpu_model) && strlen(s->gpu_model) > 63)
        return error_set(e, ERANGE, "gpu_model: at most 63 characters are allowed");
    return s->cpus ? 0 : error_set(e, EINVAL, "cpus: shape %s has none; every node has at least one", s->name);
}

uint64_t provider_cost(const struct node_provider *p, const struct provider_shape *s) {
    return schema_given(&provider_schema, p, &p->cost_milli) ? p->cost_milli : s ? s->cost_milli : 0;
}

const struct provider_shape *provider_shape_find(const struct node_provider *p, const char *name) {
    for (uint32_t i = 0; i < p->shapes.len; i++)
        if (streq(p->shapes.at[i].name, name))
            return &p->shapes.at[i];
    return NULL;
}
