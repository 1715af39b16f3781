// A live connection with processes of a job: input, output, terminal size and signals go over one
// WebSocket. Used by run, attach, exec and bash.
#pragma once
#include "base/buf.h"
#include "cli/client/client.h"

struct client_session {
    struct cli *cli;
    const char *target;       // of the WebSocket
    const struct buf *first;  // first message; NULL: none
    bool pty;                 // put our terminal into raw mode and pass on its size
    bool input;               // forward standard input
    bool cancels;             // Ctrl-C cancels the job; the second time it is killed. Else it is sent on
    bool job;                 // it is a job of its own: when the controller goes away, attach again
    int64_t id;               // of the job, when it is known; set by client_session_run
};

// Returns the exit status.
int client_session_run(struct client_session *s);
void client_session_json_terminal(struct json_writer *w);  // "rows" and "columns"
