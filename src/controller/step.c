// Owns steps: tasks that somebody runs inside a job (srun), and allocations that live as long as the
// connection of whoever asked for them (srun alone, salloc). Binary messages: a channel (0 input,
// 1 output, 2 error); output is followed by the task's rank, four bytes, least first. Text messages
// are JSON. What steps hold of a job is kept here, as long as any of them is there.
#include <errno.h>
#include <signal.h>
#include <string.h>

#include "base/text.h"
#include "api.h"
#include "step_report.h"
#include "model/name.h"
#include "model/nodelist.h"
#include "sched/step_pack.h"

enum { STEPS_PER_JOB_MAX = 10000, STEP_NAME_MAX = 255 };

struct step_job {
    uint64_t id;
    uint32_t attempt;
    struct arena arena;
    struct step_slot *slots;
    uint32_t slot_count;
    VEC(struct step *) steps;  // running and waiting
};

struct step_node {
    struct step *step;
    struct stream *stream;  // NULL: ended
    const char *node;
    int32_t exit_code;
    uint32_t exit_signal, task;
    enum end_cause cause;
    char *error;
    const uint32_t *ranks;
    uint32_t tasks;
    uint32_t *exits;  // wait statuses of its tasks
    uint32_t exit_count;
};

enum step_phase { STEP_NEW, STEP_FOR_JOB, STEP_QUEUED, STEP_COMMITTING, STEP_RUNNING, STEP_WATCHING, STEP_OVER };

struct step {
    struct controller *controller;
    struct net_ws *ws;
    struct actor actor;
    char user[USER_NAME_MAX];
    uint64_t job;
    uint32_t attempt, number;
    bool owns_job;     // the job is only there for this connection
    bool alone;        // no step in it: salloc
    enum step_phase phase;
    struct arena arena;  // of the request
    const struct json *request;
    struct step_request need;
    struct step_layout shares;
    struct step_job *home;
    struct step_node *nodes;
    uint32_t node_count, running;
    struct usage usage;
    struct waiter *waiter;
    struct pending_step *pending;
    struct buf early_input;
    bool early_eof, told_busy, closed, failed;
    bool held;         // nothing is read from the client until the nodes have taken what it sent
    VEC(struct step *) watchers;  // connections that look on (sattach)
    struct step *watched;         // this one looks on at that one; NULL: it runs itself
};

struct pending_step {
    struct step *step;  // NULL: it has gone
    uint64_t announce;  // tell the id of the new job
};

static void say(struct step *s, const struct buf *b) {
    if (!s->closed)
        net_ws_send(s->ws, WS_TEXT, b->data, b->len);
}

static void end_connection(struct step *s) {
    s->phase = STEP_OVER;
    if (!s->closed)
        net_ws_close(s->ws, WS_NORMAL, "");
}

static void fail(struct step *s, const struct error *e) {
    cleanup_buf struct buf b = {0};
    struct json_writer w = {.out = &b};
    json_open(&w, '{');
    json_key(&w, "error");
    api_error_json(&w, e);
    json_close(&w, '}');
    say(s, &b);
    if (s->owns_job && s->job)
        core_give_back(s->controller->core, s->job, 1, 0, now_ms());
    end_connection(s);
}

// --- what a job's steps hold ---

static void slot_init(struct step_slot *s, const struct part *p, struct arena *a) {
    *s = (struct step_slot){.node = arena_strdup(a, p->node),
                            .cpus = p->cpus,
                            .cpu_held = arena_alloc(a, p->cpus + 1),
                            .memory_bytes = p->memory_bytes,
                            .gpus = arena_alloc(a, (p->gpus.len + 1) * sizeof *s->gpus),
                            .gpu_count = p->gpus.len};
    for (uint32_t i = 0; i < p->gpus.len; i++)
        s->gpus[i] = (struct step_gpu){.index = p->gpus.at[i].index, .milli = p->gpus.at[i].milli};
}

static struct step_job *home_of(struct controller *c, const struct job_record *r) {
    struct step_job *h = map_get(&c->step_jobs, r->id);
    if (h && h->attempt == r->attempt)
        return h;
    if (h)
        return NULL;  // steps of an earlier attempt are still being cleared away
    h = xcalloc(1, sizeof *h);
    h->id = r->id;
    h->attempt = r->attempt;
    h->slots = arena_alloc(&h->arena, (r->parts.len + 1) * sizeof *h->slots);
    h->slot_count = r->parts.len;
    for (uint32_t i = 0; i < r->parts.len; i++)
        slot_init(&h->slots[i], &r->parts.at[i], &h->arena);
    map_put(&c->step_jobs, r->id, h);
    return h;
}

static void try_start(struct step *s);

static void leave_home(struct step *s) {
    struct step_job *h = s->home;
    if (!h)
        return;
    s->home = NULL;
    for (uint32_t i = 0; i < h->steps.len; i++)
        if (h->steps.at[i] == s) {
            vec_remove(&h->steps, i);
            break;
        }
    step_free(h->slots, &s->shares);
    s->shares.len = 0;
    if (!h->steps.len) {
        map_remove(&s->controller->step_jobs, h->id);
        vec_done(&h->steps);
        arena_done(&h->arena);
        free(h);
        return;
    }
    // In the order in which they came; one that does not fit does not hold up smaller ones.
    for (uint32_t i = 0; i < h->steps.len; i++) {
        struct step *other = h->steps.at[i];
        if (other->phase != STEP_QUEUED)
            continue;
        try_start(other);
        if (i >= h->steps.len || h->steps.at[i] != other)
            break;  // the list changed under us; whoever changed it looked again
    }
}

// --- running ---

static void kill_step(struct step *s, uint32_t signal, bool end) {
    for (uint32_t i = 0; i < s->node_count; i++) {
        if (!s->nodes[i].stream)
            continue;
        struct message_kill k = {.id = s->job,
                                 .attempt = s->attempt,
                                 .step = s->number,
                                 .cause = END_CANCEL,
                                 .signal = signal,
                                 .grace_s = 30};
        struct message_signal m = {.id = s->job, .attempt = s->attempt, .step = s->number, .signal = signal};
        if (end)
            node_send(s->controller, s->nodes[i].node, MESSAGE_KILL, &k);
        else
            node_send(s->controller, s->nodes[i].node, MESSAGE_SIGNAL, &m);
    }
}

static int badness(int32_t code, uint32_t signal) {
    return signal ? 1000 + (int)signal : code;
}

static void put_node(struct json_writer *w, const struct step_node *n) {
    struct step_end e = {.node = n->node,
                         .error = n->error,
                         .exit_code = n->exit_code,
                         .exit_signal = n->exit_signal,
                         .task = n->task,
                         .ranks = n->ranks,
                         .tasks = n->tasks,
                         .exits = n->exits,
                         .exit_count = n->exit_count};
    step_end_json(&e, w);
}

static enum job_state end_state(const struct step *s, bool fine, uint32_t signal) {
    for (uint32_t i = 0; i < s->node_count; i++)
        if (s->nodes[i].cause == END_OOM || s->nodes[i].cause == END_TIMEOUT)
            return s->nodes[i].cause == END_OOM ? JOB_OUT_OF_MEMORY : JOB_TIMEOUT;
    return fine ? JOB_COMPLETED : signal == SIGTERM || signal == SIGKILL ? JOB_CANCELLED : JOB_FAILED;
}

// Whoever looks on gets what comes from now on; one that does not keep up is let go.
static void show_watchers(struct step *s, enum ws_opcode type, const struct buf *b) {
    for (uint32_t i = s->watchers.len; i-- > 0;) {
        struct step *w = s->watchers.at[i];
        if (net_ws_send(w->ws, type, b->data, b->len) > STREAM_BACKLOG_BYTES)
            net_ws_close(w->ws, WS_NORMAL, "too slow");
        if (i > s->watchers.len)
            i = s->watchers.len;
    }
}

static void leave_watched(struct step *s) {
    for (uint32_t i = 0; s->watched && i < s->watched->watchers.len; i++)
        if (s->watched->watchers.at[i] == s) {
            vec_remove(&s->watched->watchers, i);
            break;
        }
    s->watched = NULL;
}

static void end_watchers(struct step *s) {
    while (s->watchers.len) {
        struct step *w = s->watchers.at[s->watchers.len - 1];
        leave_watched(w);
        end_connection(w);
    }
    vec_done(&s->watchers);
}

static void finish(struct step *s) {
    struct controller *c = s->controller;
    cleanup_buf struct buf b = {0};
    struct json_writer w = {.out = &b};
    const struct step_node *worst = &s->nodes[0];
    bool broken = false;
    for (uint32_t i = 0; i < s->node_count; i++) {
        if (badness(s->nodes[i].exit_code, s->nodes[i].exit_signal) > badness(worst->exit_code, worst->exit_signal))
            worst = &s->nodes[i];
        broken = broken || s->nodes[i].error;
    }
    int32_t code = worst->exit_code ? worst->exit_code : broken && !worst->exit_signal ? 1 : 0;
    bool fine = !code && !worst->exit_signal;
    struct event_step end = {.id = s->job,
                             .attempt = s->attempt,
                             .step = s->number,
                             .exit_code = code,
                             .exit_signal = worst->exit_signal,
                             .state = end_state(s, fine, worst->exit_signal),
                             .usage = &s->usage,
                             .tasks = s->need.tasks};
    core_step_ended(c->core, &end, now_ms());
    json_open(&w, '{');
    json_kv_i64(&w, "exit_code", code);
    json_kv_i64(&w, "exit_signal", worst->exit_signal);
    json_key(&w, "nodes");
    json_open(&w, '[');
    for (uint32_t i = 0; i < s->node_count; i++)
        put_node(&w, &s->nodes[i]);
    json_close(&w, ']');
    json_close(&w, '}');
    say(s, &b);
    show_watchers(s, WS_TEXT, &b);
    end_watchers(s);
    leave_home(s);
    if (s->owns_job)
        core_give_back(c->core, s->job, code, worst->exit_signal, now_ms());
    s->owns_job = false;
    end_connection(s);
}

static ssize_t on_data(void *ctx, uint32_t fd, uint32_t task, const void *data, size_t len) {
    struct step_node *n = ctx;
    cleanup_buf struct buf b = {0};
    buf_addc(&b, fd == 2 ? 2 : 1);
    for (int shift = 0; shift < 32; shift += 8)
        buf_addc(&b, (char)(task >> shift));
    buf_add(&b, data, len);
    show_watchers(n->step, WS_BINARY, &b);
    ssize_t waiting = net_ws_send(n->step->ws, WS_BINARY, b.data, b.len);
    if (waiting < 0)
        n->stream = NULL;  // dropped by whoever called
    return waiting;
}

static void release_input(struct step *s);
static void on_room(void *ctx);

static void on_end(void *ctx, const struct message_stream *end) {
    struct step_node *n = ctx;
    struct step *s = n->step;
    n->stream = NULL;
    release_input(s);
    n->exit_code = end->exit_code;
    n->exit_signal = end->exit_signal;
    n->task = end->task;
    n->cause = end->cause;
    n->error = end->error ? xstrdup(end->error) : NULL;
    n->exit_count = end->exits.len < n->tasks ? end->exits.len : n->tasks;
    if (n->exit_count)
        n->exits = xmemdup(end->exits.at, n->exit_count * sizeof *n->exits);
    if (end->usage)
        usage_add(&s->usage, end->usage);
    s->running--;
    bool bad = end->exit_code || end->exit_signal || end->error;
    if (bad && s->running && (end->error || json_true(s->request, "kill_on_bad_exit")))
        kill_step(s, SIGTERM, true);
    if (!s->running) {
        finish(s);
        return;
    }
    // With --wait, whoever runs it ends the others some time after the first.
    cleanup_buf struct buf b = {0};
    buf_adds(&b, "{\"node_ended\":true}");
    say(s, &b);
}

static void list_texts(const struct json *j, const char *key, struct arena *a, struct any_list *out) {
    const struct json *list = json_get(j, key);
    *out = (struct any_list){0};
    if (!list || list->type != JSON_ARRAY)
        return;
    const char **at = arena_alloc(a, (list->len + 1) * sizeof *at);
    for (uint32_t i = 0; i < list->len; i++)
        if (list->items[i].type == JSON_STRING)
            at[out->len++] = list->items[i].s;
    out->at = at;
}

// Letters that mean the job are filled in here, those that mean the task on its node.
static const char *job_letters(struct arena *a, const char *pattern, const struct job_record *r) {
    cleanup_buf struct buf b = {0};
    for (const char *p = pattern; p && *p; p++) {
        if (*p != '%') {
            buf_addc(&b, *p);
            continue;
        }
        switch (p[1]) {
        case 'j': buf_addu(&b, r->id); break;
        case 'A': buf_addu(&b, r->is_array ? r->array_id : r->id); break;
        case 'a': buf_addu(&b, r->array_index); break;
        case 'u': buf_adds(&b, r->spec->user); break;
        case 'x':
            for (const char *n = r->spec->name; n && *n; n++)
                buf_adds(&b, *n == '%' ? "%%" : (char[]){*n == '/' ? '_' : *n, 0});
            break;
        default:
            buf_addc(&b, '%');
            if (p[1])
                buf_addc(&b, p[1]);
        }
        p += p[1] != 0;
    }
    return pattern ? arena_strdup(a, buf_str(&b)) : NULL;
}

static void fold_nodes(struct step *s, struct buf *out) {
    VEC(const char *) names = {0};
    for (uint32_t i = 0; i < s->shares.len; i++)
        vec_push(&names, s->home->slots[s->shares.at[i].slot].node);
    nodelist_fold(names.at, names.len, out);
    vec_done(&names);
}

static void send_node(struct step *s, uint32_t i, const struct message_exec *common,
                      const struct job_record *r, struct arena *a) {
    static const struct stream_client client = {on_data, on_end, NULL, on_room, NULL};
    const struct step_share *h = &s->shares.at[i];
    const char *node = s->home->slots[h->slot].node;
    struct step_node *n = &s->nodes[i];
    struct node_view view;
    struct message_exec m = *common;
    struct gpu_grant *grants = arena_alloc(a, (h->gpu_count + 1) * sizeof *grants);
    for (uint32_t g = 0; g < h->gpu_count; g++)
        grants[g] = (struct gpu_grant){.index = h->gpus[g].index, .milli = h->gpus[g].milli};
    *n = (struct step_node){.step = s, .node = arena_strdup(&s->arena, node), .ranks = h->ranks, .tasks = h->tasks};
    m.tasks = h->tasks;
    m.first_rank = h->ranks[0];
    m.ranks.at = h->ranks;
    m.ranks.len = h->tasks;
    m.node_index = i;
    m.cpus.at = h->cpus;
    m.cpus.len = h->cpu_count;
    m.memory_bytes = h->memory_bytes;
    m.gpus.at = grants;
    m.gpus.len = h->gpu_count;
    m.task_gpus.at = h->task_gpus;
    m.task_gpus.len = h->task_gpus ? h->tasks : 0;
    const char **uuids = arena_alloc(a, (h->gpu_count + 1) * sizeof *uuids);
    if (core_node(s->controller->core, node, &view))
        for (uint32_t g = 0; g < h->gpu_count; g++)
            uuids[g] = h->gpus[g].index < view.node->gpus.len ? view.node->gpus.at[h->gpus[g].index].uuid : "";
    m.gpu_uuids.at = uuids;
    m.gpu_uuids.len = h->gpu_count;
    struct error e = {0};
    error_set(&e, ENOTCONN, "the node is not connected");
    n->stream = stream_new(s->controller, &s->actor, node, &client, n, &e);
    if (n->stream)
        m.stream = stream_id(n->stream);
    if (n->stream && node_send(s->controller, node, MESSAGE_STEP, &m)) {
        s->running++;
        return;
    }
    if (n->stream)
        stream_drop(n->stream);
    n->stream = NULL;
    n->exit_code = 1;
    n->error = xstrdup(e.text);
}

static bool is_behind(const struct step *s) {
    bool behind = false;
    for (uint32_t i = 0; i < s->node_count; i++)
        behind |= s->nodes[i].stream && stream_backlog(s->nodes[i].stream) > STREAM_BACKLOG_BYTES;
    return behind;
}

static void release_input(struct step *s) {
    if (!s->held || is_behind(s))
        return;
    s->held = false;
    s->controller->held_inputs--;
    if (!s->closed)
        net_ws_pause(s->ws, false);
}

static void on_room(void *ctx) {
    release_input(((struct step_node *)ctx)->step);
}

static void feed(struct step *s, const void *data, size_t len, bool eof) {
    if (s->phase != STEP_RUNNING) {
        if (s->early_input.len + len <= STREAM_WINDOW_BYTES)
            buf_add(&s->early_input, data, len);
        s->early_eof |= eof;
        return;
    }
    for (uint32_t i = 0; i < s->node_count; i++) {
        struct message_stream m = {.fd = 0, .data = {data, len}, .eof = eof};
        if (s->nodes[i].stream)
            stream_send(s->nodes[i].stream, MESSAGE_STREAM_DATA, &m);
    }
    if (!s->held && is_behind(s)) {
        s->held = true;
        s->controller->held_inputs++;
        net_ws_pause(s->ws, true);
    }
}

static uint32_t umask_plus(const struct json *q) {
    int64_t mask = json_i64(q, "umask", -1);
    return mask >= 0 && mask <= 0777 ? (uint32_t)mask + 1 : 0;
}

static void launch(struct step *s) {
    cleanup_arena struct arena a = {0};
    cleanup_buf struct buf folded = {0};
    const struct json *q = s->request;
    struct job_record r;
    struct any_list argv, environment;
    if (core_record(s->controller->core, s->job, &a, &r) < 0 || r.attempt != s->attempt) {
        struct error e = {0};
        error_set(&e, EBUSY, "the job has ended");
        leave_home(s);
        fail(s, &e);
        return;
    }
    list_texts(q, "argv", &a, &argv);
    list_texts(q, "environment", &a, &environment);
    fold_nodes(s, &folded);
    uint32_t *counts = arena_alloc(&a, (s->shares.len + 1) * sizeof *counts);
    for (uint32_t i = 0; i < s->shares.len; i++)
        counts[i] = s->shares.at[i].tasks;
    struct message_exec m = {.id = s->job,
                             .attempt = s->attempt,
                             .step = s->number,
                             .argv = {argv.at, argv.len},
                             .environment = {environment.at, environment.len},
                             .workdir = json_str(q, "workdir"),
                             .umask_plus = umask_plus(q),
                             .pty = json_true(q, "pty"),
                             .rows = (uint32_t)json_i64(q, "rows", 24),
                             .columns = (uint32_t)json_i64(q, "columns", 80),
                             .total_tasks = s->need.tasks,
                             .cpus_per_task = s->need.cpus_per_task,
                             .output = job_letters(&a, json_str(q, "output"), &r),
                             .error = job_letters(&a, json_str(q, "error"), &r),
                             .input = job_letters(&a, json_str(q, "input"), &r),
                             .kill_on_bad_exit = json_true(q, "kill_on_bad_exit"),
                             .append = json_true(q, "append"),
                             .time_limit_s = (uint32_t)json_i64(q, "time_limit_s", 0),
                             .credit = STREAM_WINDOW_BYTES,
                             .nodes = buf_str(&folded),
                             .wait_s = (uint32_t)json_i64(q, "wait_s", 0),
                             .container = json_str(q, "container"),
                             .container_mounts = json_str(q, "container_mounts"),
                             .container_workdir = json_str(q, "container_workdir"),
                             .input_rank = (uint32_t)json_i64(q, "input_rank", 0),
                             .node_count = s->shares.len,
                             .tasks_per_node = {counts, s->shares.len}};
    s->node_count = s->shares.len;
    s->nodes = xcalloc(s->node_count + 1, sizeof *s->nodes);
    s->phase = STEP_RUNNING;
    for (uint32_t i = 0; i < s->node_count; i++)
        send_node(s, i, &m, &r, &a);
    cleanup_buf struct buf b = {0};
    buf_addf(&b, "{\"step\":%u,\"nodes\":\"%s\"}", s->number - 1, buf_str(&folded));
    say(s, &b);
    if (!s->running) {
        finish(s);
        return;
    }
    if (s->early_input.len || s->early_eof)
        feed(s, s->early_input.data, s->early_input.len, s->early_eof);
    buf_done(&s->early_input);
}

static void started_committed(void *arg) {
    struct pending_step *p = arg;
    if (p->step) {
        p->step->pending = NULL;
        launch(p->step);
    }
    free(p);
}

static void try_start(struct step *s) {
    struct step_job *h = s->home;
    struct error e = {0};
    int r = step_pack(&s->need, h->slots, h->slot_count, &s->arena, &s->shares, &e);
    if (r == -EAGAIN && !json_true(s->request, "immediate")) {
        s->phase = STEP_QUEUED;
        if (!s->told_busy) {
            cleanup_buf struct buf b = {0};
            buf_adds(&b, "{\"waiting\":\"Requested nodes are busy\"}");
            say(s, &b);
        }
        s->told_busy = true;
        return;
    }
    if (r == 0) {
        cleanup_buf struct buf nodes = {0};
        struct any_list argv;
        uint32_t cpus = 0;
        list_texts(s->request, "argv", &s->arena, &argv);
        for (uint32_t i = 0; i < s->shares.len; i++)
            cpus += s->shares.at[i].cpu_count ? s->shares.at[i].cpu_count : s->shares.at[i].tasks;
        fold_nodes(s, &nodes);
        const char *name = json_str(s->request, "name");
        struct event_step b = {
            .name = name ? name : "step", .nodes = buf_str(&nodes), .tasks = s->need.tasks, .cpus = cpus};
        s->number = core_step_started(s->controller->core, s->job, &b, now_ms());
        if (!s->number)
            r = error_set(&e, EBUSY, "the job is ending");
    }
    if (r < 0) {
        s->shares.len = 0;
        leave_home(s);
        fail(s, &e);
        return;
    }
    step_hold(h->slots, &s->shares);
    s->phase = STEP_COMMITTING;
    s->pending = xcalloc(1, sizeof *s->pending);
    s->pending->step = s;
    pipeline_when_committed(s->controller->pipeline, started_committed, s->pending);
}

// --- the request ---

static uint32_t number_of(const struct json *j, const char *key, uint32_t most) {
    int64_t v = json_i64(j, key, 0);
    return v < 0 ? 0 : v > most ? most : (uint32_t)v;
}

static uint32_t within(uint64_t v) {
    return v < UINT32_MAX ? (uint32_t)v : UINT32_MAX;
}

static int read_need(struct step *s, const struct job_record *r, struct error *e) {
    const struct json *q = s->request;
    struct name_list names;
    const char *list = json_str(q, "nodelist");
    uint32_t parts = r->parts.len;
    struct step_request n = {.tasks = number_of(q, "tasks", STEP_TASKS_MAX),
                          .nodes = number_of(q, "nodes", STEP_TASKS_MAX),
                          .tasks_per_node = number_of(q, "tasks_per_node", STEP_TASKS_MAX),
                          .cpus_per_task = number_of(q, "cpus_per_task", 65536),
                          .memory_per_node_bytes = (uint64_t)json_i64(q, "memory_per_node_bytes", 0),
                          .memory_per_cpu_bytes = (uint64_t)json_i64(q, "memory_per_cpu_bytes", 0),
                          .gpus_milli = number_of(q, "gpus_milli", UINT32_MAX),
                          .gpus_per_node_milli = number_of(q, "gpus_per_node_milli", UINT32_MAX),
                          .gpus_per_task_milli = number_of(q, "gpus_per_task_milli", UINT32_MAX),
                          .overlap = json_true(q, "overlap"),
                          .overcommit = json_true(q, "overcommit"),
                          .whole = !json_true(q, "exact") && !json_true(q, "overlap")};
    if (list) {
        if (nodelist_expand(list, &s->arena, &names, e) < 0)
            return -EINVAL;
        n.required = names.at;
        n.required_count = names.len;
    }
    if (json_str(q, "exclude")) {
        if (nodelist_expand(json_str(q, "exclude"), &s->arena, &names, e) < 0)
            return -EINVAL;
        n.excluded = names.at;
        n.excluded_count = names.len;
    }
    if (json_str(q, "distribution") &&
        step_distribution_parse(json_str(q, "distribution"), &n.distribution, &n.plane_size, e) < 0)
        return -EINVAL;
    if (json_str(q, "gpu_bind") && step_bind_parse(json_str(q, "gpu_bind"), &s->arena, &n.bind, e) < 0)
        return -EINVAL;
    uint32_t job_tasks = r->spec->tasks ? r->spec->tasks : parts;
    if (!n.tasks && n.nodes)
        n.tasks = within((uint64_t)n.nodes * (n.tasks_per_node ? n.tasks_per_node : 1));
    if (!n.tasks)
        n.tasks = n.tasks_per_node ? within((uint64_t)parts * n.tasks_per_node) : job_tasks;
    if (n.nodes <= parts && n.tasks > STEP_TASKS_MAX)
        return error_set(e, E2BIG, "the step asks for %u tasks; at most %d are possible", n.tasks, STEP_TASKS_MAX);
    const char *name = json_str(q, "name");
    if (name && line_check("name", name, STEP_NAME_MAX, e) < 0)
        return -EINVAL;
    struct any_list argv;
    list_texts(q, "argv", &s->arena, &argv);
    if (!argv.len && !json_true(q, "pty"))
        return error_set(e, EINVAL, "argv: there is nothing to run");
    s->need = n;
    return 0;
}

static void begin_step(struct step *s) {
    cleanup_arena struct arena a = {0};
    struct job_record r;
    struct error e = {0};
    if (core_record(s->controller->core, s->job, &a, &r) < 0)
        error_set(&e, EBUSY, "job %llu has already ended", (unsigned long long)s->job);
    else if (!s->actor.admin && !streq(r.spec->user, s->actor.user))
        error_set(&e, EPERM, "job %llu belongs to %s", (unsigned long long)s->job, r.spec->user);
    else if (r.state == JOB_PENDING || r.state == JOB_STARTING) {
        s->phase = STEP_FOR_JOB;
        if (r.state == JOB_PENDING && !s->owns_job)
            error_set(&e, EBUSY, "job %llu is pending; a step needs a running job", (unsigned long long)s->job);
        else
            return;
    } else if (r.state != JOB_RUNNING && r.state != JOB_SUSPENDED)
        error_set(&e, EBUSY, "job %llu is %s", (unsigned long long)s->job, job_state_words[r.state]);
    if (!e.code && read_need(s, &r, &e) == 0) {
        s->attempt = r.attempt;
        s->home = home_of(s->controller, &r);
        if (!s->home)
            error_set(&e, EBUSY, "the job has just been started again; try once more");
        else if (s->home->steps.len >= STEPS_PER_JOB_MAX)
            error_set(&e, EAGAIN, "the job has %d steps at once, which is the most", STEPS_PER_JOB_MAX);
    }
    if (e.code) {
        if (s->home && s->home->steps.len)
            s->home = NULL;
        leave_home(s);
        fail(s, &e);
        return;
    }
    vec_push(&s->home->steps, s);
    try_start(s);
}

// {"attach": N}: looks on at a step that runs, and types into it.
static void begin_watching(struct step *s) {
    cleanup_arena struct arena a = {0};
    struct job_record r;
    struct error e = {0};
    struct step_job *h = map_get(&s->controller->step_jobs, s->job);
    int64_t number = json_i64(s->request, "attach", -1);
    struct step *found = NULL;
    for (uint32_t i = 0; h && i < h->steps.len; i++)
        if (h->steps.at[i]->phase == STEP_RUNNING && h->steps.at[i]->number == number + 1)
            found = h->steps.at[i];
    if (core_record(s->controller->core, s->job, &a, &r) < 0 || !found)
        error_set(&e, ENOENT, "job %llu has no step %lld that runs", (unsigned long long)s->job, (long long)number);
    else if (!s->actor.admin && !streq(r.spec->user, s->actor.user))
        error_set(&e, EPERM, "that job is somebody else's; only its user may look into it");
    if (e.code) {
        fail(s, &e);
        return;
    }
    s->watched = found;
    s->phase = STEP_WATCHING;
    vec_push(&found->watchers, s);
    cleanup_buf struct buf b = {0};
    buf_addf(&b, "{\"step\":%lld,\"tasks\":%u}", (long long)number, found->need.tasks);
    say(s, &b);
}

static void tell_state(struct step *s, const struct job_view *v) {
    cleanup_buf struct buf b = {0};
    buf_addf(&b, "{\"state\":\"%s\",\"reason\":\"%s\"}", job_state_words[v->state],
             v->state == JOB_PENDING ? job_reason_words[v->reason] : "None");
    say(s, &b);
}

static void on_job_changed(void *arg, uint64_t id) {
    struct step *s = arg;
    struct job_view v;
    if (s->phase == STEP_OVER)
        return;
    if (core_view(s->controller->core, id, &v)) {
        if (s->owns_job)
            tell_state(s, &v);
        if (s->phase == STEP_FOR_JOB && v.state == JOB_RUNNING && !s->alone)
            begin_step(s);
        return;
    }
    if (s->phase == STEP_RUNNING)
        return;  // its streams end by themselves
    struct error e = {0};
    cleanup_arena struct arena a = {0};
    struct job_record r;
    bool live;
    int n = api_record(s->controller, id, &a, &r, &live);
    error_set(&e, EBUSY, "job %llu has ended%s%s", (unsigned long long)id, n == 0 ? ": " : "",
              n == 0 ? job_state_words[r.state] : "");
    s->owns_job = false;
    leave_home(s);
    fail(s, &e);
}

static void submit_committed(void *arg) {
    struct pending_step *p = arg;
    if (p->step) {
        cleanup_buf struct buf b = {0};
        buf_addf(&b, "{\"id\":%llu}", (unsigned long long)p->announce);
        p->step->pending = NULL;
        say(p->step, &b);
    }
    free(p);
}

// {"submit": …, "step": …}: a job that is there for this connection.
static void begin_allocation(struct step *s, const struct json *j) {
    struct api_call call = {.controller = s->controller, .actor = s->actor};
    struct error e = {0};
    struct command_result job = {0};
    const struct json *submit = json_get(j, "submit"), *spec = submit ? json_get(submit, "spec") : NULL;
    int r = !spec || !streq(json_str(spec, "launch"), "steps")
                ? error_set(&e, EINVAL, "submit.spec.launch must be steps here")
                : 0;
    if (r == 0)
        r = api_submit_one(&call, submit, &job, &e);
    arena_done(&call.arena);
    if (r < 0) {
        s->owns_job = false;
        fail(s, &e);
        return;
    }
    s->job = job.id;
    s->request = json_get(j, "step");
    s->alone = !s->request;
    s->phase = STEP_FOR_JOB;
    s->pending = xcalloc(1, sizeof *s->pending);
    *s->pending = (struct pending_step){.step = s, .announce = job.id};
    pipeline_when_committed(s->controller->pipeline, submit_committed, s->pending);
    s->waiter = watch_job(s->controller, job.id, on_job_changed, s);
}

static void on_text(struct step *s, const char *data, size_t len) {
    struct json *j;
    struct error e = {0};
    // The first message is kept: the step is made from it when there is room.
    if (s->phase == STEP_NEW) {
        if (json_parse_few(arena_strndup(&s->arena, data, len), len, API_VALUES_MAX, &s->arena, &j, &e) < 0) {
            fail(s, &e);
        } else if (s->owns_job) {
            begin_allocation(s, j);
        } else if (json_get(j, "attach")) {
            s->request = j;
            begin_watching(s);
        } else {
            s->request = j;
            s->waiter = watch_job(s->controller, s->job, on_job_changed, s);
            begin_step(s);
        }
        return;
    }
    cleanup_arena struct arena a = {0};
    if (json_parse_few(data, len, API_VALUES_MAX, &a, &j, &e) < 0)
        return;
    const struct json *size = json_get(j, "resize");
    for (uint32_t i = 0; size && size->type == JSON_ARRAY && size->len == 2 && i < s->node_count; i++) {
        struct message_stream m = {.rows = (uint32_t)size->items[0].i, .columns = (uint32_t)size->items[1].i};
        if (s->nodes[i].stream)
            stream_send(s->nodes[i].stream, MESSAGE_RESIZE, &m);
    }
    int64_t signal = json_i64(j, "signal", 0);
    if (signal > 0 && signal <= 64)
        kill_step(s, (uint32_t)signal, signal == SIGKILL);
    if (json_true(j, "cancel")) {
        kill_step(s, SIGTERM, true);
        if (s->phase != STEP_RUNNING)
            end_connection(s);
    }
    if (json_get(j, "give_back") && s->owns_job) {
        core_give_back(s->controller->core, s->job, (int32_t)json_i64(j, "give_back", 0), 0, now_ms());
        s->owns_job = false;
        end_connection(s);
    }
}

static void on_message(struct net_ws *ws, enum ws_opcode type, const char *data, size_t len, void *user) {
    struct step *s = user;
    if (s->phase == STEP_OVER)
        return;
    struct error e = {0};
    if (type == WS_BINARY && len > SESSION_INPUT_MAX) {
        error_set(&e, E2BIG, "a message of %zu bytes of input; at most %d are taken at once", len, SESSION_INPUT_MAX);
        kill_step(s, SIGTERM, true);
        fail(s, &e);
    } else if (type == WS_TEXT)
        on_text(s, data, len);
    else if (len && data[0] == 0 && s->phase == STEP_WATCHING) {
        if (len > 1)  // one who looks on cannot end the input of others
            feed(s->watched, data + 1, len - 1, false);
    } else if (len && data[0] == 0)
        feed(s, data + 1, len - 1, len == 1);
}

static void on_drain(struct net_ws *ws, void *user) {
    struct step *s = user;
    for (uint32_t i = 0; i < s->node_count; i++)
        if (s->nodes[i].stream)
            stream_drained(s->nodes[i].stream);
}

static void record_lost(struct step *s) {
    struct event_step end = {.id = s->job,
                             .attempt = s->attempt,
                             .step = s->number,
                             .state = JOB_CANCELLED,
                             .exit_signal = SIGHUP};
    core_step_ended(s->controller->core, &end, now_ms());
}

static void on_close(struct net_ws *ws, int status, const char *reason, void *user) {
    struct step *s = user;
    struct error ignored = {0};
    s->closed = true;
    s->controller->held_inputs -= s->held;
    s->held = false;
    bool running = s->phase == STEP_RUNNING || s->phase == STEP_COMMITTING;
    s->phase = STEP_OVER;
    for (uint32_t i = 0; i < s->node_count; i++)
        if (s->nodes[i].stream)
            stream_drop(s->nodes[i].stream);
    if (running)
        record_lost(s);
    leave_watched(s);
    end_watchers(s);
    leave_home(s);
    if (s->waiter)
        unwatch_job(s->controller, s->waiter);
    if (s->pending)
        s->pending->step = NULL;
    struct job_view v;
    bool there = s->owns_job && s->job && core_view(s->controller->core, s->job, &v) && v.state != JOB_COMPLETING;
    struct command_cancel cancel = {.id = s->job, .reason = "its connection is gone"};
    struct command command = {COMMAND_CANCEL, &cancel};
    if (there)
        core_command(s->controller->core, &s->actor, NULL, &command, now_ms(), NULL, &ignored);
    for (uint32_t i = 0; i < s->node_count; i++)
        free(s->nodes[i].error), free(s->nodes[i].exits);
    free(s->nodes);
    buf_done(&s->early_input);
    arena_done(&s->arena);
    free(s);
}

static void open_step(struct api_call *call, bool owns_job) {
    static const struct net_ws_callbacks callbacks = {
        .on_message = on_message, .on_drain = on_drain, .on_close = on_close};
    struct step *s = xcalloc(1, sizeof *s);
    *s = (struct step){.controller = call->controller, .actor = call->actor, .job = call->job, .owns_job = owns_job};
    snprintf(s->user, sizeof s->user, "%s", call->actor.user);
    s->actor.user = s->user;
    s->ws = net_upgrade_ws(call->req, NULL, &callbacks, s);
    if (!s->ws)
        free(s);
}

void api_step(struct api_call *call) {
    open_step(call, false);
}

void api_allocate(struct api_call *call) {
    open_step(call, true);
}
