// Launches and steps as messages to agents. A message is made when it leaves, after the commit: meanwhile the attempt
// may have ended, and then nothing is sent. It is made complete here, with the script, environment and secrets that the
// core does not keep and asks a struct core_sources for; whoever sends it need not know what is in it. What cannot be
// made ends here and now, as a launch that failed.
#include <errno.h>
#include <string.h>

#include "model/secret.h"
#include "state.h"

enum { LAUNCH_MEMBERS_MAX = 128 };  // with more workers a launch does not carry all of them

// The smallest and largest index of the array, for the job's environment. A range may end between two steps:
// 0-9:4 has the indices 0, 4 and 8.
static void set_array(const struct core_job *j, struct message_launch *out) {
    const struct array *array = j->sub->array;
    out->array_id = j->sub->id;
    out->array_index = j->array_index;
    out->array_count = array->count;
    out->array_min = array->ranges[0].first;
    for (uint32_t i = 0; i < array->range_count; i++) {
        uint32_t last =
            array->ranges[i].last - (array->ranges[i].last - array->ranges[i].first) % array->ranges[i].step;
        if (array->ranges[i].first < out->array_min)
            out->array_min = array->ranges[i].first;
        if (last > out->array_max)
            out->array_max = last;
    }
}

uint64_t core_launch_told_seq(const struct core *c, uint64_t id, uint32_t attempt) {
    const struct core_job *j = core_find_job(c, id);
    if (!j || !j->run || j->attempt != attempt)
        return 0;
    return core_launch_is_late(c, j) ? UINT64_MAX : j->run->begun_seq;
}

int core_launch(const struct core *c, uint64_t id, uint32_t attempt, const char *node, struct arena *a,
                struct message_launch *out) {
    struct core_job *j = core_find_job(c, id);
    struct run_part *mine = j && j->attempt == attempt ? core_part_on(j, node) : NULL;
    if (!mine || mine->ended || j->run->ending || core_launch_waits(c, j))
        return -ESTALE;
    struct job_record record;
    core_record_of(c, j, a, &record);
    uint32_t index = (uint32_t)(mine - j->run->parts);
    *out = (struct message_launch){.id = id,
                                   .attempt = attempt,
                                   .spec = record.spec,
                                   .part = &record.parts.at[index],
                                   .node_index = index,
                                   .time_limit_s = j->run->time_limit_s,
                                   .cluster = c->config.cluster,
                                   .submit_ms = j->sub->submit_ms,
                                   .is_array = j->sub->is_array,
                                   .epoch = j->run->epoch,
                                   .seq = j->run->seq};
    out->parts.at = record.parts.at;
    out->parts.len = record.parts.len;
    for (uint32_t i = 0; i < index; i++)
        out->first_rank += record.parts.at[i].tasks;
    if (j->sub->is_array)
        set_array(j, out);
    if (core_is_worker(j)) {
        out->worker = out->array_index = j->array_index;
        out->array_id = j->sub->group->id;  // for the names of its output files
        out->workers = arena_alloc(a, sizeof *out->workers);
        core_group_members(c, j, a, out->workers);
        if (j->sub->group->workers.len > LAUNCH_MEMBERS_MAX)
            out->workers->lines = (struct bytes){0};  // it comes a moment later
        if (!j->array_index && record.spec->slurm_words)
            core_group_launch_components(c, j->sub->group, a, out);
        core_group_launch_job(c, j, a, out);
    }
    out->gpu_uuids.at = arena_alloc(a, mine->gpu_count * sizeof *out->gpu_uuids.at);
    for (uint32_t i = 0; i < mine->gpu_count; i++)
        if (mine->gpus[i].index < mine->node->node->gpus.len)
            out->gpu_uuids.at[out->gpu_uuids.len++] = mine->node->node->gpus.at[mine->gpus[i].index].uuid;
    return 0;
}

// An environment is kept as "NAME=value\0NAME=value\0".
static int add_environment(const struct core_sources *from, const char *id, struct arena *a,
                           struct any_list *out) {
    const char *text;
    size_t len;
    uint32_t n = 0;
    *out = (struct any_list){0};
    int r = id ? from->text(from->ctx, id, &text, &len) : 0;
    if (!id || r < 0)
        return r;
    for (size_t i = 0; i < len; i++)
        n += text[i] == 0;
    const char **at = arena_alloc(a, (n + 1) * sizeof *at), *copy = arena_memdup(a, text, len);
    for (const char *p = copy; p < copy + len; p += strlen(p) + 1)
        at[out->len++] = p;
    out->at = at;
    return 0;
}

static int add_texts(const struct core_sources *from, struct arena *a, struct message_launch *m) {
    const char *text;
    size_t len;
    int r = 0;
    struct any_list environment = {0};
    if (m->spec->script_id && (r = from->text(from->ctx, m->spec->script_id, &text, &len)) == 0)
        m->script = (struct bytes){arena_memdup(a, text, len), len};
    if (r == 0 && m->script.len && m->spec->upload_id &&
        (r = from->text(from->ctx, m->spec->upload_id, &text, &len)) == 0) {
        char *both = arena_alloc(a, m->script.len + len);
        memcpy(both, m->script.data, m->script.len);
        memcpy(both + m->script.len, text, len);
        m->script = (struct bytes){both, m->script.len + len};
    }
    if (r == 0)
        r = add_environment(from, m->spec->environment_id, a, &environment);
    m->environment.at = environment.at;
    m->environment.len = environment.len;
    return r;
}

static int add_secret(const struct core *c, const struct core_sources *from, const char *node,
                      const struct spec *s, const char *wish, struct arena *a, struct message_secret *out,
                      struct error *e) {
    struct secret_wish w;
    int r = secret_wish_parse(wish, a, &w, e);
    if (r < 0)
        return r;
    const struct event_secret *secret = core_secret_of_job(c, s->user, s->project, w.name);
    *out = (struct message_secret){w.name, w.variable, w.file, {0}};
    r = secret ? from->secret(from->ctx, node, secret, a, &out->value, e)
               : error_set(e, ENOENT, "it was deleted after the job was submitted");
    if (r == 0 && !w.file && out->value.len && memchr(out->value.data, 0, out->value.len))
        r = error_set(e, EINVAL, "it holds a zero byte, which a variable cannot; use --secret %s:file",
                      w.name);
    if (r < 0)
        error_prefix(e, "secret %s", w.name);
    return r;
}

// They go before the launch, in a message of their own: nodes write launches to disk, and secrets never.
static int add_secrets(const struct core *c, const struct core_sources *from, const char *node,
                       const struct message_launch *m, struct arena *a, struct message_secrets *out,
                       struct error *e) {
    const struct spec *s = m->spec;
    size_t total = 0;
    int r = 0;
    *out = (struct message_secrets){.id = m->id, .attempt = m->attempt};
    out->secrets.at = arena_alloc(a, s->secrets.len * sizeof *out->secrets.at);
    for (uint32_t i = 0; r == 0 && i < s->secrets.len; i++) {
        struct message_secret *v = &out->secrets.at[out->secrets.len++];
        *v = (struct message_secret){0};
        r = add_secret(c, from, node, s, s->secrets.at[i], a, v, e);
        if (r == 0 && (total += v->value.len) > SECRET_BYTES_PER_JOB)
            r = error_set(e, E2BIG, "its secrets have more than %d KiB in total, which is the limit",
                          SECRET_BYTES_PER_JOB >> 10);
    }
    if (r < 0)  // also those before one that could not be read
        message_wipe(&(struct message){MESSAGE_SECRETS, out});
    return r;
}

static void launch_impossible(struct core *c, const struct effect *f, const char *reason, int64_t now_ms) {
    struct core_job *j = core_find_job(c, f->job);
    struct run_part *p = j && j->attempt == f->attempt ? core_part_on(j, f->node) : NULL;
    // A launch that is sent again to be safe may concern an attempt that runs: nothing is wrong with that one.
    if (!p || p->ended || p->started)
        return;
    core_end_part(c, j, p, END_LAUNCH, reason, now_ms);
    core_end_other_parts(c, j, p, now_ms);
    core_finish_if_done(c, j, now_ms);
}

static uint32_t launch_messages(struct core *c, const struct effect *f, const struct core_sources *from,
                                int64_t now_ms, struct arena *a, struct message *out) {
    struct message_launch *m = arena_alloc(a, sizeof *m);
    struct message_secrets *secrets = arena_alloc(a, sizeof *secrets);
    struct error e = {0};
    uint32_t n = 0;
    if (core_launch(c, f->job, f->attempt, f->node, a, m) < 0) {  // ended meanwhile, or something is in the way again
        const struct core_job *j = core_find_job(c, f->job);
        if (j && j->run && j->attempt == f->attempt && core_launch_waits(c, j))
            core_launch_later(c, j);
        return 0;
    }
    if (add_texts(from, a, m) < 0) {  // better not at all than without its script
        launch_impossible(c, f, "its script or environment cannot be read from the controller's disk",
                          now_ms);
        return 0;
    }
    if (core_volumes_launch(c, m->spec, a, m, &e) < 0) {
        launch_impossible(c, f, e.text, now_ms);
        return 0;
    }
    if (m->spec->secrets.len && from->secret) {
        if (add_secrets(c, from, f->node, m, a, secrets, &e) < 0) {
            launch_impossible(c, f, e.text, now_ms);
            return 0;
        }
        out[n++] = (struct message){MESSAGE_SECRETS, secrets};
    }
    out[n++] = (struct message){MESSAGE_LAUNCH, m};
    return n;
}

static uint32_t step_messages(struct core *c, const struct effect *f, const struct core_sources *from,
                              int64_t now_ms, struct arena *a, struct message *out) {
    struct message_exec *m = arena_alloc(a, sizeof *m);
    struct any_list environment;
    const char *environment_id;
    if (core_step_message(c, f->job, f->attempt, f->step, f->node, a, m, &environment_id) < 0)
        return 0;                                                      // ended meanwhile
    if (add_environment(from, environment_id, a, &environment) < 0) {  // better not at all than without it
        struct step_end end = {.id = m->id,
                               .attempt = f->attempt,
                               .step = f->step,
                               .cause = END_LAUNCH,
                               .exit_code = 1,
                               .error = "its environment cannot be read from the controller's disk"};
        core_agent_step_ended(c, f->node, &end, now_ms);
        return 0;
    }
    m->environment.at = environment.at;
    m->environment.len = environment.len;
    *out = (struct message){MESSAGE_STEP, m};
    return 1;
}

uint32_t core_effect_messages(struct core *c, const struct effect *f, const struct core_sources *from,
                              int64_t now_ms, struct arena *a,
                              struct message out[static CORE_EFFECT_MESSAGES_MAX]) {
    return f->type == EFFECT_LAUNCH ? launch_messages(c, f, from, now_ms, a, out)
                                    : step_messages(c, f, from, now_ms, a, out);
}
