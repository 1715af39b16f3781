// Connections to the ports of jobs: bytes both ways between something in the controller and a program inside a job,
// through its node's agent. A connection lives as long as that of the agent; it ends then, and is not made again.
// Without I/O of its own, so that the fault simulator runs the same code; the WebSocket is port_socket.c.
#pragma once
#include "stream.h"

enum {
    PORT_CONN_WINDOW = 256 << 10,  // bytes on their way to the program before the sender is to pause
    PORT_CONN_NODE_BACKLOG =
        8 << 20,  // likewise, that the program's node has not taken, for all that run there
};

struct port_conn;
struct port_conn_client {
    // Returns the bytes that wait here, or negative when whoever reads has gone and will call port_conn_close.
    ssize_t (*data)(void *ctx, const char *data, size_t len);
    void (*eof)(void *ctx);  // the program sends no more
    void (*end)(void *ctx,
                const char *error);  // once, the connection is gone; error NULL: both sides had ended
    void (*room)(void *ctx);         // there is room again after port_conn_send had filled the window
    uint64_t window;                 // bytes that the program may send ahead; 0: as other streams
};

// NULL, and why not: the job does not run, has no such port, or too much is open.
struct port_conn *port_conn_begin(struct stream_table *t, const struct core *core, const struct actor *actor,
                                  uint64_t job, uint32_t port, const struct port_conn_client *client,
                                  void *ctx, struct error *e);
int port_conn_not_running(uint64_t job, enum job_state state, struct error *e);  // why not; a negative errno
bool port_conn_send(struct port_conn *p, const char *data, size_t len);  // false: the window is full, pause
void port_conn_send_eof(struct port_conn *p);
void port_conn_drained(struct port_conn *p);  // what waited here has left
void port_conn_grant(struct port_conn *p, uint64_t bytes);  // the program may send so much more ahead
void port_conn_close(struct port_conn *p);    // no callback any more
