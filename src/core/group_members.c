// What workers and people see of a job's workers: the membership that nodes are sent, records and counts.
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/json.h"
#include "base/text.h"
#include "pauses.h"
#include "state.h"

enum {
    NODE_ADDRESS_MAX = 64,
    MEMBERS_INTERVAL_MS = 1000,
    MEMBERS_PER_SECOND = 16384,  // lines of membership that one job's nodes are sent
};

static enum worker_state state_of(const struct core_job *j) {
    return !j                         ? WORKER_LEFT
           : !j->run                  ? WORKER_WAITING
           : j->run->ending           ? WORKER_LEAVING
           : j->state == JOB_STARTING ? WORKER_STARTING
                                      : WORKER_RUNNING;
}

// As programs take it: an IPv6 address without the brackets that it has in host:port.
static void put_address(struct json_writer *w, const char *address) {
    char bare[NODE_ADDRESS_MAX];
    size_t len = strlen(address);
    bool bracket = len > 2 && address[0] == '[' && address[len - 1] == ']' && len < sizeof bare;
    snprintf(bare, sizeof bare, "%.*s", bracket ? (int)len - 2 : 0, address + bracket);
    json_kv_str(w, "address", bracket ? bare : address);
}

static void member_place(const struct core_job *j, struct json_writer *w) {
    const struct run_part *p = &j->run->parts[0];
    // Its part there has ended and the node was removed: a state that was loaded knows its name alone.
    const char *address = p->node->node ? p->node->node->address : NULL;
    uint32_t cpus = 0;
    for (uint32_t i = 0; i < j->run->part_count; i++)
        cpus += j->run->parts[i].cpus;
    json_kv_i64(w, "attempt", j->attempt);
    json_kv_str(w, "node", p->node->name);
    put_address(w, str_empty(address) ? p->node->name : address);
    json_kv_i64(w, "cpus", cpus);
    json_key(w, "gpus");
    json_open(w, '[');
    for (uint32_t k = 0; k < p->gpu_count; k++)
        json_put_u64(w, p->gpus[k].index);
    json_close(w, ']');
    if (j->run->part_count == 1)
        return;
    json_key(w, "nodes");
    json_open(w, '[');
    for (uint32_t k = 0; k < j->run->part_count; k++)
        json_put_str(w, j->run->parts[k].node->name);
    json_close(w, ']');
}

// One JSON line for each worker that was ever placed or waits.
static void member_lines(const struct core *c, const struct group *g, struct buf *out) {
    for (uint32_t i = 0; i < g->workers.len; i++) {
        const struct group_worker *m = &g->workers.at[i];
        const struct core_job *j = core_worker_job(c, m);
        struct json_writer w = {.out = out};
        if (!j && (!m->node || g->workers.len > JOB_WORKERS_MAX))
            continue;  // of very many that have come and gone only those who are there are told
        json_open(&w, '{');
        json_kv_i64(&w, "worker", i);
        json_kv_str(&w, "component", core_component_of(g, m)->name);
        json_kv_i64(&w, "job", (int64_t)m->id);
        json_kv_str(&w, "state", job_worker_state_words[state_of(j)]);
        json_kv_bool(&w, "optional", j && core_is_optional(j));
        if (j && j->run && j->run->part_count)
            member_place(j, &w);
        json_close(&w, '}');
        buf_add(out, "\n", 1);
    }
}

// The lines stay the group's, until its next event.
void core_group_members(const struct core *c, const struct core_job *worker, struct arena *a,
                        struct message_workers *out) {
    struct group *g = worker->sub->group;
    struct spec s;
    core_spec_of(worker, a, &s);
    if (g->lines_generation != g->generation || g->lines_cluster != c->cluster_generation || !g->lines.len) {
        buf_clear(&g->lines);
        member_lines(c, g, &g->lines);
        g->lines_generation = g->generation;
        g->lines_cluster = c->cluster_generation;
    }
    *out = (struct message_workers){.job = g->id, .generation = g->generation, .signal = s.worker_signal};
    out->lines = (struct bytes){g->lines.data, g->lines.len};
}

void core_group_send_members(struct core *c, const struct core_job *worker, const struct run_part *p) {
    cleanup_arena struct arena a = {0};
    struct message_workers m;
    uint64_t id = core_agent_job(worker);
    uint32_t attempt = worker->attempt;
    core_group_members(c, worker, &a, &m);
    m.ids.at = &id;
    m.attempts.at = &attempt;
    m.ids.len = m.attempts.len = 1;
    core_effect_send(c, p->node->name, MESSAGE_WORKERS, &m);
}

struct member {
    const struct core_job *job;
    const struct node_entry *node;
};

static int by_member_node(const void *a, const void *b) {
    const struct member *x = a, *y = b;
    return x->node->handle != y->node->handle ? (x->node->handle < y->node->handle ? -1 : 1)
                                              : (x->job->id > y->job->id) - (x->job->id < y->job->id);
}

// One message to each node that runs workers of the job, from node `send_from` on and as many as may be sent at once.
// True when all nodes have it.
static bool send_to_nodes(struct core *c, struct group *g) {
    cleanup_arena struct arena a = {0};
    VEC(struct member) members = {0};
    struct message_workers m = {0};
    uint32_t lines = 0, i = 0;
    for (uint32_t k = 0; k < g->workers.len; k++) {
        const struct core_job *j = core_worker_job(c, &g->workers.at[k]);
        for (uint32_t n = 0; j && j->run && n < j->run->part_count; n++) {
            const struct run_part *p = &j->run->parts[n];
            if (p->started && !p->ended && p->node->handle >= g->send_from)
                vec_push(&members, ((struct member){j, p->node}));
        }
    }
    if (members.len) {
        qsort(members.at, members.len, sizeof *members.at, by_member_node);
        core_group_members(c, members.at[0].job, &a, &m);
        m.ids.at = arena_alloc(&a, members.len * sizeof *m.ids.at);
        m.attempts.at = arena_alloc(&a, members.len * sizeof *m.attempts.at);
    }
    for (; i < members.len && lines < MEMBERS_PER_SECOND; i++) {
        m.ids.at[m.ids.len++] = core_agent_job(members.at[i].job);
        m.attempts.at[m.attempts.len++] = members.at[i].job->attempt;
        g->send_from = members.at[i].node->handle + 1;
        if (i + 1 < members.len && members.at[i + 1].node == members.at[i].node)
            continue;
        core_effect_send(c, members.at[i].node->name, MESSAGE_WORKERS, &m);
        m.ids.len = m.attempts.len = 0;
        lines += g->workers.len;
    }
    bool all = i == members.len;
    if (all)
        g->send_from = 0;
    vec_done(&members);
    return all;
}

void core_group_send_changed(struct core *c, int64_t now_ms) {
    uint32_t kept = 0;
    for (uint32_t i = 0; i < c->changed_groups.len; i++) {
        struct group *g = map_get(&c->groups, c->changed_groups.at[i]);
        if (!g)
            continue;
        bool all = false;
        if (now_ms >= g->next_send_ms) {
            if (!g->send_from)
                g->send_generation = g->generation;
            all = send_to_nodes(c, g) && g->send_generation == g->generation;
            g->next_send_ms = now_ms + MEMBERS_INTERVAL_MS;
        }
        g->listed = !all;
        if (all)
            continue;
        c->changed_groups.at[kept++] = g->id;
        if (g->next_send_ms < c->next_group_ms)
            c->next_group_ms = g->next_send_ms;
    }
    c->changed_groups.len = kept;
}

// Also of jobs that change later: the time of their last message may be hours ahead.
void core_group_send_now(struct core *c) {
    size_t it = 0;
    void *g;
    while (map_next(&c->groups, &it, NULL, &g))
        ((struct group *)g)->next_send_ms = 0;
}

// --- views ---

void core_group_record(const struct core *c, const struct core_job *j, struct arena *a,
                       struct job_record *out) {
    const struct group *g = j->sub->group;
    uint32_t seen[JOB_COMPONENTS_MAX] = {0};
    out->components = g->components.at[0].sub ? g->components.len : 0;
    if (core_is_worker(j)) {
        out->job = g->id;
        out->worker = j->array_index;
        return;
    }
    out->workers.at = arena_alloc(a, (g->workers.len + 1) * sizeof *out->workers.at);
    for (uint32_t i = 0; i < g->workers.len; i++) {
        const struct group_worker *from = &g->workers.at[i];
        const struct core_job *w = core_worker_job(c, from);
        struct worker *to = &out->workers.at[out->workers.len++];
        *to = (struct worker){.number = i,
                              .id = from->id,
                              .state = state_of(w),
                              .component = core_component_of(g, from)->name,
                              .rank = from->rank,
                              .idle = from->flags & GROUP_IDLE,
                              .exit_code = from->exit_code,
                              .exit_signal = from->exit_signal};
        if (from->node)
            to->node = c->node_list.at[from->node - 1]->name;
        if (w) {
            const char *reason;
            enum job_health health = core_health_of(w, &reason);
            to->attempt = w->attempt;
            to->health = health ? job_health_words[health] : NULL;
            to->optional = j->run ? core_is_optional(w) : seen[from->component]++ >= core_component_of(g, from)->min;
        } else {
            to->ended = job_state_words[from->state];
        }
    }
}

// What the script of a heterogeneous job finds out about its components: each has one worker.
void core_group_launch_components(const struct core *c, const struct group *g, struct arena *a,
                                  struct message_launch *out) {
    if (g->components.len < 2 || g->workers.len != g->components.len)
        return;
    out->components.at = arena_alloc(a, g->workers.len * sizeof *out->components.at);
    for (uint32_t i = 0; i < g->workers.len; i++) {
        const struct core_job *j = core_worker_job(c, &g->workers.at[i]);
        struct job_record r = {0};
        if (!j || !j->run)
            continue;
        core_record_of(c, j, a, &r);
        struct launch_component *to = &out->components.at[out->components.len++];
        *to = (struct launch_component){.id = i ? j->id : g->id,
                                        .partition = r.spec->partition,
                                        .parts = {r.parts.at, r.parts.len},
                                        .tasks_per_node = r.spec->tasks_per_node,
                                        .cpus_per_task = r.spec->cpus_per_task,
                                        .memory_per_node_bytes = r.spec->memory_per_node_bytes,
                                        .memory_per_cpu_bytes = r.spec->memory_per_cpu_bytes};
        for (uint32_t k = 0; k < r.parts.len; k++)
            to->tasks += r.parts.at[k].tasks;
    }
}

void core_group_launch_job(const struct core *c, const struct core_job *worker, struct arena *a,
                           struct message_launch *out) {
    const struct core_job *job = core_group_job(c, worker);
    struct launch_job *to = arena_alloc(a, sizeof *to);
    *to = (struct launch_job){.id = job->id,
                              .attempt = job->attempt,
                              .start_ms = job->start_ms,
                              .time_limit_s = job->run ? job->run->time_limit_s : 0,
                              .component = core_worker_of(worker)->component};
    to->spec = arena_alloc(a, sizeof *to->spec);
    core_spec_of(job, a, to->spec);
    out->job = to;
}

void core_group_counts(const struct core *c, const struct group *g, struct core_group_counts *out) {
    *out = (struct core_group_counts){.most = g->max, .least = g->min};
    for (uint32_t i = 0; i < g->workers.len; i++) {
        const struct core_job *j = core_worker_job(c, &g->workers.at[i]);
        if (!j || !j->run)
            continue;
        out->running++;
        for (uint32_t k = 0; k < j->run->part_count; k++) {
            const struct run_part *p = &j->run->parts[k];
            out->cpus += p->cpus;
            out->memory_bytes += p->memory_bytes;
            for (uint32_t n = 0; n < p->gpu_count; n++)
                out->gpus_milli += p->gpus[n].milli;
        }
    }
}

static void note_node(const struct core *c, uint32_t node, uint8_t *seen, const char **names, uint32_t max,
                      uint32_t *n) {
    if (!node || *n >= max || seen[node / 8] & 1u << node % 8)
        return;
    seen[node / 8] |= (uint8_t)(1u << node % 8);
    if (names)
        names[*n] = c->node_list.at[node - 1]->name;
    (*n)++;
}

// The nodes of its workers in this attempt, each once; names NULL: only how many.
uint32_t core_group_nodes(const struct core *c, const struct group *g, const char **names, uint32_t max) {
    uint8_t seen[SCHED_NODES_MAX / 8 + 1] = {0};
    uint32_t n = 0;
    for (uint32_t i = 0; i < g->workers.len && n < max; i++) {
        const struct core_job *j = core_worker_job(c, &g->workers.at[i]);
        note_node(c, g->workers.at[i].node, seen, names, max, &n);
        for (uint32_t k = 0; j && j->run && k < j->run->part_count; k++)
            note_node(c, j->run->parts[k].node->handle, seen, names, max, &n);
    }
    return n;
}
