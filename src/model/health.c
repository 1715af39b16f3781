// Owns the grammar of health checks.
#include "model/health.h"

#include <assert.h>
#include <errno.h>
#include <string.h>

#include "base/text.h"
#include "model/job.h"
#include "model/port.h"

const char *const job_health_words[] = {"none", "starting", "ready", "sick", "idle", NULL};
static_assert(sizeof job_health_words / sizeof *job_health_words == HEALTH_COUNT + 1, "a word per state");

bool job_health_serves(enum job_health h) {
    return h == HEALTH_NONE || h == HEALTH_READY || h == HEALTH_IDLE;
}

static int parse_http(const char *text, struct health_check *out, struct error *e) {
    const char *path = strchr(text, '/');
    char number[8], shown[64];
    size_t len = path ? (size_t)(path - text) : sizeof number;
    *out = (struct health_check){.kind = HEALTH_HTTP, .path = path};
    if (len < sizeof number) {
        memcpy(number, text, len);
        number[len] = 0;
        if ((!len || (parse_u32(number, &out->port) == 0 && out->port && out->port <= UINT16_MAX)) &&
            !strpbrk(path, " \t#"))
            return 0;
    }
    return error_set(e, EINVAL, "health: \"http:%s\" is not understood; write /PATH or http:PORT/PATH",
                     str_printable(text, shown, sizeof shown));
}

int health_parse(const char *text, struct health_check *out, struct error *e) {
    if (strlen(text) > HEALTH_CHECK_MAX)
        return error_set(e, E2BIG, "health: %zu bytes; at most %d are allowed", strlen(text),
                         HEALTH_CHECK_MAX);
    if (!*text || str_has_control_chars(text, strlen(text)))
        return error_set(e, EINVAL,
                         "health: write /PATH, http:PORT/PATH, jupyter, or a shell command, on one line");
    if (streq(text, "jupyter")) {
        *out = (struct health_check){.kind = HEALTH_JUPYTER};
        return 0;
    }
    if (*text == '/' || str_has_prefix(text, "http:"))
        return parse_http(*text == '/' ? text : text + strlen("http:"), out, e);
    *out = (struct health_check){.kind = HEALTH_COMMAND};
    return 0;
}

static bool has_port(const struct spec *s, uint32_t number) {
    struct job_port p;
    for (uint32_t i = 0; i < s->ports.len; i++)
        if (port_parse(s->ports.at[i], &p, NULL) == 0 && p.protocol == PORT_HTTP &&
            (!number || p.number == number))
            return true;
    return false;
}

int health_check_spec(const struct spec *s, struct error *e) {
    struct health_check k;
    bool none = str_empty(s->health);
    if (none && (s->health_interval_s || s->health_failures))
        return error_set(e, EINVAL, "health: an interval or a number of failures needs a check: --health");
    if (s->health_interval_s > HEALTH_INTERVAL_MAX_S)
        return error_set(e, ERANGE, "health_interval_s: %u; at most %d", s->health_interval_s,
                         HEALTH_INTERVAL_MAX_S);
    if (s->health_failures > HEALTH_FAILURES_MAX)
        return error_set(e, ERANGE, "health_failures: %u; at most %d", s->health_failures,
                         HEALTH_FAILURES_MAX);
    int r = none ? 0 : health_parse(s->health, &k, e);
    if (r < 0)
        return r;
    if (s->idle_s && (none || k.kind != HEALTH_JUPYTER))
        return error_set(e, EINVAL,
                         "idle_s: only a Jupyter server says when it was last used; give --health jupyter");
    if (s->idle_s && s->idle_s < HEALTH_IDLE_LEAST_S)
        return error_set(e, ERANGE, "idle_s: %u; at least %d", s->idle_s, HEALTH_IDLE_LEAST_S);
    if (!none && k.kind != HEALTH_COMMAND && !has_port(s, k.port))
        return k.port ? error_set(e, EINVAL, "health: the job has no HTTP port %u; give it with --port %u",
                                  k.port, k.port)
                      : error_set(e, EINVAL, "health: the job has no HTTP port to ask; give one with --port");
    return 0;
}
