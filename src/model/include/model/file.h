// Requests about users' files: what an agent is asked (MESSAGE_FILE), what it answers (MESSAGE_FILE_RESULT, and for
// contents STREAM_DATA and STREAM_END), and how names are written as text. Linux's names are bytes; as text, '%',
// control characters and bytes that are not UTF-8 are written as %XX, so that every name has a text, and one only.
#pragma once
#include "base/arena.h"
#include "base/buf.h"
#include "base/error.h"
#include "base/schema.h"

enum {
    FILE_PATH_MAX = 4095,  // bytes of a path
    FILE_TEXT_MAX = 3 * FILE_PATH_MAX,
    FILE_PIECE_MAX = 4 << 20,   // bytes of one piece of an upload
    FILE_PAGE_MAX = 1000,       // entries in one answer
    FILE_FRAME_MAX = 1 << 20,   // bytes of one message of the process that works on files
    FILE_USES_MAX = 256,        // places of a user's running jobs that are looked at
    FILE_UPLOAD_NAME_MAX = 64,  // characters of the name of an upload
    FILE_UPLOAD_DAYS = 7,       // unfinished uploads are removed after this
};

enum file_operation {
    FILE_LIST,  // what a path is, and a folder's entries
    FILE_READ,
    FILE_WRITE,  // one piece of an upload
    FILE_REMOVE,
    FILE_MKDIR,
    FILE_MOVE,
    FILE_COPY,
    FILE_ZIP,    // a folder as one archive
    FILE_SPACE,  // what a path's file system is, also of one that is not there yet
};
extern const char *const file_operation_words[];

enum file_type { FILE_REGULAR, FILE_FOLDER, FILE_LINK, FILE_OTHER };
extern const char *const file_type_words[];

// A place that a running job works in or writes to.
struct file_use {
    uint64_t job;
    const char *name, *path;
};

struct file_request {
    uint64_t stream, credit;
    enum file_operation operation;
    const char *user;  // whose files, and as whom
    uint32_t uid;
    const char *folder;     // where paths that are not absolute begin, as it is; NULL: the user's home
    const char *path, *to;  // as text, see below
    const char *after;      // list: entries after this name
    uint32_t limit;
    uint64_t offset, length;  // read: length 0: to the end
    uint64_t last;            // read: this many bytes at the end, instead of `offset`
    uint64_t size;            // write: of the whole file
    const char *upload;       // write: names the upload, so that it can go on later
    struct bytes data;
    const char *match;  // write, remove: only if the file has this version; read: else all of it
    bool create;        // write, move, copy: only if there is no such file
    bool recursive;     // remove: with all that is in it; mkdir: with the folders above it
    bool
        visible_only;  // for tokens that only read: nothing in hidden files and folders, which hold credentials
    LIST(struct file_use) uses;  // remove: is refused for these and for folders above them
};

struct file_entry {
    const char *name;
    enum file_type type;
    uint64_t size;
    int64_t modified_ms;
    uint32_t mode;        // permission bits
    const char *target;   // of a link
    const char *version;  // of a plain file
};

struct file_result {
    uint64_t stream;
    int32_t error;     // an errno of Linux; 0: done
    const char *text;  // of the error
    struct file_entry *entry;
    const char *path, *home;
    LIST(struct file_entry) entries;
    const char *next;        // the last name of a page that is not the last one
    bool truncated;          // the folder has more entries than are looked at
    uint64_t offset;         // write: bytes of the upload that are there
    bool complete;           // write: it has taken the file's place
    bool working;            // nothing yet: a sign of life
    uint64_t first, length;  // read: what follows
    // list: what the folder's file system holds, and what of it is free for the user; a folder with a quota of its own
    // (project quotas of ext4 and XFS) has the figures of that. 0: not known.
    uint64_t space_bytes, space_free_bytes;
    const char *file_system;  // space: its kind, as ext4
    bool quota;               // space: it keeps limits for folders (project quotas)
};

// For the process that works on files: who it is to become, and what to do.
struct file_order {
    bool switch_user;
    uint32_t uid, gid;
    LIST(uint32_t) groups;
    const char *home;
    struct file_request *request;
};
extern const struct schema file_request_schema, file_entry_schema, file_result_schema, file_order_schema;

void file_name_write(const char *bytes, size_t len, struct buf *out);
// -EINVAL: it is no text of a name; at most FILE_PATH_MAX bytes.
int file_name_read(const char *text, struct buf *out, struct error *e);
