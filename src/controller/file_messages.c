// The tables of requests and answers about users' files.
#include "file_messages.h"

#define PATH_HELP                                                                                            \
    "Absolute, or below the home (~), or with job below the folder of the job. '%' is written as %25, "      \
    "bytes that are "                                                                                        \
    "not UTF-8 as %XX."
#define JOB_HELP "Paths are below the folder of this job, on its node."
#define NODE_HELP "On this node; else on the controller's machine, or on any that is connected."

#define S struct query_file
static const struct field file_fields[] = {
    FIELD(1, S, path, PATH_HELP, .required = true, .min = 1, .max = FILE_TEXT_MAX),
    FIELD(2, S, job, JOB_HELP),
    FIELD(3, S, node, NODE_HELP),
    FIELD(4, S, recursive, "A folder with all that is in it."),
};
const struct schema query_file_schema = SCHEMA(S, "the query", file_fields);
#undef S
#define S struct query_file_remove
static const struct field remove_fields[] = {
    FIELD(1, S, path, PATH_HELP, .required = true, .min = 1, .max = FILE_TEXT_MAX),
    FIELD(2, S, job, JOB_HELP),
    FIELD(3, S, node, NODE_HELP),
    FIELD(4, S, recursive, "A folder with all that is in it."),
    FIELD(5, S, force, "Also what a running job of yours works in or writes to."),
};
const struct schema query_file_remove_schema = SCHEMA(S, "the query", remove_fields);
#undef S
#define S struct query_files
static const struct field files_fields[] = {
    FIELD(1, S, path, PATH_HELP, .max = FILE_TEXT_MAX),
    FIELD(2, S, job, JOB_HELP),
    FIELD(3, S, node, NODE_HELP),
    FIELD(4, S, after, "Entries after this name: `next` of the page before.", .max = FILE_TEXT_MAX),
    FIELD(5, S, limit, "At most so many entries; 1000 unless given.", .min = 1, .max = FILE_PAGE_MAX),
    FIELD(6, S, optional, "A path that is not there is an answer without an entry, not an error."),
};
const struct schema query_files_schema = SCHEMA(S, "the query", files_fields);
#undef S
#define S struct query_file_content
static const struct field content_fields[] = {
    FIELD(1, S, path, PATH_HELP, .required = true, .min = 1, .max = FILE_TEXT_MAX),
    FIELD(2, S, job, JOB_HELP),
    FIELD(3, S, node, NODE_HELP),
    FIELD(4, S, view,
          "Pictures, sound and video with their type, for a page; everything else stays a download."),
};
const struct schema query_file_content_schema = SCHEMA(S, "the query", content_fields);
#undef S
#define S struct query_file_write
static const struct field write_fields[] = {
    FIELD(1, S, path, PATH_HELP, .required = true, .min = 1, .max = FILE_TEXT_MAX),
    FIELD(2, S, job, JOB_HELP),
    FIELD(3, S, node, NODE_HELP),
    FIELD(4, S, upload,
          "Names the upload (letters, digits, '-', '_'), to go on with it after an interruption.", .min = 1,
          .max = FILE_UPLOAD_NAME_MAX),
    FIELD(5, S, offset, "Where the piece begins; 0 unless given.", .min = 0, .max = INT64_MAX),
    FIELD(6, S, size, "Bytes of the whole file; those of the body unless given.", .min = 0, .max = INT64_MAX),
};
const struct schema query_file_write_schema = SCHEMA_GIVEN(S, "the query", write_fields);
#undef S
#define S struct request_folder
static const struct field folder_fields[] = {
    FIELD(1, S, path, PATH_HELP, .required = true, .min = 1, .max = FILE_TEXT_MAX),
    FIELD(2, S, job, JOB_HELP),
    FIELD(3, S, node, NODE_HELP),
    FIELD(4, S, parents, "Also the folders above it."),
};
const struct schema request_folder_schema = SCHEMA(S, "a folder", folder_fields);
#undef S
#define S struct request_file_move
static const struct field move_fields[] = {
    FIELD(1, S, path, PATH_HELP, .required = true, .min = 1, .max = FILE_TEXT_MAX),
    FIELD(2, S, to, "The new path, name included.", .required = true, .min = 1, .max = FILE_TEXT_MAX),
    FIELD(3, S, job, JOB_HELP),
    FIELD(4, S, node, NODE_HELP),
    FIELD(5, S, replace, "What has the new name already is replaced."),
};
const struct schema request_file_move_schema = SCHEMA(S, "a move or copy", move_fields);
#undef S

#define S struct answer_files
static const struct field answer_files_fields[] = {
    FIELD(1, S, node, "Node that was asked."),
    FIELD(2, S, path, "The path without links."),
    FIELD(3, S, home, "The user's home on that node."),
    FIELD_SUB(4, S, entry, &file_entry_schema, "What the path is; null: nothing is there (optional)."),
    FIELD_LIST_SUB(5, S, entries, &file_entry_schema, "Of a folder: what is in it, by name."),
    FIELD(6, S, next, "There are more: give this as `after`."),
    FIELD(7, S, truncated, "The folder has more entries than are looked at (100,000)."),
    FIELD(8, S, space_bytes,
          "Of a folder: what its file system holds, or what a quota of its own lets it hold; 0: not known."),
    FIELD(9, S, space_free_bytes, "What of that is free."),
};
const struct schema answer_files_schema = SCHEMA(S, "files", answer_files_fields);
#undef S
#define S struct answer_file_space
static const struct field space_fields[] = {
    FIELD(1, S, node, "Node that was asked."),
    FIELD(2, S, path, "What was looked at: the path, or the nearest folder above it that is there."),
    FIELD(3, S, exists, "The path itself is there."),
    FIELD(4, S, file_system, "Its kind, as ext4."),
    FIELD(5, S, quota,
          "The file system keeps limits for single folders (project quotas), as sizes of volumes need."),
    FIELD(6, S, space_bytes, "What it holds, or what a quota of its own lets it hold."),
    FIELD(7, S, space_free_bytes, "What of that is free."),
};
const struct schema answer_file_space_schema = SCHEMA(S, "space for files", space_fields);
#undef S
#define S struct answer_file_written
static const struct field written_fields[] = {
    FIELD(1, S, node, "Node that was asked."),
    FIELD(2, S, offset, "Bytes of the upload that are there: where the next piece begins."),
    FIELD(3, S, complete, "The file is whole and has its name."),
    FIELD_SUB(4, S, entry, &file_entry_schema, "The file, when it is complete."),
};
const struct schema answer_file_written_schema = SCHEMA(S, "a written file", written_fields);
#undef S
