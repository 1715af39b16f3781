// Programs that the controller starts for one question each: acequia-pam, acequia-oidc, acequiad's own (backups, the
// state of earlier times, trials of policies). The question goes to their standard input, the answer comes from their
// standard output. They end with their answer, or are killed.
#pragma once
#include <stdint.h>

#include "base/buf.h"
#include "base/error.h"

struct controller;

enum { HELPER_OUTPUT_MAX = 256 << 10, HELPERS_MAX = 32 };

// Called once. status: its exit status; -1: it was killed, took too long, or said too much.
typedef void (*helper_done)(void *arg, int status, struct buf *output);

struct helper_question {
    const char *program;  // its file's name, as "acequia-pam"
    const char *module;   // whose program it is, as "pam"
    const char *role;     // its argument; NULL: none
    const char *path;     // its file; NULL: it is looked for by its name
    char *const *args;    // all of them, as for exec; NULL: the program and its role
    int answer;           // a descriptor that it gets as number 3, open until it is done; 0: none
    struct buf input;     // taken, and wiped when it was written
    uint32_t limit_ms;
    helper_done done;
    void *arg;
};
int helper_ask(struct controller *c, struct helper_question *q, struct error *e);
void helpers_free(struct controller *c);  // ends those that are left; nobody is called back any more
