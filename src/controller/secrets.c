// Secrets of users and projects. The core knows which there are; their values are in the store, encrypted with a key
// that is in a file of its own outside the state folder, so that a copy of the state tells nothing. A value is
// decrypted only when a job that names it is launched, and sent to its node; no answer and no log ever holds one.
#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "api.h"
#include "base/cleanup.h"
#include "base/log.h"
#include "base/rand.h"
#include "base/text.h"
#include "model/secret.h"
#include "net/aead.h"
#include "net/mac.h"

// A value that is not committed yet: launches find it here.
struct fresh_secret {
    struct controller *controller;
    uint64_t number;
    struct buf sealed;
};

static const char *key_path(const struct controller *c, struct arena *a) {
    return arena_printf(a, "%s/secret.key", c->paths.keys);
}

static int read_key(const char *path, struct aead_key *out, struct error *e) {
    struct stat st;
    cleanup_close int fd = open(path, O_RDONLY | O_CLOEXEC | O_NOFOLLOW);
    if (fd < 0)
        return errno == ENOENT ? -ENOENT
                               : error_set(e, errno, "the key of secrets %s cannot be read: %m", path);
    if (fstat(fd, &st) < 0 || !S_ISREG(st.st_mode) || st.st_uid != geteuid() || st.st_mode & 077)
        return error_set(e, EPERM,
                         "the key of secrets %s must be a file of the controller's user with mode 600", path);
    if (st.st_size != AEAD_KEY_BYTES || read(fd, out->bytes, AEAD_KEY_BYTES) != AEAD_KEY_BYTES)
        return error_set(e, EBADMSG, "the key of secrets %s is damaged: it must have %d bytes", path,
                         AEAD_KEY_BYTES);
    return 0;
}

static int sync_folder(const char *path) {
    cleanup_close int fd = open(path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    return fd < 0 || fsync(fd) < 0 ? -errno : 0;
}

// On disk before anything is encrypted with it.
static int make_key(struct controller *c, const char *path, struct aead_key *out, struct error *e) {
    int r = paths_make(c->paths.keys, 0700, e);
    if (r < 0)
        return r;
    cleanup_close int fd = open(path, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC | O_NOFOLLOW, 0600);
    if (fd < 0)
        return error_set(e, errno, "the key of secrets %s cannot be made: %m", path);
    if (rand_secret(out->bytes, AEAD_KEY_BYTES) < 0 ||
        write(fd, out->bytes, AEAD_KEY_BYTES) != AEAD_KEY_BYTES || fsync(fd) < 0 ||
        sync_folder(c->paths.keys) < 0) {
        r = error_set(e, errno, "the key of secrets %s cannot be written: %m", path);
        unlink(path);
        return r;
    }
    log_info("the key of secrets is in %s; keep a copy of it apart from backups of the state", path);
    return 0;
}

const char *controller_secret_key_lost(const struct controller *c, struct arena *a) {
    unsigned long long count = core_secret_count(c->core);
    const char *path = key_path(c, a);
    if (!count || access(path, F_OK) == 0 || errno != ENOENT)
        return NULL;
    return arena_printf(
        a,
        "the key of secrets %s is not there: %llu stored secret%s cannot be decrypted, and none can be "
        "stored. Put the key back from your copy; if there is none, delete what cannot be decrypted "
        "with 'acequia secret delete --lost' and have it stored again",
        path, count, count == 1 ? "" : "s");
}

static int load_key(struct controller *c, bool make, struct aead_key *out, struct error *e) {
    cleanup_arena struct arena a = {0};
    const char *path = key_path(c, &a);
    int r = read_key(path, out, e);
    const char *lost = r == -ENOENT && make ? controller_secret_key_lost(c, &a) : NULL;
    if (lost)  // a new key in its place would hide that the others are lost
        return error_set(e, EBUSY, "%s", lost);
    if (r == -ENOENT)
        r = make ? make_key(c, path, out, e)
                 : error_set(e, ENOENT,
                             "the key of secrets %s is not there; put it back, or store the secrets again",
                             path);
    return r;
}

int controller_derive_key(struct controller *c, const char *purpose, struct mac_key *out, struct error *e) {
    struct aead_key key;
    if (!c->paths.keys)
        return error_set(e, ENOTSUP, "there is no folder for keys");
    int r = load_key(c, true, &key, e);
    if (r == 0)
        mac_derive(key.bytes, purpose, out);
    explicit_bzero(&key, sizeof key);
    return r;
}

// A value cannot be put in the place of another one, or of an earlier version.
static const char *context_of(struct arena *a, const char *user, const char *project, const char *name,
                              uint32_t version) {
    return arena_printf(a, "secret %s %s/%s %u", user ? "user" : "project", user ? user : project, name,
                        version);
}

static void committed(void *arg) {
    struct fresh_secret *f = arg;
    struct controller *c = f->controller;
    for (uint32_t i = 0; i < c->fresh_secrets.len; i++)
        if (c->fresh_secrets.at[i] == f) {
            vec_remove_swap(&c->fresh_secrets, i);
            break;
        }
    buf_done(&f->sealed);
    free(f);
}

void controller_secrets_done(struct controller *c) {
    for (uint32_t i = 0; i < c->fresh_secrets.len; i++) {
        buf_done(&c->fresh_secrets.at[i]->sealed);
        free(c->fresh_secrets.at[i]);
    }
    vec_done(&c->fresh_secrets);
}

static void keep(struct controller *c, uint64_t number, struct buf *sealed) {
    char name[STORE_BLOB_NAME_MAX];
    struct fresh_secret *f = xcalloc(1, sizeof *f);
    pipeline_secret_name(number, name);
    pipeline_keep_blob(c->pipeline, name, sealed->data, sealed->len);
    *f = (struct fresh_secret){c, number, *sealed};
    *sealed = (struct buf){0};
    vec_push(&c->fresh_secrets, f);
    pipeline_when_committed(c->pipeline, committed, f);
}

static int set_secret(struct api_call *call, const struct request_secret *q, struct error *e) {
    struct controller *c = call->controller;
    struct aead_key key;
    cleanup_buf struct buf sealed = {0};
    const char *user = q->project ? NULL : call->actor.user;
    struct command_secret body = {.name = call->name, .project = q->project};
    struct command command = {COMMAND_SECRET_SET, &body};
    int r = api_check_storage(c, e);
    if (r < 0 || (r = load_key(c, true, &key, e)) < 0)
        return r;
    const char *context = context_of(&call->arena, user, q->project, call->name,
                                     core_secret_next_version(c->core, user, q->project, call->name));
    r = aead_seal(&key, context, q->value.data, q->value.len, &sealed, e);
    explicit_bzero(&key, sizeof key);
    if (r == 0 && (r = core_command(c->core, &call->actor, NULL, &command, controller_now_ms(), NULL, e)) == 0)
        keep(c, core_secret(c->core, user, q->project, call->name)->value, &sealed);
    return r;
}

void api_secret_set(struct api_call *call) {
    struct error e = {0};
    struct request_secret *q = call->body;
    if (q->project && !*q->project)
        q->project = NULL;
    int r = set_secret(call, q, &e);
    if (q->value.len)
        explicit_bzero((void *)(uintptr_t)q->value.data, q->value.len);
    if (r < 0)
        api_fail(call->req, &e);
    else
        api_answer_committed(call, 200, &answer_done_schema, &(struct answer_done){true});
}

void api_secret_delete(struct api_call *call) {
    const struct query_secret *q = call->query;
    struct error e = {0};
    struct command_secret body = {.name = call->name,
                                  .project = str_empty(q->project) ? NULL : q->project,
                                  .user = str_empty(q->user) ? NULL : q->user};
    struct command command = {COMMAND_SECRET_DELETE, &body};
    if (core_command(call->controller->core, &call->actor, NULL, &command, controller_now_ms(), NULL, &e) < 0)
        api_fail(call->req, &e);
    else
        api_answer_committed(call, 200, &answer_done_schema, &(struct answer_done){true});
}

struct secret_listing {
    struct api_call *call;
    VEC(struct answer_secret) list;
};

static bool list_secret(void *ctx, const struct event_secret *s) {
    struct secret_listing *l = ctx;
    if (core_secret_visible(l->call->controller->core, &l->call->actor, s))
        vec_push(&l->list,
                 ((struct answer_secret){s->name, s->user, s->project, s->version, s->set_ms, s->by}));
    return true;
}

void api_secret_list(struct api_call *call) {
    struct secret_listing l = {.call = call};
    struct answer_secrets answer = {0};
    core_each_secret(call->controller->core, list_secret, &l);
    answer.secrets.at = l.list.at;
    answer.secrets.len = l.list.len;
    answer.key_lost = controller_secret_key_lost(call->controller, &call->arena);
    api_answer(call, &answer_secrets_schema, &answer);
    vec_done(&l.list);
}

static int sealed_value(struct controller *c, uint64_t number, struct buf *out, struct error *e) {
    char name[STORE_BLOB_NAME_MAX];
    void *data = NULL;
    size_t len = 0;
    for (uint32_t i = 0; i < c->fresh_secrets.len; i++)
        if (c->fresh_secrets.at[i]->number == number) {
            buf_add(out, c->fresh_secrets.at[i]->sealed.data, c->fresh_secrets.at[i]->sealed.len);
            return 0;
        }
    pipeline_secret_name(number, name);
    int r = store_blob(c->store, name, &data, &len, e);
    if (r == 0)
        buf_add(out, data, len);
    free(data);
    return r;
}

int controller_hook_secret(void *ctx, const char *node, const struct event_secret *secret, struct arena *a,
                           struct bytes *out, struct error *e) {
    struct controller *c = ctx;
    const struct agent_conn *agent = strmap_get(&c->agents, node);
    cleanup_buf struct buf sealed = {0}, plain = {0};
    struct aead_key key;
    if (agent && agent->level < feature_info(FEATURE_SECRETS)->level)
        return error_set(
            e, ENOTSUP, "the agent of node %s is of an earlier release and does not know secrets; upgrade it",
            node);
    int r = load_key(c, false, &key, e);
    if (r == 0)
        r = sealed_value(c, secret->value, &sealed, e);
    if (r == 0)
        r = aead_open(&key, context_of(a, secret->user, secret->project, secret->name, secret->version),
                      sealed.data, sealed.len, &plain, e);
    explicit_bzero(&key, sizeof key);
    if (r == 0)
        *out = (struct bytes){arena_memdup(a, plain.data, plain.len), plain.len};
    if (plain.data)
        explicit_bzero(plain.data, plain.len);
    return r;
}

int controller_seal(struct controller *c, const char *context, const void *data, size_t len, struct buf *out,
                    struct error *e) {
    struct aead_key key;
    int r = load_key(c, true, &key, e);
    if (r == 0)
        r = aead_seal(&key, context, data, len, out, e);
    explicit_bzero(&key, sizeof key);
    return r;
}

void controller_sealed_keep(struct controller *c, uint64_t number, struct buf *sealed) {
    keep(c, number, sealed);
}

int controller_unseal(struct controller *c, uint64_t number, const char *context, struct buf *out,
                      struct error *e) {
    struct aead_key key;
    cleanup_buf struct buf sealed = {0};
    int r = load_key(c, false, &key, e);
    if (r == 0 && (r = sealed_value(c, number, &sealed, e)) == 0)
        r = aead_open(&key, context, sealed.data, sealed.len, out, e);
    explicit_bzero(&key, sizeof key);
    *buf_reserve(out, 1) = 0;  // a text ends
    return r;
}
