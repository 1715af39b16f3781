// A provider in the simulator: an engine that starts and stops machines, and a program that asks it, which delays,
// refuses, repeats, half succeeds and is sometimes wrong. The questions are the product's own (provider_questions.c),
// and so is everything that is done with the answers.
#include <stdio.h>
#include <string.h>

#include "base/text.h"
#include "fault_sim.h"
#include "state.h"

enum { WRONG_ONE_IN = 12, REFUSED_ONE_IN = 6, LOST_ONE_IN = 12, TWICE_ONE_IN = 10 };

static const struct actor admin = {"root", 0, 0, true};

static void give(struct sim *s, enum command_type type, const void *body) {
    struct command m = {type, body};
    struct error e = {0};
    core_command(s->head->core, &admin, NULL, &m, head_wall_ms(s), NULL, &e);  // what is refused is refused
}

static struct sim_engine_node *engine_find(struct sim *s, const char *key) {
    for (uint32_t i = s->engine.nodes.len; i-- > 0;)  // the newest of the key
        if (streq(s->engine.nodes.at[i]->key, key))
            return s->engine.nodes.at[i];
    return NULL;
}

static uint32_t engine_live(const struct sim *s) {
    uint32_t n = 0;
    for (uint32_t i = 0; i < s->engine.nodes.len; i++)
        n += s->engine.nodes.at[i]->state != ENGINE_ENDED;
    return n;
}

// --- the engine ---

static struct machine *free_machine(struct sim *s) {
    for (uint32_t i = s->plan->machine_count; i < s->machine_count; i++)
        if (!s->machines[i].taken)
            return &s->machines[i];
    return NULL;
}

static struct sim_engine_node *engine_start(struct sim *s, const struct question_node *n,
                                            const struct sim_question *q) {
    struct sim_engine_node *e = engine_find(s, n->key);
    const struct wanted_node *w = core_wanted(s->check.shadow, n->id);
    if (e && e->state != ENGINE_ENDED)
        return e;
    // One that ended before anybody heard of it is asked for again. One that was heard of never is, but a question of a
    // controller that has died meanwhile can come that late, and so can one that was asked before.
    if (w && w->booting_ms && w->booting_ms < q->asked_ms && q->life == s->head->life && !s->restored)
        sim_fail(s, "node %s was asked for again after the engine had accepted it", n->key);
    struct machine *m = free_machine(s);
    if (!m)
        return NULL;
    e = arena_alloc(&s->arena, sizeof *e);
    *e = (struct sim_engine_node){.number = s->engine.nodes.len, .machine = m->number};
    snprintf(e->key, sizeof e->key, "%s", n->key);
    snprintf(e->node, sizeof e->node, "%s", n->node);
    vec_push(&s->engine.nodes, e);
    m->taken = true;
    s->engine.started++;
    note(s, "engine: %s is accepted", e->key);
    after(s, some_ms(s, 10, rand_below(&s->rand, 4) ? 4000 : 40000), HAPPEN_ENGINE_BOOT, e->number, 0, 0);
    return e;
}

void provider_boot(struct sim *s, uint32_t number) {
    struct sim_engine_node *e = s->engine.nodes.at[number];
    struct machine *m = &s->machines[e->machine];
    if (e->state != ENGINE_PENDING)
        return;
    e->state = ENGINE_RUNNING;
    m->gone = false;
    m->spool++;
    snprintf(m->given_name, sizeof m->given_name, "%s", e->node);
    note(s, "engine: %s runs", e->key);
    if (rand_below(&s->rand, 10))  // else its agent never comes
        machine_boot(s, m);
}

// Whether the controller knows of a job on the machine that nobody has ended: what is given back has none. A controller
// that was put back to an older state does not know what it had decided.
static void nothing_killed(struct sim *s, const struct machine *m) {
    const struct core *c = s->head->core ? s->head->core : s->check.shadow;
    struct job_view v;
    for (uint32_t i = 0; i < m->units.len && !s->restored; i++) {
        const struct sim_unit *u = m->units.at[i];
        if (u->live && u->phase == PHASE_RUN && core_runs_on(c, u->id, u->attempt, m->name) &&
            core_view(c, u->id, &v) && v.state == JOB_RUNNING)
            sim_fail(s, "job %llu ran on %s when the engine was told to stop it", (unsigned long long)u->id,
                     m->name);
    }
}

static void engine_end(struct sim *s, struct sim_engine_node *e) {
    struct machine *m = &s->machines[e->machine];
    if (e->state == ENGINE_ENDED)
        return;
    note(s, "engine: %s ends", e->key);
    e->state = ENGINE_ENDED;
    machine_down(s, m, rand_below(&s->rand, 2));
    m->gone = true;
    m->taken = false;
}

static void engine_stop(struct sim *s, struct sim_engine_node *e) {
    if (e->state != ENGINE_ENDED)
        nothing_killed(s, &s->machines[e->machine]);
    engine_end(s, e);
}

// --- the program ---

static void put(struct provider_report *r, struct engine_node *list, struct engine_node n) {
    list[r->nodes.len++] = n;
    r->nodes.at = list;
}

static struct engine_node said_of(struct sim *s, const struct sim_engine_node *e) {
    char *handle = arena_printf(&s->arena, "vm-%u", e->number);
    return (struct engine_node){.key = e->key, .handle = handle, .state = e->state};
}

static void list_all(struct sim *s, struct provider_report *r, struct engine_node *list, bool may_be_wrong) {
    bool wrong = may_be_wrong && !s->engine.was_wrong && rand_below(&s->rand, WRONG_ONE_IN) == 0;
    s->engine.was_wrong = wrong;
    for (uint32_t i = 0; i < s->engine.nodes.len; i++) {
        const struct sim_engine_node *e = s->engine.nodes.at[i];
        struct engine_node n = said_of(s, e);
        if (wrong && rand_below(&s->rand, 2)) {  // left out, or another state
            if (rand_below(&s->rand, 2))
                continue;
            n.state = (enum engine_state)rand_below(&s->rand, ENGINE_STATES);
        }
        if (e->state == ENGINE_ENDED && n.state == ENGINE_ENDED && rand_below(&s->rand, 2))
            continue;  // engines forget what has ended
        put(r, list, n);
    }
}

static void start_all(struct sim *s, const struct sim_question *q, struct provider_report *r,
                      struct engine_node *list, bool calm) {
    for (uint32_t i = 0; i < q->question.nodes.len; i++) {
        const struct question_node *n = &q->question.nodes.at[i];
        if (!calm && rand_below(&s->rand, 10) == 0)
            continue;  // half of it succeeds, and nobody says why
        const struct sim_engine_node *e =
            calm || rand_below(&s->rand, REFUSED_ONE_IN) ? engine_start(s, n, q) : NULL;
        put(r, list,
            e ? said_of(s, e) : (struct engine_node){.key = n->key, .error = "no machine is free", .retry_s = 3});
    }
}

static void stop_all(struct sim *s, const struct sim_question *q, struct provider_report *r,
                     struct engine_node *list, bool calm) {
    for (uint32_t i = 0; i < q->question.nodes.len; i++) {
        const struct question_node *n = &q->question.nodes.at[i];
        struct sim_engine_node *e = engine_find(s, n->key);
        if (!calm && rand_below(&s->rand, REFUSED_ONE_IN) == 0)
            continue;
        if (e)
            engine_stop(s, e);
        put(r, list, (struct engine_node){.key = n->key, .state = ENGINE_ENDED});
    }
}

// The question reaches the engine; the answer is as old as this when it arrives.
static void carry_out(struct sim *s, struct sim_question *q) {
    static struct provider_shape shape;
    bool calm = s->cleaning;
    struct provider_report *r = arena_alloc(&s->arena, sizeof *r);
    struct engine_node *list = arena_alloc(&s->arena, (s->engine.nodes.len + q->question.nodes.len + 1) * sizeof *list);
    *r = (struct provider_report){.provider = "eng", .verb = q->question.verb, .id = q->question.id};
    shape = (struct provider_shape){.name = "std",
                                    .cpus = s->plan->machines[s->plan->machine_count].cpus,
                                    .memory_bytes = s->plan->machines[s->plan->machine_count].memory_bytes,
                                    .boot_s = 3};
    if (!calm && rand_below(&s->rand, 15) == 0)
        r->error = "the engine does not answer";
    else if (q->question.verb == VERB_OFFERS)
        r->shapes.at = &shape, r->shapes.len = 1;
    else if (q->question.verb == VERB_LIST)
        list_all(s, r, list, !calm);
    else if (q->question.verb == VERB_START)
        start_all(s, q, r, list, calm);
    else
        stop_all(s, q, r, list, calm);
    q->answer = r;
}

void provider_turn(struct sim *s, uint32_t number, bool acts) {
    struct sim_question *q = s->engine.questions.at[number];
    if (acts) {
        carry_out(s, q);
        if (s->cleaning || rand_below(&s->rand, LOST_ONE_IN))
            after(s, some_ms(s, 1, 3000), HAPPEN_ENGINE, number, 1, 0);
        if (!s->cleaning && rand_below(&s->rand, TWICE_ONE_IN) == 0)
            after(s, some_ms(s, 1, 9000), HAPPEN_ENGINE, number, 1, 0);
        return;
    }
    struct error e = {0};
    bool settled = s->now_ms - s->head->started_ms > PROVIDER_SETTLED_MS;
    if (!s->head->core || s->head->life != q->life)
        return;  // the program has ended with its controller
    provider_question_answered(&s->engine.ask, s->head->core, q->answer, settled, head_wall_ms(s), &e);
    head_touched(s);
}

static void ask(void *arg) {
    struct sim_question *q = arg;
    // Now and then it is on its way for so long that another controller asks meanwhile.
    after(q->sim, some_ms(q->sim, 1, rand_below(&q->sim->rand, 6) ? 2000 : 30000), HAPPEN_ENGINE, q->number, 0, 0);
}

// What the controller does every second.
void provider_tick(struct sim *s) {
    struct core *c = s->head->core;
    bool late;
    core_providers_tick(c, head_wall_ms(s));
    if (s->engine.life != s->head->life) {
        provider_questions_begin(&s->engine.ask);
        s->engine.life = s->head->life;
    }
    struct sim_question *q = arena_alloc(&s->arena, sizeof *q);
    *q = (struct sim_question){
        .sim = s, .number = s->engine.questions.len, .life = s->head->life, .asked_ms = head_wall_ms(s)};
    if (provider_question_next(&s->engine.ask, c, "eng", head_wall_ms(s), head_mono_ms(s), &s->arena, &q->question,
                               &late)) {
        vec_push(&s->engine.questions, q);
        pipeline_when_committed(s->head->pipeline, ask, q);
    } else if (late) {
        provider_questions_begin(&s->engine.ask);  // its program is ended and started again
    }
    head_touched(s);
}

// --- administrators ---

void provider_item(struct sim *s, const struct item *it) {
    struct node_provider p = {.name = "eng", .program = "/bin/engine", .max = 1 + it->amount % ENGINE_MACHINES,
                         .idle_s = 1 + it->pick * 5, .start_s = 30 + it->pick, .rate = 1 + it->amount % 9};
    struct command_provider_remove remove = {.name = "eng"};
    if (it->pick == 5 && it->amount % 3 == 0) {
        give(s, COMMAND_PROVIDER_REMOVE, &remove);
    } else if (it->pick == 4 && s->engine.nodes.len) {  // a node goes by itself
        struct sim_engine_node *e = s->engine.nodes.at[it->amount % s->engine.nodes.len];
        engine_end(s, e);
    } else {
        p.min = it->amount % 5 == 0 ? 1 : 0;
        p.paused = it->amount % 7 == 0;
        if (!p.min)
            schema_give(&provider_schema, &p, &p.min);
        if (!p.paused)
            schema_give(&provider_schema, &p, &p.paused);
        give(s, COMMAND_PROVIDER_SET, &p);
    }
    head_touched(s);
}

void provider_cleanup(struct sim *s) {
    struct command_provider_remove remove = {.name = "eng"};
    if (s->head->core && core_provider(s->head->core, "eng"))
        give(s, COMMAND_PROVIDER_REMOVE, &remove);
}

// --- what must hold ---

struct seen_nodes {
    struct sim *sim;
    const struct wanted_node *at[PROVIDER_NODES_MAX];
    uint32_t len;
};

static bool look(void *ctx, const struct wanted_node *n) {
    struct seen_nodes *l = ctx;
    for (uint32_t i = 0; i < l->len; i++) {
        if (streq(l->at[i]->key, n->key))
            sim_fail(l->sim, "two nodes are wanted by the key %s", n->key);
        if (n->state != WANTED_GONE && l->at[i]->state != WANTED_GONE && streq(l->at[i]->node, n->node))
            sim_fail(l->sim, "node %s is wanted twice", n->node);
    }
    l->at[l->len++] = n;
    return l->len < PROVIDER_NODES_MAX;
}

void provider_rules(struct sim *s) {
    struct seen_nodes *l = xcalloc(1, sizeof *l);
    l->sim = s;
    core_each_wanted(s->head->core, NULL, look, l);
    free(l);
}

// When a provider has gone, nothing of it is left in the engine.
void provider_event(struct sim *s, const struct event *e) {
    if (e->type == EVENT_PROVIDER_REMOVED && !s->restored && engine_live(s))
        sim_fail(s, "the provider is gone, and %u nodes are left in its engine", engine_live(s));
}

bool provider_idle(struct sim *s, char *why, size_t size) {
    bool there = core_provider(s->head->core, "eng") != NULL;
    // After a restore of a copy from before it was added nobody can know of them.
    bool left = engine_live(s) && !s->restored;
    if (there || left)
        snprintf(why, size, "%s, %u nodes are in its engine", there ? "the provider is still there" : "it is gone",
                 engine_live(s));
    return !there && !left;
}

void provider_done(struct sim *s) {
    provider_questions_begin(&s->engine.ask);
    vec_done(&s->engine.nodes);
    vec_done(&s->engine.questions);
}
