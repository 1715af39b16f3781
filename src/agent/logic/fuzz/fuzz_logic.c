// Fuzz target: the agent's decisions under any sequence of messages and happenings. Nothing may be
// launched twice, and nothing removed that was not acknowledged.
#include <assert.h>
#include <string.h>

#include "agent/logic/logic.h"
#include "base/map.h"
#include "driver.h"

const struct fuzz_seed fuzz_seeds[] = {
    FUZZ_SEED("LSEA"),     FUZZ_SEED("LLKEAL"),    FUZZ_SEED("KLSE"),
    FUZZ_SEED("LSDCEAcL"), FUZZ_SEED("LSKKTTTEA"), {0},
};

enum { JOBS = 4 };

struct fuzz_machine {
    struct agent_logic *l;
    unsigned launched[JOBS], removed[JOBS], acknowledged[JOBS];
    bool ended[JOBS];
};

static void drain(struct fuzz_machine *w) {
    const struct agent_actions *a = agent_logic_actions(w->l);
    for (uint32_t i = 0; i < a->list.len; i++) {
        const struct agent_action *x = &a->list.at[i];
        uint64_t k = x->id - 1;
        if (x->type == AGENT_LAUNCH) {
            assert(k < JOBS && !w->launched[k]);
            w->launched[k]++;
        }
        if (x->type == AGENT_REMOVE) {
            assert(k < JOBS && w->ended[k] && w->acknowledged[k] && !w->removed[k]);
            w->removed[k]++;
        }
        if (x->type == AGENT_SEND) {
            cleanup_buf struct buf b = {0};
            message_encode(&x->message, &b);
        }
    }
    agent_logic_clear(w->l);
}

static void step(struct fuzz_machine *w, char what, uint64_t id, int64_t now_ms) {
    static struct node node = {.name = "n", .boot_id = "b", .spool_id = "s", .cpus = 4};
    struct spec spec = {.name = "x"};
    struct part part = {.cpus = 2};
    struct message_launch launch = {.id = id, .attempt = 1, .spec = &spec, .part = &part};
    struct message_kill kill = {.id = id, .attempt = 1, .cause = END_CANCEL, .signal = what == 'k' ? 9 : 0};
    struct message_ack ack = {id, 1};
    struct message_ended end = {.id = id, .attempt = 1};
    struct agent_logic *l = w->l;
    switch (what) {
    case 'L': agent_logic_message(l, &(struct message){MESSAGE_LAUNCH, &launch}, now_ms); break;
    case 'K':
    case 'k': agent_logic_message(l, &(struct message){MESSAGE_KILL, &kill}, now_ms); break;
    case 'A':
        if (agent_logic_phase(l, id, 1) == AGENT_ENDED)
            w->acknowledged[id - 1]++;
        agent_logic_message(l, &(struct message){MESSAGE_ACK, &ack}, now_ms);
        break;
    case 'S': agent_logic_started(l, id, 1, 5, now_ms); break;
    case 'E':
        if (agent_logic_phase(l, id, 1) != AGENT_UNKNOWN)
            w->ended[id - 1] = true;
        agent_logic_ended(l, &end);
        break;
    case 'C': agent_logic_connected(l, &node, now_ms); break;
    case 'D': agent_logic_disconnected(l); break;
    case 'T': agent_logic_tick(l, now_ms); break;
    case 'c': agent_logic_kill_sent(l, id, 1); break;
    default: break;
    }
    drain(w);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    struct fuzz_machine w = {.l = agent_logic_new(4)};
    struct node node = {.name = "n", .boot_id = "b", .spool_id = "s", .cpus = 4};
    agent_logic_connected(w.l, &node, 0);
    drain(&w);
    for (size_t i = 0; i < size; i++)
        step(&w, (char)data[i], 1 + i % JOBS, (int64_t)i * 100);
    agent_logic_free(w.l);
    return 0;
}
