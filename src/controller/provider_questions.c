// Chooses the next question by what the core wants and what was asked last, and turns answers into commands.
#include "controller/provider_questions.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "base/text.h"

enum {
    SOON_MS = 1000,    // between two looks at what is on its way
    CALM_MS = 10000,   // when nothing is
    AGAIN_MS = 2000,   // before the same is asked for again
    OFFERS_MS = 300000,
    STRANGERS_MAX = 1000,
};

static const struct actor program = {.user = "root", .admin = true};

struct question_draft {
    struct provider_question *out;
    struct arena *arena;
    int64_t now_ms;
    bool moves;  // a node is on its way, there or back
    uint32_t room;
};

static void add(struct question_draft *g, uint64_t id, const char *key, const char *node, const char *handle) {
    struct provider_question *q = g->out;
    if (q->nodes.len == g->room) {
        g->room = g->room ? g->room * 2 : 8;
        struct question_node *more = arena_alloc(g->arena, g->room * sizeof *more);
        if (q->nodes.len)
            memcpy(more, q->nodes.at, q->nodes.len * sizeof *more);
        q->nodes.at = more;
    }
    q->nodes.at[q->nodes.len++] =
        (struct question_node){id, key ? arena_strdup(g->arena, key) : NULL, node ? arena_strdup(g->arena, node) : NULL,
                               handle ? arena_strdup(g->arena, handle) : NULL};
}

static bool gather_stops(void *ctx, const struct wanted_node *n) {
    struct question_draft *g = ctx;
    if (core_wanted_to_stop(n))
        add(g, n->id, n->key, n->node, n->handle);
    return g->out->nodes.len < PROVIDER_BATCH;
}

// Those of one shape.
static bool gather_starts(void *ctx, const struct wanted_node *n) {
    struct question_draft *g = ctx;
    if (!core_wanted_to_start(n, g->now_ms) || (g->out->shape && !streq(g->out->shape, n->shape)))
        return true;
    if (!g->out->shape)
        g->out->shape = arena_strdup(g->arena, n->shape);
    add(g, n->id, n->key, n->node, NULL);
    return g->out->nodes.len < PROVIDER_BATCH;
}

static bool gather_moves(void *ctx, const struct wanted_node *n) {
    struct question_draft *g = ctx;
    g->moves |= n->state == WANTED_REQUESTED || n->state == WANTED_BOOTING || n->state == WANTED_STOPPING ||
                n->state == WANTED_DRAINING;
    return !g->moves;
}

static bool is_due(int64_t last_ms, int64_t every_ms, int64_t mono_ms) {
    return !last_ms || mono_ms - last_ms >= every_ms;
}

static bool choose(struct provider_questions *q, const struct core *c, const char *provider, int64_t mono_ms,
                   struct question_draft *g) {
    const struct node_provider *p = core_provider(c, provider);
    if (!q->offered || is_due(q->offered_ms, OFFERS_MS, mono_ms)) {
        g->out->verb = VERB_OFFERS;
        return is_due(q->offered_ms, q->offered ? OFFERS_MS : AGAIN_MS, mono_ms);
    }
    g->out->verb = VERB_LIST;
    if (!q->listed)
        return is_due(q->listed_ms, SOON_MS, mono_ms);
    if (is_due(q->stopped_ms, AGAIN_MS, mono_ms)) {
        g->out->verb = VERB_STOP;
        for (uint32_t i = 0; i < q->strangers.len && g->out->nodes.len < PROVIDER_BATCH; i++)
            add(g, 0, q->strangers.at[i].key, NULL, q->strangers.at[i].handle);
        if (g->out->nodes.len < PROVIDER_BATCH)
            core_each_wanted(c, provider, gather_stops, g);
        if (g->out->nodes.len)
            return true;
    }
    if (is_due(q->started_ms, AGAIN_MS, mono_ms)) {
        g->out->verb = VERB_START;
        core_each_wanted(c, provider, gather_starts, g);
        if (g->out->nodes.len)
            return true;
    }
    g->out->verb = VERB_LIST;
    core_each_wanted(c, provider, gather_moves, g);
    return is_due(q->listed_ms, g->moves || p->removing ? SOON_MS : CALM_MS, mono_ms);
}

bool provider_question_next(struct provider_questions *q, const struct core *c, const char *provider, int64_t now_ms,
                            int64_t mono_ms, struct arena *a, struct provider_question *out, bool *late) {
    struct question_draft g = {.out = out, .arena = a, .now_ms = now_ms};
    *out = (struct provider_question){0};
    *late = q->waiting && mono_ms - q->asked_ms >= PROVIDER_ANSWER_MS;
    if (q->waiting || !core_provider(c, provider) || !choose(q, c, provider, mono_ms, &g))
        return false;
    int64_t *const times[PROVIDER_VERBS] = {&q->offered_ms, &q->started_ms, &q->stopped_ms, &q->listed_ms};
    *times[out->verb] = mono_ms;
    out->id = q->waiting = ++q->newest;
    q->verb = out->verb;
    q->asked_ms = mono_ms;
    return true;
}

static void strangers_clear(struct provider_questions *q) {
    for (uint32_t i = 0; i < q->strangers.len; i++) {
        free(q->strangers.at[i].key);
        free(q->strangers.at[i].handle);
    }
    vec_done(&q->strangers);
}

static void note_strangers(struct provider_questions *q, const struct core *c, const struct provider_report *r,
                           bool settled) {
    const struct engine_node **list = xcalloc(STRANGERS_MAX, sizeof *list);
    uint32_t n = core_provider_strangers(c, r, settled, list, STRANGERS_MAX);
    strangers_clear(q);
    for (uint32_t i = 0; i < n; i++)
        vec_push(&q->strangers, ((struct provider_stranger){list[i]->key ? xstrdup(list[i]->key) : NULL,
                                                            list[i]->handle ? xstrdup(list[i]->handle) : NULL}));
    free(list);
}

bool provider_question_answered(struct provider_questions *q, struct core *c, const struct provider_report *answer,
                                bool settled, int64_t now_ms, struct error *e) {
    if (!q->waiting || answer->id != q->waiting || answer->verb != q->verb)
        return false;
    q->waiting = 0;
    struct command m = {COMMAND_PROVIDER_REPORT, answer};
    int r = answer->error ? error_set(e, EIO, "%s", answer->error)
                          : core_command(c, &program, NULL, &m, now_ms, NULL, e);
    if (r < 0)
        return true;
    q->offered |= answer->verb == VERB_OFFERS;
    if (answer->verb == VERB_LIST) {
        q->listed = true;
        note_strangers(q, c, answer, settled);
    }
    // What was asked for is looked at at once, and what was accepted only in part is asked for again.
    if (answer->verb == VERB_START || answer->verb == VERB_STOP)
        q->listed_ms = 0;
    return true;
}

void provider_questions_begin(struct provider_questions *q) {
    uint64_t newest = q->newest;
    strangers_clear(q);
    *q = (struct provider_questions){.newest = newest};
}
