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
    const struct user_info *user;  // to become; NULL: stays who it is
};

// Starts it. The caller owns both: a socket, and a child to be waited for. Closing the socket ends it
// unless it hangs; then it ends with what it hangs in.
int stream_log_reader_start(const struct log_reader_order *o, int *fd, pid_t *pid);
int stream_log_reader_ask(int fd, uint32_t bytes);
// What stream_log_file_read would have given; -EAGAIN: no answer yet; -EPIPE: it died.
ssize_t stream_log_reader_answer(int fd, void *out, size_t size);
