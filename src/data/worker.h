// The processes that run functions and models on batches (data_worker.py), one packet socket each. Messages are JSON;
// values lie in the shared memory.
#pragma once
#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

#include "base/buf.h"
#include "base/json.h"

enum { DATA_PACKET_MAX = 256 << 10, DATA_WORKER_ARGS = 8 };

enum data_worker_state { DATA_WORKER_NONE, DATA_WORKER_STARTING, DATA_WORKER_READY, DATA_WORKER_BUSY };

struct data_worker {
    uint32_t stage, index;
    enum data_worker_state state;
    pid_t pid;
    int fd;
    uint32_t lost;           // times it ended by itself without a result in between
    uint64_t wants;          // bytes of room it waits for
    uint64_t room_at, room_size;  // given for the result that it is making
    uint64_t job;            // what it was last told to do, to recognize its answer
};

struct data_worker_setup {
    const char *python, *program, *settings;
    int memory_fd;
    uint64_t memory_size;
    uint32_t threads;
    const char *gpus;  // for CUDA_VISIBLE_DEVICES; NULL: as it is
};
int data_worker_start(struct data_worker *w, const struct data_worker_setup *setup, struct error *e);
int data_worker_send(struct data_worker *w, const struct buf *message);
// 1: a message in `out`; 0: none now; -EPIPE: the other side is gone.
int data_worker_receive(struct data_worker *w, struct buf *out);
void data_worker_kill(struct data_worker *w, int *status);  // and waits for its end
