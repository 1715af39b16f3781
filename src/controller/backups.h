// Backups that the controller makes by itself, as [backup] says, and when an administrator asks for one. A process of
// its own (`acequiad backups`) does all that touches the folder, which may be on a slow or absent file server.
#pragma once
#include "controller.h"

struct backups *backups_new(void);
struct backups *backups_free(struct backups *b);  // returns NULL
void backups_tick(struct controller *c);          // once a second
// Why the latest could not be made, as a warning; NULL: it was, or none is wanted.
const char *backups_problem(const struct controller *c);
