// What an agent can ask of a running attempt's shepherd, through the socket `control` in the
// attempt's folder: fixed-size packets, one request and one reply per connection. Steps bring
// their request as a file in the folder, and descriptors along with the packet.
#pragma once
#include <stddef.h>
#include <stdint.h>

#include "launch/launch.h"

enum control_type {
    CONTROL_SIGNAL = 1,  // signal to target (step 0) or to a step
    CONTROL_KILL,        // signal, then SIGKILL after value_ms; the end is ENDED_KILLED with why
    CONTROL_STEP,        // start the step whose unit file is in the folder
    CONTROL_TIME_LIMIT,  // new limit from the start in value_ms, 0: none
    CONTROL_SUSPEND,
    CONTROL_RESUME,
    CONTROL_USAGE,
    CONTROL_RELAY,    // the agent has changed a step's relay page
    CONTROL_CONNECT,  // value_ms is a port; the reply brings a socket that is being connected to it
    CONTROL_MPI,      // the agent has written where the first node's helper of an MPI step listens
};

enum { LAUNCH_PROGRESS_MAX = 48 };

struct control_request {
    uint32_t type, step;
    int32_t signal;
    uint32_t target;  // enum signal_target
    int64_t value_ms;
    uint32_t why, pad;
};

struct control_reply {
    int32_t result;  // 0 or a negative errno
    uint32_t processes;
    struct launch_usage usage;
    uint64_t memory_now_bytes;
    // How far the job says it has come (model/progress.h), in thousandths; -1: it does not say.
    int32_t progress_milli;
    char progress_text[LAUNCH_PROGRESS_MAX];
};
// Shepherds outlive the agent that started them: those of release 0.2 do not tell a progress.
enum { CONTROL_REPLY_MIN = offsetof(struct control_reply, progress_milli) };

// Connects and sends; returns a non-blocking descriptor to read the reply from. -ENOENT or
// -ECONNREFUSED: the shepherd does not listen yet (a moment after its start) or any more.
int launch_control_send(int spool_fd, uint64_t job, uint32_t attempt, const struct control_request *r,
                        const int *fds, int nfds);
// Waits up to timeout_ms for the reply and closes the descriptor.
int launch_control_receive(int fd, int timeout_ms, struct control_reply *out);
// Without waiting, for a reply that brings a descriptor: it, or a negative errno. `fd` stays open.
int launch_control_receive_fd(int fd);
// Both, again and again for timeout_ms while the shepherd does not listen yet.
int launch_control_call(int spool_fd, uint64_t job, uint32_t attempt, const struct control_request *r,
                        const int *fds, int nfds, int timeout_ms, struct control_reply *out);
