// Builds the submit of a job again from what the controller keeps of it.
#include "cli/job/resubmit.h"

#include <errno.h>
#include <string.h>

#include "base/clock.h"
#include "base/text.h"
#include "cli/job/options.h"
#include "cli/job/rows.h"
#include "model/arrayspec.h"

static int get_part(struct cli *c, struct client *k, const char *id, const char *part, struct reply *out) {
    cleanup_buf struct buf path = {0};
    buf_adds(&path, "/v1/jobs/");
    http_percent_encode(&path, id);
    buf_adds(&path, part);
    return client_call(k, "GET", buf_str(&path), NULL, out);
}

// What the controller sets, and what was meant for the first time only.
static void forget_the_past(struct spec *s) {
    int64_t now = clock_wall_ms();
    // The user stays: the controller refuses to run a job of somebody else as whoever asks.
    s->script_id = s->environment_id = s->upload_id = s->submit_line = s->dependency = s->key_hash = NULL;
    s->uid = s->gid = 0;
    s->script_bytes = s->environment_bytes = s->upload_bytes = 0;
    s->hold = false;
    if (s->begin_ms <= now)
        s->begin_ms = 0;
    if (s->deadline_ms <= now)
        s->deadline_ms = 0;
}

static int read_environment(struct cli *c, struct client *k, const char *id, struct job_environment *out) {
    struct reply reply;
    int r = get_part(c, k, id, "/environment?list=1", &reply);
    const struct json *list = r < 0 ? NULL : json_get(reply.json, "environment");
    if (!list || list->type != JSON_ARRAY)
        return r;
    out->at = arena_alloc(&c->arena, (list->len + 1) * sizeof *out->at);
    for (uint32_t i = 0; i < list->len; i++)
        if (list->items[i].type == JSON_STRING)
            out->at[out->len++] = list->items[i].s;
    return 0;
}

// The elements to run again: the one that is named, those that did not complete, or all of them.
static int choose_elements(struct cli *c, struct client *k, const struct job_resubmit *q,
                           const struct json *job, struct spec *s) {
    cleanup_query struct query t = {0};
    cleanup_buf struct buf list = {0};
    struct job_rows rows = {0};
    struct array_spec spec;
    // The number of an array is that of its first element, too; any other number means that element alone.
    bool element = strchr(q->id, '_') || json_i64(job, "id", 0) != json_i64(job, "array_id", 0);
    if (element)
        buf_addf(&list, "%lld", (long long)json_i64(job, "array_index", 0));
    if (!element && q->failed) {
        client_query_begin(&t, "/v1/jobs");
        client_query_add(&t, "ids", q->id);
        client_query_add(&t, "elements", "1");
        client_query_add(&t, "finished", "1");
        client_query_add(&t, "compact", "1");
        client_query_add(&t, "fields", "array_index,state");
        int r = job_list_fetch(c, k, buf_str(&t.text), 0, &rows);
        int index = job_rows_field(&rows, "array_index"), state = job_rows_field(&rows, "state");
        for (uint32_t i = 0; r == 0 && i < rows.rows.len; i++)
            if (!streq(job_rows_text(rows.rows.at[i], state), job_state_words[JOB_COMPLETED]))
                buf_addf(&list, "%s%lld", list.len ? "," : "", (long long)job_rows_number(rows.rows.at[i], index));
        vec_done(&rows.rows);
        if (r < 0)
            return r;
        if (!list.len)
            return error_set(&c->error, ENOENT, "no element of array %s has failed; nothing was submitted", q->id);
    }
    if (!list.len)
        return 0;
    int r = array_parse(buf_str(&list), &c->arena, &spec, &c->error);
    if (r < 0)
        return r;
    s->array.at = spec.at;
    s->array.len = spec.len;
    return 0;
}

static int read_spec(struct cli *c, struct client *k, const struct job_resubmit *q, struct spec *s) {
    struct reply reply;
    int r = get_part(c, k, q->id, "", &reply);
    if (r < 0)
        return r;
    const struct json *spec = json_get(reply.json, "spec");
    if (!spec)
        return error_set(&c->error, EACCES, "only the owner of job %s can submit it again", q->id);
    r = schema_read_json(&spec_schema, spec, &c->arena, s, &c->error);
    if (r < 0)
        return r;
    if (s->attach)
        return error_set(&c->error, EINVAL,
                         "job %s was attached to a terminal (run, srun, salloc); start it again there",
                         q->id);
    bool array = s->array.len;
    if (q->failed && !array)
        return error_set(&c->error, EINVAL, "job %s is not an array; --failed chooses elements of an array", q->id);
    return array ? choose_elements(c, k, q, reply.json, s) : 0;
}

// Tags are changed one by one, as in an update.
static void merge_change(struct cli *c, struct spec *s, const struct spec *change) {
    uint32_t n = 0, kept = s->tags.len, more = change->tags.len;
    const char **tags = arena_alloc(&c->arena, (kept + more + 1) * sizeof *tags);
    for (uint32_t i = 0; i < kept; i++)
        tags[n++] = s->tags.at[i];
    for (uint32_t i = 0; i < more; i++)
        tags[n++] = change->tags.at[i];
    spec_merge(s, change);
    s->tags.at = tags;
    s->tags.len = n;
}

int job_resubmit(struct cli *c, struct client *k, const struct job_resubmit *q, struct reply *out) {
    struct spec s = {0};
    struct job_environment environment = {0};
    struct job_source source = {0};
    struct reply script;
    cleanup_buf struct buf body = {0};
    int r = read_spec(c, k, q, &s);
    if (r < 0)
        return r;
    bool has_script = s.script_bytes, has_environment = s.environment_bytes;
    forget_the_past(&s);
    if (q->change)
        merge_change(c, &s, q->change);
    s.hold = s.hold || q->hold;
    r = has_environment ? read_environment(c, k, q->id, &environment) : 0;
    if (r == 0 && has_script && (r = get_part(c, k, q->id, "/script", &script)) == 0) {
        source.script = script.text;
        source.script_len = script.len;
    }
    if (r == 0 && q->change && (option_given(&c->options, "export") || option_given(&c->options, "env"))) {
        r = job_environment_change(c, &c->options, &environment);
        has_environment = true;
    }
    if (r < 0)
        return r;
    job_request_write(
        &(struct job_request){&s, &source, has_environment ? &environment : NULL, NULL, q->dry_run}, &body);
    return client_call(k, "POST", "/v1/jobs", &body, out);
}
