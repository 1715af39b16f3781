// The audit log: who did what, from where, on what, with which result. Logins, denials, tokens, and what administrators
// do and read of others. Kept in the store, bounded in size and age; readable by administrators.
#pragma once
#include <stdbool.h>
#include <stdint.h>

struct controller;
struct net_request;

struct audit_log;
void audit_open(struct controller *c);
void audit_close(struct controller *c);
void audit_login(struct controller *c, const struct net_request *req, const char *user, const char *token);
// Somebody was turned away from a program of a job or a service, whose requests are not ours.
void audit_denied(struct controller *c, const struct net_request *req, const char *on, int status);
// Every answer passes here; most are not recorded. `status` 499: the client left before its answer.
void audit_reply(struct controller *c, const struct net_request *req, int status);
