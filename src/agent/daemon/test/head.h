// A controller for the tests: listens on a unix socket, keeps what the agent says, says what the
// test wants. The agent itself runs as a process of its own and can be killed.
#pragma once
#include <uv.h>

#include "base/vec.h"
#include "model/message.h"
#include "net/server.h"

struct said {
    struct arena arena;
    struct message m;
};

struct head {
    char dir[128], socket[160], folder[160], spool[160];
    const char *shepherd, *cgroup;
    uv_loop_t loop;
    uv_timer_t timer;
    struct net_server *server;
    struct net_ws *ws;
    VEC(struct said *) said;
    bool timed_out, closed, door_closed;
    pid_t agent;
    uint64_t next_job;
};

void head_start(struct head *h, const char *shepherd, const char *cgroup);
int head_stop(struct head *h);  // 1 if shepherds complained
int head_agent_main(char **argv);  // the test program as agent
void head_agent_start(struct head *h);  // and waits for its hello, which stays in `said`
void head_agent_kill(struct head *h, int signal);
void head_hang_up(struct head *h);
void head_close_door(struct head *h, bool closed);  // refuses agents
void head_lose_spool(struct head *h);

void head_send(struct head *h, enum message_type type, const void *body);
// The next message of that type that was said (others stay); the caller frees with said_free.
struct said *head_wait(struct head *h, enum message_type type, int timeout_ms);
struct said *head_wait_stream(struct head *h, enum message_type type, uint64_t stream,
                              int timeout_ms);
void head_pump(struct head *h, int ms);
void said_free(struct said *s);
void head_forget(struct head *h);  // what was said so far
