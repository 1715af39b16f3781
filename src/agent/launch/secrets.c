// Secrets of an attempt that is being launched. The logic has them from a message of their own just before the launch;
// here they go into the attempt's spool folder, which must be on a memory file system: variables in the launch request,
// files as "secret.NAME" that the job's user can read and nobody else. The folder is removed when the attempt's end was
// reported.
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/statfs.h>

#include "launcher_state.h"
#include "base/text.h"
#include "model/name.h"
#include "model/secret.h"

enum { TMPFS_MAGIC_NUMBER = 0x01021994, RAMFS_MAGIC_NUMBER = 0x858458f6 };

static bool on_memory(const struct launcher *l) {
    struct statfs fs;
    return fstatfs(l->node->spool_fd, &fs) == 0 &&
           (fs.f_type == TMPFS_MAGIC_NUMBER || fs.f_type == RAMFS_MAGIC_NUMBER);
}

static const char *path_of(const struct launcher *l, const struct message_secrets *m, const char *name,
                           struct arena *arena) {
    char folder[SPOOL_NAME_MAX];
    spool_name(folder, m->id, m->attempt);
    return arena_printf(arena, "%s/%s/" SPOOL_SECRET "%s", l->node->spool_path, folder, name);
}

int launcher_secrets_apply(struct launcher *l, const struct message_launch *m,
                           const struct message_secrets *s, struct launch_request *r, struct arena *arena,
                           struct error *e) {
    struct env env = {.arena = arena, .append_only = true};  // a request names each variable once
    cleanup_buf struct buf names = {0}, files = {0};
    if (!m->spec->secrets.len)
        return 0;
    if (!s || s->secrets.len != m->spec->secrets.len)
        return error_set(e, EPROTO, "its secrets did not come with it");
    if (!on_memory(l))
        return error_set(
            e, ENOTSUP,
            "it has secrets, which are kept in memory only, and this node's spool folder %s is on a disk; "
            "an administrator can set spool in the node's configuration to a folder below /dev/shm",
            l->node->spool_path);
    for (uint32_t i = 0; i < r->nenv; i++)
        agent_environment_set(&env, arena_strndup(arena, r->env[i], strcspn(r->env[i], "=")),
                              strchr(r->env[i], '=') + 1);
    env.append_only = false;
    for (uint32_t i = 0; i < s->secrets.len; i++) {
        const struct message_secret *v = &s->secrets.at[i];
        if (!v->name || !v->variable || !name_valid(v->name, strlen(v->name)))
            return error_set(e, EPROTO, "its secrets cannot be read");
        agent_environment_set(&env, v->variable,
                              v->file ? path_of(l, s, v->name, arena)
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

uint64_t launcher_secrets_bytes(const struct message_secrets *s) {
    uint64_t bytes = 0;
    for (uint32_t i = 0; s && i < s->secrets.len; i++)
        if (s->secrets.at[i].file)
            bytes += spool_file_bytes(s->secrets.at[i].value.len);
    return bytes;
}

int launcher_secrets_write(struct launcher *l, const struct message_secrets *s,
                           const struct launch_request *r, struct error *e) {
    int rc = 0;
    for (uint32_t i = 0; s && rc == 0 && i < s->secrets.len; i++)
        if (s->secrets.at[i].file)
            rc = spool_write_secret(l->node->spool_fd, r, s->secrets.at[i].name, s->secrets.at[i].value.data,
                                    s->secrets.at[i].value.len);
    if (rc < 0)
        spool_error(l->node->spool_fd, -rc, e, "cannot write a secret");
    return rc;
}
