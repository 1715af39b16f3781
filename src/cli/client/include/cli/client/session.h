// A live connection with processes of a job: input, output, terminal size and signals go over one WebSocket. When it
// is cut, another one goes on where it was: every byte has a position (the controller's follow.h says how). Used by
// run, attach, exec, bash and logs.
#pragma once
#include "base/buf.h"
#include "cli/client/client.h"

enum session_kind { SESSION_RUN, SESSION_ATTACH, SESSION_EXEC, SESSION_LOGS };

struct client_session {
    struct cli *cli;
    enum session_kind kind;
    const char *target;       // of the WebSocket, with a query
    const char *last_lines;   // logs: a part of the query that holds only the first time; NULL: none
    const struct buf *first;  // first message, an object with a key; NULL: none (attach, logs)
    bool times;               // logs: each line begins with the time when it was written
    bool once;                // logs: what is there now
    bool pty;                 // put our terminal into raw mode and pass on its size
    bool input;               // forward standard input
    bool cancels;             // Ctrl-C cancels the job; the second time it is killed. Else it is sent on
    int64_t id;               // of the job, when it is known; set by client_session_run
    // Set by client_session_run at the end of the job.
    char state[32], reason[256];
    int64_t exit_code, exit_signal;
    bool closed;   // logs: whoever reads our output has gone
    bool missing;  // output of a node could not be had, which was said
};

enum { SESSION_KEY_MAX = 33 };
int client_session_key(
    char out[SESSION_KEY_MAX]);  // by which the controller knows a request that is sent again

// Returns the exit status.
int client_session_run(struct client_session *s);
void client_session_json_terminal(struct json_writer *w);  // "rows" and "columns"
