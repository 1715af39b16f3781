// Owns the search for a job's output.
#include "job_output.h"

#include <errno.h>

struct loading {
    struct arena *arena;
    struct job_record *out;
    bool found;
};

static int load_row(void *ctx, const struct store_history *row) {
    struct loading *l = ctx;
    l->found = schema_decode(&job_record_schema, row->data, row->len, l->arena, l->out) == 0;
    return 1;
}

int controller_job_record(const struct job_lookup *s, uint64_t id, struct arena *a, struct job_record *out,
                          bool *live) {
    struct loading l = {.arena = a, .out = out};
    *live = core_record(s->core, id, a, out) == 0;
    if (*live)
        return 0;
    const void *record;
    size_t len;
    if (pipeline_ending(s->pipeline, id, &record, &len))
        return schema_decode(&job_record_schema, record, len, a, out);
    store_history(s->store, &(struct store_query){.id = id, .limit = 1}, load_row, &l, NULL);
    return l.found ? 0 : -ENOENT;
}

struct message_log_read controller_logs_request(struct job_record *r, uint32_t index, bool error, bool follow,
                                                int64_t tail) {
    return (struct message_log_read){.id = r->agent_id ? r->agent_id : r->id,
                                     .epoch = r->epoch,
                                     .attempt = r->attempt,
                                     .spec = r->spec,
                                     .part = &r->parts.at[index],
                                     .array_id = r->job        ? r->job
                                                 : r->is_array ? r->array_id
                                                               : 0,
                                     .array_index = r->job ? r->worker : r->array_index,
                                     .source = error ? LOG_SOURCE_ERROR : LOG_SOURCE_OUTPUT,
                                     .follow = follow,
                                     .tail_lines = tail,
                                     .node_index = index,
                                     .placed = true};
}

struct placing {
    uint32_t attempt;
    struct arena *arena;
    struct job_record *record;
    bool found;
};

static int take_placing(void *ctx, const struct store_event *e) {
    struct placing *p = ctx;
    struct event event;
    bool placed = e->type == EVENT_JOB_PLACED, more = e->type == EVENT_PART_ADOPTED;
    if ((!placed && !more) || event_decode((enum event_type)e->type, e->data, e->len, p->arena, &event) < 0)
        return 0;
    const struct event_job_placed *b = event.body;
    const struct event_part_adopted *part = event.body;
    if (placed && b->attempt == p->attempt) {
        p->record->epoch = b->epoch;
        p->record->agent_id = b->agent_id;
        p->record->parts.at = b->parts.at;
        p->record->parts.len = b->parts.len;
        p->found = true;
    } else if (more && part->attempt == p->attempt && p->found && !part->place) {
        p->record->parts.at = part->part;  // the output is that of the first part
        p->record->parts.len = 1;
    }
    return 0;
}

// Makes the record one of an earlier attempt: where it ran is told by the journal. Attempts share
// their output file, unless it is kept on the node for somebody who is attached.
static bool find_attempt(const struct job_lookup *s, int64_t attempt, struct arena *a, struct job_record *r,
                         struct error *e) {
    struct placing p = {.attempt = (uint32_t)attempt, .arena = a, .record = r};
    unsigned long long id = (unsigned long long)r->id;
    if (attempt < 1 || attempt > r->attempt) {
        error_set(e, EINVAL,
                  r->attempt > 1 ? "attempt: job %llu has run %u times; expected 1 to %u"
                  : r->attempt   ? "attempt: job %llu has run once"
                                 : "attempt: job %llu has not run yet",
                  id, r->attempt, r->attempt);
        return false;
    }
    if (attempt < r->attempt && !r->spec->attach) {
        error_set(
            e, EINVAL,
            r->spec->truncate
                ? "attempt: the output of job %llu was replaced by that of attempt %u; without --truncate "
                  "all of it is kept"
                : "attempt: all attempts of job %llu write to one file; leave --attempt out",
            id, r->attempt);
        return false;
    }
    if (attempt == r->attempt && r->parts.len)
        return true;
    int rc = store_events(s->store, r->id, 0, 0, take_placing, &p, e);
    if (rc >= 0 && !p.found)
        error_set(e, ENOENT, "attempt: it is no longer known where attempt %u of job %llu ran", p.attempt,
                  id);
    r->attempt = p.attempt;
    return rc >= 0 && p.found;
}

bool controller_job_find_part(const struct job_lookup *s, uint64_t id, int64_t index, int64_t attempt,
                              struct arena *a, struct job_record *r, bool *live, struct error *e) {
    if (controller_job_record(s, id, a, r, live) < 0) {
        error_set(e, ENOENT, "there is no job %llu", (unsigned long long)id);
        return false;
    }
    if (!attempt && !*live && !r->parts.len)
        attempt = r->attempt;  // it ended in the queue, after it had run
    if (attempt && !find_attempt(s, attempt, a, r, e))
        return false;
    if (!r->parts.len) {
        error_set(e, EBUSY, "job %llu is %s; it %s", (unsigned long long)id, job_state_words[r->state],
                  r->attempt > 0 && r->state == JOB_PENDING ? "waits to run again" : "has not run yet");
        return false;
    }
    if (index < 0 || index >= r->parts.len) {
        error_set(e, EINVAL, "node: job %llu has %u %s, counted from 0; there is no %lld",
                  (unsigned long long)id, r->parts.len, r->parts.len == 1 ? "node" : "nodes",
                  (long long)index);
        return false;
    }
    return true;
}
