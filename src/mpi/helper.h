// What the files of the helper of an MPI step share: its state, and how they reach each other.
#pragma once
#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

#include "base/arena.h"
#include "base/buf.h"
#include "base/vec.h"
#include "launch/mpi.h"
#include "mpi/link.h"
#include "mpi/pmi.h"
#include "pmix.h"

struct task {
    int fd;  // -1: not started yet, or gone
    bool started, pmix_joined, pmix_finished, said_joined, deaf;
    struct buf out;
};

struct peer {
    int fd;
    bool connecting, joined;
    int64_t since_ms;
    struct mpi_link link;
};

struct collective {  // at the hub
    char *signature;
    uint32_t *nodes, count, got;
    struct buf *data;  // by place in `nodes`
    bool *has;
};

struct mpi_waiting {  // a collective of this node
    char *signature;
    void *token;
};

struct mpi_group {  // of ranks that ranks here have asked for
    pid_t pid;      // of its srun
    int fd;         // readable when that has ended
};

struct mpi_helper {
    struct arena arena;
    struct pmi_options o;
    uint32_t node;
    const char *node_list, *folder, *tools;
    VEC(struct mpi_group) groups;
    int output[2];  // where their output goes; -1: not known
    bool pmi, pmix, container;
    struct pmi_world *world;
    struct pmix_server *server;
    struct buf open_mpi;  // variables of its ranks
    struct task *tasks;
    int control, listener;
    uint8_t key[MPI_KEY_BYTES];
    struct peer *peers;          // at the hub by node; elsewhere [0] is the hub
    VEC(struct peer) strangers;  // at the hub: those that have not proved the key
    struct buf *fence;           // at the hub: what nodes have put
    bool *fence_has;
    uint32_t fence_got;
    VEC(struct collective) collectives;
    VEC(struct mpi_waiting) waiting;
    struct mpi_note hub;  // where to connect
    bool has_hub;
    int64_t connect_at_ms, connect_until_ms;
    bool connected_said, aborted, over;
    uint32_t joined, finished;  // tasks here
    bool joined_said;
};

enum { MPI_GROUPS_MAX = 64 };

void helper_say(struct mpi_helper *h, struct mpi_note *n);  // to the shepherd
bool helper_is_hub(const struct mpi_helper *h);
void helper_send(struct mpi_helper *h, uint32_t node, enum link_frame type, const void *data, size_t len);
uint32_t helper_task_of(const struct mpi_helper *h, uint32_t rank);  // UINT32_MAX: on another node
// Ends the step: here, on the other nodes, on all. `text`: for people, "" when it was said elsewhere.
void helper_abort_here(struct mpi_helper *h, uint32_t rank, int code, const char *text);
void helper_abort_others(struct mpi_helper *h, uint32_t rank, int code, const char *text);
void helper_abort(struct mpi_helper *h, uint32_t rank, int code, const char *text);

// groups.c: a callback of the PMI server, and the end of one.
void groups_start(void *ctx, uint32_t task, const struct spawn_group *g);
void groups_ended(struct mpi_helper *h, uint32_t index);

// exchange.c: what the nodes exchange. Callbacks of the two servers, and frames of other nodes.
void exchange_fence(void *ctx, const void *data, size_t len);
void exchange_collect(void *ctx, const char *signature, const uint32_t *nodes, uint32_t count, const void *data,
                      size_t len, void *token);
void exchange_ask(void *ctx, uint32_t rank, void *token);
void exchange_answer(void *ctx, uint64_t question, int32_t status, const void *data, size_t len);
int exchange_frame(void *ctx, struct mpi_link *l, enum link_frame type, const char *data, size_t len);
