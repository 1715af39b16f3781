// Secrets given to jobs: values that users or projects have stored under a name, as an environment variable or a file.
#pragma once
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/arena.h"
#include "base/error.h"

enum {
    SECRET_VALUE_MAX = 64 << 10,
    SECRETS_PER_JOB = 32,
    SECRET_BYTES_PER_JOB = 256 << 10,  // of all values: they are decrypted and sent at each launch
    SECRETS_PER_OWNER = 100,  // of a user, or of a project
    SECRET_VARIABLE_MAX = 127,
};

// Names the variables of a job that hold secrets, joined by commas: commands that send their environment leave these
// out of it.
#define SECRET_VARIABLES "ACEQUIA_SECRETS"
#define SECRET_FILES "ACEQUIA_SECRET_FILES"  // those of them that hold the path of a file

// What a job asks for: NAME, NAME=VARIABLE, NAME:file or NAME:file=VARIABLE. The variable is NAME, or NAME_FILE with
// the path of the file, with '_' for what cannot be in a variable.
struct secret_wish {
    const char *name, *variable;
    bool file;
};

int secret_wish_parse(const char *text, struct arena *a, struct secret_wish *out, struct error *e);
int secret_wishes_check(const char *const *at, uint32_t len, struct error *e);  // each, and that they are different
// Whether an entry of the environment, NAME=value, is in the list of SECRET_VARIABLES, or is one of the two lists.
bool secret_variable(const char *list, const char *entry);
