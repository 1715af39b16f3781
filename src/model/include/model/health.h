// Whether a job's program is ready for others: how it is asked (--health), and what it answered. The shepherd asks,
// beside the job; that the answer has changed is an event.
#pragma once
#include <stdbool.h>
#include <stdint.h>

#include "base/error.h"

enum {
    HEALTH_CHECK_MAX = 4096,
    HEALTH_INTERVAL_S = 5,
    HEALTH_INTERVAL_MAX_S = 3600,
    HEALTH_FAILURES = 3,  // in a row, until a program that was ready is sick; twice as many end the job
    HEALTH_FAILURES_MAX = 1000,
    HEALTH_START_S = 600,         // until it is ready for the first time
    HEALTH_START_IMAGE_S = 3600,  // with a container image, which may have to be fetched
    HEALTH_TIMEOUT_S = 5,  // of one question: a slow machine is not a sick program
    HEALTH_IDLE_LEAST_S = 10,
};

enum job_health {
    HEALTH_NONE,
    HEALTH_STARTING,
    HEALTH_READY,
    HEALTH_SICK,
    HEALTH_IDLE,  // ready, and not used for so long that it will be closed soon
    HEALTH_COUNT
};
extern const char *const job_health_words[];
bool job_health_serves(enum job_health h);  // its program is ready, or is not asked

enum health_kind {
    HEALTH_COMMAND,  // a shell command: exit status 0
    HEALTH_HTTP,     // a path: any answer from 200 to 399
    HEALTH_JUPYTER,  // a Jupyter server, which also says when its kernels were last used
};
struct health_check {
    enum health_kind kind;
    uint32_t port;     // 0: the first HTTP port of the job
    const char *path;  // of HEALTH_HTTP; in the text
};

int health_parse(const char *text, struct health_check *out, struct error *e);
struct spec;
int health_check_spec(const struct spec *s,
                      struct error *e);  // the check, its numbers, and that its port is there
