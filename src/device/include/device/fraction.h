// Fractions of a GPU as files: the ledger that a job's processes share, and the arbiter through which
// jobs on one GPU take turns. Made and removed by the agent, enforced by the shim in the processes.
#pragma once
#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

#include "model/node.h"

enum { FRACTION_PATH_MAX = 512, FRACTION_WHOLE_MILLI = 1000 };

struct fraction {
    const char *job;            // names its ledger's owner, "12.1"
    const char *folder;         // the job's own, for its ledgers
    const char *arbiter_folder; // the node's
    uint32_t milli;
    uint64_t memory_bytes;      // 0: its share of the GPU's memory
    uid_t uid;                  // who must be able to write it; -1: whoever makes it
    gid_t gid;
};

// Makes the ledger (its path comes back) and, if there is none, the GPU's arbiter.
int gpu_fraction_make(const struct fraction *f, const struct gpu *gpu, char path[FRACTION_PATH_MAX]);
// Where the ledger of that GPU lies.
int gpu_fraction_path(const char *folder, const char *uuid, char path[FRACTION_PATH_MAX]);
// Removes the ledger and the job's turn; nothing happens where there is none.
void gpu_fraction_forget(const char *folder, const char *arbiter_folder, const char *uuid, const char *job);
// Jobs can write to their ledger and to the arbiter, so they could enlarge them and fill the file system. Cuts
// such a file back to its size, which no process that uses it notices. True: it was enlarged.
bool gpu_fraction_trim_ledger(const char *path);
bool gpu_fraction_trim_arbiter(const char *folder, const char *uuid);
