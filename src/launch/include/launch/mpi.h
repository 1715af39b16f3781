// What the shepherd and the helper of an MPI step (acequia-mpi, one per step and node, as the user) tell each other
// over a socket pair: records of a fixed size, some with a descriptor. The helper ends when the shepherd's end closes.
//
// In the attempt's folder, for the agent alone: `mpi.N`, where the helper of step N listens, or that it asks where the
// first node's helper does; it goes when the helpers have found each other. `hub.N`: the answer, from the agent.
#pragma once
#include <stdint.h>

enum {
    MPI_KEY_BYTES = 16,
    MPI_ADDRESS_MAX = 64,
    MPI_TEXT_MAX = 256,
    MPI_HELPER_FD = 3,
    MPI_TASK_FD = 4,
    MPI_ENVIRONMENT_MAX = 16 << 10
};

enum mpi_note_type {
    MPI_TASK = 1,   // shepherd: a task of this rank is started; its end of the socket comes along
    MPI_HUB,        // shepherd: where the first node's helper listens
    MPI_LISTENS,    // helper: on this port, with this key; port 0: it asks where the first node's helper is
    MPI_CONNECTED,  // helper: the nodes have found each other
    MPI_ABORT,      // helper: the step is to end; `text` says why, for people; `code`: of MPI_Abort, else 0
};

struct mpi_note {
    uint32_t type;
    uint32_t rank;
    int32_t code;
    uint32_t port;
    uint8_t key[MPI_KEY_BYTES];  // what the helpers know each other by
    char address[MPI_ADDRESS_MAX];
    char text[MPI_TEXT_MAX];
};

// A task first reads what is added to its environment: this number of bytes, then NUL-terminated "NAME=value" texts.
// After that the socket is the program's own (PMI_FD).
struct mpi_environment {
    uint32_t len;
};
