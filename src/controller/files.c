// Owns requests about users' files. The controller opens none: it asks an agent, always as the user who asks, and
// passes the answer on, contents as fast as the client takes them. What a user may have under way is bounded.
#include "files.h"

#include <errno.h>
#include <string.h>
#include <strings.h>

#include "api.h"
#include "base/clock.h"
#include "base/text.h"
#include "file_messages.h"
#include "file_uses.h"
#include "stream.h"

enum {
    CALLS_MAX = 512,
    USER_CALLS_MAX = 16,
    USER_PIECES_MAX = 4,          // of uploads on their way to a node
    NODE_BACKLOG_MAX = 32 << 20,  // bytes on their way to a node before pieces are refused
    SILENCE_MAX_MS = 30000,       // of the node; its agent gives up on a file system before that
    ETAG_MAX = 128,
};

// The page must not become one of ours: no script, no form, an origin of its own.
#define CONTENT_POLICY "default-src 'none'; style-src 'unsafe-inline'; img-src data:; sandbox"

struct file_call {
    struct controller *controller;
    struct net_request *req;
    struct stream *stream;
    const char *node;  // interned
    uint32_t uid;
    enum file_operation operation;
    bool ranged, view, started, optional;
    uint64_t left;  // bytes that were announced and have not come
    int64_t heard_ms;
    char unless[ETAG_MAX];  // If-None-Match
};

static void call_free(struct file_call *k) {
    struct controller *c = k->controller;
    for (uint32_t i = 0; i < c->file_calls.len; i++)
        if (c->file_calls.at[i] == k) {
            vec_remove_swap(&c->file_calls, i);
            break;
        }
    free(k);
}

static void call_drop(struct file_call *k) {
    if (k->stream)
        controller_stream_drop(k->stream);
    call_free(k);
}

static int status_of(int error) {
    static const struct {
        int error, status;
    } table[] = {{EACCES, 403},    {EPERM, 403},    {EROFS, 403},  {ENOENT, 404}, {EEXIST, 409},
                 {ENOTEMPTY, 409}, {EBUSY, 409},    {ESPIPE, 409}, {ESTALE, 412}, {EFBIG, 413},
                 {ERANGE, 416},    {EAGAIN, 429},   {ENOSPC, 507}, {EDQUOT, 507}, {ETIMEDOUT, 504},
                 {EIO, 503},       {ENOTCONN, 503}, {EMFILE, 503}};
    for (size_t i = 0; i < sizeof table / sizeof *table; i++)
        if (table[i].error == error)
            return table[i].status;
    return 400;
}

static void fail(struct net_request *req, int error, const char *text) {
    const char *name = error_name(error);
    api_error(req, status_of(error), name ? name : "EINVAL", text ? text : strerror(error));
}

// --- contents ---

static const char *media_type(const char *name) {
    static const char *const types[][2] = {
        {".png", "image/png"},   {".jpg", "image/jpeg"},  {".jpeg", "image/jpeg"}, {".gif", "image/gif"},
        {".webp", "image/webp"}, {".avif", "image/avif"}, {".bmp", "image/bmp"},   {".svg", "image/svg+xml"},
        {".mp4", "video/mp4"},   {".webm", "video/webm"}, {".ogv", "video/ogg"},   {".mov", "video/mp4"},
        {".mp3", "audio/mpeg"},  {".ogg", "audio/ogg"},   {".wav", "audio/wav"},   {".flac", "audio/flac"}};
    const char *dot = strrchr(name, '.');
    for (size_t i = 0; dot && i < sizeof types / sizeof *types; i++)
        if (strcasecmp(dot, types[i][0]) == 0)
            return types[i][1];
    return NULL;
}

// The type is ours, never one that the file asks for; whatever is not a picture, sound or video is a download.
static const char *content_headers(struct file_call *k, const char *name, const char *suffix) {
    cleanup_buf struct buf bytes = {0}, line = {0};
    const char *type = k->view ? media_type(name) : NULL;
    struct error e = {0};
    if (file_name_read(name, &bytes, &e) < 0)
        buf_clear(&bytes);
    buf_adds(&bytes, suffix);
    buf_addf(&line, "%s; filename*=UTF-8''", type ? "inline" : "attachment");
    http_percent_encode(&line, buf_str(&bytes));
    net_reply_header(k->req, "Content-Disposition", buf_str(&line));
    net_reply_header(k->req, "Content-Security-Policy", CONTENT_POLICY);
    if (k->req->peer->kind == NET_PEER_UNIX)  // others have it
        net_reply_header(k->req, "X-Content-Type-Options", "nosniff");
    return type ? type : "application/octet-stream";
}

static void start_content(struct file_call *k, const struct file_result *r) {
    char text[96];
    const struct file_entry *f = r->entry;
    snprintf(text, sizeof text, "\"%.90s\"", f && f->version ? f->version : "");
    // The node is not trusted to keep its figures straight: what is announced here is held against what comes.
    if (!f || !f->version || r->first > f->size || r->length > f->size - r->first) {
        fail(k->req, EIO, "the node's answer cannot be read");
        call_drop(k);
        return;
    }
    net_reply_header(k->req, "ETag", text);
    if (strstr(k->unless, text)) {
        net_reply(k->req, 304, NULL, NULL, 0);
        call_drop(k);
        return;
    }
    bool part = k->ranged && r->length < f->size;
    net_reply_header(k->req, "Accept-Ranges", "bytes");
    snprintf(text, sizeof text, "bytes %llu-%llu/%llu", (unsigned long long)r->first,
             (unsigned long long)(r->first + r->length - 1), (unsigned long long)f->size);
    if (part && !r->length) {
        fail(k->req, ERANGE, "Range: the file ends before it");
        call_drop(k);
        return;
    }
    if (part)
        net_reply_header(k->req, "Content-Range", text);
    const char *type = content_headers(k, f->name, "");
    k->left = r->length;
    k->started = true;
    net_reply_stream_start_length(k->req, part ? 206 : 200, type, (int64_t)r->length);
}

static void start_zip(struct file_call *k, const struct file_result *r) {
    const char *slash = r->path ? strrchr(r->path, '/') : NULL,
               *name = slash && slash[1] ? slash + 1 : "files";
    content_headers(k, name, ".zip");
    k->started = true;
    net_reply_stream_start(k->req, 200, "application/zip");
}

// --- answers of the node ---

static void answer_list(struct file_call *k, const struct file_result *r) {
    struct answer_files a = {.node = k->node,
                             .path = r->path,
                             .home = r->home,
                             .entry = r->entry,
                             .entries = {r->entries.at, r->entries.len},
                             .next = r->next,
                             .truncated = r->truncated,
                             .space_bytes = r->space_bytes,
                             .space_free_bytes = r->space_free_bytes};
    api_answer_to(k->req, 200, &answer_files_schema, &a);
}

static void answer_space(struct file_call *k, const struct file_result *r) {
    struct answer_file_space a = {.node = k->node,
                                  .path = r->path,
                                  .exists = r->entry,
                                  .file_system = r->file_system,
                                  .quota = r->quota,
                                  .space_bytes = r->space_bytes,
                                  .space_free_bytes = r->space_free_bytes};
    api_answer_to(k->req, 200, &answer_file_space_schema, &a);
}

static void answer_written(struct file_call *k, const struct file_result *r) {
    struct answer_file_written a = {k->node, r->offset, r->complete, r->entry};
    if (r->entry && r->entry->version) {
        char tag[ETAG_MAX];
        snprintf(tag, sizeof tag, "\"%.100s\"", r->entry->version);
        net_reply_header(k->req, "ETag", tag);
    }
    api_answer_to(k->req, 200, &answer_file_written_schema, &a);
}

static void refuse(struct file_call *k, const struct file_result *r) {
    char shown[300];
    str_printable(r->text ? r->text : strerror(r->error), shown, sizeof shown);
    if (k->started) {
        net_reply_stream_abort(k->req);  // the reader must see that the rest is missing
        return;
    }
    fail(k->req, r->error, shown);
}

static void on_result(void *ctx, const struct file_result *r) {
    struct file_call *k = ctx;
    k->heard_ms = clock_mono_ms();
    if (r->working)
        return;
    if (!r->error && k->operation == FILE_READ && !k->started) {
        start_content(k, r);
        return;
    }
    if (!r->error && k->operation == FILE_ZIP && !k->started) {
        start_zip(k, r);
        return;
    }
    if (r->error == ENOENT && k->optional)
        answer_list(k, &(struct file_result){0});
    else if (r->error || k->started)
        refuse(k, r);
    else if (k->operation == FILE_LIST)
        answer_list(k, r);
    else if (k->operation == FILE_SPACE)
        answer_space(k, r);
    else if (k->operation == FILE_WRITE || k->operation == FILE_COPY)
        answer_written(k, r);
    else
        api_answer_to(k->req, 200, &answer_done_schema, &(struct answer_done){true});
    call_drop(k);
}

static ssize_t on_data(void *ctx, const struct message_stream *m) {
    struct file_call *k = ctx;
    bool content = k->operation == FILE_READ;
    k->heard_ms = clock_mono_ms();
    if (!k->started || (content && m->data.len > k->left)) {
        k->left = UINT64_MAX;  // a node that does not keep to what it announced
        return 0;
    }
    k->left -= content ? m->data.len : 0;
    ssize_t waiting = net_reply_stream_write(k->req, m->data.data, m->data.len);
    if (waiting < 0)
        k->stream = NULL;  // dropped by whoever called
    return waiting;
}

static void on_end(void *ctx, const struct message_stream *end) {
    struct file_call *k = ctx;
    k->stream = NULL;
    if (!k->started)
        fail(k->req, ENOTCONN, end->error ? end->error : "the node has not answered");
    else if (end->error || k->left)
        net_reply_stream_abort(k->req);
    else
        net_reply_stream_end(k->req);
    call_free(k);
}

static void on_client_gone(struct net_request *req, void *user) {
    struct file_call *k = user;
    bool started = k->started;
    call_drop(k);
    if (started)
        net_reply_stream_end(req);
    else
        net_reply(req, NET_CLIENT_LEFT, NULL, NULL, 0);
}

static void on_drained(struct net_request *req, void *user) {
    struct file_call *k = user;
    if (k->stream)
        controller_stream_drained(k->stream);
}

void controller_files_tick(struct controller *c, int64_t now_ms) {
    for (uint32_t i = c->file_calls.len; i-- > 0;) {
        struct file_call *k = c->file_calls.at[i];
        if (k->started || now_ms - k->heard_ms < SILENCE_MAX_MS)
            continue;
        fail(k->req, ETIMEDOUT,
             "the node does not answer; its agent may be of an earlier release, which does not know files");
        call_drop(k);
    }
}

// --- questions to the node ---

// Whose files: a login without a Unix user has none. As root only whom nothing limits.
static bool may_use_files(const struct actor *a, struct error *e) {
    if (a->uid == UINT32_MAX)
        error_set(e, EPERM,
                  "your login is not mapped to a Unix user, so you have no files here; an administrator can "
                  "do that with "
                  "'acequia user set'");
    else if (a->project)
        error_set(e, EPERM, "your token is for one project; files are a user's, not a project's");
    else if (a->uid == 0 && (!a->admin || a->scopes))
        error_set(e, EPERM, "files of root need an administrator's login, or a token without limits");
    else
        return true;
    return false;
}

static bool has_room(const struct controller *c, const struct actor *a, enum file_operation op,
                     struct error *e) {
    uint32_t calls = 0, pieces = 0;
    for (uint32_t i = 0; i < c->file_calls.len; i++) {
        const struct file_call *k = c->file_calls.at[i];
        calls += k->uid == a->uid;
        pieces += k->uid == a->uid && k->operation == FILE_WRITE;
    }
    if (c->file_calls.len < CALLS_MAX && calls < USER_CALLS_MAX &&
        (op != FILE_WRITE || pieces < USER_PIECES_MAX))
        return true;
    error_set(e, EAGAIN, "too many requests about files are under way; try again when some have ended");
    return false;
}

// The controller's own machine first: it has the users' homes more often than others.
static const char *default_node(const struct controller *c) {
    const char *best = NULL, *node;
    bool best_local = false;
    size_t it = 0;
    void *v;
    while (strmap_next(&c->agents, &it, &node, &v)) {
        bool local = ((const struct agent_conn *)v)->peer.kind == NET_PEER_UNIX;
        if (!best || (local && !best_local) || (local == best_local && strcmp(node, best) < 0)) {
            best = node;
            best_local = local;
        }
    }
    return best;
}

// The job's folder and node; nothing of a job that the caller may not see.
static int find_job(struct api_call *call, const char *text, struct file_request *m, const char **node,
                    struct error *e) {
    struct controller *c = call->controller;
    struct job_record r;
    bool live;
    uint64_t id = api_parse_job(c, &call->actor, text, e);
    if (!id)
        return -EINVAL;
    id = api_first_worker(c, id);
    if (api_record(c, id, &call->arena, &r, &live) < 0)
        return error_set(e, ENOENT, "there is no job %llu", (unsigned long long)id);
    if (!api_may_see(c, &call->actor, id))
        return error_set(e, EPERM, "this job is another user's: its folder is private");
    m->folder = r.spec->workdir;
    if (r.parts.len && strmap_get(&c->agents, r.parts.at[0].node))
        *node = r.parts.at[0].node;
    return 0;
}

static int find_place(struct api_call *call, const char *job, const char *wanted, struct file_request *m,
                      const char **node, struct error *e) {
    struct controller *c = call->controller;
    char shown[80];
    const char *of_job = NULL;
    int r = str_empty(job) ? 0 : find_job(call, job, m, &of_job, e);
    if (r < 0)
        return r;
    *node = !str_empty(wanted) ? wanted : of_job ? of_job : default_node(c);
    if (!*node)
        return error_set(e, ENOTCONN, "no node is connected; files are reached through one");
    if (!core_node(c->core, *node, &(struct node_view){0}))
        return error_set(e, ENOENT, "there is no node %s; GET /v1/nodes lists them",
                         str_printable(*node, shown, sizeof shown));
    if (!strmap_get(&c->agents, *node))
        return error_set(e, ENOTCONN, "node %s is not connected; choose another, or try again later",
                         str_printable(*node, shown, sizeof shown));
    *node = core_intern(c->core, *node);
    return 0;
}

// Asks the node; what comes back is answered as the operation says.
static void ask(struct api_call *call, const char *job, const char *node, struct file_request *m,
                const struct file_call *like) {
    static const struct stream_client client = {.data = on_data, .end = on_end, .result = on_result};
    struct controller *c = call->controller;
    struct error e = {0};
    const char *at;
    int r = may_use_files(&call->actor, &e) && has_room(c, &call->actor, m->operation, &e)
                ? find_place(call, job, node, m, &at, &e)
                : -1;
    if (r == 0 && m->data.len && agents_backlog(c, at) > NODE_BACKLOG_MAX)
        r = error_set(&e, EAGAIN, "the node has not taken what was sent to it before; try again in a moment");
    if (r < 0) {
        fail(call->req, e.code, e.text);
        return;
    }
    struct file_call *k = xcalloc(1, sizeof *k);
    *k = *like;
    k->controller = c;
    k->req = call->req;
    k->node = at;
    k->uid = call->actor.uid;
    k->operation = m->operation;
    k->heard_ms = clock_mono_ms();
    k->stream = controller_stream_new(&c->streams, &call->actor, at, &client, k, &e);
    if (!k->stream) {
        fail(call->req, EAGAIN, e.text);
        free(k);
        return;
    }
    m->stream = controller_stream_id(k->stream);
    m->credit = controller_stream_window(&c->streams, m->stream);
    m->user = call->actor.user;
    m->uid = call->actor.uid;
    m->visible_only = call->actor.scopes && !(call->actor.scopes & ~(uint32_t)USER_SCOPE_READ);
    vec_push(&c->file_calls, k);
    net_request_watch(call->req, on_client_gone, on_drained, k);
    if (!agents_send(c, at, MESSAGE_FILE, m)) {
        fail(call->req, ENOTCONN, "the node is not connected any more; try again");
        call_drop(k);
    }
}

void api_files(struct api_call *call) {
    const struct query_files *q = call->query;
    struct file_request m = {.operation = FILE_LIST, .path = q->path, .after = q->after, .limit = q->limit};
    ask(call, q->job, q->node, &m, &(struct file_call){.optional = q->optional});
}

// "bytes=FIRST-LAST", "bytes=FIRST-", "bytes=-COUNT"; several ranges, or what is not understood, mean the whole file.
static bool read_range(const char *header, struct file_request *m) {
    char first[24], last[24];
    uint64_t from, to;
    if (!header || !str_has_prefix(header, "bytes="))
        return false;
    const char *dash = strchr(header += 6, '-');
    if (!dash || (size_t)(dash - header) >= sizeof first || strlen(dash + 1) >= sizeof last)
        return false;
    snprintf(first, sizeof first, "%.*s", (int)(dash - header), header);
    snprintf(last, sizeof last, "%s", dash + 1);
    if (!*first)
        return parse_u64(last, &m->last) == 0 && m->last;
    if (parse_u64(first, &from) < 0 || (*last && (parse_u64(last, &to) < 0 || to < from)))
        return false;
    m->offset = from;
    m->length = *last && to - from < INT64_MAX ? to - from + 1 : 0;
    return true;
}

// The version in a header like "…"; NULL: there is none.
static const char *version_in(const struct net_request *req, const char *header, struct arena *a) {
    const char *value = http_message_header(req->http, header), *quote = value ? strchr(value, '"') : NULL;
    if (!value || streq(value, "*"))
        return NULL;
    return quote ? arena_strndup(a, quote + 1, strcspn(quote + 1, "\"")) : arena_strdup(a, value);
}

void api_file_content(struct api_call *call) {
    const struct query_file_content *q = call->query;
    const char *unless = http_message_header(call->req->http, "If-None-Match");
    struct file_request m = {.operation = FILE_READ, .path = q->path};
    struct file_call like = {.view = q->view};
    like.ranged = read_range(http_message_header(call->req->http, "Range"), &m);
    m.match = like.ranged ? version_in(call->req, "If-Range", &call->arena) : NULL;
    snprintf(like.unless, sizeof like.unless, "%s", unless && strlen(unless) < ETAG_MAX ? unless : "");
    ask(call, q->job, q->node, &m, &like);
}

void api_file_space(struct api_call *call) {
    const struct query_file *q = call->query;
    struct file_request m = {.operation = FILE_SPACE, .path = q->path};
    ask(call, q->job, q->node, &m, &(struct file_call){0});
}

void api_file_zip(struct api_call *call) {
    const struct query_file *q = call->query;
    struct file_request m = {.operation = FILE_ZIP, .path = q->path};
    ask(call, q->job, q->node, &m, &(struct file_call){0});
}

void api_file_write(struct api_call *call) {
    const struct query_file_write *q = call->query;
    const struct net_request *req = call->req;
    const char *none = http_message_header(req->http, "If-None-Match");
    struct file_request m = {
        .operation = FILE_WRITE,
        .path = q->path,
        .upload = q->upload ? q->upload : "whole",
        .offset = q->offset,
        .size = schema_given(&query_file_write_schema, q, &q->size) ? q->size : q->offset + req->body_len,
        .data = {req->body, req->body_len},
        .match = version_in(req, "If-Match", &call->arena),
        .create = none && streq(none, "*")};
    struct error e = {0};
    if (req->body_len > FILE_PIECE_MAX)
        error_set(&e, E2BIG,
                  "the piece has more than %d MiB; send the file in smaller ones, each with its offset",
                  FILE_PIECE_MAX >> 20);
    else if (m.upload[strspn(m.upload, "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789-_")])
        error_set(&e, EINVAL, "upload: use letters, digits, '-' and '_'");
    else if (!q->upload && (m.offset || m.size != req->body_len))
        error_set(&e, EINVAL, "upload: a file in pieces needs a name for its upload");
    else if (m.offset > m.size || req->body_len > m.size - m.offset)
        error_set(&e, EINVAL, "size: the piece goes beyond the end of the file");
    if (e.code)
        api_fail(call->req, &e);
    else
        ask(call, q->job, q->node, &m, &(struct file_call){0});
}

void api_file_remove(struct api_call *call) {
    const struct query_file_remove *q = call->query;
    struct file_request m = {.operation = FILE_REMOVE,
                             .path = q->path,
                             .recursive = q->recursive,
                             .match = version_in(call->req, "If-Match", &call->arena)};
    if (!q->force)
        controller_file_uses(call->controller->core, call->actor.uid, &call->arena, &m);
    ask(call, q->job, q->node, &m, &(struct file_call){0});
}

void api_file_folder(struct api_call *call) {
    const struct request_folder *q = call->body;
    struct file_request m = {.operation = FILE_MKDIR, .path = q->path, .recursive = q->parents};
    ask(call, q->job, q->node, &m, &(struct file_call){0});
}

static void move_or_copy(struct api_call *call, enum file_operation op) {
    const struct request_file_move *q = call->body;
    struct file_request m = {.operation = op, .path = q->path, .to = q->to, .create = !q->replace};
    ask(call, q->job, q->node, &m, &(struct file_call){0});
}

void api_file_move(struct api_call *call) {
    move_or_copy(call, FILE_MOVE);
}

void api_file_copy(struct api_call *call) {
    move_or_copy(call, FILE_COPY);
}
