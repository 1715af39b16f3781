// What is asked of requests that may come from a browser, which sends cookies along wherever a page comes from: the
// host they name, the page they come from, and the headers of answers. See docs/security.md.
#pragma once
#include <stdbool.h>

struct controller;
struct net_request;

// Whether the Host is one of ours: a page of a name that was made to point here (DNS rebinding) names another.
bool browser_host_known(const struct controller *c, const struct net_request *req);
// Whether the request comes from a page of ours, by Sec-Fetch-Site and Origin. A request that says nothing of where it
// comes from passes only where `unsaid` does.
bool browser_same_origin(const struct net_request *req, bool unsaid);
bool browser_is_unsafe(const struct net_request *req);  // it may change something, or becomes a WebSocket
// Headers of every answer over TLS or the loopback interface.
void browser_headers(struct net_request *req);
