// The portal: where browsers reach it, and its files.
#pragma once
#include <stdbool.h>

#include "base/error.h"

struct controller;
struct net_request;

// Reads its name and port from the store, or makes them, and listens on the loopback interface. A port that is taken
// is no error: the portal is then told to be off.
void portal_open(struct controller *c);
void portal_close(struct controller *c);
const char *portal_host(
    const struct controller *c);  // "RANDOM.localhost:PORT", as browsers name it; "": it is off
bool portal_has_path(const struct net_request *req);  // one of its files, or its page; not of the API
void portal_reply(struct controller *c, struct net_request *req);
