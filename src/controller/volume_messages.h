// Requests and answers about volumes.
#pragma once
#include "base/schema.h"

struct query_volume {
    const char *project, *user;
};
struct request_volume {
    const char *name, *project, *at;
    uint64_t size_bytes;
    uint32_t mode;
};
struct request_volume_share {
    const char *with, *project, *user;
    bool read_only, revoke;
};
extern const struct schema query_volume_schema, request_volume_schema, request_volume_share_schema;

struct answer_volume {
    const char *name, *title, *user, *project, *folder, *by;
    uint64_t size_bytes;
    uint32_t mode;
    LIST(const char *) readers;
    LIST(const char *) writers;
    int64_t made_ms;
    uint64_t job, other_jobs;
    LIST(uint64_t) jobs;
};
struct answer_volumes {
    LIST(struct answer_volume) volumes;
};
extern const struct schema answer_volume_schema, answer_volumes_schema;
