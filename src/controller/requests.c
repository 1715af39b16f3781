// The tables of query strings and request bodies, and the reading of query strings.
#include "requests.h"

#include <errno.h>
#include <string.h>

#include "answers.h"
#include "base/text.h"
#include "model/alert.h"
#include "model/app.h"
#include "model/name.h"
#include "model/secret.h"
#include "model/units.h"
#include "net/http.h"

enum {
    ROWS_MAX = 1000000,
    TOKEN_TTL_MAX_S = 365 * 86400,
    TIMEOUT_MAX_S = 3600,
    SIGNAL_MAX = 64,
    KEY_MAX = 200,
    TABLE_ROWS_MAX = 500
};

#define MOMENT .min = 0, .max = TIME_LIMIT_MS

#define WHERE_HELP                                                                                           \
    "Only jobs for which all terms hold, as `user=ana* state=R|PD gpus>=2 tag=exp1 age>1d`: columns of "     \
    "lists, one "                                                                                            \
    "of = != < <= > >=, and a value; texts with patterns (*, ?), alternatives with |."

#define S struct query_jobs
static const struct field query_jobs_fields[] = {
    FIELD(1, S, fields, "Names of fields, joined by commas; else the usual ones."),
    FIELD(2, S, user, "Jobs of this user; several joined by commas."),
    FIELD(3, S, mine, "Own jobs."),
    FIELD(4, S, project, "Jobs of this project; several joined by commas."),
    FIELD(5, S, partition, "Jobs of this partition; several joined by commas."),
    FIELD(6, S, qos, "Jobs with this QoS; several joined by commas."),
    FIELD(7, S, name, "Jobs of this name."),
    FIELD(8, S, node, "Jobs on this node."),
    FIELD(9, S, state, "Jobs in this state, as PENDING or RUNNING; several joined by commas."),
    FIELD(10, S, ids, "These jobs, as 12,13_4,14_[1-5]; live and ended ones."),
    FIELD(11, S, elements, "A row for each waiting element of an array, not one for all."),
    FIELD(51, S, components,
          "A row for each component of a job that has several, instead of one for the job."),
    FIELD(12, S, compact, "Rows are lists of values, in the order of `fields` in the answer."),
    FIELD(13, S, limit, "At most this many rows; 0: all.", .min = 0, .max = ROWS_MAX),
    FIELD(14, S, finished, "Ended jobs, newest first, page by page."),
    FIELD(15, S, after, "With finished: the `next` of the page before."),
    FIELD(16, S, since_ms, "With finished: ended at this time or later.", MOMENT),
    FIELD(17, S, until_ms, "With finished: ended before this time.", MOMENT),
    FIELD(18, S, stream, "Lines of JSON, written as fast as they are read."),
    FIELD(19, S, all, "With stream: ended jobs, too."),
    FIELD(20, S, from_ms, "With stream: jobs that were there at this time or later.", MOMENT),
    FIELD(21, S, to_ms, "With stream: jobs that were there at this time or before.", MOMENT),
    FIELD(22, S, where, WHERE_HELP),
};
const struct schema query_jobs_schema = SCHEMA(S, "the query", query_jobs_fields);
#undef S
#define S struct query_live
static const struct field query_live_fields[] = {
    FIELD(1, S, topics, "What to send: jobs, nodes, shares, status, joined by commas; all unless given."),
    FIELD(2, S, user, "Jobs of this user; several joined by commas."),
    FIELD(3, S, mine, "Own jobs."),
    FIELD(4, S, project, "Jobs of this project; several joined by commas."),
    FIELD(5, S, partition, "Jobs of this partition; several joined by commas."),
    FIELD(6, S, state, "Jobs in this state, as PENDING or RUNNING; several joined by commas."),
    FIELD(7, S, where, WHERE_HELP),
    FIELD(8, S, after,
          "Changes after this event: the `seq` of what was loaded; else from now on. Last-Event-ID wins.",
          .min = 0, .max = INT64_MAX),
};
const struct schema query_live_schema = SCHEMA_GIVEN(S, "the query", query_live_fields);
#undef S
#define S struct query_table
static const struct field query_table_fields[] = {
    FIELD(1, S, fields, "Names of fields, joined by commas; else the usual ones."),
    FIELD(2, S, user, "Jobs of this user; several joined by commas."),
    FIELD(3, S, mine, "Own jobs."),
    FIELD(4, S, project, "Jobs of this project; several joined by commas."),
    FIELD(5, S, partition, "Jobs of this partition; several joined by commas."),
    FIELD(6, S, qos, "Jobs with this QoS; several joined by commas."),
    FIELD(7, S, name, "Jobs of this name."),
    FIELD(8, S, state, "Jobs in this state, as PENDING or RUNNING; several joined by commas."),
    FIELD(9, S, where, WHERE_HELP),
    FIELD(10, S, search, "A text in the number, name, user or project; upper and lower case are the same."),
    FIELD(11, S, sort, "A column; with - before it the largest first; -id unless given."),
    FIELD(12, S, limit, "At most this many rows; 100 unless given.", .min = 0, .max = TABLE_ROWS_MAX),
    FIELD(13, S, after, "The `next` of the page before."),
    FIELD(14, S, elements, "A row for each element of an array, not one for all."),
    FIELD(15, S, since_ms, "Live jobs, and those that ended at this time or later.", MOMENT),
};
const struct schema query_table_schema = SCHEMA(S, "the query", query_table_fields);
#undef S
static const struct field query_connect_fields[] = {
    FIELD(1, struct query_connect, port, "Its number, as the program in the job listens on it.", .min = 1,
          .max = 65535, .required = true),
};
const struct schema query_connect_schema = SCHEMA(struct query_connect, "the query", query_connect_fields);

static const struct field query_app_fields[] = {
    FIELD(1, struct query_app, app, "The first label of the program's host name.", .required = true),
    FIELD(2, struct query_app, to, "Path to go to afterwards."),
    FIELD(3, struct query_app, state, "Brought back to the program's host, which made it."),
};
const struct schema query_app_schema = SCHEMA(struct query_app, "the query", query_app_fields);
static const struct field query_share_fields[] = {
    FIELD(1, struct query_share, port, "Its number; 0: the first HTTP port of the job.", .max = 65535),
    FIELD(2, struct query_share, user, "The user it is shared with."),
    FIELD(3, struct query_share, project, "It is shared with the job's project."),
};
const struct schema query_share_schema = SCHEMA(struct query_share, "the query", query_share_fields);
static const struct field query_app_open_fields[] = {
    FIELD(1, struct query_app_open, port, "Its number; 0: the first HTTP port of the job.", .max = 65535),
};
const struct schema query_app_open_schema = SCHEMA(struct query_app_open, "the query", query_app_open_fields);

static const struct field query_wait_fields[] = {
    FIELD(1, struct query_wait, timeout_s, "Answers after this time at the latest; 60 unless given.", .min = 1,
          .max = TIMEOUT_MAX_S)};
const struct schema query_wait_schema = SCHEMA_GIVEN(struct query_wait, "the query", query_wait_fields);

static const char *const source_words[] = {"output", "error", NULL};
#define S struct query_logs
static const struct field query_logs_fields[] = {
    FIELD(1, S, follow, "Goes on until the job ends. A WebSocket does so unless this is 0."),
    FIELD(2, S, tail, "Only the last lines, this many.", .min = 0, .max = 1000000000),
    FIELD_WORDS(3, S, source, source_words, "Standard output or standard error."),
    FIELD(4, S, node, "Number of the node in the job, from 0."),
    FIELD(5, S, attempt, "Attempt; the newest unless given."),
    FIELD(6, S, from, "WebSocket and events: position in the file to go on from.", .min = 0,
          .max = INT64_MAX),
    FIELD(7, S, file, "WebSocket and events: the file that this is a position in."),
    FIELD(
        8, S, times,
        "WebSocket: before output that was written at another time than what came before it, a message with "
        "that time."),
};
const struct schema query_logs_schema = SCHEMA_GIVEN(S, "the query", query_logs_fields);
#undef S
static const struct field query_environment_fields[] = {
    FIELD(1, struct query_environment, list, "As JSON, not as text.")};
const struct schema query_environment_schema =
    SCHEMA(struct query_environment, "the query", query_environment_fields);
static const struct field query_attach_fields[] = {
    FIELD(1, struct query_attach, resume, "After a lost connection: sends the position of the input."),
    FIELD(2, struct query_attach, placed,
          "Every message has its position; after a lost connection goes on from there.")};
const struct schema query_attach_schema = SCHEMA(struct query_attach, "the query", query_attach_fields);
static const struct field query_when_fields[] = {FIELD(1, struct query_when, workers,
                                                       "How many workers, of all components together.",
                                                       .min = 1, .max = JOB_WORKERS_MAX)};
const struct schema query_when_schema = SCHEMA(struct query_when, "the query", query_when_fields);
static const struct field query_why_fields[] = {
    FIELD(1, struct query_why, at_ms, "As it was at this time; else now.", MOMENT)};
const struct schema query_why_schema = SCHEMA(struct query_why, "the query", query_why_fields);
#define S struct request_alert_rule
static const struct field alert_rule_fields[] = {
    FIELD(1, S, metric,
          "Metric as /v1/series names them; * stands for any one part: gpu/*/*/temperature_celsius.",
          .required = true),
    FIELD_WORDS(2, S, when, alert_when_words, "above or below; above unless given."),
    FIELD(3, S, value, "The value it must not be above or below.", .required = true),
    FIELD(4, S, for_s, "For so many seconds without a break.", .max = ALERT_FOR_MAX_S),
    FIELD(5, S, to, "Mail addresses, users and URLs with commas; not given: alerts_to of [notify]."),
    FIELD(6, S, disabled, "Do not look at it."),
};
const struct schema request_alert_rule_schema = SCHEMA(S, "an alert rule", alert_rule_fields);
#undef S
#define S struct request_alert_ack
static const struct field alert_ack_fields[] = {
    FIELD(1, S, rule, "Name of the rule.", .required = true),
    FIELD(2, S, subject, "The metric.", .required = true),
    FIELD(3, S, comment, "What is done about it."),
};
const struct schema request_alert_ack_schema = SCHEMA(S, "an acknowledgement", alert_ack_fields);
#undef S
static const struct field query_extension_fields[] = {FIELD(1, struct query_extension, time_limit_s,
                                                            "The new limit.", .required = true, .min = 1,
                                                            .max = DURATION_LIMIT_S)};
const struct schema query_extension_schema =
    SCHEMA(struct query_extension, "the query", query_extension_fields);
#define S struct query_audit
static const struct field query_audit_fields[] = {
    FIELD(1, S, since_ms, "Records of this time or later.", MOMENT),
    FIELD(2, S, user, "Records of this user."),
    FIELD(3, S, limit, "At most this many; 200 unless given.", .min = 1, .max = 10000),
};
const struct schema query_audit_schema = SCHEMA(S, "the query", query_audit_fields);
#undef S
#define S struct query_trace
static const struct field query_trace_fields[] = {
    FIELD(1, S, nodes, "The machines instead of the jobs."),
    FIELD(2, S, since_ms, "Jobs that ended at this time or later.", MOMENT),
    FIELD(3, S, until_ms, "Jobs that ended before this time.", MOMENT),
};
const struct schema query_trace_schema = SCHEMA(S, "the query", query_trace_fields);
#undef S
#define S struct query_events
static const struct field query_events_fields[] = {
    FIELD(1, S, follow, "Goes on with new events, as server-sent events."),
    FIELD(2, S, after, "Events after this number; with follow new ones unless given.", .min = 0, .max = INT64_MAX),
    FIELD(3, S, job, "Events of this job; 0: of all.", .min = 0, .max = INT64_MAX),
};
const struct schema query_events_schema = SCHEMA_GIVEN(S, "the query", query_events_fields);
#undef S
#define S struct query_series
static const struct field query_series_fields[] = {
    FIELD(1, S, name, "The series; without it the names of all are listed."),
    FIELD(2, S, prefix, "Names that begin so."),
    FIELD(3, S, from_ms, "From this time; an hour before the end unless given.", MOMENT),
    FIELD(4, S, to_ms, "To this time; now unless given.", MOMENT),
    FIELD(5, S, step_ms, "Interval between points; the finest there is unless given.", MOMENT),
};
const struct schema query_series_schema = SCHEMA_GIVEN(S, "the query", query_series_fields);
#undef S
static const struct field query_delete_fields[] = {
    FIELD(1, struct query_delete, force, "Also while live jobs are in it.")};
const struct schema query_delete_schema = SCHEMA(struct query_delete, "the query", query_delete_fields);

static int bad_value(const struct field *f, const char *text, const char *expected, struct error *e) {
    char shown[64];
    return error_set(e, EINVAL, "parameter \"%s\": \"%s\" is not %s", f->name,
                     str_printable(text, shown, sizeof shown), expected);
}

static int read_number(const struct field *f, const char *text, void *at, struct error *e) {
    uint64_t max = f->max ? f->max : f->type == FIELD_U32 ? UINT32_MAX : INT64_MAX;
    int64_t v;
    if (parse_i64(text, &v) < 0)
        return bad_value(f, text, "a whole number", e);
    if (v < f->min || (v > 0 && (uint64_t)v > max))
        return error_set(e, ERANGE, "parameter \"%s\": %lld is out of range; expected %lld to %llu", f->name,
                         (long long)v, (long long)f->min, (unsigned long long)max);
    memcpy(at, &v, schema_field_size(f));
    return 0;
}

static int read_parameter(const struct field *f, const char *text, struct arena *a, void *at, struct error *e) {
    int word;
    switch ((enum field_type)f->type) {
    case FIELD_BOOL:
        if (!streq(text, "1") && !streq(text, "0") && !streq(text, "true") && !streq(text, "false"))
            return bad_value(f, text, "true, false, 1 or 0", e);
        *(bool *)at = text[0] == '1' || text[0] == 't';
        return 0;
    case FIELD_STRING:
        if (!str_utf8_valid(text, strlen(text)) || str_has_control_chars(text, strlen(text)))
            return bad_value(f, text, "text without control characters", e);
        *(const char **)at = arena_strdup(a, text);
        return 0;
    case FIELD_ENUM:
        if ((word = schema_word_find(f->words, text)) < 0)
            return bad_value(f, text, "one of its words", e);
        *(unsigned *)at = (unsigned)word;
        return 0;
    default: return read_number(f, text, at, e);
    }
}

static const struct field *find_parameter(const struct schema *s, const char *name) {
    for (size_t i = 0; s && i < s->count; i++)
        if (streq(s->fields[i].name, name))
            return &s->fields[i];
    return NULL;
}

static int unknown_parameter(const struct schema *s, const char *name, struct error *e) {
    cleanup_buf struct buf known = {0};
    char shown[64];
    for (size_t i = 0; s && i < s->count; i++)
        buf_addf(&known, "%s%s", i ? ", " : "", s->fields[i].name);
    return error_set(e, EINVAL, "unknown parameter \"%s\"; %s%s", str_printable(name, shown, sizeof shown),
                     known.len ? "expected " : "this path takes none", buf_str(&known));
}

// An empty text is none.
static int check_required(const struct schema *s, const void *value, uint64_t seen, struct error *e) {
    for (size_t i = 0; s && i < s->count; i++) {
        const struct field *f = &s->fields[i];
        bool empty =
            f->type == FIELD_STRING && str_empty(*(const char *const *)((const char *)value + f->offset));
        if (f->required && (empty || !(seen & 1ULL << i)))
            return error_set(e, EINVAL, "parameter \"%s\" is missing", f->name);
    }
    return 0;
}

int query_read(const struct schema *s, const char *text, struct arena *a, void *out, struct error *e) {
    uint64_t seen = 0;
    if (s)
        memset(out, 0, s->size);
    for (const char *p = text ? text : ""; *p;) {
        size_t len = strcspn(p, "&"), name_len = strcspn(p, "=&");
        cleanup_buf struct buf name = {0}, value = {0};
        if (http_percent_decode(p, name_len, true, &name) < 0 ||
            (name_len < len && http_percent_decode(p + name_len + 1, len - name_len - 1, true, &value) < 0) ||
            strlen(buf_str(&value)) != value.len)
            return error_set(e, EINVAL, "the query string is not properly encoded");
        p += len + (p[len] == '&');
        if (!len)
            continue;
        const struct field *f = find_parameter(s, buf_str(&name));
        if (!f)
            return unknown_parameter(s, buf_str(&name), e);
        uint64_t bit = 1ULL << (f - s->fields);
        if (seen & bit)
            return error_set(e, EINVAL, "parameter \"%s\" is given twice", f->name);
        seen |= bit;
        int r = read_parameter(f, buf_str(&value), a, (char *)out + f->offset, e);
        if (r < 0)
            return r;
        if (s->given_bits)
            schema_give(s, out, (char *)out + f->offset);
    }
    return check_required(s, out, seen, e);
}

// --- bodies ---

#define S struct request_submit
static const struct field submit_fields[] = {
    FIELD_SUB(1, S, spec, &spec_schema, "What is asked for.", .required = true),
    FIELD(2, S, script, "Text of the batch script."),
    FIELD_LIST(3, S, environment, "Environment of the job, as NAME=value."),
    FIELD(4, S, key,
          "Idempotency key, up to 200 characters. For 7 days the same job sent with the same key makes no second one; "
          "another spec, script or environment with it is refused (409).",
          .min = 1, .max = KEY_MAX),
    FIELD(5, S, dry_run, "Only checks it."),
    FIELD(6, S, upload,
          "Text that is put behind the script on the node: a folder that the script unpacks (--upload). Kept once "
          "for all jobs that have the same."),
};
const struct schema request_submit_schema = SCHEMA(S, "a job", submit_fields);
#undef S
#define S struct request_app_start
static const struct field app_fields[] = {
    FIELD_LIST(1, S, values, "Fields of the app, each as FIELD=VALUE."),
    FIELD(2, S, workdir, "Working directory of its job, unless a field of the app says it."),
    FIELD(3, S, key, "Idempotency key, as for a submit.", .min = 1, .max = KEY_MAX),
    FIELD(4, S, dry_run, "Only checks it."),
    FIELD_SUB(5, S, app, &app_schema,
              "An app of one's own, as its file has it; its name is that of the path. Else one that GET "
              "/v1/apps lists."),
};
const struct schema request_app_start_schema = SCHEMA(S, "an app to start", app_fields);
#undef S
#define S struct request_when
static const struct field when_request_fields[] = {
    FIELD_SUB(1, S, spec, &spec_schema, "What would be asked for.", .required = true),
    FIELD(2, S, script, "Text of the batch script: looked at with check, else ignored."),
    FIELD_LIST(3, S, environment, "Ignored."),
    FIELD(4, S, check, "That it would be refused is an answer, with the reason in `refused`, and no error."),
    FIELD_LIST_SUB(
        5, S, instead, &spec_schema,
        "Alternatives, at most 11: each has the fields that differ from `spec`. They are answered in this "
        "order after the request as it is, in place of the variants that are tried by themselves."),
};
const struct schema request_when_schema = SCHEMA(S, "a question", when_request_fields);
#undef S
#define S struct request_action
static const struct field action_request_fields[] = {
    FIELD_LIST(1, S, ids,
               "Jobs, as \"12\", \"12_3\", \"12_[1-5]\"; an array's number stands for all its elements."),
    FIELD(2, S, user, "Without ids: jobs of this user."),
    FIELD(3, S, name, "Without ids: jobs of this name."),
    FIELD(4, S, project, "Without ids: jobs of this project."),
    FIELD(5, S, partition, "Without ids: jobs of this partition."),
    FIELD(6, S, qos, "Without ids: jobs with this QoS."),
    FIELD(7, S, state, "Without ids: jobs in this state; several joined by commas."),
    FIELD(8, S, all, "Without ids: all jobs one may act on."),
    FIELD(9, S, signal, "cancel: only send this signal; 0: end the job.", .min = 0, .max = SIGNAL_MAX),
    FIELD(10, S, batch_only, "cancel: the signal goes to the batch script only."),
    FIELD(11, S, steps_only, "cancel: the signal does not go to the batch script."),
    FIELD(12, S, step, "cancel: only this step; 0: the whole job."),
    FIELD(13, S, reason, "cancel: why."),
    FIELD_WORDS(
        14, S, as, command_hold_kind_words,
        "hold: as the job's user, or as an administrator: then only one can release it. owner: as user for "
        "one's own jobs, else as administrator."),
    FIELD(15, S, hold, "requeue: and hold it."),
    FIELD_SUB(16, S, spec, &spec_schema, "update: the fields to change."),
    FIELD(17, S, version, "Of one job: refused when it has changed since it was read with this version."),
};
const struct schema request_action_schema = SCHEMA_GIVEN(S, "an action", action_request_fields);
#undef S
static const struct field resize_fields[] = {
    FIELD(1, struct request_resize, workers_min,
          "Least workers; not given: as before, unless that is more than the most."),
    FIELD(2, struct request_resize, workers_max, "Most workers; 0: none of a component of a job with a head.",
          .required = true, .max = JOB_WORKERS_MAX),
    FIELD(3, struct request_resize, component, "Component to resize, of a job with several."),
};
const struct schema request_resize_schema = SCHEMA_GIVEN(struct request_resize, "a new size", resize_fields);
static const struct field rank_fields[] = {
    FIELD_LIST_SUB(1, struct request_rank, ranks, &event_worker_rank_schema,
                   "Ranks of workers: the lowest is given back first, and idle ones before all others.",
                   .required = true),
};
const struct schema request_rank_schema = SCHEMA(struct request_rank, "ranks of workers", rank_fields);
static const struct field drain_fields[] = {FIELD(1, struct request_drain, reason, "Why, for people.")};
const struct schema request_drain_schema = SCHEMA(struct request_drain, "a drain", drain_fields);
#define S struct request_policy_trial
static const struct field policy_trial_fields[] = {
    FIELD_SUB(1, S, change, &policy_schema, "The settings to change; the others stay.", .required = true),
    FIELD(2, S, days, "Jobs that ended in so many last days; 7 unless given.", .min = 1,
          .max = POLICY_TRIAL_DAYS_MAX),
};
const struct schema request_policy_trial_schema = SCHEMA_GIVEN(S, "a trial of a policy", policy_trial_fields);
#undef S
static const struct field query_at_fields[] = {
    FIELD(1, struct query_at, time_ms, "The time to look at; now unless given.", MOMENT)};
const struct schema query_at_schema = SCHEMA(struct query_at, "the query", query_at_fields);
static const char *const group_words[] = {"project", "user", "month", NULL};
#define S struct query_analytics
static const struct field query_analytics_fields[] = {
    FIELD(1, S, from_ms, "From this time; 30 days before the end unless given.", MOMENT),
    FIELD(2, S, to_ms, "To this time; now unless given.", MOMENT),
    FIELD(3, S, step_ms, "Distance of the points; an hour, or a day for more than a week, unless given.",
          MOMENT),
    FIELD_WORDS(4, S, by, group_words,
                "What is added up. Of users one sees only oneself, administrators all."),
    FIELD(5, S, csv, "As CSV, without the points."),
};
const struct schema query_analytics_schema = SCHEMA(S, "the query", query_analytics_fields);
#undef S
static const struct field mcp_fields[] = {
    FIELD(1, struct request_mcp, jsonrpc, "2.0", .required = true),
    FIELD(2, struct request_mcp, method,
          "initialize, ping, tools/list or tools/call.", .required = true),
    FIELD_RAW(3, struct request_mcp, id, NULL, "A text or a whole number; without it there is no answer."),
    FIELD_RAW(4, struct request_mcp, params, NULL, "As the method has them."),
};
const struct schema request_mcp_schema = SCHEMA(struct request_mcp, "a JSON-RPC message", mcp_fields);
static const struct field query_secret_fields[] = {
    FIELD(1, struct query_secret, project, "Of this project; else one's own."),
    FIELD(2, struct query_secret, user, "Of this user, for administrators."),
};
const struct schema query_secret_schema = SCHEMA(struct query_secret, "the query", query_secret_fields);
static const struct field request_secret_fields[] = {
    FIELD(1, struct request_secret, value, "The value, in hexadecimal; 1 to 65,536 bytes.", .required = true,
          .min = 1, .max = SECRET_VALUE_MAX),
    FIELD(2, struct request_secret, project, "For this project; else for oneself."),
};
const struct schema request_secret_schema = SCHEMA(struct request_secret, "a secret", request_secret_fields);
#define S struct request_token
static const struct field token_request_fields[] = {
    FIELD_WORDS(1, S, kind, answer_token_words, "For an agent to join, or for a user."),
    FIELD(2, S, user, "Of a user's token: whose; else one's own."),
    FIELD(3, S, node, "Of an agent's token: only for the node of this name."),
    FIELD(4, S, ttl_s, "Seconds it is valid; 3600 unless given.", .min = 1, .max = TOKEN_TTL_MAX_S),
    FIELD_LIST(5, S, scopes, "Of a user's token, what it allows: read, submit, admin; all unless given."),
    FIELD(6, S, project, "Of a user's token: it acts on jobs of this project only."),
};
const struct schema request_token_schema = SCHEMA_GIVEN(S, "a token", token_request_fields);
#undef S
#define S struct request_join
static const struct field join_request_fields[] = {
    FIELD(1, S, token, "A join token.", .required = true),
    FIELD(2, S, csr, "Certificate request of the node (PEM).", .required = true),
    FIELD(3, S, name, "Name of the node.", .required = true),
};
const struct schema request_join_schema = SCHEMA(S, "a node", join_request_fields);
#undef S
