// The controller's own sentences in explanations, beside those of the scheduler. api_explain_phrases.c.
#pragma once
#include "base/phrase.h"

enum api_explain_phrase {
    SAID_PREEMPTED,
    SAID_LATER,
    SAID_DEPENDS,
    SAID_DEPENDS_NEVER,
    SAID_SCRIPT_LOST,
    SAID_WORKERS,
    SAID_NEXT_SIZE,
    SAID_WORKER_LOST,
    SAID_WORKER_OPTIONAL,
    SAID_WORKER_OF_OPTIONAL,
    SAID_WORKER_NEEDED,
    SAID_IMAGE,
    SAID_IMAGE_SINCE,
    SAID_ENDING_AWAY,
    SAID_ENDING,
    SAID_ENDING_LATE,
    SAID_IS,
    SAID_IS_BECAUSE,
    SAID_ENDED,
    SAID_ENDED_BECAUSE,
    SAID_PHRASE_COUNT
};
extern const struct phrase api_explain_phrases[];

#define EXPLAIN(out, phrase, ...) SAY(out, &api_explain_phrases[SAID_##phrase], __VA_ARGS__)
