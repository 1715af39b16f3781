// Owns what every part of the agent needs: sending to the controller and collecting exited children.
#include "agent/node/node.h"

#include <string.h>
#include <sys/wait.h>

void agent_send(struct agent_node *n, enum message_type type, const void *body) {
    enum { KEEP_BYTES = 128 << 10 };  // of memory, between messages
    struct buf *b = &n->message;
    struct message m = {.type = type};
    memcpy(&m.body, &body, sizeof body);
    if (!n->ws || !n->open)
        return;
    buf_clear(b);
    message_encode(&m, b);
    // If this fails the connection ends, and the hello of the next one repeats what matters.
    net_ws_send(n->ws, WS_BINARY, b->data, b->len);
    if (b->cap > KEEP_BYTES)
        buf_done(b);
}

void agent_reap(struct agent_node *n, pid_t pid, uint32_t uid) {
    if (waitpid(pid, NULL, WNOHANG) == 0)
        vec_push(&n->unreaped, ((struct agent_child){pid, uid}));
}

bool agent_has_stuck(const struct agent_node *n, uint32_t uid) {
    uint32_t of_user = 0;
    for (uint32_t i = 0; i < n->unreaped.len; i++)
        of_user += n->unreaped.at[i].uid == uid;
    return n->unreaped.len >= AGENT_STUCK_MAX || of_user >= AGENT_USER_STUCK_MAX;
}

void agent_reap_pending(struct agent_node *n) {
    for (uint32_t i = n->unreaped.len; i-- > 0;)
        if (waitpid(n->unreaped.at[i].pid, NULL, WNOHANG) != 0)
            vec_remove_swap(&n->unreaped, i);
}
