// Owns which places of a file system the running jobs of a user work in and write to, so that none of them is removed
// by mistake.
#include "file_uses.h"

#include "api.h"
#include "base/text.h"
#include "model/pattern.h"

struct file_uses {
    const struct core *core;
    struct arena *arena;
    uint32_t uid, count;
    struct file_use *at;
};

static void add(struct file_uses *u, const struct job_view *v, const char *path) {
    for (uint32_t i = 0; i < u->count; i++)
        if (streq(u->at[i].path, path))
            return;
    if (u->count < FILE_USES_MAX)
        u->at[u->count++] =
            (struct file_use){v->id, arena_strdup(u->arena, v->name), arena_strdup(u->arena, path)};
}

static void add_output(struct file_uses *u, const struct job_view *v, const struct spec *s,
                       const char *pattern) {
    const char *node = NULL;
    cleanup_buf struct buf path = {0};
    struct error ignored = {0};
    core_job_node_names(u->core, v->id, &node, 1);
    struct pattern_values values = {.job = v->id,
                                    .array = v->array_id ? v->array_id : v->job,
                                    .array_index = v->job ? v->worker : v->array_index,
                                    .name = s->name,
                                    .user = s->user,
                                    .node = node ? node : ""};
    if (pattern_expand(pattern, s->workdir, &values, &path, &ignored) == 0)
        add(u, v, buf_str(&path));
}

static void add_job(void *ctx, const struct job_view *v) {
    struct file_uses *u = ctx;
    struct spec s;
    if (v->uid != u->uid || u->count >= FILE_USES_MAX ||
        schema_decode(&spec_schema, v->spec_bytes, v->spec_len, u->arena, &s) < 0 || str_empty(s.workdir))
        return;
    add(u, v, s.workdir);
    if (!s.attach)
        add_output(u, v, &s,
                   !str_empty(s.output) ? s.output
                   : v->job             ? PATTERN_DEFAULT_WORKER
                   : v->array_id        ? PATTERN_DEFAULT_ARRAY
                                        : PATTERN_DEFAULT);
    if (!s.attach && !str_empty(s.error))
        add_output(u, v, &s, s.error);
}

void controller_file_uses(const struct core *core, uint32_t uid, struct arena *a, struct file_request *m) {
    struct file_uses u = {.core = core, .arena = a, .uid = uid};
    u.at = arena_alloc(a, FILE_USES_MAX * sizeof *u.at);
    core_each_running(core, add_job, &u);
    m->uses.at = u.at;
    m->uses.len = u.count;
}
