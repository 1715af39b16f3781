// What `acequia login` leaves for the commands after it: the server, the fingerprint of its certificate authority and
// a token, in the file "login" of the user's configuration folder, which nobody else may read.
#pragma once
#include <stdint.h>

#include "base/arena.h"
#include "base/error.h"

struct saved_login {
    const char *server;       // addresses in normal form (addresses.h)
    const char *fingerprint;  // SHA-256 of the authority's certificate
    const char *token, *user;
    int64_t expires_ms;
};

// -ENOENT: there is none.
int saved_login_read(const char *folder, struct arena *a, struct saved_login *out, struct error *e);
int saved_login_write(const char *folder, const struct saved_login *l, struct arena *a, struct error *e);
void saved_login_remove(const char *folder, struct arena *a);
