// acequia-nodes: many simulated nodes in one process, for a live controller. Each has the agents' real decisions
// (agent/logic) and the real protocol over a connection of its own to the controller's unix socket; what a node would
// run is pretended: a job starts at once and ends after a set time, or after the time of its `sleep N`. State is kept
// over lost connections, not over a restart of this program.
#include <errno.h>
#include <getopt.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <unistd.h>
#include <uv.h>

#include "agent/logic/logic.h"
#include "base/alloc.h"
#include "base/clock.h"
#include "base/rand.h"
#include "base/text.h"
#include "net/dial.h"
#include "queue.h"

enum {
    NODES_MAX = 60000,
    GPUS_MAX = 16,
    DIALS_AT_ONCE = 64,
    TURN_MS = 20,
    TICK_MS = 1000,  // of each node's logic
    DIAL_AGAIN_MS = 500,
    DESCRIPTORS_BESIDE = 64,
};

enum due { DUE_STARTED, DUE_ENDED, DUE_STEP_ENDED, DUE_DIAL };

struct cluster;

struct sim_node {
    struct cluster *all;
    uint32_t number;
    char name[48], boot_id[40];
    struct agent_logic *logic;
    struct net_ws *ws;  // NULL: not connected
    bool open, welcomed, acting;
};

struct cluster {
    uv_loop_t loop;
    uv_timer_t timer;
    uv_signal_t on_term, on_int;
    const char *socket, *prefix;
    uint32_t count, cpus, gpus;
    uint64_t memory_bytes;
    int64_t run_ms;
    uint32_t report_s;
    struct sim_node *nodes;
    struct queue queue;
    struct rand rand;
    uint32_t dialling, welcomed, tick_at;
    uint64_t launched, ended, ended_before;
    int64_t began_ms, all_ms, reported_ms;
    bool stopping;
};

static void act(struct sim_node *n);

// --- what a node would do ---

static int64_t run_time_ms(const struct cluster *c, const struct message_launch *m) {
    uint32_t seconds;
    const struct spec *s = m->spec;
    if (s->argv.len == 2 && streq(s->argv.at[0], "sleep") && parse_u32(s->argv.at[1], &seconds) == 0)
        return (int64_t)seconds * 1000;
    return c->run_ms;
}

static void launch(struct sim_node *n, const struct message_launch *m) {
    int64_t now = clock_mono_ms();
    n->all->launched++;
    queue_put(&n->all->queue, now, DUE_STARTED, n->number, m->id, m->attempt);
    if (m->spec->launch != LAUNCH_STEPS)  // allocations end when they are told
        queue_put(&n->all->queue, now + run_time_ms(n->all, m), DUE_ENDED, n->number, m->id, m->attempt);
}

static void end_attempt(struct sim_node *n, uint64_t id, uint32_t attempt, enum end_cause cause,
                        uint32_t signal) {
    struct usage usage = {.wall_ms = (uint64_t)n->all->run_ms, .memory_peak_bytes = 1 << 20};
    struct message_ended end = {.id = id,
                                .attempt = attempt,
                                .cause = cause,
                                .exit_signal = signal,
                                .usage = &usage,
                                .start_ms = clock_wall_ms(),
                                .end_ms = clock_wall_ms()};
    enum agent_phase phase = agent_logic_phase(n->logic, id, attempt);
    if (phase != AGENT_LAUNCHING && phase != AGENT_RUNNING)
        return;
    n->all->ended++;
    agent_logic_ended(n->logic, &end);
}

static void send_message(struct sim_node *n, const struct message *m) {
    cleanup_buf struct buf b = {0};
    if (!n->ws || !n->open)
        return;
    message_encode(m, &b);
    net_ws_send(n->ws, WS_BINARY, b.data, b.len);
}

// There is no output: whoever asks for some is told at once.
static void refuse_stream(struct sim_node *n, const struct message *m) {
    struct message_stream end = {
        .eof = true, .exit_code = 1, .error = "the node is simulated and has no output"};
    if (m->type == MESSAGE_LOG_READ)
        end.stream = ((const struct message_log_read *)m->body)->stream;
    else if (m->type == MESSAGE_EXEC)
        end.stream = ((const struct message_exec *)m->body)->stream;
    else if (m->type == MESSAGE_STEP_ATTACH)
        end.stream = ((const struct message_step *)m->body)->stream;
    if (end.stream)
        send_message(n, &(struct message){MESSAGE_STREAM_END, &end});
}

static void carry_out(struct sim_node *n, const struct agent_action *a) {
    const struct message_exec *x = a->message.body;
    switch (a->type) {
    case AGENT_SEND: send_message(n, &a->message); break;
    case AGENT_LAUNCH: launch(n, a->launch); break;
    case AGENT_KILL:
        if (!a->step) {
            agent_logic_kill_sent(n->logic, a->id, a->attempt);
            end_attempt(n, a->id, a->attempt, a->cause, a->signal);
        }
        break;
    case AGENT_TIME_LIMIT:
    case AGENT_SUSPEND: agent_logic_told(n->logic, a->id, a->attempt, a->type); break;
    case AGENT_STEP:
        queue_put(&n->all->queue, clock_mono_ms() + n->all->run_ms, DUE_STEP_ENDED, n->number, x->id,
                  (uint64_t)x->attempt << 32 | x->step);
        break;
    case AGENT_STREAM: refuse_stream(n, &a->message); break;
    case AGENT_DISCONNECT:
        if (n->ws)
            net_ws_abort(n->ws);
        break;
    default: break;
    }
}

static void act(struct sim_node *n) {
    if (n->acting)
        return;
    n->acting = true;
    const struct agent_actions *list = agent_logic_actions(n->logic);
    for (uint32_t i = 0; i < list->list.len; i++) {
        struct agent_action a = list->list.at[i];  // carrying it out may add more
        carry_out(n, &a);
    }
    agent_logic_clear(n->logic);
    n->acting = false;
}

// --- connections ---

static void describe(const struct sim_node *n, struct node *out, struct gpu gpus[GPUS_MAX],
                     char ids[GPUS_MAX][64]) {
    *out = (struct node){.name = n->name,
                         .version = ACEQUIA_VERSION,
                         .boot_id = n->boot_id,
                         .spool_id = n->boot_id,
                         .cpus = n->all->cpus,
                         .memory_bytes = n->all->memory_bytes,
                         .missing = "this node is simulated"};
    out->gpus.at = gpus;
    out->gpus.len = n->all->gpus;
    for (uint32_t i = 0; i < n->all->gpus; i++) {
        snprintf(ids[i], sizeof ids[i], "%s-gpu-%u", n->name, i);
        gpus[i] = (struct gpu){
            .uuid = ids[i], .model = "simulated", .memory_bytes = 80ull << 30, .simulated = true};
    }
}

static void on_open(struct net_ws *ws, void *user) {
    struct sim_node *n = user;
    struct node node;
    struct gpu gpus[GPUS_MAX];
    char ids[GPUS_MAX][64];
    n->open = true;
    n->all->dialling--;
    describe(n, &node, gpus, ids);
    agent_logic_connected(n->logic, &node, clock_mono_ms());
    act(n);
}

static void on_message(struct net_ws *ws, enum ws_opcode type, const char *data, size_t len, void *user) {
    struct sim_node *n = user;
    cleanup_arena struct arena arena = {0};
    struct message m;
    if (type != WS_BINARY || message_decode(data, len, &arena, &m) < 0)
        return;  // of a later release
    agent_logic_message(n->logic, &m, clock_mono_ms());
    act(n);
    if (m.type == MESSAGE_WELCOME && !n->welcomed) {
        n->welcomed = true;
        n->all->welcomed++;
    }
}

static void on_close(struct net_ws *ws, int status, const char *reason, void *user) {
    struct sim_node *n = user;
    struct cluster *c = n->all;
    if (!n->open)
        c->dialling--;
    c->welcomed -= n->welcomed;
    n->welcomed = n->open = false;
    n->ws = NULL;
    agent_logic_disconnected(n->logic);
    int64_t wait_ms = DIAL_AGAIN_MS + (int64_t)rand_below(&c->rand, 4 * DIAL_AGAIN_MS);
    if (!c->stopping)
        queue_put(&c->queue, clock_mono_ms() + wait_ms, DUE_DIAL, n->number, 0, 0);
}

static void dial(struct sim_node *n) {
    static const struct net_ws_callbacks callbacks = {
        .on_open = on_open, .on_message = on_message, .on_close = on_close};
    struct net_dial_options o = {
        .unix_path = n->all->socket, .target = "/v1/agent", .message_max = MESSAGE_MAX_BYTES};
    n->all->dialling++;
    n->ws = net_dial_ws(&n->all->loop, &o, &callbacks, n);
}

// --- time ---

static void happen(struct cluster *c, const struct queued *q) {
    struct sim_node *n = &c->nodes[q->who];
    struct step_end end = {.id = q->a, .attempt = (uint32_t)(q->b >> 32), .step = (uint32_t)q->b};
    switch ((enum due)q->kind) {
    case DUE_STARTED: agent_logic_started(n->logic, q->a, (uint32_t)q->b, 1, clock_wall_ms()); break;
    case DUE_ENDED: end_attempt(n, q->a, (uint32_t)q->b, END_EXIT, 0); break;
    case DUE_STEP_ENDED: agent_logic_step_ended(n->logic, &end); break;
    case DUE_DIAL:
        if (c->dialling < DIALS_AT_ONCE)
            dial(n);
        else
            queue_put(&c->queue, clock_mono_ms() + TURN_MS, DUE_DIAL, n->number, 0, 0);
        return;
    }
    act(n);
}

static void report(struct cluster *c, int64_t now) {
    if (!c->all_ms && c->welcomed == c->count) {
        c->all_ms = now;
        printf("%u nodes are connected after %.1f s\n", c->count, (double)(now - c->began_ms) / 1000);
        fflush(stdout);
    }
    if (!c->report_s || now - c->reported_ms < (int64_t)c->report_s * 1000)
        return;
    double seconds = (double)(now - c->reported_ms) / 1000;
    printf("%u of %u nodes, %llu launched, %llu ended, %.0f jobs/s\n", c->welcomed, c->count,
           (unsigned long long)c->launched, (unsigned long long)c->ended,
           (double)(c->ended - c->ended_before) / seconds);
    fflush(stdout);
    c->reported_ms = now;
    c->ended_before = c->ended;
}

static void on_turn(uv_timer_t *t) {
    struct cluster *c = t->data;
    int64_t now = clock_mono_ms();
    struct queued q;
    while (c->queue.heap.len && c->queue.heap.at[0].at_ms <= now && queue_take(&c->queue, &q))
        happen(c, &q);
    uint32_t share = c->count / (TICK_MS / TURN_MS) + 1;
    for (uint32_t i = 0; i < share && i < c->count; i++) {
        struct sim_node *n = &c->nodes[c->tick_at++ % c->count];
        agent_logic_tick(n->logic, now);
        act(n);
    }
    report(c, now);
}

static void on_closed(uv_handle_t *h) {
}

static void on_stop(uv_signal_t *s, int signum) {
    struct cluster *c = s->data;
    if (c->stopping)
        return;
    c->stopping = true;
    printf("%u of %u nodes, %llu launched, %llu ended\n", c->welcomed, c->count,
           (unsigned long long)c->launched, (unsigned long long)c->ended);
    fflush(stdout);
    for (uint32_t i = 0; i < c->count; i++)
        if (c->nodes[i].ws)
            net_ws_abort(c->nodes[i].ws);
    uv_close((uv_handle_t *)&c->timer, on_closed);
    uv_close((uv_handle_t *)&c->on_term, on_closed);
    uv_close((uv_handle_t *)&c->on_int, on_closed);
}

// --- start ---

static int raise_limit(uint32_t count) {
    struct rlimit l;
    rlim_t need = count + DESCRIPTORS_BESIDE;
    if (getrlimit(RLIMIT_NOFILE, &l) == 0 && l.rlim_cur < need) {
        l.rlim_cur = need;
        if (l.rlim_max < need)
            l.rlim_max = need;
        if (setrlimit(RLIMIT_NOFILE, &l) < 0) {
            fprintf(stderr,
                    "acequia-nodes: %u connections need %llu open files: raise the limit (ulimit -n)\n",
                    count, (unsigned long long)need);
            return -1;
        }
    }
    return 0;
}

static void make_nodes(struct cluster *c) {
    uint64_t run = 0;
    rand_secret(&run, sizeof run);
    rand_seed(&c->rand, run);
    c->nodes = xcalloc(c->count, sizeof *c->nodes);
    for (uint32_t i = 0; i < c->count; i++) {
        struct sim_node *n = &c->nodes[i];
        n->all = c;
        n->number = i;
        snprintf(n->name, sizeof n->name, "%s%u", c->prefix, i + 1);
        snprintf(n->boot_id, sizeof n->boot_id, "%016llx-%u", (unsigned long long)run, i);
        n->logic = agent_logic_new(0);
        queue_put(&c->queue, 0, DUE_DIAL, i, 0, 0);
    }
}

static int run(struct cluster *c) {
    signal(SIGPIPE, SIG_IGN);
    if (raise_limit(c->count) < 0)
        return 1;
    uv_loop_init(&c->loop);
    uv_timer_init(&c->loop, &c->timer);
    uv_signal_init(&c->loop, &c->on_term);
    uv_signal_init(&c->loop, &c->on_int);
    c->timer.data = c->on_term.data = c->on_int.data = c;
    uv_signal_start(&c->on_term, on_stop, SIGTERM);
    uv_signal_start(&c->on_int, on_stop, SIGINT);
    c->began_ms = c->reported_ms = clock_mono_ms();
    make_nodes(c);
    uv_timer_start(&c->timer, on_turn, 0, TURN_MS);
    uv_run(&c->loop, UV_RUN_DEFAULT);
    uv_loop_close(&c->loop);
    for (uint32_t i = 0; i < c->count; i++)
        agent_logic_free(c->nodes[i].logic);
    queue_done(&c->queue);
    free(c->nodes);
    return 0;
}

static const char usage_text[] =
    "Usage: acequia-nodes --socket PATH [options]\n"
    "Makes a live controller see many nodes: the agents' real decisions and protocol, jobs that are\n"
    "pretended. Ends with SIGTERM or Ctrl-C.\n\n"
    "  --socket PATH    of the controller\n"
    "  --count N        nodes (100)\n"
    "  --cpus N         of each (64)\n"
    "  --gpus N         of each (8)\n"
    "  --run SECONDS    how long a job runs (1); sleep N runs N seconds\n"
    "  --prefix NAME    names are NAME1, NAME2, … (sim-)\n"
    "  --report SECONDS a line about the jobs every so often (0: none)\n";

static int number(const char *text, uint32_t low, uint32_t high, uint32_t *out) {
    if (parse_u32(text, out) == 0 && *out >= low && *out <= high)
        return 0;
    fprintf(stderr, "acequia-nodes: \"%s\": expected a number from %u to %u\n", text, low, high);
    return -1;
}

int main(int argc, char **argv) {
    static const struct option options[] = {
        {"socket", 1, 0, 's'}, {"count", 1, 0, 'n'}, {"cpus", 1, 0, 'c'},
        {"gpus", 1, 0, 'g'},   {"run", 1, 0, 'r'},   {"prefix", 1, 0, 'p'},
        {"report", 1, 0, 'e'}, {"help", 0, 0, 'h'},  {0}};
    struct cluster c = {
        .prefix = "sim-", .count = 100, .cpus = 64, .gpus = 8, .memory_bytes = 512ull << 30, .run_ms = 1000};
    uint32_t seconds;
    int o, r = 0;
    while (r == 0 && (o = getopt_long(argc, argv, "h", options, NULL)) != -1) {
        switch (o) {
        case 's': c.socket = optarg; break;
        case 'p': c.prefix = optarg; break;
        case 'n': r = number(optarg, 1, NODES_MAX, &c.count); break;
        case 'c': r = number(optarg, 1, 65536, &c.cpus); break;
        case 'g': r = number(optarg, 0, GPUS_MAX, &c.gpus); break;
        case 'e': r = number(optarg, 0, 3600, &c.report_s); break;
        case 'r':
            r = number(optarg, 0, 86400, &seconds);
            c.run_ms = (int64_t)seconds * 1000;
            break;
        case 'h': fputs(usage_text, stdout); return 0;
        default: r = -1;
        }
    }
    if (r < 0 || !c.socket || strlen(c.prefix) > 32) {
        fputs(usage_text, stderr);
        return 2;
    }
    return run(&c);
}
