// Who a request over TLS comes from, decided from its head before its body is received; and what happens to wrong
// tokens. See docs/security.md.
#pragma once
#include <stdbool.h>
#include <stdint.h>

struct controller;
struct net_request;
struct net_admission;

void admission_check(struct net_request *req, struct net_admission *out, void *user);  // net_server_options.on_head
// A join token that was wrong counts like any other wrong token.
void admission_wrong_join(struct controller *c, const struct net_request *req);
void admission_done(struct controller *c);
