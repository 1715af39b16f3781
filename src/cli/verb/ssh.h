// What both sides of ssh into a job share.
#pragma once
#include "base/buf.h"
#include "base/error.h"
#include "cli/command/command.h"

enum { SSH_KEY_LINE_MAX = 1024 };
#define SSH_GREETING "ACEQUIA-SSH-1 "  // comes first, with the host key, before the bytes of ssh

// `keygen` is run as `loader` says: NULL, or a loader and its folder of libraries (ssh_serve.c).
struct ssh_loader {
    const char *program, *libraries;
};
// ssh reads the client's key twice: when it starts, while our command may still remove one of a connection that has
// ended and make another, and when it is asked for it. In PEM form the first look tells it nothing, so the key of the
// second one counts.
enum ssh_key_use { SSH_KEY_HOST, SSH_KEY_CLIENT };
int verb_ssh_make_key(const char *keygen, const struct ssh_loader *loader, enum ssh_key_use use,
                      const char *path, struct error *e);
// "ecdsa-sha2-nistp256 AAAA…", without a comment and without an end of line.
int verb_ssh_public_key(const char *keygen, const struct ssh_loader *loader, const char *path,
                        struct buf *out, struct error *e);
int verb_ssh_serve(struct cli *c);  // inside the job
