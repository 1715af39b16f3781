// The tables of requests and answers about providers.
#include "provider_messages.h"

#define S struct request_provider
static const struct field request_fields[] = {
    FIELD_WORDS(2, S, kind, provider_kind_words, "Which program speaks with the engine."),
    FIELD(3, S, program, "Path of the program, of kind program."),
    FIELD_LIST(4, S, args, "Its arguments."),
    FIELD_LIST(5, S, secrets, "Secrets of one's own that it is given."),
    FIELD(6, S, min, "Least nodes."),
    FIELD(7, S, max, "Most nodes."),
    FIELD(8, S, idle_s, "A node without jobs for so long is given back."),
    FIELD(9, S, rate, "Nodes that are asked for per minute at most."),
    FIELD(10, S, start_s, "A node that runs for so long and has not joined is given up."),
    FIELD(11, S, budget_milli, "Its nodes may cost so much a day (UTC), in thousandths."),
    FIELD(12, S, cost_milli, "Cost of a node and hour, in thousandths, whatever the program says."),
    FIELD(13, S, paused, "It starts no nodes."),
};
const struct schema request_provider_schema = SCHEMA_GIVEN(S, "settings of a provider", request_fields);
#undef S
#define S struct query_provider
static const struct field query_fields[] = {
    FIELD(1, S, now, "Jobs on its nodes are queued again instead of being waited for."),
    FIELD(2, S, forget, "The engine is not asked: it is gone itself."),
};
const struct schema query_provider_schema = SCHEMA(S, "the query", query_fields);
#undef S
#define S struct answer_provider_status
static const struct field provider_fields[] = {
    FIELD_SUB(1, S, settings, &provider_schema, "Its settings, and what it offers."),
    FIELD(2, S, joined, "Nodes whose agents are there."),
    FIELD(3, S, coming, "Nodes on their way."),
    FIELD(4, S, leaving, "Nodes that are drained or stopped."),
    FIELD(5, S, spent_milli, "What its nodes cost today (UTC), in thousandths."),
    FIELD(6, S, decision, "What was last decided, or why no nodes are started."),
    FIELD(7, S, problem, "What is wrong with its program or its engine; null: nothing."),
};
const struct schema answer_provider_status_schema = SCHEMA(S, "a provider", provider_fields);
#undef S
#define S struct answer_provider_list
static const struct field providers_fields[] = {
    FIELD_LIST_SUB(1, S, providers, &answer_provider_status_schema, "Providers."),
    FIELD_LIST_SUB(2, S, nodes, &wanted_node_schema, "Their nodes, the newest that are gone with them."),
};
const struct schema answer_provider_list_schema = SCHEMA(S, "providers", providers_fields);
#undef S
