// Owns the words about the end of a step on one node.
#include "step_report.h"

#include <sys/wait.h>

#include "base/buf.h"
#include "base/cleanup.h"

static void put_range(struct buf *out, uint32_t first, uint32_t last) {
    buf_addf(out, first == last ? "%s%u" : "%s%u-%u", out->len ? "," : "", first, last);
}

// Ranks of all tasks, or (status not NULL) of those that ended with this status, folded: "0,2-3".
static void put_ranks(const struct step_end *n, const struct step_part *p, const uint32_t *status, struct buf *out) {
    uint32_t count = status ? n->exits.len : p->ranks.len;
    const uint32_t *ranks = p->ranks.at, *exits = n->exits.at;
    if (count > p->ranks.len)
        count = p->ranks.len;
    for (uint32_t i = 0; i < count; i++) {
        uint32_t first = i;
        if (status && exits[i] != *status)
            continue;
        while (i + 1 < count && ranks[i + 1] == ranks[i] + 1 && (!status || exits[i + 1] == *status))
            i++;
        put_range(out, ranks[first], ranks[i]);
    }
}

static bool seen_before(const struct step_end *n, uint32_t i) {
    for (uint32_t k = 0; k < i; k++)
        if (n->exits.at[k] == n->exits.at[i])
            return true;
    return false;
}

void controller_step_report(const struct step_end *n, const struct step_part *part, struct arena *a,
                            struct answer_step_node *out) {
    cleanup_buf struct buf ranks = {0};
    put_ranks(n, part, NULL, &ranks);
    *out = (struct answer_step_node){.node = n->node,
                                     .exit_code = n->exit_code,
                                     .exit_signal = n->exit_signal,
                                     .task = n->task,
                                     .error = n->error,
                                     .output_bytes = n->output_bytes,
                                     .tasks = arena_strdup(a, buf_str(&ranks))};
    out->failed.at = arena_alloc(a, (n->exits.len + 1) * sizeof *out->failed.at);
    for (uint32_t i = 0; i < n->exits.len; i++) {
        int status = (int)n->exits.at[i];
        if (!status || seen_before(n, i))
            continue;
        buf_clear(&ranks);
        put_ranks(n, part, &n->exits.at[i], &ranks);
        out->failed.at[out->failed.len++] =
            (struct answer_step_failed){.tasks = arena_strdup(a, buf_str(&ranks)),
                                        .exit_code = WIFEXITED(status) ? WEXITSTATUS(status) : 0,
                                        .exit_signal = WIFSIGNALED(status) ? (uint32_t)WTERMSIG(status) : 0};
    }
}
