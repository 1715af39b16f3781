// What the program of a provider is asked next, by the state of the core, one question at a time: the daemon
// and the fault simulator carry it to the program and bring the answer back. Pure: no clock, no I/O.
#pragma once
#include "base/vec.h"
#include "core/core.h"

enum {
    PROVIDER_BATCH = 100,         // nodes of one question
    PROVIDER_ANSWER_MS = 120000,  // a program that has not answered by then is ended and started again
    PROVIDER_SETTLED_MS = 90000,  // after that all agents had time to say hello
};

struct question_node {
    uint64_t id;  // of the wanted node; 0: a stranger
    const char *key, *node, *handle;
};

struct provider_question {
    uint64_t id;
    enum provider_verb verb;
    const char *shape;  // of a start
    LIST(struct question_node) nodes;
};

struct provider_stranger {
    char *key, *handle;
};

// Of one provider, since its program was started.
struct provider_questions {
    uint64_t newest;  // number
    uint64_t waiting;  // of the question that is not answered; 0: none
    enum provider_verb verb;
    int64_t asked_ms, offered_ms, listed_ms, started_ms, stopped_ms;  // steady clock; 0: never
    bool offered, listed;
    VEC(struct provider_stranger) strangers;  // to be stopped
};

// The next question, its texts in the arena; false: nothing is to be asked now. -ETIMEDOUT as `late`: the program has
// not answered in time.
bool provider_question_next(struct provider_questions *q, const struct core *c, const char *provider, int64_t now_ms,
                            int64_t mono_ms, struct arena *a, struct provider_question *out, bool *late);
// An answer: becomes a command. `settled`: see core_provider_strangers. False: it was not asked for; it is passed over.
bool provider_question_answered(struct provider_questions *q, struct core *c, const struct provider_report *answer,
                                bool settled, int64_t now_ms, struct error *e);
void provider_questions_begin(struct provider_questions *q);  // the program was started anew
