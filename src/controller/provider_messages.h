// Requests and answers about providers.
#pragma once
#include "base/schema.h"
#include "model/provider.h"

// What an administrator sets: fields of struct node_provider, with the same numbers.
struct request_provider {
    enum provider_kind kind;
    const char *program;
    LIST(const char *) args;
    LIST(const char *) secrets;
    uint32_t min, max, idle_s, rate, start_s;
    uint64_t budget_milli, cost_milli;
    bool paused;
    uint64_t given[1];
};
extern const struct schema request_provider_schema;
struct query_provider {
    bool now, forget;
};
extern const struct schema query_provider_schema;

struct answer_provider_status {
    const struct node_provider *settings;
    uint32_t joined, coming, leaving;
    uint64_t spent_milli;  // today
    const char *decision, *problem;
};
struct answer_provider_list {
    LIST(struct answer_provider_status) providers;
    LIST(struct wanted_node) nodes;
};
extern const struct schema answer_provider_status_schema, answer_provider_list_schema;
