// Why something happened to a job or a node, as events keep it: in English. A reader with a catalogue of another
// language recognises a text by its phrase, so each of these texts comes from this table. reason.c.
#pragma once
#include "base/phrase.h"

enum reason_phrase {
    BECAUSE_NODE_LOST,
    BECAUSE_GIVEN_UP,
    BECAUSE_END_NOT_RECORDED,
    BECAUSE_RECORD_LOST,
    BECAUSE_NOT_RUNNING,
    BECAUSE_NOT_CONNECTED,
    BECAUSE_ATTEMPTS_END,
    BECAUSE_NODE_REPORTS,
    BECAUSE_MADE_SMALLER,
    BECAUSE_PART_ENDED,
    BECAUSE_JOB_ENDED,
    BECAUSE_HEAD_ENDED,
    BECAUSE_WORKERS_ENDED,
    BECAUSE_ALL_WORKERS_ENDED,
    BECAUSE_NO_REPLICAS,
    BECAUSE_FEWER_REPLICAS,
    BECAUSE_REVISION_REPLACED,
    BECAUSE_SERVICE_DELETED,
    BECAUSE_CLIENT_AWAY,
    BECAUSE_PREEMPTED_SHARE,
    BECAUSE_PREEMPTED_QUOTA,
    BECAUSE_PREEMPTED_QOS,
    BECAUSE_PREEMPTED_PROJECT,
    BECAUSE_GIVEN_BACK_LIMIT,
    BECAUSE_GIVEN_BACK,
    BECAUSE_RETRY_UNHEALTHY,
    BECAUSE_RETRY_SIGNAL,
    BECAUSE_RETRY_STATUS,
    BECAUSE_NOT_STARTED,
    REASON_PHRASE_COUNT
};
extern const struct phrase reason_phrases[];

// Of one without values.
const char *reason_text(enum reason_phrase phrase);
// With its values, cut to `size`.
void reason_format(char *out, size_t size, enum reason_phrase phrase, const struct phrase_value *values);
#define REASON(out, phrase, ...) \
    reason_format(out, sizeof(out), BECAUSE_##phrase, (const struct phrase_value[PHRASE_VALUES_MAX]){__VA_ARGS__})
