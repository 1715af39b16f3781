// What the shepherd and the helper of an MPI step (acequia-mpi, one per step and node, as the user) tell each other
// over a socket pair: records of a fixed size, some with a descriptor. The helper ends when the shepherd's end closes.
//
// In the attempt's folder, for the agent alone: `mpi.N`, where the helper of step N listens, or that it asks where the
// first node's helper does; it goes when the helpers have found each other. `hub.N`: the answer, from the agent.
#pragma once
#include <inttypes.h>
#include <stdint.h>
#include <stdio.h>

enum {
    MPI_KEY_BYTES = 16,
    MPI_ADDRESS_MAX = 64,
    MPI_TEXT_MAX = 256,
    MPI_FOLDER_MAX = 64,
    MPI_HELPER_FD = 3,
    MPI_ENVIRONMENT_FD = 4,  // of the helper: the variables of the step, each with its NUL, in a file without a name
    MPI_TASK_FD = 4,         // of a task
    MPI_ENVIRONMENT_MAX = 16 << 10
};

enum mpi_note_type {
    MPI_TASK = 1,   // shepherd: a task of this rank is started; its end of the socket comes along
    MPI_HUB,        // shepherd: where the first node's helper listens
    MPI_LISTENS,    // helper: on this port, with this key; port 0: it asks where the first node's helper is
    MPI_CONNECTED,  // helper: the nodes have found each other
    MPI_ABORT,      // helper: the step is to end; `text` says why, for people; `code`: of MPI_Abort, else 0
    MPI_GROUPS,     // helper: `rank` groups that its ranks have started are not over; neither is the step
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

// A folder in memory for what the ranks of a step on one node share, the user's own. The shepherd makes it before the
// helper, which is told by the variable ACEQUIA_MPI_FOLDER, and removes it with all that ranks have left there, also
// those that were killed.
static inline const char *mpi_folder(char out[static MPI_FOLDER_MAX], uint64_t id, uint32_t step) {
    snprintf(out, MPI_FOLDER_MAX, "/dev/shm/acequia-mpi-%016" PRIx64 "-%u", id, step);
    return out;
}

// A task first reads what is added to its environment: this number of bytes, then NUL-terminated "NAME=value" texts;
// "?NAME=value" is for those that have no such variable yet.
// After that the socket is the program's own (PMI_FD). The first task on a node sends one byte before, with its output
// and error: where the output of ranks goes that its own ones start.
struct mpi_environment {
    uint32_t len;
};
