// Simulated connections. A connection delivers in order or breaks; single messages are not lost. Faults: delays, cuts
// in one or both directions (messages wait until the cut is over), breaks that the two ends notice at different
// times, silent losses that no end notices, damaged messages that the decoder refuses (the connection is closed),
// duplicates.
#include <stdlib.h>

#include "base/alloc.h"
#include "fault_sim.h"

static int64_t latency(struct sim *s, const struct link *l) {
    int64_t ms = some_ms(s, 1, s->plan->latency_ms);
    return l->slow_until_ms > s->now_ms ? ms + some_ms(s, 0, l->slow_ms) : ms;
}

static struct link *link_of(struct sim *s, const struct conn *c) {
    return &s->machines[c->machine].link;
}

struct conn *net_dial(struct sim *s, struct machine *m) {
    const struct sim_head *h = is_shared(s) ? &s->heads[m->dials++ % s->head_count] : s->head;
    if (is_shared(s) && (!h->leads || h->cut_until_ms > s->now_ms))
        return NULL;
    if (!h->core || m->link.cut_until_ms[AGENT_END] > s->now_ms || m->link.cut_until_ms[HEAD_END] > s->now_ms)
        return NULL;
    struct conn *c = xcalloc(1, sizeof *c);
    c->number = s->conns.len;
    c->machine = m->number;
    c->head = h->number;
    c->open[AGENT_END] = c->open[HEAD_END] = true;
    vec_push(&s->conns, c);
    return c;
}

static int64_t cut_until(const struct sim *s, const struct conn *c, enum side from) {
    int64_t link_ms = s->machines[c->machine].link.cut_until_ms[from];
    int64_t head_ms = s->heads[c->head].cut_until_ms;
    return head_ms > link_ms ? head_ms : link_ms;
}

bool net_is_prompt(const struct sim *s, const struct conn *c) {
    bool prompt = !c->hole;
    for (int from = 0; from < 2; from++)
        prompt &= cut_until(s, c, from) <= s->now_ms && c->last_ms[from] <= s->now_ms + s->plan->latency_ms;
    return prompt;
}

static void post(struct sim *s, struct conn *c, enum side from, struct packet p) {
    int64_t at = s->now_ms + latency(s, link_of(s, c));
    if (at < c->last_ms[from])
        at = c->last_ms[from];
    c->last_ms[from] = at;
    vec_push(&c->line[from], p);
    queue_put(&s->queue, at, HAPPEN_PACKET, c->number, from, 0);
}

void net_send(struct sim *s, struct conn *c, enum side from, const void *data, size_t len) {
    if (c->open[from])
        post(s, c, from, (struct packet){xmemdup(data, len), len});
}

static void clear_line(struct conn *c, enum side from) {
    for (uint32_t i = c->first[from]; i < c->line[from].len; i++)
        free(c->line[from].at[i].data);
    c->first[from] = c->line[from].len;
}

static void shut(struct sim *s, struct conn *c, enum side end) {
    if (!c->open[end])
        return;
    c->open[end] = false;
    note(s, "connection %u: closed for the %s", c->number, end == AGENT_END ? "agent" : "controller");
    if (end == AGENT_END)
        agent_closed(s, &s->machines[c->machine], c);
    else
        head_closed(s, c);
}

void net_close(struct sim *s, struct conn *c, enum side by) {
    if (!c->open[by])
        return;
    if (!c->hole)
        post(s, c, by, (struct packet){0});
    shut(s, c, by);
}

void net_vanish(struct sim *s, struct conn *c, enum side by) {
    c->open[by] = false;
    c->hole = true;
    if (rand_below(&s->rand, 2))
        clear_line(c, by);
}

void net_break(struct sim *s, struct conn *c) {
    clear_line(c, AGENT_END);
    clear_line(c, HEAD_END);
    c->hole = true;
    after(s, some_ms(s, 0, 2000), HAPPEN_RESET, c->number, AGENT_END, 0);
    after(s, some_ms(s, 0, 2000), HAPPEN_RESET, c->number, HEAD_END, 0);
}

void net_reset(struct sim *s, struct conn *c, enum side end) {
    shut(s, c, end);
}

// Damaged bytes never reach anybody: encryption notices. The decoder must survive them all the same.
static void corrupted(struct sim *s, struct conn *c, enum side to, struct packet *p) {
    cleanup_arena struct arena a = {0};
    struct message m;
    for (uint64_t n = 1 + rand_below(&s->rand, 4); n; n--)
        p->data[rand_below(&s->rand, p->len)] ^= (char)(1 + rand_below(&s->rand, 255));
    size_t len = rand_below(&s->rand, 3) ? p->len : rand_below(&s->rand, p->len);
    message_decode(p->data, len, &a, &m);
    note(s, "connection %u: damaged message", c->number);
    net_close(s, c, to);
}

static void deliver(struct sim *s, struct conn *c, enum side from, const struct packet *p) {
    cleanup_arena struct arena a = {0};
    struct message m;
    const char *data = p->data;
    size_t len = p->len;
    uint64_t term = 0;
    s->messages++;
    if (from == HEAD_END && message_take_term(&data, &len, &term) == 0 &&
        !agent_obeys(s, &s->machines[c->machine], c, term))
        return;
    if (message_decode(data, len, &a, &m) < 0) {
        sim_fail(s, "connection %u: a message of %zu bytes cannot be decoded", c->number, p->len);
        return;
    }
    if (m.type != MESSAGE_PING && m.type != MESSAGE_PONG)
        note(s, "%s: %s %s", s->machines[c->machine].name, from == AGENT_END ? "->" : "<-", message_info(m.type)->name);
    if (from == AGENT_END)
        head_message(s, c, &m);
    else
        agent_message(s, &s->machines[c->machine], &m);
}

// Streams rely on a connection that delivers everything once; all else may come twice.
static bool may_repeat(const struct packet *p) {
    cleanup_arena struct arena a = {0};
    struct message m;
    const char *data = p->data;
    size_t len = p->len;
    uint64_t term;
    return message_take_term(&data, &len, &term) == 0 && message_decode(data, len, &a, &m) == 0 &&
           m.type != MESSAGE_STREAM_DATA && m.type != MESSAGE_STREAM_END && m.type != MESSAGE_STREAM_CREDIT &&
           m.type != MESSAGE_STEP_ATTACH && m.type != MESSAGE_LOG_READ && m.type != MESSAGE_CONNECT;
}

void net_packet(struct sim *s, struct conn *c, enum side from) {
    enum side to = from == AGENT_END ? HEAD_END : AGENT_END;
    struct link *l = link_of(s, c);
    if (c->first[from] == c->line[from].len)
        return;  // lost meanwhile
    int64_t cut_until_ms = cut_until(s, c, from);
    if (cut_until_ms > s->now_ms) {
        queue_put(&s->queue, cut_until_ms + 1, HAPPEN_PACKET, c->number, from, 0);
        return;
    }
    struct packet p = c->line[from].at[c->first[from]++];
    if (!c->open[to]) {
        if (!c->hole)
            after(s, latency(s, l), HAPPEN_RESET, c->number, from, 0);
    } else if (c->hole) {
        // nobody learns of it
    } else if (!p.data) {
        shut(s, c, to);
    } else if (l->corrupt[from] && p.len) {
        l->corrupt[from]--;
        corrupted(s, c, to, &p);
    } else {
        deliver(s, c, from, &p);
        if (l->repeat[from] && c->open[to] && !s->failed && may_repeat(&p)) {
            l->repeat[from]--;
            deliver(s, c, from, &p);
        }
    }
    free(p.data);
}

void net_free(struct conn *c) {
    clear_line(c, AGENT_END);
    clear_line(c, HEAD_END);
    vec_done(&c->line[AGENT_END]);
    vec_done(&c->line[HEAD_END]);
    free(c);
}
