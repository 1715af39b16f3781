// Where the controllers of a cluster are: one address or several, divided by commas, as people write them in
// ACEQUIA_HOST, in the configuration and after `acequia login`. In normal form each is HOST:PORT or the path of a
// socket, without spaces.
#pragma once
#include <stdbool.h>

#include "base/buf.h"
#include "base/error.h"

int addresses_normal(const char *list, struct buf *out, struct error *e);
// The rest is for lists in normal form.
unsigned addresses_count(const char *list);
const char *addresses_at(const char *list, unsigned number, size_t *len);
bool addresses_need_tls(const char *list);
bool addresses_within(const char *list, const char *known);  // each of `list` is one of `known`
// The parts of HOST:PORT; the brackets of an IPv6 address are left out. The caller frees `host`.
void addresses_split(const char *one, size_t len, char **host, unsigned *port);
