// Explanations in the API: why a job waits or waited, when one would start, and whether the recorded
// decisions come out the same again.
#include <assert.h>
#include <errno.h>
#include <string.h>

#include "base/clock.h"
#include "base/text.h"
#include "api.h"
#include "api_explain_phrases.h"
#include "journal_replay.h"
#include "model/gpuspec.h"
#include "model/units.h"
#include "sched/explain.h"

enum {
    ENDING_NODES_MAX = 8,  // that are named
    ENDING_SLACK_S = 5,    // after the grace, for the end to be found and reported
};
enum { PAST_REST = 20 };  // a playback that took t is not repeated before PAST_REST * t have passed

static_assert(EXPLAIN_ESTIMATE == 5 && CHANGE_END_JOBS == 20, "the words of answers.c are in this order");

static struct answer_start *start_of(const struct explain_band *b, struct arena *a) {
    struct answer_start *s = arena_alloc(a, sizeof *s);
    *s = (struct answer_start){.basis = b->basis};
    if (b->basis == EXPLAIN_FORECAST || b->basis == EXPLAIN_NOW || b->basis == EXPLAIN_ESTIMATE) {
        s->early_ms = b->early_ms;
        s->late_ms = b->late_ms;
        schema_give(&answer_start_schema, s, &s->early_ms);
        schema_give(&answer_start_schema, s, &s->late_ms);
    }
    return s;
}

static struct answer_why_nodes *nodes_of(const struct explain_nodes *n, struct arena *a) {
    struct answer_why_nodes *out = arena_alloc(a, sizeof *out);
    *out = (struct answer_why_nodes){.all = n->all,
                                     .needed = n->needed,
                                     .fit = n->fit,
                                     .not_in_partition = n->partition,
                                     .not_for_project = n->project,
                                     .not_listed = n->listed,
                                     .without_features = n->features,
                                     .other_gpu_model = n->model,
                                     .down = n->down,
                                     .drained = n->drained,
                                     .too_small = n->small,
                                     .reserved = n->reserved,
                                     .of_another_user = n->other_user,
                                     .gone_too_soon = n->ending,
                                     .gpus_busy = n->busy_gpus,
                                     .cpus_busy = n->busy_cpus,
                                     .memory_busy = n->busy_memory,
                                     .exclusive = n->busy_alone,
                                     .planned_for_others = n->planned};
    return out;
}

// Who asks, and in which state: that of now, or of a time that is over.
struct why_asker {
    struct controller *controller;
    const struct actor *viewer;
    struct core *core;
};

static void add_holders(const struct why_asker *q, const struct sched_explanation *x, struct arena *a,
                        struct answer_why *out) {
    out->holders.at = arena_alloc(a, (x->holder_count + 1) * sizeof *out->holders.at);
    for (uint32_t i = 0; i < x->holder_count; i++) {
        const struct explain_holder *from = &x->holders[i];
        struct answer_holder *h = &out->holders.at[out->holders.len++];
        struct job_view v;
        *h = (struct answer_holder){.job = from->job, .gpus_milli = from->gpu_milli, .cpus = from->cpus};
        enum job_sight sight = core_view(q->core, from->job, &v)
                                   ? job_sight(q->controller, q->viewer, v.user, v.project)
                                   : SIGHT_NONE;
        if (sight >= SIGHT_PUBLIC) {
            h->name = v.name;
            h->user = v.user;
        }
        if (sight >= SIGHT_MASKED)
            h->project = v.project;
        if (from->end_ms != INT64_MAX) {
            h->end_ms = from->end_ms;
            schema_give(&answer_holder_schema, h, &h->end_ms);
        }
    }
}

static struct answer_why_change *change_of(const struct sched_explanation *x, struct arena *a) {
    struct answer_why_change *out = arena_alloc(a, sizeof *out);
    *out = (struct answer_why_change){.what = x->change, .value = x->value};
    out->jobs.at = arena_memdup(a, x->ends, x->end_count * sizeof *x->ends);
    out->jobs.len = x->end_count;
    return out;
}

struct text_lines {
    const char **at;
    uint32_t len;
};

static struct text_lines lines_of(const struct buf *text, struct arena *a) {
    struct text_lines out = {0};
    uint32_t count = 1;
    for (size_t i = 0; i < text->len; i++)
        count += text->data[i] == '\n';
    out.at = arena_alloc(a, count * sizeof *out.at);
    for (const char *p = text->len ? text->data : ""; *p;) {
        size_t n = strcspn(p, "\n");
        if (n)
            out.at[out.len++] = arena_strndup(a, p, n);
        p += n + (p[n] == '\n');
    }
    return out;
}

static void put_name(void *ctx, uint64_t id, struct buf *out) {
    const struct why_asker *q = ctx;
    struct job_view v;
    if (core_view(q->core, id, &v))
        job_sight_name(q->controller, q->viewer, &v, out);
    else
        buf_addf(out, "%llu", (unsigned long long)id);
}

// Of a job with several partitions: what it waits for in each.
static void add_partitions(const struct world *world, const struct sched_explanation *x, struct arena *a,
                           struct answer_why *out) {
    out->partitions.at = arena_alloc(a, (x->option_count + 1) * sizeof *out->partitions.at);
    for (uint32_t i = 0; i < x->option_count; i++)
        out->partitions.at[out->partitions.len++] =
            (struct answer_why_partition){.partition = world_partition_name(world, x->options[i].partition),
                                          .reason = sched_reason_word(x->options[i].reason),
                                          .planned_start_ms = x->options[i].planned_ms};
}

static void explain_pending(struct why_asker *q, uint64_t id, int64_t at_ms, const struct job_view *v,
                            struct arena *a, struct phrase_out *said, struct answer_why *out) {
    struct core *core = q->core;
    bool named = job_sight(q->controller, q->viewer, v->user, v->project) >= SIGHT_PUBLIC;
    struct sched_explanation x;
    struct job_record r;
    if (sched_explain(core_world(core), id, at_ms, core_policy(core), &x) < 0)
        return;
    if (named && core_record(core, id, a, &r) == 0) {
        if (r.preempted_why)
            EXPLAIN(said, PREEMPTED, SAY_TEXT(r.preempted_why));
        if (r.late_why)
            EXPLAIN(said, LATER, SAY_TEXT(r.late_why));
        if (x.hold == SCHED_HOLD_DEPENDENCY && !str_empty(r.spec->dependency)) {
            if (v->reason == REASON_DEPENDENCY_NEVER)
                EXPLAIN(said, DEPENDS_NEVER, SAY_TEXT(r.spec->dependency));
            else
                EXPLAIN(said, DEPENDS, SAY_TEXT(r.spec->dependency));
        }
    }
    out->reason = job_reason_words[v->reason];
    if (v->reason == REASON_SCRIPT_LOST) {  // nothing that could change would start it
        EXPLAIN(said, SCRIPT_LOST, {0});
        return;
    }
    x.elastic = v->workers_max;
    sched_explain_say(core_world(core), &x, at_ms, put_name, q, said);
    out->position = x.position;
    out->waiting = x.waiting;
    schema_give(&answer_why_schema, out, &out->position);
    schema_give(&answer_why_schema, out, &out->waiting);
    add_partitions(core_world(core), &x, a, out);
    out->start = start_of(&x.band, a);
    out->nodes = nodes_of(&x.nodes, a);
    add_holders(q, &x, a, out);
    out->change = change_of(&x, a);
}

// A forecast is no better than to the minute.
static const char *until(int64_t at_ms, int64_t now, char out[static UNIT_TEXT_MAX]) {
    uint64_t s = (uint64_t)(at_ms > now ? at_ms - now + 999 : 0) / 1000;
    return duration_format(s < 120 ? s : (s + 59) / 60 * 60, out);
}

static uint32_t optional_running(const struct core *core, uint64_t id) {
    struct job_view worker;
    uint32_t n = 0;
    for (uint32_t i = 0; i < core_worker_count(core, id); i++)
        n += core_view(core, core_worker(core, id, i), &worker) && worker.optional &&
             job_state_holds_resources(worker.state) && !worker.ending;
    return n;
}

// When it will have one worker more.
static void explain_next_size(struct core *core, uint64_t id, int64_t at_ms, const struct job_view *v,
                              struct phrase_out *said) {
    struct explain_band b =
        sched_when_workers(core_world(core), id, optional_running(core, id) + 1, at_ms, core_policy(core));
    if (b.basis != EXPLAIN_FORECAST && b.basis != EXPLAIN_ESTIMATE)
        return;
    EXPLAIN(said, NEXT_SIZE, SAY_NUMBER(v->workers_running + 1), SAY_RANGE(b.early_ms - at_ms, b.late_ms - at_ms));
}

// Why an elastic job that runs is not larger: what its first worker that waits is waiting for.
static void explain_size(struct why_asker *q, uint64_t id, int64_t at_ms, const struct job_view *v,
                         struct phrase_out *said) {
    struct core *core = q->core;
    bool parts =
        v->components > 1 && job_sight(q->controller, q->viewer, v->user, v->project) >= SIGHT_PUBLIC;
    struct job_view worker;
    struct sched_explanation x;
    EXPLAIN(said, WORKERS, SAY_NUMBER(v->workers_running), SAY_NUMBER(v->workers_max),
            SAY_NUMBER(v->workers_min));
    for (uint32_t i = 0; v->workers_running < v->workers_max && i < core_worker_count(core, id); i++) {
        uint64_t waiting = core_worker(core, id, i);
        if (!core_view(core, waiting, &worker) || worker.state != JOB_PENDING)
            continue;
        if (worker.reason == REASON_SCRIPT_LOST) {
            EXPLAIN(said, WORKER_LOST, SAY_NUMBER(i));
        } else if (worker.optional) {
            const char *reason = job_reason_words[worker.reason];
            if (parts)
                EXPLAIN(said, WORKER_OF_OPTIONAL, SAY_NUMBER(i), SAY_TEXT(worker.component), SAY_TEXT(reason));
            else
                EXPLAIN(said, WORKER_OPTIONAL, SAY_NUMBER(i), SAY_TEXT(reason));
            explain_next_size(core, id, at_ms, v, said);
        } else if (sched_explain(core_world(core), waiting, at_ms, core_policy(core), &x) == 0) {
            EXPLAIN(said, WORKER_NEEDED, SAY_NUMBER(i));
            sched_explain_say(core_world(core), &x, at_ms, put_name, q, said);
        }
        return;
    }
}

static void explain_image(const struct live_usage *u, struct phrase_out *said) {
    int64_t since_ms = u->preparing_ms ? controller_now_ms() - u->preparing_ms : -1;
    for (uint32_t i = 0; i < u->parts.len; i++)
        if (u->parts.at[i].preparing) {
            if (since_ms >= 0)
                EXPLAIN(said, IMAGE_SINCE, SAY_TEXT(u->parts.at[i].node), SAY_SPAN(since_ms));
            else
                EXPLAIN(said, IMAGE, SAY_TEXT(u->parts.at[i].node));
            return;
        }
}

// A job that is being ended: on which nodes it has not ended, and why not.
static void explain_ending(struct controller *c, uint64_t id, struct phrase_out *said) {
    struct core_ending p;
    for (uint32_t i = 0; i < ENDING_NODES_MAX && core_job_ending(c->core, id, i, &p); i++) {
        int64_t s = p.since_ms ? (controller_now_ms() - p.since_ms) / 1000 : 0;
        uint32_t grace_s = p.grace_s ? p.grace_s : c->config.cluster.grace_s;
        struct phrase_value node = SAY_TEXT(p.node);
        if (!strmap_get(&c->agents, p.node))
            EXPLAIN(said, ENDING_AWAY, node);
        else if (s <= grace_s + ENDING_SLACK_S)
            EXPLAIN(said, ENDING, node, SAY_SPAN(grace_s * INT64_C(1000)));
        else
            EXPLAIN(said, ENDING_LATE, node, SAY_SPAN(s * 1000));
    }
}

static void explain(struct api_call *call, struct core *core, uint64_t id, int64_t at_ms) {
    cleanup_buf struct buf text = {0}, sentences = {0};
    struct json_writer json = {.out = &sentences};
    struct phrase_out said = {&text, &json};
    struct answer_why out = {.job = id};
    struct job_view v;
    struct job_record r;
    struct error e = {0};
    struct why_asker asking = {call->controller, &call->actor, core};
    bool live;
    json_open(&json, '[');
    if (core_view(core, id, &v)) {
        out.state = v.state;
        const char *why = job_sight_reason(call->sight, &call->arena, v.ending_reason);
        if (v.state == JOB_PENDING)
            explain_pending(&asking, id, at_ms, &v, &call->arena, &said, &out);
        else if (why)
            EXPLAIN(&said, IS_BECAUSE, SAY_NUMBER(id), SAY_TEXT(job_state_words[v.state]), SAY_TEXT(why));
        else
            EXPLAIN(&said, IS, SAY_NUMBER(id), SAY_TEXT(job_state_words[v.state]));
        // What nodes tell now says nothing about the past.
        const struct live_usage *u =
            core == call->controller->core ? map_get(&call->controller->live, id) : NULL;
        if (u && u->preparing && !v.ending)
            explain_image(u, &said);
        if (v.state == JOB_COMPLETING && core == call->controller->core)
            explain_ending(call->controller, id, &said);
        if (v.workers_max && v.state != JOB_PENDING && !v.ending)
            explain_size(&asking, id, at_ms, &v, &said);
    } else if (api_record(call->controller, id, &call->arena, &r, &live) == 0 && r.submit_ms <= at_ms) {
        out.state = r.state;
        const char *why = job_sight_reason(call->sight, &call->arena, r.reason);
        if (why)
            EXPLAIN(&said, ENDED_BECAUSE, SAY_NUMBER(id), SAY_TEXT(job_state_words[r.state]), SAY_TEXT(why));
        else
            EXPLAIN(&said, ENDED, SAY_NUMBER(id), SAY_TEXT(job_state_words[r.state]));
    } else {
        bool past = core != call->controller->core;
        error_set(&e, ENOENT, past ? "there was no job %llu at that time" : "there is no job %llu",
                  (unsigned long long)id);
        api_fail(call->req, &e);
        return;
    }
    struct text_lines lines = lines_of(&text, &call->arena);
    out.lines.at = lines.at;
    out.lines.len = lines.len;
    json_close(&json, ']');
    out.sentences = sentences.data;
    api_answer(call, &answer_why_schema, &out);
}

// Playing the journal back takes a processor: users get a small part of one for it.
static bool may_play(struct api_call *call, struct error *e) {
    const struct controller *c = call->controller;
    int64_t left_us = c->journal_replay_again_us - clock_mono_us();
    if (call->actor.admin || left_us <= 0)
        return true;
    error_set(e, EAGAIN, "the journal was replayed for such a question a moment ago; ask again in %lld s",
              (long long)(left_us / 1000000 + 1));
    return false;
}

static void explain_past(struct past *p) {
    struct api_call call = {.controller = p->controller, .req = p->req, .actor = p->actor, .job = p->job};
    call.sight = job_sight_of(p->controller, &p->actor, p->job);
    int64_t now = clock_mono_us();
    if (p->result < 0)
        api_fail(p->req, &p->error);
    else
        explain(&call, p->core, p->job, p->at_ms);
    arena_done(&call.arena);
    p->controller->journal_replay_again_us = now + (now - p->began_us) * PAST_REST;
}

void api_why(struct api_call *call) {
    int64_t at_ms = ((const struct query_why *)call->query)->at_ms;
    struct error e = {0};
    if (!at_ms) {
        if (query_throttle_begin(call)) {
            explain(call, call->controller->core, call->job, controller_now_ms());
            query_throttle_end(call->controller);
        }
    } else if (!may_play(call, &e) ||
               controller_journal_replay_ask(call, at_ms, false, explain_past, &e) < 0) {
        api_fail(call->req, &e);
    }
}

// --- when ---

struct variant {
    const char *label;
    struct sched_request request;
    const char *refused;  // why it would be refused; NULL: it would not, and has a request
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

// An elastic job that begins with all of its workers instead of the least number.
static bool largest(struct api_call *call, const struct spec *spec, struct variant *out) {
    struct spec all = *spec;
    if (spec->workers_min == spec->workers_max)
        return false;
    all.workers_min = all.workers_max;
    all.components.at =
        arena_memdup(&call->arena, spec->components.at, spec->components.len * sizeof *all.components.at);
    for (uint32_t i = 0; i < all.components.len; i++)
        all.components.at[i].workers_min = all.components.at[i].workers_max;
    *out = (struct variant){
        .label = arena_printf(&call->arena, "with all %u workers from the start", all.workers_max)};
    return core_request(call->controller->core, call->actor.user, &all, &call->arena, &out->request, NULL) ==
           0;
}

static uint32_t make_variants(struct api_call *call, const struct sched_request *q, struct variant *list) {
    uint32_t n = 0, half;
    list[n++] = (struct variant){.label = "as asked", .request = *q};
    if (q->part_count)  // each component asks for something of its own
        return n;
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

// `grows`: an elastic job that is there already.
static void describe(struct buf *out, const char *label, const struct sched_when *x, bool grows) {
    char early[UNIT_TEXT_MAX], late[UNIT_TEXT_MAX];
    int64_t now = controller_now_ms();
    const char *starts = grows ? "it has them" : "starts";
    buf_addf(out, "%c%s: ", label[0] - 'a' + 'A', label + 1);
    switch (x->band.basis) {
    case EXPLAIN_NOW: buf_addf(out, "%s %s\n", starts, grows ? "now" : "at once"); break;
    case EXPLAIN_FORECAST:
    case EXPLAIN_ESTIMATE:
        until(x->band.early_ms, now, early);
        until(x->band.late_ms, now, late);
        if (x->band.late_ms <= now + 1000)
            buf_addf(out, "%s at once, after jobs were preempted for it\n", starts);
        else
            buf_addf(out, "%s in %s%s%s (%s)\n", starts, early, streq(early, late) ? "" : " to ",
                     streq(early, late) ? "" : late, sched_reason_word(x->reason));
        break;
    case EXPLAIN_LATER:
        buf_addf(out, "%s later than can be foreseen (%s)\n", starts, sched_reason_word(x->reason));
        break;
    case EXPLAIN_NEVER:
        buf_addf(out, "%s as things are (%s)\n", grows ? "it would not have them" : "would not start",
                 sched_reason_word(x->reason));
        break;
    case EXPLAIN_UNKNOWN:
        buf_addf(out, "is not known: what is in its way has no time limit (%s)\n",
                 sched_reason_word(x->reason));
        break;
    }
}

static void answer_variants(struct api_call *call, const struct variant *list,
                            const struct sched_when *answers, uint32_t n, bool grows) {
    cleanup_buf struct buf text = {0};
    struct answer_variant variants[VARIANTS_MAX];
    for (uint32_t i = 0; i < n; i++) {
        variants[i] = (struct answer_variant){.request = list[i].label, .refused = list[i].refused};
        if (list[i].refused) {
            buf_addf(&text, "%c%s: refused: %s\n", list[i].label[0] - 'a' + 'A', list[i].label + 1,
                     list[i].refused);
            continue;
        }
        describe(&text, list[i].label, &answers[i], grows);
        variants[i].reason = sched_reason_word(answers[i].reason);
        variants[i].start = start_of(&answers[i].band, &call->arena);
    }
    struct text_lines lines = lines_of(&text, &call->arena);
    struct answer_when out = {0};
    out.lines.at = lines.at;
    out.lines.len = lines.len;
    out.variants.at = variants;
    out.variants.len = n;
    api_answer(call, &answer_when_schema, &out);
}

// Those that are still being written are refused again and again: to whoever checks one, that is an answer.
static void answer_refused(struct api_call *call, const struct request_when *q, const struct error *e) {
    if (q->check)
        api_answer(call, &answer_when_schema, &(struct answer_when){.refused = e->text});
    else
        api_fail(call->req, e);
}

// What the scheduler would be asked for by a submit of this; -1, and why, when it would be refused.
static int request_of(struct api_call *call, struct spec *spec, struct sched_request *out, struct error *e) {
    struct core *core = call->controller->core;
    struct command command = {COMMAND_SUBMIT, &(struct command_submit){.spec = spec, .dry_run = true}};
    if (core_command(core, &call->actor, NULL, &command, controller_now_ms(), NULL, e) < 0)
        return -1;
    core_fill_defaults(core, &call->actor, spec);
    core_request(core, call->actor.user, spec, &call->arena, out, NULL);
    return 0;
}

// What an alternative changes, in words: "with 2 GPUs and a limit of 4 h".
static const char *alternative_label(struct api_call *call, const struct spec *change, uint32_t number) {
    char gpus[GPU_TEXT_MAX], limit[UNIT_TEXT_MAX];
    bool has_gpus = schema_given(&spec_schema, change, &change->gpus_milli),
         has_limit = schema_given(&spec_schema, change, &change->time_limit_s) && change->time_limit_s;
    if (!has_gpus && !has_limit)
        return arena_printf(&call->arena, "alternative %u", number);
    if (has_gpus)
        gpu_milli_format(change->gpus_milli, gpus);
    if (has_limit)
        duration_format(change->time_limit_s, limit);
    return arena_printf(&call->arena, "with %s%s%s%s%s", has_gpus ? gpus : "",
                        !has_gpus                    ? ""
                        : change->gpus_milli == 1000 ? " GPU"
                                                     : " GPUs",
                        has_gpus && has_limit ? " and " : "", has_limit ? "a limit of " : "",
                        has_limit ? limit : "");
}

// The request with some of its fields changed, as the question says; one that would be refused is an answer, too.
static uint32_t make_alternatives(struct api_call *call, const struct request_when *question,
                                  const struct spec *asked, const struct sched_request *request,
                                  struct variant *list) {
    uint32_t n = 0;
    list[n++] = (struct variant){.label = "as asked", .request = *request};
    for (uint32_t i = 0; i < question->instead.len; i++) {
        struct spec *spec = arena_memdup(&call->arena, asked, sizeof *asked);
        struct error e = {0};
        spec_merge(spec, &question->instead.at[i]);
        list[n] = (struct variant){.label = alternative_label(call, &question->instead.at[i], n)};
        if (request_of(call, spec, &list[n].request, &e) < 0)
            list[n].refused = arena_strdup(&call->arena, e.text);
        n++;
    }
    return n;
}

void api_when(struct api_call *call) {
    struct core *core = call->controller->core;
    const struct request_when *question = call->body;
    struct spec spec = *question->spec;
    struct error e = {0};
    static const char *argv[] = {"true"};
    if (question->instead.len >= VARIANTS_MAX) {
        error_set(
            &e, EINVAL,
            "instead: there are %u alternatives; a question may have %d, ask about the others in another",
            question->instead.len, VARIANTS_MAX - 1);
        api_fail(call->req, &e);
        return;
    }
    if (question->check && api_text_ids(call, &spec, question->script, NULL, 0, &e) < 0) {
        answer_refused(call, question, &e);
        return;
    }
    if (!schema_given(&spec_schema, &spec, &spec.requeue))
        spec.requeue = call->controller->config.cluster.requeue;  // as a submit does
    if (!spec.workdir)
        spec.workdir = "/";
    if (!spec.argv.len && !spec.script_id)
        spec.argv.at = argv, spec.argv.len = 1;
    struct spec asked = spec;  // without defaults: an alternative may have others
    struct sched_request q;
    if (request_of(call, &spec, &q, &e) < 0) {
        answer_refused(call, question, &e);
        return;
    }
    struct variant list[VARIANTS_MAX];
    struct sched_when answers[VARIANTS_MAX] = {0};
    if (!query_throttle_begin(call))
        return;
    uint32_t n = question->instead.len ? make_alternatives(call, question, &asked, &q, list)
                                       : make_variants(call, &q, list);
    if (!question->instead.len)
        n += n < VARIANTS_MAX && largest(call, &spec, &list[n]);
    for (uint32_t i = 0; i < n; i++)
        if (!list[i].refused)
            sched_when(core_world(core), &list[i].request, 1, controller_now_ms(), core_policy(core),
                       &answers[i]);
    query_throttle_end(call->controller);
    answer_variants(call, list, answers, n, false);
}

// What an elastic job that was submitted will have, and when.
void api_when_workers(struct api_call *call) {
    struct core *core = call->controller->core;
    int64_t now_ms = controller_now_ms();
    uint32_t wanted = ((const struct query_when *)call->query)->workers;
    struct variant asked = {
        .label = arena_printf(&call->arena, "with %u worker%s", wanted, wanted == 1 ? "" : "s")};
    struct sched_when when = {0};
    struct sched_explanation x;
    struct job_view v;
    struct error e = {0};
    int r = 0;
    if (!core_view(core, call->job, &v))
        r = error_set(&e, ENOENT, "there is no job %llu that waits or runs", (unsigned long long)call->job);
    else if (!v.workers_max)
        r = error_set(&e, EINVAL, "job %llu has no workers; for when it starts: acequia why %llu",
                      (unsigned long long)call->job, (unsigned long long)call->job);
    else if (!wanted)
        r = error_set(&e, EINVAL, "workers: how many? For example workers=%u", v.workers_max);
    else if (wanted > v.workers_max)
        r = error_set(&e, ERANGE, "workers: job %llu has at most %u; to allow more: acequia resize %llu %u",
                      (unsigned long long)call->job, v.workers_max, (unsigned long long)call->job, wanted);
    if (r < 0) {
        api_fail(call->req, &e);
        return;
    }
    if (!query_throttle_begin(call))
        return;
    if (wanted <= v.workers_running) {
        when.band = (struct explain_band){EXPLAIN_NOW, now_ms, now_ms};
    } else if (v.state != JOB_PENDING) {
        when.band = sched_when_workers(core_world(core), call->job,
                                       optional_running(core, call->job) + wanted - v.workers_running, now_ms,
                                       core_policy(core));
        when.reason = SCHED_REASON_RESOURCES;
    } else if (sched_explain(core_world(core), call->job, now_ms, core_policy(core), &x) == 0) {
        when.band = x.band;
        when.reason = x.reason;
        if (wanted > v.workers_min)  // the others come after the minimum has started
            asked.label = arena_printf(&call->arena, "with %u of the %u workers", v.workers_min, wanted);
    }
    query_throttle_end(call->controller);
    answer_variants(call, &asked, &when, 1, v.state != JOB_PENDING);
}

static void answer_replay(struct past *p) {
    const struct journal_replay_report *report = &p->report;
    struct answer_difference differences[PAST_DIFFERENCES_MAX];
    if (p->result < 0) {
        api_fail(p->req, &p->error);
        return;
    }
    struct answer_replay out = {.events = report->events,
                                .passes = report->passes,
                                .starts = report->starts,
                                .preemptions = report->preemptions,
                                .different = report->different};
    out.differences.at = differences;
    for (uint32_t i = 0; i < report->differences.len && i < PAST_DIFFERENCES_MAX; i++) {
        const struct journal_replay_difference *d = &report->differences.at[i];
        differences[out.differences.len++] = (struct answer_difference){d->seq, d->at_ms, d->recorded, d->now};
    }
    api_answer_to(p->req, 200, &answer_replay_schema, &out);
}

void api_replay(struct api_call *call) {
    struct error e = {0};
    if (controller_journal_replay_ask(call, 0, true, answer_replay, &e) < 0)
        api_fail(call->req, &e);
}
