// A process that reads one output file for the agent, as the job's user: whatever the file system
// does to it, the agent's loop goes on. It is asked for one piece at a time and answers with it.
#pragma once
#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

#include "base/users.h"

enum { LOG_READER_PIECE_MAX = 64 << 10 };

struct log_reader_order {
    const char *path;
    int64_t tail_lines;
    uint64_t from, file;           // as in log_file.h
    const struct user_info *user;  // to become; NULL: stays who it is
};

// Starts it. The caller owns both: a socket, and a child to be waited for. Closing the socket ends it
// unless it hangs; then it ends with what it hangs in.
int stream_log_reader_start(const struct log_reader_order *o, int *fd, pid_t *pid);
int stream_log_reader_ask(int fd, uint32_t bytes);
// What stream_log_file_read would have given; -EAGAIN: no answer yet; -EPIPE: it died. `at`: where that ends, in which
// file, and when that was last written to.
struct log_place {
    uint64_t file, at;
    int64_t written_ms;
};
ssize_t stream_log_reader_answer(int fd, void *out, size_t size, struct log_place *at);
