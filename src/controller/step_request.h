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
};

// Texts belong to the arena and the request; the environment is NAME=value texts, each with its NUL.
int controller_step_wish_read(const struct request_step *q, const struct job_record *r, struct arena *a,
                              struct step_wish *out, struct buf *environment, struct error *e);
