// The PMI-1 and PMI-2 wire protocols, as the clients in MPICH, Intel MPI and Slurm's libpmi2 speak them: lines of
// `key=value` words, after a PMI-2 init records with a length of six digits before them. Pure: bytes of the tasks on
// this node go in, answers and what the step's nodes must agree on come out.
//
// A fence is over when every task of the step has entered it. What tasks have put since the last one is then known to
// all. Tasks are numbered 0 … on this node; ranks count over the whole step.
#pragma once
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/buf.h"
#include "mpi/spawn.h"

enum {
    PMI_KEY_MAX = 64,
    PMI_VALUE_MAX = 1024,
    PMI_LINE_MAX = 64 << 10,          // of one command
    PMI_TASK_BYTES_MAX = 1 << 20,     // that one task may put between two fences
    PMI_WORLD_BYTES_MAX = 256 << 20,  // that is kept of all tasks
    PMI_TEXT_MAX = 256,
};

struct pmi_host {
    // Bytes for a task. They are its socket's to keep until it reads them.
    void (*reply)(void *ctx, uint32_t task, const void *data, size_t len);
    // All tasks here are in the fence. What they have put is for the other nodes; answer pmi_fence_done.
    void (*fence)(void *ctx, const void *data, size_t len);
    void (*abort)(void *ctx, uint32_t rank, int code, const char *text);
    // A task asks for further ranks; the group is its own until the answer, pmi_spawn_done.
    void (*spawn)(void *ctx, uint32_t task, const struct spawn_group *g);
};

struct pmi_options {
    uint32_t size;           // tasks of the step
    uint32_t nodes;          // of the step
    const uint32_t *places;  // by rank: the number of its node
    const uint32_t *ranks;   // of the tasks here
    uint32_t tasks;          // here
    const char *name;        // of the step, for programs
    const char *spawned;     // the variable ACEQUIA_MPI_SPAWN; NULL: nobody has asked for these ranks
};

struct pmi_world;
struct pmi_world *pmi_world_new(const struct pmi_options *o, const struct pmi_host *host, void *ctx);
struct pmi_world *pmi_world_free(struct pmi_world *w);
// False: the task does not speak PMI; nothing more is read from it.
bool pmi_task_data(struct pmi_world *w, uint32_t task, const void *data, size_t len);
// Its end of the socket is closed. True: it had begun MPI and not finished it.
bool pmi_task_gone(struct pmi_world *w, uint32_t task);
bool pmi_task_runs(const struct pmi_world *w, uint32_t task);  // it has begun MPI and not finished it
// `wrong`: why they are not started, in words with _ between; NULL: they are.
void pmi_spawn_done(struct pmi_world *w, uint32_t task, const char *wrong);
// What all nodes have put, in any order, one after the other. False: it cannot be read.
bool pmi_fence_done(struct pmi_world *w, const void *data, size_t len);
// Where the ranks are, as "(vector,(first node,nodes,tasks per node),…)".
void pmi_mapping(const struct pmi_options *o, struct buf *out);
