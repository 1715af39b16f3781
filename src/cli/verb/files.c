// acequia files
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/cleanup.h"
#include "base/clock.h"
#include "base/map.h"
#include "base/text.h"
#include "cli/client/client.h"
#include "cli/job/resolve.h"
#include "cli/term/local_time.h"
#include "cli/term/table.h"
#include "model/file.h"
#include "model/units.h"
#include "verbs.h"

enum { PIECE = 2 << 20, LONG_MS = 600000 };

static const struct option_spec specs[] = {
    {"node", 'w', "NAME", "On this node; else on the controller's machine, or any that is connected.", 0,
     NULL, "@node"},
    {"job", 'j', "JOB", "Paths are below the folder of this job, on its node.", 0, NULL, "@job"},
    {"all", 'a', NULL, "ls: also hidden files.", 0, NULL, NULL},
    {"recursive", 'r', NULL, "rm: folders with all that is in them.", 0, NULL, NULL},
    {"parents", 'p', NULL, "mkdir: also the folders above it.", 0, NULL, NULL},
    {"force", 'f', NULL, "get, put, mv, cp: replace what is there. rm: also what a running job uses.", 0,
     NULL, NULL},
};
static const struct option_table table_options = OPTION_TABLE("Options", specs);

static const char *as_text(struct cli *c, const char *path) {
    cleanup_buf struct buf b = {0};
    file_name_write(path, strlen(path), &b);
    return arena_strdup(&c->arena, buf_str(&b));
}

static void begin_query(struct cli *c, struct query *q, const char *route, const char *path) {
    client_query_begin(q, route);
    client_query_add(q, "path", as_text(c, path));
    client_query_add(q, "node", option_get(&c->options, "node"));
    client_query_add(q, "job", option_get(&c->options, "job"));
}

static const char *last_part(const char *path) {
    const char *slash = strrchr(path, '/');
    return slash ? slash + 1 : path;
}

// --- ls ---

static void add_rows(struct cli *c, const struct json *entries, struct text_table *t) {
    for (uint32_t i = 0; entries && entries->type == JSON_ARRAY && i < entries->len; i++) {
        const struct json *j = &entries->items[i];
        const char *name = json_str(j, "name"), *type = json_str(j, "type"), *target = json_str(j, "target");
        char when[UNIT_TEXT_MAX], size[UNIT_TEXT_MAX];
        if (!name || !type || (*name == '.' && !option_given(&c->options, "all")))
            continue;
        size_format((uint64_t)json_i64(j, "size", 0), size);
        local_time_short(json_i64(j, "modified_ms", 0), clock_wall_ms(), when);
        table_add(t, type, COLOUR_NONE);
        table_add(t, streq(type, "file") ? arena_strdup(&c->arena, size) : "", COLOUR_NONE);
        table_add(t, arena_strdup(&c->arena, when), COLOUR_NONE);
        table_add(t,
                  target                  ? arena_printf(&c->arena, "%s -> %s", name, target)
                  : streq(type, "folder") ? arena_printf(&c->arena, "%s/", name)
                                          : name,
                  COLOUR_NONE);
    }
}

static int list_one(struct cli *c, const char *path) {
    static const struct table_column columns[] = {
        {"TYPE", false, 0, 0}, {"SIZE", true, 0, 0}, {"MODIFIED", false, 0, 0}, {"NAME", false, 1, 20}};
    struct text_table t;
    cleanup_buf struct buf out = {0};
    const char *after = NULL;
    struct reply reply;
    int status;
    table_init(&t, &c->arena, columns, 4);
    do {
        cleanup_query struct query q = {0};
        begin_query(c, &q, "/v1/files", path);
        client_query_add(&q, "after", after);
        if ((status = client_get(c, buf_str(&q.text), &reply)) != CLI_OK)
            break;
        if (c->json)
            printf("%s\n", reply.text);
        const struct json *entry = json_get(reply.json, "entry");
        struct json one = {.type = JSON_ARRAY, .len = 1, .items = (struct json *)(uintptr_t)entry};
        bool folder = entry && streq(json_str(entry, "type"), "folder");
        add_rows(c, folder ? json_get(reply.json, "entries") : &one, &t);
        after = json_str(reply.json, "next");
    } while (after);
    if (status == CLI_OK && !c->json) {
        table_print(&t, terminal_table_width(), true, terminal_colour(), &out);
        status = cli_print(&out);
    }
    table_done(&t);
    return status;
}

static int list(struct cli *c) {
    return c->count > 2 ? cli_usage(c, "ls takes one path")
                        : list_one(c, c->count > 1 ? c->arguments[1] : "");
}

// --- get ---

struct files_sink {
    int fd;
};

static int to_file(void *arg, const char *data, size_t len) {
    const struct files_sink *s = arg;
    for (size_t at = 0; at < len;) {
        ssize_t n = write(s->fd, data + at, len - at);
        if (n < 0 && errno == EINTR)
            continue;
        if (n <= 0)
            return -errno;
        at += (size_t)n;
    }
    return 0;
}

static int get(struct cli *c) {
    if (c->count < 2 || c->count > 3)
        return cli_usage(c, "get needs the path of a file, and may have the local name");
    const char *path = c->arguments[1], *local = c->count > 2 ? c->arguments[2] : last_part(path);
    struct stat st;
    if (!*local || (stat(local, &st) == 0 && S_ISDIR(st.st_mode)))
        local = arena_printf(&c->arena, "%s/%s", *local ? local : ".", last_part(path));
    struct files_sink sink = {.fd = STDOUT_FILENO};
    int flags = O_WRONLY | O_CREAT | O_CLOEXEC | (option_given(&c->options, "force") ? O_TRUNC : O_EXCL);
    cleanup_close int fd = streq(local, "-") ? -1 : open(local, flags, 0666);
    if (fd < 0 && !streq(local, "-"))
        return cli_failf(c, "%s: %s%s", local, strerror(errno),
                         errno == EEXIST ? "; --force replaces it" : "");
    sink.fd = fd < 0 ? STDOUT_FILENO : fd;
    struct client *k;
    cleanup_query struct query q = {0};
    begin_query(c, &q, "/v1/files/content", path);
    int r = client_open(c, &k);
    if (r == 0) {
        r = client_stream(k, buf_str(&q.text), -1, to_file, &sink);
        client_free(k);
    }
    if (r < 0 && fd >= 0 && !option_given(&c->options, "force"))
        unlink(local);
    return r < 0 ? cli_fail(c) : CLI_OK;
}

// --- put ---

// Reads a whole piece where the file has one.
static int read_piece(int fd, uint64_t at, size_t len, struct buf *out) {
    buf_clear(out);
    char *to = buf_reserve(out, len);
    while (out->len < len) {
        ssize_t n = pread(fd, to + out->len, len - out->len, (off_t)(at + out->len));
        if (n < 0 && errno == EINTR)
            continue;
        if (n <= 0)
            return n < 0 ? -errno : -ENODATA;
        out->len += (size_t)n;
    }
    return 0;
}

struct files_put {
    struct client *client;
    const char *path, *upload;
    int fd;
    uint64_t size;
};

// An empty piece asks where the upload stands.
static int put_piece(struct cli *c, const struct files_put *p, uint64_t at, const struct buf *piece,
                     struct reply *reply) {
    cleanup_query struct query q = {0};
    begin_query(c, &q, "/v1/files/content", p->path);
    client_query_add(&q, "upload", p->upload);
    client_query_addf(&q, "offset", "%llu", (unsigned long long)at);
    client_query_addf(&q, "size", "%llu", (unsigned long long)p->size);
    return client_call_timeout(p->client, "PUT", buf_str(&q.text), piece, LONG_MS, reply);
}

static int put_all(struct cli *c, const struct files_put *p) {
    cleanup_buf struct buf piece = {0};
    struct reply reply;
    int r = put_piece(c, p, 0, &piece, &reply);
    while (r == 0) {
        const struct json *complete = json_get(reply.json, "complete");
        uint64_t at = (uint64_t)json_i64(reply.json, "offset", 0);
        if (complete && complete->type == JSON_BOOL && complete->boolean)
            return 0;
        if (at >= p->size)
            return error_set(&c->error, EIO, "the node has more than was sent; try again");
        r = read_piece(p->fd, at, p->size - at < PIECE ? (size_t)(p->size - at) : PIECE, &piece);
        if (r < 0)
            return error_set(&c->error, -r, "the file became shorter while it was sent");
        r = put_piece(c, p, at, &piece, &reply);
    }
    return r;
}

static int put_file(struct cli *c, const char *local, const char *path) {
    struct stat st;
    cleanup_close int fd = open(local, O_RDONLY | O_CLOEXEC);
    if (fd < 0 || fstat(fd, &st) < 0)
        return cli_failf(c, "%s: %s", local, strerror(errno));
    if (!S_ISREG(st.st_mode))
        return cli_failf(c, "%s is not a plain file", local);
    const char *what = arena_printf(&c->arena, "%s %lld.%ld %llu", local, (long long)st.st_mtim.tv_sec,
                                    st.st_mtim.tv_nsec, (unsigned long long)st.st_ino);
    struct files_put p = {
        .path = path,
        .fd = fd,
        .size = (uint64_t)st.st_size,
        .upload = arena_printf(&c->arena, "%016llx", (unsigned long long)hash_bytes(what, strlen(what)))};
    int r = client_open(c, &p.client);
    if (r == 0) {
        r = put_all(c, &p);
        client_free(p.client);
    }
    return r < 0 ? cli_fail(c) : CLI_OK;
}

static bool path_type(struct cli *c, const char *path, const char **type) {
    struct reply reply;
    struct client *k;
    cleanup_query struct query q = {0};
    begin_query(c, &q, "/v1/files", path);
    client_query_add(&q, "limit", "1");
    if (client_open(c, &k) < 0)
        return false;
    int r = client_call(k, "GET", buf_str(&q.text), NULL, &reply);
    client_free(k);
    const struct json *entry = r == 0 ? json_get(reply.json, "entry") : NULL;
    *type = entry ? json_str(entry, "type") : NULL;
    return r == 0 || c->error.code == ENOENT;
}

static int put(struct cli *c) {
    const char *type;
    if (c->count < 2 || c->count > 3)
        return cli_usage(c, "put needs a local file, and may have the path to put it to");
    const char *local = c->arguments[1], *path = c->count > 2 ? c->arguments[2] : last_part(local);
    if (!path_type(c, path, &type))
        return cli_fail(c);
    if (type && streq(type, "folder")) {
        path = arena_printf(&c->arena, "%s/%s", *path ? path : ".", last_part(local));
        if (!path_type(c, path, &type))
            return cli_fail(c);
    }
    if (type && !option_given(&c->options, "force"))
        return cli_failf(c, "%s is there already; --force replaces it", path);
    return put_file(c, local, path);
}

// --- rm, mv, cp, mkdir ---

static int remove_each(struct cli *c) {
    int status = CLI_OK;
    if (c->count < 2)
        return cli_usage(c, "rm needs the path of a file or folder");
    for (int i = 1; i < c->count && status == CLI_OK; i++) {
        struct reply reply;
        cleanup_query struct query q = {0};
        begin_query(c, &q, "/v1/files", c->arguments[i]);
        client_query_add(&q, "recursive", option_given(&c->options, "recursive") ? "true" : NULL);
        client_query_add(&q, "force", option_given(&c->options, "force") ? "true" : NULL);
        status = client_request(c, "DELETE", buf_str(&q.text), NULL, &reply);
    }
    return status;
}

static int post(struct cli *c, const char *route, const char *path, const char *to, const char *flag) {
    cleanup_buf struct buf body = {0};
    struct json_writer w = {.out = &body};
    struct reply reply;
    json_open(&w, '{');
    json_kv_str(&w, "path", as_text(c, path));
    if (to)
        json_kv_str(&w, "to", as_text(c, to));
    if (flag)
        json_kv_bool(&w, flag, true);
    if (option_get(&c->options, "node"))
        json_kv_str(&w, "node", option_get(&c->options, "node"));
    if (option_get(&c->options, "job"))
        json_kv_str(&w, "job", option_get(&c->options, "job"));
    json_close(&w, '}');
    return client_post(c, route, &body, &reply);
}

static int move_or_copy(struct cli *c, const char *route) {
    const char *type;
    if (c->count != 3)
        return cli_usage(c, "%s needs the path and the new path", c->arguments[0]);
    const char *path = c->arguments[1], *to = c->arguments[2];
    if (!path_type(c, to, &type))
        return cli_fail(c);
    if (type && streq(type, "folder"))
        to = arena_printf(&c->arena, "%s/%s", to, last_part(path));
    return post(c, route, path, to, option_given(&c->options, "force") ? "replace" : NULL);
}

static int move(struct cli *c) {
    return move_or_copy(c, "/v1/files/move");
}

static int copy(struct cli *c) {
    return move_or_copy(c, "/v1/files/copy");
}

static int make_folder(struct cli *c) {
    int status = CLI_OK;
    if (c->count < 2)
        return cli_usage(c, "mkdir needs the path of the new folder");
    for (int i = 1; i < c->count && status == CLI_OK; i++)
        status = post(c, "/v1/files/folder", c->arguments[i], NULL,
                      option_given(&c->options, "parents") ? "parents" : NULL);
    return status;
}

static int run(struct cli *c) {
    static const struct {
        const char *name;
        int (*run)(struct cli *c);
    } actions[] = {{"ls", list}, {"get", get}, {"put", put},          {"rm", remove_each},
                   {"mv", move}, {"cp", copy}, {"mkdir", make_folder}};
    for (size_t i = 0; i < sizeof actions / sizeof *actions; i++)
        if (streq(c->arguments[0], actions[i].name)) {
            int status = job_resolve_option(c, "job");
            return status == CLI_OK ? actions[i].run(c) : status;
        }
    return cli_usage(c, "unknown action \"%.40s\"; use ls, get, put, rm, mv, cp or mkdir", c->arguments[0]);
}

const struct verb verb_files = {
    .name = "files",
    .group = "Work",
    .arguments = "ls [PATH]\nget PATH [FILE]\nput FILE [PATH]\nrm [-r] PATH...\nmv PATH NEW-PATH\ncp PATH "
                 "NEW-PATH\nmkdir [-p] PATH...",
    .summary = "your files on the cluster's nodes",
    .text =
        "Reaches your files through a node's agent, as your user there, from wherever you are. A PATH "
        "that is not "
        "absolute is below your home, with --job below the folder of that job. put sends a file in "
        "pieces and, when "
        "it was interrupted, goes on where it stopped if it is run again; the file has its name only "
        "when it is "
        "whole. Devices, pipes and the kernel's file systems are not opened. Folders are copied with "
        "all that is in them; a folder that is not empty goes with rm -r, and what a running job of yours "
        "works in or "
        "writes to with rm --force. Inside a running job, and to send whole folders, use acequia cp.",
    .examples = "acequia files ls results\nacequia files put data.bin results/\nacequia files get --job 12 "
                "loss.csv -",
    .options = {&table_options, &cli_common_options},
    .run = run,
    .complete = "ls get put rm mv cp mkdir",
    .least = 1,
    .most = -1,
};
