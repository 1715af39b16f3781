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

void controller_step_end_json(const struct step_end *n, const struct step_part *part, struct json_writer *w) {
    cleanup_buf struct buf ranks = {0};
    json_open(w, '{');
    json_kv_str(w, "node", n->node);
    json_kv_i64(w, "exit_code", n->exit_code);
    json_kv_i64(w, "exit_signal", n->exit_signal);
    json_kv_i64(w, "task", n->task);
    json_kv_str(w, "error", n->error);
    put_ranks(n, part, NULL, &ranks);
    json_kv_str(w, "tasks", buf_str(&ranks));
    json_key(w, "failed");
    json_open(w, '[');
    for (uint32_t i = 0; i < n->exits.len; i++) {
        int status = (int)n->exits.at[i];
        if (!status || seen_before(n, i))
            continue;
        buf_clear(&ranks);
        put_ranks(n, part, &n->exits.at[i], &ranks);
        json_open(w, '{');
        json_kv_str(w, "tasks", buf_str(&ranks));
        json_kv_i64(w, "exit_code", WIFEXITED(status) ? WEXITSTATUS(status) : 0);
        json_kv_i64(w, "exit_signal", WIFSIGNALED(status) ? WTERMSIG(status) : 0);
        json_close(w, '}');
    }
    json_close(w, ']');
    json_close(w, '}');
}
