// Files and folders as one stream of bytes, between here and a job's node. The receiver trusts the stream with
// nothing: names are checked one by one, symbolic links are never followed, nothing is written outside the folder it
// was told.
//
// The stream: "ACQCP1\n", the name of what is sent, then entries: a type, permissions, a path below what is sent ("" is
// itself), and by type pieces of a file until an empty one, or the target of a link. The last entry says that all was
// sent. Numbers are little-endian.
#pragma once
#include <stdbool.h>
#include <stdint.h>

#include "base/error.h"

struct job_transfer {
    uint64_t bytes, files;  // done
    uint64_t total;         // bytes of a single file; 0: not known
    uint32_t problems;      // entries that were left out, each of which was said
    bool recursive;
    bool named;          // receiving: as on file systems without unnamed files
    const char *wanted;  // receiving: the path that was asked for there; NULL: the sender chooses the name
    void (*note)(const char *text);                             // of what is left out
    void (*progress)(void *ctx, const struct job_transfer *t);  // after each piece; may be NULL
    void *ctx;
};

// Sends the file or folder. -EISDIR: a folder, and not recursive.
int job_transfer_send(int fd, const char *path, struct job_transfer *t, struct error *e);
// Receives into `path`: below it if it is a folder, else under that name. Where the path that is `wanted` ends in a
// name, what comes must have it. Where it does not ("." and the like) the sender knows the name alone: then it must be
// that of a folder, not hidden, and not there yet.
int job_transfer_receive(int fd, const char *path, struct job_transfer *t, struct error *e);
