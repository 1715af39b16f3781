// GET /v1/nodes/{name}/processes and /log: asks the node's agent and answers when it has. Bounded: a few questions at a
// time, and each for a few seconds.
#include "node_look.h"

#include <stdlib.h>

#include "answers_portal.h"
#include "api.h"
#include "base/clock.h"
#include "base/log.h"
#include "base/text.h"
#include "job_sight.h"
#include "model/name.h"

enum { LOOKS_MAX = 64, LOOKS_USER_MAX = 8, LOOK_MS = 10000 };

struct node_look {
    struct controller *controller;
    struct net_request *req;
    struct arena arena;
    struct actor actor;
    char node[IDENTIFIER_MAX + 1];
    int64_t until_ms;
    bool log;
};

static void drop(struct controller *c, uint32_t i) {
    struct node_look *l = c->node_looks.at[i];
    vec_remove_swap(&c->node_looks, i);
    arena_done(&l->arena);
    free(l);
}

static void on_gone(struct net_request *req, void *user) {
    struct node_look *l = user;
    struct controller *c = l->controller;
    for (uint32_t i = 0; i < c->node_looks.len; i++)
        if (c->node_looks.at[i] == l) {
            drop(c, i);
            break;
        }
    api_error(req, 503, "EAGAIN", "nobody waits for the answer any more");  // ends the request
}

static void answer_processes(struct node_look *l, const struct message_node_seen *m) {
    struct answer_processes out = {.left_out = m->left_out};
    out.processes.at = arena_alloc(&l->arena, (m->processes.len + 1) * sizeof *out.processes.at);
    for (uint32_t i = 0; i < m->processes.len; i++) {
        const struct node_process *p = &m->processes.at[i];
        struct job_view v;
        if (!core_runs_on(l->controller->core, p->job, p->attempt, l->node) ||
            !core_view(l->controller->core, p->job, &v))
            continue;
        enum job_sight sight = job_sight(l->controller, &l->actor, v.user, v.project);
        if (sight == SIGHT_NONE)
            continue;
        struct answer_process *o = &out.processes.at[out.processes.len++];
        *o = (struct answer_process){.job = p->job,
                                     .pid = p->pid,
                                     .parent = p->parent,
                                     .threads = p->threads,
                                     .memory_bytes = p->memory_bytes,
                                     .cpu_ms = p->cpu_ms,
                                     .cpu_milli = p->cpu_milli,
                                     .name = sight == SIGHT_ALL ? p->name : NULL};
        if (p->cpu_known)
            schema_give(&answer_process_schema, o, &o->cpu_milli);
    }
    api_answer_to(l->req, 200, &answer_processes_schema, &out);
}

// Everybody who waits for this node is answered: the agent is asked once for all of them.
void controller_node_seen(struct controller *c, const char *node, const struct message_node_seen *m) {
    for (uint32_t i = c->node_looks.len; i-- > 0;) {
        struct node_look *l = c->node_looks.at[i];
        if (!streq(l->node, node) || (l->log && !m->log))
            continue;
        net_request_watch(l->req, NULL, NULL, NULL);
        if (l->log)
            api_answer_to(l->req, 200, &answer_node_log_schema, &(struct answer_node_log){m->log});
        else
            answer_processes(l, m);
        drop(c, i);
    }
}

static void ask(struct api_call *call, bool log) {
    struct controller *c = call->controller;
    struct node_view v;
    if (!core_node(c->core, call->name, &v)) {
        api_error(call->req, 404, "ENOENT", "there is no node of that name; see 'acequia nodes'");
        return;
    }
    uint32_t mine = 0;
    for (uint32_t i = 0; i < c->node_looks.len; i++)
        mine += streq(c->node_looks.at[i]->actor.user, call->actor.user);
    if (c->node_looks.len >= LOOKS_MAX || mine >= LOOKS_USER_MAX) {
        api_error(call->req, 429, "EAGAIN", "others are looking at nodes; ask again in a moment");
        return;
    }
    bool asked = false;
    for (uint32_t i = 0; i < c->node_looks.len; i++)
        asked |= streq(c->node_looks.at[i]->node, v.node->name) && (c->node_looks.at[i]->log || !log);
    if (!asked && !agents_send(c, v.node->name, MESSAGE_NODE_LOOK, &(struct message_node_look){log})) {
        api_error(call->req, 503, "ENOTCONN", "the node's agent is not connected");
        return;
    }
    struct node_look *l = xcalloc(1, sizeof *l);
    *l = (struct node_look){.controller = c,
                            .req = call->req,
                            .actor = call->actor,
                            .until_ms = clock_mono_ms() + LOOK_MS,
                            .log = log};
    l->actor.user = arena_strdup(&l->arena, call->actor.user);
    snprintf(l->node, sizeof l->node, "%s", v.node->name);
    vec_push(&c->node_looks, l);
    net_request_watch(call->req, on_gone, NULL, l);
}

void api_node_processes(struct api_call *call) {
    ask(call, false);
}

void api_node_log(struct api_call *call) {
    ask(call, true);
}

void api_controller_log(struct api_call *call) {
    cleanup_buf struct buf log = {0};
    log_recent(&log);
    api_answer(call, &answer_node_log_schema, &(struct answer_node_log){buf_str(&log)});
}

void controller_node_looks_tick(struct controller *c) {
    for (uint32_t i = c->node_looks.len; i-- > 0;)
        if (clock_mono_ms() > c->node_looks.at[i]->until_ms) {
            struct net_request *req = c->node_looks.at[i]->req;
            net_request_watch(req, NULL, NULL, NULL);
            drop(c, i);
            api_error(req, 504, "ETIMEDOUT",
                      "the node's agent did not answer within 10 s; it may be of an earlier release");
        }
}

void controller_node_looks_stop(struct controller *c) {
    while (c->node_looks.len) {
        struct net_request *req = c->node_looks.at[0]->req;
        net_request_watch(req, NULL, NULL, NULL);
        drop(c, 0);
        api_error(req, 503, "ENOTCONN", "the controller stops; try again later");
    }
    vec_done(&c->node_looks);
}
