// Who a request over TLS comes from, decided from its head before its body is received; and what happens to wrong
// tokens. See docs/security.md.
#pragma once
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct controller;
struct net_request;
struct net_admission;

enum { ADMISSION_LOCKED_DELAY_MS = 100 };  // of an answer that a token is locked out

void admission_check(struct net_request *req, struct net_admission *out, void *user);  // net_server_options.on_head
// A token: whose it is, or a refusal. A wrong one is counted.
void admission_by_token(struct controller *c, const struct net_request *req, const char *header,
                        struct net_admission *out);
// A wrong secret that is nobody's in particular (of joining, of a provider) counts like any other wrong token.
// Returns how many milliseconds the answer waits.
uint32_t admission_wrong_secret(struct controller *c, const struct net_request *req);
// A wrong password: how long the answer waits. After too many the name is refused from that address for a while.
uint32_t admission_wrong_login(struct controller *c, const struct net_request *req, const char *identity);
// Whether many wrong secrets came from an address, or some for one account; see login_turns.h.
bool admission_guesses_much(const struct controller *c, const char *address);
bool admission_has_guessed(const struct controller *c, const char *address, const char *account);
bool admission_login_locked(const struct controller *c, const struct net_request *req, const char *identity);
// The peer's, without its port; of IPv6 its network.
void admission_address(const struct net_request *req, char *out, size_t size);
void admission_done(struct controller *c);
