// Connections between the helpers of a step: the first node's is the hub, the others connect to it. Each side proves
// that it knows the step's key before anything else is read. Pure: bytes in, frames and bytes out.
#pragma once
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/buf.h"
#include "launch/mpi.h"

enum {
    LINK_NONCE_BYTES = 16,
    LINK_FRAME_MAX = 256 << 20,
    LINK_PROOF_MAX = 64,  // of a frame before both sides are known
};

enum link_frame {
    LINK_HELLO = 1,   // node, nonce
    LINK_CHALLENGE,   // nonce, tag
    LINK_PROOF,       // tag
    LINK_FENCE,       // what the tasks of a node have put
    LINK_FENCE_DONE,  // the same of all nodes
    LINK_COLLECT,     // a PMIx collective: who takes part, data
    LINK_COLLECT_DONE,
    LINK_ASK,  // for the data of a rank of another node
    LINK_TOLD,
    LINK_ABORT,  // rank, code, text
    LINK_BYE,    // the tasks of a node have ended
    LINK_FRAMES,
};

struct mpi_link {
    bool hub;       // this side is
    bool open;      // both sides are known
    bool said_bye;  // by the other side
    uint32_t node;  // of the other side; at the hub after its hello
    uint8_t key[MPI_KEY_BYTES];
    uint8_t nonce[LINK_NONCE_BYTES], other[LINK_NONCE_BYTES];
    struct buf in, out;
    struct buf held;  // what is to be sent once it is open
};

void link_init(struct mpi_link *l, bool hub, uint32_t node, const uint8_t key[static MPI_KEY_BYTES],
               const uint8_t nonce[static LINK_NONCE_BYTES]);
void link_done(struct mpi_link *l);
void link_send(struct mpi_link *l, enum link_frame type, const void *data, size_t len);
// Frames after the proof go to `fn`, which may send. Returns when the link opens: what came with the proof is read by
// the next call, which may bring no data. 0, or a negative errno: the connection is of no use.
typedef int link_fn(void *ctx, struct mpi_link *l, enum link_frame type, const char *data, size_t len);
int link_data(struct mpi_link *l, const void *data, size_t len, link_fn *fn, void *ctx);
