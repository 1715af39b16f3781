// One output file as it is read for somebody: opened when it is there, from a position, its beginning or its
// last lines, from the beginning again when it was emptied, and the next one when it was replaced (rotated). Calls
// block as long as the file system does: the loop uses it for the agent's own files alone. System calls only, safe
// after fork.
#pragma once
#include <stdint.h>
#include <sys/types.h>

struct log_file {
    const char *path;
    int64_t tail_lines;  // < 0: all
    uint64_t from;       // position to begin at, in the file `id`; another file is read from its beginning
    uint64_t id;         // of the file that is open (its inode); 0 at first: any
    int fd;              // -1: not opened yet
    off_t at;
    int64_t written_ms;  // when the file was last written to, as of the last read
};

// More bytes, 0 when there is nothing new, or a negative errno: -ENOENT while there is no such file,
// -EBADF when it is not a plain file. `at` and `id` then say where what was read ends.
ssize_t stream_log_file_read(struct log_file *f, void *out, size_t size);
// Where the last `lines` lines between two places of a file begin; lines < 0: all.
off_t stream_log_file_tail(int fd, int64_t lines, off_t first, off_t end);
void stream_log_file_done(struct log_file *f);
