// Requests and answers about users' files.
#pragma once
#include "base/schema.h"
#include "model/file.h"

struct query_file {  // one thing, wherever it is
    const char *path, *job, *node;
    bool recursive;
};
struct query_file_remove {
    const char *path, *job, *node;
    bool recursive, force;
};
struct query_files {
    const char *path, *job, *node, *after;
    uint32_t limit;
    bool optional;
};
struct query_file_content {
    const char *path, *job, *node;
    bool view;
};
struct query_file_write {
    const char *path, *job, *node, *upload;
    uint64_t offset, size;
    uint64_t given[1];
};
struct request_folder {
    const char *path, *job, *node;
    bool parents;
};
struct request_file_move {
    const char *path, *to, *job, *node;
    bool replace;
};
extern const struct schema query_file_schema, query_file_remove_schema, query_files_schema,
    query_file_content_schema, query_file_write_schema, request_folder_schema, request_file_move_schema;

struct answer_files {
    const char *node, *path, *home;
    struct file_entry *entry;
    LIST(struct file_entry) entries;
    const char *next;
    bool truncated;
    uint64_t space_bytes, space_free_bytes;
};
struct answer_file_space {
    const char *node, *path, *file_system;
    bool exists, quota;
    uint64_t space_bytes, space_free_bytes;
};
struct answer_file_written {
    const char *node;
    uint64_t offset;
    bool complete;
    struct file_entry *entry;
};
extern const struct schema answer_files_schema, answer_file_space_schema, answer_file_written_schema;
