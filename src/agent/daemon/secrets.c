// Secrets of attempts that are about to be launched. They come by a message of their own just before the launch, are
// kept in memory until then, and go into the attempt's spool folder, which must be on a memory file system: variables
// in the launch request, files as "secret.NAME" that the job's user can read and nobody else. The folder is removed
// when the attempt's end was reported.
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/statfs.h>

#include "agent.h"
#include "base/log.h"
#include "base/text.h"
#include "model/name.h"
#include "model/secret.h"

enum { TMPFS_MAGIC_NUMBER = 0x01021994, RAMFS_MAGIC_NUMBER = 0x858458f6, WAITING_MAX = 4096 };

static void wipe(struct waiting_secrets *w) {
    for (uint32_t i = 0; i < w->message->secrets.len; i++)
        explicit_bzero((void *)(uintptr_t)w->message->secrets.at[i].value.data,
                       w->message->secrets.at[i].value.len);
    arena_done(&w->arena);
}

static uint32_t find(const struct agent *a, uint64_t id, uint32_t attempt) {
    uint32_t i = 0;
    while (i < a->secrets.len &&
           (a->secrets.at[i].message->id != id || a->secrets.at[i].message->attempt != attempt))
        i++;
    return i;
}

void agent_secrets_forget(struct agent *a, uint64_t id, uint32_t attempt) {
    uint32_t at = find(a, id, attempt);
    if (at == a->secrets.len)
        return;
    wipe(&a->secrets.at[at]);
    vec_remove(&a->secrets, at);
}

void agent_secrets_keep(struct agent *a, const struct message_secrets *m) {
    struct waiting_secrets w = {0};
    agent_secrets_forget(a, m->id, m->attempt);
    if (a->secrets.len == WAITING_MAX)  // launches that never came
        agent_secrets_forget(a, a->secrets.at[0].message->id, a->secrets.at[0].message->attempt);
    w.message = schema_copy(message_info(MESSAGE_SECRETS)->schema, m, &w.arena);
    vec_push(&a->secrets, w);
    for (uint32_t i = 0; i < m->secrets.len; i++)
        explicit_bzero((void *)(uintptr_t)m->secrets.at[i].value.data, m->secrets.at[i].value.len);
}

void agent_secrets_forget_all(struct agent *a) {
    while (a->secrets.len)
        wipe(&a->secrets.at[--a->secrets.len]);
    vec_done(&a->secrets);
}

static bool on_memory(const struct agent *a) {
    struct statfs fs;
    return fstatfs(a->shared.spool_fd, &fs) == 0 &&
           (fs.f_type == TMPFS_MAGIC_NUMBER || fs.f_type == RAMFS_MAGIC_NUMBER);
}

static const char *path_of(const struct agent *a, const struct message_secrets *m, const char *name,
                           struct arena *arena) {
    char folder[SPOOL_NAME_MAX];
    spool_name(folder, m->id, m->attempt);
    return arena_printf(arena, "%s/%s/" SPOOL_SECRET "%s", a->shared.spool_path, folder, name);
}

static const struct message_secrets *of_launch(const struct agent *a, const struct message_launch *m,
                                               struct error *e) {
    uint32_t at = find(a, m->id, m->attempt);
    if (at == a->secrets.len || a->secrets.at[at].message->secrets.len != m->spec->secrets.len) {
        error_set(e, EPROTO, "its secrets did not come with it");
        return NULL;
    }
    return a->secrets.at[at].message;
}

int agent_secrets_apply(struct agent *a, const struct message_launch *m, struct launch_request *r,
                        struct arena *arena, struct error *e) {
    struct env env = {.arena = arena, .append_only = true};  // a request names each variable once
    cleanup_buf struct buf names = {0}, files = {0};
    if (!m->spec->secrets.len)
        return 0;
    const struct message_secrets *s = of_launch(a, m, e);
    if (!s)
        return -EPROTO;
    if (!on_memory(a))
        return error_set(
            e, ENOTSUP,
            "it has secrets, which are kept in memory only, and this node's spool folder %s is on a disk; "
            "an administrator can set spool in the node's configuration to a folder below /dev/shm",
            a->shared.spool_path);
    for (uint32_t i = 0; i < r->nenv; i++)
        agent_environment_set(&env, arena_strndup(arena, r->env[i], strcspn(r->env[i], "=")),
                        strchr(r->env[i], '=') + 1);
    env.append_only = false;
    for (uint32_t i = 0; i < s->secrets.len; i++) {
        const struct message_secret *v = &s->secrets.at[i];
        if (!v->name || !v->variable || !name_valid(v->name, strlen(v->name)))
            return error_set(e, EPROTO, "its secrets cannot be read");
        agent_environment_set(&env, v->variable,
                        v->file ? path_of(a, s, v->name, arena)
                                : arena_strndup(arena, v->value.data, v->value.len));
        buf_addf(&names, "%s%s", names.len ? "," : "", v->variable);
        if (v->file)
            buf_addf(&files, "%s%s", files.len ? "," : "", v->variable);
    }
    agent_environment_set(&env, SECRET_VARIABLES, buf_str(&names));
    agent_environment_set(&env, SECRET_FILES, buf_str(&files));
    r->env = env.at;
    r->nenv = env.len;
    return 0;
}

uint64_t agent_secrets_bytes(const struct agent *a, const struct message_launch *m) {
    uint32_t at = find(a, m->id, m->attempt);
    uint64_t bytes = 0;
    if (at == a->secrets.len)
        return 0;
    const struct message_secrets *s = a->secrets.at[at].message;
    for (uint32_t i = 0; i < s->secrets.len; i++)
        if (s->secrets.at[i].file)
            bytes += spool_file_bytes(s->secrets.at[i].value.len);
    return bytes;
}

int agent_secrets_write(struct agent *a, const struct message_launch *m, const struct launch_request *r,
                        struct error *e) {
    int rc = 0;
    if (!m->spec->secrets.len)
        return 0;
    const struct message_secrets *s = of_launch(a, m, e);
    if (!s)
        return -EPROTO;
    for (uint32_t i = 0; rc == 0 && i < s->secrets.len; i++)
        if (s->secrets.at[i].file)
            rc = spool_write_secret(a->shared.spool_fd, r, s->secrets.at[i].name, s->secrets.at[i].value.data,
                                    s->secrets.at[i].value.len);
    if (rc < 0)
        error_set(e, -rc, "a secret cannot be written into the spool folder: %s", strerror(-rc));
    return rc;
}
