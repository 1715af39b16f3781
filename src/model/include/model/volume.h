// Volumes: folders on storage that nodes share, of a user or of a project, and how a job names one:
//   data:/path          the user's own volume, else that of the job's project
//   ~ana/data:/path     a volume of user ana
//   vision/data:/path   a volume of project vision
//   /srv/data:/path     a folder of the node
// each with :ro at the end for reading only. The path may be left out for a folder of the node.
#pragma once
#include <stdbool.h>
#include <stdint.h>

#include "base/arena.h"
#include "base/error.h"

enum {
    VOLUMES_PER_OWNER = 100,
    VOLUMES_PER_JOB = 32,
    VOLUME_USERS_MAX = 64,  // that one is shared with
    VOLUME_MODE_MAX = 03777,
    VOLUME_TEXT_MAX = 4095,
};

struct volume_wish {
    const char *user, *project;  // whose; both NULL: as the rules above have it
    const char *name;            // NULL: a folder of the node
    const char *from;            // that folder
    const char *to;
    bool read_only;
};
int volume_wish_parse(const char *text, struct arena *a, struct volume_wish *out, struct error *e);
int volume_wishes_check(const char *const *at, uint32_t len, struct error *e);
// As in a wish: "~ana/data" or "vision/data".
const char *volume_title(struct arena *a, const char *user, const char *project, const char *name);
// From what a person writes for a volume: "data", "~ana/data", "vision/data".
int volume_title_parse(const char *text, struct arena *a, struct volume_wish *out, struct error *e);

// Where a volume lies if not below the cluster's folder for volumes.
enum volume_place {
    VOLUME_FOLDER,  // /mnt/imagenet: a folder that the nodes have
    VOLUME_NFS,     // nfs://server/export: mounted by root for each job
    VOLUME_BUCKET,  // s3://bucket[/prefix][?endpoint=URL]: mounted by the job's user, with their credentials
};
struct volume_source {
    enum volume_place place;
    const char *server, *path;    // NFS
    const char *bucket, *prefix;  // prefix: NULL for the whole bucket
    const char *endpoint;         // of a store that is not Amazon's; NULL
};
int volume_source_parse(const char *text, struct arena *a, struct volume_source *out, struct error *e);
