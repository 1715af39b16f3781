// What a client asks for when it starts a step.
#pragma once
#include "base/arena.h"
#include "base/buf.h"
#include "model/message.h"
#include "sched/step_pack.h"
#include "session_messages.h"

struct step_wish {
    const char *name, *key;  // key NULL: the request is not repeated
    struct step_request place;
    struct message_exec command;
    uint32_t lease_s;  // 0: none
};

// A command inside a job, as a step.
void controller_step_from_exec(const struct request_exec *q, struct request_step *out);
// Texts belong to the arena and the request; the environment is NAME=value texts, each with its NUL. exec_node: one
// command or shell on the job's node of this number, beside everything else in it; NULL: a step of the usual kind.
int controller_step_wish_read(const struct request_step *q, const struct job_record *r,
                              const int64_t *exec_node, struct arena *a, struct step_wish *out,
                              struct buf *environment, struct error *e);
