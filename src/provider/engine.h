// What every engine of this folder offers: the four verbs. An engine fills in the report; an error is one of the whole
// question: the engine could not be asked. What is wrong with a single node stands in its entry.
#pragma once
#include "base/arena.h"
#include "base/error.h"
#include "base/json.h"
#include "model/provider.h"

// A question as the controller writes it.
struct asked_node {
    const char *key, *node, *handle, *token;
};
struct engine_question {
    uint64_t id;
    enum provider_verb verb;
    const char *shape;
    LIST(struct asked_node) nodes;
};
extern const struct schema engine_question_schema;

struct engine {
    int (*offers)(void *ctx, struct arena *a, struct provider_report *out, struct error *e);
    int (*start)(void *ctx, const struct engine_question *q, struct arena *a, struct provider_report *out,
                 struct error *e);
    int (*stop)(void *ctx, const struct engine_question *q, struct arena *a, struct provider_report *out,
                struct error *e);
    int (*list)(void *ctx, struct arena *a, struct provider_report *out, struct error *e);
    void *ctx;
};

// What all have in common, from the environment that the controller gives and from the arguments.
struct engine_place {
    const char *provider, *tag, *cluster;
    const char *controller;  // HOST:PORT that agents dial
    const char *program;     // acequia on the nodes
    const struct json *secrets;  // by name; NULL: none
};

int slurm_engine(const struct engine_place *place, int argc, char **argv, struct arena *a, struct engine *out,
                 struct error *e);

// Adds an entry to the list, which has room for `room`.
void engine_add(struct provider_report *r, struct engine_node n, uint32_t *room, struct arena *a);

// command.c: runs a program with this input and gathers what it prints, for two minutes at most. *status as of waitpid.
int engine_run(const char *const *argv, const char *input, struct arena *a, const char **output, const char **errors,
               int *status, struct error *e);
