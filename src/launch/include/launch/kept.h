// A kept output file: what an attached job (`acequia run`) has printed, one file per stream in the agent's
// own folder. It begins with a header that writer (shepherd; agent for terminals) and agent map. The bytes on
// disk are bounded: while the job's client is connected the writer waits at the limit, and what the client
// has read is given back to the file system; without a client output over the limit is dropped and counted.
// Each member is written by one side only.
#pragma once
#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

enum {
    KEPT_HEAD_BYTES = 4096,        // data begins here
    KEPT_STREAM_BYTES = 64 << 20,  // most that one stream of a job holds on disk,
    KEPT_LEAST_BYTES = 1 << 20,    // and least, however many streams its user has
    KEPT_BEHIND_BYTES = 16 << 20,  // kept behind the client's position, for a client that connects again
    KEPT_FREE_BYTES = 1 << 20,     // given back in pieces of at least this
    KEPT_OVER_BYTES =
        1 << 20,  // accepted over the limit: a piece read before it, what a pipe holds at the end
};

struct kept_head {
    char magic[8];
    uint32_t uid;
    _Atomic uint32_t limit_mib;  // by the agent: less than the usual, of a user with many; 0: the usual
    // by the writer
    _Atomic uint64_t len;     // bytes ever written to the file
    _Atomic uint64_t lost;    // bytes dropped at the limit
    // by the agent
    _Atomic uint64_t start;   // bytes before this were read by the client and given back
    _Atomic uint32_t client;  // a client is connected, or may connect again soon
};

struct kept_file {
    int fd;  // -1: none
    struct kept_head *head;
};

// Writes the header of a new, empty file and maps it. On success the descriptor belongs to *out.
int launch_kept_create(int fd, uint32_t uid, struct kept_file *out);
// -EBADMSG: not such a file.
int launch_kept_open(int fd, struct kept_file *out);
void launch_kept_close(struct kept_file *k);
#define cleanup_kept __attribute__((__cleanup__(launch_kept_close)))
// The file may hold so much from now on, between KEPT_LEAST_BYTES and KEPT_STREAM_BYTES, in steps of a MiB. What it
// holds already stays until the client has read it.
void launch_kept_limit(struct kept_file *k, uint64_t bytes);
// Whether the writer has to wait for the client.
bool launch_kept_blocked(const struct kept_file *k);
// `drain`: the job has ended and cannot wait. What does not fit is counted as lost.
void launch_kept_append(struct kept_file *k, const void *data, size_t len, bool drain);
// Up to `size` bytes from position `at` of the stream, which is not before head->start; 0: no more yet.
ssize_t launch_kept_read(const struct kept_file *k, uint64_t at, void *out, size_t size);
// The client has everything before `at`. A negative errno: the file system cannot give back parts of a file.
int launch_kept_acknowledge(struct kept_file *k, uint64_t at);
