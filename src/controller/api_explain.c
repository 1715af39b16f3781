// Owns the explanations in the API: why a job waits or waited, when one would start, and whether the
// recorded decisions come out the same again.
#include <errno.h>
#include <string.h>

#include "base/clock.h"
#include "base/text.h"
#include "api.h"
#include "journal_replay.h"
#include "model/gpuspec.h"
#include "model/units.h"
#include "sched/explain.h"

enum { PAST_REST = 20 };  // a playback that took t is not repeated before PAST_REST * t have passed

static const char *const basis_words[] = {"now", "forecast", "later", "never", "unknown", "estimate"};

static void put_band(struct json_writer *w, const struct explain_band *b) {
    json_key(w, "start");
    json_open(w, '{');
    json_kv_str(w, "basis", basis_words[b->basis]);
    if (b->basis == EXPLAIN_FORECAST || b->basis == EXPLAIN_NOW || b->basis == EXPLAIN_ESTIMATE) {
        json_kv_i64(w, "early_ms", b->early_ms);
        json_kv_i64(w, "late_ms", b->late_ms);
    }
    json_close(w, '}');
}

static void put_nodes(struct json_writer *w, const struct explain_nodes *n) {
    const struct {
        const char *key;
        uint32_t value;
    } counts[] = {{"all", n->all},
                  {"needed", n->needed},
                  {"fit", n->fit},
                  {"not_in_partition", n->partition},
                  {"not_for_project", n->project},
                  {"not_listed", n->listed},
                  {"without_features", n->features},
                  {"other_gpu_model", n->model},
                  {"down", n->down},
                  {"drained", n->drained},
                  {"too_small", n->small},
                  {"reserved", n->reserved},
                  {"gpus_busy", n->busy_gpus},
                  {"cpus_busy", n->busy_cpus},
                  {"memory_busy", n->busy_memory},
                  {"exclusive", n->busy_alone},
                  {"planned_for_others", n->planned}};
    json_key(w, "nodes");
    json_open(w, '{');
    for (size_t i = 0; i < sizeof counts / sizeof *counts; i++)
        if (counts[i].value || i < 3)
            json_kv_i64(w, counts[i].key, counts[i].value);
    json_close(w, '}');
}

static void put_holders(struct json_writer *w, const struct core *core, const struct sched_explanation *x) {
    json_key(w, "holders");
    json_open(w, '[');
    for (uint32_t i = 0; i < x->holder_count; i++) {
        const struct explain_holder *h = &x->holders[i];
        struct job_view v;
        json_open(w, '{');
        json_kv_i64(w, "job", (int64_t)h->job);
        if (core_view(core, h->job, &v)) {
            json_kv_str(w, "name", v.name);
            json_kv_str(w, "user", v.user);
            json_kv_str(w, "project", v.project);
        }
        json_kv_i64(w, "gpus_milli", (int64_t)h->gpu_milli);
        json_kv_i64(w, "cpus", h->cpus);
        if (h->end_ms != INT64_MAX)
            json_kv_i64(w, "end_ms", h->end_ms);
        json_close(w, '}');
    }
    json_close(w, ']');
}

static void put_change(struct json_writer *w, const struct sched_explanation *x) {
    static const char *const words[] = {[CHANGE_NONE] = "none",
                                        [CHANGE_RELEASE] = "release",
                                        [CHANGE_BEGIN_NOW] = "begin_now",
                                        [CHANGE_TIME_LIMIT] = "time_limit_ms",
                                        [CHANGE_GPUS] = "gpus_milli",
                                        [CHANGE_NODES] = "nodes",
                                        [CHANGE_TASKS] = "tasks",
                                        [CHANGE_CPUS] = "cpus_per_task",
                                        [CHANGE_MEMORY] = "memory_per_node_bytes",
                                        [CHANGE_ANY_MODEL] = "any_gpu_model",
                                        [CHANGE_NO_FEATURES] = "no_features",
                                        [CHANGE_NO_NODE_LIST] = "no_node_list",
                                        [CHANGE_PARTITION] = "partition",
                                        [CHANGE_QOS] = "qos",
                                        [CHANGE_TRAIN] = "class_train",
                                        [CHANGE_SHARED] = "not_exclusive",
                                        [CHANGE_NO_RESERVATION] = "no_reservation",
                                        [CHANGE_PRIORITY] = "priority",
                                        [CHANGE_PROJECT_QUOTA] = "project_quota_milligpu",
                                        [CHANGE_PROJECT_LIMIT] = "project_limit_milligpu",
                                        [CHANGE_END_JOBS] = "end_jobs"};
    json_key(w, "change");
    json_open(w, '{');
    json_kv_str(w, "what", words[x->change]);
    if (x->value)
        json_kv_i64(w, "value", x->value);
    if (x->end_count) {
        json_key(w, "jobs");
        json_open(w, '[');
        for (uint32_t i = 0; i < x->end_count; i++)
            json_put_i64(w, (int64_t)x->ends[i]);
        json_close(w, ']');
    }
    json_close(w, '}');
}

static void put_text(struct json_writer *w, const char *key, const struct buf *text) {
    json_key(w, key);
    json_open(w, '[');
    for (const char *p = buf_str(text); *p;) {
        size_t n = strcspn(p, "\n");
        if (n)
            json_put_strn(w, p, n);
        p += n + (p[n] == '\n');
    }
    json_close(w, ']');
}

// "104 ours (eva, vision)": what lists tell everybody as well.
static void put_name(void *ctx, uint64_t id, struct buf *out) {
    const struct core *core = ctx;
    struct job_view v;
    if (!core_view(core, id, &v)) {
        buf_addf(out, "%llu", (unsigned long long)id);
        return;
    }
    if (v.array_id)
        buf_addf(out, "%llu_%u", (unsigned long long)v.array_id, v.array_index);
    else
        buf_addf(out, "%llu", (unsigned long long)id);
    buf_addf(out, " %s (%s, %s)", v.name, v.user, v.project);
}

// Of a job with several partitions: what it waits for in each.
static void put_options(struct json_writer *w, const struct world *world, const struct sched_explanation *x) {
    if (!x->option_count)
        return;
    json_key(w, "partitions");
    json_open(w, '[');
    for (uint32_t i = 0; i < x->option_count; i++) {
        json_open(w, '{');
        json_kv_str(w, "partition", world_partition_name(world, x->options[i].partition));
        json_kv_str(w, "reason", sched_reason_word(x->options[i].reason));
        if (x->options[i].planned_ms)
            json_kv_i64(w, "planned_start_ms", x->options[i].planned_ms);
        json_close(w, '}');
    }
    json_close(w, ']');
}

static void explain_pending(struct core *core, uint64_t id, int64_t at_ms, const struct job_view *v,
                            struct json_writer *w) {
    struct sched_explanation x;
    cleanup_buf struct buf text = {0};
    if (sched_explain(core_world(core), id, at_ms, core_policy(core), &x) < 0)
        return;
    cleanup_arena struct arena a = {0};
    struct job_record r;
    if (core_record(core, id, &a, &r) == 0) {
        if (r.preempted_why)
            buf_addf(&text, "%s.\n", r.preempted_why);
        if (x.hold == SCHED_HOLD_DEPENDENCY && !str_empty(r.spec->dependency))
            buf_addf(&text, "It depends on %s%s.\n", r.spec->dependency,
                     v->reason == REASON_DEPENDENCY_NEVER ? ", which can no longer be satisfied" : "");
    }
    sched_explain_text(core_world(core), &x, at_ms, put_name, core, &text);
    put_text(w, "lines", &text);
    json_kv_str(w, "reason", job_reason_words[v->reason]);
    json_kv_i64(w, "position", x.position);
    json_kv_i64(w, "waiting", x.waiting);
    put_options(w, core_world(core), &x);
    put_band(w, &x.band);
    put_nodes(w, &x.nodes);
    put_holders(w, core, &x);
    put_change(w, &x);
}

static void explain(struct api_call *call, struct core *core, uint64_t id, int64_t at_ms) {
    cleanup_buf struct buf b = {0}, text = {0};
    struct json_writer w = {.out = &b};
    struct job_view v;
    struct job_record r;
    bool live, all = api_may_see(call->controller, &call->actor, id);
    json_open(&w, '{');
    json_kv_i64(&w, "job", (int64_t)id);
    if (core_view(core, id, &v)) {
        json_kv_str(&w, "state", job_state_words[v.state]);
        if (v.state == JOB_PENDING) {
            explain_pending(core, id, at_ms, &v, &w);
        } else {
            const char *why = all ? v.ending_reason : api_public_reason(&call->arena, v.ending_reason);
            buf_addf(&text, "Job %llu is %s%s%s.", (unsigned long long)id, job_state_words[v.state],
                     why ? ": " : "", why ? why : "");
            put_text(&w, "lines", &text);
        }
    } else if (api_record(call->controller, id, &call->arena, &r, &live) == 0 && r.submit_ms <= at_ms) {
        json_kv_str(&w, "state", job_state_words[r.state]);
        const char *why = all ? r.reason : api_public_reason(&call->arena, r.reason);
        buf_addf(&text, "Job %llu has ended: %s%s%s.", (unsigned long long)id, job_state_words[r.state],
                 why ? ", " : "", why ? why : "");
        put_text(&w, "lines", &text);
    } else {
        cleanup_buf struct buf message = {0};
        buf_addf(&message, "there is no job %llu, or was none at that time", (unsigned long long)id);
        api_error(call->req, 404, "ENOENT", buf_str(&message));
        return;
    }
    json_close(&w, '}');
    api_json(call->req, 200, &b);
}

// Playing the journal back takes a processor: users get a small part of one for it.
static bool may_play(struct api_call *call, struct error *e) {
    const struct controller *c = call->controller;
    int64_t left_us = c->journal_replay_again_us - clock_mono_us();
    if (call->actor.admin || left_us <= 0)
        return true;
    error_set(e, EAGAIN, "the past was asked about a moment ago; ask again in %lld s",
              (long long)(left_us / 1000000 + 1));
    return false;
}

static void explain_past(struct past *p) {
    struct api_call call = {.controller = p->controller, .req = p->req, .actor = p->actor, .job = p->job};
    int64_t now = clock_mono_us();
    if (p->result < 0)
        api_fail(p->req, &p->error);
    else
        explain(&call, p->core, p->job, p->at_ms);
    arena_done(&call.arena);
    p->controller->journal_replay_again_us = now + (now - p->began_us) * PAST_REST;
}

void api_why(struct api_call *call) {
    int64_t at_ms = api_query_i64(call, "at_ms", 0);
    struct error e = {0};
    if (!at_ms) {
        if (query_throttle_begin(call)) {
            explain(call, call->controller->core, call->job, now_ms());
            query_throttle_end(call->controller);
        }
    } else if (!may_play(call, &e) || journal_replay_ask(call, at_ms, false, explain_past, &e) < 0) {
        api_fail(call->req, &e);
    }
}

// --- when ---

struct variant {
    const char *label;
    struct sched_request request;
};

struct variants {
    struct api_call *call;
    struct variant *list;
    uint32_t n, max;
};

static bool add_partition_variant(void *ctx, const char *name, const void *value) {
    struct variants *v = ctx;
    struct core *core = v->call->controller->core;
    uint32_t handle = core_handle(core, ENTITY_PARTITION, name);
    const struct sched_request *asked = &v->list[0].request;
    bool listed = handle == asked->partition;
    for (uint32_t i = 0; i < asked->also_count; i++)
        listed |= handle == asked->also[i];
    if (listed || v->n >= v->max)
        return v->n < v->max;
    v->list[v->n] = v->list[0];
    v->list[v->n].request.also_count = 0;
    v->list[v->n].label = arena_printf(&v->call->arena, "in partition %s", name);
    v->list[v->n++].request.partition = handle;
    return true;
}

enum { VARIANTS_MAX = 12 };

static uint32_t make_variants(struct api_call *call, const struct sched_request *q, struct variant *list) {
    uint32_t n = 0, half;
    list[n++] = (struct variant){"as asked", *q};
    if ((half = q->gpu_milli_per_job ? q->gpu_milli_per_job / 2 : q->gpu_milli_per_task / 2) >= 100) {
        list[n] = list[0];
        if (half > 1000)
            half -= half % 1000;
        char text[GPU_TEXT_MAX];
        list[n].label = arena_printf(&call->arena, "with %s %s", gpu_milli_format(half, text),
                                     half == 1000 ? "GPU" : "GPUs");
        if (q->gpu_milli_per_job)
            list[n++].request.gpu_milli_per_job = half;
        else
            list[n++].request.gpu_milli_per_task = half;
    }
    if (q->time_limit_ms > 60000) {
        char text[UNIT_TEXT_MAX];
        list[n] = list[0];
        list[n].request.time_limit_ms = q->time_limit_ms / 2;
        list[n].label = arena_printf(&call->arena, "with a limit of %s",
                                     duration_format((uint64_t)q->time_limit_ms / 2000, text));
        n++;
    }
    struct variants more = {call, list, n, VARIANTS_MAX};
    core_each_entity(call->controller->core, ENTITY_PARTITION, add_partition_variant, &more);
    return more.n;
}

// A forecast is no better than to the minute.
static const char *until(int64_t at_ms, int64_t now, char out[static UNIT_TEXT_MAX]) {
    uint64_t s = (uint64_t)(at_ms > now ? at_ms - now + 999 : 0) / 1000;
    return duration_format(s < 120 ? s : (s + 59) / 60 * 60, out);
}

static void describe(struct buf *out, const char *label, const struct sched_when *x) {
    char early[UNIT_TEXT_MAX], late[UNIT_TEXT_MAX];
    int64_t now = now_ms();
    buf_addf(out, "%c%s: ", label[0] - 'a' + 'A', label + 1);
    switch (x->band.basis) {
    case EXPLAIN_NOW: buf_adds(out, "starts at once\n"); break;
    case EXPLAIN_FORECAST:
    case EXPLAIN_ESTIMATE:
        until(x->band.early_ms, now, early);
        until(x->band.late_ms, now, late);
        if (x->band.late_ms <= now + 1000)
            buf_adds(out, "starts at once, after jobs were preempted for it\n");
        else
            buf_addf(out, "starts in %s%s%s (%s)\n", early, streq(early, late) ? "" : " to ",
                     streq(early, late) ? "" : late, sched_reason_word(x->reason));
        break;
    case EXPLAIN_LATER: buf_addf(out, "starts later than can be foreseen (%s)\n", sched_reason_word(x->reason)); break;
    case EXPLAIN_NEVER: buf_addf(out, "would not start as things are (%s)\n", sched_reason_word(x->reason)); break;
    case EXPLAIN_UNKNOWN:
        buf_addf(out, "cannot be told: what is in its way has no time limit (%s)\n",
                 sched_reason_word(x->reason));
        break;
    }
}

void api_when(struct api_call *call) {
    struct core *core = call->controller->core;
    struct json *j;
    struct spec spec;
    struct error e = {0};
    if (api_body(call, &j) < 0)
        return;
    const struct json *spec_json = json_get(j, "spec");
    static const char *argv[] = {"true"};
    int r = spec_json ? schema_read_json(&spec_schema, spec_json, &call->arena, &spec, &e)
                      : error_set(&e, EINVAL, "expected an object with a \"spec\"");
    if (r == 0) {
        if (!json_get(spec_json, "requeue"))
            spec.requeue = call->controller->config.cluster.requeue;  // as a submit does
        if (!spec.workdir)
            spec.workdir = "/";
        if (!spec.argv.len)
            spec.argv.at = argv, spec.argv.len = 1;
        struct command command = {COMMAND_SUBMIT, &(struct command_submit){.spec = &spec, .dry_run = true}};
        r = core_command(core, &call->actor, NULL, &command, now_ms(), NULL, &e);
    }
    if (r < 0) {
        api_fail(call->req, &e);
        return;
    }
    core_fill_defaults(core, &call->actor, &spec);
    struct sched_request q;
    core_request(core, call->actor.user, &spec, &call->arena, &q, NULL);
    struct variant list[VARIANTS_MAX];
    struct sched_request requests[VARIANTS_MAX];
    struct sched_when answers[VARIANTS_MAX];
    if (!query_throttle_begin(call))
        return;
    uint32_t n = make_variants(call, &q, list);
    for (uint32_t i = 0; i < n; i++)
        requests[i] = list[i].request;
    sched_when(core_world(core), requests, n, now_ms(), core_policy(core), answers);
    query_throttle_end(call->controller);
    cleanup_buf struct buf b = {0}, text = {0};
    struct json_writer w = {.out = &b};
    for (uint32_t i = 0; i < n; i++)
        describe(&text, list[i].label, &answers[i]);
    json_open(&w, '{');
    put_text(&w, "lines", &text);
    json_key(&w, "variants");
    json_open(&w, '[');
    for (uint32_t i = 0; i < n; i++) {
        json_open(&w, '{');
        json_kv_str(&w, "request", list[i].label);
        json_kv_str(&w, "reason", sched_reason_word(answers[i].reason));
        put_band(&w, &answers[i].band);
        json_close(&w, '}');
    }
    json_close(&w, ']');
    json_close(&w, '}');
    api_json(call->req, 200, &b);
}

static void tell_differences(struct past *p) {
    const struct journal_replay_report *report = &p->report;
    cleanup_buf struct buf b = {0};
    struct json_writer w = {.out = &b};
    if (p->result < 0) {
        api_fail(p->req, &p->error);
        return;
    }
    json_open(&w, '{');
    json_kv_i64(&w, "events", (int64_t)report->events);
    json_kv_i64(&w, "passes", (int64_t)report->passes);
    json_kv_i64(&w, "starts", (int64_t)report->starts);
    json_kv_i64(&w, "preemptions", (int64_t)report->preemptions);
    json_kv_i64(&w, "different", (int64_t)report->different);
    json_key(&w, "differences");
    json_open(&w, '[');
    for (uint32_t i = 0; i < report->differences.len; i++) {
        const struct journal_replay_difference *d = &report->differences.at[i];
        json_open(&w, '{');
        json_kv_i64(&w, "seq", (int64_t)d->seq);
        json_kv_i64(&w, "at_ms", d->at_ms);
        json_kv_str(&w, "recorded", d->recorded);
        json_kv_str(&w, "now", d->now);
        json_close(&w, '}');
    }
    json_close(&w, ']');
    json_close(&w, '}');
    api_json(p->req, 200, &b);
}

void api_replay(struct api_call *call) {
    struct error e = {0};
    if (journal_replay_ask(call, 0, true, tell_differences, &e) < 0)
        api_fail(call->req, &e);
}
