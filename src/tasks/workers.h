// Worker processes of this node: their descriptors, orders to the template that forks them, what they write. Both the
// process of the head and those of other nodes have them.
#pragma once
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/buf.h"
#include "base/map.h"

enum { WORKERS_GPUS_MAX = 64 };

// A stream socket of which bytes are read and sent as it has room.
struct tasks_stream {
    int fd;
    uint32_t number;
    bool wants_write, paused;
    size_t unread_max;  // of what it was sent: who has more is asked for nothing until it reads; 0: no matter
    struct buf in, out;
};

int64_t tasks_now_us(void);
void tasks_watch(int epoll, int fd, uint64_t source, uint32_t number, uint32_t events, int op);
int tasks_stream_read(struct tasks_stream *s);  // 1: there may be more; 0: not now; negative: it has ended
bool tasks_stream_reads_nothing(const struct tasks_stream *s);
void tasks_stream_watch(struct tasks_stream *s, int epoll, uint64_t source, bool wants_write);
void tasks_stream_flush(struct tasks_stream *s, int epoll, uint64_t source);
void tasks_stream_done(struct tasks_stream *s);

struct worker_process {
    uint32_t number, conn;
    int channel, channel_end, output;
    struct buf tail;
};

struct workers {
    int epoll, control, memory_fd;
    uint64_t source;  // of events of their output
    uint64_t memory_bytes;
    uint8_t *memory;
    struct map processes;
    bool over;  // the template has ended
};

// Of the command line. False: it is not one of ours.
bool workers_init(struct workers *ws, const char *control, const char *memory);
bool workers_memory(struct workers *ws);
uint32_t workers_possible(uint32_t limit);  // by descriptors
// Starts one; returns our end of its stream.
int workers_start(struct workers *ws, uint32_t number, uint32_t conn, const char *gpus);
struct worker_process *workers_get(const struct workers *ws, uint32_t number);
int workers_give(struct workers *ws, uint32_t number, const void *packet, size_t len);
bool workers_take_back(struct workers *ws, uint32_t number, struct buf *packet);
void workers_stop(struct workers *ws, uint32_t number, bool kill);
void workers_output(struct workers *ws, uint32_t number, struct buf *out);
void workers_on_output(struct workers *ws, uint32_t number);
typedef void workers_ended_fn(void *ctx, uint32_t number, const char *how);
void workers_on_control(struct workers *ws, workers_ended_fn *ended, void *ctx);
void workers_forget(struct workers *ws, uint32_t number);
void workers_drop(const struct workers *ws, uint64_t at, uint64_t size);
void workers_done(struct workers *ws);
