// Owns the tables of services and the rules for their names and numbers.
#include "model/service.h"

#include <errno.h>
#include <string.h>

#include "base/text.h"

const char *const service_revision_words[] = {"starting", "serving", "retiring", NULL};

#define S struct service_revision
static const struct field revision_fields[] = {
    FIELD(1, S, number, "Its number; the first is 1."),
    FIELD_WORDS_OPEN(2, S, state, service_revision_words, "How far it has come."),
    FIELD(3, S, weight, "Its part of the requests, in percent."),
    FIELD(4, S, replicas, "Replicas that it is to have now."),
    FIELD_SUB(5, S, spec, &spec_schema, "One replica, as a job."),
    FIELD(6, S, script, "Its script."),
    FIELD_LIST(7, S, environment, "Its environment, as NAME=value."),
    FIELD(8, S, made_ms, "When it was made."),
};
const struct schema service_revision_schema = SCHEMA(S, "a revision of a service", revision_fields);
#undef S
#define S struct event_service
static const struct field service_fields[] = {
    FIELD(1, S, id, "Number of the service."),
    FIELD(2, S, user, "Its user."),
    FIELD(3, S, name, "Its name, unique among the user's."),
    FIELD(4, S, project, "Its project."),
    FIELD(5, S, uid, "The user's number."),
    FIELD(6, S, gid, "The number of their group."),
    FIELD(7, S, replicas_min, "Replicas that it always has."),
    FIELD(8, S, replicas_max, "Replicas that it has at most."),
    FIELD(9, S, target, "Requests that a replica is to have at once."),
    FIELD(10, S, limit, "Requests that it has at most."),
    FIELD(11, S, latency_ms, "Time within which 99 of 100 answers are to come; 0: not looked at."),
    FIELD(12, S, queue_max, "Requests that wait for a replica at most."),
    FIELD(13, S, wait_s, "How long they wait."),
    FIELD(14, S, cooldown_s, "Time with less work before it has fewer replicas."),
    FIELD(15, S, idle_s, "Time without requests before it has none."),
    FIELD(16, S, canary, "Percent of the requests that the newest revision gets; 0: all."),
    FIELD(17, S, ready, "Path that must be answered before a replica gets requests."),
    FIELD_LIST_SUB(18, S, revisions, &service_revision_schema, "Its revisions, oldest first."),
    FIELD(19, S, by, "Who changed it."),
    FIELD(20, S, made_ms, "When it was made."),
};
const struct schema event_service_schema = SCHEMA_GIVEN(S, "service", service_fields);
#undef S
#define S struct event_service_token
static const struct field token_fields[] = {
    FIELD(1, S, service, "Number of the service."), FIELD(2, S, id, "Id of the token."),
    FIELD(3, S, hash, "Hash of the token."),        FIELD(4, S, label, "What it is for."),
    FIELD(5, S, by, "Who made it, or revoked it."), FIELD(6, S, made_ms, "When it was made."),
};
const struct schema event_service_token_schema = SCHEMA(S, "service_token", token_fields);
#undef S
#define S struct command_service
static const struct field command_fields[] = {
    FIELD(1, S, user, "Whose service it is."),
    FIELD(2, S, name, "Its name."),
    FIELD(3, S, revision, "One of its revisions."),
    FIELD(4, S, replicas, "Replicas that the revision is to have."),
};
const struct schema command_service_schema = SCHEMA(S, "a command about a service", command_fields);
#undef S
#define S struct command_service_token
static const struct field command_token_fields[] = {
    FIELD(1, S, user, "Whose service it is."), FIELD(2, S, name, "Its name."),
    FIELD(3, S, id, "Id of the token."),       FIELD(4, S, hash, "Hash of the token."),
    FIELD(5, S, label, "What it is for."),
};
const struct schema command_service_token_schema =
    SCHEMA(S, "a command about a token of a service", command_token_fields);
#undef S

// It is part of a host name, so it has the letters that those have.
int service_name_check(const char *name, struct error *e) {
    char shown[64];
    size_t len = strlen(name);
    bool ok = len && len <= SERVICE_NAME_MAX && name[0] >= 'a' && name[0] <= 'z' && name[len - 1] != '-' &&
              strspn(name, "abcdefghijklmnopqrstuvwxyz0123456789-") == len;
    if (ok)
        return 0;
    return error_set(
        e, EINVAL,
        "name: \"%s\" cannot be the name of a service; up to %d small letters, digits and hyphens are "
        "expected, beginning with a letter",
        str_printable(name, shown, sizeof shown), SERVICE_NAME_MAX);
}

static int check_range(const char *field, uint32_t value, uint32_t min, uint32_t max, struct error *e) {
    if (value >= min && value <= max)
        return 0;
    return error_set(e, ERANGE, "%s: %u is out of range; expected %u to %u", field, value, min, max);
}

int service_check(const struct event_service *s, struct error *e) {
    int r = check_range("replicas_max", s->replicas_max, 1, SERVICE_REPLICAS_MAX, e);
    if (r < 0 || (r = check_range("target", s->target, 1, SERVICE_TARGET_MAX, e)) < 0 ||
        (r = check_range("limit", s->limit, s->target, SERVICE_TARGET_MAX, e)) < 0 ||
        (r = check_range("latency_ms", s->latency_ms, 0, 3600 * 1000, e)) < 0 ||
        (r = check_range("queue_max", s->queue_max, 1, SERVICE_QUEUE_MAX, e)) < 0 ||
        (r = check_range("wait_s", s->wait_s, 1, SERVICE_WAIT_MAX_S, e)) < 0 ||
        (r = check_range("cooldown_s", s->cooldown_s, 1, SERVICE_PAUSE_MAX_S, e)) < 0 ||
        (r = check_range("idle_s", s->idle_s, 1, SERVICE_PAUSE_MAX_S, e)) < 0 ||
        (r = check_range("canary", s->canary, 0, 99, e)) < 0)
        return r;
    if (s->replicas_min > s->replicas_max)
        return error_set(e, EINVAL, "replicas: %u-%u is not a range; the least number comes first, as in 0-8",
                         s->replicas_min, s->replicas_max);
    if (s->ready && (s->ready[0] != '/' || strlen(s->ready) > 255 || strpbrk(s->ready, " \t\r\n#")))
        return error_set(e, EINVAL, "ready: a path that begins with '/' is expected, up to 255 characters");
    return 0;
}

void service_defaults(struct event_service *s) {
    if (!s->replicas_max)
        s->replicas_max = s->replicas_min > 1 ? s->replicas_min : 1;
    if (!s->target)
        s->target = 8;
    if (!s->limit)
        s->limit = 2 * s->target < SERVICE_TARGET_MAX ? 2 * s->target : SERVICE_TARGET_MAX;
    if (!s->queue_max)
        s->queue_max = 1000;
    if (!s->wait_s)
        s->wait_s = 60;
    if (!s->cooldown_s)
        s->cooldown_s = 60;
    if (!s->idle_s)
        s->idle_s = 300;
    if (str_empty(s->ready))
        s->ready = "/";
}
