// Turns of logins. A check of a password costs a tenth of a second of a core, a question to PAM or a provider a process
// for seconds: few are made at a time, and when more want one, addresses and accounts take turns. Addresses from which
// many wrong secrets came get a small part, so that a flood of guesses holds up itself.
#pragma once
#include <stdint.h>

#include "base/error.h"

struct controller;
struct net_request;
struct login_turn;

enum login_turn_kind {
    LOGIN_TURN_OWN,       // argon2, on a thread
    LOGIN_TURN_PAM,       // a process each
    LOGIN_TURN_PROVIDER,  // likewise
    LOGIN_TURN_KINDS,
};

// Called once, when the turn has come or, with a problem, will not come.
typedef void (*login_turn_come)(void *arg, const struct error *problem);

// 1: it is `account`'s turn now, and `fn` is not called. 0: `fn` will be. Else refused: too many wait already.
// *out is ended with login_turn_end, unless `fn` was told of a problem.
int login_turn_take(struct controller *c, enum login_turn_kind kind, const struct net_request *req,
                    const char *account, login_turn_come fn, void *arg, struct login_turn **out,
                    struct error *e);
void login_turn_end(struct login_turn *t);  // accepts NULL; the next one begins
void login_turns_done(struct controller *c);
uint32_t login_turns_running(const struct controller *c);
