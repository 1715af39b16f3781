// Inside acequia-box, the program that a container job is started through. It runs as the job's user,
// with no privilege, in the job's control group: it finds the image, unpacks it into the user's cache
// if need be, makes namespaces of its own, mounts what the job shall see, and becomes the job's
// program. No process stays in between, so process numbers, signals and exit codes are the program's;
// but where buckets of S3 are written to, one waits until all is sent.
#pragma once
#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

#include "base/arena.h"
#include "base/error.h"
#include "base/vec.h"
#include "launch/launch.h"
#include "model/job.h"
#include "model/mountspec.h"
#include "model/volume.h"

enum {
    BOX_LIST_MAX = 1024,          // mounts, devices, variables of an image
    BOX_CONFIG_MAX = 4 << 20,     // bytes of an image's configuration
    BOX_FILE_MAX = 1 << 20,       // bytes of a small file: passwd, resolv.conf
    BOX_REFERENCE_KEEP_S = 600,   // how long a tag is believed to mean the same image
    BOX_SIF_SEARCH = 64 << 20,    // bytes searched for the file system in a .sif
};

// Where our own things lie in every image.
#define BOX_OWN "/.acequia"
#define BOX_TOOLS BOX_OWN "/bin"
#define BOX_DRIVER BOX_OWN "/nvidia"

struct box_list {
    const char **at;
    uint32_t len, cap;
};

// A volume that is a bucket of S3.
struct box_bucket {
    const char *url, *to;
    bool read_only;
};
struct box_buckets {
    struct box_bucket at[VOLUMES_PER_JOB];
    uint32_t len;
};
// The processes that send what is written to buckets (bucket_send.c): a socket to each.
struct box_senders {
    int line[VOLUMES_PER_JOB];
    const char *url[VOLUMES_PER_JOB];
    uint32_t len;
};

// What the agent asks for.
struct box_wish {
    const char *image;  // NULL: none
    const char *cache, *workdir, *user, *home, *driver, *shim, *tools;
    uint64_t cache_bytes;
    const char *name;  // a container that is kept; NULL: changes go with the process
    enum job_pull pull;
    const char *entrypoint;  // with `docker`: instead of the image's own; "": none
    uint32_t join;           // a process in the container that is meant; 0: none
    bool docker;  // as docker does: arguments come after the entry point, in the image's working folder
    bool task;    // arguments are work on images
    struct mount_specs mounts;
    struct mount_specs volumes;      // without an image: the node as it is, and these
    struct box_buckets buckets;
    struct box_senders *senders;
    struct box_list devices, binds;  // binds: seen at the same path
    struct box_list env;             // NAME=value, over all others
    bool script, login;
    bool ssh;  // the node's ssh server is needed inside
    char **argv;
    int argc;
};

// What the image says of itself.
struct box_config {
    struct box_list env, entrypoint, command;
    const char *workdir, *rootfs;    // rootfs: of a bundle, as written there
    VEC(struct mount_spec) mounts;
};

// An image that can be entered.
struct box_image {
    const char *root;
    struct box_config config;
    bool bundle;
    bool kept;  // root is written to as it is
};

void box_list_add(struct box_list *l, struct arena *a, const char *text);

// config.c: decoders. A bundle's config.json, or an image's configuration.
int box_config_bundle(const char *text, size_t len, struct arena *a, struct box_config *out, struct error *e);
int box_config_image(const char *text, size_t len, struct arena *a, struct box_config *out, struct error *e);

// source.c: what the text after --container means.
enum box_kind { BOX_ROOTFS, BOX_BUNDLE, BOX_SQUASHFS, BOX_SKOPEO };
struct box_source {
    enum box_kind kind;
    const char *path;       // of a folder or squashfs file
    uint64_t offset;        // of the squashfs in the file
    const char *reference;  // for skopeo
    const char *identity;   // changes when the image may have changed
    bool remote;            // a registry is asked: a name may come to mean another image
    bool digested;          // the name is a digest, and means the same for ever
    bool plain_http;        // a registry on this machine
};
int box_source_find(const char *image, struct arena *a, struct box_source *out, struct error *e);
bool box_source_loopback(const char *name);  // at a registry on this machine

// tool.c: other programs, held to one folder that they can write to.
struct box_tool {
    char *const *argv;
    const char *folder;   // the only one that it may write to
    bool network;
    bool as_root;         // in its own namespace: may remove what has no write permission
    struct buf *out;      // standard output, at most BOX_CONFIG_MAX; NULL: discarded
    const char *temporary;  // for its temporary files; NULL: folder
    const char *sees;       // a folder that must stay where it is; NULL: none
    bool show;              // standard output and error are ours
    bool pretend_ids;       // changes of owners and users succeed and change nothing (tool.c)
    int input;              // standard input; 0: none
    struct buf *errors;   // the end of standard error
    // Asked now and then while it runs; false: it is ended, and the result is -EFBIG. NULL: nothing is asked.
    bool (*allowed)(void *ctx);
    void *allowed_ctx;
};
bool box_tool_found(const char *name);
// From here on a signal that would end us ends the program that runs, and is remembered: whoever started it clears up.
void box_tool_forward_signals(void);
int box_tool_run(const struct box_tool *t);  // wait status, or a negative errno
// From an error text of a program: its last line without decoration.
const char *box_tool_last_words(const struct buf *errors, struct arena *a);
int box_namespaces(int flags, uid_t inner_uid, gid_t inner_gid, struct error *e);

// cache.c: unpacked images of one user.
int box_cache_get(const char *cache, uint64_t limit_bytes, const struct box_source *s, const char *image,
                  enum job_pull pull, struct arena *a, struct box_image *out, struct error *e);
// fetch.c: into `folder`, which holds rootfs and config.json afterwards.
int box_fetch(const struct box_source *s, const char *folder, struct arena *a, struct error *e);
// Runs a program of those that fetch; an error says what was to be done and, where it is known, the remedy.
int box_fetch_run(char *const *argv, const char *folder, bool network, struct buf *out, const char *what,
                  struct arena *a, struct error *e);
int box_fetch_skopeo(char **argv, const char *verb, const char *folder, struct arena *a);  // arguments so far
// The digest that names the image, "sha256-…".
int box_fetch_digest(const struct box_source *s, const char *folder, struct arena *a, const char **out,
                     struct error *e);
void box_remove(const char *parent, const char *name);
void box_cache_clear(const char *cache, struct arena *a);  // what processes that are gone have left

// named.c: containers that keep what is written to them.
int box_named_get(const struct box_wish *w, struct arena *a, struct box_image *out, struct error *e);
int box_named_remove(const char *cache, const char *name, struct arena *a, struct error *e);
// local.c: images that were built here, and the list of all that there is, which the agent reads (model/image.h).
const char *box_local_title(const char *name, struct arena *a);  // with its tag; NULL: it cannot be one
bool box_local_find(const char *cache, const char *name, struct arena *a, struct box_source *out);
// `work` is a folder in the cache's work folder; its folder `layout` holds the image under the name "image".
int box_local_put(const struct box_wish *w, const char *work, const char *name, struct arena *a,
                  struct error *e);
int box_local_remove(const char *cache, const char *name, struct arena *a, struct error *e);
int box_local_tag(const char *cache, const char *name, const char *other, struct arena *a, struct error *e);
void box_index_write(const char *cache, struct arena *a);
// task.c: work on images instead of a job's program; the exit status.
int box_task(const struct box_wish *w, struct arena *a, struct error *e);
// build.c
int box_build(const struct box_wish *w, struct arena *a, struct error *e);
void box_build_forget(const struct box_wish *w, const char *name, struct arena *a);  // its layers
// The image that a text means: a file or folder, one that was built here, or a name at a registry.
int box_image_find(const struct box_wish *w, struct arena *a, struct box_source *out, struct error *e);
// bucket.c: "s3://bucket/prefix ro /path", or rw, a line for each.
int box_buckets_parse(const char *text, struct arena *a, struct box_buckets *out, struct error *e);
// A mount that has no place yet, in the namespaces that we are in.
int box_bucket_mount(const struct box_bucket *b, const char *cache, struct box_senders *senders, struct arena *a,
                     struct error *e);
bool box_is_fusermount(const char *name);
int box_fusermount(int argc, char **argv);
// bucket_send.c: what is written to buckets is sent before the job has ended.
struct box_unsent {
    uint64_t files, bytes;
    struct box_list names;  // the first few
};
void box_unsent_look(int cache, struct arena *a, struct box_unsent *out);
struct box_sending {
    int64_t since_ms;  // nothing was sent
    uint64_t files, sent, sent_max;
};
void box_sending_begin(struct box_sending *s, const struct box_unsent *u, uint64_t sent, int64_t now_ms);
bool box_sending_stuck(struct box_sending *s, const struct box_unsent *u, uint64_t sent, int64_t now_ms);
// A folder for what is not sent yet, which is this process's until it ends.
const char *box_unsent_folder(const char *cache, const char *bucket, struct arena *a, struct error *e);
_Noreturn void box_bucket_send(const char *url, const char *folder, pid_t program, int line);
// Where there are senders: returns in a child, which becomes the job's program. The process that it was called in waits
// for the program and the senders, and ends as the program did.
void box_buckets_wait(const struct box_senders *senders);
// join.c: into the namespaces of a process that runs in a container of the same user.
int box_join(pid_t pid, const char *workdir, struct error *e);
char **box_join_environment(pid_t pid, struct arena *a);  // what the process was started with

// root.c: from here on only the image is seen.
int box_enter(const struct box_wish *w, const struct box_image *image, const char *script, const char *cwd,
              struct arena *a, struct error *e);

int box_drop_privileges(struct error *e);

// env.c
char **box_env(const struct box_wish *w, const struct box_config *c, char **job, struct arena *a);
