// Folders of volumes, made by root just before a process of the job becomes its user. Everything above a volume's
// folder is root's and writable by nobody else, and no link is followed below the root folder: nobody can have a folder
// made, or given away, anywhere else.
#pragma once
#include <stdbool.h>
#include <stdint.h>

#include "base/arena.h"
#include "base/error.h"

struct volume_folder {
    const char *root, *path, *title;  // path: below root, of several parts
    uint32_t uid, gid, mode;
    uint64_t number, size_bytes;
    bool shared, read_only;  // the job's user is let in; for reading only
};
// As a line of a launch request, and back; -EBADMSG.
const char *launch_volume_text(const struct volume_folder *v, struct arena *a);
int launch_volume_read(const char *text, struct arena *a, struct volume_folder *out);
// Makes what is missing. `user` is the job's. 1: done, but the file system has no quota for its size.
int launch_volume_make(const struct volume_folder *v, uint32_t user, struct error *e);
