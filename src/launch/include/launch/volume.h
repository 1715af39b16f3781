// Folders of volumes, made by root just before a process of the job becomes its user. Everything above a volume's
// folder is root's and writable by nobody else, and no link is followed below the root folder: nobody can have a folder
// made, or given away, anywhere else.
#pragma once
#include <stdbool.h>
#include <stdint.h>

#include "base/arena.h"
#include "base/error.h"

struct launch_request;
struct volume_folder {
    const char *root, *path,
        *title;  // path: below root, of several parts; of an NFS export, where it is mounted
    uint32_t uid, gid, mode;
    uint64_t number, size_bytes;
    bool shared, read_only;  // the job's user is let in; for reading only
};
// As a line of a launch request, and back; -EBADMSG.
const char *launch_volume_text(const struct volume_folder *v, struct arena *a);
int launch_volume_read(const char *text, struct arena *a, struct volume_folder *out);
// Makes what is missing. `user` is the job's. 1: done, but the file system has no quota for its size.
int launch_volume_make(const struct volume_folder *v, uint32_t user, struct error *e);

// nfs.c: exports that are mounted for one job, whose `root` is nfs://server/path.
bool launch_volume_is_nfs(const struct volume_folder *v);
// Where the job's volume of this number is mounted.
const char *launch_nfs_folder(uint32_t index, struct arena *a);
// Mounts it in a mount namespace of the calling process, which is made by the first one (`entered`).
int launch_nfs_mount(const struct volume_folder *v, bool *entered, struct error *e);
// For a further process of a job: folders of volumes are there, mounts are to be made again.
void launch_volumes_keep_nfs(struct launch_request *r);
