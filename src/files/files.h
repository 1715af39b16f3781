// acequia-files: one process for each request about a user's files, started by the agent. It becomes that user first
// and opens nothing before; whatever a file system does to it, the agent goes on. It reads its order from standard
// input and writes messages to standard output, each after its length; a slow reader blocks it there, so nothing piles
// up. Errors come back as negative errno with a sentence in `e`.
#pragma once
#include <stdbool.h>
#include <sys/stat.h>

#include "base/vec.h"
#include "model/file.h"
#include "model/message.h"

enum {
    FILES_LOOK_MAX = 100000,  // entries of a folder that are looked at
    FILES_DEPTH_MAX = 64,     // of folders inside each other, for archives and removal
    FILES_BLOCK = 64 << 10,   // read and written at a time
    FILES_NAME_MAX = 256,
};

struct files {
    const struct file_order *order;
    const struct file_request *request;
    struct arena arena;
    int64_t sign_ms;  // when the agent was last told that we are alive
};

// main.c: to the agent. Ends the process when nobody listens any more.
void files_send(struct files *f, enum message_type type, const void *body);
void files_data(struct files *f, const void *data, size_t len);
void files_working(struct files *f);  // to be called often while something takes long
int files_become(const struct file_order *o, struct error *e);

// path.c: paths are resolved as the kernel does for the user, but never through the links of /proc that lead to what
// other processes have open, and never into file systems of the kernel.
int files_path(const struct files *f, const char *text, struct buf *out,
               struct error *e);                                                      // absolute, as bytes
int files_open(struct files *f, const char *path, struct stat *st, struct error *e);  // O_PATH, follows links
int files_reopen(int fd, int flags);  // what an O_PATH descriptor stands for
int files_open_parent(struct files *f, const char *path, const char **name, struct error *e);
int files_check_place(const struct files *f, int fd, struct error *e);
const char *files_real_path(struct files *f, int fd);        // NULL: it has none any more
const char *files_text(struct files *f, const char *bytes);  // as text, for answers
bool files_is_hidden(const char *path);                      // some part of it begins with a dot
void files_describe(struct files *f, int folder, const char *name, const struct stat *st,
                    struct file_entry *out);
int files_fail(struct error *e, int error, const char *path);  // "PATH: what is wrong"

// One function for each operation; 0 with *r filled in, to be sent.
int files_list(struct files *f, struct file_result *r, struct error *e);
int files_read(struct files *f, struct file_result *r, struct error *e);
int files_write(struct files *f, struct file_result *r, struct error *e);
int files_remove(struct files *f, struct file_result *r, struct error *e);
int files_make_folder(struct files *f, struct file_result *r, struct error *e);
int files_move(struct files *f, struct file_result *r, struct error *e);
int files_copy(struct files *f, struct file_result *r, struct error *e);
int files_zip(struct files *f, struct file_result *r, struct error *e);
int files_space(struct files *f, struct file_result *r, struct error *e);

// copy.c: a folder (O_PATH) with all that is in it, to a place where nothing is yet.
int files_copy_folder(struct files *f, int folder, const char *path, const char *to, struct file_result *r,
                      struct error *e);
// tree.c
int files_remove_tree(struct files *f, int parent, const char *name);

// upload.c
int files_copy_content(struct files *f, int from, int to, uint64_t size);  // -ENODATA: it became shorter
struct files_upload {
    int parent, fd;    // the folder, and the partial file in it
    const char *name;  // of the file it becomes
    char partial[FILES_NAME_MAX];
};
void files_upload_name(const char *name, const char *upload, uint64_t size, char out[static FILES_NAME_MAX]);
bool files_upload_is_partial(const char *name);
// Puts the partial file into the place of `name`, with the mode of what was there.
int files_upload_finish(struct files *f, const struct files_upload *u, const char *path, struct error *e);
