// Owns what launching and reading logs have in common: who a job's user is on this node, and where its files are.
#include "agent/node/job_files.h"

#include <errno.h>

#include "base/text.h"

int agent_job_user(struct users *users, const struct spec *s, int64_t now_ms, const struct user_info **out,
                   struct error *e) {
    int rc = users_by_uid(users, s->uid, now_ms, out, e);
    if (rc == -ENOENT)
        return error_set(e, ENOENT, "user %s (id %u) does not exist on this node", s->user ? s->user : "?",
                         s->uid);
    if (rc == -ETIMEDOUT)
        return error_set(e, ETIMEDOUT, "the node's directory of users does not answer");
    if (rc == 0 && s->user && !streq(s->user, (*out)->name))
        return error_set(e, ENOENT, "user id %u is %s on this node, not %s", s->uid, (*out)->name, s->user);
    return rc;
}

const char *agent_job_file(const char *pattern, const char *workdir, const struct pattern_values *v,
                           struct arena *a, struct error *e) {
    cleanup_buf struct buf b = {0};
    return pattern_expand(pattern, workdir, v, &b, e) < 0 ? NULL : arena_strdup(a, buf_str(&b));
}

struct pattern_values agent_job_file_values(const struct request_node *node, uint64_t id, uint64_t array_id,
                                            uint32_t array_index, const struct spec *s, uint32_t node_index) {
    // The first component of a job in Slurm's words has the job's number.
    if (s->slurm_words && s->component && streq(s->component, COMPONENT_HEAD) && array_id)
        id = array_id;
    return (struct pattern_values){.job = id,
                                   .array = array_id,
                                   .array_index = array_index,
                                   .name = s->name,
                                   .user = s->user,
                                   .node = node->name,
                                   .node_index = node_index};
}

const char *agent_job_output_pattern(const struct spec *s, bool is_array) {
    if (!str_empty(s->output))
        return s->output;
    return s->workers_max ? PATTERN_DEFAULT_WORKER : is_array ? PATTERN_DEFAULT_ARRAY : PATTERN_DEFAULT;
}

static const char *kept_path(const struct request_node *node, uint64_t id, uint32_t attempt, bool error,
                             struct arena *a) {
    return arena_printf(a, "%s/%llu.%u.%s", node->output_folder, (unsigned long long)id, attempt,
                        error ? "err" : "out");
}

const char *agent_job_log_path(const struct request_node *node, const struct message_log_read *m,
                               const char *home, struct arena *a, struct error *e) {
    const struct spec *s = m->spec;
    bool error = m->source == LOG_SOURCE_ERROR;
    if (s->attach)
        return kept_path(node, m->id, m->attempt, error && !s->pty, a);
    struct pattern_values v =
        agent_job_file_values(node, m->id, m->array_id, m->array_index, s, m->node_index);
    const char *pattern =
        error && !str_empty(s->error) ? s->error : agent_job_output_pattern(s, m->array_id != 0);
    return agent_job_file(pattern, str_empty(s->workdir) ? home : s->workdir, &v, a, e);
}
